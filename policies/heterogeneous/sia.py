"""Sia: each round an integer program gives each job one configuration, GPUs of a type, by its goodput there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.estimate.time_left import NO_TYPE, UNKNOWN_SPEED
from policies.matching.configurations import GREEDY, STOPPED, Menu, choose
from policies.mechanisms import Placing
from sim.api import Decision, Placement, PolicyError, View, param

WORDS = {
    STOPPED: "rounds by the best choice that the solver had when its nodes were used up",
    GREEDY: "rounds by a greedy choice, since the solver found none",
}


@dataclass
class Sia(Placing):
    """Gives each job the GPU type on which it is worth most, for all together (Jayaram Subramanya et al., SOSP'23).

    A configuration is a GPU type and a number of GPUs; a rigid job has one a type, its own gang. At the begin of each
    round (section 3.4), with goodput G[j, c] the believed work a second of job j,

        g[j, c] = n[j] G[j, c] / min_c G[j, c] * (1 if j holds c, else r[j])
        min  sum_jc x[j, c] g[j, c]^p + unserved (jobs - sum_jc x[j, c]),   x[j, c] in {0, 1}
        sum_c x[j, c] <= 1 for each job,   GPUs of each type, and quotas of virtual clusters

    n is the fewest GPUs of a configuration of the job. r is the reallocation factor of a running job, max(T - N S, 0) /
    (T + S): T its age, N its restarts, S the cost of one (`preemption_overhead_s`); 1 where T < S, and for jobs that
    wait. A job that is being restarted keeps what it has. Jobs of the same row are one whole number of the program.

    Who keeps its configuration stays where it is; the others are placed widest first. GPUs that come free within a
    round wait for its end; where nothing runs, a round begins at once.

    Must know: speeds (`--speed-belief`). A job that no type is believed to run is rejected; one of which no speed is
    known counts as equally fast on all its types. Where branch and bound uses up its `nodes`, the best choice so far
    counts, or a greedy one by the relaxation. The last three are counted in run.json (`policy_counts`).

    Departs: a limit of nodes, not of time, so that a run repeats; g^p is not rounded to two digits as in its code. Not
    here: batch sizes, and fitting speeds to what is observed. `max_scale` above 1 lets a job have 1, 2, 4, ... GPUs or
    its gang, up to so many times the gang, data parallel at its batch.
    """

    needs_throughput: ClassVar[bool] = True

    round_s: float = param(60.0, unit="s", above=0, help="length of a round")
    p: float = param(-0.5, low=-10, help="power of goodputs, below 0: the lower, the more slow jobs count")
    unserved: float = param(1.1, above=1, help="cost of a job that gets nothing; its slowest GPU costs 1")
    max_scale: float = param(1.0, low=1, high=1024, help="GPUs of a job, up to so many times its gang; 1: the gang")
    gap: float = param(1e-4, low=0, high=1, help="the program's optimum may be missed by this part of what it saves")
    nodes: int = param(2000, low=1, help="of branch and bound in a round")

    def __post_init__(self) -> None:
        if self.max_scale > 1:
            vars(self).update(sizes_gangs=True)

    def prepare(self, view: View) -> None:
        """Sizes and types of the run.

        Raises
        ------
        PolicyError
            A power that is not below 0: costs must fall with speed.
        """
        super().prepare(view)
        if not self.p < 0:
            raise PolicyError("value not allowed", where=f"policy {self.name!r}, setting 'p'", got=self.p,
                              allowed="below 0, from -10", todo="The paper's is -0.5.")
        n, types = len(view.jobs), len(view.cluster.types)
        self._counts: Counter[str] = Counter()
        self._launches = np.zeros(n, dtype=np.int64)
        self._unknown_seen = np.zeros(n, dtype=bool)
        self._next_s = -np.inf
        self._slots = configurations(view, self.max_scale)
        self._kind = np.repeat(np.arange(types), self._slots.shape[1])
        self._allowed = view.jobs.may_use(types)

    def counted(self) -> Mapping[str, int]:
        return self._counts

    def decide(self, view: View) -> Decision:
        rows = np.sort(np.concatenate((view.queued, view.running)))
        if not rows.size:
            return Decision()
        if view.now_s < self._next_s and view.running.size:
            return Decision(wake_s=self._next_s)
        self._next_s = view.now_s + self.round_s
        speed = self._goodput(view, rows)
        lost = rows[~(speed > 0).any(axis=1)]
        waits = np.isin(lost, view.queued)
        runs = (speed > 0).any(axis=1)
        target = self._round(view, rows[runs], speed[runs])
        target.update((row, view.placement(row)) for row in lost[~waits].tolist())
        decision = Decision.toward(view, target, wake_s=self._next_s)
        decision.reject = [(row, NO_TYPE) for row in lost[waits].tolist()]
        changed = [row for row, _ in (*decision.start, *decision.move)]
        self._launches[changed] += 1
        return self.never_fits(view, decision)

    def _goodput(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Believed work a second in each configuration, float64 [rows, configurations]; 0: not to be had."""
        types, sizes = self._allowed.shape[1], self._slots.shape[1]
        slots = self._slots[rows]
        told = np.stack([
            np.column_stack([view.throughput(rows, t, slots[:, s]) for s in range(sizes)]) for t in range(types)
        ], axis=1)  # fmt: skip
        allowed = np.broadcast_to(self._allowed[rows][:, :, None], told.shape)
        unknown = (np.isnan(told) | ~allowed | (slots == 0)[:, None]).all(axis=(1, 2)) & allowed.any(axis=(1, 2))
        if (new := unknown & ~self._unknown_seen[rows]).any():
            self._unknown_seen[rows[new]] = True
            self._counts[UNKNOWN_SPEED] += int(new.sum())
        told = np.where(unknown[:, None, None], slots[:, None, :], told)
        return np.asarray(np.where(allowed & (told > 0), told, 0.0).reshape(rows.size, types * sizes))

    def _round(self, view: View, rows: np.ndarray, speed: np.ndarray) -> dict[int, Placement]:
        """What each job holds for the round."""
        slots = np.tile(self._slots[rows], self._allowed.shape[1])
        held = self._held(view, rows)
        fixed = (held >= 0) & (view.now_s < view.begin_s[rows] + view.overhead_s[rows])  # being restarted
        free = view.scratch(np.setdiff1d(view.running, rows[fixed]))
        cost = self._cost(view, rows, speed, slots, held)
        milli = slots.astype(np.int64) * view.jobs.gpu_milli[rows][:, None]
        saving = np.where(np.isfinite(cost), self.unserved - cost, 0.0)
        saving[fixed] = 0.0
        owner = view.jobs.vc[rows].astype(np.int64)
        _, first, group, jobs = np.unique(
            np.column_stack([saving, milli, owner, held]), axis=0, return_index=True, return_inverse=True,
            return_counts=True)  # fmt: skip
        menu = Menu(saving[first], milli[first], self._kind, jobs, owner[first], free.type_milli(),
                    np.clip(free.vc_left, 0, None))
        chosen = choose(menu, self.gap, self.nodes)
        if chosen.how in WORDS:
            self._counts[WORDS[chosen.how]] += 1
        config = np.where(fixed, held, dealt(chosen.given, group.reshape(-1), held))
        return self._placed(view, rows, slots, config, held, speed)

    def _held(self, view: View, rows: np.ndarray) -> np.ndarray:
        """The configuration that each job holds, int64 [rows]; -1: it waits."""
        held = np.full(rows.size, -1, dtype=np.int64)
        sizes = self._slots.shape[1]
        for i, row in enumerate(rows.tolist()):
            if count := int(view.slot_n[row]):
                kind = view.type_of(row)
                held[i] = kind * sizes + int(np.flatnonzero(self._slots[row] == count)[0])
        return held

    def _cost(
        self, view: View, rows: np.ndarray, speed: np.ndarray, slots: np.ndarray, held: np.ndarray
    ) -> np.ndarray:
        """g^p, float64 [rows, configurations]; infinite where it is not to be had."""
        had = speed > 0
        fewest = np.where(had, slots, np.inf).min(axis=1)
        worth = fewest[:, None] * speed / np.where(had, speed, np.inf).min(axis=1)[:, None]
        factor = reallocation_factor(
            view.now_s - view.jobs.submit_s[rows], self._launches[rows] - 1, view.preemption_overhead_s)
        changed = (held[:, None] >= 0) & (held[:, None] != np.arange(speed.shape[1]))
        worth = np.where(changed, worth * factor[:, None], worth)
        with np.errstate(divide="ignore"):
            return np.asarray(np.where(had, worth**self.p, np.inf))

    def _placed(
        self, view: View, rows: np.ndarray, slots: np.ndarray, config: np.ndarray, held: np.ndarray, speed: np.ndarray
    ) -> dict[int, Placement]:
        """Placements of what was chosen. Counts do not tell how shares of GPUs and workers lie: who finds no room keeps
        what it has where it can, and what is left then goes to others that can use it, fastest type first."""
        stay = rows[(config >= 0) & (config == held)]
        scratch = view.scratch(np.setdiff1d(view.running, stay))
        target = {row: view.placement(row) for row in stay.tolist()}
        sizes, homeless = self._slots.shape[1], False

        def place(i: int, c: int) -> bool:
            gang = scratch.gang(row := int(rows[i]))._replace(num_gpus=int(slots[i, c]), types=1 << c // sizes)
            gpus = scratch.place(gang, self.placement)
            if gpus is not None:
                target[row] = Placement(gpus)
            return gpus is not None

        moves = np.flatnonzero((config >= 0) & (config != held))
        for i in moves[np.lexsort((moves, -slots[moves, config[moves]]))].tolist():
            homeless |= not place(i, int(config[i]))
        for i in range(rows.size) if homeless else ():
            row, gang = int(rows[i]), scratch.gang(int(rows[i]))
            if row in target:
                continue
            if held[i] >= 0 and scratch.take(
                own := view.gpus_of(row), gang.gpu_milli, gang.vc, within_quota=True
            ):
                target[row] = Placement(own)
                continue
            for c in np.argsort(-speed[i], kind="stable").tolist():
                if speed[i, c] > 0 and place(i, c):
                    break
        return target


def configurations(view: View, max_scale: float) -> np.ndarray:
    """GPUs (slots) that a job may have on a type, int64 [jobs, sizes], 0 where it has fewer sizes than others.

    Its gang, and with `max_scale` above 1 whole workers of 1, 2, 4, ... up to so many gangs, within `min_gpus` and
    `max_gpus`. Jobs of shares of a GPU keep their gang.
    """
    jobs = view.jobs
    gang = jobs.num_gpus.astype(np.int64)
    if max_scale <= 1:
        return gang[:, None]
    powers = 2 ** np.arange(int(np.log2(max(1.0, gang.max() * max_scale))) + 1)
    most = np.where(jobs.max_gpus > 0, np.minimum(jobs.max_gpus, gang * max_scale), gang * max_scale)
    least = np.maximum(jobs.min_gpus, 1)
    able = (powers >= least[:, None]) & (powers <= most[:, None]) & (powers % jobs.worker_gpus[:, None] == 0)
    able &= (jobs.gpu_milli == 1000)[:, None] & (powers != gang[:, None])
    return np.column_stack([gang, np.where(able, powers, 0)])


def reallocation_factor(age_s: np.ndarray, restarts: np.ndarray, restart_s: float) -> np.ndarray:
    """r = max(T - N S, 0) / (T + S) of jobs of age T that have restarted N times at a cost of S s; 1 where T < S."""
    kept = np.maximum(age_s - np.maximum(restarts, 0) * restart_s, 0.0) / np.maximum(age_s + restart_s, 1e-300)
    return np.asarray(np.where((age_s < restart_s) | (restart_s == 0), 1.0, kept))


def dealt(given: np.ndarray, group: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Which job of a group gets which of its configurations: int64 [rows], -1 for none; in order of submission, who
    holds it (all of a group hold the same) first."""
    config = np.full(group.size, -1, dtype=np.int64)
    for g in np.flatnonzero(given.any(axis=1)).tolist():
        members = np.flatnonzero(group == g)
        kinds = np.repeat(np.arange(given.shape[1]), given[g])
        kinds = kinds[np.argsort(kinds != held[members[0]], kind="stable")]
        config[members[: kinds.size]] = kinds
    return config
