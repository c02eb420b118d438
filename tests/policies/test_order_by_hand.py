"""Who runs when, small enough for paper: each schedule below was worked out by hand from the policy's definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.api import PolicyError
from tests.helpers import by_job, jobs, nodes, run, segments

ONE = nodes(("V100", 1, 1))
FOUR = nodes(("V100", 1, 4))


def schedule(*args: Any, **more: Any) -> list[tuple[str, float, float]]:
    """(job, begin, end) of each segment, by begin."""
    table = segments(run(*args, **more))
    return list(zip(table["job_id"], table["begin_s"], table["end_s"], strict=True))


# -- without preemption --------------------------------------------------------------------------------------


def test_fifo_blocks_behind_its_head_and_fifo_skip_does_not() -> None:
    trace = jobs([(0, 100, 3), (1, 10, 2), (2, 10, 1)])
    assert schedule(trace, FOUR, "fifo") == [("0", 0, 100), ("1", 100, 110), ("2", 100, 110)]
    assert schedule(trace, FOUR, "fifo-skip") == [("0", 0, 100), ("2", 2, 12), ("1", 100, 110)]


@pytest.mark.parametrize(("policy", "begin_s"), [("fifo", 1000), ("capacity", 2), ("easy", 2)])
def test_r2_04_one_queue_blocks_all_tenants_and_types_and_a_queue_each_does_not(policy: str, begin_s: float) -> None:
    """Job 1 waits for its tenant's quota, or a T4; job 2, of another tenant and type, behind it only in one queue."""
    quota = jobs([(0, 1000, 1), (1, 100, 1), (2, 50, 1)], vc=["a", "a", "b"])
    assert by_job(run(quota, FOUR, policy, quotas={"a": 1}))["first_start_s"].tolist() == [0, 1000, begin_s]
    types = jobs([(0, 1000, 4), (1, 100, 4), (2, 50, 2)], gpu_type=["T4", "T4", "V100"], vc=["a", "a", "b"])
    cluster = nodes(("V100", 1, 4), ("T4", 1, 4))
    assert by_job(run(types, cluster, policy))["first_start_s"].tolist() == [0, 1000, begin_s]


def test_fifo_skip_may_starve_a_wide_job() -> None:
    """Two 1-GPU jobs that overlap keep the 2-GPU job out, as long as others like them follow."""
    trace = jobs([(0, 10, 1), (1, 10, 2), (5, 10, 1), (10, 10, 1), (15, 10, 1)])
    two = nodes(("V100", 1, 2))
    assert schedule(trace, two, "fifo-skip")[-1] == ("1", 25, 35)
    assert schedule(trace, two, "fifo")[1] == ("1", 10, 20)


def test_sjf_takes_the_shortest_of_those_that_wait() -> None:
    trace = jobs([(0, 100, 1), (1, 50, 1), (2, 10, 1)])
    assert schedule(trace, ONE, "sjf") == [("0", 0, 100), ("2", 100, 110), ("1", 110, 160)]


def test_sjf_goes_by_what_it_believes_and_puts_the_unknown_last() -> None:
    trace = jobs([(0, 10, 1), (1, 50, 1), (2, 10, 1), (3, 5, 1)])
    believed = [10.0, 5.0, 10.0, float("nan")]
    assert schedule(trace, ONE, "sjf", estimate_s=np.array(believed)) == [
        ("0", 0, 10), ("1", 10, 60), ("2", 60, 70), ("3", 70, 75)]


def test_equal_keys_go_in_submit_order_then_by_id() -> None:
    trace = jobs([(0, 10, 1)] * 12)
    order = [job for job, _, _ in schedule(trace, ONE, "sjf")]
    assert order == [str(i) for i in range(12)]  # job 9 before job 10: shortlex, not text order


@pytest.mark.parametrize("placement", ["count", "first-fit", "best-fit", "consolidate"])
def test_two_workers_of_three_gpus_lie_on_nodes_of_four_and_three(placement: str) -> None:
    """Each node holds one worker: 4 GPUs are no larger than 3 to it."""
    trace = jobs([(0, 10, 6), (0, 10, 9)], worker_gpus=[3, 3])
    table = segments(run(trace, nodes(("V100", 1, 4), ("V100", 2, 3)), "fifo", {"placement": placement}))
    assert table["begin_s"].tolist() == [0, 10]
    assert np.bincount(np.searchsorted([4, 7, 10], table["gpu_ids"].tolist()[1], side="right")).tolist() == [3, 3, 3]


# -- EASY ----------------------------------------------------------------------------------------------------


