"""Metrics and comparison of two runs of the real Philly jobs: the figure that the README quotes.

Each row prints seconds and, as the baseline of the same run, its ratio to the least that a comparison by hand takes:
pandas reads jobs and segments of both runs, joins them by job and takes means (machines differ; ratios travel).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.compare import compare
from analysis.metrics import measures, per_job
from analysis.run import Run, load_run
from tests.helpers import nodes, run
from traces.trace import Trace

GOAL_S = 5.0
"""Of metrics and comparison of two runs together."""


@pytest.fixture(scope="module")
def folders(philly: Trace, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of all jobs on 40 nodes of 8 GPUs: a queue, and under srtf preemptions."""
    made = []
    for policy in ("fifo-skip", "srtf"):
        folder = tmp_path_factory.mktemp(policy)
        run(philly, nodes(("V100", 40, 8)), policy).write(folder)
        made.append(folder)
    return made


def by_hand(folders: list[Path]) -> pd.Series:
    """Mean JCTs and GPU time of both runs over the same jobs, with pandas alone."""
    found = []
    for folder in folders:
        jobs, segments = (pd.read_parquet(folder / f"{name}.parquet") for name in ("jobs", "segments"))
        segments["held_s"] = segments["end_s"] - segments["begin_s"]
        held_s = segments.groupby("job_id")["held_s"].sum()
        found.append(jobs.assign(jct_s=jobs["end_s"] - jobs["submit_s"]).merge(held_s, on="job_id"))
    return found[0].merge(found[1], on="job_id")[["jct_s_x", "jct_s_y", "held_s_x", "held_s_y"]].mean()


def _measure(benchmark: Any, folders: list[Path], what: Callable[[], Any]) -> None:
    what()
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        by_hand(folders)
        seconds.append(time.perf_counter() - began)
    benchmark.pedantic(what, rounds=3, iterations=1)
    took = benchmark.stats.stats.min
    benchmark.extra_info.update(x_by_hand=round(took / min(seconds), 1))
    print(f"\n  {took:.2f} s  {benchmark.extra_info}")


def test_metrics(benchmark: Any, folders: list[Path]) -> None:
    """All measures, and all that is known of each job, of two runs from their files."""
    _measure(benchmark, folders, lambda: [(measures(one), per_job(one)) for one in map(load_run, folders)])


def test_comparison(benchmark: Any, folders: list[Path]) -> None:
    """Two runs from their files, paired by job, with 2,000 resamples."""
    _measure(benchmark, folders, lambda: compare([load_run(folder) for folder in folders]).text)


def test_metrics_and_comparison(benchmark: Any, folders: list[Path]) -> None:
    """Both, as a report needs them: each run is read once."""

    def both() -> None:
        runs: list[Run] = [load_run(folder) for folder in folders]
        for one in runs:
            measures(one)
        compare(runs).formatted("latex")

    _measure(benchmark, folders, both)
    benchmark.extra_info["of_the_goal"] = round(benchmark.stats.stats.min / GOAL_S, 2)
    print(f"  {benchmark.extra_info['of_the_goal']} of the {GOAL_S:.0f} s that are the goal")
