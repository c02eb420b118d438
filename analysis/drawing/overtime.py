"""What changes over time: GPUs held and jobs waiting, each by itself or together on one page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.drawing.distribution import percent
from analysis.drawing.style import WIDTH_IN, legend, look, new_figure, style, time_unit
from analysis.measure.series import averages, capacity, gpus_in_use, queue_length
from analysis.run import Run, labels

BINS = 400
"""A longer time series is shown as means over this many bins of equal length."""
MAX_PANELS = 6


def sampled(time_s: np.ndarray, values: np.ndarray, begin: float, end: float) -> tuple[np.ndarray, np.ndarray]:
    """A step function as points for 'steps-post': itself if short, means over `BINS` bins if long."""
    inside = int(((time_s >= begin) & (time_s <= end)).sum())
    if inside <= 2 * BINS or end <= begin:
        return np.append(time_s, max(end, float(time_s[-1]))), np.append(values, values[-1])
    edges = np.linspace(begin, end, BINS + 1)
    means = averages(time_s, values, edges)
    return edges, np.append(means, means[-1])


def utilisation_over_time(runs: Sequence[Run], width_in: float = WIDTH_IN) -> Figure:
    """GPUs held over GPUs in service, a panel a GPU type, a line a run; 0 while all of a type is down."""
    with style(width_in):
        types = list(dict.fromkeys(name for run in runs for name in run.types))
        series = {name: [share_held(run, [name]) for run in runs] for name in types}
        figure, panels = _over_time(runs, series)
        for axes in panels:
            _as_share(axes)
        figure.supylabel("GPUs held (% of those in service)", fontsize=8)
    return figure


def queue_over_time(runs: Sequence[Run], width_in: float = WIDTH_IN, max_panels: int = MAX_PANELS) -> Figure:
    """Jobs waiting over time, a panel a set of GPU types asked for (rare sets together), a line a run."""
    with style(width_in):
        frames = [queue_length(run, by_type=True) for run in runs]
        total = pd.concat([frame.drop(columns="time_s").max() for frame in frames], axis=1).max(axis=1)
        names = total.sort_values(ascending=False, kind="stable").index.tolist()
        shown = names if len(names) <= max_panels else names[: max_panels - 1]
        series = {
            f"asking for {'any type' if n == 'any' else n}": [_queue(f, [n]) for f in frames] for n in shown
        }
        if len(shown) < len(names):
            rest = names[len(shown) :]
            series[f"asking for one of {len(rest)} other sets"] = [_queue(f, rest) for f in frames]
        figure, panels = _over_time(runs, series)
        for axes in panels:
            _as_count(axes)
        figure.supylabel("jobs waiting (jobs)", fontsize=8)
    return figure


def overview(runs: Sequence[Run], width_in: float = WIDTH_IN) -> Figure:
    """GPUs held of all types and jobs waiting, one above the other over the same time, a line a run."""
    with style(width_in):
        waiting = [queue_length(run).rename(columns={"all": "y"}) for run in runs]
        figure, (held, queue) = _over_time(runs, {"held": [share_held(r, r.types) for r in runs], "queue": waiting})
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


def _over_time(runs: Sequence[Run], series: dict[str, list[pd.DataFrame]]) -> tuple[Figure, list[Axes]]:
    """One panel a name, one line a run; time counts from each run's first submit, or from where its window opens."""
    figure, panels = new_figure(len(series), 1.1 + 1.25 * len(series))
    length = max(run.window_s[1] - run.window_s[0] for run in runs)
    size, unit = time_unit(length)
    for axes, (panel, frames) in zip(panels, series.items(), strict=True):
        for i, (run, label, frame) in enumerate(zip(runs, labels(runs), frames, strict=True)):
            begin, end = run.window_s
            x, y = sampled(frame["time_s"].to_numpy(), frame["y"].to_numpy(np.float64), begin, end)
            axes.plot((x - begin) / size, y, drawstyle="steps-post", label=label, **look(i))
        axes.set_title(panel, loc="left")
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, max(length / size, 1e-9))
    panels[-1].set_xlabel(clock(runs, unit))
    legend(figure, *panels[0].get_legend_handles_labels())
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
