"""Distributions over jobs: JCT, finish-time fairness, and queueing by GPU count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from analysis.figures.seeds import entries
from analysis.figures.style import WIDTH_IN, fill, legend, log_scale, new_figure, note, scale, style
from analysis.metrics import finished, jct_s, per_job, queue_s
from analysis.metrics.jobtimes import gpus_asked, in_state
from analysis.run import Run, labels

MAX_CURVE_POINTS = 2000
CLASSES = ((1, "1"), (4, "2–4"), (8, "5–8"), (16, "9–16"), (np.inf, ">16"))
"""Classes of GPUs that a job asks for: the most of each, and its name."""
MAX_OWN_CLASSES = 5
WHISKERS = (5.0, 25.0, 50.0, 75.0, 95.0)
"""Percentiles of a box: whisker, box, median, box, whisker."""
TIMES = {0.0: "0", 1.0: "1 s", 60.0: "1 min", 3600.0: "1 h", 86400.0: "1 d", 864000.0: "10 d", 8640000.0: "100 d"}
"""Ticks of an axis of times that opens with zero and goes on in powers."""


def curve(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An empirical distribution as points for 'steps-post': values, and the share of them that is at most so large.

    Up to 2,000 values are drawn one by one, of more every so many-th, smallest and largest among them.
    """
    values = np.sort(values)
    share = np.arange(1, len(values) + 1) / len(values)
    keep = np.unique(np.linspace(0, len(values) - 1, MAX_CURVE_POINTS).astype(np.int64))
    return np.concatenate((values[:1], values[keep])), np.concatenate(([0.0], share[keep]))


def percent(axes: Axes) -> None:
    """The y axis as per cent of all, from 0 to 100."""
    axes.set_ylim(0, 1.01)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))


