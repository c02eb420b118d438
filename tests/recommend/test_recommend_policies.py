"""The policies hetero and homogeneous: what they start, what they wait for, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.planning.hetero import Hetero
from policies.planning.homogeneous import Homogeneous
from policies.recommend.market.classes import Classes
from sim.api import HetsimError, Jobs, Policy, PolicyError, View
from sim.cluster.spec import ClusterSpec, Ledger
from sim.engine.simulate import simulate
from sim.engine.viewsetup import AS_SUBMITTED
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.stage_sites import in_stage_order
from sim.workload.progress import Modelled
from traces.assign import ModelChoice, assign
from traces.columns import BY_NAME
from traces.load import load_trace, scale_load
from traces.trace import Trace

V100, P100, T4 = (gpu_type(name) for name in ("V100", "P100", "T4"))
PERFORMANCE = Performance()
ANY = 2**64 - 1
FAST = {"hour_usd": 1e6}
"""An hour worth so much that the price of GPUs does not matter: the fastest plan."""


def cluster(*nodes, types=(V100, P100, T4)):
    """A cluster of (type index, GPUs) nodes."""
    return ClusterSpec.build("test", types, [t for t, _ in nodes], [n for _, n in nodes])


class Desk:
    """A policy on a cluster with jobs in its queue: starts are carried out, so that decisions can follow."""

    def __init__(self, policy, spec, jobs, vcs=("",), quota_gpus=None):
        """`jobs`: tuples (model, batch, GPUs) and perhaps a dict of milli, types, vc."""
        rows = [(*job, {})[:4] for job in jobs]
        extra, n = [row[3] for row in rows], len(rows)
        num_gpus = np.array([row[2] for row in rows], dtype=np.int32)
        milli = np.array([e.get("milli", 1000) for e in extra], dtype=np.int32)
        columns = Jobs(
            job_id=np.array([str(i) for i in range(n)], dtype=object), submit_s=np.arange(n, dtype=float),
            num_gpus=num_gpus, gpu_milli=milli, worker_gpus=np.ones(n, dtype=np.int32),
            gpus=num_gpus * milli / 1000,
            types=np.array([e.get("types", ANY) for e in extra], dtype=np.uint64),
            vc=np.array([e.get("vc", 0) for e in extra], dtype=np.int32), vc_names=vcs,
            **{name: BY_NAME[name].defaults(n) for name in ("deadline_kind", *AS_SUBMITTED)} | {
                "model": np.array([row[0] for row in rows], dtype=object),
                "batch_size": np.array([row[1] for row in rows], dtype=np.int32),
            },
        )
        self.ledger = Ledger(spec)
        self.view = View(columns, spec, self.ledger, performance=PERFORMANCE)
        if quota_gpus is not None:
            self.view.vc_left[:] = np.array(quota_gpus) * 1000
        self.policy, self.held = policy, {}
        self.view.queued = np.arange(len(rows), dtype=np.int32)
        policy.prepare(self.view)

    def decide(self):
        """One decision, carried out."""
        decision = self.policy.decide(self.view)
        gone = {row for row, _ in decision.start} | {row for row, _ in decision.reject}
        for row, placement in decision.start:
            milli = int(self.view.jobs.gpu_milli[row])
            assert placement.gpus.dtype == np.int32
            assert self.ledger.take(placement.gpus, milli) == -1, "two starts collide"
            self.view.vc_left[self.view.jobs.vc[row]] -= placement.gpus.size * milli
            self.held[row] = placement
        self.view.queued = np.array([r for r in self.view.queued if r not in gone], dtype=np.int32)
        return decision

    def finish(self, row):
        placement = self.held.pop(row)
        self.ledger.give(placement.gpus, int(self.view.jobs.gpu_milli[row]))

    def types_of(self, row):
        spec = self.view.cluster
        return [spec.types[t].name for t in spec.gpu_type[self.held[row].gpus]]


def started(desk):
    """Rows that the next decision starts."""
    return [row for row, _ in desk.decide().start]


# -- starting ----------------------------------------------------------------------------------


def test_the_first_job_gets_the_fastest_type_and_the_next_what_is_left():
    desk = Desk(Hetero(max_scale=1.0), cluster((2, 1), (0, 1)), [("resnet50", 64, 1)] * 3)
    assert started(desk) == [0, 1]
    assert desk.types_of(0) == ["V100"] and desk.types_of(1) == ["T4"]
    assert started(desk) == []
    desk.finish(0)
    assert started(desk) == [2]
    assert desk.types_of(2) == ["V100"]


def test_the_cheapest_type_is_taken_where_time_is_worth_nothing():
    """Per dollar the T4 is better, but slower."""
    alone = [(PERFORMANCE.data_parallel("resnet50", 64, gpu, (1,)), gpu) for gpu in (V100, T4)]
    usd = [iteration.iteration_s * gpu.price_usd_per_h for iteration, gpu in alone]
    assert usd[1] < usd[0] and alone[0][0].iteration_s < alone[1][0].iteration_s
    for hour_usd, name in ((1e6, "V100"), (0.0, "T4")):
        desk = Desk(Hetero(hour_usd=hour_usd, max_scale=1.0), cluster((0, 1), (2, 1)), [("resnet50", 64, 1)])
        desk.decide()
        assert desk.types_of(0) == [name]


def test_a_job_is_passed_over_unless_depth_is_one():
    """Job 0 takes the V100, job 1 may use no other type, job 2 fits on the T4."""
    jobs = [("resnet50", 32, 1, {"types": 0b001})] * 2 + [("resnet50", 32, 1)]
    for depth, expected in ((1000, [0, 2]), (1, [0])):
        desk = Desk(Hetero(depth=depth), cluster((0, 1), (2, 1)), jobs)
        assert started(desk) + started(desk) == expected


def test_queue_order():
    jobs = [("resnet50", 64, 4), ("resnet50", 64, 1, {"milli": 500})]
    desk = Desk(Hetero(order="smallest"), cluster((0, 4)), jobs)
    rows = np.array([0, 1], dtype=np.int32)
    assert desk.policy.key(desk.view, rows).tolist() == [4.0, 0.5]
    assert Hetero().key(desk.view, rows).tolist() == [0.0, 1.0]


def test_the_budget_is_a_multiple_of_the_gang():
    for scale, most in ((1.0, 2), (2.0, 4), (0.5, 1)):
        desk = Desk(Hetero(max_scale=scale, **FAST), cluster((0, 8)), [("resnet50", 1024, 2)])
        desk.decide()
        assert desk.held[0].gpus.size == most


# -- placement ---------------------------------------------------------------------------------------------


def test_a_gang_goes_to_the_fullest_node_that_holds_it():
    """Nodes of 8 and 4 idle GPUs: two GPUs go to the second."""
    desk = Desk(Hetero(max_scale=1.0, **FAST), cluster((0, 8), (0, 4)), [("resnet50", 256, 2)])
    desk.decide()
    assert desk.view.cluster.gpu_node[desk.held[0].gpus].tolist() == [1, 1]


def test_a_mixed_plan_holds_the_types_of_its_stages_in_order():
    desk = Desk(Hetero(), cluster((0, 2), (1, 2)), [("gpt2-1.5b", 4, 4)])
    desk.decide()
    plan = desk.held[0].plan
    wanted = [stage.gpu_type for stage in plan.stages for _ in range(stage.gpus)]
    assert desk.types_of(0) == wanted and set(wanted) == {"V100", "P100"}
    iteration = PERFORMANCE.plan("gpt2-1.5b", 4, plan, desk.held[0].gpus, desk.view.cluster)
    assert iteration.fits and iteration.iteration_s == plan.iteration_s


@pytest.mark.parametrize("kind", [Hetero, Homogeneous])
@pytest.mark.parametrize("taken", [(0, 1, 2, 4, 5, 6), (0, 1, 4, 5, 6), (1, 6), (0, 1, 2, 4), (8, 9, 0, 4, 5), ()])
@pytest.mark.parametrize("job", [("vgg16", 64, 4), ("transformer-big", 128, 2), ("bert-large", 16, 1)])
def test_a_job_starts_on_the_plan_of_least_cost_on_the_gpus_that_it_gets(kind, taken, job):
    """Against all plans that fit, each placed on what is free of two nodes of four V100 and one of four T4."""
    policy = kind(max_scale=1.0)
    desk = Desk(policy, cluster((0, 4), (0, 4), (2, 4)), [job])
    assert desk.ledger.take(np.array(taken, dtype=np.int32), 1000) == -1
    view, costs = desk.view, {}
    policy._learn(view, view.queued)
    known = policy._classes[0]
    for plan, counts in zip(known.plans, known.counts, strict=True):
        gpus = view.scratch().place_by_type(counts)
        if gpus is not None:
            of_type = {t.name: gpus[view.cluster.gpu_type[gpus] == i] for i, t in enumerate(view.cluster.types)}
            on = in_stage_order(plan, of_type)
            iteration_s = PERFORMANCE.plan(*job[:2], plan, on, view.cluster).iteration_s
            usd_per_h = 5.0 + sum(view.cluster.types[t].price_usd_per_h for t in view.cluster.gpu_type[on])
            costs[plan] = iteration_s * usd_per_h
    desk.decide()
    assert costs[desk.held[0].plan] == pytest.approx(min(costs.values()))


def test_homogeneous_rejects_what_only_a_mixture_holds():
    desk = Desk(Homogeneous(), cluster((0, 2), (1, 2)), [("gpt2-1.5b", 4, 4)])
    (row, reason), = desk.decide().reject
    assert row == 0 and "GiB needed" in reason


def test_shares_of_a_gpu_pack():
    """Four halves on two V100 fill them; a fifth goes to the T4."""
    desk = Desk(Hetero(), cluster((0, 2), (2, 1)), [("resnet50", 32, 1, {"milli": 500})] * 5)
    decision = desk.decide()
    assert [desk.types_of(row)[0] for row in range(5)] == ["V100"] * 4 + ["T4"]
    assert all(placement.plan is None for _, placement in decision.start)
    assert desk.ledger.type_idle.tolist() == [0, 0, 0]


# -- limits ------------------------------------------------------------------------------------------------


def test_the_wish_for_a_type_is_kept():
    """Bit 2: T4 only, although V100 are idle."""
    jobs = [("resnet50", 64, 1, {"types": 0b100}), ("resnet50", 32, 1, {"types": 0b100, "milli": 300})]
    desk = Desk(Hetero(max_scale=1.0), cluster((0, 4), (2, 2)), jobs)
    desk.decide()
    assert desk.types_of(0) == ["T4"] and desk.types_of(1) == ["T4"]


def test_a_quota_is_kept_and_others_go_on():
    """Tenant 0 may hold two GPUs: its second job waits, while tenant 1 starts."""
    jobs = [("resnet50", 256, 2), ("resnet50", 256, 2), ("resnet50", 256, 2, {"vc": 1})]
    desk = Desk(Hetero(max_scale=1.0, **FAST), cluster((0, 8)), jobs, vcs=("a", "b"), quota_gpus=[2, 8])
    assert started(desk) == [0, 2]


def test_a_gang_beyond_its_quota_is_planned_smaller_or_rejected():
    other = ("resnet50", 512, 4, {"vc": 1}), ("resnet50", 512, 4, {"vc": 1, "milli": 500})
    jobs = [("resnet50", 512, 4), *other]
    desk = Desk(Hetero(**FAST), cluster((0, 8)), jobs, vcs=("a", "b"), quota_gpus=[2, 0])
    decision = desk.decide()
    assert desk.held[0].gpus.size == 2
    assert [row for row, _ in decision.reject] == [1, 2]
    assert all("quota" in reason for _, reason in decision.reject)


def test_a_model_that_never_fits_is_rejected_each_time_it_comes():
    desk = Desk(Hetero(), cluster((0, 1)), [("gpt2-1.5b", 4, 1)] * 2)
    desk.view.queued = np.array([0], dtype=np.int32)
    (_, reason), = desk.decide().reject
    assert "GiB needed" in reason and "V100" in reason
    desk.view.queued = np.array([1], dtype=np.int32)
    assert [row for row, _ in desk.decide().reject] == [1]
    shared = Desk(Hetero(), cluster((0, 1)), [("gpt2-1.5b", 4, 1, {"milli": 500})])
    assert "does not fit" in shared.decide().reject[0][1]


def test_what_cannot_be_planned_is_told_before_the_run():
    for job in (("", 64, 1), ("resnet50", 0, 1)):
        with pytest.raises(PolicyError, match="without a model and a batch size"):
            Desk(Hetero(), cluster((0, 1)), [job])
    with pytest.raises(HetsimError, match="unknown model"):
        Desk(Hetero(), cluster((0, 1)), [("resnet51", 64, 1)])
    for bad in ({"hour_usd": -1.0}, {"max_scale": 0.0}, {"move_gain": -1.0}, {"planning_s": -1.0}, {"depth": 0}):
        with pytest.raises(PolicyError, match="value not allowed"):
            Hetero.from_settings(bad)


def test_plans_are_worked_out_once_a_class(monkeypatch):
    asked = []
    learn = Classes.learn
    monkeypatch.setattr(Classes, "learn", lambda self, key: asked.append(key) or learn(self, key))
    desk = Desk(Hetero(), cluster((0, 4)), [("resnet50", 64, 1)] * 50 + [("vgg16", 64, 1)] * 50)
    for _ in range(5):
        for row in list(desk.held):
            desk.finish(row)
        desk.decide()
    assert len(asked) == 2


# -- whole runs --------------------------------------------------------------------------------------------


def run(policy: Policy, trace: Trace, spec: ClusterSpec):
    truth = Modelled(trace, spec, PERFORMANCE, V100)
    return simulate(trace, spec, policy, truth, performance=PERFORMANCE)


jobs = st.tuples(
    st.sampled_from(["resnet50", "vgg16", "lstm-lm", "gpt2-1.5b"]), st.sampled_from([1, 1, 2, 3, 4, 8]),
    st.sampled_from([1000, 1000, 1000, 250]), st.floats(0, 5000), st.floats(1, 5000),
)


@settings(max_examples=15)
@given(
    st.lists(jobs, min_size=1, max_size=25), st.sampled_from([Hetero, Homogeneous]),
    st.sampled_from([0.0, 5.0, 1e6]), st.sampled_from([0.0, 4.0]), st.sampled_from([1, 1000]),
)
def test_no_decision_is_illegal_and_every_job_leaves(rows, kind, hour_usd, move_gain, depth):
    """The engine's ledger refuses a GPU used twice, a wrong type, a plan that does not match: none occurs."""
    batch = {"gpt2-1.5b": 1, "resnet50": 32, "vgg16": 32, "lstm-lm": 20}
    trace = Trace.from_columns({
        "job_id": [str(i) for i in range(len(rows))], "submit_s": [r[3] for r in rows],
        "duration_s": [r[4] for r in rows], "num_gpus": [r[1] for r in rows],
        "gpu_milli": [r[2] for r in rows], "model": [r[0] for r in rows],
        "batch_size": [batch[r[0]] * r[1] * 4 for r in rows],
    })
    spec = cluster((0, 2), (0, 2), (1, 4), (2, 4))
    result = run(kind(hour_usd=hour_usd, move_gain=move_gain, depth=depth), trace, spec)
    states = result.tables["jobs"].to_pandas()
    assert set(states.state) <= {"done", "rejected"}
    assert (states.reason[states.state == "rejected"] != "").all()
    held = result.tables["segments"].to_pandas()
    for gpus in held.gpu_ids:
        if kind is Homogeneous:
            assert len(set(spec.gpu_type[gpus])) == 1
    again = run(kind(hour_usd=hour_usd, move_gain=move_gain, depth=depth), trace, spec)
    assert all(result.tables[name].equals(again.tables[name]) for name in result.tables)


