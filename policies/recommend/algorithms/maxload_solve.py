"""Max-load splits: `contiguous` is exact, `anywhere` searches a larger space and says how far from the best it may be.

In a contiguous split, device after device takes the next piece of a chain of down-sets of the forward graph; backward
operators follow their colour. Elsewhere a device may have any operators.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from ortools.sat.python import cp_model

from policies.recommend.algorithms.all_downsets import LIMIT, down_sets_of, group
from policies.recommend.algorithms.maxload_graph import MaxLoad, Parts, Split, cpu_relief, together
from sim.kernels.maxload_splits import anneal, max_load_chain

UNITS = 1_000_000_000
"""Of them in the load to beat. Times are rounded down, so that a bound stays one."""
TRIES = 4
"""Random topological orders."""
STEPS = 20_000_000
"""Moves of a round of annealing."""
SCHEDULES = ((1.0, 1e-4, 3), (10.0, 1e-4, 4), (30.0, 3e-3, 3), (1000.0, 1e-4, 5))
"""Hot, cold, squarings of its rounds, in turn."""
HUGE = 1e300
"""A load that everything beats, where none is known."""


def _contiguous_parts(problem: MaxLoad, upper: float) -> tuple[Parts, tuple[tuple[int, ...], ...]]:
    """Groups for chains of down-sets, in a topological order, and what each reads; contracted as far as is safe."""
    colour, colour_inputs = problem.forward_inputs
    label = np.arange(len(colour_inputs))
    while True:
        groups, inputs = group(colour_inputs, label)
        number = np.empty(len(label), dtype=np.int64)
        for g, members in enumerate(groups):
            number[list(members)] = g
        parts = Parts.build(problem, number[colour])
        news = together(parts, upper, inputs)
        if news is None:
            return parts, inputs
        label = news[number]


def _best_chain(
    parts: Parts, members: np.ndarray, below: tuple[np.ndarray, np.ndarray, np.ndarray], upper: float
) -> np.ndarray | None:
    """Device of each group by the best chain of down-sets within a load, or None: there is none."""
    problem = parts.problem
    load, chain, on_cpu = max_load_chain(
        members, *below, parts.accelerator, parts.cpu, parts.memory, *parts.net_rows[:2],
        np.array([len(groups) for groups in parts.pins], dtype=np.int64), parts.weight,
        np.array([problem.accelerators, problem.cpus], dtype=np.int64), float(problem.capacity), float(upper),
        cpu_relief(parts.accelerator, parts.cpu, upper),
    )
    if load == np.inf:
        return None
    device = np.empty(len(parts.accelerator), dtype=np.int64)
    before = np.zeros(len(device), dtype=bool)
    free = [problem.accelerators, 0]  # the next CPU, the next accelerator
    for end, cpu in zip(chain, on_cpu, strict=True):
        which = 0 if cpu else 1
        device[members[end] & ~before] = free[which]
        free[which] += 1
        before = members[end]
    return device


def _orders(inputs: Sequence[Sequence[int]], seed: int) -> Iterator[np.ndarray]:
    """Topological orders worth trying: as they come, breadth first, last come first served, and random ones."""
    n = len(inputs)
    yield np.arange(n)
    readers: list[list[int]] = [[] for _ in range(n)]
    for g, sources in enumerate(inputs):
        for s in sources:
            readers[s].append(g)
    rng = np.random.default_rng([seed, 0])
    for rank in (lambda ready: 0, lambda ready: ready - 1, *[lambda ready: int(rng.integers(ready))] * TRIES):
        missing = [len(sources) for sources in inputs]
        ready = [g for g in range(n) if not missing[g]]
        order = []
        while ready:
            order.append(ready.pop(rank(len(ready))))
            for r in readers[order[-1]]:
                missing[r] -= 1
                ready += [r] if not missing[r] else []
        yield np.array(order, dtype=np.int64)


def _along(parts: Parts, order: np.ndarray, upper: float) -> np.ndarray | None:
    """Device of each group by the best cuts of one topological order, within a load."""
    n = len(order)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    members = place[None, :] < np.arange(n + 1)[:, None]
    first = np.maximum(np.arange(n + 2, dtype=np.int64) - 1, 0)
    return _best_chain(parts, members, (first, np.arange(n, dtype=np.int64), order), upper)


def contiguous(problem: MaxLoad, *, limit: int = LIMIT, seed: int = 0) -> Split:
    """The best split in which devices take consecutive pieces of a chain of down-sets of the forward graph.

    Some topological orders give a load to beat; what exceeds it is skipped in the dynamic program over all
    down-sets, O(down-sets^2 (accelerators + 1) (CPUs + 1)) at worst. `bound` equals `load` where it went through.

    Parameters
    ----------
    limit : down-sets that may be listed. Where there are more, the answer is the best of those topological orders.
    seed : of the random ones among them.
    """
    parts, inputs = _contiguous_parts(problem, np.inf)
    best = Split(np.zeros(len(problem.accelerator), dtype=np.int64), np.inf, problem.floor)
    for order in _orders(inputs, seed):
        device = _along(parts, order, best.load if best.load < np.inf else HUGE)
        if device is not None:
            best = min(best, parts.split(device, problem.floor), key=lambda split: split.load)
    upper = best.load if best.load < np.inf else HUGE
    parts, inputs = _contiguous_parts(problem, upper)
    sets = down_sets_of(tuple((g,) for g in range(len(inputs))), inputs, limit=limit)
    if sets is None:
        return best
    device = _best_chain(parts, sets.members, sets.below, upper * (1 + 1e-12))
    if device is not None:
        best = min(best, parts.split(device, problem.floor), key=lambda split: split.load)
    return replace(best, bound=best.load, down_sets=len(sets))


def _free_parts(problem: MaxLoad, upper: float) -> Parts:
    """Groups that devices may share out in any way; contracted as far as is safe."""
    of = problem.forward_inputs[0]
    while True:
        parts = Parts.build(problem, of)
        news = together(parts, upper, [()] * len(parts.accelerator))
        if news is None:
            return parts
        of = np.unique(news, return_inverse=True)[1][of]


def anywhere(
    problem: MaxLoad, *, seconds: float = 60.0, rounds: int = 20, workers: int = 1, seed: int = 0,
    limit: int = LIMIT,
) -> Split:
    """The best split that is found in which a device may have any operators; never worse than `contiguous`.

    Rounds of simulated annealing from the best split known, for half of the time at most, then CP-SAT, which may
    improve it and raises `bound`. The same seed gives the same answer where time does not end either of them early
    and there is one worker.

    Parameters
    ----------
    seconds : wall time, beside that of `contiguous`, once with CPUs and once without.
    rounds : of annealing, `STEPS` moves each.
    workers : threads of CP-SAT.
    seed : of random numbers.
    limit : see `contiguous`.
    """
    starts = [contiguous(problem, limit=limit, seed=seed)]
    if problem.accelerators and problem.cpus:
        # Slow CPUs are of little use, but lure many small groups away while it is hot: also search without them.
        starts.append(contiguous(replace(problem, cpus=0), limit=limit, seed=seed))
    known = [replace(start, bound=problem.floor) for start in starts if start.load < np.inf]
    end = time.monotonic() + seconds
    if not known:
        return replace(starts[0], bound=problem.floor)
    parts = _free_parts(problem, max(split.load for split in known))
    state = np.random.default_rng([seed, 1]).integers(1, 2**63, 1, dtype=np.int64).astype(np.uint64)
    for i in range(rounds):
        if any(split.optimal for split in known) or time.monotonic() > end - seconds / 2:
            break
        which, turn = i % len(known), i // len(known)
        schedule = SCHEDULES[turn % len(SCHEDULES)]
        count = problem.accelerators + (problem.cpus if which == 0 else 0)
        _, device = anneal(
            parts.devices(known[which]), parts.accelerator, parts.cpu, parts.memory, *parts.net_rows,
            parts.weight, problem.accelerators, count, float(problem.capacity), state, STEPS, *schedule,
        )
        known[which] = min(known[which], parts.split(device, problem.floor), key=lambda split: split.load)
    best = min(known, key=lambda split: split.load)
    left = end - time.monotonic()
    return best if best.optimal or left <= 0 else _proved(_free_parts(problem, best.load), best, left, workers, seed)


def _proved(parts: Parts, known: Split, seconds: float, workers: int, seed: int) -> Split:
    """A split at least as good as a known one, and a bound, by CP-SAT."""
    unit = known.load / UNITS
    model, x = _model(parts, known, unit)
    solver = cp_model.CpSolver()
    solver.parameters.catch_sigint_signal = False  # else Ctrl-C is lost to Python, also after it has ended
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed % 2**31  # an int32 there
    status = solver.solve(model)
    best = known
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        device = np.array([next(d for d, v in enumerate(row) if solver.value(v)) for row in x], dtype=np.int64)
        best = min(best, parts.split(device, 0.0), key=lambda split: split.load)
    # Rounded down, no split of a load below the bound exists; and none is worth having above what is known.
    bound = min(max(parts.problem.floor, solver.best_objective_bound * unit), best.load)
    return replace(best, bound=bound, down_sets=known.down_sets)


def _model(parts: Parts, known: Split, unit: float) -> tuple[cp_model.CpModel, np.ndarray]:
    """The split as whole numbers of `unit`, rounded down, and its variables [groups, devices], 0 where barred.

    x[g, d]: group g is on device d. cut >= x[p, d] - x[q, d], for pins p, q that follow each other around a net: it
    is on d and cut. Devices of a kind are alike: a group may be on the first r + 1 of them, r its rank by size.
    """
    problem = parts.problem
    model = cp_model.CpModel()
    order = np.argsort(-np.where(np.isfinite(parts.accelerator), parts.accelerator, 0), kind="stable")
    hint = _renumbered(parts.devices(known), order, problem.accelerators)
    accelerators = range(problem.accelerators)
    cpus = range(problem.accelerators, problem.accelerators + problem.cpus)
    x = np.zeros((len(order), len(accelerators) + len(cpus)), dtype=object)
    for rank, g in enumerate(order.tolist()):
        for kind, times in ((accelerators, parts.accelerator), (cpus, parts.cpu)):
            for d in kind[: rank + 1] if np.isfinite(times[g]) else ():
                x[g, d] = model.new_bool_var("")
                model.add_hint(x[g, d], bool(hint[g] == d))
        model.add_exactly_one(v for v in x[g] if not isinstance(v, int))
    loads: list[list[cp_model.LinearExprT]] = [[] for _ in x.T]
    for kind, times in ((accelerators, parts.accelerator), (cpus, parts.cpu)):
        cost = np.floor(np.where(np.isfinite(times), times, 0) / unit).astype(int).tolist()
        for d in kind:
            loads[d] += [c * v for c, v in zip(cost, x[:, d], strict=True)]
    weights = np.floor(parts.weight / unit).astype(int).tolist()
    for pins, weight in zip(parts.pins, weights, strict=True):
        on = hint[list(pins)]
        for d in accelerators:
            cut = model.new_bool_var("")
            model.add_hint(cut, bool((on == d).any() and (on != d).any()))
            for p, q in zip(pins, (*pins[1:], pins[0]), strict=True):
                model.add(cut >= x[p, d] - x[q, d])
            loads[d].append(weight * cut)
    top = model.new_int_var(int(problem.floor / unit), UNITS, "")
    for load in loads:
        model.add(sum(load) <= top)
    if parts.memory.sum() > problem.capacity:
        memory = np.floor(parts.memory / problem.capacity * UNITS).astype(int).tolist()
        for d in accelerators:
            model.add(sum(m * v for m, v in zip(memory, x[:, d], strict=True)) <= UNITS)
    model.minimize(top)
    return model, x


def _renumbered(device: np.ndarray, order: np.ndarray, accelerators: int) -> np.ndarray:
    """The same split, with devices of each kind numbered as they come first in an order of groups."""
    number: dict[int, int] = {}
    free = [0, accelerators]
    for d in device[order].tolist():
        if d not in number:
            kind = int(d >= accelerators)
            number[d] = free[kind]
            free[kind] += 1
    return np.array([number[d] for d in device.tolist()], dtype=np.int64)
