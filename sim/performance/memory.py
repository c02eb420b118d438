"""Memory that a GPU needs for its part of a model: weights, gradients, optimizer, activations.

What is kept of a parameter is the optimizer's to say (`sim.performance.optimizer`). With ZeRO (Rajbhandari et al. 2020,
arXiv:1910.02054, section 5), N replicas each keep 1/N of the optimizer's state (stage 1), of the gradients (2), of the
weights (3), and gather those of a block as it is needed; of a table with sparse gradients only rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sim.performance.graph import VALUE_BYTES, OperatorGraph, PerformanceError
from sim.performance.optimizer import ADAM, Optimizer
from sim.performance.recompute import recomputed_blocks
from sim.performance.running import graph_sums, holders

CONTEXT_GIB = 1.0
"""CUDA context, libraries' workspaces and what the allocator cannot use. An estimate, where nobody says otherwise."""
GIB = 2.0**30


@dataclass(frozen=True)
class StageMemory:
    """What a GPU of a stage needs, part by part.

    Attributes
    ----------
    weights_gib : weights, in as many versions as are kept.
    gradients_gib, optimizer_gib : gradients; moments and, in mixed precision, the weights in single precision.
    activations_gib : what the micro-batches in flight keep for their backward passes.
    recomputed_gib : activations of the block that is being recomputed.
    working_gib : what passes through the largest operator, and what ZeRO gathers of the largest block.
    context_gib : what the framework takes of each GPU.
    in_flight : micro-batches whose activations are kept (a fraction where chunks are interleaved).
    replicas, zero, recompute : as asked.
    repeated : whether each replica has tables or experts that they could divide (`sim.performance.embeddings`).
    divided : part of its parameters that are of tables or experts that replicas divide: ZeRO cuts nothing of those.
    """

    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    recomputed_gib: float
    working_gib: float
    context_gib: float
    in_flight: float
    replicas: int
    zero: int
    recompute: bool
    repeated: bool = False
    divided: float = 0.0

    @property
    def total_gib(self) -> float:
        """The sum of the parts."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, float]:
        """GiB by name of the part."""
        return {
            "weights": self.weights_gib,
            "gradients": self.gradients_gib,
            "optimizer state": self.optimizer_gib,
            "activations": self.activations_gib,
            "recomputed activations": self.recomputed_gib,
            "working memory": self.working_gib,
            "context": self.context_gib,
        }


def in_flight(schedule: str, stage: int, stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Micro-batches whose activations a stage (from 0) holds at once.

    1F1B min(m, p - s); GPipe m; async p - s, since it never ends; interleaved the passes min(m v, W + 1) of a chunk
    each, W = 2 (p - s - 1) + (v - 1) p, as micro-batches of the whole GPU: p (1 + (p - 1) / (p v)) on GPU 0
    (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.3).
    """
    if schedule == "gpipe":
        return micro_batches
    if schedule == "async":
        return stages - stage
    if schedule == "interleaved":
        return min(micro_batches * chunks, 2 * (stages - stage - 1) + (chunks - 1) * stages + 1) / chunks
    return min(micro_batches, stages - stage)


def chunks_in_flight(gpu: int, gpus: int, micro_batches: int, chunks: int) -> np.ndarray:
    """Passes of each chunk that a GPU of an interleaved pipeline holds, whenever it holds most: int64 [moments, v].

    Unequal chunks peak at different moments; `stage_memory` takes the worst. Order: `sim.kernels.pipeline`.
    """
    total, period = micro_batches * chunks, gpus * chunks
    warm = 2 * (gpus - gpu - 1) + (chunks - 1) * gpus
    forward = np.arange(total) % period // gpus
    # Row k: passes of each chunk among the first k.
    done = np.zeros((total + 1, chunks), dtype=np.int64)
    done[1:] = np.cumsum(forward[:, None] == np.arange(chunks), axis=0)
    # Just before each backward that follows a forward; after a period all repeats.
    moment = np.arange(max(1, min(total - warm, period)))
    return np.asarray(done[np.minimum(warm + 1 + moment, total)] - done[moment, ::-1])


def weight_versions(schedule: str, stage: int, stages: int) -> int:
    """Versions of a stage's weights: p - s asynchronous (each micro-batch in flight has its own), else 1."""
    return stages - stage if schedule == "async" else 1


