"""Tickets and trading: by hand, and the law that nobody is worse off than by his tickets alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.heterogeneous.gandiva_fair import GandivaFair, dealt
from policies.registry import make
from policies.shares.trading import by_tickets, filled, traded
from sim.api import Policy, PolicyError, View
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.tables import MeasuredTable
from sim.performance.tables.points import ANY_PLACEMENT, Measurement, Point
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled
from tests.helpers import jobs, nodes, run
from traces.trace import Trace

RATES = {"slow-gain": (1.25, 1.0), "quick-gain": (5.0, 1.0), "t4-better": (0.5, 1.0)}
"""Iterations a second on a V100 and on a T4, for each GPU."""
FOUR = nodes(("V100", 1, 2), ("T4", 1, 2))


# -- shares by tickets -------------------------------------------------------------------------------------------------


def test_what_one_cannot_use_goes_to_the_others_by_their_weights() -> None:
    assert filled(12.0, np.array([1.0, 1.0, 2.0]), np.array([1.0, 9.0, 9.0])) == pytest.approx([1, 11 / 3, 22 / 3])
    assert filled(12.0, np.array([1.0, 0.0]), np.array([5.0, 9.0])).tolist() == [5.0, 0.0]  # without tickets, nothing


def test_each_type_is_divided_by_tickets_and_among_a_user_s_jobs() -> None:
    """8 + 8 GPUs; a user of two jobs of 4 with 3 tickets, one of a single job of 1 GPU, one who may use the second."""
    able = np.array([[True, True], [True, True], [True, True], [False, True]])
    found = by_tickets(np.array([8.0, 8.0]), [0, 1], able, np.array([4.0, 4.0, 1.0, 8.0]), np.array([0, 0, 1, 2]),
                       np.array([3.0, 1.0, 1.0]))
    # The second user's job runs all its time on the first type; there the rest is the first user's, 7. On the second
    # he has use for 1 more, and the third has the rest, 7.
    assert found.tolist() == [[3.5, 0.5], [3.5, 0.5], [1, 0], [0, 7]]


# -- trading by hand ---------------------------------------------------------------------------------------------------


def test_three_users_trade_at_the_second_price() -> None:
    """Speed-ups 4, 6, 8, a third of both types each. The last buys at 6 for all that he has: 1/3 : 6 = 1/18 fast. Then
    the second buys at 4, what the first would give it for: 1/3 : 4 = 1/12 fast."""
    speed = np.array([[4.0, 1.0], [6.0, 1.0], [8.0, 1.0]])
    found = traded(np.full((3, 2), 1 / 3), speed, np.full(3, 2.0), [0, 1])
    assert found == pytest.approx(np.array([[1 / 3 - 1 / 18 - 1 / 12, 1.0], [1 / 3 + 1 / 12, 0], [1 / 3 + 1 / 18, 0]]))


def test_of_two_users_the_buyer_gains_all_and_the_seller_loses_nothing() -> None:
    """1 + 1 GPUs each, speed-ups 1.25 and 5: 0.8 V100 for 1 T4, as the seller has use for no more than 1.25 a V100."""
    speed = np.array([[1.25, 1.0], [5.0, 1.0]])
    found = traded(np.ones((2, 2)), speed, np.array([4.0, 2.0]), [0, 1])
    assert found == pytest.approx(np.array([[0.2, 2.0], [1.8, 0.0]]))
    assert (found * speed).sum(axis=1) == pytest.approx([2.25, 9.0])


def test_who_has_no_use_for_more_gpus_does_not_sell_one_for_more() -> None:
    speed = np.array([[1.25, 1.0], [5.0, 1.0]])
    assert traded(np.ones((2, 2)), speed, np.array([2.0, 2.0]), [0, 1]).tolist() == [[1, 1], [1, 1]]
    # Room for a tenth more: x (1.25 - 1) = 0.1.
    assert traded(np.ones((2, 2)), speed, np.array([2.1, 2.0]), [0, 1]) == pytest.approx(
        np.array([[0.6, 1.5], [1.4, 0.5]]))


def test_whoever_is_faster_on_the_slow_type_pays_to_be_there() -> None:
    """Speed-ups 0.5 and 0.8: the first gives a V100 for half a T4, if the other can use more than he has."""
    speed = np.array([[0.5, 1.0], [0.8, 1.0]])
    found = traded(np.ones((2, 2)), speed, np.array([2.0, 3.0]), [0, 1])
    assert found == pytest.approx(np.array([[0.0, 1.5], [2.0, 0.5]]))
    assert traded(np.ones((2, 2)), speed, np.array([2.0, 2.0]), [0, 1]).tolist() == [[1, 1], [1, 1]]


def test_where_the_price_gives_more_gpus_than_one_can_use_they_swap_one_for_one() -> None:
    """Speed-ups 0.5 and 4: at 0.5 the buyer would hold more than his 2 GPUs."""
    speed = np.array([[0.5, 1.0], [4.0, 1.0]])
    found = traded(np.ones((2, 2)), speed, np.array([2.0, 2.0]), [0, 1])
    assert found.tolist() == [[0, 2], [2, 0]]


def test_like_jobs_are_laid_on_types_one_after_another() -> None:
    found = dealt(np.array([1.5, 1.5]), np.array([1.0, 1.0, 2.0]), [1, 0])
    assert found.tolist() == [[0, 1], [0.5, 0.5], [1, 0]]


# -- laws --------------------------------------------------------------------------------------------------------------

AMOUNTS = st.sampled_from((0.0, 0.0, 0.5, 1.0, 2.0, 3.7, 8.0))
SPEEDS = st.sampled_from((0.0, 0.3, 1.0, 1.0, 1.5, 2.0, 4.0, 7.3))


@st.composite
def markets(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    traders, types = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    amount, speed = (np.array([[draw(what) for _ in range(types)] for _ in range(traders)])
                     for what in (AMOUNTS, SPEEDS))
    room = np.array([draw(st.sampled_from((0.0, 0.4, 3.0, 50.0))) for _ in range(traders)])
    amount[speed == 0] = 0.0
    return amount, speed, amount.sum(axis=1) + room


@given(markets())
@settings(deadline=None, max_examples=300)
def test_trading_makes_nobody_worse_off_and_neither_makes_gpus_nor_loses_them(
    market: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    amount, speed, gang = market
    order = list(range(speed.shape[1]))
    found = traded(amount, speed, gang, order)
    worth, was = (found * speed).sum(axis=1), (amount * speed).sum(axis=1)
    assert (worth >= was * (1 - 1e-9) - 1e-9).all()
    assert found.sum(axis=0) == pytest.approx(amount.sum(axis=0))
    assert (found >= 0).all() and (found.sum(axis=1) <= gang + 1e-6).all()
    assert (found[speed == 0] == 0).all()
    if len(order) == 2:  # no pair is left that gains
        able = np.flatnonzero((speed > 0).all(axis=1))
        ratio = speed[:, 0] / np.where(speed[:, 1] > 0, speed[:, 1], 1)
        for seller in able:
            for buyer in able:
                if ratio[seller] < ratio[buyer] and found[seller, 0] > 1e-6 and found[buyer, 1] > 1e-6:
                    room = gang - found.sum(axis=1)
                    assert (room[seller] <= 1e-6 and ratio[seller] > 1) or (room[buyer] <= 1e-6 and ratio[buyer] < 1)


@dataclass
class Watched(GandivaFair):
    """Looks at each allocation: what a user's jobs do, of what each could do at best, with trading and without."""

    def _shares(self, view: View, rows: np.ndarray, have: np.ndarray) -> np.ndarray:
        after = super()._shares(view, rows, have)
        self.trade = False
        before = super()._shares(view, rows, have)
        self.trade = True
        part = self.rates(view, rows) / self.rates(view, rows).max(axis=1, keepdims=True) * view.jobs.gpus[rows, None]
        worth, was = (np.bincount(self._user[rows], (x * part).sum(axis=1)) for x in (after, before))
        assert (worth >= was - 1e-6).all()
        assert (view.jobs.gpus[rows] @ after <= have + 1e-6).all() and (after.sum(axis=1) <= 1 + 1e-6).all()
        return after


