"""Plans as strips: operators along the line, a box a stage, a colour a GPU type; of a job of a run, or of one plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures.gantt import PALETTE
from analysis.figures.style import WIDTH_IN, legend, new_figure, note, short, style, time_unit
from analysis.run import Run, RunError

MAX_PLANS = 12
"""Of a job that started more often the last ones are drawn."""
CHARACTER_IN = 0.055
"""What a character of a 6 pt text takes."""


def plan_of(run: Run, job_id: str, width_in: float = WIDTH_IN) -> Figure:
    """The plans of a job of a run, one below the other in the order of its starts (of more than 12 the last).

    A box is a stage: as wide as it has operators, parted by GPU type as its samples are; in it stand GPUs and type, and
    the peak memory of a GPU. At the left: when it started and the time of an iteration, of that on the GPUs it got.

    Raises
    ------
    RunError
        No such job, or it started without a plan.
    """
    run.row_of(job_id)
    plans = run.plans[run.plans["job_id"] == job_id]
    if not len(plans):
        raise RunError("the job has no plan", where=str(run.path), got=job_id,
                       allowed="a job that a policy with plans (hetero, homogeneous, …) started")
    starts = plans["begin_s"].drop_duplicates().tolist()
    types = sorted(plans["gpu_type"].unique(), key=lambda name: _place(name, run.types))
    size, unit = time_unit(run.window_s[1] - run.window_s[0])
    with style(width_in):
        shown = starts[-MAX_PLANS:]
        figure, (axes,) = new_figure(height_in=0.75 + 0.42 * len(shown))
        names = []
        for row, begin_s in enumerate(shown):
            mine = plans[plans["begin_s"] == begin_s].sort_values(["stage", "part"])
            stages = [
                [{"gpu_type": p["gpu_type"], "gpus": int(p["gpus"]), "share": p["share"], "first": int(p["first_op"]),
                  "last": int(p["last_op"]), "tensor": int(p["tensor"]), "need_gib": p["memory_gib"]}
                 for p in of_stage.to_dict("records")]
                for _, of_stage in mine.groupby("stage")
            ]
            strip(axes, row, stages, types)
            took = mine["true_iteration_s"].fillna(mine["iteration_s"]).iloc[0]
            names.append(f"{(begin_s - run.window_s[0]) / size:,.2f} {unit}" + (f"\n{_seconds(took)}" if took else ""))
        finish(axes, names, "time of its start\nand of an iteration")
        legend(figure, *key(types), one=True, title=f"plans of job {short(job_id)}")
        dropped = len(starts) - len(shown)
        note(figure, f"{_common(plans)}" + (f"; the last {len(shown)} of {len(starts)} starts" if dropped else ""))
    return figure


def strip(axes: Axes, row: int, stages: Sequence[Sequence[Mapping[str, Any]]], types: Sequence[str]) -> None:
    """Draw one plan between `row` and `row + 1`: stages of parts, each with gpu_type, gpus, share, first, last, tensor,
    need_gib (None or NaN: unknown)."""
    last = max(part["last"] for parts in stages for part in parts)
    room_in = (axes.get_figure().get_size_inches()[0] - 1.1) / (last + 1)  # type: ignore[union-attr]
    for parts in stages:
        top, whole = row + 0.06, sum(part["share"] for part in parts) or 1.0
        for part in parts:
            high, wide = 0.88 * part["share"] / whole, part["last"] + 1 - part["first"]
            place = types.index(part["gpu_type"])
            axes.broken_barh([(part["first"], wide)], (top, high), facecolor=PALETTE[place % len(PALETTE)],
                             edgecolor="white", linewidth=1.2, hatch=_hatch(place), hatch_linewidth=0.4)
            for text in _texts(part):
                if max(map(len, text.split("\n"))) * CHARACTER_IN < wide * room_in and high * 0.42 > 0.1 * len(
                    text.split("\n")
                ):
                    axes.text(part["first"] + wide / 2, top + high / 2, text, ha="center", va="center", fontsize=6)
                    break
            top += high


def finish(axes: Axes, names: Sequence[str], ylabel: str) -> None:
    """Axes of strips: first at the top, operators below."""
    axes.set_yticks(np.arange(len(names)) + 0.5, list(names), fontsize=6)
    axes.set_ylim(len(names), 0)
    axes.autoscale(enable=True, axis="x", tight=True)
    axes.grid(visible=False)
    axes.set_xlabel("operators of the model, in its order")
    axes.set_ylabel(ylabel, fontsize=7)


def key(types: Sequence[str]) -> tuple[list[Patch], list[str]]:
    """Handles and names of the GPU types."""
    colours = [PALETTE[i % len(PALETTE)] for i in range(len(types))]
    return [Patch(facecolor=c, hatch=_hatch(i), edgecolor="white") for i, c in enumerate(colours)], list(types)


def _texts(part: Mapping[str, Any]) -> list[str]:
    """What may stand in a box, the fullest first."""
    ways = f" /{part['tensor']}" if part["tensor"] > 1 else ""
    count = f"{part['gpus']} {part['gpu_type']}{ways}"
    need = part["need_gib"]
    full = [f"{count}\n{need:.1f} GiB"] if need is not None and np.isfinite(need) else []
    return [*full, count, str(part["gpus"])]


def _hatch(place: int) -> str:
    return ("", "///", "...", "\\\\\\", "xxx", "---", "+++", "ooo")[place % 8]


def _place(name: str, types: Sequence[str]) -> tuple[int, str]:
    return (types.index(name) if name in types else len(types), name)


def _common(plans: Any) -> str:
    """What all boxes have in common, in words."""
    few, many = int(plans["micro_batches"].min()), int(plans["micro_batches"].max())
    count = str(few) if few == many else f"{few} to {many}"
    tensor = "; /t: t GPUs to a replica" if (plans["tensor"] > 1).any() else ""
    return f"a box: GPUs of a stage, peak memory of one; micro-batches an iteration: {count}{tensor}"


def _seconds(took: float) -> str:
    return "" if not np.isfinite(took) else f"{took * 1e3:,.0f} ms" if took < 1 else f"{took:,.2f} s"