def test_easy_backfills_a_job_that_ends_before_the_promise() -> None:
    """Job 1 needs all four GPUs: promised at 100, when job 0 ends. Job 2 has 98 s and two GPUs until then."""
    trace = jobs([(0, 100, 2), (1, 50, 4), (2, 98, 2)])
    assert schedule(trace, FOUR, "easy") == [("0", 0, 100), ("2", 2, 100), ("1", 100, 150)]
    assert schedule(trace, FOUR, "fifo")[-1] == ("2", 150, 248)


def test_easy_does_not_backfill_a_job_that_would_delay_the_promise() -> None:
    trace = jobs([(0, 100, 2), (1, 50, 4), (2, 99, 2)])
    assert schedule(trace, FOUR, "easy") == [("0", 0, 100), ("1", 100, 150), ("2", 150, 249)]
    assert schedule(trace, FOUR, "fifo-skip")[1] == ("2", 2, 101)


def test_easy_backfills_a_long_job_on_gpus_that_the_promise_leaves() -> None:
    """Job 1 needs three GPUs at 100; the fourth is spare, so one long 1-GPU job may have it, a second may not."""
    trace = jobs([(0, 100, 2), (1, 50, 3), (2, 1000, 1), (3, 1000, 1)])
    assert schedule(trace, FOUR, "easy") == [("0", 0, 100), ("2", 2, 1002), ("1", 100, 150), ("3", 150, 1150)]


def test_easy_gives_one_promise_only() -> None:
    """Job 2 (third in line) may be delayed by a backfill: only the head is promised anything."""
    trace = jobs([(0, 10, 3), (1, 20, 4), (2, 5, 4), (3, 7, 1)])
    assert schedule(trace, FOUR, "easy") == [("0", 0, 10), ("3", 3, 10), ("1", 10, 30), ("2", 30, 35)]


def test_r2_01_easy_keeps_no_gpu_for_a_head_that_only_its_quota_keeps_waiting() -> None:
    """Quota 1 of `a`: job 1 starts at 100 whatever job 2 does on the other GPU, be it brief or long."""
    two = nodes(("V100", 1, 2))
    for run_s in (10, 1000):
        trace = jobs([(0, 100, 1), (1, 10, 1), (2, run_s, 1)], vc=["a", "a", "b"])
        assert sorted(schedule(trace, two, "easy", quotas={"a": 1})) == [
            ("0", 0, 100), ("1", 100, 110), ("2", 2, 2 + run_s)]


def test_easy_keeps_the_quota_that_it_has_promised() -> None:
    """Job 1 is promised both GPUs of `a`'s quota at 100. Job 2, of `a` too, would hold one of them until 502."""
    trace = jobs([(0, 100, 1), (1, 10, 2), (2, 500, 1), (3, 90, 1)], vc=["a"] * 4)
    assert schedule(trace, FOUR, "easy", quotas={"a": 2}) == [
        ("0", 0, 100), ("3", 3, 93), ("1", 100, 110), ("2", 110, 610)]


def test_r2_05_easy_keeps_no_gpu_for_a_head_that_cannot_lie_there() -> None:
    """Job 2 wants two GPUs of one node: there are none before 100, on node 1, so job 3 may have the one on node 0."""
    cluster = nodes(("V100", 2, 4))
    for run_s in (10, 5000):
        trace = jobs([(0, 1000, 3), (0, 100, 3), (1, 50, 2), (2, run_s, 1)], worker_gpus=[3, 3, 2, 1])
        result = by_job(run(trace, cluster, "easy"))
        assert result["first_start_s"].tolist() == [0, 0, 100, 2]


def test_easy_keeps_no_gpu_for_a_head_of_another_type() -> None:
    """Both jobs that follow find a T4; the head waits for the V100."""
    trace = jobs([(0, 100, 1), (1, 10, 1), (2, 500, 1)], gpu_type=["V100", "V100", "T4"])
    assert by_job(run(trace, nodes(("V100", 1, 1), ("T4", 1, 1)), "easy"))["first_start_s"].tolist() == [0, 100, 2]


def test_easy_promises_other_gpus_where_that_lets_a_job_in() -> None:
    """At 7 the head, three GPUs at 100, would take GPUs 0 to 2 by number; GPUs 2 and 3 and one of 0 and 1 do, too."""
    trace = jobs([(0, 5, 2), (0, 100, 2), (6, 10, 3), (7, 1000, 1), (8, 1000, 1)])
    assert by_job(run(trace, FOUR, "easy"))["first_start_s"].tolist() == [0, 0, 100, 7, 110]


# -- with preemption -----------------------------------------------------------------------------------------


