"""What is known to change in a cluster while it runs: nodes that go and come, and quotas of virtual clusters.

From files (`traces.machines.own_tables`) to one list of steps:

- Of a capacity file, a row without a virtual cluster counts GPUs in service, of a type or of any. Nodes leave from the
  last one backwards: those that stay are the longest first part of the type's nodes whose GPUs are not more than the
  count. So more GPUs never take a node away, and never more are there than the file says.
- A row with a virtual cluster is its quota from then on. Running jobs above a quota that shrank keep their GPUs; none
  starts above it.
- An outage file names nodes. A node is there where neither file takes it away.
- Of maintenance windows, the times at which GPUs are drained and are back are steps: so much less, or more, can start.

The engine follows the steps; a policy sees what is there now. Only `ahead` looks forward: for the referee, which says
of a job that it can never run.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sim.cluster.maintenance import Window, read_maintenance
from sim.cluster.nodesteps import Change, counted, gpus_there, known_type, net, step_at
from sim.cluster.spec import ClusterError, ClusterSpec
from sim.cluster.tenants import NO_QUOTA, is_plain, named_queue
from sim.settings.config import EngineConfig
from sim.settings.values import ConfigError
from traces.machines.capacity import Capacity
from traces.machines.own_tables import read_capacity, read_outages


@dataclass(frozen=True, eq=False)
class Timetable:
    """The steps of one run. Step 0 is its start; step k is at time_s[k].

    Attributes
    ----------
    time_s : float64 [steps + 1], ascending; the first is the start of the run.
    node_step, node, node_up : int64, int64, bool [changes], nodes that go or come, in order of their step. In step 0
        only nodes that are not there at the start.
    windows : maintenance windows that are not over at the start, in the order of drain_s.
    there : int64 [changes, 3], node, step, GPUs of it on which jobs may start from then on, in this order.
    quotas : for each virtual cluster with a quota, its index and (step, milli-GPU) of each change, the first of step 0.
    node_gpus : int64 [nodes], GPUs of each node.
    info : what run.json says of it; empty where nothing changes.
    """

    time_s: np.ndarray
    node_step: np.ndarray
    node: np.ndarray
    node_up: np.ndarray
    windows: tuple[Window, ...]
    there: np.ndarray
    quotas: dict[int, list[tuple[int, int]]]
    node_gpus: np.ndarray
    info: dict[str, Any]

    @property
    def steps(self) -> int:
        """Steps after the start."""
        return len(self.time_s) - 1

    def nodes_at(self, step: int) -> tuple[list[int], list[int]]:
        """Nodes that go, and that come, in a step."""
        span = slice(*np.searchsorted(self.node_step, (step, step + 1)))
        node, up = self.node[span], self.node_up[span]
        return node[~up].tolist(), node[up].tolist()

    def quotas_at(self, step: int) -> list[tuple[int, int]]:
        """(virtual cluster, milli-GPU) of the quotas that change in a step; in step 0 all that there are."""
        return self._quotas_by_step.get(step, [])

    @cached_property
    def _quotas_by_step(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for vc, changes in self.quotas.items():
            for step, milli in changes:
                found.setdefault(step, []).append((vc, milli))
        return found

    def quota(self, vc: int) -> np.ndarray:
        """int64 [steps + 1]: the quota of a virtual cluster at each step, milli-GPU."""
        value = np.full(self.steps + 1, NO_QUOTA, dtype=np.int64)
        for at, milli in self.quotas.get(vc, ()):
            value[at:] = milli
        return value

    def quota_ahead(self, vc: int) -> np.ndarray:
        """int64 [steps + 1]: the largest quota of a virtual cluster from each step on, milli-GPU."""
        return ahead(self.quota(vc))

    def gpus(self, nodes: np.ndarray, worker: int = 1) -> np.ndarray:
        """int64 [steps + 1]: GPUs of some nodes (bool) on which jobs may start at each step, in whole workers."""
        whole = np.where(nodes, self.node_gpus // worker * worker, 0)
        _, step, _ = self.there.T
        held: np.ndarray = whole.sum() + np.cumsum(np.bincount(step, self._changes(whole, worker), self.steps + 1))
        return held.astype(np.int64)

    def _changes(self, whole: np.ndarray, worker: int = 1) -> np.ndarray:
        """int64 [changes]: GPUs in whole workers that each entry of `there` adds, where nodes hold whole[node]."""
        node, _, gpus = self.there.T
        after = np.minimum(gpus // worker * worker, whole[node])
        before = np.concatenate((whole[:1], after[:-1]))
        first = np.concatenate(([True], node[1:] != node[:-1]))[: len(node)]
        change: np.ndarray = after - np.where(first, whole[node], before[: len(node)])
        return change

    @cached_property
    def fewer(self) -> frozenset[int]:
        """Steps in which some node is left with fewer GPUs on which jobs may start."""
        return frozenset(self.there[self._changes(self.node_gpus) < 0, 1].tolist())

    def mean_gpus(self, begin_s: float, end_s: float) -> float:
        """GPUs that are there on average from begin_s to end_s (at begin_s, where both are one time).

        ∫ GPUs of the nodes that are there dt / (end_s − begin_s); before the run starts, what is there at its start.
        Quotas do not count, nor do nodes that fail. GPUs that are drained are not there.
        """
        gpus = self.gpus(np.ones(len(self.node_gpus), dtype=bool))
        if end_s <= begin_s:
            return float(gpus[max(int(np.searchsorted(self.time_s, begin_s, side="right")) - 1, 0)])
        edges_s = np.clip([begin_s, *self.time_s[1:], end_s], begin_s, end_s)
        return float(np.diff(edges_s) @ gpus / (end_s - begin_s))


def ahead(value: np.ndarray) -> np.ndarray:
    """Largest value from each place on."""
    return np.maximum.accumulate(value[::-1])[::-1]


def make_timetable(
    cluster: ClusterSpec, vc_names: tuple[str, ...], config: EngineConfig, start_s: float, last_s: float = np.inf
) -> Timetable:
    """The timetable of a run: quotas of the settings, and what the files say.

    The first submission is the start of the run, the last one serves to note that a file has nothing to say of it.

    Raises
    ------
    TraceError
        A file that cannot be read as what it should be.
    ClusterError
        The capacity file counts a GPU type that the cluster lacks, more GPUs than it has, or a virtual cluster's GPUs
        of one type on a cluster of several.
    ConfigError
        A quota for a virtual cluster that the trace does not have, or two.
    """
    fixed = _fixed_quotas(config, vc_names, cluster)
    capacity = None if config.capacity is None else read_capacity(config.capacity)
    notes: list[str] = []
    changes: list[Change] = []
    named: dict[int, list[tuple[float, int]]] = {vc: [(-np.inf, gpus)] for vc, gpus in fixed.items()}
    if capacity is not None:
        where = str(config.capacity)
        changes += counted(capacity, cluster, where, notes)
        notes += _beside(capacity.time_s, where, start_s, last_s)
        named |= _changing_quotas(capacity, cluster, vc_names, fixed, where, notes)
    if config.outages is not None:
        times = read_outages(config.outages, cluster.num_nodes)
        changes += [(time_s, 1, np.array([node]), up) for time_s, node, up in zip(
            times.time_s.tolist(), times.node.tolist(), times.up.tolist(), strict=True)]
        notes += _beside(times.time_s, str(config.outages), start_s, last_s)
    windows = () if config.maintenance is None else read_maintenance(config.maintenance, cluster)
    if windows:
        moments_s = np.array([t for w in windows for t in (w.drain_s, w.down_s, w.up_s) if t < np.inf])
        notes += _beside(moments_s, str(config.maintenance), start_s, last_s)
        windows = tuple(w for w in windows if w.up_s > start_s)
    times_s = {t for t, *_ in changes} | {t for steps in named.values() for t, _ in steps}
    times_s |= {t for w in windows for t in (w.drain_s, w.up_s) if t < np.inf}
    time_s = np.array([start_s, *sorted(t for t in times_s if t > start_s)])
    rows = list(net(changes, time_s, cluster.num_nodes))
    step, node, up = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    quotas = {vc: _steps_of(steps, time_s) for vc, steps in named.items()}
    named_files = (("capacity", config.capacity), ("outages", config.outages), ("maintenance", config.maintenance))
    files = {name: path for name, path in named_files if path}
    info = {} if not files else {
        **{name: {"file": Path(path).name, "sha256": _digest(path)} for name, path in files.items()},
        "steps": len(time_s) - 1,
        "nodes_absent_at_start": int((step == 0).sum()),
        "quotas": {vc_names[vc]: [[float(time_s[at]), milli // 1000] for at, milli in steps]
                   for vc, steps in sorted(quotas.items()) if vc not in fixed},
        "notes": notes,
    }
    there = gpus_there(rows, windows, time_s, cluster.node_gpus)
    table = Timetable(time_s, step, node, up.astype(bool), windows, there, quotas, cluster.node_gpus.astype(np.int64),
                      info)
    notes += _empty_until(table)
    return table


def _beside(time_s: np.ndarray, where: str, start_s: float, last_s: float) -> list[str]:
    """A note where no change of a file comes while jobs do: its clock may be another than the trace's."""
    times_s = np.unique(time_s)
    if len(times_s) > 1 and times_s[-1] < start_s:
        side = "before the first"
    elif np.isfinite(times_s).any() and times_s[np.isfinite(times_s)][0] > last_s:
        side = "after the last"
    else:
        return []
    return [f"all changes of {Path(where).name} lie {side} submission"]


