"""docs/sweeps.md is true: its files are read, its Python runs, its tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from sim.sweeps.grid import read_grid
from sim.sweeps.sweepfile import SECTIONS, TABLES, WINDOW, DaskSettings
from tests.conftest import ROOT
from tests.sweeps.conftest import played

PAGE = (ROOT / "docs/sweeps.md").read_text("utf-8")
BLOCKS = {kind: re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for kind in ("toml", "python")}


def test_the_files_are_read_and_the_python_shows_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, together, window, dask = BLOCKS["toml"]
    Path("loads.toml").write_text(first.replace("jobs = 2000", "jobs = 30"))
    grid = read_grid("loads.toml")
    assert len(grid.cells) == 3 * 4 * 2
    played(grid, "sweeps/loads")
    (code,) = BLOCKS["python"]
    exec(compile(code, "docs/sweeps.md", "exec"), {})
    said = capsys.readouterr().out
    assert re.search(r"print\(sweep.axes\) +# (.*)", code)[1] in said
    assert said.count("srtf") == 1 + 2  # among the axes, and in each load

    Path("pairs.toml").write_text("[run]\njobs = 30\n" + together + window + dask)
    grid = read_grid("pairs.toml")
    assert grid.window == {"warmup": "10%", "cooldown": "10%", "follow": True}
    assert len(grid.cells) == 2 * 3 * 2 + 2 * 3
    assert (grid.dask.queue, grid.dask.setup) == ("batch", ["module load python/3.11"])


def test_the_lists_are_those_of_the_code():
    table = PAGE.split("## The file")[1].split("\n\n")[1]
    assert set(SECTIONS) <= set(re.findall(r"`\[+(\w+)\]+`", table))
    named = table.split("| `[results]` |")[1].split("\n")[0]
    assert set(TABLES) == set(re.findall(r"`(\w+)`", named)) - {"tables", *WINDOW}
    *_, dask = BLOCKS["toml"]
    assert set(re.findall(r"^(\w+) =", dask, re.MULTILINE)) == set(DaskSettings.model_fields)
