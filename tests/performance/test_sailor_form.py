"""Sailor's closed form: by hand, and against the times that its own simulator gave; ours beside it."""

from __future__ import annotations

import json
import math

import pytest

from experiments.sailor_form import Form, Pipelines, Replica, StageOf, as_pipelines, checked
from experiments.sailor_planners import as_plan, as_sailor, questions
from sim.performance.readers.layer_table import read_layers

TABLE = """\
model,value_bytes,layer,tensor,params,border_bytes,kept_bytes,gpu_type,micro_batch,fwd_s,bwd_s,update_s
toy,4,0-3,1,1000000,1000000,500000,A100,2,0.001,0.002,0.0005
toy,4,0-3,1,,,,V100,2,0.002,0.004,0.001
toy,4,0-3,2,500000,1000000,300000,A100,2,0.0006,0.0012,0.0003
"""
A100, V100, FAR = Replica("A100-40", 1, "z"), Replica("V100-16", 1, "z"), Replica("A100-40", 1, "far")
PAIR = Replica("A100-40", 2, "z")


@pytest.fixture
def form(tmp_path):
    """1 GB/s between any two machines, 3.6 USD an hour for an A100 and 1.8 for a V100, 0.5 USD a GB to another zone."""
    (tmp_path / "layers.csv").write_text(TABLE)
    ends = [(zone, gpu, n) for zone in ("z", "far") for gpu in ("A100-40", "V100-16") for n in (1, 2)]
    network = {(one, other): (0.0, 0.0, 1.0) for one in ends for other in ends}
    prices = {"z": {"z": 0.0, "far": 0.5}, "far": {"z": 0.5, "far": 0.0}}
    return Form(read_layers(tmp_path / "layers.csv")["toy"], network, {"A100-40": 3.6, "V100-16": 1.8}, prices,
                {"A100-40": 3.0, "V100-16": 1.0})  # fmt: skip


def one(*stages: StageOf, batch: int, micro_batch: int = 2) -> Pipelines:
    return Pipelines((stages,), micro_batch, batch)


def test_data_parallelism_by_hand(form):
    """12 samples on three replicas of 2: two micro-batches of 12 ms, one layer's step of 0.5 ms; 16 MB of gradients, of
    which each ring step sends a third, four times: 64 / 3 ms."""
    plan = one(StageOf(0, 3, (A100,) * 3), batch=12)
    assert plan.count == 2 and form.iteration_s(plan) == pytest.approx(0.0245 + 0.064 / 3)
    assert form.usd(plan) == pytest.approx(form.iteration_s(plan) * 3 * 3.6 / 3600)
    # A batch that does not divide takes a micro-batch more.
    assert one(StageOf(0, 3, (A100,) * 3), batch=13).count == 3


def test_a_pipeline_by_hand(form):
    """Stages of 6 and 12 ms (the V100); 2 MB take 2 ms, once after the first stage, twice after the last. Of two
    micro-batches the slower is worked on twice: 16 + (8 + 16) ms, the V100's step of 1 ms, and 8 MB summed by two."""
    plan = one(StageOf(0, 1, (A100, A100)), StageOf(2, 3, (A100, V100)), batch=8)
    assert form.iteration_s(plan) == pytest.approx(0.016 + 0.024 + 0.001 + 0.008)
    assert plan.gpus() == {"A100-40": 3, "V100-16": 1} and form.egress_usd(plan) == 0


def test_messages_of_long_pipelines_count_both_ways(form):
    """Four stages of a layer: 2 ms forward and 2 back each, 3 ms of work; the first now counts twice what it sends."""
    plan = one(*(StageOf(i, i, (A100,)) for i in range(4)), batch=10)
    assert form.iteration_s(plan) == pytest.approx(4 * 0.007 + 4 * 0.007 + 0.0005)


def test_tensor_parallelism_shares_gradients(form):
    """On pairs: 4 x 1.8 ms, a step of 0.3 ms; a GPU sums half of 16 MB over two replicas."""
    plan = one(StageOf(0, 3, (PAIR, PAIR)), batch=4)
    assert form.iteration_s(plan) == pytest.approx(0.0072 + 0.0003 + 0.008)
    # Of unlike degrees the least decides, and the slowest replica.
    plan = one(StageOf(0, 3, (PAIR, A100)), batch=4)
    assert form.iteration_s(plan) == pytest.approx(0.012 + 0.0005 + 0.016)


