"""Alibaba 2026: the nodes of the spot trace, one row a node; and servers of another cluster, hour by hour."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa

from traces.errors import TraceError
from traces.late import pd
from traces.machines.capacity import About, Capacity, MachineReader, Machines
from traces.readers.alibaba_2026 import NODE_HEADER, PUBLIC
from traces.reading.parquet_tables import read_parquet
from traces.reading.reader import Head
from traces.reading.tally import Tally
from traces.reading.text import read_bytes, read_table
from traces.reading.unpack import room_of

SERVER_COLUMNS = ("server_id", "cluster_id", "gpu_spec_public", "gpu_count")
HOURS = "day=*/hour=*/*.parquet"
_HOUR = re.compile(r"day=(\d{1,5})/hour=([01]?\d|2[0-3])/.*", re.ASCII)
HOUR_S = 3600.0


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
    gpu_count         gpus, added up over the servers of that hour; a fraction is no number of GPUs: left out, counted
    server_id         counted: servers that were ever there are more than at any one time (clusterdata #256)
    ================  ==========================================================

    An hour that is left out is as the hour before; a note says how many there are.

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table`, `Machines.from_columns` and `Capacity.from_columns`; a damaged Parquet
        file; an hour that is none of 0 to 23.
    """
    if path.is_dir():
        return _server_hours(path)
    table = read_table(path, NODE_HEADER, what="list of machines")
    columns = {
        "name": table.text("node_name"), "gpu_type": table.text("gpu_model"),
        "gpus": table.number("gpu_capacity_num", integer=True, high=1e4), "cpu_cores": table.number("cpu_num"),
    }
    return Machines.from_columns(columns, About(source=str(path), format="alibaba-2026", rule="as listed"))


def _server_hours(path: Path) -> Capacity:
    files = sorted((_hour_s(path, file), file) for file in path.glob(HOURS))
    hours = [(time_s, [file for _, file in same]) for time_s, same in groupby(files, lambda pair: pair[0])]
    tally, largest = Tally(), pd.Series(dtype=np.int64)
    steps: list[tuple[float, str, str, int]] = []
    before: dict[tuple[str, str], int] = {}
    for time_s, same in hours:
        servers = _one_hour(same, tally)
        largest = pd.concat([largest, servers["gpu_count"]]).groupby(level=0).max()
        sums = servers.groupby(["cluster_id", "gpu_spec_public"], as_index=False)["gpu_count"].sum()
        now = dict.fromkeys(before, 0)  # what is no longer there has no GPU
        now |= {(vc, kind): gpus for vc, kind, gpus in sums.itertuples(index=False)}
        steps += [(time_s, vc, kind, gpus) for (vc, kind), gpus in now.items() if before.get((vc, kind)) != gpus]
        before = now
    times, vcs, types, gpus = zip(*steps, strict=True) if steps else ((), (), (), ())
    missing = round((hours[-1][0] - hours[0][0]) / HOUR_S) + 1 - len(hours) if hours else 0
    notes = [f"{len(hours)} hours, {len(largest)} different servers"]
    notes += [f"{missing} hours in between are missing: each is taken to be as the hour before"] if missing else []
    about = About(source=str(path), format="alibaba-2026", rule="servers of each hour added up", counts=tally.counts,
                  first=tally.first, notes=tuple(notes))
    return Capacity.from_columns(times, vcs, types, gpus, distinct_gpus=int(largest.sum()), about=about)


def _hour_s(folder: Path, file: Path) -> float:
    """When the hour of a file begins, in s."""
    name = file.relative_to(folder).as_posix()
    match = _HOUR.fullmatch(name)
    if match is None:
        raise TraceError("no hour of a day", where=str(folder), got=name, allowed="day=D/hour=H, H from 0 to 23")
    return int(match[1]) * 24 * HOUR_S + int(match[2]) * HOUR_S


def _one_hour(files: list[Path], tally: Tally) -> pd.DataFrame:
    """The servers of one hour, by server_id, each once; those without a number of GPUs are left out and counted."""
    servers = pd.concat([_servers(file) for file in files], ignore_index=True)
    place = ("/".join(files[0].parts[-3:]),)
    known = servers["gpu_count"].between(0, 1e4)
    whole = known & (servers["gpu_count"] == servers["gpu_count"].round())
    twice = whole & servers["server_id"].where(whole).duplicated()
    tally.add("servers without a number of GPUs", int((~known).sum()), place)
    tally.add("servers with a fraction of a GPU: left out", int((known & ~whole).sum()), place)
    tally.add("servers listed twice in an hour: counted once", int(twice.sum()), place)
    return servers[whole & ~twice].astype({"gpu_count": np.int64}).set_index("server_id")


def _servers(file: Path) -> pd.DataFrame:
    try:
        table = read_parquet(pa.BufferReader(read_bytes(file)), room_of(file), SERVER_COLUMNS)
        columns = {n: table.column(n).cast(pa.string()).fill_null("").to_pylist() for n in SERVER_COLUMNS[:3]}
        columns["gpu_count"] = table.column("gpu_count").cast(pa.float64()).to_pylist()
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise TraceError("not the servers of an hour", where=str(file), got=str(error)[:150],
                         allowed="Parquet with " + ", ".join(SERVER_COLUMNS)) from None
    return pd.DataFrame(columns).astype({"gpu_count": np.float64})


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
