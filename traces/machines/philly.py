"""Philly's side tables: the machine list, checked against the job log, and rows of GPU utilisation."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from traces.errors import TraceError
from traces.reader import choice
from traces.readers.philly_log import load_json
from traces.text import read_bytes, read_table
from traces.times import posix_s

MACHINE, GPUS, MEMORY = "machineId", "number of GPUs", "single GPU mem"
RULES = ("observed", "listed", "strict")


@dataclass(frozen=True)
class Machines:
    """GPUs and memory of a GPU (GiB, NaN: not listed) of each machine, and where list and log disagree."""

    gpus: Mapping[str, int]
    memory_gib: Mapping[str, float]
    disagreeing: tuple[str, ...]
    counts: Mapping[str, int]
    rule: str


def read_machines(machine_list: Path, job_log: Path, rule: str = "observed") -> Machines:
    """Read cluster_machine_list and hold it against the GPUs that the job log saw in use.

    The public list has machines of 2 GPUs on which the log shows 8 in use.

    Parameters
    ----------
    rule : {"observed", "listed", "strict"}
        observed: the larger of the listed count and the number of GPUs seen in use; listed: as listed;
        strict: raise where a machine of the list is seen with more GPUs, or a machine is not listed.

    Raises
    ------
    TraceError
        A file cannot be read, or the rule is strict and the two disagree: names the machines.
    """
    choice("rule", rule, RULES)
    table = read_table(machine_list, (MACHINE, GPUS, MEMORY))
    names = table.text(MACHINE).tolist()
    listed = dict(zip(names, table.number(GPUS, integer=True).astype(int).tolist(), strict=True))
    memory = {m: _gib(text, table.where(i, MEMORY))
              for i, (m, text) in enumerate(zip(names, table.text(MEMORY), strict=True))}
    seen = observed_gpus(job_log)
    wider = tuple(sorted(m for m, n in seen.items() if m in listed and n > listed[m]))
    absent = tuple(sorted(seen.keys() - listed.keys()))
    if rule == "strict" and (wider or absent):
        worst = (wider or absent)[0]
        raise TraceError(
            f"machine {worst!r} disagrees with the job log", where=str(machine_list),
            got=f"{listed.get(worst, 'not listed')} GPUs listed, {seen[worst]} in use",
            allowed="as many as are in use", todo=f"{len(wider) + len(absent)} machines differ: "
            f"{', '.join((wider + absent)[:5])}. Use rule 'observed'.",
        )
    gpus = dict(listed)
    if rule == "observed":
        gpus |= {m: max(n, listed.get(m, 0)) for m, n in seen.items()}
    counts = {
        "machines seen with more GPUs than listed": len(wider),
        "machines seen but not listed": len(absent),
    }
    return Machines(gpus, memory | {m: np.nan for m in gpus if m not in memory}, wider + absent,
                    {k: v for k, v in counts.items() if v}, rule)


def observed_gpus(job_log: Path) -> dict[str, int]:
    """Number of different GPUs of each machine that the attempts of a job log name."""
    seen: dict[str, set[str]] = {}
    for row, job in enumerate(load_json(job_log), start=1):
        try:
            for attempt in job["attempts"] or ():
                for machine in attempt.get("detail") or ():
                    seen.setdefault(machine["ip"], set()).update(machine["gpus"])
        except (AttributeError, TypeError, KeyError):
            raise TraceError("attempts not as expected", where=f"{job_log}, job {row}",
                             got=repr(job["attempts"])[:80]) from None
    return {machine: len(gpus) for machine, gpus in seen.items()}


def read_gpu_util(path: Path) -> pd.DataFrame:
    """Read rows of cluster_gpu_util: `time,machineId,gpu0,...,gpu7,`.

    A row may end in a comma; NA means that the GPU was offline, not idle; times carry PDT or PST.

    Returns
    -------
    DataFrame
        time_s (POSIX s), machine, gpu0_util … gpu7_util (percent, NaN: offline or no such GPU).

    Raises
    ------
    TraceError
        A row has not 2 to 10 cells, or one that is no time, zone or number.
    """
    times, zones, machines, values = [], [], [], []
    for line, row in enumerate(csv.reader(read_bytes(path).decode("utf-8", "replace").splitlines()), start=1):
        cells = [c.strip() for c in row]
        if not cells or cells[0].startswith("#") or cells[0] == "time":
            continue
        if cells[-1] == "":
            cells.pop()
        stamp, _, zone = (cells[0] if cells else "").rpartition(" ")
        if not 3 <= len(cells) <= 10 or zone not in ("PDT", "PST"):
            raise TraceError("not a row of GPU utilisation", where=f"{path}, line {line}",
                             got=",".join(row)[:80],
                             allowed="time with PDT or PST, machine, up to 8 numbers or NA")
        times.append(stamp)
        zones.append(7 * 3600 if zone == "PDT" else 8 * 3600)
        machines.append(cells[1])
        values.append([_percent(c, f"{path}, line {line}") for c in cells[2:]] + [np.nan] * (10 - len(cells)))
    posix = posix_s(times, "UTC", lambda i: f"{path}, sample {i + 1}").posix_s + np.array(zones)
    frame = pd.DataFrame(values, columns=[f"gpu{i}_util" for i in range(8)], dtype=float)
    frame.insert(0, "time_s", posix)
    frame.insert(1, "machine", machines)
    return frame


def _percent(text: str, where: str) -> float:
    if text == "NA":
        return np.nan
    try:
        return float(text)
    except ValueError:
        raise TraceError("value not allowed", where=where, got=text, allowed="a number or NA") from None


def _gib(text: str, where: str) -> float:
    """'24GB' as 24.0 (the list's GB are what vendors print on the card, GiB)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*G(?:i?B)?", text)
    if match is None:
        raise TraceError("value not allowed", where=where, got=text, allowed="a size such as 24GB")
    return float(match[1])
