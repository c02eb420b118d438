"""The sections of the page that are plain HTML: they can be read without any script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analysis.compare.repetitions import repetitions
from analysis.formats import MINUTE_S, UNKNOWN, human, value, without_price
from analysis.measuring_window import in_words
from analysis.metrics.gputime import held_gpu_s, utilisation
from analysis.metrics.measures import MEASURES
from analysis.report import html
from analysis.report.judgement import INTERVALS, Judgement
from analysis.report.settings import Row, origins, resolved
from analysis.run import Run
from analysis.tables import notices, rule, speed_belief

HEADLINES = (
    "jobs", "jobs_finished", "jobs_rejected", "jobs_refused", "jobs_unfinished", "jct_mean_s", "jct_p50_s", "jct_p99_s",
    "queue_mean_s", "bounded_slowdown_mean", "makespan_s", "utilisation_share", "goodput_share", "rho_mean",
    "unfair_share", "jain_speed", "deadline_jobs", "deadline_met_share", "offered_load", "preemptions", "cost_usd",
    "energy_kwh",
)
"""Measures of the summary in its order."""
ALWAYS = ("jct_mean_s", "cost_usd", "energy_kwh")
"""Shown though no run has a value: that a cost is unknown is worth knowing."""
IF_ANY = ("deadline_jobs",)
"""Counts that are shown only where one is not 0."""
AGAINST = {
    "jct_mean_s": "JCT, mean (s)", "jct_p50_s": "JCT, median (s)", "jct_p99_s": "JCT, 99th percentile (s)",
    "queue_mean_s": "queueing, mean (s)", "jobs_cost_usd": "cost of these jobs (USD)",
    "cost_usd": "cost of the whole run (USD)", "makespan_s": "makespan of the whole run (s)",
}  # fmt: skip
"""Of a comparison, where less is better."""
CENSORED = "had not left when the measuring window ended"
"""In a notice of jobs that the window cut: they are told with the window."""
Measured = Mapping[str, float | int | None]


def shown(number: float | int | None, unit: str, best: bool = False) -> str:
    """A measure for people: as `analysis.formats.value`, times in words below; the best with a mark."""
    text = value(number, unit)
    words = f'<span class="human">{human(number)}</span>' if unit == "s" and abs(number or 0.0) >= MINUTE_S else ""
    return (f'<span class="best" title="better than each other run beyond the interval">{text}</span>' if best
            else text) + words


def at_least(known: float | None, unpriced_gpu_h: float = 0.0) -> str:
    """A cost of which a part has no known price; where nothing of it is known it is unknown, not 0."""
    if not known:
        return UNKNOWN
    least = value(known, "USD")
    return f'≥ {least}<span class="human">{without_price(unpriced_gpu_h)}</span>'


def unpriced_gpu_h(run: Run) -> float:
    """GPU time held on nodes without a known price, in GPU-h."""
    return float(held_gpu_s(run)[np.isnan(run.column("nodes", "price_usd_per_gpu_h"))].sum() / 3600.0)


def measure_table(
    names: Sequence[str], values: Sequence[Measured], rows: Sequence[str], best: Mapping[str, int],
    unpriced: Sequence[float], told: bool = False,
) -> str:
    """A row a measure, a column a run; what it means is its title, or told below its name."""
    lines = []
    for key in rows:
        measure, found = MEASURES[key], [one[key] for one in values]
        known = [v for v in found if v is not None]
        if key not in ALWAYS and (not known or (key in IF_ANY and not any(known))):
            continue
        lower = key.replace("_usd", "_known_usd")
        cells = [
            at_least(one.get(lower), gpu_h if key == "cost_usd" else 0.0) if v is None and measure.unit == "USD"
            else shown(v, measure.unit, best.get(key) == i)
            for i, (v, one, gpu_h) in enumerate(zip(found, values, unpriced, strict=True))
        ]
        meaning = html.text(f"{measure.meaning}: {measure.formula}")
        name = html.text(measure.label)
        title = f'<span title="{meaning}">{name}</span>' + (f'<span class="human">{meaning}</span>' if told else "")
        lines.append(html.row(title, cells))
    return html.table(html.head(names), lines)


def summary(runs: Sequence[Run], names: Sequence[str], values: Sequence[Measured], judged: Judgement) -> str:
    """Notices, the headlines, GPUs held by type, and every measure below."""
    said = [_said(run) for run in runs]
    shared = [line for line in said[0] if all(line in other for other in said)] if len(runs) > 1 else []
    lines = [html.text(line) for line in (*_window(runs, names), *shared)] + [
        f'<span data-run="{i}">{html.name(names[i]) + ": " if len(runs) > 1 else ""}{html.text(line)}</span>'
        for i, own in enumerate(said) for line in own if line not in shared
    ]  # fmt: skip
    types = list(dict.fromkeys(kind for run in runs for kind in run.types))
    held = [utilisation(run) for run in runs]
    by_type = [
        html.row(f"GPUs held, {html.name(kind)}", [shown(one.get(kind), "share") for one in held]) for kind in types
    ]
    unpriced = [unpriced_gpu_h(run) for run in runs]
    main = measure_table(names, values, HEADLINES, judged.best, unpriced)
    main = main.replace("</tbody>", "".join(by_type) + "</tbody>")
    rest = [key for key in MEASURES if key not in HEADLINES]
    best = ('<p class="hint">✓: better than each other run, beyond the interval of the comparison.</p>'
            if judged.best else "")
    return (
        unlike(judged) + html.items(lines, "notices") + main + best
        + f"<details><summary>All {len(MEASURES)} measures</summary>"
        + measure_table(names, values, rest, {}, unpriced, told=True) + "</details>"
    )  # fmt: skip


def unlike(judged: Judgement) -> str:
    """Why the runs cannot be judged by their numbers and charts; nothing where they can."""
    return f'<p class="notice">{html.text(judged.unlike)}</p>' if judged.unlike else ""


def _said(run: Run) -> list[str]:
    """Notices of a run, and what its policy knew that no scheduler knows; its window is told for all runs at once."""
    estimate = str(run.info.get("estimate") or "none")
    own = (line for line in notices(run) if line != in_words(run) and CENSORED not in line)
    lines = [f"A duration is: {rule(run)}.", *own]
    if estimate.startswith("oracle"):
        lines.append("The policy is clairvoyant: it was told the true run times (estimate 'oracle').")
    elif estimate != "none":
        lines.append(f"The policy was told run times by estimate '{estimate}'.")
    if belief := speed_belief(run):
        lines.append(f"The policy was told speeds by belief '{belief}': jobs ran at others.")
    return lines


def _window(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """The measuring windows of the runs in few sentences: what they share once, and what differs."""
    windows = [run.info.get("window") for run in runs]
    if not any(windows):
        return []
    spans = [(*run.window_s, int(run.counted.sum())) for run in runs]
    lines = []
    if len(set(spans)) == 1:
        lines.append(_span(*spans[0]))
    else:
        lines.append("The measuring windows differ. " + " ".join(
            f"{name}: {_span(*span)}" for name, span in zip(names, spans, strict=True)))
    for key, what in (
        ("jobs_there_at_end", "Count, but had not left when it closed: {}" + (
            ", seen to their end all the same." if all(run.followed for run in runs) else ".")),
        ("jobs_there_at_begin", "There when it opened, so that they hold GPUs and wait but do not count: {}."),
    ):
        counts = [(w or {}).get(key, 0) for w in windows]
        if any(counts):
            told = (f"{counts[0]:,} jobs" + (" of each run" if len(runs) > 1 else "") if len(set(counts)) == 1 else
                    ", ".join(f"{name} {count:,}" for name, count in zip(names, counts, strict=True)))
            lines.append(what.format(told))
    return lines


def _span(begin_s: float, end_s: float, jobs: int) -> str:
    return (f"Measured from {begin_s:,.10g} s to {end_s:,.10g} s on the trace's clock: the {jobs:,} jobs submitted in "
            "it count.")


def comparison(runs: Sequence[Run], judged: Judgement) -> str:
    """Each run against the first on the jobs that finished in all of them."""
    if len(runs) < 2:
        return "<p>One run: there is nothing to compare it with.</p>"
    found = judged.found
    if found is None:
        return f'<p class="notice">Not compared job by job: {html.text(judged.refused)}.</p>'
    teams, _ = repetitions(runs, False)
    of = [" ".join(str(i) for i, run in enumerate(runs) if any(run is one for one in team)) for team in teams]
    names, table, base = [str(name) for name in found.table.index], found.table, found.table.iloc[0]
    same = np.allclose(_floats(table["cost_usd"]), _floats(table["jobs_cost_usd"]), atol=0.005)
    windowed = any("window" in run.info for run in runs)
    lines = [
        html.row(title.replace("of the whole run", "in the window") if windowed else title,
                 [_against(row, base, key, names[0]) for _, row in table.iterrows()], of, "")
        for key, title in AGAINST.items()
        if key != "cost_usd" or not same
    ]
    for key, title in (("better_share", "jobs that finish sooner"), ("worse_share", "jobs that finish later")):
        shares = ["–" if i == 0 else value(v, "share") for i, v in enumerate(table[key])]
        lines.append(html.row(title, shares, of, ""))
    unsure = '<span title="a cost is unknown">cannot be said</span>'
    fronts = [unsure if pd.isna(on) else "yes" if on else "no" for on in table["on_front"]]
    lines.append(html.row("on the Pareto front of JCT and cost of these jobs", fronts, of, ""))
    jobs, are = ("job", "is") if found.paired == 1 else ("jobs", "are")
    about = (f"{found.paired:,} {jobs} finished in all runs and {are} compared, {found.left_out:,} "
             f"{'is' if found.left_out == 1 else 'are'} left out")
    return (
        html.items([html.text(line) for line in found.verdicts], "verdicts")
        + html.items([html.text(note) for note in found.notes], "notices")
        + f'<p class="hint">Baseline: {html.name(names[0])}, the first run. {about}. Better or worse is said only '
        "where there is an interval and it holds no change.</p>"
        + html.table(html.head(names, "", of, ""), lines)
    )


def _floats(column: pd.Series) -> np.ndarray:
    """A column of a comparison as numbers: one of None alone has none."""
    numbers: np.ndarray = column.to_numpy(np.float64, na_value=np.nan)
    return numbers


def _against(row: pd.Series, base: pd.Series, key: str, baseline: str) -> str:
    """A value with its change against the baseline: in words, and as a bar to the left (less) or right (more)."""
    number = row[key]
    if pd.isna(number):
        if not key.endswith("_usd"):
            return UNKNOWN
        return at_least(row[key.replace("_usd", "_known_usd")], row[key.replace("cost_usd", "unpriced_gpu_h")])
    text = value(float(number), MEASURES[key].unit if key in MEASURES else "USD")
    if row.name == base.name or pd.isna(base[key]) or base[key] == 0:
        return text + ('<span class="human">baseline</span>' if row.name == base.name else "")
    change = number / base[key] - 1
    if abs(change) < 5e-4:
        return f'{text}<span class="human">as {html.name(baseline)}</span>'
    word, side = "", "low flat" if change < 0 else "high flat"
    if key in INTERVALS:
        low, high, none = INTERVALS[key]
        if row[low] > none or row[high] < none:
            word, side = ("better", "low") if change < 0 else ("worse", "high")
        else:
            word = "within the interval" if pd.notna(row[low]) else "interval unknown"
    wide = min(abs(change), 1.0) * 50
    return (
        f'{text}<span class="human"><span class="{word if "flat" not in side else ""}">{100 * abs(change):.1f} % '
        f'{"less" if change < 0 else "more"}{f": {word}" if word else ""}</span></span>'
        f'<span class="bars" aria-hidden="true"><i class="{side}" style="width:{wide:.1f}%"></i></span>'
    )


def settings(runs: Sequence[Run], names: Sequence[str]) -> str:
    """Settings that differ, then all of them, then where the results come from."""
    rows, sources = resolved(runs), origins(runs)
    differing = [one for one in rows if one.differs]
    if len(runs) < 2:
        lead = ""
    elif differing:
        lead = f"<h3>What differs ({len(differing)})</h3>" + _setting_table(names, differing)
    else:
        lead = "<p>The runs have the same settings.</p>"
    return (
        f"{lead}<details><summary>All {len(rows)} resolved settings</summary>{_setting_table(names, rows)}</details>"
        "<details><summary>Trace, cluster, versions and hashes</summary>"
        f"{_setting_table(names, sources)}</details>"
    )


def _setting_table(names: Sequence[str], rows: Sequence[Row]) -> str:
    lines = []
    for one in rows:
        title = html.name(one.name) + (' <span class="unit">(differs)</span>' if one.differs else "")
        cells = ["–" if value is None else html.name(value) for value in one.values_of_runs]
        lines.append(html.row(title, cells, kind="value", row_kind="differs" if one.differs else ""))
    return html.table(html.head(names, "setting", kind=""), lines)
