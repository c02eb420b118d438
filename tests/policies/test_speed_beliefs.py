"""What policies are told about speeds: how wrong it is, that jobs run by the truth, and that the truth stays hidden."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from policies.estimate.speeds import believed_speeds, speed_errors
from policies.mechanisms import Ordered
from policies.registry import make
from sim.api import Decision, Placement, Policy, PolicyError, View
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance
from sim.performance.tables import Measurement, Point
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled, Recorded
from tests.helpers import by_job, jobs, nodes, segments

V100, T4 = gpu_type("V100"), gpu_type("T4")
TRUTH = Performance()


def believed(kind: str, truth: Performance = TRUTH, models: tuple[str, ...] = ("resnet50",), seed: int = 0):
    return believed_speeds(kind, truth, models, seed, "refuse")


# -- what is believed --------------------------------------------------------------------------------------------------


def test_the_exact_belief_is_the_model_by_which_jobs_run():
    assert believed("exact") is TRUTH


def test_noise_stretches_the_operators_and_nothing_else():
    """By hand: an iteration on one GPU is operators and step; believed, the operators take f times as long."""
    wrong = believed("noisy:0.5")
    for model, gpu in (("resnet50", V100), ("resnet50", T4), ("vgg16", V100)):
        f = speed_errors(0.5, 0)(model, gpu.name)
        true, told = (one.data_parallel(model, 32, gpu, (1,)) for one in (TRUTH, wrong))
        assert told.compute_s == pytest.approx(f * true.compute_s, rel=1e-12)
        assert (told.update_s, told.memory_gib) == (true.update_s, true.memory_gib)
        gang = [one.data_parallel(model, 32, gpu, (2, 2)) for one in (TRUTH, wrong)]
        assert gang[1].iteration_s - gang[0].iteration_s == pytest.approx((f - 1) * gang[0].compute_s, rel=1e-9)


def test_the_mean_relative_error_is_that_asked_for_and_half_are_too_fast():
    """5 standard deviations of the mean of 20,000 models."""
    factor = speed_errors(0.3, 0)
    f = np.array([factor(f"model {i}", "V100") for i in range(20_000)])
    assert np.abs(f - 1).mean() == pytest.approx(0.3, abs=5 * np.abs(f - 1).std() / np.sqrt(f.size))
    assert (f < 1).mean() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(f.size))


def test_an_error_hangs_on_seed_model_and_type_only():
    def told(seed, *order):
        wrong = believed("noisy:0.5", seed=seed)
        return {(model, gpu.name): wrong.data_parallel(model, 32, gpu, (1,)).iteration_s for model, gpu in order}

    keys = [("resnet50", V100), ("vgg16", V100), ("resnet50", T4)]
    first = told(0, *keys)
    assert told(0, *reversed(keys)) == first
    assert not set(told(1, *keys).values()) & set(first.values())
    assert [believed("noisy:0").data_parallel(m, 32, g, (1,)) for m, g in keys] == \
        [TRUTH.data_parallel(m, 32, g, (1,)) for m, g in keys]


def test_measured_rates_err_as_a_whole():
    table = MeasuredTable({Point("mine", 0, name, 1, 1): Measurement(2.0) for name in ("V100", "T4")}, "a test")
    wrong = believed("noisy:0.5", Performance(table=table), ("mine",))
    factor = speed_errors(0.5, 0)
    for gpu in (V100, T4):
        assert wrong.data_parallel("mine", 1, gpu, (1,)).rate == pytest.approx(2.0 / factor("mine", gpu.name))


@pytest.fixture
def table(tmp_path):
    """ResNet-50 in batches of 32 runs on one V100 at 7 iterations a second; GPT-2 on one T4 at 1."""
    points = {Point("resnet50", 32, "V100", 1, 1): Measurement(7.0),
              Point("gpt2-1.5b", 8, "T4", 1, 1): Measurement(1.0)}
    MeasuredTable(points, "a test").write_csv(tmp_path / "mine.csv")
    return f"table:{tmp_path / 'mine.csv'}"


def test_a_table_is_believed_where_jobs_run_by_the_model(table):
    """Its models at its rates, the others as in truth; what does not fit the memory does not fit, whatever it says."""
    wrong = believed(table, models=("resnet50", "vgg16"))
    assert wrong.data_parallel("resnet50", 32, V100, (1,)).rate == 7.0
    assert wrong.data_parallel("vgg16", 32, V100, (1,)) == TRUTH.data_parallel("vgg16", 32, V100, (1,))
    assert wrong.data_parallel("gpt2-1.5b", 8, T4, (1,)).rate == 0.0
    assert not wrong.fits("gpt2-1.5b", 8, T4, 1)


def test_another_calibration_has_its_speeds_and_the_memory_of_the_truth():
    """`scripts` computes in single precision, whose larger activations would not fit."""
    wrong, own = believed("calibration:scripts"), Performance(calibration="scripts")
    assert wrong.data_parallel("resnet50", 64, V100, (2,)).rate == own.data_parallel("resnet50", 64, V100, (2,)).rate
    batch = next(b for b in range(32, 4096, 32) if not own.fits("resnet50", b, V100, 1))
    assert TRUTH.fits("resnet50", batch, V100, 1)
    assert wrong.fits("resnet50", batch, V100, 1)
    told = wrong.data_parallel("resnet50", batch, V100, (1,))
    assert told.memory_gib == TRUTH.data_parallel("resnet50", batch, V100, (1,)).memory_gib
    assert told.rate < TRUTH.data_parallel("resnet50", batch, V100, (1,)).rate


def test_a_calibration_is_believed_of_models_with_a_graph_and_measured_job_types_keep_their_rates():
    points = {Point(model, 0, "V100", 1, 1): Measurement(7.0) for model in ("resnet50", "mine")}
    wrong = believed("calibration:eager", Performance(table=MeasuredTable(points, "a test")), ("resnet50", "mine"))
    assert wrong.data_parallel("mine", 1, V100, (1,)).rate == 7.0
    assert wrong.data_parallel("resnet50", 32, V100, (1,)).rate == \
        Performance(calibration="eager").data_parallel("resnet50", 32, V100, (1,)).rate
    assert wrong.undivided("resnet50")  # jobs run at measured rates, which tell nothing of stages


def test_a_model_of_which_nothing_is_believed_is_refused(table):
    measured = MeasuredTable({Point("theirs", 0, "V100", 1, 1): Measurement(1.0)}, "a test")
    with pytest.raises(PolicyError, match=r"nothing is believed of the speed of a job's model.*theirs"):
        believed(table, Performance(table=measured), ("theirs",))


# -- what a policy sees ------------------------------------------------------------------------------------------------


@dataclass
class Choosy(Ordered):
    """Starts each job where it is believed to be fastest, and writes down what it sees."""

    needs_throughput: ClassVar[bool] = True
    needs_performance: ClassVar[bool] = True

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self.view: View = view
        self.told: list[tuple[float, float]] = []
        self.seen: list[tuple[float, list[float], list[float]]] = []

    def decide(self, view: View) -> Decision:
        rows = np.arange(len(view.jobs))
        self.seen.append((view.now_s, view.attained_work(rows).tolist(), view.rate_now(rows).tolist()))
        start, taken = [], set()
        for row in view.queued.tolist():
            rates = {t: view.throughput(np.array([row]), t, int(view.jobs.num_gpus[row]))[0]
                     for t in range(len(view.cluster.types)) if t not in taken and view.type_idle[t]}
            if rates:
                best = max(rates, key=lambda t: rates[t])
                gpus = np.flatnonzero(view.cluster.gpu_type == best)[: view.jobs.num_gpus[row]].astype(np.int32)
                start.append((row, Placement(gpus)))
                taken.add(best)
        return Decision(start=start)


def play(policy: Policy, kind: str, work: Any = None, seed: int = 0, **more: Any) -> RunResult:
    """ResNet-50 and VGG-16 on a V100 and a T4 under a belief."""
    spec = nodes(("V100", 1, 1), ("T4", 1, 1))
    trace = jobs([(0.0, 100.0, 1), (0.0, 50.0, 1), (10.0, 50.0, 1)], model=["resnet50", "vgg16", "vgg16"],
                 batch_size=[32] * 3)  # fmt: skip
    truth = work or Modelled(trace, spec, TRUTH, V100)
    return simulate(trace, spec, policy, truth, EngineConfig(preemption_overhead_s=0.0), speed_belief=kind,
                    performance=believed(kind, seed=seed), **more)


def true_rate(model: str, gpu: Any) -> float:
    return TRUTH.data_parallel(model, 32, gpu, (1,)).rate


def test_a_policy_acts_by_its_belief_and_the_job_runs_by_the_truth():
    """The first seed by which ResNet-50 is believed to be faster on the T4: it goes there, and is as slow as it is."""
    seed = next(s for s in range(1000) if (speeds := believed("noisy:2", seed=s))
                and speeds.data_parallel("resnet50", 32, T4, (1,)).rate
                > speeds.data_parallel("resnet50", 32, V100, (1,)).rate)
    assert true_rate("resnet50", T4) < true_rate("resnet50", V100)
    first = segments(play(Choosy(), "noisy:2", seed=seed)).query("job_id == '0'").iloc[0]
    assert first["gpu_ids"].tolist() == [1]
    assert first["work_done"] / (first["end_s"] - first["begin_s"]) == pytest.approx(true_rate("resnet50", T4))
    told = play(policy := Choosy(), "noisy:2", seed=seed)
    assert told.info["speed_belief"] == "noisy:2"
    assert policy.view.throughput(np.array([0]), "T4", 1)[0] == \
        believed("noisy:2", seed=seed).data_parallel("resnet50", 32, T4, (1,)).rate


def test_attained_work_and_the_rate_now_are_the_true_ones_whatever_is_believed():
    """At 10 s the two first jobs have done 10 s at their true rates; the third waits and does nothing."""
    play(policy := Choosy(), "noisy:0.5")
    at = next(i for i, (now_s, *_) in enumerate(policy.seen) if now_s == 10.0)
    _, work, rates = policy.seen[at]
    on = {0: V100, 1: T4} if rates[0] == pytest.approx(true_rate("resnet50", V100)) else {0: T4, 1: V100}
    assert rates == pytest.approx([true_rate("resnet50", on[0]), true_rate("vgg16", on[1]), 0.0])
    assert work == pytest.approx([10.0 * rate for rate in rates])


def test_work_left_over_the_throughput_is_the_time_left_on_a_type():
    """By hand: told 100 s on a V100, after 10 s there 90 s are left; on the T4 longer by the ratio of rates."""

    @dataclass
    class Telling(Ordered):
        """Writes down how long the first job would go on, on each type."""

        needs_throughput: ClassVar[bool] = True
        needs_estimates: ClassVar[bool] = True

        def prepare(self, view: View) -> None:
            super().prepare(view)
            self.left: dict[float, list[float]] = {}

        def decide(self, view: View) -> Decision:
            row = np.array([0])
            self.left[view.now_s] = [(view.remaining_work(row) / view.throughput(row, t, 1))[0] for t in ("V100", "T4")]
            return super().decide(view)

    play(policy := Telling(), "exact", estimate_s=np.array([100.0, 50.0, np.nan]))
    slower = true_rate("resnet50", V100) / true_rate("resnet50", T4)
    assert slower > 1
    assert policy.left[0.0] == pytest.approx([100.0, 100.0 * slower])
    assert policy.left[10.0] == pytest.approx([90.0, 90.0 * slower])


def test_a_job_that_restarts_does_nothing_yet():
    """Preempted at 10 s and started again with 5 s of overhead: its rate is 0 until 15 s."""

    @dataclass
    class Pausing(Policy):
        """Stops the job at 10 s, starts it again, and looks each second."""

        needs_throughput: ClassVar[bool] = True

        def prepare(self, view: View) -> None:
            self.rates: dict[float, float] = {}

        def decide(self, view: View) -> Decision:
            self.rates[view.now_s] = float(view.rate_now(np.array([0]))[0])
            if view.now_s == 10.0:
                return Decision(stop=[0], wake_s=11.0)
            start = [(0, Placement(np.array([0], dtype=np.int32)))] if view.queued.size else []
            return Decision(start=start, wake_s=view.now_s + 1.0 if view.now_s < 20.0 else None)

    trace, spec = jobs([(0.0, 30.0, 1)]), nodes(("V100", 1, 1))
    simulate(trace, spec, policy := Pausing(), Recorded(trace, spec), EngineConfig(preemption_overhead_s=5.0))
    assert [policy.rates[float(s)] for s in (0, 1, 10, 11, 12, 15, 16, 17)] == [0, 1, 1, 0, 0, 0, 1, 1]


def test_who_shares_a_gpu_stands_beside():
    """Slots of 0.5, 0.5 and 0.5 on GPUs 0, 0 and 1, and a gang of two halves on 0 and 1 where there is room."""

    @dataclass
    class Packing(Policy):
        """Places by hand, and asks who is beside whom."""

        def prepare(self, view: View) -> None:
            self.found: dict[int, list[int]] = {}

        def decide(self, view: View) -> Decision:
            if view.running.size:
                self.found = self.found or {row: view.beside(row).tolist() for row in range(len(view.jobs))}
                return Decision()
            places = [[0], [0], [1], [1, 2], [3]]
            return Decision([(row, Placement(np.array(gpus, dtype=np.int32))) for row, gpus in enumerate(places)],
                            wake_s=1.0)

    trace = jobs([(0.0, 30.0, 1)] * 3 + [(0.0, 30.0, 2), (0.0, 30.0, 1)], gpu_milli=[500] * 4 + [1000])
    spec = nodes(("V100", 1, 4))
    simulate(trace, spec, policy := Packing(), Recorded(trace, spec), EngineConfig())
    assert policy.found == {0: [1], 1: [0], 2: [3], 3: [2], 4: []}


@pytest.mark.parametrize("read", ["throughput(rows, 'V100', 1)", "throughput_of_plan(0, None)", "attained_work(rows)",
                                  "rate_now(rows)", "remaining_work(rows)"])
def test_rates_that_were_not_declared_are_refused(read):
    @dataclass
    class Peeking(Ordered):
        """Reads rates without saying so."""

        def key(self, view: View, rows: np.ndarray) -> np.ndarray:
            return np.asarray(eval(f"view.{read}", {"view": view, "rows": rows}))

    with pytest.raises(PolicyError, match="without declaring needs_throughput"):
        play(Peeking(), "exact")


def test_a_run_without_any_belief_is_refused():
    @dataclass
    class Reading(Choosy):
        """Reads throughputs only."""

        needs_performance: ClassVar[bool] = False

    trace, spec = jobs([(0.0, 9.0, 1)], model=["resnet50"], batch_size=[32]), nodes(("V100", 1, 1))
    with pytest.raises(PolicyError, match="no belief of speed"):
        simulate(trace, spec, Reading(), Modelled(trace, spec, TRUTH, V100))
    done = simulate(trace, spec, policy := Reading(), Recorded(trace, spec))  # a second is a second
    assert by_job(done)["state"].tolist() == ["done"]
    assert policy.view.throughput(np.array([0, 0]), "V100", np.array([1, 2])).tolist() == [1.0, 0.0]


# -- hidden stays hidden -----------------------------------------------------------------------------------------------


def reached(thing: Any) -> Iterator[Any]:
    """All objects that attributes, containers and closures lead to; no modules, classes and globals."""
    seen: dict[int, Any] = {}
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | str | bytes | int | float | None | np.ndarray):
            continue
        seen[id(one)] = one
        yield one
        waiting += list(getattr(one, "__dict__", {}).values())
        waiting += [getattr(one, name) for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())
                    if isinstance(name, str) and hasattr(one, name)]
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += list(one)
        waiting += [cell.cell_contents for cell in getattr(one, "__closure__", None) or ()]


@pytest.mark.parametrize("kind", ["noisy:0.5", "calibration:eager", "table"])
def test_a_policy_that_digs_finds_no_true_speed(kind, table):
    """By no model that the view leads to does a job take its true time, nor by any table that it has."""
    kind = table if kind == "table" else kind
    points = {Point("mine", 0, "V100", 1, 1): Measurement(3.25)}
    truth = TRUTH if kind == table else Performance(table=MeasuredTable(points, "a test"))
    spec = nodes(("V100", 1, 1))
    trace = jobs([(0.0, 100.0, 1)], model=["resnet50"], batch_size=[32])
    speeds = believed_speeds(kind, truth, ("resnet50",), 0, "refuse")
    simulate(trace, spec, policy := Choosy(), Modelled(trace, spec, truth, V100), performance=speeds)
    found = list(reached(policy.view))
    models = [one for one in found if isinstance(one, Performance)]
    assert speeds in models
    assert not any(one is truth for one in found)
    for model in models:
        assert model.data_parallel("resnet50", 32, V100, (1,)).rate != pytest.approx(true_rate("resnet50", V100))
    tables = [one for one in found if isinstance(one, MeasuredTable)]
    measured = {at: one.iterations_per_s for each in tables for at, one in each.points.items() if at.model == "mine"}
    assert kind == "calibration:eager" or 3.25 not in measured.values()


# -- under the planners ------------------------------------------------------------------------------------------------


def crowd(count: int = 24):
    rng = np.random.default_rng(5)
    models = rng.choice(["resnet50", "vgg16", "transformer"], count).tolist()
    rows = [(30.0 * i, float(s), int(g)) for i, (s, g) in
            enumerate(zip(rng.integers(300, 3000, count), rng.choice([1, 2, 4], count), strict=True))]
    return jobs(rows, model=models, batch_size=[64] * count)


def planned(kind: str, truth: Performance = TRUTH, policy: str = "hetero") -> RunResult:
    spec, trace = nodes(("V100", 1, 4), ("T4", 2, 4)), crowd()
    speeds = believed_speeds(kind, truth, trace.model.tolist(), 0, "linear")
    return simulate(trace, spec, make(policy), Modelled(trace, spec, truth, V100), performance=speeds,
                    speed_belief=kind)


def test_hetero_plans_otherwise_under_a_wrong_belief_and_all_jobs_end():
    right, wrong = planned("exact"), planned("noisy:0.5")
    assert by_job(wrong)["state"].tolist() == ["done"] * len(crowd())
    assert not right.tables["segments"].equals(wrong.tables["segments"])
    assert right.info["speed_belief"] == "exact"
    assert wrong.tables["segments"].equals(planned("noisy:0.5").tables["segments"])
    assert right.tables["jobs"]["work_total"].equals(wrong.tables["jobs"]["work_total"])


@pytest.mark.parametrize("policy", ["hetero", "homogeneous-dp"])
def test_planners_end_all_jobs_under_any_belief_and_truth(policy, table, tmp_path):
    """Precisions whose memory differs, a table that knows no stages, and a truth that knows none."""
    points = {Point("resnet50", 64, name, 1 << k, 1): Measurement(3.0 * 1.8**k) for name in ("V100", "T4")
              for k in range(3)}
    MeasuredTable(points, "a test").write_csv(tmp_path / "own.csv")
    measured = Performance(table=MeasuredTable(points, "a test", "linear"))
    for kind, truth in (("calibration:scripts", TRUTH), ("exact", Performance(calibration="scripts")),
                        ("calibration:tuned", Performance(calibration="scripts")),
                        (f"table:{tmp_path / 'own.csv'}", TRUTH), ("calibration:eager", measured),
                        ("noisy:0.5", measured)):
        assert by_job(planned(kind, truth, policy))["state"].tolist() == ["done"] * len(crowd()), (kind, truth)
