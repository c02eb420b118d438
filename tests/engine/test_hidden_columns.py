"""What a policy finds of a job: all that its submission says, and nothing of what is known only afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sim.api import Decision, Placement, Policy, PolicyError, View
from sim.engine.simulate import simulate
from sim.engine.viewsetup import SEEN
from sim.settings.config import EngineConfig
from sim.workload.progress import Recorded
from tests.helpers import jobs, nodes
from traces.columns import BY_NAME

N = 6
HIDDEN: dict[str, list[Any]] = {  # values that nothing else in a run takes by chance
    "duration_s": [1003.7 + 37.123 * i for i in range(N)], "wait_s": [7e6 + 1.7 * i for i in range(N)],
    "status": ["failed", "killed", "unknown", "failed", "killed", "unknown"],
    "attempts": [7001 + i for i in range(N)], "cut": ["before", "after", "both"] * 2,
    "work_iters": [8e9 + 1.3 * i for i in range(N)],
}
SAID: dict[str, list[Any]] = {
    "deadline_s": [9e4, np.nan, 8e4, np.nan, 7e4, 6e4], "deadline_kind": ["soft", "", "", "", "strict", ""],
    "priority": [1.0, 2, 3, 4, 5, 6], "user": list("uvwxyz"), "group": ["g", "g", "", "", "h", ""],
    "recurrence": ["", "r", "", "r", "", ""],
    "cpus": [4.0, 8, np.nan, 1, 2, 3], "memory_gib": [np.nan, 64, 32, 16, 8, 4],
    "min_gpus": [1, 0, 0, 0, 1, 0], "max_gpus": [4, 0, 0, 0, 2, 0], "model": ["vgg16", "", "", "", "", ""],
    "batch_size": [32, 0, 64, 0, 0, 0], "min_batch_size": [16, 0, 0, 0, 0, 0], "max_batch_size": [64, 0, 0, 0, 0, 0],
}


def trace_of(**more: Any) -> Any:
    rows = [(10.0 * i, duration_s, 1 + i % 2) for i, duration_s in enumerate(HIDDEN["duration_s"])]
    return jobs(rows, **{name: values for name, values in HIDDEN.items() if name != "duration_s"}, **more)


def reached(found: Any, path: str, seen: set[int], depth: int = 6) -> Iterator[tuple[str, Any]]:
    """Whatever public attributes, keys and entries lead to, once each, with the way there."""
    if id(found) in seen or depth == 0:
        return
    seen.add(id(found))
    yield path, found
    if isinstance(found, dict):
        inside = {f"{path}[{key!r}]": value for key, value in found.items()}
    elif isinstance(found, list | tuple):
        inside = {f"{path}[{index}]": value for index, value in enumerate(found)}
    elif callable(found) or isinstance(found, np.ndarray | np.generic | str | int | float | type(None)):
        inside = {} if getattr(found, "base", None) is None else {f"{path}.base": found.base}
    else:
        inside = {}
        for name in dir(found):
            if not name.startswith("_"):
                try:
                    inside[f"{path}.{name}"] = getattr(found, name)
                except PolicyError:  # what is not declared is refused
                    continue
    for way, value in inside.items():
        yield from reached(value, way, seen, depth - 1)


@dataclass
class Digs(Policy):
    """FIFO one job at a time that looks, at each decision, for what it should not find."""

    name = "digs"
    found: list[str] = field(default_factory=list)
    looked: int = 0
    begun: set[int] = field(default_factory=set)

    def decide(self, view: View) -> Decision:
        waiting, running = view.queued.tolist(), view.running.tolist()
        self.begun.update(waiting)
        ended = self.begun - {*waiting, *running}  # what has ended is no secret
        later = [row for row in range(N) if row not in ended]
        for way, value in reached(view, "view", set()):
            self.looked += 1
            if way.rsplit(".", 1)[-1] in HIDDEN:
                self.found.append(way)
            held = set(value.ravel().tolist()) if isinstance(value, np.ndarray) else set()
            if isinstance(value, str | int | float):
                held = {value}
            self.found += [f"{way} has {name}" for name, column in HIDDEN.items() if held & {column[r] for r in later}]
        if waiting and not running:
            row, free = waiting[0], np.flatnonzero(view.free_milli == 1000)
            return Decision(start=[(row, Placement(free[: view.jobs.num_gpus[row]].astype(np.int32)))])
        return Decision()


def play(policy: Policy, **more: Any) -> Any:
    trace, cluster = trace_of(**more), nodes(("V100", 1, 2))
    truth = Recorded(trace, cluster)
    config = EngineConfig(retries=False)  # 7,001 attempts would be as many decisions
    return simulate(trace, cluster, policy, truth, config, estimate_s=trace.duration_s, seed=0)


def test_a_policy_that_declares_nothing_finds_nothing_that_is_hidden() -> None:
    policy = Digs()
    result = play(policy, **SAID)
    assert set(result.tables["jobs"]["state"].to_pylist()) == {"killed", "failed", "done"}
    assert policy.looked > 500 and policy.found == []


def test_the_search_finds_what_lies_open() -> None:
    """The check of the check: a view that held run times, under any name or as a slice of them, would be seen."""

    class Careless(Digs):
        def prepare(self, view: View) -> None:
            hidden = np.array(HIDDEN["duration_s"])
            view.cheat = {"x": [hidden[:]]}  # type: ignore[attr-defined]

    policy = Careless()
    play(policy)
    assert "view.cheat['x'][0] has duration_s" in policy.found


@dataclass
class Reads(Policy):
    """Keeps what it is shown, and starts nothing."""

    name = "reads"
    shown: dict[str, np.ndarray] = field(default_factory=dict)

    def prepare(self, view: View) -> None:
        self.shown = dict(vars(view.jobs))

    def decide(self, view: View) -> Decision:
        return Decision(reject=[(row, "only looked at") for row in view.queued.tolist()])


def test_all_that_a_submission_says_is_in_the_view_read_only() -> None:
    policy = Reads()
    play(policy, **SAID)
    for name, values in SAID.items():
        shown = policy.shown[name]
        assert not shown.flags.writeable, name
        if name != "deadline_kind":
            assert shown.dtype == BY_NAME[name].dtype.replace("text", "object")
            assert np.array_equal(shown, np.array(values, shown.dtype), equal_nan=shown.dtype != object), name
    assert policy.shown["deadline_kind"].tolist() == ["soft", "", "strict", "", "strict", "strict"]


def test_what_a_trace_does_not_say_is_shown_as_its_default_in_the_usual_layout() -> None:
    policy = Reads()
    play(policy)
    for name in SAID:
        shown, default = policy.shown[name], BY_NAME[name].default
        assert len(shown) == N and not shown.flags.writeable
        assert np.array_equal(shown, np.full(N, default, shown.dtype), equal_nan=shown.dtype != object), name
        assert shown.dtype == object or shown.flags.c_contiguous, name


@pytest.mark.parametrize("column", ["group", "cpus", "deadline_kind", "min_gpus"])
def test_a_policy_that_needs_a_column_is_refused_before_a_run_without_it(column: str) -> None:
    class Needs(Reads):
        needs_columns = (column,)

    with pytest.raises(PolicyError, match=f"the policy needs column '{column}', which this trace does not have"):
        play(Needs())
    play(Needs(), **SAID)  # no refusal


@pytest.mark.parametrize(("column", "near"), [("usr", "did you mean 'user'"), ("wait_s", ""), ("duration_s", "")])
def test_a_policy_that_needs_what_no_policy_sees_is_told_what_it_may_need(column: str, near: str) -> None:
    class Needs(Reads):
        needs_columns = (column,)

    with pytest.raises(PolicyError, match=f"cannot read; got '{column}'; allowed: job_id, .*deadline_s.*{near}"):
        play(Needs())


@pytest.mark.parametrize("column", sorted(set(SEEN) & set(SAID)))
def test_what_a_policy_may_need_it_can_read(column: str) -> None:
    class Needs(Reads):
        needs_columns = (column,)

    policy = Needs()
    play(policy, **SAID)
    assert column in policy.shown
