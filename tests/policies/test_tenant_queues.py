"""Queues of tenants: what is lent comes back when it is claimed, ceilings hold, each queue is first in, first out."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.run import load_run
from policies.mechanisms import Ordered
from policies.ordering.capacity import Capacity
from sim.api import Decision, Policy, View
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import RunResult, simulate
from sim.settings.config import EngineConfig
from sim.workload.progress import Recorded
from tests.helpers import by_job, jobs, nodes, run, segments
from traces.trace import Trace

EIGHT = nodes(("V100", 2, 4))
MIXED = nodes(("V100", 1, 4), ("T4", 1, 4))


def stretches(result: RunResult) -> list[tuple[str, float, float]]:
    """(job, begin, end) of all segments."""
    return [tuple(row) for row in segments(result)[["job_id", "begin_s", "end_s"]].itertuples(index=False)]


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_idle_gpus_are_lent_and_come_back_at_the_instant_of_the_claim() -> None:
    """a holds all 8; at 10 s b claims 4 of its own: a's younger job yields, and goes on when GPUs are free again."""
    trace = jobs([(0, 100, 4), (0, 100, 4), (10, 50, 4)], vc=["a", "a", "b"])
    result = run(trace, EIGHT, "capacity", guarantees={"a": 4, "b": 4})
    assert stretches(result) == [("0", 0, 100), ("1", 0, 10), ("2", 10, 60), ("1", 60, 150)]


def test_only_as_much_is_reclaimed_as_the_claim_needs() -> None:
    """b claims 2: of a's borrowed jobs the youngest (1 GPU) and the next (1 GPU) yield, the oldest goes on."""
    trace = jobs([(0, 100, 4), (0, 100, 2), (0, 100, 1), (0, 100, 1), (10, 20, 2)], vc=[*"aaaa", "b"])
    result = run(trace, EIGHT, "capacity", guarantees={"a": 4, "b": 4})
    assert stretches(result) == [("0", 0, 100), ("1", 0, 100), ("2", 0, 10), ("3", 0, 10), ("4", 10, 30),
                                 ("2", 30, 120), ("3", 30, 120)]


def test_who_is_owed_nothing_waits_until_something_is_idle() -> None:
    """c has no guarantee; nobody yields to it. In its queue the second job waits behind the first, though it fits."""
    trace = jobs([(0, 100, 6), (10, 50, 4), (20, 50, 2)], vc=["a", "c", "c"])
    result = run(trace, EIGHT, "capacity", guarantees={"a": 8})
    assert stretches(result) == [("0", 0, 100), ("1", 100, 150), ("2", 100, 150)]


def test_what_is_promised_of_a_type_comes_back_from_that_type() -> None:
    """a is promised 4 V100: at 10 s it gets them, and the younger T4 job, on GPUs that nobody is promised, goes on."""
    trace = jobs([(0, 100, 4), (5, 100, 4), (10, 50, 4)], vc=["b", "b", "a"], gpu_type=["V100", "T4", "V100"])
    result = run(trace, MIXED, "capacity", guarantees={"a@V100": 4})
    assert stretches(result) == [("0", 0, 10), ("1", 5, 105), ("2", 10, 60), ("0", 60, 150)]


def test_a_job_that_yields_goes_on_elsewhere_at_once_where_it_may() -> None:
    """b's job leaves the V100s for the idle T4s: moved, not stopped."""
    trace = jobs([(0, 100, 4), (10, 50, 4)], vc=["b", "a"], gpu_type=["", "V100"])
    result = run(trace, MIXED, "capacity", guarantees={"a@V100": 4})
    assert stretches(result) == [("0", 0, 10), ("0", 10, 100), ("1", 10, 60)]
    assert segments(result)["end_reason"].tolist() == ["migrated", "done", "done"]


def test_a_neighbour_in_the_same_queue_yields_before_a_younger_stranger() -> None:
    """org's b claims 2 of org's 4: a of org holds 4, and c holds 4 where it is promised 2, with the youngest job."""
    trace = jobs([(0, 100, 2), (0, 100, 2), (1, 100, 2), (1, 100, 2), (10, 50, 2)],
                 vc=["org/a", "org/a", "c", "c", "org/b"])
    result = run(trace, EIGHT, "capacity", guarantees={"org": 4, "org/a": 2, "org/b": 2, "c": 2})
    assert stretches(result)[:5] == [("0", 0, 100), ("1", 0, 10), ("2", 1, 101), ("3", 1, 101), ("4", 10, 60)]


