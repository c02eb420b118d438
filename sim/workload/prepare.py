"""From settings to work: the trace that a run replays, and how much of what each of its jobs has to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType, gpu_type
from sim.performance import MeasuredTable, Performance, PerformanceError
from sim.performance.calibration import named_calibration
from sim.performance.optimizer import named_optimizer
from sim.performance.tables import SOURCES, load_table
from sim.settings.config import ConfigError, RunConfig, list_settings
from sim.workload.at_load import DEFAULT_JOBS, Whole, brought, mean_worth, own_clock, worth_by_job, worth_on_pool
from sim.workload.calibrations import default_calibration
from sim.workload.given_models import model_choices, with_models, with_notes
from sim.workload.layered import layers_noted, speeds_of
from sim.workload.progress import Modelled, Recorded, Truth, reference_layout
from sim.workload.resized import with_best_gangs
from traces.errors import TraceError, did_you_mean
from traces.given_back import give_back
from traces.load import file_hash, load_trace, offered_load
from traces.recipes import assign_recipe
from traces.select import Selection
from traces.synthetic.generate import GENERATORS, generate
from traces.synthetic.month import month
from traces.synthetic.pool import Pool
from traces.trace import Trace

DEFAULT_LOAD = 0.7
"""Of the built-in traces; a file is taken whole and at the times that it has."""

#: GPU type on which the durations of a generated trace were recorded, where it is not that of all others.
DEFAULT_REFERENCE = {"acme": "A100-80"}

#: Settings that may name a file, but those of a trace and of a cluster, which are read for each run.
FILES = tuple(name for one in list_settings()
              if one.file and (name := one.name.removeprefix("run.")) not in ("trace", "cluster"))

DEFAULT_CLUSTER = {"philly": "gavel", "pai": "pai320", "helios": "helios", "acme": "acme"}

@dataclass(frozen=True, eq=False)
class Workload:
    """A trace made ready for a cluster; `performance` is None where durations are replayed as recorded.

    `worth_gpus` is what the whole cluster can do on this trace, in GPUs of the kind that durations were recorded on.
    """

    trace: Trace
    truth: Truth
    performance: Performance | None
    worth_gpus: float

    @property
    def true_s(self) -> np.ndarray:
        """float64 [jobs]: work_total / reference_rate, run time on the reference gang in s (NaN: never)."""
        return self.truth.work_total / self.truth.reference_rate


def resolved(config: RunConfig) -> RunConfig:
    """Fill in what a built-in trace is given where the user said nothing: a load of 0.7, to which a month of the log
    is thinned (where its arrivals are to be stretched instead, 5,000 jobs), and a cluster that has the GPU types that
    its jobs ask for. Acme's durations were recorded on A100-80, all others' on V100; its code is taken to be optimized,
    theirs not (`calibrations`). Where durations are replayed as recorded, the load is the recorded one."""
    config = config if config.work != "recorded" else config.model_copy(update={"load_rule": "recorded"})
    if config.trace not in GENERATORS:
        return config
    load_by = config.load_by if "load_by" in config.model_fields_set else "thin"
    jobs = config.jobs if load_by == "thin" else config.jobs or DEFAULT_JOBS
    load = DEFAULT_LOAD if config.load is None and config.jobs != 1 else config.load
    cluster = config.cluster if "cluster" in config.model_fields_set else DEFAULT_CLUSTER[config.trace]
    told = "reference" in config.model_fields_set or config.work == "recorded"
    reference = config.reference if told else DEFAULT_REFERENCE.get(config.trace, config.reference)
    found = {"jobs": jobs, "load": load, "load_by": load_by, "cluster": cluster, "reference": reference}
    return config.model_copy(update={**found, "calibration": default_calibration(config)})


def setting_of(config: RunConfig, name: str) -> Any:
    """A setting by its dotted name; None where a table has no such entry."""
    table, _, rest = name.partition(".")
    value = getattr(config, table)
    if not rest:
        return value
    if isinstance(value, dict):
        return value.get(rest)
    inner, _, entry = rest.partition(".")
    found = getattr(value, inner)
    return found.get(entry) if entry else found


def file_of(config: RunConfig, name: str) -> str | None:
    """The file that a setting of `FILES` names; None where it names none."""
    value = setting_of(config, name)
    if name == "speed_belief":
        kind, _, named = value.partition(":")
        return named if kind == "table" or (kind == "calibration" and named.endswith(".toml")) else None
    named = name not in ("calibration", "prices") or (value or "").lower().endswith(".toml")
    return str(value) if value is not None and named else None


def check_files(config: RunConfig) -> None:
    """Refuse settings that name no file, also where the run would not read it: it was named for something.

    Raises
    ------
    HetsimError
        Nothing is there, it is neither a file nor a folder, or the calibration or the optimizer is none.
    """
    named_optimizer(config.optimizer, named_calibration(config.calibration).value_bytes)
    kind, _, named = config.speed_belief.partition(":")
    if kind == "calibration":
        named_calibration(named)
    for name in FILES:
        if file := file_of(config, name):
            if not Path(file).exists():
                raise ConfigError("no such file", where=name if "." in name else f"run.{name}", got=file,
                                  allowed="a file that is there")
            if not (Path(file).is_file() or Path(file).is_dir()):
                raise ConfigError("neither a file nor a folder", where=name if "." in name else f"run.{name}", got=file,
                                  allowed="a file", todo="Write what it gives to a file first.")


def read_trace(config: RunConfig, whole: Whole | None = None) -> Trace:
    """The jobs that were asked for, of the trace that was named (generated, or read from a file), with what a recipe
    adds to them. `whole` reads the trace before jobs are selected (`whole_trace`; who makes many runs keeps it).

    Raises
    ------
    TraceError
        See `traces.load.load_trace`, `traces.synthetic.generate`, `traces.select.Selection` and `traces.recipes`.
    """
    chosen = selection(config)
    if config.skip and config.trace in GENERATORS:
        raise TraceError("a generated trace has no jobs before its first", where="run.skip", got=config.skip,
                         todo="Other jobs of the same kind: another --seed.")
    for name in config.gpu_types.values():
        if name:
            gpu_type(name)  # refused here, not when the jobs that ask for it have been rejected
    trace = chosen.apply((whole or whole_trace)(config))
    if config.assign is None:
        if config.assign_with:
            raise TraceError("settings of no recipe", where="run.assign_with", got=", ".join(config.assign_with),
                             todo="Name the recipe with --assign.")
        return trace
    return assign_recipe(trace, config.assign, config.seed, **config.assign_with)


def selection(config: RunConfig) -> Selection:
    """Which jobs of the whole trace were asked for (of a generated one, whatever their number: see `at_load`)."""
    return Selection(
        gpu_types=config.gpu_types,
        submitted_from=config.submitted_from, submitted_to=config.submitted_to, status=tuple(config.status),
        vc=tuple(config.vc), user=tuple(config.user), gangs=config.gangs,
        skip=config.skip, jobs=None if config.trace in GENERATORS else config.jobs,
    )


def whole_trace(config: RunConfig) -> Trace:
    """The trace that was named, before any of its jobs are selected."""
    if config.trace not in GENERATORS:
        if (near := did_you_mean(config.trace, GENERATORS)) and not Path(config.trace).exists():
            raise TraceError("no such file, nor generated trace", got=config.trace, todo=near,
                             allowed="a file, or " + ", ".join(GENERATORS))
        return load_trace(config.trace, config.format, **config.read)
    known = GENERATORS[config.trace].options
    for name in config.read:
        if name not in known:
            raise TraceError(f"the generated trace {config.trace!r} has no such option", where="run.read", got=name,
                             allowed=", ".join(known) or "none", todo=did_you_mean(name, known))
    if own_clock(config):
        return month(config.trace, config.seed, config.read)
    return generate(config.trace, config.jobs or DEFAULT_JOBS, config.seed, **config.read)


def prepare(config: RunConfig, cluster: ClusterSpec, whole: Whole | None = None) -> Workload:
    """Read the trace, bring it to the load asked for, and turn its durations into work by `config.work`.

    Raises
    ------
    HetsimError
        A trace that cannot be used as asked.
    """
    if config.work == "recorded":
        if config.gang_scale is not None:
            raise ConfigError("gangs cannot be resized where durations are replayed as recorded",
                              where="run.gang_scale", got=config.gang_scale, allowed="work = iterations")
        trace, worth = _as_recorded(config, cluster, whole, cluster.num_gpus)
        return Workload(trace, Recorded(trace, cluster), None, worth)
    table = None if config.measured is None else load_table(config.measured, config.measured_gaps)
    performance, reference = speeds_of(config, cluster, table), gpu_type(config.reference)

    def ready(read: Whole | None) -> tuple[Trace, np.ndarray]:
        trace = with_models(read_trace(config, read), performance, reference, config.seed)
        if table is not None:
            with_measured(trace, table, cluster, reference)  # refuses what cannot be judged by its worth either
        return trace, worth_by_job(trace, cluster, performance, reference)

    def worth_of(pool: Pool) -> np.ndarray:
        return worth_on_pool(pool, model_choices(performance, reference), config.seed, cluster, performance, reference)

    unseen = table is None and _all_taken(config)
    trace, worth = brought(config, ready, whole, cluster.num_gpus, worth_of if unseen else None)
    give_back(len(trace))
    if config.gang_scale is not None:
        trace = with_best_gangs(trace, config.gang_scale, cluster, performance, reference)
    impossible: dict[int, str] = {}
    if table is not None:
        trace, impossible = with_measured(trace, table, cluster, reference)
    if config.layers is not None:
        trace = with_notes(trace, *layers_noted(config, trace, performance, cluster, reference))
    truth = Modelled(trace, cluster, performance, reference, config.engine.sharing == "spatial")
    truth.why_not.update(impossible)
    if table is not None:
        truth.rule += f"; models of {Path(table.source).name} at the rates measured there"
    return Workload(trace, truth, performance, worth)


def made_ready(config: RunConfig, cluster: ClusterSpec | None) -> Trace:
    """The trace that a run would replay. Brought to a modelled load it has the models of its jobs, on which that hangs;
    without a load it is as it was read, since nothing hangs on them.

    Raises
    ------
    HetsimError
        See `prepare`.
    """
    if config.load is None or cluster is None:
        return _as_recorded(config, cluster, None, 1)[0]
    if config.load_rule == "modelled":
        trace = prepare(config, cluster).trace
        note = (f"load by modelled speed: with the models of seed {config.seed}, run times taken as those on "
                f"{config.reference} (a run of this file: --reference {config.reference})")
        return with_notes(trace, note)
    return _as_recorded(config, cluster, None, cluster.num_gpus)[0]


def _as_recorded(
    config: RunConfig, cluster: ClusterSpec | None, whole: Whole | None, gpus: int
) -> tuple[Trace, float]:
    """A trace whose durations are the same on all GPUs, at the load asked for, and what a cluster is worth on it."""
    worth = 1.0 if cluster is None else float(cluster.num_gpus)

    def ready(read: Whole | None) -> tuple[Trace, np.ndarray]:
        trace = read_trace(config, read)
        return trace, np.full(len(trace), worth)

    found = brought(config, ready, whole, gpus, (lambda _: worth) if _all_taken(config) else None)
    give_back(len(found[0]))
    return found


def _all_taken(config: RunConfig) -> bool:
    """Whether a generated trace is taken as it is: nothing is selected, and no recipe changes it."""
    return config.assign is None and not selection(config).text()


def modelled_load(trace: Trace, config: RunConfig, cluster: ClusterSpec) -> float:
    """Load of a trace by modelled speed, with the models and on the reference type that a run would take."""
    performance = Performance(links=cluster.links, calibration=named_calibration(config.calibration))
    reference = gpu_type(resolved(config).reference)
    trace = with_models(trace, performance, reference, config.seed)
    worth = worth_by_job(trace, cluster, performance, reference)
    return offered_load(trace, mean_worth(trace, worth, cluster.num_gpus))


def with_measured(
    trace: Trace, table: MeasuredTable, cluster: ClusterSpec, reference: GpuType
) -> tuple[Trace, dict[int, str]]:
    """Say of the jobs whose model a measured table has by what their speed is known, and which have none.

    Returns the trace with notes (how many jobs by each source of speed, the worst over the cluster's types, for the
    gang asked for on as few nodes as it needs; how many lack a rate on which type, and are not placed there), and
    row -> reason of the jobs without a rate on any type of the cluster.

    Raises
    ------
    PerformanceError
        Jobs without a rate on the reference type: their durations cannot be turned into iterations.
    """
    rows_of = _rows_of_measured(trace, table)
    sources: Counter[str] = Counter()
    lacking: Counter[str] = Counter()
    impossible: dict[int, str] = {}
    without_work: list[tuple[int, PerformanceError]] = []
    for (model, batch, gang), rows in rows_of.items():
        found, why = _told(table, model, batch, gang, [reference, *cluster.types])
        if reference.name in why:
            without_work.append((len(rows), why[reference.name]))
        here = [found[gpu.name] for gpu in cluster.types if gpu.name in found]
        lacking.update({gpu.name: len(rows) for gpu in cluster.types if gpu.name in why})
        if here:
            sources[max(here, key=SOURCES.index)] += len(rows)
        else:
            impossible.update(dict.fromkeys(rows, f"on each GPU type of the cluster: {why[cluster.types[0].name]}"))
    if without_work:
        first = without_work[0][1]
        raise PerformanceError(
            "jobs have no rate on the reference type, so that their durations are no iterations", where=table.source,
            got=f"{sum(n for n, _ in without_work)} jobs; first: {first.got}", allowed=first.allowed,
            todo=f"Name a type on which they were measured with --reference (now {reference.name}). {first.todo}",
        )
    digest = file_hash(Path(table.source))[:16]
    how = ", ".join(f"{sources[source]} {source}" for source in SOURCES)
    total = sum(map(len, rows_of.values()))
    notes = [
        f"speed of {total} of {len(trace)} jobs by the measured table {Path(table.source).name} ({digest}): {how} "
        f"(gaps: {table.gaps})",
        *(f"{count} jobs have no rate on {gpu} for the gang asked for: not placed there so"
          for gpu, count in lacking.items()),
        *(f"measured table: {note}" for note in table.notes),
    ]
    if not rows_of:
        notes.append("no job of the trace names a model of the measured table: " + ", ".join(table.job_types[:8]))
    return with_notes(trace, *notes), impossible


def _rows_of_measured(trace: Trace, table: MeasuredTable) -> dict[tuple[str, int, int], list[int]]:
    """Rows of the jobs whose model the table has, by (model, batch size, gang)."""
    rows_of: dict[tuple[str, int, int], list[int]] = {}
    measured = set(table.job_types)
    keys = zip(trace.model.tolist(), trace.batch_size.tolist(), trace.num_gpus.tolist(), strict=True)
    for row, key in enumerate(keys):
        if key[0] in measured:
            rows_of.setdefault(key, []).append(row)
    return rows_of


def _told(
    table: MeasuredTable, model: str, batch: int, gang: int, types: list[GpuType]
) -> tuple[dict[str, str], dict[str, PerformanceError]]:
    """Source of a packed gang's rate on each GPU type that has one, and why the others have none."""
    found, why = {}, {}
    for gpu in types:
        try:
            found[gpu.name] = table.rate(model, batch, gpu.name, reference_layout(gang)).source
        except PerformanceError as error:
            why[gpu.name] = error
    return found, why


def gpus_by_type(cluster: ClusterSpec) -> dict[str, int]:
    """GPUs of each type of a cluster, by name."""
    return dict(zip((gpu.name for gpu in cluster.types), cluster.gpus_by_type().tolist(), strict=True))


def largest_nodes(cluster: ClusterSpec) -> dict[str, int]:
    """The most GPUs that a node of each type of a cluster has, by name."""
    return {gpu.name: int(cluster.node_gpus[cluster.node_type == kind].max(initial=0))
            for kind, gpu in enumerate(cluster.types)}