def _empty_until(table: Timetable) -> list[str]:
    """A note where no GPU is there at the start."""
    there = np.flatnonzero(table.gpus(np.ones(len(table.node_gpus), dtype=bool)))
    if len(there) == 0:
        return ["no GPU is ever there"]
    if there[0] == 0:
        return []
    first_s = float(table.time_s[there[0]])
    return [f"no GPU is there until {first_s:.12g} s, {(first_s - table.time_s[0]) / 86_400:,.1f} days after the first "
            "submission"]


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _fixed_quotas(config: EngineConfig, vc_names: tuple[str, ...], cluster: ClusterSpec) -> dict[int, int]:
    """Plain quotas of the settings, by virtual cluster, in GPUs; those by type and of outer queues are the tenants'."""
    for name in config.quotas:
        named_queue(name, vc_names, cluster, "quota")
    return {vc_names.index(name): gpus for name, gpus in config.quotas.items() if is_plain(name, vc_names)}


def _changing_quotas(
    capacity: Capacity, cluster: ClusterSpec, vc_names: tuple[str, ...], fixed: dict[int, int], where: str,
    notes: list[str],
) -> dict[int, list[tuple[float, int]]]:
    """(when, GPUs) of each virtual cluster that the capacity file names and the trace has."""
    quotas, strange = {}, []
    for name in capacity.vcs:
        if name not in vc_names:
            strange.append(name)
            continue
        vc = vc_names.index(name)
        if vc in fixed:
            raise ConfigError("a virtual cluster has two quotas", where=f"setting 'quotas' and {where}", got=name,
                              allowed="one of the two")
        kinds = sorted({kind for v, kind in zip(capacity.vc.tolist(), capacity.gpu_type.tolist(), strict=True)
                        if v == name and kind})
        for kind in kinds:
            known_type(cluster, kind, where)
        if kinds and len(cluster.types) > 1:
            raise ClusterError(
                "a quota is of GPUs of any type", where=where, got=f"vc {name!r}, type {kinds[0]!r}",
                allowed="rows with vc have a blank gpu_type on a cluster of several types",
            )
        time_s, gpus = capacity.steps(name)
        steps = list(zip(time_s.tolist(), gpus.tolist(), strict=True))
        quotas[vc] = steps if steps[0][0] == -np.inf else [(-np.inf, 0), *steps]
    if strange and not quotas:
        raise ConfigError("the trace has none of the virtual clusters", where=where, got=", ".join(strange[:20]),
                          allowed=", ".join(vc_names[:20]))
    if strange:
        notes.append(f"virtual clusters of {Path(where).name} without jobs in the trace: {', '.join(strange)}")
    free = [name for i, name in enumerate(vc_names) if i not in quotas and i not in fixed]
    if quotas and free:
        notes.append(f"virtual clusters that {Path(where).name} does not name have no quota: "
                     f"{', '.join(repr(name) for name in free)}")
    return quotas


def _steps_of(steps: list[tuple[float, int]], time_s: np.ndarray) -> list[tuple[int, int]]:
    """(step, milli-GPU) of a quota's changes; what was before the start is step 0."""
    found: dict[int, int] = {}
    for now_s, gpus in steps:
        found[step_at(time_s, now_s)] = gpus * 1000
    return list(found.items())
