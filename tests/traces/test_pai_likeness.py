"""PAI-like traces against what is published of Alibaba's, each figure within a stated band.

300,000 jobs are four weeks: hours of the day need weeks, and gangs of hundreds need many jobs. Bands hold for each of
13 seeds that were looked at.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from traces.offered_load import demand_gpu_s
from traces.study.describe import describe
from traces.synthetic import pai as made
from traces.synthetic.generate import generate
from traces.synthetic.recurring import groups

JOBS = 300_000


@pytest.fixture(scope="module", params=[0, 1, 2])
def pai(request):
    return generate("pai", JOBS, request.param)


@pytest.fixture(scope="module")
def instances(pai):
    return pai.num_gpus // pai.worker_gpus


@pytest.fixture(scope="module")
def each(pai):
    """GPUs of one instance."""
    return pai.worker_gpus * pai.gpu_milli / 1000


def share(mask, weight=None):
    return float(np.average(mask, weights=weight))


def test_run_times(pai):
    """Share of tasks up to 2^i s, read off a published figure; mean 4,787, median 481, longest 626,371 s."""
    published = {
        2: 0.00082, 8: 0.00427, 16: 0.02988, 32: 0.1187, 64: 0.21057, 128: 0.28947, 256: 0.39622, 512: 0.50904,
        1024: 0.60789, 2048: 0.69836, 4096: 0.78507, 8192: 0.87117, 16_384: 0.93186, 32_768: 0.97054, 65_536: 0.99029,
    }
    assert [share(pai.duration_s <= s) for s in published] == pytest.approx(list(published.values()), abs=0.005)
    assert pai.duration_s.mean() == pytest.approx(4787, rel=0.05)
    assert np.median(pai.duration_s) == pytest.approx(481, rel=0.05)
    assert pai.duration_s.min() >= 1 and 200_000 < pai.duration_s.max() <= 626_371


def test_requests_of_an_instance(pai, each):
    """14.7 % below 1/4 GPU, 26.3 % to 1/2, 13.3 % to 1, 42.8 % one GPU; up to 2: 98.65 %, 4: 99.11 %, 5: 99.51 %."""
    bounds = {0.2: 0.147, 0.4: 0.410, 0.9: 0.543, 1: 0.9707, 2: 0.9865, 4: 0.9911, 5: 0.9951, 8: 1.0}
    assert [share(each <= b) for b in bounds] == pytest.approx(list(bounds.values()), abs=0.004)
    assert each.mean() == pytest.approx(0.683, abs=0.01) and np.median(each) == 0.5
    types = [share(pai.gpu_type == t) for t in ("", "T4", "P100", "V100")]
    assert types == pytest.approx([0.667, 0.217, 0.070, 0.046], abs=0.01)


def test_gangs(pai, instances):
    """One instance in 76.4 %, then 10, 2, 5, 20, 8 are the most frequent; shares of instances read off a figure."""
    assert share(instances == 1) == pytest.approx(0.764, abs=0.005)
    assert instances.mean() == pytest.approx(5.0, abs=0.15) and instances.max() == 512
    assert pai.num_gpus.max() <= 800
    frequent = pd.Series(instances).value_counts()
    assert set(frequent.index[1:4]) == {10, 5, 2} and {8, 20} <= set(frequent.index[4:8])
    at_least = {2: 0.85, 10: 0.72, 20: 0.63, 25: 0.57, 40: 0.48, 51: 0.32, 80: 0.26, 101: 0.13, 201: 0.07, 401: 0.03}
    assert [share(instances >= n, instances) for n in at_least] == pytest.approx(list(at_least.values()), abs=0.02)


def test_gangs_are_longer_and_of_smaller_shares(pai, instances, each):
    """Ignoring instances understates demand 3.6-fold and GPU time 5.7-fold; 86.7 % of GPU time is gangs'."""
    alone_gpu_s = each * pai.duration_s
    assert (instances * each).sum() / each.sum() == pytest.approx(3.6, rel=0.05)
    assert demand_gpu_s(pai).sum() / alone_gpu_s.sum() == pytest.approx(5.7, rel=0.1)
    assert share(instances > 1, demand_gpu_s(pai)) == pytest.approx(0.867, abs=0.03)


def test_gpu_time_by_request(pai, each):
    """Per instance: up to 1 GPU 68.1 %, 2 GPUs 4.8, 3 to 4 5.6, 5 2.5, 8 18.4 % of GPU time."""
    gpu_s = each * pai.duration_s
    shares = [share((low < each) & (each <= high), gpu_s) for low, high in ((0, 1), (1, 2), (2, 4), (4, 5), (5, 8))]
    assert shares == pytest.approx([0.681, 0.048, 0.058, 0.025, 0.184], abs=0.015)


