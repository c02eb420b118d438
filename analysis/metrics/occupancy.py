"""How full nodes are over time, and what of the free GPUs is of no use: fragmentation.

All are integrals over exact states (not samples), in GPU-s of free GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.metrics.once import per_run
from analysis.metrics.series import waiting
from analysis.run import Run, explode, wishes


@dataclass(frozen=True)
class States:
    """Stretches of time in which what a unit (node or GPU) holds does not change; none of zero length.

    Attributes
    ----------
    unit : int64, node number, or GPU number; in this order, then by time.
    begin_s, length_s : float64.
    held_milli, free_milli : int64, 1/1000 GPU held, and in service but not held.
    """

    unit: np.ndarray
    begin_s: np.ndarray
    length_s: np.ndarray
    held_milli: np.ndarray
    free_milli: np.ndarray


@per_run
def node_states(run: Run) -> States:
    """States of nodes, from the window's begin to its end."""
    held = run.held
    nodes, size = np.arange(len(run.node_type)), run.column("nodes", "gpus") * np.int64(1000)
    return _states(run, held.node, held.segment, held.milli, nodes, size, run.gpus_out["node"].to_numpy(np.int64))


def gpu_states(run: Run) -> States:
    """States of GPUs, numbered as in `gpu_ids`, from the window's begin to its end."""
    segment, gpu = explode(run.tables["segments"]["gpu_ids"])
    milli, owner = run.column("segments", "gpu_milli").astype(np.int64)[segment], _owner(run)
    out = run.gpus_out["gpu"].to_numpy(np.int64)
    return _states(run, gpu.astype(np.int64), segment, milli, owner, np.full(len(owner), 1000), out)


def _owner(run: Run) -> np.ndarray:
    """int64 [GPUs]: the node of each GPU."""
    return np.repeat(np.arange(len(run.node_type)), run.column("nodes", "gpus"))


def _states(
    run: Run, unit: np.ndarray, segment: np.ndarray, milli: np.ndarray, node_of: np.ndarray, size: np.ndarray,
    out: np.ndarray,
) -> States:
    """States of units from what segments hold of them; `node_of` and `size`: node and 1/1000 GPU of each unit; `out`:
    the unit of each entry of `run.gpus_out`."""
    begin_s, end_s = run.window_s
    outages = run.outages
    # Each unit of a node goes and comes with it; units of one node follow each other.
    node = outages["node"].to_numpy(np.int64)
    first, count = np.searchsorted(node_of, node), np.bincount(node_of, minlength=len(run.node_type))[node]
    away = np.repeat(first - np.concatenate(([0], np.cumsum(count[:-1]))), count) + np.arange(count.sum())
    gone = np.concatenate((size[away], np.full(len(out), 1000)))
    away = np.concatenate((away, out))
    every = np.arange(len(size))
    time_s = np.concatenate((
        np.full(len(size), begin_s),
        run.column("segments", "begin_s")[segment], run.column("segments", "end_s")[segment],
        np.repeat(outages["down_s"].to_numpy(), count), run.gpus_out["down_s"].to_numpy(),
        np.repeat(outages["up_s"].to_numpy(), count), run.gpus_out["up_s"].to_numpy(),
        np.full(len(size), end_s),
    ))
    units = np.concatenate((every, unit, unit, away, away, every))
    held = np.zeros(len(units), dtype=np.int64)
    a, b = len(size), len(size) + 2 * len(unit)
    held[a:b] = np.concatenate((milli, -milli))
    np.clip(time_s, begin_s, end_s, out=time_s)
    order = _by_unit(units, time_s)
    units, time_s = units[order], time_s[order]
    length = np.zeros(len(units))
    length[:-1] = np.where(units[1:] == units[:-1], np.diff(time_s), 0.0)
    lasts = length > 0
    held, there = _sums(held[order], units)[lasts], size[units[lasts]]
    if len(away):
        change = np.zeros(len(units), dtype=np.int64)
        change[b : b + 2 * len(away)] = np.concatenate((-gone, gone))
        there = there + _sums(change[order], units)[lasts]
    return States(units[lasts], time_s[lasts], length[lasts], held, there - held)


