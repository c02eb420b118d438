"""Alibaba openb 2023: the pods of a cluster whose GPUs are shared, one row a pod, times in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.readers.rows import demands
from traces.reading import status
from traces.reading.gpu_types import catalogue_names
from traces.reading.reader import Reader, SideTable
from traces.reading.spans import Spans, cut_words, spans
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table, read_table
from traces.trace import Provenance, Trace

HEADER = ("name", "num_gpu", "gpu_milli", "gpu_spec", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
NODE_HEADER = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
PUBLIC = "https://github.com/alibaba/clusterdata (cluster-trace-gpu-v2023/csv)"


def read_openb(path: Path) -> Trace:
    """Read `name,…,num_gpu,gpu_milli,gpu_spec,…,pod_phase,creation_time,deletion_time,scheduled_time`.

    Where: the repository clusterdata of the GitHub organisation alibaba, cluster-trace-gpu-v2023/csv (CC-BY-4.0);
    openb_pod_list_default.csv and the lists sampled from it. Columns after the README there; Weng et al., "Beware of
    Fragmentation", USENIX ATC 2023.

    =====================  ================================================================================
    source                 becomes
    =====================  ================================================================================
    name                   job_id
    num_gpu                num_gpus and worker_gpus: a pod lies on one node; 0: CPU-only, dropped and counted
    gpu_milli              gpu_milli: thousandths of a GPU, below 1000 only where num_gpu is 1
    gpu_spec               gpu_type: types that the pod may run on, A|B; empty: any (see `traces.reading.gpu_types`)
    creation_time          submit_s, in s from the beginning of the log
    scheduled_time         wait_s = scheduled - creation; none: never scheduled, dropped and counted
    deletion_time          duration_s = deletion - scheduled
    pod_phase              status: Succeeded passed, Failed failed, Running unknown (deleted in the last second of
                           the log: `cut` after)
    cpu_milli, memory_mib  cpus, a thousandth of it; memory_gib, 1/1024 of it
    qos                    unused: its classes have no stated order
    =====================  ================================================================================

    A pod's phase is the last that was seen. All Running pods of the public file have a deletion: they held their GPUs
    until then and are kept, with status "unknown", since the log does not say why they were deleted (clusterdata
    #218, open). All Pending pods have a deletion too, and were never scheduled. Notes say how each phase was used.

    The public file counts 149.3 days from its first pod, but its log begins on day 115.3: no pod is deleted before, and
    8,119 of the 8,152 are created after. The 33 others were there when it began, and whatever ended earlier is not in
    it. `Provenance.window_s` is therefore from the first deletion to the last.

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Trace.from_columns`; an unknown phase.
    """
    table = read_table(path, HEADER)
    gpus = table.number("num_gpu", integer=True, high=1e6)
    created_s = table.number("creation_time", high=LONGEST_RUN_S)
    deleted_s = table.number("deletion_time", high=LONGEST_RUN_S, blank=True)
    tally = Tally(table.lines)
    tally.rows("CPU-only pods dropped", gpus == 0)
    scheduled_s = table.number("scheduled_time", high=LONGEST_RUN_S, blank=True)
    found = spans(tally, created_s, scheduled_s, deleted_s, gpus > 0, "pods")
    phase = table.text("pod_phase")
    ended = status.canonical(phase.tolist(), table.source, table.lines)
    first_s, last_s = _log(created_s, deleted_s)
    still = status.still_there(phase.tolist())
    tally.rows("Running pods whose deletion ends the run", found.kept & (phase == "Running"))
    tally.rows("pods created before any was deleted: perhaps older than the log", found.kept & (created_s < first_s))
    tally.rows("pods deleted in the last second of the log: perhaps cut off there", found.kept & (deleted_s == last_s))
    keep = np.flatnonzero(found.kept)
    columns = {
        "job_id": table.text("name")[keep], "submit_s": created_s[keep], "duration_s": found.duration_s[keep],
        "num_gpus": gpus[keep], "worker_gpus": gpus[keep], "wait_s": found.wait_s[keep], "status": ended[keep],
        "cut": cut_words((still & (deleted_s == last_s))[keep]),
        "gpu_milli": table.number("gpu_milli", integer=True, high=1000)[keep],
        "gpu_type": catalogue_names(table.text("gpu_spec"))[keep],
        **demands(table, keep, cpus=("cpu_milli", 1e-3), memory_gib=("memory_mib", 1 / 1024)),
    }
    provenance = Provenance(
        source=str(path), format="openb", rule="duration_s = deletion - scheduling", rows_read=len(table),
        counts=tally.counts, first=tally.first, notes=_phases(table, gpus, found, ended),
        window_s=(first_s, last_s),
    )
    return Trace.from_columns(columns, provenance, rows=table.lines[keep], row_word="line")


def _log(created_s: np.ndarray, deleted_s: np.ndarray) -> tuple[float, float]:
    """When the log begins and ends: at the first deletion, and at the last one or the last creation."""
    if np.isnan(deleted_s).all():
        return float(created_s.min()), float(created_s.max())
    return float(np.nanmin(deleted_s)), max(float(np.nanmax(deleted_s)), float(created_s.max()))


def _phases(table: Table, gpus: np.ndarray, found: Spans, ended: np.ndarray) -> tuple[str, ...]:
    """How the pods of each phase were used, in words."""
    phase = table.text("pod_phase")
    notes = []
    for name in sorted(set(phase.tolist())):
        mine = phase == name
        kept, cpu = int((mine & found.kept).sum()), int((mine & (gpus == 0)).sum())
        state = f" as {ended[np.argmax(mine)]!r}" if kept else ""
        notes.append(f"phase {name}: {mine.sum()} pods, {kept} kept{state}, {cpu} without GPUs, "
                     f"{mine.sum() - kept - cpu} without a run time")
    return tuple(notes)


READER = Reader(
    name="openb",
    description="Alibaba openb 2023 pods: name,…,num_gpu,gpu_milli,gpu_spec,…,creation_time,deletion_time,…",
    public=PUBLIC,
    licence="CC-BY-4.0",
    header=HEADER,
    read=read_openb,
    side_tables=(
        SideTable("the nodes of openb", "Jobs are in openb_pod_list_*.csv; hetsim cluster from FILE makes a cluster.",
                  header=NODE_HEADER),
    ),
)
