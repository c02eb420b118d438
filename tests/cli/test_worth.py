"""What a cluster is worth in reference GPUs, so that a load means the same on old and new GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sim.cluster.clusterfiles import load_cluster
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance
from sim.settings.config import RunConfig
from sim.workload.at_load import worth_gpus
from sim.workload.prepare import prepare
from sim.workload.progress import Modelled
from tests.helpers import jobs
from traces.offered_load import offered_load


def test_a_cluster_of_the_reference_type_is_worth_its_gpus() -> None:
    trace = jobs([(0, 100, 1), (50, 10, 8)], model=["resnet50"] * 2, batch_size=[64, 512])
    assert worth_gpus(trace, load_cluster("v100:5x4"), Performance(), gpu_type("V100")) == pytest.approx(20)


def test_a_slower_type_is_worth_its_relative_speed() -> None:
    trace = jobs([(0, 100, 1)], model=["resnet50"], batch_size=[64])
    rate = {name: Performance().data_parallel("resnet50", 64, gpu_type(name), (1,)).rate for name in ("V100", "P100")}
    worth = worth_gpus(trace, load_cluster("v100:1x4+p100:2x4"), Performance(), gpu_type("V100"))
    assert worth == pytest.approx(4 + 8 * rate["P100"] / rate["V100"])


def test_the_load_asked_for_counts_speeds_and_not_gpus() -> None:
    config = RunConfig(jobs=200, seed=1, load=0.5)
    work = prepare(config, load_cluster("gavel"))
    assert work.worth_gpus < 108
    assert offered_load(work.trace, work.worth_gpus) == pytest.approx(0.5)
    recorded = prepare(config.model_copy(update={"work": "recorded"}), load_cluster("gavel"))
    assert recorded.worth_gpus == 108
    assert offered_load(recorded.trace, 108) == pytest.approx(0.5)


def test_measured_models_keep_their_table_on_the_reference_too(data_dir: Path) -> None:
    """A job of Gavel's table runs as long as recorded on the reference type, by the table's own rate."""
    table = MeasuredTable.from_gavel(data_dir / "gavel" / "simulation_throughputs.json")
    model = "ResNet-50 (batch size 64)"
    trace = jobs([(0, 100, 1)], model=[model], batch_size=[64])
    cluster = load_cluster("v100:1x4+k80:1x4")
    truth = Modelled(trace, cluster, Performance(table=table), gpu_type("V100"))
    rates = [truth.rate(0, np.array([gpu], dtype=np.int32), None) for gpu in (0, 4)]
    speed = {gpu: table.rate(model, 64, gpu, (1,)).iterations_per_s for gpu in ("v100", "k80")}
    assert truth.work_total[0] == pytest.approx(100 * speed["v100"])
    assert rates[0] / rates[1] == pytest.approx(speed["v100"] / speed["k80"])
