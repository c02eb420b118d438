"""Synthetic traces against the published statistics that they are fitted to, each within a stated band.

The bands are wider than what differs between seeds (36 were looked at), and narrow enough to tell Philly
from PAI and both from a plain Poisson process of exponential jobs.
"""

from __future__ import annotations

import numpy as np
import pytest

from traces.errors import TraceError
from traces.offered_load import demand_gpu_s
from traces.study.describe import describe
from traces.synthetic.generate import generate

JOBS = 60_000


@pytest.fixture(scope="module", params=[0, 1, 2])
def philly(request):
    return generate("philly", JOBS, request.param)


def share(mask, weight=None):
    return float(np.average(mask, weights=weight))


# --- Philly -------------------------------------------------------------------------------------------------


def test_philly_run_times(philly):
    """Subset of the public trace: 61, 115, 1144, 2932, 11,265 s at 10, 25, 50, 75, 90 %; mean 13,136 s."""
    published = np.array([61, 115, 1144, 2932, 11_265, 254_758])
    got = np.quantile(philly.duration_s, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
    assert (np.abs(np.log(got / published)) < np.log(1.08)).all()
    assert philly.duration_s.mean() == pytest.approx(13_136, rel=0.02)
    assert philly.duration_s.max() <= 60 * 86_400 and philly.duration_s.min() >= 1
    # Two modes and a shelf between them: in the subset 13.8, 5.9, 5.7 and 15.4 % of jobs run for
    # 64, 128, 256 and 1024 s and up to twice that.
    octave = np.bincount(np.log2(philly.duration_s).astype(int), minlength=22) / len(philly)
    assert octave[[6, 7, 8, 10]] == pytest.approx([0.138, 0.059, 0.057, 0.154], abs=0.015)
    assert octave[6] > 2 * octave[7] and octave[10] > 2 * octave[8]


def test_philly_gpus(philly):
    """Jobs: 93, 2.2, 2.3, 2.0 % on 1, 2, 4, 8 GPUs; GPU time: 18.1, 16.7, 48.4, 11.5 % on 1, 4, 8, 16."""
    jobs = {g: share(philly.num_gpus == g) for g in (1, 2, 4, 8, 16)}
    assert jobs[1] == pytest.approx(0.932, abs=0.002)
    assert [jobs[g] for g in (2, 4, 8)] == pytest.approx([0.022, 0.023, 0.020], abs=0.001)
    time_share = {g: share(philly.num_gpus == g, demand_gpu_s(philly)) for g in (1, 4, 8, 16)}
    assert [time_share[g] for g in (1, 4, 8, 16)] == pytest.approx([0.181, 0.167, 0.484, 0.115], abs=0.02)
    assert philly.num_gpus.max() <= 128


def test_philly_virtual_clusters(philly):
    """Half of the jobs in one virtual cluster with a tenth of GPU time; 1.8 % in one with a quarter."""
    demand = demand_gpu_s(philly)
    for vc, of_jobs, of_time in (("6214e9", 0.501, 0.099), ("ee9e8c", 0.018, 0.262), ("7f04ca", 0.009, 0.169)):
        assert share(philly.vc == vc) == pytest.approx(of_jobs, abs=0.001)
        assert share(philly.vc == vc, demand) == pytest.approx(of_time, abs=0.02)
    assert len(set(philly.vc)) == 15
    # Wider gangs live in other places than single GPUs: share of 1-GPU jobs .99 and .15 as published.
    assert share(philly.num_gpus[philly.vc == "6214e9"] == 1) == pytest.approx(0.99, abs=0.01)
    assert share(philly.num_gpus[philly.vc == "2869ce"] == 1) == pytest.approx(0.15, abs=0.08)


def test_philly_ends_and_retries(philly):
    """Public trace: 60/9/31 % of jobs passed, killed, failed; the killed take more than 9 % of time."""
    jobs = [share(philly.status == s) for s in ("passed", "killed", "failed")]
    assert jobs == pytest.approx([0.604, 0.090, 0.305], abs=0.01)
    assert share(philly.status == "killed", demand_gpu_s(philly)) > 0.18
    tries = np.bincount(philly.attempts, minlength=7)[1:] / len(philly)
    assert tries == pytest.approx([0.803, 0.097, 0.026, 0.015, 0.051, 0.009], abs=0.007)


def test_philly_arrivals(philly):
    """Mean gap 114.4 s over the whole subset, CV above 2 (Poisson: 1), peak at 06-07 UTC, weak weekends, a robot."""
    gaps = np.diff(philly.submit_s)
    assert gaps.mean() == pytest.approx(114.4, rel=0.01) and gaps.std() / gaps.mean() > 2
    summary = describe(philly)
    hours, days = np.array(summary["hours"]), np.array(summary["weekdays"])
    assert hours[5:9].mean() > 1.3 * hours[11:16].mean()
    assert days[5:].mean() < 0.8 * days[:5].mean()
    robot = philly.user == "11cb48-robot"
    assert share(robot) == pytest.approx(0.13, abs=0.01) and (philly.num_gpus[robot] == 1).all()
    # Nearly always something arrives within ten minutes, since the robot runs.
    assert 595 < np.quantile(gaps, 0.99) < 610


# --- both ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("phily", 5), "did you mean 'philly'"),
        (("philly", 0), "jobs: value not allowed; got 0"),
        (("pai", 10**9), "an integer from 1 to 20000000"),
        (("pai", 5, -1), "seed: value not allowed; got -1"),
    ],
)
def test_what_cannot_be_generated(args, part):
    with pytest.raises(TraceError, match=part):
        generate(*args)
