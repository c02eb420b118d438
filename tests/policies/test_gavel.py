"""The policy `gavel` in whole runs: each objective on jobs that one can follow, bad input, and what run.json says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.checks import check_policy
from policies.heterogeneous.gavel import Gavel
from policies.registry import make
from policies.shares import objectives
from policies.shares.linear import SolverError
from sim.api import PolicyError
from sim.cli.schedulers import replay as runner
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.tables import MeasuredTable
from sim.performance.tables.points import ANY_PLACEMENT, Measurement, Point
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled, Recorded
from tests.helpers import by_job, jobs, nodes, run, segments
from traces.trace import Trace

SPEED = {"a": (3.0, 1.0), "b": (0.8, 1.0), "t4-only": (0.0, 1.0)}
"""Iterations a second on a V100 and on a T4."""
PAIR = nodes(("V100", 1, 1), ("T4", 1, 1))
VARIANTS: list[dict[str, Any]] = [
    {"objective": "ftf"}, {"objective": "makespan"}, {"objective": "fifo"}, {"objective": "throughput"},
    {"objective": "cost"}, {"objective": "cost-slo"}, {"objective": "hierarchical", "within": "fair"},
    {"objective": "hierarchical", "within": "fifo"}, {"water_filling": True}, {"aware": False},
    {"objective": "ftf", "aware": False}, {"objective": "makespan", "rest": "centre", "bisected": 0.05},
]


def table(rates: dict[str, tuple[float, float]]) -> MeasuredTable:
    points = {Point(model, 0, kind, 1, ANY_PLACEMENT): Measurement(rate)
              for model, both in rates.items() for kind, rate in zip(("V100", "T4"), both, strict=True)}
    return MeasuredTable(points, source="by hand", gaps="refuse")


def played(trace: Trace, cluster: ClusterSpec = PAIR, believed: dict[str, tuple[float, float]] | None = None,
           settings: dict[str, Any] | None = None, **more: Any) -> RunResult:
    """Jobs at the speeds of SPEED; a job's work is its duration at one iteration a second."""
    truth = Performance(table=table(SPEED))
    belief = truth if believed is None else Performance(table=table(believed))
    work = Modelled(trace, cluster, truth, gpu_type("T4"))
    policy = make("gavel", {"round_s": 10.0, **(settings or {})})
    return simulate(trace, cluster, policy, work, EngineConfig(preemption_overhead_s=0.0), performance=belief,
                    estimate_s=work.work_total / work.reference_rate, **more)


def of(*rows: tuple[float, float, str], **columns: Any) -> Trace:
    """Jobs of one GPU: submit, duration on a T4, model."""
    return jobs([(submit, duration, 1) for submit, duration, _ in rows], model=[model for _, _, model in rows],
                batch_size=[1] * len(rows), **columns)


def on(result: RunResult) -> list[tuple[str, float, float, str]]:
    """(job, begin, end, GPU type) of each segment."""
    table = segments(result)[["job_id", "begin_s", "end_s", "gpu_ids"]]
    return [(job, begin, end, ("V100", "T4")[ids[0]]) for job, begin, end, ids in table.itertuples(index=False)]


# -- objectives ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_each_variant_passes_the_conformance_suite(settings: dict[str, Any]) -> None:
    report = check_policy("gavel", {"round_s": 30.0, **settings}, runner=runner)
    assert report.ok, report.text


@pytest.mark.parametrize("objective", ["las", "ftf", "makespan", "throughput", "hierarchical"])
def test_each_type_goes_to_whom_it_serves_best(objective: str) -> None:
    """b came first; but a is three times as fast on the V100, where b is slower."""
    assert on(played(of((0, 50, "b"), (0, 150, "a")), settings={"objective": objective})) == [
        ("0", 0, 50, "T4"), ("1", 0, 50, "V100")]


