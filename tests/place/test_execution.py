"""Executing a placement: by hand, against its twin in SimPy, and by laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.place.placement_problem import Devices, PlacementError, PlacementGraph, execute
from tests.place.twins import PlayedPlacement


def graph_of(work: list, edges: list, sizes: list | None = None, **more: object) -> PlacementGraph:
    """Operators whose outputs have a byte each, edges of a byte each."""
    sizes = [1.0] * len(edges) if sizes is None else sizes
    return PlacementGraph(np.array(work, float), np.ones(len(work)), np.array(edges), np.array(sizes, float), **more)


FORK = graph_of([1, 2, 3], [[0, 1], [0, 2]])


def test_one_device_runs_all_work_one_after_the_other_and_sends_nothing():
    done = execute(FORK, Devices.alike(2, s_per_byte=5, latency_s=7), np.zeros(3))
    assert done.makespan_s == 6
    assert done.start_s.tolist() == [0, 1, 3]
    assert done.arrival_s.tolist() == [1, 1]


def test_a_transfer_takes_its_bytes_and_the_latency():
    done = execute(FORK, Devices.alike(2, s_per_byte=5, latency_s=7), np.array([0, 0, 1]))
    assert done.arrival_s.tolist() == [1, 1 + 5 + 7]
    assert done.makespan_s == 13 + 3


def test_a_cached_tensor_is_sent_once_to_a_device_and_else_once_for_each_edge():
    there = np.array([0, 1, 1])
    cached = execute(FORK, Devices.alike(2, 1, 0, cache=True), there)
    each = execute(FORK, Devices.alike(2, 1, 0, cache=False), there)
    assert cached.arrival_s.tolist() == [2, 2]
    assert each.arrival_s.tolist() == [2, 3]


def test_different_tensors_of_one_operator_are_not_cached_for_each_other():
    apart = graph_of([1, 2, 3], [[0, 1], [0, 2]], tensor=np.array([0, 1]))
    assert execute(apart, Devices.alike(2, 1, 0), np.array([0, 1, 1])).arrival_s.tolist() == [2, 3]


def test_directed_links_do_not_wait_for_each_other_but_a_shared_channel_does():
    pair = graph_of([1, 1, 1, 1], [[0, 2], [1, 3]], [4, 4])
    crossing = np.array([0, 1, 1, 0])  # both tensors leave at 1, one each way
    assert execute(pair, Devices.alike(2, 1, 0, links="directed"), crossing).arrival_s.tolist() == [5, 5]
    shared = execute(pair, Devices.alike(2, 1, 0, links="shared"), crossing)
    assert shared.arrival_s.tolist() == [5, 9]


def test_a_shared_channel_is_booked_by_sender_and_receiver_apart():
    # Device 2 receives from 0 (asked first) and 1 at the same instant; device 1 has sent when 2 still receives.
    star = graph_of([1, 1, 1, 1], [[0, 2], [1, 2], [1, 3]], [4, 4, 4], tensor=np.arange(3))
    done = execute(star, Devices.alike(4, 1, 0, links="shared"), np.array([0, 1, 2, 3]))
    assert done.arrival_s.tolist() == [5, 9, 9]  # sent from 1 to 5, received by 2 from 5 to 9; sent to 3 from 5 to 9


def test_without_priorities_operators_run_as_they_become_ready():
    late_first = graph_of([1, 3, 1, 1], [[0, 2], [1, 3]])
    done = execute(late_first, Devices.alike(2, 0, 0), np.array([0, 1, 0, 0]))
    assert done.start_s.tolist() == [0, 0, 1, 3]


def test_the_most_urgent_ready_operator_goes_first_and_an_idle_device_does_not_wait():
    three = graph_of([2, 1, 1], [])
    assert execute(three, Devices.alike(1, 0, 0), np.zeros(3), np.array([2, 1, 0])).start_s.tolist() == [2, 1, 0]
    waits = graph_of([2, 1, 1], [[0, 1]])
    there = np.array([0, 1, 1])
    assert execute(waits, Devices.alike(2, 0, 0), there, np.array([0, 1, 2])).start_s.tolist() == [0, 2, 0]
    strict = execute(waits, Devices.alike(2, 0, 0), there, np.array([0, 1, 2]), strict=True)
    assert strict.start_s.tolist() == [0, 2, 3]


def test_urgent_readers_are_sent_to_first():
    done = execute(FORK, Devices.alike(2, 1, 0, cache=False), np.array([0, 1, 1]), np.array([0, 2, 1]))
    assert done.arrival_s.tolist() == [3, 2]


def test_memory_is_held_until_the_last_reader_ends_and_copies_count_where_they_are():
    chain = PlacementGraph(
        np.array([1.0, 1, 1]), np.array([10.0, 20, 40]), np.array([[0, 1], [1, 2]]), np.array([10.0, 20]),
        kept_bytes=np.array([100.0, 0, 0]),
    )
    alone = execute(chain, Devices.alike(1, 0, 0), np.zeros(3))
    assert alone.peak_bytes.tolist() == [100 + 20 + 40]  # the first output is let go before the third begins
    two = execute(chain, Devices.alike(2, 0.1, 0), np.array([0, 0, 1]))
    assert two.peak_bytes.tolist() == [100 + 10 + 20, 20 + 40]


def test_what_needs_more_memory_than_there_is_does_not_fit():
    assert execute(FORK, Devices.alike(1, 0, 0, memory_bytes=3), np.zeros(3)).fits
    assert not execute(FORK, Devices.alike(1, 0, 0, memory_bytes=2.9), np.zeros(3)).fits


def test_work_depends_on_the_kind_of_device():
    two_kinds = graph_of([[1, 10], [2, 20]], [])
    devices = Devices(np.array([1, 0]), np.full(2, np.inf), 0.0, 0.0)
    assert execute(two_kinds, devices, np.array([0, 1])).end_s.tolist() == [10, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: graph_of([1, 1], [[0, 2]]), "an edge leads to no operator"),
        (lambda: graph_of([1, -1], []), "work_s is not finite, or below 0"),
        (lambda: graph_of([1, np.nan], []), "work_s is not finite"),
        (lambda: graph_of([1, 1], [[0, 1]], [1, 2]), "edge_bytes has a wrong shape"),
        (lambda: graph_of([1, 1], [[0, 1], [1, 0]]).order, "the graph has a cycle"),
        (lambda: Devices.alike(0, 0, 0), "no devices"),
        (lambda: Devices.alike(1, 0, 0, links="magic"), "unknown kind of links"),
        (lambda: Devices.alike(1, -1, 0), "s_per_byte is not finite, or below 0"),
        (lambda: execute(FORK, Devices.alike(2, 0, 0), np.array([0, 0, 2])), "a device that does not exist"),
        (lambda: execute(FORK, Devices.alike(2, 0, 0), np.zeros(2)), "not one device for each operator"),
        (
            lambda: execute(graph_of([1, 1], [], colocate=np.array([3, 3])), Devices.alike(2, 0, 0), np.array([0, 1])),
            "a group on more than one device",
        ),
        (
            lambda: execute(graph_of([1], [], device_kind=np.array([1])), Devices.alike(2, 0, 0), np.zeros(1)),
            "an operator on a device of another kind",
        ),
        (
            lambda: execute(FORK, Devices.alike(1, 0, 0), np.zeros(3), np.array([1, 0, 2]), strict=True),
            "the strict order runs against the edges",
        ),
    ],
)
def test_nonsense_is_refused_in_words(make, message):
    with pytest.raises(PlacementError, match=message):
        make()


eighths = st.integers(0, 24).map(lambda n: n / 8)
"""Times that add up exactly, zero and ties among them."""


@st.composite
def placed(draw, most: int = 9):
    """A graph, devices, a placement, and a priority or None."""
    ops, count = draw(st.integers(1, most)), draw(st.integers(1, 3))
    pairs = [(a, b) for b in range(ops) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=14)) if pairs else []
    number = draw(st.permutations(range(ops)))  # so that numbers are in no topological order
    graph = graph_of(
        [draw(eighths) for _ in range(ops)],
        [(number[a], number[b]) for a, b in chosen],
        [draw(eighths) for _ in chosen],
        tensor=np.array([draw(st.integers(0, 1)) for _ in chosen], dtype=np.int64),
    )
    devices = Devices.alike(
        count, 1.0, draw(eighths), links=draw(st.sampled_from(["shared", "directed"])), cache=draw(st.booleans())
    )
    device = np.array([draw(st.integers(0, count - 1)) for _ in range(ops)])
    priority = draw(st.none() | st.lists(st.integers(0, 4), min_size=ops, max_size=ops))
    return graph, devices, device, None if priority is None else np.array(priority, float)


@settings(max_examples=400)
@given(placed(), st.booleans())
def test_the_kernel_plays_as_the_processes_do(case, strict):
    graph, devices, device, priority = case
    if priority is None:
        strict = False
    elif strict:
        priority = graph.rank + priority / 8  # along the edges
    played = PlayedPlacement(graph, devices, device, priority, strict)
    done = execute(graph, devices, device, priority, strict=strict)
    assert done.start_s.tolist() == pytest.approx([played.start[op] for op in range(len(graph))], abs=1e-9)
    assert done.end_s.tolist() == pytest.approx([played.end[op] for op in range(len(graph))], abs=1e-9)
    arrival = [played.arrival[e] for e in range(len(graph.edges))]
    assert done.arrival_s.tolist() == pytest.approx(arrival, abs=1e-9)


@settings(max_examples=200)
@given(placed())
def test_no_device_runs_two_operators_and_none_starts_before_its_inputs(case):
    graph, devices, device, priority = case
    done = execute(graph, devices, device, priority)
    for d in range(devices.count):
        here = np.flatnonzero(device == d)
        here = here[np.lexsort((done.end_s[here], done.start_s[here]))]
        assert (done.start_s[here][1:] >= done.end_s[here][:-1]).all()
    assert (done.start_s[graph.edges[:, 1]] >= done.arrival_s).all()
    assert (done.arrival_s >= done.end_s[graph.edges[:, 0]]).all()
    assert done.makespan_s >= graph.work_s.sum() / devices.count - 1e-9


@settings(max_examples=100)
@given(placed())
def test_a_schedule_s_own_order_can_be_played_strictly(case):
    graph, devices, device, priority = case
    done = execute(graph, devices, device, priority)
    again = execute(graph, devices, device, done.order.astype(float), strict=True)
    assert (done.order[graph.edges[:, 0]] < done.order[graph.edges[:, 1]]).all()
    for d in range(devices.count):
        here = np.flatnonzero(device == d)
        assert (np.diff(again.start_s[here[np.argsort(done.order[here])]]) >= 0).all()
