"""Figures, drawn from a run's tables only: PNG and PDF of the same bytes for the same run.

Each function returns a Figure of its own, which `analysis.style.save` writes; `draw_all` draws every figure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from analysis.gantt import MAX_GANTT_BARS, gantt
from analysis.metrics import cost_known_usd, cost_usd, finished, gpu_hours, held_gpu_s, jct_s
from analysis.run import Run, RunError, explode, labels
from analysis.series import averages, capacity, gpus_in_use, queue_length
from analysis.style import COLOURS, FORMATS, HATCHES, look, new_figure, save, style, time_unit

BINS = 400
"""A longer time series is shown as means over this many bins of equal length."""
MAX_CURVE_POINTS = 2000

MAX_RUNS = 12
"""More curves than this in one picture are told apart by nobody."""


def _legend(figure: Figure, axes: Axes, count: int) -> None:
    """One legend above the panels, where it covers no data."""
    if count > 1:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=min(count, 4))


def jct_cdf(runs: Sequence[Run]) -> Figure:
    """Share of finished jobs with a JCT of at most x, on a logarithmic time axis.

    JCTs below 1 s are drawn at 1 s. The axis opens where the first run has half a percent of its jobs.
    """
    with style():
        figure, (axes,) = new_figure()
        opening = np.inf
        for i, (name, run) in enumerate(zip(labels(runs), runs, strict=True)):
            jct = np.sort(jct_s(run)[finished(run)])
            if not len(jct):
                continue
            share = np.arange(1, len(jct) + 1) / len(jct)
            keep = np.unique(np.linspace(0, len(jct) - 1, MAX_CURVE_POINTS).astype(np.int64))
            x = np.maximum(np.concatenate((jct[:1], jct[keep])), 1.0)
            opening = min(opening, float(jct[len(jct) // 200]))
            axes.plot(x, np.concatenate(([0.0], share[keep])), drawstyle="steps-post", label=name, **look(i))
        axes.set_xscale("log")
        if np.isfinite(opening):
            axes.set_xlim(left=max(opening, 1.0) / 1.5)
        axes.set(xlabel="job completion time (s)", ylabel="finished jobs (%)", ylim=(0, 1.01))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
        _legend(figure, axes, len(runs))
    return figure


def _sampled(
    time_s: np.ndarray, values: np.ndarray, begin: float, end: float
) -> tuple[np.ndarray, np.ndarray]:
    """A step function as points for 'steps-post': itself if short, means over `BINS` bins if long."""
    inside = int(((time_s >= begin) & (time_s <= end)).sum())
    if inside <= 2 * BINS or end <= begin:
        return np.append(time_s, max(end, float(time_s[-1]))), np.append(values, values[-1])
    edges = np.linspace(begin, end, BINS + 1)
    means = averages(time_s, values, edges)
    return edges, np.append(means, means[-1])


def _over_time(
    runs: Sequence[Run], series: dict[str, list[pd.DataFrame]], ylabel: str
) -> tuple[Figure, list[Axes]]:
    """One panel a name, one line a run; time counts from each run's first submit."""
    figure, panels = new_figure(len(series), 1.1 + 1.25 * len(series))
    length = max(run.window_s[1] - run.window_s[0] for run in runs)
    size, unit = time_unit(length)
    for axes, (panel, frames) in zip(panels, series.items(), strict=True):
        for i, (run, label, frame) in enumerate(zip(runs, labels(runs), frames, strict=True)):
            begin, end = run.window_s
            x, y = _sampled(frame["time_s"].to_numpy(), frame["y"].to_numpy(np.float64), begin, end)
            axes.plot((x - begin) / size, y, drawstyle="steps-post", label=label, **look(i))
        axes.set_title(panel, loc="left")
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, max(length / size, 1e-9))
    figure.supylabel(ylabel, fontsize=8)
    panels[-1].set_xlabel(f"time since first submit ({unit})")
    _legend(figure, panels[0], len(runs))
    return figure, panels


def utilisation_over_time(runs: Sequence[Run]) -> Figure:
    """GPUs held over GPUs in service, a panel a GPU type, a line a run; 0 while all of a type is down."""
    with style():
        types = list(dict.fromkeys(name for run in runs for name in run.types))
        series: dict[str, list[pd.DataFrame]] = {name: [_share(run, name) for run in runs] for name in types}
        figure, panels = _over_time(runs, series, "GPUs held (% of those in service)")
        for axes in panels:
            axes.set_ylim(0, 1.05)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    return figure


