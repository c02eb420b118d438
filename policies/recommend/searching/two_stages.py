"""Pipelines of two stages on each pair of types, all of them by a closed form; the best are worth the truth.

All first and last stages (`offers`) x all cuts x micro-batches x ways of training are compared by the form of
`sim.kernels.pipeline.two_stage_s`. Of the many that differ by little the best cut of a pair of stages stands for all,
and of these the best few are kept for each weight of price beside time, so that a search begins on all of the front.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Style, styles
from policies.recommend.request.pace import step_pace_s
from policies.recommend.request.request import Request
from policies.recommend.searching.offers import Offer, offers
from sim.api import Plan, Stage
from sim.kernels.pipeline import best_cuts
from sim.performance.gpu_links import inside, network_bytes_per_s
from sim.performance.graph import VALUE_BYTES
from sim.performance.memory import GIB
from sim.performance.running import graph_sums

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of log price beside log time."""
KEPT = 12
"""Pairs of stages, at most, that are kept for a weight."""
FULL_SHARE = 1 / 3
"""Of forward and backward that a second forward takes."""


@dataclass(frozen=True, eq=False)
class _Side:
    """All first, or all last, stages on one type: what they take and need up to, or from, each cut."""

    offers: tuple[Offer, ...]
    work_s: np.ndarray
    after_s: np.ndarray
    reach: np.ndarray
    gpus: np.ndarray
    sends: np.ndarray


