"""How hetero and homogeneous use what is free: efficient plans where others wait, and moves up where they pay.

Most stories run on measured rates of a model 'toy', so that all times can be worked out on paper.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.run import Run
from policies.hetero import Hetero
from policies.homogeneous import Homogeneous
from policies.recommend import Planner
from policies.recommend.classes import efficiencies, worth_after_s
from sim.api import Policy
from sim.cluster import ClusterSpec
from sim.config import EngineConfig
from sim.hardware import gpu_type
from sim.performance import MeasuredTable, Performance
from sim.performance.tables import Measurement, Point
from sim.progress import Modelled, Recorded
from sim.simulate import RunResult, simulate
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
ZOO = Performance()
BOTH = pytest.mark.parametrize("kind", [Hetero, Homogeneous])
ONE_EACH = nodes(("T4", 1, 1), ("V100", 1, 1))


class Toys(Recorded):
    """The truth of toys: durations are their iterations, done at the measured rates."""

    mode = unit = "iterations"

    def __init__(self, trace: Trace, cluster: ClusterSpec) -> None:
        super().__init__(trace, cluster)
        self._cluster = cluster

    def rate(self, row, gpus, plan):
        return TOY.plan("toy", 1, plan, gpus, self._cluster).rate


def replay(policy: Policy, trace: Trace, cluster: ClusterSpec, overhead_s: float, **config) -> RunResult:
    """Replay on the speeds of toys, or else of the zoo's models; the audit finds nothing."""
    toys = trace.model[0] == "toy"
    performance = TOY if toys else ZOO
    truth = Toys(trace, cluster) if toys else Modelled(trace, cluster, ZOO, gpu_type("V100"))
    engine = EngineConfig(preemption_overhead_s=overhead_s, **config)
    result = simulate(trace, cluster, policy, truth, engine, performance=performance)
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


# -- when a move pays ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("move_gain", "moves"), [(7.4, True), (7.5, False), (np.inf, False)])
def test_a_job_moves_to_the_freed_fast_gpu_exactly_when_it_pays(kind, move_gain, moves):
    """Job 1 has worked for 100 s when the V100 frees. As much again takes 25 s there: 75 s saved, 10 s paid.

    It moves if 75 > move_gain x 10. Then it has done 25 of 400 iterations and ends 10 + 375 s later; else it
    does all at a quarter of the speed.
    """
    trace = toys((0, 100, 1), (0, 400, 1))
    result = replay(kind(move_gain=move_gain), trace, ONE_EACH, overhead_s=10.0)
    if moves:
        assert stretches(result, "1") == [(0, 100, "1 T4", "migrated"), (100, 485, "1 V100", "done")]
    else:
        assert stretches(result, "1") == [(0, 1600, "1 T4", "done")]
    assert stretches(result, "0") == [(0, 100, "1 V100", "done")]


@BOTH
def test_a_waiting_job_goes_before_an_upgrade(kind):
    """At 100 s job 2 waits and takes the V100; at 150 s nobody does, and job 1 (37.5 of 400 done) moves there."""
    result = replay(kind(), toys((0, 100, 1), (0, 400, 1), (0, 50, 1)), ONE_EACH, overhead_s=10.0)
    assert stretches(result, "2") == [(100, 150, "1 V100", "done")]
    assert stretches(result, "1") == [(0, 150, "1 T4", "migrated"), (150, 522.5, "1 V100", "done")]


@BOTH
def test_a_waiting_job_takes_at_once_what_a_move_leaves(kind):
    """Job 2 wants a T4 only: at 100 s the V100 is of no use to it, but the T4 that job 1 leaves is.

    The quota of two GPUs holds throughout: a job that moves gives its share of it back first.
    """
    trace = toys((0, 100, 1), (0, 400, 1), (0, 10, 1), gpu_type=["", "", "T4"], vc=["a"] * 3)
    result = replay(kind(), trace, ONE_EACH, overhead_s=10.0, quotas={"a": 2})
    assert stretches(result, "1")[1][:3] == (100, 485, "1 V100")
    assert stretches(result, "2") == [(100, 140, "1 T4", "done")]


