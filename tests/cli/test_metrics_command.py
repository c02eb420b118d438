"""`hetsim metrics`: what it prints, writes and refuses."""

from __future__ import annotations

import json

import pandas as pd
import pytest


@pytest.fixture
def played(hetsim):
    """The run `one`: three jobs on two V100 of one node."""
    said = hetsim("run", "--policy", "fifo", "--trace", "jobs.csv", "--work", "recorded", "--cluster", "v100:1x2",
                  "--out", "one", "--quiet")
    assert said.code == 0, said.err
    return hetsim


def test_a_line_a_measure_with_unit_and_meaning(played):
    said = played("metrics", "one")
    assert said.code == 0
    line = next(line for line in said.out.splitlines() if line.startswith("mean JCT "))
    assert "jct_mean_s" in line
    assert "job completion time, mean" in line
    assert " s " in line


def test_json_has_every_measure_in_full(played):
    from analysis.metrics import MEASURES, measures
    from analysis.run import load_run

    row = json.loads(played("metrics", "one", "--json").out)["fifo"]
    assert list(row) == list(MEASURES)
    assert row == measures(load_run("one"))


def test_a_window_says_which_jobs_count(played):
    said = played("metrics", "one", "--warmup", "10s", "--json")
    row = json.loads(said.out)["fifo"]
    assert (row["jobs"], row["window"]["jobs_there_at_begin"]) == (2, 1)
    assert "2 jobs submitted in it count" in played("metrics", "one", "--from", "10").err


@pytest.mark.parametrize(("by", "first"), [("user", ""), ("vc", ""), ("gpu_type", "V100"), ("job", "a")])
def test_tables_by_group(played, by, first):
    rows = json.loads(played("metrics", "one", "--by", by, "--json").out)["fifo"]
    assert rows[0]["job_id" if by == "job" else by] == first
    assert played("metrics", "one", "--by", by).code == 0


def test_csv_reads_back_and_is_not_overwritten(played):
    assert played("metrics", "one", "--by", "job", "--format", "csv", "--out", "jobs.out.csv").code == 0
    table = pd.read_csv("jobs.out.csv", dtype={"job_id": str})
    assert table.columns[:3].tolist() == ["run", "job_id", "jct_s"]
    assert table["job_id"].tolist() == ["a", "b", "c"]
    again = played("metrics", "one", "--format", "csv", "-o", "jobs.out.csv")
    assert (again.code, "is there already" in again.err) == (2, True)
    assert played("metrics", "one", "--format", "csv", "-o", "jobs.out.csv", "--force").code == 0
    assert pd.read_csv("jobs.out.csv")["jobs"].tolist() == [3]


@pytest.mark.parametrize(("kind", "first"), [("markdown", "| measure | fifo | unit"), ("latex", "% needs")])
def test_a_table_for_a_paper(played, kind, first):
    assert played("metrics", "one", "--format", kind).out.startswith(first)
    table = played("metrics", "one", "--by", "gpu_type", "--format", kind).out
    assert "V100" in table
    assert ("| run | gpu_type |" in table) == (kind == "markdown")


def test_json_to_a_file(played):
    said = played("metrics", "one", "--json", "--out", "new/one.json")
    assert (said.code, said.out) == (0, "")
    with open("new/one.json", encoding="utf-8") as file:
        assert json.load(file)["fifo"]["jobs"] == 3


def test_what_n_is_reaches_the_tables(played):
    from analysis.metrics import per_job
    from analysis.run import load_run

    rows = json.loads(played("metrics", "one", "--by", "job", "--fairness", "max", "--json").out)["fifo"]
    rho = [row["rho"] for row in rows]
    assert rho == per_job(load_run("one"), "max")["rho"].tolist() != per_job(load_run("one"))["rho"].tolist()


def test_a_price_and_what_is_paid_for(played):
    row = json.loads(played("metrics", "one", "--price", "on-demand", "--per", "node", "--json").out)["fifo"]
    assert row["cost_on_demand_per_node_usd"] >= row["cost_on_demand_usd"] > 0


def test_a_price_that_nobody_knows_is_no_lower_bound_of_0(played):
    said = played("metrics", "one", "--price", "spot", "--json")
    row = json.loads(said.out)["fifo"]
    assert (row["cost_spot_usd"], row["cost_spot_known_usd"]) == (None, None)
    assert "No spot price is known for" in said.err
    assert "[prices_usd_per_gpu_h]" in said.err


def test_jobs_of_a_window_are_followed_to_their_end_unless_they_are_clipped(played):
    cut, followed, unasked = (json.loads(played("metrics", "one", "--to", "50%", *more, "--json").out)["fifo"]
                              for more in (("--clip",), ("--follow",), ()))
    assert unasked == followed
    assert cut["jobs"] == followed["jobs"] == followed["jobs_finished"] + followed["jobs_rejected"]
    assert cut["held_gpu_h"] == followed["held_gpu_h"]
    assert cut["jobs_censored"] == cut["jobs_unfinished"] > 0 == followed["jobs_censored"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--by", "users"), "did you mean 'user'"),
        (("--fairness", "men"), "did you mean 'mean'"),
        (("--price", "spott"), "did you mean 'spot'"),
        (("--per", "nodes"), "did you mean 'node'"),
        (("--warmup", "a while"), "10% of the time of submissions"),
        (("--to", "99d"), "within the run"),
        (("--format", "latx"), "did you mean 'latex'"),
        (("--format", "csv", "--json"), "Leave out one of them"),
        (("--by", "vc", "--price", "spot"), "are of whole runs"),
        (("--by", "job", "--per", "node"), "are of whole runs"),
        (("--by", "gpu_type", "--fairness", "max"), "GPU types have none"),
        (("-o", "jobs.csv/table.csv"), "the file cannot be written"),
    ],
)
def test_what_is_asked_wrongly_is_said_with_exit_code_2(played, arguments, says):
    said = played("metrics", "one", *arguments)
    assert said.code == 2
    assert says in " ".join(said.err.split())


def test_help_has_examples(hetsim):
    assert "hetsim metrics runs --warmup 10%" in hetsim("metrics", "--help").out
