"""Finish-time fairness and Jain's index: by hand, against a twin that looks at each second, by law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import metrics
from analysis.metrics.fairness import SHARES, rho
from analysis.run import RunError
from tests.analysis.smallruns import small_run
from tests.conftest import ONE_FOLDER

relaxed = settings(
    max_examples=30, suppress_health_check=ONE_FOLDER
)


def two_jobs(run, second_end: float):
    """Two jobs of 100 s on one GPU each, on two GPUs; the second ends when it is told to."""
    run.node(gpus=2).job("a", 0, 100, user="ann").job("b", 0, 100, user="bob")
    return run.segment("a", 0, 100, [0]).segment("b", second_end - 100, second_end, [1]).load()


@pytest.mark.parametrize("n", SHARES)
def test_p24_two_jobs_with_a_gpu_each_are_treated_fairly(run_files, n):
    assert rho(two_jobs(run_files(), 100), n).tolist() == [1, 1]


@pytest.mark.parametrize("n", SHARES)
def test_p24_a_job_that_is_delayed_by_half_has_one_and_a_half(run_files, n):
    run = two_jobs(run_files(), 150)
    assert rho(run, n).tolist() == [1, 1.5]
    row = metrics.measures(run, n)
    assert (row["rho_worst"], row["rho_mean"], row["unfair_share"]) == (1.5, 1.25, 0.5)
    assert row["rho_p99"] == pytest.approx(1.495)


@pytest.mark.parametrize("n", SHARES)
def test_p24_a_lone_job_on_an_empty_cluster_is_at_most_one(run_files, n):
    run = run_files().node(gpus=8).job("a", 5, 100, 4).segment("a", 5, 105, [0, 1, 2, 3])
    assert rho(run.load(), n).tolist() == [1]
    faster = run_files("fast").node(gpus=8).job("a", 5, 100, 4).segment("a", 5, 55, [0, 1, 2, 3])
    assert rho(faster.load(), n).tolist() == [0.5]


def test_what_n_is(run_files):
    """On one GPU, a from 0 to 30 s, b from 10 to 40 s behind it: b is alone for the last third of its life."""
    run = run_files().node(gpus=1).job("a", 0, 30).job("b", 10, 10)
    run = run.segment("a", 0, 30, [0]).segment("b", 30, 40, [0]).load()
    # a: alone 10 s, two for 20 s. b: two for 20 s, alone for 10 s.
    assert rho(run, "mean").tolist() == pytest.approx([30 / (30 * 5 / 3), 30 / (10 * 5 / 3)])
    assert rho(run, "submit").tolist() == [1, 30 / 20]
    assert rho(run, "max").tolist() == [30 / 60, 30 / 20]


def test_only_jobs_that_may_use_the_same_gpus_share_them(run_files):
    """a and b want V100s, c a T4: there are two on the V100, one on the T4; n and N go by type."""
    run = run_files().node("V100", 1).node("T4", 1).job("a", 0, 10, gpu_type="V100").job("b", 0, 10, gpu_type="v100")
    run.job("c", 0, 10, gpu_type="T4")
    run = run.segment("a", 0, 10, [0]).segment("c", 0, 10, [1]).segment("b", 10, 20, [0]).load()
    assert rho(run, "submit").tolist() == [0.5, 1, 1]


def test_a_share_larger_than_the_gang_is_the_gang(run_files):
    """Half a GPU of eight, two jobs: the share is four GPUs, of which a job can use only what it asks for."""
    run = run_files().node(gpus=8).job("a", 0, 10, gpu_milli=500).job("b", 0, 10, 8)
    run = run.segment("a", 0, 10, [0]).segment("b", 10, 20, list(range(8))).load()
    # b asks for all eight and is there with a for 10 of its 20 s: n = 1.5.
    assert rho(run).tolist() == [1, pytest.approx(20 / 15)]


def test_jobs_without_a_value_and_those_that_were_refused(run_files):
    run = run_files().node(gpus=1).job("a", 0, 10).job("no", 0, 10, 4, state="rejected", reason="x")
    run.job("waits", 0, 10, state="unfinished", reason="x").job("nothing", 0, 0)
    run = run.segment("a", 0, 10, [0]).segment("nothing", 0, 0, [0]).load()
    found = rho(run, "submit")
    assert found[0] == 0.5  # a and the one that waits; the refused one and the one that left at once share nothing
    assert np.isnan(found[1:]).all()


def test_an_unknown_meaning_of_n_is_an_error_with_the_nearest(run_files):
    with pytest.raises(RunError, match="did you mean 'mean'"):
        rho(two_jobs(run_files(), 100), "means")


@relaxed
@given(seed=st.integers(0, 10_000), n=st.sampled_from(SHARES))
def test_rho_as_a_look_at_each_second_has_it(run_files, seed, n):
    files = small_run(run_files(f"rho{seed}{n}"), seed)
    run = files.load()
    found = rho(run, n)
    for row, job in enumerate(files.jobs):
        if job["state"] not in ("done", "killed", "failed"):
            assert np.isnan(found[row])
            continue
        kinds = [t for t in run.types if not job["gpu_type"] or t in job["gpu_type"]]
        rivals = [j for j in files.jobs if j["state"] != "rejected"
                  and any(not j["gpu_type"] or t in j["gpu_type"] for t in kinds)]
        there = sum(g["gpus"] for g in files.nodes if g["gpu_type"] in kinds)
        life = range(int(job["submit_s"]), int(job["end_s"]))
        present = [sum(j["submit_s"] <= s < (j["end_s"] or run.window_s[1]) for j in rivals) for s in life]
        sharers = {"mean": np.mean(present), "submit": present[0], "max": max(present)}[n]
        share = job["duration_s"] * max(1.0, job["num_gpus"] * job["gpu_milli"] / 1000 * sharers / there)
        assert found[row] == pytest.approx((job["end_s"] - job["submit_s"]) / share, rel=1e-9)


@relaxed
@given(jobs=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=12))
def test_nobody_is_unfair_to_jobs_that_share_a_gpu_equally(run_files, jobs):
    """Processor sharing on one GPU: rho is the harmonic over the arithmetic mean of n, so at most 1.

    A job of length d that always gets 1/n(t) ends when the integral of 1/n(t) is d, so its JCT is d times the harmonic
    mean of n over its life, and T_share is d times the arithmetic one. Jobs that are alone, or all equal, have 1.
    """
    run, left = run_files(f"ps{abs(hash(tuple(jobs)))}").node(gpus=1), {}
    jobs, now = sorted(jobs), 0.0
    for i, (submit, length) in enumerate(jobs):
        run.job(f"j{i}", float(submit), float(length))
    for i, (submit, length) in [*enumerate(jobs), (None, (float("inf"), 0))]:
        while left and now < submit:
            first = min(left, key=left.get)
            step = min(left[first] * len(left), submit - now)
            left = {k: v - step / len(left) for k, v in left.items()}
            now += step
            for k in [k for k, v in left.items() if v <= 1e-9]:
                run.of(f"j{k}")["end_s"] = now
                left.pop(k)
        now = max(now, submit) if i is not None else now
        left |= {i: length} if i is not None else {}
    found = rho(run.load())
    assert found.max() <= 1 + 1e-6
    if len({submit for submit, _ in jobs}) == len({length for _, length in jobs}) == 1:
        assert found == pytest.approx(1.0)


@relaxed
@given(
    shares=st.lists(st.floats(0.01, 100), min_size=1, max_size=20),
    scale=st.floats(0.01, 100),
)
def test_jain_laws(shares, scale):
    """Between 1/n and 1, whatever the unit and the order; 1 for equal shares; k of n with equal shares give k/n."""
    x = np.array(shares)
    index = metrics.jain_index(x)
    assert 1 / len(x) - 1e-12 <= index <= 1 + 1e-12
    assert metrics.jain_index(x * scale) == pytest.approx(index, rel=1e-9)
    assert metrics.jain_index(x[::-1]) == pytest.approx(index, rel=1e-9)
    assert metrics.jain_index(np.append(np.full(len(x), scale), np.zeros(3))) == pytest.approx(len(x) / (len(x) + 3))


def test_jain_over_users_clusters_and_jobs(run_files):
    """ann holds 300 GPU-s, bob 100; both in x; speeds 1 and 1/2; nobody's job is no user's."""
    run = run_files().node(gpus=4).job("a", 0, 100, 3, user="ann", vc="x").job("b", 0, 100, user="bob", vc="x")
    run.job("c", 0, 0, 1)
    run.segment("a", 0, 100, [0, 1, 2]).segment("b", 100, 200, [3]).segment("c", 0, 0, [3])
    row = metrics.measures(run.load())
    assert row["jain_user_gpu_s"] == pytest.approx(16 / (2 * 10))
    assert row["jain_vc_gpu_s"] == 1
    assert row["jain_speed"] == pytest.approx(1.5**2 / (2 * 1.25))


def test_a_job_that_asks_for_a_type_that_is_not_there_has_no_rho(run_files):
    run = run_files().node("V100").job("a", 0, 10).job("b", 0, 10, gpu_type="T4", state="unfinished", reason="waits")
    assert rho(run.segment("a", 0, 10, [0]).load()).tolist() == pytest.approx([1, np.nan], nan_ok=True)