def test_a_ceiling_around_it_makes_a_queue_reclaim_from_its_neighbour_though_gpus_are_idle() -> None:
    """org may hold 4 of 8, and a holds them all; b claims its 2."""
    trace = jobs([(0, 100, 2), (0, 100, 2), (10, 50, 2)], vc=["org/a", "org/a", "org/b"])
    result = run(trace, EIGHT, "capacity", guarantees={"org/b": 2}, quotas={"org": 4})
    assert stretches(result) == [("0", 0, 100), ("1", 0, 10), ("2", 10, 60), ("1", 60, 150)]


def test_the_queue_that_uses_the_least_of_its_guarantee_goes_first() -> None:
    """At 10 s the 2 GPUs go to b (0 of 2 used) before a (6 of 6 used), though a's job was there first."""
    trace = jobs([(0, 100, 6), (0, 10, 2), (1, 10, 2), (2, 10, 2)], vc=["a", "c", "a", "b"])
    result = by_job(run(trace, EIGHT, "capacity", guarantees={"a": 6, "b": 2}))
    assert result["first_start_s"].tolist() == [0, 0, 12, 2]


def test_a_queue_that_becomes_a_borrower_yields_at_that_very_decision() -> None:
    """At 10 s b is lent the T4s of c: only then has it borrowed, and its V100s come back to a, which claims them."""
    trace = jobs([(0, 100, 4), (0, 10, 4), (5, 50, 4), (6, 100, 4)], vc=["b", "c", "a", "b"],
                 gpu_type=["V100", "T4", "V100", "T4"])
    world = World(MIXED, trace, {"guarantees": {"a": 4, "b": 4}})
    watch = Watch(world)
    result = world.run(watch.over(Capacity))
    assert stretches(result) == [("0", 0, 10), ("1", 0, 10), ("2", 10, 60), ("3", 10, 110), ("0", 60, 150)]
    assert not watch.left


def test_without_settings_each_virtual_cluster_is_a_queue_that_owes_nobody_anything() -> None:
    trace = jobs([(0, 10, 8), (0, 10, 8), (0, 10, 4)], vc=["a", "b", "a"])
    assert by_job(run(trace, EIGHT, "capacity"))["first_start_s"].tolist() == [0, 10, 20]


# -- by law -----------------------------------------------------------------------------------------------------------


@dataclass
class NeverReclaims(Capacity):
    """Wrong on purpose: it lends, and leaves what is lent where it is."""

    def decide(self, view: View) -> Decision:
        decision = super().decide(view)
        return Decision() if decision.stop or decision.move else decision


@dataclass
class NoQueues(Ordered):
    """Wrong on purpose: whoever fits goes first."""

    knows_tenants: ClassVar[bool] = True


@dataclass(frozen=True)
class World:
    """One drawn case; `guarantees` are of outermost queues only, so that a job's tenant is the head of its name."""

    cluster: ClusterSpec
    trace: Trace
    engine: dict[str, Any]

    def run(self, policy: Policy) -> RunResult:
        config = EngineConfig(preemption_overhead_s=0.0, **self.engine)
        return simulate(self.trace, self.cluster, policy, Recorded(self.trace, self.cluster), config)


