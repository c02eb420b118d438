"""A generated log at its own clock, and so many of its jobs at a load."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.errors import TraceError
from traces.offered_load import by_hash, hashes, offered_load
from traces.stretch import DRAWS, Crowd, Short, _first_of, at_load, mixed, thinned
from traces.synthetic.generate import GENERATORS, generate
from traces.synthetic.month import month

WEEK_S = 604_800.0


def test_the_month_of_philly_is_a_piece_of_the_whole_log_at_its_own_times():
    log, part = generate("philly", 82_247, 2), month("philly", 2)
    there = (log.submit_s >= 8 * WEEK_S) & (log.submit_s < 12 * WEEK_S)
    assert len(part) == there.sum()
    np.testing.assert_array_equal(part.submit_s, log.submit_s[there] - 8 * WEEK_S)
    np.testing.assert_array_equal(part.duration_s, log.duration_s[there])
    assert part.job_id.tolist() == log.job_id[there].tolist()
    assert part.provenance.window_s == (0.0, 4 * WEEK_S)


def test_of_all_four_whole_weeks_philly_s_month_is_nearest_to_the_log_s_mean():
    log = generate("philly", 82_247, 0)
    week = (log.submit_s // WEEK_S).astype(int)
    gpu_s = np.bincount(week, log.num_gpus * log.duration_s)
    mean = gpu_s.sum() / (log.submit_s[-1] / WEEK_S)
    off = [abs(gpu_s[begin:begin + 4].mean() / mean - 1) for begin in range(12)]
    assert int(np.argmin(off)) == GENERATORS["philly"].weeks[1]


@pytest.mark.parametrize(("name", "an_hour"), [("pai", 447.2), ("helios", 363.7), ("acme", 154.8)])
def test_the_others_have_as_many_jobs_an_hour_as_their_logs(name, an_hour):
    made = month(name)
    assert len(made) / (4 * 168) == pytest.approx(an_hour, rel=0.01)
    assert made.submit_s[-1] / 86_400 == pytest.approx(28, abs=0.01)


def test_more_weeks_begin_with_the_same_month_and_have_other_jobs():
    short, long = month("philly", 1), month("philly", 1, weeks=15)
    same = long.submit_s < 4 * WEEK_S
    assert long.job_id[same].tolist() == short.job_id.tolist()
    again = long.select(long.submit_s >= 11 * WEEK_S)  # the log's busy weeks are over: the month of another log
    assert len(again) == pytest.approx(len(short), rel=0.1)
    assert not np.array_equal(again.duration_s[:100], short.duration_s[:100])


def test_a_layer_is_another_log_at_the_same_time():
    one, two = month("helios", 3), month("helios", 3, layers=2)
    assert len(two) == pytest.approx(2 * len(one), rel=0.001)
    assert set(one.job_id) < set(two.job_id)


@pytest.mark.parametrize("jobs", [40, 600, 3000])
def test_so_many_jobs_at_a_load_are_those_of_the_smallest_hashes_of_a_stretch(jobs):
    log = month("philly", 4, weeks=11)
    rows = at_load(Crowd.of(log, 4), np.full(len(log), 60.0), 0.8, jobs, 5000)
    assert len(rows) == jobs
    assert offered_load(log.select(rows), 60.0) == pytest.approx(0.8, rel=0.03)
    before = [mixed(hashes(log.job_id, 4), draw)[:int(rows[-1]) + 1] for draw in range(DRAWS)]
    assert any(set(rows.tolist()) == set(np.argsort(rank)[:jobs].tolist()) for rank in before)
    assert np.argsort(mixed(hashes(log.job_id, 4), 0)).tolist() == by_hash(log, 4).tolist()


def test_without_a_number_all_of_the_log_is_thinned_unless_that_is_too_many():
    log = month("philly", 0)
    rows = at_load(Crowd.of(log, 0), np.full(len(log), 50.0), 0.7, None, 5000)
    assert np.ptp(log.submit_s[rows]) > 27 * 86_400
    assert offered_load(log.select(rows), 50.0) == pytest.approx(0.7, rel=0.02)
    assert set(rows.tolist()) == set(by_hash(log, 0)[:len(rows)].tolist())
    few = at_load(Crowd.of(log, 0), np.full(len(log), 50.0), 0.7, None, 500)
    assert len(few) == 500
    assert offered_load(log.select(few), 50.0) == pytest.approx(0.7, rel=0.05)


def test_the_worth_of_a_cluster_is_that_on_the_jobs_that_are_taken():
    log = month("philly", 0)
    worth = np.where(log.num_gpus > 1, 20.0, np.where(log.num_gpus == 1, 80.0, np.nan))
    rows = at_load(Crowd.of(log, 0), worth, 0.7, None, 5000)
    gpu_s = (log.num_gpus * log.duration_s)[rows]
    assert offered_load(log.select(rows), float(np.average(worth[rows], weights=gpu_s))) == pytest.approx(0.7, rel=0.02)


def test_what_is_missing_of_the_log_is_said():
    log = month("philly", 0)
    crowd = Crowd.of(log, 0)
    assert at_load(crowd, np.full(len(log), 5.0), 0.7, 5000, 5000) == Short(longer=pytest.approx(30, rel=0.9))
    dense = at_load(crowd, np.full(len(log), 2000.0), 0.7, None, 5000)
    assert isinstance(dense, Short) and dense.denser == pytest.approx(1400 / 351, rel=0.01)
    assert thinned(crowd, 2 * len(log)) == Short(longer=2.0)
    with pytest.raises(TraceError, match="one job"):
        at_load(crowd, np.full(len(log), 50.0), 0.7, 1, 5000)


@given(st.permutations(range(40)), st.integers(1, 20), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_who_is_drawn_first_of_a_growing_part_is_as_if_each_were_drawn_anew(places, jobs, lengths):
    rank, rows, upto = np.array(places), np.arange(0), 0
    for length in sorted({max(jobs, length) for length in lengths}):
        rows, upto = _first_of(rank, rows, upto, length, jobs), length
        assert rows.tolist() == sorted(np.argsort(rank[:length])[:jobs].tolist())


@given(
    st.lists(st.integers(0, 5), min_size=8, max_size=40), st.integers(1, 8), st.lists(st.integers(1, 40), max_size=6))
def test_of_jobs_with_one_hash_the_first_are_drawn(keys, jobs, lengths):
    key, rows, upto = np.array(keys, dtype=np.uint64), np.arange(0), 0
    for length in sorted({min(max(jobs, length), len(keys)) for length in [*lengths, 40]}):
        rows, upto = _first_of(key, rows, upto, length, jobs), length
        assert rows.tolist() == sorted(np.argsort(key[:length], kind="stable")[:jobs].tolist())
