"""Tables that are not held whole: in row groups of any size the same tables and bytes, no half file, and bounded."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
import subprocess
import sys
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.metrics import summary
from analysis.run import Run, load_run
from sim.api import Plan, Stage
from sim.cli.run import _run
from sim.engine import fastlane
from sim.engine.simulate import RunResult
from sim.results.recorder import OutputError, Recorder
from sim.results.schema import END_REASONS
from sim.results.spool import Spool, Spooled
from sim.settings.config import RunConfig
from sim.sweeps.replay import Replay
from tests.helpers import jobs, nodes
from traces import given_back, leftovers
from traces.trace import Trace

LONG = ("segments", "decisions", "plans")
RUNS: dict[str, dict[str, Any]] = {
    "the plain loop": {"policy": "las", "cluster": "v100:2x8", "engine": {"fast_lane": "off"}},
    "the fast lane": {"policy": "las", "cluster": "v100:2x8", "engine": {"fast_lane": "on"}},
    "one decision a start": {"policy": "fifo", "cluster": "v100:4x8", "engine": {"fast_lane": "on"}},
    "failures": {"policy": "srtf", "cluster": "v100:2x8", "engine": {"mtbf_h": 40.0}},
    "plans": {"policy": "hetero", "cluster": "gavel", "work": "iterations", "jobs": 50},
    "shares": {"policy": "fifo", "trace": "pai", "cluster": "v100:4x8"},
    "a horizon": {"policy": "easy", "cluster": "v100:2x8", "engine": {"horizon_s": 100_000.0}},
}
"""Settings of runs, beside those that all have."""


def replay_of(name: str, count: int = 150) -> Replay:
    return Replay(RunConfig(**{"trace": "philly", "jobs": count, "work": "recorded"} | RUNS[name]))


def tables_of(folder: Path) -> dict[str, pa.Table]:
    return {name: pq.read_table(folder / f"{name}.parquet") for name in LONG}


@pytest.mark.parametrize("rows", [7, 100])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_in_row_groups_is_the_run(name: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastlane, "ROWS", 64)
    whole = replay_of(name).play()
    with Spool(tmp_path / "run", rows) as spool:
        result = replay_of(name).play(spool=spool)
        found = {name: isinstance(result.tables[name], Spooled) for name in LONG}
        assert found == {name: len(whole.tables[name]) > rows for name in LONG}
        assert found["segments"] or rows == 100
        before = summary(Run(tmp_path / "run", result.tables, result.info, {}))
        result.write(tmp_path / "run")
        assert summary(Run(tmp_path / "run", result.tables, result.info, {})) == before
    assert before == summary(Run(tmp_path / "run", whole.tables, whole.info, {}))
    assert sorted(os.listdir(tmp_path)) == ["run"]
    for table in LONG:
        assert tables_of(tmp_path / "run")[table].equals(whole.tables[table])
        pq.write_table(whole.tables[table], tmp_path / "at once", compression="zstd", row_group_size=rows)
        if found[table]:
            assert (tmp_path / "run" / f"{table}.parquet").read_bytes() == (tmp_path / "at once").read_bytes()
    report = audit(load_run(tmp_path / "run"))
    assert report.ok, report.text()


@st.composite
def recorded(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Calls of a recorder: what it is told, one after another."""
    calls: list[tuple[str, Any]] = []
    numbers = st.floats(0.0, 1e6)
    for kind in draw(st.lists(st.sampled_from(["segment", "many", "terms", "decision", "decisions", "plan"]),
                              max_size=60)):
        if kind == "many":
            count = draw(st.integers(0, 9))
            gangs = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
            calls.append((kind, (gangs, draw(numbers))))
        elif kind == "terms":  # of the last segment
            calls += [("segment", draw(numbers)), (kind, (draw(st.integers(0, 64)), draw(numbers)))]
        else:
            calls.append((kind, draw(numbers)))
    return calls


