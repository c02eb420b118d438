"""Synthetic traces against the published statistics that they are fitted to, each within a stated band.

The bands are wider than what differs between seeds (36 were looked at), and narrow enough to tell Philly
from PAI and both from a plain Poisson process of exponential jobs.
"""

from __future__ import annotations

import numpy as np
import pytest

from traces.describe import describe
from traces.errors import TraceError
from traces.load import load_trace
from traces.synthetic.generate import generate
from traces.window import demand_gpu_s

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
    assert (np.abs(np.log(got / published)) < np.log(1.35)).all()
    assert 12_500 < philly.duration_s.mean() < 16_000
    assert philly.duration_s.max() <= 53 * 86_400 and philly.duration_s.min() >= 1
    # Two modes and a shelf between them: in the subset 13.8, 5.9, 5.7 and 15.4 % of jobs run for
    # 64, 128, 256 and 1024 s and up to twice that.
    octave = np.bincount(np.log2(philly.duration_s).astype(int), minlength=22) / len(philly)
    assert octave[[6, 7, 8, 10]] == pytest.approx([0.138, 0.059, 0.057, 0.154], abs=0.03)
    assert octave[6] > 2 * octave[7] and octave[10] > 2 * octave[8]


def test_philly_gpus(philly):
    """Jobs: 93, 2.2, 2.3, 2.0 % on 1, 2, 4, 8 GPUs; GPU time: 18, 17, 48, 12 % on 1, 4, 8, 16."""
    jobs = {g: share(philly.num_gpus == g) for g in (1, 2, 4, 8, 16)}
    assert jobs[1] == pytest.approx(0.932, abs=0.005)
    assert [jobs[g] for g in (2, 4, 8)] == pytest.approx([0.022, 0.023, 0.020], abs=0.003)
    time_share = {g: share(philly.num_gpus == g, demand_gpu_s(philly)) for g in (1, 4, 8, 16)}
    assert 0.14 < time_share[1] < 0.20 and 0.11 < time_share[4] < 0.19
    assert 0.32 < time_share[8] < 0.52 and 0.09 < time_share[16] < 0.20
    assert philly.num_gpus.max() <= 128


def test_philly_virtual_clusters(philly):
    """Half of the jobs in one virtual cluster with a tenth of GPU time; 1.8 % in one with a quarter."""
    demand = demand_gpu_s(philly)
    assert 0.48 < share(philly.vc == "6214e9") < 0.52 and share(philly.vc == "6214e9", demand) < 0.15
    assert 0.016 < share(philly.vc == "ee9e8c") < 0.020 and 0.20 < share(philly.vc == "ee9e8c", demand) < 0.45
    assert len(set(philly.vc)) == 11
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
    """Mean gap 81.5 s, coefficient of variation 2 (Poisson: 1), peak at 06-07 UTC, weak weekends, a robot."""
    gaps = np.diff(philly.submit_s)
    assert gaps.mean() == pytest.approx(81.5, rel=0.01)
    assert 1.9 < gaps.std() / gaps.mean() < 2.7
    summary = describe(philly)
    hours, days = np.array(summary["hours"]), np.array(summary["weekdays"])
    assert hours[5:9].mean() > 1.3 * hours[11:16].mean()
    assert days[5:].mean() < 0.75 * days[:5].mean()
    robot = philly.submit_s[philly.user == "11cb48-robot"]
    assert len(robot) == round(0.104 * JOBS) and np.abs(np.diff(robot) - 600).max() <= 3
    assert (philly.num_gpus[philly.user == "11cb48-robot"] == 1).all()
    # While the robot runs, something arrives at least every ten minutes.
    assert np.diff(philly.submit_s[philly.submit_s <= robot[-1]]).max() <= 603


def test_philly_like_is_like_philly(data_dir):
    """Two-sample distance (Kolmogorov-Smirnov) of run times to the real file: below 0.06."""
    real, made = (
        load_trace(data_dir / "philly" / "philly.csv").duration_s,
        generate("philly", 82_247, 5).duration_s,
    )
    grid = np.unique(np.concatenate((real, made)))
    distance = np.abs(
        np.searchsorted(np.sort(real), grid, "right") - np.searchsorted(np.sort(made), grid, "right")
    )
    assert distance.max() / len(real) < 0.06


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