def test_srtf_preempts_for_less_remaining_time_and_pays_the_restart() -> None:
    """Job 0 has 90 s left at 10; after job 1 it pays 5 s and does them: 30 + 5 + 90 = 125."""
    trace = jobs([(0, 100, 1), (10, 20, 1)])
    assert schedule(trace, ONE, "srtf", preemption_overhead_s=5.0) == [("0", 0, 10), ("1", 10, 30), ("0", 30, 125)]
    table = segments(run(trace, ONE, "srtf", preemption_overhead_s=5.0))
    assert table["overhead_s"].tolist() == [0, 0, 5]
    assert table["work_done"].tolist() == [10, 20, 90]


def test_srtf_compares_what_is_left_not_what_was_asked() -> None:
    trace = jobs([(0, 100, 1), (70, 40, 1)])
    assert schedule(trace, ONE, "srtf") == [("0", 0, 100), ("1", 100, 140)]


def test_srtf_victim_is_the_one_with_most_left() -> None:
    trace = jobs([(0, 60, 1), (0, 90, 1), (0, 70, 1), (10, 10, 1)])
    three = nodes(("V100", 1, 3))
    assert schedule(trace, three, "srtf") == [
        ("0", 0, 60), ("1", 0, 10), ("2", 0, 70), ("3", 10, 20), ("1", 20, 100)]


def test_srsf_weighs_time_by_gpus() -> None:
    """30 s on four GPUs is 120 GPU-s, 100 s on one is 100 GPU-s: SRSF takes the latter first, SRTF the former."""
    trace = jobs([(0, 30, 4), (0, 100, 1)])
    assert schedule(trace, FOUR, "srsf") == [("1", 0, 100), ("0", 100, 130)]
    assert schedule(trace, FOUR, "srtf") == [("0", 0, 30), ("1", 30, 130)]


def test_las_takes_turns_in_whole_quanta() -> None:
    """Quantum 10. Job 0 is passed at 10; job 1 goes on through its second quantum, for equals never preempt.

    At 30 job 1 has had 20 and job 0 only 10; job 0 needs 15 more; job 1 the last 15.
    """
    trace = jobs([(0, 25, 1), (0, 35, 1)])
    assert schedule(trace, ONE, "las", {"quantum_s": 10}) == [
        ("0", 0, 10), ("1", 10, 30), ("0", 30, 45), ("1", 45, 60)]


def test_las_lets_a_newcomer_in_at_once_only_if_the_running_job_has_had_a_quantum() -> None:
    trace = jobs([(0, 40, 1), (5, 3, 1), (25, 3, 1)])
    assert schedule(trace, ONE, "las", {"quantum_s": 10}) == [
        ("0", 0, 10), ("1", 10, 13), ("0", 13, 25), ("2", 25, 28), ("0", 28, 46)]


def test_las_counts_gpu_time_or_time() -> None:
    """A 2-GPU job has its 10 GPU-s after 5 s."""
    trace = jobs([(0, 10, 2), (0, 10, 1)])
    two = nodes(("V100", 1, 2))
    assert schedule(trace, two, "las", {"quantum_s": 10}) == [("0", 0, 5), ("1", 5, 15), ("0", 15, 20)]
    assert schedule(trace, two, "las", {"quantum_s": 10, "by": "time"}) == [("0", 0, 10), ("1", 10, 20)]


def test_tiresias_demotes_at_the_limit_and_nobody_preempts_within_a_queue() -> None:
    trace = jobs([(0, 30, 1), (4, 5, 1)])
    limits = {"queue_limits": "10,20"}
    assert schedule(trace, ONE, "tiresias", limits) == [("0", 0, 10), ("1", 10, 15), ("0", 15, 35)]
    # A gang of two reaches 10 GPU-s after 5 s.
    gang = jobs([(0, 30, 2), (4, 5, 2)])
    assert schedule(gang, nodes(("V100", 1, 2)), "tiresias", limits) == [("0", 0, 5), ("1", 5, 10), ("0", 10, 35)]


def test_tiresias_first_in_first_out_in_the_last_queue() -> None:
    """Both are in the last queue from 20 on: job 1 keeps the GPU although job 0 has had no more than it."""
    trace = jobs([(0, 30, 1), (5, 30, 1)])
    assert schedule(trace, ONE, "tiresias", {"queue_limits": "10"}) == [("0", 0, 10), ("1", 10, 40), ("0", 40, 60)]


def test_tiresias_promotes_after_a_wait_of_that_many_times_the_executed_time() -> None:
    """promote = 1: after 10 s of work and 10 s of waiting a job is new again; so the two take turns of 10 s."""
    trace = jobs([(0, 30, 1), (5, 40, 1)])
    assert schedule(trace, ONE, "tiresias", {"queue_limits": "10", "promote": 1}) == [
        ("0", 0, 10), ("1", 10, 20), ("0", 20, 30), ("1", 30, 40), ("0", 40, 50), ("1", 50, 70)]


