"""Clusters of the Tiresias simulator, which its descendants took over: alike nodes under switches, in one row."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.machines.capacity import About, MachineReader, Machines
from traces.reading.text import read_table

HEADER = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")
MOST = 1_000_000
"""Nodes that are taken seriously."""


def read_tiresias_cluster(path: Path) -> Machines:
    """Read `num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node`, one row.

    =================  ====================================================================================
    source             becomes
    =================  ====================================================================================
    num_switch         rack: "0", "1", … (nodes of one switch share a rack)
    num_node_p_switch  machines of each; name: their number from 0, switch by switch, as the simulator counts
    num_gpu_p_node     gpus
    num_cpu_p_node     cpu_cores
    mem_p_node         memory_gib (of the machine)
    =================  ====================================================================================

    The GPU type is not told. Files are named n<nodes>g<GPUs a node>; n160g8 has 5 switches with 32 nodes each. Source:
    repository SymbioticLab/Tiresias (Apache 2.0); Muri's and ElasticFlow's clusters have the same form.

    Raises
    ------
    TraceError
        More than one row, no node, or more than 1,000,000; see `traces.reading.text.read_table`.
    """
    table = read_table(path, HEADER, what="list of machines")
    if len(table) != 1:
        raise TraceError("a cluster is one row", where=str(path), got=f"{len(table)} rows", allowed="one row")
    switches, nodes, gpus = (int(table.number(name, low=1, high=MOST, integer=True)[0]) for name in HEADER[:3])
    cores, memory_gib = (float(table.number(name)[0]) for name in HEADER[3:])
    total = switches * nodes
    if total > MOST:
        raise TraceError("a cluster larger than any", where=f"{path}, line {table.lines[0]}", got=f"{total:,} nodes",
                         allowed=f"up to {MOST:,}")
    number = np.arange(total)
    columns = {
        "name": number.astype(str).astype(object), "rack": (number // nodes).astype(str).astype(object),
        "gpus": np.full(total, gpus), "cpu_cores": np.full(total, cores), "memory_gib": np.full(total, memory_gib),
    }
    return Machines.from_columns(columns, About(source=str(path), format="tiresias", rule="nodes as listed, all alike"))


MACHINES = MachineReader(
    name="tiresias",
    description="cluster of the Tiresias simulator: num_switch,num_node_p_switch,num_gpu_p_node,…",
    public="https://github.com/SymbioticLab/Tiresias (cluster_spec)",
    licence="Apache 2.0",
    header=HEADER,
    read=read_tiresias_cluster,
)
