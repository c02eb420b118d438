"""How hetero and homogeneous use what is free: what jobs take at a price, when they move, grow and shrink.

Stories run on measured rates of a model 'toy', so that all times can be worked out on paper. A V100 is 3.06 USD an
hour, a T4 0.526; a job's hour is worth 5 USD unless told. Where demand is twice the supply or more, a decision raises
the price by exp(2 x 0.3).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.run import Run
from policies.planning.hetero import Hetero
from policies.planning.homogeneous import Homogeneous
from policies.recommend.market.gpu_prices import CAP
from sim.api import Policy
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance
from sim.performance.tables import Measurement, Point
from sim.settings.config import EngineConfig
from sim.workload.progress import Recorded
from tests.helpers import by_job, nodes, segments
from traces.trace import Trace

# Iterations a second of a whole gang. On four V100 each GPU does half of what one does alone.
RATES = {
    ("v100", 1): 1.0, ("v100", 2): 1.8, ("v100", 4): 2.0, ("p100", 1): 0.5,
    ("t4", 1): 0.25, ("t4", 2): 0.5, ("t4", 4): 1.0,
}
POINTS = {Point("toy", 0, *key, 1): Measurement(rate) for key, rate in RATES.items()}
NODES = dict.fromkeys(("V100", "P100", "T4"), 8)
TOY = Performance(table=MeasuredTable(POINTS, "test", gaps="refuse", gpus_per_node=NODES))
BOTH = pytest.mark.parametrize("kind", [Hetero, Homogeneous])
ONE_EACH = nodes(("T4", 1, 1), ("V100", 1, 1))
FAST = {"hour_usd": 1e6}
"""An hour worth so much that the price of GPUs does not matter."""


class Toys(Recorded):
    """The truth of toys: durations are their iterations, done at the measured rates."""

    mode = unit = "iterations"

    def __init__(self, trace: Trace, cluster: ClusterSpec) -> None:
        super().__init__(trace, cluster)
        self._cluster = cluster

    def rate(self, row, gpus, plan):
        return TOY.plan("toy", 1, plan, gpus, self._cluster).rate


def replay(policy: Policy, trace: Trace, cluster: ClusterSpec, overhead_s: float = 0.0, **config) -> RunResult:
    """Replay at the measured rates; the audit finds nothing."""
    engine = EngineConfig(preemption_overhead_s=overhead_s, **config)
    result = simulate(trace, cluster, policy, Toys(trace, cluster), engine, performance=TOY)
    report = audit(Run(Path("memory"), result.tables, result.info, result.timing))
    assert report.ok, report.text
    return result


def toys(*rows: tuple[float, float, int], **columns) -> Trace:
    """Jobs of (submit_s, iterations, GPUs)."""
    submit, work, gpus = zip(*rows, strict=True)
    return Trace.from_columns({
        "job_id": [str(i) for i in range(len(rows))], "submit_s": submit, "duration_s": work,
        "num_gpus": gpus, "model": ["toy"] * len(rows), "batch_size": [1] * len(rows), **columns,
    })


def stretches(result: RunResult, job: str) -> list[tuple[float, float, str, str]]:
    """(begin_s, end_s, GPUs used as 'count type', end_reason) of a job."""
    types = result.tables["nodes"].to_pandas().gpu_type
    rows = segments(result)
    return [(s.begin_s, s.end_s, f"{len(s.gpu_ids)} {types[s.nodes[0]]}", s.end_reason)
            for s in rows[rows.job_id == job].itertuples()]


# -- what a job takes ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("hour_usd", "gpus"), [(0.0, 1), (0.76, 1), (0.77, 2), (5.0, 2), (48.9, 2), (49.0, 4),
                                                  (np.inf, 4)])
def test_a_lone_job_takes_the_more_gpus_the_more_its_time_is_worth(kind, hour_usd, gpus):
    """h + 3.06 an iteration on one V100, (h + 6.12) / 1.8 on two, (h + 12.24) / 2 on four: equal at 0.765 and 48.96."""
    result = replay(kind(hour_usd=hour_usd), toys((0, 90, 4)), nodes(("V100", 1, 4)))
    assert stretches(result, "0") == [(0, pytest.approx(90 / RATES["v100", gpus]), f"{gpus} V100", "done")]


@BOTH
@pytest.mark.parametrize(("hour_usd", "taken"), [(0.0, "1 T4"), (5.0, "1 V100"), (1e6, "1 V100")])
def test_the_cheapest_plan_or_the_fastest(kind, hour_usd, taken):
    """A T4 takes four times as long at 0.526 for 3.06: cheaper if time is worth nothing."""
    result = replay(kind(hour_usd=hour_usd), toys((0, 100, 1)), ONE_EACH)
    assert stretches(result, "0")[0][2] == taken


@pytest.mark.parametrize(("v100_usd", "t4_usd", "taken"),
                         [(3.06, 0.0, "1 T4"), (0.0, 0.526, "1 V100"), (0.0, 0.0, "1 V100"),
                          (None, 0.526, "1 V100"), (3.06, None, "1 V100"), (None, None, "1 V100")])
def test_a_free_type_is_taken_and_one_of_unknown_price_is_not_cheap(v100_usd, t4_usd, taken):
    """Only the GPUs cost. Unknown counts as the dearest: as 0.526, 3.06, and 1: then the V100 is four times as good."""
    types = replace(gpu_type("V100"), price_usd_per_h=v100_usd), replace(gpu_type("T4"), price_usd_per_h=t4_usd)
    cluster = ClusterSpec.build("test", types, [0, 1], [1, 1])
    result = replay(Hetero(hour_usd=0.0), toys((0, 100, 1), (500, 100, 1)), cluster)
    assert [stretches(result, job)[0][2] for job in "01"] == [taken, taken]


@BOTH
def test_a_crowd_of_equal_jobs_ends_with_one_gpu_each(kind):
    """An hour is worth 1: two GPUs at 1.8 are worth it below a price of 4. Restarts are free.

    The first two take two each. At 2 s three ask for 6 of 4: 3.06 x exp(2 x 0.15) = 4.13, so that the two shrink and
    the third starts. With the fourth demand is what there is, and the price rests.
    """
    trace = toys((0, 1000, 4), (1, 1000, 4), (2, 1000, 4), (3, 1000, 4))
    result = replay(kind(hour_usd=1.0), trace, nodes(("V100", 1, 4)))
    assert stretches(result, "0")[:2] == [(0, 2, "2 V100", "resized"), (2, 2 + 1000 - 3.6, "1 V100", "done")]
    assert stretches(result, "1")[0] == (1, 2, "2 V100", "resized")
    for job in "0123":
        assert [s[2] for s in stretches(result, job) if s[0] <= 500 < s[1]] == ["1 V100"]


# -- order by cost -------------------------------------------------------------------------------------------


def ordered(policy: Policy, trace: Trace, estimate_s) -> list[str]:
    """Job ids in the order of their starts on one V100."""
    cluster = nodes(("V100", 1, 1))
    result = simulate(trace, cluster, policy, Toys(trace, cluster), EngineConfig(), performance=TOY,
                      estimate_s=np.array(estimate_s, dtype=float), estimate="oracle")
    assert result.info["estimate"] == "oracle"
    return sorted(trace.job_id.tolist(), key=segments(result).groupby("job_id").begin_s.min().get)


@pytest.mark.parametrize(("patience_h", "submit_s", "order"), [
    (0.1, 65.4, "021"), (0.1, 65.6, "012"), (0.0, 65.4, "012"), (np.inf, 99.0, "021"),
])
def test_a_cheaper_job_passes_one_that_came_no_more_than_its_patience_before(patience_h, submit_s, order):
    """An hour is worth 5, a V100 3.06: 80 iterations less are 0.1791 USD, or 64.48 s at 0.1 h/USD. Job 1 is of 1 s."""
    rows = (0, 100, 1), (1, 90, 1), (submit_s, 10, 1)
    policy = Hetero(order="cost", patience_h=patience_h)
    assert ordered(policy, toys(*rows), [100, 90, 10]) == list(order)


@pytest.mark.parametrize(("second", "order"), [(90, "0231"), (np.nan, "0231"), (9, "0213")])
def test_what_is_left_is_believed_and_an_unknown_run_time_is_the_dearest_so_far(second, order):
    """Jobs wait for job 0, whose 100 are the dearest known when job 1 comes."""
    rows = (0, 100, 1), (1, 50, 1), (2, 5, 1), (3, 20, 1)
    assert ordered(Hetero(order="cost", patience_h=np.inf), toys(*rows), [100, second, 5, 20]) == list(order)


def test_only_the_order_by_cost_asks_for_run_times():
    assert not Hetero().needs_estimates and not Hetero.needs_estimates
    assert Hetero(order="cost").needs_estimates


# -- when a move pays ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("move_gain", "moves"), [(2.7, True), (2.75, False), (np.inf, False)])
def test_a_job_moves_to_the_freed_fast_gpu_exactly_when_it_pays(kind, move_gain, moves):
    """Two jobs wanted the one V100: its price is 3.06 x exp(0.6) = 5.576. Job 1 is on the T4 for 100 s when it frees.

    As long again costs 100 x 5.526 there, and 25 x 10.576 on the V100: 288.2 saved, against 10 x 10.576 for the
    restart: 2.725 times. If it moves it has done 25 of 400 iterations and ends 10 + 375 s later.
    """
    result = replay(kind(move_gain=move_gain), toys((0, 100, 1), (0, 400, 1)), ONE_EACH, overhead_s=10.0)
    if moves:
        assert stretches(result, "1") == [(0, 100, "1 T4", "migrated"), (100, 485, "1 V100", "done")]
    else:
        assert stretches(result, "1") == [(0, 1600, "1 T4", "done")]
    assert stretches(result, "0") == [(0, 100, "1 V100", "done")]


@pytest.mark.parametrize(("first_iters", "moves"), [(32, False), (33, True)])
def test_where_time_is_worth_nothing_a_job_moves_to_the_cheaper_type_although_it_is_slower(first_iters, moves):
    """Two want the T4: it becomes too dear for job 1. When job 0 leaves after r s it is 0.526 x exp(0.3) = 0.71.

    Job 1 pays 3.06 r to go on, and 4 x 0.71 r there; the restart costs 10 x 0.71, which must be saved four times:
    it moves if r > 28.4 / 0.2199 = 129.2 s; r = 4 x first_iters.
    """
    r = 4 * first_iters
    trace = toys((0, first_iters, 1), (0, 1000, 1), gpu_type=["T4", ""])
    result = replay(Hetero(hour_usd=0.0), trace, ONE_EACH, overhead_s=10.0)
    assert stretches(result, "0") == [(0, r, "1 T4", "done")]
    if moves:
        assert stretches(result, "1")[0] == (0, r, "1 V100", "migrated")
        assert by_job(result).end_s["1"] == pytest.approx(r + 10 + 4 * (1000 - r))
    else:
        assert stretches(result, "1") == [(0, 1000, "1 V100", "done")]


@BOTH
def test_a_job_shrinks_when_another_comes_and_grows_when_it_leaves(kind):
    """An hour is worth 60: four GPUs are better than two below a price of 3.75.

    Alone job 0 takes four. At 100 s two jobs ask for 8 of 4: 3.06 x exp(0.3) = 4.13, and both take two: 0.674 a
    second is saved, 100 times, against 0.5 x 68.26. At 300 s half is asked for: 3.555, and it grows: 0.31 x 200
    against 0.5 x 74.2. By then it has done 200 + 199 x 1.8 of 1000 iterations.
    """
    trace = toys((0, 1000, 4), (100, 360, 4))
    result = replay(kind(hour_usd=60.0, move_gain=0.5), trace, nodes(("V100", 1, 4)), overhead_s=1.0)
    end_s = 301 + (1000 - 200 - 199 * 1.8) / 2
    assert stretches(result, "0") == [
        (0, 100, "4 V100", "resized"), (100, 300, "2 V100", "resized"), (300, pytest.approx(end_s), "4 V100", "done"),
    ]
    assert stretches(result, "1") == [(100, 300, "2 V100", "done")]


# -- who goes first ------------------------------------------------------------------------------------------


@BOTH
def test_a_waiting_job_goes_before_a_move(kind):
    """At 100 s job 2 waits and takes the V100; at 150 s nobody does, and job 1 (37.5 of 400 done) moves there."""
    trace = toys((0, 100, 1), (0, 400, 1), (0, 50, 1))
    result = replay(kind(move_gain=1.0), trace, ONE_EACH, overhead_s=10.0)
    assert stretches(result, "2") == [(100, 150, "1 V100", "done")]
    assert stretches(result, "1") == [(0, 150, "1 T4", "migrated"), (150, 522.5, "1 V100", "done")]


@BOTH
def test_a_waiting_job_takes_at_once_what_a_move_leaves(kind):
    """Job 2 wants a T4 only: at 100 s the V100 is of no use to it, but the T4 that job 1 leaves is.

    The quota of two GPUs holds throughout: a job that moves gives its share of it back first.
    """
    trace = toys((0, 100, 1), (0, 400, 1), (0, 10, 1), gpu_type=["", "", "T4"], vc=["a"] * 3)
    result = replay(kind(move_gain=2.0), trace, ONE_EACH, overhead_s=10.0, quotas={"a": 2})
    assert stretches(result, "1")[1][:3] == (100, 485, "1 V100")
    assert stretches(result, "2") == [(100, 140, "1 T4", "done")]


def test_the_job_that_came_first_moves_first():
    trace = toys((0, 100, 1), (0, 400, 1), (0, 400, 1))
    cluster = nodes(("T4", 2, 1), ("V100", 1, 1))
    result = replay(Hetero(max_scale=1.0, move_gain=1.0), trace, cluster, overhead_s=10.0)
    assert [s[2] for s in stretches(result, "1")] == ["1 T4", "1 V100"]
    assert stretches(result, "2")[0][1] == 485  # not before job 1 has left the V100


@BOTH
def test_what_a_move_leaves_serves_the_job_that_came_first(kind):
    """At 100 s the V100 is of use to job 3 only, which leaves a P100: job 2 moves there, not job 4, which came later.

    Jobs 2 and 4 may not use the V100; job 3 took over the P100 from job 1 at 10 s.
    """
    wishes = ["V100", "P100", "T4|P100", "V100|P100", "T4|P100"]
    trace = toys((0, 100, 1), (0, 5, 1), (1, 400, 1), (2, 400, 1), (3, 400, 1), gpu_type=wishes)
    cluster = nodes(("T4", 2, 1), ("P100", 1, 1), ("V100", 1, 1))
    result = replay(kind(max_scale=1.0, **FAST), trace, cluster, overhead_s=10.0)
    assert [s[:3] for s in stretches(result, "3")] == [(10, 100, "1 P100"), (100, 465, "1 V100")]
    assert stretches(result, "2")[0] == (1, 100, "1 T4", "migrated")
    assert stretches(result, "4")[0][1] > 100


@BOTH
def test_a_job_moves_once_in_a_decision(kind):
    """At 100 s a T4 and the V100 free: job 3 takes the T4 as its second, job 4 leaves two T4 for the V100.

    Job 3 would like these too, but has only just begun anew: it grows when job 4 ends, at 101 + 362.5 s.
    """
    trace = toys((0, 100, 1), (0, 25, 1), (0, 12.5, 2), (0, 400, 4), (1, 400, 2),
                 gpu_type=["V100", "T4", "T4", "T4", ""])
    result = replay(kind(max_scale=1.0, **FAST), trace, nodes(("T4", 1, 4), ("V100", 1, 1)), overhead_s=1.0)
    assert [s[:3] for s in stretches(result, "4")] == [(25, 100, "2 T4"), (100, 463.5, "1 V100")]
    assert [s[:3] for s in stretches(result, "3")][:2] == [(0, 100, "1 T4"), (100, 463.5, "2 T4")]
    assert stretches(result, "3")[2][2] == "4 T4"


@pytest.mark.parametrize("hour_usd", [np.inf, 1e308])
def test_time_of_any_worth_moves_jobs_to_the_fastest_plan(hour_usd):
    """Nothing overflows: job 1 moves when the V100 frees."""
    result = replay(Hetero(hour_usd=hour_usd), toys((0, 100, 1), (0, 400, 1)), ONE_EACH, overhead_s=10.0)
    assert [s[2] for s in stretches(result, "1")] == ["1 T4", "1 V100"]


@BOTH
def test_a_job_that_cannot_move_does_not_hold_up_those_behind_it(kind):
    """At 100 s job 2 would like a second T4 and there is none; job 3, at work for 50 s, moves to the V100."""
    trace = toys((0, 100, 1), (0, 12.5, 1), (0, 400, 2), (0, 400, 1), gpu_type=["", "T4", "T4", ""])
    result = replay(kind(max_scale=1.0, **FAST), trace, nodes(("T4", 1, 2), ("V100", 1, 1)), overhead_s=1.0)
    assert stretches(result, "3")[:2] == [(50, 100, "1 T4", "migrated"), (100, 100 + 1 + 387.5, "1 V100", "done")]


def test_a_decision_moves_so_many_jobs_and_leaves_the_rest_to_the_next_one(monkeypatch):
    """Both V100 free at 100 s: one job moves then, the other when something happens next, at 485 s."""
    monkeypatch.setattr("policies.recommend.market.planned_jobs.MOST_MOVES", 1)
    trace = toys((0, 100, 1), (0, 100, 1), (0, 400, 1), (0, 400, 1), gpu_type=["V100", "V100", "", ""])
    cluster = nodes(("T4", 2, 1), ("V100", 2, 1))
    result = replay(Hetero(max_scale=1.0, move_gain=1.0), trace, cluster, overhead_s=10.0)
    assert [stretches(result, job)[0][1] for job in "23"] == [100, 485]


def test_a_quota_bounds_growth():
    """Tenant a may hold two GPUs, so that job 1 starts on one. At 20 s four GPUs more become free, to no avail.

    At 50 s job 0 leaves: job 1 grows to two (1.8 a second), with 350 of 400 iterations to go.
    """
    trace = toys((0, 50, 1), (0, 400, 2), (0, 40, 4), vc=["a", "a", "b"])
    policy = Hetero(max_scale=1.0, **FAST)
    result = replay(policy, trace, nodes(("V100", 1, 8)), overhead_s=1.0, quotas={"a": 2})
    assert stretches(result, "2") == [(0, 20, "4 V100", "done")]
    first, second = stretches(result, "1")
    assert first == (0, 50, "1 V100", "resized")
    assert second == (50, pytest.approx(51 + 350 / 1.8), "2 V100", "done")


def test_growth_takes_no_more_than_the_quota_has_left():
    """Five GPUs: 1, 2, and two of the four that job 2 asks for. One is given back at 50 s: too few; three later."""
    trace = toys((0, 50, 1), (0, 200, 2), (0, 400, 4), vc=["a"] * 3)
    policy = Hetero(max_scale=1.0, **FAST)
    result = replay(policy, trace, nodes(("V100", 1, 8)), overhead_s=1.0, quotas={"a": 5})
    first, second = stretches(result, "2")
    assert first == (0, pytest.approx(200 / 1.8), "2 V100", "resized")
    assert second[2] == "4 V100"


@BOTH
def test_planning_takes_time_once_a_class(kind):
    """Jobs of one GPU are planned from 0 to 20 s, those of two from 30 s to 50 s; nobody else waits."""
    trace = toys((0, 100, 1), (5, 100, 1), (30, 100, 1), (30, 100, 2), (60, 100, 2))
    result = replay(kind(planning_s=20.0, max_scale=1.0, **FAST), trace, nodes(("V100", 1, 8)))
    assert by_job(result).first_start_s.tolist() == [20, 20, 30, 50, 60]


# -- laws ----------------------------------------------------------------------------------------------------


class Watched(Hetero):
    """Asserts at each decision what the rule says of prices and moves; times and counts come from the table."""

    def prepare(self, view):
        super().prepare(view)
        self.moves, self.holds = 0, {}

    def decide(self, view):
        decision = super().decide(view)
        price = self._market.price
        floor = np.array([gpu.price_usd_per_h for gpu in view.cluster.types])
        assert (floor <= price).all() and (price <= CAP * floor).all()
        for row, placement in decision.move:
            (now_usd, now_s), (new_usd, new_s) = (self._bill(view, g, price) for g in (self.holds[row], placement.gpus))
            saved = (view.now_s - view.begin_s[row]) * (now_usd - new_usd * new_s / now_s)
            assert saved > self.move_gain * view.preemption_overhead_s * new_usd * (1 - 1e-9)
            assert new_usd * new_s < now_usd * now_s
        self.moves += len(decision.move)
        self.holds.update((row, placement.gpus) for row, placement in decision.start + decision.move)
        return decision

    def _bill(self, view, gpus, price):
        """USD an hour on some GPUs, the job's time included, and seconds an iteration."""
        t = int(view.cluster.gpu_type[gpus[0]])
        return self.hour_usd + price[t] * len(gpus), 1 / RATES[view.cluster.types[t].name.lower(), len(gpus)]


