"""What the page's charts show, as plain lists: distributions thinned by rank, time series as exact means over bins.

Each function returns one entry a run, None where the run has nothing to show; the page draws those that are on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.figures.distribution import WHISKERS, curve, wait_classes
from analysis.figures.overtime import held_panels, queue_panels, sampled
from analysis.figures.style import COLOURS, DASHES, MARKS, time_unit
from analysis.metrics import cost_known_usd, cost_usd, gpu_hours
from analysis.metrics.costs import cost_by_type_usd
from analysis.run import Run

MARKERS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross", "X": "x",
    "<": "triangle-left", ">": "triangle-right", "*": "star", "p": "pentagon", "h": "hexagon",
}  # fmt: skip
DASH_PX = 2.0
"""Pixels of one unit of a dash."""


def look(i: int) -> dict[str, str]:
    """Colour, dash and marker of run i in the words of the page: those of the figures."""
    dash = DASHES[i % len(DASHES)]
    pixels = "solid" if dash == "-" else ",".join(f"{DASH_PX * part:g}px" for part in dash[1])
    return {"colour": COLOURS[i % len(COLOURS)], "dash": pixels, "marker": MARKERS[MARKS[i % len(MARKS)]]}


def distribution(values: np.ndarray) -> dict[str, list[float]] | None:
    """Empirical distribution of the values that are known: x, and y the share that is at most so large."""
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    x, y = curve(known)
    return {"x": np.round(x, 3).tolist(), "y": np.round(y, 6).tolist()}


def waits(runs: Sequence[Run]) -> dict[str, Any]:
    """Queueing of finished jobs by GPUs asked for: a row a run of boxes (None: no such job), a box a class.

    A box: the percentiles `analysis.figures.distribution.WHISKERS`, the mean, and the number of jobs.
    """
    names, rows = wait_classes(runs)
    boxes = [[box and {"at": np.round(box.at_s, 2).tolist(), "mean": round(box.mean_s, 2), "jobs": box.jobs}
              for box in row] for row in rows]
    return {"classes": names, "percentiles": list(WHISKERS), "runs": boxes}


def held_over_time(runs: Sequence[Run]) -> dict[str, Any]:
    """GPUs held over GPUs in service, a panel a GPU type, in per cent."""
    return _over_time(runs, held_panels(runs), scale=100.0)


def queue_over_time(runs: Sequence[Run]) -> dict[str, Any]:
    """Jobs waiting, a panel a set of GPU types asked for; rare sets together."""
    return _over_time(runs, queue_panels(runs))


def _over_time(
    runs: Sequence[Run], panels: Mapping[str, Sequence[pd.DataFrame | None]], scale: float = 1.0
) -> dict[str, Any]:
    """Panels of step functions; times since the begin of each run or its window, in one unit."""
    size, unit = time_unit(max(run.window_s[1] - run.window_s[0] for run in runs))
    drawn = []
    for title, frames in panels.items():
        lines: list[dict[str, Any] | None] = []
        for run, frame in zip(runs, frames, strict=True):
            if frame is None:
                lines.append(None)
                continue
            begin, end = run.window_s
            x, y = sampled(frame["time_s"].to_numpy(), scale * frame["y"].to_numpy(np.float64), begin, end)
            lines.append({"x": np.round((x - begin) / size, 6).tolist(), "y": np.round(y, 4).tolist()})
        drawn.append({"title": title, "runs": lines})
    return {"unit": unit, "panels": drawn}


def costs(runs: Sequence[Run]) -> dict[str, Any]:
    """Cost of the GPU time held by GPU type, in USD (None: its price is unknown), and the GPU-hours behind it."""
    types = list(dict.fromkeys(name for run in runs for name in run.types))
    rows = []
    for run in runs:
        hours, cost = gpu_hours(run), cost_by_type_usd(run)
        usd = [cost.get(name, 0.0) for name in types]
        rows.append({
            "usd": [None if one is None else round(one, 4) for one in usd],
            "gpu_hours": [round(hours.get(name, 0.0), 4) for name in types],
        })
    return {"types": types, "runs": rows}


def trade(runs: Sequence[Run], jct_s: Sequence[np.ndarray]) -> list[dict[str, float | bool] | None]:
    """Mean JCT in s and cost in USD of each run; None where no job finished. Not `known`: the cost is at least this."""
    points: list[dict[str, float | bool] | None] = []
    for run, jct in zip(runs, jct_s, strict=True):
        finished, known = jct[np.isfinite(jct)], cost_usd(run) is not None
        point = {"cost_usd": cost_known_usd(run), "known": known}
        points.append({"jct_s": float(finished.mean()), **point} if len(finished) else None)
    return points
