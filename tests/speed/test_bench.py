"""`make bench`: the bare loop is right, sides are measured and told apart, and the table finds its place."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import __main__ as command
from benchmarks import bench as module
from benchmarks.bare import ends_s
from benchmarks.bench import bench, equal, in_cells
from benchmarks.measuring import BenchError, Took, measured
from benchmarks.pictures import parts
from benchmarks.rows import Row, rows
from benchmarks.table import BEGIN, END, markdown, write
from tests.helpers import nodes, run
from traces.trace import Trace


def test_the_bare_loop_by_hand():
    """a takes both GPUs until 100; c, behind b, waits with it; d is wider than the cluster."""
    ends = ends_s([0, 0, 10, 20], [100, 50, 20, 5], [2, 1, 1, 3], 2)
    np.testing.assert_array_equal(ends, [100, 150, 120, np.nan])


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 4)), min_size=1, max_size=25))
def test_the_bare_loop_ends_each_job_when_fifo_does(jobs):
    submit_s, duration_s, gpus = zip(*sorted(jobs, key=lambda job: job[0]), strict=True)
    trace = Trace.from_columns({"job_id": [f"{row:03}" for row in range(len(jobs))], "submit_s": submit_s,
                                "duration_s": duration_s, "num_gpus": gpus})
    ours = run(trace, nodes(("V100", 1, 4)), "fifo").tables["jobs"]["end_s"].to_numpy()
    np.testing.assert_array_equal(ends_s(trace.submit_s.tolist(), trace.duration_s.tolist(),
                                         trace.num_gpus.tolist(), 4), ours)


def test_a_command_is_measured_and_one_that_fails_is_told_of_with_its_last_words(tmp_path):
    busy = "import sys\nx = bytearray(100 << 20)\nfor i in range(3_000_000): pass\nprint(42)"
    took = measured([sys.executable, "-c", busy], tmp_path)
    assert took.out == "42\n"
    assert took.cpu_s > 0
    assert took.peak_mib > 100
    with pytest.raises(BenchError, match=r"ended with code 3:\n  why"):
        measured([sys.executable, "-c", "import sys; print('why', file=sys.stderr); sys.exit(3)"], tmp_path)


def fake(monkeypatch, seconds):
    """Commands that take what `seconds` says of a folder; each call is noted."""
    calls = []

    def timed(words, folder):
        calls.append(folder)
        whole_s = seconds[folder].pop(0)
        return Took(whole_s, 10 * whole_s, {"play": whole_s / 2}, "")

    monkeypatch.setattr(module, "timed", timed)
    return calls


def test_a_command_may_keep_what_python_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert measured([sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"], tmp_path).out == "False\n"


def test_medians_without_the_first_round_sides_in_turns_and_ratios(monkeypatch, tmp_path):
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "__main__.py").touch()
    other = tmp_path.resolve()
    calls = fake(monkeypatch, {module.ROOT: [99, 2, 4, 3], other: [99, 10, 6, 8]})
    found = bench([Row("one", "one", words=("--help",))], 3, str(tmp_path))
    (row,) = found["rows"]
    assert (row["whole_cpu_s"], row["play_cpu_s"], row["peak_mib"]) == (3, 1.5, 30)
    assert row["against"] == {"whole_cpu_s": 8, "play_cpu_s": 4, "peak_mib": 80}
    assert row["ratio"] == {"whole_cpu_s": 3 / 8, "play_cpu_s": 1.5 / 4, "peak_mib": 30 / 80}
    assert calls == [other, module.ROOT, module.ROOT, other, other, module.ROOT, module.ROOT, other]
    assert found["schema"] == "hetsim-bench/1"
    assert "0.38" in markdown(found)


@pytest.mark.parametrize(("theirs_s", "right"), [(2.0 * (1 + 1e-14), True), (2.0 * (1 + 1e-9), False)])
def test_fifo_and_the_bare_loop_must_agree_on_completion_times(monkeypatch, theirs_s, right):
    fake(monkeypatch, {module.ROOT: [1, 1]})
    monkeypatch.setattr(module, "mean_jct_s", lambda _: 2.0)
    monkeypatch.setattr(module, "_bare", lambda _: {"cpu_s": 0.25, "mean_jct_s": theirs_s})
    row = Row("one", "one", {"policy": "fifo", "work": "recorded"})
    assert equal(2.0, theirs_s) is right
    if right:
        assert bench([row], 1, None)["rows"][0]["play_of_bare"] == 2
    else:
        with pytest.raises(BenchError, match="one of them is wrong"):
            bench([row], 1, None)


def test_a_revision_that_is_none_is_said_so():
    with pytest.raises(BenchError, match="AGAINST=no-such-thing: neither a folder with a checkout nor a revision"):
        bench([], 1, "no-such-thing")


def test_the_share_in_cells(tmp_path):
    (tmp_path / "cells").mkdir()
    for name, wall_s in (("a", 3.0), ("b", 4.0)):
        (tmp_path / "cells" / f"{name}.json").write_text(json.dumps({"wall_s": wall_s}))
    assert in_cells(tmp_path, {"wall_s": 5.0, "workers": 2}) == 0.7


def test_names_of_rows_are_told_apart_and_the_quick_ones_are_some():
    names = [row.name for row in rows()]
    assert len(set(names)) == len(names)
    assert 0 < sum(row.quick for row in rows()) < len(names)


@pytest.mark.parametrize(("words", "said"), [
    (["--only", "fifo-3"], "--only: no row fifo-3; there are help"), (["--rounds", "0"], "--rounds: 0; it must be 1"),
])
def test_what_cannot_be_measured_ends_with_2(words, said, capsys):
    assert command.main(words) == 2
    assert said in capsys.readouterr().err


def test_the_table_takes_the_place_between_the_markers_and_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(page, "| new |\n")
    write(page, "| newer |\n")
    assert page.read_text() == f"before\n{BEGIN}\n\n| newer |\n\n{END}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(BenchError, match="no lines"):
        write(page, "")


def test_the_page_of_the_documentation_has_the_markers():
    text = Path(module.ROOT, "docs", "performance.md").read_text("utf-8")
    assert text.index(BEGIN) < text.index(END)


def test_the_icicle_of_a_profile_adds_up():
    phases = {"imports": 1.0, "trace": 0.5, "workload, trace included": 0.75, "play": 4.0, "loop": 3.0, "write": 0.25,
              "policy": 1.5, "kernels": 1.0, "kernels of the policy": 0.5}
    whole, commands, play, loop = parts(7.0, phases)
    assert whole == [("hetsim run", 0.0, 7.0)]
    assert commands == [("start-up", 0.0, 1.0), ("trace", 1.0, 0.5), ("workload", 1.5, 0.25), ("play()", 1.75, 4.0),
                        ("write", 5.75, 0.25), ("the rest", 6.0, 1.0)]
    assert play == [("loop", 1.75, 3.0), ("tables", 4.75, 1.0)]
    assert loop == [("engine", 1.75, 1.0), ("policy", 2.75, 1.0), ("kernels", 3.75, 1.0)]
