"""A cluster out of a trace's side table: nodes for a cluster file, and what changes for capacity and outage files.

From a list of machines: a node each, alike ones together. Machines that come and go share nodes: one that comes takes
the place of one of the same type, size and rack that has gone. So a cluster has as many nodes as were there at once,
not as many as there ever were, and the outage file says when a place was empty.

From counts of GPUs over time: as many nodes as the largest count needs, of the size that the user says; counts and
quotas go into the capacity file.

Words for GPU types become names of the catalogue by `traces.reading.gpu_types`, or as the user says. A type that is not
told, or that no one outside knows (G2), becomes MISC, the catalogue's stand-in, and is named in the notes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from sim.cluster.clusterfiles import MAX_GPUS_PER_NODE
from sim.cluster.spec import ClusterError
from sim.hardware.gputypes import gpu_type
from traces.errors import HetsimError
from traces.machines.capacity import Capacity, Machines
from traces.machines.own_tables import NodeTimes
from traces.reading.gpu_types import catalogue_names

STAND_IN = "MISC"
UNTOLD = ""
"""Word of a machine whose GPU type the table does not tell."""


@dataclass(frozen=True)
class Group:
    """Nodes that are alike, as one `[[nodes]]` table; rack_size 0: all in one rack."""

    type: str
    count: int
    gpus: int
    rack_size: int = 0


@dataclass(frozen=True)
class Made:
    """What a cluster is made of. `capacity` and `outages` are None where nothing changes and nothing has a quota."""

    groups: tuple[Group, ...]
    capacity: Capacity | None
    outages: NodeTimes | None
    notes: tuple[str, ...]

    @property
    def nodes(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def gpus(self) -> int:
        return sum(group.count * group.gpus for group in self.groups)

    def toml(self, name: str, description: str) -> str:
        """The cluster file, with the notes above it."""
        lines = [f"# {_line(note)}" for note in self.notes]
        lines += [f"name = {_text(name)}", f"description = {_text(description)}"]
        for group in self.groups:
            lines += ["", "[[nodes]]", f"type = {_text(group.type)}", f"count = {group.count}", f"gpus = {group.gpus}"]
            lines += [f"rack_size = {group.rack_size}"] if group.rack_size else []
        return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    """Text as one line of a TOML file: what a cell or a file's name may hold besides letters becomes a blank."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _text(text: str) -> str:
    return json.dumps(_line(text), ensure_ascii=False)


def _ours(word: str) -> str:
    """What readers make of a log's word for a GPU type."""
    return str(catalogue_names(np.array([word], dtype=object))[0])


class Types:
    """Names of the catalogue for a table's words; `said` is the user's map, UNTOLD -> the type of all untold ones."""

    def __init__(self, said: Mapping[str, str]) -> None:
        self._said = {word.lower(): name for word, name in said.items()}
        self._named: dict[str, str] = {}
        self._assumed: Counter[str] = Counter()

    def name(self, word: str, gpus: int) -> str:
        """The type of some GPUs.

        Raises
        ------
        HetsimError
            The user named a type that the catalogue does not have.
        """
        if word.lower() in self._said:
            name = self._named[word] = gpu_type(self._said[word.lower()]).name
            return name
        try:
            return gpu_type(_ours(word)).name
        except HetsimError:
            self._assumed[word] += gpus
            self._named[word] = STAND_IN
            return STAND_IN

    def notes(self) -> list[str]:
        """What was assumed of which GPUs, and which words jobs cannot ask for here.

        Raises
        ------
        ClusterError
            A word of the user's map is not in the table.
        """
        unused = sorted(self._said.keys() - {word.lower() for word in self._named})
        if unused:
            raise ClusterError("the table has no such GPU type", where="--type", got=", ".join(map(repr, unused)),
                               allowed="a word of the table, as it writes it")
        return [
            *(f"{gpus:,} GPUs of {word or 'a type that is not told'}: taken as {STAND_IN}, a slow stand-in; say what "
              f"they are with --type {f'{word}=' if word else ''}TYPE" for word, gpus in self._assumed.items()),
            *(f"{word} is {name} here: jobs that ask for {word} by name find none"
              for word, name in self._named.items() if word and _ours(word) != name and not word[0].isdigit()),
        ]