def test_fifo_takes_the_fastest_type_with_room() -> None:
    """a, a, b: the second a finds the T4 only; b waits, though it would be faster there."""
    found = on(played(of((0, 30, "a"), (0, 50, "a"), (0, 10, "b")), settings={"objective": "fifo"}))
    assert found[:2] == [("0", 0, 10, "V100"), ("1", 0, 10, "T4")]
    assert min(begin for job, begin, _, _ in found if job == "2") == 10


def test_cost_takes_what_is_cheap_for_its_work() -> None:
    """One job of type a: 3 a second on the V100, 1 on the T4. The V100 costs more than 3 T4 (in the catalogue 5.8)."""
    price = [gpu.price_or_nan for gpu in PAIR.types]
    assert price[0] > 3 * price[1]
    assert on(played(of((0, 30, "a")), settings={"objective": "cost"})) == [("0", 0, 30, "T4")]
    assert on(played(of((0, 30, "a")), settings={"objective": "throughput"})) == [("0", 0, 10, "V100")]


def test_a_deadline_makes_the_dear_type_worth_it() -> None:
    """30 s of work until 10 s: the V100 all the time. Until 1,000 s: the T4 does."""
    settings = {"objective": "cost-slo"}
    soon = played(of((0, 30, "a"), deadline_s=[10.0], deadline_kind=["soft"]), settings=settings)
    assert on(soon) == [("0", 0, 10, "V100")]
    late = played(of((0, 30, "a"), deadline_s=[1000.0], deadline_kind=["soft"]), settings=settings)
    assert on(late) == [("0", 0, 30, "T4")]
    assert "policy_counts" not in late.info


def test_agnostic_turns_between_types_that_it_cannot_tell_apart() -> None:
    """Two alike jobs of type a, 400 iterations at 3 or 1 a second: half of the time on each type is 100 s on each."""
    result = played(of((0, 400, "a"), (0, 400, "a")), settings={"aware": False})
    table = segments(result)
    on_fast = table[[ids[0] == 0 for ids in table["gpu_ids"]]]
    had_s = (on_fast["end_s"] - on_fast["begin_s"]).groupby(on_fast["job_id"]).sum()
    assert had_s.tolist() == [100, 100]


def test_tenants_share_by_weight_whatever_their_numbers() -> None:
    """One GPU, tenant x with weight 3 and one job, y with two: of 40 rounds x has 30."""
    trace = jobs([(0, 5000, 1)] * 3, vc=["x", "y", "y"])
    result = run(trace, nodes(("V100", 1, 1)), "gavel",
                 {"objective": "hierarchical", "tenant_weights": "x=3,y=1", "round_s": 10.0}, horizon_s=400.0)
    table = segments(result)
    had_s = (table["end_s"] - table["begin_s"]).groupby(table["job_id"]).sum()
    assert had_s.tolist() == pytest.approx([300, 50, 50], abs=20)


def test_a_weight_counts() -> None:
    trace = jobs([(0, 5000, 1)] * 2, priority=[3.0, 1.0])
    result = run(trace, nodes(("V100", 1, 1)), "gavel", {"round_s": 10.0}, horizon_s=400.0)
    table = segments(result)
    assert (table["end_s"] - table["begin_s"]).groupby(table["job_id"]).sum().tolist() == [300, 100]


def test_finish_time_fairness_keeps_books_of_what_a_part_would_have_done() -> None:
    """Two alike jobs, one GPU, one 100 s older: it had the GPU alone, and a half of it would have done 50 s.

    At 100 s, with 100 s and 200 s left: (100 + 100 / x) / (100 + 200) = (200 / (1 - x)) / 400 at x = 0.6125.
    Shares are asked for as soon as the second is there: by default that is after 1,920 s, when both are done.
    """
    policy = Gavel(round_s=10.0, objective="ftf", solve_every_s=0.0)
    found: list[np.ndarray] = []
    inner = policy._shares_by

    def spy(*given: Any) -> np.ndarray:
        found.append(inner(*given))
        return found[-1]

    policy._shares_by = spy  # type: ignore[method-assign]
    trace = jobs([(0, 200, 1), (100, 200, 1)])
    cluster = nodes(("V100", 1, 1))
    simulate(trace, cluster, policy, Recorded(trace, cluster), EngineConfig(preemption_overhead_s=0.0),
             estimate_s=trace.duration_s)
    both = next(shares for shares in found if len(shares) == 2)
    # Alone, its part was the whole GPU: 100 s of work are 100 s; now its half makes 100 s of work 200 s.
    x = both[0, 0]
    assert (100 + 100 / x) / 300 == pytest.approx((200 / (1 - x)) / 400, rel=1e-5)


