"""A table as text, CSV, Markdown or LaTeX: numbers to read, or in full; nothing in a name can break the table.

Text, Markdown and LaTeX show a few digits and a unit in each header. CSV keeps the columns' own names (which end in
their units) and every digit, so that it reads back as it was; `spreadsheet` is that, with text that would be a formula
quoted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from rich.cells import cell_len

from analysis.run import RunError
from traces.errors import did_you_mean
from traces.late import pd

FORMATS = ("text", "csv", "spreadsheet", "markdown", "latex")
IN_FULL = ("csv", "spreadsheet")
"""Formats with every column and digit; `spreadsheet` is CSV whose text no spreadsheet runs as a formula."""
RUN_BY_SHEETS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a cell begins that spreadsheets take for a formula (the last four: full-width forms, read alike by some)."""

UNITS = {
    "gpu_s": "GPU-s", "gpu_h": "GPU-h", "gpu_hours": "GPU-h", "per_gpu_h": "USD/GPU-h", "usd": "USD", "kwh": "kWh",
    "gib": "GiB", "mib": "MiB", "ms": "ms", "per_s": "1/s", "s": "s", "per_h": "1/h", "h": "h", "w": "W",
}
"""Last words of a column's name, and the unit that they say."""

NONE = "–"
"""A cell without a value."""
UNKNOWN = "unknown"
"""A value that is there but not known: a cost, where a price is not."""
DECIMALS = {"s": 1, "%": 1, "USD": 2, "MiB": 0}
"""Decimals to read of a number with that unit; others have four digits that count."""
MINUTE_S = 59.95
"""From here a time is a minute when it is rounded to a tenth of a second."""

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}",
    # Behind the end of a row these would be its options.
    "[": "{[}", "]": "{]}", "*": "{*}",
    "–": r"\textendash{}", "—": r"\textemdash{}", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "÷": r"$\div$",
    "≤": r"$\leq$", "≥": r"$\geq$", "≈": r"$\approx$", "∞": r"$\infty$", "→": r"$\rightarrow$", "Σ": r"$\Sigma$",
    "ρ": r"$\rho$", "µ": r"$\mu$", "μ": r"$\mu$", "σ": r"$\sigma$", "α": r"$\alpha$", "β": r"$\beta$",
    "λ": r"$\lambda$", "Δ": r"$\Delta$", "°": r"\textdegree{}", "…": r"\ldots{}", "\u00a0": "~", "\u202f": r"\,",
}
"""What LaTeX takes for itself, and signs that its fonts have under a name. Other letters pass: its input is UTF-8."""