def jct_cdf(runs: Sequence[Run], width_in: float = WIDTH_IN) -> Figure:
    """Share of finished jobs with a JCT of at most x, on a logarithmic time axis.

    JCTs below 1 s are drawn at 1 s. The axis opens where the first run has half a percent of its jobs.
    """
    with style(width_in):
        figure, (axes,) = new_figure()
        opening = np.inf
        for entry, run in zip(entries(runs), runs, strict=True):
            jct = np.sort(jct_s(run)[finished(run)])
            if not len(jct):
                continue
            x, y = curve(jct)
            opening = min(opening, float(jct[len(jct) // 200]))
            axes.plot(np.maximum(x, 1.0), y, drawstyle="steps-post", **entry.line)
        log_scale(axes, "x")
        if np.isfinite(opening):
            axes.set_xlim(left=max(opening, 1.0) / 1.5)
        axes.set(xlabel="job completion time (s)", ylabel="finished jobs (%)")
        percent(axes)
        _finish(figure, axes)
        note(figure, still_there(runs))
    return figure


def rho_cdf(runs: Sequence[Run], width_in: float = WIDTH_IN) -> Figure:
    """Share of finished jobs with a finish-time fairness ρ of at most x (`analysis.metrics.fairness`), and a line at 1.

    Right of the line are jobs that took longer than with an equal share of the cluster. The axis opens where half a
    percent of the jobs is.
    """
    with style(width_in):
        figure, (axes,) = new_figure()
        shown = [np.ones(1)]
        for entry, run in zip(entries(runs), runs, strict=True):
            rho = per_job(run)["rho"].to_numpy(np.float64)
            rho = rho[rho > 0]
            if len(rho):
                axes.plot(*curve(rho), drawstyle="steps-post", **entry.line)
                shown.append(np.percentile(rho, [0.5, 100]))
        ends = np.concatenate(shown)
        scale(axes, "x", ends)
        axes.set_xlim(ends.min() / 1.1, ends.max() * 1.1)
        axes.axvline(1.0, color="#555555", linewidth=0.8, zorder=0.9)
        axes.set(xlabel="finish-time fairness ρ (1: as with an equal share)", ylabel="finished jobs (%)")
        percent(axes)
        _finish(figure, axes)
        note(figure, still_there(runs))
    return figure


def _finish(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    legend(figure, handles, names)
    if not names:
        axes.text(0.5, 0.5, "no finished job", transform=axes.transAxes, ha="center", va="center")


def still_there(runs: Sequence[Run]) -> str:
    """How many jobs no distribution shows: they had not left, or the log cuts them off; empty where all are shown."""
    counts = [(name, int(in_state(run, "unfinished").sum()), int(run.counted.sum()))
              for name, run in zip(labels(runs), runs, strict=True)]
    parts = [f"{name} {left:,} of {whole:,}" for name, left, whole in counts if left]
    cut = [(name, int((run.asked & run.cut).sum())) for name, run in zip(labels(runs), runs, strict=True)]
    told = [f"not drawn, as they had not left (jobs): {', '.join(parts)}"] if parts else []
    if any(count for _, count in cut):
        told += ["not drawn, as the log cuts them off (jobs): " + ", ".join(f"{name} {n:,}" for name, n in cut if n)]
    return "; ".join(told)


@dataclass(frozen=True)
class Box:
    """Waiting of some jobs: the percentiles `WHISKERS` and the mean, in s; how many jobs they are."""

    at_s: tuple[float, ...]
    mean_s: float
    jobs: int


def wait_classes(runs: Sequence[Run]) -> tuple[list[str], list[list[Box | None]]]:
    """Queueing of finished jobs by GPUs asked for: names of the classes; a row a run, a box a class (None: no job).

    Each size is a class where there are at most five sizes, else 1, 2–4, 5–8, 9–16 and more than 16; shares of a GPU
    are one class.
    """
    sizes = [np.where(gpus_asked(run) >= 1, np.ceil(gpus_asked(run)), 0).astype(np.int64) for run in runs]
    done = [finished(run) for run in runs]
    names, edges = size_classes(np.unique(np.concatenate([size[of] for size, of in zip(sizes, done, strict=True)])))
    rows = []
    for run, size, known in zip(runs, sizes, done, strict=True):
        waited, of_class = queue_s(run), np.searchsorted(edges, size)
        rows.append([_box(waited[known & (of_class == k)]) for k in range(len(names))])
    return names, rows


def _box(waited: np.ndarray) -> Box | None:
    if not len(waited):
        return None
    return Box(tuple(np.percentile(waited, WHISKERS).tolist()), float(waited.mean()), len(waited))


def queueing(runs: Sequence[Run], width_in: float = WIDTH_IN) -> Figure:
    """Queueing time of finished jobs by GPUs asked for (`wait_classes`): quartiles, whiskers from p5 to p95, the mean.

    Below each class stands how many jobs its boxes are of. The axis is linear below 1 s.
    """
    with style(width_in):
        names, rows = wait_classes(runs)
        figure, (axes,) = new_figure(height_in=2.8)
        wide, drawn = 0.8 / len(runs), entries(runs)
        for i, (row, entry) in enumerate(zip(rows, drawn, strict=True)):
            at = {k + (i - (len(runs) - 1) / 2) * wide: box for k, box in enumerate(row) if box is not None}
            _boxes(axes, at, 0.82 * wide, entry.number)
        axes.set_yscale("symlog", linthresh=1.0, linscale=0.5)
        top = max(axes.get_ylim()[1], 1.5)
        ticks = [at for at in TIMES if at <= top]
        axes.set_yticks(ticks, [TIMES[at] for at in ticks])
        axes.minorticks_off()
        axes.set_ylim(0 - 0.05, top * 1.3)
        counts = [[box.jobs if box else 0 for box in of_class] for of_class in zip(*rows, strict=True)]
        axes.set_xticks(range(len(names)), [f"{n}\n{_jobs(c)}" for n, c in zip(names, counts, strict=True)])
        axes.set_xlim(-0.5, max(len(names), 1) - 0.5)
        axes.grid(axis="x", visible=False)
        axes.set(xlabel="GPUs asked for (number of finished jobs)", ylabel="queueing time")
        named = [entry for entry in drawn if entry.label != "_"]
        legend(figure, [Patch(**fill(entry.number)) for entry in named], [entry.label for entry in named])
        marks = "box: quartiles and median; whiskers: 5th and 95th percentile; diamond: mean"
        note(figure, "\n".join(filter(None, (marks, still_there(runs)))))
    return figure


def size_classes(found: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Names of the classes of GPU counts that occur, and the largest count of each (0: a share of a GPU)."""
    if len(found) <= MAX_OWN_CLASSES:
        pairs: list[tuple[float, str]] = [(int(n), str(int(n)) if n else "<1") for n in found]
    else:
        edges = np.array([0.0, *(most for most, _ in CLASSES)])
        names = ("<1", *(name for _, name in CLASSES))
        pairs = [(edges[k], names[k]) for k in np.unique(np.searchsorted(edges, found)).tolist()]
    return [name for _, name in pairs], np.array([most for most, _ in pairs], dtype=np.float64)


def _boxes(axes: Axes, at: Mapping[float, Box], width: float, number: int) -> None:
    """Boxes at these places. The mean is marked in the run's colour: where nobody waits, the box has no height."""
    if not at:
        return
    keys = ("whislo", "q1", "med", "q3", "whishi")
    boxes: list[Any] = [dict(zip(keys, b.at_s, strict=True)) | {"mean": b.mean_s, "fliers": []} for b in at.values()]
    thin: dict[str, Any] = {"color": "#333333", "linewidth": 0.7}
    look = fill(number)
    axes.bxp(boxes, positions=list(at), widths=width, showfliers=False, patch_artist=True, manage_ticks=False,
             boxprops={"facecolor": look["facecolor"], "hatch": look["hatch"], "edgecolor": "white", "linewidth": 0.5},
             medianprops={"color": "black", "linewidth": 1.2}, whiskerprops=thin, capprops=thin, showmeans=True,
             meanprops={"marker": "D", "markersize": 3.5, "markerfacecolor": look["facecolor"],
                        "markeredgecolor": "black", "markeredgewidth": 0.6, "clip_on": False, "zorder": 4})


def _jobs(counts: Sequence[int]) -> str:
    """How many jobs the boxes of a class are of: one number where all runs have the same."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
