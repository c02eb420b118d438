"""All placers by name, and the graph and the devices that a model and a list of GPUs are to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from policies.place.annealing import anneal
from policies.place.baechi import m_etf, m_sct, m_topo
from policies.place.pesto import pesto
from policies.place.placement_problem import Devices, PlacementError, PlacementGraph, Placer, Schedule
from policies.place.simple import expert, single
from policies.place.step import training_step
from sim.performance import GpuType, Performance
from sim.performance.gpu_links import inside, network_bytes_per_s
from sim.performance.graph import VALUE_BYTES
from sim.performance.memory import GIB
from traces.errors import did_you_mean

_ALL: dict[str, Callable[..., Schedule]] = {
    "single": single, "expert": expert, "m-topo": m_topo, "m-etf": m_etf, "m-sct": m_sct, "pesto": pesto,
    "anneal": anneal,
}  # fmt: skip
PLACERS = tuple(_ALL)
"""Names of the placers, the quick ones first."""


def about(name: str) -> str:
    """What a placer does, in one line: the first of its docstring."""
    return (_ALL[name].__doc__ or "").strip().splitlines()[0]


def placer(name: str, *, seconds: float = 10.0, iterations: int = 20_000, seed: int = 0) -> Placer:
    """A placer by its name, with the settings that concern it.

    Parameters
    ----------
    seconds : wall time of the solver (pesto).
    iterations : neighbours that are tried (anneal).
    seed : of random numbers (both).

    Raises
    ------
    PlacementError
        Unknown; names the nearest one.
    """
    if name not in _ALL:
        raise PlacementError("unknown method", got=name, allowed=", ".join(PLACERS), todo=did_you_mean(name, PLACERS))
    settings: dict[str, dict[str, Any]] = {
        "pesto": {"seconds": seconds, "seed": seed}, "anneal": {"iterations": iterations, "seed": seed},
    }  # fmt: skip
    return partial(_ALL[name], **settings.get(name, {}))


def modelled_step(performance: Performance, model: str, samples: float, types: Sequence[GpuType]) -> PlacementGraph:
    """The training step of a model as its times are modelled: a column of `work_s` for each GPU type.

    Kept are weights, gradients and the optimizer's state; outputs until they are read.

    Raises
    ------
    PerformanceError
        An unknown model, no samples, or times that are not known on a type.
    """
    graph = performance.graph(model)
    times = [performance.op_times_s(model, samples, gpu) for gpu in types]
    pairs = [(source, op) for op, sources in enumerate(graph.inputs) for source in sources if source >= 0]
    return training_step(
        np.column_stack([fwd for fwd, _ in times]), np.column_stack([bwd for _, bwd in times]),
        graph.out_bytes * samples * performance.value_bytes / VALUE_BYTES,
        graph.weight_params * performance.param_bytes, np.array(pairs),
    )  # fmt: skip


def devices_of(
    performance: Performance, gpus: Sequence[tuple[GpuType, int]], node_gpus: int, *, links: str = "directed",
) -> Devices:
    """GPUs as devices, type after type, each type on nodes of its own, filled one after the other.

    A transfer takes the type's own link within a node and a node's network link elsewhere. Memory is without what the
    context takes; a type of unknown memory has none to place anything in, so it is refused.

    Raises
    ------
    PlacementError
        A type of unknown memory, or an unknown kind of links.
    """
    for gpu, _ in gpus:
        if gpu.memory_gib is None or not math.isfinite(gpu.memory_gib):
            raise PlacementError("the memory of a GPU type is unknown", where=f"GPU type {gpu.name!r}",
                                 got=gpu.memory_gib, todo="Take another type.")
    counts = [n for _, n in gpus]
    kind = np.repeat(np.arange(len(gpus)), counts)
    node = np.concatenate([np.arange(n) // node_gpus for n in counts])
    s_per_byte = np.full((len(kind), len(kind)), 1 / network_bytes_per_s(performance.links, 1))
    latency_s = np.full_like(s_per_byte, performance.links.network_latency_s)
    together = (kind[:, None] == kind) & (node[:, None] == node)
    for k, (gpu, _) in enumerate(gpus):
        here = together & (kind[:, None] == k)
        bytes_per_s, latency = inside(gpu, performance.links)
        s_per_byte[here], latency_s[here] = 1 / bytes_per_s, latency
    memory = np.array([(gpu.memory_gib - performance.context_gib) * GIB for gpu, _ in gpus])[kind]
    return Devices(kind, np.maximum(memory, 0.0), s_per_byte, latency_s, links)
