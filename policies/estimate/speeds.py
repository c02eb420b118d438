"""What a policy believes about speed: a performance model that may be wrong, while jobs run by the truth.

=============================  ============================================================================
`exact`                        the model by which jobs run
`noisy:MRE`                    a model's operators take true time × exp(s z) on a GPU type, z normal, drawn once for
                               each (model, GPU type), s such that the mean relative error is MRE; measured rates err
                               as a whole. Links and optimizer steps are known exactly
`table:FILE`                   models that the file has measured run at its rates, the others as in truth
`calibration:NAME_OR_FILE`     the model with another calibration; job types that are known by measured rates only
                               keep these
`completed:K`                  each model was profiled on K of the GPU types, drawn by the seed; on the others it is as
                               fast as the model most like it (`completed`)
`profiled:SECONDS`             each job's first runs hold their GPUs for so long without working; until then it is
                               believed as fast on each type as on the reference GPUs, then as it is (`view.throughput`)
`profiled:SECONDS:CV`          the same; believed is the mean of as many iterations as a T-th of that time holds, T GPU
                               types: true time × (1 + CV z / sqrt(n)), z normal, drawn once for each model, batch, GPU
                               type and gang; CV is the spread of one iteration's time over its mean
=============================  ============================================================================

What fits the memory, and whether a model can be divided into stages, is known exactly: a job that is placed runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from policies.estimate import lognormal_sd
from policies.estimate.completed import completed_errors
from sim.api import ClusterSpec, Plan, PolicyError
from sim.performance import MODELS, GpuType, Iteration, MeasuredTable, Performance, PerformanceError
from sim.performance.calibration import KINDS, Calibration, KindFit, named_calibration
from sim.performance.memory import memory_form
from sim.performance.stage_sites import GangSites, Places
from sim.performance.tables import Measurement, load_table

STREAM = 9
"""Of the errors: `default_rng([seed, STREAM, hash of model and GPU type])`."""

Factor = Callable[[str, str], float]
"""(model, GPU type) -> believed over true time."""
Noise = Callable[[str, int, str, int, float], float]
"""(model, batch size, GPU types, GPUs, true iteration in s) -> believed over true time of that iteration."""
LEAST = 0.01
"""Of `profiled`: a mean is never believed to be less of the truth than that."""


def believed_speeds(
    kind: str, truth: Performance, models: Iterable[str], seed: int, gaps: str, types: Sequence[GpuType] = ()
) -> Performance:
    """The performance model that a policy is given.

    Parameters
    ----------
    kind : as above.
    truth : the model by which jobs run.
    models : of the jobs; the belief must know each.
    gaps : what to do where the table of a belief was not measured (`MeasuredTable`).
    types : of the cluster, which `completed` and `profiled` are about.

    Raises
    ------
    PolicyError
        An unknown kind, or a model of which nothing is believed.
    PerformanceError
        A table or calibration that cannot be used.
    """
    name, _, value = kind.partition(":")
    if kind == "exact":
        return truth
    if name == "noisy":
        factor = speed_errors(float(value), seed)
        believed = Believed(truth, _scaled(truth.table, factor), truth.calibration, factor)
    elif name == "completed":
        factor = completed_errors(truth, types, int(value), seed)
        believed = Believed(truth, _scaled(truth.table, factor), truth.calibration, factor)
    elif name == "profiled":
        seconds, spread = profile(kind)
        noise = mean_errors(seconds / max(1, len(types)), spread, seed)
        believed = Believed(truth, truth.table, truth.calibration, noise=noise if spread else None)
    elif name == "table":
        believed = Believed(truth, load_table(value, gaps), truth.calibration)
    elif name == "calibration":
        believed = Believed(truth, _without_graphs(truth), named_calibration(value))
    else:
        raise PolicyError("unknown belief of speed", where="setting 'speed_belief'", got=kind,
                          allowed="exact, noisy:MRE, table:FILE, calibration:NAME_OR_FILE, completed:K, "
                          "profiled:SECONDS, profiled:SECONDS:CV")
    strange = [model for model in dict.fromkeys(models) if not believed.known(model)]
    if strange:
        raise PolicyError("nothing is believed of the speed of a job's model", where=f"setting 'speed_belief' = {kind}",
                          got=", ".join(strange[:5]), allowed="models of the zoo and those of the table",
                          todo="Add them to the table, or use another belief.")
    return believed


class Believed(Performance):
    """A performance model that is right about memory, and about speed as right as its table, calibration and factor.

    It holds nothing of the truth that tells a speed, apart from links, graphs and what it is given.

    Parameters
    ----------
    truth : the model by which jobs run.
    table, calibration : in place of the truth's.
    factor : believed over true time of the operators of a model on a GPU type.
    noise : believed over true time of whole iterations.
    """

    def __init__(
        self, truth: Performance, table: MeasuredTable | None, calibration: Calibration, factor: Factor | None = None,
        noise: Noise | None = None,
    ) -> None:
        super().__init__(
            truth.links, table, schedule=truth.schedule, calibration=calibration, graphs=truth.graphs,
            blocking=truth.blocking, overlap=truth.overlap, exchange=truth.exchange, optimizer=truth.optimizer,
            context_gib=truth.context_gib,
        )  # fmt: skip
        self._factor, self._noise, self._room = factor, noise, _room(truth)

    def undivided(self, model: str) -> bool:
        return super().undivided(model) or self._room.undivided(model)

    def fits(self, model: str, batch_size: int, gpu: GpuType, num_gpus: int) -> bool:
        return super().fits(model, batch_size, gpu, num_gpus) and self._room.fits(model, batch_size, gpu, num_gpus)

    def stage_memory_form(self, model: str, first_op: int, last_op: int) -> tuple[float, float, float]:
        return memory_form(self.graph(model), first_op, last_op, self._room.value_bytes, self.optimizer,
                           self.context_gib)

    def _operator_times_s(self, model: str, samples: float, gpu: GpuType, ways: int) -> tuple[np.ndarray, np.ndarray]:
        forward, backward = super()._operator_times_s(model, samples, gpu, ways)
        factor = 1.0 if self._factor is None else self._factor(model, gpu.name)
        return forward * factor, backward * factor

    def _gang(
        self, model: str, batch_size: int, gpu: GpuType, gpus_per_node: tuple[int, ...], racks: int,
        slots: tuple[int, ...], sites: GangSites,
    ) -> Iteration:  # fmt: skip
        found = super()._gang(model, batch_size, gpu, gpus_per_node, racks, slots, sites)
        found = self._measured_as(found, model, batch_size, gpu.name, sum(gpus_per_node))
        return _in_room(
            found, lambda: self._room.data_parallel(model, batch_size, gpu, gpus_per_node, racks, slots, sites)
        )  # fmt: skip

    def _planned(
        self, model: str, batch_size: int, plan: Plan, gpus: np.ndarray, cluster: ClusterSpec, places: Places
    ) -> Iteration:
        found = super()._planned(model, batch_size, plan, gpus, cluster, places)
        kinds = "+".join(sorted({part.gpu_type for part in plan.parts}))
        found = self._measured_as(found, model, batch_size, kinds, plan.num_gpus)
        return _in_room(found, lambda: self._room.plan(model, batch_size, plan, gpus, cluster))

    def _measured_as(self, found: Iteration, model: str, batch_size: int, kinds: str, gpus: int) -> Iteration:
        """An iteration as a noisy profile has it."""
        if self._noise is None or not found.fits:
            return found
        return replace(found, iteration_s=found.iteration_s * self._noise(model, batch_size, kinds, gpus,
                                                                          found.iteration_s))


def _in_room(found: Iteration, ask: Callable[[], Iteration]) -> Iteration:
    """A believed iteration with the memory that it truly needs."""
    try:
        room = ask()
    except PerformanceError as error:  # of a model with measured rates, what nobody measured
        return found.without_fit(str(error))
    if not room.fits:
        return found.without_fit(room.reason)
    # A belief in another precision may ask for more memory than there is.
    iteration_s = found.compute_s + found.bubble_s + found.allreduce_s + found.transfer_s + found.update_s
    if found.fits or not np.isfinite(iteration_s):
        return replace(found, memory_gib=room.memory_gib)
    return replace(found, iteration_s=iteration_s, fits=True, reason="", memory_gib=room.memory_gib)


def _room(truth: Performance) -> Performance:
    """A model in which the same fits as in the truth, and whose speeds tell nothing of it."""
    even = KindFit(1.0, 1.0, 0.0)
    blank = Calibration("memory", truth.calibration.precision, dict.fromkeys(KINDS, even), 0.0, 0.0, "nobody's")
    table = None if truth.table is None else replace(
        truth.table,
        points={at: Measurement(float(one.iterations_per_s > 0)) for at, one in truth.table.points.items()},
    )  # fmt: skip
    return Performance(truth.links, table, schedule=truth.schedule, calibration=blank, graphs=truth.graphs,
                       optimizer=truth.optimizer, context_gib=truth.context_gib)


def speed_errors(mre: float, seed: int) -> Factor:
    """exp(s z), z of its own for each model and GPU type, whatever else is asked for."""
    sd = lognormal_sd(mre)

    def factor(model: str, gpu: str) -> float:
        digest = hashlib.sha256(f"{model}\0{gpu}".encode()).digest()
        rng = np.random.default_rng([seed, STREAM, int.from_bytes(digest[:8], "big")])
        return float(np.exp(sd * rng.standard_normal()))

    return factor


def profile(kind: str) -> tuple[float, float]:
    """Seconds of a job's profile and CV of `profiled:SECONDS[:CV]`; 0 and 0 of another belief."""
    name, _, value = kind.partition(":")
    if name != "profiled":
        return 0.0, 0.0
    seconds, _, spread = value.partition(":")
    return float(seconds), float(spread or 0.0)


