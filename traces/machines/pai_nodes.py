"""Alibaba PAI 2020: the machines of the cluster, one row a machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.machines.capacity import About, MachineReader, Machines
from traces.readers.pai_tables import COLUMNS, LICENCE, MACHINE, PUBLIC, find, table_of, whole
from traces.reading.reader import Head
from traces.reading.tally import Tally
from traces.reading.unpack import only


def read_pai_machines(path: Path) -> Machines:
    """Read pai_machine_spec (csv or tar.gz, without a header), or find it in a folder of raw tables.

    The public table is complete: 1,897 machines, of which 83 have no GPU; 6,742 GPUs. It has no times.

    ==========  ================================================================
    source      becomes
    ==========  ================================================================
    machine     name
    gpu_type    gpu_type, as written (MISC: older types not told); CPU: none
    cap_gpu     gpus; 0: a machine without any, kept
    cap_cpu     cpu_cores
    cap_mem     memory_gib, the GB of the table taken as GiB (384, 512)
    ==========  ================================================================

    Raises
    ------
    TraceError
        See `traces.reading.stream.pieces` and `Machines.from_columns`.
    """
    file = only(find(path).get(MACHINE, [path])) if path.is_dir() else path
    table = whole(MACHINE, file, COLUMNS[MACHINE])
    gpus = table.number("cap_gpu", integer=True, high=1e4)
    kind = table.text("gpu_type")
    tally = Tally(table.lines)
    tally.rows("machines without GPUs", gpus == 0)
    tally.rows("machines with GPUs of no type", (gpus > 0) & np.isin(kind, ("", "CPU")))
    columns = {
        "name": table.text("machine"), "gpus": gpus, "gpu_type": np.where((gpus > 0) & (kind != "CPU"), kind, ""),
        "cpu_cores": table.number("cap_cpu"), "memory_gib": table.number("cap_mem"),
    }
    return Machines.from_columns(columns, About(source=str(file), format="pai", rule="as listed",
                                                counts=tally.counts, first=tally.first))


def _knows(head: Head) -> bool:
    return MACHINE in find(head.path) if head.path.is_dir() else table_of(head.path) == MACHINE


MACHINES = MachineReader(
    name="pai",
    description="Alibaba PAI 2020 machines: pai_machine_spec, or a folder with it",
    public=PUBLIC,
    licence=LICENCE,
    header=(),
    read=read_pai_machines,
    sniff=_knows,
)
