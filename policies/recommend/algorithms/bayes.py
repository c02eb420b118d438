"""Bayesian optimisation where trials cost differently: which of some candidates is best, measuring few of them.

After HeterBO (Yi, Zhang, Wang, Li and Yan, IPDPS 2020, 'Not All Explorations Are Equal'), in the abstract: candidate i
has features, a cost of measuring it, and an unknown value v_i > 0 (a time). What is to be least is v_i x weight_i (a
price makes it a cost) among those with v_i <= limit (a deadline).

The belief about g = ln v is a Gaussian process (Matern 5/2, a length for each feature, noise), fitted to what has been
measured. With b = ln(best so far) - ln(weight_i), c = min(b, ln limit) and z = (c - mean) / sd, the expected
improvement within the limit, as a relative one, is

    E[(b - g)+ 1{g <= ln limit}] = (b - mean) Phi(z) + sd phi(z),

and the next candidate is the one with most of it per cost. So cheap trials come first. While none that keeps the limit
is known, the probability of keeping it, P(g <= ln limit), stands for the improvement, however small. Beyond that,

* concave: along a line (one GPU type, growing numbers) speed rises, then falls. Where a longer one has been found no
  faster than a shorter one, what is longer still is not tried;
* protective: a trial is only made if afterwards the budget still pays for finishing with one that is known, and the
  best is the best of those that the budget can finish with.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from policies.recommend.request.recommend_error import RecommendError

NOISE = 1e-6
"""Variance that measured logarithms have."""


@dataclass(frozen=True)
class Candidates:
    """What can be tried.

    Attributes
    ----------
    features : float64 [n, d], what the belief generalises over.
    cost : float64 [n], of measuring each; above 0, one unit throughout.
    weight : float64 [n], above 0: what is to be least is value x weight.
    line : int64 [n], candidates of one number lie on one line; -1: on none.
    size : float64 [n], place along the line.
    """

    features: np.ndarray
    cost: np.ndarray
    weight: np.ndarray
    line: np.ndarray
    size: np.ndarray

    def __post_init__(self) -> None:
        n = len(self.features)
        columns = (self.cost, self.weight, self.line, self.size)
        if self.features.ndim != 2 or any(np.shape(column) != (n,) for column in columns):
            raise RecommendError("candidates need as many entries in each column", got=[len(c) for c in columns],
                                 allowed=f"{n} each")
        for name, column in (("cost", self.cost), ("weight", self.weight)):
            if not (np.isfinite(column).all() and (column > 0).all()):
                raise RecommendError(f"the {name} of a candidate is unknown or impossible",
                                     got=column[~(np.isfinite(column) & (column > 0))][:3].tolist(),
                                     allowed="numbers above 0")

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class Trial:
    """One measurement.

    Attributes
    ----------
    index : candidate.
    value : as measured; inf: it does not work at all.
    expected : improvement that was expected of it, as a fraction, or the probability that stood for it; NaN where
        nothing was known yet.
    spent : on measuring, this trial included.
    best : least value x weight within limit and budget so far; inf: none yet.
    """

    index: int
    value: float
    expected: float
    spent: float
    best: float


@dataclass(frozen=True)
class Trace:
    """What was tried, spent and found.

    Attributes
    ----------
    trials : in order.
    values : measured values by candidate, those known before included.
    best : the best candidate; None: none of those measured keeps limit and budget.
    stopped : why: 'nothing to gain', 'budget', 'trials' or 'all tried'.
    """

    trials: tuple[Trial, ...]
    values: Mapping[int, float]
    best: int | None
    stopped: str

    @property
    def spent(self) -> float:
        """Cost of all measurements."""
        return self.trials[-1].spent if self.trials else 0.0

    def regret(self, values: np.ndarray, weight: np.ndarray, limit: float = math.inf) -> float:
        """How much worse the best found is than the best there is, as a fraction of it, given all true values [n].

        Inf where there is one within the limit but none was found; 0 where there is none.
        """
        objective = np.where(values <= limit, values * weight, np.inf)
        if not np.isfinite(objective).any():
            return 0.0
        return math.inf if self.best is None else float(objective[self.best] / objective.min()) - 1.0


def explore(
    candidates: Candidates, measure: Callable[[int], float], *, first: Sequence[int] = (), limit: float = math.inf,
    budget: float = math.inf, finish: Callable[[int, float], float] | None = None,
    known: Mapping[int, float] | None = None, trials: int = 30, gain: float = 0.01, seed: int = 0,
) -> Trace:  # fmt: skip
    """Measure candidates one by one, those that promise most per cost first (module text).

    While nothing is known to work, the cheapest untried candidate is next.

    Parameters
    ----------
    measure : value of a candidate; inf: it does not work (out of memory).
    first : candidates to measure before any is chosen, as far as the budget goes.
    limit : largest value that is acceptable, above 0.
    budget : for measuring and finishing.
    finish : cost of finishing with a candidate of this value; default: nothing is reserved.
    known : values measured before; they cost nothing.
    trials : measurements at most.
    gain : stop where no candidate promises a larger improvement (a fraction).
    seed : of the fits' random starts.

    Raises
    ------
    RecommendError
        A measured value that is neither above 0 nor inf; an impossible limit.
    """
    if not limit > 0:
        raise RecommendError("a limit must be above 0", got=limit, allowed="a number above 0, or inf: none")
    search = _Search(candidates, limit, budget, finish, dict(known or {}), seed)
    done: list[Trial] = []
    for i in first:
        if len(done) < trials and i not in search.values and search.affords[i]:
            done.append(search.tried(i, measure(i), math.nan))
    while True:
        untried = search.untried()
        open_ = untried & search.affords
        if not open_.any():
            stopped = "budget" if untried.any() else "all tried"
            break
        if len(done) >= trials:
            stopped = "trials"
            break
        expected = search.improvement()
        if expected is None:
            i, promise = int(np.argmin(np.where(open_, candidates.cost, np.inf))), math.nan
        else:
            i = int(np.argmax(np.where(open_, expected / candidates.cost, -1.0)))
            promise = float(expected[i])
            if search.best is not None and np.where(open_, expected, 0.0).max() < gain:
                stopped = "nothing to gain"
                break
        done.append(search.tried(i, measure(i), promise))
    return Trace(tuple(done), search.values, search.best, stopped)


class _Search:
    """What is known and spent so far."""

    def __init__(
        self, candidates: Candidates, limit: float, budget: float, finish: Callable[[int, float], float] | None,
        values: dict[int, float], seed: int,
    ) -> None:  # fmt: skip
        self.candidates, self.limit, self.budget, self.finish = candidates, limit, budget, finish
        self.values, self.seed, self.spent = values, seed, 0.0
        spread = candidates.features.std(axis=0)
        self.inputs = (candidates.features - candidates.features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)

    def _finishing(self) -> dict[int, float]:
        """Cost of finishing with each candidate that keeps the limit and can be finished with what is left."""
        kept = {i: v for i, v in self.values.items() if v <= self.limit and v < math.inf}
        costs = {i: 0.0 if self.finish is None else self.finish(i, v) for i, v in kept.items()}
        return {i: cost for i, cost in costs.items() if self.spent + cost <= self.budget}

    @property
    def best(self) -> int | None:
        """The best candidate so far of those that keep limit and budget."""
        weight = self.candidates.weight
        return min(self._finishing(), key=lambda i: (self.values[i] * weight[i], i), default=None)

    @property
    def affords(self) -> np.ndarray:
        """Mask [n]: measuring it leaves enough to finish with one that is known."""
        reserve = min(self._finishing().values(), default=0.0)
        return np.asarray(self.spent + self.candidates.cost + reserve <= self.budget)

    def untried(self) -> np.ndarray:
        """Mask [n]: not measured, and not beyond where scaling out stopped to pay."""
        line, size = self.candidates.line, self.candidates.size
        mask = np.ones(len(self.candidates), dtype=bool)
        mask[list(self.values)] = False
        works = [i for i, v in self.values.items() if v < math.inf]
        for i in works:
            if line[i] >= 0 and any(
                line[j] == line[i] and size[j] < size[i] and self.values[j] <= self.values[i] for j in works
            ):
                mask &= (line != line[i]) | (size < size[i])
        return mask

    def tried(self, i: int, value: float, expected: float) -> Trial:
        """Note a measurement."""
        value = float(value)
        if not value > 0:
            raise RecommendError("a measured value must be above 0", where=f"candidate {i}", got=value,
                                 allowed="a number above 0, or inf where it does not work")
        self.values[i] = value
        self.spent += float(self.candidates.cost[i])
        best = self.best
        least = math.inf if best is None else self.values[best] * float(self.candidates.weight[best])
        return Trial(i, value, expected, self.spent, least)

    def improvement(self) -> np.ndarray | None:
        """Expected improvement [n] within the limit (module text); None where nothing is known to work."""
        works = sorted(i for i, v in self.values.items() if v < math.inf)
        if not works:
            return None
        mean, sd = self._belief(works, np.log([self.values[i] for i in works]))
        weight, best, top = self.candidates.weight, self.best, math.log(self.limit)
        if best is None:
            return np.asarray(ndtr((top - mean) / sd))
        b = math.log(self.values[best] * weight[best]) - np.log(weight)
        z = (np.minimum(b, top) - mean) / sd
        return np.asarray(np.maximum((b - mean) * ndtr(z) + sd * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), 0.0))

    def _belief(self, works: list[int], logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation [n] of the logarithms, given those of the candidates in `works`."""
        # scikit-learn takes a second to import.
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern

        lengths = np.ones(self.inputs.shape[1])
        kernel = ConstantKernel(1.0, (0.05, 20.0)) * Matern(lengths, (0.2, 20.0), nu=2.5)
        # Fewer points than lengths say nothing about lengths.
        fit = len(works) > 2
        process = GaussianProcessRegressor(
            kernel, alpha=NOISE, random_state=self.seed, n_restarts_optimizer=1 if fit else 0,
            optimizer="fmin_l_bfgs_b" if fit else None,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            # Not scaled to their own variance: of a few like values it says too little.
            process.fit(self.inputs[works], logs - logs.mean())
        mean, sd = process.predict(self.inputs, return_std=True)
        return mean + logs.mean(), np.maximum(sd, 1e-9)