def test_the_job_that_came_first_moves_up_first():
    trace = toys((0, 100, 1), (0, 400, 1), (0, 400, 1))
    result = replay(Hetero(), trace, nodes(("T4", 2, 1), ("V100", 1, 1)), overhead_s=10.0)
    assert [s[2] for s in stretches(result, "1")] == ["1 T4", "1 V100"]
    assert stretches(result, "2")[0][1] == 485  # not before job 1 has left the V100


@BOTH
def test_what_a_move_leaves_serves_the_job_that_came_first(kind):
    """At 100 s the V100 is of use to job 3 only, which leaves a P100: job 2 moves there, not job 4, which came later.

    Jobs 2 and 4 may not use the V100; job 3 took over the P100 from job 1 at 10 s.
    """
    wishes = ["V100", "P100", "T4|P100", "V100|P100", "T4|P100"]
    trace = toys((0, 100, 1), (0, 5, 1), (1, 400, 1), (2, 400, 1), (3, 400, 1), gpu_type=wishes)
    result = replay(kind(), trace, nodes(("T4", 2, 1), ("P100", 1, 1), ("V100", 1, 1)), overhead_s=10.0)
    assert [s[:3] for s in stretches(result, "3")] == [(10, 100, "1 P100"), (100, 465, "1 V100")]
    assert stretches(result, "2")[0] == (1, 100, "1 T4", "migrated")
    assert stretches(result, "4")[0][1] > 100


@BOTH
def test_a_job_that_cannot_move_does_not_hold_up_those_behind_it(kind):
    """At 100 s job 2 would like a second T4 and there is none; job 3, at work for 50 s, moves to the V100."""
    trace = toys((0, 100, 1), (0, 12.5, 1), (0, 400, 2), (0, 400, 1), gpu_type=["", "T4", "T4", ""])
    result = replay(kind(), trace, nodes(("T4", 1, 2), ("V100", 1, 1)), overhead_s=1.0)
    assert stretches(result, "3")[:2] == [(50, 100, "1 T4", "migrated"), (100, 100 + 1 + 387.5, "1 V100", "done")]


def test_a_quota_bounds_upgrades():
    """Tenant a may hold two GPUs, so that job 1 starts on one. At 20 s four GPUs more become free, to no avail.

    At 50 s job 0 leaves: job 1 grows to two (1.8 a second), with 350 of 400 iterations to go.
    """
    trace = toys((0, 50, 1), (0, 400, 2), (0, 40, 4), vc=["a", "a", "b"])
    result = replay(Hetero(efficiency=0.0), trace, nodes(("V100", 1, 8)), overhead_s=1.0, quotas={"a": 2})
    assert stretches(result, "2") == [(0, 20, "4 V100", "done")]
    first, second = stretches(result, "1")
    assert first == (0, 50, "1 V100", "resized")
    assert second == (50, pytest.approx(51 + 350 / 1.8), "2 V100", "done")


@pytest.mark.parametrize(("first_iters", "moves"), [(5.4, False), (5.6, True)])
def test_by_cost_a_job_moves_to_the_cheaper_type_although_it_is_slower(first_iters, moves):
    """A second costs 3.06 on a V100 and 0.526 on a T4, which takes four times as long: 2.104 for the same work.

    Job 0 holds the T4 for 4 x first_iters s, r. Going on as long again costs job 1 3.06 r where it is, and 2.104 r
    there; the restart costs 10 x 0.526, which must be saved four times: it moves if r > 21.04 / 0.956 = 22.01 s.
    """
    prices = [gpu_type(name).price_usd_per_h for name in ("V100", "T4")]
    assert prices == [3.06, 0.526]
    r = 4 * first_iters
    trace = toys((0, first_iters, 1), (0, 1000, 1))
    result = replay(Hetero(objective="cost", within=10.0), trace, ONE_EACH, overhead_s=10.0)
    assert stretches(result, "0") == [(0, r, "1 T4", "done")]
    if moves:
        assert stretches(result, "1")[0] == (0, r, "1 V100", "migrated")
        assert by_job(result).end_s["1"] == pytest.approx(r + 10 + 4 * (1000 - r))
    else:
        assert stretches(result, "1") == [(0, 1000, "1 V100", "done")]