# -- needs, and run.json -------------------------------------------------------------------------------------


def test_run_times_are_asked_for_where_the_objective_reads_them() -> None:
    needs = {name: make("gavel", {"objective": name}).needs_estimates
             for name in ("las", "ftf", "makespan", "fifo", "throughput", "cost", "cost-slo", "hierarchical")}
    assert {name for name, needed in needs.items() if needed} == {"ftf", "makespan", "cost-slo"}
    assert not Gavel.needs_estimates
    assert played(of((0, 10, "a"))).info["estimate"] == "none"
    assert played(of((0, 10, "a")), settings={"objective": "ftf"}).info["estimate"] == "oracle"


@pytest.mark.parametrize(("settings", "spare"), [
    ({}, "fill"), ({"objective": "ftf"}, "fill"), ({"objective": "fifo"}, "idle"), ({"objective": "cost"}, "idle"),
    ({"objective": "cost-slo"}, "idle"), ({"objective": "cost", "spare": "fill"}, "fill"), ({"spare": "idle"}, "idle")])
def test_run_json_says_what_became_of_gpus_that_nobody_deserves(settings: dict[str, Any], spare: str) -> None:
    assert make("gavel", {}).spare == "by-objective"
    assert played(of((0, 10, "a")), settings=settings).info["policy_settings"]["spare"] == spare


@pytest.mark.parametrize(("spare", "begins"), [("by-objective", [0, 30, 50]), ("fill", [0, 30, 0])])
def test_by_submission_nobody_passes_unless_gpus_are_filled(spare: str, begins: list[float]) -> None:
    """Two GPUs; the second job needs both, and waits for the first; the third could have one at once."""
    trace = jobs([(0, 30, 1), (0, 20, 2), (0, 20, 1)])
    result = run(trace, nodes(("V100", 1, 2)), "gavel", {"objective": "fifo", "spare": spare, "round_s": 10.0})
    assert by_job(result)["first_start_s"].tolist() == begins


def test_who_comes_need_not_wait_beside_idle_gpus() -> None:
    """The first has the V100 by submission; the second comes at 15 s, within a round, and has the T4 from the next."""
    found = on(played(of((0, 300, "a"), (15, 50, "b")), settings={"objective": "fifo"}))
    assert found == [("0", 0, 100, "V100"), ("1", 20, 70, "T4")]


