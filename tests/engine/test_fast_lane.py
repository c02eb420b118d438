"""The fast lane gives the plain loop's results, digit by digit, and is taken by what a policy says, not by its name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.ordering.fifo import Fifo
from policies.ordering.srtf import Srtf
from policies.registry import make
from sim.api import Decision, IllegalDecisionError, View
from sim.cluster.spec import ClusterSpec
from sim.engine import fastlane
from sim.engine.simulate import RunResult, simulate
from sim.kernels import jit, lane
from sim.kernels.jit import is_kept
from sim.settings.config import EngineConfig, RunConfig
from sim.sweeps.replay import Replay
from sim.workload.progress import Recorded
from tests.engine.test_laws import World, assert_same, tables, worlds
from tests.helpers import jobs, nodes, run
from traces.trace import Trace

TAKES = ("fifo", "fifo-skip", "sjf", "easy", "srtf", "srsf", "las", "tiresias")
"""Policies that say how they decide."""


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Jobs that had not left when the lane was left, each time."""
    left: list[int] = []
    own = fastlane.Lane.run

    def watched(self: fastlane.Lane, next_row: int, open_jobs: int) -> fastlane.Left:
        found = own(self, next_row, open_jobs)
        left.append(found.open)
        return found

    monkeypatch.setattr(fastlane.Lane, "run", watched)
    return left


def played(trace: Trace, cluster: ClusterSpec, policy: Any, way: str, **engine: Any) -> RunResult:
    config = EngineConfig(**{"preemption_overhead_s": 2.0, **engine}, fast_lane=way)
    return simulate(trace, cluster, policy, Recorded(trace, cluster), config, estimate_s=trace.duration_s)


def drawn(count: int, widest: int = 8, seed: int = 1) -> Trace:
    """Jobs that keep some 40 GPUs busy, with attempts and shares."""
    rng = np.random.default_rng(seed)
    rows = zip(np.sort(rng.integers(0, 40 * count, count)).tolist(), rng.integers(5, 900, count).tolist(),
               np.minimum(rng.choice([1, 1, 2, 4, 8, 40], count), widest).tolist(), strict=True)  # fmt: skip
    return jobs(list(rows), gpu_milli=rng.choice([1000, 1000, 500], count).tolist(),
                attempts=rng.choice([1, 1, 2], count).tolist(),
                status=rng.choice(["passed", "failed", "killed"], count).tolist(),
                vc=rng.choice(["a", "b"], count).tolist())  # fmt: skip


@settings(max_examples=150, derandomize=True)
@given(worlds(), st.sampled_from(TAKES), st.sampled_from([None, None, 20.0, 70.0]))
def test_any_world_has_the_same_tables_in_both_lanes(world: World, policy: str, horizon_s: float | None) -> None:
    own = world.settings if policy == world.policy else {}
    engine = {name: value for name, value in world.engine.items() if name not in ("mtbf_h", "repair_h")}
    one, two = (
        replace(world, policy=policy, settings=own, engine=engine | {"fast_lane": way, "horizon_s": horizon_s}).run()
        for way in ("on", "off")
    )
    assert_same(tables(one), tables(two))
    assert one.info["decisions"] == two.info["decisions"] and one.info["end_s"] == two.info["end_s"]


@pytest.mark.parametrize("policy", TAKES)
def test_hundreds_of_jobs_have_the_same_tables_and_the_run_is_in_the_lane(policy: str, changes: list[int]) -> None:
    trace, cluster = drawn(400), nodes(("V100", 4, 8), ("T4", 2, 4))
    for engine in ({}, {"checkpoint_interval_s": 30.0, "preempted_work": "lost"}, {"quotas": {"a": 20}}):
        one, two = (played(trace, cluster, make(policy, {}), way, **engine) for way in ("on", "off"))
        assert_same(tables(one), tables(two))
    assert changes == [0, 0, 0]


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf"])
def test_where_only_the_policy_can_decide_it_does_and_the_lane_goes_on(policy: str, changes: list[int]) -> None:
    """Gangs of 40 that no type can hold as the rule wants: the policy turns each away once nothing runs."""
    trace = jobs([(0, 10, 6), (1, 10, 1), (30, 5, 2), (31, 5, 6), (60, 5, 1)])
    cluster = nodes(("V100", 3, 2))
    one, two = (played(trace, cluster, make(policy, {"placement": "best-fit"}), way) for way in ("on", "off"))
    assert_same(tables(one), tables(two))
    wide = jobs([(0, 10, 3), (1, 10, 1), (30, 5, 2), (31, 5, 3), (60, 5, 1)], worker_gpus=[3, 1, 1, 3, 1])
    two_sizes = nodes(("V100", 2, 2))
    one, two = (played(wide, two_sizes, make(policy, {}), way) for way in ("on", "off"))
    assert_same(tables(one), tables(two))
    assert changes


