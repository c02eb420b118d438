"""Tenants: guarantees and ceilings by GPU type and of queues in queues; what the engine checks, refuses and shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from analysis.audit import audit
from analysis.run import load_run
from policies.mechanisms import Ordered
from sim.api import Decision, IllegalDecisionError, PolicyError, View
from sim.cluster.tenants import TenantLedger, make_tenants
from sim.engine.simulate import RunResult, simulate
from sim.settings.config import EngineConfig
from sim.settings.values import ConfigError
from sim.workload.progress import Recorded
from tests.helpers import by_job, jobs, nodes, run
from traces.trace import Trace

MIXED = nodes(("V100", 2, 4), ("T4", 1, 4))


@dataclass
class Careless(Ordered):
    """Says that it knows tenants, and starts whatever finds free GPUs."""

    knows_tenants: ClassVar[bool] = True


def tenants(vcs: tuple[str, ...], **settings: Any) -> TenantLedger:
    """Queues on `MIXED`; job i is of virtual cluster i."""
    return make_tenants(MIXED, vcs, np.arange(len(vcs)), EngineConfig(**settings), {})


def careless(trace: Trace, **settings: Any) -> RunResult:
    return simulate(trace, MIXED, Careless(), Recorded(trace, MIXED), EngineConfig(**settings))


# -- the settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "words"), [
    ({"guarantees": {"x": 1}}, ["engine.guarantees", "does not have", "got 'x'", "c, org/a, org/b, org"]),
    ({"quotas": {"x@V100": 1}}, ["engine.quotas", "does not have", "got 'x@V100'"]),
    ({"guarantees": {"c@K80": 1}}, ["GPU type that the cluster lacks", "got 'c@K80'", "V100, T4"]),
    ({"guarantees": {"c": 3}, "quotas": {"c": 2}},
     ["guarantee of queue 'c' above its own ceiling", "'3 GPUs of any type'", "at most 2"]),
    ({"guarantees": {"c@T4": 3}, "quotas": {"c@T4": 2}}, ["queue 'c' above", "'3 GPUs of T4'", "at most 2"]),
    ({"guarantees": {"c": 6}, "quotas": {"c@T4": 2, "c@V100": 3}}, ["queue 'c' above", "at most 5"]),
    ({"guarantees": {"org/a": 3, "org/b": 3}, "quotas": {"org": 5}},
     ["guarantees in queue 'org' above its ceiling", "'6 GPUs of any type'", "at most 5"]),
    ({"guarantees": {"org/a@T4": 2, "org/b@T4": 2}, "quotas": {"org@T4": 3}}, ["in queue 'org'", "GPUs of T4"]),
    ({"guarantees": {"org": 8, "c": 5}}, ["all queues above what the cluster has", "'13 GPUs", "at most 12"]),
    ({"guarantees": {"org/a@T4": 3, "c@T4": 2}}, ["all queues", "'5 GPUs of T4'", "at most 4"]),
])
def test_settings_that_do_not_fit_are_refused_before_the_run(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        run(jobs([(0, 1, 1)] * 3, vc=["org/a", "org/b", "c"]), MIXED, "capacity", **settings)
    assert all(word in str(error.value) for word in words), error.value


def test_a_policy_that_knows_no_tenants_is_refused_quotas_that_it_cannot_keep() -> None:
    """Plain quotas and guarantees it may have: the first it keeps, of the second it knows nothing."""
    trace = jobs([(0, 10, 1)] * 2, vc=["org/a", "c"])
    for quotas in ({"org": 2}, {"c@V100": 1}):
        with pytest.raises(PolicyError, match=r"knows no tenants.*engine\.quotas|engine\.quotas.*knows no tenants"):
            run(trace, MIXED, "fifo", quotas=quotas)
    plain = run(trace, MIXED, "fifo", quotas={"c": 1}, guarantees={"org": 3})
    assert (by_job(plain)["state"] == "done").all()


def test_the_view_shows_tenants_to_those_who_declare_it() -> None:
    @dataclass
    class Curious(Ordered):
        """Looks at the tenants without having said so."""

        def decide(self, view: View) -> Decision:
            return super().decide(view) if view.tenants else Decision()

    trace = jobs([(0, 10, 1)])
    with pytest.raises(PolicyError, match="knows_tenants = True"):
        simulate(trace, MIXED, Curious(), Recorded(trace, MIXED), EngineConfig())


# -- what a queue holds, is owed, has borrowed ------------------------------------------------------------------------


def test_what_is_owed_and_borrowed_by_hand() -> None:
    """c: 6 GPUs, 2 of them T4. Three T4 and two V100 are one T4 above the guarantee by type, and two V100: 3 of 4."""
    queues = tenants(("c", "d"), guarantees={"c": 6, "c@T4": 2})
    assert queues.owed_milli[0].tolist() == [0, 2000, 6000]
    queues.take(0, 1, 3000)
    queues.take(0, 0, 2000)
    assert queues.held_milli[0].tolist() == [2000, 3000, 5000]
    assert queues.owed_milli[0].tolist() == [0, 0, 1000]
    assert queues.borrowed_milli[0].tolist() == [2000, 1000, 0]
    assert queues.claims(0, 0, 1.0) and not queues.claims(0, 0, 2.0)
    queues.take(0, 0, 2000)
    assert queues.borrowed_milli[0].tolist() == [4000, 1000, 1000]


def test_a_queue_holds_what_those_in_it_hold_and_is_promised_what_they_are() -> None:
    queues = tenants(("org/a", "org/b", "org"), guarantees={"org/a": 2, "org/b@T4": 1, "org": 4})
    assert queues.guarantee_milli.tolist() == [[0, 0, 2000], [0, 1000, 1000], [0, 1000, 4000]]
    for row in range(3):
        queues.take(row, 0, 1000)
    assert queues.held_milli[:, -1].tolist() == [1000, 1000, 3000]
    assert queues.borrowed_milli[:, -1].tolist() == [0, 1000, 0]


def test_all_ceilings_on_the_way_bind() -> None:
    """org may hold 4, 3 of them V100, and a 2."""
    queues = tenants(("org/a", "org/b"), quotas={"org": 4, "org@V100": 3, "org/a": 2})
    assert queues.may(0, 0, 2.0) and not queues.may(0, 0, 2.5)
    assert queues.may(1, 0, 3.0) and not queues.may(1, 0, 3.5)
    queues.take(1, 0, 3000)
    assert not queues.may(0, 0, 0.5) and queues.may(0, 1, 1.0) and not queues.may(0, 1, 1.5)


def test_a_scratch_copy_changes_nothing_and_a_reader_sees_all_changes() -> None:
    queues = tenants(("a",))
    reader = queues.reading()
    queues.scratch().take(0, 0, 1000)
    assert reader.held_milli.sum() == 0
    queues.take(0, 0, 1000)
    assert reader.held_milli[0].tolist() == [1000, 0, 1000]
    assert not hasattr(reader, "take")


def test_who_lends_to_whom() -> None:
    """b's claim goes to its neighbour a, who has borrowed; c, within its guarantee, lends nothing."""
    queues = tenants(("org/a", "org/b", "c"), guarantees={"org/a": 2, "org/b": 2, "c": 4})
    for row, gpus in ((0, 3), (2, 4)):
        queues.take(row, 0, gpus * 1000)
    assert [queues.lends(1, 0, 1.0, vc) for vc in range(3)] == [1, -1, -1]
    queues.take(2, 0, 1000)
    assert [queues.lends(1, 0, 1.0, vc) for vc in range(3)] == [1, -1, 0]
    assert queues.lends(1, 1, 1.0, 0) == -1, "a has borrowed no T4"
    assert queues.lends(1, 0, 3.0, 0) == -1, "b is owed 2"


