"""Tables for people: one run or several side by side, units in the row labels; and what to take notice of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from analysis.measure.load import offered_load
from analysis.metrics import cost_known_usd, end_reasons, summary
from analysis.run import Run, labels
from analysis.window import in_words

UNKNOWN = "unknown"
NONE = "–"


def human(time_s: float | None) -> str:
    """A time span in words, two units at most: 42.5 s, 12 min 5 s, 3 h 20 min, 2 d 4 h; '–' for None."""
    if time_s is None:
        return NONE
    if time_s < 0:
        return "-" + human(-time_s)
    if time_s < 59.95:
        return f"{time_s:.1f} s"
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    first = next(i for i, (_, size) in enumerate(units) if time_s >= size or size == 60)
    small = units[first + 1][1]
    whole = round(time_s / small) * small
    if first > 0 and whole >= units[first - 1][1]:
        first -= 1
    (name, size), (low, small) = units[first], units[first + 1]
    return f"{int(whole // size)} {name} {int(whole % size // small)} {low}"


def _span(time_s: float | None) -> str:
    """A time in seconds, and in words beside it once it is a minute."""
    if time_s is None:
        return NONE
    return f"{time_s:,.1f}" if time_s < 59.95 else f"{time_s:,.1f} ({human(time_s)})"


def _cost(run: Run, cost_usd: float | None) -> str:
    return (
        f"{cost_usd:,.2f}" if cost_usd is not None else f"{UNKNOWN} (known part {cost_known_usd(run):,.2f})"
    )


def _number(value: float | None, digits: int = 1) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"


def rule(run: Run) -> str:
    """What a duration is in this run: what the reader took from the trace, and how the engine replays it."""
    parts = (run.info.get("trace", {}).get("rule"), run.info.get("work", {}).get("rule"))
    return "; ".join(dict.fromkeys(str(p) for p in parts if p)) or UNKNOWN


def _rows(run: Run) -> dict[str, str]:
    """One run's column: row label with unit -> cell."""
    s = summary(run)
    rows = {
        "rule (what a duration is)": rule(run),
        "trace": str(run.info.get("trace", {}).get("source", UNKNOWN)),
        "estimates": str(run.info.get("estimate") or "none"),
        "jobs done": f"{s['jobs_done']:,}",
        "jobs rejected": f"{s['jobs_rejected']:,}",
        "jobs unfinished": f"{s['jobs_unfinished']:,}",
        "JCT mean (s)": _span(s["jct_mean_s"]),
        "JCT median (s)": _span(s["jct_p50_s"]),
        "JCT 99th percentile (s)": _span(s["jct_p99_s"]),
        "queueing mean (s)": _span(s["queue_mean_s"]),
        "makespan (s)": _span(s["makespan_s"]),
    }
    for name, share in s["utilisation"].items():
        rows[f"GPUs held, {name} (%)"] = NONE if share is None else f"{100 * share:.1f}"
    rows |= {
        "GPU time held (GPU-h)": _number(s["gpu_hours"], 1 if s["gpu_hours"] >= 100 else 3),
        "cost (USD)": _cost(run, s["cost_usd"]),
        "preemptions": f"{s['preemptions']:,}",
    }
    moved = sum(end_reasons(run).get(reason, 0) for reason in ("migrated", "resized"))
    failed = end_reasons(run).get("node_failed", 0)
    rows |= {"moves and resizes": f"{moved:,}"} if moved else {}
    rows |= {"node failures that hit a job": f"{failed:,}"} if failed else {}
    return rows | {
        "simulator wall time (s)": _number(s["wall_s"], 2),
        "simulator peak memory (MiB)": _number(s["peak_mib"], 0),
        "run folder": s["run_dir"],
    }


def summary_table(runs: Run | Sequence[Run]) -> Table:
    """A rich table of one run, or of several side by side; its caption holds the notices of all of them."""
    runs = [runs] if isinstance(runs, Run) else list(runs)
    columns = [_rows(run) for run in runs]
    table = Table(
        title="Run" if len(runs) == 1 else f"{len(runs)} runs", caption_justify="left", title_justify="left"
    )
    table.add_column("", no_wrap=True)
    for name in labels(runs):
        table.add_column(escape(name), justify="left" if len(runs) == 1 else "right", overflow="fold")
    for label in dict.fromkeys(label for column in columns for label in column):
        table.add_row(label, *(escape(column.get(label, NONE)) for column in columns))
    said = {name: notices(run) for name, run in zip(labels(runs), runs, strict=True)}
    shared = [text for text in next(iter(said.values()), []) if all(text in other for other in said.values())]
    lines = shared + [
        f"{name}: {text}" for name, texts in said.items() for text in texts if text not in shared
    ]
    table.caption = escape("\n".join(lines)) or None
    return table


def notices(run: Run) -> list[str]:
    """What to know before believing the numbers: overload by type, jobs that did not run, unknown prices."""
    found = [in_words(run)] if "window" in run.info else []
    load = offered_load(run).to_dict("index")
    for name, row in ((name, load[name]) for name in run.types):
        if row["load"] is None or row["load"] <= 1:
            continue
        end = row["drain_s"]
        drain = "not drained when the run ended" if end is None else f"drained {human(end)} later"
        found.append(
            f"Offered load on {name} is {row['load']:.2f} by recorded durations, above 1, over "
            f"{human(row['window_s'])}; backlog then {row['backlog_gpu_h']:,.2f} GPU-h, {drain}."
        )
    left = run.jobs[run.counted & run.jobs["state"].isin(("rejected", "unfinished"))]
    reasons = Counter(zip(left["state"], left["reason"], strict=True)).most_common()
    for (state, reason), count in reasons[:3]:
        found.append(f"{count:,} {'job' if count == 1 else 'jobs'} {state}: {reason}.")
    if len(reasons) > 3:
        found.append(
            f"{len(reasons) - 3} further reasons of rejected or unfinished jobs are in jobs.parquet."
        )
    unknown = run.nodes.loc[run.nodes["price_usd_per_gpu_h"].isna(), "gpu_type"].unique()
    if len(unknown):
        found.append(f"No price is known for {', '.join(unknown)}: that GPU time is in no cost.")
    counts = run.info.get("trace", {}).get("counts", {})
    return found + [f"Trace: {what}: {count}." for what, count in counts.items() if count]
