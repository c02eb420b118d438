"""Coarsening: acyclic, nothing lost, forward and backward halves alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.place.coarsen import coarsen, contracted, mirrors
from policies.place.placement_problem import PlacementGraph
from policies.place.step import training_step


def chain(work: list[float], sizes: list[float]) -> PlacementGraph:
    edges = [[i, i + 1] for i in range(len(sizes))]
    return PlacementGraph(np.array(work), np.ones(len(work)), np.array(edges), np.array(sizes))


@st.composite
def graphs(draw: st.DrawFn) -> PlacementGraph:
    """A random graph, or the training step of one."""
    n = draw(st.integers(1, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pairs = [[i, j] for j in range(n) for i in range(j) if rng.random() < 0.25]
    edges = rng.permutation(n)[np.array(pairs, dtype=np.int64).reshape(-1, 2)]  # numbers in no topological order
    work, size = rng.integers(0, 9, n).astype(float), rng.integers(0, 99, n).astype(float)
    if draw(st.booleans()):
        return training_step(work, 2 * work, size, size, edges)
    colocate, kind = rng.integers(-1, 4, n), np.where(rng.random(n) < 0.2, rng.integers(0, 2, n), -1)
    colocate = np.where(kind >= 0, -1, colocate)
    return PlacementGraph(work, size, edges, rng.integers(0, 99, len(edges)).astype(float), colocate, kind, size)


@settings(max_examples=150)
@given(graphs(), st.integers(1, 14), st.booleans())
def test_the_coarse_graph_is_acyclic_and_loses_nothing(graph, target, cache):
    coarse = coarsen(graph, target, cache=cache)
    small, group = coarse.graph, coarse.group
    assert sorted(set(group.tolist())) == list(range(len(small)))
    assert (small.edges[:, 0] < small.edges[:, 1]).all()  # so numbers are a topological order
    for column in ("work_s", "memory_bytes", "kept_bytes"):
        assert getattr(small, column).sum() == pytest.approx(getattr(graph, column).sum())
    source, reader = group[graph.edges].T
    tensors = {}
    for e in np.flatnonzero(source != reader):
        key = (graph.edges[e, 0], graph.tensor[e], reader[e]) if cache else e
        tensors[key] = max(tensors.get(key, 0.0), graph.edge_bytes[e])
    assert small.edge_bytes.sum() == pytest.approx(sum(tensors.values()))


@settings(max_examples=150)
@given(graphs(), st.integers(1, 14))
def test_a_vertex_has_operators_of_one_kind_and_its_colocation(graph, target):
    coarse = coarsen(graph, target)
    for vertex in range(len(coarse.graph)):
        kinds = set(graph.device_kind[coarse.group == vertex].tolist()) - {-1}
        assert len(kinds) <= 1
        assert coarse.graph.device_kind[vertex] == max(kinds, default=-1)
    for name in set(graph.colocate.tolist()) - {-1}:
        together = set(coarse.group[graph.colocate == name].tolist())
        names = {int(coarse.graph.colocate[vertex]) for vertex in together}
        assert len(together) == 1 or (len(names) == 1 and -1 not in names)


@settings(max_examples=100)
@given(graphs(), st.integers(2, 14))
def test_what_is_free_to_move_apart_stays_so(graph, target):
    """Only what shares a vertex or a colocation group is tied: ties do not spread through chains of colocations."""
    other, backward = mirrors(graph)
    if (other < 0).any():
        return
    coarse = coarsen(graph, target)
    of = coarse.group
    for op in np.flatnonzero(~backward):
        same_forward = np.flatnonzero((of == of[op]) & ~backward)
        same_backward = np.flatnonzero((of == of[other[op]]) & backward)
        assert sorted(other[same_forward].tolist()) == same_backward.tolist()


def test_most_bytes_are_contracted_first():
    coarse = coarsen(chain([1, 1, 1, 1], [5, 9, 5]), 3)
    assert coarse.group.tolist() == [0, 1, 1, 2]
    assert coarse.graph.edge_bytes.tolist() == [5, 5]


def test_an_edge_beside_a_second_path_is_kept():
    """0 -> 2 has most bytes, yet contracting it would close a cycle through 1."""
    graph = PlacementGraph(np.ones(3), np.ones(3), np.array([[0, 1], [1, 2], [0, 2]]), np.array([1.0, 2.0, 99.0]))
    assert coarsen(graph, 2).group.tolist() == [0, 1, 1]


def test_branches_stay_parallel_while_there_is_a_choice():
    """A diamond with a tail: the heavy edges of the branches would make one path of both, the tail's costs nothing."""
    graph = PlacementGraph(
        np.array([1.0, 4.0, 4.0, 1.0, 1.0, 1.0]), np.ones(6),
        np.array([[0, 1], [0, 2], [1, 3], [2, 3], [3, 4], [4, 5]]), np.array([9.0, 9, 9, 9, 1, 1]),
    )  # fmt: skip
    group = coarsen(graph, 3).group
    assert group[1] != group[2]
    assert group[3] == group[4] == group[5]


def test_backward_halves_mirror_forward_ones():
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    step = training_step(np.ones(4), np.ones(4), np.array([1.0, 5, 1, 1]), np.zeros(4), edges)
    other, backward = mirrors(step)
    assert other.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]
    assert backward.tolist() == [False] * 4 + [True] * 4
    group = coarsen(step, 6).group
    assert group[1] == group[2] and group[5] == group[6]
    assert len(set(group.tolist())) == 6


def test_no_halves_where_backward_operators_lead_to_forward_ones():
    graph = PlacementGraph(
        np.ones(4), np.ones(4), np.array([[0, 1], [1, 2], [2, 3]]), np.ones(3), np.array([0, 0, 1, 1])
    )
    assert mirrors(graph)[0].tolist() == [-1] * 4


def test_a_tensor_read_twice_in_a_vertex_counts_once_with_a_cache():
    graph = PlacementGraph(np.ones(3), np.ones(3), np.array([[0, 1], [0, 2]]), np.array([7.0, 7.0]))
    group = np.array([0, 1, 1])
    assert contracted(graph, group).edge_bytes.tolist() == [14]
    assert contracted(graph, group, cache=True).edge_bytes.tolist() == [7]


@pytest.mark.parametrize("target", [1, 5])
def test_what_cannot_be_joined_is_left(target):
    """No edges: nothing to contract, whatever is asked for."""
    graph = PlacementGraph(np.ones(3), np.ones(3), np.empty((0, 2)), np.empty(0))
    assert len(coarsen(graph, target).graph) == 3
