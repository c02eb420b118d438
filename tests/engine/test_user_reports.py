"""What users of other simulators ran into, each as the smallest case that shows it (P-nn: number of the report)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.metrics import held_gpu_s, makespan_s, utilisation
from analysis.metrics.series import averages, gpus_in_use, queue_length
from analysis.run import Run
from policies.mechanisms import Ordered
from policies.registry import make
from sim.api import Decision, HetsimError, IllegalDecisionError, Placement, Policy
from sim.cluster.spec import Ledger
from sim.engine.simulate import RunResult, simulate
from sim.settings.config import EngineConfig
from sim.workload.progress import Recorded
from tests.helpers import by_job, jobs, nodes, run, segments
from traces.errors import TraceError
from traces.load import offered_load
from traces.trace import Trace

ONE = nodes(("V100", 1, 1))
FOUR = nodes(("V100", 1, 4))
ORDERED = ("fifo", "fifo-skip", "sjf", "easy")
PREEMPTIVE = ("srtf", "srsf", "las", "tiresias")


def loaded(result: RunResult) -> Run:
    return Run(Path("memory"), result.tables, result.info, result.timing)


def schedule(result: RunResult) -> list[tuple[str, float, float]]:
    table = segments(result)
    return list(zip(table["job_id"], table["begin_s"], table["end_s"], strict=True))


def run_with(policy: Policy, trace: Trace, cluster: Any) -> RunResult:
    return simulate(trace, cluster, policy, Recorded(trace, cluster), EngineConfig(preemption_overhead_s=0.0))


@pytest.mark.parametrize("policy", ORDERED + PREEMPTIVE)
def test_p16_more_work_than_capacity_is_a_backlog_not_an_allocation_above_one(policy: str) -> None:
    """Three 1-GPU jobs of 100 s on two A10: load 1.5 over 100 s, all GPUs in use on [0, 100), drained at 200."""
    trace = jobs([(0, 100, 1)] * 3, gpu_type=["A10"] * 3)
    settings = {"quantum_s": 1000} if policy == "las" else {}
    result = loaded(run(trace, nodes(("A10", 1, 2)), policy, settings))
    assert trace.duration_s.sum() / (2 * 100) == 1.5
    assert averages(*gpus_in_use(result).to_numpy().T, np.array([0.0, 100.0, 200.0])).tolist() == [2.0, 1.0]
    assert averages(*queue_length(result).to_numpy().T, np.array([0.0, 100.0, 200.0])).tolist() == [1.0, 0.0]
    assert makespan_s(result) == 200
    assert utilisation(result) == {"all": 0.75, "A10": 0.75}


def test_p16_the_offered_load_is_told() -> None:
    trace = jobs([(0, 100, 1), (0, 100, 1), (100, 100, 1)])
    assert offered_load(trace, 2) == pytest.approx(1.5)


ODD = [(1_000_600, 30, 4), (1_000_000, 100, 2), (1_000_000, 50, 4), (9_000_000, 0, 1), (1_000_050, 10, 1)]
"""First arrival at 1e6, unsorted rows, a gap longer than all the work, two equal arrivals, a job without work."""


def jcts(result: RunResult) -> list[float]:
    table = by_job(result)
    return (table["end_s"] - table["submit_s"]).sort_index().tolist()


@pytest.mark.parametrize("policy", ORDERED + PREEMPTIVE)
def test_p23_any_legal_trace_runs_and_shifts_change_nothing(policy: str) -> None:
    columns: dict[str, Any] = {"job_id": list("abcde")} | dict(
        zip(("submit_s", "duration_s", "num_gpus"), zip(*ODD, strict=True), strict=True))
    rows = np.random.default_rng([0, 5]).permutation(5)
    trace = Trace.from_columns(columns)
    shuffled = Trace.from_columns({k: [v[i] for i in rows] for k, v in columns.items()})
    later = trace.replace(submit_s=trace.submit_s + 1e6)
    day = trace.replace(submit_s=trace.submit_s + np.where(trace.submit_s > 5e6, 86_400, 0))
    expected = jcts(run(trace, FOUR, policy))
    for other in (shuffled, later, day):
        assert jcts(run(other, FOUR, policy)) == expected
    table = by_job(run(trace, FOUR, policy))
    assert (table["state"] == "done").all()
    assert table.loc["d", "end_s"] == table.loc["d", "first_start_s"] == 9_000_000


def test_p28_the_policy_sees_the_estimate_and_the_job_follows_the_truth() -> None:
    """True 100, believed 80, restart 5. At 50 it is believed to have 30 left, so 10 s come first; then 5 + 50 s."""
    trace = jobs([(0, 100, 1), (50, 10, 1)])
    result = run(trace, ONE, "srtf", estimate_s=np.array([80.0, 10.0]), preemption_overhead_s=5.0)
    assert schedule(result) == [("0", 0, 50), ("1", 50, 60), ("0", 60, 115)]
    mine = segments(result).query("job_id == '0'")
    assert (mine["end_s"] - mine["begin_s"]).sum() == 105


def test_p28_another_estimate_changes_the_order_only() -> None:
    trace = jobs([(0, 100, 1), (50, 10, 1)])
    result = run(trace, ONE, "srtf", estimate_s=np.array([55.0, 10.0]), preemption_overhead_s=5.0)
    assert schedule(result) == [("0", 0, 100), ("1", 100, 110)]
    assert segments(result)["work_done"].sum() == 110


@pytest.mark.parametrize("policy", ORDERED + PREEMPTIVE)
def test_p30_gangs_are_all_or_nothing(policy: str) -> None:
    trace = jobs([(0, 10, 4), (0, 10, 4)])
    result = run(trace, nodes(("V100", 4, 1)), policy, {"placement": "count"})
    assert schedule(result) == [("0", 0, 10), ("1", 10, 20)]
    assert segments(result)["gpu_ids"].map(len).tolist() == [4, 4]


@pytest.mark.parametrize("policy", PREEMPTIVE)
def test_p33_two_that_could_preempt_each_other_do_not_for_ever(policy: str) -> None:
    """Two tenants with one GPU each by right, both with a 2-GPU job: at most one preemption for the pair."""
    trace = jobs([(0, 1000, 2), (1, 1000, 2)], vc=["a", "b"])
    result = run(trace, nodes(("V100", 1, 2)), policy, preemption_overhead_s=10.0)
    assert (by_job(result)["state"] == "done").all()
    assert (segments(result)["end_reason"] == "preempted").sum() <= 1


def test_p33_turns_shorter_than_a_restart_are_refused_by_name() -> None:
    """Each turn of 10 s is spent on a restart of 30 s: nothing is ever done. The run ends with a message.

    Without `turn_restarts = 0` turns are ten restarts long, and both jobs end.
    """
    trace = jobs([(0, 100, 1), (0, 100, 1)])
    with pytest.raises(IllegalDecisionError, match=r"interrupted .* times in a row before any got anything done"):
        run(trace, ONE, "las", {"quantum_s": 10, "turn_restarts": 0}, preemption_overhead_s=30.0)
    assert (by_job(run(trace, ONE, "las", {"quantum_s": 10}, preemption_overhead_s=30.0))["state"] == "done").all()


def test_p33_a_policy_that_only_wakes_is_stopped() -> None:
    @dataclass
    class Dozing(Policy):
        """Wakes each second and does nothing."""

        def decide(self, view: Any) -> Decision:
            return Decision(wake_s=view.now_s + 1.0)

    job = by_job(run_with(Dozing(), jobs([(0, 10, 1)]), ONE)).loc["0"]
    assert (job["state"], job["reason"]) == ("unfinished", "the policy leaves it waiting on an idle cluster")


@pytest.mark.parametrize("policy", PREEMPTIVE)
def test_p34_equal_never_preempts(policy: str) -> None:
    """Job 1 comes when job 0 has as much left (srtf), or is in the same quantum or queue (las, tiresias)."""
    trace = jobs([(0, 100, 1), (40, 60, 1)])
    assert schedule(run(trace, ONE, policy)) == [("0", 0, 100), ("1", 100, 160)]


def test_p34_the_victim_is_the_one_with_the_largest_key_and_of_equals_the_latest() -> None:
    three = nodes(("V100", 1, 3))
    trace = jobs([(0, 100, 1), (0, 100, 1), (0, 100, 1), (10, 5, 1)])
    assert segments(run(trace, three, "srtf")).query("end_reason == 'preempted'")["job_id"].tolist() == ["2"]
    trace = jobs([(0, 100, 1), (0, 200, 1), (0, 100, 1), (10, 5, 1)])
    assert segments(run(trace, three, "srtf")).query("end_reason == 'preempted'")["job_id"].tolist() == ["1"]


def test_p34_capacity_is_kept_to_when_it_shrinks() -> None:
    trace = jobs([(0, 4000, 1)] * 6)
    result = run(trace, nodes(("V100", 3, 1)), "fifo", mtbf_h=1.0, repair_h=0.5)
    used, down = gpus_in_use(loaded(result)), []
    for node in result.tables["nodes"].to_pylist():
        ups = [*node["up_s"], np.inf]
        down += [(d, ups[i]) for i, d in enumerate(node["down_s"])]
    assert len(down) > 3
    for time_s, gpus in used.to_numpy():
        assert gpus <= 3 - sum(d <= time_s < u for d, u in down)


def test_p35_a_job_without_a_limit_is_not_taken_for_a_brief_one() -> None:
    """Job 1 is promised all GPUs at 100; job 2 announces nothing, so it waits. With 5 s announced it slips in."""
    trace = jobs([(0, 100, 2), (1, 50, 4), (2, 5, 2)])
    blank = run(trace, FOUR, "easy", estimate_s=np.array([100, 50, np.nan]))
    assert by_job(blank).loc["2", "first_start_s"] == 150
    known = run(trace, FOUR, "easy", estimate_s=np.array([100.0, 50, 5]))
    assert by_job(known).loc["2", "first_start_s"] == 2


def test_p37_completion_wins_over_a_kill_at_the_same_instant() -> None:
    """A policy that stops everything at 10, when job 0 ends: the end comes first, so nothing is left to stop."""

    @dataclass
    class Killer(Ordered):
        """Stops whatever still runs at 10 s."""

        def decide(self, view: Any) -> Decision:
            if view.now_s == 10:
                return Decision(stop=view.running.tolist(), wake_s=11.0)
            return Decision(start=self.admit(view, view.queued, True), wake_s=10.0 if view.now_s < 10 else None)

    result = run_with(Killer(), jobs([(0, 10, 1), (0, 15, 1)]), nodes(("V100", 1, 2)))
    assert schedule(result) == [("0", 0, 10), ("1", 0, 10), ("1", 11, 16)]
    assert segments(result)["end_reason"].tolist() == ["done", "preempted", "done"]
    assert by_job(result)["state"].tolist() == ["done", "done"]
    decisions = result.tables["decisions"].to_pandas()
    assert decisions["running"].min() >= 0 and decisions["queued"].min() >= 0
    assert gpus_in_use(loaded(result))["all"].iloc[-1] == 0


def test_p39_no_gpus_is_refused_by_row_and_no_work_is_no_division_by_zero() -> None:
    with pytest.raises(TraceError, match=r"row 2, column 'num_gpus'.*got 0.*from 1"):
        jobs([(0, 10, 1), (0, 10, 0)])
    result = run(jobs([(0, 0, 1), (0, 0, 4), (0, 10, 1)]), FOUR, "srtf")
    assert by_job(result)["end_s"].tolist() == [0, 0, 10]
    assert np.isfinite(segments(result)[["rate", "work_done", "work_lost"]].to_numpy()).all()


@pytest.mark.parametrize("policy", ORDERED + PREEMPTIVE)
def test_p40_one_state_an_instant(policy: str) -> None:
    """At 5 job 0 ends, and two jobs come, one of them without work: one row, and the integral is the GPU time."""
    result = loaded(run(jobs([(0, 5, 1), (5, 0, 1), (5, 7, 1)]), ONE, policy))
    for series in (gpus_in_use(result), queue_length(result)):
        assert (np.diff(series["time_s"]) > 0).all()
        assert np.isfinite(series.to_numpy()).all()
    used = gpus_in_use(result)
    area = (used["all"].to_numpy()[:-1] * np.diff(used["time_s"])).sum()
    assert area == held_gpu_s(result).sum() == 12


def test_p41_shares_leave_no_rounding_behind() -> None:
    """A hundred thousand takes and gives of 0.1 and 0.3 GPU in random order: at the end all of it is free again."""
    cluster = nodes(("V100", 2, 4), ("T4", 1, 2))
    ledger = Ledger(cluster)
    rng = np.random.default_rng([0, 41])
    held: list[tuple[np.ndarray, int]] = []
    coins, picks = rng.random(100_000), rng.integers(0, cluster.num_gpus, 100_000)
    refused = 0
    for coin, pick in zip(coins.tolist(), picks.tolist(), strict=True):
        if coin < 0.5 and held:
            at = pick % len(held)
            held[at], held[-1] = held[-1], held[at]  # not in the order in which they were taken
            ledger.give(*held.pop())
            continue
        gpu, milli = np.array([pick], dtype=np.int32), 100 if coin < 0.75 else 300
        if ledger.take(gpu, milli) < 0:
            held.append((gpu, milli))
        else:
            refused += 1
    assert refused > 100
    assert ledger.free_milli.min() >= 0
    assert ledger.free_milli.sum() == 1000 * cluster.num_gpus - sum(milli for _, milli in held)
    for gpu, milli in held:
        ledger.give(gpu, milli)
    assert (ledger.free_milli == 1000).all()
    assert ledger.idle.tolist() == [4, 4, 2] and ledger.type_idle.tolist() == [8, 2]


def test_p41_a_take_that_fails_takes_nothing() -> None:
    ledger = Ledger(FOUR)
    assert ledger.take(np.array([0, 1, 1, 2], dtype=np.int32), 600) == 2
    assert (ledger.free_milli == 1000).all() and ledger.idle.tolist() == [4]


@pytest.mark.parametrize("gpu", [8, -1, 2**31 - 1])
def test_p58_a_gpu_that_does_not_exist_is_refused(gpu: int) -> None:
    @dataclass
    class Wild(Policy):
        """Asks for a GPU of its own imagination."""

        def decide(self, view: Any) -> Decision:
            return Decision(start=[(0, Placement(np.array([gpu], dtype=np.int32)))])

    with pytest.raises(IllegalDecisionError, match=f"no such GPU; got \\[{gpu}\\]; allowed: 0 to 7"):
        run_with(Wild(), jobs([(0, 10, 1)]), nodes(("V100", 1, 8)))
    assert Ledger(nodes(("V100", 1, 8))).take(np.array([gpu], dtype=np.int32), 1000) == 0


def test_p58_large_times_are_exact_and_larger_ones_refused() -> None:
    """1.6e10 s would not fit into nanoseconds of 64 bits; here it is a number like any other."""
    result = by_job(run(jobs([(1.6e10, 10, 1), (1.6e10, 1.6e10, 1)]), ONE, "fifo"))
    assert result["end_s"].tolist() == [1.6e10 + 10, 3.2e10 + 10]
    with pytest.raises(TraceError, match="column 'submit_s'"):
        jobs([(1e12, 10, 1)])


@pytest.mark.parametrize(("what", "settings"), [
    ("unknown setting", {"quantum": 5}), ("value not allowed", {"quantum_s": "soon"}),
    ("value not allowed", {"by": "gpus"}), ("value not allowed", {"quantum_s": 0}),
    ("value not allowed", {"quantum_s": -5}),
])
def test_a_setting_that_cannot_be_used_is_refused(what: str, settings: dict[str, Any]) -> None:
    trace = jobs([(0, 100, 1), (0, 100, 1)])
    with pytest.raises(HetsimError, match=what):
        run(trace, ONE, "las", settings)
    assert make("las", {"quantum_s": "5"}).quantum_s == 5.0  # type: ignore[attr-defined]