class _Sides:
    """The sides of a request's plans of two stages."""

    def __init__(self, request: Request) -> None:
        self.request, self.fleet, self.performance = request, request.fleet, request.performance
        self.layers = Layers(request)
        self.graph = self.performance.graph(request.model)
        self.sums = graph_sums(self.graph)
        self.ways = self.layers.ways(request.space.tensor)
        self._running: dict[tuple[int, int, float], np.ndarray] = {}

    @cached_property
    def cut_bytes(self) -> np.ndarray:
        """float64 [n + 1]: of a sample, before each operator and behind the last."""
        scale = self.performance.value_bytes / VALUE_BYTES
        return np.concatenate(([0.0], self.graph.cut_bytes[:-1] * scale, [0.0]))

    def running_s(self, t: int, ways: int, samples: float) -> np.ndarray:
        """float64 [n + 1]: forward and backward of all operators before each one."""
        key = t, ways, samples
        if key not in self._running:
            forward, backward = self.layers.operators_s(t, samples, ways)
            self._running[key] = np.concatenate(([0.0], np.cumsum(forward + backward)))
        return self._running[key]

    def side(self, t: int, m: int, style: Style, *, front: bool) -> _Side | None:
        """The stages on a type; None: there are none."""
        listed = tuple(one for ways in self.ways for one in offers(self.request, t, ways, m))
        if not listed:
            return None
        rows = [self._row(one, m, style, front=front) for one in listed]
        return _Side(
            listed, np.array([row[0] for row in rows]), np.array([row[1] for row in rows]),
            np.array([row[2] for row in rows], dtype=np.int64), np.array([one.gpus for one in listed], dtype=np.int64),
            np.array([one.replicas * one.samples for one in listed]),
        )

    def _row(self, one: Offer, m: int, style: Style, *, front: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Work and what follows it at each cut, and the last (first) cut that memory allows."""
        work = self.running_s(one.t, one.tensor, one.samples)
        params, stored, kept = self._columns
        ways, asked, shard = one.tensor, self.performance, 1 / one.replicas if style.zero else 1.0
        after = params * (self._a_parameter_s(one) / ways)
        held = min(m, self.layers.held(style, 0 if front else 1, 2, m))
        state = (asked.value_bytes + asked.optimizer.gradient_bytes(asked.value_bytes)
                 + asked.optimizer.state_bytes(asked.value_bytes) * shard)  # fmt: skip
        scale = one.samples * asked.value_bytes / VALUE_BYTES
        # What recomputation keeps is little beside what it saves: none of it is counted; the truth counts all.
        gib = (kept * state + scale * (0.0 if style.recompute else held) * stored) / ways / GIB
        if not front:
            work, after, gib = (column[-1] - column for column in (work, after, gib))
        if style.recompute:
            work = work * (1 + FULL_SHARE)
        memory_gib = self.fleet.types[one.t].memory_gib or 0.0
        fits = np.flatnonzero(gib <= memory_gib - asked.context_gib)
        if not len(fits):
            return work, after, -1 if front else len(work)
        return work, after, int(fits[-1] if front else fits[0])

    @cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Running sums of parameters that are stepped, of bytes stored of a sample, of all parameters: [n + 1] each."""
        graph = self.graph
        columns = graph.weight_params - graph.sparse_params, graph.stored_bytes, graph.weight_params
        return tuple(np.concatenate(([0.0], np.cumsum(column))) for column in columns)  # type: ignore[return-value]

    def _a_parameter_s(self, one: Offer) -> float:
        """Seconds of the sum over the replicas and of the optimizer's step, for each parameter."""
        gpu, last = self.fleet.types[one.t], len(self.graph) - 1
        dense = max(self.sums.dense(0, last), 1.0)
        took = step_pace_s(self.performance, self.request.model, gpu) / dense
        if one.replicas > 1:
            size = self.fleet.node_gpus[one.t]
            full, rest = divmod(one.gpus, size)
            start, slope = self.performance.allreduce_lines(gpu, (size,) * full + ((rest,) if rest else ()))
            num_bytes = self.performance.value_bytes * dense
            took += float((start + slope * num_bytes).min()) / dense
        return took

    def pair(self, front: _Side, back: _Side, m: int) -> tuple[np.ndarray, np.ndarray]:
        """The form's time of the best cut for each front and back, and that cut: [F, B] each."""
        t, u = front.offers[0].t, back.offers[0].t
        fleet, links = self.fleet, self.performance.links
        most = min(self.request.budget, fleet.counts[t] if t == u else self.request.budget)
        far = network_bytes_per_s(links, 1), links.network_latency_s, fleet.node_gpus[t], fleet.node_gpus[u]
        near = tuple(map(float, inside(fleet.types[t], links)))
        return best_cuts(
            front.work_s, front.after_s, front.reach, front.gpus, front.sends, back.work_s, back.after_s, back.reach,
            back.gpus, back.sends, self.cut_bytes, most, fleet.node_gpus[t] if t == u else 0, far, near, m,
        )


def two_stages(request: Request) -> Iterator[Plan]:
    """Plans of two stages for each weight, best first by the form. Nothing of one operator or one GPU."""
    if request.measured or request.budget < 2 or len(request.performance.graph(request.model)) < 2:
        return
    sides, fleet = _Sides(request), request.fleet
    kept: dict[float, list[tuple[float, int, Plan]]] = {weight: [] for weight in WEIGHTS}
    count = 0
    for style, m in product(styles(request), request.space.micro_batches):
        if m > request.batch_size:
            continue
        for t, u in product(fleet.present, repeat=2):
            if t != u and request.space.single_type:
                continue
            front, back = sides.side(t, m, style, front=True), sides.side(u, m, style, front=False)
            if front is None or back is None:
                continue
            time_s, cut = sides.pair(front, back, m)
            price = _price(request, front, back)
            for weight in WEIGHTS:
                value = np.log(time_s) + (weight * np.log(price) if weight else 0.0)
                value = np.where(np.isnan(value), np.inf, value)
                best = kept[weight]
                for k in np.argsort(value, axis=None, kind="stable")[:KEPT].tolist():
                    i, j = divmod(k, len(back.offers))
                    if not value[i, j] < (-best[0][0] if len(best) == KEPT else math.inf):
                        break
                    plan = _plan(request, style, m, front.offers[i], back.offers[j], int(cut[i, j]))
                    count += 1
                    push = heapq.heappushpop if len(best) == KEPT else heapq.heappush
                    push(best, (-float(value[i, j]), -count, plan))
    met: set[Plan] = set()
    for weight in WEIGHTS:
        for _, _, plan in sorted(kept[weight], key=lambda one: (-one[0], -one[1])):
            if plan not in met:
                met.add(plan)
                yield plan


def _price(request: Request, front: _Side, back: _Side) -> np.ndarray:
    """USD an hour of each front and back: float64 [F, B]; NaN where unknown, and above 0."""
    fleet = request.fleet

    def of(side: _Side) -> np.ndarray:
        t = side.offers[0].t
        return np.array([fleet.types[t].price_or_nan * fleet.paid(t, one.gpus) for one in side.offers])

    return np.maximum(of(front)[:, None] + of(back)[None, :], 1e-12)


def _plan(request: Request, style: Style, m: int, front: Offer, back: Offer, cut: int) -> Plan:
    names, last = request.fleet.names, len(request.performance.graph(request.model)) - 1
    stages: Sequence[Stage] = (
        Stage(0, cut - 1, names[front.t], front.gpus, front.tensor),
        Stage(cut, last, names[back.t], back.gpus, back.tensor),
    )
    return Plan(tuple(stages), m, schedule=style.schedule, recompute=style.recompute, zero=style.zero)