def _by_unit(unit: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """Order by unit, then by time, then as they were (two stable sorts; that of small integers takes linear time)."""
    order = np.argsort(time_s, kind="stable")
    small = unit[order].astype(np.uint16 if unit.max(initial=0) < 1 << 16 else np.int64)
    return order[np.argsort(small, kind="stable")]


def _sums(change: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Sum of all changes of the same unit up to and including each; units follow each other."""
    level = np.cumsum(change)
    start = np.flatnonzero(_changes(unit))
    before = level[start] - change[start]
    total: np.ndarray = level - np.repeat(before, np.diff(np.append(start, len(unit))))
    return total


def _changes(unit: np.ndarray) -> np.ndarray:
    """Whether each entry is the first of its unit."""
    first = np.ones(len(unit), dtype=bool)
    first[1:] = unit[1:] != unit[:-1]
    return first


def _differences(level: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Change of a level from a unit's state before (from nothing at its first); undoes `_sums`."""
    change = level.astype(np.int64)
    change[1:] -= np.where(_changes(unit)[1:], 0, level[:-1])
    return change


def partly_free_gpu_s(run: Run) -> np.ndarray:
    """Free GPU time on nodes of which a part is held, in GPU-s, one entry a node."""
    state = node_states(run)
    free = np.where(state.held_milli > 0, state.free_milli / 1000.0, 0.0)
    found: np.ndarray = np.bincount(state.unit, weights=state.length_s * free, minlength=len(run.node_type))
    return found


def free_gpu_s(run: Run) -> np.ndarray:
    """Free GPU time in service, in GPU-s, one entry a node: the capacity less what was held."""
    state = node_states(run)
    found: np.ndarray = np.bincount(
        state.unit, weights=state.length_s * state.free_milli / 1000.0, minlength=len(run.node_type)
    )
    return found


def fragmented_gpu_s(run: Run) -> np.ndarray:
    """Free GPU time that a job of this trace could not use where it is, in GPU-s, one entry a node.

    The expected fragment of node i is ``sum over jobs m of p_m * F_i(m)``: p_m is one job's part in those of the
    window that allow the node's type; F_i(m) are the free GPUs (shares added up) that are of no use to job m, with
    slots of share s: all that is free where fewer GPUs have s free than the job has slots, else what is free on GPUs
    with less than s. A gang larger than the node is taken to need all of its GPUs. This is the measure of Weng et
    al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX
    ATC 2023, section 3, for GPUs alone (no CPUs or memory), integrated over time.
    """
    lost = np.zeros(len(run.node_type))
    wish, allowed = wishes(run)
    counts = run.asked & (run.jobs["state"] != "rejected").to_numpy()
    share, slots = run.column("jobs", "gpu_milli"), run.column("jobs", "num_gpus")
    sizes, states = run.column("nodes", "gpus"), _shared(run)
    for milli in np.unique(share[counts]):
        node, _, length, fit, rest, free = _levels(run, states, int(milli))
        for kind in range(len(run.types)):
            able = counts & allowed[wish, kind]
            for size in np.unique(sizes[run.node_type == kind]):
                gangs = np.minimum(slots[able & (share == milli)], size)
                # Part of all jobs of the type that ask for more than k slots of this share, k = 0, 1, …
                more = np.cumsum(np.bincount(gangs, minlength=size + 2)[::-1])[::-1][1:] / max(1, able.sum())
                here = (run.node_type[node] == kind) & (sizes[node] == size)
                part, some = more[np.minimum(fit[here], size)], more[0]
                value = length[here] * (part * free[here] + (some - part) * rest[here]) / 1000.0
                lost += np.bincount(node[here], weights=value, minlength=len(lost))
    return lost


def _levels(run: Run, gpu: States | None, milli: int) -> tuple[np.ndarray, ...]:
    """States of nodes as slots of a share see them: node, begin, length, GPUs with that share free, milli free on
    other GPUs, milli free in all. `gpu`: states of GPUs; None where only whole GPUs are held (`_shared`).
    """
    if gpu is None:
        state = node_states(run)
        none = np.zeros(len(state.unit), dtype=np.int64)
        return state.unit, state.begin_s, state.length_s, state.free_milli // 1000, none, state.free_milli
    fits = gpu.free_milli >= milli
    changes = [_differences(x, gpu.unit) for x in (fits, np.where(fits, 0, gpu.free_milli), gpu.free_milli)]
    # The last state of a GPU lasts until the window's end, so that a change is all that there is of it.
    owner = _owner(run)[gpu.unit]
    order = _by_unit(owner, gpu.begin_s)
    node, time_s = owner[order], gpu.begin_s[order]
    until = np.append(time_s[1:], run.window_s[1])
    until[:-1][_changes(node)[1:]] = run.window_s[1]
    lasts = until > time_s
    levels = (_sums(change[order], node)[lasts] for change in changes)
    return node[lasts], time_s[lasts], (until - time_s)[lasts], *levels


def _shared(run: Run) -> States | None:
    """States of GPUs where some share of one is held; None where only whole GPUs are, and those of nodes will do."""
    return None if (run.column("segments", "gpu_milli") == 1000).all() else gpu_states(run)


def stranded_gpu_s(run: Run) -> dict[str, float]:
    """Free GPU time while it was in the wrong places, by GPU type, in GPU-s.

    All whole GPUs that are free of a type, at times when some job waits that allows the type, asks for whole GPUs,
    for no more than the type has free, and for no more than one of its nodes has, and yet no single node has so many
    free. This is harm, where `fragmented_gpu_s` is risk: somebody waits. (A policy may spread the gang over nodes, or
    may have other reasons not to start it.)
    """
    nodes, begin_s, _, whole, _, _ = _levels(run, _shared(run), 1000)
    sizes = run.column("nodes", "gpus").astype(np.int64)
    wish, allowed = wishes(run)
    share, slots = run.column("jobs", "gpu_milli"), run.column("jobs", "num_gpus")
    time_s, job, sign = waiting(run)
    found = {}
    for kind, name in enumerate(run.types):
        top = int(sizes[run.node_type == kind].max(initial=0))
        mine = (allowed[wish, kind] & (share == 1000) & (slots <= top))[job]
        here = run.node_type[nodes] == kind
        found[name] = _stranded(
            np.clip(time_s[mine], *run.window_s), slots[job[mine]], sign[mine],
            nodes[here], begin_s[here], whole[here], run.window_s[1],
        )
    return found


def _stranded(
    wait_s: np.ndarray, gang: np.ndarray, sign: np.ndarray,
    node: np.ndarray, begin_s: np.ndarray, free: np.ndarray, end_s: float,
) -> float:
    """GPU-s free while a gang waits that fits in number but on no node; jobs that (cease to) wait, states of nodes."""
    time_s, none = np.concatenate((wait_s, begin_s)), np.zeros(len(wait_s), dtype=np.int64)
    order = np.argsort(time_s, kind="stable")
    length = np.diff(np.append(time_s[order], end_s))

    def level(waits: np.ndarray, states: np.ndarray) -> np.ndarray:
        total: np.ndarray = np.cumsum(np.concatenate((waits, _differences(states, node)))[order])
        return total

    total, harm = level(none, free), np.zeros(len(order), dtype=bool)
    for size in np.unique(gang):
        waits = level(np.where(gang == size, sign, 0), np.zeros(len(node), dtype=np.int64)) > 0
        if (length[waits] > 0).any():
            harm |= waits & (level(none, free >= size) == 0) & (total >= size)
    return float((total * length)[harm].sum())