@st.composite
def worlds(draw: st.DrawFn, *, ceilings: bool = False) -> World:
    """Up to 16 jobs of four virtual clusters in three outermost queues, among which the cluster's GPUs are promised.

    Or, instead of guarantees, quotas of any of the queues, by type or of any.
    """
    cluster = nodes(*draw(st.sampled_from([(("V100", 1, 4),), (("V100", 2, 4),), (("V100", 2, 2), ("T4", 1, 4))])))
    kinds = [t.name for t in cluster.types]
    size = draw(st.integers(6, 16))
    submits = sorted(draw(st.lists(st.integers(0, 60), min_size=size, max_size=size)))
    rows = [(float(s), draw(st.sampled_from([8.0, 40.0, 200.0])), draw(st.integers(1, 4))) for s in submits]
    # Whoever comes first finds an idle cluster, and borrows.
    vcs = ["c" if i < 3 else draw(st.sampled_from(["a/x", "a/y", "b", "c"])) for i in range(size)]
    trace = jobs(rows, vc=vcs, gpu_type=[draw(st.sampled_from(["", "", *kinds])) for _ in rows])
    if ceilings:
        some = st.lists(st.sampled_from(sorted({part for vc in vcs for part in (vc, vc.split("/")[0])})), min_size=1,
                        unique=True)
        return World(cluster, trace, {"quotas": {
            name + draw(st.sampled_from(["", "@" + kinds[-1]])): draw(st.integers(1, 6)) for name in draw(some)}})
    guarantees: dict[str, int] = {}
    left = cluster.num_gpus
    for kind, gpus in zip(kinds, cluster.gpus_by_type().tolist(), strict=True):
        for tenant in sorted({vc.split("/")[0] for vc in vcs}):
            if draw(st.booleans()):
                guarantees[f"{tenant}@{kind}"] = draw(st.integers(0, gpus))
                gpus, left = gpus - guarantees[f"{tenant}@{kind}"], left - guarantees[f"{tenant}@{kind}"]
    for tenant in sorted({vc.split("/")[0] for vc in vcs}):
        untyped = draw(st.integers(0, left))
        left -= untyped
        guarantees[tenant] = untyped + sum(guarantees.get(f"{tenant}@{kind}", 0) for kind in kinds)
    return World(cluster, trace, {"guarantees": guarantees})


class Watch:
    """Follows a policy's decisions, and notes each claim that was left although enough was free or borrowed."""

    def __init__(self, world: World) -> None:
        self.left: list[str] = []
        self._spec, self._guarantees = world.cluster, world.engine.get("guarantees", {})

    def over(self, policy: type[Policy]) -> Policy:
        """The policy, watched."""

        def decide(this: Policy, view: View) -> Decision:
            decision = policy.decide(this, view)
            self._look(view, decision)
            return decision

        return type(policy.__name__, (policy,), {"decide": decide})()

    def _look(self, view: View, decision: Decision) -> None:
        kind, jobs_ = self._spec.gpu_type, view.jobs
        placed = {row: p.gpus for row, p in (*decision.move, *decision.start)}
        runs = {row: placed.get(row, view.gpus_of(row)) for row in view.running.tolist()} | placed
        runs = {row: (int(kind[gpus[0]]), gpus.size) for row, gpus in runs.items() if row not in decision.stop}
        waits = [row for row in (*view.queued.tolist(), *decision.stop) if row not in placed]
        tenant = [jobs_.vc_names[vc].split("/")[0] for vc in jobs_.vc]
        free = self._spec.gpus_by_type()
        for t, n in runs.values():
            free[t] -= n
        for vc in {jobs_.vc[row] for row in waits}:
            head = min(row for row in waits if jobs_.vc[row] == vc)
            for t in range(len(self._spec.types)):
                if not int(jobs_.types[head]) >> t & 1:
                    continue
                need, mine = int(jobs_.num_gpus[head]), {r: v for r, v in runs.items() if tenant[r] == tenant[head]}
                lacks, above, untyped = self._account(tenant[head], mine, t)
                if need > max(lacks, 0) + max(untyped - above, 0):
                    continue
                found = free[t]
                for other in set(tenant) - {tenant[head]}:
                    theirs = {r: v for r, v in runs.items() if tenant[r] == other}
                    for row in sorted(theirs, reverse=True):
                        lacks_, above, untyped = self._account(other, theirs, t)
                        if theirs[row][0] == t and lacks_ < 0 and (lacks >= need or above > untyped):
                            found += theirs.pop(row)[1]
                if found >= need:
                    self.left.append(f"at {view.now_s} s job {head} claims {need} of type {t}; {found} to be had")

    def _account(self, tenant: str, runs: dict[int, tuple[int, int]], t: int) -> tuple[int, int, int]:
        """What a tenant lacks of a type, what it holds above its guarantees by type, and its untyped guarantee."""
        held = [sum(n for kind, n in runs.values() if kind == k) for k in range(len(self._spec.types))]
        typed = [self._guarantees.get(f"{tenant}@{kind.name}", 0) for kind in self._spec.types]
        above = sum(max(h - g, 0) for h, g in zip(held, typed, strict=True))
        return typed[t] - held[t], above, self._guarantees.get(tenant, 0) - sum(typed)


