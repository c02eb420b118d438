"""Annealing: legal, never worse than where it starts, as good as trying everything on small graphs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.place.annealing import anneal, critical_path, movable
from policies.place.placement_problem import (
    Devices,
    PlacementError,
    PlacementGraph,
    Schedule,
    channels,
    check_placement,
    costs,
    execute,
    groups,
    peak_bytes,
    tensors,
)
from policies.place.simple import single
from policies.place.step import training_step
from sim.kernels.anneal import critical_operators, overflow, shift, sort_leaving
from sim.kernels.place import run_schedule


def random_graph(rng: np.random.Generator, n: int, density: float = 0.3) -> PlacementGraph:
    edges = np.array([[i, j] for j in range(n) for i in range(j) if rng.random() < density], dtype=np.int64)
    return PlacementGraph(
        rng.integers(1, 9, n).astype(float), rng.integers(0, 5, n).astype(float), edges.reshape(-1, 2),
        rng.integers(0, 4, len(edges)).astype(float), colocate=rng.integers(-1, 4, n),
        kept_bytes=rng.integers(0, 3, n).astype(float), tensor=rng.integers(0, 2, len(edges)),
    )  # fmt: skip


def random_devices(rng: np.random.Generator, count: int, **settings: bool | float) -> Devices:
    links = ("shared", "directed")[rng.integers(2)]
    return Devices.alike(count, 1.0, 0.5, links=links, cache=bool(rng.integers(2)), **settings)


def same(one: Schedule, other: Schedule) -> bool:
    return one.makespan_s == other.makespan_s and one.device.tolist() == other.device.tolist()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_result_is_legal_and_no_worse_than_the_start(seed, eager):
    rng = np.random.default_rng(seed)
    graph, devices = random_graph(rng, 9), random_devices(rng, 3)
    start = execute(graph, devices, rng.integers(0, 3, 13)[groups(graph)])
    found = anneal(graph, devices, starts=(start,), iterations=300, seed=1, eager=eager)
    assert found.makespan_s <= start.makespan_s
    assert (check_placement(graph, devices, found.device) == found.device).all()
    assert (found.start_s[graph.edges[:, 1]] >= found.arrival_s).all()
    for d in range(3):
        here = np.flatnonzero(found.device == d)
        here = here[np.argsort(found.start_s[here])]
        assert (found.end_s[here[:-1]] <= found.start_s[here[1:]]).all()
    if eager:
        assert same(found, execute(graph, devices, found.device))


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_it_finds_the_best_placement_of_small_graphs(seed):
    rng = np.random.default_rng(seed)
    graph, devices = random_graph(rng, 6), random_devices(rng, 2)
    group = groups(graph)
    best = min(
        execute(graph, devices, np.array(on)[group]).makespan_s for on in product(range(2), repeat=group.max() + 1)
    )
    assert anneal(graph, devices, iterations=2_000, eager=True).makespan_s == pytest.approx(best)


def test_the_same_seed_gives_the_same_schedule_and_another_may_not():
    rng = np.random.default_rng(3)
    graph, devices = random_graph(rng, 30, 0.1), Devices.alike(3, 0.2, 0.1)
    runs = [anneal(graph, devices, iterations=400, seed=seed) for seed in (7, 7, 8)]
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


def test_no_time_and_no_iterations_leave_the_best_start():
    rng = np.random.default_rng(3)
    graph, devices = random_graph(rng, 12), Devices.alike(2, 0.2, 0.1)
    none, at_once = anneal(graph, devices, iterations=0), anneal(graph, devices, seconds=0.0)
    assert same(none, at_once)
    assert none.makespan_s <= single(graph, devices).makespan_s


def test_memory_is_respected_where_it_can_be():
    """Ten operators of 3 bytes that all live to the end: at most five on a device."""
    graph = PlacementGraph(np.ones(10), np.full(10, 3.0), np.empty((0, 2)), np.empty(0))
    devices = Devices.alike(2, 1.0, 0.0, memory_bytes=15.0)
    start = single(graph, devices)
    assert not start.fits
    found = anneal(graph, devices, starts=(start,), iterations=3_000)
    assert found.fits
    assert found.makespan_s == 5.0


def test_operators_stay_on_their_kind_of_device():
    graph = PlacementGraph(
        np.array([[9.0, 1.0]] * 4), np.ones(4), np.array([[0, 1], [1, 2], [2, 3]]), np.zeros(3),
        device_kind=np.array([0, -1, -1, 0]),
    )  # fmt: skip
    devices = Devices(np.array([0, 1]), np.full(2, np.inf), 0.0, 0.5)
    found = anneal(graph, devices, iterations=500)
    assert found.device.tolist() == [0, 1, 1, 0]
    assert found.makespan_s == 9 + 0.5 + 1 + 1 + 0.5 + 9


def test_a_group_without_a_device_is_refused():
    graph = PlacementGraph(np.ones((2, 2)), np.ones(2), np.empty((0, 2)), np.empty(0), device_kind=np.array([1, 0]))
    with pytest.raises(PlacementError, match="no device is of the right kind"):
        anneal(graph, Devices.alike(2, 1.0, 0.0))


def test_a_graph_without_operators_takes_no_time():
    graph = PlacementGraph(np.empty(0), np.empty(0), np.empty((0, 2)), np.empty(0))
    assert anneal(graph, Devices.alike(2, 1.0, 0.0)).makespan_s == 0.0


def test_priorities_can_win_where_placement_cannot():
    """One device does the long chain first or last; the other device can only start once it has run."""
    graph = PlacementGraph(
        np.array([3.0, 3.0, 9.0]), np.ones(3), np.array([[1, 2]]), np.zeros(1), device_kind=np.array([0, 0, 1])
    )
    devices = Devices(np.array([0, 1]), np.full(2, np.inf), 0.0, 0.0)
    graph = replace(graph, work_s=np.repeat(graph.work_s, 2, axis=1))
    late = execute(graph, devices, np.array([0, 0, 1]), np.array([0.0, 1.0, 2.0]))
    assert late.makespan_s == 15.0
    assert anneal(graph, devices, starts=(late,), iterations=200).makespan_s == 12.0


def test_priority_by_the_longest_way_to_the_end():
    graph = PlacementGraph(np.array([1.0, 2, 4, 8]), np.ones(4), np.array([[0, 1], [0, 2], [1, 3]]), np.zeros(3))
    assert critical_path(graph).tolist() == [-11, -10, -4, -8]


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_sets_of_each_level_are_whole_groups_and_cover_all(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 40)), 0.1)
    sets, group = movable(graph), groups(graph)
    for level, (a, b) in enumerate(zip(sets.level[:-1], sets.level[1:], strict=True)):
        parts = [sets.members[sets.first[s] : sets.first[s + 1]] for s in range(a, b)]
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(graph)))
        for s, part in zip(range(a, b), parts, strict=True):
            assert (sets.of[level, part] == s).all()
            assert np.isin(group, group[part]).sum() == len(part)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_lacking_memory_in_the_kernel_is_that_of_the_schedule(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 10)
    room = rng.integers(1, 20, 2).astype(float)
    devices = replace(random_devices(rng, 2), memory_bytes=room)
    device, carried = rng.integers(0, 2, 20)[groups(graph)], tensors(graph, devices)
    start, end, receive, _ = run_schedule(
        *costs(graph, devices, device), graph.edges, *graph.leaving, carried, *channels(devices), device,
        rng.permutation(10), False, False,
    )  # fmt: skip
    lacking = overflow(
        graph.memory_bytes, graph.kept_bytes, graph.edge_bytes, graph.edges, *graph.leaving, carried, device, room,
        start, end, receive,
    )  # fmt: skip
    peak = peak_bytes(graph, devices, device, start, end, receive)
    assert lacking == pytest.approx(np.maximum(peak / room - 1, 0).sum())


def test_a_rank_is_shifted_and_the_others_close_up():
    rank = np.array([0, 1, 2, 3, 4])
    shift(rank, 1, 3)
    assert rank.tolist() == [0, 3, 1, 2, 4]
    shift(rank, 1, 0)
    assert rank.tolist() == [1, 0, 2, 3, 4]


def test_edges_leave_in_the_order_of_their_readers():
    edges = np.array([[0, 1], [0, 2], [0, 3], [1, 3], [1, 2]])
    leaving = np.arange(5)
    sort_leaving(np.array([0, 3, 5, 5, 5]), leaving, edges, np.array([0, 3, 2, 1]))
    assert leaving.tolist() == [2, 1, 0, 3, 4]


def test_the_chain_that_sets_the_makespan_follows_tensors_and_busy_devices():
    """0 (2 s) feeds 2 over a transfer of 3; 1 (9 s) keeps the other device; 3 follows 2 there."""
    graph = PlacementGraph(np.array([2.0, 9, 4, 1]), np.ones(4), np.array([[0, 2], [2, 3]]), np.array([3.0, 0]))
    done = execute(graph, Devices.alike(2, 1.0, 0.0), np.array([0, 1, 1, 1]), np.arange(4.0))
    assert done.start_s.tolist() == [0, 0, 9, 13]
    chain = critical_operators(
        done.start_s, done.end_s, done.arrival_s, graph.edges, *graph.entering, done.device
    )
    assert chain.tolist() == [3, 2, 1]


def test_forward_and_backward_move_together():
    rng = np.random.default_rng(0)
    edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])
    step = training_step(np.full(4, 5.0), np.full(4, 5.0), rng.uniform(0, 1, 4), np.zeros(4), edges)
    found = anneal(step, Devices.alike(2, 0.1, 0.0), iterations=500)
    assert found.device[:4].tolist() == found.device[4:].tolist()
    assert found.makespan_s < single(step, Devices.alike(2, 0.1, 0.0)).makespan_s
