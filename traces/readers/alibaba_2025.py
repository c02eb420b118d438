"""Alibaba 2025: instances of recommendation services whose GPUs are on nodes of their own; one row an instance."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.readers.pai import gang
from traces.readers.rows import demands
from traces.reading.reader import Reader, choice
from traces.reading.spans import EDGES, cut_words, spans
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, read_table
from traces.trace import Provenance, Trace

HEADER = ("instance_sn", "role", "app_name", "gpu_request", "max_instance_per_node", "creation_time", "scheduled_time",
          "deletion_time")


def read_alibaba_2025(path: Path, *, edges: str = "cut") -> Trace:
    """Read disaggregated_DLRM_trace.csv: `instance_sn,role,app_name,…,gpu_request,…,deletion_time`.

    Where: the repository clusterdata of the GitHub organisation alibaba, cluster-trace-gpu-v2025 (no licence stated
    there); columns after its README; Yang et al., "GPU-Disaggregated Serving for Deep Learning Recommendation Models
    at Scale", NSDI 2025. 23,871 instances of 156 services, 7,386 of them with a GPU; 31 days.

    ===========================  ==========================================================================
    source                       becomes
    ===========================  ==========================================================================
    instance_sn                  job_id
    app_name                     user: the service that the instance belongs to
    role                         unused: CN have no GPU, HN have; gpu_request says so itself
    gpu_request                  num_gpus, gpu_milli and worker_gpus: an instance lies on one node; 0: CPU-only,
                                 dropped and counted
    creation_time                submit_s, in s from the beginning of the log; blank: there before (`cut` before)
    scheduled_time               wait_s = scheduled - creation; blank: scheduled before
    deletion_time                duration_s = deletion - scheduled; blank: still there at the end (`cut` after)
    cpu_request, memory_request  cpus (virtual ones), memory_gib
    disk_*, rdma_*, *_limit,     unused: no disks and network cards of nodes; limits are as requests;
    max_instance_per_node        max_instance_per_node limits how many instances of a service may share a node
    ===========================  ==========================================================================

    Most instances serve for months: of those with a GPU, 3,123 were there before the log began and 3,322 when it
    ended, and they hold most of the GPU time. The end of the log is not stated: the last time in the file is taken.

    Parameters
    ----------
    edges : {"cut", "drop"}
        cut: an instance that was there before is submitted at 0, its wait unknown, and one that stays is run until the
        end; its run time is then a lower bound. drop: only instances seen from creation to deletion.

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Trace.from_columns`; another value of `edges`.
    """
    choice("edges", edges, EDGES)
    table = read_table(path, HEADER)
    each = table.number("gpu_request", high=1e4)
    times = ("creation_time", "scheduled_time", "deletion_time")
    created_s, scheduled_s, deleted_s = (table.number(name, high=LONGEST_RUN_S, blank=True) for name in times)
    last_s = float(np.fmax.reduce([created_s, scheduled_s, deleted_s], axis=None, initial=0.0))
    tally, gpu = Tally(table.lines), each > 0
    tally.rows("CPU-only instances dropped", ~gpu)
    before, after = np.isnan(created_s) & np.isnan(scheduled_s), np.isnan(deleted_s)
    word = "run time cut there" if edges == "cut" else "dropped"
    tally.rows(f"instances there before the log began: {word}", gpu & before)
    tally.rows(f"instances still there when the log ended: {word}", gpu & after)
    start_s, end_s = np.where(before, 0.0, scheduled_s), np.where(after, last_s, deleted_s)
    whole = edges == "cut" or ~(before | after)
    found = spans(tally, np.where(before, 0.0, created_s), start_s, end_s, gpu & whole, "instances")
    keep = np.flatnonzero(found.kept)
    columns = gang(np.ones(len(each)), each, keep, tally, lambda row: table.where(row, "gpu_request"))
    columns |= {
        "job_id": table.text("instance_sn")[keep], "user": table.text("app_name")[keep],
        "submit_s": np.where(before, 0.0, created_s)[keep], "duration_s": found.duration_s[keep],
        "wait_s": np.where(before, np.nan, found.wait_s)[keep],
        "cut": cut_words(after, before)[keep], "status": np.full(len(keep), "unknown", dtype=object),
        **demands(table, keep, cpus=("cpu_request", 1.0), memory_gib=("memory_request", 1.0)),
    }
    provenance = Provenance(
        source=str(path), format="alibaba-2025", rows_read=len(table), counts=tally.counts, first=tally.first,
        rule="duration_s = deletion - scheduling" + ", within the log" * (edges == "cut"), window_s=(0.0, last_s),
        notes=("instances of services, which run until they are replaced: no status",),
    )
    return Trace.from_columns(columns, provenance, rows=table.lines[keep], row_word="line")


READER = Reader(
    name="alibaba-2025",
    description="Alibaba 2025 instances of recommendation services: instance_sn,role,app_name,…,gpu_request,…",
    public="https://github.com/alibaba/clusterdata (cluster-trace-gpu-v2025/disaggregated_DLRM_trace.csv)",
    header=HEADER,
    read=read_alibaba_2025,
    options={"edges": "instances there before the log began or after it ended: cut to the log, or drop"},
)
