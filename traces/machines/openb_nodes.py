"""Alibaba openb 2023: the nodes of the cluster, one row a node."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.machines.capacity import About, MachineReader, Machines
from traces.readers.openb import NODE_HEADER, PUBLIC
from traces.reading.tally import Tally
from traces.reading.text import read_table


def read_openb_nodes(path: Path) -> Machines:
    """Read `sn,cpu_milli,memory_mib,gpu,model`: 1,523 nodes, or the 1,213 of them that have GPUs; 6,212 GPUs.

    Where and licence: as `traces.readers.openb`. The two public lists number nodes each in its own way: a name of the
    one is not that node in the other, and pods name no node.

    ===========  ==========================================================
    source       becomes
    ===========  ==========================================================
    sn           name
    gpu          gpus; 0: a node without any, kept
    model        gpu_type, as written; G1, G2, G3 stand for types not told
    cpu_milli    cpu_cores, a thousandth of it
    memory_mib   memory_gib, a 1,024th of it
    ===========  ==========================================================

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Machines.from_columns`.
    """
    table = read_table(path, NODE_HEADER, what="list of machines")
    gpus = table.number("gpu", integer=True, high=1e4)
    model = table.text("model")
    tally = Tally(table.lines)
    tally.rows("nodes without GPUs", gpus == 0)
    tally.rows("nodes with GPUs of no type", (gpus > 0) & (model == ""))
    columns = {
        "name": table.text("sn"), "gpus": gpus, "gpu_type": np.where(gpus > 0, model, ""),
        "cpu_cores": table.number("cpu_milli") / 1000, "memory_gib": table.number("memory_mib") / 1024,
    }
    return Machines.from_columns(columns, About(source=str(path), format="openb", rule="as listed",
                                                counts=tally.counts, first=tally.first))


MACHINES = MachineReader(
    name="openb",
    description="Alibaba openb 2023 nodes: sn,cpu_milli,memory_mib,gpu,model",
    public=PUBLIC,
    licence="CC-BY-4.0",
    header=NODE_HEADER,
    read=read_openb_nodes,
)
