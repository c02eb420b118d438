"""Gangs that data parallelism has sized before a policy sees them: the rule by hand, and what must not change."""

from __future__ import annotations

import numpy as np
import pytest

from policies.registry import make
from sim.cluster.clusterfiles import load_cluster
from sim.engine.simulate import simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance
from sim.settings.config import ConfigError, load_config
from sim.workload.prepare import prepare
from sim.workload.progress import Modelled
from sim.workload.resized import HOUR_USD, with_best_gangs
from traces.trace import Trace

V100 = gpu_type("V100")
RATES = """model,batch_size,gpu_type,gpus,nodes,iterations_per_s_total
even,64,V100,1,1,1.0
even,64,V100,2,1,2.0
even,64,V100,4,1,4.0
flat,64,V100,1,1,1.0
flat,64,V100,2,1,1.05
flat,64,V100,4,1,1.1
"""


def measured(tmp_path, **columns) -> tuple[Trace, Performance]:
    file = tmp_path / "rates.csv"
    file.write_text(RATES)
    n = len(columns["model"])
    given = {"job_id": [f"j{i}" for i in range(n)], "submit_s": [0.0] * n, "duration_s": [1000.0] * n,
             "batch_size": [64] * n, **columns}
    return Trace.from_columns(given), Performance(table=MeasuredTable.from_csv(file))


def test_by_hand_more_gpus_where_they_pay_and_fewer_where_they_do_not(tmp_path):
    """V100 at p USD: `even` costs (5 + n p) / n, least at the most GPUs; `flat` (5 + n p) / 1.05, least at one."""
    trace, performance = measured(tmp_path, model=["even", "even", "flat"], num_gpus=[1, 2, 4], worker_gpus=[1, 2, 4])
    price = V100.price_or_nan
    assert (HOUR_USD + price) < (HOUR_USD + 2 * price) / 1.05 < (HOUR_USD + 4 * price) / 1.1
    found = with_best_gangs(trace, 2.0, load_cluster("v100:1x4"), performance, V100)
    assert found.num_gpus.tolist() == [2, 4, 1]
    assert found.worker_gpus.tolist() == [1, 1, 1]
    assert found.duration_s == pytest.approx([500.0, 500.0, 1100.0])
    assert found.work_iters == pytest.approx([1000.0, 2000.0, 1100.0])
    assert "2 of 3 jobs got more GPUs and 1 fewer" in found.provenance.notes[-1]


def test_a_job_s_own_bounds_and_the_cluster_bound_it(tmp_path):
    trace, performance = measured(
        tmp_path, model=["even"] * 3, num_gpus=[1, 1, 2], min_gpus=[0, 1, 2], max_gpus=[0, 1, 2])
    found = with_best_gangs(trace, 100.0, load_cluster("v100:1x2"), performance, V100)
    assert found.num_gpus.tolist() == [2, 1, 2]
    assert found.max_gpus.tolist() == [0, 1, 2]


def test_shares_of_a_gpu_and_jobs_that_cannot_run_stay_as_they_are():
    trace = Trace.from_columns({
        "job_id": ["share", "large"], "submit_s": [0, 0], "duration_s": [100.0, 100.0], "num_gpus": [1, 1],
        "gpu_milli": [500, 1000], "model": ["resnet50", "gpt3-13b"], "batch_size": [64, 8]})
    cluster = load_cluster("v100:1x4")
    found = with_best_gangs(trace, 4.0, cluster, Performance(cluster.links), V100)
    for name in ("num_gpus", "duration_s"):
        assert np.array_equal(getattr(found, name), getattr(trace, name))
    assert np.isnan(found.work_iters).all()


@pytest.mark.parametrize("policy", ["fifo", "gavel"])
def test_work_types_and_arrivals_are_those_of_the_gangs_asked_for(policy):
    """No job loses a GPU type or work, and none gets more than its part; a run of them is sound."""
    config = load_config(None, {"trace": "philly", "cluster": "gavel", "jobs": 150, "load": 0.7, "seed": 3})
    cluster = load_cluster("gavel")
    asked = prepare(config, cluster)
    sized = prepare(config.model_copy(update={"gang_scale": 4.0}), cluster)
    before, after = asked.trace, sized.trace
    assert before.job_id.tolist() == after.job_id.tolist() and np.array_equal(before.submit_s, after.submit_s)
    np.testing.assert_allclose(asked.truth.work_total, sized.truth.work_total, rtol=1e-12)
    np.testing.assert_allclose(after.duration_s * sized.truth.reference_rate, sized.truth.work_total, rtol=1e-12)
    assert (after.num_gpus <= 4 * before.num_gpus).all() and (after.num_gpus != before.num_gpus).any()
    for row in range(len(before)):
        kept = asked.truth.types(row)
        assert kept & sized.truth.types(row) == kept
    result = simulate(after, cluster, make(policy), sized.truth, performance=sized.performance)
    assert set(result.tables["jobs"]["state"].to_pylist()) <= {"done", "failed", "killed"}  # as recorded; none rejected


def test_cost_of_the_chosen_gang_is_the_least_on_one_type():
    """On one type the mean over types is that type's own cost: no number of GPUs in reach is cheaper."""
    config = load_config(None, {"trace": "philly", "cluster": "v100:9x4", "jobs": 60, "load": 0.7, "seed": 5})
    cluster = load_cluster("v100:9x4")
    asked, sized = (prepare(config.model_copy(update={"gang_scale": scale}), cluster) for scale in (None, 2.0))
    performance = asked.performance
    for row in range(60):
        model, batch = asked.trace.model[row], int(asked.trace.batch_size[row])
        most = min(2 * int(asked.trace.num_gpus[row]), 36)

        def usd(n: int, model: str = model, batch: int = batch) -> float:
            layout = (4,) * (n // 4) + ((n % 4,) if n % 4 else ())
            rate = performance.data_parallel(model, batch, V100, layout).rate
            return (HOUR_USD + n * V100.price_or_nan) / rate

        best = min(usd(n) for n in range(1, most + 1) if performance.fits(model, batch, V100, n))
        assert usd(int(sized.trace.num_gpus[row])) == pytest.approx(best, rel=1e-9)


def test_recorded_durations_cannot_be_resized():
    config = load_config(None, {"work": "recorded", "gang_scale": 2.0})
    with pytest.raises(ConfigError, match="gangs cannot be resized"):
        prepare(config, load_cluster("gavel"))


def test_the_sized_gang_is_what_the_run_knows():
    """`Modelled` of the sized trace needs no more than the trace: it can be written, read and replayed."""
    config = load_config(None, {"trace": "philly", "cluster": "gavel", "jobs": 50, "load": 0.7, "gang_scale": 4.0})
    cluster = load_cluster("gavel")
    work = prepare(config, cluster)
    again = Modelled(Trace.from_columns(work.trace.said()), cluster, work.performance, V100)
    assert np.array_equal(again.work_total, work.truth.work_total)
