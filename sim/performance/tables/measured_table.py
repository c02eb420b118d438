"""Measured rates of whole jobs, and what may be said of jobs that were not measured quite like that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sim.performance.graph import PerformanceError
from sim.performance.tables import elasticflow, gavel
from sim.performance.tables import own_table as own
from sim.performance.tables import sia_steps as sia
from sim.performance.tables.gaps import GAPS, Told, batch_work, gpu_work, tell
from sim.performance.tables.points import ANY_PLACEMENT, SPREAD, Measurement, Point
from traces.errors import did_you_mean
from traces.outfile import write_text

_Batches = Mapping[int, Told]
_Counts = Mapping[int, Mapping[int, _Batches]]
"""GPUs -> nodes -> batch size -> what was measured."""


@dataclass(frozen=True)
class Rate:
    """Iterations a second of a whole job (0: measured not to fit), and where that comes from.

    `source` is 'measured', 'interpolated' or 'extrapolated'.
    """

    iterations_per_s: float
    source: str


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """Iterations a second of whole jobs (not of a GPU of theirs) by model, batch, GPU type, GPUs and placement.

    A GPU type that was not measured is an error, whatever the rule: nothing is copied from another one.

    Attributes
    ----------
    points : what was measured.
    source : the file, for messages.
    gaps : what to do between and beyond points: 'refuse'; 'interpolate' (between two batch sizes, GPU counts or node
        counts that were measured; beyond them refused); 'amdahl' or 'linear' (beyond them, too). Rules in `gaps`.
    gpus_per_node : GPUs on a node where a type was measured; a type that is not in it: the most seen on one node.
    notes : what was left out of the file, and why.
    """

    points: Mapping[Point, Measurement]
    source: str
    gaps: str = "interpolate"
    gpus_per_node: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.gaps not in GAPS:
            raise PerformanceError(
                "no such rule for what was not measured",
                where=self.source,
                got=self.gaps,
                allowed=", ".join(GAPS),
                todo=did_you_mean(self.gaps, GAPS),
            )

    @classmethod
    def from_gavel(
        cls, path: str | Path, gpus_per_node: int = 4, cluster: str = "physical", gaps: str = "interpolate"
    ) -> MeasuredTable:
        """Read Gavel's JSON, or the tidy CSV, of which `cluster` says which half (`tables.gavel`)."""
        found = gavel.points(path, gpus_per_node, cluster)
        return cls(found, str(path), gaps, dict.fromkeys((p.gpu for p in found), gpus_per_node))

    @classmethod
    def from_sia(
        cls, path: str | Path, machines: Mapping[str, str] = sia.MACHINES, gaps: str = "interpolate"
    ) -> MeasuredTable:
        """Read Sia's step times: one file, the folder of a model, or of all models; or the tidy file of them."""
        found, notes = sia.points(path, machines)
        return cls(found, str(path), gaps, notes=notes)

    @classmethod
    def from_elasticflow(
        cls, path: str | Path, gpu: str | None = None, gaps: str = "interpolate"
    ) -> MeasuredTable:
        """Read ElasticFlow's throughputs: one file, or the folder of a GPU type."""
        return cls(elasticflow.points(path, gpu), str(path), gaps)

    @classmethod
    def from_csv(cls, path: str | Path, gaps: str = "interpolate") -> MeasuredTable:
        """Read a table of your own (`tables.own`, docs/measured-tables.md)."""
        return cls(own.points(path), str(path), gaps)

    def write_csv(self, path: str | Path) -> None:
        """Write the points as a table that `from_csv` reads."""
        write_text(Path(path), own.as_text(self.points))

    @property
    def job_types(self) -> tuple[str, ...]:
        """Models or job types in the table, in the order of the file."""
        return tuple(self._models)

    @cached_property
    def _models(self) -> dict[str, bool]:
        """Model -> whether its batch size is a key."""
        return {p.model: p.batch_size > 0 for p in self.points}

    def needs_batch(self, model: str) -> bool:
        """Whether the rates of a model depend on a batch size; a job type may have its own."""
        return self._models[model]

    @cached_property
    def _index(self) -> dict[tuple[str, str], dict[int, dict[int, dict[int, Told]]]]:
        index: dict[tuple[str, str], dict[int, dict[int, dict[int, Told]]]] = {}
        for p, measured in self.points.items():
            counts = index.setdefault((p.model, p.gpu.lower()), {})
            counts.setdefault(p.gpus, {}).setdefault(p.nodes, {})[p.batch_size] = Told(measured.iteration_s)
        return index

    @cached_property
    def _node_gpus(self) -> dict[str, int]:
        """GPUs on a node of each type, in lower case."""
        most: dict[str, int] = {}
        for p in self.points:
            if p.nodes > 0:
                most[p.gpu.lower()] = max(most.get(p.gpu.lower(), 1), -(-p.gpus // p.nodes))
        return most | {gpu.lower(): n for gpu, n in (self.gpus_per_node or {}).items()}

    def packed(self, gpu: str, gpus_per_node: tuple[int, ...]) -> bool:
        """Whether a gang is on no more nodes than it needs, nodes being as large as where the type was measured.

        A type whose nodes are unknown: whether it is on one.
        """
        size = self._node_gpus.get(gpu.lower(), sum(gpus_per_node))
        return len(gpus_per_node) <= -(-sum(gpus_per_node) // size)

    def rate(self, model: str, batch_size: int, gpu: str, gpus_per_node: tuple[int, ...]) -> Rate:
        """Iterations a second of the whole job; 0: it was measured not to fit.

        A packed gang (see `packed`) gets the rate on the fewest nodes; another one that on as many nodes as it is on,
        or of a spread gang; failing both, a rate whose placement the source does not say.

        Parameters
        ----------
        batch_size : of the whole job, samples; not read where the job type has its own.
        gpus_per_node : GPUs of the gang on each node.

        Raises
        ------
        PerformanceError
            Nobody measured this and `gaps` does not allow to tell it: says what there is.
        """
        counts = self._index.get((model, gpu.lower()))
        told = None
        if counts is not None:
            # Nothing is extrapolated that can be interpolated.
            for gaps in dict.fromkeys(("interpolate" if self.gaps != "refuse" else "refuse", self.gaps)):
                told = told or self._tell(counts, batch_size, gpu, gpus_per_node, gaps)
        if told is None:
            raise self._missing(model, batch_size, gpu, gpus_per_node)
        return Rate(0.0 if math.isinf(told.iteration_s) else 1.0 / told.iteration_s, told.source)

    def runs(self, model: str, batch_size: int, gpu: str, gpus: int) -> bool:
        """Whether a packed gang has a rate and fits: what a cluster may offer."""
        try:
            return self.rate(model, batch_size, gpu, (gpus,)).iterations_per_s > 0
        except PerformanceError:
            return False

    def _tell(
        self, counts: _Counts, batch_size: int, gpu: str, gpus_per_node: tuple[int, ...], gaps: str
    ) -> Told | None:
        packed, size = self.packed(gpu, gpus_per_node), self._node_gpus.get(gpu.lower(), 0)
        known = {}
        for count, by_nodes in counts.items():
            fewest = -(-count // size) if size else ANY_PLACEMENT
            first = (fewest,) if packed else (len(gpus_per_node), SPREAD)
            told = _placed(by_nodes, batch_size, len(gpus_per_node), (*first, ANY_PLACEMENT), gaps)
            if told is not None:
                known[count] = told
        return tell(sum(gpus_per_node), known, gaps, gpu_work)

    def listing(self, models: Iterable[str] | None = None, gpu: str | None = None) -> tuple[str, ...]:
        """What was measured, a line a model and GPU type: what can run by this table.

        Parameters
        ----------
        models, gpu : only these; None: all.
        """
        wanted = self.job_types if models is None else tuple(models)
        return tuple(
            f"{model} on {name}: {_counts_text(self._index[model, kind])}"
            for model in wanted
            for kind, name in {p.gpu.lower(): p.gpu for p in self.points}.items()
            if (model, kind) in self._index and (gpu is None or gpu.lower() == kind)
        )

    def _missing(
        self, model: str, batch_size: int, gpu: str, gpus_per_node: tuple[int, ...]
    ) -> PerformanceError:
        count, nodes = sum(gpus_per_node), len(gpus_per_node)
        batch = f", batch size {batch_size}" if self._models.get(model, True) else ""
        known = self.listing([model], gpu) or self.listing([model])
        counts = self._index.get((model, gpu.lower()), {})
        if count in counts:  # then a batch size or a placement is missing, and those of other counts do not help
            known = (f"{model} on {gpu}: {_counts_text({count: counts[count]})}",)
        if not known:
            names = ", ".join(self.job_types[:8]) + (", …" if len(self._models) > 8 else "")
            return PerformanceError(
                "the measured table has no such model",
                where=self.source,
                got=model,
                allowed=names,
                todo=did_you_mean(model, self.job_types) or "; ".join(self.notes),
            )
        todo = "Measure it and add it to the table."
        if counts and self.gaps in ("refuse", "interpolate"):
            todo += " A rule for such points: gaps = 'linear' or 'amdahl' (then flagged as extrapolated)."
        return PerformanceError(
            "the measured table has no such point",
            where=self.source,
            got=f"{model}{batch}, {count} {gpu} on {nodes} node{'s' * (nodes > 1)}",
            allowed="; ".join(known) + f" (gaps: {self.gaps})",
            todo=todo,
        )


def _placed(
    by_nodes: Mapping[int, _Batches], batch_size: int, nodes: int, wanted: tuple[int, ...], gaps: str
) -> Told | None:
    """A rate by the first of the `wanted` placements that was measured; failing that, between numbers of nodes."""
    at = {n: told for n, b in by_nodes.items() if (told := _at_batch(b, batch_size, gaps)) is not None}
    for placement in wanted:
        if placement in at:
            return at[placement]
    return tell(nodes, {n: told for n, told in at.items() if n > 0}, gaps, None)


def _at_batch(batches: _Batches, batch_size: int, gaps: str) -> Told | None:
    if 0 in batches:
        return batches[0]
    return tell(batch_size, batches, gaps, batch_work) if batch_size > 0 else None


def _counts_text(counts: _Counts) -> str:
    """GPU counts, with placements and batch sizes, in a form short enough for a message."""
    batches = sorted({b for by_nodes in counts.values() for measured in by_nodes.values() for b in measured if b})
    parts = []
    for count in sorted(counts):
        places = [n for n in sorted(counts[count]) if n > 0]
        where = f" on {_some(places)} node{'s' * (places != [1])}" if places else ""
        parts.append(f"{count}{where}" + (", spread" if SPREAD in counts[count] else ""))
    text = "GPUs " + _some(parts, ", " if all(part.isdigit() for part in parts) else "; ")
    return text + (f"; batch size {_some(batches)}" if batches else "")


def _some(values: list[Any], joint: str = ", ", most: int = 12) -> str:
    shown = values if len(values) <= most else [*values[: most - 1], "…", values[-1]]
    return joint.join(map(str, shown))
