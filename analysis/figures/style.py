"""What all figures share: colours, sizes, and files of the same bytes for the same figure.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart, and lines differ in dash as
well. No `pyplot` and no display; Matplotlib's settings are put back after each use, and those of the user
do not matter.

Sizes: `WIDTHS_IN`: a column of a two-column paper is 3.4 in wide, a page 7 in; fonts are 6 to 8 pt at each of them.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill as fill_text
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, LogFormatter, LogLocator, MaxNLocator, NullFormatter

from traces.outfile import written

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
    "legend.handlelength": 2.2,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.2,
    "legend.labelspacing": 0.3,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "hetsim",  # else ids within an SVG differ each time
    "axes.formatter.useoffset": False,
    "text.parse_math": False,  # names come from data: a $ in one is a $
}
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")
FORMATS = ("png", "pdf", "svg")
DRAWN = ("png", "pdf")
"""Formats of a figure of which nothing else is said."""
MAX_RUNS = 12
"""More curves than this in one picture are told apart by nobody."""
DPI = 200
"""Dots an inch of a PNG, and of what is a picture within a PDF."""
WIDTHS_IN = {"single": 3.4, "medium": 5.0, "double": 7.0}
"""Widths of a figure: a column of a two-column paper, a one-column text, a page of a two-column paper."""
WIDTH_IN = WIDTHS_IN["medium"]
Share = bool | Literal["row", "col"]
LEGEND_ROW_IN = 0.15
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@contextmanager
def style(width_in: float = WIDTH_IN) -> Iterator[None]:
    """The house style; figures made inside are `width_in` wide."""
    with rc_context():
        rcdefaults()
        rcParams.update(STYLE | {"figure.figsize": (width_in, 2.6)})
        yield


def new_figure(rows: int = 1, height_in: float = 2.6, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure as wide as the style says, and its panels below each other."""
    figure, panels = new_panels(rows, 1, height_in, sharey=sharey)
    return figure, [row[0] for row in panels]


def new_panels(
    rows: int, columns: int, height_in: float, sharex: Share = True, sharey: Share = False
) -> tuple[Figure, list[list[Axes]]]:
    """A figure as wide as the style says, and its panels by row and column."""
    figure = Figure(figsize=(rcParams["figure.figsize"][0], height_in))
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
    return figure, [list(row) for row in panels]


def look(i: int) -> dict[str, Any]:
    """Colour and dash of line i: no two of the first 24 have both in common."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}


def fill(i: int) -> dict[str, Any]:
    """Colour and hatch of bar i."""
    shift = i // len(COLOURS)
    return {"facecolor": COLOURS[i % len(COLOURS)], "hatch": HATCHES[(i + shift) % len(HATCHES)], "edgecolor": "white",
            "linewidth": 0}


def mark(i: int) -> dict[str, Any]:
    """Colour and shape of point i."""
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKS[i % len(MARKS)], "linestyle": "none"}


def scale(axes: Axes, which: str, values: np.ndarray) -> None:
    """Ticks of one axis ('x', 'y') as plain numbers; logarithmic where the values span a factor of ten or more."""
    axis: Axis = axes.xaxis if which == "x" else axes.yaxis
    known = values[np.isfinite(values)]
    low, high = known.min(initial=np.inf), known.max(initial=-np.inf)
    if low > 0 and high >= 10 * low:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}"))


class Powers(LogFormatter):
    """Ticks of a logarithmic axis: 1, 10, 100, 1,000, then 10⁴ and 2×10⁴ (Matplotlib's own are mathematics)."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        if not super().__call__(x, pos):
            return ""
        digit, power = f"{x:.0e}".split("e")
        if -3 < int(power) < 4:
            return f"{x:,.10g}"
        return f"{digit}×" * (digit != "1") + "10" + str(int(power)).translate(SUPERSCRIPTS)


def log_scale(axes: Axes, which: str) -> None:
    """Make one axis ('x', 'y') logarithmic, with `Powers` along it."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis: Axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(Powers())
    axis.set_minor_formatter(Powers())


def short(name: str, most: int = 40) -> str:
    """A name of at most so many characters: what is too long loses its middle."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - (most - 1) // 2 :]}"


def legend(
    figure: Figure, handles: Sequence[Artist], names: Sequence[str], one: bool = False, title: str = ""
) -> None:
    """A legend above the panels, where it covers no data, in as many columns as fit; none for one entry, unless `one`.

    The figure grows by its rows and its title, so that the panels keep their size.
    """
    if len(names) < (1 if one else 2):
        figure.suptitle(title or None, fontsize=9)  # type: ignore[arg-type]
        return
    width_in, height_in = figure.get_size_inches()
    around_in = sum(STYLE[f"legend.{gap}"] for gap in ("handlelength", "handletextpad", "columnspacing"))
    around_in *= STYLE["legend.fontsize"] / 72
    texts = list(names)
    while max(map(_text_in, texts)) + around_in > width_in:
        longest = max(map(len, texts))
        texts = [short(text, longest - 1) for text in texts]
    fit = int(width_in / (max(map(_text_in, texts)) + around_in))
    rows = -(-len(texts) // max(1, min(fit, 6)))
    figure.set_size_inches(width_in, height_in + LEGEND_ROW_IN * (rows + bool(title)))
    figure.legend(handles, texts, loc="outside upper center", ncols=-(-len(texts) // rows), title=title or None,
                  title_fontsize=9)


def _text_in(text: str) -> float:
    """Width of a text of a legend, in inches."""
    font = FontProperties(family=STYLE["font.family"], size=STYLE["legend.fontsize"])
    with _boxes_for_missing_letters():
        return float(TextPath((0, 0), text, prop=font).get_extents().width) / 72 if text.strip() else 0.0


@contextmanager
def _boxes_for_missing_letters() -> Iterator[None]:
    """A name in another script is drawn as boxes, without noise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        yield


def note(figure: Figure, text: str) -> None:
    """What a reader must know of the marks, small, at the foot of the figure."""
    if text:
        most = int(figure.get_size_inches()[0] * 20)
        text = "\n".join(fill_text(line, most) for line in text.split("\n"))
        figure.supxlabel(text, fontsize=6, color="#444444", x=0.01, ha="left")


def time_unit(length_s: float) -> tuple[float, str]:
    """A unit of time that fits a length: seconds, minutes, hours or days."""
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if length_s >= 3 * size:
            return size, name
    return 1.0, "s"


def save(figure: Figure, path: Path) -> Path:
    """Write a figure without dates or versions in it (`traces.outfile.written`)."""
    kind = path.suffix[1:]
    metadata: dict[str, Any] = {
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "svg": {"Date": None, "Creator": None},
    }[kind]
    with written(path) as part, style(), _boxes_for_missing_letters():
        try:
            figure.savefig(part, format=kind, dpi=DPI, metadata=metadata)
        except zlib.error as error:  # what Matplotlib's PDF writer makes of a full disk
            raise OSError(str(error)) from None
    return path