def out_of_order(world: World, result: RunResult) -> list[str]:
    """Jobs that started before an earlier one of their virtual cluster."""
    table = by_job(result)
    table = table[table["state"] != "rejected"]
    found = []
    for _, queue in table.groupby("vc", observed=True):
        found += queue.index[queue["first_start_s"].to_numpy() < np.maximum.accumulate(queue["first_start_s"])].tolist()
    return found


@settings(max_examples=150, deadline=None, derandomize=True)
@given(worlds())
def test_what_is_borrowed_comes_back_within_one_decision_of_the_claim(world: World) -> None:
    watch = Watch(world)
    result = world.run(watch.over(Capacity))
    assert not watch.left
    assert not out_of_order(world, result)
    assert (by_job(result)["state"].isin(["done", "rejected"])).all()


def test_the_law_finds_a_policy_that_keeps_what_it_has_lent() -> None:
    trace = jobs([(0, 100, 4), (0, 100, 4), (10, 50, 4)], vc=["a", "a", "b"])
    world = World(EIGHT, trace, {"guarantees": {"a": 4, "b": 4}})
    watch = Watch(world)
    world.run(watch.over(NeverReclaims))
    assert watch.left == ["at 10.0 s job 2 claims 4 of type 0; 4 to be had"]


def test_the_law_finds_a_policy_that_lets_the_second_go_first() -> None:
    world = World(EIGHT, jobs([(0, 100, 6), (1, 10, 4), (2, 10, 2)], vc=["a"] * 3), {})
    assert out_of_order(world, world.run(NoQueues())) == ["2"]
    assert out_of_order(world, world.run(Capacity())) == []


@settings(max_examples=100, deadline=None, derandomize=True)
@given(worlds(ceilings=True))
def test_no_queue_at_any_level_ever_holds_more_than_its_quota(world: World) -> None:
    """By the audit, from the files; and whoever can run within the quotas does."""
    result = world.run(Capacity())
    with tempfile.TemporaryDirectory() as folder:
        result.write(Path(folder) / "run")
        report = audit(load_run(Path(folder) / "run"))
    assert report.ok, report.text
    assert by_job(result)["state"].isin(["done", "rejected"]).all()


@pytest.mark.parametrize("overhead_s", [0.0, 5.0])
def test_shares_workers_and_failures_keep_the_laws_of_all_runs(overhead_s: float, tmp_path: Path) -> None:
    """A busy day with all that jobs can have: each ends, and the audit finds nothing."""
    rng, n = np.random.default_rng([0, 5]), 200
    share = rng.choice([1000, 1000, 500, 300], n)
    trace = Trace.from_columns({
        "job_id": [f"j{i}" for i in range(n)], "submit_s": np.sort(rng.integers(0, 4000, n)),
        "duration_s": rng.integers(1, 600, n), "num_gpus": rng.choice([2, 2, 4, 6], n), "gpu_milli": share,
        "worker_gpus": np.where(share == 1000, rng.choice([1, 2], n), 1), "attempts": rng.integers(1, 3, n),
        "gpu_type": rng.choice(["", "V100", "T4|V100"], n), "vc": rng.choice(["org/a", "org/b", "c"], n),
    })
    result = run(trace, nodes(("V100", 2, 8), ("T4", 2, 4)), "capacity", preemption_overhead_s=overhead_s, mtbf_h=1.0,
                 repair_h=0.1, seed=3, guarantees={"org/a@V100": 6, "org/b": 4, "c": 8}, quotas={"org@V100": 12})
    result.write(tmp_path / "run")
    report = audit(load_run(tmp_path / "run"))
    assert report.ok, report.text
    assert (by_job(result)["state"] == "done").all()
    assert {"preempted", "migrated"} <= set(segments(result)["end_reason"])
