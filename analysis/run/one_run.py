"""One run: its five tables, the settings, the timing, and what is derived from them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sim.results.schema import BACK, DRAINED, OUT
from traces.arrow import as_numpy, column
from traces.errors import HetsimError, did_you_mean
from traces.late import pd
from traces.words import coded

FINISHED = ("done", "killed", "failed")
"""States of jobs that ran to their recorded end."""
TURNED_AWAY = ("rejected", "refused")
"""States of jobs that left without having run: they could not, or were not let in. They count as gone on submission."""
MOST_COMPARED = 20_000
"""Among more ids the nearest to a wrong one is not looked for: that takes longer than a user waits."""


class RunError(HetsimError):
    """A run folder that cannot be read: missing, incomplete, damaged, or of another schema."""


@dataclass(frozen=True)
class Held:
    """What segments hold on nodes: one entry for each node of each segment.

    Attributes
    ----------
    segment : int64, row of the segments table.
    node : int64, node number.
    milli : int64, share held on the node, 1/1000 GPU (integers, so that sums are exact).
    """

    segment: np.ndarray
    node: np.ndarray
    milli: np.ndarray


@dataclass(frozen=True, eq=False)
class Run:
    """A run's files. Frames are made when first asked for; arrays derived from list columns are kept.

    Attributes
    ----------
    path : the folder.
    tables : Arrow tables by name, with the columns and types of `sim.results.schema.FILES`.
    info : `run.json`.
    timing : `timing.json`, the one file that varies between equal runs; empty where it is missing.
    life : of a measuring window (`analysis.measuring_window`), the whole run, in which the same jobs count, and int64
        [jobs], the row there of each job of the window.
    """

    path: Path
    tables: Mapping[str, pa.Table]
    info: Mapping[str, Any]
    timing: Mapping[str, Any]
    life: tuple[Run, np.ndarray] | None = None

    @cached_property
    def jobs(self) -> pd.DataFrame:
        return self._frame("jobs")

    @cached_property
    def segments(self) -> pd.DataFrame:
        return self._frame("segments")

    @cached_property
    def nodes(self) -> pd.DataFrame:
        return self._frame("nodes")

    @cached_property
    def decisions(self) -> pd.DataFrame:
        return self._frame("decisions")

    @cached_property
    def plans(self) -> pd.DataFrame:
        return self._frame("plans")

    def _frame(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = self.tables[name].to_pandas()
        return frame

    @property
    def policy(self) -> str:
        return str(self.info.get("policy", "unknown"))

    @property
    def window_s(self) -> tuple[float, float]:
        """First submit and last event of the run, in s on the trace's clock."""
        return float(self.info["start_s"]), float(self.info["end_s"])

    @cached_property
    def counted(self) -> np.ndarray:
        """bool [jobs]: jobs that count in what is said of jobs: those `asked` of which the log shows all (`cut`)."""
        inside: np.ndarray = self.asked & ~self.cut
        return inside

    @cached_property
    def cut(self) -> np.ndarray:
        """bool [jobs]: the log shows only a part of the job: its run time is a lower bound, or its wait unknown."""
        begin, end = cut_at(self)
        either: np.ndarray = begin | end
        return either

    @cached_property
    def asked(self) -> np.ndarray:
        """bool [jobs]: all jobs, or those submitted in the measuring window, whether or not the log shows all of them.

        `analysis.measuring_window.windowed` sets the window; other jobs in its tables hold GPUs and wait, no more.
        """
        submit, window = self.column("jobs", "submit_s"), self.info.get("window")
        if window is None:
            return np.ones(len(submit), dtype=bool)
        until_s = np.inf if window["to_the_end"] else window["end_s"]
        inside: np.ndarray = (submit >= window["begin_s"]) & (submit < until_s)
        return inside

    @property
    def followed(self) -> tuple[Run, np.ndarray] | None:
        """`life`, where the jobs that count are followed to their end beyond the measuring window."""
        return self.life if self.info.get("window", {}).get("follow") else None

    @cached_property
    def turned_away(self) -> np.ndarray:
        """bool [jobs]: left without having run."""
        return as_numpy(pc.is_in(self.tables["jobs"]["state"], column(TURNED_AWAY)))

    @cached_property
    def types(self) -> tuple[str, ...]:
        """GPU types of the cluster, in node order."""
        return tuple(dict.fromkeys(self.tables["nodes"]["gpu_type"].to_pylist()))

    @cached_property
    def node_type(self) -> np.ndarray:
        """int64 [nodes]: index of each node's GPU type into `types`."""
        index = {name: i for i, name in enumerate(self.types)}
        return np.array(
            [index[name] for name in self.tables["nodes"]["gpu_type"].to_pylist()], dtype=np.int64
        )

    def row_of(self, job_id: str) -> int:
        """Row of a job in the jobs table.

        Raises
        ------
        RunError
            The run has no such job.
        """
        ids = self.tables["jobs"]["job_id"]
        row: int = pc.index(ids, job_id).as_py()
        if row < 0:
            raise RunError("the run has no such job", where=str(self.path), got=job_id, allowed="an id of jobs.parquet",
                           todo=did_you_mean(job_id, ids.to_pylist()) if len(ids) <= MOST_COMPARED else "")
        return row

    def column(self, table: str, name: str) -> np.ndarray:
        """One flat column as a NumPy array (null numbers become NaN)."""
        return as_numpy(self.tables[table][name])

    @cached_property
    def segment_job(self) -> np.ndarray:
        """int64 [segments]: row of the jobs table that each segment belongs to, -1 where there is none."""
        index = pc.index_in(self.tables["segments"]["job_id"], self.tables["jobs"]["job_id"].combine_chunks())
        rows = as_numpy(index)  # NaN: there is none
        return np.where(np.isnan(rows), -1, rows).astype(np.int64)

    @cached_property
    def held(self) -> Held:
        """Nodes and shares of all segments, exploded."""
        segment, node = explode(self.tables["segments"]["nodes"])
        _, gpus = explode(self.tables["segments"]["gpus"])
        return Held(segment, node.astype(np.int64), np.rint(gpus * 1000.0).astype(np.int64))

    @cached_property
    def outages(self) -> pd.DataFrame:
        """Times at which nodes were out of service: node, down_s, up_s (infinite if it never came back)."""
        return pd.DataFrame(self.outage_columns)

    @cached_property
    def outage_columns(self) -> dict[str, np.ndarray]:
        """The columns of `outages`."""
        down_node, down = explode(self.tables["nodes"]["down_s"])
        up_node, up = explode(self.tables["nodes"]["up_s"])
        # The k-th return of a node ends its k-th outage; both are in the order of nodes.
        first, after = (np.searchsorted(up_node, down_node, side) for side in ("left", "right"))
        place = first + np.arange(len(down_node)) - np.searchsorted(down_node, down_node)
        back = np.full(len(down_node), np.inf)
        back[place < after] = up[place[place < after]]
        back[np.isnan(back)] = np.inf
        return {"node": down_node, "down_s": down, "up_s": back}

    @cached_property
    def maintenance(self) -> pd.DataFrame:
        """Maintenance of GPUs as it happened: node, gpu, drain_s, out_s, back_s (infinite: it did not come to that).

        In the order of GPUs, then of time.
        """
        return pd.DataFrame(self._maintenance)

    @cached_property
    def _maintenance(self) -> dict[str, np.ndarray]:
        node, gpu = explode(self.tables["nodes"]["maintenance_gpu"])
        (_, what), (_, time_s) = (explode(self.tables["nodes"][name]) for name in ("maintenance", "maintenance_s"))
        order = np.argsort(gpu, kind="stable")
        node, gpu, what, time_s = node[order], gpu[order].astype(np.int64), what[order], time_s[order]
        begins = what == DRAINED
        number, count = np.cumsum(begins) - 1, int(begins.sum())
        times = {}
        for name, word in (("drain_s", DRAINED), ("out_s", OUT), ("back_s", BACK)):
            times[name] = np.full(count, np.inf)
            times[name][number[what == word]] = time_s[what == word]
        return {"node": node[begins], "gpu": gpu[begins], **times}

    @cached_property
    def gpus_out(self) -> pd.DataFrame:
        """Times at which GPUs were out for maintenance while their node was up: node, gpu, down_s, up_s.

        With `outages`, all times at which GPUs were out of service, none of them twice.
        """
        return pd.DataFrame(self.gpus_out_columns)

    @cached_property
    def gpus_out_columns(self) -> dict[str, np.ndarray]:
        """The columns of `gpus_out`."""
        down: dict[int, list[tuple[float, float]]] = {}
        for node, down_s, up_s in _rows(self.outage_columns):
            down.setdefault(node, []).append((down_s, up_s))
        rows = []
        for node, gpu, _, out_s, back_s in _rows(self._maintenance):
            for down_s, up_s in down.get(node, ()):
                if min(back_s, down_s) > out_s:
                    rows.append((node, gpu, out_s, min(back_s, down_s)))
                out_s = max(out_s, up_s)
            if back_s > out_s:
                rows.append((node, gpu, out_s, back_s))
        kinds = {"node": np.int64, "gpu": np.int64, "down_s": np.float64, "up_s": np.float64}
        return {name: np.array([row[i] for row in rows], dtype=kind) for i, (name, kind) in enumerate(kinds.items())}


