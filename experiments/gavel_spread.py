"""How far results of Gavel's simulator hang on what its rules leave open: the same run by many choices, theirs beside.

    .venv/bin/python -m experiments.gavel_spread ../shared [--seeds 20]

`makespan`: its total-duration program asks only that all is done within a time. Of the shares that do, those that are
best by several worths, drawn ones among them. `shuffle`: blind max-min fairness on the 96 jobs by other orders of GPU
types. `noise`: the same by one order, each share less by up to a billionth, as solvers leave it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np

from experiments.gavel_oracles import Oracle, oracles, played
from policies.heterogeneous import gavel
from policies.shares.demand import Demand
from policies.shares.linear import raise_least, raise_sum
from policies.shares.objectives import bisected_s

MAKESPAN = "contS_12-12-12_s0_min_total_duration_perf"
SHUFFLED = "phys_maxmin_8-16-24_s0_max_min_fairness"
NOISE = 1e-9
Outcome = tuple[float, float]
"""Mean JCT and makespan, in s."""


def part(demand: Demand) -> np.ndarray:
    """Speed as a part of that on the fastest type."""
    return np.asarray(demand.speed / np.maximum(demand.fastest, 1e-300)[:, None])


WORTHS: dict[str, Callable[[Demand], np.ndarray]] = {
    "least time": lambda demand: -np.ones(demand.speed.shape),
    "least work": lambda demand: -part(demand),
    "most time": lambda demand: np.ones(demand.speed.shape),
    "most time, slow types first": lambda demand: 1.2 - part(demand),
}
"""What shares are chosen by, of those with which all is done in time: max sum jobs worth X."""


def outcome(oracle: Oracle, **settings: object) -> Outcome:
    with tempfile.TemporaryDirectory() as scratch:
        return played(oracle, oracle.simulated() | settings, Path(scratch))[:2]


def by_worth(oracle: Oracle, worth: Callable[[Demand], np.ndarray]) -> Outcome:
    """The total-duration program with another choice among the shares that it allows."""

    def soonest(demand: Demand, left: np.ndarray, limit_s: float, *, centre: bool, within: float) -> np.ndarray:
        level = raise_least(demand, left, limit_s=limit_s).level
        if not np.isfinite(level):
            return demand.equal()
        return raise_sum(demand, worth(demand), left / bisected_s(1 / level, within), limit_s=limit_s)

    with patch.object(gavel, "soonest", soonest):
        return outcome(oracle)


def by_noise(oracle: Oracle, seed: int) -> Outcome:
    rng, exact = np.random.default_rng(seed), gavel.fairest

    def noisy(*given: object, **more: object) -> np.ndarray:
        shares = exact(*given, **more)  # type: ignore[arg-type]
        return np.asarray(shares * (1 - NOISE * rng.random(shares.shape)))

    with patch.object(gavel, "fairest", noisy):
        return outcome(oracle)


def choices(oracle: Oracle, seeds: int) -> Iterator[tuple[str, Outcome]]:
    yield "centre", outcome(oracle)
    yield "rest = best", outcome(oracle, rest="best")
    for name, worth in WORTHS.items():
        yield name, by_worth(oracle, worth)
    for seed in range(seeds):
        drawn = np.random.default_rng(seed).normal
        yield f"worths drawn, seed {seed}", by_worth(oracle, lambda demand, drawn=drawn: drawn(size=demand.speed.shape))


def told(name: str, found: Outcome, oracle: Oracle) -> str:
    by = [f"{ours:,.0f} ({100 * (ours / theirs - 1):+.1f} %)"
          for ours, theirs in zip(found, (oracle.jct_s, oracle.makespan_s), strict=True)]
    return f"| {name} | {by[0]} | {by[1]} |"


def main(folder: Path, seeds: int) -> None:
    by_name = {oracle.name: oracle for oracle in oracles(folder)}
    for oracle in (by_name[MAKESPAN], by_name[SHUFFLED]):
        print(f"\n{oracle.name}, theirs: mean JCT {oracle.jct_s:,.0f} s, makespan {oracle.makespan_s:,.0f} s\n")
        print("| | mean JCT (s) | makespan (s) |\n|---|---:|---:|")
        if oracle.name == MAKESPAN:
            for name, found in choices(oracle, min(seeds, 5)):
                print(told(name, found, oracle), flush=True)
            continue
        for word, runs in (("shuffle", [outcome(oracle, shuffle_seed=seed) for seed in range(seeds)]),
                           ("noise", [by_noise(oracle, seed) for seed in range(seeds)])):
            for name, of in (("least", np.min), ("median", np.median), ("most", np.max)):
                jct_s, makespan_s = of(np.array(runs), axis=0).tolist()
                print(told(f"{word}, {name} of {seeds}", (jct_s, makespan_s), oracle), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with data/gavel and oracles/gavel")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.seeds)