def told(recorder: Recorder, calls: list[tuple[str, Any]]) -> dict[str, pa.Table]:
    """The tables of a recorder that was told so."""
    for number, (kind, value) in enumerate(calls):
        if kind == "segment":
            gpus = np.arange(number % 3 + 1, dtype=np.int32)
            recorder.segment(number % 5, value, value + 1, gpus, 500, 0.5, 2.0, 1.0, 0.0, END_REASONS[number % 4])
        elif kind == "many":
            gangs, at = value
            count = len(gangs)
            times = np.full((6, count), at)
            recorder.segments(np.full(count, 2, np.int32), np.full(count, 1000, np.int32), np.zeros(count, np.int8),
                              times, np.cumsum(gangs, dtype=np.int64), np.arange(64, dtype=np.int32) % 16)
        elif kind == "terms":
            recorder.terms(value[0], value[1], np.nan)
        elif kind == "decision":
            recorder.decision(value, number, 1, 2, 3)
        elif kind == "decisions":
            recorder.decisions(np.full(5, value), np.arange(20, dtype=np.int32).reshape(5, 4))
        else:
            plan = Plan(stages=(Stage(0, 1, "V100", 1), Stage(2, 3, "V100", 2)), micro_batches=number + 1)
            recorder.plan(number % 5, value, plan, np.nan)
    return {name: recorder.table(name) for name in LONG}


def five() -> tuple[Any, Any]:
    return jobs([(float(i), 10.0, 1) for i in range(5)]), nodes(("V100", 2, 8))


@settings(max_examples=60)
@given(recorded(), st.integers(1, 12))
def test_whatever_is_recorded_is_in_the_tables_once(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, Any]], rows: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    want = told(Recorder(*five()), calls)
    with Spool(folder / "run", rows) as spool:
        found = told(Recorder(*five(), spool), calls)
        for name in LONG:
            table = found[name]
            assert isinstance(table, Spooled) == (want[name].num_rows > rows) or want[name].num_rows == rows
            assert len(table) == want[name].num_rows
            assert pickle.dumps(table.column("job_id" if name != "decisions" else "now_s").to_pylist()) == \
                pickle.dumps(want[name].column("job_id" if name != "decisions" else "now_s").to_pylist())
            assert (table.whole() if isinstance(table, Spooled) else table).equals(want[name])
    assert os.listdir(folder) == []


def test_what_is_held_is_bounded_whatever_is_recorded(tmp_path: Path) -> None:
    """By what Python allocates, and by count: ten times as many segments take no more than a fifth more."""

    def peak(count: int) -> int:
        gpus = np.arange(4, dtype=np.int32)
        with Spool(tmp_path / str(count), 1_000) as spool:
            recorder = Recorder(*five(), spool)
            tracemalloc.start()
            try:
                for number in range(count):
                    recorder.segment(number % 5, number, number + 1, gpus, 1000, 0.0, 1.0, 1.0, 0.0, "done")
                    recorder.decision(number, 1, 1, 1, 0)
                    assert max(recorder.held.values()) <= 1_000
                    assert max(map(spool.waiting, LONG)) < 1_000
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    peak(5_000)  # what is loaded at the first write is no matter of counts
    assert peak(50_000) < 1.2 * peak(5_000)


def test_the_lane_hands_over_no_more_than_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane's own arrays and a row group are the most that is held, while segments are many times more."""
    monkeypatch.setattr(fastlane, "ROWS", 64)
    most = []
    own = Recorder.segments

    def watched(self: Recorder, *told: Any) -> None:
        own(self, *told)
        most.append(max(self.held.values()))

    monkeypatch.setattr(Recorder, "segments", watched)
    with Spool(tmp_path / "run", 100) as spool:
        result = replay_of("the fast lane", 400).play(spool=spool)
    assert len(most) > 5 and max(most) < 100
    assert result.info["decisions"] > 400


