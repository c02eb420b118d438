"""A planner that mixes GPU types but is blind to operators: to it a type has one speed for all of them.

It knows how long the whole model takes on each type, for any number of samples x, and what share of that each operator
has on average over the N types of the fleet; so it believes that operator o takes, forward (backward alike),

    T_t(x) (1 / N) sum over types u of  f_ou(x) / T_u(x),        T_t(x) = sum over o of (f_ot(x) + b_ot(x)).

Of one stage on one type this is the truth. Memory, messages, sums of gradients, the optimizer's step and prices it
knows as they are, and of each combination of GPU counts that it considers its plan is judged by the truth: what it
can't tell is only which operators suit which type. What it loses against a planner that can is the value of that
(`why_mixing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from policies.recommend.methods.search import Search, in_turns
from policies.recommend.request.ground import Ground
from policies.recommend.request.pace import measured
from policies.recommend.request.request import Recommendation, Request
from policies.recommend.searching.bounds import Bound
from policies.recommend.searching.budget import Budget
from policies.recommend.searching.gather import proposed
from policies.recommend.searching.moves_cuts import balance
from policies.recommend.searching.sharding import tidied
from policies.recommend.searching.two_stages import two_stages
from sim.api import Plan
from sim.performance import GpuType, Performance

NAME = "blind"
"""As the method that found a plan."""
SHARE = 0.25
"""Of the search's seconds or evaluations; it begins with the GPUs, stages and micro-batches of all that was found."""


class OneSpeed(Performance):
    """A performance model to which operators differ alike on all types (module text).

    Parameters
    ----------
    base : the truth; memory, links and all else are its own.
    types : the fleet's.
    """

    def __init__(self, base: Performance, types: Sequence[GpuType]) -> None:
        super().__init__(
            base.links, base.table, schedule=base.schedule, calibration=base.calibration, graphs=base.graphs,
            blocking=base.blocking, overlap=base.overlap, exchange=base.exchange, optimizer=base.optimizer,
            context_gib=base.context_gib,
        )  # fmt: skip
        self._base, self._on = base, tuple(types)
        # Graphs do not depend on times.
        self._shares = base._shares

    def _operator_times_s(self, model: str, samples: float, gpu: GpuType, ways: int) -> tuple[np.ndarray, np.ndarray]:
        graph = self._share(model, ways)
        known = [self._base._times(model, samples, one, ways) for one in self._on if measured(graph, one)]
        shares = [(times.fwd_s, times.bwd_s) / (times.fwd_s.sum() + times.bwd_s.sum()) for times in known]
        own = self._base._times(model, samples, gpu, ways)
        fwd_s, bwd_s = np.mean(shares, axis=0) * (own.fwd_s.sum() + own.bwd_s.sum())
        return fwd_s, bwd_s


class _Unbounded(Search):
    """A search that asks no bounds: they are of the truth, which a belief may undercut."""

    bound = Bound(0.0, 0.0)


def mixes(r: Recommendation) -> bool:
    """Whether a plan is on several types."""
    return sum(n > 0 for n in r.counts) > 1


def may_mix(request: Request) -> bool:
    """Whether the request has plans on several types."""
    return len(request.fleet.present) > 1 and not request.space.single_type and not request.measured


def blind_plans(
    request: Request, found: Sequence[Recommendation], evaluations: int | None = None, *, share: float = SHARE,
    believed: Performance | None = None,
) -> list[Recommendation]:
    """Its plans on several types, one for each combination of GPU counts, as they are in truth, fastest first.

    Parameters
    ----------
    found : what was found for the request by planners that see operators. Its GPUs, stages and micro-batches are where
        this one begins, with cuts of its own.
    evaluations : as the search of `found` was given; None: `request.seconds` were.
    share : the part of evaluations, or seconds, that its own search may spend.
    believed : None: `OneSpeed`. With the truth itself this planner sees operators; what it still loses is the search's.
    """
    if not may_mix(request):
        return []
    believed = believed or OneSpeed(request.performance, [request.fleet.types[t] for t in request.fleet.present])
    belief = replace(request, performance=believed, found_by={}, _judged={}, _shared={})
    beginning = list(_begin(request, belief, found))
    walk = _Unbounded(belief, beginning)
    in_turns([walk], Budget(belief, share * request.seconds, None if evaluations is None else int(share * evaluations)))
    plans = request.judged(r.plan for r in walk.found.values() if mixes(r))
    for r in plans:
        request.found_by.setdefault(r.plan, NAME)
    return plans


def _begin(request: Request, belief: Request, found: Sequence[Recommendation]) -> Iterator[Plan]:
    """What was found, cut anew by belief; plans of the methods that mixed types; all plans of two stages."""
    ground, rng, evened = Ground(belief), np.random.default_rng([request.seed, 6]), tidied(balance)
    for r in found:
        yield evened(r.plan, ground, rng) or r.plan
    mixing = dict.fromkeys(name for plan, name in request.found_by.items() if len({p.gpu_type for p in plan.parts}) > 1)
    for name in mixing:
        if name not in ("search", "least memory", NAME):
            yield from proposed(belief, name, ground)
    yield from two_stages(belief)
