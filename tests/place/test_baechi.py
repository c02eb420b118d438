"""Baechi's placers and placements without search: by hand, and by what they promise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.place.baechi import earliest, favourite_children, m_etf, m_sct, m_topo, relaxed_favourites
from policies.place.placement_problem import Devices, PlacementError, PlacementGraph, execute
from policies.place.simple import expert, layers, single
from policies.place.step import profiled_step, training_step
from sim.performance.readers import read_graph
from sim.performance.zoo import MODELS

SHARED = {"links": "shared", "cache": True}
PLACERS = [single, expert, m_topo, m_etf, m_sct]


def graph_of(work: list, edges: list, sizes: list | None = None, memory: list | None = None, **more: object):
    sizes = [1.0] * len(edges) if sizes is None else sizes
    memory = [1.0] * len(work) if memory is None else memory
    return PlacementGraph(
        np.array(work, float), np.array(memory, float), np.array(edges), np.array(sizes, float), **more
    )


# m-TOPO


def test_m_topo_fills_a_device_up_to_its_part_of_the_memory_and_the_largest_operator():
    chain = graph_of([1] * 6, [[i, i + 1] for i in range(5)], memory=[2, 1, 1, 1, 1, 2])
    # 8 / 2 + 2 = 6: a group is taken while less than that is there, so the first device ends at 6.
    assert m_topo(chain, Devices.alike(2, 0, 0)).device.tolist() == [0, 0, 0, 0, 0, 1]


def test_m_topo_takes_a_group_whole_and_counts_what_it_keeps():
    pairs = graph_of(
        [1] * 4, [[0, 1], [1, 2], [2, 3]], memory=[1] * 4, colocate=np.array([0, 1, 1, 0]),
        kept_bytes=np.array([4.0, 6, 0, 0]),
    )  # fmt: skip
    # 14 / 2 + 7 = 14 is the limit: 1 + 4 and 1 of group 0 are there, and 6 + 6 is below it.
    assert m_topo(pairs, Devices.alike(2, 0, 0)).device.tolist() == [0, 0, 0, 0]
    assert m_topo(pairs, Devices.alike(2, 0, 0, memory_bytes=10)).device.tolist() == [0, 1, 1, 0]


# m-ETF


def test_m_etf_spreads_a_fork_where_transfers_are_short_and_not_where_they_are_long():
    fork = graph_of([1, 4, 4], [[0, 1], [0, 2]])
    assert m_etf(fork, Devices.alike(2, 1, 0, **SHARED)).makespan_s == 6  # sent from 1 to 2
    far = m_etf(fork, Devices.alike(2, 5, 0, **SHARED))
    assert far.device.tolist() == [0, 0, 0]
    assert far.makespan_s == 9


def test_m_etf_takes_the_first_device_and_the_first_operator_of_those_that_could_start_at_once():
    device, start = earliest(graph_of([2, 2, 2], []), Devices.alike(2, 1, 0))
    assert device.tolist() == [0, 1, 0]
    assert start.tolist() == [0, 0, 2]


def test_m_etf_reckons_with_the_channel_that_is_taken():
    # Both tensors of operator 0 go to other devices through its one channel: the second is there at 1 + 3 + 3.
    fork = graph_of([1, 9, 9, 9], [[0, 1], [0, 2], [0, 3]], [3, 3, 3], tensor=np.arange(3))
    _, start = earliest(fork, Devices.alike(3, 1, 0, **SHARED))
    assert start.tolist() == [0, 1, 4, 7]


def test_a_group_follows_its_first_operator():
    fork = graph_of([1, 1, 1, 1], [[0, 2], [1, 3]], colocate=np.array([0, 1, 1, 0]))
    assert m_etf(fork, Devices.alike(2, 1, 0)).device.tolist() == [0, 1, 1, 0]


def test_memory_sends_an_operator_elsewhere_and_a_full_fleet_is_told():
    # Everything would be faster on the first device, but a device keeps 5 bytes at most.
    wide = graph_of([1, 1], [[0, 1]], [100], memory=[1, 1], kept_bytes=np.array([3.0, 3.0]))
    done = m_etf(wide, Devices.alike(2, 1, 0, memory_bytes=110))
    assert done.device.tolist() == [0, 0]
    assert m_etf(wide, Devices.alike(2, 1, 0, memory_bytes=5)).device.tolist() == [0, 1]
    with pytest.raises(PlacementError, match="1 operators cannot be placed: memory is full"):
        m_etf(wide, Devices.alike(1, 1, 0, memory_bytes=5))


def test_an_output_makes_room_once_its_last_reader_is_placed():
    chain = graph_of([1] * 4, [[0, 1], [1, 2], [2, 3]], memory=[4] * 4)
    assert m_etf(chain, Devices.alike(1, 1, 0, memory_bytes=8)).fits
    with pytest.raises(PlacementError, match="3 operators cannot be placed"):
        m_etf(chain, Devices.alike(1, 1, 0, memory_bytes=7))


def test_an_operator_for_the_cpu_goes_there_and_nothing_else_does():
    graph = graph_of([[1, 9], [1, 9], [1, 9]], [[0, 1], [1, 2]], device_kind=np.array([0, 1, 0]))
    devices = Devices(np.array([0, 1]), np.full(2, np.inf), 0.0, 0.0)
    for place in (expert, m_topo, m_etf, m_sct):
        assert place(graph, devices).device[1] == 1
    assert m_etf(graph, devices).device.tolist() == [0, 1, 0]
    with pytest.raises(PlacementError, match="no one device may run all operators"):
        single(graph, devices)
    with pytest.raises(PlacementError, match="no device is of the right kind"):
        m_etf(graph, Devices(np.array([0]), np.full(1, np.inf), 0.0, 0.0))


# m-SCT


def test_the_linear_program_favours_the_child_on_the_longest_way():
    fork = graph_of([1, 2, 9], [[0, 1], [0, 2]], [3, 3])
    relaxed = relaxed_favourites(fork, fork.work_s[:, 0], fork.edge_bytes)
    assert relaxed[1] == pytest.approx(0)
    assert relaxed[0] + relaxed[1] >= 1 - 1e-9
    assert favourite_children(fork, relaxed, 0.1).tolist() == [2, -1, -1]


def test_each_has_one_favourite_child_and_one_parent_the_later_edge_wins():
    square = graph_of([1, 1, 1, 1], [[0, 2], [0, 3], [1, 3], [1, 2]])
    assert favourite_children(square, np.array([0.0, 0, 1, 0]), 0.1).tolist() == [3, 2, -1, -1]
    assert favourite_children(square, np.array([0.0, 1, 1, 0]), 0.1).tolist() == [-1, 2, -1, -1]


def two_parents(to_child: float) -> PlacementGraph:
    """0 and 1 start at once; both are read by 3, the child, and 0 by 2, whose tensor is slow to leave."""
    return graph_of([1, 1, 4, 4], [[0, 3], [1, 3], [0, 2]], [3, to_child, 4], tensor=np.array([0, 0, 1]))


def test_a_device_waits_for_the_favourite_child():
    devices, child = Devices.alike(2, 1, 0), np.array([3, -1, -1, -1])
    device, start = earliest(two_parents(1), devices)
    assert device.tolist() == [0, 1, 0, 1]  # 2 is at hand on device 0 at 1, so it goes first
    assert start.tolist() == [0, 0, 1, 4]
    device, start = earliest(two_parents(1), devices, child)
    assert device.tolist() == [0, 1, 1, 0]
    assert start.tolist() == [0, 0, 5, 2]


def test_a_device_does_not_wait_for_a_child_that_starts_sooner_elsewhere():
    device, start = earliest(two_parents(10), Devices.alike(2, 1, 0), np.array([3, -1, -1, -1]))
    assert device.tolist() == [0, 1, 0, 1]
    assert start.tolist() == [0, 0, 1, 4]


def test_an_urgent_operator_goes_before_the_child():
    # At 1 operator 3 could start on either device, the child 2 on device 0 alone. The child is the first by rank.
    graph = graph_of([1, 1, 1, 1], [[0, 2], [0, 3], [1, 3]], [5, 0, 0], tensor=np.array([0, 1, 0]))
    devices = Devices.alike(2, 1, 0)
    assert earliest(graph, devices)[1].tolist() == [0, 0, 1, 1]
    device, start = earliest(graph, devices, np.array([2, -1, -1, -1]))
    assert device.tolist() == [0, 1, 0, 0]
    assert start.tolist() == [0, 0, 2, 1]


def test_m_sct_is_within_its_promise_with_devices_enough():
    graph = graph_of([2, 3, 2, 4, 2, 3], [[0, 2], [0, 3], [1, 3], [1, 4], [2, 5], [3, 5]], [1] * 6)
    devices = Devices.alike(3, 1, 0, links="directed", cache=False)
    best = min(
        execute(graph, devices, np.array(device)).makespan_s for device in itertools.product(range(3), repeat=6)
    )
    r = 1 / 2
    assert m_sct(graph, devices).makespan_s <= (2 + 2 * r) / (2 + r) * best


# Without search


def test_expert_makes_blocks_of_equal_work_with_the_backward_beside_the_forward():
    times = np.array([1.0, 1, 1, 3])
    step = training_step(times, times, np.ones(4), np.ones(4), np.array([[0, 1], [1, 2], [2, 3]]))
    assert expert(step, Devices.alike(2, 0, 0)).device.tolist() == [0, 0, 0, 1, 0, 0, 0, 1]


def test_layers_go_to_devices_in_turn_and_the_rest_where_its_inputs_or_readers_are():
    graph = graph_of([1] * 5, [[0, 1], [1, 2], [2, 3], [3, 4]])
    done = layers(graph, Devices.alike(2, 0, 0), np.array([-1, 0, 1, 2, -1]))
    assert done.device.tolist() == [0, 0, 1, 0, 0]
    with pytest.raises(PlacementError, match="not one layer for each operator"):
        layers(graph, Devices.alike(2, 0, 0), np.zeros(2))


def test_single_takes_the_fastest_device_that_has_room():
    graph = graph_of([[1, 5], [1, 5]], [], memory=[4, 4])
    devices = Devices(np.array([1, 0]), np.array([np.inf, np.inf]), 0.0, 0.0)
    assert single(graph, devices).device.tolist() == [1, 1]
    tight = Devices(np.array([1, 0]), np.array([8.0, 7.0]), 0.0, 0.0)
    assert single(graph, tight).device.tolist() == [0, 0]


# Training steps


def test_a_training_step_goes_forward_and_back_and_hands_over_what_was_kept():
    step = training_step(np.array([1.0, 2]), np.array([3.0, 4]), np.array([5.0, 6]), np.array([7.0, 8]), [[0, 1]])
    assert step.edges.tolist() == [[0, 1], [3, 2], [0, 2], [1, 3]]
    assert step.edge_bytes.tolist() == [5, 5, 5, 6]
    assert step.colocate.tolist() == [0, 1, 0, 1]
    done = execute(step, Devices.alike(1, 0, 0), np.zeros(4))
    assert done.makespan_s == 10
    assert done.start_s.tolist() == [0, 1, 7, 3]


def test_gradients_for_two_sources_are_two_tensors():
    join = [[0, 2], [1, 2]]
    apart, one = (
        training_step(np.ones(3), np.ones(3), np.ones(3), np.zeros(3), join, gradients_apart=apart)
        for apart in (True, False)
    )
    there = np.array([0, 0, 1, 0, 0, 1])
    devices = Devices.alike(2, 10, 0)
    assert execute(apart, devices, there).makespan_s - execute(one, devices, there).makespan_s == 10 - 1


PROFILE = """node1 -- Input -- forward_compute_time=9, backward_compute_time=0, activation_size=1, parameter_size=0
node2 -- Linear -- forward_compute_time=1, backward_compute_time=2, activation_size=8, parameter_size=40
node3 -- ReLU -- forward_compute_time=3, backward_compute_time=4, activation_size=6, parameter_size=0
\tnode1 -- node2
\tnode2 -- node3
"""


def test_a_profile_becomes_a_step_of_its_operators_without_the_input(tmp_path):
    path = tmp_path / "small.graph.txt"
    path.write_text(PROFILE)
    step = profiled_step(read_graph(path))
    assert step.work_s[:, 0].tolist() == [0.001, 0.003, 0.002, 0.004]
    assert step.edges.tolist() == [[0, 1], [3, 2], [0, 2], [1, 3]]
    assert step.edge_bytes.tolist() == [8, 8, 8, 6]
    assert step.kept_bytes.tolist() == [40, 0, 0, 0]
    with pytest.raises(PlacementError, match="no measured times"):
        profiled_step(MODELS["resnet50"].build())


# All


@st.composite
def graphs(draw):
    ops = draw(st.integers(1, 12))
    pairs = [(a, b) for b in range(ops) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=16, unique=True)) if pairs else []
    return graph_of(
        [draw(st.integers(0, 8)) for _ in range(ops)],
        edges,
        [draw(st.integers(0, 8)) for _ in edges],
        colocate=np.array([draw(st.integers(-1, 2)) for _ in range(ops)]),
    )


@pytest.mark.parametrize("place", PLACERS)
@settings(max_examples=40)
@given(graph=graphs(), count=st.integers(1, 3), links=st.sampled_from(["shared", "directed"]))
def test_every_placer_runs_each_operator_once_and_keeps_groups_together(place, graph, count, links):
    done = place(graph, Devices.alike(count, 1.0, 1.0, links=links))
    for group in set(graph.colocate.tolist()) - {-1}:
        assert len(set(done.device[graph.colocate == group].tolist())) == 1
    assert (done.end_s - done.start_s).sum() == graph.work_s.sum()
    if count == 1:
        assert done.makespan_s == graph.work_s.sum()


@settings(max_examples=100)
@given(graphs(), st.integers(1, 3))
def test_where_transfers_are_free_m_etf_is_within_twice_the_optimum(graph, count):
    """Graham 1969: a list schedule takes at most the longest way + all work / devices."""
    free = graph_of(graph.work_s[:, 0].tolist(), graph.edges.tolist())
    tail = free.work_s[:, 0].copy()
    for op in free.order[::-1]:
        readers = free.edges[free.edges[:, 0] == op, 1]
        tail[op] += tail[readers].max(initial=0.0)
    done = m_etf(free, Devices.alike(count, 0.0, 0.0))
    assert done.makespan_s <= tail.max() * (1 - 1 / count) + free.work_s.sum() / count + 1e-9