def test_tiresias_refuses_limits_that_do_not_ascend() -> None:
    for limits in ("20,10", "0,5", "x", "nan"):
        with pytest.raises(PolicyError, match="value not allowed"):
            run(jobs([(0, 1, 1)]), ONE, "tiresias", {"queue_limits": limits})


def test_preemption_for_a_gang_stops_as_many_as_it_takes_and_no_more() -> None:
    """A 2-GPU job of 5 s needs two of three busy GPUs: the two jobs with most left go, the third stays."""
    trace = jobs([(0, 50, 1), (0, 60, 1), (0, 70, 1), (10, 5, 2)])
    three = nodes(("V100", 1, 3))
    assert schedule(trace, three, "srtf") == [
        ("0", 0, 50), ("1", 0, 10), ("2", 0, 10), ("3", 10, 15), ("1", 15, 65), ("2", 15, 75)]


def test_a_preempted_job_may_move_to_gpus_that_are_left() -> None:
    """The 4-GPU job wants a whole node; the two 2-GPU jobs on it go over to what is free on the other."""
    two = nodes(("V100", 2, 4))
    trace = jobs([(0, 100, 2), (0, 90, 2), (0, 20, 4), (20, 10, 4)])
    result = run(trace, two, "srtf")
    assert by_job(result)["end_s"].tolist() == [100, 90, 20, 30]
    assert set(segments(result)["end_reason"]) == {"done"}  # the free node serves: nobody is disturbed


@pytest.mark.parametrize(("policy", "settings"), [
    ("las", {"quantum_s": 10}), ("las", {"quantum_s": 10, "ties": "previous"}),
    ("las", {"quantum_s": 10, "by": "time"}), ("tiresias", {"queue_limits": "10,20,30,40"}),
])
def test_turns_on_one_type_do_not_depend_on_who_waits_for_another(policy: str, settings: dict[str, Any]) -> None:
    """Jobs 2 and 3 take turns on the T4; jobs 0 and 1, who come later and have had less, wait for the V100."""
    pair, others = [(0.0, 40.0, 1), (0.0, 40.0, 1)], [(25.0, 100.0, 1), (25.0, 100.0, 1)]
    cluster = nodes(("V100", 1, 1), ("T4", 1, 1))

    def turns(rows: list[tuple[float, float, int]], gpu_type: list[str]) -> list[tuple[float, float]]:
        table = segments(run(jobs(rows, gpu_type=gpu_type), cluster, policy, settings))
        ours = table[table["job_id"].isin(["0", "1"])]
        return list(zip(ours["begin_s"], ours["end_s"], strict=True))

    assert turns(pair + others, ["T4"] * 2 + ["V100"] * 2) == turns(pair, ["T4"] * 2)


def test_las_turns_of_wide_gangs_go_on_while_new_jobs_contend_for_another_type() -> None:
    """Quantum 7,200 GPU-s: 100 T4 change hands at 72 s and then every 144 s, whatever waits for the one V100."""
    trace = jobs([(0, 720, 100), (0, 720, 100), (100, 9000, 1), (100, 9000, 1)], gpu_type=["T4"] * 2 + ["V100"] * 2)
    table = segments(run(trace, nodes(("V100", 1, 1), ("T4", 1, 100)), "las", {"quantum_s": 7200}))
    turns = table[table["job_id"].isin(["0", "1"])]["begin_s"].tolist()
    assert turns == [0, 72, 216, 360, 504, 648, 792, 936, 1080, 1224, 1368]


def test_las_gives_wide_gangs_turns_that_are_worth_their_restart() -> None:
    """128 GPUs for 10 h each, 30 s a restart: turns of 11 quanta, 309.375 s, not of one, 28.125 s."""
    trace, cluster = jobs([(0, 36_000, 128), (0, 36_000, 128)]), nodes(("V100", 16, 8))
    table = segments(run(trace, cluster, "las", preemption_overhead_s=30.0))
    assert table["begin_s"].tolist()[:3] == [0, 309.375, 3 * 309.375]
    held_s = (table["end_s"] - table["begin_s"]).sum()
    assert held_s < 1.1 * 72_000
    short = segments(run(trace, cluster, "las", {"turn_restarts": 0}, preemption_overhead_s=30.0))
    assert short["begin_s"].tolist()[:3] == [0, 28.125, 3 * 28.125]
    one = jobs([(0, 7200, 1), (0, 7200, 1)])
    assert schedule(one, ONE, "las", preemption_overhead_s=30.0)[0] == ("0", 0, 3600)
