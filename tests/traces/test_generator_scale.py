"""Many jobs: the same bytes as before the loops were made fast, and so much memory a job (P-67)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.synthetic.generate import GENERATORS, generate
from traces.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
STATUS = Path("/proc/self/status")

MEASURE = """
from traces.synthetic.generate import generate
generate({name!r}, {jobs})
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak_bytes(name, jobs):
    """Most memory that a process of its own holds while it generates."""
    code = MEASURE.format(name=name, jobs=jobs)
    return 1024 * int(subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout)


def by_hand():
    """4,000 jobs by arithmetic, no two columns alike: ties, blanks, text of all kinds, rows in no order."""
    k = np.arange(4000) * 1607 % 4000
    words = np.array(["", "a", "NA", "é", "x|y", "null"], dtype=object)
    return {
        "job_id": [f"j{i}" for i in k], "submit_s": k // 7 % 97, "duration_s": (k % 991 + 1) / 4,
        "num_gpus": k % 4 * 2 + 2, "worker_gpus": k % 2 + 1,
        "gpu_type": words[k % 6], "vc": words[k % 5], "user": words[k % 4],
        "status": np.array(["passed", "killed", "failed", "unknown"])[k % 4], "attempts": k % 5 + 1,
        "wait_s": np.where(k % 3, k % 89, np.nan), "deadline_s": np.where(k % 5, 99.5 - k % 200, np.nan),
        "priority": (k % 10) / 8, "estimate_s": [None if i % 2 else i for i in k],
    }


GOLDEN = "74b1962419c83a7f3ecd213dd3ac1a987dd8a4a4910f2a58afb93f98c417867a"


def test_checking_and_sorting_give_the_same_bytes_as_ever():
    """The hash was taken before any of it was made fast. A new column changes it; nothing else may."""
    assert Trace.from_columns(by_hand()).content_hash() == GOLDEN


def test_the_order_of_rows_changes_no_byte():
    columns = by_hand()
    row = np.arange(4000)[::-1] * 3 % 4000
    shuffled = {name: np.asarray(values, dtype=object)[row] for name, values in columns.items()}
    assert Trace.from_columns(shuffled).content_hash() == GOLDEN


@pytest.mark.parametrize(
    ("name", "hashed"),
    [("pai", "b35212909f0b5850"), ("helios", "3aa24b8b1f161862"), ("acme", "624ecdf81055de72")],
)
def test_a_seed_gives_the_same_jobs_as_ever(name, hashed):
    """Generated traces are cited by name and seed. Only a new fit, or a new stream of NumPy, may change a hash here."""
    assert generate(name, 2000, 1).content_hash()[:16] == hashed


@given(st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0]), st.text(st.sampled_from("ab09é\0\ud800\U0001f600"), min_size=1, max_size=70)),
    min_size=1, max_size=40, unique_by=lambda job: job[1],
))
def test_ties_are_in_shortlex_order(jobs):
    """Submission, then length of the id, then its text, code point by code point; short and long ids alike."""
    submit_s, ids = zip(*jobs, strict=True)
    one = np.ones(len(ids))
    trace = Trace.from_columns({
        "job_id": np.array(ids, dtype=object), "submit_s": submit_s, "duration_s": one, "num_gpus": one})
    expected = sorted(jobs, key=lambda job: (job[0], len(job[1]), job[1]))
    assert list(zip(trace.submit_s.tolist(), trace.job_id.tolist(), strict=True)) == expected


def test_the_callers_arrays_stay_its_own():
    """Rows in order are not gathered anew; a trace still shares no array with who made it."""
    columns = {"job_id": np.array(["a", "b"], dtype=object), "submit_s": np.zeros(2), "duration_s": np.ones(2),
               "num_gpus": np.ones(2, dtype=np.int32), "wait_s": np.ones(2)}
    trace = Trace.from_columns(columns)
    for name, values in columns.items():
        values[0] = "z" if name == "job_id" else 7
        assert getattr(trace, name)[0] != values[0] and not getattr(trace, name).flags.writeable


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.is_file(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("name", ["pai", "helios"])
def test_memory_is_bounded_a_job(name):
    """P-67: 1,000,000 jobs; the table itself takes 8 bytes × 12, 4 × 5 and an id of about 55 a job: under 200."""
    few, many = peak_bytes(name, 1), peak_bytes(name, 1_000_000)
    assert 100e6 < many - few < 600e6


@pytest.mark.parametrize("jobs", [1, 2, 3, 17, 400])
@pytest.mark.parametrize("name", list(GENERATORS))
def test_few_jobs_are_legal_too(name, jobs):
    for seed in range(5):
        trace = generate(name, jobs, seed)
        assert len(trace) == jobs and trace.job_id.tolist() == [str(i) for i in range(jobs)]
        assert (trace.duration_s >= 1).all() and (trace.submit_s >= 0).all()
        assert (trace.submit_s == np.floor(trace.submit_s)).all()
        assert trace.provenance.seed == seed and trace.provenance.format == "synthetic"
        assert trace.provenance.window_s == (0.0, trace.submit_s[-1])


@pytest.fixture(scope="module")
def elsewhere():
    """Hash of 3,000 jobs of each generator, as two processes with other hash seeds make them."""
    code = """
from traces.synthetic.generate import GENERATORS, generate
for name in GENERATORS:
    print(name, generate(name, 3000, 7).content_hash())
"""
    return [
        dict(line.split() for line in subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True,
            check=True,
        ).stdout.splitlines())
        for seed in ("1", "2")
    ]


@pytest.mark.parametrize("name", list(GENERATORS))
def test_the_same_seed_gives_the_same_bytes_in_another_process(name, elsewhere):
    runs = {hashes[name] for hashes in elsewhere}
    assert runs == {generate(name, 3000, 7).content_hash()}
    assert generate(name, 3000, 8).content_hash() not in runs
