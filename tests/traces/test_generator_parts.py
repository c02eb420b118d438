"""What generators are made of, by law: run times by proportional odds, places dealt out evenly, groups, submissions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.synthetic.odds import RunTimes
from traces.synthetic.recurring import activity, alike, at, even, groups, submissions

POINTS_S, BELOW = (1.0, 10.0, 100.0, 1000.0, 50_000.0), (0.0, 0.2, 0.5, 0.9, 1.0)
RANKS = (np.arange(20_000) + 0.5) / 20_000

kinds = st.integers(1, 6).flatmap(lambda k: st.tuples(
    st.lists(st.floats(0.05, 1.0), min_size=k, max_size=k), st.lists(st.floats(-4.0, 4.0), min_size=k, max_size=k),
    st.lists(st.floats(0.5, 1.5), min_size=k, max_size=k),
))


@settings(max_examples=40)
@given(kinds)
def test_all_kinds_together_have_the_published_run_times(drawn):
    """Whatever the shifts and spreads, sum of weight × P(run time <= t | kind) is the published share at each point."""
    weight, shift, spread = map(np.array, drawn)
    times = RunTimes(POINTS_S, BELOW, weight, shift, spread)
    runs_s = [times.seconds(RANKS, np.full(len(RANKS), kind)) for kind in range(len(weight))]
    for point_s, share in zip(POINTS_S[1:], BELOW[1:], strict=True):
        got = sum(w * np.mean(run <= point_s) for w, run in zip(weight, runs_s, strict=True)) / weight.sum()
        assert got == pytest.approx(share, abs=1e-3)
    assert all(run.min() >= 1 and run.max() <= 50_000 and (run == np.floor(run)).all() for run in runs_s)


@given(st.floats(-3, 3))
def test_a_shift_multiplies_the_odds_of_running_longer(shift):
    """With equal spread, odds of running longer than t differ by exp(shift), at each t alike."""
    times = RunTimes(POINTS_S, BELOW, np.ones(2), np.array([0.0, shift]))
    for point_s in POINTS_S[1:-1]:
        longer = [np.mean(times.seconds(RANKS, np.full(len(RANKS), kind)) > point_s) for kind in (0, 1)]
        odds = [p / (1 - p) for p in longer]
        assert odds[1] / odds[0] == pytest.approx(np.exp(shift), rel=0.06)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=200), st.integers(0, 9))
def test_places_are_dealt_evenly_over_jobs(jobs, seed):
    """Each group's place is in its own stretch: so many jobs lie below a place as its share says, but for one group."""
    jobs = np.array(jobs)
    place = even(np.random.default_rng(seed), jobs)
    order = np.argsort(place)
    below = np.cumsum(jobs[order]) / jobs.sum()
    assert (np.abs(below - place[order]) <= jobs[order] / jobs.sum() + 1e-12).all()


def test_rare_values_are_for_small_groups():
    """A group of 5,000 jobs never gets a value that 1 % of 20,000 jobs have; that share still comes out."""
    jobs = np.array([5000] * 2 + [1] * 10_000)
    for seed in range(20):
        place = even(np.random.default_rng(seed), jobs, rare=0.01)
        assert place[:2].max() < 0.99 and jobs[place >= 0.99].sum() == pytest.approx(200, abs=2)


@given(st.integers(1, 400), st.integers(1, 5), st.integers(0, 9))
def test_ranks_are_even_within_each_kind(n, many, seed):
    """Sorted, the ranks of the jobs of a kind lie one in each n-th of (0, 1)."""
    rng = np.random.default_rng(seed)
    kind, group = rng.integers(0, many, n), rng.integers(0, n, n)
    rank = alike(rng, group, kind, 0.1)
    for each in range(many):
        mine = np.sort(rank[kind == each])
        assert (np.floor(mine * len(mine)) == np.arange(len(mine))).all()


def test_jobs_of_a_group_rank_near_each_other():
    """Groups of ten: ranks differ by about the width within a group, by a third between groups."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(2000), 10)
    rank = alike(rng, group, np.zeros(20_000, dtype=np.int64), 0.1).reshape(2000, 10)
    assert np.ptp(rank, axis=1).mean() < 0.1 and rank.mean(axis=1).std() == pytest.approx(np.sqrt(1 / 12), rel=0.05)


@given(st.integers(1, 3000), st.integers(0, 5))
def test_groups_hold_all_jobs(n, seed):
    made = groups(np.random.default_rng(seed), n, (1.6, 100), (1.9, 5000))
    assert made.jobs.sum() == made.burst_jobs.sum() == len(made.of_job) == n
    assert (made.jobs == np.bincount(made.of_job)).all() and made.burst_jobs.max() <= max(1, n // 20)


def test_values_are_read_off_by_weight():
    assert at(np.array([0.0, 0.49, 0.5, 0.74, 0.75, 0.999]), np.array([2.0, 1.0, 1.0])).tolist() == [0, 0, 1, 1, 2, 2]


def test_activity_is_skewed_as_a_lognormal():
    """Share of the first 5 % under a lognormal: normal distribution at sd − 1.645 (0.64 for sd 2)."""
    weight = np.sort(activity(10_000, 2.0))[::-1]
    assert weight[:500].sum() / weight.sum() == pytest.approx(0.639, abs=0.01)


def test_submissions_follow_hours_and_weekdays():
    """Without unrest and bursts, hour and weekday factors come out as given."""
    hours, days = np.arange(1, 25.0), (1, 1, 1, 1, 1, 0.5, 0.0)
    jobs = np.ones(200_000, dtype=np.int64)
    when_s = submissions(np.random.default_rng(0), jobs, 14 * 86_400.0, hours, days, (0.0, 0.0), {0: 1.0})
    by_hour = np.bincount((when_s // 3600 % 24).astype(int), minlength=24)
    by_day = np.bincount((when_s // 86_400 % 7).astype(int), minlength=7)
    assert by_hour / by_hour.sum() == pytest.approx(hours / hours.sum(), abs=0.002)
    assert by_day / by_day[0] == pytest.approx(days, abs=0.03) and by_day[6] == 0
    assert when_s.min() >= 0 and when_s.max() <= 14 * 86_400


def test_unrest_makes_hours_uneven_and_alike():
    """sd 0.4, correlation 0.8 from hour to hour: counts of hours show both."""
    jobs = np.ones(2_000_000, dtype=np.int64)
    when_s = submissions(np.random.default_rng(0), jobs, 4000 * 3600.0, (1.0,) * 24, (1.0,) * 7, (0.4, 0.8), {0: 1.0})
    log_count = np.log(np.bincount((when_s // 3600).astype(int), minlength=4000)[:4000])
    assert log_count.std() == pytest.approx(0.4, rel=0.1)
    assert np.corrcoef(log_count[1:], log_count[:-1])[0, 1] == pytest.approx(0.8, abs=0.06)
