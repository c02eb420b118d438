"""A search with more budget is never worse: what it judges begins with all that it judges with less."""

from __future__ import annotations

from itertools import pairwise, product
from types import SimpleNamespace

import pytest

from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.budget import Budget
from policies.recommend.searching.gather import METHODS, gather, gathered
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance

WIDE = Space(recompute=(False, True), mixed=True, tensor=(1, 2), orders=True)
FLEETS = {"A100": 4, "V100": 8}, {"T4": 16, "V100": 8}
JOBS = ("transformer-big", 256), ("vgg16", 256), ("bert-base", 128), ("gnmt-8", 256), ("lstm-lm", 160)
QUESTIONS = list(product(JOBS, FLEETS, (Space(), WIDE)))
assert len(QUESTIONS) == 20


def question(job, counts, space, **other):
    performance = Performance()
    fleet = Fleet(performance, [gpu_type(name) for name in counts], list(counts.values()))
    return Request(performance, *job, fleet, sum(counts.values()), space, **other)


def least(job, counts, space, methods, evaluations):
    """The plans judged, in order; least time, least cost, and both on one type."""
    asked = question(job, counts, space)
    found = gather(asked, methods, evaluations)
    single = [r for r in found if sum(n > 0 for n in r.counts) == 1]
    both = "iteration_s", "usd_per_iteration"
    return list(asked._judged), [min(getattr(r, what) for r in of) for of in (found, single) for what in both]


def never_worse(job, counts, space, methods, budgets):
    runs = [least(job, counts, space, methods, n) for n in budgets]
    for (less, before), (more, after) in pairwise(runs):
        assert more[: len(less)] == less and len(more) >= len(less)
        assert all(b <= a for a, b in zip(before, after, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("job", "counts", "space"), QUESTIONS)
def test_more_evaluations_are_never_worse(job, counts, space):
    never_worse(job, counts, space, ("data-parallel", "search"), (20, 60, 180))


@pytest.mark.slow
@pytest.mark.parametrize(("job", "counts", "space"), QUESTIONS[:1])  # all twenty held, too: five CPU minutes
def test_2000_evaluations_are_no_worse_than_500_and_6000_no_worse_than_2000(job, counts, space):
    never_worse(job, counts, space, METHODS, (500, 2000, 6000))


def test_two_stages_on_two_types_are_found_at_once():
    """BERT (large), 64 samples, on four A100 and eight V100: 37.88 ms in two stages, 44.00 ms on one type."""
    asked = question(("bert-large", 64), FLEETS[0], Space(mixed=False))
    best = min(gather(asked, METHODS, 0), key=lambda r: r.iteration_s)
    assert len(best.plan.stages) == 2 and all(best.counts)
    assert best.iteration_s == pytest.approx(37.8755e-3, rel=1e-4)
    single = least(("bert-large", 64), FLEETS[0], Space(), METHODS, 0)[1][2]
    assert single == pytest.approx(43.9985e-3, rel=1e-4)


def test_seconds_are_those_of_the_processor(monkeypatch):
    """Whatever the time of day does: 2 s are over when the process has used them."""
    now_s = [10.0]
    monkeypatch.setattr("policies.recommend.searching.budget.time", SimpleNamespace(process_time=lambda: now_s[0]))
    budget = Budget(question(JOBS[1], FLEETS[0], Space()), 2.0)
    assert not budget.over
    now_s[0] = 11.9
    assert not budget.over and budget.spent_s == pytest.approx(1.9)
    now_s[0] = 12.0
    assert budget.over and budget.end("").reason == "2 s of the processor were used"


def test_a_search_says_why_it_ended():
    asked = question(JOBS[1], FLEETS[0], Space())
    _, ended = gathered(asked, ("search",), 40)
    assert not ended.early and ended.reason == "40 plans were judged" and ended.evaluations >= 40
    _, ended = gathered(question(JOBS[1], FLEETS[0], Space(), seconds=0.0), ("search",))
    assert not ended.early and ended.reason == "0 s of the processor were used"
    only = question(JOBS[1], {"V100": 1}, Space(micro_batches=(1,)), seconds=600.0)
    found, ended = gathered(only, ("search",))
    assert ended.early and "bounds" in ended.reason and len(found) == 1
    nothing = question(("gpt3-13b", 4), {"T4": 1}, Space(), seconds=600.0)
    found, ended = gathered(nothing, ("search",))
    assert ended.early and "begin" in ended.reason and not found
    assert gathered(only, ("exact",))[1] is None
