"""Append-only facts of a run, and the one place that writes them: under temporary names, renamed when whole."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sim.api import Plan
from sim.cluster.spec import ClusterSpec
from sim.results import schema
from sim.results.as_tables import plans_table, table_of
from sim.results.spool import Spool, Spooled
from traces.arrow import column
from traces.errors import HetsimError
from traces.leftovers import beside, clear
from traces.outfile import followed, make_folders, written_folder
from traces.trace import Trace

_REASON = {name: i for i, name in enumerate(schema.END_REASONS)}
PLANS = 1 << 14
"""Plans that are held as objects before they become rows, where rows go to a spool."""

RUN_FILES = frozenset({*(f"{name}.parquet" for name in schema.FILES), "run.json", "timing.json"})
"""All that a run folder holds; with anything else in it, a folder is not ours to replace."""


class OutputError(HetsimError):
    """A run folder that cannot be written."""


class Recorder:
    """Columns that only grow. Rows are trace rows until they become tables, when they are job ids.

    With a spool no more than a row group of a table is held (and what the fast lane hands over at once): a full one
    goes there when more rows come. Plans, which are objects, become rows after `PLANS` of them.
    """

    def __init__(self, trace: Trace, cluster: ClusterSpec, spool: Spool | None = None) -> None:
        self._trace, self._cluster, self._spool = trace, cluster, spool
        self._row, self._milli, self._reason = array("i"), array("i"), array("b")
        self._begin, self._end, self._overhead, self._rate = array("d"), array("d"), array("d"), array("d")
        self._done, self._lost = array("d"), array("d")
        self._gpu_ids, self._gpu_end = array("i"), array("q")
        self._now, self._counts = array("d"), array("i")
        self._plans: list[tuple[int, float, Plan, float]] = []
        self._terms: dict[int, tuple[int, float, float]] = {}
        self._egress: dict[int, float] = {}
        self._full, self._many = (sys.maxsize, sys.maxsize) if spool is None else (spool.rows, min(PLANS, spool.rows))

    def segment(
        self,
        row: int,
        begin_s: float,
        end_s: float,
        gpus: np.ndarray,
        milli: int,
        overhead_s: float,
        rate: float,
        work_done: float,
        work_lost: float,
        end_reason: str,
    ) -> None:
        """One stretch of one job on one set of GPUs (columns as in `sim.results.schema.SEGMENTS`)."""
        if len(self._row) >= self._full:
            self._spill()
        self._row.append(row)
        self._begin.append(begin_s)
        self._end.append(end_s)
        self._overhead.append(overhead_s)
        self._rate.append(rate)
        self._done.append(work_done)
        self._lost.append(work_lost)
        self._milli.append(milli)
        self._reason.append(_REASON[end_reason])
        self._gpu_ids.frombytes(gpus.tobytes())
        self._gpu_end.append(len(self._gpu_ids))

    def terms(self, batch_size: int, cap_w: float, lease_until_s: float) -> None:
        """What the last segment was on besides GPUs; 0 or NaN where nothing was said."""
        self._terms[len(self._row) - 1] = batch_size, cap_w, lease_until_s

    def egress(self, usd_per_work: float) -> None:
        """What a unit of the last segment's work costs for bytes that leave a zone; NaN: unknown."""
        self._egress[len(self._row) - 1] = usd_per_work

    def decision(self, now_s: float, queued: int, running: int, started: int, stopped: int) -> None:
        """One policy call."""
        if len(self._now) >= self._full:
            self._spill()
        self._now.append(now_s)
        self._counts.extend((queued, running, started, stopped))

    def segments(
        self, rows: np.ndarray, milli: np.ndarray, reasons: np.ndarray, times: np.ndarray, ids_end: np.ndarray,
        ids: np.ndarray,
    ) -> None:
        """Many segments at once. `times`: begin, end, overhead, rate, work done and lost; `ids`: their GPUs, one after
        another, up to `ids_end` each."""
        columns = self._begin, self._end, self._overhead, self._rate, self._done, self._lost
        for grown, values in zip(columns, times, strict=True):
            grown.frombytes(values.tobytes())
        self._row.frombytes(rows.tobytes())
        self._milli.frombytes(milli.tobytes())
        self._reason.frombytes(reasons.tobytes())
        if ids_end.size:
            self._gpu_end.frombytes((ids_end + len(self._gpu_ids)).tobytes())
            self._gpu_ids.frombytes(ids[: ids_end[-1]].tobytes())
        self._spill()

    def decisions(self, now_s: np.ndarray, counts: np.ndarray) -> None:
        """Many policy calls at once; `counts`: queued, running, started and stopped."""
        self._now.frombytes(now_s.tobytes())
        self._counts.frombytes(counts.tobytes())
        self._spill()

    def plan(self, row: int, begin_s: float, plan: Plan, iteration_s: float) -> None:
        """The plan with which a job started, and the true time of its iteration on the GPUs that it got."""
        if len(self._plans) >= self._many:
            self._spill()
        self._plans.append((row, begin_s, plan, iteration_s))

    @property
    def held(self) -> dict[str, int]:
        """How many segments, decisions and plans are held, by table."""
        return {"segments": len(self._row), "decisions": len(self._now), "plans": len(self._plans)}

    # -- tables -----------------------------------------------------------------------------------------------------

    def table(self, name: str) -> pa.Table | Spooled:
        """All segments in the order in which they ended, all decisions, or all plans; they are held no longer."""
        rest = self._made(name, self.held[name])
        if self._spool is None:
            return rest
        with _writing(self._spool.folder):
            return self._spool.finished(name, rest)

    def _spill(self) -> None:
        """Full row groups go to the spool."""
        if self._spool is None:
            return
        for name, most in (("segments", self._full), ("decisions", self._full), ("plans", self._many)):
            while self.held[name] >= most:
                with _writing(self._spool.folder):
                    self._spool.add(name, self._made(name, most))

    def _made(self, name: str, count: int) -> pa.Table:
        """A table of the first so many, which are let go of."""
        if name == "plans":
            plans, self._plans = self._plans[:count], self._plans[count:]
            return plans_table(self._trace, plans)
        return self._segments_table(count) if name == "segments" else self._decisions_table(count)

    def _taken(self, count: int, *names: str) -> Iterator[np.ndarray]:
        """The first so many entries of some columns, which are let go of: tables lie on the same bytes."""
        for name in names:
            held = getattr(self, name)
            setattr(self, name, held[count:])
            yield np.asarray(held)[:count]

    def _segments_table(self, count: int) -> pa.Table:
        row, milli, reason, ends = self._taken(count, "_row", "_milli", "_reason", "_gpu_end")
        slots = int(ends[-1]) if count else 0
        (ids,) = self._taken(slots, "_gpu_ids")
        if self._gpu_end:
            self._gpu_end = array("q", (np.asarray(self._gpu_end) - slots).tobytes())
        starts = np.concatenate(([0], ends))
        segment = np.repeat(np.arange(count), np.diff(starts))
        nodes = self._cluster.num_nodes
        # One entry a (segment, node): how many shares of it, added up.
        pair, shares = np.unique(segment * np.int64(nodes) + self._cluster.gpu_node[ids], return_counts=True)
        owner = pair // nodes
        node_starts = np.searchsorted(owner, np.arange(count + 1)).astype(np.int32)
        reasons = pa.DictionaryArray.from_arrays(column(reason.astype(np.int32)), column(schema.END_REASONS))
        times = ("begin_s", "end_s", "overhead_s", "rate", "work_done", "work_lost")
        of_times = self._taken(count, "_begin", "_end", "_overhead", "_rate", "_done", "_lost")
        held = dict(zip(times, of_times, strict=True))
        zoned = self._cluster.zoned
        return table_of(
            schema.with_further("segments", ["egress_usd"] * zoned),
            {
                "job_id": self._job_ids.take(column(row)),
                "nodes": pa.ListArray.from_arrays(column(node_starts), column((pair % nodes).astype(np.int32))),
                "gpus": pa.ListArray.from_arrays(column(node_starts), column(shares * milli[owner] / 1000.0)),
                "gpu_ids": pa.ListArray.from_arrays(column(starts.astype(np.int32)), column(ids)),
                "gpu_milli": milli,
                **held,
                "end_reason": reasons.cast(pa.string()),
                **self._terms_columns(count),
                **(self._egress_columns(owner, pair % nodes, held["work_done"]) if zoned else {}),
            },
        )

    @cached_property
    def _job_ids(self) -> pa.Array:
        return column(self._trace.job_id, pa.string())

    def _terms_columns(self, count: int) -> dict[str, pa.Array]:
        """Batch, cap and lease of each of the first so many segments; null where nothing was said."""
        names, found = ("batch_size", "power_cap_w", "lease_until_s"), {}
        here = {at: said for at, said in self._terms.items() if at < count}
        self._terms = {at - count: said for at, said in self._terms.items() if at >= count}
        at = np.fromiter(here, dtype=np.int64, count=len(here))
        said = np.array(list(here.values()), dtype=np.float64).reshape(-1, len(names))
        for i, name in enumerate(names):
            values = np.full(count, np.nan)
            values[at] = np.where((said[:, i] == 0) & (i < 2), np.nan, said[:, i])  # no batch, no cap
            found[name] = column(values, schema.SEGMENTS.field(name).type, nan_is_null=True)
        return found

    def _egress_columns(self, owner: np.ndarray, node: np.ndarray, work_done: np.ndarray) -> dict[str, pa.Array]:
        """Cost of bytes that left a zone: of a segment within one nothing, of others what was said, else unknown.

        `owner`, `node`: segment and node of each node that one holds.
        """
        count, names = len(work_done), self._cluster.node_zone
        zone = np.unique(np.array(names), return_inverse=True)[1][node]
        first, last = np.full(count, len(names)), np.full(count, -1)
        np.minimum.at(first, owner, zone)
        np.maximum.at(last, owner, zone)
        of_work = np.where(first < last, np.nan, 0.0)
        here = {at: usd for at, usd in self._egress.items() if at < count}
        self._egress = {at - count: usd for at, usd in self._egress.items() if at >= count}
        of_work[list(here)] = list(here.values())
        found = {"egress_usd_per_work": of_work, "egress_usd": np.where(work_done > 0, work_done * of_work, 0.0)}
        return {name: column(values, nan_is_null=True) for name, values in found.items()}

    def _decisions_table(self, count: int) -> pa.Table:
        (now,), (flat,) = self._taken(count, "_now"), self._taken(4 * count, "_counts")
        counts = flat.reshape(-1, 4)
        return table_of(
            schema.DECISIONS,
            {
                "now_s": now,
                "queued": counts[:, 0],
                "running": counts[:, 1],
                "started": counts[:, 2],
                "stopped": counts[:, 3],
            },
        )


