"""Append-only facts of a run, and the one place that writes them: under temporary names, renamed when whole."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sim.api import Plan
from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import PRICE_KINDS
from sim.results import schema
from traces.arrow import column
from traces.errors import HetsimError
from traces.leftovers import beside, clear
from traces.outfile import followed, make_folders, written_folder
from traces.trace import Trace

_REASON = {name: i for i, name in enumerate(schema.END_REASONS)}


RUN_FILES = frozenset({*(f"{name}.parquet" for name in schema.FILES), "run.json", "timing.json"})
"""All that a run folder holds; with anything else in it, a folder is not ours to replace."""


class OutputError(HetsimError):
    """A run folder that cannot be written."""


class Recorder:
    """Columns that only grow. Rows are trace rows until they are written, when they become job ids."""

    def __init__(self) -> None:
        self._row, self._milli, self._reason = array("i"), array("i"), array("b")
        self._begin, self._end, self._overhead, self._rate = array("d"), array("d"), array("d"), array("d")
        self._done, self._lost = array("d"), array("d")
        self._gpu_ids, self._gpu_end = array("i"), array("q")
        self._now, self._counts = array("d"), array("i")
        self._plans: list[tuple[int, float, Plan, float]] = []
        self._terms: dict[int, tuple[int, float, float]] = {}

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

    def decision(self, now_s: float, queued: int, running: int, started: int, stopped: int) -> None:
        """One policy call."""
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

    def decisions(self, now_s: np.ndarray, counts: np.ndarray) -> None:
        """Many policy calls at once; `counts`: queued, running, started and stopped."""
        self._now.frombytes(now_s.tobytes())
        self._counts.frombytes(counts.tobytes())

    def plan(self, row: int, begin_s: float, plan: Plan, iteration_s: float) -> None:
        """The plan with which a job started, and the true time of its iteration on the GPUs that it got."""
        self._plans.append((row, begin_s, plan, iteration_s))

    # -- tables -----------------------------------------------------------------------------------------------------

    def segments_table(self, trace: Trace, cluster: ClusterSpec) -> pa.Table:
        """Segments in the order in which they ended."""
        row = np.frombuffer(self._row, dtype=np.int32) if self._row else np.empty(0, np.int32)
        ids = np.frombuffer(self._gpu_ids, dtype=np.int32) if self._gpu_ids else np.empty(0, np.int32)
        ends = np.frombuffer(self._gpu_end, dtype=np.int64) if self._gpu_end else np.empty(0, np.int64)
        milli = np.asarray(self._milli, dtype=np.int32)
        starts = np.concatenate(([0], ends))
        segment = np.repeat(np.arange(len(row)), np.diff(starts))
        node = cluster.gpu_node[ids]
        # One entry a (segment, node): how many shares of it, added up.
        pair, slots = np.unique(segment * np.int64(cluster.num_nodes) + node, return_counts=True)
        owner = pair // cluster.num_nodes
        node_starts = np.searchsorted(owner, np.arange(len(row) + 1)).astype(np.int32)
        reasons = pa.DictionaryArray.from_arrays(
            column(np.asarray(self._reason, dtype=np.int32)), column(schema.END_REASONS))
        return _table(
            schema.SEGMENTS,
            {
                "job_id": column(trace.job_id, pa.string()).take(column(row)),
                "begin_s": self._begin,
                "end_s": self._end,
                "nodes": pa.ListArray.from_arrays(
                    column(node_starts), column((pair % cluster.num_nodes).astype(np.int32))),
                "gpus": pa.ListArray.from_arrays(column(node_starts), column(slots * milli[owner] / 1000.0)),
                "gpu_ids": pa.ListArray.from_arrays(column(starts.astype(np.int32)), column(ids)),
                "gpu_milli": milli,
                "overhead_s": self._overhead,
                "rate": self._rate,
                "work_done": self._done,
                "work_lost": self._lost,
                "end_reason": reasons.cast(pa.string()),
                **self._terms_columns(),
            },
        )

    def _terms_columns(self) -> dict[str, pa.Array]:
        """Batch, cap and lease of each segment; null where nothing was said."""
        names, found = ("batch_size", "power_cap_w", "lease_until_s"), {}
        at = np.fromiter(self._terms, dtype=np.int64, count=len(self._terms))
        said = np.array(list(self._terms.values()), dtype=np.float64).reshape(-1, len(names))
        for i, name in enumerate(names):
            values = np.full(len(self._row), np.nan)
            values[at] = np.where((said[:, i] == 0) & (i < 2), np.nan, said[:, i])  # no batch, no cap
            found[name] = column(values, schema.SEGMENTS.field(name).type, nan_is_null=True)
        return found

    def decisions_table(self) -> pa.Table:
        counts = np.asarray(self._counts, dtype=np.int32).reshape(-1, 4)
        return _table(
            schema.DECISIONS,
            {
                "now_s": self._now,
                "queued": counts[:, 0],
                "running": counts[:, 1],
                "started": counts[:, 2],
                "stopped": counts[:, 3],
            },
        )

    def plans_table(self, trace: Trace) -> pa.Table:
        """One row a stage and part, plan after plan."""
        rows = [
            {
                "job_id": trace.job_id[row],
                "begin_s": begin,
                "stage": number,
                "part": k,
                "first_op": stage.first_op,
                "last_op": stage.last_op,
                "ops": list(plan.order[stage.first_op : stage.last_op + 1]) or None,
                "gpu_type": part.gpu_type,
                "gpus": part.gpus,
                "share": part.share,
                "tensor": stage.tensor,
                "micro_batches": plan.micro_batches,
                "schedule": plan.schedule,
                "chunks": plan.chunks,
                "recompute": plan.recompute,
                "zero": plan.zero,
                "iteration_s": _known(plan.iteration_s),
                "true_iteration_s": _known(true_s),
                "memory_gib": plan.memory_gib[number % len(plan.memory_gib)] if plan.memory_gib else None,
            }
            for row, begin, plan, true_s in self._plans
            for number, stage in enumerate(plan.stages)
            for k, part in enumerate(stage.all_parts)
        ]
        return _table(schema.PLANS, {name: [row[name] for row in rows] for name in schema.PLANS.names})


def _known(value: float) -> float | None:
    """Null where a number is unknown."""
    return None if np.isnan(value) else value


def _table(kind: pa.Schema, columns: dict[str, Any]) -> pa.Table:
    arrays = []
    for f in kind:
        values = columns[f.name]
        arrays.append(values if isinstance(values, pa.Array) else column(values, f.type))
    return pa.Table.from_arrays(arrays, schema=kind)


def jobs_table(
    trace: Trace,
    work_total: np.ndarray,
    first_start_s: np.ndarray,
    end_s: np.ndarray,
    state: list[str],
    reason: list[str],
) -> pa.Table:
    """One row a job of the trace, in submit order; NaN times become null."""
    return _table(
        schema.JOBS,
        {
            **{
                name: column(getattr(trace, name), schema.JOBS.field(name).type)
                for name in (
                    "job_id",
                    "user",
                    "vc",
                    "submit_s",
                    "num_gpus",
                    "gpu_milli",
                    "gpu_type",
                    "model",
                    "batch_size",
                    "duration_s",
                    "cut",
                )
            },
            "deadline_s": column(trace.deadline_s, nan_is_null=True),
            "priority": trace.priority,
            **{name: getattr(trace, name) for name in ("min_batch_size", "max_batch_size", "min_gpus", "max_gpus")},
            "first_start_s": column(first_start_s, nan_is_null=True),
            "end_s": column(end_s, nan_is_null=True),
            "work_total": column(work_total, nan_is_null=True),
            "state": state,
            "reason": reason,
        },
    )


def nodes_table(
    cluster: ClusterSpec, down_s: list[list[float]], up_s: list[list[float]],
    maintenance: Sequence[tuple[int, float, int, str]] = (),
) -> pa.Table:
    """One row a node, with when it was down; `maintenance`: node, when, GPU, and what, in order of time."""
    types = [cluster.types[t] for t in cluster.node_type]
    changes: list[list[tuple[int, float, int, str]]] = [[] for _ in types]
    for change in maintenance:
        changes[change[0]].append(change)
    return _table(
        schema.NODES,
        {
            "node": np.arange(cluster.num_nodes, dtype=np.int32),
            "gpu_type": [t.name for t in types],
            "gpus": cluster.node_gpus,
            "first_gpu": cluster.node_first[:-1],
            "rack": cluster.node_rack,
            "price_usd_per_gpu_h": [None if math.isnan(usd) else usd for usd in cluster.node_usd_per_gpu_h.tolist()],
            **{
                f"{kind.replace('-', '_')}_usd_per_gpu_h": [t.usd_per_gpu_h(kind) for t in types]
                for kind in PRICE_KINDS
            },
            "busy_w": [t.power_w for t in types],
            "idle_w": [t.idle_w for t in types],
            "down_s": down_s,
            "up_s": up_s,
            **{name: [[change[i] for change in of_node] or None for of_node in changes]
               for i, name in ((3, "maintenance"), (1, "maintenance_s"), (2, "maintenance_gpu"))},
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


def write_run(folder: Path, tables: dict[str, pa.Table], info: dict[str, Any], timing: dict[str, Any]) -> None:
    """Write all files of a run: it is there whole or not at all (`traces.outfile.written_folder`).

    Raises
    ------
    OutputError
        The disk is full or the folder cannot be written; nothing is left behind.
    """
    folder = followed(folder)
    try:
        with written_folder(folder) as part:
            for name, table in tables.items():
                pq.write_table(table, part / f"{name}.parquet", compression="zstd", store_schema=True)
            for name, content in (("run", info), ("timing", timing)):
                text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=False) + "\n"
                (part / f"{name}.json").write_text(text, "utf-8")
    except OSError as error:
        raise OutputError(
            "the run could not be written",
            where=str(folder),
            got=error.strerror or str(error),
            todo="Free some space or name another folder with --out; nothing was left behind.",
        ) from None
