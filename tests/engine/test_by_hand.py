"""What the engine does with jobs, small enough for paper: gangs, instants, ends, attempts, quotas, shares, places."""

from __future__ import annotations

import numpy as np
import pytest

from sim.cluster.spec import ClusterSpec, Ledger
from sim.engine.simulate import RunResult
from sim.hardware.gputypes import gpu_type
from sim.kernels.placement import RULES, place
from tests.helpers import by_job, jobs, nodes, run, segments

ONE = nodes(("V100", 1, 1))
FOUR = nodes(("V100", 1, 4))


def schedule(result: RunResult) -> list[tuple[str, float, float]]:
    """(job, begin, end) of each segment, by begin."""
    table = segments(result)
    return list(zip(table["job_id"], table["begin_s"], table["end_s"], strict=True))


def gpus(result: RunResult) -> dict[str, list[int]]:
    """The GPUs of each job's last segment."""
    return {job: list(ids) for job, ids in zip(segments(result)["job_id"], segments(result)["gpu_ids"], strict=True)}


# -- instants ------------------------------------------------------------------------------------------------


def test_a_gang_starts_whole_or_not_at_all() -> None:
    result = run(jobs([(0, 10, 4), (0, 10, 4)]), FOUR, "fifo")
    assert schedule(result) == [("0", 0, 10), ("1", 10, 20)]
    assert all(len(ids) == 4 for ids in segments(result)["gpu_ids"])


def test_an_end_and_an_arrival_at_one_instant_are_one_decision() -> None:
    """At 10 job 0 leaves and job 1 arrives: the policy sees one queued job and a free GPU, once."""
    result = run(jobs([(0, 10, 1), (10, 10, 1)]), ONE, "fifo")
    assert schedule(result) == [("0", 0, 10), ("1", 10, 20)]
    decisions = result.tables["decisions"].to_pandas()
    assert decisions["now_s"].tolist() == [0, 10]  # none after the last end: nobody is left
    assert decisions["queued"].tolist() == [1, 1]
    assert decisions["running"].tolist() == [0, 0]


def test_a_zero_length_job_ends_at_its_start() -> None:
    result = run(jobs([(0, 10, 1), (5, 0, 1), (6, 0, 1)]), ONE, "fifo")
    assert schedule(result) == [("0", 0, 10), ("1", 10, 10), ("2", 10, 10)]
    assert by_job(result)["state"].tolist() == ["done"] * 3


def test_a_job_wider_than_the_cluster_is_rejected_at_once_and_blocks_nobody() -> None:
    result = by_job(run(jobs([(0, 10, 5), (0, 10, 4)]), FOUR, "fifo"))
    assert result.loc["0", "state"] == "rejected"
    assert result.loc["0", "reason"] == "asks for 5 slots of 1 GPU on any one type; the cluster has 4"
    assert np.isnan(result.loc["0", "first_start_s"]) and np.isnan(result.loc["0", "end_s"])
    assert result.loc["1", "end_s"] == 10


def test_states_follow_the_log() -> None:
    trace = jobs([(0, 10, 1)] * 4, status=["passed", "killed", "failed", "unknown"])
    assert by_job(run(trace, FOUR, "fifo"))["state"].tolist() == ["done", "killed", "failed", "done"]


# -- attempts ------------------------------------------------------------------------------------------------


def test_three_attempts_are_three_segments_of_a_third_each() -> None:
    """After each failed attempt the job goes back to the queue, where job 1 (later) is behind it under FIFO."""
    trace = jobs([(0, 30, 1), (1, 5, 1)], attempts=[3, 1])
    result = run(trace, ONE, "fifo")
    assert schedule(result) == [("0", 0, 10), ("0", 10, 20), ("0", 20, 30), ("1", 30, 35)]
    assert segments(result)["end_reason"].tolist() == ["failed", "failed", "done", "done"]
    assert segments(result)["work_lost"].sum() == 0


def test_a_retried_job_queues_again_and_pays_the_restart() -> None:
    trace = jobs([(0, 30, 1), (1, 5, 1)], attempts=[3, 1])
    result = run(trace, ONE, "sjf", preemption_overhead_s=2.0)
    assert schedule(result) == [("0", 0, 10), ("1", 10, 15), ("0", 15, 27), ("0", 27, 39)]