def stage_memory(
    graph: OperatorGraph,
    spans: Sequence[tuple[int, int]],
    samples: float,
    held: float | np.ndarray,
    *,
    replicas: int = 1,
    zero: int = 0,
    recompute: bool = False,
    versions: int = 1,
    value_bytes: int = VALUE_BYTES,
    optimizer: Optimizer = ADAM,
    context_gib: float = CONTEXT_GIB,
) -> StageMemory:
    """Memory of a GPU that runs the operators of `spans`.

    With P parameters and N replicas, b bytes a value: weights versions * b P, gradients (of tables with sparse
    gradients none) and state as the optimizer keeps them, each / N as far as ZeRO goes; activations held * samples *
    what is stored. P counts a copy of each tied table whose first user is elsewhere (`sim.performance.embeddings`).
    With recomputation (`sim.performance.recompute`), what is held is what enters each block, and the activations of the
    largest block come on top. What a replica has alone (`OperatorGraph.sharded`) ZeRO does not divide further.

    Parameters
    ----------
    graph : of one GPU: `graph.tensor_parallel(t)` where t GPUs share each operator.
    spans : first and last operator (inclusive); one for each chunk where stages are interleaved.
    samples : samples of a micro-batch that the GPU works on.
    held : micro-batches that it keeps (`in_flight`), or int64 [moments, chunks] (`chunks_in_flight`).
    replicas, zero : GPUs that share the state, and the stage of ZeRO (0: each keeps all).
    versions : `weight_versions`.
    value_bytes : 2 mixed, 4 single precision; what the graph says of activations (2 bytes a value) is scaled.
    optimizer : what is kept of a parameter.
    context_gib : what the framework takes.

    Raises
    ------
    PerformanceError
        An argument out of its range.
    """
    _check(graph, spans, samples, held, replicas, zero, versions, value_bytes)
    scale, sums = value_bytes / VALUE_BYTES, graph_sums(graph)
    params, sparse, passing, stored, again, largest = 0.0, 0.0, 0.0, [], 0.0, 0.0
    alone, alone_dense, whole = 0.0, 0.0, 0.0
    for first, last in spans:
        params += sums.params(first, last)
        sparse += sums.sparse(first, last)
        if graph.among > 1:
            alone += sums.alone(first, last)
            alone_dense += sums.alone_dense(first, last)
        elif replicas > 1:
            whole += sums.shards(first, last)
        passing = max(passing, sums.passing(first, last))
        kept = sums.stored(first, last)
        if recompute:
            _, kept, once = recomputed_blocks(graph, first, last)
            again = max(again, once)
        stored.append(kept)
        if zero >= 2 and replicas > 1:
            span = slice(first, last + 1)
            blocks = np.flatnonzero(np.diff(graph.block[span], prepend=-1))
            dense = graph.weight_params[span] - graph.sparse_params[span]
            dense = np.where(graph.alone[span], 0.0, dense)
            largest = max(largest, np.add.reduceat(dense, blocks).max())
    for users, table in graph.tied if len(spans) > 1 else ():
        # Chunks on one GPU share what they hold of it.
        params -= max(0, len(holders(users, spans)) - 1) * table
    if np.ndim(held) == 0:
        most, count = float(held) * sum(stored), float(held)
    else:
        counts = np.asarray(held)
        most, count = float((counts @ np.array(stored)).max()), float(counts.sum(axis=1).max() / len(spans))
    state, gradients, weights = (1.0 / replicas if zero >= stage else 1.0 for stage in (1, 2, 3))
    of_weight, of_gradient = versions * value_bytes, optimizer.gradient_bytes(value_bytes)
    of_state, dense, shared = optimizer.state_bytes(value_bytes), params - sparse - alone_dense, params - alone
    return StageMemory(
        weights_gib=float((of_weight * shared * weights + of_weight * alone) / GIB),
        gradients_gib=float((of_gradient * dense * gradients + of_gradient * alone_dense) / GIB),
        optimizer_gib=float((of_state * shared * state + of_state * alone) / GIB),
        activations_gib=float(scale * samples * most / GIB),
        recomputed_gib=float(scale * samples * again / GIB),
        # Gathered: the block's whole gradient before it is scattered; with stage 3 its weights too.
        working_gib=float((scale * samples * passing + value_bytes * largest * (zero - 1)) / GIB),
        context_gib=context_gib,
        in_flight=count,
        replicas=replicas,
        zero=zero,
        recompute=recompute,
        repeated=whole > 0,
        divided=float(alone / params) if alone else 0.0,
    )


def memory_gib(graph: OperatorGraph, first_op: int, last_op: int, samples: float, held: int) -> float:
    """GiB that a GPU needs for operators first_op to last_op (inclusive): the total of `stage_memory`.

    16 * parameters (`ADAM`) + held * samples * stored activations + samples * (largest operator's input and
    output, whose gradients pass through) + CONTEXT_GIB.
    """
    return stage_memory(graph, [(first_op, last_op)], samples, held).total_gib


