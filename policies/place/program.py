"""Placement and order of a graph as a constraint program (Pesto: Hafeez et al. 2021, Middleware), for OR-Tools' CP-SAT.

The graph is augmented by a vertex for each transfer. Pesto's mixed-integer program orders each pair of operators with
big-M rows; here the same model is stated with optional intervals that do not overlap on a device or a channel:

    min  makespan
    s.t. end_i = start_i + sum_d work_id x_id,  sum_d x_id = 1            operator i on device d
         start_j >= end_i, and >= start_k + transfer_k where i and j are apart   transfer k of edge (i, j)
         intervals of one device, and of one channel, do not overlap
         sum_i memory_i x_id <= memory_d (all outputs at once: safe, if cautious)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from policies.place.placement_problem import (
    Devices,
    PlacementGraph,
    Schedule,
    channels,
    groups,
    tensors,
    work_by_device,
)

QUANTA = 1_000_000
"""Units of the solver's time in the work of all operators: rounding costs half a unit an operator on the way."""


@dataclass(frozen=True, eq=False)
class Timetable:
    """In quanta: start of each vertex [V], of each tensor's sending and receiving by receiver [T, D]; the makespan."""

    device: np.ndarray
    start: np.ndarray
    send: np.ndarray
    receive: np.ndarray
    makespan: int


@dataclass(frozen=True, eq=False)
class Answer:
    """What the solver found on one graph: devices, starts, makespan, and a makespan that none can beat [s].

    The bound is of the program, with its cautious rule of memory. `status` is 'optimal' where the two are one (to the
    quantum), 'feasible', or 'warm start': nothing was found.
    """

    device: np.ndarray
    start_s: np.ndarray
    makespan_s: float
    bound_s: float
    status: str


class _Model:
    """The graph in whole quanta: `work` int64 [V, D], `tensors`: (source, readers, transfer int64 [D, D])."""

    def __init__(self, graph: PlacementGraph, devices: Devices, quantum_s: float = 0.0) -> None:
        self.graph, self.devices = graph, devices
        work_s = work_by_device(graph, devices)
        self.quantum_s = quantum_s or float(work_s.min(axis=1).sum()) / QUANTA or 1.0
        self.may: list[list[bool]] = np.isfinite(work_s).tolist()
        self.work: list[list[int]] = np.rint(np.where(self.may, work_s, 0.0) / self.quantum_s).astype(np.int64).tolist()
        self.tensors: list[tuple[int, list[int], list[list[int]]]] = []
        carried: dict[int, list[int]] = {}
        for edge, tensor in enumerate(tensors(graph, devices).tolist()):
            carried.setdefault(tensor, []).append(edge)
        apart = ~np.eye(devices.count, dtype=bool)
        for edges in carried.values():
            source = int(graph.edges[edges[0], 0])
            seconds = graph.edge_bytes[edges].max() * devices.s_per_byte + devices.latency_s
            length = np.where(apart, np.rint(seconds / self.quantum_s), 0).astype(np.int64)
            self.tensors.append((source, sorted({int(graph.edges[edge, 1]) for edge in edges}), length.tolist()))
        self.group: list[int] = groups(graph).tolist()
        self.sends, self.receives = (matrix.tolist() for matrix in channels(devices))

    def serial(self) -> int:
        """A makespan that no schedule without needless waits exceeds: everything one after the other."""
        return sum(map(max, self.work)) + sum(max(map(max, length)) * len(to) for _, to, length in self.tensors)

    def timetable(self, device: np.ndarray, order: np.ndarray) -> Timetable:
        """A schedule in whole quanta: operators in `order` (int64 [V], a topological one), each as early as it can
        be; the transfers of each in the order of their readers, behind those that their channels have.
        """
        where: list[int] = device.tolist()
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        of_source: dict[int, list[int]] = {}
        for k, (source, readers, _) in enumerate(self.tensors):
            of_source.setdefault(source, []).append(k)
            readers.sort(key=place.__getitem__)
        start, ready = [0] * len(where), [0] * len(where)
        send, receive = np.zeros((2, len(self.tensors), self.devices.count), dtype=np.int64)
        free, channel = [0] * self.devices.count, [0] * self.devices.count**2
        for op in order.tolist():
            d = where[op]
            start[op] = max(ready[op], free[d])
            free[d] = end = start[op] + self.work[op][d]
            for k in sorted(of_source.get(op, ()), key=lambda k: place[self.tensors[k][1][0]]):
                _, readers, length = self.tensors[k]
                sent: dict[int, int] = {d: end}
                for reader in readers:
                    to = where[reader]
                    if to not in sent:
                        out, into = self.sends[d][to], self.receives[d][to]
                        send[k, to] = receive[k, to] = begin = max(end, channel[out])
                        if out != into:
                            channel[out] = begin + length[d][to]
                            receive[k, to] = begin = max(begin, channel[into])
                        channel[into] = sent[to] = begin + length[d][to]
                    ready[reader] = max(ready[reader], sent[to])
        return Timetable(device, np.array(start), send, receive, max(free))