def test_attempts_can_be_left_out() -> None:
    result = run(jobs([(0, 30, 1)], attempts=[3]), ONE, "fifo", retries=False)
    assert schedule(result) == [("0", 0, 30)]


# -- preempted work and horizon ------------------------------------------------------------------------------


def test_preempted_work_is_kept_or_lost() -> None:
    """Job 0 is preempted at 40 with 60 s left, for 10 s. Without any checkpoint 'lost' means all 40 s again."""
    trace = jobs([(0, 100, 1), (40, 10, 1)])
    assert schedule(run(trace, ONE, "srtf")) == [("0", 0, 40), ("1", 40, 50), ("0", 50, 110)]
    lost = run(trace, ONE, "srtf", preempted_work="lost", checkpoint_interval_s=np.inf)
    assert schedule(lost) == [("0", 0, 40), ("1", 40, 50), ("0", 50, 150)]
    assert segments(lost)["work_lost"].tolist() == [40, 0, 0]
    assert segments(lost)["work_done"].tolist() == [40, 10, 100]


@pytest.mark.parametrize(("interval_s", "kept_s"), [(0.0, 40), (15.0, 30), (50.0, 0)])
def test_lost_work_reaches_back_to_the_last_checkpoint(interval_s: float, kept_s: float) -> None:
    """Checkpoints every 15 s of work: at 40 the last one is that of 30. Continuous ones (0) lose nothing."""
    trace = jobs([(0, 100, 1), (40, 10, 1)])
    result = run(trace, ONE, "srtf", preempted_work="lost", checkpoint_interval_s=interval_s)
    assert segments(result)["work_lost"].tolist() == [40 - kept_s, 0, 0]
    assert by_job(result).loc["0", "end_s"] == 50 + 100 - kept_s


def test_lost_work_never_reaches_into_an_earlier_attempt() -> None:
    """Two attempts of 30 s. Preempted at 40, in the second: 10 s are lost, the first attempt has had its end."""
    trace = jobs([(0, 60, 1), (40, 5, 1)], attempts=[2, 1])
    result = run(trace, ONE, "srtf", preempted_work="lost", checkpoint_interval_s=np.inf)
    assert schedule(result) == [("0", 0, 30), ("0", 30, 40), ("1", 40, 45), ("0", 45, 75)]
    assert segments(result)["work_lost"].tolist() == [0, 10, 0, 0]


def test_the_horizon_counts_from_the_first_submission_and_closes_what_runs() -> None:
    trace = jobs([(10, 100, 1), (20, 5, 1), (70, 5, 1)])
    result = run(trace, ONE, "fifo", horizon_s=50.0)
    assert schedule(result) == [("0", 10, 60)]
    table = by_job(result)
    assert table["state"].tolist() == ["unfinished"] * 3
    assert table["reason"].tolist() == [
        "still running at the horizon", "still waiting at the horizon", "submitted after the horizon"]
    assert segments(result)["end_reason"].tolist() == ["horizon"]
    assert segments(result)["work_done"].tolist() == [50]
    assert result.info["end_s"] == 60


def test_what_ends_at_the_horizon_has_ended() -> None:
    assert by_job(run(jobs([(10, 50, 1)]), ONE, "fifo", horizon_s=50.0)).loc["0", "state"] == "done"


# -- quotas and types ----------------------------------------------------------------------------------------


def test_a_virtual_cluster_never_holds_more_than_its_quota() -> None:
    trace = jobs([(0, 10, 2), (0, 10, 1), (0, 10, 3)], vc=["a", "a", "b"])
    result = run(trace, nodes(("V100", 1, 5)), "fifo-skip", quotas={"a": 2})
    assert schedule(result) == [("0", 0, 10), ("2", 0, 10), ("1", 10, 20)]


def test_a_job_above_its_quota_is_rejected() -> None:
    result = by_job(run(jobs([(0, 10, 3)], vc=["a"]), FOUR, "fifo", quotas={"a": 2}))
    assert result.loc["0", "reason"] == "asks for 3 GPUs, more than its virtual cluster's quota of 2"


