"""What surrounds the replay: reading, generating, planning, and looking at results."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import metrics
from analysis.audit import audit
from analysis.run import load_run
from benchmarks.conftest import DATA
from policies.recommend import RecommendError
from policies.recommend.searching.planner import Planner
from sim.hardware.gputypes import gpu_type
from sim.performance import MODELS, Performance
from tests.helpers import nodes, run
from traces.load import load_trace
from traces.synthetic.generate import generate
from traces.trace import Trace


def test_read_philly_csv(benchmark: Any) -> None:
    path = DATA / "philly" / "philly.csv"
    if not path.is_file():
        pytest.skip("the real Philly CSV is not there (HETSIM_DATA)")
    assert len(benchmark(load_trace, path)) == 82_247


@pytest.mark.parametrize("name", ["philly", "pai"])
def test_generate_100_000_jobs(benchmark: Any, name: str) -> None:
    trace = benchmark(generate, name, 100_000)
    benchmark.extra_info["jobs_per_s"] = round(len(trace) / benchmark.stats.stats.min)


def test_plan_each_class_of_a_trace(benchmark: Any) -> None:
    """6 models × 3 batches × gangs of 1 to 64 on three GPU types, as in a trace of 10,000 jobs."""

    def plan() -> int:
        planner = Planner(Performance(), [gpu_type(t) for t in ("V100", "P100", "T4")], [64, 64, 64])
        count = 0
        for name, model in MODELS.items():
            for batch, gang in product(model.gpu_batch_sizes[:3], (1, 2, 4, 8, 16, 32, 64)):
                try:
                    count += len(planner.front(name, batch * gang, gang))
                except RecommendError:
                    assert name == "gpt2-1.5b"
        return count

    assert benchmark.pedantic(plan, rounds=1, iterations=1, warmup_rounds=0) > 0


def test_audit_and_summary_of_all_philly_jobs(benchmark: Any, philly: Trace, tmp_path: Path) -> None:
    run(philly, nodes(("V100", 40, 8)), "fifo").write(tmp_path / "run")

    def look() -> bool:
        loaded = load_run(tmp_path / "run")
        return audit(loaded).ok and np.isfinite(metrics.summary(loaded)["jct_mean_s"])

    assert benchmark(look)
