"""Sailor: even stages, each of one or two GPU types, the least tensor parallelism that fits, by a closed form.

Strati et al., 'Sailor: Automating Distributed Training over Dynamic, Heterogeneous, and Geo-distributed Clusters', SOSP
2025 (arXiv:2504.17096). For each number of stages p, of micro-batches m and of replicas D (all stages have as many):

* layers are cut evenly by their number, and each replica gets b = ceil(batch / (m D)) samples of a micro-batch;
* on each type a stage has the least degree of tensor parallelism that fits its memory; or the next ones while each is
  `WORTH` times as fast as the last;
* the replicas of each stage are shared among two types, so that the iteration is shortest:

    (m - 1) max (stage + transfers) + sum of (stage + transfers) + longest all-reduce + longest optimizer step.

Sailor finds the last by a dynamic program over stages and GPUs left. Here each possible slowest stage is tried as a
limit: types that are slower than it are out, and the GPUs of both are filled by exchange (`_fill`). A stage of two
types has the degree of each. The best few by time are tried, and by cost.

May choose: types and numbers of GPUs, stages, replicas of each type, tensor parallelism, micro-batches.
May not: uneven cuts, replicas by stage, uneven shares, three types or more. Zones and regions are left aside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from policies.recommend.request.coarse_layers import Layers
from policies.recommend.request.devices import Style, first_that_fit, styles
from policies.recommend.request.pace import step_pace_s
from policies.recommend.request.request import Request
from sim.api import Part, Plan, Stage
from sim.performance.gpu_links import inside, network_bytes_per_s

WORTH = 1.5
"""Times as fast as the last degree of tensor parallelism the next one must be, to be taken without need."""
Pair = tuple[int, ...]
"""One or two types."""


def propose(request: Request) -> Iterator[Plan]:
    """The few best plans of each way of training that run: by time, then by cost."""
    if request.measured:
        return
    layers = Layers(request)
    for style in styles(request):
        found = list(candidates(request, layers, style))
        by_time = first_that_fit(request, [(time_s, make) for time_s, _, make in found])
        by_cost = first_that_fit(request, [(usd, make) for _, usd, make in found if not math.isnan(usd)])
        yield from dict.fromkeys([*by_time, *by_cost])


def even_cuts(layers: int, stages: int) -> list[int]:
    """Borders of stages that have the same number of layers, or one more."""
    return [s * layers // stages for s in range(stages + 1)]


def replicas_worth(micro: float, most: int) -> list[int]:
    """Numbers of replicas from `most` down: the least for each number of samples that the largest share can have."""
    least: dict[int, int] = {}
    for replicas in range(1, min(most, math.floor(micro)) + 1):
        least.setdefault(math.ceil(micro / replicas), replicas)
    return sorted(least.values(), reverse=True)


@dataclass(frozen=True)
class _Row:
    """The stages of one cut on one type: tensor degree (0: none fits) and seconds of a micro-batch of each."""

    degree: tuple[int, ...]
    time_s: tuple[float, ...]


def candidates(
    request: Request, layers: Layers, style: Style
) -> Iterator[tuple[float, float, partial[Plan | None]]]:
    """Predicted time, predicted cost and plan of each choice."""
    present, counts, budget = request.fleet.present, request.fleet.counts, request.budget
    alone = [(t,) for t in present]
    pairs = [] if request.space.single_type else list(combinations(present, 2))
    for p in range(1, min(len(layers), budget) + 1):
        cuts = even_cuts(len(layers), p)
        for m in request.space.micro_batches:
            micro, known = request.batch_size / m, dict[tuple[int, int, bool, int], _Row]()
            for replicas in replicas_worth(micro, min(budget, sum(counts)) // p):
                samples = math.ceil(micro / replicas)
                tried: list[dict[int, _Row]] = []
                for scaled in (False, True):
                    rows = {}
                    for t in present:
                        # Memory depends on the replicas where ZeRO shards it.
                        key = t, samples, scaled, replicas if style.zero else 0
                        if key not in known:
                            known[key] = row(request, layers, style, cuts, t, samples, m, replicas, scaled)
                        rows[t] = known[key]
                    if rows in tried:
                        continue
                    tried.append(rows)
                    for pair in (*alone, *pairs):
                        yield from _of_pair(request, layers, style, cuts, pair, rows, m, replicas, samples)


def row(
    request: Request, layers: Layers, style: Style, cuts: Sequence[int], t: int, samples: int, m: int, replicas: int,
    scaled: bool,
) -> _Row:  # fmt: skip
    """The stages on one type: the least degrees that fit, or as many as are worth it."""
    gpu, p = request.fleet.types[t], len(cuts) - 1
    ways = [w for w in sorted(layers.ways(request.space.tensor)) if w <= request.fleet.node_gpus[t]]
    degrees, times = [], []
    for s in range(p):
        i, j = cuts[s], cuts[s + 1]
        held = layers.held(style, s, p, m)
        fit = [w for w in ways if layers.memory_gib(samples, held, w, replicas, style)[i, j] <= gpu.memory_gib]
        took = {w: _span_s(layers.time_s(t, samples, w, recompute=style.recompute), i, j) for w in fit}
        best = 0
        for w in fit:
            if best and not (scaled and took[best] >= WORTH * took[w]):
                break
            best = w
        degrees.append(best)
        times.append(took[best] if best else math.inf)
    return _Row(tuple(degrees), tuple(times))


def _span_s(running: np.ndarray, i: int, j: int) -> float:
    return float(running[j] - running[i])


def _of_pair(
    request: Request, layers: Layers, style: Style, cuts: Sequence[int], pair: Pair, rows: dict[int, _Row], m: int,
    replicas: int, samples: int,
) -> Iterator[tuple[float, float, partial[Plan | None]]]:  # fmt: skip
    """The shortest iteration on one or two types, whichever stage is the slowest; two types: both are used."""
    stages = range(len(cuts) - 1)
    best: tuple[float, float, partial[Plan | None]] | None = None
    limits = sorted({rows[t].time_s[s] for t in pair for s in stages if rows[t].degree[s]})
    for limit in limits:
        if best is not None and (m - 1) * limit >= best[0]:
            break
        shared = _fill(request, pair, rows, limit, replicas)
        if shared is None or any(not any(of[k] for of in shared) for k in range(len(pair))):
            continue
        time_s = predicted_s(request, layers, cuts, pair, rows, shared, m, samples)
        if best is None or time_s < best[0]:
            gpus = [sum(of[k] * rows[t].degree[s] for s, of in enumerate(shared)) for k, t in enumerate(pair)]
            price = sum(n * request.fleet.types[t].price_or_nan for t, n in zip(pair, gpus, strict=True))
            best = time_s, time_s * price, partial(_plan, request, layers, style, cuts, pair, rows, shared, m)
    if best is not None:
        yield best


def _fill(
    request: Request, pair: Pair, rows: dict[int, _Row], limit: float, replicas: int
) -> list[list[int]] | None:
    """Replicas of each stage on each type of the pair, none slower than `limit`; None: there are too few GPUs.

    Each stage begins on its faster type. While one type has too few GPUs, replicas move to the other, those first that
    free most of the one for the fewest of the other, and of these those that lose least by it.
    """
    counts = [request.fleet.counts[t] for t in pair]
    degrees = [[rows[t].degree[s] if rows[t].time_s[s] <= limit else 0 for t in pair]
               for s in range(len(rows[pair[0]].degree))]  # fmt: skip
    if any(not any(of) for of in degrees):
        return None
    shared = []
    for s, of in enumerate(degrees):
        fastest = min((k for k in range(len(pair)) if of[k]), key=lambda k: rows[pair[k]].time_s[s])
        shared.append([replicas if k == fastest else 0 for k in range(len(pair))])

    def used(k: int) -> int:
        return sum(of[k] * degree[k] for of, degree in zip(shared, degrees, strict=True))

    for k in range(len(pair)):
        over, other = used(k) - counts[k], len(pair) - 1 - k
        if over <= 0:
            continue
        movable = sorted((s for s, of in enumerate(degrees) if all(of) and shared[s][k] and k != other),
                         key=lambda s: (degrees[s][other] / degrees[s][k],
                                        rows[pair[other]].time_s[s] - rows[pair[k]].time_s[s]))  # fmt: skip
        for s in movable:
            # Shards of a stage go together where the larger degree is a multiple of the other.
            together = request.space.mixed and max(degrees[s]) % min(degrees[s]) == 0
            moved = min(shared[s][k], -(-over // degrees[s][k])) if together else shared[s][k]
            shared[s][k] -= moved
            shared[s][other] += moved
            over -= moved * degrees[s][k]
            if over <= 0:
                break
        if over > 0:
            return None
    if any(used(k) > counts[k] for k in range(len(pair))) or sum(map(used, range(len(pair)))) > request.budget:
        return None
    return shared


def predicted_s(
    request: Request, layers: Layers, cuts: Sequence[int], pair: Pair, rows: dict[int, _Row],
    shared: Sequence[Sequence[int]], m: int, samples: int,
) -> float:  # fmt: skip
    """Time of an iteration by the closed form (module text)."""
    network, p = network_bytes_per_s(request.performance.links, 1), len(shared)
    lengths, sums_s, steps_s = [], [], []
    for s, of in enumerate(shared):
        there = [t for t, n in zip(pair, of, strict=True) if n]
        ahead = samples * float(layers.cut_bytes[cuts[s + 1]]) / network
        back = samples * float(layers.cut_bytes[cuts[s]]) / network
        moved = ahead + back if 0 < s < p - 1 else 2 * max(ahead, back)
        lengths.append(max(rows[t].time_s[s] for t in there) + (moved if p > 1 else 0.0))
        least = min(rows[t].degree[s] for t in there)
        part = float(layers.params[cuts[s + 1]] - layers.params[cuts[s]])
        # The GPUs that hold one part of the layers, of all replicas, share the links of their nodes with the others.
        fit_a_node = len(there) == 1 and sum(of) * least <= request.fleet.node_gpus[there[0]]
        rate = inside(request.fleet.types[there[0]], request.performance.links)[0] if fit_a_node else network / least
        n = sum(of)
        sums_s.append(2 * (n - 1) / n * part / least * layers.value_bytes / rate)
        steps_s.append(max(
            step_pace_s(request.performance, request.model, request.fleet.types[t]) / rows[t].degree[s] for t in there
        ) * part / max(float(layers.params[-1]), 1.0))  # fmt: skip
    return (m - 1) * max(lengths) + sum(lengths) + max(sums_s) + max(steps_s)


def _plan(
    request: Request, layers: Layers, style: Style, cuts: Sequence[int], pair: Pair, rows: dict[int, _Row],
    shared: Sequence[Sequence[int]], m: int,
) -> Plan | None:  # fmt: skip
    names, stages = request.fleet.names, list[Stage | None]()
    for s, of in enumerate(shared):
        there = [(t, n) for t, n in zip(pair, of, strict=True) if n]
        span, first, tensor = layers.span(cuts[s], cuts[s + 1]), names[there[0][0]], rows[there[0][0]].degree[s]
        degrees = [(t, n, rows[t].degree[s]) for t, n in there]
        # A part says its degree where it is not the first one's.
        parts = tuple(Part(names[t], n * ways, n / sum(of), ways if ways != tensor else 0) for t, n, ways in degrees)
        gpus = sum(part.gpus for part in parts)
        stages.append(Stage(*span, first, gpus, tensor, parts if len(parts) > 1 else ()))
    return style.plan(stages, m)
