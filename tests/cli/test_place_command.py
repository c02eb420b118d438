"""`hetsim place`: operators of one step on GPUs, method by method, by hand and by law; and what cannot be meant."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest

from policies.place.placers import PLACERS
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance

QUICK = ("--methods", "single,expert,m-topo,m-etf,m-sct,anneal", "--iterations", 300)
NODE = "node{} -- {} -- forward_compute_time={}, backward_compute_time={}, activation_size=8.0, parameter_size=8.0\n"
APART = ("--graph", "apart.txt", "--profiled-on", "V100", "--profiled-samples", 1)


@pytest.fixture
def apart(here):
    """Two operators of 1 ms forward and 2 ms backward that do not read each other, and one without time behind both."""
    text = "".join(NODE.format(n, f"Op{n}", 1.0, 2.0) for n in (1, 2)) + NODE.format(3, "Sum", 0.0, 0.0)
    (here / "apart.txt").write_text(text + "\tnode1 -- node3\n\tnode2 -- node3\n")
    return here


def answer(hetsim, *arguments):
    said = hetsim("place", *arguments, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def steps(got):
    return {row["method"]: row["step_s"] for row in got["methods"]}


def test_two_operators_apart_take_half_the_time_on_two_gpus(hetsim, apart):
    """6 ms one after the other; 3 ms side by side, but for three transfers of a few bytes."""
    got = steps(answer(hetsim, *APART, "--gpus", "V100:2", "--methods", "single,m-etf,anneal"))
    assert got["single"] == pytest.approx(6e-3)
    assert got["m-etf"] == pytest.approx(3e-3, abs=1e-4) and got["anneal"] == pytest.approx(3e-3, abs=1e-4)


def test_all_on_one_gpu_takes_the_sum_of_the_operators(hetsim):
    got = answer(hetsim, "--model", "resnet50", "-b", 16, "--gpus", "T4", *QUICK)
    forward, backward = Performance().op_times_s("resnet50", 16, gpu_type("T4"))
    assert list(steps(got).values()) == [pytest.approx(forward.sum() + backward.sum())] * 6
    assert all(row["devices"] == 1 and row["operators"] == [got["operators"]] for row in got["methods"])


def test_annealing_is_never_worse_than_the_placements_that_it_starts_from(hetsim):
    got = steps(answer(hetsim, "--model", "inception-v3", "--gpus", "V100:2,T4:1", *QUICK))
    assert got["anneal"] <= min(got[name] for name in ("single", "m-topo", "m-etf", "m-sct"))


def test_all_methods_are_tried_where_nobody_says_and_the_same_seed_places_alike(hetsim, apart):
    said = hetsim("place", *APART, "--seconds", 1)
    assert said.code == 0 and "6.000" in said.out and "against one GPU" in said.out
    for name in PLACERS:
        assert name in said.out and name in hetsim("place", "--list-methods").out
    once, again = (answer(hetsim, "--model", "inception-v3", *QUICK, "--seed", 3) for _ in range(2))
    assert steps(once) == steps(again)


def test_the_file_has_each_operator_once_a_method_in_the_order_of_starts(hetsim, here):
    got = answer(hetsim, "--model", "inception-v3", "--gpus", "V100:1,T4:1", "--methods", "expert,m-etf",
                 "--out", "placed.csv")  # fmt: skip
    with (here / "placed.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    for of in got["methods"]:
        mine = [row for row in rows if row["method"] == of["method"]]
        assert len(mine) == got["operators"] == len({(row["operator"], row["pass"]) for row in mine})
        starts = [float(row["start_s"]) for row in mine]
        assert starts == sorted(starts)
        assert max(float(row["end_s"]) for row in mine) == pytest.approx(of["step_s"])
        where = Counter((row["device"], row["gpu_type"]) for row in mine)
        assert [where["0", "V100"], where["1", "T4"]] == of["operators"] and sum(of["operators"]) == where.total()
        # Weights are where both passes need them.
        assert len({(row["operator"], row["device"]) for row in mine}) == got["operators"] / 2
    assert hetsim("place", "--model", "inception-v3", "--methods", "expert", "--out", "placed.csv").code == 2
    assert hetsim("place", "--model", "inception-v3", "--methods", "expert", "--out", "placed.csv", "--force").code == 0


def test_what_fits_no_memory_is_said(hetsim):
    said = hetsim("place", "--model", "gpt2-1.5b", "--gpus", "V100", "--methods", "single,m-etf")
    assert said.code == 1 and "out of memory" in said.out and "memory is full" in said.out
    assert "no method found a placement" in said.err
    more = answer(hetsim, "--model", "gpt2-1.5b", "-b", 4, "--gpus", "V100:4", "--methods", "single,expert")
    assert [row["fits"] for row in more["methods"]] == [False, True]


def test_slower_links_never_speed_a_placement_up(hetsim):
    """The same blocks on one node and on one node each; one channel a GPU is never faster than one a pair."""
    asked = ("--model", "inception-v3", "--gpus", "V100:4", "--methods", "expert")
    near, far = (steps(answer(hetsim, *asked, "--node-gpus", n))["expert"] for n in (4, 1))
    shared = steps(answer(hetsim, *asked, "--node-gpus", 4, "--links", "shared"))["expert"]
    assert near < far and near <= shared


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "--model NAME or --graph FILE"),
    (["--model", "inception-v3", "--graph", "x.onnx"], "two models are given"),
    (["--model", "inceptoin-v3"], "inception-v3"),
    (["--graph", "missing.onnx"], "missing.onnx"),
    (["--model", "inception-v3", "--gpus", "V1000:2"], "V100"),
    (["--model", "inception-v3", "--gpus", "V100:0"], "--gpus"),
    (["--model", "inception-v3", "--gpus", "V100:65"], "up to 64"),
    (["--model", "inception-v3", "--methods", "m-eft"], "m-etf"),
    (["--model", "inception-v3", "--batch", "0"], "--batch"),
    (["--model", "inception-v3", "--iterations", "0"], "--iterations"),
    (["--model", "inception-v3", "--node-gpus", "0"], "--node-gpus"),
    (["--model", "inception-v3", "--seconds", "0"], "--seconds"),
    (["--model", "inception-v3", "--seed", "-1"], "--seed"),
    (["--model", "inception-v3", "--links", "star"], "shared, directed"),
    (["--model", "inception-v3", "--profiled-on", "V100"], "has no effect"),
    (["--graph", "apart.txt", "--profiled-on", "V100"], "--profiled-samples"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(hetsim, apart, arguments, words):
    said = hetsim("place", *arguments)
    assert said.code == 2 and words in said.err, said.err
    assert "Traceback" not in said.err and not said.out


def test_the_help_shows_examples(hetsim):
    said = hetsim("place", "--help")
    assert said.code == 0 and "Examples:" in said.out and "hetsim place --model" in said.out
