"""Alibaba 2026: the nodes of the spot trace, one row a node; and servers of another cluster, hour by hour."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from traces.errors import TraceError
from traces.machines.capacity import About, Capacity, MachineReader, Machines
from traces.reader import Head
from traces.readers.alibaba_2026 import NODE_HEADER, PUBLIC
from traces.tally import Tally
from traces.text import read_table

SERVER_COLUMNS = ("server_id", "cluster_id", "gpu_spec_public", "gpu_count")
HOURS = "day=*/hour=*/*.parquet"
_HOUR = re.compile(r"day=(\d+)/hour=(\d+)/")


def read_alibaba_2026_cluster(path: Path) -> Machines | Capacity:
    """Read node_info_df.csv of the spot trace, or the folder asi_opensource_server_hourly of cluster-trace-gpu-v2026.

    node_info_df.csv: `node_name,gpu_model,gpu_capacity_num,cpu_num` in any order; 4,278 nodes, 10,412 GPUs.

    ================  ==========================================================
    source            becomes (`Machines`)
    ================  ==========================================================
    node_name         name; jobs name no node
    gpu_model         gpu_type, as written
    gpu_capacity_num  gpus
    cpu_num           cpu_cores (virtual CPUs)
    ================  ==========================================================

    asi_opensource_server_hourly: Parquet files day=D/hour=H/*.parquet, a row a server and hour (docs/schema.md there).
    It is read file by file, in bounded memory.

    ================  ==========================================================
    source            becomes (`Capacity`)
    ================  ==========================================================
    day, hour         time_s = 86,400 day + 3,600 hour, from the trace's first day
    cluster_id        vc
    gpu_spec_public   gpu_type, as written
    gpu_count         gpus, added up over the servers of that hour
    server_id         counted: servers that were ever there are more than at any one time (clusterdata #256)
    ================  ==========================================================

    Raises
    ------
    TraceError
        See `traces.text.read_table`, `Machines.from_columns` and `Capacity.from_columns`; a damaged Parquet file.
    """
    if path.is_dir():
        return _server_hours(path)
    table = read_table(path, NODE_HEADER)
    columns = {
        "name": table.text("node_name"), "gpu_type": table.text("gpu_model"),
        "gpus": table.number("gpu_capacity_num", integer=True, high=1e4), "cpu_cores": table.number("cpu_num"),
    }
    return Machines.from_columns(columns, About(source=str(path), format="alibaba-2026", rule="as listed"))


def _server_hours(path: Path) -> Capacity:
    hours = sorted((int(m[1]) * 86_400.0 + int(m[2]) * 3_600.0, file) for file in path.glob(HOURS)
                   if (m := _HOUR.search(file.relative_to(path).as_posix())))
    tally, largest = Tally(), pd.Series(dtype=np.int64)
    steps: list[tuple[float, str, str, int]] = []
    before: dict[tuple[str, str], int] = {}
    for time_s, file in hours:
        servers = _one_hour(file, tally)
        largest = pd.concat([largest, servers["gpu_count"]]).groupby(level=0).max()
        sums = servers.groupby(["cluster_id", "gpu_spec_public"], as_index=False)["gpu_count"].sum()
        now = dict.fromkeys(before, 0)  # what is no longer there has no GPU
        now |= {(vc, kind): gpus for vc, kind, gpus in sums.itertuples(index=False)}
        steps += [(time_s, vc, kind, gpus) for (vc, kind), gpus in now.items() if before.get((vc, kind)) != gpus]
        before = now
    times, vcs, types, gpus = zip(*steps, strict=True) if steps else ((), (), (), ())
    about = About(source=str(path), format="alibaba-2026", rule="servers of each hour added up", counts=tally.counts,
                  first=tally.first, notes=(f"{len(hours)} hours, {len(largest)} different servers",))
    return Capacity.from_columns(times, vcs, types, gpus, distinct_gpus=int(largest.sum()), about=about)


def _one_hour(file: Path, tally: Tally) -> pd.DataFrame:
    """The servers of one hour, by server_id, each once; those without a number of GPUs are left out and counted."""
    try:
        table = pq.read_table(file, columns=list(SERVER_COLUMNS), partitioning=None)
        columns = {n: table.column(n).cast(pa.string()).fill_null("").to_pylist() for n in SERVER_COLUMNS[:3]}
        columns["gpu_count"] = table.column("gpu_count").cast(pa.float64()).to_pylist()
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise TraceError("not the servers of an hour", where=str(file), got=str(error)[:150],
                         allowed="Parquet with " + ", ".join(SERVER_COLUMNS)) from None
    place = ("/".join(file.parts[-3:]),)
    servers = pd.DataFrame(columns).astype({"gpu_count": np.float64})
    known = servers["gpu_count"].between(0, 1e4)
    twice = known & servers["server_id"].duplicated()
    tally.add("servers without a number of GPUs", int((~known).sum()), place)
    tally.add("servers listed twice in an hour: counted once", int(twice.sum()), place)
    return servers[known & ~twice].astype({"gpu_count": np.int64}).set_index("server_id")


def _sniff(head: Head) -> bool:
    if head.path.is_dir():
        first = min(head.path.glob(HOURS), default=None)
        return first is not None and set(SERVER_COLUMNS) <= set(Head.of(first).header)
    return set(NODE_HEADER) <= set(head.header)


MACHINES = MachineReader(
    name="alibaba-2026",
    description="Alibaba 2026 nodes of the spot trace: node_name,gpu_model,gpu_capacity_num,…; or servers by hour",
    public=PUBLIC.replace("job_info_df", "node_info_df"),
    header=NODE_HEADER,
    read=read_alibaba_2026_cluster,
    sniff=_sniff,
)