def from_machines(machines: Machines, said: Mapping[str, str] | None = None, *, shift_s: float = 0.0) -> Made:
    """The cluster of a machine list.

    Parameters
    ----------
    said : word of the list -> name of the catalogue; where the list has no word, "24GB" or so, else UNTOLD.
    shift_s : what the list's times need to be on the trace's clock.

    Raises
    ------
    ClusterError
        No machine has a GPU, one has more than a node may have, or a word of `said` is not in the list.
    """
    types, has = Types(said or {}), machines.gpus > 0
    if not has.any() or machines.gpus.max() > MAX_GPUS_PER_NODE:
        raise ClusterError("GPUs of a machine", where=machines.about.source, got=int(machines.gpus.max(initial=0)),
                           allowed=f"1 to {MAX_GPUS_PER_NODE} on one machine or more")
    first, last = machines.stays
    rows = np.flatnonzero(has).tolist()
    kinds: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        name = types.name(_word(machines, row, said or {}), int(machines.gpus[row]))
        kinds.setdefault((name, int(machines.gpus[row])), []).append(row)
    groups, changes, notes = [], [], types.notes()
    nodes = replaced = 0
    for (name, gpus), mine in kinds.items():
        by_rack: dict[str, list[int]] = {}
        for row in mine:
            by_rack.setdefault(machines.rack[row], []).append(row)
        sizes = []
        for rack in by_rack.values():
            places = _places([(float(first[row]), float(last[row])) for row in rack])
            for place in places:
                changes += [(t + shift_s, nodes, up) for t, up in _turns(place)]
                nodes += 1
            sizes.append(len(places))
            replaced += len(rack) - len(places)
        regular = len(sizes) > 1 and len(set(sizes[:-1])) == 1 and sizes[-1] <= sizes[0]
        if len(sizes) > 1 and not regular:
            notes.append(f"racks of {name} with {gpus} GPUs a node differ in size: all such nodes stand in one")
        groups.append(Group(name, sum(sizes), gpus, sizes[0] if regular else 0))
    if replaced:
        notes.append(f"{len(rows):,} stays of machines on {nodes:,} nodes, as many as were there at once")
    changes.sort()
    times = NodeTimes(*(np.array([change[i] for change in changes], dtype=kind)
                        for i, kind in enumerate((np.float64, np.int64, np.bool_)))) if changes else None
    counted = Capacity.of(machines)
    quotas = [_rows(counted, vc, None, "", shift_s) for vc in counted.vcs]
    return Made(tuple(groups), _capacity(quotas, counted), times, tuple(notes))


def from_counts(
    counted: Capacity, said: Mapping[str, str] | None = None, *, gpus_per_node: int = 8, shift_s: float = 0.0
) -> Made:
    """The cluster of a table of GPUs over time, as large as it ever was. Arguments as of `from_machines`.

    Raises
    ------
    ClusterError
        Nothing is ever there, or a word of `said` is not in the table.
    """
    types = Types(said or {})
    whole = "" in counted.vc.tolist()
    words = sorted({word for word, vc in zip(counted.gpu_type.tolist(), counted.vc.tolist(), strict=True)
                    if not (whole and vc)})
    groups: list[Group] = []
    rows = []
    for word in words:
        most = counted.peak(gpu_type=word)
        name = types.name(word, most)
        groups += [Group(name, most // gpus_per_node, gpus_per_node)] if most >= gpus_per_node else []
        groups += [Group(name, 1, most % gpus_per_node)] if most % gpus_per_node else []
        rows.append(_rows(counted, None, word, name if len(words) > 1 else "", shift_s))
    if not groups:
        raise ClusterError("no GPU is ever there", where=counted.about.source, got=0, allowed="1 or more")
    notes = [*types.notes(), f"nodes of {gpus_per_node} GPUs: the table counts GPUs and tells no nodes"]
    rows = [steps for steps in rows if len(steps) > 1 or steps[0][0] > -np.inf]
    rows += [_rows(counted, vc, None, "", shift_s) for vc in counted.vcs]
    return Made(tuple(groups), _capacity(rows, counted), None, tuple(notes))


def _word(machines: Machines, row: int, said: Mapping[str, str]) -> str:
    """What a machine's GPU type is called: the list's word, else its memory where the list tells that."""
    memory = machines.gpu_memory_gib[row]
    by_memory = f"{memory:g}GB"
    if machines.gpu_type[row] or np.isnan(memory) or (UNTOLD in said and by_memory not in said):
        return str(machines.gpu_type[row])
    return by_memory


def _places(stays: list[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Stays laid one after the other on as few places as ever were taken at once."""
    places: list[list[tuple[float, float]]] = []
    free: list[tuple[float, int]] = []
    for first, last in sorted(stays):
        if free and free[0][0] <= first:
            place = heappop(free)[1]
        else:
            place = len(places)
            places.append([])
        places[place].append((first, last))
        heappush(free, (last, place))
    return places


def _turns(place: list[tuple[float, float]]) -> Iterable[tuple[float, bool]]:
    """When a place becomes empty (False) and is taken again (True)."""
    end = -np.inf
    for first, last in place:
        if first > end:
            yield end, False
            yield first, True
        end = last
    if end < np.inf:
        yield end, False


Rows = list[tuple[float, str, str, int]]


def _rows(counted: Capacity, vc: str | None, word: str | None, kind: str, shift_s: float) -> Rows:
    """Rows of a capacity file for one step function."""
    time_s, gpus = counted.steps(vc, word)
    return [(t + shift_s, vc or "", kind, n) for t, n in zip(time_s.tolist(), gpus.tolist(), strict=True)]


def _capacity(functions: list[Rows], source: Capacity) -> Capacity | None:
    rows = [row for function in functions for row in function]
    if not rows:
        return None
    time_s, vc, kind, gpus = zip(*rows, strict=True)
    return Capacity.from_columns(time_s, vc, kind, gpus, about=source.about)
