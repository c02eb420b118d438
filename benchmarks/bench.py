"""Rows measured, round by round, beside the bare loop and another revision: what `make bench` prints and keeps."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measuring import BenchError, Took, measured, timed
from benchmarks.rows import Row, sweep_file

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = "hetsim-bench/1"
EQUAL = 1e-12
"""Relative difference of two mean completion times that are sums of the same terms in another order."""


@dataclass
class Side:
    """One revision, in its folder, and what each of its rounds took."""

    name: str
    folder: Path
    took: list[Took] = field(default_factory=list)

    @property
    def result(self) -> dict[str, float]:
        """Medians over rounds: CPU seconds of the whole command and of `play()`, and peak memory."""
        found = {"whole_cpu_s": statistics.median(one.cpu_s for one in self.took),
                 "peak_mib": statistics.median(one.peak_mib for one in self.took)}
        if plays := [one.phases["play"] for one in self.took if "play" in one.phases]:
            found["play_cpu_s"] = statistics.median(plays)
        return found


def bench(
    rows: Sequence[Row], rounds: int, against: str | None, say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure rows; the sides and the bare loop take turns in each round, after one that is not counted.

    Parameters
    ----------
    against : a git revision, or a folder with another checkout; None: no other side.

    Raises
    ------
    BenchError
        A command failed, no such revision, or the bare loop and `fifo` differ in their mean completion time.
    """
    with _checkout(against) as other:
        names = [("here", ROOT), *([("against", other)] if other is not None else [])]
        measurements = []
        for row in rows:
            say(row.what)
            sides = [Side(name, folder) for name, folder in names]
            measurements.append(_measure(row, sides, rounds))
        return {
            "schema": SCHEMA, "rounds": rounds, "revision": _revision(ROOT),
            "against": None if other is None else _revision(other),
            "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version(),
                        **{name: version(name) for name in ("numpy", "numba", "simpy", "pyarrow")}},
            "rows": measurements,
        }


def _measure(row: Row, sides: list[Side], rounds: int) -> dict[str, Any]:
    """One row: see docs/performance.md for the names."""
    bare: list[dict[str, float]] = []
    share: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "sweep.toml").write_text(sweep_file(), "utf-8")
        for number in range(rounds + 1):
            for side in sides if number % 2 else reversed(sides):
                out = Path(scratch, f"{side.name}-{number}")
                took = timed(row.command(out), side.folder)
                if row.name == "sweep" and side is sides[0] and number:
                    share.append(in_cells(out, json.loads(took.out)))
                if row.fifo and row.bare and side is sides[0] and number == 1:
                    jct_s = mean_jct_s(out / "jobs.parquet")
                if number:
                    side.took.append(took)
            if number and row.bare and row.settings:
                bare.append(_bare(row))
    found: dict[str, Any] = {"name": row.name, "what": row.what, "command": row.command(Path("OUT")),
                             "wanted_s": row.wanted_s, **sides[0].result}
    if bare:
        found["bare_cpu_s"] = statistics.median(one["cpu_s"] for one in bare)
        found["play_of_bare"] = found["play_cpu_s"] / found["bare_cpu_s"]
        if row.fifo:
            if not equal(jct_s, bare[0]["mean_jct_s"]):
                raise BenchError(f"{row.name}: mean completion time {jct_s!r} s, of the bare loop "
                                 f"{bare[0]['mean_jct_s']!r} s; they play the same jobs, so one of them is wrong")
            found["mean_jct_s"] = jct_s
    if share:
        found["in_cells"] = statistics.median(share)
    for side in sides[1:]:
        found["against"] = side.result
        found["ratio"] = {name: found[name] / of for name, of in side.result.items() if of and name in found}
    return found


def equal(one: float, other: float) -> bool:
    """Whether two means over the same jobs are the same but for the order of their sums."""
    return abs(one - other) <= EQUAL * max(abs(one), abs(other))


def mean_jct_s(jobs: Path) -> float:
    """Mean completion time of the jobs of a run that ended, in s."""
    table = pq.read_table(jobs, columns=["submit_s", "end_s"])
    ended = table.filter(pc.is_finite(table["end_s"]))
    return float(pc.mean(pc.subtract(ended["end_s"], ended["submit_s"])).as_py())


def in_cells(folder: Path, told: dict[str, Any]) -> float:
    """Share of their time that workers of a sweep had a cell in hand."""
    cells = [json.loads(file.read_text("utf-8")) for file in sorted((folder / "cells").glob("*.json"))]
    return float(sum(cell["wall_s"] for cell in cells) / (told["wall_s"] * told["workers"]))


def _bare(row: Row) -> dict[str, float]:
    settings = {name: value for name, value in row.settings.items() if name != "set"}  # of the engine: here is none
    words = [sys.executable, "-m", "benchmarks.bare", json.dumps(settings)]
    found: dict[str, float] = json.loads(measured(words, ROOT).out)
    return found


def _revision(folder: Path) -> str:
    """Name of the revision in a folder; `+` behind it: with changes."""
    said = subprocess.run(["git", "-C", str(folder), "describe", "--always", "--dirty=+"], capture_output=True,
                          text=True, check=False)
    return said.stdout.strip() or "unknown"


@contextmanager
def _checkout(against: str | None) -> Iterator[Path | None]:
    """A folder with another revision, for as long as it is measured."""
    if not against:
        yield None
        return
    if Path(against, "sim", "__main__.py").is_file():
        yield Path(against).resolve()
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "against")
        made = subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), against],
                              capture_output=True, text=True, check=False)
        if made.returncode:
            raise BenchError(f"AGAINST={against}: neither a folder with a checkout nor a revision of git: "
                             f"{made.stderr.strip()}")
        try:
            yield folder
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(folder)],
                           capture_output=True, check=False)
