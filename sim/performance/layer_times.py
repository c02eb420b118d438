"""Times of a model's operators (or layers) as someone measured them: by GPU type, tensor degree and micro-batch.

Between two measured micro-batches, for each operator and pass

    log T is linear in log x,    x the samples of the micro-batch, T the seconds

and beyond them T = a + b x through the two nearest, a, b >= 0 (one micro-batch alone: in proportion to x). On a type
that was not measured a time is refused, or, where the profile says from which type, scaled by `wave`; that of a tensor
degree that was not measured is always refused, since the sums over its GPUs are part of the times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from traces.errors import HetsimError

SOURCES = ("measured", "interpolated", "extrapolated", "predicted")
"""Where a time comes from, the surest first: as measured; between two measured micro-batches; beyond them; from
another GPU type."""


class PerformanceError(HetsimError):
    """A model, GPU type or plan whose speed cannot be told."""


class NotMeasuredError(PerformanceError):
    """Layers were measured, but not on this GPU type with this tensor degree."""


@dataclass(frozen=True, eq=False)
class Timing:
    """One measurement of all operators.

    Attributes
    ----------
    samples : samples that were timed at once.
    fwd_s, bwd_s : float64 [ops], seconds on one of the GPUs that share each operator.
    update_s : float64 [ops], seconds of the optimizer's step; None: not measured.
    """

    samples: float
    fwd_s: np.ndarray
    bwd_s: np.ndarray
    update_s: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Profile:
    """Measured times of a graph's operators.

    Attributes
    ----------
    timings : by GPU type and tensor degree, of rising samples; the type is '' where the source does not name it.
    source : the file, for messages.
    value_bytes : bytes of a value in what was measured: 2 (mixed precision) or 4 (single).
    shares : by tensor degree above 1, the columns of the graph that are another on one of so many GPUs, `out_bytes`
        among them: float64 [ops] each.
    scaled_from : type from whose times those of a type without any are predicted; None: such a type is refused.
    ways : tensor degree of this view.
    notes : what the source does not tell, in words.
    """

    timings: Mapping[tuple[str, int], tuple[Timing, ...]]
    source: str
    value_bytes: int = 4
    shares: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    scaled_from: str | None = None
    ways: int = 1
    notes: tuple[str, ...] = ()
    _steps: dict[tuple[str, int], np.ndarray | None] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of_one(
        cls, fwd_s: np.ndarray, bwd_s: np.ndarray, samples: float, gpu: str, source: str,
        notes: tuple[str, ...] = (),
    ) -> Profile:  # fmt: skip
        """Times of one minibatch on one GPU of one type, from which other types are predicted."""
        return cls({(gpu, 1): (Timing(samples, fwd_s, bwd_s),)}, source, scaled_from=gpu, notes=notes)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The types that were measured, in any degree."""
        return tuple(dict.fromkeys(gpu for gpu, _ in self.timings))

    @property
    def degrees(self) -> tuple[int, ...]:
        """Tensor degrees that were measured on some type, or whose sizes are known."""
        return tuple(sorted({ways for _, ways in self.timings} | set(self.shares)))

    def only(self) -> tuple[str, Timing]:
        """The type and the measurement, where there is one alone.

        Raises
        ------
        PerformanceError
            There are several: which is meant?
        """
        found = [(gpu, timing) for (gpu, ways), many in self.timings.items() for timing in many if ways == self.ways]
        if len(found) != 1:
            raise PerformanceError(
                "several measurements, where one is needed", where=self.source,
                got=f"{len(found)} of degree {self.ways}", allowed="times of one minibatch on one GPU type",
                todo="Take a profile of one.",
            )  # fmt: skip
        return found[0]

    @property
    def gpu(self) -> str:
        """The type, where there is one measurement alone; raises as `only`."""
        return self.only()[0]

    @property
    def samples(self) -> float:
        """Samples of the measurement, where there is one alone; raises as `only`."""
        return self.only()[1].samples

    @property
    def fwd_s(self) -> np.ndarray:
        """Seconds forward of the measurement, where there is one alone; raises as `only`."""
        return self.only()[1].fwd_s

    @property
    def bwd_s(self) -> np.ndarray:
        """Seconds backward of the measurement, where there is one alone; raises as `only`."""
        return self.only()[1].bwd_s

    def of_degree(self, ways: int) -> Profile:
        """The view of one of `ways` GPUs."""
        return replace(self, ways=ways)

    def reordered(self, at: np.ndarray) -> Profile:
        """Operator `at[i]` of this profile is number i."""
        timings = {
            key: tuple(
                replace(one, fwd_s=one.fwd_s[at], bwd_s=one.bwd_s[at],
                        update_s=None if one.update_s is None else one.update_s[at])
                for one in many
            )
            for key, many in self.timings.items()
        }  # fmt: skip
        shares = {ways: {name: column[at] for name, column in of.items()} for ways, of in self.shares.items()}
        return replace(self, timings=timings, shares=shares)

    def measures(self, gpu: str) -> bool:
        """Whether there are times in this degree for `gpu`: its own, or those from which it is predicted."""
        return (gpu, self.ways) in self.timings or (self.scaled_from, self.ways) in self.timings

    def measured_on(self, gpu: str) -> str:
        """The type whose times are taken for `gpu`: itself, or that from which it is predicted.

        Raises
        ------
        NotMeasuredError
            Neither was measured in this degree; the message names the types and degrees that were.
        """
        if (gpu, self.ways) in self.timings:
            return gpu
        if self.scaled_from is not None and (self.scaled_from, self.ways) in self.timings:
            return self.scaled_from
        here = sorted(name for name, ways in self.timings if ways == self.ways)
        degrees = sorted(ways for name, ways in self.timings if name == gpu)
        raise NotMeasuredError(
            "no layer was measured on this GPU type with this tensor degree",
            where=self.source, got=f"{gpu}, tensor {self.ways}",
            allowed=f"tensor {self.ways} of {', '.join(here) or 'no type'}; {gpu} with tensor "
            f"{', '.join(map(str, degrees)) or 'none'}",
            todo="Take other GPUs or another degree, measure it, or have it predicted from a measured type of the same "
            "degree (--layers-from TYPE).",
        )

    def measured_samples(self, gpu: str) -> tuple[float, ...]:
        """Samples that were timed at once in this degree on a type, or on that from which it is predicted.

        Raises
        ------
        NotMeasuredError
            None was.
        """
        return tuple(one.samples for one in self._of(gpu))

    def least_degree(self, gpu: str) -> int:
        """The least tensor degree in which a type, or that from which it is predicted, was measured.

        Raises
        ------
        NotMeasuredError
            In none.
        """
        found = [ways for name, ways in self.timings if name in (gpu, self.scaled_from)]
        if not found:
            self.measured_on(gpu)
        return min(found)

    def times_s(self, gpu: str, samples: float) -> tuple[np.ndarray, np.ndarray, str]:
        """Seconds of each operator forward and backward on a measured type, and one of `SOURCES`.

        Raises
        ------
        NotMeasuredError
            Not measured there in this degree.
        """
        many = self._of(gpu)
        at = [one.samples for one in many]
        if samples in at:
            one = many[at.index(samples)]
            return one.fwd_s, one.bwd_s, "measured"
        over = int(np.searchsorted(at, samples))
        if 0 < over < len(many):
            a, b = many[over - 1], many[over]
            share = np.log(samples / a.samples) / np.log(b.samples / a.samples)
            return _between(a.fwd_s, b.fwd_s, share), _between(a.bwd_s, b.bwd_s, share), "interpolated"
        pair = many[:2] if over == 0 else many[: -3 : -1]
        fwd_s, bwd_s = (_beyond([(one.samples, getattr(one, of)) for one in pair], samples)
                        for of in ("fwd_s", "bwd_s"))  # fmt: skip
        return fwd_s, bwd_s, "extrapolated"

    def update_s(self, gpu: str) -> np.ndarray | None:
        """Seconds of each operator's optimizer step on a measured type: the median of its micro-batches, float64 [ops].

        The step does not depend on the batch. None: it was not measured.
        """
        key = gpu, self.ways
        if key not in self._steps:
            known = [one.update_s for one in self._of(gpu) if one.update_s is not None]
            self._steps[key] = np.asarray(np.median(known, axis=0)) if known else None
        return self._steps[key]

    def _of(self, gpu: str) -> tuple[Timing, ...]:
        return self.timings[self.measured_on(gpu), self.ways]


def worst(sources: list[str]) -> str:
    """The least sure of `SOURCES`."""
    return max(sources, key=SOURCES.index)


def _between(a: np.ndarray, b: np.ndarray, share: float) -> np.ndarray:
    """Linear in logarithms; linear where one is 0, which has none."""
    both = (a > 0) & (b > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(both, a ** (1 - share) * b**share, a + share * (b - a))


def _beyond(pair: list[tuple[float, np.ndarray]], samples: float) -> np.ndarray:
    """a + b x through the nearest and the next measurement, both 0 or more; the nearest comes first."""
    near, near_s = pair[0]
    if len(pair) == 1:
        return near_s * (samples / near)
    far, far_s = pair[1]
    slope = np.clip((far_s - near_s) / (far - near), 0.0, near_s / near)
    return np.asarray(near_s + slope * (samples - near))
