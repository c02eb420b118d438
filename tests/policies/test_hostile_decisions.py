"""Decisions of every wrong form: nothing is lost, no other job is meant, and the message says what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.audit import audit
from analysis.run import load_run
from sim.api import Decision, IllegalDecisionError, Placement, Plan, Policy, Stage, View
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled, Recorded
from tests.engine.test_words_by_hand import Toys
from tests.helpers import jobs, nodes
from traces.errors import HetsimError

Says = Callable[[View], Any]


def on(*gpus: int, **terms: Any) -> Placement:
    return Placement(np.array(gpus, dtype=np.int32), **terms)


@dataclass
class Guest(Policy):
    """Starts job 0 on GPU 0, says what it has to say at 5 s, then goes on as first come, first served."""

    shares_gpus = sets_batch = caps_power = refuses_jobs = leases_gpus = reads_happened = True
    says: Says = lambda view: Decision()

    def prepare(self, view: View) -> None:
        self.asked, self.told = 0, []  # type: ignore[var-annotated]

    def decide(self, view: View) -> Any:
        self.asked += 1
        self.told += view.happened.finished
        if self.asked == 1:
            return Decision(start=[(0, on(0))], wake_s=5.0)
        if self.asked == 2:
            return self.says(view)
        free = np.flatnonzero(view.free_milli == 1000).tolist()
        return Decision(start=[(row, on(free.pop())) for row in view.queued.tolist() if free])


def hear(says: Says, truth: type[Recorded] = Recorded, **engine: Any) -> tuple[RunResult, Guest]:
    """Two jobs of 10 s at once and a third later, on two GPUs."""
    trace, cluster = jobs([(0, 10, 1), (0, 10, 1), (20, 5, 1)], batch_size=[16] * 3), nodes(("V100", 1, 2))
    policy = Guest(says=says)
    return simulate(trace, cluster, policy, truth(trace, cluster), EngineConfig(**engine)), policy


def proven(result: RunResult, tmp_path: Path) -> list[str]:
    """The states of the jobs of a run that the audit holds for possible."""
    result.write(tmp_path / "run")
    report = audit(load_run(tmp_path / "run", check=False))
    assert report.ok, report.text
    return result.tables["jobs"].column("state").to_pylist()


NOT_LISTS: dict[str, tuple[Says, str]] = {
    "start, zip": (lambda view: Decision(start=zip([1], [on(1)], strict=True)), "done"),
    "stop, generator": (lambda view: Decision(stop=(row for row in [0])), "done"),
    "stop, array": (lambda view: Decision(stop=np.array([0])), "done"),
    "move, generator": (lambda view: Decision(move=((row, on(1)) for row in [0])), "done"),
    "rekey, generator": (lambda view: Decision(rekey=(row for row in [1])), "done"),
    "rekey, array": (lambda view: Decision(rekey=np.array([1])), "done"),
    "lease, tuple": (lambda view: Decision(lease=((0, 8.0),)), "done"),
    "refuse, generator": (lambda view: Decision(refuse=((row, "full") for row in [1])), "refused"),
    "reject, dict": (lambda view: Decision(reject={1: "never"}.items()), "rejected"),
}


@pytest.mark.parametrize(("says", "state"), NOT_LISTS.values(), ids=NOT_LISTS.keys())
def test_words_that_are_not_lists_are_read_once_and_lose_nobody(says: Says, state: str, tmp_path: Path) -> None:
    assert proven(hear(says)[0], tmp_path) == ["done", state, "done"]


NO_ROWS = (-1, 3, 2**70, 1.0, float("nan"), True, False, np.True_, None, "a", [1], (), ..., slice(0, 1), np.array(1))
WORDS: dict[str, Callable[[Any], Decision]] = {
    "start": lambda row: Decision(start=[(row, on(1))]),
    "stop": lambda row: Decision(stop=[row]),
    "move": lambda row: Decision(move=[(row, on(1))]),
    "reject": lambda row: Decision(reject=[(row, "x")]),
    "refuse": lambda row: Decision(refuse=[(row, "x")]),
    "rekey": lambda row: Decision(rekey=[row]),
    "lease": lambda row: Decision(lease=[(row, 9.0)]),
}


@pytest.mark.parametrize("row", NO_ROWS, ids=repr)
@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS.keys())
def test_what_is_no_row_names_no_job(word: Callable[[Any], Decision], row: Any) -> None:
    with pytest.raises(IllegalDecisionError) as caught:
        hear(lambda view: word(row))
    assert "at 5 s" in str(caught.value)
    assert "at 5 s, job" not in str(caught.value)


@pytest.mark.parametrize("row", [np.int32(1), np.uint64(1), np.int8(1)], ids=repr)
def test_integers_of_numpy_are_rows(row: Any, tmp_path: Path) -> None:
    assert proven(hear(lambda view: WORDS["start"](row))[0], tmp_path) == ["done"] * 3


def test_a_decision_of_another_class_is_told() -> None:
    """It has all lists, but no alarm."""

    class Other:
        """Not ours."""

        def __init__(self) -> None:
            self.start, self.stop, self.move, self.reject, self.rekey, self.refuse, self.lease = ([] for _ in range(7))

    with pytest.raises(IllegalDecisionError, match="form"):
        hear(lambda view: Other())


@pytest.mark.parametrize("word", ["reject", "refuse"])
def test_a_job_that_has_run_leaves_unfinished_whichever_word_it_hears(word: str, tmp_path: Path) -> None:
    """Stopped and turned away at once; it is told of, as everything that comes of a decision."""
    result, policy = hear(lambda view: Decision(stop=[0], **{word: [(0, "enough")]}))
    assert proven(result, tmp_path) == ["unfinished", "done", "done"]
    assert (0, "unfinished") in policy.told
    assert len(policy.told) == 3 - 1  # the run ends with the third


@pytest.mark.parametrize("wake_s", [True, np.float64("nan"), -np.inf, "9", 5.0])
def test_an_alarm_is_a_later_time(wake_s: Any) -> None:
    with pytest.raises(IllegalDecisionError, match="alarm"):
        hear(lambda view: Decision(wake_s=wake_s))


@pytest.mark.parametrize("wake_s", [1e12, 1e300, np.inf])
def test_an_alarm_after_all_times_never_rings(wake_s: float, tmp_path: Path) -> None:
    """Results have times up to 1e11 s: a run that went on beyond could not be read."""

    @dataclass
    class Late(Policy):
        """Starts what waits when it is asked again."""

        def decide(self, view: View) -> Decision:
            return Decision(wake_s=wake_s) if view.now_s < 1e12 else Decision(start=[(0, on(0))])

    trace, cluster = jobs([(0, 10, 1)]), nodes(("V100", 1, 1))
    result = simulate(trace, cluster, Late(), Recorded(trace, cluster))
    assert proven(result, tmp_path) == ["unfinished"]
    assert result.info["end_s"] == 0


def test_no_run_outlives_the_times_that_results_have(tmp_path: Path) -> None:
    """Two jobs of 1e11 s, one after the other: the second is cut off, and the run can be read."""
    trace, cluster = jobs([(0, 1e11, 1), (0, 1e11, 1)]), nodes(("V100", 1, 1))

    @dataclass
    class One(Policy):
        """First come, first served, on one GPU."""

        def decide(self, view: View) -> Decision:
            free = view.free_milli[0] == 1000 and view.queued.size
            return Decision(start=[(int(view.queued[0]), on(0))] if free else [])

    result = simulate(trace, cluster, One(), Recorded(trace, cluster))
    assert proven(result, tmp_path) == ["done", "unfinished"]
    load_run(tmp_path / "run")


@pytest.mark.parametrize("speed", [5e-324, 1e-300, 1e-11])
def test_a_restart_that_takes_for_ever_is_a_run_that_can_be_read(speed: float, tmp_path: Path) -> None:
    """5 GiB at that speed: more seconds than results have."""
    again = hear(lambda view: Decision(stop=[0], start=[(0, on(1))]), Toys, restart_gib_per_s=speed)[0]
    assert proven(again, tmp_path) == ["unfinished", "done", "done"]
    load_run(tmp_path / "run")


PLANS = {
    "a stage too short": Plan((Stage(0, 3, "V100", 1),)),
    "micro-batches that are none": Plan((Stage(0, 125, "V100", 1),), micro_batches=0),
    "no such ZeRO": Plan((Stage(0, 125, "V100", 1),), zero=9),
    "chunks that are none": Plan((Stage(0, 125, "V100", 1),), chunks=0),
    "stages in a list": Plan([Stage(0, 125, "V100", 1)]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_an_impossible_plan_is_an_illegal_decision(plan: Plan) -> None:
    """With the time, not as if a file of the user's were wrong."""

    @dataclass
    class Plans(Policy):
        """Starts by the plan."""

        sizes_gangs = True

        def decide(self, view: View) -> Decision:
            return Decision(start=[(0, on(0, plan=plan))])

    trace, cluster = jobs([(0, 10, 1)], model=["resnet50"], batch_size=[32]), nodes(("V100", 1, 1))
    truth = Modelled(trace, cluster, Performance(), gpu_type("V100"))
    with pytest.raises(IllegalDecisionError, match="at 0 s"):
        simulate(trace, cluster, Plans(), truth)


