"""What a measured table says of points that nobody measured: the rules, as functions of one axis.

    interpolate   between two measured x: log T is linear in log x (a straight line on doubly logarithmic paper)
    linear        beyond the last: T in proportion to work, T = T1 u / u1
    amdahl        beyond the last: T = a + b u through the two nearest, a and b >= 0 (else the constant or the
                  proportional law through the nearest)

with u = x for the batch and u = 1 / x for the number of GPUs (the batch is the whole job's, so that twice the
GPUs have half the work each). 'linear' is a bound: no job speeds up more. No rule crosses GPU types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SOURCES = ("measured", "interpolated", "extrapolated")
"""Where a rate comes from, the best first."""
GAPS = ("refuse", "interpolate", "amdahl", "linear")
"""What to do where nothing was measured; the last two interpolate, too."""


@dataclass(frozen=True)
class Told:
    """Seconds an iteration (inf: does not fit), and its source."""

    iteration_s: float
    source: str = "measured"

    def no_better_than(self, *others: Told) -> Told:
        """The same, with the worst source of all."""
        return Told(self.iteration_s, max((self.source, *(o.source for o in others)), key=SOURCES.index))


def batch_work(batch_size: float) -> float:
    """What a longer batch adds to."""
    return batch_size


def gpu_work(gpus: float) -> float:
    """What each GPU has left to do of the whole."""
    return 1.0 / gpus


def tell(
    x: float, known: Mapping[int, Told], gaps: str, work: Callable[[float], float] | None
) -> Told | None:
    """Tell T at x from T at the `known` x; None where the rule does not allow it.

    Parameters
    ----------
    gaps : one of `GAPS`.
    work : u as a function of x, for 'linear' and 'amdahl'; None: beyond the last x, T is that of the nearest (for
        numbers of nodes: no more is known of them than that they are many).

    A neighbour at which the job did not fit (T = inf) tells nothing of what is next to it.
    """
    if x in known:
        return known[int(x)]
    below = sorted(k for k in known if k < x)
    above = sorted((k for k in known if k > x), reverse=True)
    if gaps == "refuse" or not (below or above):
        return None
    if below and above:
        return _between(x, below[-1], above[-1], known)
    # The nearest comes last in either list.
    return _beyond(x, below or above, known, gaps, work)


def _between(x: float, low: int, high: int, known: Mapping[int, Told]) -> Told | None:
    first, second = known[low], known[high]
    if math.isinf(first.iteration_s) or math.isinf(second.iteration_s):
        return None
    share = math.log(x / low) / math.log(high / low)
    time_s = first.iteration_s ** (1 - share) * second.iteration_s**share
    return Told(time_s, "interpolated").no_better_than(first, second)


def _beyond(
    x: float, side: list[int], known: Mapping[int, Told], gaps: str, work: Callable[[float], float] | None
) -> Told | None:
    near_s = known[side[-1]].iteration_s
    if gaps not in ("amdahl", "linear") or math.isinf(near_s):
        return None
    if work is None:
        return Told(near_s, "extrapolated")
    u, near = work(x), work(side[-1])
    fixed_s, per_work_s = 0.0, near_s / near
    if gaps == "amdahl":
        if len(side) < 2 or math.isinf(known[side[-2]].iteration_s):
            return None
        far = work(side[-2])
        slope = max(0.0, (known[side[-2]].iteration_s - near_s) / (far - near))
        if slope * near <= near_s:
            fixed_s, per_work_s = near_s - slope * near, slope
    return Told(fixed_s + per_work_s * u, "extrapolated")
