"""The laws of the house, counted: circles of imports, what nothing reaches, names, sizes.

    python -m house.check [FOLDER]

Prints one line a law and the offenders of those that are broken, and then ends with code 1. The files are read, not
run: an import counts wherever it stands, in a function too; one under TYPE_CHECKING makes a circle but reaches nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from policies.registry import SHARED

PACKAGES = ("sim", "policies", "traces", "analysis")
START = "sim.__main__"
DISCOVERED = ("traces.readers", "traces.machines", "traces.recipes", "policies.recommend.methods")
"""Folders whose files are found without being listed; so are those of the families of policies."""
MOST_REPEATED = 10
MOST_MODULES = 30
MOST_LINES = 400
MOST_LINES_OF = {"sim/engine/engine.py": 300}
MOST_COLUMNS = 140
FENCE = re.compile(r"^\s*(```|~~~)")


@dataclass(frozen=True)
class Law:
    """What is counted, how many are allowed, and what breaks it: as many lines as were counted."""

    what: str
    most: int
    offenders: tuple[str, ...]

    @property
    def kept(self) -> bool:
        return len(self.offenders) <= self.most


@dataclass(frozen=True)
class House:
    """The files of the four packages below a folder."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, Path]:
        """File of each module and package, by its dotted name."""
        found = {}
        for package in PACKAGES:
            for file in sorted((self.root / package).rglob("*.py")):
                parts = file.relative_to(self.root).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
        return found

    @cached_property
    def imports(self) -> dict[str, dict[str, bool]]:
        """Of each module those that it imports, and whether the import is run, or for types only."""
        return {name: self._imported(name, file) for name, file in self.modules.items()}

    def _imported(self, name: str, file: Path) -> dict[str, bool]:
        found: dict[str, bool] = {}
        package = name if file.stem == "__init__" else name.rpartition(".")[0]
        for target, run in _targets(ast.parse(file.read_text("utf-8"), str(file)), package, run=True):
            # `from a import b` is of the module a.b, if there is one, else of a.
            known = target if target in self.modules else target.rpartition(".")[0]
            if known in self.modules and known != name:
                found[known] = found.get(known, False) or run
        return found

    def circles(self) -> list[tuple[str, ...]]:
        """Groups of modules that import each other, directly or not."""
        reach = {name: _closure([name], self.imports) for name in self.modules}
        group = {name: tuple(sorted(o for o in reach[name] if name in reach[o])) for name in self.modules}
        return sorted({members for members in group.values() if len(members) > 1})

    def roots(self) -> set[str]:
        """Where reaching begins: the program, what is found by folder, what the documentation imports."""
        families = {
            name for name in self.modules
            if name.startswith("policies.") and name.count(".") == 1 and name.rpartition(".")[2] not in SHARED
        }  # fmt: skip
        found = {name for name in self.modules if name.rpartition(".")[0] in families | set(DISCOVERED)}
        return ({START} & self.modules.keys()) | found | families | self._documented()

    def _documented(self) -> set[str]:
        """Modules that an import in the documentation names."""
        found = set()
        for page in [self.root / "README.md", *(self.root / "docs").rglob("*.md")]:
            for words in re.findall(r"^\s*from ([\w.]+) import|^\s*import ([\w.]+)", _text(page), re.MULTILINE):
                found.add("".join(words))
        return found & self.modules.keys()

    def unreached(self) -> list[str]:
        """Modules that nothing reaches; a module reaches the packages that it lies in."""
        run = {name: [target for target, is_run in targets.items() if is_run] + [name.rpartition(".")[0]]
               for name, targets in self.imports.items()}  # fmt: skip
        return sorted(self.modules.keys() - _closure(self.roots(), run))

    def repeated(self) -> list[str]:
        """Base names that more than one file has, with where."""
        where: dict[str, list[str]] = {}
        for file in self.modules.values():
            if not file.stem.startswith("__"):
                where.setdefault(file.name, []).append(str(file.parent.relative_to(self.root)))
        return [f"{name}: {', '.join(folders)}" for name, folders in sorted(where.items()) if len(folders) > 1]

    def flat(self) -> list[str]:
        """Folders with too many modules."""
        count = Counter(file.parent for file in self.modules.values() if file.stem != "__init__")
        return [f"{folder.relative_to(self.root)}: {n} modules" for folder, n in sorted(count.items())
                if n > MOST_MODULES]  # fmt: skip

    def long(self) -> list[str]:
        """Files of too many lines, those that tests share among them."""
        shared = [file for file in sorted((self.root / "tests").rglob("*.py")) if not file.name.startswith("test_")]
        out = []
        for file in [*self.modules.values(), *sorted((self.root / "house").glob("*.py")), *shared]:
            name, lines = file.relative_to(self.root).as_posix(), len(_text(file).splitlines())
            if lines > (most := MOST_LINES_OF.get(name, MOST_LINES)):
                out.append(f"{name}: {lines} lines, {most} allowed")
        return out

    def wide(self) -> list[str]:
        """Lines of Markdown that are too long, outside tables and code."""
        pages = [*sorted(self.root.glob("*.md"))]
        for folder in ("docs", "experiments", "tests", *PACKAGES):
            pages += sorted((self.root / folder).rglob("*.md"))
        return [f"{page.relative_to(self.root)}:{n}: {width} characters" for page in pages
                for n, width in _prose(_text(page)) if width > MOST_COLUMNS]  # fmt: skip

    def laws(self) -> list[Law]:
        """All of them."""
        return [
            Law("circles of imports", 0, tuple(" - ".join(circle) for circle in self.circles())),
            Law("modules that nothing reaches", 0, tuple(self.unreached())),
            Law("base names of more than one file", MOST_REPEATED, tuple(self.repeated())),
            Law(f"folders of more than {MOST_MODULES} modules", 0, tuple(self.flat())),
            Law(f"files of more than {MOST_LINES} lines", 0, tuple(self.long())),
            Law(f"lines of Markdown over {MOST_COLUMNS} characters", 0, tuple(self.wide())),
        ]


