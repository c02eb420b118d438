"""The laws of the house: each can be broken, and names what breaks it, in a small tree of files; ours keeps them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from house.check import MOST_REPEATED, House, main
from tests.conftest import ROOT

START = "def main() -> None:\n    from sim import cli\n"


@pytest.fixture
def tree(tmp_path: Path):
    """Write files; what is not said is a program of two modules that keeps every law."""

    def write(**files: str) -> House:
        for name, text in {"sim/__main__.py": START, "sim/cli.py": "", "sim/__init__.py": "", **files}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return House(tmp_path)

    return lambda files=(): write(**dict(files))


def test_a_house_that_keeps_every_law(tree, capsys):
    house = tree()
    assert [law.offenders for law in house.laws()] == [()] * 6
    assert main([str(house.root)]) == 0
    assert "BROKEN" not in capsys.readouterr().out


@pytest.mark.parametrize("line", [
    "from sim.b import X", "import sim.b", "from sim import b", "from . import b", "from .b import X",
    "def f():\n    from sim.b import X",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sim.b import X",
])  # fmt: skip
def test_two_modules_that_import_each_other_are_a_circle_wherever_the_import_stands(tree, line):
    house = tree({"sim/a.py": line, "sim/b.py": "from sim.a import Y"})
    assert house.circles() == [("sim.a", "sim.b")]


def test_a_circle_may_be_long_and_names_all_of_it_but_not_what_leads_there(tree):
    house = tree({"sim/a.py": "import sim.b", "sim/b.py": "import sim.c", "sim/c.py": "import sim.a",
                  "sim/d.py": "import sim.a"})
    assert house.circles() == [("sim.a", "sim.b", "sim.c")]


def test_a_straight_line_of_imports_is_no_circle(tree):
    house = tree({"sim/a.py": "import sim.b", "sim/b.py": "import sim.c", "sim/c.py": "import json"})
    assert house.circles() == []


def test_what_no_import_leads_to_is_not_reached(tree):
    house = tree({"sim/cli.py": "def run():\n    import sim.used", "sim/used.py": "", "sim/lost.py": "import sim.worse",
                  "sim/worse.py": "", "tests/test_lost.py": "import sim.lost"})
    assert house.unreached() == ["sim.lost", "sim.worse"]


def test_an_import_for_types_only_reaches_nothing(tree):
    lines = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sim.a import A\nelse:\n    import sim.b"
    assert tree({"sim/cli.py": lines, "sim/a.py": "", "sim/b.py": ""}).unreached() == ["sim.a"]


@pytest.mark.parametrize("name", [
    "policies/ordering/mine.py", "traces/readers/mine.py", "traces/machines/mine.py", "traces/recipes/mine.py",
    "policies/recommend/methods/mine.py",
])  # fmt: skip
def test_what_is_found_by_its_folder_is_reached_with_all_that_it_imports(tree, name):
    folders = {f"{folder}/__init__.py": "" for folder in map(str, Path(name).parents) if folder != "."}
    assert tree({**folders, name: "import sim.deep", "sim/deep.py": ""}).unreached() == []


@pytest.mark.parametrize("folder", ["place", "recommend", "mechanisms"])
def test_a_folder_that_policies_share_is_no_family(tree, folder):
    house = tree({"policies/__init__.py": "", f"policies/{folder}/mine.py": ""})
    assert f"policies.{folder}.mine" in house.unreached()


def test_an_import_that_a_page_shows_reaches_its_module(tree):
    files = {"sim/a.py": "", "sim/b.py": "", "README.md": "```python\nfrom sim.a import x\n```\nUse `sim.b`.\n"}
    assert tree(files).unreached() == ["sim.b"]


def test_base_names_may_repeat_a_few_times(tree, capsys):
    names = [f"n{i}.py" for i in range(MOST_REPEATED + 1)]
    line = "\n".join(f"import {room}.n{i}" for room in ("sim", "traces") for i in range(len(names)))
    files = {f"{room}/{name}": "" for room in ("sim", "traces") for name in names}
    house = tree({**files, "sim/cli.py": line, "traces/__init__.py": ""})
    assert house.repeated() == [f"{name}: sim, traces" for name in sorted(names)]
    assert main([str(house.root)]) == 1
    assert "BROKEN   11 base names" in capsys.readouterr().out
    (house.root / "traces/n0.py").unlink()
    assert main([str(house.root)]) == 0


def test_a_folder_of_more_than_thirty_modules_is_flat(tree):
    files = {f"sim/kernels/m{i}.py": "" for i in range(30)} | {"sim/kernels/__init__.py": ""}
    assert tree(files).flat() == []
    assert House(tree({"sim/kernels/more.py": ""}).root).flat() == ["sim/kernels: 31 modules"]


def test_files_have_a_length_and_the_engine_a_shorter_one(tree):
    house = tree({"sim/cli.py": "#\n" * 401, "sim/engine/engine.py": "#\n" * 301, "tests/helpers.py": "#\n" * 402,
                  "sim/a.py": "#\n" * 400, "tests/test_much.py": "#\n" * 500})
    assert house.long() == ["sim/cli.py: 401 lines, 400 allowed", "sim/engine/engine.py: 301 lines, 300 allowed",
                            "tests/helpers.py: 402 lines, 400 allowed"]


def test_lines_of_prose_have_a_width_but_not_those_of_tables_and_code(tree):
    page = f"{'a' * 140}\n| {'b' * 150} |\n```\n{'c' * 150}\n```\n{'d' * 141}\n"
    assert tree({"docs/page.md": page}).wide() == ["docs/page.md:6: 141 characters"]


def test_imports_that_pages_show_can_be_made():
    shown = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        shown |= set(re.findall(r"^\s*from ((?:sim|policies|traces|analysis)[\w.]*) import ([\w, ]+)$",
                                page.read_text("utf-8"), re.MULTILINE))  # fmt: skip
    assert shown
    for module, names in sorted(shown):
        for name in names.split(", "):
            assert hasattr(importlib.import_module(module), name), f"from {module} import {name}"


def test_ours_keeps_them():
    assert [(law.what, law.offenders) for law in House(ROOT).laws() if not law.kept] == []
