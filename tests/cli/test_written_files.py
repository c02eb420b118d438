"""What commands on runs write: the folder is made, a file that is there stays, what cannot be written is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.figures import FIGURES
from sim.cli.drawing import NAMES
from tests.cli.conftest import Said

COMMANDS = {
    "compare": (["compare", "one", "two", "--out", "{}"], "table.txt"),
    "metrics": (["metrics", "one", "--out", "{}"], "table.txt"),
    "metrics by job": (["metrics", "one", "--by", "job", "--format", "csv", "--out", "{}"], "jobs.csv"),
    "report": (["report", "one", "--out", "{}"], "report.html"),
    "timeline": (["timeline", "one", "--out", "{}"], "one.json.gz"),
    "figures": (["figures", "one", "--only", "queue", "--format", "png", "--out", "{folder}"], "queue.png"),
}
"""By name: the command, with the place of the file (or its folder), and the file's name."""


@pytest.fixture(params=COMMANDS)
def writing(
    request: pytest.FixtureRequest, replay: Callable[..., Said], hetsim: Callable[..., Said]
) -> tuple[Callable[..., Said], str]:
    """Write into a folder; the name of the file."""
    replay("--out", "one")
    replay("--policy", "fifo-skip", "--out", "two")
    words, name = COMMANDS[request.param]
    return lambda folder, *more: hetsim(
        *(word.replace("{folder}", folder).replace("{}", f"{folder}/{name}") for word in words), *more
    ), name


def test_a_file_is_written_once_and_replaced_only_if_forced(writing, here: Path) -> None:
    write, name = writing
    assert write("new/folder").code == 0
    file = here / "new" / "folder" / name
    first = file.read_bytes()
    file.write_text("mine")
    refused = write("new/folder")
    assert (refused.code, file.read_text()) == (2, "mine")
    assert f"{Path('new/folder', name)}: the file is there already. Name another, or pass --force." in refused.err
    assert write("new/folder", "--force").code == 0
    assert file.read_bytes() == first
    assert [path.name for path in file.parent.iterdir()] == [name]


def test_what_cannot_be_written_is_told_by_its_own_name_with_what_to_do(writing, here: Path) -> None:
    write, name = writing
    before = sorted(here.rglob("*"))
    said = write("jobs.csv/below")
    assert said.code == 2
    assert f"{Path('jobs.csv/below', name)}: the file cannot be written; got " in said.err
    assert "Name another" in said.err
    assert "Traceback" not in said.err
    assert sorted(here.rglob("*")) == before


def test_the_help_names_the_figures_that_can_be_drawn(hetsim) -> None:
    assert (*FIGURES, "gantt") == NAMES
    assert ", ".join(NAMES) in " ".join(hetsim("figures", "--help").out.replace("│", " ").split())


def test_names_of_figures_are_parted_by_commas_and_empty_ones_skipped(replay, hetsim, here: Path) -> None:
    replay("--out", "one")
    said = hetsim("figures", "one", "--only", "jct_cdf,, queue,jct_cdf,", "--format", "png,", "--out", "f")
    assert said.code == 0
    assert said.out.split() == ["f/jct_cdf.png", "f/queue.png"]
    for option in ("--only", "--format"):
        assert "unknown figure" in hetsim("figures", "one", option, ",", "--out", "f").err


def test_a_trace_made_again_replaces_its_own_description_only_if_forced(hetsim, here: Path) -> None:
    assert hetsim("trace", "convert", "jobs.csv", "table.csv").code == 0
    table, words = (here / "table.csv").read_bytes(), (here / "table.csv.json").read_bytes()
    (here / "table.csv").unlink()
    said = hetsim("trace", "again", "table.csv.json", "--to", "table.csv")
    assert said.code == 2 and "table.csv.json: the file is there already" in said.err
    assert not (here / "table.csv").exists() and (here / "table.csv.json").read_bytes() == words
    assert hetsim("trace", "again", "table.csv.json", "--to", "table.csv", "--force").code == 0
    assert (here / "table.csv").read_bytes() == table


@pytest.mark.parametrize("command", [
    ["trace", "convert", "jobs.csv", "link.csv"], ["metrics", "one", "--out", "link.csv"],
    ["report", "one", "--out", "link.csv"],
])  # fmt: skip
def test_a_link_to_a_file_stays_and_one_to_a_device_is_refused(
    replay: Callable[..., Said], hetsim: Callable[..., Said], here: Path, command: list[str]
) -> None:
    replay("--out", "one")
    link = here / "link.csv"
    link.symlink_to("target.csv")
    assert hetsim(*command).code == 0
    assert link.is_symlink() and (here / "target.csv").stat().st_size > 0
    link.unlink()
    (here / "link.csv.json").unlink(missing_ok=True)
    link.symlink_to("/dev/null")
    said = hetsim(*command, "--force")
    assert said.code == 2 and "link.csv: not a file that can be written" in said.err
    assert str(link.readlink()) == "/dev/null"