def test_the_worth_of_a_move():
    """Half the time: what it costs is back after twice as long. Equal or worse: never."""
    one = np.ones(4)
    assert worth_after_s(4 * one, one, np.array([2.0, 1.0, 4.0, 5.0]), one).tolist() == [2, 4 / 3, np.inf, np.inf]
    # Half the time at 1.5 times the price: 1.5 / (1 - 0.75) = 6.
    assert worth_after_s(np.array([4.0]), np.array([1.0]), np.array([2.0]), np.array([1.5])).tolist() == [6.0]


# -- efficiency ----------------------------------------------------------------------------------------------


def test_the_efficiency_of_a_plan():
    """Types A and B do 1 and 0.5 a second and GPU, C nothing alone.

    Two A at 1.8: 0.9. One A and one B at 1.2: 0.8. One A and one C at 1.1: 1.1.
    """
    counts = np.array([[1, 0, 0], [2, 0, 0], [0, 1, 0], [1, 1, 0], [1, 0, 1]])
    rate = np.array([1.0, 1.8, 0.5, 1.2, 1.1])
    assert efficiencies(counts, 1 / rate) == pytest.approx([1.0, 0.9, 1.0, 0.8, 1.1])
    assert efficiencies(np.array([[1, 1]]), np.array([2.0])).tolist() == [np.inf]


@BOTH
def test_a_lone_job_is_fast_at_any_waste_and_one_among_many_is_not(kind):
    """Four V100 do 2.0 a second for a job (efficiency 0.5), two 1.8 (0.9), one 1.0.

    Alone it takes all four. Where three more such jobs come at the same time, others ask for 12 of 4 GPUs: each
    must reach 0.95, so that each gets one GPU, and they end at 100 s instead of 50, 100, 150 and 200 s.
    """
    cluster = nodes(("V100", 1, 4))
    alone = replay(kind(), toys((0, 100, 4)), cluster, overhead_s=10.0)
    assert stretches(alone, "0") == [(0, 50, "4 V100", "done")]
    crowd = replay(kind(), toys(*[(0, 100, 4)] * 4), cluster, overhead_s=10.0)
    assert all(stretches(crowd, str(i)) == [(0, 100, "1 V100", "done")] for i in range(4))
    greedy = replay(kind(efficiency=0.0), toys(*[(0, 100, 4)] * 4), cluster, overhead_s=10.0)
    assert sorted(by_job(greedy).end_s) == [50, 100, 150, 200]


@BOTH
def test_where_others_ask_for_the_gpus_a_job_does_not_spread_over_idle_ones(kind):
    """Two jobs get one of four V100 each. At 20 s others ask for 4 of 4: two GPUs at 1.8 (0.9) are too wasteful."""
    trace = toys((0, 100, 4), (0, 100, 4), (0, 20, 1))
    result = replay(kind(), trace, nodes(("V100", 1, 4)), overhead_s=1.0)
    assert stretches(result, "0") == stretches(result, "1") == [(0, 100, "1 V100", "done")]


def test_how_much_a_plan_may_waste_depends_on_what_others_ask_for():
    """Two jobs of 4 and 1 GPUs on 16: the first sees 1/16 asked for, (1/16) ** 0.25 = 1/2; the second 4/16."""
    trace, cluster = toys((0, 10, 4), (0, 10, 1)), nodes(("V100", 2, 8))
    seen = []

    class Watched(Hetero):
        def floors(self, view):
            seen.append(super().floors(view))
            return seen[-1]

    replay(Watched(efficiency=0.8), trace, cluster, overhead_s=0.0)
    assert seen[0] == pytest.approx([0.8 * 0.5, 0.8 * 0.25**0.25])


