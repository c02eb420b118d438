"""Tables for people: one run or several side by side, units in the row labels; and what to take notice of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from rich.markup import escape
from rich.table import Table

from analysis.formats import NONE, UNKNOWN, human, span, value
from analysis.measuring_window import in_words
from analysis.metrics import cost_egress_usd, cost_known_usd, end_reasons, summary
from analysis.metrics.offered import loads, modelled_load
from analysis.run import TURNED_AWAY, Run, cut_at, labels
from traces.words import among


def _cost(run: Run, cost_usd: float | None) -> str:
    known = "" if cost_usd is not None else f" (known part {value(cost_known_usd(run), 'USD')})"
    sent = cost_egress_usd(run)
    of_it = "" if sent == 0 else f", of it {value(sent, 'USD')} for bytes that left a zone"
    return value(cost_usd, "USD") + known + of_it


def rule(run: Run) -> str:
    """What a duration is in this run: what the reader took from the trace, and how the engine replays it."""
    parts = (run.info.get("trace", {}).get("rule"), run.info.get("work", {}).get("rule"))
    return "; ".join(dict.fromkeys(str(p) for p in parts if p)) or UNKNOWN


def speed_belief(run: Run) -> str:
    """What the policy believed of speeds; empty where that was the truth, or it used none."""
    kind = str(run.info.get("speed_belief") or "none")
    error = run.info.get("speed_error")
    return "" if kind in ("none", "exact") else kind + ("" if error is None else f", mean relative error {error:.3f}")


def _rows(run: Run) -> dict[str, str]:
    """One run's column: row label with unit -> cell."""
    s = summary(run)
    rows = {
        "rule (what a duration is)": rule(run),
        "trace": str(run.info.get("trace", {}).get("source", UNKNOWN)),
        "estimates": str(run.info.get("estimate") or "none"),
        **({"belief of speeds": belief} if (belief := speed_belief(run)) else {}),
        "jobs finished": f"{s['jobs_finished']:,}",
        **({"jobs cut by the log": f"{cut:,}"} if (cut := int((run.asked & run.cut).sum())) else {}),
        "jobs rejected": f"{s['jobs_rejected']:,}",
        **({"jobs refused": f"{s['jobs_refused']:,}"} if s["jobs_refused"] else {}),
        "jobs unfinished": f"{s['jobs_unfinished']:,}",
        "JCT mean (s)": span(s["jct_mean_s"]),
        "JCT median (s)": span(s["jct_p50_s"]),
        "JCT 99th percentile (s)": span(s["jct_p99_s"]),
        "queueing mean (s)": span(s["queue_mean_s"]),
        "makespan (s)": span(s["makespan_s"]),
    }
    for name, share in s["utilisation"].items():
        rows[f"GPUs held, {name} (%)"] = value(None if share is None else 100 * share, "%")
    rows |= {
        "GPU time held (GPU-h)": value(s["gpu_hours"], "GPU-h"),
        "cost (USD)": _cost(run, s["cost_usd"]),
        "preemptions": f"{s['preemptions']:,}",
    }
    moved = sum(end_reasons(run).get(reason, 0) for reason in ("migrated", "resized"))
    failed, upkeep = (end_reasons(run).get(reason, 0) for reason in ("node_failed", "maintenance"))
    rows |= {"moves and resizes": f"{moved:,}"} if moved else {}
    ended = end_reasons(run).get("lease_ended", 0)
    rows |= {"leases that ended": f"{ended:,}"} if ended else {}
    rows |= {"node failures that hit a job": f"{failed:,}"} if failed else {}
    rows |= {"interruptions by maintenance": f"{upkeep:,}"} if upkeep else {}
    return rows | {
        "simulator wall time (s)": value(s["wall_s"], "s"),
        "simulator peak memory (MiB)": value(s["peak_mib"], "MiB"),
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


def _overload(run: Run) -> list[str]:
    """Loads above 1: the modelled load where the run has it, else the recorded one, type by type."""
    load, modelled = loads(run), modelled_load(run)
    what = {name: ("Recorded load on " + name, load[name]["load"]) for name in run.types}
    if modelled is not None:
        what = {"all": ("Modelled load", modelled)}
    found = []
    for name, (title, high) in what.items():
        if high is None or high <= 1:
            continue
        row = load[name]
        end = row["drain_s"]
        drain = "not drained when the run ended" if end is None else f"drained {human(end)} later"
        found.append(
            f"{title} is {high:.2f}, above 1, over {human(row['window_s'])}; backlog then "
            f"{row['backlog_gpu_h']:,.2f} GPU-h, {drain}."
        )
    return found


def cut_in_words(run: Run) -> str:
    """How many jobs the log cuts off, so that they do not count, and where; empty where it shows all jobs whole."""
    begin, end = (int((run.asked & cut).sum()) for cut in cut_at(run))
    if not begin + end:
        return ""
    both = begin + end - int((run.asked & run.cut).sum())
    return (f"{int(run.asked.sum()):,} jobs, {int(run.counted.sum()):,} counted; {begin:,} cut at the begin of the "
            f"log, {end:,} at its end" + (f", {both:,} of these at both" if both else "")
            + ": these hold GPUs, and their times are in no JCT.")


def notices(run: Run) -> list[str]:
    """What to know before believing the numbers: overload by type, jobs that did not run, unknown prices."""
    found = [in_words(run)] if "window" in run.info else []
    found += _overload(run)
    found += [text] if (text := cut_in_words(run)) else []
    states, why = (run.column("jobs", name) for name in ("state", "reason"))
    left = run.asked & among(states, (*TURNED_AWAY, "unfinished"))
    reasons = Counter(zip(states[left].tolist(), why[left].tolist(), strict=True)).most_common()
    for (state, reason), count in reasons[:3]:
        found.append(f"{count:,} {'job' if count == 1 else 'jobs'} {state}: {reason}.")
    if len(reasons) > 3:
        found.append(
            f"{len(reasons) - 3} further reasons of jobs that did not run to their end are in jobs.parquet."
        )
    unpriced = np.isnan(run.column("nodes", "price_usd_per_gpu_h"))
    unknown = list(dict.fromkeys(run.column("nodes", "gpu_type")[unpriced].tolist()))
    if unknown:
        found.append(f"No price is known for {', '.join(unknown)}: that GPU time is in no cost.")
    counts = run.info.get("trace", {}).get("counts", {})
    return found + [f"Trace: {what}: {count}." for what, count in counts.items() if count]
