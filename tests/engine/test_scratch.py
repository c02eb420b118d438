"""What would be free if, and from what is to what should be: the scratch ledger and targets, by hand and by law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.api import Decision, Gang, HetsimError, Jobs, Part, Placement, Plan, Stage, View
from sim.cluster.spec import ClusterSpec, Ledger
from sim.engine.viewsetup import AS_SUBMITTED
from tests.helpers import nodes
from traces.columns import BY_NAME

MIXED = nodes(("V100", 2, 4), ("T4", 2, 2))
"""GPUs 0 to 3 and 4 to 7 are V100, 8 to 9 and 10 to 11 T4."""


class World:
    """A cluster and its jobs in the middle of a run: what each holds is put there by hand."""

    def __init__(self, cluster: ClusterSpec, *gangs: Gang, quota: dict[int, int] | None = None) -> None:
        n = len(gangs)
        num_gpus, milli, worker = (np.array([g[i] for g in gangs], dtype=np.int32) for i in range(3))
        vc = np.array([g.vc or 0 for g in gangs], dtype=np.int32)
        self.ledger = Ledger(cluster)
        self.jobs = Jobs(
            np.arange(n).astype(str).astype(object), np.zeros(n), num_gpus, milli, worker, num_gpus * milli / 1000.0,
            np.array([g.types for g in gangs], dtype=np.uint64), vc, ("a", "b"),
            **{name: BY_NAME[name].defaults(n) for name in ("deadline_kind", *AS_SUBMITTED)},
        )
        self.view = View(self.jobs, cluster, self.ledger)
        for index, left in (quota or {}).items():
            self.view.vc_left[index] = left
        self.held: dict[int, Placement] = {}
        self.queued = set(range(n))
        self._sync()

    def hold(self, row: int, gpus: list[int] | np.ndarray, plan: Plan | None = None) -> None:
        placement = Placement(np.array(gpus, dtype=np.int32), plan)
        milli, vc = int(self.jobs.gpu_milli[row]), self.jobs.vc[row]
        assert self.ledger.take(placement.gpus, milli) < 0, "GPUs are free"
        self.view.vc_left[vc] -= placement.gpus.size * milli
        self.held[row] = placement
        self.queued.remove(row)
        self._sync()

    def release(self, row: int) -> None:
        gpus, milli = self.held.pop(row).gpus, int(self.jobs.gpu_milli[row])
        self.ledger.give(gpus, milli)
        self.view.vc_left[self.jobs.vc[row]] += gpus.size * milli
        self.queued.add(row)
        self._sync()

    def apply(self, decision: Decision) -> None:
        """Carry a decision out in the engine's order, which refuses what the ledger refuses."""
        for row in [*decision.stop, *(row for row, _ in decision.move)]:
            self.release(row)
        for row, placement in [*decision.move, *decision.start]:
            self.hold(row, placement.gpus, placement.plan)

    def _sync(self) -> None:
        """The view's standing arrays, as the engine keeps them."""
        view = self.view
        view.running = np.array(sorted(self.held), dtype=np.int32)
        view.queued = np.array(sorted(self.queued), dtype=np.int32)
        sizes = [self.held[row].gpus.size if row in self.held else 0 for row in range(len(self.jobs))]
        view.slot_n[:] = sizes
        view.slot_at[:] = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        view.slots = np.concatenate([np.empty(0, dtype=np.int32), *(p.gpus for _, p in sorted(self.held.items()))])
        view.placed = {row: p for row, p in self.held.items() if p.plan is not None or p.milli}


def gpus(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int32)


# -- the scratch ledger --------------------------------------------------------------------------------------


def test_a_scratch_is_a_copy() -> None:
    world = World(MIXED, Gang(4))
    scratch = world.view.scratch()
    other = scratch.copy()
    assert scratch.take(gpus(0, 1, 8))
    assert scratch.idle.tolist() == [2, 4, 1, 2] and scratch.type_idle.tolist() == [6, 3]
    for untouched in (other, world.view):
        assert untouched.idle.tolist() == [4, 4, 2, 2] and untouched.type_idle.tolist() == [8, 4]


def test_what_a_gpu_lacks_is_not_taken() -> None:
    scratch = World(MIXED, Gang(1, vc=0), quota={0: 3000}).view.scratch()
    assert scratch.take(gpus(0), 600, vc=0)
    assert not scratch.take(gpus(1, 0), 500, vc=0)
    assert not scratch.take(gpus(12))
    assert scratch.milli[:2].tolist() == [400, 1000] and scratch.vc_left[0] == 2400
    scratch.give(gpus(0), 600, vc=0)
    assert scratch.type_idle.tolist() == [8, 4] and scratch.vc_left[0] == 3000


