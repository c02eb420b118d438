"""Prices through the commands: a run and a recommendation at the same prices, whole nodes, nodes of several prices."""

from __future__ import annotations

import json
import math

import pytest

from analysis.audit import audit
from analysis.compare.bill import Bill
from analysis.metrics.costs import cost_usd
from analysis.run import load_run
from analysis.sweeps import load_sweep

RESNET = ("recommend", "--model", "resnet50", "-b", 64, "--max-gpus", 1, "--objective", "cost", "--iterations", 1000,
          "--evaluations", 20, "--json")
EUR = """[[prices]]
gpu_type = "A100"
kind = "spot"
amount_per_h = 73.6
per = "node"
node_gpus = 8
currency = "EUR"
currency_per_usd = 0.92
date = "2025-11-30"
source = "mine"
"""


def told(said):
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_r3_15_a_run_at_a_file_of_prices_costs_what_the_recommendation_says(hetsim, here):
    """73.6 EUR for eight A100 at 0.92 a USD are 10 USD for one. 1,000 iterations on one A100, both ways."""
    (here / "eur.toml").write_text(EUR)
    plan = told(hetsim(*RESNET, "--gpus", "A100:8", "--prices", "eur.toml"))["plan"]
    assert plan["usd_per_iteration"] == pytest.approx(7.3575e-5, rel=1e-4)
    (here / "one.csv").write_text("job_id,submit_s,duration_s,num_gpus,model,batch_size,work_iters\n"
                                  "a,0,1,1,resnet50,64,1000\n")
    played = ("run", "--trace", "one.csv", "--cluster", "a100:8", "--policy", "fifo", "--out", "r", "--json", "-q",
              "--calibration", "tuned", "--force", "--prices")
    got = told(hetsim(*played, "eur.toml"))
    assert got["cost_usd"] == pytest.approx(plan["usd_per_job"], rel=1e-9)
    run = load_run("r")
    assert cost_usd(run, per="node") == pytest.approx(8 * plan["usd_per_job"], rel=1e-9)
    assert run.info["config"]["prices"] == "eur.toml"
    assert told(hetsim(*played, "spot"))["cost_usd"] is None
    for what, words in (("none.toml", "no such file"), ("spott", "did you mean 'spot'")):
        said = hetsim(*played, what)
        assert said.code == 2 and words in said.err.replace("\n", " ")


@pytest.mark.parametrize(("amount", "rate", "words"), [
    (1e6, 1e-305, "currency_per_usd from 0.000001"), (1e9, 0.1, "got '1e+10 USD an hour'; allowed: 0 to 1,000,000 USD"),
])
def test_f49_a_price_that_is_impossible_in_usd_is_refused_before_anything_is_written(hetsim, here, amount, rate, words):
    row = EUR.replace("73.6", str(amount)).replace("0.92", str(rate))
    (here / "eur.toml").write_text(row)
    (here / "priced.toml").write_text('[[nodes]]\ntype = "A100"\ncount = 1\ngpus = 8\n' + row)
    run = ("run", "--trace", "jobs.csv", "--work", "recorded", "--policy", "fifo", "--out", "r", "-q", "--cluster")
    for command in ((*run, "a100:8", "--prices", "eur.toml"), (*run, "priced.toml"),
                    (*RESNET, "--gpus", "A100:8", "--prices", "eur.toml"), ("cluster", "show", "priced.toml")):
        said = hetsim(*command)
        told_of = " ".join(said.err.split())
        assert said.code == 2 and words in told_of and "prices.0" in told_of, told_of
    assert not (here / "r").exists()


@pytest.mark.parametrize(("gpus", "per", "layout", "usd"), [
    ("A100:8", "gpu", "1 A100", 0.020194), ("A100:8", "node", "1 A100", 0.16155),
    ("A100:8,T4:1", "gpu", "1 A100", 0.020194), ("A100:8,T4:1", "node", "1 T4", 0.02216),
])
def test_r3_10_who_rents_pays_whole_nodes(hetsim, gpus, per, layout, usd):
    got = told(hetsim(*RESNET, "--gpus", gpus, "--per", per))
    assert got["plan"]["layout"] == layout
    assert got["plan"]["usd_per_job"] == pytest.approx(usd, rel=1e-3)
    assert got["bound"]["gap_cost"] == pytest.approx(0, abs=1e-6)
    assert got["gpus"][0]["rented_gpus"] == (8 if per == "node" else 1)


def test_r3_10_the_node_is_that_of_the_option_or_the_cluster(hetsim):
    four = told(hetsim(*RESNET, "--gpus", "A100:8", "--per", "node", "--node-gpus", 4))
    of_cluster = told(hetsim(*RESNET, "--cluster", "a100:2x4", "--per", "node"))
    assert four["plan"]["usd_per_job"] == of_cluster["plan"]["usd_per_job"] == pytest.approx(4 * 0.020194, rel=1e-3)
    said = hetsim(*RESNET[:-1], "--gpus", "A100:8", "--per", "node")
    assert "paid for: whole nodes (A100 of 8)" in said.out
    t4 = told(hetsim(*RESNET, "--gpus", "T4:8", "--per", "node", "--node-gpus", 8))
    assert t4["gpus"][0]["price_usd_per_h"] == pytest.approx(7.824 / 8)
    assert told(hetsim(*RESNET, "--gpus", "T4:8", "--node-gpus", 8))["gpus"][0]["price_usd_per_h"] == 0.526
    said = hetsim(*RESNET, "--gpus", "A100:8", "--per", "rack")
    assert said.code == 2 and "--per" in said.err and "gpu, node" in said.err


def test_r3_14_spot_and_on_demand_nodes_of_one_type_are_billed_each_at_its_price(hetsim, here):
    """One T4 on demand and five spot ones, all held for an hour: 0.526 + 5 x 0.158 USD, not six times any price."""
    group = '[[nodes]]\ntype = "T4"\ncount = {0}\ngpus = 1\nprice_usd_per_gpu_h = {1}\n'
    (here / "t4.toml").write_text(group.format(1, 0.526) + group.format(5, 0.158))
    (here / "six.csv").write_text("job_id,submit_s,duration_s,num_gpus\na,0,3600,6\n")
    got = told(hetsim("run", "--trace", "six.csv", "--cluster", "t4.toml", "--policy", "fifo", "--work", "recorded",
                      "--out", "r", "--json", "-q"))
    assert got["cost_usd"] == pytest.approx(1.316)
    run = load_run("r")
    assert audit(run).ok
    assert Bill().of_jobs(run)[0, 0] == pytest.approx(1.316)
    assert cost_usd(run, "on-demand") == pytest.approx(6 * 0.526)


def test_r3_15_prices_are_an_axis_of_a_sweep_and_another_content_of_the_file_is_another_cell(
    hetsim, here, sweeps_here
):
    """Jobs hold 1 x 100 + 2 x 50 + 1 x 30 = 230 GPU-s: at 10 USD an hour, then at 20."""
    (here / "s.toml").write_text('[run]\ntrace = "jobs.csv"\ncluster = "a100:8"\nwork = "recorded"\npolicy = "fifo"\n'
                                 '[sweep]\nprices = ["spot", "eur.toml"]\n')
    for euros, usd in ((73.6, 10), (147.2, 20)):
        (here / "eur.toml").write_text(EUR.replace("73.6", str(euros)))
        rows = load_sweep(told(hetsim("sweep", "s.toml", "--json"))["folder"]).table().set_index("prices")
        assert rows.loc["eur.toml", "cost_usd"] == pytest.approx(230 / 3600 * usd)
        assert math.isnan(rows.loc["spot", "cost_usd"])
