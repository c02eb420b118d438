"""The most that a stage's links can carry of a message to or from its neighbour: what messages take at least.

The GPUs of a type are numbered node by node (`Fleet`), and each stage has a stretch of them; the largest parts take
theirs first (`sim.performance.stage_sites.places_taken`). So a stretch of n GPUs begins at 0 or behind n others at
least, and two of them share one node at most, which is the first or the last of each. Each GPU sends, or gets, an n-th
of what the type has of the message. What lies on nodes that are not shared crosses these nodes' network links, so that
of a stretch with g_i GPUs on node i, of which node k may be shared,

    rate <= network x n / max of g_i over i != k,      or, all on one node that is shared,  n near + network.

Nothing is shared with a stage that has no GPU of the type, nor where there are no GPUs of the type beside the stretch.
A stage of several types has a stretch of each: however it shares its samples, the sum of their rates bounds its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from policies.recommend.request.fleet import Fleet
from sim.performance import Performance
from sim.performance.gpu_links import inside, network_bytes_per_s

UNTOLD_BYTES_PER_S = 1e300
"""Where links are not told apart. Not infinity: a byte takes nearly no time, not none, so that infinitely many do not
take what is no number."""


def told(performance: Performance, fleet: Fleet) -> bool:
    """Whether all that leaves a node goes by a network link of its own: not between types that share a machine."""
    return performance.links.alike and not performance.links.sites and not fleet.machines


def most_bytes_per_s(
    performance: Performance, fleet: Fleet, used: Mapping[int, int], beside: Collection[int]
) -> float:
    """Most bytes of a whole message a second; `UNTOLD_BYTES_PER_S` where links are not told apart.

    Parameters
    ----------
    used : GPUs of each type that the stage has, one at least.
    beside : types that the neighbour may have.
    """
    if not told(performance, fleet):
        return UNTOLD_BYTES_PER_S
    links = performance.links
    far = network_bytes_per_s(links.fastest, 1)
    return sum(
        _stretch(n, fleet.counts[t], fleet.node_gpus[t], far, inside(fleet.types[t], links)[0], shared=t in beside)
        for t, n in used.items()
    )


@lru_cache(maxsize=4096)
def _stretch(n: int, count: int, size: int, far: float, near: float, *, shared: bool) -> float:
    """The rate of n GPUs of a type of which there are `count`, `size` a node."""
    best = 0.0
    for begin in _begins(n, count, size):
        first, last = begin // size, (begin + n - 1) // size
        on_node = [min((i + 1) * size, begin + n) - max(i * size, begin) for i in range(first, last + 1)]
        best = max(best, far * n / max(on_node))
        for k in {0, len(on_node) - 1} if shared else ():
            there = min((first + k + 1) * size, count) - (first + k) * size
            if on_node[k] < there:
                others = on_node[:k] + on_node[k + 1 :]
                best = max(best, far * n / max(others) if others else near * n + far)
    return best


def _begins(n: int, count: int, size: int) -> list[int]:
    """Where a stretch may begin: at 0, behind n others; what comes after a node more lies as what comes before."""
    last = count - n
    return [0, *range(n, min(n + size, last + 1)), *range(max(n + size, last - size), last + 1)]


def most_of_any(performance: Performance, fleet: Fleet) -> float:
    """Most bytes a second of a stage of which it is not known how many GPUs of which types it has."""
    if not told(performance, fleet):
        return UNTOLD_BYTES_PER_S
    links = performance.links
    far = network_bytes_per_s(links.fastest, 1)
    return sum(fleet.counts[t] * inside(fleet.types[t], links)[0] - (-fleet.counts[t] // fleet.node_gpus[t]) * far
               for t in fleet.present)


def most_nodes(n: int, count: int, size: int) -> int:
    """Nodes that a stretch of n GPUs may lie on, at most."""
    return max((begin + n - 1) // size - begin // size + 1 for begin in _begins(n, count, size))