def test_a_job_is_placed_by_rule_on_its_types_and_within_its_quota() -> None:
    world = World(MIXED, Gang(2, types=2, vc=0), Gang(2, vc=1), quota={1: 1000})
    scratch = world.view.scratch()
    assert scratch.place(0).tolist() == [8, 9]
    assert scratch.place(1) is None, "one GPU is left of its quota"
    assert scratch.place(scratch.gang(1)._replace(num_gpus=1), "first-fit").tolist() == [0]
    assert scratch.vc_left[1] == 0
    assert scratch.place(Gang(3, 500), "best-fit").tolist() == [1, 1, 2], "shares fill a GPU"
    assert scratch.place(Gang(4, worker_gpus=4)).tolist() == [4, 5, 6, 7]


def test_counts_by_type_are_taken_whole_or_not_at_all() -> None:
    scratch = World(MIXED, Gang(1, vc=0), quota={0: 8000}).view.scratch()
    before = scratch.milli.copy()
    assert scratch.place_by_type(np.array([2, 5]), vc=0) is None, "there are four T4"
    assert scratch.place_by_type(np.array([6, 3]), vc=0) is None, "eight GPUs of quota"
    assert (scratch.milli == before).all() and scratch.vc_left[0] == 8000
    assert scratch.place_by_type(np.array([2, 3]), vc=0).tolist() == [0, 1, 8, 9, 10]
    assert scratch.vc_left[0] == 3000 and scratch.type_milli().tolist() == [6000, 1000]


def test_without_running_jobs_their_gpus_and_quota_are_free() -> None:
    world = World(MIXED, Gang(2, vc=0), Gang(2, 500, vc=1), quota={0: 2000, 1: 1500})
    world.hold(0, [0, 1])
    world.hold(1, [2, 2])
    scratch = world.view.scratch(without=[1])
    assert scratch.milli[:4].tolist() == [0, 0, 1000, 1000] and scratch.idle[0] == 2
    assert scratch.vc_left.tolist() == [0, 1500]
    assert world.view.scratch().vc_left.tolist() == [0, 500]
    assert world.view.scratch().emptied().type_idle.tolist() == [8, 4]


# -- targets by hand -----------------------------------------------------------------------------------------


def commands(decision: Decision) -> tuple[list[int], dict[int, list[int]], dict[int, list[int]]]:
    """Stops, moves and starts, with their GPUs."""
    moves, starts = ({row: p.gpus.tolist() for row, p in some} for some in (decision.move, decision.start))
    return decision.stop, moves, starts


def test_who_has_what_it_should_have_stays() -> None:
    world = World(MIXED, *[Gang(2)] * 4)
    for row, held in enumerate(([0, 1], [2, 3], [8, 9])):
        world.hold(row, held)
    target = {0: Placement(gpus(1, 0)), 2: {"V100": 2}, 3: {"t4": 2}}
    assert commands(Decision.toward(world.view, target)) == ([1], {2: [2, 3]}, {3: [8, 9]})


def test_jobs_may_change_places() -> None:
    world = World(MIXED, Gang(4), Gang(4))
    world.hold(0, [0, 1, 2, 3])
    world.hold(1, [4, 5, 6, 7])
    target = {0: Placement(gpus(4, 5, 6, 7)), 1: Placement(gpus(0, 1, 2, 3))}
    decision = Decision.toward(world.view, target)
    assert commands(decision) == ([], {0: [4, 5, 6, 7], 1: [0, 1, 2, 3]}, {})
    world.apply(decision)


def test_a_named_placement_comes_before_a_job_that_would_stay() -> None:
    world = World(MIXED, Gang(4), Gang(4))
    world.hold(0, [0, 1, 2, 3])
    decision = Decision.toward(world.view, {0: {"V100": 4}, 1: Placement(gpus(0, 1, 2, 3))})
    assert commands(decision) == ([], {0: [4, 5, 6, 7]}, {1: [0, 1, 2, 3]})


def test_counts_that_cannot_be_placed_leave_jobs_as_they_are() -> None:
    """Eight V100 and nothing for a ninth: job 0 keeps its T4, job 2 waits, job 3 has lost its place and stops."""
    world = World(MIXED, Gang(2), Gang(8), Gang(1), Gang(1))
    world.hold(0, [8, 9])
    world.hold(3, [0])
    decision = Decision.toward(world.view, {1: {"V100": 8}, 0: {"V100": 2}, 2: {"V100": 1}, 3: {0: 2}})
    assert commands(decision) == ([3], {}, {1: list(range(8))})


def test_another_plan_on_the_same_gpus_is_a_move_another_prediction_is_not() -> None:
    def two(first: str, second: str, iteration_s: float) -> Plan:
        return Plan((Stage(0, 3, first, 2), Stage(4, 7, second, 1)), 4, iteration_s)

    world = World(MIXED, Gang(3))
    world.hold(0, [0, 1, 8], two("V100", "T4", 0.5))
    same = Placement(gpus(1, 0, 8), two("V100", "T4", 0.7))
    assert commands(Decision.toward(world.view, {0: same})) == ([], {}, {})
    assert commands(Decision.toward(world.view, {0: {"V100": 2, "T4": 1}})) == ([], {}, {})
    wider = Placement(gpus(0, 1, 8), Plan(two("V100", "T4", 0.5).stages, 8))
    assert commands(Decision.toward(world.view, {0: wider})) == ([], {0: [0, 1, 8]}, {})
    turned = Placement(gpus(0, 8, 1), two("V100", "T4", 0.5))
    assert not turned.same(world.held[0]), "GPUs of another part"
    parts = Placement(gpus(0, 1, 8), Plan((Stage(0, 7, "V100", 3, parts=(Part("V100", 2, 0.8), Part("T4", 1, 0.2))),)))
    assert not parts.same(world.held[0]) and not Placement(gpus(0, 1, 8)).same(world.held[0])


