"""Helios- and Acme-like traces against what is published of both, each figure within a stated band."""

from __future__ import annotations

import numpy as np
import pytest

from traces.errors import TraceError
from traces.offered_load import demand_gpu_s
from traces.study.describe import describe
from traces.synthetic.generate import generate

ENDS = ("passed", "killed", "failed")


@pytest.fixture(scope="module", params=[0, 1])
def helios(request):
    return generate("helios", 400_000, request.param)


@pytest.fixture(scope="module", params=[0, 1])
def seren(request):
    return generate("acme", 663_813, request.param, cluster="seren")


@pytest.fixture(scope="module", params=[0, 1])
def kalos(request):
    return generate("acme", 200_000, request.param, cluster="kalos")


def share(mask, weight=None):
    return float(np.average(mask, weights=weight))


def longer_than(trace, published):
    """Largest distance of the shares of jobs up to so many seconds to the published ones."""
    return max(abs(share(trace.duration_s <= s) - percent / 100) for s, percent in published.items())


def gpu_time(trace, *sizes):
    """Share in % of GPU time of jobs on sizes[k - 1] < GPUs <= sizes[k]."""
    demand = demand_gpu_s(trace)
    pairs = zip((0, *sizes), sizes, strict=False)
    return [100 * share((low < trace.num_gpus) & (trace.num_gpus <= high), demand) for low, high in pairs]


def ends(trace, weight=None):
    return [100 * share(trace.status == end, weight) for end in ENDS]


# --- Helios: four clusters, April to September 2020 ---------------------------------------------------------


def test_helios_run_times(helios):
    """All GPU jobs, read off a published figure: distance at most 0.05 (here 0.01); mean 6,652, median 206 s."""
    published = {
        1: 4.0, 4: 6.35, 16: 10.72, 32: 16.15, 64: 24.88, 128: 37.81, 256: 56.57, 512: 67.58, 1024: 75.25, 2048: 84.10,
        4096: 87.53, 8192: 90.75, 16_384: 94.36, 32_768: 96.27, 65_536: 97.77, 131_072: 98.90, 262_144: 99.55,
    }
    assert longer_than(helios, published) < 0.01
    assert helios.duration_s.mean() == pytest.approx(6652, rel=0.06)
    assert np.median(helios.duration_s) == pytest.approx(206, rel=0.05) and helios.duration_s.max() <= 4_320_009


def test_helios_sizes(helios):
    """Jobs: 72.2, 2.6, 5.6, 14.0, 3.0, 1.3 % on 1, 2, 4, 8, 16, 32 GPUs; GPU time mostly on 8 to 32."""
    jobs = [100 * share(helios.num_gpus == g) for g in (1, 2, 4, 8, 16, 32)]
    assert jobs == pytest.approx([72.2, 2.6, 5.6, 14.0, 3.0, 1.3], abs=0.3)
    published = [5.4, 1.7, 5.0, 29.2, 20.2, 1.9, 23.3, 3.8, 3.9, 5.6]
    assert gpu_time(helios, 1, 2, 4, 8, 16, 24, 32, 56, 64, 168) == pytest.approx(published, abs=3)
    assert (helios.worker_gpus == np.minimum(helios.num_gpus, 8)).all()


def test_helios_ends(helios):
    """Completed, cancelled, failed: 62.4, 22.1, 15.5 % of jobs, 51.3, 39.4, 9.3 % of GPU time."""
    assert ends(helios) == pytest.approx([62.4, 22.1, 15.5], abs=0.5)
    assert ends(helios, demand_gpu_s(helios)) == pytest.approx([51.3, 39.4, 9.3], abs=3)


@pytest.mark.parametrize(
    ("name", "jobs", "mean_gpus", "mean_s", "median_s", "completed"),
    [
        ("Venus", 125_303, 6.74, 13_041, 204, 52.6), ("Earth", 427_148, 2.10, 5131, 234, 73.5),
        ("Saturn", 698_896, 4.01, 5253, 124, 58.2), ("Uranus", 329_117, 4.04, 9164, 280, 60.7),
    ],
)
def test_helios_clusters_differ(helios, name, jobs, mean_gpus, mean_s, median_s, completed):
    """cluster_summary.csv: GPU jobs of 1,580,464, mean GPUs, mean and median run time, share that completed."""
    here = helios.select(helios.vc == name)
    assert len(here) / len(helios) == pytest.approx(jobs / 1_580_464, rel=0.05)
    assert here.num_gpus.mean() == pytest.approx(mean_gpus, rel=0.06)
    assert here.duration_s.mean() == pytest.approx(mean_s, rel=0.15)
    assert np.median(here.duration_s) == pytest.approx(median_s, rel=0.2)
    assert ends(here)[0] == pytest.approx(completed, abs=1)


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("Venus", (26, 19, 17, 11, 8, 6, 5, 6, 11, 23, 37, 42, 34, 37, 45, 48, 50, 50, 37, 38, 39, 39, 33, 30)),
        ("Saturn", (140, 143, 114, 105, 98, 91, 86, 85, 95, 138, 184, 199, 174, 186, 206, 235, 242, 220, 180, 186, 204,
                    196, 175, 180)),
        ("Uranus", (56, 49, 28, 17, 18, 26, 34, 20, 25, 54, 85, 97, 119, 109, 125, 121, 138, 112, 88, 104, 111, 95, 100,
                    86)),
    ],
)
def test_helios_hours(helios, name, hours):
    """GPU jobs by hour of the day (UTC+8) as published; the rate of the whole is theirs, too."""
    here = np.array(describe(helios.select(helios.vc == name))["hours"])
    assert np.corrcoef(here, hours)[0, 1] > 0.9
    days = (helios.submit_s[-1] - helios.submit_s[0]) / 86_400
    assert here.sum() / days == pytest.approx(sum(hours), rel=0.03)


