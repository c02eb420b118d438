"""Jobs whose model is one of a table of measured layers: the speeds of a run, and what its trace says of them."""

from __future__ import annotations

from pathlib import Path

from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType
from sim.performance import MeasuredTable, Performance, PerformanceError
from sim.performance.calibration import for_graphs, named_calibration
from sim.performance.readers.layer_table import read_layers
from sim.settings.config import RunConfig
from traces.load import file_hash
from traces.trace import Trace


def speeds_of(config: RunConfig, cluster: ClusterSpec, table: MeasuredTable | None) -> Performance:
    """The speeds by which the jobs of a run run.

    Raises
    ------
    PerformanceError
        The layers were measured with values of another size than the calibration counts with, by which all other jobs
        run.
    """
    fit = named_calibration(config.calibration)
    graphs = {} if config.layers is None else read_layers(config.layers, config.layers_from)
    size = for_graphs(fit, graphs.values()).value_bytes
    if size != fit.value_bytes:
        raise PerformanceError(
            "layers were measured with values of another size than the calibration counts with",
            where=str(config.layers), got=f"{size} bytes; calibration {fit.name}: {fit.value_bytes}",
            allowed=f"{fit.value_bytes} bytes", todo=f"Say --calibration {'scripts' if size != 2 else 'tuned'}.",
        )  # fmt: skip
    return Performance(cluster.links, table, calibration=fit, optimizer=config.optimizer, graphs=graphs,
                       context_gib=config.overhead_gib)  # fmt: skip


def layers_noted(
    config: RunConfig, trace: Trace, performance: Performance, cluster: ClusterSpec, reference: GpuType
) -> tuple[str, ...]:
    """How many jobs run by measured layers, in words; nothing without a table.

    Raises
    ------
    PerformanceError
        A job's model was not measured on a type of the cluster, or on the reference type, and is not to be predicted.
    """
    if config.layers is None:
        return ()
    models = trace.model.tolist()
    for model in sorted(set(models) & set(performance.graphs)):
        profile = performance.graphs[model].profile
        for gpu in (reference, *cluster.types):
            if profile is not None:
                profile.measured_on(gpu.name)
    count = sum(model in performance.graphs for model in models)
    digest = file_hash(Path(config.layers))[:16]
    found = f"speed of {count} of {len(models)} jobs by the measured layers of {Path(config.layers).name} ({digest})"
    known = ", ".join(list(performance.graphs)[:8])
    return (found if count else f"no job of the trace names a model of the measured layers: {known}",)
