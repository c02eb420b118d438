"""Pesto's model: by hand, and against all schedules of small graphs."""

from __future__ import annotations

import signal
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.place.pesto import pesto
from policies.place.placement_problem import Devices, PlacementGraph, execute
from policies.place.program import solve
from policies.place.simple import single
from policies.place.step import training_step
from tests.conftest import PATIENCE_S

EXACT = {"workers": 1, "seconds": PATIENCE_S, "quantum_s": 1.0}


def best_of_all(graph: PlacementGraph, devices: Devices) -> float:
    """Least makespan over every placement and every order of operators and transfers, each put as early as it goes.

    Directed links, a transfer for each edge.
    """
    free = sorted(set(graph.colocate.tolist()) - {-1})
    names = [free.index(c) if c >= 0 else len(free) + i for i, c in enumerate(graph.colocate.tolist())]
    best = np.inf
    for on in product(range(devices.count), repeat=max(names) + 1):
        device = [on[name] for name in names]
        if any(kind >= 0 and devices.kind[d] != kind for kind, d in zip(graph.device_kind, device, strict=True)):
            continue
        used = np.bincount(device, weights=graph.memory_bytes, minlength=devices.count)
        if (used <= devices.memory_bytes).all():
            best = min(best, earliest_finish(graph, devices, device))
    return best


def earliest_finish(graph: PlacementGraph, devices: Devices, device: list[int]) -> float:
    n, edges = len(graph), graph.edges.tolist()
    resource, length, after = list(device), [float(graph.work_s[i, 0]) for i in range(n)], [[] for _ in range(n)]
    for e, (i, j) in enumerate(edges):
        if device[i] == device[j]:
            after[j].append(i)
        else:
            after[j].append(len(resource))
            resource.append(10 + device[i] * devices.count + device[j])
            length.append(graph.edge_bytes[e] * devices.s_per_byte[0, 1] + devices.latency_s[0, 1])
            after.append([i])
    best = np.inf

    def go(done: dict[int, float], free: dict[int, float]) -> None:
        nonlocal best
        if max(done.values(), default=0.0) >= best:
            return
        if len(done) == len(resource):
            best = max(done.values())
            return
        for item in range(len(resource)):
            if item not in done and all(before in done for before in after[item]):
                begin = max([free.get(resource[item], 0.0), *(done[before] for before in after[item])])
                end = begin + length[item]
                go(done | {item: end}, free | {resource[item]: end})

    go({}, {})
    return best


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
def test_the_solver_finds_the_best_of_all_schedules(seed, n):
    rng = np.random.default_rng(seed)
    edges = np.array([[i, j] for j in range(n) for i in range(j) if rng.random() < 0.5][:4], dtype=np.int64)
    graph = PlacementGraph(
        rng.integers(1, 9, n).astype(float), rng.integers(0, 3, n).astype(float), edges.reshape(-1, 2),
        rng.integers(0, 4, len(edges)).astype(float), colocate=rng.integers(-1, 3, n),
    )  # fmt: skip
    devices = Devices.alike(2, 1.0, 1.0, memory_bytes=float(graph.memory_bytes.sum()) * 0.8, cache=False)
    best = best_of_all(graph, devices)
    answer = solve(graph, devices, single(graph, devices), **EXACT)
    if best < np.inf:
        assert answer.status == "optimal"
        assert answer.makespan_s == answer.bound_s == best
    else:
        assert answer.status == "warm start"


