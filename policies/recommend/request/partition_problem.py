"""From a model to the partition problem: blocks of operators, and what each possible stage costs.

Operators are merged into at most `MAX_BLOCKS` consecutive blocks. For a micro-batch of b = batch / m
samples, a stage of blocks i..j on r GPUs of type t gives each replica at most ceil(b / r) samples (b / r at
least one) and costs

    t_s = forward + backward of ceil(b / r) samples
          + (all-reduce of the stage's gradients over r GPUs + optimizer step) / m,
    x_s = transfer of b samples across the cut to the next stage, there and back:

within a node where both stages have one type and the whole budget fits on a node of it, else over the
network of one node. `sim.kernels.partition` says what they add up to. Dividing what follows the last
backward by m makes a stage alone exact, m t_s = m (forward + backward) + all-reduce + step; in a pipeline
it is an approximation (later stages sum their gradients while earlier ones still work), so the best few
plans are evaluated again by the truth (`Performance.plan`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from policies.recommend.request.pace import pace_s, step_pace_s
from policies.recommend.request.request import MICRO_BATCHES
from sim.performance import GpuType, Performance
from sim.performance.embeddings import touched
from sim.performance.gpu_links import inside, network_bytes_per_s
from sim.performance.graph import VALUE_BYTES
from sim.performance.samples import largest_share

MAX_BLOCKS = 16
UNITS = {1: 8, 2: 8, 3: 8}
"""Units in a budget, by the number of types: GPU counts are multiples of ceil(budget / units)."""
MANY_TYPES_UNITS = 4
"""With more types: the count vectors stay below 500 for up to eight types."""


def blocks_of(time_s: np.ndarray, cut_bytes: np.ndarray, most: int = MAX_BLOCKS) -> np.ndarray:
    """First operator of each block, and the number of operators at the end: int64 [B + 1].

    The operators' time is divided into `most` equal parts; of the cuts nearest to each dividing point
    (within half a part) the one that sends the fewest bytes is kept, of equals the nearest. An operator
    longer than a part makes a block of its own, so there may be fewer than `most`.
    """
    share = np.cumsum(time_s)[:-1] / time_s.sum() * most
    nearest = np.rint(share).astype(np.int64)
    # Where an operator longer than a part leaves the outermost points bare, cuts still nearer the ends serve.
    for outer, inner in ((0, 1), (most, most - 1)):
        if inner not in nearest:
            nearest[nearest == outer] = inner
    cuts = [0]
    for point in range(1, most):
        near = np.flatnonzero(nearest == point)
        if len(near):
            order = np.lexsort((np.abs(share[near] - point), cut_bytes[near]))
            cuts.append(int(near[order[0]]) + 1)
    return np.array([*cuts, len(time_s)], dtype=np.int64)


@dataclass(frozen=True)
class Problem:
    """One job on some GPU types: all that its partition depends on.

    Parameters
    ----------
    performance : the belief about speed and memory.
    model, batch_size : the job.
    types : GPU types that stages may use.
    counts : GPUs of each type that there are.
    node_gpus : GPUs on a node of each type.
    budget : GPUs that the plan may use in all.
    micro_batches : how many an iteration may have.
    """

    performance: Performance
    model: str
    batch_size: int
    types: tuple[GpuType, ...]
    counts: tuple[int, ...]
    node_gpus: tuple[int, ...]
    budget: int
    micro_batches: tuple[int, ...] = MICRO_BATCHES

    @cached_property
    def unit(self) -> int:
        """GPUs are counted in multiples of this: ceil(budget / units), at most one GPU a sample."""
        return min(math.ceil(self.budget / self.units), self.batch_size)

    @property
    def units(self) -> int:
        """Units that the budget is divided into, at most."""
        return UNITS.get(len(self.types), MANY_TYPES_UNITS)

    @cached_property
    def total(self) -> int:
        """Units that a plan may use."""
        return min(self.units, self.budget // self.unit)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Units that a stage may use: any number. Three GPUs beside one are the best cut of VGG-16 on four."""
        return tuple(range(1, self.total + 1))

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """Units that there are of each type."""
        return tuple(count // self.unit for count in self.counts)

    @cached_property
    def first_op(self) -> np.ndarray:
        """int64 [B + 1]: first operator of each block, then the number of operators."""
        time_s = 0.0
        for gpu in self.types:
            samples = max(1.0, self.batch_size / self.budget)
            forward, backward = pace_s(self.performance, self.model, samples, gpu)
            time_s = time_s + (forward + backward) / (forward + backward).sum()
        return blocks_of(np.asarray(time_s), self.performance.graph(self.model).cut_bytes)

    @property
    def blocks(self) -> int:
        return len(self.first_op) - 1

    def samples(self, m: int, replicas: int) -> float:
        """Samples of a micro-batch that the replica gets that has most; below 1: too few."""
        return largest_share(self.batch_size / (m * replicas))

    def cost_s(self, m: int) -> np.ndarray:
        """float64 [B, B, T, Q]: time of a micro-batch in each stage (see the module); inf: not allowed."""
        cost = np.full((self.blocks, self.blocks, len(self.types), len(self.sizes)), np.inf)
        upper = np.triu_indices(self.blocks)
        for t, gpu in enumerate(self.types):
            for q, size in enumerate(self.sizes):
                r = size * self.unit
                samples = self.samples(m, r)
                if r > self.counts[t] or samples < 1:
                    continue
                forward, backward = pace_s(self.performance, self.model, samples, gpu)
                running = np.concatenate(([0.0], np.cumsum(forward + backward)))[self.first_op]
                compute = running[None, 1:] - running[:-1, None]
                cost[*upper, t, q] = (compute + self._after_s[:, :, t, q] / m)[upper]
        return cost

    @cached_property
    def _after_s(self) -> np.ndarray:
        """float64 [B, B, T, Q]: all-reduce and optimizer step of each stage."""
        out = np.zeros((self.blocks, self.blocks, len(self.types), len(self.sizes)))
        graph = self.performance.graph(self.model)
        dense, value = graph.weight_params - graph.sparse_params, self.performance.value_bytes
        rows = touched(graph, float(self.batch_size), value)
        params = self._of_stages(dense)
        stepped, num_bytes = params + self._of_stages(rows.params), value * params + self._of_stages(rows.num_bytes)
        for t, gpu in enumerate(self.types):
            # An optimizer's step is in proportion to parameters.
            a_parameter_s = step_pace_s(self.performance, self.model, gpu) / max(dense.sum(), 1.0)
            out[:, :, t, :] = (a_parameter_s * stepped)[:, :, None]
            for q, size in enumerate(self.sizes):
                if size * self.unit > 1:
                    start, s_per_byte = self.allreduce_lines(t, size * self.unit)
                    out[:, :, t, q] += (start + num_bytes[:, :, None] * s_per_byte).min(axis=2)
        return out

    def _of_stages(self, of_ops: np.ndarray) -> np.ndarray:
        """float64 [B, B]: sums over the operators of each stage."""
        running = np.concatenate(([0.0], np.cumsum(of_ops)))[self.first_op]
        return np.asarray(np.maximum(running[None, 1:] - running[:-1, None], 0.0))

    def allreduce_lines(self, t: int, gpus: int) -> tuple[np.ndarray, np.ndarray]:
        """An all-reduce over GPUs of a type on full nodes: least of start_s + bytes x s_per_byte; float64 [2] each."""
        full, rest = divmod(gpus, self.node_gpus[t])
        nodes = (self.node_gpus[t],) * full + ((rest,) if rest else ())
        return self.performance.allreduce_lines(self.types[t], nodes)

    def border_s(self, m: int) -> np.ndarray:
        """float64 [B + 1, T, T]: transfer of a micro-batch before block k, there and back (module text)."""
        num_bytes = np.zeros(self.blocks + 1)
        num_bytes[1:-1] = self.performance.graph(self.model).cut_bytes[self.first_op[1:-1] - 1]
        return self.transfers_s(m, num_bytes)

    def transfers_s(self, m: int, cut_bytes: np.ndarray) -> np.ndarray:
        """float64 [K, T, T]: transfer of a micro-batch, of a sample `cut_bytes` [K], there and back (module text)."""
        links, kinds = self.performance.links, len(self.types)
        scale = self.performance.value_bytes / VALUE_BYTES
        num_bytes = cut_bytes * self.batch_size / m * scale
        network_s = 2 * (links.network_latency_s + num_bytes / network_bytes_per_s(links, 1))
        border = np.repeat(network_s, kinds * kinds).reshape(-1, kinds, kinds)
        for t, gpu in enumerate(self.types):
            if self.budget <= self.node_gpus[t]:
                bytes_per_s, latency_s = inside(gpu, links)
                border[:, t, t] = 2 * (latency_s + num_bytes / bytes_per_s)
        return border

    def hold(self, m: int) -> np.ndarray:
        """int64 [B, B, T, Q]: micro-batches in flight that a GPU of each stage has memory for."""
        fixed, passing, stored = self._memory_gib
        out = np.zeros((self.blocks, self.blocks, len(self.types), len(self.sizes)), dtype=np.int64)
        for q, size in enumerate(self.sizes):
            samples = self.samples(m, size * self.unit)
            for t, gpu in enumerate(self.types):
                room = gpu.memory_gib - fixed - samples * passing
                held = np.floor(room / np.maximum(samples * stored, 1e-12) + 1e-9)
                out[:, :, t, q] = np.clip(np.where(room >= 0, held, 0), 0, m)
        # GPipe holds all m micro-batches in each stage, 1F1B as many as there are stages from here on.
        return out if self.performance.schedule == "1f1b" else np.where(out >= m, m, 0)

    @cached_property
    def _memory_gib(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Memory of each stage as  fixed + samples x (passing + in flight x stored):  3 float64 [B, B], GiB.

        `Performance.stage_memory_form` has them.
        """
        fixed, passing, stored = np.zeros((3, self.blocks, self.blocks))
        fixed[np.tril_indices(self.blocks, -1)] = np.inf
        for i, j in zip(*np.triu_indices(self.blocks), strict=True):
            span = int(self.first_op[i]), int(self.first_op[j + 1]) - 1
            fixed[i, j], passing[i, j], stored[i, j] = self.performance.stage_memory_form(self.model, *span)
        return fixed, passing, stored

    def least_memory_gib(self) -> tuple[float, int]:
        """Least memory that suffices on each GPU, and the number of stages that reaches it.

        Of all cuts into p stages with r replicas each that the budget allows, for all micro-batch counts: the
        least over the cuts of the most that any stage needs.
        """
        fixed, passing, stored = self._memory_gib
        best = (math.inf, 1)
        for m in self.micro_batches:
            for size in self.sizes:
                samples = self.samples(m, size * self.unit)
                if samples < 1:
                    continue
                need = np.zeros(self.blocks + 1)
                need[:-1] = math.inf
                # need[i]: of blocks i.. with p stages; the first of them is the p-th from the end.
                for p in range(1, min(self.total // size, self.blocks) + 1):
                    stage = fixed + samples * (passing + min(m, p) * stored)
                    need = np.array([
                        min((max(stage[i, j], need[j + 1]) for j in range(i, self.blocks)), default=math.inf)
                        for i in range(self.blocks + 1)
                    ])
                    best = min(best, (float(need[0]), p))
        return best
