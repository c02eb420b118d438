"""Uncertain speeds: the regret of the plan chosen and what profiling costs, by way of choosing which runs to make.

    .venv/bin/python experiments/profiling_regret.py [--quick] [--hours 10] [--draws 20] [--csv FILE]

True times are modelled times with errors drawn from the prior belief (`policies.recommend.uncertain_speeds.belief`),
unknown to all:

none      the plan of the least mean under the prior.
all       every type is profiled, all at once.
heterbo   candidate plans are tried as a whole, by Bayesian optimisation with costs
          (`policies.recommend.algorithms.bayes`).
ours      the runs that are worth their cost (`policies.recommend.uncertain_speeds.uncertain`).

Regret: objective of an iteration over that of the best plan of all, planned with the true times, less 1. With cost: the
runs' seconds or USD added, for a job as long as `--hours` on the plan that is best as modelled.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from policies.recommend.algorithms.bayes import Candidates, explore
from policies.recommend.methods import exact
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Recommendation, Request
from policies.recommend.request.stage_gpus import counts_of
from policies.recommend.uncertain_speeds.belief import NOISE, Belief
from policies.recommend.uncertain_speeds.profiling import START_S, STEPS, Run, runs_of
from policies.recommend.uncertain_speeds.uncertain import candidates_under, recommend_with_profiling
from sim.api import Plan
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance

MODELS = {"resnet50": 256, "vgg16": 128, "bert-large": 64, "gpt2-1.5b": 16, "transformer": 256, "lstm-lm": 160}
FLEETS = {"A100:4,V100:4,T4:8": (("A100", 4), ("V100", 4), ("T4", 8)),
          "T4:4,L4:4,A10:4": (("T4", 4), ("L4", 4), ("A10", 4)),
          "V100:4,P100:8,K80:8": (("V100", 4), ("P100", 8), ("K80", 8))}  # fmt: skip
METHODS = ("none", "all", "heterbo", "ours")
MOST_GPUS = 8


class Row(NamedTuple):
    """One method on one hidden truth."""

    model: str
    fleet: str
    objective: str
    draw: int
    method: str
    regret: float
    with_cost: float
    runs: int
    spent: float
    """Seconds or USD."""


class Case:
    """One job on one fleet, by one objective."""

    def __init__(self, model: str, fleet: str, objective: str, hours: float, draws: int) -> None:
        performance = Performance()
        names, counts = zip(*FLEETS[fleet], strict=True)
        gpus = Fleet(performance, [gpu_type(name) for name in names], counts)
        self.request = Request(performance, model, MODELS[model], gpus, MOST_GPUS)
        self.objective, self.mc = objective, draws
        self.belief = Belief.prior(self.request)
        self.plans = candidates_under(self.request, self.belief, exact.propose, draws=4)
        found = self.request.judged(self.plans)
        best = min(found, key=self.value)
        self.iterations = hours * 3600 / best.iteration_s
        self.runs = runs_of(self.request)
        self.prior_plan = self.choose(self.belief, self.plans, ()).plan

    def value(self, r: Recommendation) -> float:
        return r.iteration_s if self.objective == "time" else r.usd_per_iteration

    def choose(self, belief: Belief, plans: tuple[Plan, ...], runs: tuple[Run, ...], measure=None):
        return recommend_with_profiling(
            self.request, plans, measure, self.iterations, objective=self.objective, belief=belief, runs=runs,
            draws=self.mc, propose=exact.propose,
        )  # fmt: skip

    def rows(self, draw: int) -> Iterator[tuple[str, float, float, int, float]]:
        """Method, regret, regret with cost, runs and what they cost under one hidden truth."""
        rng = np.random.default_rng([draw, 4])
        e = self.belief.draws(1, rng)[0]
        truth = self.belief.under(self.request, e)

        def measure(run: Run) -> dict[str, float]:
            row = dict(zip(self.belief.kinds, e[self.belief.row(run.gpu_type)], strict=True))
            return {
                kind: s * math.exp(row[kind] + NOISE * rng.standard_normal())
                for kind, s in run.modelled_s.items() if s > 0
            }  # fmt: skip

        found = {name: getattr(self, name)(truth, measure) for name in METHODS}
        plans = [*self.plans, *exact.propose(truth), *(plan for plan, _, _ in found.values())]
        least = min(self.value(r) for r in truth.judged(plans) if not math.isnan(self.value(r)))
        for name, (plan, runs, spent) in found.items():
            regret = self.value(truth.truth(plan)) / least - 1
            yield name, regret, regret + spent / (self.iterations * least), runs, spent

    def none(self, truth: Request, measure) -> tuple[Plan, int, float]:
        return self.prior_plan, 0, 0.0

    def all(self, truth: Request, measure) -> tuple[Plan, int, float]:
        belief = self.belief
        for run in self.runs:
            ratios = {q: math.log(s / run.modelled_s[q]) for q, s in measure(run).items()}
            belief = belief.given(run.gpu_type, ratios)
        plans = (*self.plans, *candidates_under(self.request, belief, exact.propose, draws=0))
        at_once = max(run.seconds for run in self.runs)
        spent = at_once if self.objective == "time" else sum(run.usd for run in self.runs)
        return self.choose(belief, plans, ()).plan, len(self.runs), spent

    def ours(self, truth: Request, measure) -> tuple[Plan, int, float]:
        choice = self.choose(self.belief, self.plans, self.runs, measure)
        return choice.plan, len(choice.runs), choice.spent_s if self.objective == "time" else choice.spent_usd

    def heterbo(self, truth: Request, measure) -> tuple[Plan, int, float]:
        fleet = self.request.fleet
        modelled = [r for r in map(self.request.truth, self.plans) if r is not None]
        counts = np.array([counts_of(r.plan, fleet.names) for r in modelled], dtype=float)
        usd_per_h = np.array([fleet.usd_per_h(r.counts) for r in modelled])
        cost = START_S + STEPS * np.array([r.iteration_s for r in modelled])
        weight = np.ones(len(modelled))
        if self.objective == "cost":
            cost, weight = cost / 3600 * usd_per_h, usd_per_h / 3600
        features = np.log1p(np.column_stack([counts, [[r.plan.micro_batches, len(r.plan.stages)] for r in modelled]]))
        apart = np.full(len(modelled), -1)
        options = Candidates(features, cost, weight, apart, counts.sum(axis=1))
        trace = explore(options, lambda i: truth.truth(modelled[i].plan).iteration_s, trials=12)
        return modelled[trace.best].plan, len(trace.trials), trace.spent


def table(rows: list[Row], by: str) -> None:
    """Mean and median regret in percent, with and without cost, and runs."""
    print(f"\n| {by} | method | cases | regret: mean | median | worst | with cost: mean | median | runs |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for group in sorted({getattr(r, by) for r in rows}):
        for method in METHODS:
            of = [r for r in rows if getattr(r, by) == group and r.method == method]
            regret, cost = (100 * np.array([getattr(r, key) for r in of]) for key in ("regret", "with_cost"))
            print(f"| {group} | {method} | {len(of)} | {regret.mean():.2f} % | {np.median(regret):.2f} % "
                  f"| {regret.max():.1f} % | {cost.mean():.2f} % | {np.median(cost):.2f} % "
                  f"| {np.mean([r.runs for r in of]):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two models, one fleet, four draws")
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--draws", type=int, default=20, help="hidden truths of each case")
    parser.add_argument("--mc", type=int, default=128, help="draws of the estimates")
    parser.add_argument("--objective", choices=("time", "cost"), action="append")
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    models, fleets, draws = list(MODELS), list(FLEETS), given.draws
    if given.quick:
        models, fleets, draws = models[:2], fleets[1:2], min(draws, 4)
    rows: list[Row] = []
    for objective in given.objective or ("time", "cost"):
        for fleet in fleets:
            for model in models:
                case = Case(model, fleet, objective, given.hours, given.mc)
                for draw in range(draws):
                    rows += [Row(model, fleet, objective, draw, *row) for row in case.rows(draw)]
                print(f"{objective}, {fleet}, {model}: {len(case.plans)} candidates", file=sys.stderr, flush=True)
                if given.csv:
                    with given.csv.open("w", newline="") as file:
                        csv.writer(file).writerows([Row._fields, *rows])
    for by in ("objective", "fleet", "model"):
        table(rows, by)


if __name__ == "__main__":
    main()
