"""The page of queries is true: its code runs, pandas, DuckDB and Polars agree, and so do hetsim's own metrics."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from analysis.metrics import by_group, jct_s, measures, queue_s, utilisation
from analysis.run import Run, load_run
from sim.cli import app
from tests.conftest import ROOT

duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")

PAGE = (ROOT / "docs" / "queries.md").read_text("utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECTIONS = {
    part.splitlines()[0]: [code for language, code in FENCE.findall(part.split("\n## ")[0]) if language == "python"]
    for part in PAGE.split("\n### ")[1:]
}
RUNS = ("runs/fifo-skip", "runs/hetero")

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page's commands were called."""
    folder = tmp_path_factory.mktemp("queries")
    blocks = FENCE.findall(PAGE)
    (toml,) = (code for language, code in blocks if language == "toml")
    (folder / "loads.toml").write_text(toml)
    commands = re.findall(r"^hetsim (run .*)$", PAGE, re.MULTILINE)
    commands.append(re.search(r"`hetsim (sweep loads\.toml)`", PAGE)[1] + " --workers 1")
    assert [command.split("--out ")[1] for command in commands[:-1]] == list(RUNS)
    with contextlib.chdir(folder):
        for command in commands:
            done = CliRunner().invoke(app, [*command.split(), "--quiet"])
            assert done.exit_code == 0, (command, done.output)
    return folder


@pytest.fixture(scope="module")
def answers(place: Path) -> dict[str, list[list[dict[str, Any]]]]:
    """By section, the rows that each of its blocks gives, in order of their names."""
    space: dict[str, Any] = {}
    found: dict[str, list[list[dict[str, Any]]]] = {}
    first = next(code for language, code in FENCE.findall(PAGE) if language == "python")
    with contextlib.chdir(place):
        exec(compile(first, "imports", "exec"), space)
        for section, codes in SECTIONS.items():
            for code in codes:
                exec(compile(code, section, "exec"), space)
                found.setdefault(section, []).append(rows(space.pop("answer")))
    return found


