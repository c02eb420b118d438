"""What the page's charts show, as plain lists: distributions thinned by rank, time series as exact means over bins.

Each function returns one entry a run, None where the run has nothing to show; the page draws those that are on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.drawing.distribution import WHISKERS, curve, gpus_asked, size_classes
from analysis.drawing.overtime import MAX_PANELS, sampled, share_held
from analysis.drawing.style import COLOURS, DASHES, MARKS, time_unit
from analysis.measure.series import queue_length
from analysis.metrics import cost_usd, gpu_hours, held_gpu_s
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


def waits(runs: Sequence[Run], queue_s: Sequence[np.ndarray]) -> dict[str, Any]:
    """Queueing of finished jobs by GPUs asked for: a row a run of boxes (None: no such job), a box a class.

    A box: the percentiles `analysis.drawing.distribution.WHISKERS`, the mean, and the number of jobs.
    """
    sizes = [np.where(gpus_asked(run) >= 1, np.ceil(gpus_asked(run)), 0).astype(np.int64) for run in runs]
    done = [np.isfinite(waited) for waited in queue_s]
    names, edges = size_classes(np.unique(np.concatenate([s[d] for s, d in zip(sizes, done, strict=True)])))
    rows = []
    for size, waited, known in zip(sizes, queue_s, done, strict=True):
        of_class = np.searchsorted(edges, size)
        rows.append([_box(waited[known & (of_class == k)]) for k in range(len(names))])
    return {"classes": names, "percentiles": list(WHISKERS), "runs": rows}


def _box(waited: np.ndarray) -> dict[str, Any] | None:
    if not len(waited):
        return None
    at = np.round(np.percentile(waited, WHISKERS), 2).tolist()
    return {"at": at, "mean": round(float(waited.mean()), 2), "jobs": len(waited)}


def held_over_time(runs: Sequence[Run]) -> dict[str, Any]:
    """GPUs held over GPUs in service, a panel a GPU type, in per cent."""
    types = list(dict.fromkeys(name for run in runs for name in run.types))
    return _over_time(runs, {name: [_percent(run, name) for run in runs] for name in types})


def _percent(run: Run, name: str) -> pd.DataFrame | None:
    if name not in run.types:
        return None
    share = share_held(run, [name])
    return pd.DataFrame({"time_s": share["time_s"], "y": 100.0 * share["y"]})


def queue_over_time(runs: Sequence[Run]) -> dict[str, Any]:
    """Jobs waiting, a panel a set of GPU types asked for; rare sets together."""
    frames = [queue_length(run, by_type=True) for run in runs]
    longest = pd.concat([frame.drop(columns="time_s").max() for frame in frames], axis=1).max(axis=1)
    names = longest.sort_values(ascending=False, kind="stable").index.tolist()
    shown = names if len(names) <= MAX_PANELS else names[: MAX_PANELS - 1]
    panels = {"any GPU type" if name == "any" else str(name): [name] for name in shown}
    if len(shown) < len(names):
        panels[f"one of {len(names) - len(shown)} other sets"] = names[len(shown) :]
    return _over_time(runs, {
        title: [pd.DataFrame({"time_s": f["time_s"], "y": f[[n for n in of if n in f]].sum(axis=1)}) for f in frames]
        for title, of in panels.items()
    })  # fmt: skip


def _over_time(runs: Sequence[Run], panels: dict[str, list[pd.DataFrame | None]]) -> dict[str, Any]:
    """Panels of step functions; times since each run's first submit in one unit."""
    size, unit = time_unit(max(run.window_s[1] - run.window_s[0] for run in runs))
    drawn = []
    for title, frames in panels.items():
        lines: list[dict[str, Any] | None] = []
        for run, frame in zip(runs, frames, strict=True):
            if frame is None:
                lines.append(None)
                continue
            begin, end = run.window_s
            x, y = sampled(frame["time_s"].to_numpy(), frame["y"].to_numpy(np.float64), begin, end)
            lines.append({"x": np.round((x - begin) / size, 6).tolist(), "y": np.round(y, 4).tolist()})
        drawn.append({"title": title, "runs": lines})
    return {"unit": unit, "panels": drawn}


def costs(runs: Sequence[Run]) -> dict[str, Any]:
    """Cost of the GPU time held by GPU type, in USD (None: its price is unknown), and the GPU-hours behind it."""
    types = list(dict.fromkeys(name for run in runs for name in run.types))
    rows = []
    for run in runs:
        price, held = run.column("nodes", "price_usd_per_gpu_h"), held_gpu_s(run) / 3600.0
        hours, usd = gpu_hours(run), []
        for name in types:
            mine = run.node_type == (run.types.index(name) if name in run.types else -1)
            unknown = bool((held[mine & np.isnan(price)] > 0).any())
            usd.append(None if unknown else round(float((held * np.nan_to_num(price))[mine].sum()), 4))
        rows.append({"usd": usd, "gpu_hours": [round(hours.get(name, 0.0), 4) for name in types]})
    return {"types": types, "runs": rows}


def trade(runs: Sequence[Run], jct_s: Sequence[np.ndarray]) -> list[dict[str, float] | None]:
    """Mean JCT in s and cost in USD of each run; None where no job finished or a price is unknown."""
    points: list[dict[str, float] | None] = []
    for run, jct in zip(runs, jct_s, strict=True):
        known, usd = jct[np.isfinite(jct)], cost_usd(run)
        points.append({"jct_s": float(known.mean()), "cost_usd": usd} if len(known) and usd is not None else None)
    return points
