"""What a side table says of a cluster: which machines were there when, and how many GPUs that makes over time.

`Machines` lists machines, a row for each stay of one. `Capacity` counts GPUs: from `time_s` on, a virtual cluster has
so many of a type. Distinct machines over a log are more than were ever there at once (Alibaba, clusterdata #256):
`peak` and `distinct` are two figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traces.errors import TraceError
from traces.reading.reader import Head

_MACHINE_DEFAULTS: dict[str, Any] = {
    "gpu_type": "", "gpu_memory_gib": np.nan, "memory_gib": np.nan, "cpu_cores": np.nan, "rack": "", "vc": "",
    "first_s": np.nan, "last_s": np.nan,
}
_TEXT = ("name", "gpu_type", "rack", "vc")


@dataclass(frozen=True)
class About:
    """Where a side table comes from and what its reader did, as `traces.trace.Provenance` says it of jobs.

    `epoch_s` is the POSIX time of time 0; None where the table has no calendar, or no times at all.
    """

    source: str = "memory"
    format: str = ""
    rule: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    first: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    epoch_s: float | None = None


@dataclass(frozen=True, eq=False)
class Machines:
    """Machines of a cluster: arrays [stays], a row for each stay of a machine (most stay once, and always).

    Attributes
    ----------
    name : text, the trace's own.
    gpu_type : text, the trace's own word; "": not told.
    gpus : int64, GPUs; 0: a machine without any.
    gpu_memory_gib, memory_gib, cpu_cores : float64, memory of one GPU and of the machine, cores; NaN: not told.
    rack, vc : text, "": not told.
    first_s, last_s : float64, it is there from first_s until before last_s; NaN: from the beginning, to the end.
    """

    name: np.ndarray
    gpu_type: np.ndarray
    gpus: np.ndarray
    gpu_memory_gib: np.ndarray
    memory_gib: np.ndarray
    cpu_cores: np.ndarray
    rack: np.ndarray
    vc: np.ndarray
    first_s: np.ndarray
    last_s: np.ndarray
    about: About = About()

    def __len__(self) -> int:
        return len(self.name)

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any], about: About | None = None) -> Machines:
        """Check and complete columns; `name` and `gpus` must be there.

        Raises
        ------
        TraceError
            A machine without a name, with a negative number of GPUs, that leaves before it comes, or that is there
            twice at once.
        """
        about, n = about or About(), len(columns["name"])
        full: dict[str, np.ndarray] = {}
        for name in ("name", "gpus", *_MACHINE_DEFAULTS):
            kind: Any = object if name in _TEXT else np.int64 if name == "gpus" else np.float64
            values = columns[name] if name in columns else np.full(n, _MACHINE_DEFAULTS[name], dtype=kind)
            full[name] = np.asarray(values, dtype=kind)
            full[name].flags.writeable = False
        machines = cls(**full, about=about)
        for what, bad in (("a machine has no name", machines.name == ""),
                          ("a machine has a negative number of GPUs", machines.gpus < 0),
                          ("a machine leaves before it comes", machines.last_s <= machines.first_s),
                          ("a machine is there twice at once", machines._twice())):
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                raise TraceError(what, where=f"{about.source}, machine {row + 1}", got=machines.name[row],
                                 allowed="each machine once at a time")
        return machines

    @property
    def stays(self) -> tuple[np.ndarray, np.ndarray]:
        """When each is there: [first, last) in s, -inf and inf where the table does not say."""
        return (np.where(np.isnan(self.first_s), -np.inf, self.first_s),
                np.where(np.isnan(self.last_s), np.inf, self.last_s))

    @property
    def distinct(self) -> int:
        """How many different machines there were, at any time."""
        return len(set(self.name.tolist()))

    def _twice(self) -> np.ndarray:
        """Rows whose stay begins before an earlier one of the same machine is over."""
        first, last = self.stays
        names, number = np.unique(self.name.astype(str), return_inverse=True)
        bad = np.zeros(len(self), dtype=bool)
        if len(names) < len(self):
            order = np.lexsort((first, number))
            same = number[order[1:]] == number[order[:-1]]
            bad[order[1:]] = same & (first[order[1:]] < last[order[:-1]])
        return bad


@dataclass(frozen=True, eq=False)
class Capacity:
    """GPUs over time, as step functions: arrays [steps] in order of time.

    Attributes
    ----------
    time_s : float64, from when on; -inf: from the beginning. Before its first row, a (vc, gpu_type) has no GPU.
    vc : text, virtual cluster; "": the cluster as a whole.
    gpu_type : text, the trace's own word; "": not told, or of any type.
    gpus : int64, GPUs from then on.
    distinct_gpus : GPUs of all machines that were ever there, None where the table tells counts and no machines.
    """

    time_s: np.ndarray
    vc: np.ndarray
    gpu_type: np.ndarray
    gpus: np.ndarray
    distinct_gpus: int | None = None
    about: About = About()

    @classmethod
    def from_columns(
        cls, time_s: Any, vc: Any, gpu_type: Any, gpus: Any, *, distinct_gpus: int | None = None,
        about: About | None = None, lines: np.ndarray | None = None,
    ) -> Capacity:
        """Sort by time, and leave out rows that change nothing. `lines`: where each row is in its file, for messages.

        Raises
        ------
        TraceError
            A count is negative, or a (vc, gpu_type) has two at one time.
        """
        about = about or About()
        time_s, gpus = np.asarray(time_s, dtype=np.float64), np.asarray(gpus, dtype=np.int64)
        vc, gpu_type = np.asarray(vc, dtype=object), np.asarray(gpu_type, dtype=object)
        if len(gpus) == 0:
            raise TraceError("no capacity is told", where=about.source, allowed="at least one row")
        keys = {key: i for i, key in enumerate(sorted(set(zip(vc.tolist(), gpu_type.tolist(), strict=True))))}
        key = np.array([keys[k] for k in zip(vc.tolist(), gpu_type.tolist(), strict=True)], dtype=np.int64)
        order = np.lexsort((time_s, key))
        same = np.concatenate(([False], key[order[1:]] == key[order[:-1]]))
        at_once = np.concatenate(([False], time_s[order[1:]] == time_s[order[:-1]]))
        for what, bad in (("a negative number of GPUs", gpus[order] < 0), ("two counts at one time", same & at_once)):
            if bad.any():
                row = int(order[np.flatnonzero(bad)[0]])
                place = f"row {row + 1}" if lines is None else f"line {lines[row]}"
                when = f"at {time_s[row]:g} s" if np.isfinite(time_s[row]) else "from the beginning"
                raise TraceError(what, where=f"{about.source}, {place}",
                                 got=f"vc {vc[row]!r}, type {gpu_type[row]!r} {when}: {gpus[row]} GPUs",
                                 allowed="one count from 0 for each virtual cluster, type and time")
        changes = ~same | np.concatenate(([True], np.diff(gpus[order]) != 0))
        order = np.sort(order[changes])
        order = order[np.lexsort((key[order], time_s[order]))]
        time_s, vc, gpu_type, gpus = time_s[order], vc[order], gpu_type[order], gpus[order]
        for array in (time_s, vc, gpu_type, gpus):
            array.flags.writeable = False
        return cls(time_s, vc, gpu_type, gpus, distinct_gpus, about)

    @classmethod
    def of(cls, machines: Machines) -> Capacity:
        """GPUs of the machines that are there, by virtual cluster and type, at each time at which that changes."""
        first, last = machines.stays
        changes: dict[tuple[str, str], dict[float, int]] = {}
        columns = (machines.vc, machines.gpu_type, machines.gpus, first, last)
        for vc, kind, gpus, begin, end in zip(*(c.tolist() for c in columns), strict=True):
            step = changes.setdefault((vc, kind), {})
            step[begin] = step.get(begin, 0) + gpus
            if end < np.inf:
                step[end] = step.get(end, 0) - gpus
        rows: list[tuple[float, str, str, int]] = []
        for (vc, kind), step in changes.items():
            gpus = 0
            for time_s in sorted(step):
                gpus += step[time_s]
                rows.append((time_s, vc, kind, gpus))
        size: dict[str, int] = {}
        for name, gpus in zip(machines.name.tolist(), machines.gpus.tolist(), strict=True):
            size[name] = max(gpus, size.get(name, 0))
        columns_of = list(zip(*rows, strict=True)) or [(), (), (), ()]
        return cls.from_columns(*columns_of, distinct_gpus=sum(size.values()), about=machines.about)

    @property
    def vcs(self) -> tuple[str, ...]:
        """Virtual clusters that are named, sorted."""
        return tuple(sorted({vc for vc in self.vc.tolist() if vc}))

    @property
    def constant(self) -> bool:
        """Whether nothing changes."""
        return len(set(self.time_s.tolist())) == 1

    def steps(self, vc: str | None = None, gpu_type: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Times of change, and the GPUs from each on: of a virtual cluster, or (None) of the whole; of a type, or all.

        The whole is what rows without a virtual cluster say; where there is none, all virtual clusters together.
        """
        names = self.vc.tolist()
        mine = np.array([v == vc if vc is not None else v == "" or "" not in names for v in names])
        if gpu_type is not None:
            mine &= self.gpu_type == gpu_type
        last: dict[tuple[str, str], int] = {}
        sums: dict[float, int] = {}
        total = 0
        for i in np.flatnonzero(mine).tolist():
            key = (self.vc[i], self.gpu_type[i])
            total += int(self.gpus[i]) - last.get(key, 0)
            last[key] = int(self.gpus[i])
            sums[float(self.time_s[i])] = total
        return np.array(list(sums)), np.array(list(sums.values()), dtype=np.int64)

    def at(self, time_s: float, vc: str | None = None, gpu_type: str | None = None) -> int:
        """GPUs at a time (see `steps`); at the instant of a change, those after it."""
        when, gpus = self.steps(vc, gpu_type)
        i = int(np.searchsorted(when, time_s, side="right")) - 1
        return int(gpus[i]) if i >= 0 else 0

    def peak(self, vc: str | None = None, gpu_type: str | None = None) -> int:
        """Most GPUs at once (see `steps`)."""
        return int(max(self.steps(vc, gpu_type)[1], default=0))

    def distinct(self) -> int | None:
        """GPUs of all machines that were ever there; None: the table has counts and no machines."""
        return self.distinct_gpus


@dataclass(frozen=True)
class MachineReader:
    """One form of side table. A module of `traces.machines` that has one as `MACHINES` is found by `read_machines`.

    Attributes
    ----------
    name, description, public, licence : as of `traces.reading.reader.Reader`.
    header : columns that a CSV file of this form has.
    read : callable (path, **options) -> Machines or Capacity
    options : option name -> its meaning.
    sniff : callable (Head) -> bool, instead of the header.
    """

    name: str
    description: str
    public: str
    header: tuple[str, ...]
    read: Callable[..., Machines | Capacity]
    options: Mapping[str, str] = field(default_factory=dict)
    sniff: Callable[[Head], bool] | None = None
    licence: str = "not stated"

    def knows(self, head: Head) -> bool:
        """Return whether the file looks like this form."""
        if self.sniff is not None:
            return self.sniff(head)
        return bool(self.header) and set(self.header) <= set(head.header)