def rows(answer: Any) -> list[dict[str, Any]]:
    """Rows of a DataFrame of pandas or Polars, or of a relation of DuckDB; NaN as None."""
    if isinstance(answer, pd.DataFrame):
        records = answer.to_dict("records")
    elif hasattr(answer, "to_dicts"):
        records = answer.to_dicts()
    else:
        records = [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]
    plain = [{name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
             for row in records]
    return sorted(plain, key=lambda row: [value if isinstance(value, str | int) else 0 for value in row.values()]
                  + [row.get("load", 0)])


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Names and texts alike, numbers within 1e-9 (a millionth of a second: sums in another order)."""
    assert [row.keys() for row in one] == [row.keys() for row in other]
    for mine, yours in zip(one, other, strict=True):
        numbers = {name for name, value in yours.items() if isinstance(value, int | float)}
        assert [mine[name] for name in numbers] == pytest.approx([yours[name] for name in numbers], rel=1e-9, abs=1e-6)
        assert {n: v for n, v in mine.items() if n not in numbers} == {
            n: v for n, v in yours.items() if n not in numbers}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_three_agree(answers: dict[str, list[list[dict[str, Any]]]], section: str) -> None:
    assert [code.splitlines()[0] for code in SECTIONS[section]] == ["# pandas", "# DuckDB", "# Polars"]
    first, *others = answers[section]
    assert first
    for other in others:
        same(first, other)


@pytest.fixture(scope="module")
def hetero(place: Path) -> Run:
    return load_run(place / "runs" / "hetero")


def test_the_run_has_what_the_pitfalls_are_about(hetero: Run) -> None:
    """Shares of GPUs, segments on several nodes, nodes that fail, prices that are unknown."""
    segments, nodes = hetero.segments, hetero.nodes
    assert (segments["gpu_milli"] < 1000).any() and (segments["nodes"].map(len) > 1).any()
    assert segments["job_id"].duplicated().any() and hetero.jobs["end_s"].isna().any()
    assert nodes["down_s"].map(len).sum() > 0 and (nodes["down_s"].map(len) > nodes["up_s"].map(len)).any()
    assert nodes["price_usd_per_gpu_h"].isna().any() and nodes["price_usd_per_gpu_h"].notna().any()


def test_answers_about_one_run_are_those_of_the_metrics(
        answers: dict[str, list[list[dict[str, Any]]]], hetero: Run) -> None:
    given = {section: blocks[0] for section, blocks in answers.items()}
    measured = measures(hetero)
    same(given["JCT: mean and 99th percentile"], [{name: measured[name] for name in ("jct_mean_s", "jct_p99_s")}])
    waits = pd.Series(queue_s(hetero)).groupby(hetero.jobs["num_gpus"]).quantile(0.99).dropna()
    same(given["Queueing by gang size: 99th percentile"],
         [{"num_gpus": gang, "queue_p99_s": wait} for gang, wait in waits.items()])
    users = by_group(hetero, "user")["held_gpu_h"].sort_index()
    same(given["GPU-hours by user"], [{"user": user, "gpu_h": gpu_h} for user, gpu_h in users.items() if gpu_h > 0])
    shares = utilisation(hetero)
    same(given["Utilisation by GPU type"],
         [{"gpu_type": kind, "utilisation": shares[kind]} for kind in sorted(hetero.types)])
    (cost,) = given["Cost where prices are unknown"]
    assert cost["at_least_usd"] == pytest.approx(measured["cost_known_usd"])
    assert cost["unknown_gpu_h"] > 0 and measured["cost_usd"] is None
    plans = given["Jobs and the plans that they ran by"]
    assert sum(row["plans"] for row in plans) == len(hetero.plans.groupby(["job_id", "begin_s"]))


def test_answers_about_several_runs_are_those_of_each(
        answers: dict[str, list[list[dict[str, Any]]]], place: Path) -> None:
    runs = [load_run(place / name) for name in RUNS]
    same(answers["Mean JCT of each run of a folder"][0],
         [{"run": run.path.name, "jct_mean_s": float(np.nanmean(jct_s(run)))} for run in runs])
    counted = answers["Jobs done and failed by policy, whatever wrote the runs"][0]
    assert {(row["policy"], row["state"]): row["jobs"] for row in counted} == {
        (run.policy, state): n for run in runs for state, n in run.jobs["state"].value_counts().items()}


def test_runs_that_lack_columns_or_have_more_of_them_give_the_same_answers(
        answers: dict[str, list[list[dict[str, Any]]]], place: Path, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """P-60: the first run is one of an earlier version, a guest has added a column to the second."""
    shutil.copytree(place / "runs", tmp_path / "runs")
    old, new = (tmp_path / name / "jobs.parquet" for name in RUNS)
    pq.write_table(pq.ParquetFile(old).read().drop_columns(["deadline_s", "priority"]), old)
    settings = old.with_name("run.json")
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"schema_version": "2"}))
    jobs = pq.ParquetFile(new).read()
    pq.write_table(jobs.append_column("energy", pa.array(np.arange(len(jobs), dtype=float))), new)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"pd": pd, "Path": Path, "duckdb": duckdb, "pl": polars}
    for section in ("Mean JCT of each run of a folder", "Jobs done and failed by policy, whatever wrote the runs"):
        for code in SECTIONS[section]:
            exec(compile(code, section, "exec"), space)
            same(rows(space["answer"]), answers[section][0])


def test_answers_about_the_sweep_are_those_of_its_own_reader(
        answers: dict[str, list[list[dict[str, Any]]]], place: Path) -> None:
    from analysis.sweeps import load_sweep

    sweep = load_sweep(place / "sweeps" / "loads")
    cells, jobs = sweep.table("metrics"), sweep.table("jobs")
    assert len(cells) == 8 and len(jobs) == 800
    means = cells.groupby(["policy", "load"])["jct_mean_s"].mean()
    same(answers["Mean JCT by policy and load"][0],
         [{"policy": policy, "load": load, "jct_mean_s": mean} for (policy, load), mean in means.items()])
    slow = jobs[jobs["finished"]].groupby(["policy", "num_gpus"])["bounded_slowdown"].quantile(0.9)
    same(answers["Bounded slowdown by policy and gang size: 90th percentile over all jobs of all cells"][0],
         [{"policy": policy, "num_gpus": gang, "p90": p90} for (policy, gang), p90 in slow.items()])