def test_ctrl_c_still_reaches_python_once_the_solver_has_run():
    graph = PlacementGraph(np.ones(2), np.zeros(2), np.array([[0, 1]]), np.ones(1))
    devices = Devices.alike(2, 1.0, 1.0, cache=False)
    solve(graph, devices, single(graph, devices), **EXACT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def fork(work: tuple[float, float] = (4.0, 4.0)) -> PlacementGraph:
    """0 before 1 and 2, both before 3."""
    return PlacementGraph(
        np.array([1.0, *work, 1.0]), np.ones(4), np.array([[0, 1], [0, 2], [1, 3], [2, 3]]), np.ones(4)
    )


@pytest.mark.parametrize(("transfer_s", "best_s"), [(1.0, 7.0), (1.5, 7.5), (3.5, 9.5), (5.0, 10.0)])
def test_a_fork_is_split_where_one_transfer_costs_less_than_a_branch(transfer_s, best_s):
    """The join goes to the branch whose input was sent: 1 + transfer + 4 + 1, or all 10 on one device."""
    devices = Devices.alike(2, 0.0, transfer_s)
    graph = fork()
    answer = solve(graph, devices, single(graph, devices), workers=1, quantum_s=0.5)
    assert answer.makespan_s == best_s
    assert pesto(graph, devices, workers=1).makespan_s == pytest.approx(best_s)


def test_tensors_of_one_edge_each_queue_on_a_link_and_a_cached_one_is_sent_once():
    """One source of 1, three readers of 5 that must be on the other device: three transfers of 2, or one."""
    graph = PlacementGraph(
        np.array([1.0, 5, 5, 5]), np.ones(4), np.array([[0, 1], [0, 2], [0, 3]]), np.full(3, 2.0),
        device_kind=np.array([0, 1, 1, 1]),
    )  # fmt: skip
    for cache, last in ((False, [3, 5, 7]), (True, [3, 3, 3])):
        devices = Devices(np.array([0, 1, 1, 1]), np.full(4, np.inf), 1.0, 0.0, cache=cache)
        start = execute(graph, devices, np.array([0, 1, 1, 1]), np.arange(4.0))
        assert start.arrival_s.tolist() == [3, last[1], last[2]]
        apart = solve(graph, devices, start, **EXACT)
        assert apart.makespan_s == 8.0  # each reader on a device, and a link, of its own
        two = Devices(np.array([0, 1]), np.full(2, np.inf), 1.0, 0.0, cache=cache)
        assert solve(graph, two, start, **EXACT).makespan_s == 18.0


def test_a_shared_channel_sends_one_after_the_other():
    """As above with one channel a device: the sender's is busy 2 for each of the three receivers."""
    graph = PlacementGraph(
        np.array([1.0, 5, 5, 5]), np.ones(4), np.array([[0, 1], [0, 2], [0, 3]]), np.full(3, 2.0),
        device_kind=np.array([0, 1, 1, 1]),
    )  # fmt: skip
    devices = Devices(np.array([0, 1, 1, 1]), np.full(4, np.inf), 1.0, 0.0, links="shared")
    start = execute(graph, devices, np.array([0, 1, 1, 1]), np.arange(4.0))
    assert solve(graph, devices, start, **EXACT).makespan_s == 12.0  # sent at 1, 3 and 5


def test_memory_forces_operators_apart():
    graph = PlacementGraph(np.array([4.0, 4.0]), np.array([2.0, 2.0]), np.array([[0, 1]]), np.array([9.0]))
    wide, narrow = (Devices.alike(2, 1.0, 0.0, memory_bytes=size) for size in (4.0, 3.0))
    assert solve(graph, wide, single(graph, wide), **EXACT).makespan_s == 8.0
    answer = solve(graph, narrow, single(graph, narrow), **EXACT)
    assert answer.makespan_s == 17.0
    assert len(set(answer.device.tolist())) == 2


def test_where_no_placement_fits_the_answer_is_the_start_and_says_so():
    graph = PlacementGraph(np.array([4.0]), np.array([2.0]), np.empty((0, 2)), np.empty(0))
    devices = Devices.alike(2, 1.0, 0.0, memory_bytes=1.0)
    answer = solve(graph, devices, single(graph, devices), **EXACT)
    assert (answer.status, answer.makespan_s, answer.bound_s) == ("warm start", 4.0, 0.0)
    assert not pesto(graph, devices, workers=1, seconds=PATIENCE_S).fits


def test_the_answer_is_never_worse_than_the_start_and_the_same_again():
    rng = np.random.default_rng(5)
    n = 12
    edges = np.array([[i, j] for j in range(n) for i in range(j) if rng.random() < 0.2])
    step = training_step(rng.uniform(1, 5, n), rng.uniform(1, 5, n), rng.uniform(0, 3, n), np.zeros(n), edges)
    devices = Devices.alike(2, 0.3, 0.1)
    first, again = (pesto(step, devices, target=10, workers=1, work_limit=1.0, seconds=PATIENCE_S) for _ in range(2))
    assert first.makespan_s <= single(step, devices).makespan_s
    assert first.makespan_s == again.makespan_s
    assert first.device.tolist() == again.device.tolist()
    assert (first.device[:n] == first.device[n:]).all()
    assert first.makespan_s == execute(step, devices, first.device, first.order.astype(float)).makespan_s