def set_to(name: str, value: float) -> Says:
    def says(view: View) -> Decision:
        getattr(view, name)[:] = value
        return Decision(start=[(1, on(0 if name == "free_milli" else 1))])

    return says


@pytest.mark.parametrize("name", ["free_milli", "idle", "type_idle"])
def test_whoever_writes_into_the_ledger_is_caught(name: str) -> None:
    with pytest.raises(IllegalDecisionError, match="wrote into the view"):
        hear(set_to(name, 1000))


def test_whoever_writes_into_the_queue_is_caught() -> None:
    """Job 1 is overwritten in the queue: it is lost, also where the run ends at a horizon."""

    def says(view: View) -> Decision:
        view.queued[0] = 2
        return Decision()

    for engine in ({}, {"horizon_s": 6.0}):
        with pytest.raises(HetsimError, match=r"wrote into the view|queued"):
            hear(says, **engine)


def test_memory_is_not_what_a_policy_writes(tmp_path: Path) -> None:
    """Each job needs 2 GiB of 16; the policy writes 0 GiB, then as much as it likes."""

    def says(view: View) -> Decision:
        view.free_gib[:] = 0.0
        return Decision(start=[(1, on(1, milli=500))])

    assert proven(hear(says, Toys)[0], tmp_path) == ["done"] * 3

    def greedy(view: View) -> Decision:
        view.free_gib[:] = 1e9
        return Decision(start=[(1, on(1, milli=500, batch_size=16)), (0, on(1))])

    class Big(Toys):
        def memory_gib(self, row: int, gpus: np.ndarray, plan: Any, batch_size: int) -> np.ndarray:
            return np.full(gpus.size, 1e6)

    with pytest.raises(IllegalDecisionError, match="memory"):
        hear(greedy, Big)


