"""Shanghai AI Laboratory's Acme 2023: jobs of two clusters for large language models, one trace_*.csv a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.late import pd
from traces.readers.slurm_log import Part, read_slurm
from traces.reading.reader import Head, Reader, SideTable
from traces.reading.spans import EDGES_HELP
from traces.reading.times import posix_s
from traces.reading.unpack import files_by, inner_name, only
from traces.trace import Provenance, Trace

HEADER = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state", "submit_time", "start_time", "end_time",
          "duration", "queue", "gpu_time")
FILE = re.compile(r"trace_(seren|kalos)\.csv")
ZONE = "Asia/Shanghai"
_OFFSET = re.compile(r"(.*)([+-])(\d\d):?(\d\d)")


def read_acme(path: Path, *, type: str = "", edges: str = "drop") -> Trace:
    """Read trace_seren.csv or trace_kalos.csv, or a folder with both.

    Where: the repository AcmeTrace of the GitHub organisation InternLM, data/job_trace (CC-BY-4.0); columns after its
    README; Hu et al., "Characterization of Large Language Model Development in the Datacenter", NSDI 2024. March to
    August 2023: 880,740 jobs, of which 470,497 ask for GPUs.

    ==============================  =======================================================================
    source                          becomes
    ==============================  =======================================================================
    job_id, user                    job_id, user
    (file name)                     vc: seren or kalos, which share no GPUs
    gpu_num                         num_gpus; 0: CPU-only, dropped and counted
    node_num                        worker_gpus = gpu_num / node_num where that is whole and at most 8, else 1
    type                            unused, or chosen by the option: Pretrain, SFT, MLLM, Eval, Debug, Other
    state                           status: COMPLETED passed; CANCELLED, TIMEOUT killed; FAILED, NODE_FAIL failed;
                                    RUNNING, PENDING unknown (`cut` after)
    submit_time                     submit_s, from the first submission that was kept; the offset is in the cell
    start_time                      wait_s = start - submission; none: never started, dropped and counted
    end_time                        duration_s = end - start, in s; none: not ended, by option edges
    duration, queue                 in s; only checked against the times
    cpu_num                         cpus
    gpu_time, fail_time, stop_time, unused: gpu_time is duration x gpu_num, and so has queueing in it where duration
    *mem_per_pod*                   has; the others are Kalos' only, and how many pods a job has is not told
    ==============================  =======================================================================

    In Kalos `duration` is end - submission, though the README says end - start: its own first example starts 10 s
    after submission, ends 8 s later, and says 18. The file names no type; all GPUs are A100-SXM4-80GB (the paper's
    Table 1), so `gpu_type` is left empty. Hours and weekdays are to be read in UTC+8: Seren's offset.

    Parameters
    ----------
    type : str
        Keep only jobs of this kind of work, in any case; '': all.

    edges : {"drop", "cut"}
        Jobs without an end when the log was taken: see `traces.readers.slurm_log.read_slurm`.

    Raises
    ------
    TraceError
        See `traces.readers.slurm_log.read_slurm`; a time without an offset; a folder without such files.
    """
    files = [only(same) for same in files_by(path, _cluster).values()] if path.is_dir() else [path]
    if not files:
        raise TraceError("no trace_seren.csv or trace_kalos.csv in the folder", where=str(path))
    wanted = (lambda table: np.char.lower(table.text("type").astype(str)) == type.lower()) if type else None
    parts = [Part(file, vc=_cluster(file.name) or "", wanted=wanted) for file in files]
    return read_slurm(parts, HEADER, posix_with_offset, Provenance(
        source=str(path), format="acme", rule="duration_s = end - start, queueing not included", tz=ZONE,
        notes=("all GPUs were A100-SXM4-80GB", *((f"only jobs of type {type}",) if type else ())),
    ), edges)


def _cluster(name: str) -> str | None:
    """seren of trace_seren.csv, packed or not; None: another file."""
    match = FILE.fullmatch(inner_name(name))
    return match[1] if match else None


def posix_with_offset(cells: np.ndarray, where: Callable[[int], str]) -> np.ndarray:
    """Read times such as 2023-03-01 00:18:22+08:00 as POSIX seconds; NaN: no time.

    Raises
    ------
    TraceError
        A cell is no such time, or names no offset.
    """
    codes, tails = pd.factorize(pd.Series(cells, dtype=object).str.slice(19))
    offsets_s = np.array([_offset_s(tail) for tail in tails])[codes]
    given = cells != ""
    wrong = given & np.isnan(offsets_s)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise TraceError("a time without an offset from UTC", where=where(at), got=cells[at],
                         allowed="YYYY-MM-DD HH:MM:SS+08:00")
    posix: np.ndarray = posix_s([cell[:19] for cell in cells], "UTC", where).posix_s - offsets_s
    return posix


def _offset_s(tail: str) -> float:
    """'+08:00' as 28,800; NaN: no offset."""
    match = _OFFSET.fullmatch(tail)
    if match is None or match[1].strip(".0123456789"):
        return np.nan
    return (-1 if match[2] == "-" else 1) * (int(match[3]) * 3600 + int(match[4]) * 60)


def _sniff(head: Head) -> bool:
    names = set(head.header)
    inside = not head.path.is_dir() or any(_cluster(file.name) for file in head.path.iterdir())
    return inside and set(HEADER) <= names and "vc" not in names


def _is_utilisation(head: Head) -> bool:
    names = head.header
    return len(names) > 1 and names[0] == "Time" and re.match(r"\d+\.\d+\.\d+\.\d+", names[1]) is not None


READER = Reader(
    name="acme",
    description="Acme jobs (Seren, Kalos): " + ",".join(HEADER) + "; a file or a folder of both",
    public="https://github.com/InternLM/AcmeTrace (data/job_trace)",
    licence="CC-BY-4.0",
    header=HEADER,
    read=read_acme,
    sniff=_sniff,
    folders=True,
    options={"type": "keep only this kind of work: Pretrain, SFT, MLLM, Eval, Debug or Other; default all",
             "edges": EDGES_HELP},
    side_tables=(
        SideTable("a summary of whole clusters, a row each", "The jobs are in trace_seren.csv and trace_kalos.csv.",
                  header=("id", "job_num", "cpu_job_num", "gpu_job_num")),
        SideTable("readings of Acme's machines over time", "The jobs are in trace_seren.csv and trace_kalos.csv.",
                  sniff=_is_utilisation),
    ),
)