def _text(file: Path) -> str:
    return file.read_text("utf-8") if file.is_file() else ""


def _targets(node: ast.AST, package: str, *, run: bool) -> Iterator[tuple[str, bool]]:
    """What is imported below a node, `from a import b` as a.b, and whether it is run or for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, run) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) + 1 - child.level] if child.level else []
            start = ".".join([*base, *([child.module] if child.module else [])])
            yield from ((f"{start}.{alias.name}", run) for alias in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.body:
                yield from _targets(ast.Module([statement], []), package, run=False)
            for statement in child.orelse:
                yield from _targets(ast.Module([statement], []), package, run=run)
        elif not isinstance(child, ast.expr):  # in which there is no statement
            yield from _targets(child, package, run=run)


def _closure(begin: Iterable[str], edges: dict[str, dict[str, bool]] | dict[str, list[str]]) -> set[str]:
    """All that can be come by, the beginning included."""
    seen, left = set[str](), list(begin)
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += edges.get(name, ())
    return seen


def _prose(text: str) -> Iterator[tuple[int, int]]:
    """Number and length of each line that is neither of a table nor of code."""
    code = False
    for n, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            code = not code
        elif not code and not line.lstrip().startswith("|"):
            yield n, len(line)


def main(words: list[str]) -> int:
    """Print the laws of a folder, and say whether all are kept: 0 or 1."""
    laws = House(Path(words[0] if words else ".").resolve()).laws()
    for law in laws:
        print(f"{'ok    ' if law.kept else 'BROKEN'} {len(law.offenders):4} {law.what} (at most {law.most})")
        for offender in law.offenders if not law.kept else ():
            print(f"         {offender}")
    return 0 if all(law.kept for law in laws) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
