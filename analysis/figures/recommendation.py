"""Pictures of a recommendation, drawn from the files that `hetsim recommend --out` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures.style import COLOURS, HATCHES, WIDTH_IN, legend, new_figure, save, scale, style


def draw(folder: Path) -> list[Path]:
    """Draw front.png and stages.png beside recommendation.json and plans.parquet; returns what was drawn.

    There is no front where no price is known, and there are no stages where a model is known by measured rates only.
    """
    answer = json.loads((folder / "recommendation.json").read_text("utf-8"))
    plans, files = pd.read_parquet(folder / "plans.parquet"), []
    if plans["usd_per_iteration"].notna().any():
        files.append(save(front(answer, plans), folder / "front.png"))
    if answer["plan"]["stages"]:
        files.append(save(stages(answer), folder / "stages.png"))
    return files


def front(answer: Mapping[str, Any], plans: pd.DataFrame) -> Figure:
    """Time against cost of all plans, the Pareto front as a step line, the plan and the best on one type marked."""
    unit, name = (1e3, "ms") if plans["iteration_s"].min() < 1 else (1.0, "s")
    many, of = (1e3, "1,000 iterations") if plans["usd_per_iteration"].max() < 0.1 else (1.0, "an iteration")
    with style():
        figure, (axes,) = new_figure()
        priced = plans.dropna(subset="usd_per_iteration")
        one_type = priced["gpu_types"] == 1
        for rows, label, colour, marker in (
            (priced[~one_type], "several GPU types", COLOURS[5], "o"),
            (priced[one_type], "one GPU type", COLOURS[4], "^"),
        ):
            axes.plot(rows["iteration_s"] * unit, rows["usd_per_iteration"] * many, marker, color=colour,
                      markersize=2.5, label=label)
        best = priced[priced["on_front"]].sort_values("iteration_s")
        axes.step(best["iteration_s"] * unit, best["usd_per_iteration"] * many, where="post", color=COLOURS[0],
                  label="front")
        for key, label, marker, colour in (("homogeneous", "best on one type", "s", COLOURS[6]),
                                           ("plan", "this plan", "*", COLOURS[1])):
            plan = answer[key]
            if plan is not None and plan["usd_per_iteration"] is not None:
                axes.plot(plan["iteration_s"] * unit, plan["usd_per_iteration"] * many, marker, color=colour,
                          fillstyle="none", markersize=9, label=label, linestyle="none")
        axes.set(xlabel=f"iteration ({name})", ylabel=f"cost of {of} (USD)")
        scale(axes, "x", priced["iteration_s"].to_numpy() * unit)
        scale(axes, "y", priced["usd_per_iteration"].to_numpy() * many)
        axes.margins(0.08)
        legend(figure, *axes.get_legend_handles_labels(), title=_title(answer))
    return figure


def stages(answer: Mapping[str, Any]) -> Figure:
    """Each stage as a bar of its time for a micro-batch, and the memory that it needs of what is there."""
    rows: Sequence[Mapping[str, Any]] = answer["plan"]["stages"]
    kinds = list(dict.fromkeys(g["gpu_type"] for g in answer["gpus"]))
    colour = {kind: COLOURS[i % len(COLOURS)] for i, kind in enumerate(kinds)}
    at, longest = np.arange(len(rows)), max(s["forward_s"] + s["backward_s"] for s in rows)
    unit, name = (1e3, "ms") if longest < 1 else (1.0, "s")
    with style():
        figure, (times, memory) = new_figure(2, height_in=4.2)
        for i, s in enumerate(rows):
            # A stage of several types is drawn in their colours, side by side.
            width = 0.8 / len(s["gpus"])
            for k, g in enumerate(s["gpus"]):
                x, kind = i - 0.4 + (k + 0.5) * width, colour[g["gpu_type"]]
                times.bar(x, s["forward_s"] * unit, width, color=kind, edgecolor="white")
                times.bar(x, s["backward_s"] * unit, width, bottom=s["forward_s"] * unit, color=kind, edgecolor="white",
                          hatch=HATCHES[1])
                memory.bar(x, g["there_gib"], width, color="none", edgecolor=kind)
                if s["need_gib"] is not None:
                    memory.bar(x, min(s["need_gib"], g["there_gib"]), width, color=kind, edgecolor="white")
            between = " " if 16 * WIDTH_IN / len(rows) > max(len(g["gpu_type"]) for g in s["gpus"]) + 5 else "\n"
            unlike = any("tensor" in g for g in s["gpus"])
            label = "\n+ ".join(f"{g['gpus']}{between}{g['gpu_type']}" + (f" /{g['tensor']}" if unlike else "")
                                for g in s["gpus"])
            ways = f"\ntensor {s['tensor']}" if s["tensor"] > 1 and not unlike else ""
            ways += "\nsharded" * s.get("sharded", False)
            times.text(i, (s["forward_s"] + s["backward_s"]) * unit, label + ways, ha="center", va="bottom", fontsize=6)
        times.set(ylabel=f"a micro-batch ({name})")
        times.margins(y=0.25)
        memory.set(ylabel="memory of a GPU (GiB)", xlabel="stage, and its operators")
        memory.set_xticks(at, [f"{s['stage']}\n{s['first_op']}–{s['last_op']}" for s in rows],
                          rotation=90 if len(rows) > 12 else 0)
        memory.set_xlim(-max(0.6, 1.5 - len(rows) / 2), len(rows) - 1 + max(0.6, 1.5 - len(rows) / 2))
        for axes in (times, memory):
            axes.grid(visible=False, axis="x")
        used = [kind for kind in kinds if any(g["gpu_type"] == kind for s in rows for g in s["gpus"])]
        handles = [Patch(color=colour[kind], label=kind) for kind in used]
        handles += [Patch(facecolor="#909090", label="forward; memory needed"),
                    Patch(facecolor="#909090", hatch=HATCHES[1], edgecolor="white", label="backward"),
                    Patch(facecolor="none", edgecolor="#909090", label="memory there")]
        legend(figure, handles, [str(handle.get_label()) for handle in handles], title=_title(answer))
    return figure


def _title(answer: Mapping[str, Any]) -> str:
    return f"{answer['model']}, {answer['batch_size']:,} samples an iteration"
