"""Sums of gradients beside the backward pass: by hand, played event by event, and their laws."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.spec import Links
from sim.hardware.gputypes import gpu_type
from sim.kernels.collectives import exposed_allreduce_s
from sim.performance.gpu_links import gang_allreduce_s, gang_exposed_s
from sim.performance.graph import PerformanceError

A = np.array


def exposed(bwd: np.ndarray, grads: np.ndarray, bucket: float, first: float, start: float, per_byte: float) -> float:
    return float(exposed_allreduce_s(bwd, grads, bucket, first, A([start]), A([per_byte])))


def test_three_operators_by_hand() -> None:
    """Backward from the last: 3, 2, 1 s. Sums take 1 s and 1 s a byte. The last operator's sum runs from 3 to 8."""
    bwd, grads = A([1.0, 2.0, 3.0]), A([2.0, 4.0, 4.0])
    # Each alone: 3 to 8, 8 to 13 and 13 to 16, while the backward pass ends at 6.
    assert exposed(bwd, grads, 1.0, 1.0, 1.0, 1.0) == 10.0
    # The first alone, the others together: 3 to 8, then 8 to 15.
    assert exposed(bwd, grads, 6.0, 1.0, 1.0, 1.0) == 9.0
    # All at the end.
    assert exposed(bwd, grads, np.inf, np.inf, 1.0, 1.0) == 11.0


def test_small_sums_hide_but_for_the_last() -> None:
    bwd, grads = np.full(50, 1.0), np.full(50, 0.1)
    assert exposed(bwd, grads, 0.1, 0.1, 0.0, 1.0) == pytest.approx(0.1)


def test_operators_without_gradients_hide_what_came_before_them() -> None:
    """The first two operators have none: the last bucket is sent when the third is done, 7 s before the end."""
    assert exposed(A([3.0, 4.0, 1.0]), A([0.0, 0.0, 6.0]), np.inf, np.inf, 0.0, 1.0) == 0.0
    assert exposed(A([3.0, 4.0, 1.0]), A([0.0, 0.0, 9.0]), np.inf, np.inf, 0.0, 1.0) == 2.0


def play(bwd: np.ndarray, grads: np.ndarray, bucket: float, first: float, lines: list[tuple[float, float]]) -> float:
    """A backward pass and a channel, event by event."""
    env = simpy.Environment()
    channel, ends = simpy.Resource(env), [0.0]
    marks: list[int] = []  # operators after which a bucket is full
    left, holds = first, 0.0
    order = [op for op in range(len(bwd) - 1, -1, -1) if grads[op] > 0]
    for op in order:
        holds += grads[op]
        if holds >= left or op == order[-1]:
            marks.append(op)
            left, holds = bucket, 0.0

    def send(size: float) -> Generator[simpy.Event, object, None]:
        with channel.request() as turn:
            yield turn
            yield env.timeout(min(a + b * size for a, b in lines))
        ends.append(env.now)

    def backward() -> Generator[simpy.Event, object, float]:
        size = 0.0
        for op in range(len(bwd) - 1, -1, -1):
            yield env.timeout(bwd[op])
            size += grads[op]
            if op in marks:
                env.process(send(size))
                size = 0.0
        return float(env.now)

    done = env.process(backward())
    env.run()
    return max(0.0, max(ends) - done.value)


seconds = st.floats(0.0, 10.0)
gradients = st.one_of(st.just(0.0), st.floats(1e-3, 100.0))
cases = st.integers(1, 12).flatmap(lambda n: st.tuples(*(st.lists(x, min_size=n, max_size=n) for x in
                                                         (seconds, gradients))))  # fmt: skip
lines = st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 2.0)), min_size=1, max_size=2)


@given(cases, st.floats(1e-3, 300.0), st.floats(1e-3, 300.0), lines)
def test_played_event_by_event(
    case: tuple[list[float], list[float]], bucket: float, first: float, ways: list[tuple[float, float]]
) -> None:
    bwd, grads = A(case[0]), A(case[1])
    start, per_byte = A([a for a, _ in ways]), A([b for _, b in ways])
    ours = exposed_allreduce_s(bwd, grads, bucket, first, start, per_byte)
    assert ours == pytest.approx(play(bwd, grads, bucket, first, ways), rel=1e-9, abs=1e-9)


@given(cases, st.floats(1e-3, 300.0), seconds, st.floats(0.0, 2.0))
def test_never_less_than_nothing_nor_more_than_all_sums_at_the_end(
    case: tuple[list[float], list[float]], bucket: float, start: float, per_byte: float
) -> None:
    bwd, grads = A(case[0]), A(case[1])
    took, buckets = exposed(bwd, grads, bucket, bucket, start, per_byte), int((grads > 0).sum())
    assert 0.0 <= took <= buckets * start + grads.sum() * per_byte + 1e-9
    # What does not fit beside the backward pass must come after it.
    assert took >= grads.sum() * per_byte - bwd.sum() - 1e-9
    # Without latency, smaller buckets never end later.
    assert exposed(bwd, grads, 1e-9, 1e-9, 0.0, per_byte) <= exposed(bwd, grads, bucket, bucket, 0.0, per_byte) + 1e-9


@given(cases, seconds, st.floats(0.0, 2.0))
def test_one_bucket_that_is_ready_at_the_end_is_the_whole_all_reduce(
    case: tuple[list[float], list[float]], start: float, per_byte: float
) -> None:
    bwd, grads = A(case[0]), A(case[1])
    grads[0] = max(grads[0], 1.0)  # The first operator's gradients come last.
    whole = start + grads.sum() * per_byte
    assert exposed(bwd, grads, np.inf, np.inf, start, per_byte) == pytest.approx(whole, rel=1e-9, abs=1e-9)


def test_a_gang_without_overlap_pays_its_whole_all_reduce() -> None:
    gpu, links, bwd, grads = gpu_type("V100"), Links(), np.full(20, 1e-3), np.full(20, 4e6)
    whole = gang_allreduce_s(80e6, gpu, (4, 4), 1, links)
    at_the_end = gang_exposed_s(bwd, grads, gpu, (4, 4), 1, links, bucket_bytes=np.inf, first_bucket_bytes=np.inf)
    assert at_the_end == pytest.approx(whole)
    assert gang_exposed_s(bwd, grads, gpu, (4, 4), 1, links) < 0.5 * whole
    assert gang_exposed_s(bwd, grads, gpu, (1,), 1, links) == 0.0


def test_times_and_gradients_are_of_the_same_operators() -> None:
    with pytest.raises(PerformanceError, match=r"do not match; got '\(3,\), \(4,\)'"):
        gang_exposed_s(np.ones(3), np.ones(4), gpu_type("V100"), (2,), 1, Links())