# --- Acme: two clusters, March to August 2023 ---------------------------------------------------------------


def test_seren_run_times_and_sizes(seren):
    """Run times within 0.05 (here 0.01) of the curve, median 122 s; half of the jobs on one GPU, 29 % on a node."""
    published = {1: 2.18, 4: 5.62, 16: 23.38, 32: 31.71, 64: 37.12, 128: 48.91, 256: 65.63, 512: 79.21, 1024: 88.03,
                 2048: 92.94, 4096: 95.99, 8192: 97.53, 16_384: 98.44, 32_768: 99.19, 65_536: 99.64, 131_072: 99.83}
    assert longer_than(seren, published) < 0.01
    assert np.median(seren.duration_s) == pytest.approx(122, rel=0.15)
    jobs = [100 * share(seren.num_gpus <= g) for g in (1, 2, 4, 8, 16, 32, 64)]
    assert jobs == pytest.approx([54.0, 65.4, 67.9, 96.7, 97.9, 98.8, 99.3], abs=0.6)
    assert seren.num_gpus.mean() == pytest.approx(5.68, rel=0.06)
    of_time = [1.3, 0.4, 0.6, 9.6, 1.2, 6.0, 9.4, 13.0, 14.6, 7.8, 5.6, 15.8, 14.5]
    assert gpu_time(seren, 1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 768, 1024) == pytest.approx(of_time, abs=3)


def test_seren_ends(seren):
    """Completed, cancelled, failed: 49.7, 7.5, 42.9 % of jobs and 21.2, 66.4, 12.4 % of GPU time."""
    assert ends(seren) == pytest.approx([49.7, 7.5, 42.9], abs=0.5)
    assert ends(seren, demand_gpu_s(seren)) == pytest.approx([21.2, 66.4, 12.4], abs=5)


def test_kalos_run_times_and_sizes(kalos):
    """Run times within 0.05 (here 0.01) of the curve; 86 % on one GPU, 96 % of GPU time on 256 and more."""
    published = {16: 1.48, 32: 18.72, 64: 38.19, 128: 50.48, 256: 69.10, 512: 79.45, 1024: 85.94, 2048: 92.77,
                 4096: 97.06, 8192: 98.68, 16_384: 99.11, 32_768: 99.45, 65_536: 99.66, 131_072: 99.83}
    assert longer_than(kalos, published) < 0.01
    assert np.median(kalos.duration_s) == pytest.approx(124, rel=0.05)
    assert kalos.duration_s.mean() == pytest.approx(1260, rel=0.1)
    assert kalos.num_gpus.mean() == pytest.approx(26.77, rel=0.03)
    jobs = [100 * share(kalos.num_gpus <= g) for g in (1, 2, 8, 16, 32, 64, 128, 256, 512)]
    assert jobs == pytest.approx([86.3, 88.4, 93.9, 94.3, 94.7, 95.3, 95.7, 96.9, 98.9], abs=0.3)
    of_time = [0.2, 0.5, 1.3, 1.3, 0.5, 21.1, 1.9, 9.9, 27.4, 35.9]
    assert gpu_time(kalos, 2, 16, 32, 64, 128, 256, 496, 504, 512, 1024) == pytest.approx(of_time, abs=3)


def test_kalos_ends(kalos):
    """Completed, cancelled, failed: 54.1, 6.2, 39.7 % of jobs and 31.3, 60.7, 8.0 % of GPU time."""
    assert ends(kalos) == pytest.approx([54.1, 6.2, 39.7], abs=0.5)
    assert ends(kalos, demand_gpu_s(kalos)) == pytest.approx([31.3, 60.7, 8.0], abs=5)


# --- both ---------------------------------------------------------------------------------------------------


def test_one_cluster_or_all():
    trace = generate("acme", 20_000, 3)
    # 663,813 and 19,907 GPU jobs in the same half year.
    assert share(trace.vc == "kalos") == pytest.approx(19_907 / 683_720, rel=0.1)
    assert set(trace.vc) == {"seren", "kalos"} and trace.provenance.options == {"cluster": "all"}
    alone = generate("acme", 20_000, 3, cluster="kalos")
    assert set(alone.vc) == {"kalos"} and alone.provenance.options == {"cluster": "kalos"}
    # Its own rate: 184 days for 19,907 jobs.
    assert np.diff(alone.submit_s).mean() == pytest.approx(184 * 86_400 / 19_907, rel=0.01)


def test_hours_are_to_be_read_in_shanghai():
    for name in ("helios", "acme", "pai"):
        about = generate(name, 500, 0).provenance
        assert about.tz == "Asia/Shanghai" and not about.date_is_real and about.epoch_s is None
        assert about.window_s is not None and about.window_s[0] == 0
        assert "Monday, 00:00 UTC+8" in about.notes[0]


@pytest.mark.parametrize(
    ("args", "options", "part"),
    [
        (("helios", 5), {"cluster": "venus"}, "did you mean 'Venus'"),
        (("acme", 5), {"cluster": ""}, "allowed: all, seren, kalos"),
        (("acme", 5), {"clusters": "seren"}, "did you mean 'cluster'"),
        (("pai", 5), {"cluster": "seren"}, "synthetic 'pai' has no such option; got 'cluster'; allowed: none"),
    ],
)
def test_options_that_are_not_there(args, options, part):
    with pytest.raises(TraceError, match=part):
        generate(*args, **options)