def test_a_job_grows_when_others_leave():
    """Three jobs fill four GPUs: 0 and 1 get one each, 2 asks for one. When 1 and 2 end at 50 s, job 0 is alone.

    It has done 50 of 250 iterations; on four GPUs as much again takes 25 s: 25 saved is worth 4 x 1 paid.
    """
    trace = toys((0, 250, 4), (0, 50, 4), (0, 50, 1))
    result = replay(Hetero(), trace, nodes(("V100", 1, 4)), overhead_s=1.0)
    assert stretches(result, "0")[-1] == (50, 50 + 1 + 100, "4 V100", "done")
    assert stretches(result, "0")[-2][1:] == (50, "1 V100", "resized")


# -- laws ----------------------------------------------------------------------------------------------------

work = st.tuples(
    st.sampled_from(["resnet50", "vgg16", "lstm-lm", "bert-large", "gpt2-1.5b"]), st.sampled_from([1, 1, 2, 4, 8]),
    st.floats(0, 3000), st.floats(1, 5000),
)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(work, min_size=2, max_size=20), st.sampled_from([Hetero, Homogeneous]),
    st.sampled_from(["time", "cost"]), st.sampled_from([0.0, 1.0, 4.0]), st.sampled_from([0.0, 0.95]),
)
def test_each_move_is_to_a_better_plan_and_pays_so_that_none_goes_back(rows, kind, objective, move_gain, efficiency):
    per_gpu = {"gpt2-1.5b": 1, "bert-large": 4, "resnet50": 64, "vgg16": 32, "lstm-lm": 20}
    trace = Trace.from_columns({
        "job_id": [str(i) for i in range(len(rows))], "submit_s": [r[2] for r in rows],
        "duration_s": [r[3] for r in rows], "num_gpus": [r[1] for r in rows], "model": [r[0] for r in rows],
        "batch_size": [per_gpu[r[0]] * r[1] for r in rows],
    })
    cluster = nodes(("V100", 2, 2), ("P100", 1, 4), ("T4", 1, 4))
    overhead_s = 20.0
    policy = kind(objective=objective, move_gain=move_gain, efficiency=efficiency, within=4.0)
    result = replay(policy, trace, cluster, overhead_s)
    plans = result.tables["plans"].to_pandas()
    price = plans.gpu_type.map(lambda name: gpu_type(name).price_usd_per_h) * plans.gpus
    launches = plans.assign(price=price).groupby(["job_id", "begin_s"]).agg(
        iteration_s=("iteration_s", "first"), price=("price", "sum")).reset_index()
    if objective == "time":
        launches["price"] = 1.0
    held = segments(result)
    for job, steps in launches.groupby("job_id"):
        steps, mine = steps.sort_values("begin_s"), held[held.job_id == job]
        value = (steps.iteration_s * steps.price).to_numpy()
        assert (np.diff(value) < 0).all(), "a move that is no improvement"
        pace = steps.iteration_s.to_numpy()
        for i in range(len(steps) - 1):
            done, rate = mine.work_done.iloc[: i + 1].sum(), mine.rate.iloc[i]
            saved = done / rate * (value[i] - value[i + 1]) / pace[i]
            assert saved > move_gain * overhead_s * steps.price.iloc[i + 1] * (1 - 1e-9)
    planner = Planner(ZOO, cluster.types, cluster.gpus_by_type(), [2, 4, 4])
    for row, (model, gang, *_) in enumerate(rows):
        count = len(held[held.job_id == str(row)])
        if count > 1:
            front = planner.front(model, per_gpu[model] * gang, gang, single_type=kind is Homogeneous)
            assert count <= len(front)


@pytest.mark.parametrize("seed", [0, 1])
def test_starting_on_what_is_free_and_moving_up_beats_staying(seed):
    """A crowd on V100 and T4: moving up lowers the mean completion time that starting anywhere gives."""
    rng = np.random.default_rng([seed, 5])
    rows = zip(np.sort(rng.uniform(0, 20_000, 80)), rng.lognormal(5.5, 1.6, 80), [1] * 80, strict=True)
    trace, cluster = toys(*rows), nodes(("V100", 1, 4), ("T4", 2, 4))
    mean = []
    for policy in (Hetero(), Hetero(move_gain=np.inf)):
        jobs = by_job(replay(policy, trace, cluster, overhead_s=30.0))
        mean.append((jobs.end_s - jobs.submit_s).mean())
    assert mean[0] < mean[1]
