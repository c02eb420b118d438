"""One HTML page of runs: it holds all that it needs, asks nothing of any network, and is the same for the same runs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from analysis.figures.style import MAX_RUNS
from analysis.metrics import measures, per_job
from analysis.report import charts, html, sections
from analysis.report.jobs import MOST_BYTES, JobTable, job_table
from analysis.report.judgement import judge
from analysis.report.stories import slowest
from analysis.run import Run, RunError, labels
from traces.outfile import refuse_existing, written

ASSETS = files("analysis.report") / "assets"
SCRIPTS = ("charts.js", "jobs.js", "main.js")
FIGURES = {
    "jct": ("Job completion time", "Share of finished jobs whose JCT is at most so long."),
    "waits": (
        "Queueing by GPUs asked for",
        "Boxes: quartiles and median; whiskers: 5th and 95th percentile; mark: mean.",
    ),
    "held": ("GPUs held over time", "By GPU type; of those in service."),
    "queue": ("Jobs waiting over time", "By the set of GPU types that they ask for."),
    "cost": ("Cost by GPU type", "GPU time held times price; what has no known price is in no bar."),
    "trade": (
        "Cost against JCT",
        "Lower left is better; dotted: the Pareto front. Hollow with an arrow up: a price is unknown, the cost is at "
        "least this; whether such a run, or one that it may beat, is on the front cannot be said.",
    ),
    "rho": (
        "Finish-time fairness",
        "Right of the line: slower than with an equal share of the cluster. One policy's ρ is no measure of another's: "
        "jobs that stay longer raise n, the number that share the cluster, and the slower policy then looks fairer.",
    ),
}
"""Title and caption of each chart, in their order on the page."""
PANELS = ("held", "queue")
"""Charts of several panels, which are taller."""


def page(runs: Sequence[Run], step: Callable[[int, int], None] | None = None, most_bytes: int = MOST_BYTES) -> str:
    """The report of some runs as one HTML document.

    Parameters
    ----------
    runs : one to twelve; the first is the baseline of the comparison.
    step : called with (parts done, of how many) now and then.
    most_bytes : limit of the table of jobs, beyond which it is the worst jobs and a sample, and says so.

    Raises
    ------
    RunError
        No run, more than twelve, or a run without jobs.
    """
    if not 1 <= len(runs) <= MAX_RUNS:
        raise RunError("so many runs make no report", got=len(runs), allowed=f"1 to {MAX_RUNS} runs")
    empty = next((run for run in runs if not run.counted.any()), None)
    if empty is not None:
        raise RunError("the run has no job to report", where=str(empty.path), todo="Choose another window or run.")
    done, whole = 0, 2 * len(runs) + 3

    def advance() -> None:
        nonlocal done
        done += 1
        if step is not None:
            step(done, whole)

    names, values, times = labels(runs), [], []
    for run in runs:
        values.append(measures(run))
        advance()
        times.append(per_job(run))
        advance()
    told, anchors = slowest(runs, names, times)
    advance()
    jobs = job_table(runs, times, anchors, most_bytes)
    advance()
    data = _chart_data(runs, names, times)
    advance()
    judged = judge(runs, names)
    scripts = "\n".join(_asset(file) for file in SCRIPTS)
    library = get_plotlyjs()
    return Template(_asset("page.html")).substitute(
        policy=_security(library, scripts),
        title=html.text("hetsim report: " + ", ".join(names)),
        subtitle=_subtitle(runs),
        style=_asset("style.css"),
        switches=_switches(names),
        summary=sections.summary(runs, names, values, judged),
        comparison=sections.comparison(runs, judged),
        unlike=sections.unlike(judged),
        charts=_figures(),
        since=_since(runs),
        slowest=told,
        jobs_left_out=_left_out(jobs),
        settings=sections.settings(runs, names),
        chart_data=_inert(data),
        job_data=jobs.text,
        plotly=library,
        script=scripts,
    )


def write_report(
    runs: Sequence[Run], file: str | Path, *, force: bool = False, step: Callable[[int, int], None] | None = None
) -> Path:
    """Write the report of some runs to a file (`traces.outfile.written`).

    Raises
    ------
    HetsimError
        The file is there already (without `force`), or cannot be written; else as `page`.
    """
    file = Path(file)
    refuse_existing(file, force)
    with written(file) as part:
        part.write_bytes(page(runs, step).encode("utf-8", "replace"))
    return file


def _asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def _security(*scripts: str) -> str:
    """The page's own law: no request to anywhere, and no script but those that are in it."""
    hashes = " ".join(
        "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'" for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "form-action 'none'; base-uri 'none'"
    )


def _inert(data: Any) -> str:
    """JSON that no text in it can end: '<' is escaped."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _subtitle(runs: Sequence[Run]) -> str:
    counts = sorted({int(run.counted.sum()) for run in runs})
    jobs = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
    sources = (str(run.info.get("trace", {}).get("source", "an unknown trace")) for run in runs)
    traces = dict.fromkeys(Path(source).name for source in sources)
    clusters = dict.fromkeys(
        f"{run.info.get('cluster', {}).get('name', 'a cluster')} ({int(run.column('nodes', 'gpus').sum()):,} GPUs)"
        for run in runs
    )
    said = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}; {jobs} jobs of"
    return f"{said} {', '.join(map(html.name, traces))} on {', '.join(map(html.name, clusters))}"


def _switches(names: Sequence[str]) -> str:
    parts = []
    for i, label in enumerate(names):
        look = charts.look(i)
        dash = "" if look["dash"] == "solid" else f' stroke-dasharray="{look["dash"].replace("px", "")}"'
        colour = 'class="black"' if look["colour"] == "#000000" else f'stroke="{look["colour"]}"'
        parts.append(
            f'<label><input type="checkbox" value="{i}" checked> '
            '<svg class="swatch" viewBox="0 0 26 10" aria-hidden="true">'
            f'<line x1="0" y1="5" x2="26" y2="5" {colour}{dash}/></svg> {html.name(label)}</label>'
        )
    return "".join(parts)


def _figures() -> str:
    return "".join(
        f'<figure><h3>{title}</h3><div class="chart{" tall" if key in PANELS else ""}" id="chart-{key}"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
        for key, (title, caption) in FIGURES.items()
    )


def _chart_data(runs: Sequence[Run], names: Sequence[str], times: Sequence[Any]) -> dict[str, Any]:
    jct = [one["jct_s"].to_numpy() for one in times]
    cost = charts.costs(runs)
    return {
        "runs": [{"name": label} | charts.look(i) for i, label in enumerate(names)],
        "since": _since(runs),
        "kinds": [charts.look(k) for k in range(len(cost["types"]))],
        "jct": [charts.distribution(one) for one in jct],
        "rho": [charts.distribution(one["rho"].to_numpy()) for one in times],
        "waits": charts.waits(runs),
        "held": charts.held_over_time(runs),
        "queue": charts.queue_over_time(runs),
        "cost": cost,
        "trade": charts.trade(runs, jct),
    }


def _since(runs: Sequence[Run]) -> str:
    """From when the page counts time."""
    return "the window's begin" if any("window" in run.info for run in runs) else "the first submit"


def _left_out(jobs: JobTable) -> str:
    if jobs.shown == jobs.jobs:
        return ""
    return (
        f'<p class="notice">All {jobs.jobs:,} rows would make the page too large: this table has {jobs.shown:,}, of '
        f"each run the {jobs.worst:,} jobs of longest JCT and an even sample of the others. All else on the page is of "
        "all jobs.</p>"
    )
