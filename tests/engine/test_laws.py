"""Laws that hold for every policy and placement rule on any trace: random small worlds, drawn by hypothesis."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.metrics.series import gpus_in_use
from analysis.run import load_run
from policies.registry import find, names
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import RunResult
from sim.kernels.placement import RULES
from tests.helpers import by_job, nodes, run
from traces.trace import Trace

POLICIES = tuple(n for n in names() if not (find(n).needs_performance or find(n).needs_starts))
#: Small and binary, so that jobs of some dozen seconds meet several turns, and sums of times are exact.
OWN = {
    "las": [{"quantum_s": 16.0}, {"quantum_s": 8.0, "by": "time"}],
    "tiresias": [{"queue_limits": "16,64"}, {"queue_limits": "8", "promote": 2.0}],
}
CLUSTERS = (
    (("V100", 1, 4),), (("V100", 2, 4),), (("V100", 1, 2), ("V100", 1, 4)), (("V100", 2, 2), ("T4", 1, 4)),
    (("T4", 3, 1), ("V100", 1, 8)),
)


@dataclass(frozen=True)
class World:
    """One drawn case: everything that a run needs."""

    cluster: ClusterSpec
    trace: Trace
    policy: str
    settings: dict[str, Any]
    engine: dict[str, Any]

    def run(self, trace: Trace | None = None) -> RunResult:
        return run(trace or self.trace, self.cluster, self.policy, self.settings, **self.engine)


@st.composite
def worlds(draw: st.DrawFn, *, exact: bool = False) -> World:
    """A cluster, up to 12 jobs, a policy with settings, and an engine.

    `exact` leaves out what makes times that are no binary fractions (thirds of work, exponential failures), so that
    results can be compared digit by digit after a shift.
    """
    groups = draw(st.sampled_from(CLUSTERS))
    columns: dict[str, list[Any]] = {}
    for _ in range(draw(st.integers(1, 12))):
        share = draw(st.sampled_from([1000, 1000, 500, 250] if exact else [1000, 1000, 500, 300, 200, 1]))
        worker = draw(st.sampled_from([1, 1, 1, 2])) if share == 1000 else 1
        row = {
            "submit_s": draw(st.integers(0, 60)), "duration_s": 4 * draw(st.integers(0, 15)),
            "num_gpus": worker * draw(st.sampled_from([1, 1, 2, 4] if exact else [1, 1, 2, 3, 4, 5])),
            "gpu_milli": share, "worker_gpus": worker,
            "gpu_type": draw(st.sampled_from(["", "", "", "V100", "T4", "v100|t4"])),
            "vc": draw(st.sampled_from(["a", "b"])),
            "attempts": draw(st.sampled_from([1, 1, 2, 4] if exact else [1, 1, 2, 3])),
            "status": draw(st.sampled_from(["passed", "killed", "failed"])),
        }
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    columns["job_id"] = [str(i) for i in range(len(columns["vc"]))]
    policy = draw(st.sampled_from(POLICIES))
    own = dict(draw(st.sampled_from(OWN.get(policy, [{}]))))
    own["placement"] = draw(st.sampled_from(list(RULES)))
    if policy in ("las", "srsf", "srtf", "tiresias"):
        own["replace"] = draw(st.sampled_from(["keep", "all"]))
        own["ties"] = draw(st.sampled_from(["submit", "previous"]))
    engine: dict[str, Any] = {
        "preemption_overhead_s": draw(st.sampled_from([0.0, 2.0])),
        "preempted_work": draw(st.sampled_from(["kept", "lost"])),
        "checkpoint_interval_s": draw(st.sampled_from([0.0, 4.0])),
    }
    if draw(st.booleans()) and "a" in columns["vc"]:
        engine["quotas"] = {"a": draw(st.integers(0, 4))}
    if not exact and draw(st.booleans()):
        engine |= {"mtbf_h": 0.04, "repair_h": 0.002}
    return World(nodes(*groups), Trace.from_columns(columns), policy, own, engine)


def tables(result: RunResult) -> dict[str, pd.DataFrame]:
    return {name: table.to_pandas() for name, table in result.tables.items()}


def assert_same(one: dict[str, pd.DataFrame], two: dict[str, pd.DataFrame]) -> None:
    for name, frame in one.items():
        pd.testing.assert_frame_equal(frame, two[name], check_exact=True, obj=name)


@settings(max_examples=150, derandomize=True)
@given(worlds())
def test_the_audit_finds_nothing_and_each_job_ends(world: World) -> None:
    """The audit proves from the tables alone: no GPU above its capacity, gangs whole, work done = work asked, …"""
    result = world.run()
    with tempfile.TemporaryDirectory() as folder:
        result.write(Path(folder) / "run")
        loaded = load_run(Path(folder) / "run")
        report = audit(loaded)
        assert report.ok, report.text
    jobs = by_job(result)
    assert len(jobs) == len(world.trace)
    assert not (jobs["state"] == "unfinished").any(), jobs[["state", "reason"]]
    segments = loaded.segments
    net = (segments["work_done"] - segments["work_lost"]).groupby(segments["job_id"]).sum()
    ended = jobs[jobs["state"] != "rejected"]
    np.testing.assert_allclose(net.reindex(ended.index), ended["duration_s"], rtol=1e-9, atol=1e-9)
    used = gpus_in_use(loaded)["all"]
    assert used.iloc[-1] == 0 and used.max() <= world.cluster.num_gpus


@settings(max_examples=60, derandomize=True)
@given(worlds())
def test_names_are_only_names(world: World) -> None:
    """Other ids in the same order: nothing else changes."""
    ids = [f"job-{row:03d}" for row in range(len(world.trace))]
    renamed = world.trace.replace(job_id=ids)
    back = dict(zip(ids, world.trace.job_id, strict=True))
    other = tables(world.run(renamed))
    for frame in other.values():
        if "job_id" in frame:
            frame["job_id"] = frame["job_id"].map(back).astype(frame["job_id"].dtype)
    assert_same(tables(world.run()), other)


@settings(max_examples=60, derandomize=True)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(world: World, random: Any) -> None:
    rows = list(range(len(world.trace)))
    random.shuffle(rows)
    shuffled = Trace.from_columns({name: values.to_numpy()[rows] for name, values in world.trace.to_frame().items()})
    assert_same(tables(world.run()), tables(world.run(shuffled)))


@settings(max_examples=100, derandomize=True)
@given(worlds(exact=True), st.sampled_from([1, 86_400, 2**30, -2**20]))
def test_a_shift_of_time_shifts_the_results(world: World, shift_s: int) -> None:
    """Digit by digit: all times are small binary fractions, so that the shift itself does not round."""
    there = tables(world.run(world.trace.replace(submit_s=world.trace.submit_s + shift_s)))
    for name, column in (("segments", "begin_s"), ("segments", "end_s"), ("jobs", "submit_s"), ("jobs", "end_s"),
                         ("jobs", "first_start_s"), ("decisions", "now_s")):
        there[name][column] -= shift_s
    assert_same(tables(world.run()), there)


@settings(max_examples=60, derandomize=True)
@given(worlds())
def test_the_same_run_again_is_the_same(world: World) -> None:
    one, two = world.run(), world.run()
    assert one.info == two.info
    assert_same(tables(one), tables(two))


@settings(max_examples=60, derandomize=True)
@given(worlds(), st.integers(1, 80))
def test_a_horizon_cuts_and_changes_nothing_before(world: World, horizon_s: int) -> None:
    """What had ended before the horizon ended just so; what had begun is cut there."""
    whole, cut = tables(world.run())["segments"], tables(
        run(world.trace, world.cluster, world.policy, world.settings, horizon_s=float(horizon_s), **world.engine)
    )["segments"]
    stop = float(world.trace.submit_s[0]) + horizon_s
    before = whole[whole["end_s"] < stop].reset_index(drop=True)
    # A column that says nothing of any segment has another type in a table without segments.
    ended = cut[cut["end_s"] < stop].reset_index(drop=True)
    pd.testing.assert_frame_equal(ended, before, check_exact=True, check_dtype=False)
    assert (cut["end_s"] <= stop).all()
    begun = whole[(whole["begin_s"] < stop) & (whole["end_s"] > stop)]
    assert sorted(cut[cut["end_reason"] == "horizon"].query("begin_s < @stop")["job_id"]) == sorted(begun["job_id"])


# -- another process -----------------------------------------------------------------------------------------


def fingerprint() -> dict[str, str]:
    """SHA-256 of all tables of one run of each policy, on a trace with all that jobs can have."""
    rng, n = np.random.default_rng([0, 17]), 150
    share = rng.choice([1000, 1000, 500, 300], n)
    trace = Trace.from_columns({
        "job_id": [f"j{i}" for i in range(n)], "submit_s": rng.integers(0, 3000, n),
        "duration_s": rng.integers(0, 900, n), "num_gpus": rng.choice([1, 2, 4, 6], n), "gpu_milli": share,
        "gpu_type": rng.choice(["", "V100", "T4|V100"], n), "vc": rng.choice(["a", "b", "c"], n),
        "attempts": rng.integers(1, 3, n),
    })
    found = {}
    for policy in POLICIES:
        result = run(trace, nodes(("V100", 2, 8), ("T4", 2, 4)), policy, preemption_overhead_s=3.0, mtbf_h=1.0,
                     repair_h=0.1, checkpoint_interval_s=60.0, quotas={"a": 6, "b": 12}, seed=3)
        digest = hashlib.sha256()
        for name, table in result.tables.items():
            digest.update(name.encode() + repr(table.to_pylist()).encode())
        found[policy] = digest.hexdigest()
    return found


def test_another_process_gets_the_same_tables() -> None:
    """With another seed of Python's hashes, under which sets and dictionaries of text have another order."""
    root = Path(__file__).resolve().parents[2]
    here = os.environ.get("PYTHONHASHSEED", "random")
    environment = {**os.environ, "PYTHONHASHSEED": "12345" if here != "12345" else "54321", "PYTHONPATH": str(root)}
    script = "import json; from tests.engine.test_laws import fingerprint; print(json.dumps(fingerprint()))"
    other = subprocess.run([sys.executable, "-c", script], env=environment, cwd=root, capture_output=True, text=True,
                           check=False)
    assert other.returncode == 0, other.stderr
    mine = fingerprint()
    assert json.loads(other.stdout) == mine
    # Where all jobs rank the types alike, `fastest-free` is `fifo-skip`.
    assert mine["fastest-free"] == mine["fifo-skip"]
    assert len(set(mine.values())) == len(POLICIES) - 1, "policies that all schedule alike would prove nothing"