def test_a_job_waits_for_its_gpu_type_although_others_are_free() -> None:
    trace = jobs([(0, 10, 2), (0, 10, 2), (0, 10, 2), (0, 10, 1)], gpu_type=["T4", "t4", "", "A100"])
    result = run(trace, nodes(("V100", 1, 2), ("T4", 1, 2)), "fifo-skip")
    assert schedule(result) == [("0", 0, 10), ("2", 0, 10), ("1", 10, 20)]
    assert gpus(result) == {"0": [2, 3], "2": [0, 1], "1": [2, 3]}
    assert by_job(result).loc["3", "reason"] == "no GPU type of the cluster is allowed (A100)"


def test_a_gang_never_spans_types() -> None:
    trace = jobs([(0, 10, 3), (0, 10, 2)])
    result = run(trace, nodes(("V100", 1, 2), ("T4", 1, 2)), "fifo")
    assert by_job(result).loc["0", "reason"] == "asks for 3 slots of 1 GPU on any one type; the cluster has 2"


# -- shares --------------------------------------------------------------------------------------------------


def test_five_fifths_fill_a_gpu_exactly() -> None:
    result = run(jobs([(0, 10, 1)] * 6, gpu_milli=[200] * 6), ONE, "fifo")
    assert [begin for _, begin, _ in schedule(result)] == [0] * 5 + [10]


@pytest.mark.parametrize(("milli", "second_start_s"), [(100, 0), (101, 10), (200, 10)])
def test_nine_tenths_leave_room_for_one_tenth(milli: int, second_start_s: float) -> None:
    result = run(jobs([(0, 10, 1), (0, 10, 1)], gpu_milli=[900, milli]), ONE, "fifo")
    assert by_job(result).loc["1", "first_start_s"] == second_start_s


def test_a_whole_gpu_job_needs_a_gpu_that_nobody_shares() -> None:
    result = run(jobs([(0, 10, 1), (0, 10, 1), (0, 10, 1)], gpu_milli=[1, 1000, 1000]), nodes(("V100", 1, 2)), "fifo")
    assert [begin for _, begin, _ in schedule(result)] == [0, 0, 10]


def test_slots_of_one_gang_may_share_a_gpu() -> None:
    result = run(jobs([(0, 10, 2), (0, 10, 1)], gpu_milli=[500, 1000]), nodes(("V100", 1, 2)), "fifo")
    assert gpus(result) == {"0": [0, 0], "1": [1]}
    assert segments(result)["gpus"].map(list).tolist() == [[1.0], [1.0]]


# -- placement -----------------------------------------------------------------------------------------------


def placed(
    rule: str, need: int, taken: list[int], *, milli: int = 1000, worker: int = 1, shares: dict[int, int] | None = None,
    cluster: ClusterSpec | None = None,
) -> list[int] | None:
    """GPUs that a rule picks where the GPUs `taken` are in use (`shares`: GPU -> milli in use); None: does not fit."""
    cluster = cluster or nodes(("V100", 3, 4))
    ledger = Ledger(cluster)
    ledger.take(np.array(taken, dtype=np.int32), 1000)
    for g, used in (shares or {}).items():
        ledger.take(np.array([g], dtype=np.int32), used)
    before = ledger.free_milli.copy()
    out = np.full(need, -1, dtype=np.int32)
    end = place(RULES[rule], np.int32(need), np.int32(milli), np.int32(worker), np.uint64(1), ledger.state,
                ledger.shape, out, 0)
    if end < 0:
        assert (ledger.free_milli == before).all(), "a gang that does not fit takes nothing"
        return None
    assert end == need
    assert (before - ledger.free_milli).sum() == need * milli
    assert ledger.idle.tolist() == [int((ledger.free_milli[4 * n : 4 * n + 4] == 1000).sum()) for n in range(3)]
    assert ledger.type_idle.tolist() == [ledger.idle.sum()]
    return sorted(out.tolist())


#: Three nodes of four GPUs: node 0 has 2 free (2, 3), node 1 has 3 (5, 6, 7), node 2 has 1 (11).
TAKEN = [0, 1, 4, 8, 9, 10]
EMPTY_LAST = [0, 1, 4]
"""The same, but node 2 is wholly free."""


