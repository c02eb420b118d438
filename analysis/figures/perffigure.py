"""The answers of `hetsim perf --config` as a table and a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from analysis.figures.style import COLOURS, DRAWN, HATCHES, legend, look, new_figure, save, style
from analysis.run import RunError
from traces.outfile import written

LABELS = {
    "samples_per_s": "samples a second", "iteration_s": "iteration (s)", "allreduce_s": "all-reduce (s)",
    "compute_s": "computation (s)", "mfu": "model FLOPs utilisation", "memory_gib": "memory of a GPU (GiB)",
    "usd_per_1000_iterations": "USD a 1,000 iterations", "gpus": "GPUs", "batch_per_gpu": "samples a GPU",
    "batch_size": "samples", "model": "model", "gpu": "GPU type", "link": "link between the GPUs",
}  # fmt: skip


class Picture(Protocol):
    """What the [figure] table of an experiment with [perf] says (`sim.cli.questions.Picture`)."""

    @property
    def x(self) -> str: ...

    @property
    def y(self) -> str: ...

    @property
    def line(self) -> str: ...

    @property
    def relative_to(self) -> str | None: ...

    @property
    def title(self) -> str: ...


def draw(rows: pd.DataFrame, picture: Picture | None, folder: Path, stem: str) -> list[Path]:
    """Write the table (CSV) and, if one is asked for, the figure (PNG, PDF); returns the files.

    Raises
    ------
    RunError
        There is nothing to draw.
    HetsimError
        A file cannot be written.
    """
    figure = None
    if picture is not None:
        figure = figure_of(rows, picture.x, picture.y, picture.line, picture.relative_to, picture.title)
    table = folder / f"{stem}.csv"
    with written(table) as part:
        rows.to_csv(part, index=False, lineterminator="\n")
    if figure is None:
        return [table]
    return [table, *(save(figure, folder / f"{stem}.{kind}") for kind in DRAWN)]


def figure_of(rows: pd.DataFrame, x: str, y: str, line: str, relative_to: str | None = None, title: str = "") -> Figure:
    """Lines over numbers on logarithmic axes, or bars over names; one colour for each value of `line`.

    Rows that do not fit their GPUs' memory are left out. `relative_to`: each line is divided by its value there, and is
    left out where it has none.

    Raises
    ------
    RunError
        Nothing is left.
    """
    fits = rows[rows["fits"]]
    with style():
        figure, (axes,) = new_figure()
        names = list(dict.fromkeys(rows[x]))
        lines = list(dict.fromkeys(rows[line]))
        for i, name in enumerate(lines):
            of_line = fits[fits[line] == name].drop_duplicates(x)
            values = of_line.set_index(x)[y].reindex(names).to_numpy(dtype=float)
            if not np.isfinite(values).any():
                continue
            if relative_to is not None:
                base = values[[str(n) for n in names].index(relative_to)]
                if not np.isfinite(base):
                    continue
                values = values / base
            label = f"{name} {LABELS[line]}" if not isinstance(name, str) else name
            if isinstance(names[0], str):
                width = 0.8 / len(lines)
                at = np.arange(len(names)) + (i - (len(lines) - 1) / 2) * width
                colour, hatch = COLOURS[i % len(COLOURS)], HATCHES[i % len(HATCHES)]
                axes.bar(at, values, width, label=label, color=colour, hatch=hatch, edgecolor="white")
            else:
                axes.plot(names, values, marker="o", markersize=3, label=label, **look(i))
        if isinstance(names[0], str):
            axes.set_xticks(np.arange(len(names)), names)
            axes.grid(visible=False, axis="x")
        else:
            axes.set_xscale("log", base=2)
            axes.set_xticks(names, [f"{n:g}" for n in names])
            axes.minorticks_off()
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
        of = f", relative to {relative_to}" if relative_to is not None else ""
        axes.set(xlabel=LABELS[x], ylabel=LABELS[y] + of, title=title)
        handles, texts = axes.get_legend_handles_labels()
        if not texts:
            known = int(fits[y].notna().sum())
            raise RunError("there is nothing to draw", where=f"{LABELS[y]} over {LABELS[x]}{of}",
                           got=f"{len(rows)} questions; {len(fits)} fit their GPUs' memory, {known} have a known value",
                           todo="Ask for more GPUs, smaller batches, or another y.")
        legend(figure, handles, texts, one=True)
    return figure
