"""Embedding tables: copies of tied ones, rows touched of sparse ones, and those that replicas divide, as experts.

**Tied.** A stage that has a user of a table but not its first one keeps a copy: weights, gradients and optimizer state
of P more parameters, which it steps as its own. After each stage has summed the gradients of its copy over its
replicas, the k stages that hold one sum theirs, each replica with its peers, all at once (as the first and the last
stage of Megatron-LM, its embedding group): by a ring, of which each replica sends 2 (k - 1) / k of the table to the
next stage that holds one. For two stages that is the table there and the table back.

**Touched.** A sample reads v values in rows of a table with sparse gradients (`inner_bytes` of the operator that reads
them) and says which by i bytes of indices (`stored_bytes`). After the backward pass each replica gathers the rows of
all others, with their indices: an all-gather of

    S = samples (v b + i)  bytes of all replicas together, b bytes a value,

half of an all-reduce of as many, and never more than that of the whole table. Each replica then steps the rows of all:
samples v parameters, at most the table. Rows that several samples touch are counted each time. So do PyTorch's sparse
all-reduce, which gathers indices and values, and its SparseAdam, which steps the rows that have a gradient.

**Divided.** The n replicas of a stage may divide among them what has shards (`OperatorGraph.sharded`), weights,
gradients and optimizer state: experts as whole ones, ceil(E / n) of E where most are; tables, whole ones or rows, taken
as even by bytes, 1 / n. A replica works with its part for the samples of all; so its gradients are whole, nothing is
summed or gathered, and it alone steps them. All else of the stage is as ever. Of each micro-batch there is sent

- of tables (Naumov et al. 2019, arXiv:1906.00091, section 4) indices to who has the rows, the sum of the rows of each
  table and sample back, and backward its gradient: one all-to-all each, of all tables of the stage together;
- of experts (Lepikhin et al. 2020, arXiv:2006.16668, section 3.2) what they read (dispatch) and what they write
  (combine), and backward the gradients of both: four in all. Routing is even.

A replica has x samples of e bytes to send, and keeps an n-th part: n - 1 rounds, on one node

    (n - 1) / n * e x / bandwidth + (n - 1) latency,     on several as `collectives.all_to_all_s` has it,

and where pieces are uneven n / E ceil(E / n) times as many bytes, those of the replica that all wait for. Nothing of it
overlaps. At the borders of a stage samples are where they belong. Such a stage is of one GPU type, without tensor
parallelism, in one zone. Schedules, recomputation (which sends again what it computes again) and ZeRO (which divides
the rest of the stage) go with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sim.cluster.spec import Links
from sim.performance.gpu_links import gang_all_to_all_s, stage_link
from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError
from sim.performance.messages import transfer_s
from sim.performance.recompute import recomputed_blocks
from sim.performance.running import Sums, graph_sums, holders
from sim.performance.stage_sites import StageGpus


def tied_sums_s(
    model: OperatorGraph, spans: Sequence[tuple[int, int]], stages: Sequence[StageGpus], devices: int,
    value_bytes: int, links: Links,
) -> list[float]:  # fmt: skip
    """Seconds that each stage waits for the sums of its tables' gradients with the other stages that hold them.

    Parameters
    ----------
    model : all of it, not a GPU's share.
    spans, stages : operators of each stage, and where it is; stage q is on the GPUs of stage q mod `devices`.
    """
    waits = [0.0] * len(spans)
    for ring, sends in tied_rings(model, spans, stages, devices, value_bytes):
        took = max(max(transfer_s(num_bytes, *ends, links) for ends in ((a, b), (b, a))) for a, b, num_bytes in sends)
        for q in ring:
            waits[q] += took
    return waits


def tied_rings(
    model: OperatorGraph, spans: Sequence[tuple[int, int]], stages: Sequence[StageGpus], devices: int,
    value_bytes: float,
) -> Iterator[tuple[list[int], list[tuple[StageGpus, StageGpus, float]]]]:  # fmt: skip
    """Of each tied table the stages that hold one, and what each sends to which: bytes of all its replicas together.

    Parameters are those of `tied_sums_s`. A table that one stage has alone is not summed, and is left out.
    """
    for users, params in model.tied:
        ring = sorted({q % devices for q in holders(users, spans)})
        if len(ring) < 2:
            continue
        num_bytes = 2 * (len(ring) - 1) / len(ring) * value_bytes * params
        ends = [(stages[q], stages[after]) for q, after in zip(ring, ring[1:] + ring[:1], strict=True)]
        yield ring, [(a, b, num_bytes * max(a.replicas, b.replicas)) for a, b in ends]


@dataclass(frozen=True, eq=False)
class Touched:
    """Of each operator's sparse parameters, for some samples of all replicas together.

    Attributes
    ----------
    params : stepped: float64 [ops].
    num_bytes : whose all-reduce takes as long as the exchange: float64 [ops].
    stepped, summed : running sums of both.
    """

    params: np.ndarray
    num_bytes: np.ndarray
    stepped: Sums
    summed: Sums


@lru_cache(maxsize=256)
def touched(graph: OperatorGraph, samples: float, value_bytes: int) -> Touched:
    """What so many samples touch; `graph` is a GPU's."""
    sparse = graph.sparse_params
    rows = np.where(sparse > 0, samples * graph.inner_bytes / VALUE_BYTES, 0.0)
    indices = np.where(sparse > 0, samples * graph.stored_bytes, 0.0)
    params = np.minimum(np.where(graph.alone, rows / graph.among, rows), sparse)
    num_bytes = np.where(graph.alone, 0.0, np.minimum((rows * value_bytes + indices) / 2, sparse * value_bytes))
    return Touched(params, num_bytes, Sums(params), Sums(num_bytes))


