"""What a GPU-hour costs now: the catalogue's price, or more where GPUs are short.

A job's plan is a choice between time and GPUs. In a cluster of one's own nobody pays by the hour, yet a GPU that one
job takes is one that another waits for; so GPUs have a price, and each job takes the plan on which an iteration costs
least, its own time included:

    cost of an iteration = iteration_s / 3600 x (hour_usd + sum over types (price of the type x GPUs)).

Where all jobs, waiting and running, would take more GPUs of a type at these prices than there are, its price goes up,
else down, to the catalogue's at least (Walras' tatonnement). An idle cluster is thus cheap and jobs spread; in a
crowded one each job keeps to the GPUs on which it is most efficient, and to the types that it needs more than others
do: comparative advantage comes out by itself.
"""

from __future__ import annotations

import math

import numpy as np

from policies.recommend.market.classes import JobClass
from sim.kernels.bidding import cheapest, classes_that_fit, clear, costs_per_s, first_move
from sim.kernels.dominance import first_of_fronts
from sim.performance import GpuType

RATE = 0.3
"""Step of the logarithm of a price for demand that is twice the supply; with STEPS chosen by measurement."""
STEPS = 2
"""Steps in a decision: prices follow demand within some decisions, and not each of its whims."""
CAP = 1e4
"""Highest price, as a multiple of the lowest: where even the least plans of all jobs are too many, none clears."""

WIDE = 0.25
"""Part of a type's GPUs above which a waiting job that must have so many holds no price up."""

MOST_WORTH = 1e12
"""What an hour is worth at most (USD): no price of GPUs matters beside it, and all costs are finite."""


class Market:
    """Prices of GPU types, and the plans of all classes of jobs learnt so far in one table.

    Parameters
    ----------
    types : GPU types of the cluster. One without a price counts as dear as the dearest known ('unknown' is never
        cheapest); where none has a price, each as 1 USD.
    supply : int64 [T], GPUs of each type.
    hour_usd : what an hour of a job's time is worth.
    """

    def __init__(self, types: tuple[GpuType, ...], supply: np.ndarray, hour_usd: float) -> None:
        known = [gpu.price_usd_per_h for gpu in types if gpu.price_usd_per_h is not None]
        usd = [gpu.price_or_nan if not math.isnan(gpu.price_or_nan) else max(known, default=1.0) for gpu in types]
        # A free GPU type has no price to multiply.
        self.floor = np.maximum(np.array(usd, dtype=np.float64), 1e-6)
        self.price, self.supply = self.floor.copy(), supply.astype(np.float64)
        self.worth = min(float(hour_usd), MOST_WORTH)
        self.counts, self.iteration_s = np.zeros((0, len(types))), np.zeros(0)
        self.first = np.zeros(1, dtype=np.int64)
        # Of each class the counts that no other of its plans is within: where none of these fits, no plan does.
        self._least, self._least_first = np.zeros((0, len(types))), np.zeros(1, dtype=np.int64)
        self._wide, self._wide_from = np.zeros(0, dtype=np.bool_), np.maximum(WIDE * self.supply, 1.0)

    def add(self, known: JobClass) -> int:
        """Take in the plans of a class; returns its number here."""
        self.counts = np.concatenate((self.counts, known.counts * (known.milli / 1000)))
        self.iteration_s = np.concatenate((self.iteration_s, known.iteration_s))
        self.first = np.append(self.first, len(self.iteration_s))
        number = len(self.first) - 2
        least = first_of_fronts(known.counts.astype(np.int64), np.argsort(known.counts.sum(axis=1), kind="stable"))
        self._least = np.concatenate((self._least, self.counts[self.plans(number)][least]))
        self._least_first = np.append(self._least_first, len(self._least))
        self._wide = np.append(self._wide, (self.counts[self.plans(number)] > self._wide_from).any(axis=1).all())
        return number

    def update(self, running: np.ndarray, waiting: np.ndarray) -> None:
        """Move prices towards what jobs (int64 [classes] each) ask for, and price the plans of classes that have any.

        A waiting job that takes more than `WIDE` of a type (and one GPU), whatever its plan, is not counted: no price
        makes it take less, and one so high that all others leave would keep GPUs idle until it can start.
        """
        jobs = running + np.where(self._wide[: len(waiting)], 0, waiting)
        self.price = clear(self.counts, self.iteration_s, self.first, jobs, self.supply, self.price, self.floor, CAP,
                           self.worth, RATE, STEPS)  # fmt: skip
        self.cost = costs_per_s(self.counts, self.first, running + waiting, self.price, self.worth)

    def plans(self, number: int) -> slice:
        """Rows of a class's plans."""
        return slice(int(self.first[number]), int(self.first[number + 1]))

    def costs(self, number: int) -> np.ndarray:
        """Cost of an iteration on each plan of a class, at present prices (USD x 3600); NaN where it has no jobs."""
        rows = self.plans(number)
        return np.asarray(self.cost[rows] * self.iteration_s[rows])

    def cheapest(self, number: int, free: np.ndarray, quota: int) -> int:
        """Row of the plan of least cost of a class that has jobs, among those that fit what is free and the quota:
        `sim.kernels.bidding.cheapest`."""
        begin, end = self.first[number], self.first[number + 1]
        return int(cheapest(self.counts, self.iteration_s, self.cost, begin, end, free.astype(np.int64), quota))

    def ranked(self, number: int, free: np.ndarray, quota: int) -> list[int]:
        """Rows of the plans of a class that has jobs and that fit what is free and the quota, least cost first."""
        rows = np.arange(self.first[number], self.first[number + 1])
        counts = self.counts[rows]
        rows = rows[(counts <= free).all(axis=1) & (counts.sum(axis=1) <= quota)]
        ranked: list[int] = rows[np.argsort(self.cost[rows] * self.iteration_s[rows], kind="stable")].tolist()
        return ranked

    def least_usd(self, number: int) -> float:
        """Least cost of an iteration of a class at the lowest prices (USD), its time included; inf without plans."""
        rows = self.plans(number)
        per_s = (self.worth + self.counts[rows] @ self.floor) / 3600
        return float((per_s * self.iteration_s[rows]).min(initial=np.inf))

    def fits(self, free: np.ndarray) -> np.ndarray:
        """Whether one plan of each class, at least, fits what is free: bool [classes]."""
        return np.asarray(classes_that_fit(self._least, self._least_first, free.astype(np.int64)))

    def first_move(
        self, plan: np.ndarray, number: np.ndarray, time_s: np.ndarray, stretch_s: np.ndarray, free: np.ndarray,
        quota: np.ndarray, overhead_s: float,
    ) -> tuple[int, int]:
        """The first running job that a move pays for: `sim.kernels.bidding.first_move`."""
        return first_move(plan, number, time_s, stretch_s, free, quota, self.counts, self.iteration_s, self.first,
                          self.cost, overhead_s)  # fmt: skip
