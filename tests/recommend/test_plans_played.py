"""Plans that are recommended, played event by event: the predicted time is what the machine takes."""

from __future__ import annotations

import numpy as np
import pytest

from policies.recommend.methods import method
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space, by_counts
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, training
from tests.performance.twins import Twin

FLEETS = {
    "V100:4,P100:4": (("V100", "P100"), (4, 4)),
    "V100:8,T4:8,K80:8": (("V100", "T4", "K80"), (8, 8, 8)),
}
JOBS = [("gpt2-1.5b", 32), ("bert-large", 32), ("vgg16", 128), ("resnet50", 256), ("transformer", 256), ("lstm-lm", 80)]


def pipelines(model: str, batch: int, fleet: str, performance: Performance) -> list:
    """Of the plans of two stages or more: the fastest, the one in the middle, the slowest, and one of several types."""
    names, counts = FLEETS[fleet]
    request = Request(performance, model, batch, Fleet(performance, [gpu_type(n) for n in names], counts),
                      sum(counts), Space(recompute=(False, True)))
    proposed = [plan for name in ("exact", "hetpipe") for plan in method(name).propose(request)]
    found = list(by_counts(request.judged(plan for plan in proposed if len(plan.stages) > 1)))
    mixed = [r for r in found if sum(n > 0 for n in r.counts) > 1]
    chosen = [found[0], found[len(found) // 2], found[-1], *mixed[:1]] if found else []
    return [(request, r) for r in dict.fromkeys(chosen)]


def test_twenty_plans_and_more_take_in_the_twin_what_was_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage and message times are the model's; how they overlap, wait and queue on links is played.

    An iteration ends when the last stage has ended its last backward pass, summed its gradients and stepped.
    """
    seen: dict = {}
    real = training.pipeline_iteration

    def watched(schedule, fwd, bwd, there, m, reduce, update, *args, **kwargs):
        seen.update(schedule=schedule, fwd=fwd, bwd=bwd, there=there, back=kwargs["comm_bwd"], m=m,
                    after=np.add(reduce, update), chunks=kwargs["chunks"])
        return real(schedule, fwd, bwd, there, m, reduce, update, *args, **kwargs)

    monkeypatch.setattr(training, "pipeline_iteration", watched)
    errors = []
    for model, batch in JOBS:
        for fleet in FLEETS:
            for request, r in pipelines(model, batch, fleet, Performance()):
                fresh = Performance()
                fresh.plan(model, batch, r.plan, request.fleet.gpus(r.plan), request.fleet.spec)
                twin = Twin(seen["schedule"], seen["fwd"], seen["bwd"], seen["there"], seen["back"], seen["m"],
                            chunks=seen["chunks"])
                played_s = float(np.max(np.asarray(twin.last_end) + seen["after"]))
                errors.append(played_s / r.iteration_s - 1)
    print(f"{len(errors)} plans, worst {max(map(abs, errors)):.2e}")
    assert len(errors) >= 20
    assert max(map(abs, errors)) < 1e-9
