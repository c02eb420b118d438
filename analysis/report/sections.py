"""The sections of the page that are plain HTML: they can be read without any script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.compare import compare
from analysis.comparing.repetitions import repetitions
from analysis.measure.gputime import utilisation
from analysis.measure.measures import MEASURES
from analysis.report import html
from analysis.report.settings import Row, origins, resolved
from analysis.run import Run, RunError
from analysis.tables import human, notices, rule
from analysis.window import in_words

HEADLINES = {
    "jobs": "", "jobs_done": "", "jobs_killed": "", "jobs_failed": "", "jobs_rejected": "", "jobs_unfinished": "",
    "jct_mean_s": "low", "jct_p50_s": "low", "jct_p99_s": "low", "queue_mean_s": "low",
    "bounded_slowdown_mean": "low", "makespan_s": "low", "utilisation_share": "", "goodput_share": "high",
    "rho_mean": "low", "unfair_share": "low", "jain_speed": "high", "deadline_jobs": "", "deadline_met_share": "high",
    "offered_load": "", "preemptions": "", "cost_usd": "low", "energy_kwh": "low",
}  # fmt: skip
"""Measures of the summary in its order, and which of their values is better where one is."""
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
INTERVALS = {
    "jct_mean_s": ("jct_ratio_low", "jct_ratio_high", 1.0),
    "queue_mean_s": ("queue_change_low_s", "queue_change_high_s", 0.0),
    "jobs_cost_usd": ("cost_ratio_low", "cost_ratio_high", 1.0),
}
"""Of these there are intervals: their ends, and what is no change."""
UNKNOWN = "unknown"
Measured = Mapping[str, float | int | None]


def shown(value: float | int | None, unit: str, best: bool = False) -> str:
    """A measure for people: thousands apart, shares in per cent, times in words below; the best with a mark."""
    number = _number(value, unit)
    words = f'<span class="human">{human(value)}</span>' if unit == "s" and abs(value or 0.0) >= 59.95 else ""
    return (f'<span class="best" title="best of the runs of this page">{number}</span>' if best else number) + words


def _number(value: float | int | None, unit: str) -> str:
    if value is None:
        return UNKNOWN if unit in ("USD", "kWh") else "–"
    if unit == "share":
        return f"{100 * value:,.1f} %"
    if isinstance(value, int):
        return f"{value:,}"
    digits = 2 if unit == "USD" or abs(value) < 100 else 1
    return f"{value:,.{digits}f}" if unit != "" or abs(value) >= 10 else f"{value:,.3f}"


def measure_table(names: Sequence[str], values: Sequence[Measured], rows: Mapping[str, str]) -> str:
    """A row a measure, a column a run; the best of several is marked."""
    lines = []
    for key, better in rows.items():
        measure, found = MEASURES[key], [one[key] for one in values]
        known = [v for v in found if v is not None]
        if key not in ALWAYS and (not known or (key in IF_ANY and not any(known))):
            continue
        best = (min(known) if better == "low" else max(known)) if better and len(set(known)) > 1 else None
        cells = [shown(v, measure.unit, best is not None and v == best) for v in found]
        unit = f' <span class="unit">({measure.unit})</span>' if measure.unit not in ("", "share") else ""
        title = f'<span title="{html.text(measure.formula)}">{html.text(measure.meaning)}</span>'
        lines.append(html.row(title + unit, cells))
    return html.table(html.head(names), lines)


def summary(runs: Sequence[Run], names: Sequence[str], values: Sequence[Measured]) -> str:
    """Notices, the headlines, GPUs held by type, and every measure below."""
    said = [_said(run) for run in runs]
    shared = [line for line in said[0] if all(line in other for other in said)] if len(runs) > 1 else []
    lines = [html.text(line) for line in shared] + [
        f'<span data-run="{i}">{html.name(names[i]) + ": " if len(runs) > 1 else ""}{html.text(line)}</span>'
        for i, own in enumerate(said) for line in own if line not in shared
    ]  # fmt: skip
    types = list(dict.fromkeys(kind for run in runs for kind in run.types))
    held = [utilisation(run) for run in runs]
    by_type = [
        html.row(f"GPUs held, {html.name(kind)}", [shown(one.get(kind), "share") for one in held]) for kind in types
    ]
    main = measure_table(names, values, HEADLINES).replace("</tbody>", "".join(by_type) + "</tbody>")
    rest = {key: "" for key in MEASURES if key not in HEADLINES}
    return (
        html.items(lines, "notices") + main + f"<details><summary>All {len(MEASURES)} measures</summary>"
        + measure_table(names, values, rest) + "</details>"
    )  # fmt: skip


def _said(run: Run) -> list[str]:
    """Notices of a run, and what its policy knew that no scheduler knows."""
    estimate = str(run.info.get("estimate") or "none")
    lines = [f"A duration is: {rule(run)}.", *notices(run)]
    if estimate.startswith("oracle"):
        lines.append("The policy is clairvoyant: it was told the true run times (estimate 'oracle').")
    elif estimate != "none":
        lines.append(f"The policy was told run times by estimate '{estimate}'.")
    return [*lines, in_words(run)] if in_words(run) else lines


def comparison(runs: Sequence[Run]) -> str:
    """Each run against the first on the jobs that finished in all of them."""
    if len(runs) < 2:
        return "<p>One run: there is nothing to compare it with.</p>"
    try:
        found = compare(runs)
    except RunError as error:
        return f'<p class="notice">Not compared job by job: {html.text(error)}</p>'
    teams, _ = repetitions(runs, False)
    of = [" ".join(str(i) for i, run in enumerate(runs) if any(run is one for one in team)) for team in teams]
    names, base = [str(name) for name in found.table.index], found.table.iloc[0]
    lines = [
        html.row(title, [_against(row, base, key, names[0]) for _, row in found.table.iterrows()], of, "")
        for key, title in AGAINST.items()
        if key != "cost_usd" or not found.table[key].round(2).equals(found.table["jobs_cost_usd"].round(2))
    ]
    for key, title in (("better_share", "jobs that finish sooner"), ("worse_share", "jobs that finish later")):
        shares = ["–" if i == 0 else f"{100 * v:.1f} %" for i, v in enumerate(found.table[key])]
        lines.append(html.row(title, shares, of, ""))
    fronts = ["cost unknown" if pd.isna(on) else "yes" if on else "no" for on in found.table["on_front"]]
    lines.append(html.row("on the Pareto front of JCT and cost of these jobs", fronts, of, ""))
    about = f"{found.paired:,} jobs finished in all runs and are compared, {found.left_out:,} are left out"
    return (
        html.items([html.text(line) for line in found.verdicts], "verdicts")
        + html.items([html.text(note) for note in found.notes], "notices")
        + f'<p class="hint">Baseline: {html.name(names[0])}, the first run. {about}.</p>'
        + html.table(html.head(names, "", of, ""), lines)
    )


def _against(row: pd.Series, base: pd.Series, key: str, baseline: str) -> str:
    """A value with its change against the baseline: in words, and as a bar to the left (less) or right (more)."""
    value = row[key]
    if pd.isna(value):
        return UNKNOWN
    number = f"{value:,.1f}" if abs(value) < 1e6 else f"{value:,.0f}"
    if row.name == base.name or pd.isna(base[key]) or base[key] == 0:
        return number + ('<span class="human">baseline</span>' if row.name == base.name else "")
    change = value / base[key] - 1
    if abs(change) < 5e-4:
        return f'{number}<span class="human">as {html.name(baseline)}</span>'
    word, side = ("better", "low") if change < 0 else ("worse", "high")
    if key in INTERVALS:
        low, high, none = INTERVALS[key]
        if row[low] <= none <= row[high]:
            word, side = "within the interval", f"{side} flat"
    wide = min(abs(change), 1.0) * 50
    return (
        f'{number}<span class="human"><span class="{word if "flat" not in side else ""}">{100 * abs(change):.1f} % '
        f'{"less" if change < 0 else "more"}: {word}</span></span>'
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
