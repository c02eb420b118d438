"""The planner against brute force: all plans of small random models on a few GPUs of two types, by the truth.

    .venv/bin/python -m experiments.brute_force [--models 40] [--first 0] [--evaluations 1500] [--tensor 1,2]

Each model is a chain of 4 to 6 operators of random kinds and sizes, on 3 to 6 GPUs of two types. All plans: up to three
stages, each on any GPUs of either type or of both, a stage of both with each way to share its micro-batch in whole
samples; 1, 2 or 4 micro-batches. With several tensor degrees all matrix products can be split and have 30 times the
parameters, and each part of a stage has any of these degrees. Printed: the least time and cost that `gather` finds over
those of brute force.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import combinations, pairwise, product

import numpy as np

from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.gather import METHODS, gather
from sim.api import Part, Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.graph import GraphBuilder, OperatorGraph

BATCH = 12
MICRO_BATCHES = (1, 2, 4)
PAIRS = ("V100", "P100"), ("V100", "T4"), ("A100", "V100"), ("P100", "K80")
STAGES = 3
AT_ONCE = 4096
LARGER = 30
"""Times the parameters where products can be split: some replicas then need several GPUs."""


def chain(rng: np.random.Generator, split: bool = False) -> OperatorGraph:
    """A chain of random operators; `split`: products can be, and are larger."""
    builder = GraphBuilder("random", "random values", 6e5)
    for op in range(int(rng.integers(4, 7))):
        values = 10.0 ** rng.uniform(3.5, 6.0)
        if rng.random() < 0.7:
            params = 10.0 ** rng.uniform(5.0, 7.5)
            more = {"split": True, "reduce_fwd_bytes": 2 * values, "reduce_bwd_bytes": 2 * values} if split else {}
            builder.add(f"product {op}", "gemm", (op - 1,), values, flops=10.0 ** rng.uniform(8.0, 10.5),
                        params=params * (LARGER if split else 1), stored_bytes=2 * values, **more)
        else:
            builder.add(f"pass {op}", "elementwise", (op - 1,), values, stored_bytes=2 * values)
    return builder.build()


def question(seed: int, tensor: tuple[int, ...] = (1,)) -> Request:
    """A model, types and counts by a seed."""
    rng = np.random.default_rng([seed, 16])
    types = PAIRS[int(rng.integers(len(PAIRS)))]
    first = int(rng.integers(1, 4))
    counts = first, int(rng.integers(max(1, 3 - first), 4))
    performance = Performance(graphs={"random": chain(rng, split=max(tensor) > 1)})
    fleet = Fleet(performance, [gpu_type(name) for name in types], counts, (4, 4))
    space = Space(micro_batches=MICRO_BATCHES, tensor=tensor, mixed=True)
    return Request(performance, "random", BATCH, fleet, sum(counts), space)


def stages_on(
    names: tuple[str, ...], used: tuple[int, int], span: tuple[int, int], micro: float, tensor: tuple[int, ...] = (1,)
) -> Iterator[Stage]:
    """A stage on so many GPUs of both types, of each degree, with each way to share its micro-batch."""
    gpus = sum(used)
    if not all(used):
        yield from (Stage(*span, names[0] if used[0] else names[1], gpus, ways) for ways in tensor
                    if gpus % ways == 0 and gpus // ways <= micro)  # fmt: skip
        return
    for ways, other in product(tensor, tensor):
        if used[0] % ways or used[1] % other or max(ways, other) % min(ways, other):
            continue
        one, two = used[0] // ways, used[1] // other
        for samples in range(1, int(micro)):
            # Whole samples on each replica of the first type; the others share what is left.
            share = one * samples / micro
            if share < 1 and micro * (1 - share) >= two:
                said = other if other != ways else 0
                parts = Part(names[0], used[0], share), Part(names[1], used[1], 1 - share, said)
                yield Stage(*span, names[0], gpus, ways, parts=parts)


def every_plan(asked: Request, stages: int = STAGES) -> Iterator[Plan]:
    """All plans (see the module) of so many stages at most."""
    n, counts = len(asked.performance.graph(asked.model)), asked.fleet.counts
    some = [used for used in product(range(counts[0] + 1), range(counts[1] + 1)) if sum(used)]
    for p in range(1, stages + 1):
        for chosen in product(some, repeat=p):
            if any(sum(used[t] for used in chosen) > counts[t] for t in (0, 1)):
                continue
            for inner, m in product(combinations(range(1, n), p - 1), MICRO_BATCHES):
                micro = BATCH / m
                if max(map(sum, chosen)) > micro * max(asked.space.tensor):
                    continue
                spans = [(a, b - 1) for a, b in pairwise((0, *inner, n))]
                ways = [list(stages_on(asked.fleet.names, *one, micro, asked.space.tensor))
                        for one in zip(chosen, spans, strict=True)]  # fmt: skip
                yield from (Plan(cut, m) for cut in product(*ways))


def least(asked: Request) -> tuple[float, float, int]:
    """Least time and cost of all plans, and how many there are."""
    time_s = usd = float("inf")
    count, some = 0, []

    def judge() -> None:
        nonlocal time_s, usd
        for r in asked.judged(some):
            time_s, usd = min(time_s, r.iteration_s), min(usd, r.usd_per_iteration)
        some.clear()

    for plan in every_plan(asked):
        some.append(plan)
        count += 1
        if len(some) == AT_ONCE:
            judge()
    judge()
    return time_s, usd, count


def ratios(seed: int, evaluations: int, tensor: tuple[int, ...] = (1,)) -> tuple[float, float, int]:
    """Least time and cost that are found, over those of brute force; and its plans."""
    time_s, usd, count = least(question(seed, tensor))
    if not count or time_s == float("inf"):
        return (1.0, 1.0, count)  # nothing fits, and nothing is found
    found = gather(question(seed, tensor), METHODS, evaluations)
    return (min(r.iteration_s for r in found) / time_s, min(r.usd_per_iteration for r in found) / usd, count)


def main() -> None:
    """Print a line a model, then the worst."""
    parser = argparse.ArgumentParser(description="The planner against brute force.")
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="seed of the first model")
    parser.add_argument("--evaluations", type=int, default=1500, help="plans that the search may judge")
    parser.add_argument("--tensor", default="1", help="tensor degrees, by commas")
    given = parser.parse_args()
    tensor = tuple(map(int, given.tensor.split(",")))
    rows = []
    for seed in range(given.first, given.first + given.models):
        began = time.process_time()
        rows.append(ratios(seed, given.evaluations, tensor)[:2])
        spent_s = time.process_time() - began
        print(f"{seed:3d}  time {rows[-1][0]:.4f}  cost {rows[-1][1]:.4f}  ({spent_s:.1f} s)", flush=True)
    table = np.array(rows)
    print(f"median {np.median(table, axis=0)}, worst {table.max(axis=0)}, "
          f"within 0.5 %: {(table <= 1.005).sum(axis=0)} of {len(table)}")


if __name__ == "__main__":
    main()
