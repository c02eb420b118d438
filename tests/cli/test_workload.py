"""From settings to work: defaults of generated traces, models for jobs that have none, folders for results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from sim.cluster.clusterfiles import load_cluster
from sim.hardware.gputypes import catalogue, gpu_type
from sim.performance import Performance
from sim.results.outfolder import reserved, run_name
from sim.settings.config import RunConfig
from sim.workload.given_models import model_choices, with_models
from sim.workload.prepare import gpus_by_type, prepare, read_trace, resolved
from tests.helpers import jobs, nodes
from traces.errors import TraceError


def test_a_generated_trace_gets_size_and_load_and_a_file_gets_neither():
    plain, pressed = resolved(RunConfig()), resolved(RunConfig(load_by="compress"))
    assert (plain.jobs, plain.load, plain.load_by) == (None, 0.7, "thin")
    assert (pressed.jobs, pressed.load, pressed.load_by) == (5000, 0.7, "compress")
    assert (resolved(RunConfig(jobs=7, load=0.2)).jobs, resolved(RunConfig(jobs=7, load=0.2)).load) == (7, 0.2)
    assert resolved(RunConfig(trace="jobs.csv")) == RunConfig(trace="jobs.csv")


def test_one_generated_job_has_no_load_to_be_scaled_to():
    assert len(prepare(resolved(RunConfig(jobs=1, work="recorded")), nodes(("V100", 1, 4))).trace) == 1


def test_the_same_seed_gives_the_same_jobs_and_another_one_others():
    one, same, other = (read_trace(RunConfig(jobs=50, seed=seed)).content_hash() for seed in (1, 1, 2))
    assert one == same != other


def test_other_generated_jobs_come_by_another_seed_not_by_skipping_some():
    with pytest.raises(TraceError, match=r"run.skip: a generated trace has no jobs before its first; got 3.*--seed"):
        read_trace(RunConfig(jobs=50, skip=3))


@pytest.mark.parametrize("reference", sorted(catalogue()))
def test_each_assigned_job_fits_its_reference_gang_whatever_that_is(reference):
    """So that its recorded run time can be turned into iterations."""
    trace = jobs([(float(i), 10.0, gpus) for i, gpus in enumerate([1, 2, 3, 8, 9, 64, 500] * 4)])
    performance = Performance()
    ready = with_models(trace, performance, gpu_type(reference), seed=0)
    for model, batch, gpus in zip(ready.model, ready.batch_size, ready.num_gpus, strict=True):
        assert performance.fits(model, int(batch), gpu_type(reference), int(gpus)), (model, batch, gpus)


def test_the_largest_model_is_there_where_its_memory_is():
    """GPT-2 of 1.5 billion parameters: with Adam 16 bytes each, 24 GB before any activation."""

    def names(kind: str) -> list[str]:
        return [choice.name for choice in model_choices(Performance(), gpu_type(kind))]

    assert "gpt2-1.5b" not in names("v100")
    assert "gpt2-1.5b" in names("a100-80")


def test_true_run_times_are_those_recorded_on_the_reference_gang():
    work = prepare(resolved(RunConfig(jobs=60, seed=3)), load_cluster("mixed"))
    np.testing.assert_allclose(work.true_s, work.trace.duration_s, rtol=1e-12)


def test_a_trace_means_the_same_work_on_each_cluster():
    """Neither the GPU types there nor the links change what a job has to do."""
    config = RunConfig(jobs=60, seed=3, load=None)
    one, other = (prepare(config, load_cluster(name)) for name in ("mixed", "k80:8x2"))
    assert one.trace.content_hash() == other.trace.content_hash()
    np.testing.assert_array_equal(one.truth.work_total, other.truth.work_total)


def test_the_pai_trace_gets_a_cluster_with_the_types_that_it_asks_for():
    assert resolved(RunConfig(trace="pai")).cluster == "pai320"
    assert resolved(RunConfig(trace="pai", cluster="gavel")).cluster == "gavel"


def test_models_that_the_zoo_knows_are_kept_and_others_replaced_with_a_note():
    trace = jobs([(0, 10, 1)] * 3, model=["resnet50", "lenet", "resnet50"], batch_size=[64, 64, 0])
    ready = with_models(trace, Performance(), gpu_type("V100"), seed=0)
    assert (ready.model[0], ready.batch_size[0]) == ("resnet50", 64)
    assert ready.model[1] != "lenet"
    assert (ready.batch_size > 0).all()
    notes = " ".join(ready.provenance.notes)
    assert "2 jobs name a model that the zoo lacks, or no batch size: replaced (lenet, resnet50)" in notes


def test_a_trace_with_models_and_batches_is_left_as_it_is():
    trace = jobs([(0, 10, 1)], model=["vgg16"], batch_size=[32])
    assert with_models(trace, Performance(), gpu_type("V100"), seed=0) is trace


def test_gpus_by_type_counts_the_cluster():
    assert gpus_by_type(load_cluster("v100:2x4+t4:3x2")) == {"V100": 8, "T4": 6}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (RunConfig(), "hetero-philly-gavel-0"),
        (
            RunConfig(policy="fifo", trace="/data/x/my trace.csv", cluster="v100:8x4+t4:2x8", seed=3),
            "fifo-my-trace-v100-8x4-t4-2x8-3",
        ),
        (RunConfig(cluster="/etc/my.cluster.toml"), "hetero-philly-my.cluster-0"),
        (RunConfig(trace="../..", cluster="a"), "hetero-..-a-0"),
    ],
)
def test_a_run_is_named_after_what_it_is(config, name):
    assert run_name(config) == name
    assert "/" not in name


def test_runs_that_start_at_once_never_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def folder(_: int) -> str:
        with reserved(RunConfig()) as path:
            (path / "run.json").write_text("{}", "utf-8")
            return str(path)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(folder, range(40)))
    assert len(set(found)) == 40
    assert set(found) == {str(p.relative_to(tmp_path)) for p in (tmp_path / "runs").iterdir()}


def test_threads_that_hold_folders_at_once_hold_different_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    all_hold = Barrier(8)

    def folder(_: int) -> str:
        with reserved(RunConfig()) as path:
            all_hold.wait()  # nobody has written anything yet
            return str(path)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(folder, range(8)))) == 8
