"""Sentences about what a policy is worth: they claim no more than the interval holds."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.compare.bootstrap import Interval
from analysis.compare.verdict import change, verdict

NONE = np.nan


def ratio(mean: float, low: float, high: float) -> Interval:
    return Interval(mean, low, high, 5)


NO_CHANGE, SAME_COST = ratio(0, 0, 0), ratio(1, 1, 1)


def said(jct: Interval, queue: Interval = NO_CHANGE, cost: Interval = SAME_COST) -> str:
    return verdict("hetero", "fifo", jct, queue, cost, "95 %, 5 seeds, 24,310 jobs")


def test_the_whole_sentence():
    assert said(ratio(0.82, 0.79, 0.85), ratio(-1505, -1625, -1385), ratio(1.04, 1.03, 1.05)) == (
        "hetero is better than fifo in mean JCT by 18 % ± 3 %; jobs wait 25 min 5 s ± 2 min 0 s less; "
        "dearer by 4 % ± 1 % (95 %, 5 seeds, 24,310 jobs)."
    )


@pytest.mark.parametrize(
    ("jct", "words"),
    [
        (ratio(1.3, 1.2, 1.4), "hetero is worse than fifo in mean JCT by 30 % ± 10 %"),
        (ratio(0.99, 0.96, 1.02), "hetero and fifo: no difference in mean JCT beyond the interval, −1 % ± 3 %"),
        (ratio(1, 1, 1), "hetero and fifo have the same mean JCT"),
        (ratio(1, NONE, NONE), "hetero and fifo have the same mean JCT"),
        (ratio(0.5, NONE, NONE), "hetero is better than fifo in mean JCT by 50 %, interval unknown"),
        (ratio(NONE, NONE, NONE), "hetero and fifo cannot be compared in mean JCT"),
    ],
)
def test_jct(jct, words):
    assert said(jct).startswith(words + ";")


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (ratio(0, 0, 0), "jobs wait as long"),
        (ratio(30, 20, 40), "jobs wait 30.0 s ± 10.0 s longer"),
        (ratio(-30, -70, 10), "no difference in waiting beyond the interval, −30.0 s (−1 min 10 s to 10.0 s)"),
        (ratio(11.1, -3, 60.5), "no difference in waiting beyond the interval, 11.1 s (−3.0 s to 1 min 0 s)"),
        # Twice as far to one side as to the other: half the length would reach across 0, the interval does not.
        (ratio(-12.5, -36.4, -3.7), "jobs wait 12.5 s (3.7 s to 36.4 s) less"),
        (ratio(12.5, 3.7, 36.4), "jobs wait 12.5 s (3.7 s to 36.4 s) longer"),
        (ratio(-30, NONE, NONE), "jobs wait 30.0 s (interval unknown) less"),
    ],
)
def test_waiting(queue, words):
    assert f"; {words}; " in said(ratio(0.5, 0.4, 0.6), queue)


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (ratio(1, 1, 1), "at the same cost"),
        (ratio(0.9, 0.88, 0.92), "cheaper by 10 % ± 2 %"),
        (ratio(1.02, 0.98, 1.06), "no difference in cost beyond the interval, 2 % ± 4 %"),
        (ratio(NONE, NONE, NONE), "cost unknown"),
    ],
)
def test_cost(cost, words):
    assert f"; {words} (" in said(ratio(0.5, 0.4, 0.6), cost=cost)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (ratio(0.82, 0.79, 0.85), "−18 % ± 3 %"),
        (ratio(1.0004, 0.9997, 1.0011), "0.04 % ± 0.07 %"),
        (ratio(0.999, 0.95, 1.05), "0 % ± 5 %"),
        (ratio(6.632, 6.0, 9.0), "563 % (500 % to 800 %)"),
        (ratio(40, 39, 41), "3,900 % ± 100 %"),
    ],
)
def test_digits_are_as_many_as_the_interval_is_worth_and_lopsided_ends_are_told(one, words):
    assert change(one) == words


def test_the_ends_of_a_gain_are_in_order_of_size():
    assert change(ratio(0.6, 0.5, 0.65), signed=False) == "40 % (35 % to 50 %)"