def test_pipelines_side_by_side(form):
    """8 samples for two pipelines: two micro-batches each. The slower counts, then 16 MB are summed over both."""
    plan = Pipelines(((StageOf(0, 3, (A100,)),), (StageOf(0, 3, (V100,)),)), 2, 8)
    assert form.iteration_s(plan) == pytest.approx(2 * 0.024 + 0.001 + 0.016)


def test_gradients_go_in_buckets(form):
    """1.2e9 bytes over two: pieces of 250, 250 and 100 MB, each twice, at log2(MB) GB/s."""
    took = form._ring_s(1.2e9, 2, (0.0, 1.0, 0.0))
    assert took == pytest.approx(2 * (2 * 0.25 / math.log2(250) + 0.1 / math.log2(100)))
    assert form._ring_s(1.2e9, 1, (0.0, 1.0, 0.0)) == 0


def test_what_leaves_a_zone_is_paid(form):
    """Two micro-batches of 2 MB there and back, 0.5 USD a GB; then a ring of two: 16 MB leave each zone."""
    plan = one(StageOf(0, 1, (A100,)), StageOf(2, 3, (FAR,)), batch=4)
    assert form.egress_usd(plan) == pytest.approx(2 * 2 * 2e6 * 0.5 / 1e9)
    plan = one(StageOf(0, 3, (A100, FAR)), batch=4)
    assert form.egress_usd(plan) == pytest.approx(2 * 16e6 * 0.5 / 1e9)


def test_memory_by_hand(form):
    """A V100 of 1 GiB has no room for the framework's 2e9 bytes; an A100 of 3 GiB for 1.2e9 of samples, held once."""
    assert not form.fits(one(StageOf(0, 3, (V100,)), batch=2))
    room = 3 * 2**30 - 2e9 - 4e6 * 24
    fits = [form.fits(one(StageOf(0, 3, (A100,)), batch=10**6, micro_batch=n))
            for n in (math.floor(room / 2e6), math.floor(room / 2e6) + 1)]  # fmt: skip
    assert fits == [True, False]


def test_the_form_gives_the_times_of_sailors_simulator(data_dir, oracle_dir):
    """All 19 plans: time and price to five digits."""
    rows = json.loads((oracle_dir / "sailor" / "plans.json").read_text())["plans"]
    found = checked(data_dir / "sailor", rows)
    assert len(found) == 19
    for row, seconds, usd in found:
        assert seconds == pytest.approx(row["iteration_s"], rel=1e-5), (row["question"], row["planner"])
        assert usd == pytest.approx(row["usd"], rel=1e-4), (row["question"], row["planner"])


def test_plans_of_theirs_are_the_same_as_ours_by_the_form(data_dir, oracle_dir):
    """Where all stages have as many replicas; those of several degrees or pipelines have no plan of ours."""
    rows = [row for row in json.loads((oracle_dir / "sailor" / "plans.json").read_text())["plans"]
            if row.get("pipelines")]  # fmt: skip
    forms = {question.rows[0]["model"]: question.form for question in questions(data_dir.parent)}
    same = 0
    for row in rows:
        plan = as_pipelines(row)
        ours = as_plan(plan)
        zones = {one.zone for one in plan.replicas()}
        if ours is None or len({len(stage.replicas) for stage in plan.pipelines[0]}) > 1 or len(zones) > 1:
            continue
        back = as_sailor(ours, row["global_batch"], zones.pop())
        assert forms[row["model"]].iteration_s(back) == pytest.approx(row["iteration_s"], rel=1e-5)
        same += 1
    assert same >= 8


def test_ours_is_not_worse_than_any_of_them_on_a_small_question(data_dir, oracle_dir):
    """8 A100 and 8 V100: Sailor cuts 13 to 13; 7 to 19 is faster under its own form."""
    (question,) = (one for one in questions(data_dir.parent) if one.name == "s8")
    best = min(one.form_s for one in question.theirs())
    for by_form in (False, True):
        ours = question.ours(300, by_form=by_form)
        assert ours.form_s < best and ours.truth_s == pytest.approx(ours.form_s, rel=0.05)