def memory_form(
    graph: OperatorGraph, first_op: int, last_op: int, value_bytes: int = VALUE_BYTES, optimizer: Optimizer = ADAM,
    context_gib: float = CONTEXT_GIB,
) -> tuple[float, float, float]:  # fmt: skip
    """GiB of a stage without ZeRO and recomputation as  fixed + samples * (passing + held * stored)  (`stage_memory`).

    For planners, who ask for thousands of stages.
    """
    sums, scale = graph_sums(graph), value_bytes / VALUE_BYTES / GIB
    of_all, of_dense = optimizer.param_bytes(value_bytes), optimizer.gradient_bytes(value_bytes)
    fixed = (of_all * sums.params(first_op, last_op) - of_dense * sums.sparse(first_op, last_op)) / GIB
    return fixed + context_gib, sums.passing(first_op, last_op) * scale, sums.stored(first_op, last_op) * scale


def does_not_fit(
    stage: int, gpu_name: str, memory: StageMemory, available_gib: float | None,
    helps: Callable[[str], bool] = lambda remedy: True,
) -> str:  # fmt: skip
    """Why a stage does not fit: what, where, needed, available, the largest part and what helps; '' where it fits.

    Parameters
    ----------
    helps : whether a remedy ('recompute', 'ZeRO 1', 'more micro-batches', ...) makes it need less; only such are
        named.

    Raises
    ------
    PerformanceError
        What is available is unknown: that is never taken for enough.
    """
    if available_gib is None or math.isnan(available_gib) or available_gib <= 0:
        raise PerformanceError(
            "the memory of a GPU type is unknown",
            where=f"GPU type {gpu_name!r}",
            got=available_gib,
            allowed="GiB, above 0",
            todo="Correct its entry in the catalogue.",
        )
    need = memory.total_gib
    if need <= available_gib:
        return ""
    name, size = max(memory.parts.items(), key=lambda part: part[1])
    of = f" of {memory.in_flight:.3g} micro-batches in flight" if name == "activations" else ""
    return (
        f"stage {stage} does not fit: a {gpu_name} needs {need:.1f} GiB and has {available_gib:.1f} GiB; "
        f"the largest part is {name}, {size:.1f} GiB{of}: try {_remedies(name, memory, need - available_gib, helps)}"
    )


def _remedies(part: str, memory: StageMemory, lacking_gib: float, helps: Callable[[str], bool]) -> str:
    sharded = {"optimizer state": 1, "gradients": 2, "weights": 3}
    ways: list[str] = []
    if part in sharded:
        ways += ["its tables or experts /sharded"] * memory.repeated + ["more replicas"] * (memory.divided > 0)
        # Of a part that is divided already ZeRO cuts the rest: worth naming where that is most of it, or enough.
        size = memory.parts[part]
        worth = (1 - memory.divided) * size >= min(size / 2, lacking_gib)
        if memory.replicas > 1 and memory.zero < sharded[part] and worth:
            ways.append(f"ZeRO {sharded[part]}")
        ways += ["more stages", "tensor parallelism"]
    elif part != "context":
        ways += ["more micro-batches", "tensor parallelism"] if memory.recompute else [
            "recompute", "more micro-batches", "tensor parallelism"]  # fmt: skip
    ways = [way for way in ways if helps(way)] or ["a GPU with more memory"]
    return ", ".join(ways[:-1]) + " or " * (len(ways) > 1) + ways[-1]


def _check(
    graph: OperatorGraph,
    spans: Sequence[tuple[int, int]],
    samples: float,
    held: float | np.ndarray,
    replicas: int,
    zero: int,
    versions: int,
    value_bytes: int,
) -> None:
    inside = bool(spans) and all(0 <= first <= last < len(graph) for first, last in spans)
    if (inside and 0 < samples < math.inf and type(held) is int and held >= 0 and replicas >= 1 and 0 <= zero <= 3
            and versions >= 1 and value_bytes in (2, 4)):  # fmt: skip
        return  # By far the most frequent.
    shape = np.shape(held)
    allowed = {
        "operators": (inside, tuple(spans), f"spans within 0 to {len(graph) - 1}"),
        "samples": (0 < samples < math.inf, samples, "above 0"),
        "micro-batches in flight": (
            bool(np.all(np.asarray(held) >= 0)) and (not shape or (len(shape) == 2 and shape[1] == len(spans))),
            held,
            f"0 or more, one, or [moments, {len(spans)}]",
        ),
        "replicas": (replicas >= 1, replicas, "1 or more"),
        "stage of ZeRO": (zero in (0, 1, 2, 3), zero, "0, 1, 2 or 3"),
        "versions of the weights": (versions >= 1, versions, "1 or more"),
        "bytes of a value": (value_bytes in (2, 4), value_bytes, "2 (mixed precision) or 4"),
    }
    for what, (good, got, range_) in allowed.items():
        if not good:
            raise PerformanceError(
                f"impossible {what} of a stage", where=f"model {graph.name!r}", got=got, allowed=range_
            )
