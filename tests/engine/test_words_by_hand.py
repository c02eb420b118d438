"""What a policy may say beside who runs where, by hand: each word from the decision to the files and the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.audit import audit
from analysis.explain import told
from analysis.metrics import measures
from analysis.metrics.energy import energy_held_kwh
from analysis.run import load_run
from sim.api import Decision, IllegalDecisionError, Placement, Plan, Policy, PolicyError, View
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import RunResult, simulate
from sim.settings.config import EngineConfig
from sim.workload.progress import Recorded
from tests.helpers import by_job, jobs, nodes, segments
from traces.trace import Trace

ONE = nodes(("V100", 1, 1))
FOUR = nodes(("V100", 1, 4))
CARD_GIB = ONE.types[0].memory_gib


class Toys(Recorded):
    """Work is iterations, one a second on each GPU held, whatever the batch; each slot needs 1 GiB a 8 samples."""

    mode, unit = "iterations", "iterations"

    def __init__(self, trace: Trace, cluster: ClusterSpec) -> None:
        super().__init__(trace, cluster)
        self._milli, self._batch = trace.gpu_milli.tolist(), trace.batch_size.tolist()

    def lacks(self, what: str) -> str:
        return ""

    def rate(self, row: int, gpus: np.ndarray, plan: Plan | None) -> float:
        return self.rate_at(row, gpus, plan, self._batch[row])

    def rate_at(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int) -> float:
        return gpus.size * self._milli[row] / 1000

    def memory_gib(self, row: int, gpus: np.ndarray, plan: Plan | None, batch_size: int) -> np.ndarray:
        return np.full(gpus.size, batch_size / 8)

    def state_gib(self, row: int) -> float:
        return 5.0

    def network_s(self, row: int, gpus: np.ndarray, plan: Plan | None) -> float:
        return 0.0


@dataclass
class Says(Policy):
    """Says at each time what is written down for it; a job without a line starts on the GPUs that are free."""

    name = "says"
    sizes_gangs = shares_gpus = sets_batch = caps_power = True
    refuses_jobs = leases_gpus = reads_happened = reads_time_by_type = True
    at: dict[float, Callable[[View], Decision]] = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)

    def decide(self, view: View) -> Decision:
        self.seen.append((view.now_s, view.happened))
        said = self.at.pop(view.now_s, None)  # once: an instant may have several decisions
        decision = said(view) if said else Decision()
        later = [time for time in self.at if time > view.now_s]
        if decision.wake_s is None:
            decision.wake_s = min(later, default=None)
        return decision


def on(*gpus: int, **terms: Any) -> Placement:
    return Placement(np.array(gpus, dtype=np.int32), **terms)


def play(
    trace: Trace, cluster: ClusterSpec, policy: Policy, tmp_path: Path, truth: Any = None, **engine: Any
) -> RunResult:
    """Run, write, read and audit: the files alone must prove that nothing impossible happened."""
    config = EngineConfig(**{"preemption_overhead_s": 0.0, **engine})
    result = simulate(trace, cluster, policy, truth or Toys(trace, cluster), config)
    folder = tmp_path / "run"
    result.write(folder)
    report = audit(load_run(folder, check=False))
    assert report.ok, report.text
    return result


# -- shares -----------------------------------------------------------------------------------------------------------


def start_both(view: View) -> Decision:
    return Decision(start=[(row, on(0, milli=500)) for row in view.queued.tolist()])


@pytest.mark.parametrize(("sharing", "end_s"), [("free", 200), ("slice", 200), ("time", 250), ("spatial", 150)])
def test_two_whole_jobs_share_a_gpu_at_the_truths_interference(tmp_path: Path, sharing: str, end_s: float) -> None:
    """100 s of work each. Turns: 200 s, with a fifth lost to switching 250; side by side 1.5 of a GPU is asked for."""
    trace = jobs([(0, 100, 1)] * 2, batch_size=[8, 8])
    result = play(trace, ONE, Says(at={0.0: start_both}), tmp_path, sharing=sharing, switching_loss=0.2)
    assert by_job(result)["end_s"].tolist() == pytest.approx([end_s] * 2)
    assert segments(result)["gpu_milli"].tolist()[:2] == [500, 500]


def test_a_job_gets_its_whole_gpu_again_by_a_move(tmp_path: Path) -> None:
    """Half a GPU for 50 s, then all of it: 25 + 75 s of work."""
    policy = Says(at={0.0: lambda _: Decision(start=[(0, on(0, milli=500))]),
                      50.0: lambda _: Decision(move=[(0, on(0))])})
    result = play(jobs([(0, 100, 1)]), ONE, policy, tmp_path)
    assert by_job(result)["end_s"].tolist() == [125]
    assert segments(result)["work_done"].tolist() == [25, 75]


def test_memory_of_jobs_that_meet_on_a_gpu_is_checked(tmp_path: Path) -> None:
    """Two jobs of 5/8 of the card each: the second has no room, and the message says how much there is."""
    samples = int(CARD_GIB * 5)
    trace = jobs([(0, 100, 1)] * 2, batch_size=[samples] * 2)
    with pytest.raises(IllegalDecisionError, match="does not fit") as caught:
        play(trace, ONE, Says(at={0.0: start_both}), tmp_path)
    assert f"{samples / 8:.2f} GiB on GPU 0" in str(caught.value)
    assert f"{CARD_GIB - samples / 8:.2f} GiB free" in str(caught.value)


def test_a_slice_holds_its_own_memory_only(tmp_path: Path) -> None:
    trace = jobs([(0, 100, 1)], batch_size=[int(CARD_GIB * 5)])
    with pytest.raises(IllegalDecisionError, match="of its slice"):
        play(trace, ONE, Says(at={0.0: start_both}), tmp_path, sharing="slice")


def test_shares_of_a_gpu_never_exceed_it(tmp_path: Path) -> None:
    def too_much(view: View) -> Decision:
        return Decision(start=[(0, on(0, milli=600)), (1, on(0, milli=600))])

    with pytest.raises(IllegalDecisionError, match="not free"):
        play(jobs([(0, 100, 1)] * 2, batch_size=[8, 8]), ONE, Says(at={0.0: too_much}), tmp_path)


# -- power ------------------------------------------------------------------------------------------------------------


def test_a_cap_slows_the_job_and_saves_energy(tmp_path: Path) -> None:
    """A V100 (250 W) capped at 150 W runs at 0.849 of its speed: 849 s of work take 1,000 s, at 150 W."""
    limit_w = ONE.types[0].power_w
    policy = Says(at={0.0: lambda _: Decision(start=[(0, on(0, cap_w=0.6 * limit_w))])})
    result = play(jobs([(0, 849, 1)]), ONE, policy, tmp_path)
    assert by_job(result)["end_s"].tolist() == pytest.approx([1000])
    assert segments(result)["power_cap_w"].tolist() == [0.6 * limit_w]
    assert energy_held_kwh(load_run(tmp_path / "run")) == pytest.approx(0.6 * limit_w * 1000 / 3.6e6)


def test_caps_and_no_caps_add_up(tmp_path: Path) -> None:
    limit_w = FOUR.types[0].power_w
    policy = Says(at={0.0: lambda _: Decision(start=[(0, on(0, 1, cap_w=0.5 * limit_w)), (1, on(2))])})
    play(jobs([(0, 699 * 2, 2), (0, 100, 1)]), FOUR, policy, tmp_path)
    by_hand_j = 2 * 1000 * 0.5 * limit_w + 100 * limit_w
    assert energy_held_kwh(load_run(tmp_path / "run")) == pytest.approx(by_hand_j / 3.6e6)


@pytest.mark.parametrize("cap_w", [1.0, 1e6, -5.0, float("nan"), "100", True])
def test_a_cap_that_cannot_be_set_is_refused(tmp_path: Path, cap_w: Any) -> None:
    with pytest.raises(IllegalDecisionError):
        play(jobs([(0, 100, 1)]), ONE, Says(at={0.0: lambda _: Decision(start=[(0, on(0, cap_w=cap_w))])}), tmp_path)


# -- batch sizes, and progress to convergence -------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "end_s"), [(0.0, 100), (1.0, 75), (3.0, 62.5), (1e9, 50)])
def test_a_larger_batch_is_not_free(tmp_path: Path, noise: float, end_s: float) -> None:
    """Twice the batch at the same iterations a second: an iteration is worth 2 (φ + B) / (φ + 2 B) of one at B."""
    trace = jobs([(0, 100, 1)], batch_size=[32], min_batch_size=[32], max_batch_size=[64])
    policy = Says(at={0.0: lambda _: Decision(start=[(0, on(0, batch_size=64))])})
    result = play(trace, ONE, policy, tmp_path, gradient_noise=noise)
    assert by_job(result)["end_s"].tolist() == pytest.approx([end_s], rel=1e-6)
    assert segments(result)["batch_size"].tolist() == [64]
    assert segments(result)["work_done"].sum() == pytest.approx(100)


@pytest.mark.parametrize("batch", [16, 65, -1, 1.5, True])
def test_a_batch_that_the_job_does_not_allow_is_refused(tmp_path: Path, batch: Any) -> None:
    trace = jobs([(0, 100, 1)], batch_size=[32], min_batch_size=[32], max_batch_size=[64])
    with pytest.raises(IllegalDecisionError):
        play(trace, ONE, Says(at={0.0: lambda _: Decision(start=[(0, on(0, batch_size=batch))])}), tmp_path)


# -- elastic ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "end_s"), [
    ({}, 70), ({"resize_overhead_s": 7}, 77), ({"move_overhead_s": 7, "preemption_overhead_s": 2}, 72),
    ({"cold_start_s": 10}, 75), ({"restart_gib_per_s": 0.5}, 80),
])
def test_a_resize_without_a_plan_has_costs_of_its_own(tmp_path: Path, engine: dict[str, float], end_s: float) -> None:
    """One GPU for 40 s, then two: 40 + 60 s of work in 40 + 30 s; a cold start of 10 s leaves 70 for the two.

    At 0.5 GiB/s the job's 5 GiB take 10 s to load.
    """
    policy = Says(at={0.0: lambda _: Decision(start=[(0, on(0))]), 40.0: lambda _: Decision(move=[(0, on(0, 1))])})
    result = play(jobs([(0, 100, 1)]), FOUR, policy, tmp_path, **engine)
    assert by_job(result)["end_s"].tolist() == [end_s]
    assert segments(result)["end_reason"].tolist() == ["resized", "done"]


def test_a_move_and_a_resize_differ(tmp_path: Path) -> None:
    policy = Says(at={0.0: lambda _: Decision(start=[(0, on(0))]), 10.0: lambda _: Decision(move=[(0, on(1))]),
                      20.0: lambda _: Decision(move=[(0, on(1, 2))])})
    result = play(jobs([(0, 30, 1)]), FOUR, policy, tmp_path, move_overhead_s=1, resize_overhead_s=2)
    assert segments(result)["overhead_s"].tolist() == [0, 1, 2]
    assert segments(result)["end_reason"].tolist() == ["migrated", "resized", "done"]


def test_a_job_bounds_its_own_size(tmp_path: Path) -> None:
    trace = jobs([(0, 100, 2)], min_gpus=[2], max_gpus=[3])
    for gpus in ((0,), (0, 1, 2, 3)):
        policy = Says(at={0.0: lambda _, gpus=gpus: Decision(start=[(0, on(*gpus))])})
        with pytest.raises(IllegalDecisionError, match="2 to 3"):
            play(trace, FOUR, policy, tmp_path)


# -- leases -----------------------------------------------------------------------------------------------------------


def leased(until_s: float) -> Callable[[View], Decision]:
    return lambda _: Decision(start=[(0, on(0))], lease=[(0, until_s)])


def test_a_lease_that_nobody_renews_ends_and_its_job_waits_again(tmp_path: Path) -> None:
    policy = Says(at={0.0: leased(30.0), 50.0: lambda _: Decision(start=[(0, on(0))])})
    result = play(jobs([(0, 100, 1)]), ONE, policy, tmp_path)
    found = segments(result)
    assert found["end_reason"].tolist() == ["lease_ended", "done"]
    assert found["end_s"].tolist() == [30, 120] and found["lease_until_s"].tolist()[0] == 30
    assert np.isnan(found["lease_until_s"].tolist()[1])


def test_at_its_end_the_policy_decides_first(tmp_path: Path) -> None:
    """Renewed at the very instant, the job goes on: one segment, on the lease as last renewed."""
    policy = Says(at={0.0: leased(30.0), 30.0: lambda _: Decision(lease=[(0, 200.0)])})
    result = play(jobs([(0, 100, 1)]), ONE, policy, tmp_path)
    assert segments(result)[["end_s", "lease_until_s", "end_reason"]].values.tolist() == [[100, 200, "done"]]


def test_infinity_takes_a_lease_back(tmp_path: Path) -> None:
    policy = Says(at={0.0: leased(30.0), 10.0: lambda _: Decision(lease=[(0, np.inf)])})
    assert segments(play(jobs([(0, 100, 1)]), ONE, policy, tmp_path))["end_s"].tolist() == [100]


@pytest.mark.parametrize("until_s", [0.0, -1.0, float("nan"), "soon", True])
def test_a_lease_ends_in_the_future(tmp_path: Path, until_s: Any) -> None:
    with pytest.raises(IllegalDecisionError, match="future"):
        play(jobs([(0, 100, 1)]), ONE, Says(at={0.0: leased(until_s)}), tmp_path)


# -- admission --------------------------------------------------------------------------------------------------------


def test_a_refused_job_leaves_with_the_reason_and_is_counted_apart(tmp_path: Path) -> None:
    policy = Says(at={0.0: lambda _: Decision(start=[(0, on(0))], refuse=[(1, "its deadline cannot be met")])})
    result = play(jobs([(0, 10, 1), (0, 10, 1)]), ONE, policy, tmp_path)
    assert by_job(result)["state"].tolist() == ["done", "refused"]
    assert by_job(result)["reason"].tolist()[1] == "its deadline cannot be met"


def test_one_that_has_run_before_is_unfinished(tmp_path: Path) -> None:
    policy = Says(at={0.0: lambda _: Decision(start=[(0, on(0))]), 5.0: lambda _: Decision(stop=[0]),
                      6.0: lambda _: Decision(refuse=[(0, "too late")])})
    result = play(jobs([(0, 10, 1)]), ONE, policy, tmp_path)
    assert by_job(result)[["state", "reason"]].values.tolist() == [["unfinished", "too late"]]


@pytest.mark.parametrize("reason", ["", "  ", 7, "x" * 1001, "\ud800"])
def test_a_reason_is_text_that_files_can_hold(tmp_path: Path, reason: Any) -> None:
    with pytest.raises(IllegalDecisionError, match="reason"):
        play(jobs([(0, 10, 1)]), ONE, Says(at={0.0: lambda _: Decision(refuse=[(0, reason)])}), tmp_path)


# -- what happened ----------------------------------------------------------------------------------------------------


def test_the_view_says_what_happened_since_the_last_decision(tmp_path: Path) -> None:
    """Job 0 ends at 10 s; job 1's lease ends at 30 s, and it starts again at 40 s."""
    policy = Says(at={
        0.0: lambda _: Decision(start=[(0, on(0)), (1, on(1))], lease=[(1, 30.0)]),
        40.0: lambda _: Decision(start=[(1, on(1))]),
    })
    play(jobs([(0, 10, 1), (0, 50, 1), (20, 5, 1)]), nodes(("V100", 1, 2)), policy, tmp_path, horizon_s=100)
    told = [(now, what.arrived, what.finished, what.interrupted) for now, what in policy.seen]
    assert told[:5] == [
        (0, [0, 1], [], []), (10, [], [(0, "done")], []), (20, [2], [], []), (30, [], [], []),
        (30, [], [], [(1, "lease_ended")]),
    ]


