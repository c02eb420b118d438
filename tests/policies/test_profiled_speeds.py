"""Speeds that must be measured first: what is completed from other models, what a profile costs, what is known when."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from analysis.audit import audit
from analysis.run import Run
from policies.checks import check_policy
from policies.estimate.completed import completed, completed_errors, log_rates, mean_error
from policies.estimate.speeds import believed_speeds, mean_errors, profile
from policies.estimate.time_left import TimeLeft
from policies.heterogeneous.gandiva_fair import GandivaFair
from sim.api import Decision, Placement, Policy, View
from sim.cli.schedulers import replay
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance
from sim.performance.tables import Measurement, Point
from sim.settings.config import EngineConfig, RunConfig
from sim.workload.progress import Modelled
from tests.helpers import by_job, jobs, nodes, segments

TYPES = [gpu_type(name) for name in ("V100", "P100", "K80")]
TRUTH = Performance()
LOGS = st.floats(-5, 5)

# -- completed:K -------------------------------------------------------------------------------------------------------


def test_a_row_is_lent_by_the_reference_that_it_is_most_like() -> None:
    """By hand: profiled as (5, 6), it rises by 1 a type as the second reference does, from 5."""
    found = completed(np.array([5.0, 6.0, np.nan]), np.array([True, True, False]),
                      np.array([[0.0, 0, 0], [0, 1, 2], [0, 2, 4]]))
    assert found.tolist() == pytest.approx([5, 6, 7])


def test_profiled_on_one_type_it_is_like_the_most_usual_reference() -> None:
    """No shape can be told from one number: the second reference is nearest to the mean shape."""
    found = completed(np.array([np.nan, 6.0, np.nan]), np.array([False, True, False]),
                      np.array([[0.0, 0, 0], [0, 1, 2], [0, 2, 4]]))
    assert found.tolist() == pytest.approx([5, 6, 7])


@given(st.lists(st.tuples(LOGS, LOGS, LOGS), min_size=1, max_size=6), st.tuples(LOGS, LOGS, LOGS), st.integers(1, 7),
       st.floats(-3, 3))
def test_what_is_profiled_is_as_measured_and_a_faster_job_is_faster_by_as_much(rows, own, mask, faster) -> None:
    row, profiled = np.array(own), np.array([bool(mask >> t & 1) for t in range(3)])
    found = completed(row, profiled, np.array(rows))
    assert found[profiled].tolist() == row[profiled].tolist()
    assert np.isfinite(found).all()
    if profiled.all():
        assert found.tolist() == row.tolist()
    again = completed(row + faster, profiled, np.array(rows) + 1.0)
    if len(rows) == 1:  # of several, rounding may choose between references that are as near
        assert again == pytest.approx(found + faster, abs=1e-9)


def test_profiled_on_all_types_all_is_exact_and_on_fewer_it_is_not() -> None:
    models = ("resnet50", "vgg16", "transformer", "lstm-lm")
    errors = {k: mean_error(believed_speeds(f"completed:{k}", TRUTH, models, 0, "refuse", TYPES), TRUTH, models, TYPES)
              for k in (1, 2, 3)}
    assert errors[3] == 0.0
    assert errors[1] > errors[2] > 0.0


def test_the_belief_of_a_model_hangs_on_seed_and_model_only() -> None:
    first, second = completed_errors(TRUTH, TYPES, 1, 3), completed_errors(TRUTH, TYPES, 1, 3)
    asked = [(model, gpu.name) for model in ("resnet50", "vgg16") for gpu in TYPES]
    assert {key: first(*key) for key in asked} == {key: second(*key) for key in reversed(asked)}
    assert first("resnet50", "A100") == 1.0  # not of the cluster


def test_measured_models_are_completed_by_measured_ones() -> None:
    """a and b are alike but for a factor, c is not: a, profiled on two types, is b's on the third; zoo models are no
    nearer. Its second gang was measured on one type only, and tells nothing of types."""
    rates = {"a": (4.0, 2.0, 3.0), "b": (40.0, 20.0, 10.0), "c": (1.0, 9.0, 1.0)}
    points = {Point(m, 8, gpu.name, 1, 1): Measurement(r) for m, row in rates.items()
              for gpu, r in zip(TYPES, row, strict=True)}
    points[Point("a", 8, "V100", 2, 1)] = Measurement(1000.0)
    truth = Performance(table=MeasuredTable(points, "by hand"))
    assert log_rates(truth, "a", TYPES) == pytest.approx(np.log(rates["a"]))
    seed = next(s for s in range(100) if completed_errors(truth, TYPES, 2, s)("a", "K80") != 1.0)
    told = believed_speeds("completed:2", truth, ["a"], seed, "refuse", TYPES)
    by_type = [told.data_parallel("a", 8, gpu, (1,)).rate for gpu in TYPES]
    assert by_type[:2] == pytest.approx([4.0, 2.0])
    assert by_type[2] / by_type[0] == pytest.approx(np.exp(-log_rates(truth, "a", TYPES)[0] + completed(
        log_rates(truth, "a", TYPES), np.array([True, True, False]),
        np.array([row for m in truth.models if m != "a" and np.isfinite(row := log_rates(truth, m, TYPES)).all()]))[2]))


# -- profiled:SECONDS --------------------------------------------------------------------------------------------------


def test_the_error_of_a_mean_falls_with_the_root_of_its_iterations() -> None:
    few, many = mean_errors(10.0, 0.2, 0), mean_errors(40.0, 0.2, 0)
    assert many("a", 8, "V100", 1, 1.0) - 1 == pytest.approx((few("a", 8, "V100", 1, 1.0) - 1) / 2)
    off = np.array([few(f"m{i}", 8, "V100", 1, 1.0) - 1 for i in range(4000)])
    assert off.std() == pytest.approx(0.2 / np.sqrt(10), rel=5 / np.sqrt(2 * 4000))


def test_a_profile_with_noise_is_believed_and_one_without_is_exact() -> None:
    exact, noisy = (believed_speeds(kind, TRUTH, ["vgg16"], 0, "refuse", TYPES) for kind in
                    ("profiled:60", "profiled:60:0.5"))
    true = TRUTH.data_parallel("vgg16", 32, TYPES[0], (2,))
    assert exact.data_parallel("vgg16", 32, TYPES[0], (2,)).rate == true.rate
    factor = mean_errors(20.0, 0.5, 0)("vgg16", 32, "V100", 2, true.iteration_s)
    assert noisy.data_parallel("vgg16", 32, TYPES[0], (2,)).rate == pytest.approx(true.rate / factor)
    assert factor != 1.0


@dataclass
class StopAndGo(Policy):
    """Starts the job at 0 s, stops it at `stop_s`, starts it again at 20 s; looks at its speed each time."""

    needs_throughput: ClassVar[bool] = True
    stop_s: float = 10.0
    seen: dict[float, list[float]] = field(default_factory=dict)

    def decide(self, view: View) -> Decision:
        row = np.array([0])
        self.seen[view.now_s] = [float(view.throughput(row, t, n)[0]) for t in (0, 1) for n in (1, 2)]
        gpu = Placement(np.array([0], dtype=np.int32))
        wake_s = next((at for at in (self.stop_s, 20.0, 41.0, 42.0) if at > view.now_s), None)
        if view.now_s in (0.0, 20.0):
            return Decision(start=[(0, gpu)] if view.queued.size else [], wake_s=wake_s)
        return Decision(stop=[0] if view.now_s == self.stop_s and self.stop_s < 20 else [], wake_s=wake_s)


def run(policy: Policy, **engine: Any) -> RunResult:
    """100 s on a V100; on the T4 three times slower."""
    spec = nodes(("V100", 1, 2), ("T4", 1, 2))
    rates = {"V100": 3.0, "T4": 1.0}
    table = MeasuredTable({Point("a", 0, kind, n, 0): Measurement(rate * n) for kind, rate in rates.items()
                           for n in (1, 2)}, "by hand", "refuse")
    speeds = Performance(table=table)
    trace = jobs([(0.0, 100.0, 1)], model=["a"], batch_size=[8])
    truth = Modelled(trace, spec, speeds, gpu_type("V100"))
    return simulate(trace, spec, policy, truth, EngineConfig(**{"preemption_overhead_s": 2.0, **engine}),
                    performance=speeds, speed_belief="profiled:30", profiling_s=30.0)


def audited(result: RunResult) -> str:
    return str(audit(Run(Path("here"), result.tables, result.info, result.timing)).first or "")


def test_a_profile_holds_the_gpus_and_is_paid_once_whoever_interrupts_it() -> None:
    """10 s of 30 are done when it is stopped; at 20 s it pays the restart, 2 s, and the other 20; then it works."""
    result = run(StopAndGo())
    found = segments(result)
    assert found.overhead_s.tolist() == [30.0, 22.0]
    assert found.work_done.tolist() == pytest.approx([0.0, 300.0])
    assert by_job(result).end_s.tolist() == [142.0]
    assert result.info["profiling_s"] == 30.0 and result.info["speed_belief"] == "profiled:30"
    assert audited(result) == ""


def test_stopped_while_it_still_starts_it_has_measured_nothing() -> None:
    """Of a cold start of 15 s and 30 s of profile 10 s have passed."""
    result = run(StopAndGo(), cold_start_s=15.0)
    assert segments(result).overhead_s.tolist() == [45.0, 32.0]
    assert audited(result) == ""


def test_once_it_is_known_restarts_cost_what_they_cost() -> None:
    """Stopped at 35 s, known at 30 s, it never starts again: the run ends with it waiting; nothing is left to pay."""
    policy = StopAndGo(stop_s=35.0)
    result = run(policy)
    assert segments(result).overhead_s.tolist() == [30.0]
    assert audited(result) == ""


def test_until_it_is_known_a_job_is_as_fast_on_each_type_as_on_its_reference() -> None:
    """3 work a second and GPU, the rate of the V100, until 42 s."""
    run(policy := StopAndGo())
    assert policy.seen[0.0] == policy.seen[10.0] == policy.seen[41.0] == [3.0, 6.0, 3.0, 6.0]
    assert policy.seen[42.0] == [3.0, 6.0, 1.0, 2.0]


@dataclass
class Hearing(StopAndGo):
    """The same; it keeps what it believes by type."""

    heard: dict[float, list[float]] = field(default_factory=dict)

    def prepare(self, view: View) -> None:
        self._left_s = TimeLeft(view)

    def decide(self, view: View) -> Decision:
        self.heard[view.now_s] = self._left_s.speeds(view, np.array([0]))[0].tolist()
        return super().decide(view)


def test_beliefs_that_are_kept_hear_what_was_measured() -> None:
    run(policy := Hearing())
    assert policy.heard[41.0] == [3.0, 3.0] and policy.heard[42.0] == [3.0, 1.0]


@dataclass
class SharesAnew(GandivaFair):
    """Gandiva-fair; it keeps the speeds by which it found shares."""

    found_by: list[list[float]] = field(default_factory=list)

    def _shares(self, view: View, rows: np.ndarray, have: np.ndarray) -> np.ndarray:
        self.found_by.append(self.rates(view, rows)[0].tolist())
        return super()._shares(view, rows, have)


def test_shares_that_are_kept_are_found_anew_once_a_profile_is_done() -> None:
    """The same job on the same GPUs: at the round after 30 s its speeds are others."""
    run(policy := SharesAnew())
    assert policy.found_by == [[3.0, 3.0], [3.0, 1.0]]


@pytest.mark.parametrize("wrong", [29.0, 31.0])
def test_the_audit_finds_a_profile_that_was_not_charged_as_said(wrong: float) -> None:
    result = run(StopAndGo())
    table = result.tables["segments"]
    at = table.schema.get_field_index("overhead_s")
    told, values = table.schema.field(at), [wrong, *table.column("overhead_s").to_pylist()[1:]]
    result.tables["segments"] = table.set_column(at, told, pa.array(values, told.type))
    assert "overhead" in audited(result)


# -- both --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["completed:0", "completed:1.5", "completed:", "profiled:", "profiled:-1", "profiled",
                                  "profiled:nan", "profiled:60:", "profiled:60:11", "profiled:60:x"])
def test_beliefs_that_are_none_are_refused(kind: str) -> None:
    with pytest.raises(ValidationError, match="value not allowed"):
        RunConfig.model_validate({"speed_belief": kind})


def test_beliefs_are_read() -> None:
    assert [profile(kind) for kind in ("profiled:60", "profiled:60:0.1", "exact")] == [(60, 0), (60, 0.1), (0, 0)]
    for kind in ("completed:1", "completed:64", "profiled:0", "profiled:60:0.1"):
        assert RunConfig(speed_belief=kind).speed_belief == kind


@pytest.mark.parametrize("kind", ["completed:1", "profiled:3:0.1"])
@pytest.mark.parametrize("policy", ["gavel", "hetero", "sia"])
def test_policies_pass_the_suite_under_each_kind(policy: str, kind: str) -> None:
    report = check_policy(policy, runner=partial(replay, speed_belief=kind))
    assert report.ok, report.text
