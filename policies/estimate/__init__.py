"""What a policy believes about run times: a vector of seconds on the reference gang, NaN where it knows nothing.

======================  ===================================================================================
`oracle`                the true run time (a clairvoyant bound: no scheduler has it)
`noisy:MRE`             true × (1 ± e), e exponential with mean MRE, the sign by a fair coin, never below 1 % of the
                        truth. That floor caps how far a guess can be too low, so that the mean relative error is
                        MRE - MRE/2 exp(-0.99/MRE): 0.100, 0.248, 0.465, 0.650 for 0.1, 0.25, 0.5, 0.75
`noisy-lognormal:MRE`   true × exp(s z), z normal, s such that the mean relative error is MRE exactly. Half of the
                        guesses are too low, too, but a large error is too high rather than too low
`column`                `estimate_s` of the trace (what users announced; blank stays unknown)
======================  ===================================================================================
"""

from __future__ import annotations

from math import erf, exp, sqrt

import numpy as np

from sim.api import PolicyError
from traces.errors import did_you_mean

FLOOR = 0.01
"""Of `noisy`: the least that a guess may be of the truth."""


def _exponential(mre: float, jobs: int, rng: np.random.Generator) -> np.ndarray:
    sign = np.where(rng.random(jobs) < 0.5, -1.0, 1.0)
    return np.maximum(1.0 + sign * rng.exponential(1.0, jobs) * mre, FLOOR)


def lognormal_sd(mre: float) -> float:
    """s of X = exp(s z) with E|X - 1| = exp(s²/2) (2 Φ(s) - 1) = mre, which grows with s and is 10 below s = 3."""
    from scipy.optimize import brentq  # half a second of CPU time, which few runs need

    return float(brentq(lambda s: exp(s * s / 2) * erf(s / sqrt(2)) - mre, 0.0, 3.0))


def _lognormal(mre: float, jobs: int, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(np.exp(lognormal_sd(mre) * rng.standard_normal(jobs)))


NOISY = {"noisy": _exponential, "noisy-lognormal": _lognormal}
"""Error model -> (mean relative error, jobs, random numbers) -> believed / true run time."""

KINDS = ("oracle", *NOISY, "column")


def run_times_s(kind: str, true_s: np.ndarray, announced_s: np.ndarray, seed: int) -> np.ndarray:
    """Believed run time of each job, in s.

    Parameters
    ----------
    kind : 'oracle', 'noisy:0.25', 'noisy-lognormal:0.25' (any mean relative error from 0) or 'column'
    true_s, announced_s : float64 [jobs]
    seed : int
        Of the errors; stream 3.

    Raises
    ------
    PolicyError
        Unknown kind, a mean relative error that is no number from 0 to 10, or no announced time at all.
    """
    name, _, value = kind.partition(":")
    if name == "oracle" and not value:
        return true_s.copy()
    if name in NOISY:
        try:
            mre = float(value)
        except ValueError:
            mre = np.nan
        if not 0 <= mre <= 10:
            raise PolicyError(
                "mean relative error",
                where="setting 'estimate'",
                got=kind,
                allowed=f"{name}:0 to {name}:10",
                todo=f"For example {name}:0.25.",
            )
        return true_s * NOISY[name](mre, true_s.size, np.random.default_rng([seed, 3]))
    if name == "column" and not value:
        if np.isnan(announced_s).all():
            raise PolicyError(
                "the trace announces no run times",
                where="setting 'estimate'",
                got=kind,
                todo="Use oracle or noisy:MRE, or a trace with estimate_s.",
            )
        return announced_s.copy()
    raise PolicyError(
        "unknown estimate",
        where="setting 'estimate'",
        got=kind,
        allowed="oracle, noisy:MRE, noisy-lognormal:MRE, column",
        todo=did_you_mean(name, KINDS),
    )
