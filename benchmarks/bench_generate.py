"""Generators: jobs a second, how many times a bare draw of as many columns they take, and memory a job.

`pytest benchmarks/bench_generate.py --benchmark-only` takes 1,000,000 jobs; JOBS=5000000 before it, five million.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from traces.columns import COLUMNS
from traces.synthetic.generate import GENERATORS, generate
from traces.trace import Trace

JOBS = int(os.environ.get("JOBS", "1000000"))
#: A process that says how much memory it took at most, in KiB (getrusage would count its parent's).
MEASURE = """
from traces.synthetic.generate import generate
generate({name!r}, {jobs})
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def bare(jobs: int) -> list[np.ndarray]:
    """One draw of each column by NumPy: floats, integers, and text by index into three words."""
    rng = np.random.default_rng(0)
    words = np.array(["a", "b", "c"], dtype=object)
    out: list[np.ndarray] = []
    for column in COLUMNS:
        whole = rng.integers(0, 3, jobs)
        out.append(rng.random(jobs) if column.dtype == "float64" else words[whole] if column.dtype == "text" else whole)
    return out


def cpu_s(work: Callable[[], object]) -> float:
    """CPU time of some work, s."""
    start_s = time.process_time()
    work()
    return time.process_time() - start_s


def peak_bytes(name: str, jobs: int) -> int:
    """Most memory that a process of its own takes to generate a trace."""
    code = MEASURE.format(name=name, jobs=jobs)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(run.stdout) * 1024


@pytest.mark.parametrize("name", list(GENERATORS))
def test_generate(benchmark: Any, name: str) -> None:
    trace = benchmark.pedantic(generate, (name, JOBS), rounds=3, warmup_rounds=1)
    ratio = cpu_s(lambda: generate(name, JOBS)) / cpu_s(lambda: bare(JOBS))
    benchmark.extra_info |= {
        "jobs_per_s": round(JOBS / benchmark.stats.stats.min), "times_a_bare_draw": round(ratio, 1),
        "bytes_per_job": round((peak_bytes(name, JOBS) - peak_bytes(name, 1)) / JOBS),
    }
    assert len(trace) == JOBS


def test_check_and_sort_columns(benchmark: Any) -> None:
    """`Trace.from_columns` alone, where all jobs come in the same second and in no order."""
    rng = np.random.default_rng(0)
    ids = np.array([str(k) for k in rng.permutation(JOBS)], dtype=object)
    zero, one = np.zeros(JOBS), np.ones(JOBS)
    columns = {"job_id": ids, "submit_s": zero, "duration_s": one, "num_gpus": one}
    trace = benchmark.pedantic(Trace.from_columns, (columns,), rounds=3, warmup_rounds=1)
    benchmark.extra_info["jobs_per_s"] = round(JOBS / benchmark.stats.stats.min)
    assert trace.job_id[9] == "9"