def solve(
    graph: PlacementGraph, devices: Devices, warm: Schedule, *, seconds: float = 60.0, workers: int = 0, seed: int = 0,
    work_limit: float = np.inf, quantum_s: float = 0.0,
) -> Answer:
    """Placement and order of a (coarsened) graph; never worse than `warm`, as `_Model.timetable` tells its time.

    Parameters
    ----------
    warm : a schedule of this graph.
    seconds : wall time of the solver. workers : its threads; 0: one a core.
    work_limit : CP-SAT's deterministic time; with one worker the same limit gives the same answer anywhere.
    quantum_s : the solver's unit of time; 0: 1 / QUANTA of all work. Where times are whole multiples, bounds are exact.

    Where the solver finds no schedule, or none can fit its rule of memory, the answer is `warm`.
    """
    model = _Model(graph, devices, quantum_s)
    device = _renamed(warm.device, np.array(model.group)) if _alike(devices) else warm.device
    table = model.timetable(device, np.lexsort((graph.rank, warm.start_s)))
    program = _Program(model, table)
    solver = cp_model.CpSolver()
    solver.parameters.catch_sigint_signal = False  # else Ctrl-C is lost to Python, also after it has ended
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed % 2**31  # an int32 there
    if np.isfinite(work_limit):
        solver.parameters.max_deterministic_time = work_limit
    status = solver.solve(program.cp)
    quantum_s = model.quantum_s
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(table.device, table.start * quantum_s, table.makespan * quantum_s, 0.0, "warm start")
    device = np.array([[solver.value(x) for x in row].index(1) for row in program.on])[model.group]
    start_s = np.array([solver.value(start) for start in program.start]) * quantum_s
    bound_s = max(solver.best_objective_bound, 0.0) * quantum_s
    word = "optimal" if status == cp_model.OPTIMAL else "feasible"
    return Answer(device, start_s, solver.objective_value * quantum_s, bound_s, word)