def test_modelled_rates_are_learnt_and_looked_up(changes: list[int]) -> None:
    for cluster in ("mixed", "v100:4x4+p100:8x2"):
        config = {"trace": "philly", "jobs": 150, "cluster": cluster, "policy": "srsf", "load": 1.0}
        one, two = (
            Replay(RunConfig(**config, engine={"fast_lane": way})).play() for way in ("on", "off")
        )
        assert_same(tables(one), tables(two))
    assert changes == [0, 0]


def test_what_is_forgotten_is_learnt_again(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"trace": "philly", "jobs": 150, "cluster": "mixed", "policy": "fifo-skip", "load": 1.0}
    monkeypatch.setattr(fastlane, "ENTRIES", 4)
    monkeypatch.setattr(fastlane, "POOL", 64)
    one, two = (Replay(RunConfig(**config, engine={"fast_lane": way})).play() for way in ("on", "off"))
    assert_same(tables(one), tables(two))


def test_after_as_many_starts_as_it_can_number_the_plain_loop_goes_on(
    changes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, cluster = drawn(400), nodes(("V100", 1, 8))
    monkeypatch.setattr(fastlane, "MOST_LAUNCHES", 100)
    monkeypatch.setattr(fastlane, "ROWS", 64)
    assert_same(tables(played(trace, cluster, make("srtf"), "on")), tables(played(trace, cluster, make("srtf"), "off")))
    assert len(changes) == 1 and 0 < changes[0] < 400


def test_jobs_that_get_nothing_done_end_the_run_with_the_same_words() -> None:
    """Two jobs take turns shorter than the way to their first checkpoint."""
    trace, cluster = jobs([(0, 500, 1), (0, 500, 1)]), nodes(("V100", 1, 1))
    said = []
    for way in ("on", "off"):
        with pytest.raises(IllegalDecisionError) as error:
            played(trace, cluster, make("las", {"quantum_s": 10.0, "turn_restarts": 0.0}), way,
                   checkpoint_interval_s=100.0, preempted_work="lost", preemption_overhead_s=1.0)  # fmt: skip
        said.append(str(error.value))
    assert "before any got anything done" in said[0] and said[0] == said[1]


@pytest.mark.parametrize("engine", [{"mtbf_h": 5.0}, {"sharing": "time"}, {"fast_lane": "off"}])
def test_where_other_things_happen_the_plain_loop_plays(engine: dict[str, Any], changes: list[int]) -> None:
    trace = drawn(60)
    run(trace, nodes(("V100", 4, 8)), "fifo", **{"fast_lane": "on", **engine})
    assert changes == []


def test_the_lane_is_taken_where_it_is_worth_its_compilation_or_costs_none(
    changes: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few, cluster = jobs([(i, 1, 1) for i in range(fastlane.NO_LOSS)]), nodes(("V100", 1, 8))
    run(drawn(60), nodes(("V100", 4, 8)), "fifo", fast_lane="on")
    assert changes == [0] and is_kept(lane.run_ordered)
    run(few, cluster, "fifo")
    assert changes == [0, 0]
    run(drawn(60), nodes(("V100", 4, 8)), "fifo")
    monkeypatch.setattr(jit, "cache_directory", lambda: tmp_path)
    run(few, cluster, "fifo")
    assert changes == [0, 0]
    run(jobs([(i, 1, 1) for i in range(fastlane.WORTH_IT)]), cluster, "fifo")
    assert changes == [0, 0, 0]


@dataclass
class Odd(Fifo):
    """Decides as FIFO does, but says so itself."""

    decided: ClassVar[int] = 0

    def decide(self, view: View) -> Decision:
        type(self).decided += 1
        return super().decide(view)


@dataclass
class Backwards(Srtf):
    def key(self, view: View, rows: np.ndarray) -> np.ndarray:
        return -super().key(view, rows)


def test_a_policy_that_decides_or_orders_by_itself_is_asked(changes: list[int]) -> None:
    trace, cluster = drawn(60), nodes(("V100", 5, 8))
    assert_same(tables(played(trace, cluster, Odd(), "on")), tables(played(trace, cluster, make("fifo", {}), "on")))
    assert Odd.decided > 60 and changes == [0]
    played(trace, cluster, Backwards(), "on")
    assert changes == [0]
