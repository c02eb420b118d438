"""What the self-optimising search adds to `exact`, and how far both are from brute force and from the lower bounds.

    python -m benchmarks.bench_recommend [--seconds 2 5 10] [--seeds 1] [--quick]

First table: the search's least time and least cost as ratios of those of `exact`, after so many seconds of CPU time,
the starts included; the least cost within 1.3 x the least time of `exact`; gap: value / lower bound - 1 at the end;
plans judged. Second table: both methods against all plans of a few blocks on up to four GPUs, with any number of
replicas.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product

import numpy as np

from policies.recommend.methods import exact
from policies.recommend.methods.search import Search, improve, starts
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Recommendation, Request
from policies.recommend.searching.bounds import lower_bound
from sim.api import Plan, Stage
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance

MODELS = (("gpt2-1.5b", 64), ("resnet50", 512), ("nasnet-large", 256), ("bert-large", 256), ("vgg16", 256),
          ("gnmt-16", 256), ("transformer-big", 256), ("inception-v3", 512))
FLEETS = ("V100:16,T4:32,A100:8", "V100:4,P100:4", "T4:16,K80:16")
SMALL = (("bert-large", 16, "V100:2,P100:1"), ("gpt2-1.5b", 4, "V100:2,P100:2"), ("transformer", 64, "V100:1,T4:2"),
         ("lstm-lm", 80, "V100:2,T4:2"), ("vgg16", 128, "V100:2,P100:2"), ("alexnet", 256, "V100:2,T4:2"),
         ("resnet50", 96, "V100:2,K80:2"), ("gnmt-16", 64, "V100:1,K80:3"))
NEAR = 1.3
"""Times the least time of `exact`, within which the cost is compared."""


@dataclass(frozen=True)
class Value:
    """What a set of plans brings."""

    time_s: float
    usd: float
    usd_near: float

    def over(self, other: Value) -> str:
        """The ratios, as text."""
        pairs = ((self.time_s, other.time_s), (self.usd, other.usd), (self.usd_near, other.usd_near))
        return "/".join(f"{a / b:.3f}" if math.isfinite(b) else "new" for a, b in pairs)


def value(found: Sequence[Recommendation], limit_s: float) -> Value:
    near = min((r.usd_per_iteration for r in found if r.iteration_s <= limit_s), default=math.inf)
    return Value(min((r.iteration_s for r in found), default=math.inf),
                 min((r.usd_per_iteration for r in found), default=math.inf), near)


def request(model: str, batch: int, gpus: str, seed: int = 0) -> Request:
    """Of GPUs like 'V100:4,T4:8', on nodes of 8."""
    named = [one.split(":") for one in gpus.split(",")]
    types, counts = [gpu_type(name) for name, _ in named], [int(count) for _, count in named]
    performance = Performance()
    return Request(performance, model, batch, Fleet(performance, types, counts), sum(counts), seed=seed)


def improvement(seconds: Sequence[float], seeds: int, models: Sequence[tuple[str, int]]) -> None:
    """Print the first table."""
    heads = "".join(f"{f'{s:g} s':>20}" for s in seconds)
    print(f"\nsearch / exact: time/cost/cost within {NEAR}x{heads}   gap to the bound  plans judged")
    logs: list[list[list[float]]] = [[] for _ in seconds]
    for (model, batch), gpus, seed in product(models, FLEETS, range(seeds)):
        asked = request(model, batch, gpus, seed)
        alone = request(model, batch, gpus).judged(exact.propose(asked))
        limit_s = NEAR * min((r.iteration_s for r in alone), default=math.inf)
        before, cells = value(alone, limit_s), []
        began = time.process_time()
        search = Search(asked, starts(asked))
        for row, mark in zip(logs, seconds, strict=True):
            while time.process_time() - began < mark and not search.exhausted:
                search.step()
            now = value(search.front, limit_s)
            cells.append(f"{now.over(before):>20}")
            if alone:
                row.append([now.time_s / before.time_s, now.usd / before.usd, now.usd_near / before.usd_near])
        gaps = lower_bound(asked).gap(search.front)
        gap = "/".join(f"{100 * g:.1f}%" for g in gaps)
        case = f"{f'{model} {batch}':<19} {gpus:<24}"
        print(f"{case}{''.join(cells)}{gap:>19}{asked.evaluations:>14,}", flush=True)
    for mark, row in zip(seconds, logs, strict=True):
        ratios = np.array(row)
        print(f"{mark:>4g} s: geometric mean {np.round(np.exp(np.log(ratios).mean(axis=0)), 4).tolist()}, "
              f"best {np.round(ratios.min(axis=0), 3).tolist()}, worst {np.round(ratios.max(axis=0), 3).tolist()}")


def every_plan(asked: Request, blocks: int) -> Iterator[Recommendation]:
    """The truth of all plans that cut at a few places, any number of replicas."""
    operators = len(asked.performance.graph(asked.model))
    ends = np.unique(np.linspace(0, operators, blocks + 1).astype(int)).tolist()
    for p in range(1, asked.budget + 1):
        for cuts in combinations(ends[1:-1], p - 1):
            for choice in product(product(asked.fleet.names, range(1, asked.budget + 1)), repeat=p):
                if sum(n for _, n in choice) > asked.budget:
                    continue
                spans = pairwise((0, *cuts, operators))
                stages = tuple(Stage(a, b - 1, *on) for (a, b), on in zip(spans, choice, strict=True))
                for m in asked.space.micro_batches:
                    r = asked.truth(Plan(stages, m)) if m <= asked.batch_size else None
                    if r is not None:
                        yield r


def against_brute_force(blocks: int, evaluations: int) -> None:
    """Print the second table."""
    print(f"\nover brute force of {blocks} blocks: time, cost          exact         search ({evaluations} plans)")
    for model, batch, gpus in SMALL:
        all_plans = value(list(every_plan(request(model, batch, gpus), blocks)), math.inf)
        asked = request(model, batch, gpus)
        alone, mine = request(model, batch, gpus), improve(asked, starts(asked), evaluations).front
        found = value(alone.judged(exact.propose(alone)), math.inf), value(mine, math.inf)
        cells = "".join(f"{f'{v.time_s / all_plans.time_s:.4f} {v.usd / all_plans.usd:.4f}':>18}" for v in found)
        print(f"{f'{model} {batch}':<16} {gpus:<18}{cells}", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, nargs="+", default=[2.0, 5.0, 10.0], help="CPU seconds of the search")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="two models, one second, coarser brute force")
    given = parser.parse_args()
    against_brute_force(5 if given.quick else 10, 1000 if given.quick else 4000)
    improvement([1.0] if given.quick else given.seconds, given.seeds, MODELS[:2] if given.quick else MODELS)


if __name__ == "__main__":
    main()
