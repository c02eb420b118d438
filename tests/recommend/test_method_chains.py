"""Long chains and max-load splits as methods: their figures are the truth's, their plans whole, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from policies.recommend.methods import chain, maxload, method, reorders
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from sim.api import Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance
from sim.performance.graph import GraphBuilder
from sim.performance.tables import Measurement, Point

PERFORMANCE = Performance()
FLEET = {"V100": 3, "T4": 4}


def request(model="bert-large", batch=64, fleet=None, performance=PERFORMANCE, node_gpus=4, max_gpus=None, **space):
    types, counts = zip(*((gpu_type(name), n) for name, n in (fleet or FLEET).items()), strict=True)
    gpus = Fleet(performance, types, counts, (node_gpus,) * len(types))
    return Request(performance, model, batch, gpus, sum(counts) if max_gpus is None else max_gpus,
                   Space(**({"orders": True} | space)))


def built(inputs, values=1.0, flops=1e12):
    """A model of equal matrix products, each reading what is said, and sending little."""
    build = GraphBuilder("made", "a row", 2.0)
    for i, sources in enumerate(inputs):
        build.add(f"op{i}", "gemm", sources, values, flops=flops, params=1e6, stored_bytes=1e3)
    return Performance(graphs={"made": build.build()})


def line(n):
    return built([(i - 1,) for i in range(n)])


@pytest.mark.parametrize(("name", "asked"), [
    ("chain", request()), ("chain", request("gpt2-1.5b", 32)), ("chain", request(max_gpus=4)),
    ("chain", request("resnet50", 256, {"V100": 64, "A100": 64, "T4": 64})),
    ("chain", request(single_type=True)), ("maxload", request("inception-v3", 64)), ("maxload", request(max_gpus=3)),
])  # fmt: skip
def test_plans_are_whole_and_within_the_fleet_and_the_space(name, asked):
    found = list(method(name).propose(asked))
    operators = len(asked.performance.graph(asked.model))
    assert asked.judged(found)
    for plan in found:
        ends = [-1, *(stage.last_op for stage in plan.stages)]
        assert [stage.first_op for stage in plan.stages] == [end + 1 for end in ends[:-1]] and ends[-1] == operators - 1
        assert plan.micro_batches in asked.space.micro_batches
        assert plan.num_gpus <= asked.budget and (not plan.order or sorted(plan.order) == list(range(operators)))
        used = {t: sum(s.gpus for s in plan.stages if s.gpu_type == t) for t in asked.fleet.names}
        assert all(n <= there for n, there in zip(used.values(), asked.fleet.counts, strict=True))
        assert all(plan.micro_batches * stage.gpus <= asked.batch_size for stage in plan.stages)
        if asked.space.single_type or name == "maxload":
            assert sum(n > 0 for n in used.values()) == 1


@pytest.mark.parametrize("model", ["bert-large", "resnet50"])
@pytest.mark.parametrize("name", ["V100", "T4"])
def test_a_stage_alone_takes_by_the_chain_what_it_takes_by_the_truth(model, name):
    """m micro-batches of it are an iteration: computation, all-reduce within and between nodes, optimizer."""
    asked = request(model, 64, {name: 8})
    last = len(PERFORMANCE.graph(model)) - 1
    for m in (1, 4):
        options = chain.options_of(asked, [0], m)
        made = chain.chain_in(asked, options, m)
        for o, (_, replicas) in enumerate(options):
            stage_s = min(made.stage_s(0, last, row) for row in np.flatnonzero(made.label == o))
            truth = asked.truth(Plan((Stage(0, last, name, replicas),), m))
            if truth is not None:
                assert m * stage_s == pytest.approx(truth.iteration_s, rel=1e-6)


def test_a_chain_by_hand():
    """Three equal operators on three GPUs of one type, without weights to speak of: one each, or all share them."""
    asked = request("made", 8, {"V100": 3}, line(3), micro_batches=(8,))
    cuts = {tuple((s.first_op, s.last_op) for s in plan.stages): plan for plan in chain.propose(asked)}
    assert ((0, 0), (1, 1), (2, 2)) in cuts
    assert all(s.gpus == 1 for s in cuts[(0, 0), (1, 1), (2, 2)].stages)


def test_a_table_and_the_planners_of_large_fleets_agree():
    """The large fleet's plan is never of a shorter period than the table's best, and near it."""
    asked = request("bert-large", 64, {"V100": 6, "T4": 6})
    for m in (2, 8):
        options = chain.options_of(asked, asked.fleet.present, m)
        made = chain.chain_in(asked, options, m)
        table = chain.small_fleet(asked, made, asked.fleet.present, m, "async", None)
        assert table is not None
        large = list(chain.in_large_fleet(asked, made, asked.fleet.present, asked.fleet.counts))
        least_s = float(table.least_s.min())
        assert large and least_s <= min(p.period_s for p in large) <= 1.1 * least_s
        assert all((np.array(p.counts) <= asked.fleet.counts).all() for p in large)


def test_fill_and_drain_are_planned_for():
    """BERT (large), 64 samples on four A100 and eight V100: by the period alone the best takes 47.1 ms."""
    asked = request("bert-large", 64, {"A100": 4, "V100": 8}, node_gpus=8, micro_batches=(1, 2, 3, 4, 6, 8, 12, 16))
    found = asked.judged(chain.propose(asked))
    assert found[0].iteration_s < 0.039


def test_asynchronous_stages_sum_after_each_micro_batch():
    """What a drained stage does once an iteration, one that never drains does m times; no plan names both."""
    options = [(0, 4)]
    asked = request("bert-large", 64, {"V100": 4}, schedules=("", "async"))
    once, always = (chain.chain_in(asked, options, 4, way) for way in ("1f1b", "async"))
    last = len(PERFORMANCE.graph("bert-large")) - 1
    a, b = (min(made.stage_s(0, last, row) for row in range(len(made.label))) for made in (once, always))
    truth = [asked.truth(Plan((Stage(0, last, "V100", 4),), 4, schedule=way)) for way in ("", "async")]
    assert all(truth) and [4 * a, 4 * b] == pytest.approx([r.iteration_s for r in truth if r], rel=1e-6)
    assert {plan.schedule for plan in chain.propose(asked)} == {"", "async"}


def test_what_is_proven_is_said():
    small, large = request("bert-large", 64, {"V100": 4, "T4": 4}), request("bert-large", 64, {"V100": 64, "T4": 64})
    assert chain.serves(small) and chain.proves(small) is None
    assert next(iter(chain.propose(small))) and chain.proves(small) <= chain.GAP
    assert not chain.serves(large) and chain.proves(large) is None


def test_unknown_prices_leave_the_periods(monkeypatch):
    gpus = [gpu_type("V100")]
    unpriced = [gpu.__class__(**{**vars(gpu), "price_usd_per_h": None}) for gpu in gpus]
    for cells in (chain.MOST_CELLS, 0):
        monkeypatch.setattr(chain, "MOST_CELLS", cells)
        asked = Request(PERFORMANCE, "resnet50", 64, Fleet(PERFORMANCE, unpriced, [4]), 4)
        assert asked.judged(chain.propose(asked))


def test_equal_operators_are_split_equally():
    asked = request("made", 8, {"V100": 2}, line(4), micro_batches=(4,))
    (plan,) = maxload.propose(asked)
    assert [(s.first_op, s.last_op, s.gpus) for s in plan.stages] == [(0, 1, 1), (2, 3, 1)] and not plan.order


def test_branches_that_alternate_are_split_into_the_branches():
    """Two branches 0-2-4 and 1-3-5, each operator sending much: only the cut between branches sends nothing."""
    performance = built([(-1,), (-1,), (0,), (1,), (2,), (3,)], values=1e8)
    asked = request("made", 8, {"V100": 2}, performance, micro_batches=(4,))
    (plan,) = maxload.propose(asked)
    assert plan.order in ((0, 2, 4, 1, 3, 5), (1, 3, 5, 0, 2, 4))
    assert [(s.first_op, s.last_op) for s in plan.stages] == [(0, 2), (3, 5)]


def test_memory_sends_operators_to_more_gpus():
    """Each of four operators keeps 6 GiB, and a GPU has 15 for them: two fit, though the first takes all the time."""
    build = GraphBuilder("made", "a row", 2.0)
    for i in range(4):
        build.add(f"op{i}", "gemm", (i - 1,), 1.0, flops=1e12 if i == 0 else 1e9, params=6 * 2**30 / 16)
    asked = request("made", 8, {"V100": 2}, Performance(graphs={"made": build.build()}), micro_batches=(1,))
    (plan,) = maxload.propose(asked)
    assert [s.last_op - s.first_op + 1 for s in plan.stages] == [2, 2]


def test_what_neither_can_plan():
    table = MeasuredTable({Point("lm", 0, "v100", 1, 1): Measurement(10.0)}, "by hand")
    measured = Performance(table=table)
    for name in ("chain", "maxload"):
        assert not list(method(name).propose(request("lm", 8, {"V100": 2}, measured)))
        assert not list(method(name).propose(request(tensor=(2,))))
    assert not list(maxload.propose(request(orders=False)))


def test_a_method_that_reorders_says_so():
    assert [name for name in ("chain", "exact", "branches", "maxload") if reorders(name)] == ["branches", "maxload"]
