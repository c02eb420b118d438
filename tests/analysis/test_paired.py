"""Differences by job and by seed, and how sure they are: by hand, by law, against SciPy, and on data of known truth."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.compare.bootstrap import bootstrap, interval
from analysis.compare.paired import difference_of_means, effects, pareto, ratio_of_means
from analysis.run import RunError


def ratio(means: np.ndarray) -> np.ndarray:
    return means[..., :1] / means[..., 1:2]


def jobs(policy: str, seed: int, jct_s: list[float], **more: object) -> pd.DataFrame:
    ids = [f"j{i}" for i in range(len(jct_s))]
    return pd.DataFrame({"policy": policy, "seed": seed, "job_id": ids, "jct_s": jct_s, **more})


@pytest.fixture
def two_seeds() -> pd.DataFrame:
    """Seed 0: 100 + 300 + 200 s under fifo, 50 + 150 + 100 under hetero (half); seed 1: 80 + 120, 64 + 36 (half)."""
    return pd.concat(
        [jobs("fifo", 0, [100, 300, 200]), jobs("hetero", 0, [50, 150, 100]), jobs("fifo", 1, [80, 120]),
         jobs("hetero", 1, [64, 36])],
        ignore_index=True,
    )  # fmt: skip


def test_a_ratio_by_hand(two_seeds):
    (row,) = ratio_of_means(two_seeds, "policy", "fifo", "jct_s").to_dict("records")
    assert row["policy"] == "hetero"
    assert (row["ratio"], row["low"], row["high"]) == pytest.approx((0.5, 0.5, 0.5))
    assert (row["seeds"], row["jobs"], row["jobs_left_out"], row["seeds_left_out"]) == (2, 5, 0, 0)
    assert row["method"] == "t"


def test_the_interval_over_seeds_is_students_t_of_log_ratios_by_hand():
    """Ratios 0.5 and 0.8: logs -0.693 and -0.223, mean -0.458, s = 0.332, t(1) = 12.706: half is 2.986."""
    ((found,), method) = effects([np.array([[[ratio, 1.0]]]) for ratio in (0.5, 0.8)], ["ratio"])
    assert method == "t"
    assert found.mean == pytest.approx(0.4**0.5)
    assert np.log(found.high / found.mean) == pytest.approx(12.7062 * 0.33234 / 2**0.5, rel=1e-4)
    assert found.low * found.high == pytest.approx(found.mean**2)
    plain = interval([1.0, 2.0, 3.0])
    assert (plain.mean, plain.high - 2, plain.n) == (2, pytest.approx(4.30265 / 3**0.5, rel=1e-5), 3)


def test_one_value_has_a_mean_and_no_interval_and_an_unknown_one_makes_all_unknown():
    assert interval([2.0]).mean == 2
    assert np.isnan(interval([2.0]).low)
    assert np.isnan(interval([2.0, np.nan]).mean)
    ((free,), _) = effects([np.array([[[ratio, 1.0]]]) for ratio in (2.0, 0.0)], ["ratio"])
    assert np.isnan(free.mean)
    assert interval([]).n == 0


def test_differences_of_means_are_in_the_unit_of_the_value(two_seeds):
    """Seed 0: 100 - 200 = -100 s; seed 1: 50 - 100 = -50 s; mean -75."""
    (row,) = difference_of_means(two_seeds, "policy", "fifo", "jct_s").to_dict("records")
    assert row["difference"] == -75
    assert row["high"] - row["difference"] == pytest.approx(12.7062 * 25, rel=1e-4)


def test_only_jobs_finished_under_both_count_and_the_others_are_told():
    table = pd.concat(
        [jobs("fifo", 0, [100, 300, 200, np.nan], finished=[True, True, True, False]),
         jobs("hetero", 0, [50, np.nan, 70, 1], finished=[True, False, True, True])],
    )  # fmt: skip
    (row,) = ratio_of_means(table, "policy", "fifo", "jct_s").to_dict("records")
    assert row["ratio"] == 120 / 300
    assert (row["jobs"], row["jobs_left_out"]) == (2, 2)


def test_a_seed_that_only_one_has_is_left_out_and_told(two_seeds):
    table = two_seeds[(two_seeds["policy"] == "fifo") | (two_seeds["seed"] == 0)]
    (row,) = ratio_of_means(table, "policy", "fifo", "jct_s").to_dict("records")
    assert (row["seeds"], row["seeds_left_out"], row["jobs"], row["jobs_left_out"]) == (1, 1, 3, 0)
    assert row["method"] == "jobs"


def test_of_an_unknown_cost_the_ratio_is_unknown_not_that_of_the_rest():
    table = pd.concat([jobs("a", 0, [1, 2], usd=[1.0, np.nan], finished=True),
                       jobs("b", 0, [1, 2], usd=[1.0, 2.0], finished=True)])  # fmt: skip
    assert ratio_of_means(table, "policy", "b", "usd")["ratio"].isna().all()
    table["usd"] = [1.0, 5.0, 1.0, 2.0]
    assert ratio_of_means(table, "policy", "b", "usd")["ratio"].tolist() == [2.0]


def test_settings_are_apart_and_only_those_that_are_there_p62(two_seeds):
    """P-62: categories that no row has make no group."""
    light, heavy = two_seeds.assign(load=0.5), two_seeds[two_seeds["seed"] == 0].assign(load=0.9)
    table = pd.concat([heavy, light])
    table["policy"] = pd.Categorical(table["policy"], ["fifo", "las", "hetero", "srtf"])
    table["load"] = pd.Categorical(table["load"], [0.5, 0.7, 0.9])
    found = ratio_of_means(table, "policy", "fifo", "jct_s", by=["load"])
    assert list(zip(found["load"], found["policy"], found["seeds"], strict=True)) == [
        (0.5, "hetero", 2), (0.9, "hetero", 1),
    ]  # fmt: skip


def test_a_setting_that_is_none_is_a_setting(two_seeds):
    table = pd.concat([two_seeds.assign(mtbf_h=None), two_seeds.assign(mtbf_h=24.0)])
    found = ratio_of_means(table, "policy", "fifo", "jct_s", by=["mtbf_h"])
    assert found["seeds"].tolist() == [2, 2]


def test_an_axis_that_is_forgotten_is_an_error_not_an_average(two_seeds):
    table = pd.concat([two_seeds.assign(load=0.5), two_seeds.assign(load=0.9)])
    with pytest.raises(RunError, match="a job is there twice"):
        ratio_of_means(table, "policy", "fifo", "jct_s")


def test_wrong_names_are_refused_with_the_nearest(two_seeds):
    with pytest.raises(RunError, match="did you mean 'jct_s'"):
        ratio_of_means(two_seeds, "policy", "fifo", "jct")
    with pytest.raises(RunError, match="did you mean 'fifo'"):
        ratio_of_means(two_seeds, "policy", "fif", "jct_s")
    with pytest.raises(RunError, match="confidence level"):
        ratio_of_means(two_seeds, "policy", "fifo", "jct_s", level=95)


times = st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=2, max_size=20)


def table_of(pairs: list[tuple[float, float]]) -> pd.DataFrame:
    a, b = map(list, zip(*pairs, strict=True))
    return pd.concat([jobs("a", 0, a), jobs("b", 0, b)], ignore_index=True)


@settings(max_examples=25)
@given(times)
def test_the_ratio_of_b_to_a_is_the_inverse_of_that_of_a_to_b(pairs):
    table = table_of(pairs)
    there, back = (ratio_of_means(table, "policy", base, "jct_s").iloc[0] for base in ("a", "b"))
    assert there["ratio"] * back["ratio"] == pytest.approx(1)
    assert there["low"] * back["high"] == pytest.approx(1)
    assert there["high"] * back["low"] == pytest.approx(1)
    assert there["low"] <= there["high"]


@settings(max_examples=25)
@given(times, st.sampled_from([0.25, 1024.0]))
def test_other_units_of_time_change_no_ratio(pairs, factor):
    table = table_of(pairs)
    scaled = table.assign(jct_s=table["jct_s"] * factor)
    one, other = (ratio_of_means(t, "policy", "a", "jct_s").iloc[0] for t in (table, scaled))
    assert one[["ratio", "low", "high"]].tolist() == pytest.approx(other[["ratio", "low", "high"]].tolist())


@settings(max_examples=25)
@given(times, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(pairs, random):
    table = table_of(pairs)
    order = list(range(len(table)))
    random.shuffle(order)
    found, shuffled = (ratio_of_means(t, "policy", "a", "jct_s") for t in (table, table.iloc[order]))
    pd.testing.assert_frame_equal(found, shuffled, check_exact=True)


def test_the_bootstrap_is_that_of_scipy():
    """Same statistic, same method (BCa), other draws: ends are equal within what resampling leaves open."""
    rng = np.random.default_rng([5, 1])
    a = rng.lognormal(0, 1, 60)
    b = a * rng.lognormal(0.1, 0.5, 60)
    ours = [np.ravel(bootstrap(np.column_stack((a, b)), ratio, resamples=20_000, seed=seed)) for seed in range(4)]
    theirs = [
        stats.bootstrap(
            (a, b), lambda x, y, axis=-1: x.mean(axis) / y.mean(axis), paired=True, n_resamples=20_000, rng=seed
        ).confidence_interval
        for seed in range(4)
    ]
    assert np.mean(ours, axis=0) == pytest.approx(np.mean(theirs, axis=0), rel=0.02)


def test_the_same_seed_gives_the_same_interval_and_another_nearly_the_same():
    values = np.random.default_rng([5, 2]).lognormal(0, 1, (400, 2))
    first, again, other = (bootstrap(values, ratio, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert np.ravel(first) == pytest.approx(np.ravel(other), rel=0.03)


def test_the_number_of_threads_changes_no_digit():
    """A threaded product of matrices would add up in another order."""
    code = (
        "import numpy as np; from analysis.compare.bootstrap import bootstrap;"
        "v = np.random.default_rng(1).lognormal(8, 2, (50_000, 6));"
        "print([end.tolist() for end in bootstrap(v, lambda m: m[..., 1:] / m[..., :1], resamples=60)])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, text=True, cwd=Path(__file__).parents[2],
            env=os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
        ).stdout
        for threads in ("1", "2")
    }  # fmt: skip
    assert len(said) == 1


def test_resamples_of_many_rows_are_drawn_in_blocks_of_bounded_memory():
    """500 resamples of 40,000 rows would be 160 MB of counts; what is taken is a fraction of it."""
    values = np.random.default_rng([5, 3]).lognormal(0, 1, (40_000, 2))
    tracemalloc.start()
    bootstrap(values, ratio, resamples=500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


def test_rows_that_are_alike_have_an_interval_of_no_length_and_one_row_has_none():
    low, high = bootstrap(np.tile([3.0, 7.0], (50, 1)), ratio)
    assert low == high == pytest.approx([3 / 7])
    assert np.isnan(bootstrap(np.ones((1, 2)), ratio)).all()
    assert np.isnan(bootstrap(np.zeros((9, 2)), ratio)).all()


def test_the_interval_over_jobs_holds_the_true_ratio_about_as_often_as_it_says():
    """400 samples of 150 independent pairs of skewed times whose means are as 0.8: 90 to 98 % of the intervals hold it.

    (Of 400 draws at 95 % the standard deviation is 1.1 %; of long tails, intervals are known to fall a little short.)
    """
    rng = np.random.default_rng([5, 4])
    hit = 0
    for k in range(400):
        base = rng.lognormal(3, 0.8, 150)
        other = 0.8 * base * rng.lognormal(-(0.4**2) / 2, 0.4, 150)
        low, high = bootstrap(np.column_stack((other, base)), ratio, resamples=400, seed=k)
        hit += bool(low[0] <= 0.8 <= high[0])
    assert 0.90 <= hit / 400 <= 0.98


def test_the_interval_over_seeds_holds_the_true_ratio_as_often_as_it_says_and_a_bootstrap_of_five_does_not():
    """400 experiments of five seeds whose true log ratios are normal around log 0.8: t is exact; a bootstrap is not."""
    rng = np.random.default_rng([5, 5])
    ratios = 0.8 * np.exp(rng.normal(0, 0.1, (400, 5)))
    student = bootstrapped = 0
    for k, one in enumerate(ratios):
        (found,), _ = effects([np.array([[[r, 1.0]]]) for r in one], ["ratio"])
        student += found.low <= 0.8 <= found.high
        low, high = np.exp(bootstrap(np.log(one)[:, None], np.asarray, seed=k)).ravel()
        bootstrapped += low <= 0.8 <= high
    assert 0.925 <= student / 400 <= 0.975
    assert bootstrapped / 400 < 0.92


def test_several_effects_at_once_are_those_one_by_one():
    rng = np.random.default_rng([5, 6])
    one = rng.lognormal(0, 1, (80, 2, 2))
    both, _ = effects([one], ["ratio", "difference"])
    alone = [effects([one[:, k : k + 1]], [kind])[0][0] for k, kind in enumerate(("ratio", "difference"))]
    for a, b in zip(both, alone, strict=True):
        assert (a.mean, a.low, a.high) == pytest.approx((b.mean, b.low, b.high))


def test_the_pareto_front_by_hand():
    table = pd.DataFrame(
        {"jct_s": [1.0, 2.0, 2.0, 3.0, 0.5, 2.0], "usd": [9.0, 5.0, 5.0, 6.0, np.nan, 7.0]}, index=list("abcdef")
    )
    front = pareto(table, "jct_s", "usd")
    assert front.dropna().to_dict() == {"a": True, "b": True, "c": True, "d": False, "f": False}
    assert front.isna()["e"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_somebody_is_on_the_front_and_beats_each_who_is_not(points):
    table = pd.DataFrame(points, columns=["x", "y"])
    front = pareto(table, "x", "y")
    assert front.any()
    best = table[front.to_numpy(bool)]
    for x, y in table[~front.to_numpy(bool)].itertuples(index=False):
        assert ((best["x"] <= x) & (best["y"] <= y)).any()


def test_what_an_unknown_value_may_beat_is_neither_on_the_front_nor_off_it():
    """u is at least 1 at x = 2: it may beat b (2, 3), not a (1, 5); c (3, 9) is beaten by both anyway."""
    table = pd.DataFrame({"x": [1, 2, 3, 2], "y": [5, 3, 9, np.nan], "least": [5, 3, 9, 1]}, index=list("abcu"))
    assert pareto(table, "x", "y").astype(object).fillna("?").tolist() == [True, True, False, "?"]
    known = pareto(table, "x", "y", at_least={"y": "least"})
    assert known.astype(object).fillna("?").tolist() == [True, "?", False, "?"]