@dataclass(frozen=True)
class Exchange:
    """One all-to-all forward, and one backward where values are sent.

    Attributes
    ----------
    ops : for which it is.
    values_bytes : activations of a sample, in values of `VALUE_BYTES`; as many of gradients backward.
    index_bytes : whole numbers of a sample, forward only.
    """

    ops: tuple[int, ...]
    values_bytes: float = 0.0
    index_bytes: float = 0.0


@lru_cache(maxsize=4096)
def exchanges(graph: OperatorGraph, first: int, last: int) -> tuple[Exchange, ...]:
    """What a stage of operators first to last (inclusive) exchanges; `graph` is a replica's (`sharded`)."""
    here = [op for op in range(first, last + 1) if graph.shards[op] > 0]
    inside, readers = set(here), _readers(graph)
    tables = [op for op in here if set(graph.inputs[op]) == {-1}]
    out = []
    if tables:
        indices, rows = (float(column[tables].sum()) for column in (graph.stored_bytes, graph.out_bytes))
        out = [Exchange(tuple(tables), index_bytes=indices), Exchange(tuple(tables), rows)]
    sent = set[int]()
    for op in here:
        if op in tables:
            continue
        # A tensor goes to the experts once, however many of their operators read it.
        sources = {source for source in graph.inputs[op] if source >= 0} - inside - sent
        sent |= sources
        if sources:
            pieces = float(graph.shards[op])
            most = graph.among * math.ceil(pieces / graph.among) / pieces if math.isfinite(pieces) else 1.0
            out.append(Exchange((op,), most * float(graph.out_bytes[list(sources)].sum())))
        if not readers[op] or readers[op] - inside:
            out.append(Exchange((op,), float(graph.out_bytes[op])))
    return tuple(out)


@lru_cache(maxsize=64)
def _readers(graph: OperatorGraph) -> list[set[int]]:
    """Operators that read each one."""
    readers: list[set[int]] = [set() for _ in graph.inputs]
    for op, sources in enumerate(graph.inputs):
        for source in sources:
            if source >= 0:
                readers[source].add(op)
    return readers


@lru_cache(maxsize=4096)
def exchange_s(
    graph: OperatorGraph, span: tuple[int, int], samples: float, stage: StageGpus, links: Links, value_bytes: int,
    recompute: bool,
) -> tuple[float, float]:  # fmt: skip
    """Seconds of a micro-batch's all-to-alls forward and backward, of a stage that is divided; 0 of one replica.

    Parameters
    ----------
    graph : a replica's.
    samples : of a micro-batch, on the replica that has most.
    """
    if stage.replicas == 1:
        return 0.0, 0.0
    among, racks, took = links.among(stage.sites), len(set(stage.racks)), dict[float, float]()
    link = stage_link(stage, among)

    def of(num_bytes: float) -> float:
        if num_bytes not in took:
            took[num_bytes] = gang_all_to_all_s(num_bytes, stage.gpu, stage.gpus_per_node, racks, among, link)
        return took[num_bytes]

    scale, fwd, bwd = samples * value_bytes / VALUE_BYTES, 0.0, 0.0
    again = recomputed_blocks(graph, *span)[0] if recompute else np.zeros(0, dtype=bool)
    for one in exchanges(graph, *span):
        there = of(scale * one.values_bytes) if one.values_bytes else of(samples * one.index_bytes)
        fwd += there
        bwd += there if one.values_bytes else 0.0
        bwd += there if recompute and again[np.array(one.ops) - span[0]].any() else 0.0
    return fwd, bwd


def check_sharded(model: OperatorGraph, spans: Sequence[tuple[int, int]], devices: Sequence[StageGpus]) -> None:
    """Refuse stages that are to be divided and cannot be.

    Parameters
    ----------
    spans : of each stage; where stages are interleaved, stage q is on device q mod p.

    Raises
    ------
    PerformanceError
        Several GPU types, tensor parallelism, several zones; no operator of a stage has shards.
    """
    for number, stage in enumerate(devices):
        if not stage.sharded:
            continue
        what, allowed = "", ""
        if stage.parts:
            what, allowed = "several GPU types", "one GPU type"
        elif stage.tensor > 1:
            what, allowed = f"tensor parallelism over {stage.tensor}", "1 GPU to a replica"
        elif len({site.zone for site in stage.sites}) > 1:
            what, allowed = "replicas in several zones", "one zone"
        elif not any(graph_sums(model).shards(*span) for span in spans[number :: len(devices)]):
            what, allowed = "no tables with sparse gradients and no experts", "a stage with such operators"
        if what:
            raise PerformanceError(
                "a stage cannot be divided among its replicas", where=f"model {model.name!r}, stage {number}",
                got=what, allowed=allowed, todo="Leave out /sharded, or change the stage.",
            )  # fmt: skip
