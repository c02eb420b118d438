"""What a policy believes about run times: a vector of seconds on the reference gang, NaN where it knows nothing.

==============  ===========================================================================================
`oracle`        the true run time (a clairvoyant bound: no scheduler has it)
`noisy:MRE`     true × (1 ± e), e exponential with mean MRE, the sign by a fair coin, never below 1 % of the truth
`column`        `estimate_s` of the trace (what users announced; blank stays unknown)
==============  ===========================================================================================
"""

from __future__ import annotations

import numpy as np

from sim.api import PolicyError
from traces.errors import did_you_mean

KINDS = ("oracle", "noisy", "column")


def run_times_s(kind: str, true_s: np.ndarray, announced_s: np.ndarray, seed: int) -> np.ndarray:
    """Believed run time of each job, in s.

    Parameters
    ----------
    kind : 'oracle', 'noisy:0.25' (any mean relative error from 0) or 'column'
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
    if name == "noisy":
        try:
            mre = float(value)
        except ValueError:
            mre = np.nan
        if not 0 <= mre <= 10:
            raise PolicyError(
                "mean relative error",
                where="setting 'estimate'",
                got=kind,
                allowed="noisy:0 to noisy:10",
                todo="For example noisy:0.25.",
            )
        rng = np.random.default_rng([seed, 3])
        sign = np.where(rng.random(true_s.size) < 0.5, -1.0, 1.0)
        return np.maximum(true_s * (1.0 + sign * rng.exponential(1.0, true_s.size) * mre), 0.01 * true_s)
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
        allowed="oracle, noisy:MRE, column",
        todo=did_you_mean(name, KINDS),
    )
