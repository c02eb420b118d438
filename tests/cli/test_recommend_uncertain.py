"""`hetsim recommend --uncertain`: which runs are worth their cost, and the plan before and after them."""

from __future__ import annotations

import json

import pytest

ASKED = ("--model", "resnet50", "--batch", 64, "--gpus", "T4:2,L4:2", "--methods", "exact")
LONG = (*ASKED, "--iterations", 10_000_000)


def answer(hetsim, *arguments):
    said = hetsim("recommend", *arguments, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def runs(got):
    return {run["gpu_type"]: run for run in got["runs"]}


def write_runs(here, got, factor):
    """Measured: so many times what is modelled, on each type that is named."""
    modelled = {name: runs(got)[name]["modelled_s"] for name in factor}
    rows = [f"{name},{kind},{s * factor[name]!r}" for name in factor for kind, s in modelled[name].items() if s > 0]
    (here / "runs.csv").write_text("gpu_type,kind,seconds\n" + "\n".join(rows) + "\n")


def test_a_long_job_is_worth_runs_and_a_short_one_is_not(hetsim):
    long, short = answer(hetsim, *LONG, "--uncertain", "auto"), answer(hetsim, *ASKED, "--iterations", 10,
                                                                        "--uncertain", "auto")  # fmt: skip
    assert any(run["make"] for run in long["runs"]) and long["stopped"] == ""
    assert not any(run["make"] for run in short["runs"]) and short["stopped"] == "nothing is worth its cost"
    assert all(run["run_s"] > 180 and run["run_usd"] > 0 and not run["made"] for run in long["runs"])


def test_what_is_certain_needs_no_run_and_is_the_plan_of_the_methods(hetsim):
    got = answer(hetsim, *LONG, "--uncertain", "0")
    assert not any(run["make"] for run in got["runs"]) and got["expected_regret"] == 0
    plain = answer(hetsim, *ASKED)
    assert got["plan"]["iteration_s"] == pytest.approx(plain["plan"]["iteration_s"]) == got["expected"]
    assert got["deviation"] == {"T4": 0.0, "L4": 0.0}


def test_runs_that_were_made_correct_the_plan_and_leave_less_doubt(hetsim, here):
    before = answer(hetsim, *LONG, "--uncertain", "30%")
    write_runs(here, before, {"T4": 0.2, "L4": 30.0})
    after = answer(hetsim, *LONG, "--uncertain", "30%", "--runs", "runs.csv")
    assert set(before["plan"]["gpus"]) != {"T4"} and set(after["plan"]["gpus"]) == {"T4"}
    assert after["stopped"] == "all profiled" and all(run["made"] for run in after["runs"])
    assert all(after["deviation"][name] < 0.2 * before["deviation"][name] for name in ("T4", "L4"))
    assert after["expected_regret"] < before["expected_regret"]


def test_a_budget_forbids_runs_that_it_cannot_pay(hetsim):
    got = answer(hetsim, *LONG, "--objective", "cost", "--uncertain", "auto", "--profile", "0.0001usd")
    assert got["stopped"] == "budget" and not any(run["make"] for run in got["runs"])


def test_the_tables_say_what_to_do(hetsim):
    said = hetsim("recommend", *LONG, "--uncertain", "auto")
    assert said.code == 0
    for word in ("make it", "ask again with --runs", "expected regret", "conv", "deviation of operator times"):
        assert word in said.out, word
    assert "--uncertain" in hetsim("recommend", "--help").out


@pytest.mark.parametrize(("arguments", "words"), [
    ((*ASKED, "--uncertain", "auto"), "--iterations N with --uncertain"),
    ((*LONG, "--uncertain", "much"), "auto, or a number from 0 to 2"),
    ((*LONG, "--uncertain", "300%"), "auto, or a number from 0 to 2"),
    ((*LONG, "--uncertain", "-1"), "auto, or a number from 0 to 2"),
    ((*LONG, "--profile", "5usd"), "--profile with --uncertain"),
    ((*LONG, "--runs", "runs.csv"), "--runs with --uncertain"),
    ((*LONG, "--uncertain", "auto", "--profile", "5"), "--profile"),
    ((*LONG, "--uncertain", "auto", "--keep", "2xT4"), "without it"),
    ((*LONG, "--uncertain", "auto", "--within", "1s"), "without it"),
    ((*LONG, "--uncertain", "auto", "--objective", "front"), "time, cost"),
    ((*LONG, "--uncertain", "auto", "--methods", "search"), "one beside search"),
    ((*LONG, "--uncertain", "auto", "--out", "there"), "--json"),
    ((*LONG, "--uncertain", "auto", "--runs", "missing.csv"), "missing.csv"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(hetsim, here, arguments, words):
    said = hetsim("recommend", *arguments)
    assert said.code == 2 and words in said.err, said.err
    assert "Traceback" not in said.err and not said.out


@pytest.mark.parametrize(("text", "words"), [
    ("gpu,kind,seconds\n", "header"),
    ("gpu_type,kind,seconds\nT4,conv,0\n", "line 2"),
    ("gpu_type,kind,seconds\nT4,conv,much\n", "line 2"),
    ("gpu_type,kind,seconds\nA100,conv,1\n", "T4, L4"),
    ("gpu_type,kind,seconds\nT4,conf,1\n", "conv"),
    ("gpu_type,kind,seconds\nT4,conv,1\nT4,conv,2\n", "line 3"),
    ("gpu_type,kind,seconds\nT44,conv,1\n", "T4"),
])  # fmt: skip
def test_a_file_of_runs_is_read_strictly(hetsim, here, text, words):
    (here / "runs.csv").write_text(text)
    said = hetsim("recommend", *LONG, "--uncertain", "auto", "--runs", "runs.csv")
    assert said.code == 2 and words in said.err, said.err