def test_the_same_jobs_are_not_solved_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares by weight hang on who is there: one program for each set of jobs, however many rounds it lasts."""
    calls = []
    inner = objectives.raise_least
    monkeypatch.setattr(objectives, "raise_least", lambda *given, **more: calls.append(1) or inner(*given, **more))
    played(of((0, 400, "a"), (0, 400, "a"), (0, 1000, "b")))
    assert 1 <= len(calls) <= 3


# -- bad input -----------------------------------------------------------------------------------------------


def test_a_job_that_no_type_is_believed_to_run_is_rejected() -> None:
    """It could run on the T4; the belief says that it fits nowhere."""
    result = played(of((0, 10, "a"), (0, 10, "t4-only")), believed={**SPEED, "t4-only": (0.0, 0.0)})
    ended = by_job(result)
    assert ended["state"].tolist() == ["done", "rejected"]
    assert ended["reason"]["1"] == "no GPU type that it may use is believed to run it"


def test_idle_gpus_on_which_a_job_is_believed_not_to_run_are_not_filled_with_it() -> None:
    """Both jobs run on a T4 only, as is believed: the V100 stays idle."""
    believed = dict.fromkeys(("a", "b"), (0.0, 1.0))
    result = played(of((0, 40, "a"), (0, 40, "a")), believed=believed)
    assert {kind for *_, kind in on(result)} == {"T4"}


def test_a_job_without_a_rate_on_one_type_runs_on_the_other() -> None:
    assert [kind for *_, kind in on(played(of((0, 10, "t4-only"))))] == ["T4"]


def test_past_deadlines_are_let_go_and_counted() -> None:
    """At 0 the first needs 90 / 5 a second, and has the V100 for itself; the second is done on the T4 at 10 s. Then
    shares are found anew, with a deadline that is past: of 60 that are left the T4, which is cheaper, does 1 a second.
    """
    trace = of((0, 90, "a"), (0, 10, "a"), deadline_s=[5.0, 1000.0], deadline_kind=["soft", "soft"])
    result = played(trace, settings={"objective": "cost-slo"})
    assert on(result) == [("0", 0, 10, "V100"), ("1", 0, 10, "T4"), ("0", 10, 70, "T4")]
    assert result.info["policy_counts"] == {
        "decisions in which deadlines could not all be met": 1,
        "deadlines let go in a decision, since they are past": 1}


@pytest.mark.parametrize(("status", "words"), [(1, "the solver's time was up"), (2, "the solver found no best ones")])
def test_where_the_solver_fails_shares_are_equal_and_counted(
    status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise SolverError(status, "no")

    monkeypatch.setattr(objectives, "raise_least", fails)
    result = played(of((0, 100, "a"), (0, 100, "a"), (0, 100, "b")))
    assert by_job(result)["state"].tolist() == ["done"] * 3
    assert list(result.info["policy_counts"]) == [f"decisions by equal shares, since {words}"]


def test_unknown_run_times_count_as_the_mean_of_the_known() -> None:
    """Of two jobs with 100 s and nothing known the makespan shares are even; with nothing known at all, too."""
    cluster = nodes(("V100", 1, 1))
    for estimates in ([100.0, np.nan], [np.nan, np.nan]):
        result = run(jobs([(0, 1000, 1)] * 2), cluster, "gavel", {"objective": "makespan", "round_s": 10.0},
                     estimate_s=np.array(estimates), horizon_s=100.0)
        table = segments(result)
        assert (table["end_s"] - table["begin_s"]).groupby(table["job_id"]).sum().tolist() == [50, 50]


def test_a_weight_of_zero_has_what_others_leave() -> None:
    trace = jobs([(0, 30, 1), (0, 30, 1)], priority=[0.0, 1.0])
    assert by_job(run(trace, nodes(("V100", 1, 1)), "gavel", {"round_s": 10.0}))["end_s"].tolist() == [60, 30]


@pytest.mark.parametrize(("text", "words"), [
    ("x", "name=weight"), ("x=0", "name=weight"), ("x=-1", "name=weight"), ("x=nan", "name=weight"),
    ("=2", "name=weight"), ("x=2,z=1", "no such virtual cluster"),
])
def test_tenant_weights_that_cannot_be(text: str, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        run(jobs([(0, 5, 1)], vc=["x"]), nodes(("V100", 1, 1)), "gavel",
            {"objective": "hierarchical", "tenant_weights": text})


def test_a_cost_objective_needs_prices() -> None:
    unpriced = ClusterSpec.build("test", [replace(gpu_type("V100"), price_usd_per_h=None, prices=())], [0], [1])
    with pytest.raises(PolicyError, match="price of a GPU type is unknown"):
        run(jobs([(0, 5, 1)]), unpriced, "gavel", {"objective": "cost"})