class _Program:
    """The model as CP-SAT has it, each variable with its value in the timetable as a hint."""

    def __init__(self, model: _Model, table: Timetable) -> None:
        self.cp, self.model, self.table = cp_model.CpModel(), model, table
        self.horizon = table.makespan if _in_memory(model, table.device) else model.serial()
        now = dict(zip(model.group, table.device.tolist(), strict=True))
        devices = range(model.devices.count)
        self.on = [[self.flag(now[group] == d) for d in devices] for group in range(len(now))]
        self.start = [self.instant(value) for value in table.start.tolist()]
        self.at = [self.on[group] for group in model.group]  # of each operator
        self.end = [
            start + sum(length * x for length, x in zip(row, at, strict=True))
            for start, row, at in zip(self.start, model.work, self.at, strict=True)
        ]
        self.place()
        self.send()
        self.fit()
        makespan = self.instant(table.makespan)
        for end in self.end:
            self.cp.add(end <= makespan)
        for d in devices:
            self.cp.add(sum(row[d] * at[d] for row, at in zip(model.work, self.at, strict=True)) <= makespan)
        self.cp.minimize(makespan)

    def flag(self, value: bool) -> cp_model.IntVar:
        variable = self.cp.new_bool_var("")
        self.cp.add_hint(variable, int(value))
        return variable

    def instant(self, value: int) -> cp_model.IntVar:
        variable = self.cp.new_int_var(0, self.horizon, "")
        self.cp.add_hint(variable, value)
        return variable

    def interval(self, start: cp_model.IntVar, length: int, present: cp_model.IntVar) -> cp_model.IntervalVar:
        return self.cp.new_optional_fixed_size_interval_var(start, length, present, "")

    def place(self) -> None:
        """Each group on one device where it may be; operators of a device one after the other."""
        model, cp = self.model, self.cp
        for row in self.on:
            cp.add_exactly_one(row)
        for may, at in zip(model.may, self.at, strict=True):
            for able, x in zip(may, at, strict=True):
                if not able:
                    cp.add(x == 0)
        for d in range(model.devices.count):
            cp.add_no_overlap(
                [self.interval(s, row[d], at[d]) for s, row, at in zip(self.start, model.work, self.at, strict=True)]
            )
        if _alike(model.devices):  # of the many namings of devices one: in the order of the first group of each
            for c, row in enumerate(self.on):
                for d, x in enumerate(row[1:]):
                    cp.add_bool_or([~x, *(earlier[d] for earlier in self.on[:c])])

    def send(self) -> None:
        """A transfer from each sender to each receiver: present where the tensor's source and a reader are there."""
        cp, model, table, devices = self.cp, self.model, self.table, range(self.model.devices.count)
        occupied: dict[int, list[cp_model.IntervalVar]] = {}
        for k, (source, readers, length) in enumerate(model.tensors):
            for reader in readers:
                cp.add(self.start[reader] >= self.end[source])
            away = [reader for reader in readers if model.group[reader] != model.group[source]]
            now = int(table.device[source])
            over = int(table.start[source]) + model.work[source][now]
            sent_to = {int(table.device[reader]) for reader in away} - {now}
            for b in devices if away else ():
                begin = post = self.instant(int(table.receive[k, b]) if b in sent_to else over)
                if model.devices.links == "shared":
                    post = self.instant(int(table.send[k, b]) if b in sent_to else over)
                    cp.add(begin >= post)
                cp.add(post >= self.end[source])
                there = 1 * begin
                for a in devices:
                    if a == b:
                        continue
                    link, at = self.flag(a == now and b in sent_to), self.at[source][a]
                    cp.add_implication(link, at)
                    cp.add_bool_or([~link, *(self.at[reader][b] for reader in away)])
                    for reader in away:
                        cp.add_bool_or([~at, ~self.at[reader][b], link])
                    for channel, start in {model.sends[a][b]: post, model.receives[a][b]: begin}.items():
                        occupied.setdefault(channel, []).append(self.interval(start, length[a][b], link))
                    there += length[a][b] * link
                for reader in away:
                    cp.add(self.start[reader] >= there).only_enforce_if(self.at[reader][b])
        for intervals in occupied.values():
            cp.add_no_overlap(intervals)

    def fit(self) -> None:
        """Outputs and what is kept, all at once, in millionths of a device's memory: rounded up, so never too much."""
        need = _need(self.model)
        for d, room in enumerate(self.model.devices.memory_bytes.tolist()):
            if np.isfinite(room) and sum(need) > room:
                parts = [int(np.ceil(1e6 * size / room)) if room > 0 else int(size > 0) for size in need]
                used = sum(part * at[d] for part, at in zip(parts, self.at, strict=True))
                self.cp.add(used <= (10**6 if room > 0 else 0))


def _need(model: _Model) -> list[float]:
    """Memory of each vertex if its outputs are never freed."""
    return (model.graph.memory_bytes + model.graph.kept_bytes).tolist()


def _in_memory(model: _Model, device: np.ndarray) -> bool:
    used = np.bincount(device, weights=_need(model), minlength=model.devices.count)
    return bool((used <= model.devices.memory_bytes).all())


def _alike(devices: Devices) -> bool:
    """Whether devices can change names."""
    apart = ~np.eye(devices.count, dtype=bool)
    links = [np.asarray(column)[apart] for column in (devices.s_per_byte, devices.latency_s)]
    return all(len(np.unique(column)) <= 1 for column in (devices.kind, devices.memory_bytes, *links))


def _renamed(device: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The same placement, devices numbered in the order of the first group on each."""
    of_group = np.empty(group.max(initial=-1) + 1, dtype=np.int64)
    of_group[group] = device
    name = {old: new for new, old in enumerate(dict.fromkeys(of_group.tolist()))}
    return np.array([name[old] for old in device.tolist()], dtype=np.int64)
