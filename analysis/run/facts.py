"""What the audit's laws share: the facts of a run as arrays, and what a law answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.run.one_run import FINISHED, Run, explode
from traces.errors import HetsimError
from traces.late import pd


@dataclass(frozen=True)
class Violation:
    """One broken law: when, which job, where, and what was found.

    `where`: the file of the run, with column and row or with the key, where the law is one of form; `got` and `allowed`
    say there what was found and what would have been right.
    """

    text: str
    time_s: float | None = None
    job_id: str | None = None
    gpu: int | None = None
    node: int | None = None
    law: str = ""
    where: str = ""
    got: object = None
    allowed: str = ""

    def named(self, law: str) -> Violation:
        return replace(self, law=law)

    @property
    def place(self) -> str:
        """Time, job, GPU and node, as far as they are known."""
        at = [] if self.time_s is None else [f"at {self.time_s:.15g} s"]
        at += [] if self.job_id is None else [f"job {self.job_id!r}"]
        at += [] if self.gpu is None else [f"GPU {self.gpu}"]
        at += [] if self.node is None else [f"node {self.node}"]
        return ", ".join(at)

    def __str__(self) -> str:
        at = ", ".join(filter(None, (self.where, self.place)))
        return f"{self.law}: {HetsimError(self.text, where=at, got=self.got, allowed=self.allowed)}"


@dataclass(frozen=True)
class Finding:
    """Outcome of one law: how many of what were checked, and the earliest violation."""

    count: int
    unit: str
    violation: Violation | None = None


class Facts:
    """A run's columns as arrays, derived once and shared by all laws."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.begin, self.end = run.column("segments", "begin_s"), run.column("segments", "end_s")
        self.submit, self.job_end = run.column("jobs", "submit_s"), run.column("jobs", "end_s")
        self.first_start = run.column("jobs", "first_start_s")
        self.state = np.asarray(run.tables["jobs"]["state"].to_pylist(), dtype=object)
        self.ids = run.tables["jobs"]["job_id"]

    @cached_property
    def job(self) -> np.ndarray:
        """Row of the jobs table of each segment; at least 0 once `jobs_once` holds."""
        return self.run.segment_job

    @cached_property
    def slots(self) -> tuple[np.ndarray, np.ndarray]:
        """Segment and GPU of each slot."""
        segment, gpu = explode(self.run.tables["segments"]["gpu_ids"])
        return segment, gpu.astype(np.int64)

    @cached_property
    def slot_kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """Segment and GPU type index of each slot."""
        segment, gpu = self.slots
        return segment, self.run.node_type[self.gpu_node[gpu]]

    @cached_property
    def gpu_node(self) -> np.ndarray:
        """Node of each GPU of the cluster."""
        return np.repeat(np.arange(len(self.run.nodes)), self.run.column("nodes", "gpus"))

    @cached_property
    def slot_count(self) -> np.ndarray:
        """Slots of each segment."""
        return np.bincount(self.slots[0], minlength=len(self.begin))

    @cached_property
    def ended(self) -> np.ndarray:
        """bool [jobs]: ran to its recorded end."""
        return np.isin(self.state, np.array(FINISHED, dtype=object))

    def ended_by(self, *words: str) -> np.ndarray:
        """bool [segments]: those that ended for one of these reasons."""
        is_one: np.ndarray = pc.is_in(self.run.tables["segments"]["end_reason"], pa.array(words)).to_numpy()
        return is_one

    @cached_property
    def neighbours(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 [segments]: the segment of the same job before each, and that after it; -1: there is none."""
        order = np.argsort(self.job, kind="stable")
        same = self.job[order][1:] == self.job[order][:-1]
        before, after = np.full(len(order), -1), np.full(len(order), -1)
        before[order[1:][same]] = order[:-1][same]
        after[order[:-1][same]] = order[1:][same]
        return before, after

    @cached_property
    def starts(self) -> np.ndarray:
        """bool [segments]: whether the job took GPUs there, and did not just go on at another speed."""
        before, _ = self.neighbours
        fresh: np.ndarray = (before < 0) | ~self.ended_by("respeed")[before]
        return fresh

    @cached_property
    def launch(self) -> np.ndarray:
        """int64 [segments]: number of the launch that each belongs to: a start, and all changes of speed after it."""
        order = np.argsort(self.job, kind="stable")
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.cumsum(self.starts[order]) - 1
        return number

    @cached_property
    def work_before(self) -> np.ndarray:
        """float64 [segments]: work of the job that stood when the segment began, each job's summed by itself."""
        net = self.run.column("segments", "work_done") - self.run.column("segments", "work_lost")
        until: np.ndarray = pd.Series(net).groupby(self.job).cumsum().to_numpy()
        before, _ = self.neighbours
        return np.where(before < 0, 0.0, until[before])

    def setting(self, name: str) -> float | None:
        """A number among the engine's settings, of which infinity is written as text; None: run.json lacks it."""
        value = (self.run.info.get("settings") or {}).get(name)
        return None if value is None else float(value)

    def job_id(self, row: int) -> str:
        return str(self.ids[row].as_py())

    def of_segments(
        self,
        bad: np.ndarray,
        text: Callable[[int], str],
        when: np.ndarray | None = None,
        file: str = "",
        **place: Callable[[int], int],
    ) -> Violation | None:
        """Earliest violation among segments (by `when`, by default their begin); `file`: for a law of form."""
        i = earliest(bad, self.begin if when is None else when)
        if i is None:
            return None
        at = {name: int(of(i)) for name, of in place.items()}
        time_s = float((self.begin if when is None else when)[i])
        where = f"{file}, row {i}" if file else ""
        return Violation(text(i), time_s, self.job_id(self.job[i]), at.get("gpu"), at.get("node"), where=where)

    def of_jobs(
        self, bad: np.ndarray, text: Callable[[int], str], when: np.ndarray | None = None, file: str = ""
    ) -> Violation | None:
        """Earliest violation among jobs (by `when` where that is a number, else by their submit)."""
        time_s = self.submit if when is None else np.where(np.isnan(when), self.submit, when)
        i = earliest(bad, time_s)
        where = f"{file}, row {i}" if file else ""
        return None if i is None else Violation(text(i), float(time_s[i]), self.job_id(i), where=where)


def earliest(bad: np.ndarray, time_s: np.ndarray) -> int | None:
    rows = np.flatnonzero(bad)
    return int(rows[np.argmin(time_s[rows])]) if len(rows) else None
