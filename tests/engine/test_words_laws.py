"""Laws of the words: a policy that says anything at random, within what is declared, breaks none of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.metrics.energy import energy_held_kwh
from analysis.run import Run
from sim.api import Decision, Placement, Policy, View
from sim.engine.simulate import RunResult, simulate
from sim.settings.config import EngineConfig
from tests.engine.test_words_by_hand import Toys
from tests.helpers import jobs, nodes
from traces.trace import Trace

CLUSTER = nodes(("V100", 2, 2), ("P100", 1, 3))
LIMIT_W = {t.name: t.power_w for t in CLUSTER.types}


@dataclass
class Chatter(Policy):
    """Starts, stops, moves, resizes, shares, caps, leases and refuses at random, for as long as anything is left."""

    name = "chatter"
    sizes_gangs = shares_gpus = sets_batch = caps_power = refuses_jobs = leases_gpus = reads_happened = True
    seed: int = 0
    most: int = 60
    told: list[tuple[int, str]] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    least_gib: float = np.inf

    def prepare(self, view: View) -> None:
        self._rng, self._asked = np.random.default_rng(self.seed), 0

    def decide(self, view: View) -> Decision:
        self._asked += 1
        self.told += view.happened.finished
        self.arrived += view.happened.arrived
        self.least_gib = min(self.least_gib, float(view.free_gib.min()))
        free, gib, decision = view.free_milli.copy(), view.free_gib.copy(), Decision(wake_s=view.now_s + 7.0)
        if self._asked > self.most:  # then as first come, first served: whole GPUs, one each
            decision.wake_s = None
        for row in view.running.tolist() if self._asked <= self.most else ():
            what = self._rng.integers(6)
            if what == 0:
                decision.stop.append(row)
            elif what == 1:
                decision.lease.append((row, view.now_s + float(self._rng.integers(1, 20))))
            elif what == 2:
                found = self._place(view, row, free, gib)
                if found is not None:
                    decision.move.append((row, found))
        for row in view.queued.tolist():
            if self._asked <= self.most and self._rng.integers(12) == 0:
                decision.refuse.append((row, "at random"))
                continue
            found = self._place(view, row, free, gib)
            if found is not None:
                decision.start.append((row, found))
                if self._asked <= self.most and self._rng.integers(3) == 0:
                    decision.lease.append((row, view.now_s + float(self._rng.integers(1, 20))))
        return decision

    def _place(self, view: View, row: int, free: np.ndarray, gib: np.ndarray) -> Placement | None:
        """GPUs of one type on terms drawn at random; None where that finds no room."""
        milli = int(self._rng.choice([250, 500, 1000]))
        batch = int(self._rng.choice([8, 16, 32]))
        kind = int(self._rng.integers(len(view.cluster.types)))
        room = (free >= milli) & (view.cluster.gpu_type == kind) & ((gib >= batch / 8) | (milli == 1000))
        gpus = np.flatnonzero(room)[: self._rng.integers(1, 3)].astype(np.int32)
        if not gpus.size:
            return None
        free[gpus] -= milli
        gib[gpus] -= batch / 8 if milli < 1000 else 0.0
        cap_w = float(self._rng.choice([0.0, 0.5, 0.8])) * view.cluster.types[kind].power_w
        return Placement(gpus, milli=milli, batch_size=batch, cap_w=cap_w)


TRACES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 50)), min_size=1, max_size=7).map(
    lambda rows: jobs(
        [(float(submit), float(length), 1) for submit, length in sorted(rows)],
        batch_size=[16] * len(rows), min_batch_size=[8] * len(rows), max_batch_size=[32] * len(rows),
    )
)


def chat(trace: Trace, seed: int, sharing: str) -> tuple[RunResult, Chatter]:
    policy = Chatter(seed=seed)
    config = EngineConfig(preemption_overhead_s=1.0, resize_overhead_s=2.0, restart_gib_per_s=4.0, sharing=sharing,
                          horizon_s=1e6)
    return simulate(trace, CLUSTER, policy, Toys(trace, CLUSTER), config), policy


@given(TRACES, st.integers(0, 2**32), st.sampled_from(["free", "time", "spatial"]))
@settings(max_examples=60, deadline=None)
def test_whatever_is_said_the_files_prove_that_it_was_possible(trace: Trace, seed: int, sharing: str) -> None:
    """Shares sum to at most one, memory to at most the card, work is conserved, each event is told once."""
    result, policy = chat(trace, seed, sharing)
    run = Run(path=None, tables=result.tables, info=result.info, timing={})  # type: ignore[arg-type]
    report = audit(run)
    assert report.ok, report.text
    assert policy.least_gib >= 0
    table = run.segments
    net = (table["work_done"] - table["work_lost"]).groupby(table["job_id"]).sum()
    for job in run.jobs.itertuples():
        if job.state == "done":
            assert abs(net.get(job.job_id, 0.0) - job.work_total) <= 1e-6 * max(1.0, job.work_total)
    assert sorted(policy.arrived) == list(range(len(trace)))
    rows = [row for row, _ in policy.told]
    assert len(rows) == len(set(rows))


@given(TRACES, st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_energy_is_the_sum_over_segments(trace: Trace, seed: int) -> None:
    """Σ GPU shares × seconds × (the cap, or the board's limit)."""
    result, _ = chat(trace, seed, "free")
    run = Run(path=None, tables=result.tables, info=result.info, timing={})  # type: ignore[arg-type]
    by_hand_j = 0.0
    for one in run.segments.itertuples():
        name = CLUSTER.types[int(CLUSTER.gpu_type[one.gpu_ids[0]])].name
        watt = LIMIT_W[name] if np.isnan(one.power_cap_w) else one.power_cap_w
        by_hand_j += watt * (one.end_s - one.begin_s) * len(one.gpu_ids) * one.gpu_milli / 1000
    found = energy_held_kwh(run)
    assert found is not None and abs(found * 3.6e6 - by_hand_j) <= 1e-6 * max(1.0, by_hand_j)


@given(TRACES, st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_the_same_seed_says_the_same(trace: Trace, seed: int) -> None:
    first, second = (chat(trace, seed, "time")[0] for _ in range(2))
    assert all(first.tables[name].equals(second.tables[name]) for name in first.tables)