_MARKDOWN = re.compile(r"[\\|<>*`\[\]~$&]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown takes for itself; an underscore within a word it does not."""


def formatted(
    frame: pd.DataFrame,
    kind: str = "text",
    *,
    headers: Mapping[str, str] | None = None,
    digits: int = 4,
    caption: str = "",
    label: str = "",
) -> str:
    """A data frame as text that ends in a line end; its index is the first column (a plain 0, 1, 2… is left out).

    Parameters
    ----------
    kind : one of `FORMATS`.
    headers : header of a column by its name, unit included; of others the unit is read from the name (`header`).
    digits : significant digits of a number that is not whole; never fewer than those before the point.
    caption, label : of the LaTeX table; with either the tabular stands in a table.

    Raises
    ------
    RunError
        No such format.
    """
    if kind not in FORMATS:
        raise RunError("no such format", got=kind, allowed=", ".join(FORMATS), todo=did_you_mean(kind, FORMATS))
    plain = isinstance(frame.index, pd.RangeIndex) and frame.index.name is None
    if kind == "csv":
        return frame.to_csv(index=not plain, lineterminator="\n")
    flat = frame if plain else frame.reset_index()
    if kind == "spreadsheet":
        return flat.map(_quoted).rename(columns=_quoted).to_csv(index=False, lineterminator="\n")
    names = [one_line((headers or {}).get(str(name)) or header(str(name))) for name in flat.columns]
    right = [_is_number(flat.iloc[:, k]) for k in range(len(names))]
    rows = [[cell(value, digits) for value in row] for row in flat.itertuples(index=False, name=None)]
    if kind == "markdown":
        return _markdown(names, right, rows)
    if kind == "latex":
        return _latex(names, right, rows, caption, label)
    return _text(names, right, rows)


def _quoted(value: Any) -> Any:
    """Text that a spreadsheet would run, behind the apostrophe that makes it text there."""
    return f"'{value}" if isinstance(value, str) and value.lstrip(" ").startswith(RUN_BY_SHEETS) else value


def unit_of(name: str) -> str:
    """The unit that a name ends in, by the longest of `UNITS` (wasted_gpu_s: GPU-s); empty where it ends in none."""
    return UNITS.get(_ending(name), "")


def without_unit(name: str) -> str:
    """A name without the unit that it ends in; empty where it is a unit (gpu_s)."""
    return f"_{name}".removesuffix(f"_{end}")[1:] if (end := _ending(name)) else name


def _ending(name: str) -> str:
    return max((end for end in UNITS if f"_{name}".endswith(f"_{end}")), key=len, default="")


def header(name: str) -> str:
    """A column's name as a header: its unit, if it ends in one, in brackets behind words (jct_mean_s: JCT mean (s))."""
    words, unit = re.sub("^jct", "JCT", without_unit(name).replace("_", " ")), unit_of(name)
    return name if not unit else f"{words} ({unit})" if words else unit


def value(number: float | None, unit: str = "") -> str:
    """A measure to read: thousands apart, as many decimals as its unit is worth, a share (0 to 1) in per cent.

    None: 'unknown' for USD and kWh (there is a value), else '–'.
    """
    if number is None or math.isnan(number):
        return UNKNOWN if unit in ("USD", "kWh") else NONE
    if unit == "share":
        return f"{value(100 * number, '%')} %"
    if unit in DECIMALS and math.isfinite(number):
        return f"{number:,.{DECIMALS[unit]}f}"
    return cell(number)


def without_price(gpu_h: float) -> str:
    """What of an unknown cost has no known price: GPU-hours; where there are none, what is left is egress."""
    return f"{value(gpu_h, 'GPU-h')} GPU-h unpriced" if gpu_h else "bytes that left a zone unpriced"


def span(time_s: float | None) -> str:
    """A time in seconds, and in words beside it once it is a minute: 16,430.2 (4 h 34 min)."""
    words = "" if time_s is None or not MINUTE_S <= abs(time_s) < math.inf else f" ({human(time_s)})"
    return value(time_s, "s") + words


def human(time_s: float | None) -> str:
    """A time span in words, two units at most: 42.5 s, 12 min 5 s, 3 h 20 min, 2 d 4 h; '–' for None."""
    if time_s is None:
        return NONE
    if time_s < 0:
        return "-" + human(-time_s)
    if time_s < MINUTE_S:
        return f"{time_s:.1f} s"
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    first = next(i for i, (_, size) in enumerate(units) if time_s >= size or size == 60)
    small = units[first + 1][1]
    whole = round(time_s / small) * small
    if first > 0 and whole >= units[first - 1][1]:
        first -= 1
    (name, size), (low, small) = units[first], units[first + 1]
    return f"{int(whole // size)} {name} {int(whole % size // small)} {low}"


def cell(value: Any, digits: int = 4) -> str:
    """A value to read: thousands apart, so many significant digits, yes or no; '–' for none."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if isinstance(value, Real):
        return NONE if math.isnan(value) else significant(float(value), digits)
    if value is None or (not isinstance(value, str) and pd.api.types.is_scalar(value) and pd.isna(value)):
        return NONE
    return one_line(str(value))


def one_line(text: str) -> str:
    """The text on one line: what cannot be printed is a blank."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def significant(value: float, digits: int = 4) -> str:
    """A number to so many significant digits, but whole where it has more before the point: 0.5714, 12.35, 123,456."""
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    # The exponent of the number as it is rounded: 9.9996 has two digits before the point.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    if exponent < -5:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - exponent)}f}"


def latex(text: str) -> str:
    """Text as LaTeX prints it: each sign that it takes for itself is escaped, and hyphens in a row are not joined."""
    return re.sub("(?<=-)-", "{}-", "".join(_LATEX.get(sign, sign) for sign in text))


def markdown(text: str) -> str:
    """Text as Markdown shows it in a table's cell: each sign that it takes for itself is escaped."""
    return _MARKDOWN.sub(lambda found: "\\" + found[0], text)


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _text(names: list[str], right: list[bool], rows: list[list[str]]) -> str:
    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]

    def padded(text: str, width: int, to_the_right: bool) -> str:
        blanks = " " * (width - cell_len(text))
        return blanks + text if to_the_right else text + blanks

    lines = [
        "  ".join(map(padded, row, widths, right)).rstrip()
        for row in [names, ["─" * width for width in widths], *rows]
    ]
    return "\n".join(lines) + "\n"


def _markdown(names: list[str], right: list[bool], rows: list[list[str]]) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    body = [line([markdown(text) for text in row]) for row in [names, *rows]]
    return "\n".join([body[0], line(["---:" if r else "---" for r in right]), *body[1:]]) + "\n"


def _latex(names: list[str], right: list[bool], rows: list[list[str]], caption: str, label: str) -> str:
    """A tabular with the rules of booktabs."""
    body = [" & ".join(latex(text) for text in row) + r" \\" for row in [names, *rows]]
    columns = "".join("r" if r else "l" for r in right)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule",
             r"\end{tabular}"]
    if caption or label:
        head = [rf"\caption{{{latex(caption)}}}"] if caption else []
        head += [rf"\label{{{label}}}"] if label else []
        lines = [r"\begin{table}", r"\centering", *head, *lines, r"\end{table}"]
    needs = "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}, \\usepackage{textcomp} before LaTeX 2020"
    return "\n".join([needs, *lines]) + "\n"