work = st.tuples(
    st.floats(0, 1000), st.floats(1, 2000), st.sampled_from([1, 1, 2, 4]), st.sampled_from(["", "", "V100", "T4|P100"]),
    st.sampled_from(["a", "b"]),
)


@settings(max_examples=60)
@given(st.lists(work, min_size=2, max_size=25), st.sampled_from([0.0, 1.0, 5.0, 60.0]),
       st.sampled_from([0.0, 0.5, 4.0]), st.sampled_from([0.0, 10.0]), st.sampled_from([0.0, 30.0]),
       st.sampled_from(["fifo", "smallest"]))
def test_every_move_pays_every_job_ends_and_runs_repeat(rows, hour_usd, move_gain, overhead_s, planning_s, order):
    columns = list(zip(*rows, strict=True))
    trace = toys(*zip(*columns[:3], strict=True), gpu_type=list(columns[3]), vc=list(columns[4]))
    cluster = nodes(("V100", 1, 4), ("P100", 1, 1), ("T4", 1, 4))
    chosen = {"hour_usd": hour_usd, "move_gain": move_gain, "planning_s": planning_s, "order": order}
    quotas = {"a": 3} if "a" in columns[4] else {}
    result, again = (replay(Watched(**chosen), trace, cluster, overhead_s, quotas=quotas) for _ in range(2))
    assert (by_job(result).state == "done").all()
    assert all(result.tables[name].equals(again.tables[name]) for name in result.tables)


@pytest.mark.parametrize("seed", [0, 1])
def test_moving_beats_staying(seed):
    """A crowd on V100 and T4: moves lower the mean completion time that starting on what is free gives."""
    rng = np.random.default_rng([seed, 5])
    rows = zip(np.sort(rng.uniform(0, 20_000, 80)), rng.lognormal(5.5, 1.6, 80), [1] * 80, strict=True)
    trace, cluster = toys(*rows), nodes(("V100", 1, 4), ("T4", 2, 4))
    mean = []
    for policy in (Watched(), Hetero(move_gain=np.inf)):
        jobs = by_job(replay(policy, trace, cluster, overhead_s=30.0))
        mean.append((jobs.end_s - jobs.submit_s).mean())
        if not mean[1:]:
            assert policy.moves > 0
    assert mean[0] < mean[1]
