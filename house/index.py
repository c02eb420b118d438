"""The index of files, docs/files.md: what each module of the four packages says of itself in its first line.

`python -m house.index` prints the page; `make index` writes it.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("traces", "sim", "policies", "analysis")
HEAD = """# Files

What each file holds, in its own words: the first line of its docstring. How the rooms hang together:
[architecture](architecture.md). This page is made: `make index` writes it anew.
"""


def first_line(module: Path) -> str:
    """First line of a module's docstring.

    Raises
    ------
    ValueError
        It has none.
    """
    said = ast.get_docstring(ast.parse(module.read_text("utf-8")))
    if not said:
        raise ValueError(f"{module}: no docstring; its first line says what the file holds")
    return said.splitlines()[0]


def page(root: Path = ROOT) -> str:
    """The page: a section a package, a table a room, a row a module. A room's own line is that of its `__init__.py`."""
    out = [HEAD]
    for package in PACKAGES:
        out.append(f"\n## `{package}/`\n")
        for init in sorted((root / package).rglob("__init__.py")):
            room = init.parent
            name = room.relative_to(root).as_posix()
            out.append(f"\n{first_line(init)}\n" if name == package else f"\n### `{name}/`\n\n{first_line(init)}\n")
            modules = sorted(file for file in room.glob("*.py") if file != init)
            if modules:
                out.append("\n| file | what it holds |\n|---|---|\n")
            for file in modules:
                link = f"[`{file.name}`](../{name}/{file.name})"
                out.append(f"| {link} | {first_line(file).replace('|', '&#124;')} |\n")
    return "".join(out)


if __name__ == "__main__":
    print(page(), end="")
