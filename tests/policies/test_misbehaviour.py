"""A guest's policy that makes mistakes ends as one message that says what and where, never as wrong results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from policies.mechanisms import Placing
from sim.api import Decision, IllegalDecisionError, Placement, Policy, View
from sim.engine.simulate import simulate
from sim.workload.progress import Recorded
from tests.helpers import jobs, nodes
from traces.errors import HetsimError

ONE = np.array([0], dtype=np.int32)


def leave(_: Any) -> None:
    raise SystemExit(0)


ANSWERS: dict[str, Any] = {
    "nothing": lambda view: None,
    "a dict": lambda view: {"start": []},
    "start is None": lambda view: Decision(start=None),
    "triples": lambda view: Decision(start=[(0, Placement(ONE), 1)]),
    "bare rows": lambda view: Decision(start=[0]),
    "a list of GPUs": lambda view: Decision(start=[(0, Placement([0]))]),
    "no GPUs": lambda view: Decision(start=[(0, Placement(None))]),
    "floats": lambda view: Decision(start=[(0, Placement(np.array([0.0])))]),
    "a GPU that is not there": lambda view: Decision(start=[(0, Placement(np.array([99], dtype=np.int32)))]),
    "a negative GPU": lambda view: Decision(start=[(0, Placement(np.array([-1], dtype=np.int32)))]),
    "a job twice": lambda view: Decision(start=[(0, Placement(ONE)), (0, Placement(ONE))]),
    "a job that is not there": lambda view: Decision(start=[(77, Placement(ONE))]),
    "a job by name": lambda view: Decision(start=[("a", Placement(ONE))]),
    "stops what waits": lambda view: Decision(stop=[0]),
    "stops a list": lambda view: Decision(stop=[[1]]),
    "rejects without a reason": lambda view: Decision(reject=[(0, None)]),
    "wakes in the past": lambda view: Decision(wake_s=view.now_s - 1),
    "wakes at a word": lambda view: Decision(wake_s="soon"),
    "raises": lambda view: 1 // 0,
    "leaves": leave,
    "runs out": lambda view: next(iter(())),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_each_mistake_is_a_message(answer: Any) -> None:
    @dataclass
    class Guest(Policy):
        """Makes one mistake."""

        def decide(self, view: View) -> Decision:
            return answer(view)

    trace, cluster = jobs([(0, 10, 1), (0, 10, 1)]), nodes(("V100", 1, 2))
    with pytest.raises(HetsimError) as caught:
        simulate(trace, cluster, Guest(), Recorded(trace, cluster))
    assert "at 0 s" in str(caught.value)


@pytest.mark.parametrize("keys", [None, np.array([1.0]), [1.0, 2.0], np.array([np.nan, 1.0]), "ab"], ids=str)
def test_keys_of_another_form_are_a_message(keys: Any) -> None:
    @dataclass
    class Guest(Policy):
        """Gives keys of another form."""

        def key(self, view: View, rows: np.ndarray) -> np.ndarray:
            return keys

        def decide(self, view: View) -> Decision:
            return Decision()

    trace, cluster = jobs([(0, 10, 1), (0, 10, 1)]), nodes(("V100", 1, 2))
    with pytest.raises(HetsimError):
        simulate(trace, cluster, Guest(), Recorded(trace, cluster))


def test_an_array_that_the_policy_uses_again_changes_nothing_that_runs() -> None:
    """Both jobs are placed by one array, which the policy overwrites in between."""

    @dataclass
    class Guest(Policy):
        """Uses one array for all placements."""

        def prepare(self, view: View) -> None:
            self.array = np.zeros(1, dtype=np.int32)

        def decide(self, view: View) -> Decision:
            if not view.queued.size:
                return Decision()
            self.array[0] = 1 - view.idle.sum() % 2
            return Decision(start=[(int(view.queued[0]), Placement(self.array))], wake_s=view.now_s + 1)

    trace, cluster = jobs([(0, 10, 1), (0, 10, 1)]), nodes(("V100", 1, 2))
    table = simulate(trace, cluster, Guest(), Recorded(trace, cluster)).tables["segments"].to_pandas()
    assert sorted(ids[0] for ids in table["gpu_ids"]) == [0, 1]


def test_the_form_of_a_decision_is_told() -> None:
    @dataclass
    class Guest(Policy):
        """Refuses without a reason."""

        refuses_jobs: ClassVar[bool] = True

        def decide(self, view: View) -> Decision:
            return Decision(refuse=[0])  # type: ignore[list-item]

    trace, cluster = jobs([(0, 10, 1)]), nodes(("V100", 1, 2))
    with pytest.raises(HetsimError, match=r"reject and refuse of \(row, reason\)"):
        simulate(trace, cluster, Guest(), Recorded(trace, cluster))


def test_a_job_that_is_refused_is_not_rejected_too() -> None:
    """8 GPUs on two nodes of 4 cannot be: the policy refuses the first job, the rule rejects the other."""

    @dataclass
    class Guest(Placing):
        """Refuses the first job."""

        refuses_jobs: ClassVar[bool] = True

        def decide(self, view: View) -> Decision:
            return self.never_fits(view, Decision(refuse=[(0, "no")] if 0 in view.queued else []))

    trace, cluster = jobs([(0, 10, 8), (0, 10, 8)]), nodes(("V100", 1, 4), ("V100", 3, 2))
    table = simulate(trace, cluster, Guest(placement="first-fit"), Recorded(trace, cluster)).tables["jobs"].to_pandas()
    assert table["state"].tolist() == ["refused", "rejected"]


@pytest.mark.parametrize("start", [True, False], ids=["a job runs", "a submission is due"])
def test_who_is_woken_for_nothing_in_no_time_is_stopped(start: bool) -> None:
    """No run hangs: the next number after now is no time to be woken at, again and again."""

    @dataclass
    class Restless(Policy):
        """Is woken at once, whatever happens."""

        def decide(self, view: View) -> Decision:
            first = [(0, Placement(ONE))] if start and view.queued.size and view.queued[0] == 0 else []
            return Decision(start=first, wake_s=float(np.nextafter(view.now_s, np.inf)))

    trace, cluster = jobs([(10, 1e6, 1), (9e8, 10, 1)]), nodes(("V100", 1, 2))
    with pytest.raises(IllegalDecisionError, match=r"woken 100,000 times in a row, and did nothing; got .* s in which"):
        simulate(trace, cluster, Restless(), Recorded(trace, cluster))


def test_who_is_woken_each_second_for_nothing_goes_on() -> None:
    @dataclass
    class Watchful(Placing):
        """Looks each second while a job waits, and starts the first one at the end of the day."""

        def decide(self, view: View) -> Decision:
            due = [row for row in view.queued.tolist() if row == 1 or view.now_s >= 150_000]
            starts = [(row, Placement(np.array([row], dtype=np.int32))) for row in due]
            return Decision(start=starts, wake_s=view.now_s + 1 if view.queued.size > len(due) else None)

    trace, cluster = jobs([(0, 10, 1), (0, 200_000, 1)]), nodes(("V100", 1, 2))
    ends = simulate(trace, cluster, Watchful(), Recorded(trace, cluster)).tables["jobs"]["end_s"].to_pylist()
    assert ends == [150_010, 200_000]
