"""Long runs: what ten million operations leave of exactness, and time that only goes on."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cluster.clusterfiles import load_cluster
from sim.cluster.spec import Ledger
from sim.engine.clock import Clock
from sim.kernels.lanejobs import DONE, NOW, PREEMPTED, RATE, RUNNING, SEGMENTS, TARGET, close, kept_of, start
from sim.kernels.ledger import give_one, take_one
from sim.kernels.service import HELD, HELD_GPU
from tests.engine.test_laws import World, worlds

ROUNDS = 5_000_000
"""A take and a give, or a start and an end, each: ten million operations."""
UNIT = 2.0**-53
"""What one operation on floats may be off, of its result."""


@numba.njit
def take_and_give(gpus, milli, held, state, shape):  # type: ignore[no-untyped-def]
    """Each round gives back what its place holds, and takes a share of a GPU there, where so much is free."""
    places, took = held.shape[1], 0
    for i in range(len(gpus)):
        place = i % places
        if held[1, place] > 0:
            give_one(held[0, place], held[1, place], state, shape)
            held[1, place] = 0
        if state[0][gpus[i]] >= milli[i]:
            take_one(gpus[i], milli[i], state, shape)
            held[0, place], held[1, place] = gpus[i], milli[i]
            took += 1
    return took


@numba.njit
def start_and_stop(  # type: ignore[no-untyped-def]
    length_s, pause_s, gpus, rate, worked_all, held_s, cost, service, said, sums, marks, live, held, gangs, vc_left,
    state, shape, out, n, f,
):
    """A job starts, works and is preempted again and again; what each segment says of its work and time is kept."""
    for i in range(len(length_s)):
        f[NOW] += pause_s[i]
        start(0, gpus, rate[i], cost, service, said, sums, marks, live, held, gangs, vc_left, state, shape, n, f)
        f[NOW] += length_s[i]
        worked, kept = kept_of(0, cost, service, sums, f)
        close(0, PREEMPTED, worked, kept, service, said, sums, marks, live, held, gangs, vc_left, state, shape, out, n,
              f)
        worked_all[i], held_s[i] = out[1][4, 0], out[1][1, 0] - out[1][0, 0]
        n[SEGMENTS] = 0


def test_shares_of_gpus_are_exact_after_ten_million_takes_and_gives():
    ledger, rng = Ledger(load_cluster("v100:4x8")), np.random.default_rng(0)
    gpus, milli = rng.integers(32, size=ROUNDS, dtype=np.int32), rng.integers(1, 1001, ROUNDS).astype(np.int32)
    held = np.zeros((2, 97), dtype=np.int32)
    took = take_and_give(gpus, milli, held, ledger.state, ledger.shape)
    assert took > ROUNDS / 3
    taken = np.zeros(32, dtype=np.int64)
    np.add.at(taken, held[0], held[1])
    assert taken.any()
    assert (ledger.free_milli == 1000 - taken).all()
    for place in np.flatnonzero(held[1]).tolist():
        ledger.give(held[0, place : place + 1], int(held[1, place]))
    assert (ledger.free_milli == 1000).all()
    assert ledger.balanced(np.zeros(4, dtype=bool))


def test_sums_of_work_and_time_are_within_their_bound_after_ten_million_operations():
    ledger, rng = Ledger(load_cluster("v100:1x8")), np.random.default_rng(1)
    length_s, pause_s = rng.exponential(300.0, ROUNDS), rng.exponential(1.0, ROUNDS)
    gpus, job = np.arange(3, dtype=np.int32), {"num_gpus": 3, "milli": 333}
    sums = np.zeros((7, 1))
    sums[TARGET] = 1e11
    gangs: Any = tuple(np.array([value], dtype=np.int32) for value in (job["num_gpus"], job["milli"], 1, 0, 0))
    held: Any = (np.zeros(8, dtype=np.int32), np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32))
    service, n = np.zeros((7, 1)), np.zeros(13, dtype=np.int64)
    out: Any = (np.zeros((2, 1), dtype=np.int32), np.zeros((6, 1)), np.zeros(1, dtype=np.int64),
                np.zeros(8, dtype=np.int32), np.zeros((1, 1)))
    cost = np.array([30.0, 30.0, 30.0, 30.0, 0.0, 0.0, 1.0])
    vc_left = np.array([8000], dtype=np.int64)
    worked, held_s, rate = np.zeros(ROUNDS), np.zeros(ROUNDS), rng.uniform(0.1, 3.0, ROUNDS)
    start_and_stop(length_s, pause_s, gpus, rate, worked, held_s, cost, service, np.ones((4, 1)), sums,
                   np.zeros((8, 1), dtype=np.int64), np.zeros((2, 9), dtype=np.int32), held, gangs, vc_left,
                   ledger.state, ledger.shape, out, n, np.zeros(3))
    assert n[RUNNING] == 0 and vc_left[0] == 8000 and (ledger.free_milli == 1000).all()
    for found, terms in ((sums[DONE, 0], worked), (service[HELD, 0], held_s), (service[HELD_GPU, 0], held_s * 0.999)):
        exact = math.fsum(terms)
        assert exact > 0
        assert abs(found - exact) <= ROUNDS * UNIT * exact
    assert sums[DONE, 0] != math.fsum(worked)  # it is a sum of floats: what is bounded is there
    assert service[HELD, 0] == math.fsum(held_s)  # differences of two times of one clock have few digits


@given(st.floats(0, 1e11), st.floats(1e-9, 1e9), st.just(0.0) | st.floats(1e-9, 1e4), st.floats(1e-6, 1e6))
def test_the_work_of_a_segment_is_within_three_roundings(begin_s, length_s, overhead_s, rate):
    now_s = begin_s + length_s
    service, sums = np.zeros((7, 1)), np.zeros((7, 1))
    service[2], service[3], sums[RATE] = begin_s, overhead_s, rate
    cost = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    worked, kept = kept_of.py_func(0, cost, service, sums, np.array([now_s, np.inf, np.inf]))
    span = Fraction(now_s) - Fraction(begin_s)
    exact = max(Fraction(0), span - Fraction(overhead_s)) * Fraction(rate)
    assert kept == worked
    assert abs(Fraction(worked) - exact) <= 3 * Fraction(UNIT) * max(span, Fraction(overhead_s)) * Fraction(rate)


@given(worlds(), st.sampled_from(["off", "on"]))
@settings(max_examples=40)
def test_time_never_goes_back(world: World, lane: str):
    seen: list[float] = []
    step = Clock.step

    def watched(clock: Clock) -> None:
        step(clock)
        seen.append(clock.now)

    with patch.object(Clock, "step", watched):
        tables = replace(world, engine=world.engine | {"fast_lane": lane}).run().tables
    assert seen == sorted(seen)
    assert (np.diff(tables["decisions"]["now_s"].to_numpy()) >= 0).all()
    assert (tables["segments"]["end_s"].to_numpy() >= tables["segments"]["begin_s"].to_numpy()).all()
