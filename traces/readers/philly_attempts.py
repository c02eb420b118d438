"""The job log of Microsoft Philly 2017 as it is: jobs with their attempts, checked and laid flat.

A job that fails is tried again, so it has several attempts; times may be missing, written as the text "None".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traces.errors import TraceError
from traces.late import pd
from traces.reading.text import read_json
from traces.reading.times import posix_s

KEYS = ("status", "vc", "jobid", "attempts", "submitted_time", "user")


@dataclass
class Attempts:
    """All attempts of a log, flat. `job` is the row of each one's job, ascending; times: POSIX s or NaN.

    `gpus` counts different GPUs; `again` is whether the attempt lists one more than once.
    """

    job: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray
    gpus: np.ndarray
    again: np.ndarray
    unclear: int = 0

    @property
    def usable(self) -> np.ndarray:
        """Attempts that have both times in order (a missing one, NaN, compares false)."""
        return self.end_s >= self.start_s

    @property
    def overlapping(self) -> np.ndarray:
        """Usable attempts that start before an earlier one of the same job has ended: their times count twice."""
        order = np.lexsort((self.end_s, self.start_s, self.job))
        order = order[self.usable[order]]
        job, end_s = self.job[order], pd.Series(self.end_s[order])
        busy_until_s = end_s.groupby(job).cummax().groupby(job).shift().to_numpy()
        found = np.zeros(len(self.job), dtype=bool)
        found[order] = self.start_s[order] < busy_until_s
        return found


def load_json(path: Path) -> list[dict[str, Any]]:
    """The jobs of a log, each checked to have the keys that a reader needs.

    Raises
    ------
    TraceError
        No JSON, cut short, not a list of jobs, or a job without one of `KEYS`; names line or job.
    """
    jobs = read_json(path, "a list of jobs")
    if not isinstance(jobs, list):
        raise TraceError("the file is no job log", where=str(path), got=type(jobs).__name__,
                         allowed="a list of jobs")
    for row, job in enumerate(jobs, start=1):
        if not isinstance(job, dict):
            raise TraceError("not a job", where=f"{path}, job {row}", got=repr(job)[:60], allowed="an object")
        for key in KEYS:
            if key not in job:
                raise TraceError(f"key {key!r} is missing", where=f"{path}, job {row}",
                                 got=", ".join(job)[:200], allowed=", ".join(KEYS))
            if key not in ("attempts", "submitted_time") and not _is_text(job[key]):
                raise TraceError("value not allowed", where=f"{path}, job {row}, key {key!r}",
                                 got=repr(job[key])[:60], allowed="text")
    return jobs


def _is_text(value: object) -> bool:
    """Whether a JSON value can stand for text, and be written again (a lone surrogate cannot)."""
    return value is None or isinstance(value, int) or (isinstance(value, str) and value.isascii()) or (
        isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value)


def collect(jobs: Sequence[dict[str, Any]], source: str, tz: str) -> Attempts:
    """Flatten the attempts of all jobs; raises TraceError where one is not as the log writes them."""
    owner, start, end, gpus, again = [], [], [], [], []
    for row, job in enumerate(jobs):
        try:
            for attempt in job["attempts"] or ():
                owner.append(row)
                start.append(attempt.get("start_time"))
                end.append(attempt.get("end_time"))
                listed, different = listed_gpus(attempt)
                gpus.append(len(different))
                again.append(listed > len(different))
        except (AttributeError, TypeError, KeyError):
            raise TraceError(
                "attempts not as expected", where=f"{source}, job {row + 1}, key 'attempts'",
                got=repr(job["attempts"])[:80],
                allowed="a list of {start_time, end_time, detail: [{ip, gpus: [text, …]}]}",
            ) from None

    def where(i: int) -> str:
        return f"{source}, job {owner[i] + 1}, key 'attempts'"

    begun, ended = posix_s(start, tz, where), posix_s(end, tz, where)
    return Attempts(np.array(owner, dtype=np.int64), begun.posix_s, ended.posix_s,
                    np.array(gpus, dtype=np.int64), np.array(again, dtype=bool), begun.unclear + ended.unclear)


def listed_gpus(attempt: dict[str, Any]) -> tuple[int, set[tuple[object, str]]]:
    """How many GPUs an attempt lists, and which different ones: (ip of the machine, name).

    Raises
    ------
    TypeError, KeyError, AttributeError
        It is not as the log writes it: a list of {ip, gpus}, and gpus a list of text.
    """
    listed, different = 0, set[tuple[object, str]]()
    for place, machine in enumerate(attempt.get("detail") or ()):
        names = machine["gpus"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError(names)
        listed += len(names)
        different.update((machine.get("ip", place), name) for name in names)
    return listed, different


def first_start_s(tries: Attempts, n: int) -> np.ndarray:
    """First start of each job that any attempt tells, POSIX s; NaN where none does."""
    first = np.full(n, np.nan)
    np.fmin.at(first, tries.job, tries.start_s)
    return first
