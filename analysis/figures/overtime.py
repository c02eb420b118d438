"""What changes over time: GPUs held and jobs waiting, each by itself or together on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.figures.distribution import percent
from analysis.figures.seeds import entries
from analysis.figures.style import WIDTH_IN, legend, new_figure, style, time_unit
from analysis.metrics.series import ANY, NONE, averages, capacity, gpus_in_use, queue_length
from analysis.run import Run

BINS = 400
"""A longer time series is shown as means over this many bins of equal length."""
MAX_PANELS = 6
TITLES = {ANY: "any GPU type", NONE: "types that the cluster lacks"}
"""Of the panels of jobs that wait; others are named by their GPU types."""


def sampled(time_s: np.ndarray, values: np.ndarray, begin: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    """A step function as points for 'steps-post': itself if short, means over `BINS` bins if long.

    The state at the end itself (all that the end of a window cuts is given back there) lasts no time and is not drawn.
    """
    if end > begin and time_s[0] < end:
        lasts = time_s < end
        time_s, values = time_s[lasts], values[lasts]
    inside = int((time_s >= begin).sum())
    if inside <= 2 * BINS or end <= begin:
        return np.append(time_s, max(end, float(time_s[-1]))), np.append(values, values[-1])
    edges = np.linspace(begin, end, BINS + 1)
    means = averages(time_s, values, edges)
    return edges, np.append(means, means[-1])


def held_panels(runs: Sequence[Run]) -> dict[str, list[pd.DataFrame | None]]:
    """By GPU type, for each run the GPUs held over those in service (`share_held`); None where it has none of them."""
    types = list(dict.fromkeys(name for run in runs for name in run.types))
    return {name: [share_held(run, [name]) if name in run.types else None for run in runs] for name in types}


def queue_panels(runs: Sequence[Run], max_panels: int = MAX_PANELS) -> dict[str, list[pd.DataFrame | None]]:
    """By set of GPU types asked for, for each run the jobs waiting: columns time_s, y.

    The longest queue comes first; sets beyond `max_panels` are one panel, the last. A set for which nobody ever waited
    (types that the cluster lacks, say) makes none, unless it is the only one.
    """
    frames = [queue_length(run, by_type=True) for run in runs]
    longest = pd.concat([frame.drop(columns="time_s").max() for frame in frames], axis=1).max(axis=1)
    names = longest.sort_values(ascending=False, kind="stable").index.tolist()
    names = [name for name in names if longest[name] > 0] or names[:1]
    shown = names if len(names) <= max_panels else names[: max_panels - 1]
    panels = {TITLES.get(name, name): [name] for name in shown}
    if len(shown) < len(names):
        panels[f"one of {len(names) - len(shown)} other sets"] = names[len(shown) :]
    return {title: [_queue(frame, of) for frame in frames] for title, of in panels.items()}


def utilisation_over_time(runs: Sequence[Run], width_in: float = WIDTH_IN) -> Figure:
    """GPUs held over GPUs in service, a panel a GPU type, a line a run; 0 while all of a type is down."""
    with style(width_in):
        figure, panels = _over_time(runs, held_panels(runs))
        for axes in panels:
            _as_share(axes)
        figure.supylabel("GPUs held (% of those in service)", fontsize=8)
    return figure


def queue_over_time(runs: Sequence[Run], width_in: float = WIDTH_IN, max_panels: int = MAX_PANELS) -> Figure:
    """Jobs waiting over time, a panel a set of GPU types asked for (rare sets together), a line a run."""
    with style(width_in):
        series = {f"asking for {title}": frames for title, frames in queue_panels(runs, max_panels).items()}
        figure, panels = _over_time(runs, series)
        for axes in panels:
            _as_count(axes)
        figure.supylabel("jobs waiting (jobs)", fontsize=8)
    return figure


def overview(runs: Sequence[Run], width_in: float = WIDTH_IN) -> Figure:
    """GPUs held of all types and jobs waiting, one above the other over the same time, a line a run."""
    with style(width_in):
        together = {
            "held": [share_held(run, run.types) for run in runs],
            "queue": [_queue(queue_length(run), ["all"]) for run in runs],
        }
        figure, (held, queue) = _over_time(runs, together)
        _as_share(held)
        _as_count(queue)
        held.set_ylabel("GPUs held\n(% of those in service)")
        queue.set_ylabel("jobs waiting\n(jobs)")
        for axes in (held, queue):
            axes.set_title("", loc="left")
        figure.align_ylabels()
    return figure


def share_held(run: Run, types: Sequence[str]) -> pd.DataFrame:
    """GPUs held over GPUs in service of some types as a step function: columns time_s, y (0: none is in service)."""
    there = [name for name in types if name in run.types]
    if not there:
        return pd.DataFrame({"time_s": [run.window_s[0]], "y": [0.0]})
    held, offered = gpus_in_use(run, by_type=True), capacity(run)
    time_s = np.union1d(held["time_s"], offered["time_s"])

    def at(frame: pd.DataFrame) -> np.ndarray:
        where = np.searchsorted(frame["time_s"], time_s, side="right") - 1
        values = frame[there].sum(axis=1).to_numpy(np.float64)
        return np.where(where < 0, 0.0, values[np.maximum(where, 0)])

    y = np.divide(at(held), at(offered), out=np.zeros(len(time_s)), where=at(offered) > 0)
    return pd.DataFrame({"time_s": time_s, "y": y})


def _queue(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    there = [name for name in names if name in frame.columns]
    return pd.DataFrame({"time_s": frame["time_s"], "y": frame[there].sum(axis=1)})


def _over_time(
    runs: Sequence[Run], series: Mapping[str, Sequence[pd.DataFrame | None]]
) -> tuple[Figure, list[Axes]]:
    """One panel a name, one line a run; time counts from each run's first submit, or from where its window opens."""
    figure, panels = new_figure(len(series), 1.1 + 1.25 * len(series))
    length = max(run.window_s[1] - run.window_s[0] for run in runs)
    size, unit = time_unit(length)
    handles: dict[str, Artist] = {}
    for axes, (panel, frames) in zip(panels, series.items(), strict=True):
        for run, entry, frame in zip(runs, entries(runs), frames, strict=True):
            if frame is None:
                continue
            begin, end = run.window_s
            x, y = sampled(frame["time_s"].to_numpy(), frame["y"].to_numpy(np.float64), begin, end)
            (line,) = axes.plot((x - begin) / size, y, drawstyle="steps-post", **entry.line)
            if entry.label != "_":
                handles.setdefault(entry.label, line)
        axes.set_title(panel, loc="left")
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, max(length / size, 1e-9))
    panels[-1].set_xlabel(clock(runs, unit))
    named = [entry.label for entry in entries(runs) if entry.label in handles]
    legend(figure, [handles[name] for name in named], named)
    return figure, panels


def clock(runs: Sequence[Run], unit: str) -> str:
    """What the axis of time counts from."""
    whole = all(run.info.get("window") is None for run in runs)
    return f"time since {'first submit' if whole else 'the window opened'} ({unit})"


def _as_share(axes: Axes) -> None:
    percent(axes)
    axes.set_ylim(0, 1.05)


def _as_count(axes: Axes) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_ylim(0, max(axes.get_ylim()[1], 1.0))
