"""Sia: its integer program against all choices, its factors by hand, its rounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.heterogeneous.sia import dealt, reallocation_factor
from policies.matching import configurations
from policies.matching.configurations import BEST, GREEDY, STOPPED, Menu, choose, greedy
from policies.registry import make
from sim.api import PolicyError
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance
from sim.performance.tables import Measurement, Point
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled
from tests.helpers import by_job, jobs, nodes, segments

# -- the program -------------------------------------------------------------------------------------------------------


def menu(saving, gpus, kind, count, there, owner=None, left=None) -> Menu:
    count = np.asarray(count)
    return Menu(np.asarray(saving, float), np.asarray(gpus) * 1000, np.asarray(kind), count,
                np.zeros(count.size, int) if owner is None else np.asarray(owner), np.asarray(there) * 1000,
                np.array([10**9]) if left is None else np.asarray(left) * 1000)


@st.composite
def menus(draw) -> Menu:
    groups, types, sizes = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    shape = groups, types * sizes
    cells = st.lists(st.integers(-2, 20), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    gpus = draw(st.lists(st.integers(1, 4), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return menu(np.reshape(draw(cells), shape) / 16, np.reshape(gpus, shape), np.repeat(np.arange(types), sizes),
                draw(st.lists(st.integers(1, 2), min_size=groups, max_size=groups)),
                draw(st.lists(st.integers(0, 6), min_size=types, max_size=types)),
                draw(st.lists(st.integers(0, 1), min_size=groups, max_size=groups)),
                [draw(st.integers(0, 12)), draw(st.integers(0, 12))])


def worth(one: Menu, given: np.ndarray) -> float:
    return float((one.saving * given).sum())


def apart(one: Menu) -> Menu:
    """Each job a group of its own."""
    again = np.repeat(np.arange(one.jobs.size), one.jobs)
    return Menu(one.saving[again], one.milli[again], one.kind, np.ones(again.size, int), one.owner[again], one.there,
                one.left)


def best_of_all(one: Menu) -> float:
    """The most that any choice saves: all of them are tried."""
    single, best = apart(one), 0.0
    for picked in itertools.product(range(-1, one.kind.size), repeat=single.jobs.size):
        given = np.zeros_like(single.milli)
        for i, c in enumerate(picked):
            if c >= 0:
                given[i, c] = 1
        if single.fits(given):
            best = max(best, worth(single, given))
    return best


@settings(max_examples=60)
@given(menus())
def test_the_choice_is_the_best_of_all_and_groups_lose_nothing(one: Menu) -> None:
    found = choose(one, 0.0, 2000)
    assert found.how == BEST and one.fits(found.given)
    assert worth(one, found.given) == pytest.approx(best_of_all(one), abs=1e-9)
    assert worth(apart(one), choose(apart(one), 0.0, 2000).given) == pytest.approx(best_of_all(one), abs=1e-9)


@settings(max_examples=60)
@given(menus())
def test_a_greedy_choice_fits_and_leaves_nothing_that_still_fits(one: Menu) -> None:
    given = greedy(one)
    assert one.fits(given)
    for g, c in np.argwhere(one.saving > 0):
        more = given.copy()
        more[g, c] += 1
        assert not one.fits(more)


def test_the_faster_type_goes_to_who_gains_most() -> None:
    """One GPU of each type; both jobs are faster on the first, the second job by more: 0.1 + 0.6 > 0.4 + 0.1."""
    found = choose(menu([[0.4, 0.1], [0.6, 0.1]], [[1, 1], [1, 1]], [0, 1], [1, 1], [1, 1]), 1e-4, 10)
    assert found.given.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(("x", "how"), [(None, GREEDY), (np.array([0.0, 1.0, 1.0, 0.0]), STOPPED),
                                        (np.array([1.0, 1.0, 1.0, 1.0]), GREEDY)])
def test_a_solver_that_stops_early_leaves_its_best_or_a_greedy_choice(monkeypatch, x, how) -> None:
    """What it leaves is held against what there is: the third answer takes GPUs that are not there."""

    class Stopped:
        status = 1

    Stopped.x = x
    monkeypatch.setattr(configurations.optimize, "milp", lambda *_, **__: Stopped)
    one = menu([[0.4, 0.1], [0.6, 0.1]], [[1, 1], [1, 1]], [0, 1], [1, 1], [1, 1])
    found = choose(one, 1e-4, 10)
    assert found.how == how and one.fits(found.given)
    assert found.given.tolist() == [[0, 1], [1, 0]]


def test_the_solver_says_nothing(capfd) -> None:
    with configurations._silent():
        configurations.os.write(1, b"of the solver\n")
    print("of ours")
    assert capfd.readouterr().out == "of ours\n"


def test_jobs_that_hold_what_their_group_is_given_keep_it() -> None:
    given = np.array([[1, 1], [0, 1]])
    group, held = np.array([0, 1, 0, 0]), np.array([1, -1, 1, 1])
    assert dealt(given, group, held).tolist() == [1, 1, 0, -1]


# -- the policy --------------------------------------------------------------------------------------------------------

V100, T4 = gpu_type("V100"), gpu_type("T4")


def test_the_reallocation_factor_by_hand() -> None:
    """(600 - 2 * 30) / 630; a job younger than a restart has 1, one that did nothing but restart 0."""
    found = reallocation_factor(np.array([600.0, 20.0, 60.0]), np.array([2, 0, 2]), 30.0)
    assert found.tolist() == pytest.approx([540 / 630, 1.0, 0.0])


def play(rows, models, rates, settings=None, engine=None, counts=(1, 1)) -> RunResult:
    """Jobs at rates model -> (on V100, on T4), of gangs of any size; on so many V100 and T4, each on one node."""
    spec = nodes(("V100", 1, counts[0]), ("T4", 1, counts[1]))
    table = MeasuredTable({
        Point(model, 0, kind, gang, 0): Measurement(rate * gang) for model, pair in rates.items()
        for kind, rate in zip(("V100", "T4"), pair, strict=True) for gang in (1, 2, 4) if rate is not None
    }, "by hand", "refuse")  # fmt: skip
    trace = jobs(rows, model=models, batch_size=[32] * len(rows))
    speeds = Performance(table=table)
    truth = Modelled(trace, spec, speeds, V100)
    return simulate(trace, spec, make("sia", settings or {}), truth,
                    EngineConfig(**{"preemption_overhead_s": 0.0, **(engine or {})}), performance=speeds)


def test_who_gains_most_by_the_fast_type_gets_it_whoever_came_first() -> None:
    """a is twice as fast on a V100, b four times: 2^-0.5 + 1 > 1 + 4^-0.5."""
    found = segments(play([(0, 50, 1), (0, 50, 1)], ["a", "b"], {"a": (2.0, 1.0), "b": (4.0, 1.0)}))
    assert found[found.begin_s == 0].set_index("job_id").gpu_ids.map(list).to_dict() == {"0": [1], "1": [0]}


def test_a_job_moves_to_the_fast_type_at_the_next_round_where_the_restart_pays() -> None:
    """b leaves the V100 at 50 s; at the round's end, 60 s, a moves to it (its factor is 60 / 62); c came at 10 s."""
    result = play([(0, 100, 1), (0, 50, 1), (10, 50, 1)], ["a", "b", "c"],
                  {"a": (2.0, 1.0), "b": (4.0, 1.0), "c": (1.0, 1.0)}, engine={"preemption_overhead_s": 2.0})
    found = segments(result)
    assert found[found.job_id == "0"][["begin_s", "end_reason"]].values.tolist() == [[0.0, "migrated"], [60.0, "done"]]
    assert by_job(result).first_start_s.tolist() == [0.0, 0.0, 60.0]
    assert by_job(result).end_s.tolist() == [60 + 2 + (200 - 60) / 2, 50.0, 110.0]