def _rows(columns: Mapping[str, np.ndarray]) -> Iterator[tuple[Any, ...]]:
    return zip(*(values.tolist() for values in columns.values()), strict=True)


def cut_at(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """bool [jobs]: cut off at the begin of the log, and at its end (column `cut`; null in older runs: none is)."""
    word = run.tables["jobs"]["cut"]
    begin, end = (as_numpy(pc.is_in(word, column(words)))
                  for words in (("before", "both"), ("after", "both")))
    return begin, end


def explode(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Flatten a list column: int64 row of each element, and the elements (null lists have none)."""
    whole = column.combine_chunks()
    row, value = pc.list_parent_indices(whole), pc.list_flatten(whole)
    return as_numpy(row).astype(np.int64), as_numpy(value)


def wishes(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """What jobs say of GPU types: int64 [jobs], each job's wish; bool [wishes, types], what it allows.

    A wish is the text of `gpu_type`: names in any case, joined by '|'; empty allows every type.
    """
    codes, texts = coded(np.array([text or "" for text in run.column("jobs", "gpu_type").tolist()], dtype=object))
    names = [{name.strip().lower() for name in text.split("|")} for text in texts]
    rows = [[wish == {""} or kind.lower() in wish for kind in run.types] for wish in names]
    return codes, np.array(rows, dtype=bool).reshape(len(rows), len(run.types))


def labels(runs: Sequence[Run]) -> list[str]:
    """A short, unique name for each run: its policy, with the folder's name or a number where need be."""
    names = [run.policy for run in runs]
    for wider in (
        [f"{r.policy} ({r.path.name})" for r in runs],
        [f"{r.policy} #{i + 1}" for i, r in enumerate(runs)],
    ):
        if len(set(names)) == len(names):
            break
        names = [w if names.count(n) > 1 else n for n, w in zip(names, wider, strict=True)]
    return names