def _share(run: Run, name: str) -> pd.DataFrame:
    """Held over in service of one type as a step function (empty type: 0)."""
    if name not in run.types:
        return pd.DataFrame({"time_s": [run.window_s[0]], "y": [0.0]})
    held, there = gpus_in_use(run, by_type=True), capacity(run)
    time_s = np.union1d(held["time_s"], there["time_s"])

    def at(frame: pd.DataFrame) -> np.ndarray:
        where = np.searchsorted(frame["time_s"], time_s, side="right") - 1
        return np.where(where < 0, 0.0, frame[name].to_numpy(np.float64)[np.maximum(where, 0)])

    y = np.divide(at(held), at(there), out=np.zeros(len(time_s)), where=at(there) > 0)
    return pd.DataFrame({"time_s": time_s, "y": y})


def queue_over_time(runs: Sequence[Run], max_panels: int = 6) -> Figure:
    """Jobs waiting over time, a panel a set of GPU types asked for (rare sets together), a line a run."""
    with style():
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
        figure, panels = _over_time(runs, series, "jobs waiting (jobs)")
        for axes in panels:
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.set_ylim(0, max(axes.get_ylim()[1], 1.0))
    return figure


def _queue(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    there = [name for name in names if name in frame.columns]
    return pd.DataFrame({"time_s": frame["time_s"], "y": frame[there].sum(axis=1)})


def cost_bars(runs: Sequence[Run]) -> Figure:
    """Cost of each run, stacked by GPU type; where a price is unknown it says so and shows what is known."""
    with style():
        figure, (axes,) = new_figure(height_in=0.9 + 0.38 * len(runs))
        types = list(dict.fromkeys(name for run in runs for name in run.types))
        left = np.zeros(len(runs))
        for k, name in enumerate(types):
            part = np.array([_cost_of(run, name) for run in runs])
            axes.barh(
                range(len(runs)),
                part,
                left=left,
                height=0.62,
                label=name,
                color=COLOURS[k % len(COLOURS)],
                hatch=HATCHES[k % len(HATCHES)],
                edgecolor="white",
                linewidth=0,
            )
            left += part
        for i, run in enumerate(runs):
            total = cost_usd(run)
            text = (
                f" {total:,.2f}"
                if total is not None
                else f" ≥ {cost_known_usd(run):,.2f} (price unknown: {_unpriced(run)})"
            )
            axes.annotate(text, (left[i], i), va="center", fontsize=7)
        axes.set_yticks(range(len(runs)), labels(runs))
        axes.set_ylim(len(runs) - 0.5, -0.5)
        room = 1.9 if any(cost_usd(run) is None for run in runs) else 1.22
        axes.set_xlim(0, left.max() * room if left.max() > 0 else 1.0)
        axes.set_xlabel("cost of GPU time held (USD)")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}"))
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.grid(axis="y", visible=False)
        _legend(figure, axes, len(types))
    return figure


def _cost_of(run: Run, name: str) -> float:
    mine = run.node_type == (run.types.index(name) if name in run.types else -1)
    return float(np.nansum(held_gpu_s(run)[mine] / 3600.0 * run.column("nodes", "price_usd_per_gpu_h")[mine]))


def _unpriced(run: Run) -> str:
    hours = gpu_hours(run)
    unknown = run.nodes.loc[run.nodes["price_usd_per_gpu_h"].isna(), "gpu_type"].unique()
    return ", ".join(f"{hours[name]:,.2f} GPU-h of {name}" for name in unknown)


def draw_all(runs: Sequence[Run], out_dir: str | Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw every figure that fits these runs into a folder; return the files.

    jct_cdf, utilisation, queue and cost of all runs together, and a gantt of each run that has room for one.

    Raises
    ------
    RunError
        No runs, an unknown format, or a folder that cannot be written.
    """
    if not runs:
        raise RunError("no runs to draw", got=0, allowed="one or more run folders")
    if len(runs) > MAX_RUNS:
        raise RunError(
            "too many runs for one picture", got=len(runs), allowed=f"1 to {MAX_RUNS}", todo="Name those to compare."
        )
    for kind in formats:
        if kind not in FORMATS:
            raise RunError("unknown figure format", got=kind, allowed=", ".join(FORMATS))
    folder, names = Path(out_dir), labels(runs)
    figures = {
        "jct_cdf": jct_cdf(runs),
        "utilisation": utilisation_over_time(runs),
        "queue": queue_over_time(runs),
        "cost": cost_bars(runs),
    }
    for i, run in enumerate(runs):
        bars = explode(run.tables["segments"]["gpu_ids"])[0].size
        if 0 < bars <= MAX_GANTT_BARS and run.window_s[1] > run.window_s[0]:
            label = re.sub(r"[^\w.-]+", "-", names[i])
            figures["gantt" if len(runs) == 1 else f"gantt_{label}"] = gantt(run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            save(figure, folder / f"{name}.{kind}") for name, figure in figures.items() for kind in formats
        ]
    except OSError as error:
        raise RunError(
            "the figures cannot be written",
            where=str(folder),
            got=error.strerror,
            todo="Name another folder.",
        ) from None