def test_failures_are_short(pai):
    """20.4 % fail, nothing is killed; the terminated run 614, 12,390, 67,166 s at 50, 90, 99 %."""
    assert share(pai.status == "failed") == pytest.approx(0.204, abs=0.005)
    assert set(pai.status) == {"passed", "failed"}
    quantiles = np.quantile(pai.duration_s[pai.status == "passed"], [0.5, 0.9, 0.99])
    assert quantiles == pytest.approx([614, 12_390, 67_166], rel=0.06)


def test_waits_by_request(pai, each):
    """Median 9 to 11 s; 90 %: 50, 40, 45, 130, 6,000 s; above one GPU 99 %: 50,000 s; mean 402 s."""
    classes = [each < 0.25, (each >= 0.25) & (each < 0.5), (each >= 0.5) & (each < 1), each == 1, each > 1]
    ninth = [np.quantile(pai.wait_s[c], 0.9) for c in classes]
    assert ninth == pytest.approx([50, 40, 45, 130, 6000], rel=0.03)
    assert all(8 <= np.median(pai.wait_s[c]) <= 11 for c in classes)
    assert np.quantile(pai.wait_s[classes[4]], 0.99) == pytest.approx(50_000, rel=0.05)
    assert pai.wait_s.mean() == pytest.approx(402, rel=0.04)


def test_hours_and_weekdays(pai):
    """A spike at midnight; hours correlate with the published ones by 0.9 or more; weekends have three quarters."""
    summary = describe(pai)
    hours, days = np.array(summary["hours"]), np.array(summary["weekdays"])
    assert np.corrcoef(hours, made.HOURS)[0, 1] > 0.9
    assert hours[0] > 1.5 * hours[2:6].mean()
    assert days[5:].mean() / days[:5].mean() == pytest.approx(0.75, abs=0.15)


def test_unrest(pai):
    """Quartiles of hourly counts lie 25 % below and 30 % above the median of their hour; dispersion accordingly.

    A spread of the logarithm of 0.41 within, and of hours of the day of 0.26, make an index of dispersion of about
    (0.41² + 0.26²) × 447 jobs an hour = 105; a Poisson process has 1.
    """
    count = np.bincount((pai.submit_s // 3600).astype(int))
    count = count[: len(count) // 24 * 24].reshape(-1, 24)
    low, high = np.quantile(count / np.median(count, axis=0), [0.25, 0.75])
    assert low == pytest.approx(0.75, abs=0.08) and high == pytest.approx(1.30, abs=0.12)
    assert 105 / 2 < count.var() / count.mean() < 105 * 2


def test_gaps(pai):
    """8.05 s on average; 25,000 of 82,184 are of 1 to 3 s; heavier than exponential (coefficient of variation 1)."""
    gaps = np.diff(pai.submit_s)
    assert gaps.mean() == pytest.approx(8.05, rel=0.01)
    assert share((gaps >= 1) & (gaps <= 3)) == pytest.approx(25_000 / 82_184, abs=0.03)
    assert gaps.std() / gaps.mean() > 1.5 and np.quantile(gaps, 0.999) > 100


def test_users_are_skewed(pai, instances):
    """The first 5 % of 1,300 users have 77 % of instances; a fifth have up to 10 jobs, half up to 100."""
    by_user = pd.Series(instances).groupby(pd.factorize(pai.user)[0])
    assert np.sort(by_user.sum())[::-1][:65].sum() / instances.sum() == pytest.approx(0.77, abs=0.04)
    jobs = by_user.size().to_numpy()
    assert 800 < len(jobs) <= 1300 and 0.15 < share(jobs <= 10) < 0.35


def test_two_thirds_of_the_jobs_recur():
    """65 % of tasks recur five times or more."""
    made_groups = groups(np.random.default_rng(3), JOBS, made.BURST, made.AGAIN)
    assert share(made_groups.jobs >= 5, made_groups.jobs) == pytest.approx(0.65, abs=0.03)


def test_jobs_of_one_user_and_request_run_alike(pai):
    """What recurs runs for about as long: much of the spread of log run time lies between users' requests."""
    log_s = pd.Series(np.log(pai.duration_s))
    key = pd.MultiIndex.from_arrays([pai.user, pai.num_gpus, pai.gpu_milli, pai.gpu_type]).factorize()[0]
    small = log_s.groupby(key).transform("size").between(5, 30).to_numpy()  # few groups a key: heavy users have many
    within = (log_s - log_s.groupby(key).transform("mean"))[small].var()
    shuffled = pd.Series(np.random.default_rng(0).permutation(key[small]))
    drawn = log_s[small].reset_index(drop=True)
    assert within < 0.7 * (drawn - drawn.groupby(shuffled).transform("mean")).var()
