"""What all figures share: colours, sizes, and files of the same bytes for the same figure.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart, and lines differ in dash as
well. No `pyplot` and no display; Matplotlib's settings are put back after each use, and those of the user
do not matter.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (5, 1, 1, 1)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
HATCHES = ("", "//", "..", "\\\\", "xx", "++", "--", "oo")
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.color": "#d0d0d0",
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "hatch.linewidth": 0.6,
    "axes.formatter.useoffset": False,
}
FORMATS = ("png", "pdf")
WIDTH_IN = 5.0


@contextmanager
def style() -> Iterator[None]:
    with rc_context():
        rcdefaults()
        rcParams.update(STYLE)
        yield


def new_figure(rows: int = 1, height_in: float = 2.6, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH_IN, height_in))
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, 1, sharex=True, sharey=sharey, squeeze=False)[:, 0])


def look(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}


def time_unit(length_s: float) -> tuple[float, str]:
    """A unit of time that fits a length: seconds, minutes, hours or days."""
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if length_s >= 3 * size:
            return size, name
    return 1.0, "s"


def save(figure: Figure, path: Path) -> Path:
    """Write a figure without dates or versions in it, under a temporary name first."""
    kind = path.suffix[1:]
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}[
        kind
    ]
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with style(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in another script: boxes, and no noise
            figure.savefig(part, format=kind, dpi=200, metadata=metadata)
        part.replace(path)
    except zlib.error as error:  # what Matplotlib's PDF writer makes of a full disk
        raise OSError(f"cannot be written: {error}") from None
    finally:
        part.unlink(missing_ok=True)
    return path
