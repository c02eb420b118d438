"""Measurements as the Markdown table of docs/performance.md, between its markers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measuring import BenchError

BEGIN, END = "<!-- made by make bench: begin -->", "<!-- made by make bench: end -->"


def markdown(found: Mapping[str, Any]) -> str:
    """The table; with another side, its ratios stand in columns of their own."""
    other = found["against"] is not None
    head = ["work", "whole command, CPU s", "wanted", "`play()`, CPU s", "peak, MiB", "`play()` / bare loop"]
    head += [f"whole, over {found['against']}", "`play()`, over it"] if other else []
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    for row in found["rows"]:
        cells = [row["what"], _number(row["whole_cpu_s"]), "" if row["wanted_s"] is None else f"{row['wanted_s']:g}",
                 _number(row.get("play_cpu_s")), f"{row['peak_mib']:,.0f}", _number(row.get("play_of_bare"))]
        if other:
            cells += [_number(row["ratio"].get(name)) for name in ("whole_cpu_s", "play_cpu_s")]
        lines.append(_line(cells))
        if "in_cells" in row:
            lines.append(_line(["its workers had a cell in hand", f"{row['in_cells']:.0%} of the time",
                                "80 %", *[""] * (len(head) - 3)]))
    machine = found["machine"]
    lines += ["", f"Revision {found['revision']}, {_rounds(found['rounds'])}, {machine['cores']} cores, "
              f"Python {machine['python']}, NumPy {machine['numpy']}, Numba {machine['numba']}."]
    return "\n".join(lines) + "\n"


def write(page: Path, table: str) -> None:
    """Put the table between the markers of a page.

    Raises
    ------
    BenchError
        The page has not both markers, in this order.
    """
    text = page.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"{page}: no lines {BEGIN} and {END} between which the table could stand")
    page.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}", "utf-8")


def _rounds(count: int) -> str:
    return "one round" if count == 1 else f"medians of {count} rounds"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
