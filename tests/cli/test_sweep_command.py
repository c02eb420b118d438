"""`hetsim sweep`, as a user calls it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from policies.registry import find

SWEEP = """
[run]
trace = "jobs.csv"
cluster = "v100:2"
work = "recorded"
[sweep]
policy = ["fifo", "srtf"]
load = [0.5, 0.9]
"""


@pytest.fixture
def sweep(hetsim, here, sweeps_here):
    """Sweep loads.toml by one worker, which is this process: policies can be patched here."""
    Path("loads.toml").write_text(SWEEP)
    return lambda *more: hetsim("sweep", "loads.toml", "--workers", "1", "--quiet", *more)


def test_all_cells_are_played_once_into_a_folder_named_after_the_file(sweep):
    said = sweep()
    assert said.code == 0, said.err
    assert re.fullmatch(r"sweeps/loads: 4 cells, 4 done \(0 before\); played 4 in [\d.]+ s\n", said.out), said.out
    assert len(list(Path("sweeps/loads/metrics").rglob("*.parquet"))) == 4
    assert sweep().out == "sweeps/loads: 4 cells, 4 done (4 before)\n"


def test_a_dry_run_lists_cells_and_what_is_done_and_plays_none(sweep):
    before = sweep("--dry-run")
    assert "4 cells: 0 done, 0 failed, 4 to play" in before.out
    assert not Path("sweeps").exists()
    assert sweep("--only", "policy=srtf", "--only", "load=0.9", "--only", "load=0.5").code == 0
    listed = json.loads(sweep("--dry-run", "--json").out)["cells"]
    assert [(cell["policy"], cell["load"], cell["state"]) for cell in listed] == [
        ("fifo", 0.5, "waiting"), ("fifo", 0.9, "waiting"), ("srtf", 0.5, "done"), ("srtf", 0.9, "done")]
    assert [cell["policy"] for cell in json.loads(sweep("--dry-run", "--json", "--only", "load=0.5").out)["cells"]] \
        == ["fifo", "srtf"]


@pytest.mark.parametrize(
    ("only", "part"),
    [
        ("polcy=fifo", "--only: no such axis; got 'polcy'; allowed: policy, load. did you mean 'policy'?"),
        ("load=0.7", "--only load: no such value of the axis; got 0.7; allowed: 0.5, 0.9"),
        ("load", "a setting without a value"),
    ],
)
def test_only_names_what_there_is(sweep, only, part):
    said = sweep("--only", only)
    assert said.code == 2
    assert part in said.err


def test_failed_cells_are_told_of_with_their_error_and_the_exit_code(sweep, monkeypatch):
    whole = find("srtf").decide
    monkeypatch.setattr(find("srtf"), "decide", lambda self, view: 1 / 0)
    said = sweep()
    assert said.code == 1
    assert "4 cells, 2 done (0 before), 2 failed" in said.out
    assert len(re.findall(r"failed: policy = srtf, load = 0\.[59] \([0-9a-f]{16}\): .*division by zero", said.err)) == 2
    assert "--retry-failed plays them again" in said.err
    monkeypatch.setattr(find("srtf"), "decide", whole)
    again = sweep("--json")
    assert again.code == 1
    told = json.loads(again.out)
    assert (told["done"], told["done_before"], [cell["policy"] for cell in told["failed"]]) == (2, 2, ["srtf"] * 2)
    assert sweep("--retry-failed").code == 0
    assert sweep().out.startswith("sweeps/loads: 4 cells, 4 done (4 before)")


def test_p66_a_misspelt_setting_is_refused_with_the_nearest_and_its_place(sweep):
    for line, place in (("[engine]\npreemption_overhed_s = 30\n", "loads.toml, engine.preemption_overhed_s"),
                        ("[sweep.engine]\npreemption_overhed_s = [30]\n", "[sweep], engine.preemption_overhed_s")):
        Path("loads.toml").write_text(SWEEP + line)
        said = sweep()
        assert said.code == 2
        assert place in said.err
        assert "'preemption_overhead_s'" in said.err
        assert not Path("sweeps").exists()


def test_settings_of_before_are_put_aside_until_they_are_removed(sweep):
    sweep()
    Path("loads.toml").write_text(SWEEP.replace("[sweep]", "seed = 3\n[sweep]"))
    assert "4 cells of other settings, files or code are put aside (--prune removes them)" in sweep().out
    assert "aside" not in sweep("--prune").out


def test_progress_says_what_is_done_failed_and_left(hetsim, sweep, monkeypatch):
    monkeypatch.setattr("sim.cli.console.LINE_EVERY_S", 0.0)
    monkeypatch.setattr(find("srtf"), "decide", lambda self, view: 1 / 0)
    sweep("--only", "policy=srtf", "--only", "load=0.5")
    said = hetsim("sweep", "loads.toml", "-j", "1", "--only", "policy=fifo").err
    assert re.sub(r"about \d+\.\d s left", "some time left", said).splitlines() == [
        "hetsim: 0 of 2 cells, workers begin (1)", "hetsim: 1 of 2 cells, 1 of 1 workers busy, some time left",
        "hetsim: 2 of 2 cells, 1 of 1 workers busy, some time left"]
    said = hetsim("sweep", "loads.toml", "-j", "1").err
    assert "hetsim: 3 of 4 cells, 1 failed, workers begin (1)" in said
    assert "hetsim: 4 of 4 cells, 2 failed, 1 of 1 workers busy" in said


def test_how_busy_workers_were_is_told_of_long_sweeps_only(sweep, monkeypatch):
    """Of a short one it is the time that workers take to begin."""
    assert "busy" not in sweep().out
    monkeypatch.setattr("sim.cli.sweep.TELLING_S", 0.0)
    Path("loads.toml").write_text(SWEEP.replace("[sweep]", "seed = 3\n[sweep]"))
    assert re.search(r"workers were busy \d+% of the time", sweep().out)


@pytest.mark.parametrize("missing", ["none.toml", "jobs.csv"])
def test_what_is_no_sweep_is_refused(hetsim, missing):
    said = hetsim("sweep", missing)
    assert said.code == 2
    assert missing in said.err