@pytest.mark.parametrize(("rule", "need", "taken", "expected"), [
    ("count", 1, TAKEN, [2]), ("first-fit", 1, TAKEN, [2]),
    ("best-fit", 1, TAKEN, [11]), ("consolidate", 1, TAKEN, [11]),
    ("count", 2, TAKEN, [2, 3]), ("best-fit", 2, TAKEN, [2, 3]),
    ("count", 3, TAKEN, [2, 3, 5]), ("first-fit", 3, TAKEN, [5, 6, 7]), ("best-fit", 3, TAKEN, [5, 6, 7]),
    ("count", 4, TAKEN, [2, 3, 5, 6]), ("first-fit", 4, TAKEN, None), ("best-fit", 4, TAKEN, None),
    ("consolidate", 4, TAKEN, [2, 5, 6, 7]), ("consolidate", 6, TAKEN, [2, 3, 5, 6, 7, 11]),
    ("count", 7, TAKEN, None), ("consolidate", 7, TAKEN, None),
    ("first-fit", 2, [0, 1, 2, 4], [5, 6]), ("best-fit", 2, [0, 4, 5], [6, 7]),
    # Wider than a node: whole nodes first, then the first (or fullest) that holds the rest.
    ("first-fit", 5, EMPTY_LAST, [2, 8, 9, 10, 11]), ("first-fit", 7, EMPTY_LAST, [5, 6, 7, 8, 9, 10, 11]),
    ("best-fit", 6, EMPTY_LAST, [2, 3, 8, 9, 10, 11]), ("first-fit", 8, EMPTY_LAST, None),
    ("consolidate", 8, EMPTY_LAST, [2, 5, 6, 7, 8, 9, 10, 11]), ("count", 8, EMPTY_LAST, [2, 3, 5, 6, 7, 8, 9, 10]),
])
def test_placement_rules_on_three_nodes(rule: str, need: int, taken: list[int], expected: list[int] | None) -> None:
    assert placed(rule, need, taken) == expected


@pytest.mark.parametrize(("rule", "need", "milli", "expected"), [
    ("count", 1, 300, [2]), ("first-fit", 1, 300, [2]),  # the first GPU that has it
    ("best-fit", 1, 300, [6]), ("consolidate", 1, 500, [5]),  # the fullest that has it
    ("best-fit", 1, 600, [2]), ("best-fit", 2, 250, [5, 6]), ("first-fit", 3, 400, [2, 2, 3]),
])
def test_shares_go_to_the_first_or_to_the_fullest_gpu(rule: str, need: int, milli: int, expected: list[int]) -> None:
    """GPUs 5 and 6 have 500 and 300 milli free; 2, 3, 7 and 11 are idle."""
    assert placed(rule, need, TAKEN, milli=milli, shares={5: 500, 6: 700}) == expected


def test_slots_of_one_worker_lie_on_one_node() -> None:
    """Two workers of two: node 1 has three free but only one pair; node 2 has one free and no pair."""
    assert placed("count", 4, TAKEN, worker=2) == [2, 3, 5, 6]
    assert placed("count", 4, [*TAKEN, 2], worker=2) is None
    assert placed("consolidate", 4, TAKEN, worker=2) == [2, 3, 5, 6]
    assert placed("first-fit", 4, TAKEN, worker=4) is None
    trace = jobs([(0, 10, 3), (0, 10, 4)], worker_gpus=[1, 2])
    result = run(trace, nodes(("V100", 2, 4)), "fifo", {"placement": "count"})
    assert gpus(result) == {"0": [0, 1, 2], "1": [4, 5, 6, 7]}


@pytest.mark.parametrize("rule", RULES)
def test_unequal_nodes_of_one_type(rule: str) -> None:
    """Nodes of 2, 4 and 2 GPUs: six are the large node and a small one."""
    cluster = ClusterSpec.build("unequal", [gpu_type("V100")], [0, 0, 0], [2, 4, 2])
    result = run(jobs([(0, 10, 6)]), cluster, "fifo", {"placement": rule})
    assert sorted(gpus(result)["0"]) == [0, 1, 2, 3, 4, 5]