def test_time_held_by_type_is_in_the_view(tmp_path: Path) -> None:
    """20 s on a V100, then 10 s on a K80 so far."""
    two = nodes(("V100", 1, 1), ("K80", 1, 1))
    held = []

    def look(view: View) -> Decision:
        held.append(view.held_by_type_s(np.array([0])).tolist())
        return Decision()

    policy = Says(at={
        0.0: lambda _: Decision(start=[(0, on(0))]), 20.0: lambda _: Decision(move=[(0, on(1))]), 30.0: look,
    })
    play(jobs([(0, 100, 1)]), two, policy, tmp_path)
    assert held == [[[20.0, 10.0]]]


# -- what is not declared ---------------------------------------------------------------------------------------------

UNDECLARED: list[tuple[str, Callable[[View], Decision]]] = [
    ("shares_gpus", lambda _: Decision(start=[(0, on(0, milli=500))])),
    ("sets_batch", lambda _: Decision(start=[(0, on(0, batch_size=64))])),
    ("caps_power", lambda _: Decision(start=[(0, on(0, cap_w=150.0))])),
    ("refuses_jobs", lambda _: Decision(refuse=[(0, "no")])),
    ("leases_gpus", leased(30.0)),
    ("reads_happened", lambda view: Decision(wake_s=1.0 + len(view.happened.arrived))),
    ("reads_time_by_type", lambda view: Decision(wake_s=1.0 + view.held_by_type_s(view.queued).sum())),
    ("shares_gpus", lambda view: Decision(wake_s=1.0 + view.free_gib.sum())),
]


