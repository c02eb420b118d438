"""HeterBO: Bayesian optimisation of the GPU type and number of data parallelism, cheap trials first.

Yi, Zhang, Wang, Li and Yan, 'Not All Explorations Are Equal: Harnessing Heterogeneous Profiling Cost for Efficient
MLaaS Training', IPDPS 2020; the optimiser is `policies.recommend.algorithms.bayes`. A trial runs the job for a while on
n GPUs of one type and costs their price for as long; one GPU of each type is tried first. It stops where nothing more
is to be gained. One search is for the least time and one for the least cost; what one has measured the other knows.

May choose: GPU type and number; micro-batches (gradient accumulation) are the fewest that fit. May not: stages, several
types, tensor parallelism. A trial asks the truth, as a run on the machines would.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from policies.recommend.algorithms.bayes import Candidates, Trace, explore
from policies.recommend.request.devices import Style, styles
from policies.recommend.request.request import Request
from sim.api import Plan, Stage

TRIAL_H = 1 / 6
"""Hours of a trial: an estimate, ten minutes until the speed is steady."""


def propose(request: Request) -> Iterator[Plan]:
    """All plans that were tried and run."""
    if 1 not in request.space.tensor:
        return
    for style in styles(request) if not request.measured else [Style("", recompute=False, zero=0)]:
        trials = Trials(request, style)
        trials.search("time")
        trials.search("cost")
        for option in sorted(trials.tried):
            if (plan := trials.plan(option)) is not None:
                yield plan


class Trials:
    """Data parallelism on each type with each number of GPUs, in one way of training.

    Attributes
    ----------
    tried : value of each (type, GPUs) that was measured.
    """

    def __init__(self, request: Request, style: Style) -> None:
        self.request, self.style = request, style
        self.tried: dict[tuple[int, int], float] = {}

    def options(self, objective: str) -> list[tuple[int, int]]:
        """(type, GPUs) of each candidate; where the objective is cost, of types with a price (above 0) only."""
        request, fleet = self.request, self.request.fleet
        return [
            (t, n) for t in fleet.present if objective == "time" or fleet.types[t].price_or_nan > 0
            for n in range(1, min(request.budget, fleet.counts[t], request.batch_size) + 1)
        ]  # fmt: skip

    def plan(self, option: tuple[int, int]) -> Plan | None:
        """The candidate with the fewest micro-batches that fit; None: it does not run."""
        t, gpus = option
        request = self.request
        last = request.performance.last_op(request.model)
        for m in (1,) if request.measured else sorted(request.space.micro_batches):
            plan = self.style.plan([Stage(0, last, request.fleet.names[t], gpus)], m)
            if plan is not None and m * gpus <= request.batch_size and request.truth(plan) is not None:
                return plan
        return None

    def measure(self, option: tuple[int, int]) -> float:
        """Time of an iteration; inf: out of memory with any number of micro-batches."""
        plan = self.plan(option)
        found = None if plan is None else self.request.truth(plan)
        self.tried[option] = math.inf if found is None else found.iteration_s
        return self.tried[option]

    def candidates(self, objective: str) -> Candidates:
        """All options: by type and logarithm of the number; what is least is time, or time x price."""
        kinds, gpus = np.array(self.options(objective), dtype=np.int64).reshape(-1, 2).T
        fleet = self.request.fleet
        prices = np.array([gpu.price_or_nan for gpu in fleet.types])
        usd_per_h = prices[kinds] * [fleet.paid(t, n) for t, n in zip(kinds.tolist(), gpus.tolist(), strict=True)]
        # Where a price is unknown (or nothing), trials are counted in GPU-hours.
        cost = TRIAL_H * (usd_per_h if (usd_per_h > 0).all() else gpus)
        features = np.column_stack([np.eye(len(prices))[kinds], np.log(gpus)])
        weight = usd_per_h if objective == "cost" else np.ones(len(gpus))
        return Candidates(features, cost, weight, kinds, gpus.astype(np.float64))

    def search(
        self, objective: str, *, deadline_s: float = math.inf, budget: float = math.inf, iterations: float = 0.0
    ) -> Trace | None:
        """Look for the least time, or the least cost within a deadline an iteration; None: there is nothing to try.

        What was tried before is known. The budget (in USD, or GPU-hours where a price is unknown) is for the trials and
        for the job itself, so many iterations on the best that is known.
        """
        options = self.options(objective)
        if not options:
            return None
        candidates = self.candidates(objective)
        known = {i: self.tried[option] for i, option in enumerate(options) if option in self.tried}
        first = [i for i, (_, gpus) in enumerate(options) if gpus == 1]
        an_hour = candidates.cost / TRIAL_H
        return explore(
            candidates, lambda i: self.measure(options[i]), first=first, limit=deadline_s, known=known,
            seed=self.request.seed, budget=budget, finish=lambda i, time_s: iterations * time_s / 3600 * an_hour[i],
        )  # fmt: skip
