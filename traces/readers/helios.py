"""SenseTime Helios 2020: Slurm jobs of four clusters, one cluster_log.csv a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from traces.machines.helios_quotas import LICENCE, PUBLIC, SIZES, ZONE, is_size_table, read_helios_sizes, without_gpus
from traces.readers.slurm_log import Clock, Part, folders_with, has, named, read_slurm
from traces.reading.reader import Head, Reader, SideTable
from traces.reading.spans import EDGES_HELP
from traces.reading.tally import Tally
from traces.reading.times import posix_s, zone_name
from traces.trace import Provenance, Trace

HEADER = ("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time", "end_time",
          "duration", "queue")
LOG = "cluster_log.csv"
CLUSTERS = ("Earth", "Saturn", "Uranus", "Venus")


def read_helios(path: Path, *, tz: str = ZONE, edges: str = "drop") -> Trace:
    """Read cluster_log.csv of one cluster, a folder with it, or a folder of such folders.

    Where: the repository HeliosData of the GitHub organisation S-Lab-System-Group (CC-BY-4.0); columns after its
    README; Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters",
    SC 2021. Earth, Saturn, Uranus, Venus, April to September 2020: 3,362,981 jobs, of which 1,580,464 ask for GPUs.

    =======================  ==============================================================================
    source                   becomes
    =======================  ==============================================================================
    job_id, user, vc         job_id, user, vc; of several clusters: "Venus/1425511", "Venus/vcJkd"
    gpu_num                  num_gpus; 0: CPU-only, dropped and counted
    node_num                 worker_gpus = gpu_num / node_num where that is whole and at most 8, else 1
    state                    status: COMPLETED passed; CANCELLED, TIMEOUT killed; FAILED, NODE_FAIL failed;
                             RUNNING, SUSPENDED unknown (`cut` after)
    submit_time              submit_s, from the first submission that was kept
    start_time               wait_s = start - submission; none: never started, dropped and counted
    end_time                 duration_s = end - start, in s; none: not ended, by option edges
    duration, queue          in s; only checked against the times
    cpu_num                  cpus
    =======================  ==============================================================================

    The paper counts TIMEOUT and NODE_FAIL as failed; here TIMEOUT is killed, as everywhere (`traces.reading.status`).
    GPUs of each virtual cluster and day are in cluster_gpu_number.csv, read by `traces.machines.helios_quotas`; where
    it lies beside the log, jobs whose virtual cluster has too few GPUs are counted (they are kept).

    Parameters
    ----------
    tz : str
        Zone of the times, which have none; Shanghai's, since the clusters are in China.

    edges : {"drop", "cut"}
        Jobs without an end when the log was taken: see `traces.readers.slurm_log.read_slurm`.

    Raises
    ------
    TraceError
        See `traces.readers.slurm_log.read_slurm`; a folder without such a file, or with one and folders that have one.
    """
    files = folders_with(path, LOG) if path.is_dir() else [path]
    several = path.is_dir() and files[0].parent != path
    parts = [Part(file, prefix=f"{file.parent.name}/" if several else "") for file in files]
    trace = read_slurm(parts, HEADER, clock(tz), Provenance(
        source=str(path), format="helios", rule="duration_s = end - start, queueing not included", tz=zone_name(tz),
        notes=(f"times read as {zone_name(tz)}", *(_present(files) if several else ())),
    ), edges)
    there = [named(file.parent, SIZES) for file in files]
    return _with_sizes(trace, path if several else there[0][0], tz) if all(there) else trace


def clock(tz: str) -> Clock:
    """Read times without a zone as those of `tz`."""
    return lambda cells, where: posix_s(cells.tolist(), tz, where).posix_s


def _with_sizes(trace: Trace, sizes: Path, tz: str) -> Trace:
    """The trace, with a count of the jobs whose virtual cluster has too few GPUs."""
    counts, first = dict(trace.provenance.counts), dict(trace.provenance.first)
    tally = Tally(trace.job_id, "job")
    for what, hit in without_gpus(trace, read_helios_sizes(sizes, tz=tz)).items():
        tally.rows(f"jobs of a virtual cluster with too few GPUs: {what}", hit)
    return replace(trace, provenance=replace(
        trace.provenance, counts=counts | tally.counts, first=first | tally.first))


def _present(files: list[Path]) -> tuple[str, ...]:
    """Which clusters were read, and which of the four are not there (HeliosData #1: for a year only Venus was)."""
    here = [file.parent.name for file in files]
    missing = [name for name in CLUSTERS if name not in here]
    return (f"clusters read: {', '.join(here)}",) + ((f"clusters not there: {', '.join(missing)}",) if missing else ())


def _sniff(head: Head) -> bool:
    if head.path.is_dir():
        return has(head.path, LOG)
    return set(HEADER) <= set(head.header)


READER = Reader(
    name="helios",
    description="SenseTime Helios jobs: " + ",".join(HEADER) + "; a file, or a folder of cluster folders",
    public=PUBLIC,
    licence=LICENCE,
    header=HEADER,
    read=read_helios,
    sniff=_sniff,
    folders=True,
    options={"tz": f"zone of the times, {ZONE} by default", "edges": EDGES_HELP},
    side_tables=(
        SideTable("GPUs of each virtual cluster and day in Helios", f"Read {LOG}; this file describes its cluster.",
                  sniff=is_size_table),
    ),
)