def test_an_earlier_result_can_be_written_again_elsewhere(tmp_path: Path) -> None:
    with Spool(tmp_path / "one", 7) as spool:
        result = replay_of("the plain loop").play(spool=spool)
        result.write(tmp_path / "one")
        result.write(tmp_path / "two")
    for name in LONG:
        one, two = (tmp_path / run / f"{name}.parquet" for run in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Spool(tmp_path / "run", 7) as spool:
        replay_of("the plain loop").play(spool=spool)
        assert len(os.listdir(tmp_path)) == 2  # of segments and of decisions
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("nth", [1, 4])
def test_a_disk_that_fills_while_the_run_goes_on(tmp_path: Path, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = pq.ParquetWriter.write_table, []

    def write_table(*given: Any, **options: Any) -> None:
        written.append(given)
        if len(written) == nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*given, **options)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", write_table)
    with pytest.raises(OutputError, match="No space left on device") as said, Spool(tmp_path / "run", 7) as spool:
        replay_of("the plain loop").play(spool=spool)
    assert said.value.where == str(tmp_path / "run")
    assert os.listdir(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from sim.results import spool
from tests.engine.test_long_tables import replay_of
add, added = spool.Spool.add, []
def killed(self, name, table):
    add(self, name, table)
    added.append(name)
    if len(added) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
spool.Spool.add = killed
with spool.Spool(Path(sys.argv[1]), 7) as long:
    replay_of("the plain loop").play(spool=long).write(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("nth", [1, 9])
def test_a_run_that_is_killed_leaves_no_file_under_a_name(tmp_path: Path, nth: int) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run"), str(nth)], check=False,
                          cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = os.listdir(tmp_path)
    assert left and all(name.startswith(".run-") and name.endswith(".part") for name in left)
    leftovers.clear(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_spool_of_a_run_that_lives_is_no_leftover(tmp_path: Path) -> None:
    with Spool(tmp_path / "run", 7) as spool:
        replay_of("the plain loop").play(spool=spool)
        leftovers.clear(tmp_path)
        assert len(os.listdir(tmp_path)) == 2


def test_a_run_lets_its_trace_go_before_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are tables by then, and the trace of a million jobs is 300 MiB."""
    traces, own = [], Replay.play

    def watched(self: Replay, *given: Any) -> RunResult:
        traces.append(weakref.ref(self.workload.trace))
        return own(self, *given)

    def write(self: RunResult, folder: Path) -> None:
        gc.collect()  # engine and desk know each other
        traces.append(traces[0]())

    monkeypatch.setattr(Replay, "play", watched)
    monkeypatch.setattr(RunResult, "write", write)
    _run(RunConfig(policy="fifo", trace="philly", jobs=20, work="recorded", out=str(tmp_path / "run")), force=False,
         quiet=True)
    assert traces[1] is None


GIVEN_BACK = """
import sys
from traces.given_back import MANY, give_back
def resident_mib():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
pieces = [bytes(60_000) for _ in range(2000)]
last = pieces.pop()  # what lies below it stays taken
del pieces
give_back(MANY - 1)
few = resident_mib()
give_back(MANY)
print(few, resident_mib())
"""


@pytest.mark.skipif(given_back._trim() is None or not Path("/proc/self/statm").exists(), reason="no glibc")
def test_what_was_let_go_is_given_back_where_jobs_are_many() -> None:
    done = subprocess.run([sys.executable, "-c", GIVEN_BACK], check=True, cwd=Path(__file__).parents[2],
                          capture_output=True, text=True)
    before_mib, after_mib = map(float, done.stdout.split())
    assert before_mib - after_mib > 80  # of 114


@pytest.mark.parametrize("shape", [0, 3, (2, 3), given_back.MUCH, (3, given_back.MUCH)])
def test_zeros_can_be_written_to_and_take_no_page_before(shape: int | tuple[int, ...]) -> None:
    found = given_back.zeros(shape, np.int32)
    assert found.shape == np.zeros(shape).shape and found.dtype == np.int32 and found.flags.c_contiguous
    assert not found.any()
    found[...] = 7
    assert (found == 7).all() and not given_back.zeros(shape, np.int32).any()


def test_columns_of_one_default_are_one_array_also_of_some_rows() -> None:
    trace = Trace.from_columns({"job_id": ["a", "b"], "submit_s": [1, 0], "duration_s": [1, 1], "num_gpus": [1, 2],
                                "wait_s": [np.nan, 3], "user": ["u", ""]})
    for one in (trace, trace.select(slice(1)), trace.replace(priority=np.array([2.0, 3.0]))):
        assert one.estimate_s is one.deadline_s and one.estimate_s is not one.wait_s
        assert np.isnan(one.estimate_s).all() and not one.estimate_s.flags.writeable
        assert one.gpu_type is one.model and one.gpu_type is not one.user


def test_without_glibc_nothing_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_back.ctypes, "CDLL", lambda _: object())
    given_back._trim.cache_clear()
    try:
        given_back.give_back()
        assert given_back._trim() is None
    finally:
        given_back._trim.cache_clear()
