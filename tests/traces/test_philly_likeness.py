"""The generated Philly against the real subset, by the distances of `traces.study.distances`, and these by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import by_job, jobs, nodes, run
from traces.load import load_trace
from traces.offered_load import scale_load
from traces.study.distances import (
    as_text,
    by_hour,
    compare,
    dispersion,
    gaps,
    ks,
    ks_to_curve,
    per_hour,
    profile_correlation,
    skew,
)
from traces.synthetic.generate import generate
from traces.synthetic.philly import cut, philly_columns, shared_out
from traces.synthetic.philly_tables import statistics

JOBS = 82_247


@pytest.fixture(scope="module")
def real(data_dir):
    return load_trace(data_dir / "philly" / "philly.csv")


@pytest.fixture(scope="module")
def made():
    return generate("philly", JOBS, 0)


# --- against the real file ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_generated_trace_is_as_near_to_the_real_one_as_was_asked(real, seed):
    far = compare(generate("philly", len(real), seed), real)
    assert far["duration_ks"] <= 0.05
    classes = [row for row in far["sizes"] if min(row["jobs"], row["jobs_b"]) >= 20]
    assert [row["gpus"] for row in classes] == ["1", "2", "3 to 4", "8", "16", "24 or more"]
    assert all(row["duration_ks"] <= 0.10 for row in classes)
    assert far["gpu_time_off"] <= 0.03
    assert far["hour_correlation"] >= 0.9
    assert 0.5 <= far["dispersion_ratio"] <= 2
    assert far["vc_jobs_off"] < 0.01 and far["vc_gpu_time_off"] < 0.03
    assert far["mean_s"] == pytest.approx(far["mean_s_b"], rel=0.01)
    assert far["gaps"]["zero"] == pytest.approx(far["gaps_b"]["zero"], abs=0.01)
    assert far["gaps"]["p99_s"] == pytest.approx(far["gaps_b"]["p99_s"], abs=10)


def test_the_real_trace_is_further_from_itself(real):
    """The yardstick: its first half of jobs against its second. What is generated repeats this log, no other."""
    half = len(real) // 2
    far = compare(real.select(slice(0, half)), real.select(slice(half, None)))
    assert far["duration_ks"] > 0.2 and far["gpu_time_off"] > 0.09 and far["vc_jobs_off"] > 0.2


@pytest.mark.slow
def test_jobs_wait_as_long_under_fifo_as_those_of_the_real_trace(real):
    """Mean JCT at a load of 0.7 on 320 GPUs, the median of three seeds: within 15 %."""

    def mean_jct_s(trace):
        ended = by_job(run(scale_load(trace, 320, 0.7), nodes(("V100", 40, 8)), "fifo"))
        return float((ended.end_s - ended.submit_s).mean())

    got = np.median([mean_jct_s(generate("philly", len(real), seed)) for seed in (0, 1, 2)])
    assert got == pytest.approx(mean_jct_s(real), rel=0.15)


# --- the generator ------------------------------------------------------------------------------------------


def test_all_fifteen_virtual_clusters_take_part(made):
    assert len(set(made.vc)) == 15
    tiny = [vc for vc, (share, _) in skew(made).items() if share < 1e-3]
    assert len(tiny) == 4 and sum(int((made.vc == vc).sum()) for vc in tiny) == 18


def test_a_longer_trace_has_the_same_rate_and_the_same_work_a_job(made):
    for n in (10_000, 300_000):
        other = generate("philly", n, 1)
        far = compare(other, made)
        assert other.submit_s[-1] / n == pytest.approx(made.submit_s[-1] / JOBS, rel=0.01)
        assert far["duration_ks"] < 0.03 and far["gpu_time_off"] < 0.04
        assert far["mean_s"] == pytest.approx(far["mean_s_b"], rel=0.05)
        assert far["vc_jobs_off"] < 0.01


def test_in_a_longer_trace_weekends_are_those_of_the_calendar():
    day = (generate("philly", 400_000, 0).submit_s // 86_400 % 7).astype(int)
    count = np.bincount(day, minlength=7)
    assert count[5:].mean() < 0.7 * count[:5].mean()


def test_jobs_of_a_burst_are_alike(made):
    """Jobs of one virtual cluster in the same two minutes: same GPUs far more often than two of its jobs anywhere."""
    rows = np.flatnonzero(made.vc == "ee9e8c")
    near = np.diff(made.submit_s[rows]) < 120
    same = made.num_gpus[rows][1:] == made.num_gpus[rows][:-1]
    anywhere = sum((n / len(rows)) ** 2 for n in Counter(made.num_gpus[rows].tolist()).values())
    assert near.sum() > 100 and same[near].mean() > anywhere + 0.2
    apart = np.abs(np.diff(np.log(made.duration_s[rows])))
    assert np.median(apart[near]) < 0.7 * np.median(apart[~near])


def test_the_robot_keeps_time(made):
    beat_s = made.submit_s[made.user == "11cb48-robot"]
    gap_s = np.diff(beat_s)
    on_time = (gap_s >= 597) & (gap_s <= 603)
    assert 9_000 < len(beat_s) < 12_000 and on_time.mean() > 0.9
    assert (np.abs(gap_s / 600 - np.rint(gap_s / 600)) * 600 < 4).mean() > 0.99


def test_no_run_time_of_a_job_is_in_the_statistics_of_few():
    """Classes of fewer than five jobs have the run times of all of their size and length."""
    stats = statistics()
    small = [c for vc in stats.clusters for c in vc.classes if c.jobs.sum() < 5]
    own = {c.run_s[0] for vc in stats.clusters for c in vc.classes if c.jobs.sum() >= 5}
    assert small and not any(c.run_s[0] in own for c in small)
    people = sum(int(c.jobs.sum()) for vc in stats.clusters for c in vc.classes)
    assert people + int(stats.robot_jobs.sum()) == stats.jobs == JOBS


def test_half_a_million_jobs_are_legal():
    columns = philly_columns(500_000, 3)
    assert {len(values) for values in columns.values()} == {500_000}
    assert columns["submit_s"].min() == 0 and columns["duration_s"].min() >= 1


@given(st.integers(1, 5_000), st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(0, 9))
def test_what_is_shared_out_adds_up_and_is_fair(total, weights, seed):
    weight = np.array([*weights, 1])
    counts = shared_out(np.random.default_rng(seed), total, weight)
    assert counts.sum() == total and (counts >= 0).all()
    assert (np.abs(counts - total * weight / weight.sum()) < 1 + 1e-6).all()


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(1, 12), st.integers(0, 9))
def test_bursts_are_cut_where_a_cell_ends(bursts, count, seed):
    cells = np.random.default_rng(seed).multinomial(sum(bursts), np.full(count, 1 / count))
    n = sum(bursts)
    sizes, cell = cut(np.array(bursts), cells)
    assert (sizes > 0).all() and sizes.sum() == n
    assert np.bincount(cell, sizes, len(cells)).tolist() == cells.tolist()
    assert set(np.cumsum(bursts)) <= set(np.cumsum(sizes))


# --- the distances, by hand ---------------------------------------------------------------------------------


def test_distances_of_samples_by_hand():
    assert ks(np.array([1, 2]), np.array([2, 3])) == 0.5
    assert ks(np.array([1, 2, 3]), np.array([3, 1, 2])) == 0
    assert ks(np.array([1]), np.array([5, 6])) == 1
    assert ks_to_curve(np.array([1, 2, 3, 4]), [2, 4], [0.25, 1.0]) == 0.25
    assert profile_correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert np.isnan(profile_correlation([1, 1], [1, 2]))
    assert dispersion(np.array([0, 4])) == 2


def test_hourly_counts_of_a_poisson_process_have_dispersion_one():
    rng = np.random.default_rng(0)
    trace = jobs([(t, 1, 1) for t in np.sort(rng.uniform(0, 2_000 * 3600, 20_000))])
    assert dispersion(per_hour(trace)) == pytest.approx(1, abs=0.1)
    assert gaps(trace)["cv"] == pytest.approx(1, abs=0.05)


def test_two_traces_by_hand():
    a = jobs([(0, 10, 1), (3600, 30, 1), (3600, 5, 2)], vc=["x", "x", "y"])
    b = jobs([(0, 10, 1), (7200, 10, 4)], vc=["x", "z"])
    far = compare(a, b)
    assert by_hour(a)[:3].tolist() == [1, 2, 0] and per_hour(b).tolist() == [1, 0, 1]
    assert [row["gpus"] for row in far["sizes"]] == ["1", "2", "3 to 4"]
    assert [row["gpu_time"] for row in far["sizes"]] == [0.8, 0.2, 0] and far["gpu_time_off"] == 0.8
    assert np.isnan(far["sizes"][0]["duration_ks"])  # too few jobs to say
    assert far["vc_jobs_off"] == pytest.approx(0.5) and far["vc_gpu_time_off"] == pytest.approx(0.8)
    assert far["gaps"]["zero"] == 0.5 and skew(a)["x"] == (pytest.approx(2 / 3), 0.8)
    assert "3 against 2" in as_text(far) and "3 to 4 GPUs" in as_text(far)


def test_a_trace_is_no_distance_from_itself():
    trace = generate("philly", 3_000, 4)
    far = compare(trace, trace)
    assert far["duration_ks"] == far["size_ks"] == far["gpu_time_off"] == far["hour_error"] == far["vc_jobs_off"] == 0
    assert far["dispersion_ratio"] == 1 and far["hour_correlation"] == pytest.approx(1)


def test_one_job_can_be_compared():
    alone = jobs([(0, 10, 1)])
    assert compare(alone, alone)["gaps"] == {} and "KS distance 0.000" in as_text(compare(alone, alone))