def test_one_job_alone_is_never_slower_on_mixed_types():
    """On an empty cluster hetero's plan is at least as good as homogeneous' one, for each model and gang."""
    spec = cluster((0, 2), (1, 4), (2, 4))
    for model, per_gpu in (("gpt2-1.5b", 1), ("bert-large", 4), ("vgg16", 32)):
        for gang in (1, 4, 8):
            times = []
            for policy in (Hetero(**FAST), Homogeneous(**FAST)):
                desk = Desk(policy, spec, [(model, per_gpu * gang, gang)])
                starts = desk.decide().start
                times.append(starts[0][1].plan.iteration_s if starts else np.inf)
            assert times[0] <= times[1]


@pytest.mark.parametrize("kind", [Hetero, Homogeneous])
def test_a_recorded_cluster_under_load(kind, data_dir):
    """1,500 recorded jobs with models drawn for them, on 32 GPUs of three types: all leave, all legally."""
    trace = load_trace(data_dir / "itp" / "cluster01.csv").select(slice(0, 1500))
    per_gpu = {"resnet50": 64, "bert-large": 4, "transformer": 64}
    trace = assign(trace, [ModelChoice(name, 1.0, (batch,)) for name, batch in per_gpu.items()], seed=0)
    spec = cluster((0, 8), (1, 8), (2, 8), (2, 8))
    result = run(kind(), scale_load(trace, spec.num_gpus, 0.7), spec)
    states = result.tables["jobs"].to_pandas().state
    assert set(states) <= {"done", "killed", "failed"}
    plans = result.tables["plans"].to_pandas()
    types = plans.groupby(["job_id", "begin_s"]).gpu_type.nunique()
    assert (types.max() > 1) == (kind is Hetero)