# -- the referee and the audit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("quotas", "words"), [
    ({"org": 3}, ["at 0 s, job '1'", "queue 'org' on any type", "got '2000 milli'", "allowed: 1000 milli"]),
    ({"org@V100": 3}, ["job '1'", "queue 'org' on V100", "allowed: 1000 milli"]),
    ({"org/b@V100": 2, "org/a@V100": 2}, ["job '2'", "queue 'org/b' on V100", "allowed: 0 milli"]),
])
def test_a_placement_above_a_ceiling_is_refused(quotas: dict[str, int], words: list[str]) -> None:
    trace = jobs([(0, 10, 2), (0, 10, 2), (0, 10, 2)], vc=["org/a", "org/b", "org/b"], gpu_type=["V100"] * 3)
    with pytest.raises(IllegalDecisionError) as error:
        careless(trace, quotas=quotas)
    assert all(word in str(error.value) for word in words), error.value


def test_jobs_that_no_ceiling_will_ever_allow_leave_with_the_reason() -> None:
    """On V100 a may hold 2 and on T4 as many as there are: 4. All of org may hold 3."""
    trace = jobs([(0, 10, 4), (0, 10, 3), (0, 10, 4), (0, 10, 3)], vc=["a", "a", "org/b", "org/b"],
                 gpu_type=["T4|V100", "V100", "", ""])
    table = by_job(run(trace, MIXED, "capacity", quotas={"a@V100": 2, "org": 3}))
    assert table["state"].tolist() == ["done", "rejected", "rejected", "done"]
    assert table.loc["1", "reason"] == (
        "asks for 3 GPUs on V100; quotas by GPU type, or of the queues around 'a', allow at most 2")
    assert table.loc["2", "reason"].endswith("around 'org/b', allow at most 3")


def test_the_audit_finds_a_ceiling_that_was_broken(tmp_path: Path) -> None:
    """The run is sound; then run.json says that less was allowed."""
    trace = jobs([(0, 10, 2), (5, 10, 2)], vc=["org/a", "org/b"], gpu_type=["V100"] * 2)
    for quotas, time_s, text in (
        ({"org": 3}, 5.0, "queue 'org' holds 4000 milli of 3000"),
        ({"org@v100": 3}, 5.0, "queue 'org' holds 4000 milli on v100 of 3000"),
        ({"org/a@V100": 1, "org": 3}, 0.0, "queue 'org/a' holds 2000 milli on V100 of 1000"),
    ):
        result = careless(trace, quotas={"org": 4, "org@V100": 4})
        result.write(tmp_path / text / "kept")
        report = audit(load_run(tmp_path / text / "kept"))
        assert report.ok and "2 quotas by type" in report.checked["queues keep to their quotas by type and in all"]
        result.info["settings"]["quotas"] = quotas
        result.write(tmp_path / text / "broken")
        found = audit(load_run(tmp_path / text / "broken", check=False)).first
        assert found is not None and (found.text, found.time_s) == (text, time_s)
