"""The commands around a run: policies, clusters, traces, audit, compare, figures, check."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from policies.registry import find, names
from traces.load import load_trace

COMMANDS = [
    ["run"],
    ["perf"],
    ["policies"],
    ["check"],
    ["audit"],
    ["compare"],
    ["figures"],
    ["trace", "describe"],
    ["trace", "check"],
    ["trace", "convert"],
    ["trace", "again"],
    ["trace", "formats"],
    ["cluster", "show"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples(hetsim, command):
    said = hetsim(*command, "--help")
    assert said.code == 0
    assert "Examples:" in said.out
    assert f"hetsim {' '.join(command)}" in said.out.split("Examples:")[1]


def test_help_lists_the_commands_and_version_is_a_number(hetsim):
    said = hetsim("--help")
    assert all(f"  {command[0]} " in said.out for command in COMMANDS)
    assert hetsim("--version").out.strip().replace(".", "").isdigit()


def test_policies_lists_each_with_a_line(hetsim):
    said = hetsim("policies")
    assert said.code == 0
    for name in names():
        assert name in said.out
    assert "First in, first out, with head-of-line blocking" in said.out


@pytest.mark.parametrize("name", names())
def test_a_policy_in_full_lists_every_setting_with_default_choices_and_needs(hetsim, name):
    said = hetsim("policies", name)
    assert said.code == 0
    policy = find(name)
    for setting, field in policy.settings().items():
        row = next(line for line in said.out.splitlines() if line.startswith(f"│ {setting} "))
        assert str(field.default).lower() in row.lower()
        assert all(choice in said.out for choice in field.metadata["choices"])
    assert ("believed run times (--estimate)" in " ".join(said.out.split())) == policy.needs_estimates
    assert ("--work iterations" in said.out) == policy.needs_performance


def test_cluster_show_has_nodes_memory_prices_with_source_and_links(hetsim):
    said = hetsim("cluster", "show", "v100:8x4+t4:2x8+h200:1")
    assert "11 nodes, 49 GPUs" in said.out
    v100 = next(line for line in said.out.splitlines() if "V100" in line and "AWS" in line)
    for cell in ("8 × 4", "32", "16", "3.06", "AWS p3.2xlarge"):
        assert cell in v100
    assert "unknown" in next(line for line in said.out.splitlines() if line.startswith("│ H200"))
    assert "12.5 within a rack" in said.out


def test_cluster_show_without_a_name_lists_the_presets(hetsim):
    said = hetsim("cluster", "show")
    for name in ("gavel", "homog64", "mixed", "pai", "philly"):
        assert name in said.out


def test_describe_gives_the_numbers_and_the_load(hetsim):
    summary = json.loads(hetsim("trace", "describe", "jobs.csv", "--cluster", "v100:2", "--json").out)
    assert summary["jobs"] == 3
    assert summary["gpu_hours"] == pytest.approx(230 / 3600)
    assert summary["load"]["total"] == pytest.approx(230 / (20 * 2))
    text = hetsim("trace", "describe", "jobs.csv", "--cluster", "v100:2").out
    assert "5.750 on V100: above 1" in text


def test_describe_a_generated_trace(hetsim):
    said = hetsim("trace", "describe", "pai", "--jobs", 50, "--seed", 2)
    assert said.code == 0
    assert "50; 300,516 rows were read" in said.out


def test_check_counts_what_is_odd_and_fails_only_when_strict(hetsim, here):
    assert "nothing odd" in hetsim("trace", "check", "jobs.csv", "--strict").out
    (here / "odd.csv").write_text("job_id,submit_s,duration_s,num_gpus\na,0,0,1\nb,5,1,64\n")
    lax, strict = (
        hetsim("trace", "check", "odd.csv", "--cluster", "v100:2"),
        hetsim("trace", "check", "odd.csv", "--strict"),
    )
    assert "1 zero-length jobs (first: a)" in lax.out
    assert "1 jobs wider than 2 GPUs: they can never run (first: b)" in lax.out
    assert (lax.code, strict.code) == (0, 1)


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_convert_keeps_each_value_and_describes_the_file(hetsim, here, name):
    said = hetsim("trace", "convert", "philly", name, "--jobs", 40, "--seed", 6)
    assert said.code == 0
    about = json.loads((here / f"{name}.json").read_text("utf-8"))
    assert (about["jobs"], about["source"], about["seed"]) == (40, "synthetic philly", 6)
    assert load_trace(here / name).content_hash() == about["sha256"]
    assert hetsim("trace", "convert", "jobs.csv", name, "--force").code == 0
    assert len(load_trace(here / name)) == 3


def test_a_converted_trace_runs_like_its_source(hetsim, replay, here):
    hetsim("trace", "convert", "jobs.csv", "jobs.parquet")
    replay("--out", "one")
    replay("--trace", "jobs.parquet", "--out", "two")
    assert (here / "one/segments.parquet").read_bytes() == (here / "two/segments.parquet").read_bytes()


def test_a_deep_audit_makes_the_run_again(replay, hetsim, here):
    replay("--out", "out")
    said = hetsim("audit", "out", "--deep")
    assert said.code == 0
    assert "deep: a second run gives the same" in said.out
    (here / "jobs.csv").write_text((here / "jobs.csv").read_text().replace("c,20,30", "c,20,31"))
    said = hetsim("audit", "out", "--deep")
    assert said.code == 1
    assert "deep: jobs and their work are those of the trace: the settings give a trace of hash" in said.out
    assert hetsim("audit", "out").code == 0
    (here / "out/run.json").write_text((here / "out/run.json").read_text().replace('"code_hash": "', '"code_hash": "0'))
    said = hetsim("audit", "out", "--deep")
    assert said.code == 2
    assert "made by other code" in said.err


def test_audit_passes_a_run_and_names_the_first_violation_of_a_forged_one(replay, hetsim, here):
    replay("--out", "out")
    said = hetsim("audit", "out")
    assert said.code == 0
    assert "laws hold" in said.out
    file = here / "out/segments.parquet"
    table = pq.read_table(file)
    begin = table["begin_s"].to_numpy().copy()
    row = table["job_id"].to_pylist().index("c")
    begin[row] = 5.0  # before its submit at 20 s, on GPUs that others hold
    pq.write_table(table.set_column(1, table.schema.field("begin_s"), [np.asarray(begin)]), file)
    said = hetsim("audit", "out")
    assert said.code == 1
    first = next(line for line in said.out.splitlines() if "FIRST VIOLATION" in line)
    assert "job 'c'" in first
    assert "5 s" in first


def test_compare_pairs_jobs_and_writes_the_table(replay, hetsim, here):
    for policy in ("fifo", "fifo-skip"):
        replay("--policy", policy, "--out", f"runs/{policy}")
    assert "3 jobs finished in all runs" in hetsim("compare", "runs").out
    assert hetsim("compare", "runs", "--format", "csv", "--out", "table.csv").code == 0
    rows = {row["run"]: row for row in csv.DictReader((here / "table.csv").read_text("utf-8").splitlines())}
    # fifo-skip lets c pass b: c runs 20-50 beside a, so JCTs are 100, 140, 30.
    assert float(rows["fifo"]["jct_mean_s"]) == pytest.approx(400 / 3)
    assert float(rows["fifo-skip"]["jct_mean_s"]) == pytest.approx(270 / 3)
    assert float(rows["fifo-skip"]["jct_mean_ratio"]) == pytest.approx(270 / 400)


def test_compare_refuses_runs_of_different_traces_unless_told(replay, hetsim, here):
    replay("--out", "one")
    replay("--out", "two", "--load", 0.5)
    said = hetsim("compare", "one", "two")
    assert said.code == 2
    assert "different traces" in said.err
    assert hetsim("compare", "one", "two", "--different-traces").code == 0


def test_figures_of_a_folder_of_runs(replay, hetsim, here):
    replay("--out", "runs/one")
    said = hetsim("figures", "runs", "-o", "drawn", "--format", "png")
    assert said.code == 0
    files = said.out.split()
    assert "drawn/jct_cdf.png" in files
    assert all((here / file).read_bytes().startswith(b"\x89PNG") for file in files)
    assert {file.name for file in (here / "drawn").iterdir()} == {file.split("/")[1] for file in files}


def test_check_runs_the_conformance_suite(hetsim):
    said = hetsim("check", "fifo")
    assert said.code == 0, said.out
    assert "checks passed" in said.out
    assert "each job ends" in said.out


def test_check_fails_for_a_policy_that_breaks_a_rule(hetsim, monkeypatch):
    from dataclasses import dataclass

    import policies.registry
    from sim.api import Decision, Policy

    @dataclass
    class Idle(Policy):
        """Never starts anything."""

        def decide(self, view):
            return Decision()

    monkeypatch.setitem(policies.registry._ours(), "idle", Idle)
    said = hetsim("check", "idle")
    assert said.code == 1
    assert "FAILED" in said.out
    assert "one job: each job ends" in said.out


def test_a_real_trace_runs_from_the_command_line(hetsim, data_dir):
    file = data_dir / "philly" / "philly.csv"
    said = hetsim(
        "run", "--policy", "fifo", "--trace", file, "--jobs", 200, "--work", "recorded", "--json", "--out", "out"
    )
    assert said.code == 0, said.err
    result = json.loads(said.out)
    assert result["jobs_finished"] + result["jobs_rejected"] == 200
    assert hetsim("audit", "out").code == 0


def test_jobs_table_matches_the_trace(replay, here):
    replay("--out", "out")
    jobs = pq.read_table(here / "out/jobs.parquet").to_pandas()
    pd.testing.assert_frame_equal(
        jobs[["job_id", "submit_s", "duration_s"]],
        load_trace(here / "jobs.csv").to_frame()[["job_id", "submit_s", "duration_s"]].astype({"job_id": "str"}),
        check_dtype=False,
    )