def played(trace: Trace, policy: Policy, cluster: ClusterSpec = FOUR, **engine: Any) -> RunResult:
    points = {Point(model, 0, kind, 1, ANY_PLACEMENT): Measurement(rate)
              for model, both in RATES.items() for kind, rate in zip(("V100", "T4"), both, strict=True)}
    truth = Performance(table=MeasuredTable(points, "by hand", "linear"))
    work = Modelled(trace, cluster, truth, gpu_type("T4"))
    config = EngineConfig(preemption_overhead_s=0.0, **engine)
    return simulate(trace, cluster, policy, work, config, performance=truth)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 400), st.sampled_from((1, 1, 2)),
                          st.sampled_from(tuple(RATES)), st.sampled_from(("u", "v", "w"))), min_size=1, max_size=12))
@settings(deadline=None, max_examples=20)
def test_no_user_of_a_run_is_worse_off_by_trading(rows: list[tuple[int, int, int, str, str]]) -> None:
    submit, duration, gpus, model, user = (list(column) for column in zip(*rows, strict=True))
    trace = jobs(list(zip(submit, duration, gpus, strict=True)), model=model, user=user, batch_size=[1] * len(rows))
    policy = Watched()
    policy.name = "gandiva-fair"
    states = played(trace, policy).tables["jobs"].to_pandas()["state"]
    assert (states == "done").all()