def mean_errors(seconds: float, spread: float, seed: int) -> Noise:
    """1 + CV z / sqrt(n), n = the whole iterations in so many seconds (one at least), z of its own for each."""

    def noise(model: str, batch_size: int, kinds: str, gpus: int, iteration_s: float) -> float:
        digest = hashlib.sha256(f"{model}\0{batch_size}\0{kinds}\0{gpus}".encode()).digest()
        z = np.random.default_rng([seed, STREAM, int.from_bytes(digest[:8], "big")]).standard_normal()
        n = max(1.0, np.floor(seconds / iteration_s))
        return float(max(LEAST, 1.0 + spread * z / np.sqrt(n)))

    return noise


def _scaled(table: MeasuredTable | None, factor: Factor) -> MeasuredTable | None:
    """The table with each time multiplied by the factor of its model and GPU type."""
    if table is None:
        return None
    errs = {key: factor(*key) for key in dict.fromkeys((at.model, at.gpu) for at in table.points)}
    points = {at: replace(one, iterations_per_s=one.iterations_per_s / errs[at.model, at.gpu])
              for at, one in table.points.items()}
    return replace(table, points=points)


def _without_graphs(truth: Performance) -> MeasuredTable | None:
    """The truth's table of the job types that have no graph; None where it has no such."""
    table = truth.table
    points = {} if table is None else {
        at: one for at, one in table.points.items() if at.model not in MODELS and at.model not in truth.graphs
    }  # fmt: skip
    return replace(table, points=points) if table is not None and points else None
