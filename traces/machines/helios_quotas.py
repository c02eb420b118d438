"""SenseTime Helios 2020: GPUs of each virtual cluster, day by day."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.machines.capacity import About, Capacity, MachineReader
from traces.readers.slurm_log import folders_with, has
from traces.reading.reader import Head
from traces.reading.tally import Tally
from traces.reading.text import read_table
from traces.reading.times import posix_s, zone_name
from traces.trace import Trace

SIZES = "cluster_gpu_number.csv"
PUBLIC = "https://github.com/S-Lab-System-Group/HeliosData (data.zip: a folder a cluster)"
LICENCE = "CC-BY-4.0"
ZONE = "Asia/Shanghai"


def read_helios_sizes(path: Path, *, tz: str = ZONE) -> Capacity:
    """Read `date,vc…,total` of one cluster, a folder with it, or a folder of such folders.

    Where and licence: as `traces.readers.helios`; columns after the README there.

    =========  ==============================================================================================
    source     becomes
    =========  ==============================================================================================
    date       time_s, at midnight in zone `tz`, from the first date; a day left out is as the day before
    vc…        a virtual cluster's GPUs from that day on; of several clusters: "Venus/vcJkd"; 0 is none, not
               unknown
    total      only checked against the sum
    =========  ==============================================================================================

    The table names no type of GPU. Quotas are whole days: when in the day one changed is not told.

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Capacity.from_columns`; a date that is none; a folder without such a
        file, or with one and folders that have one.
    """
    files = folders_with(path, SIZES) if path.is_dir() else [path]
    several = path.is_dir() and files[0].parent != path
    tally = Tally()
    pieces = [_sizes(file, f"{file.parent.name}/" if several else "", tz, tally) for file in files]
    time_s, vc, gpus, lines = (np.concatenate(column) for column in zip(*pieces, strict=True))
    first_s = float(time_s.min())
    about = About(
        source=str(path), format="helios", rule="as listed, from midnight on", counts=tally.counts, first=tally.first,
        notes=(f"dates read in {zone_name(tz)}",), epoch_s=first_s,
    )
    return Capacity.from_columns(time_s - first_s, vc, np.full(len(vc), "", dtype=object), gpus, about=about,
                                 lines=lines)


def _sizes(file: Path, prefix: str, tz: str, tally: Tally) -> tuple[np.ndarray, ...]:
    """Times (POSIX s), virtual clusters, GPUs and lines of one table, a row for each day and virtual cluster."""
    table = read_table(file, ("date", "total"), what="table of sizes")
    vcs = [name for name in table.cells if name not in ("date", "total")]
    if not vcs:
        raise TraceError("no virtual clusters in the table", where=f"{file}, line 1", got=", ".join(table.cells),
                         allowed="a column for each, between date and total")
    midnights = [f"{day} 00:00:00" for day in table.text("date")]
    when_s = posix_s(midnights, tz, lambda i: table.where(i, "date"), required=True).posix_s
    gpus = np.array([table.number(vc, integer=True, high=1e6) for vc in vcs]).reshape(len(vcs), len(table))
    mine = Tally(table.lines)
    mine.rows("days whose total is not the sum of the virtual clusters",
              table.number("total", integer=True) != gpus.sum(axis=0))
    mine.rows("days after a day that is left out", np.diff(when_s, prepend=when_s[0] - 86_400) > 90_000)
    for what, count in mine.counts.items():
        tally.add(what, count, (f"{prefix}{place}" for place in mine.first[what]))
    names = np.repeat(np.array([prefix + vc for vc in vcs], dtype=object), len(table))
    return np.tile(when_s, len(vcs)), names, gpus.ravel(), np.tile(table.lines, len(vcs))


def without_gpus(trace: Trace, capacity: Capacity) -> dict[str, np.ndarray]:
    """Jobs whose virtual cluster has too few GPUs, by what is the matter: masks over the jobs of the trace.

    "not listed": the virtual cluster is not in the table; "never enough": it never has as many GPUs as the job asks
    for; "before the table begins": how many it had is not known; "not enough on that day": it has too few when the
    job is submitted, and enough at some other time. Where both tables have a calendar, times are compared by it.
    """
    shift_s = 0.0
    if trace.provenance.epoch_s is not None and capacity.about.epoch_s is not None:
        shift_s = trace.provenance.epoch_s - capacity.about.epoch_s
    found = {what: np.zeros(len(trace), dtype=bool) for what in
             ("not listed", "never enough", "before the table begins", "not enough on that day")}
    listed = set(capacity.vcs)
    for vc in sorted(set(trace.vc.tolist())):
        mine = trace.vc == vc
        if vc not in listed:
            found["not listed"] |= mine
            continue
        when_s, gpus = capacity.steps(vc)
        now = np.searchsorted(when_s, trace.submit_s + shift_s, side="right") - 1
        never = mine & (trace.num_gpus > gpus.max())
        found["never enough"] |= never
        found["before the table begins"] |= mine & (now < 0) & ~never
        found["not enough on that day"] |= mine & (now >= 0) & (trace.num_gpus > gpus[np.maximum(now, 0)]) & ~never
    return found


def is_size_table(head: Head) -> bool:
    """Whether it is a cluster_gpu_number.csv, or a folder with one (or with folders that have)."""
    if head.path.is_dir():
        return has(head.path, SIZES)
    return len(head.header) > 2 and head.header[0] == "date" and head.header[-1] == "total"


MACHINES = MachineReader(
    name="helios",
    description="Helios: GPUs of each virtual cluster and day: date,vc…,total; a file, or a folder of cluster folders",
    public=PUBLIC,
    licence=LICENCE,
    header=("date", "total"),
    read=read_helios_sizes,
    options={"tz": f"zone of the dates, {ZONE} by default"},
    sniff=is_size_table,
)
