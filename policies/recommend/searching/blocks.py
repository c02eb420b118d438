"""Operators taken together in blocks, between which cuts are told apart: where they may be, and what crosses them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from policies.recommend.request.pace import pace_s
from policies.recommend.request.request import Request
from sim.performance.graph import OperatorGraph

BLOCKS = 40
"""Of operators, at most, where orders allow it."""


def _kept(places: np.ndarray, done: np.ndarray, part: float) -> list[int]:
    """First operators of blocks: each has that part of the work at most, or nothing that can be told apart."""
    kept = [0]
    for place, then in pairwise(places[1:].tolist()):
        if done[then] - done[kept[-1]] > part:
            kept.append(place)
    return kept


def _fewer(places: np.ndarray, done: np.ndarray, most: int) -> list[int]:
    """The same of the least part by which there are no more blocks than that."""
    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        few = len(_kept(places, done, middle)) <= most
        low, high = (low, middle) if few else (middle, high)
    return _kept(places, done, high)


def fixed_places(graph: OperatorGraph) -> np.ndarray:
    """Numbers of operators that are the same ones in each order: the first ones before and behind a place."""
    n = len(graph)
    before = [0] * n
    for op, sources in enumerate(graph.inputs):
        for source in sources:
            if source >= 0:
                before[op] |= before[source] | 1 << source
    behind = [0] * n
    for op in range(n):
        # All that lead to op have it behind them.
        for source in graph.inputs[op]:
            if source >= 0:
                behind[source] |= 1 << op
    for op in reversed(range(n)):
        later = behind[op]
        for reader in _members(later):
            behind[op] |= behind[reader]
    fixed = [op for op in range(n) if before[op].bit_count() == op and behind[op].bit_count() == n - 1 - op]
    return np.unique(np.array([0, n, *fixed, *(op + 1 for op in fixed)], dtype=np.int64))


def _members(of: int) -> list[int]:
    """Numbers of the bits that are set."""
    out = []
    while of:
        low = of & -of
        out.append(low.bit_length() - 1)
        of ^= low
    return out


class Blocks:
    """Where cuts may be told apart."""

    def __init__(self, request: Request, most: int = BLOCKS) -> None:
        graph = request.performance.graph(request.model)
        places = fixed_places(graph) if request.space.orders else np.arange(len(graph) + 1)
        share = np.zeros(len(graph))
        for t in request.fleet.present:
            time_s = np.add(*pace_s(request.performance, request.model, 1.0, request.fleet.types[t]))
            share += time_s / time_s.sum()
        done = np.concatenate(([0.0], np.cumsum(share / share.sum())))
        kept = _kept(places, done, 0.0) if len(places) <= most + 1 else _fewer(places, done, most)
        self.first_op = np.array([*kept, len(graph)], dtype=np.int64)
        self.cut_bytes = self._least_cuts(graph, places)

    def _least_cuts(self, graph: OperatorGraph, places: np.ndarray) -> np.ndarray:
        """float64 [2 B]: fewest bytes of a sample over a cut before each block, and in it; inf where there is none."""
        told = np.full(len(graph) + 1, math.inf)
        told[places] = np.concatenate(([math.inf], graph.cut_bytes[:-1], [math.inf]))[places]
        # Between places: what leads from the operator before them to the one behind them passes a cut somewhere.
        widest = np.zeros(len(graph))
        within = np.full(len(graph) + 1, math.inf)
        for a, b in pairwise(places.tolist()):
            for op in range(max(a - 1, 0), b):
                inner = [widest[source] for source in graph.inputs[op] if source >= a - 1]
                through = math.inf if op == a - 1 else max(inner, default=0.0)
                widest[op] = min(float(graph.out_bytes[op]), through)
            if b - a > 1:
                ends = [widest[source] for source in graph.inputs[b] if source >= a - 1] if b < len(graph) and a else []
                within[a + 1] = max(ends, default=0.0)
        out = np.full((len(self.first_op) - 1, 2), math.inf)
        for j, (a, b) in enumerate(pairwise(self.first_op.tolist())):
            out[j] = told[a], min(told[a + 1 : b].min(initial=math.inf), within[a + 1 : b].min(initial=math.inf))
        return out.ravel()

    def running(self, of_ops: np.ndarray) -> np.ndarray:
        """float64 [..., B + 1]: running sums over blocks."""
        zero = np.zeros((*of_ops.shape[:-1], 1))
        return np.ascontiguousarray(np.concatenate((zero, np.cumsum(of_ops, axis=-1)), axis=-1)[..., self.first_op])

    def sums(self, of_ops: np.ndarray) -> np.ndarray:
        """float64 [..., B]: sum of each block."""
        return np.add.reduceat(of_ops, self.first_op[:-1], axis=-1)
