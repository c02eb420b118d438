"""A trace in one picture, drawn from what `hetsim trace describe` found: run times, sizes, when jobs come, users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from analysis.figures.style import COLOURS, FORMATS, log_scale, look, save, style, time_unit
from analysis.run import RunError

SIZE_IN = (7.2, 7.4)
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
WIDEST = 10
"""Rows of a bar chart; more of them are drawn as one."""


def check_ending(path: Path) -> None:
    """Raise RunError if the file does not end in a format that is drawn."""
    if path.suffix[1:] not in FORMATS:
        raise RunError("unknown figure format", where=str(path), got=path.suffix,
                       allowed=", ".join(f".{kind}" for kind in FORMATS))


def draw(summary: Mapping[str, Any], path: Path) -> Path:
    """Draw a summary of `traces.study.describe.describe` into a file: the same bytes for the same trace.

    Raises
    ------
    HetsimError
        Another ending, or a file that cannot be written.
    """
    check_ending(path)
    return save(picture(summary), path)


def picture(summary: Mapping[str, Any]) -> Figure:
    """Six panels: run time, GPUs a job, hour, weekday, time, virtual clusters (or users, or GPU types)."""
    panels: tuple[Callable[[Axes, Mapping[str, Any]], None], ...] = (
        _run_times, _sizes, _hours, _weekdays, _over_time, _tenants)
    with style():
        figure = Figure(figsize=SIZE_IN)
        FigureCanvasAgg(figure)
        for axes, panel in zip(figure.subplots(3, 2).flat, panels, strict=True):
            panel(axes, summary)
        figure.suptitle(f"{Path(summary['provenance']['source']).name}: {summary['jobs']:,} jobs, "
                        f"{summary['gpu_hours']:,.0f} GPU-hours", fontsize=9)
    return figure


def _run_times(axes: Axes, summary: Mapping[str, Any]) -> None:
    """Share of the jobs that run at most so long, in all and by class of GPUs; below 1 s is drawn at 1 s."""
    for i, (name, curve) in enumerate(summary["curves"].items()):
        label = "all jobs" if name == "all" else f"{name} GPU" + "s" * (name not in ("1", "below 1"))
        axes.plot(np.maximum(curve, 1.0), np.linspace(0, 1, len(curve)), label=label, **look(i))
    log_scale(axes, "x")
    axes.set(xlabel="run time (s)", ylabel="jobs (%)", ylim=(0, 1.01))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.legend(loc="lower right")


def _sizes(axes: Axes, summary: Mapping[str, Any]) -> None:
    rows = summary["gpus"]  # many fractions, or many odd sizes, are put together
    _pairs(axes, _by_powers(rows) if len(rows) > WIDEST else [row | {"value": f"{row['value']:g}"} for row in rows])
    axes.set_xlabel("GPUs a job takes")


def _by_powers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of numbers by the power of two that is at or below them; all below one together."""
    merged: dict[int, dict[str, Any]] = {}
    for row in rows:
        power = int(np.floor(np.log2(row["value"]))) if row["value"] >= 1 else -1
        name = "below 1" if power < 0 else f"{2**power}" if power == 0 else f"{2**power}–{2 ** (power + 1) - 1}"
        into = merged.setdefault(power, {"value": name, "jobs_share": 0.0, "gpu_hours_share": 0.0})
        for share in ("jobs_share", "gpu_hours_share"):
            into[share] += row[share]
    return list(merged.values())


def _hours(axes: Axes, summary: Mapping[str, Any]) -> None:
    zone = summary["calendar"]["tz"]
    _bars(axes, summary["hours"], f"hour of the day ({zone})" if zone else "hour, counted from submit_s = 0")


def _weekdays(axes: Axes, summary: Mapping[str, Any]) -> None:
    _bars(axes, summary["weekdays"], "day of the week")
    axes.set_xticks(range(7), DAYS if summary["calendar"]["tz"] else [str(day + 1) for day in range(7)])


def _bars(axes: Axes, jobs: list[int], xlabel: str) -> None:
    total = max(sum(jobs), 1)
    axes.bar(range(len(jobs)), [count / total for count in jobs], color=COLOURS[0], width=0.8)
    axes.set(xlabel=xlabel, ylabel="jobs submitted (%)")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.grid(axis="x", visible=False)


def _over_time(axes: Axes, summary: Mapping[str, Any]) -> None:
    """GPUs that run, had nobody waited longer than recorded; and the jobs submitted an hour, on the right."""
    series = summary["over_time"]
    count, bin_s = len(series["jobs"]), series["bin_s"]
    axes.set_ylabel("GPUs that run", color=COLOURS[0])
    if not count:
        axes.set_xlabel("all jobs come at once")
        return
    size, unit = time_unit(count * bin_s)
    time = np.arange(count) * bin_s / size
    axes.plot(time, series["gpus"], color=COLOURS[0], drawstyle="steps-post")
    axes.set(xlabel=f"time since first submit ({unit})", ylim=(0, None), xlim=(0, count * bin_s / size))
    right = axes.twinx()
    right.plot(time, np.array(series["jobs"]) / bin_s * 3600, color=COLOURS[1], linewidth=0.6, drawstyle="steps-post")
    right.set_ylabel("jobs an hour", color=COLOURS[1])
    right.set_ylim(bottom=0)
    right.spines["right"].set_visible(True)
    right.grid(visible=False)


def _tenants(axes: Axes, summary: Mapping[str, Any]) -> None:
    """Virtual clusters; where there are none, users; else GPU types."""
    kinds = (("vcs", "virtual cluster"), ("top_users", "user"), ("gpu_types", "GPU type"))
    name, what = next((kind for kind in kinds if len(summary[kind[0]]) > 1), kinds[-1])
    rows = summary[name]
    shown = [row | {"value": str(row["value"])[:12] or "(none)"} for row in rows[:WIDEST]]
    _pairs(axes, shown)
    axes.set_xlabel(what + (f" (the first {len(shown)} of {len(rows)})" if len(rows) > len(shown) else ""))
    axes.tick_params(axis="x", rotation=45)


def _pairs(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Share of jobs and of GPU time side by side."""
    at = np.arange(len(rows))
    axes.bar(at - 0.2, [row["jobs_share"] for row in rows], 0.4, color=COLOURS[0], label="jobs")
    axes.bar(at + 0.2, [row["gpu_hours_share"] for row in rows], 0.4, color=COLOURS[1], label="GPU time")
    axes.set_xticks(at, [row["value"] for row in rows])
    axes.set_ylabel("share (%)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))
    axes.grid(axis="x", visible=False)
    axes.legend()
