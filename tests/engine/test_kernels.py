"""Kernels against plain twins: the sorted queue against a list, and all of them against their own source uncompiled."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from bisect import insort
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.jobqueue import JobQueue
from tests.conftest import PATIENCE_S
from tests.helpers import jobs, nodes, run

ROOT = Path(__file__).resolve().parents[2]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=200))
@settings(max_examples=100)
def test_the_queue_is_a_sorted_list(steps: list[tuple[int, int]]) -> None:
    """A step puts row r in with key k, or takes it out if it is there; ties are in the order of rows."""
    queue, twin, key_of = JobQueue(31), [], {}
    for row, key in steps:
        if row in key_of:
            assert queue.discard(row)
            twin.remove((key_of.pop(row), row))
        else:
            assert len(twin) == 0 or not queue.discard(row) or row in key_of
            queue.add(row, float(key))
            insort(twin, (float(key), row))
            key_of[row] = float(key)
        assert queue.rows.tolist() == [row for _, row in twin]
        assert queue.keys.tolist() == [key for key, _ in twin]


def test_a_row_that_is_not_queued_cannot_be_taken_out() -> None:
    queue = JobQueue(3)
    queue.add(1, 5.0)
    assert not queue.discard(0)
    assert queue.discard(1) and not queue.discard(1)


def story() -> str:
    """Every segment of a small crowded run under each kind of policy, as text."""
    rng = np.random.default_rng([5, 0])
    gangs = rng.choice([1, 1, 1, 2, 4, 8], 60).tolist()
    rows = [(int(rng.integers(0, 60)), int(rng.integers(1, 50)), gang) for gang in gangs]
    milli = [int(rng.choice([1000, 1000, 500, 300])) if gpus == 1 else 1000 for _, _, gpus in rows]
    trace, cluster = jobs(rows, gpu_milli=milli), nodes(("V100", 2, 4), ("T4", 1, 8))
    text = []
    for policy in ("fifo", "fifo-skip", "easy", "srtf", "srsf", "las", "tiresias"):
        for placement in ("count", "first-fit", "best-fit", "consolidate"):
            settings = {"placement": placement, **({"quantum_s": 20} if policy == "las" else {})}
            result = run(trace, cluster, policy, settings, preemption_overhead_s=1.0)
            table = result.tables["segments"].to_pandas()[["job_id", "begin_s", "end_s", "gpu_ids", "end_reason"]]
            text.append(f"{policy} {placement}\n{table.to_string()}")
    return "\n".join(text)


@pytest.mark.slow
def test_compiled_kernels_do_what_their_source_says() -> None:
    """NUMBA_DISABLE_JIT=1 runs the same source as plain Python, with bounds checked."""
    done = subprocess.run(
        [sys.executable, "-c", "from tests.engine.test_kernels import story; print(story())"], cwd=ROOT, check=False,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == story().strip()


TWO_AT_ONCE = """
import sys, time
from pathlib import Path
import numpy as np
from numba.core import event
from sim.engine.jobqueue import JobQueue

compiled = []

class Watch(event.Listener):
    def on_start(self, what):
        compiled.append(what.data["dispatcher"].py_func.__qualname__)
    def on_end(self, what):
        pass

event.register("numba:compile", Watch())
me, other = Path(sys.argv[1]), Path(sys.argv[2])
me.touch()
while not other.exists():
    time.sleep(0.001)
queue = JobQueue(3)
queue.add(1, 5.0)
assert queue.discard(1)
print(*compiled)
"""


def test_two_processes_compile_each_kernel_once(tmp_path: Path) -> None:
    """One compiles, the other waits and finds it in the cache; both could have begun at the same time."""
    environment = {**os.environ, "HETSIM_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "0"}
    ready = [tmp_path / "a", tmp_path / "b"]
    two = [subprocess.Popen([sys.executable, "-c", TWO_AT_ONCE, *order], cwd=ROOT, env=environment, text=True,
                            stdout=subprocess.PIPE) for order in (ready, ready[::-1])]
    compiled = " ".join(process.communicate(timeout=PATIENCE_S)[0] for process in two).split()
    assert [process.returncode for process in two] == [0, 0]
    assert len(compiled) == len(set(compiled)) > 1


def test_no_kernel_calls_itself() -> None:
    """Numba keeps none that does: a second process finds no symbol in the cache, and dies of it."""
    calls: dict[str, set[str]] = {}
    for source in (ROOT / "sim" / "kernels").glob("*.py"):
        for function in ast.walk(ast.parse(source.read_text())):
            if isinstance(function, ast.FunctionDef):
                called = {node.func.id for node in ast.walk(function)
                          if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
                calls.setdefault(function.name, set()).update(called)
    assert calls["place"] and calls["select"]
    TopologicalSorter(calls).prepare()  # raises where there is a circle


def test_no_kernel_is_a_generator() -> None:
    """Numba knows one by where it lies in memory: a process that finds some of its callers in the cache fails."""
    for source in (ROOT / "sim" / "kernels").glob("*.py"):
        tree = ast.parse(source.read_text())
        assert not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(tree)), source.name
