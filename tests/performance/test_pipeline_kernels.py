"""Pipeline schedules: by hand, against closed forms, and against a slow event-by-event twin."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.kernels.pipeline import gpipe_s, one_f_one_b_many_s, one_f_one_b_s


def order(schedule: str, s: int, p: int, m: int) -> list[tuple[str, int]]:
    """What stage s does, written as a list."""
    if schedule == "gpipe":
        return [("f", k) for k in range(m)] + [("b", k) for k in range(m)]
    warm = min(m, p - s)
    todo = [("f", k) for k in range(warm)]
    for k in range(m):
        todo.append(("b", k))
        if warm + k < m:
            todo.append(("f", warm + k))
    return todo


class Twin:
    """The same machine as processes and events: stages, and a channel a direction at each border."""

    def __init__(self, schedule: str, fwd: Any, bwd: Any, comm_fwd: Any, comm_bwd: Any, m: int) -> None:
        self.env, self.p, self.m = simpy.Environment(), len(fwd), m
        self.fwd, self.bwd, self.comm_fwd, self.comm_bwd = fwd, bwd, comm_fwd, comm_bwd
        self.ready = {
            (kind, s, k): self.env.event() for kind in "fb" for s in range(self.p) for k in range(m)
        }
        self.channel = {(kind, s): simpy.Resource(self.env) for kind in "fb" for s in range(self.p - 1)}
        self.held, self.most_held = [0] * self.p, [0] * self.p
        self.last_end = [0.0] * self.p
        for k in range(m):
            self.ready["f", 0, k].succeed()
        for s in range(self.p):
            self.env.process(self.stage(s, order(schedule, s, self.p, m)))
        self.env.run()

    def stage(self, s: int, todo: list[tuple[str, int]]) -> Generator:
        for kind, k in todo:
            yield self.ready[kind, s, k]
            if kind == "f":
                self.held[s] += 1
                self.most_held[s] = max(self.most_held[s], self.held[s])
            yield self.env.timeout(self.fwd[s] if kind == "f" else self.bwd[s])
            if kind == "b":
                self.held[s] -= 1
                self.last_end[s] = self.env.now
            target = s + 1 if kind == "f" else s - 1
            if kind == "f" and s == self.p - 1:
                self.ready["b", s, k].succeed()
            elif 0 <= target < self.p:
                self.env.process(self.send(kind, min(s, target), target, k))

    def send(self, kind: str, border: int, target: int, k: int) -> Generator:
        with self.channel[kind, border].request() as turn:
            yield turn
            yield self.env.timeout((self.comm_fwd if kind == "f" else self.comm_bwd)[border])
        self.ready[kind, target, k].succeed()


seconds = st.floats(0.01, 10.0)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    p, m = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    fwd, bwd = (np.array(draw(st.lists(seconds, min_size=p, max_size=p))) for _ in range(2))
    messages = st.lists(st.one_of(st.just(0.0), seconds), min_size=p - 1, max_size=p - 1)
    comm_fwd, comm_bwd = (np.array(draw(messages), dtype=np.float64) for _ in range(2))
    return fwd, bwd, comm_fwd, comm_bwd, m


def test_two_stages_and_two_micro_batches_by_hand() -> None:
    """Stage 0: f 1, b 2; stage 1: f 3, b 4; a message takes 0.5.

    1F1B, stage 1: f0 1.5-4.5, b0 4.5-8.5, f1 8.5-11.5, b1 11.5-15.5. Stage 0: f 0-1, 1-2; b0 9-11, b1 16-18.
    GPipe, stage 1: f0 1.5-4.5, f1 4.5-7.5, b0 7.5-11.5, b1 11.5-15.5. Stage 0: b0 12-14, b1 16-18.
    """
    fwd, bwd, comm = np.array([1.0, 3.0]), np.array([2.0, 4.0]), np.array([0.5])
    iteration, ends = one_f_one_b_s(fwd, bwd, comm, comm, 2)
    assert iteration == 18.0 and ends.tolist() == [18.0, 15.5]
    iteration, ends = gpipe_s(fwd, bwd, comm, 2)
    assert iteration == 18.0 and ends.tolist() == [18.0, 15.5]


def test_messages_wait_for_each_other_by_hand() -> None:
    """Each takes 10, each computation 1: stage 1 ends its backwards at 3 and 5; they arrive at 13 and 23.

    Forward likewise: sent at 1 and 2, they arrive at 11 and 21.
    """
    one, slow, none = np.ones(2), np.array([10.0]), np.zeros(1)
    assert one_f_one_b_s(one, one, none, slow, 2)[1].tolist() == [24.0, 5.0]
    assert one_f_one_b_s(one, one, slow, none, 2)[1].tolist() == [24.0, 23.0]
    assert gpipe_s(one, one, slow, 2)[1].tolist() == [44.0, 24.0]


def test_one_stage_only_repeats() -> None:
    none = np.empty(0)
    for m in (1, 3):
        assert one_f_one_b_s(np.array([2.0]), np.array([5.0]), none, none, m)[0] == 7.0 * m
        assert gpipe_s(np.array([2.0]), np.array([5.0]), none, m)[0] == 7.0 * m


@settings(max_examples=150, deadline=None)
@given(pipelines())
def test_kernels_equal_their_twins(pipeline: tuple) -> None:
    fwd, bwd, comm_fwd, comm_bwd, m = pipeline
    p = len(fwd)
    iteration, ends = one_f_one_b_s(fwd, bwd, comm_fwd, comm_bwd, m)
    twin = Twin("1f1b", fwd, bwd, comm_fwd, comm_bwd, m)
    np.testing.assert_allclose(ends, twin.last_end, rtol=1e-9)
    assert iteration == pytest.approx(twin.env.now, rel=1e-9)
    assert twin.most_held == [min(m, p - s) for s in range(p)]
    iteration, ends = gpipe_s(fwd, bwd, comm_fwd, m)
    twin = Twin("gpipe", fwd, bwd, comm_fwd, comm_fwd, m)
    np.testing.assert_allclose(ends, twin.last_end, rtol=1e-9)
    assert iteration == pytest.approx(twin.env.now, rel=1e-9)
    assert twin.most_held == [m] * p


def test_kernels_equal_their_twins_where_messages_dominate() -> None:
    """Two hundred drawn cases with messages up to ten times as long as the stages."""
    rng = np.random.default_rng([7, 0])
    for _ in range(200):
        p, m = int(rng.integers(2, 6)), int(rng.integers(2, 10))
        fwd, bwd = rng.uniform(0.1, 2.0, p), rng.uniform(0.1, 2.0, p)
        there, back = rng.uniform(0.0, 10.0, p - 1), rng.uniform(0.0, 10.0, p - 1)
        ends = one_f_one_b_s(fwd, bwd, there, back, m)[1]
        np.testing.assert_allclose(ends, Twin("1f1b", fwd, bwd, there, back, m).last_end, rtol=1e-9)
        ends = gpipe_s(fwd, bwd, there, m)[1]
        np.testing.assert_allclose(ends, Twin("gpipe", fwd, bwd, there, there, m).last_end, rtol=1e-9)


@settings(max_examples=100, deadline=None)
@given(pipelines())
def test_gpipe_without_messages_has_a_closed_form(pipeline: tuple) -> None:
    fwd, bwd, comm, _, m = pipeline
    expected = fwd.sum() + (m - 1) * fwd.max() + bwd.sum() + (m - 1) * bwd.max()
    assert gpipe_s(fwd, bwd, np.zeros_like(comm), m)[0] == pytest.approx(expected, rel=1e-9)


@given(st.integers(1, 6), st.integers(0, 10), seconds, seconds)
def test_equal_stages_have_a_closed_form(p: int, more: int, f: float, b: float) -> None:
    m, none = p + more, np.zeros(p - 1)
    expected = (m + p - 1) * (f + b)
    assert one_f_one_b_s(np.full(p, f), np.full(p, b), none, none, m)[0] == pytest.approx(expected, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(pipelines(), st.integers(0, 4), seconds)
def test_anything_slower_never_ends_earlier(pipeline: tuple, which: int, more: float) -> None:
    fwd, bwd, comm_fwd, comm_bwd, m = pipeline
    before = one_f_one_b_s(fwd, bwd, comm_fwd, comm_bwd, m)[0]
    slower = [a.copy() for a in (fwd, bwd, comm_fwd, comm_bwd)]
    target = slower[which % 4]
    target[: which + 1] += more
    assert one_f_one_b_s(*slower, m)[0] >= before * (1 - 1e-12)
    assert before >= m * (fwd + bwd).max() * (1 - 1e-12)


@settings(max_examples=50, deadline=None)
@given(st.lists(pipelines(), min_size=1, max_size=4))
def test_many_plans_at_once_are_each_alone(plans: list[tuple]) -> None:
    widest = max(len(plan[0]) for plan in plans)
    padded = [np.full((len(plans), widest), np.nan) for _ in range(4)]
    for i, plan in enumerate(plans):
        for rows, values in zip(padded, plan[:4], strict=True):
            rows[i, : len(values)] = values
    stages = np.array([len(plan[0]) for plan in plans], dtype=np.int64)
    m = np.array([plan[4] for plan in plans], dtype=np.int64)
    iteration, ends = one_f_one_b_many_s(*padded, stages, m)
    for i, plan in enumerate(plans):
        alone, alone_ends = one_f_one_b_s(*plan)
        assert iteration[i] == alone
        assert ends[i, : stages[i]].tolist() == alone_ends.tolist()
        assert np.isnan(ends[i, stages[i] :]).all()