@pytest.mark.parametrize(("word", "says"), UNDECLARED, ids=[f"{i}-{word}" for i, (word, _) in enumerate(UNDECLARED)])
def test_what_is_not_declared_may_not_be_said(tmp_path: Path, word: str, says: Callable[[View], Decision]) -> None:
    @dataclass
    class Mute(Policy):
        name = "mute"

        def decide(self, view: View) -> Decision:
            return says(view)

    trace = jobs([(0, 100, 1)], batch_size=[32], min_batch_size=[32], max_batch_size=[64])
    with pytest.raises((IllegalDecisionError, PolicyError), match=word):
        play(trace, ONE, Mute(), tmp_path)


# -- what people are told ---------------------------------------------------------------------------------------------


def test_terms_and_ends_of_leases_are_told(tmp_path: Path) -> None:
    """Measures, the run's table and the story of the job say what the files say."""
    trace = jobs([(0, 100, 1)], batch_size=[32], min_batch_size=[32], max_batch_size=[64])
    policy = Says(at={
        0.0: lambda _: Decision(start=[(0, on(0, milli=500, batch_size=64, cap_w=200.0))], lease=[(0, 30.0)]),
        50.0: lambda _: Decision(start=[(0, on(0))]),
    })
    play(trace, ONE, policy, tmp_path)
    run = load_run(tmp_path / "run")
    assert measures(run)["leases_ended"] == 1
    story = " ".join(told(run, "0"))
    assert "on terms: 0.5 of each GPU, 64 samples an iteration, at most 200 W a GPU, a lease to 30 s" in story
    assert "its lease ended, was not renewed" in story
