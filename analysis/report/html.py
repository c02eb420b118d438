"""Text into HTML: everything from a file goes through `text` or `name`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def text(content: object) -> str:
    """Text as HTML; what cannot be shown (control characters) as its escape."""
    shown = (c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in str(content))
    return escape("".join(shown))


def name(content: object) -> str:
    """A name from a file, in whatever script: it does not turn what stands beside it around."""
    return f"<bdi>{text(content)}</bdi>"


def items(lines: Iterable[str], kind: str) -> str:
    """A list of fragments; nothing where there are none."""
    inside = "".join(f"<li>{line}</li>" for line in lines)
    return f'<ul class="{kind}">{inside}</ul>' if inside else ""


def head(names: Sequence[str], first: str = "", of: Sequence[str] = (), kind: str = "number") -> str:
    """The head of a table with a column a run; `of`: which runs each column is of, where that is not one each."""
    of = of or [str(i) for i in range(len(names))]
    cells = "".join(
        f'<th scope="col" data-run="{runs}" class="{kind}">{name(run)}</th>'
        for run, runs in zip(names, of, strict=True)
    )
    return f'<thead><tr><th scope="col">{first}</th>{cells}</tr></thead>'


def row(title: str, cells: Sequence[str], of: Sequence[str] = (), kind: str = "number", row_kind: str = "") -> str:
    """A row of such a table; title and cells are HTML."""
    of = of or [str(i) for i in range(len(cells))]
    inside = "".join(
        f'<td data-run="{runs}" class="{kind}">{cell}</td>' for cell, runs in zip(cells, of, strict=True)
    )
    return f'<tr class="{row_kind}"><th scope="row">{title}</th>{inside}</tr>'


def table(head_: str, rows: Iterable[str]) -> str:
    """A table that scrolls by itself where it is too wide."""
    return f'<div class="scroll" tabindex="0"><table>{head_}<tbody>{"".join(rows)}</tbody></table></div>'
