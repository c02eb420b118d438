"""Nodes that fail: just the work since the last checkpoint is lost, and nothing runs on a node that is down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.audit import audit
from analysis.run import load_run
from sim.engine.simulate import RunResult
from tests.helpers import by_job, jobs, nodes, run, segments

ONE = nodes(("V100", 1, 1))


def outages(result: RunResult) -> list[tuple[int, float, float]]:
    """(node, down, up), up infinite for a node that was down at the end."""
    found = []
    for node in result.tables["nodes"].to_pylist():
        ups = [*node["up_s"], np.inf]
        found += [(node["node"], down, ups[i]) for i, down in enumerate(node["down_s"])]
    return found


@pytest.mark.parametrize(("interval_s", "overhead_s"), [(100.0, 0.0), (100.0, 30.0), (1000.0, 30.0)])
def test_a_failure_loses_the_work_since_the_last_checkpoint(interval_s: float, overhead_s: float) -> None:
    """A job of 20,000 s on a node that fails once an hour: each stretch keeps whole intervals of its working time."""
    result = run(jobs([(0, 20_000, 1)]), ONE, "fifo", mtbf_h=1.0, repair_h=0.1, checkpoint_interval_s=interval_s,
                 preemption_overhead_s=overhead_s)
    table, down = segments(result), outages(result)
    assert len(table) == len(down) + 1 >= 3
    assert table["end_reason"].tolist() == ["node_failed"] * len(down) + ["done"]
    assert table["overhead_s"].tolist() == [0.0] + [overhead_s] * len(down)
    for i, (_, down_s, up_s) in enumerate(down):
        assert table.loc[i, "end_s"] == down_s
        assert table.loc[i + 1, "begin_s"] == up_s
        worked = max(0.0, down_s - table.loc[i, "begin_s"] - table.loc[i, "overhead_s"])
        assert table.loc[i, "work_done"] == pytest.approx(worked, rel=1e-12)
        kept = worked // interval_s * interval_s
        assert table.loc[i, "work_lost"] == pytest.approx(worked - kept, abs=1e-6)
    assert (table["work_done"] - table["work_lost"]).sum() == pytest.approx(20_000, rel=1e-12)
    assert by_job(result).loc["0", "end_s"] == table["end_s"].iloc[-1]


def test_continuous_checkpoints_lose_nothing_and_none_lose_all() -> None:
    trace = jobs([(0, 9_000, 1)])
    kept = segments(run(trace, ONE, "fifo", mtbf_h=1.0, repair_h=0.1, checkpoint_interval_s=0.0))
    assert len(kept) > 1 and (kept["work_lost"] == 0).all()
    none = segments(run(trace, ONE, "fifo", mtbf_h=1.0, repair_h=0.1, checkpoint_interval_s=np.inf))
    assert len(none) > len(kept)
    assert none["work_lost"].tolist() == [*none["work_done"].iloc[:-1], 0.0]
    assert none["work_done"].iloc[-1] == 9_000


def test_only_jobs_of_the_failed_node_stop() -> None:
    """Two nodes, a job on each, and one that spans both: whoever has a GPU on the node stops then, nobody else."""
    trace = jobs([(0, 40_000, 2), (0, 40_000, 2), (0, 30_000, 4)])
    result = run(trace, nodes(("V100", 2, 4)), "fifo", mtbf_h=2.0, repair_h=0.5, checkpoint_interval_s=600.0)
    table = segments(result)
    failed = table[table["end_reason"] == "node_failed"]
    assert len(failed) > 2
    for node, down_s, up_s in outages(result):
        on_it = table["nodes"].map(lambda held, node=node: node in held)
        assert not (on_it & (table["begin_s"] < up_s) & (table["end_s"] > down_s)).any()
        away = failed[(failed["end_s"] == down_s) & ~on_it.loc[failed.index]]
        assert away.empty
    assert (by_job(result)["state"] == "done").all()


def test_the_same_job_takes_as_long_after_a_repair_as_before() -> None:
    """P-38: a node was off in between; equal jobs that ran undisturbed took equal times."""
    trace = jobs([(3000.0 * i, 500, 4) for i in range(40)])
    result = run(trace, nodes(("V100", 1, 4)), "fifo", mtbf_h=3.0, repair_h=0.2)
    assert len(outages(result)) > 3
    table = segments(result)
    whole = table[~table["job_id"].isin(table.loc[table["end_reason"] == "node_failed", "job_id"])]
    assert whole["begin_s"].max() > outages(result)[-1][2] > whole["begin_s"].min()
    assert np.abs(whole["end_s"] - whole["begin_s"] - 500).max() < 1e-9


def test_failures_depend_on_the_seed_and_not_on_the_policy() -> None:
    trace = jobs([(0, 9000, 1), (10, 6000, 1), (20, 3000, 1)])
    faults = {"mtbf_h": 0.5, "repair_h": 0.1}
    one, two = (run(trace, ONE, policy, seed=1, **faults) for policy in ("fifo", "srtf"))
    shared = min(len(outages(one)), len(outages(two))) - 1
    assert shared > 2 and outages(one)[:shared] == outages(two)[:shared]
    assert outages(run(trace, ONE, "fifo", seed=2, **faults)) != outages(one)


def test_mean_times_between_failures_and_to_repair() -> None:
    """Of 64 nodes over 400 h with mtbf 10 h and repair 2 h: up times have mean 10 h (4 standard errors)."""
    trace = jobs([(0, 400 * 3600, 1)])
    result = run(trace, nodes(("V100", 64, 1)), "fifo", mtbf_h=10.0, repair_h=2.0)
    up_h, down_h = [], []
    for node in result.tables["nodes"].to_pylist():
        begins = [0.0, *node["up_s"]]
        up_h += [(down - begin) / 3600 for begin, down in zip(begins, node["down_s"], strict=False)]
        down_h += [(up - down) / 3600 for down, up in zip(node["down_s"], node["up_s"], strict=False)]
    # Stretches that the end cut off are missing, the long ones rather than the short: about 1/40 of the mean.
    assert len(up_h) > 1500
    assert np.mean(up_h) == pytest.approx(10, rel=4 / np.sqrt(len(up_h)) + 1 / 40)
    assert np.mean(down_h) == pytest.approx(2, rel=4 / np.sqrt(len(down_h)) + 1 / 200)


def test_a_run_with_failures_on_a_mixed_cluster_is_audited(tmp_path: Path) -> None:
    rng = np.random.default_rng([0, 1])
    n = 60
    trace = jobs(list(zip(rng.integers(0, 20_000, n), rng.integers(0, 4_000, n), rng.integers(1, 9, n), strict=True)),
                 attempts=rng.integers(1, 4, n))
    for policy in ("fifo", "easy", "srsf", "las", "tiresias"):
        result = run(trace, nodes(("V100", 2, 8), ("T4", 1, 8)), policy, mtbf_h=2.0, repair_h=0.2,
                     checkpoint_interval_s=300.0, preemption_overhead_s=20.0)
        result.write(tmp_path / policy)
        report = audit(load_run(tmp_path / policy))
        assert report.ok, report.text
        assert (segments(result)["end_reason"] == "node_failed").any()
        assert set(pd.unique(by_job(result)["state"])) == {"done"}