# -- whole runs --------------------------------------------------------------------------------------------------------


def test_users_get_what_they_traded_for() -> None:
    """Four jobs of 1.25 against two of 5, on 2 + 2 GPUs: 0.2 + 2 and 1.8 + 0, over 200 rounds."""
    models = ["slow-gain"] * 4 + ["quick-gain"] * 2
    trace = jobs([(0, 1e6, 1)] * 6, model=models, user=["a"] * 4 + ["b"] * 2, batch_size=[1] * 6)
    end_s = 200 * 60.0
    result = played(trace, make("gandiva-fair", {}), horizon_s=end_s)
    held = np.zeros((2, 2))
    for one in result.tables["segments"].to_pylist():
        held[int(int(one["job_id"]) >= 4), int(one["gpu_ids"][0] >= 2)] += min(one["end_s"], end_s) - one["begin_s"]
    assert held / end_s == pytest.approx(np.array([[0.2, 2.0], [1.8, 0.0]]), abs=0.02)


def test_tickets_divide_a_type_between_users() -> None:
    """Two users of a GPU, 3 tickets to 1: both run on for ever, and hold it three quarters and a quarter of the time;
    with no tickets one waits until the other has ended."""
    trace = jobs([(0, 6000, 1), (0, 6000, 1)], user=["a", "b"])
    one = nodes(("V100", 1, 1))
    ends = run(trace, one, "gandiva-fair", {"tickets": "a=3"}).tables["jobs"].to_pandas()["end_s"].tolist()
    assert ends == [pytest.approx(8000, abs=120), 12000]
    ends = run(trace, one, "gandiva-fair", {"tickets": "a=0"}).tables["jobs"].to_pandas()["end_s"].tolist()
    assert ends == [12000, 6000]


def test_virtual_clusters_may_hold_the_tickets() -> None:
    trace = jobs([(0, 6000, 1), (0, 6000, 1)], user=["a", "a"], vc=["x", "y"])
    how = {"owner": "vc", "tickets": "y = 3"}
    ends = run(trace, nodes(("V100", 1, 1)), "gandiva-fair", how).tables["jobs"].to_pandas()["end_s"].tolist()
    assert ends == [12000, pytest.approx(8000, abs=120)]


@pytest.mark.parametrize("text", ["a", "a=", "=3", "a=-1", "a=nan", "a=inf", "a=1,a=2", "c=1"])
def test_tickets_that_cannot_be_meant_are_refused(text: str) -> None:
    with pytest.raises(PolicyError, match=r"gandiva-fair.*tickets (that cannot be meant|of nobody); got"):
        run(jobs([(0, 10, 1)], user=["a"]), nodes(("V100", 1, 1)), "gandiva-fair", {"tickets": text})
