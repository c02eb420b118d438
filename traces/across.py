"""What must agree within a job of a trace: rules that need more than one value, and the place that a message names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from traces.columns import BY_NAME, COLUMNS
from traces.errors import TraceError
from traces.words import again, among, coded

#: A job's own bounds around what it asked for: (fewest, asked for, most, what 0 and 0 mean).
BOUNDED = (
    ("min_gpus", "num_gpus", "max_gpus", "not elastic"),
    ("min_batch_size", "batch_size", "max_batch_size", "a fixed batch"),
)


@dataclass(frozen=True)
class Where:
    """Turns an index into the place that a message names."""

    source: str
    word: str
    rows: np.ndarray

    def row(self, index: int) -> str:
        return f"{self.word} {self.rows[index]}"

    def __call__(self, index: int, column: str = "") -> str:
        return f"{self.source}, {self.row(index)}" + (f", column {column!r}" if column else "")


def check_across(columns: Mapping[str, np.ndarray], at: Where, given: Collection[str] = BY_NAME.keys()) -> None:
    """Check what a trace's columns (all of them, each within its own rule) must hold together.

    `given`: those that are new; of the others it is known that they agree.

    Unique ids; known words; whole workers; shares of a GPU only for workers of one slot; a kind of deadline only with
    a deadline; 1 <= min <= value <= max for GPUs and batch, where a job has bounds.

    Raises
    ------
    TraceError
        One of these does not hold; names the first row where it does not.
    """
    for index in _twice(columns["job_id"])[:1].tolist() if "job_id" in given else []:
        first = int(np.flatnonzero(columns["job_id"] == columns["job_id"][index])[0])
        raise TraceError(
            f"duplicate job id (first seen in {at.row(first)})", where=at(index, "job_id"),
            got=columns["job_id"][index], allowed="unique ids",
            todo="Drop the duplicate or give it an id of its own.",
        )
    for column in (column for column in COLUMNS if column.choices and column.name in given):
        if not column.said(columns[column.name]):
            continue
        values = columns[column.name]
        unknown = np.flatnonzero(~among(values, column.choices))
        if len(unknown):
            index = int(unknown[0])
            raise TraceError(f"unknown {column.name}", where=at(index, column.name), got=values[index],
                             allowed=column.allowed)
    ragged = np.flatnonzero(columns["num_gpus"] % columns["worker_gpus"])
    if len(ragged):
        index = int(ragged[0])
        raise TraceError("num_gpus is no multiple of worker_gpus", where=at(index),
                         got=f"{columns['num_gpus'][index]} and {columns['worker_gpus'][index]}",
                         allowed="whole workers")
    divided = np.flatnonzero((columns["gpu_milli"] < 1000) & (columns["worker_gpus"] > 1))
    if len(divided):
        index = int(divided[0])
        raise TraceError("a worker of several slots takes whole GPUs", where=at(index),
                         got=f"gpu_milli {columns['gpu_milli'][index]}",
                         allowed="gpu_milli 1000, or worker_gpus 1")
    _check_deadline_kinds(columns, at)
    for low, value, high, zero in BOUNDED:
        _check_bounds(columns, low, value, high, zero, at)


def _twice(ids: np.ndarray) -> np.ndarray:
    """Rows of ids that were there before."""
    if len(set(ids.tolist())) == len(ids):  # many times faster than to look for them
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(again(coded(ids)[0]))


def _check_deadline_kinds(columns: Mapping[str, np.ndarray], at: Where) -> None:
    kind = columns["deadline_kind"]
    if not BY_NAME["deadline_kind"].said(kind):
        return
    for index in np.flatnonzero((kind != "") & np.isnan(columns["deadline_s"]))[:1].tolist():
        raise TraceError("a kind of deadline without a deadline", where=at(index, "deadline_kind"), got=kind[index],
                         allowed="blank where deadline_s is blank", todo="Give deadline_s, or leave the kind blank.")


def _check_bounds(columns: Mapping[str, np.ndarray], low: str, value: str, high: str, zero: str, at: Where) -> None:
    least, asked, most = columns[low], columns[value], columns[high]
    if not (BY_NAME[low].said(least) or BY_NAME[high].said(most)):
        return
    bounded = (least != 0) | (most != 0)
    for index in np.flatnonzero(bounded & ~((least >= 1) & (least <= asked) & (asked <= most)))[:1].tolist():
        raise TraceError(
            f"{value} is not within the job's own bounds", where=at(index),
            got=f"{low} {least[index]}, {value} {asked[index]}, {high} {most[index]}",
            allowed=f"1 <= {low} <= {value} <= {high}, or both bounds 0: {zero}",
            todo="Correct the bounds, or leave both out.",
        )


def let_go(columns: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a trace some of which are `given` anew, without what no longer agrees with those.

    Bounds that a given value is outside of become 0, and the kind of a deadline that is gone becomes blank. Bounds and
    kinds that are given themselves stay as they are.
    """
    new = dict(columns)
    for low, value, high, _ in BOUNDED:
        if value in given and low in new and high in new and not {low, high} & given.keys():
            asked = np.asarray(new[value])
            holds = (new[low] <= asked) & (asked <= new[high])
            new |= {bound: np.where(holds, new[bound], 0) for bound in (low, high)}
    if "deadline_s" in given and "deadline_kind" in new and "deadline_kind" not in given:
        new["deadline_kind"] = np.where(np.isnan(np.asarray(new["deadline_s"], dtype=float)), "", new["deadline_kind"])
    return new
