"""Every policy on recorded jobs: the audit finds nothing, each job ends, and all policies did the same work."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analysis.audit import audit
from analysis.run import load_run
from policies.registry import find, make, names
from sim.engine.simulate import simulate
from sim.hardware.gputypes import gpu_type
from sim.kernels.placement import RULES
from sim.performance import Performance
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled
from tests.helpers import nodes, run
from traces.assign import ModelChoice, assign
from traces.trace import Trace

SCHEDULERS = tuple(n for n in names() if not (find(n).needs_performance or find(n).needs_starts))
PLANNERS = tuple(n for n in names() if find(n).needs_performance)


SLOW = ("allox", "hare", "hydra", "sia")
"""They solve a program at each decision or round: of the thousand they have the first 150."""


@pytest.fixture(scope="module")
def philly(oracle_dir: Path) -> Trace:
    """A thousand jobs recorded in Microsoft's cluster, submitted within days."""
    table = pd.read_csv(oracle_dir / "tiresias" / "philly_1k.csv")
    return Trace.from_columns({
        "job_id": table["job_id"].astype(str), "submit_s": table["submit_time"], "duration_s": table["duration"],
        "num_gpus": table["num_gpu"],
    })


@pytest.mark.parametrize("placement", RULES)
@pytest.mark.parametrize("policy", SCHEDULERS)
def test_a_recorded_thousand_under_each_policy(policy: str, placement: str, philly: Trace, tmp_path: Path) -> None:
    trace = philly.select(slice(0, 150 if policy in SLOW else None))
    result = run(trace, nodes(("V100", 8, 8)), policy, {"placement": placement}, preemption_overhead_s=30.0)
    result.write(tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    report = audit(loaded)
    assert report.ok, report.text
    assert set(loaded.jobs["state"]) == {"done"}
    worked = loaded.segments["work_done"] * loaded.segments["gpus"].map(sum)
    assert worked.sum() == pytest.approx((trace.duration_s * trace.num_gpus).sum(), rel=1e-9)


@pytest.mark.parametrize("policy", [*PLANNERS, "fifo-skip", "srsf"])
def test_recorded_jobs_as_iterations_on_three_types(policy: str, philly: Trace, tmp_path: Path) -> None:
    """Speeds differ by type, plans span types: still nothing impossible happens."""
    choices = [ModelChoice(name, 1.0, (batch,)) for name, batch in {"resnet50": 64, "transformer": 64}.items()]
    trace = assign(philly.select(slice(0, 400)), choices, seed=0)
    cluster, performance = nodes(("V100", 1, 8), ("P100", 1, 8), ("T4", 2, 4)), Performance()
    truth = Modelled(trace, cluster, performance, gpu_type("V100"))
    result = simulate(trace, cluster, make(policy), truth, EngineConfig(), performance=performance,
                      estimate_s=truth.work_total / truth.reference_rate)
    result.write(tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    report = audit(loaded)
    assert report.ok, report.text
    assert set(loaded.jobs["state"]) <= {"done", "rejected"}
    assert (loaded.jobs["state"] == "done").sum() > 300
    assert {kind for held in loaded.segments["nodes"] for kind in loaded.node_type[list(held)]} == {0, 1, 2}
    assert loaded.segments["rate"].max() > 2 * loaded.segments["rate"].min()