@pytest.mark.parametrize(("counts", "said"), [({"V10": 1}, "did you mean 'V100'"), ({7: 1}, "index below 2"),
                                              ({"T4": -1}, "0 or more")])
def test_a_target_that_means_nothing_is_refused(counts: dict[Any, int], said: str) -> None:
    with pytest.raises(HetsimError, match=said):
        Decision.toward(World(MIXED, Gang(1)).view, {0: counts})


# -- targets by law ------------------------------------------------------------------------------------------


@st.composite
def changes(draw: st.DrawFn) -> tuple[World, dict[int, Placement | dict[int, int]]]:
    """A world in which some jobs run, and a target that is possible: each job named, by counts, or not in it."""
    shares = draw(st.lists(st.sampled_from([1000, 1000, 500, 300]), min_size=1, max_size=6))
    world = World(MIXED, *(Gang(draw(st.integers(1, 5)), milli) for milli in shares))
    for row in range(len(shares)):
        rule = draw(st.sampled_from(["none", "count", "best-fit"]))
        if rule != "none" and (found := world.view.scratch().place(row, rule)) is not None:
            world.hold(row, found)
    whole = world.view.scratch().emptied()
    target: dict[int, Placement | dict[int, int]] = {}
    for row in draw(st.permutations(range(len(shares)))):
        gang = whole.gang(row)._replace(types=draw(st.sampled_from([1, 2, 3])))
        kind = draw(st.sampled_from(["named", "counts", "none", "held"]))
        if kind == "held" and row in world.held and whole.take(held := world.held[row].gpus, gang.gpu_milli):
            target[row] = Placement(np.array(draw(st.permutations(held.tolist())), dtype=np.int32))
        elif kind == "named" and (found := whole.place(gang, "count")) is not None:
            target[row] = Placement(found)
        elif kind == "counts" and gang.gpu_milli == 1000 and (found := whole.place(gang, "count")) is not None:
            t, count = np.unique(MIXED.gpu_type[found], return_counts=True)
            target[row] = dict(zip(t.tolist(), count.tolist(), strict=True))
    return world, target


def reached(world: World, row: int, wish: Placement | dict[int, int] | None) -> bool:
    if wish is None or row not in world.held:
        return (wish is None) == (row not in world.held)
    held = world.held[row].gpus
    if isinstance(wish, Placement):
        return bool(np.array_equal(np.sort(held), np.sort(wish.gpus)))
    t, count = np.unique(MIXED.gpu_type[held], return_counts=True)
    return dict(zip(t.tolist(), count.tolist(), strict=True)) == wish


@settings(max_examples=300, deadline=None, derandomize=True)
@given(changes())
def test_a_target_is_reached_by_the_fewest_commands(change: tuple[World, dict[int, Any]]) -> None:
    """The ledger takes the commands and the target is there; each of them concerns a job that had to change.

    A job by counts has to where it holds others, or where a named placement lies on its GPUs.
    """
    world, target = change
    rows = range(len(world.jobs))
    named: dict[int, int] = {}
    for row, wish in target.items():
        for gpu in wish.gpus.tolist() if isinstance(wish, Placement) else ():
            named[gpu] = named.get(gpu, 0) + int(world.jobs.gpu_milli[row])
    must = {row for row in rows if not reached(world, row, target.get(row))}
    for row in set(target) - must:
        if not isinstance(target[row], Placement) and any(g in named for g in world.held[row].gpus.tolist()):
            must.add(row)
    decision = Decision.toward(world.view, target, "count")
    told = [*decision.stop, *(row for row, _ in decision.move), *(row for row, _ in decision.start)]
    assert len(told) == len(set(told))
    world.apply(decision)
    assert all(reached(world, row, target.get(row)) for row in rows)
    assert set(told) == must


@settings(max_examples=100, deadline=None, derandomize=True)
@given(changes())
def test_taking_and_giving_back_is_nothing(change: tuple[World, dict[int, Any]]) -> None:
    """Without a job and then with it again, a scratch is what it was; and it always counts as the ledger does."""
    world, _ = change
    scratch = world.view.scratch(without=world.view.running)
    assert (scratch.milli == 1000).all() and scratch.type_idle.tolist() == [8, 4]
    for row, placement in world.held.items():
        assert scratch.take(placement.gpus, int(world.jobs.gpu_milli[row]), int(world.jobs.vc[row]))
    for name in ("milli", "idle", "type_idle", "vc_left"):
        assert (getattr(scratch, name) == getattr(world.view.scratch(), name)).all(), name