BESIDE: dict[str, Says] = {
    "scratch without what is not there": lambda view: view.scratch(without=[10**7]),
    "scratch without -1": lambda view: view.scratch(without=[-1]),
    "scratch without half a job": lambda view: view.scratch(without=np.array([0.5])),
    "scratch without NaN": lambda view: view.scratch(without=np.array([np.nan])),
    "gives GPUs that are not there": lambda view: view.scratch().give(np.array([10**7], dtype=np.int32)),
    "gives GPU -1": lambda view: view.scratch().give(np.array([-1], dtype=np.int32)),
    "places job -1": lambda view: view.scratch().place(-1),
    "half a GPU as a target": lambda view: Decision.toward(view, {1: {0: 0.5}}),
    "NaN GPUs as a target": lambda view: Decision.toward(view, {1: {0: np.nan}}),
    "more than can be counted": lambda view: Decision.toward(view, {1: {0: 2**40}}),
    "half a type": lambda view: Decision.toward(view, {1: {0.5: 1}}),
}


@pytest.mark.parametrize("says", BESIDE.values(), ids=BESIDE.keys())
def test_no_kernel_writes_beside_its_arrays(says: Says) -> None:
    with pytest.raises(HetsimError, match=r"there|whole number|does not have"):
        hear(says)


def test_a_target_that_no_cluster_holds_is_not_reached() -> None:
    """Two milliard GPUs: no array of so many is made. What runs is in the way of nobody and would stay; it is not
    named, and stops."""
    assert hear(lambda view: Decision.toward(view, {1: {0: 2**31 - 1}, 0: {0: 1}}))[0].tables["jobs"].num_rows == 3


@pytest.mark.parametrize("row", [-1, 77])
def test_a_queue_with_rows_that_are_no_jobs_is_told(row: int) -> None:
    """Also at a horizon, where nobody starts from it any more."""

    def says(view: View) -> Decision:
        view.queued[0] = row
        return Decision()

    with pytest.raises(IllegalDecisionError, match="wrote into the view"):
        hear(says, horizon_s=6.0)
