"""Pollux' and Sia's step times, measured in many placements and batch sizes on six kinds of machines.

Source: the artifact of Sia (SOSP 2023), `traces/<model>/placements-<machine>.csv` (`placement`: a digit a node, its
GPUs) and `scalability-<machine>.csv` (`num_nodes`, `num_replicas`), with `local_bsz` samples a GPU, `step_time` and
`sync_time` in s; or a tidy file of their means. An iteration takes one step (no accumulation), in which each replica,
one GPU, does `local_bsz` samples. Repeated measurements of one point are averaged, placements with as many nodes and
GPUs among them. A few rows of the two files are the same measurement; it then counts twice.

Where some sync_time is as long as its step_time, the step time does not hold the whole step (gpt_pmp, a pipeline whose
replicas are several GPUs): that model on that machine is left out, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sim.performance.graph import PerformanceError
from sim.performance.tables.cells import Row, header_of, read_text, rows_of
from sim.performance.tables.points import Measurement, Point, averaged, catalogue_name
from traces.errors import did_you_mean

MACHINES: Mapping[str, str] = {
    "aws": "T4", "azure": "V100", "dgx": "A100", "quad": "RTX6000", "rtx": "RTX2080Ti",
}
"""Machine -> GPU type. dgx-ext is the A100 again, over more batch sizes: name it in place of dgx to have it."""

_FILE = re.compile(r"(?:placements|scalability)-(?P<machine>.+)")
_DIGITS = re.compile(r"[1-9]+", re.ASCII)
TIDY = ("model", "gpu_type", "num_nodes", "num_replicas", "local_bsz", "n_meas", "step_time_s", "sync_time_s")


@dataclass(frozen=True)
class Step:
    """One row: a step of `replicas` GPUs on `nodes` nodes, or the mean of so many `measurements`."""

    model: str
    machine: str
    nodes: int
    replicas: int
    local_bsz: int
    step_s: float
    sync_s: float
    measurements: int = 1


def points(
    path: str | Path, machines: Mapping[str, str] = MACHINES
) -> tuple[dict[Point, Measurement], tuple[str, ...]]:
    """Read the files of the `machines` (or one file), and say what was left out.

    Raises
    ------
    PerformanceError
        Not such files, two machines of one GPU type, or nothing left.
    """
    source = str(path)
    types = {machine: catalogue_name(gpu, f"{source}, machine {machine}") for machine, gpu in machines.items()}
    if len(set(types.values())) < len(types):
        raise PerformanceError("two machines of one GPU type", where=source, got=types, allowed="one of each")
    all_steps = list(steps(path, machines))
    partial = {(s.model, s.machine) for s in all_steps if s.sync_s >= s.step_s}
    times: dict[Point, list[float]] = {}
    means: dict[Point, Measurement] = {}
    for s in all_steps:
        if s.machine not in types or (s.model, s.machine) in partial:
            continue
        point = Point(s.model, s.local_bsz * s.replicas, types[s.machine], s.replicas, s.nodes)
        times.setdefault(point, []).append(s.step_s)
        means[point] = Measurement(1.0 / s.step_s, s.measurements)
    found = {p: averaged(t) if len(t) > 1 else means[p] for p, t in times.items()}
    notes = [f"{m} on {machine} left out: its step time does not hold the whole step (sync time is longer)"
             for m, machine in sorted(partial)]
    strange = sorted({s.machine for s in all_steps} - set(types))
    notes += [f"machines left out: {', '.join(strange)}"] if strange else []
    if not found:
        raise PerformanceError("no step times that can be used", where=source, got="; ".join(notes) or None,
                               allowed=f"rows of {', '.join(machines)}")
    return found, tuple(notes)


def steps(path: str | Path, machines: Mapping[str, str] = MACHINES) -> Iterator[Step]:
    """The rows of a file, raw or tidy, or of all raw files of `machines` below a folder, in order of their names."""
    path = Path(path)
    if path.is_dir():
        files = [f for m in machines for kind in ("placements", "scalability") for f in path.rglob(f"{kind}-{m}.csv")]
        for file in sorted(files):
            yield from _of_raw(file)
    elif "num_replicas" in header_of(text := read_text(path)) and "model" in header_of(text):
        yield from _of_tidy(text, str(path))
    else:
        yield from _of_raw(path)


def _of_raw(path: Path) -> Iterator[Step]:
    named, text = _FILE.fullmatch(path.stem), read_text(path)
    placed = "placement" in (names := header_of(text))
    where = ("placement",) if placed else ("num_nodes", "num_replicas")
    _need((*where, "local_bsz", "step_time", "sync_time"), names, str(path))
    if named is None:
        raise PerformanceError("the machine is unknown", where=str(path), got=path.name,
                               allowed="placements-<machine>.csv or scalability-<machine>.csv")
    for row in rows_of(text, str(path)):
        nodes, replicas = _placement(row) if placed else (row.integer("num_nodes"), row.integer("num_replicas"))
        yield Step(path.resolve().parent.name, named["machine"], nodes, replicas, row.integer("local_bsz"),
                   row.number("step_time", above=True), row.number("sync_time"))


def _of_tidy(text: str, source: str) -> Iterator[Step]:
    _need(TIDY, header_of(text), source)
    for row in rows_of(text, source):
        yield Step(row.text("model"), row.text("gpu_type"), row.integer("num_nodes"), row.integer("num_replicas"),
                   row.integer("local_bsz"), row.number("step_time_s", above=True), row.number("sync_time_s"),
                   row.integer("n_meas"))


def _placement(row: Row) -> tuple[int, int]:
    """Nodes and GPUs of digits such as 44 (two nodes with four each)."""
    digits = row.text("placement")
    if not _DIGITS.fullmatch(digits):
        raise PerformanceError("value not allowed", where=f"{row.where}, column 'placement'", got=digits,
                               allowed="a digit from 1 to 9 a node")
    return len(digits), sum(map(int, digits))


def _need(columns: tuple[str, ...], names: list[str], source: str) -> None:
    for column in columns:
        if column not in names:
            raise PerformanceError(f"column {column!r} is missing", where=f"{source}, header",
                                   got=", ".join(names)[:200], allowed=", ".join(columns),
                                   todo=did_you_mean(column, names))