def claim(folder: Path, force: bool) -> None:
    """Refuse an output folder that is there already, before any work is done; what killed runs left is put right first.

    Raises
    ------
    OutputError
        It exists and `force` is not set, or its parent cannot be written.
    """
    folder = followed(folder)
    clear(folder.parent)
    if folder.exists() and not folder.is_dir():
        raise OutputError("the output is a file", where=str(folder), todo="Name a folder with --out.")
    if folder.exists() and any(folder.iterdir()):
        if not force:
            raise OutputError(
                "the output folder is not empty",
                where=str(folder),
                got="an earlier run or other files",
                allowed="a new or empty folder",
                todo="Name another with --out, or overwrite it with --force.",
            )
        strange = sorted(entry.name for entry in folder.iterdir() if entry.name not in RUN_FILES or entry.is_dir())
        if strange or not (folder / "run.json").exists():
            raise OutputError(
                "the output folder holds something that is not part of a run",
                where=str(folder),
                got=", ".join(strange[:3]) or "no run.json",
                allowed="with --force, a folder with the files of a run and nothing else",
                todo="Name another with --out.",
            )
    try:
        make_folders(folder.parent)
        probe = beside(folder, "part")
        probe.mkdir()
        probe.rmdir()
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise OutputError(
            "the output folder cannot be made", where=str(folder),
            got=error.strerror if isinstance(error, OSError) else str(error), todo="Name another with --out."
        ) from None


def write_run(folder: Path, tables: Mapping[str, Any], info: dict[str, Any], timing: dict[str, Any]) -> None:
    """Write all files of a run: it is there whole or not at all (`traces.outfile.written_folder`).

    `tables`: Arrow tables, or the files of those that were too long to be held.

    Raises
    ------
    OutputError
        The disk is full or the folder cannot be written; nothing is left behind.
    """
    folder = followed(folder)
    with _writing(folder):
        with written_folder(folder) as part:
            for name, table in tables.items():
                if isinstance(table, Spooled):
                    table.into(part / f"{name}.parquet")
                else:
                    pq.write_table(table, part / f"{name}.parquet", compression="zstd", store_schema=True)
            for name, content in (("run", info), ("timing", timing)):
                text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=False) + "\n"
                (part / f"{name}.json").write_text(text, "utf-8")
        for name, table in tables.items():
            if isinstance(table, Spooled):
                table.stands_at(folder / f"{name}.parquet")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """What the disk refuses is said of the run's folder."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            "the run could not be written",
            where=str(folder),
            got=error.strerror or str(error),
            todo="Free some space or name another folder with --out; nothing was left behind.",
        ) from None
