"""Data parallelism over several GPU types, each replica with as many samples as it does in the same time.

After Whale's hardware-aware data parallelism (Jia et al., USENIX ATC 2022, section 4), but for every vector of GPU
counts, not only for all devices. With a_t + b_t s seconds for s samples on a GPU of type t, n_t GPUs and B samples of
a micro-batch, all end at the same time T where

    T = (B + sum_t n_t a_t / b_t) / sum_t (n_t / b_t),    s_t = (T - a_t) / b_t,

rounded to whole samples that are B or more together, so that the last ends as early as can be.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from policies.recommend.methods.exact import scales
from policies.recommend.request.pace import pace_s
from policies.recommend.request.partition_problem import Problem
from policies.recommend.request.request import Request
from policies.recommend.request.vectors import count_vectors
from sim.api import Part, Plan, Stage
from sim.performance.samples import whole_shares


def lines(problem: Problem, most: float) -> tuple[np.ndarray, np.ndarray]:
    """Start a_t (s) and slope b_t (s a sample) of forward and backward on each type, through 1 and `most` samples."""
    ends = np.array([
        [sum(float(times.sum()) for times in pace_s(problem.performance, problem.model, samples, gpu))
         for samples in (1.0, most)]
        for gpu in problem.types
    ])
    slope = (ends[:, 1] - ends[:, 0]) / (most - 1.0) if most > 1 else ends[:, 0]
    return ends[:, 0] - slope, slope


def split(counts: np.ndarray, samples: float, start_s: np.ndarray, slope_s: np.ndarray) -> np.ndarray:
    """Samples of a replica of each type so that all end together: float64 [T]; 0 where there is none of it."""
    there = counts > 0
    time_s = (samples + (counts * start_s / slope_s)[there].sum()) / (counts / slope_s)[there].sum()
    return np.where(there, (time_s - start_s) / slope_s, 0.0)


def propose(request: Request) -> Iterator[Plan]:
    """One stage on two or more types, for each vector of counts: with the fewest micro-batches that memory allows."""
    if request.measured or request.space.single_type or len(request.fleet.present) < 2 or request.budget < 2:
        return
    last = len(request.performance.graph(request.model)) - 1
    fixed, passing, stored = request.performance.stage_memory_form(request.model, 0, last)
    room = np.array([(gpu.memory_gib - fixed) / (passing + stored) for gpu in request.fleet.types])
    for problem in scales(request, request.fleet.present):
        most = room[list(request.fleet.present)]
        start_s, slope_s = lines(problem, max(2.0, request.batch_size / 2.0))
        vectors, _ = count_vectors(problem.limits, problem.total, problem.sizes)
        for counts in vectors[(vectors > 0).sum(axis=1) > 1] * problem.unit:
            for m in request.space.micro_batches:
                samples = split(counts, request.batch_size / m, start_s, slope_s)
                there = counts > 0
                if (samples[there] < 1.0).any():
                    break
                lines_s = list(zip(start_s[there], slope_s[there], strict=True))
                samples[there] = whole_shares(counts[there].tolist(), samples[there].tolist(), lines_s)
                if (samples[there] <= most[there]).all():
                    yield _plan(problem, counts, samples, m, last)
                    break


def _plan(problem: Problem, counts: np.ndarray, samples: np.ndarray, m: int, last: int) -> Plan:
    share = counts * samples / (counts * samples).sum()
    parts = tuple(Part(problem.types[t].name, int(counts[t]), float(share[t])) for t in np.flatnonzero(counts))
    return Plan((Stage(0, last, parts[0].gpu_type, int(counts.sum()), parts=parts),), m)
