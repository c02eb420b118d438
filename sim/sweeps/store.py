"""A sweep's folder: the only code that writes there. What is being written has a name that no reader looks at."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq

from analysis.run import RunError
from analysis.sweeps import read_record
from sim.results.schema import CELL_DONE, CELL_FAILED, CELL_WAITING, SWEEP_LAYOUT, in_json
from sim.sweeps.cell import Columns, Outcome, dressed, packed
from sim.sweeps.grid import Cell, Grid
from sim.sweeps.kept import SweepError
from traces.outfile import make_folders, written


def columns_of(grid: Grid, cell: Cell) -> Columns:
    """The columns of a cell's axes. The policy's is in the names of folders, where readers of datasets find it."""
    return tuple((axis.column, axis.kind, cell.axes[axis.name]) for axis in grid.axes if axis.name != "policy")


@dataclass(frozen=True)
class Store:
    """The folder of a sweep."""

    folder: Path

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folder, and keep others from playing into it meanwhile. One of which nothing comes is removed.

        Raises
        ------
        SweepError
            It is something else, another sweep is being played into it, or it cannot be made.
        """
        try:
            there = [file.name for file in self.folder.iterdir()] if self.folder.is_dir() else []
            if self._sweep.name not in there and any(not name.startswith(".") for name in there):
                raise SweepError("a folder that is no sweep", where=str(self.folder), todo="Name another with --out.")
            made = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]  # innermost first
            make_folders(self.folder)
            lock = (self.folder / ".lock").open("a")
        except OSError as error:
            raise SweepError("the folder cannot be made", where=str(self.folder), got=error.strerror,
                             todo="Name another with --out.") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SweepError("a sweep is being played into this folder", where=str(self.folder),
                                 todo="Wait for it, or name another with --out.") from None
            for part in self.folder.rglob(".*.part"):
                if not part.is_dir():  # that is none of ours
                    part.unlink()
            try:
                yield
            finally:
                if made and not self._sweep.exists():
                    with suppress(OSError):  # not one in which another has written meanwhile
                        Path(lock.name).unlink()
                        for folder in made:
                            folder.rmdir()

    @property
    def _sweep(self) -> Path:
        return self.folder / "sweep.json"

    def describe(self, grid: Grid) -> None:
        """Write sweep.json: what is played, without anything that varies between equal sweeps."""
        content = {
            "layout": SWEEP_LAYOUT,
            "axes": {axis.name: list(axis.values) for axis in grid.axes},
            "columns": {axis.name: axis.column for axis in grid.axes},
            "kinds": {axis.name: axis.kind for axis in grid.axes},
            "fixed": dict(grid.fixed),
            "tables": list(grid.tables),
            "window": dict(grid.window),
            "cells": [cell.id for cell in grid.cells],
            "versions": {name: version(name) for name in ("hetsim", "numpy", "numba", "pandas", "pyarrow")}
            | {"python": platform.python_version()},
            "code": sorted({cell.sources.code for cell in grid.cells}),
        }
        self._write(self._sweep, _json(content))

    @cached_property
    def records(self) -> dict[str, dict[str, Any]]:
        """What is known of each cell that was played into the folder, by id; of other sweeps, too."""
        found = {}
        for file in sorted((self.folder / "cells").glob("[!.]*.json")):
            with suppress(RunError):  # damaged: as if it had not been played
                found[file.stem] = read_record(file)
        return found

    def is_done(self, grid: Grid, cell: Cell) -> bool:
        """Whether all that the sweep keeps of a cell is there, as it was written."""
        record = self.records.get(cell.id, {})
        if record.get("state") != CELL_DONE or not set(grid.tables) <= set(record["tables"]):
            return False
        there = {name.partition("/")[0] for name in record["files"]}
        return {"metrics", *record["tables"]} <= there and all(
            _sha256(self.file(name, cell)) == sha256 for name, sha256 in record["files"].items())

    def state(self, grid: Grid, cell: Cell) -> str:
        """done, failed, or waiting (to be played)."""
        if self.is_done(grid, cell):
            return CELL_DONE
        return CELL_FAILED if self.records.get(cell.id, {}).get("state") == CELL_FAILED else CELL_WAITING

    def file(self, table: str, cell: Cell) -> Path:
        """Where a table of a cell is; `runs/<file>`: where a file of its run's folder is."""
        folder, _, name = table.partition("/")
        if folder == "runs":
            return self.folder / "runs" / cell.id / name
        return self.folder / table / f"policy={quote(cell.policy, safe='')}" / f"{cell.id}.parquet"

    def write(self, grid: Grid, cell: Cell, outcome: Outcome) -> None:
        """Write what came of a cell, its record last: without one, nothing of it is read.

        Raises
        ------
        SweepError
            The disk is full, or the folder cannot be written; what is there stays.
        """
        for table, content in outcome.files.items():
            self._write(self.file(table, cell), content)
        self._record(cell, {
            "cell": cell.id,
            "state": CELL_FAILED if outcome.error else CELL_DONE,
            "error": outcome.error,
            "axes": {axis.name: cell.axes[axis.name] for axis in grid.axes},
            "columns": columns_of(grid, cell),
            "tables": [] if outcome.error else list(grid.tables),
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in outcome.files.items()},
            "wall_s": outcome.wall_s,
            "cpu_s": outcome.cpu_s,
            "peak_mib": outcome.peak_mib,
            "worker": outcome.worker,
            "settings": cell.settings,
        })

    def redress(self, grid: Grid, cell: Cell) -> None:
        """Give the tables of a cell that is done the columns of the sweep's axes, where it was played for others."""
        record = self.records[cell.id]
        columns = columns_of(grid, cell)
        had = record["columns"]
        if had == in_json(columns):
            return
        front = {"cell", *(name for name, _, _ in had), *(name for name, _, _ in columns)}
        hashes = dict(record["files"])
        for name in ("metrics", *record["tables"]):
            if name != "runs":
                file = self.file(name, cell)
                with pq.ParquetFile(file) as source:
                    table = source.read()
                bare = table.drop_columns([column for column in table.column_names if column in front])
                content = packed(dressed(bare, cell.id, columns))
                self._write(file, content)
                hashes[name] = hashlib.sha256(content).hexdigest()
        axes = {axis.name: cell.axes[axis.name] for axis in grid.axes}
        self._record(cell, record | {"axes": axes, "columns": columns, "files": hashes})

    @property
    def aside(self) -> Store:
        """Where cells are put that are none of the sweep's: of other settings, files or code. Nobody reads there."""
        return Store(self.folder / "stale")

    def sort_out(self, grid: Grid) -> int:
        """Put aside cells that are none of the sweep's, and bring back those that are; returns how many are aside.

        So that who reads all files of a table reads this sweep and no other; files without a record go, too.
        """
        wanted, aside = {cell.id for cell in grid.cells}, self.aside
        for cell in set(aside.records) & wanted:
            _move(cell, aside.folder, self.folder)
            self.records[cell] = aside.records.pop(cell)
        for cell in set(self.records) - wanted:
            _move(cell, self.folder, aside.folder)
            aside.records[cell] = self.records.pop(cell)
        for file in self.folder.glob("*/policy=*/*.parquet"):
            if file.stem not in self.records and not file.is_dir():
                file.unlink()  # it was being written, or moved, when that was stopped
        return len(aside.records)

    def prune(self) -> None:
        """Remove what was put aside."""
        shutil.rmtree(self.aside.folder, ignore_errors=True)

    def _record(self, cell: Cell, content: Mapping[str, Any]) -> None:
        self._write(self.folder / "cells" / f"{cell.id}.json", _json(content))
        self.records[cell.id] = json.loads(_json(content))

    def _write(self, file: Path, content: bytes) -> None:
        with written(file, todo="Free some space; what is done stays, and the same command goes on.") as part:
            part.write_bytes(content)


def _move(cell: str, old: Path, new: Path) -> None:
    """All files of a cell from one folder to the same places in another; a record is never there without them."""
    record = old / "cells" / f"{cell}.json"
    kept = new / "cells" / f".{cell}.json.part"  # no reader looks at it yet
    kept.parent.mkdir(parents=True, exist_ok=True)
    os.replace(record, kept)
    for file in [*old.glob(f"*/policy=*/{cell}.parquet"), *old.glob(f"runs/{cell}/*")]:
        if file.is_dir():
            continue
        target = new / file.relative_to(old)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, target)
    os.replace(kept, kept.with_name(record.name))


def _sha256(file: Path) -> str | None:
    """Of a file's bytes; None: there is none that can be read."""
    try:
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(in_json(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
