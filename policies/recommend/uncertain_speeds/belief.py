"""What is believed about operator times that may be wrong: a Gaussian, corrected by what is measured.

Operators of kind q on GPU type t take  modelled time x exp(e[t, q]),  e ~ N(0, s_t^2): half of the variance is common
to all kinds of a type (its figures), half is the kind's own. s_t follows from the errors of the calibration
(`spread_of`). With y = ln(measured / modelled) + noise the belief stays Gaussian (`Belief.given`, a Kalman update).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Request
from sim.performance import GpuType, Performance
from traces.errors import did_you_mean

PUBLISHED_ERROR = 0.115
"""Mean error of modelled times of published rows of `PUBLISHED_TYPES`, nothing fitted (docs/model-and-limits.md)."""
PUBLISHED_TYPES = ("V100", "V100-32", "A100", "A100-80")
ACROSS_ERROR = 0.26
"""The same on a type that no row is of: K80 rates from V100 rates (docs/model-and-limits.md)."""
COMMON = 0.5
"""Part of the variance that all kinds of a type share: an estimate."""
NOISE = 0.02
"""Standard deviation of a measured logarithm: an estimate, 2 % from run to run."""


class Rescaled(Performance):
    """A performance model whose operators take exp(log_error[t, q]) times as long. The optimizer's step does not.

    Parameters
    ----------
    base : the model to rescale; memory, links and all else are its own.
    types, kinds : what the rows and columns of log_error are; others are not rescaled.
    """

    def __init__(
        self, base: Performance, types: Sequence[str], kinds: Sequence[str], log_error: np.ndarray
    ) -> None:
        super().__init__(
            base.links, base.table, schedule=base.schedule, calibration=base.calibration, graphs=base.graphs,
            blocking=base.blocking, overlap=base.overlap, exchange=base.exchange, optimizer=base.optimizer,
            context_gib=base.context_gib,
        )  # fmt: skip
        self._base = base
        # Graphs do not depend on times.
        self._shares = base._shares
        self._factor = {
            t: dict(zip(kinds, row, strict=True)) for t, row in zip(types, np.exp(log_error).tolist(), strict=True)
        }

    def _operator_times_s(self, model: str, samples: float, gpu: GpuType, ways: int) -> tuple[np.ndarray, np.ndarray]:
        known = self._base._times(model, samples, gpu, ways)
        of_kind = self._factor.get(gpu.name, {})
        factor = np.array([of_kind.get(kind, 1.0) for kind in self._share(model, ways).kind])
        return known.fwd_s * factor, known.bwd_s * factor


def spread_of(performance: Performance, gpu_type: str) -> float:
    """Standard deviation of ln(true / modelled) of a type's operator times: sqrt(pi / 2) x mean error, if Gaussian.

    The mean error is that of the calibration's rows where the type was among them; the published rows' where nothing
    was fitted; on a type of which there was no row `ACROSS_ERROR`, or what was held out where that is more.
    """
    fit = performance.calibration
    if fit.error is None:
        error = PUBLISHED_ERROR if gpu_type in PUBLISHED_TYPES else ACROSS_ERROR
    elif gpu_type in fit.gpus:
        error = fit.error.mean
    else:
        error = float(np.nanmax([ACROSS_ERROR, fit.error.mean, fit.error.held_out_mean]))
    return deviation_of(error)


def deviation_of(mean_error: float) -> float:
    """Standard deviation of a Gaussian whose mean absolute value is `mean_error`."""
    return math.sqrt(math.pi / 2) * mean_error


@dataclass(frozen=True, eq=False)
class Belief:
    """Gaussian belief about e, the logarithm of true over modelled time.

    Attributes
    ----------
    types, kinds : GPU types, kinds of operators.
    mean : float64 [types x kinds], type by type.
    covariance : float64 [types x kinds, types x kinds].
    """

    types: tuple[str, ...]
    kinds: tuple[str, ...]
    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def prior(
        cls, request: Request, spread: Mapping[str, float] | None = None, common: float = COMMON
    ) -> Belief:
        """What is believed of the request's model on its types before any run.

        Parameters
        ----------
        spread : standard deviation s_t of types, 0 or more; of those not named `spread_of`.
        common : part of the variance that a type's kinds share, 0 to 1.

        Raises
        ------
        RecommendError
            An impossible spread or part.
        PerformanceError
            The model is known by its measured rates only.
        """
        kinds = tuple(sorted(set(request.performance.graph(request.model).kind)))
        types = tuple(request.fleet.names[t] for t in request.fleet.present)
        sds = [(spread or {}).get(name, spread_of(request.performance, name)) for name in types]
        for what, values, top in (("spread", sds, math.inf), ("common part", [common], 1.0)):
            if not all(0 <= value <= top and value < math.inf for value in values):
                raise RecommendError(f"the {what} of the errors is impossible", got=values,
                                     allowed="0 or more" if top > 1 else "0 to 1")
        within = common + (1 - common) * np.eye(len(kinds))
        return cls(types, kinds, np.zeros(len(types) * len(kinds)), np.kron(np.diag(np.square(sds)), within))

    def given(self, gpu_type: str, log_ratio: Mapping[str, float], noise: float = NOISE) -> Belief:
        """The belief after ln(measured / modelled) of some kinds on a type is known, each with this sd of noise.

        With K = C[:, h] (C[h, h] + noise^2 I)^-1:  mean + K (y - mean[h]),  C - K C[h, :].
        """
        first = self.row(gpu_type) * len(self.kinds)
        seen = [first + self.kinds.index(kind) for kind in log_ratio]
        of_seen = self.covariance[:, seen]
        # What is certain (variance 0), measured without noise, has no inverse and needs none.
        gain = of_seen @ np.linalg.pinv(of_seen[seen] + noise**2 * np.eye(len(seen)), hermitian=True)
        mean = self.mean + gain @ (np.array(list(log_ratio.values())) - self.mean[seen])
        covariance = self.covariance - gain @ of_seen.T
        return replace(self, mean=mean, covariance=(covariance + covariance.T) / 2)

    def row(self, gpu_type: str) -> int:
        """Index of a type.

        Raises
        ------
        RecommendError
            It is none of the belief's.
        """
        if gpu_type not in self.types:
            raise RecommendError("nothing is believed about a GPU type", got=gpu_type, allowed=", ".join(self.types),
                                 todo=did_you_mean(gpu_type, self.types))
        return self.types.index(gpu_type)

    def draws(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """n draws of e: float64 [n, types, kinds]."""
        variance, axes = np.linalg.eigh(self.covariance)
        root = axes * np.sqrt(np.maximum(variance, 0.0))
        e = self.mean + rng.standard_normal((n, len(self.mean))) @ root.T
        return e.reshape(n, len(self.types), len(self.kinds))

    def under(self, request: Request, log_error: np.ndarray | None = None) -> Request:
        """The request as it is if the errors are `log_error` [types, kinds]; None: those of the mean."""
        e = self.mean if log_error is None else log_error
        rescaled = Rescaled(request.performance, self.types, self.kinds, e.reshape(len(self.types), len(self.kinds)))
        return replace(request, performance=rescaled, _judged={})
