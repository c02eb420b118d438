"""`hetsim recommend`: the plan, the best on one type beside it, and what is said where the request cannot be met."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from policies.recommend.methods import method_names
from sim.hardware.gputypes import catalogue
from sim.performance.zoo import MODELS

QUICK = ("--evaluations", 40)
MIXED = ("--model", "bert-large", "--batch", 64, "--gpus", "V100:2,T4:4", *QUICK)


def answer(hetsim, *arguments):
    said = hetsim("recommend", *arguments, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_the_parts_of_the_time_and_the_cost_add_up(hetsim):
    got = answer(hetsim, *MIXED, "--iterations", 1000)
    plan = got["plan"]
    parts = ("compute_s", "bubble_s", "transfer_s", "allreduce_s", "update_s")
    assert plan["iteration_s"] == pytest.approx(sum(plan[part] for part in parts))
    assert plan["samples_per_s"] == pytest.approx(64 / plan["iteration_s"])
    price = {g["gpu_type"]: g["price_usd_per_h"] for g in got["gpus"]}
    usd_per_h = sum(n * price[name] for name, n in plan["gpus"].items())
    assert plan["usd_per_iteration"] == pytest.approx(plan["iteration_s"] / 3600 * usd_per_h)
    assert plan["usd_per_job"] == pytest.approx(1000 * plan["usd_per_iteration"])
    assert sum(g["gpus"] for s in plan["stages"] for g in s["gpus"]) == sum(plan["gpus"].values())
    assert all(s["need_gib"] <= max(g["there_gib"] for g in s["gpus"]) for s in plan["stages"])


def test_the_plan_is_never_worse_than_the_best_on_one_type(hetsim):
    for objective, value in (("time", "iteration_s"), ("cost", "usd_per_iteration")):
        got = answer(hetsim, *MIXED, "--objective", objective)
        assert got["plan"][value] <= got["homogeneous"][value]
        assert len(got["homogeneous"]["gpus"]) == 1
        aimed = got["saving"][objective]
        assert aimed == pytest.approx(1 - got["plan"][value] / got["homogeneous"][value])
        assert (aimed > 0) == (got["saving"]["reason"] == "")


def test_the_tables_name_stages_parts_memory_the_other_plan_and_the_front(hetsim):
    said = hetsim("recommend", *MIXED, "--iterations", 1000)
    assert said.code == 0
    for word in ("operators", "embeddings", "replicas", "fwd (ms)", "bwd (ms)", "of 16", "best on one GPU type",
                 "computation", "all-reduce", "samples a second", "cost of 1,000 iterations", "saving:",
                 "Time against cost", "(proven)", "plans judged", "USD/h (AWS"):  # fmt: skip
        assert word in said.out, word


SPLIT = ("--model", "gpt2-1.5b", "--batch", 64, "--gpus", "A100:4,V100:8", "--evaluations", 300)


def test_the_parts_of_what_is_saved_add_up_and_are_said(hetsim):
    """Most of what V100 beside A100 save a large model in time is that there are more GPUs."""
    got = answer(hetsim, *SPLIT)
    why = got["split"]
    assert why["saved"] == pytest.approx(got["saving"]["time"])
    assert why["exchanged"] + why["added"] + why["operators"] == pytest.approx(why["saved"])
    assert why["added"] > 0.2 and why["saved"] <= why["possible"] < 1
    assert why["one_type_gpus"] == sum(g["count"] for g in got["gpus"] if g["gpu_type"] in got["homogeneous"]["gpus"])
    assert why["blind"]["iteration_s"] == pytest.approx(
        (1 - why["exchanged"] - why["added"]) * got["homogeneous"]["iteration_s"])
    said = " ".join(hetsim("recommend", *SPLIT).out.split())
    assert f"of {100 * why['saved']:.1f} % saved in time" in said and "from added GPUs" in said


def test_nothing_is_split_where_nothing_is_mixed_or_saved(hetsim):
    one = answer(hetsim, "--model", "vgg16", "--batch", 64, "--gpus", "V100:4", *QUICK)
    assert one["split"] is None and one["cheapest_type"] is None
    assert answer(hetsim, *MIXED, "--keep", "2xT4")["split"] is None
    asked = ("--model", "vgg16", "--batch", 64, "--gpus", "V100:2,T4:4", "--objective", "cost", *QUICK)
    none = answer(hetsim, *asked)
    assert none["split"]["saved"] == 0
    assert "saved in cost" not in hetsim("recommend", *asked).out


def test_one_type_that_costs_least_for_each_operator_is_a_proof_that_no_mixture_costs_less(hetsim):
    asked = ("--model", "vgg16", "--batch", 32, "--gpus", "V100:2,T4:4", *QUICK)
    got = answer(hetsim, *asked, "--objective", "cost")
    proof = got["cheapest_type"]
    assert (proof["gpu_type"], proof["operators"], proof["found_above"]) == ("T4", 22, 0.0)
    assert got["plan"]["usd_per_iteration"] == pytest.approx(proof["usd_per_iteration"])
    assert got["bound"]["gap_cost"] == pytest.approx(0.0, abs=1e-6)
    words = "T4 costs least for each of the 22 operators: no mixture can cost less (proven)"
    assert words in " ".join(hetsim("recommend", *asked, "--objective", "cost").out.split())
    for other in (("--objective", "cost", "--within", "1.5x-best-time"), ("--objective", "time")):
        assert "costs least" not in hetsim("recommend", *asked, *other).out


def test_where_one_gpu_has_too_little_memory_the_proof_says_what_it_takes(hetsim):
    asked = ("--model", "gpt2-1.5b", "--batch", 64, "--gpus", "A100:1,V100:8", "--objective", "cost", *QUICK)
    got = answer(hetsim, *asked)
    assert got["cheapest_type"]["found_above"] > 0.1
    assert "no mixture can cost less than one with memory for all" in " ".join(hetsim("recommend", *asked).out.split())


def test_a_free_type_is_planned_and_saves_no_cost(hetsim, here):
    (here / "free.toml").write_text(
        "[[prices]]\n" + "\n".join(f'{key} = "{value}"' for key, value in {
            "gpu_type": "V100", "kind": "on-demand", "per": "gpu", "date": "2026-01-01", "source": "ours"}.items())
        + "\namount_per_h = 0.0\n")
    for objective in ("time", "cost", "front"):
        got = answer(hetsim, *ASKED, *QUICK, "--prices", "free.toml", "--objective", objective)
        assert got["plan"]["usd_per_iteration"] == 0.0
        assert got["saving"]["cost"] == 0.0


def test_a_profile_that_does_not_say_its_minibatch_is_refused(hetsim, here):
    """P-49: else the times of a whole minibatch would be taken for those of one sample."""
    (here / "net.txt").write_text("node1 -- Conv -- forward_compute_time=1.0, backward_compute_time=2.0, "
                                  "activation_size=8.0, parameter_size=8.0\n")
    said = hetsim("recommend", "--graph", "net.txt", "--gpus", "V100:2", "--profiled-on", "V100")
    assert said.code == 2 and "--profiled-samples" in said.err


def test_limits_are_kept_and_the_front_is_all_of_it(hetsim):
    got = answer(hetsim, *MIXED, "--objective", "front")
    front = got["front"]
    assert [r["iteration_s"] for r in front] == sorted(r["iteration_s"] for r in front)
    costs = [r["usd_per_iteration"] for r in front]
    assert costs == sorted(costs, reverse=True)
    near = answer(hetsim, *MIXED, "--objective", "cost", "--within", "1.2x-best-time")
    assert near["plan"]["iteration_s"] <= 1.2 * front[0]["iteration_s"] * (1 + 1e-12)
    middle = (costs[0] + costs[-1]) / 2
    cheap = answer(hetsim, *MIXED, "--budget", f"{1000 * middle}usd", "--iterations", 1000)
    assert cheap["plan"]["usd_per_iteration"] <= middle


def test_the_same_evaluations_give_the_same_answer(hetsim):
    one, other = (answer(hetsim, *MIXED) for _ in range(2))
    assert one | {"wall_s": 0} == other | {"wall_s": 0}


def test_a_folder_has_the_files_and_pictures_and_nothing_else(hetsim, here):
    got = answer(hetsim, *MIXED, "--out", "plan")
    assert sorted(p.name for p in (here / "plan").iterdir()) == [
        "front.png", "plans.parquet", "recommendation.json", "stages.png"
    ]
    written = json.loads((here / "plan" / "recommendation.json").read_text())
    assert written == got
    plans = pd.read_parquet(here / "plan" / "plans.parquet")
    assert plans["iteration_s"].min() == pytest.approx(got["plan"]["iteration_s"])
    assert plans["on_front"].sum() == len(got["front"])
    assert sorted(p.name for p in here.iterdir()) == ["jobs.csv", "plan"]
    again = hetsim("recommend", *MIXED, "--out", "plan")
    assert again.code == 2
    assert "there already" in again.err


def test_types_without_a_count_are_rented_up_to_64(hetsim):
    got = answer(hetsim, "--model", "resnet50", "-b", 64, "--gpus", "V100", "--max-gpus", 4, *QUICK)
    assert got["gpus"][0]["count"] == 64
    assert sum(got["plan"]["gpus"].values()) <= 4


def test_a_cluster_gives_types_counts_nodes_and_prices(hetsim, here):
    (here / "mine.toml").write_text(
        '[[nodes]]\ntype = "V100"\ncount = 1\ngpus = 2\n[[nodes]]\ntype = "T4"\ncount = 1\ngpus = 4\n'
        "[prices_usd_per_gpu_h]\nT4 = 0.1\n"
    )
    got = answer(hetsim, "--model", "resnet50", "-b", 64, "--cluster", "mine.toml", *QUICK)
    assert [(g["gpu_type"], g["count"], g["node_gpus"], g["price_usd_per_h"]) for g in got["gpus"]] == [
        ("V100", 2, 2, 3.06), ("T4", 4, 4, 0.1)
    ]


# -- user reports ------------------------------------------------------------------------------------------------------


def test_p47_a_gpu_that_lacks_memory_is_refused_with_what_is_needed_and_what_would_help(hetsim):
    said = hetsim("recommend", "--model", "gpt2-1.5b", "-b", 4, "--gpus", "V100:8", "--max-gpus", 1, *QUICK)
    assert said.code == 2
    for word in ("fits no plan", "GiB needed on a GPU of V100", "16 GiB there", "up to 3 of these GPUs"):
        assert word in said.err
    assert "USD" not in said.err
    assert said.out == ""


TIMES = "forward_compute_time=1.0, backward_compute_time=2.0"
GRAPH = f"node1 -- Linear -- {TIMES}, activation_size=1.0, parameter_size=0\n"


def test_p49_a_profile_of_one_batch_is_marked_extrapolated_at_another(hetsim, here):
    """Profiled with 32 samples: asked about 32 it is measured, about 64 extrapolated, by name."""
    (here / "net.txt").write_text(GRAPH)
    about = ("--graph", "net.txt", "--profiled-on", "V100", "--profiled-samples", 32, "--gpus", "V100:1",
             "--micro-batches", 1, *QUICK)  # fmt: skip
    assert answer(hetsim, *about, "-b", 32)["plan"]["source"] == "measured"
    assert answer(hetsim, *about, "-b", 64)["plan"]["source"] == "extrapolated"
    assert "extrapolated (beyond the measured micro-batches" in hetsim("recommend", *about, "-b", 64).out


def test_p51_the_list_shows_what_can_run_and_the_error_names_what_is_missing(hetsim, here):
    listed = hetsim("recommend", "--list").out.replace("\n", "")
    assert all(name in listed for name in (*MODELS, *catalogue()))
    (here / "net.txt").write_text(GRAPH)
    said = hetsim("recommend", "--graph", "net.txt", "--gpus", "V100:1", *QUICK)
    assert said.code == 2
    assert "does not say on which GPU type it was measured" in said.err


def test_p52_gpus_that_were_asked_for_are_kept_where_they_fit_and_better_ones_are_mentioned(hetsim):
    """Two T4 fit, though others are faster."""
    got = answer(hetsim, *MIXED, "--keep", "2xT4")
    assert got["kept"] is True
    assert got["plan"]["gpus"] == {"T4": 2}
    assert got["better"]["iteration_s"] < got["plan"]["iteration_s"]
    assert "not asked for, but better" in hetsim("recommend", *MIXED, "--keep", "2xT4").out


def test_p52_advice_differs_only_where_the_request_fails(hetsim):
    """GPT-2 1.5B does not fit on one V100: the best plan is given instead, and what is lacking. A limit is one too."""
    said = hetsim("recommend", "--model", "gpt2-1.5b", "-b", 4, "--gpus", "V100:4", "--keep", "1xV100", *QUICK)
    assert said.code == 0
    assert "1xV100 is not kept: the model does not fit there, 32.86 GiB needed on a GPU of V100 and 16 GiB" in said.err
    slow = answer(hetsim, *MIXED, "--keep", "1xT4", "--within", "1x-best-time")
    assert slow["kept"] is False
    assert "no plan is within the limits" in slow["keep_reason"]


def test_p53_spot_is_priced_as_spot_and_a_node_by_its_gpus(hetsim, here):
    (here / "spot.toml").write_text(
        '[[prices]]\ngpu_type = "V100"\nkind = "spot"\namount_per_h = 8.0\nper = "node"\nnode_gpus = 8\n'
        'date = "2025-11-30"\nsource = "mine"\n'
    )
    about = ("--model", "resnet50", "-b", 64, "--gpus", "V100:1", "--micro-batches", 1, *QUICK)
    plain, spot = answer(hetsim, *about), answer(hetsim, *about, "--prices", "spot.toml")
    assert plain["gpus"][0]["price_usd_per_h"] == 3.06
    assert spot["gpus"][0]["price_usd_per_h"] == 1.0
    assert spot["plan"]["usd_per_iteration"] == pytest.approx(plain["plan"]["usd_per_iteration"] / 3.06)
    assert "spot, 2025-11-30, a node of 8" in spot["gpus"][0]["price_source"]
    unknown = answer(hetsim, *about, "--prices", "spot")
    assert unknown["plan"]["usd_per_iteration"] is None
    assert unknown["front"] == []
    for objective in ("cost", "front"):
        said = hetsim("recommend", *about, "--prices", "spot", "--objective", objective)
        assert said.code == 2
        assert "no plan has a known cost" in said.err


# -- what makes no sense -----------------------------------------------------------------------------------------------

ASKED = ("--model", "resnet50", "--gpus", "V100:2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to plan for"),
        (["--model", "resnet50"], "no GPUs to plan with"),
        (["--model", "resnet50", "--graph", "x.txt", "--gpus", "V100"], "two models"),
        ([*ASKED, "--cluster", "mixed"], "given twice"),
        (["--model", "resnet5", "--gpus", "V100"], "did you mean 'resnet50'"),
        (["--graph", "none.onnx", "--gpus", "V100"], "none.onnx"),
        (["--model", "resnet50", "--gpus", "V10:4"], "unknown GPU type"),
        (["--model", "resnet50", "--gpus", "V100:0"], "TYPE:COUNT"),
        (["--model", "resnet50", "--gpus", "V100:-1"], "TYPE:COUNT"),
        (["--model", "resnet50", "--gpus", ""], "TYPE:COUNT"),
        (["--model", "resnet50", "--gpus", "V100:\u0663"], "TYPE:COUNT"),
        (["--model", "resnet50", "--gpus", "V100,v100:3"], "named twice"),
        ([*ASKED, "-b", "0"], "--batch"),
        ([*ASKED, "--max-gpus", "0"], "--max-gpus"),
        ([*ASKED, "--iterations", "-1"], "--iterations"),
        ([*ASKED, "--objective", "costs"], "did you mean 'cost'"),
        ([*ASKED, "--within", "0.9x-best-time"], "--within"),
        ([*ASKED, "--within", "5"], "--within"),
        ([*ASKED, "--within", "1e999s"], "--within"),
        ([*ASKED, "--budget", "1e999usd"], "--budget"),
        ([*ASKED, "--node-gpus", "V100:4,V100:2"], "named twice"),
        ([*ASKED, "--max-gpus", "1", "--keep", "2xV100"], "more GPUs to keep than a plan may use"),
        ([*ASKED, "--budget", "3"], "as 3usd"),
        ([*ASKED, "--budget", "3eur"], "as 3usd"),
        ([*ASKED, "--methods", "exat"], "did you mean 'exact'"),
        ([*ASKED, "--methods", "exact,exact"], "different values"),
        ([*ASKED, "--tensor", "0"], "--tensor"),
        ([*ASKED, "--tensor", "x"], "--tensor"),
        ([*ASKED, "--tensor", "2", *map(str, QUICK)], "no such plan"),
        ([*ASKED, "--micro-batches", ""], "--micro-batches"),
        ([*ASKED, "--zero", "4"], "--zero"),
        ([*ASKED, "--schedules", "1f2b"], "did you mean '1f1b'"),
        ([*ASKED, "--schedules", "interleaved"], "not planned for"),
        ([*ASKED, "--recompute", "sometimes"], "--recompute"),
        ([*ASKED, "--seconds", "0"], "--seconds"),
        ([*ASKED, "--seconds", "nan"], "--seconds"),
        ([*ASKED, "--seed", "-1"], "--seed"),
        ([*ASKED, "--node-gpus", "0"], "--node-gpus"),
        ([*ASKED, "--node-gpus", "T4:4"], "--node-gpus"),
        ([*ASKED, "--keep", "3xV100"], "more GPUs to keep"),
        ([*ASKED, "--keep", "V100"], "COUNTxTYPE"),
        ([*ASKED, "--keep", "1xT4"], "not there"),
        ([*ASKED, "--prices", "spt"], "did you mean 'spot'"),
        ([*ASKED, "--prices", "none.toml"], "none.toml"),
        ([*ASKED, "--calibration", "perfect"], "tuned"),
        ([*ASKED, "--measured", "none.csv"], "none.csv"),
        ([*ASKED, "--profiled-on", "V100"], "has no effect"),
        ([*ASKED, "--out", "a/b/c"], "not there"),
        ([*ASKED, "--out", "jobs.csv"], "there already"),
        ([*ASKED, "--within", "1us", *map(str, QUICK)], "the fastest plan takes"),
        ([*ASKED, "--budget", "1e-12usd", *map(str, QUICK), "--out", "x"], "the cheapest plan costs"),
    ],
)
def test_what_makes_no_sense_is_one_message_exit_code_2_and_no_file(hetsim, here, arguments, words):
    said = hetsim("recommend", *arguments)
    assert said.code == 2
    assert words in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
    assert [p.name for p in here.iterdir()] == ["jobs.csv"]


def test_methods_are_listed_and_may_be_chosen(hetsim):
    said = hetsim("recommend", "--list-methods")
    assert said.code == 0
    assert all(name in said.out for name in method_names())
    got = answer(hetsim, *MIXED, "--methods", "data-parallel")
    assert got["methods"] == ["data-parallel"]
    assert len(got["plan"]["stages"]) == 1


def test_the_help_has_examples(hetsim):
    said = hetsim("recommend", "--help")
    assert said.code == 0
    assert "Examples" in said.out
    assert "--within 1.2x-best-time" in said.out


def test_long_chains_and_max_load_splits_are_methods_by_name(hetsim):
    """Beside the others they can only help; alone they say whose plans were judged."""
    listed = hetsim("recommend", "--list-methods").out
    assert "chain" in listed and "maxload" in listed
    asked = ("--model", "gpt2-1.5b", "--batch", 64, "--gpus", "V100:4,P100:4", "--methods")
    alone, exact, both = (answer(hetsim, *asked, names) for names in ("chain", "exact", "exact,chain"))
    assert alone["methods"] == ["chain"] and len(alone["plan"]["stages"]) > 1
    assert both["plan"]["iteration_s"] == min(one["plan"]["iteration_s"] for one in (alone, exact))
    got = answer(hetsim, "--model", "inception-v3", "-b", 64, "--gpus", "T4:4", "--methods", "maxload")
    assert got["plan"]["gpus"].keys() == {"T4"} and got["plan"]["order"] and len(got["plan"]["stages"]) > 1


# -- micro-batches and transfers ---------------------------------------------------------------------------------------


def test_micro_batches_that_are_no_powers_of_two_are_planned(hetsim):
    """36 samples are cut into 12 micro-batches of three: powers of two leave unequal ones, and the larger counts."""
    about = ("--model", "gpt2-1.5b", "-b", 36, "--gpus", "A100:2,V100:6", *QUICK)
    usual, powers = answer(hetsim, *about)["plan"], answer(hetsim, *about, "--micro-batches", "1,2,4,8,16,32")["plan"]
    assert usual["micro_batches"] not in (1, 2, 4, 8, 16, 32)
    assert usual["iteration_s"] < 0.9 * powers["iteration_s"]
    assert len(usual["micro_batch_samples"]) == usual["micro_batches"]
    assert sum(usual["micro_batch_samples"]) == sum(powers["micro_batch_samples"]) == 36


def test_every_method_takes_the_micro_batches_that_are_asked_for(hetsim):
    about = ("--model", "gpt2-1.5b", "-b", 36, "--gpus", "A100:4", "--micro-batches", "6,12", *QUICK)
    for method in ("exact", "gpipe", "pipedream", "piper"):
        assert answer(hetsim, *about, "--methods", method)["plan"]["micro_batches"] in (6, 12), method


@pytest.mark.parametrize(("option", "waits"), [("--blocking", True), ("--blocking-both", "both")])
def test_transfers_block_as_in_perf(hetsim, option, waits):
    """The plan takes as long as `perf` says of the same stages, and longer than where they overlap."""
    about = ("--model", "gpt2-1.5b", "-b", 16, "--gpus", "V100:8", "--micro-batches", "8", "--no-mixed", *QUICK)
    got = answer(hetsim, *about, option)
    assert got["blocking"] == waits
    plan = got["plan"]
    assert len(plan["stages"]) > 1
    stages = [f"{s['gpus'][0]['gpus']}xV100@{s['first_op']}-{s['last_op']}" for s in plan["stages"]]
    perf = ("perf", "gpt2-1.5b", "-b", 16, "-m", 8, *(word for stage in stages for word in ("-s", stage)), "--json")
    blocked, free = (json.loads(hetsim(*perf, *more).out)["iteration_s"] for more in ((option,), ()))
    assert plan["iteration_s"] == pytest.approx(blocked)
    assert plan["iteration_s"] > free
    assert "wait" in hetsim("recommend", *about, option).out


def test_the_answer_names_the_method_that_found_the_plan(hetsim):
    """One method alone found what it proposes; of several, the first one, and search only what it made better."""
    alone = answer(hetsim, *MIXED, "--methods", "gpipe")
    assert {row["method"] for row in (alone["plan"], alone["homogeneous"], *alone["front"])} == {"gpipe"}
    several = answer(hetsim, *MIXED, "--methods", "exact,uneven,search")
    assert {row["method"] for row in several["front"]} <= {"exact", "uneven", "search"}
    without = answer(hetsim, *MIXED, "--methods", "exact,uneven")
    if several["plan"]["method"] != "search":
        assert several["plan"]["iteration_s"] == without["plan"]["iteration_s"]
    assert "found by gpipe" in hetsim("recommend", *MIXED, "--methods", "gpipe").out


def test_what_divides_the_batch_is_tried(hetsim):
    """50 samples that hardly fit on the GPUs: 25 micro-batches of two, not 32 of which some have two, some one."""
    about = ("--model", "gpt2-1.5b", "-b", 50, "--gpus", "V100:4,P100:4,T4:3", *QUICK)
    usual, powers = answer(hetsim, *about)["plan"], answer(hetsim, *about, "--micro-batches", "1,2,4,8,16,32")["plan"]
    assert 50 % usual["micro_batches"] == 0
    assert usual["iteration_s"] < 0.8 * powers["iteration_s"]


def test_machines_of_several_types_are_planned_where_they_are(hetsim, here):
    """A V100 and a CPU server in one machine: what crosses goes by PCIe, not by a slow network."""
    node = '[[nodes]]\ntype = "{}"\ncount = 1\ngpus = 1\nmachine = "box"\n'
    (here / "box.toml").write_text(node.format("V100") + node.format("CPU") + "[links]\nnetwork_gbits_per_s = 1\n")
    (here / "apart.toml").write_text((here / "box.toml").read_text().replace('machine = "box"\n', ""))
    asked = ("--model", "dlrm(rows=40000000, width=128)", "-b", 2048, "--optimizer", "sgd", *QUICK, "--cluster")
    box, apart = (answer(hetsim, *asked, name) for name in ("box.toml", "apart.toml"))
    assert box["plan"]["gpus"] == {"V100": 1, "CPU": 1}
    assert box["plan"]["iteration_s"] < apart["plan"]["iteration_s"]
    assert "machines of several types, which PCIe joins: 1 of 1 V100 and 1 CPU" in hetsim(
        "cluster", "show", "box.toml").out
    refused = ((("--per", "node"), "are not paid as a whole"), (("--node-gpus", 2), "nodes of several sizes"))
    for wrong, words in refused:
        said = hetsim("recommend", *asked, "box.toml", *wrong)
        assert said.code == 2 and words in " ".join(said.err.split())


def test_tables_divided_among_replicas_are_said_in_tables_and_json(hetsim, tmp_path):
    model = "dlrm(rows=195312500, width=128, tables=1)"
    asked = ("--model", model, "-b", 4096, "--gpus", "A100:8", "--optimizer", "sgd", *QUICK)
    plan = answer(hetsim, *asked)["plan"]
    assert [stage.get("sharded") for stage in plan["stages"]].count(True) == 1 and "sharded" in plan["layout"]
    said = hetsim("recommend", *asked, "--out", tmp_path / "out")
    assert said.code == 0 and "sharded" in said.out and (tmp_path / "out" / "stages.png").exists()
    refused = hetsim("recommend", *asked, "--sharded", "never")
    assert refused.code == 2 and "tables or experts divided among replicas" in refused.err
    wrong = hetsim("recommend", *asked, "--sharded", "sometimes")
    assert wrong.code == 2 and "never, maybe, always" in wrong.err
    assert "sharded" not in answer(hetsim, *MIXED)["plan"]["stages"][0]
