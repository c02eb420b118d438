"""`hetsim compare`: formats, files, baselines, windows and repetitions, as a user calls it."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def runs(replay):
    for policy in ("fifo", "fifo-skip"):
        replay("--policy", policy, "--out", f"runs/{policy}")


def test_formats_are_printed_or_written(runs, hetsim, here):
    """fifo-skip lets c pass b: mean JCT 400 / 3 -> 90 s."""
    assert "| fifo-skip | 90.00 | 0.675 (" in hetsim("compare", "runs", "--format", "markdown").out
    assert hetsim("compare", "runs", "--format", "latex", "-o", "table.tex").code == 0
    text = (here / "table.tex").read_text("utf-8")
    assert r"\toprule" in text
    assert "fifo-skip & 90.00 & 0.675 (" in text
    assert hetsim("compare", "runs", "--format", "csv").out.startswith("run,jct_mean_s,")


def test_the_sentence_says_better_by_how_much_and_on_what_basis(runs, hetsim):
    out = " ".join(hetsim("compare", "runs").out.split())
    assert "in mean JCT" in out
    assert "(95 %, 3 jobs)" in out
    assert "(80 %, 3 jobs)" in " ".join(hetsim("compare", "runs", "--level", 0.8).out.split())


def test_a_file_that_is_there_is_kept_unless_forced(runs, hetsim, here):
    (here / "table.csv").write_text("mine")
    said = hetsim("compare", "runs", "--out", "table.csv")
    assert said.code == 2
    assert "there already" in said.err
    assert (here / "table.csv").read_text() == "mine"
    assert hetsim("compare", "runs", "--format", "csv", "--out", "table.csv", "--force").code == 0
    assert (here / "table.csv").read_text("utf-8").startswith("run,")
    assert {file.name for file in here.iterdir()} == {"jobs.csv", "runs", "table.csv"}


def test_another_policy_can_be_the_baseline(runs, hetsim):
    lines = hetsim("compare", "runs", "--baseline", "fifo-skip", "--format", "csv").out.splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["fifo-skip", "fifo"]
    said = hetsim("compare", "runs", "--baseline", "fifo-skp")
    assert said.code == 2
    assert "did you mean 'fifo-skip'?" in said.err


def test_a_run_can_be_the_baseline_where_all_have_one_policy(replay, hetsim):
    for name in ("a", "b"):
        replay("--policy", "fifo", "--out", f"runs/{name}")
    said = hetsim("compare", "runs", "--baseline", "b", "--format", "csv")
    assert [line.split(",")[0] for line in said.out.splitlines()[1:]] == ["fifo (b)", "fifo (a)"]
    same = hetsim("compare", "runs", "--baseline", "runs/b", "--format", "csv")
    assert same.out == said.out
    said = hetsim("compare", "runs", "--baseline", "c")
    assert said.code == 2
    assert "allowed: fifo, a, b" in said.err


def test_json_is_all_of_it(runs, hetsim):
    said = hetsim("compare", "runs", "--json")
    found = json.loads(said.out)
    assert list(found["policies"]) == ["fifo", "fifo-skip"]
    assert (found["jobs"], found["paired"]) == (3, 3)
    assert "in mean JCT" in found["verdicts"][0]
    said = hetsim("compare", "runs", "--json", "--format", "csv")
    assert said.code == 2
    assert "say the same" in said.err


def test_what_a_rented_cluster_costs_can_be_compared(runs, hetsim):
    plain, whole = (json.loads(hetsim("compare", "runs", "--json", *options).out)["policies"]["fifo-skip"]
                    for options in ((), ("--price", "on-demand", "--per", "cluster")))
    assert whole["cost_usd"] > plain["cost_usd"] > 0
    said = hetsim("compare", "runs", "--per", "clusters")
    assert said.code == 2
    assert "did you mean 'cluster'?" in said.err


def test_a_measuring_window_leaves_out_what_is_submitted_outside(runs, hetsim):
    said = hetsim("compare", "runs", "--from", "5")
    assert said.code == 0
    assert "2 jobs finished in all runs" in said.out
    assert "Only jobs submitted from 5 s to the end" in said.out


def test_seeds_of_a_policy_are_paired(replay, hetsim):
    for policy in ("fifo", "fifo-skip"):
        for seed in (0, 1):
            replay("--policy", policy, "--seed", seed, "--load", 0.5 + seed, "--out", f"runs/{policy}-{seed}")
    out = " ".join(hetsim("compare", "runs").out.split())
    assert "6 jobs of 2 seeds finished in all runs" in out
    assert "several loads (0.5, 1.5)" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "latx"], "did you mean 'latex'?"),
        (["--level", 95], "confidence level"),
        (["--level", "nan"], "confidence level"),
        (["--seed", -1], "--seed"),
    ],
)
def test_wrong_options_are_said(runs, hetsim, options, words):
    said = hetsim("compare", "runs", *options)
    assert said.code == 2
    assert words in said.err
    assert said.out == ""
