"""--map on the command line: each command that reads a trace takes it, and what it said makes the trace again."""

from __future__ import annotations

import contextlib
import json
import re

from tests.conftest import ROOT

SECTION = (ROOT / "docs" / "traces.md").read_text("utf-8").split("### `mapped`")[1].split("\n### ")[0]
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL))
LINE = re.search(r"--map (\S+)", BLOCKS["sh"])[1]


def put(folder, *lines):
    (folder / "mine.csv").write_text("\n".join(lines) + "\n", "utf-8")


def test_the_commands_of_the_page_run_and_the_log_alone_makes_the_trace_again(hetsim, here):
    """Also when the file of the map is gone, and from another folder: what it said is kept."""
    put(here, BLOCKS["csv"].rstrip())
    (here / "my-log.toml").write_text(BLOCKS["toml"])
    for command in re.findall(r"^hetsim (.*)$", BLOCKS["sh"], re.MULTILINE):
        said = hetsim(*command.split())
        assert said.code == 0, said.err
    (here / "my-log.toml").unlink()
    (here / "elsewhere").mkdir()
    with contextlib.chdir(here / "elsewhere"):
        said = hetsim("trace", "again", "../mine.parquet.json")
        assert said.code == 0 and "the same trace, 2 jobs" in said.out
    kept = json.loads((here / "mine.parquet.json").read_text())
    assert kept["tz"] == "Asia/Shanghai" and kept["epoch_s"] == 1507532515.0
    assert "run_time" in kept["options"]["map"] and "--map" in kept["recipe"]["command"]


def test_each_command_that_reads_a_trace_takes_a_map(hetsim, here, sweeps_here):
    put(here, BLOCKS["csv"].rstrip())
    run = ("--policy", "fifo", "--work", "recorded", "--cluster", "v100:4x1")
    for words in (("trace", "describe", "mine.csv"), ("trace", "check", "mine.csv"),
                  ("trace", "compare", "mine.csv", "philly"), ("run", *run, "--trace", "mine.csv", "--out", "r")):
        said = hetsim(*words, "--map", LINE)
        assert said.code == 0, said.err
    (here / "sweep.toml").write_text(
        f"[run]\ntrace = 'mine.csv'\nread = {{map = '{LINE}'}}\nwork = 'recorded'\ncluster = 'v100:4x1'\n"
        "[sweep]\npolicy = ['fifo']\n")
    assert hetsim("sweep", "sweep.toml", "-j", "1", "-q").code == 0
    said = hetsim("trace", "check", "mine.csv", "--map", LINE, "--read", f"map={LINE}")
    assert said.code == 2 and "given twice" in said.err
    said = hetsim("run", *run, "--trace", "philly", "--map", LINE)
    assert said.code == 2 and "'map'" in said.err and "Traceback" not in said.err


def test_a_date_selects_on_the_calendar_that_the_map_names(hetsim, here):
    put(here, "t,r,g", "0,1,1", "90000,1,1")
    said = hetsim("trace", "describe", "mine.csv", "--json", "--from", "2020-04-02", "--map",
                  "submit=t,duration=r,gpus=g,calendar.start=2020-04-01,zone=Asia/Shanghai")
    assert json.loads(said.out)["jobs"] == 1