def test_a_job_stays_where_the_restart_does_not_pay() -> None:
    """1.05 times as fast, at a factor of 60 / 70."""
    found = segments(play([(0, 100, 1), (0, 50, 1)], ["a", "b"], {"a": (1.05, 1.0), "b": (4.0, 1.0)},
                          engine={"preemption_overhead_s": 10.0}))
    assert found[found.job_id == "0"].end_reason.tolist() == ["done"]


def test_a_type_that_does_not_run_a_job_or_has_no_rate_is_not_used() -> None:
    result = play([(0, 50, 1), (0, 50, 1)], ["a", "b"], {"a": (2.0, 0.0), "b": (2.0, None)}, counts=(1, 1))
    assert by_job(result).state.tolist() == ["done", "done"]  # one after the other, on the V100
    assert segments(result).gpu_ids.map(list).tolist() == [[0], [0]]


def test_with_scale_a_job_alone_takes_all_gpus() -> None:
    """4 V100 do four times the work of one."""
    result = play([(0, 100, 1)], ["a"], {"a": (1.0, 1.0)}, {"max_scale": 4}, counts=(4, 2))
    assert by_job(result).end_s.tolist() == [25.0]
    assert by_job(play([(0, 100, 1)], ["a"], {"a": (1.0, 1.0)}, counts=(4, 2))).end_s.tolist() == [100.0]


def test_costs_must_fall_with_speed() -> None:
    with pytest.raises(PolicyError, match="below 0"):
        play([(0, 50, 1)], ["a"], {"a": (2.0, 1.0)}, {"p": 0.5})
