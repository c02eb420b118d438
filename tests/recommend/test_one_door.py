"""Who names no method gets those that suit the size and shape of the model and the fleet, and hears what they prove."""

from __future__ import annotations

from itertools import pairwise

import pytest

from policies.recommend.methods import proves
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.gather import METHODS, gather, gathered, usual_methods
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from tests.recommend.test_method_chains import line


def asked(performance, model, counts, **space):
    fleet = Fleet(performance, [gpu_type(name) for name in counts], list(counts.values()), (8,) * len(counts))
    return Request(performance, model, 64, fleet, sum(counts.values()), Space(**space))


@pytest.mark.parametrize(("operators", "counts", "chain"), [
    (10, {"V100": 4, "T4": 4}, True), (100, {"V100": 4, "T4": 4}, True), (1000, {"V100": 4, "T4": 4}, True),
    (100, {"V100": 64, "T4": 64}, False), (10, {"V100": 64, "T4": 64, "A100": 64}, False),
])
def test_the_chain_is_asked_where_its_table_is_small(operators, counts, chain):
    methods = usual_methods(asked(line(operators), "made", counts))
    assert ("chain" in methods) == chain and {*METHODS} <= {*methods} and methods[-1] == "search"


def test_one_operator_has_nothing_to_cut():
    request = asked(line(1), "made", {"V100": 4, "T4": 4})
    short, long = usual_methods(request), (*METHODS[:-1], "chain", "search")
    assert short == ("exact", "uneven", "search")
    best = [gather(asked(line(1), "made", {"V100": 4, "T4": 4}), names, 50)[0].iteration_s for names in (short, long)]
    assert best[0] == pytest.approx(best[1], rel=1e-9)


def test_what_the_chain_finds_counts_as_searched_and_more_of_it_is_only_added():
    """No plan of it is judged on a budget of 0; with less budget the beginning of what is judged with more."""
    runs = []
    for evaluations in (0, 30, 90, 400):
        request = asked(Performance(), "bert-large", {"A100": 4, "V100": 8})
        found, ended = gathered(request, usual_methods(request), evaluations)
        assert ended is not None and ended.evaluations <= evaluations + 1
        assert (proves("chain", request) is not None) == (evaluations > 0)
        runs.append((list(request._judged), found[0].iteration_s))
    for (less, before), (more, after) in pairwise(runs):
        assert more[: len(less)] == less and after <= before
    assert runs[3][1] < runs[0][1]


def test_few_blocks_are_exact_and_it_is_said():
    request = asked(line(5), "made", {"V100": 4, "T4": 4})
    assert proves("exact", request) == 0
    assert proves("exact", asked(line(40), "made", {"V100": 4, "T4": 4})) is None
    assert proves("search", request) is None
