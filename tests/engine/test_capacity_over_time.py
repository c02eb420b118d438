"""Nodes that go and come and quotas that change, by a timetable: by hand, by law, and what the audit says of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.run import load_run
from policies.ordering.fifo import Fifo
from policies.registry import make
from sim.api import Decision, HetsimError, View
from sim.cluster.spec import ClusterError
from sim.cluster.timetable import make_timetable
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.settings.config import EngineConfig
from sim.settings.values import ConfigError
from sim.workload.progress import Modelled, Recorded
from tests.conftest import ONE_FOLDER
from tests.helpers import by_job, jobs, nodes, run, segments
from traces.errors import TraceError
from traces.trace import Trace

DAY_S = 86_400.0
TWO = nodes(("V100", 2, 4))


def capacity(tmp_path: Path, *rows: str) -> str:
    path = tmp_path / "capacity.csv"
    path.write_text("time_s,vc,gpu_type,gpus\n" + "".join(row + "\n" for row in rows))
    return str(path)


def outages(tmp_path: Path, *rows: str) -> str:
    path = tmp_path / "outages.csv"
    path.write_text("time_s,node,up\n" + "".join(row + "\n" for row in rows))
    return str(path)


def audited(result: RunResult, folder: Path) -> RunResult:
    result.write(folder)
    assert not audit(load_run(folder)).violations
    return result


def planned(trace: Trace, policy: str, file: str) -> RunResult:
    """Work in iterations, by modelled speeds: what policies that size gangs need."""
    performance = Performance()
    truth = Modelled(trace, TWO, performance, gpu_type("V100"))
    return simulate(trace, TWO, make(policy), truth, EngineConfig(capacity=file), performance=performance,
                    estimate_s=trace.duration_s)


def begins(result: RunResult) -> dict[str, float]:
    return segments(result).groupby("job_id")["begin_s"].first().to_dict()


# -- quotas ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "fifo_skip", "srtf", "las", "easy", "tiresias"])
def test_a_job_waits_until_its_virtual_cluster_has_gpus(tmp_path: Path, policy: str) -> None:
    """P-18: `a` has none on the first day and 64 on the second; `b` never has any, and its job says so."""
    trace = jobs([(0, 100, 8), (10, 100, 1), (20, 100, 4)], vc=["a", "b", "c"])
    file = capacity(tmp_path, "0,a,,0", f"{DAY_S:g},a,,64", "0,b,,0")
    result = audited(run(trace, TWO, policy, capacity=file), tmp_path / "run")
    table = by_job(result)
    assert begins(result)["0"] == DAY_S and table.loc["0", "end_s"] == DAY_S + 100
    assert table.loc["1", "state"] == "rejected"
    assert table.loc["1", "reason"] == "asks for 1 GPUs, more than its virtual cluster's quota of 0 from 0 s on"
    # Strict order waits behind the first; all others pass it by, EASY too: no job's end gives it a quota.
    assert begins(result)["2"] == (DAY_S + 100 if policy == "fifo" else 20)


def test_running_jobs_above_a_quota_that_shrank_go_on_and_none_starts(tmp_path: Path) -> None:
    """Quota 8, then 2 at 50 s: two jobs of 4 GPUs keep theirs until 100 s; one of 2 starts only then, not at 60 s."""
    trace = jobs([(0, 100, 4), (0, 100, 4), (60, 10, 2)], vc=["a"] * 3)
    result = audited(run(trace, TWO, "fifo", capacity=capacity(tmp_path, ",a,,8", "50,a,,2")), tmp_path / "run")
    assert segments(result)[["begin_s", "end_s"]].to_numpy().tolist() == [[0, 100], [0, 100], [100, 110]]


def test_a_preemptive_policy_chooses_anew_within_the_quota(tmp_path: Path) -> None:
    """The engine stops nobody at 50 s; `srtf`, when it chooses anew at 60 s, keeps just what the quota allows."""
    trace = jobs([(0, 100, 4), (0, 200, 4), (60, 1000, 4)], vc=["a", "a", "b"])
    file = capacity(tmp_path, ",a,,8", "50,a,,4")
    result = audited(run(trace, TWO, "srtf", capacity=file), tmp_path / "run")
    assert segments(result)[["job_id", "begin_s", "end_s"]].to_numpy().tolist() == [
        ["0", 0, 100], ["1", 0, 60], ["2", 60, 1060], ["1", 100, 240]]


def test_what_waits_leaves_with_the_reason_once_it_is_too_wide_for_ever(tmp_path: Path) -> None:
    """The quota falls from 8 to 4 while a job of 8 waits: it blocks nobody any longer."""
    trace = jobs([(0, 100, 8), (1, 10, 8), (2, 10, 4)], vc=["a"] * 3)
    result = audited(run(trace, TWO, "fifo", capacity=capacity(tmp_path, ",a,,8", "50,a,,4")), tmp_path / "run")
    table = by_job(result)
    assert table["state"].tolist() == ["done", "rejected", "done"]
    assert table.loc["1", "reason"] == "asks for 8 GPUs, more than its virtual cluster's quota of 4 from 50 s on"
    assert begins(result) == {"0": 0, "2": 100}


def test_a_virtual_cluster_that_the_file_does_not_name_has_no_quota_and_the_run_says_so(tmp_path: Path) -> None:
    trace = jobs([(0, 10, 8), (0, 10, 4)], vc=["a", "b"])
    result = run(trace, TWO, "fifo", capacity=capacity(tmp_path, "0,b,,4", "0,z,,9"))
    assert by_job(result)["state"].tolist() == ["done", "done"]
    assert result.info["timetable"]["notes"] == [
        "virtual clusters of capacity.csv without jobs in the trace: z",
        "virtual clusters that capacity.csv does not name have no quota: 'a'",
    ]


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_nodes_leave_from_the_last_backwards_and_come_back(tmp_path: Path) -> None:
    """8 GPUs, 4 from 100 s to 200 s: the job on the last node falls back and waits; the other does not notice."""
    trace = jobs([(0, 150, 4), (0, 170, 4)])
    file = capacity(tmp_path, "0,,V100,8", "100,,V100,4", "200,,V100,8")
    result = audited(run(trace, TWO, "fifo", capacity=file), tmp_path / "run")
    table = segments(result)
    assert table[["job_id", "begin_s", "end_s", "end_reason"]].to_numpy().tolist() == [
        ["0", 0, 150, "done"], ["1", 0, 100, "node_failed"], ["1", 150, 220, "done"]]
    assert [node["down_s"] for node in result.tables["nodes"].to_pylist()] == [[], [100]]
    assert [node["up_s"] for node in result.tables["nodes"].to_pylist()] == [[], [200]]


def test_a_job_that_ends_as_its_node_leaves_has_ended(tmp_path: Path) -> None:
    result = run(jobs([(0, 100, 8)]), TWO, "fifo", capacity=capacity(tmp_path, ",,,8", "100,,,0"))
    assert segments(result)["end_reason"].tolist() == ["done"]


def test_a_count_that_ends_within_a_node_leaves_that_node_out(tmp_path: Path) -> None:
    """Never more than the file says: of 7 GPUs on nodes of 4, one node is there, and the run says so."""
    result = run(jobs([(0, 10, 4), (0, 10, 4)]), TWO, "fifo", capacity=capacity(tmp_path, ",,V100,7"))
    assert segments(result)["begin_s"].tolist() == [0, 10]
    assert result.info["timetable"]["notes"] == ["1 counts of capacity.csv end within a node: that node is away"]


def test_a_gang_waits_for_nodes_that_come_and_is_refused_where_they_never_do(tmp_path: Path) -> None:
    trace = jobs([(0, 10, 8), (0, 10, 8)], gpu_type=["V100", "T4"])
    cluster = nodes(("V100", 2, 4), ("T4", 2, 4))
    file = capacity(tmp_path, "0,,V100,4", "0,,T4,4", "300,,V100,8")
    result = audited(run(trace, cluster, "fifo_skip", capacity=file), tmp_path / "run")
    table = by_job(result)
    assert begins(result) == {"0": 300}
    assert table.loc["1", "reason"] == "asks for 8 slots of 1 GPU on T4; the cluster has 4 from 0 s on"


def test_an_outage_file_names_its_nodes_and_both_files_must_have_a_node(tmp_path: Path) -> None:
    """Node 0 is out until 100 s and from 200 s on; the count leaves node 1 out until 150 s."""
    trace = jobs([(0, 30, 4), (120, 100, 4), (140, 50, 4)])
    result = audited(
        run(trace, TWO, "fifo_skip", outages=outages(tmp_path, "0,0,0", "100,0,1", "200,0,0"),
            capacity=capacity(tmp_path, "0,,,4", "150,,,8")), tmp_path / "run")
    table = segments(result)
    # 220 s of work is done at 200 s by 80 s; the rest follows on node 1 once that is free.
    assert table[["job_id", "begin_s", "end_s"]].to_numpy().tolist() == [
        ["0", 100, 130], ["1", 130, 200], ["2", 150, 200], ["1", 200, 230]]
    assert [list(n) for n in table["nodes"]] == [[0], [0], [1], [1]]


def test_nodes_fail_at_random_as_they_would_without_a_timetable(tmp_path: Path) -> None:
    """The same seed fails the same nodes: failures while node 1 is away change nothing, and it is away throughout."""
    trace = jobs([(0, 40_000, 4), (0, 40_000, 4)])
    chance = {"mtbf_h": 2.0, "repair_h": 0.5, "seed": 3}
    plain = run(trace, TWO, "fifo", **chance)
    away = audited(run(trace, TWO, "fifo", outages=outages(tmp_path, "0,1,0", "30000,1,1"), **chance), tmp_path / "run")
    first, second = (r.tables["nodes"].to_pylist() for r in (plain, away))
    assert first[0]["down_s"][:3] == second[0]["down_s"][:3]
    assert second[1]["down_s"][0] == 0 and second[1]["up_s"][0] >= 30_000


def test_jobs_left_when_the_nodes_are_gone_for_good_are_reported(tmp_path: Path) -> None:
    """All leave at 50 s: the running job is unfinished, the waiting one and the one still to come are refused."""
    trace = jobs([(0, 100, 8), (1, 10, 8), (99, 10, 1)])
    result = audited(run(trace, TWO, "fifo", capacity=capacity(tmp_path, ",,,8", "50,,,0")), tmp_path / "run")
    table = by_job(result)
    assert table["state"].tolist() == ["unfinished", "rejected", "rejected"]
    assert all("the cluster has 0 from 50 s on" in reason for reason in table["reason"])


def test_the_gpus_there_on_average_are_those_of_the_nodes_weighed_by_time(tmp_path: Path) -> None:
    """Node 1 comes at 100 s; node 0 is out from 200 to 250 s. 0 to 300 s: (100·4 + 100·8 + 50·4 + 50·8) / 300 = 6."""
    config = EngineConfig(capacity=capacity(tmp_path, ",,,4", "100,,,8", ",a,,1"),
                          outages=outages(tmp_path, "200,0,0", "250,0,1"))
    table = make_timetable(TWO, ("a",), config, 0.0)
    assert table.mean_gpus(0, 300) == 6
    assert table.mean_gpus(50, 150) == table.mean_gpus(190, 210) == 6
    assert table.mean_gpus(-500, 50) == table.mean_gpus(200, 200) == 4
    assert table.mean_gpus(1000, 1100) == table.mean_gpus(100, 100) == 8
    assert make_timetable(TWO, ("a",), EngineConfig(), 0.0).mean_gpus(3, 9) == 8


# -- jobs that come back, and can never run again ----------------------------------------------------------------------


def test_a_job_that_comes_back_and_can_never_run_again_leaves_and_those_behind_it_run(tmp_path: Path) -> None:
    """The quota falls from 8 to 4 under a job of 8 that runs; its node fails: strict order waits for it no longer."""
    trace = jobs([(0, 1e5, 8), *((200 + 10 * i, 50, 1) for i in range(20))], vc=["a"] + ["b"] * 20)
    file = capacity(tmp_path, ",a,,8", "100,a,,4")
    result = audited(run(trace, TWO, "fifo", capacity=file, mtbf_h=0.2, repair_h=0.001, seed=1), tmp_path / "run")
    table = by_job(result)
    assert table.loc["0", ["state", "reason"]].tolist() == [
        "unfinished", "asks for 8 GPUs, more than its virtual cluster's quota of 4 from 100 s on"]
    first = segments(result).query("job_id == '0'").iloc[-1]
    assert first["end_reason"] == "node_failed" and first["end_s"] > 100
    assert (table["state"][1:] == "done").all()


def test_a_job_with_attempts_left_leaves_after_one_if_it_can_never_run_again(tmp_path: Path) -> None:
    trace = jobs([(0, 200, 8), (10, 50, 1)], vc=["a", "b"], attempts=[2, 1])
    result = audited(run(trace, TWO, "fifo", capacity=capacity(tmp_path, ",a,,8", "50,a,,4")), tmp_path / "run")
    table = by_job(result)
    assert table["state"].tolist() == ["unfinished", "done"]
    assert segments(result)[["job_id", "begin_s", "end_s"]].to_numpy().tolist() == [["0", 0, 100], ["1", 100, 150]]


def test_a_job_that_is_preempted_above_a_quota_that_shrank_for_good_leaves(tmp_path: Path) -> None:
    """`srtf` chooses anew within the quota of 1: the running job of 8 leaves, what waits runs at that same instant."""
    trace = jobs([(0, 1000, 8), (60, 10, 1), (60, 20, 2)], vc=["a", "a", "b"])
    result = audited(run(trace, TWO, "srtf", capacity=capacity(tmp_path, ",a,,8", "50,a,,1")), tmp_path / "run")
    table = by_job(result)
    assert table["state"].tolist() == ["unfinished", "done", "done"]
    assert table.loc["0", "reason"] == "asks for 8 GPUs, more than its virtual cluster's quota of 1 from 50 s on"
    assert begins(result) == {"0": 0, "1": 60, "2": 60}


@dataclass
class Stopper(Fifo):
    """Stops whatever runs at 60 s, and says in the same breath what else to do with it."""

    how: str = "reject"

    def decide(self, view: View) -> Decision:
        if view.now_s != 60 or not view.running.size:
            return super().decide(view)
        rows = view.running.tolist()
        also = {"reject": [(row, "stopped") for row in rows], "rekey": rows}
        return Decision(stop=rows, **{self.how: also[self.how]})


@pytest.mark.parametrize("how", ["reject", "rekey"])
def test_a_policy_may_reject_or_rekey_what_it_stops_though_it_has_left_by_then(tmp_path: Path, how: str) -> None:
    """And it is asked again at once, so that what waited behind it starts."""
    trace = jobs([(0, 1000, 8), (60, 10, 2)], vc=["a", "b"])
    config = EngineConfig(capacity=capacity(tmp_path, ",a,,8", "50,a,,1"))
    result = audited(simulate(trace, TWO, Stopper(how=how), Recorded(trace, TWO), config), tmp_path / "run")
    assert by_job(result)["state"].tolist() == ["unfinished", "done"]
    assert "quota of 1 from 50 s on" in by_job(result).loc["0", "reason"]
    assert begins(result)["1"] == 60


@pytest.mark.parametrize("policy", ["fifo", "easy", "srtf", "fifo-skip"])
def test_a_gang_that_the_rule_never_places_blocks_nobody_although_a_node_is_away_for_good(
    tmp_path: Path, policy: str
) -> None:
    """`first-fit` puts 8 GPUs on two nodes of the largest size, 4: there is one, whether all nodes are there or not."""
    trace = jobs([(0, 10, 8), (0, 10, 1)])
    result = run(trace, nodes(("V100", 1, 4), ("V100", 3, 2)), policy, {"placement": "first-fit"},
                 outages=outages(tmp_path, "-1,3,0"))
    assert by_job(result).loc["0", "reason"] == "placement 'first-fit' cannot place 8 slots even on the idle cluster"
    # A policy that skips what does not fit looks at it once nothing runs.
    assert begins(result) == {"1": 0}


# -- reasons and notes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "srtf", "hetero", "homogeneous", "homogeneous-dp"])
@pytest.mark.parametrize(("rows", "reason"), [
    ([",,,0"], "asks for 2 slots of 1 GPU on any one type; the cluster has 0"),
    ([",a,,0"], "asks for 2 GPUs, more than its virtual cluster's quota of 0"),
    (["-9,,,0"], "asks for 2 slots of 1 GPU on any one type; the cluster has 0"),
    ([",,,8", "50,,,0"], "asks for 2 slots of 1 GPU on any one type; the cluster has 0 from 50 s on"),
])
def test_all_policies_refuse_with_one_reason_where_nothing_is_there(
    tmp_path: Path, policy: str, rows: list[str], reason: str
) -> None:
    trace = jobs([(0, 1, 1), (60, 10, 2)], vc=["b", "a"], model=["resnet50"] * 2, batch_size=[64] * 2)
    result = planned(trace, policy, capacity(tmp_path, *rows))
    assert by_job(result).loc["1", ["state", "reason"]].tolist() == ["rejected", reason]


def test_a_reason_names_the_time_from_which_it_holds(tmp_path: Path) -> None:
    """Not the present step (the outage file's last is at 30 s): `a` has had its quota since the start, `b` since 10 s,
    and `c` will never have more than the 4 that come at 40 s."""
    trace = jobs([(0, 100, 1), (35, 10, 5), (35, 10, 5), (35, 10, 5)], vc=["d", "a", "b", "c"])
    file = capacity(tmp_path, ",a,,3", ",b,,8", "10,b,,3", ",c,,8", "10,c,,2", "40,c,,4")
    result = run(trace, TWO, "fifo", capacity=file, outages=outages(tmp_path, "20,1,0", "30,1,1"))
    assert [reason.split("quota of ")[1] for reason in by_job(result)["reason"][1:]] == [
        "3 from 0 s on", "3 from 10 s on", "at most 4 from 10 s on"]


@pytest.mark.parametrize(("rows", "notes"), [
    (["172800,,,8"], ["all changes of capacity.csv lie after the last submission",
                      "no GPU is there until 172800 s, 2.0 days after the first submission"]),
    (["50,,,8"], ["no GPU is there until 50 s, 0.0 days after the first submission"]),
    (["-9,,,4", "-5,,,8"], ["all changes of capacity.csv lie before the first submission"]),
    ([",,,8", "500,,,4"], ["all changes of capacity.csv lie after the last submission"]),
    (["-9,,,8"], []), ([",,,4", "0,,,8"], []), ([",,,4", "99,,,8"], []), (["-9,,,4", "500,,,8"], []),
    ([",,,0"], ["no GPU is ever there"]),
])
def test_a_run_says_where_a_file_has_another_clock_than_its_jobs(
    tmp_path: Path, rows: list[str], notes: list[str]
) -> None:
    result = run(jobs([(0, 10, 1), (99, 10, 1)]), TWO, "fifo", capacity=capacity(tmp_path, *rows))
    assert result.info["timetable"]["notes"] == notes


def test_an_outage_file_that_ends_before_the_first_submission_is_noted(tmp_path: Path) -> None:
    result = run(jobs([(0, 10, 1)]), TWO, "fifo", outages=outages(tmp_path, "-9,0,0", "-5,0,1"))
    assert result.info["timetable"]["notes"] == ["all changes of outages.csv lie before the first submission"]


# -- by law ------------------------------------------------------------------------------------------------------------

COUNTS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", "a", "b"]), st.integers(0, 12)), max_size=12,
                  unique_by=lambda row: row[:2])
WORK = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 25), st.integers(1, 12), st.sampled_from("abc")),
                min_size=1, max_size=12)


@settings(max_examples=60, suppress_health_check=ONE_FOLDER)
@given(rows=COUNTS, work=WORK, policy=st.sampled_from(["fifo", "fifo_skip", "srtf", "easy"]))
def test_nothing_is_lost_and_never_more_is_held_than_is_there(
    tmp_path: Path, rows: list[tuple[int, str, int]], work: list[tuple[int, int, int, str]], policy: str
) -> None:
    """P-16: at each begin of a segment, what all jobs hold is at most what the file counts then, and every job has an
    outcome: done, or a reason; none waits for ever for what never comes."""
    trace = jobs([row[:3] for row in work], vc=[row[3] for row in work])
    known = [row for row in rows if row[1] in {"", *trace.vc.tolist()}]
    file = capacity(tmp_path, *(f"{t},{vc},,{gpus}" for t, vc, gpus in known)) if known else None
    result = run(trace, nodes(("V100", 4, 3)), policy, capacity=file)
    table = by_job(result)
    assert set(table["state"]) <= {"done", "rejected", "unfinished"}
    assert (table["reason"] != "").equals(table["state"] != "done")
    assert not table["reason"].str.contains("policy leaves it waiting").any()
    count = sorted((t, gpus) for t, vc, gpus in known if vc == "")
    held = segments(result)
    held["size"] = held["gpu_ids"].map(len)
    for now_s in held["begin_s"]:
        before = [gpus for t, gpus in count if t <= now_s]
        most = 12 if not count else before[-1] if before else 0
        assert held[(held["begin_s"] <= now_s) & (held["end_s"] > now_s)]["size"].sum() <= most
    audited(result, tmp_path / "run")


def test_without_files_a_run_is_what_it_was_and_with_files_that_change_nothing_too(tmp_path: Path) -> None:
    trace = jobs([(i, 50 + i, 1 + i % 8) for i in range(40)], vc=["a", "b"] * 20)
    plain = run(trace, TWO, "srtf")
    assert "timetable" not in plain.info
    same = run(trace, TWO, "srtf", capacity=capacity(tmp_path, ",,,8", ",a,,8", ",b,,8"))
    assert plain.tables["segments"].equals(same.tables["segments"])
    assert same.info["timetable"]["steps"] == 0


def test_a_run_with_files_is_reproducible(tmp_path: Path) -> None:
    trace = jobs([(i, 50 + i, 1 + i % 8) for i in range(40)])
    file = capacity(tmp_path, "0,,,4", "100,,,8", "300,,,4", "1000,,,8")
    first, second = (run(trace, TWO, "las", capacity=file) for _ in range(2))
    assert json.dumps(first.info) == json.dumps(second.info)
    assert all(first.tables[name].equals(second.tables[name]) for name in first.tables)


def test_a_policy_that_sizes_gangs_waits_for_the_quota_as_well(tmp_path: Path) -> None:
    """`hetero` knows how large the quota ever is, not when; where none is ever there the job is refused."""
    trace = jobs([(0, 100, 2), (0, 100, 2)], vc=["a", "b"], model=["resnet50"] * 2, batch_size=[64] * 2)
    result = audited(planned(trace, "hetero", capacity(tmp_path, "0,a,,0", "500,a,,4", "0,b,,0")), tmp_path / "run")
    assert begins(result) == {"0": 500}
    assert by_job(result)["state"].tolist() == ["done", "rejected"]


# -- the audit ---------------------------------------------------------------------------------------------------------


def test_the_audit_finds_a_start_above_the_quota_of_its_time(tmp_path: Path) -> None:
    trace = jobs([(0, 100, 4), (0, 100, 4), (60, 10, 2)], vc=["a"] * 3)
    result = run(trace, TWO, "fifo", capacity=capacity(tmp_path, ",a,,8", "50,a,,2"))
    result.info["timetable"]["quotas"]["a"] = [[0.0, 8], [50.0, 1]]
    result.write(tmp_path / "run")
    found = [str(v) for v in audit(load_run(tmp_path / "run")).violations]
    assert len(found) == 1 and "at 100 s: virtual cluster 'a' holds 2000 milli of 1000" in found[0]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "message"), [
    (["0,,A100,4"], "a GPU type that the cluster lacks"),
    (["0,,V100,9"], "more GPUs are counted than the cluster has"),
    (["0,,V100,4", "0,,,4"], "GPUs of any type and of one type"),
    (["0,,V100,4", "0,,V100,8"], "two counts at one time"),
    (["0,z,,4"], "the trace has none of the virtual clusters"),
    (["0,,V100,-4"], "value not allowed"),
    (["0,,V100,4.5"], "value not allowed"),
    (["soon,,V100,4"], "value not allowed"),
    (["0,,V100"], "wrong number of cells"),
    ([], "has no rows"),
])
def test_a_capacity_file_is_read_strictly(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(HetsimError, match=message):
        run(jobs([(0, 10, 1)], vc=["a"]), TWO, "fifo", capacity=capacity(tmp_path, *rows))


def test_a_quota_of_one_type_is_refused_on_a_cluster_of_several(tmp_path: Path) -> None:
    """Quotas count GPUs of any type: 4 V100 for `a` would let it hold 4 T4."""
    file = capacity(tmp_path, "0,a,V100,4")
    trace = jobs([(0, 10, 1)], vc=["a"])
    with pytest.raises(ClusterError, match="a quota is of GPUs of any type"):
        run(trace, nodes(("V100", 1, 4), ("T4", 1, 4)), "fifo", capacity=file)
    assert by_job(run(trace, TWO, "fifo", capacity=file))["state"].tolist() == ["done"]


def test_a_virtual_cluster_has_one_quota(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two quotas"):
        run(jobs([(0, 10, 1)], vc=["a"]), TWO, "fifo", capacity=capacity(tmp_path, "0,a,,4"), quotas={"a": 2})


@pytest.mark.parametrize(("rows", "message"), [
    (["0,2,0"], "value not allowed"),
    (["0,0,2"], "value not allowed"),
    (["0,0,1"], "node 0 is up already"),
    (["0,0,0", "5,0,0"], "node 0 is down already"),
    (["0,0,0", "0,0,1"], "node 0 is up already"),
])
def test_an_outage_file_is_read_strictly(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        run(jobs([(0, 10, 1)]), TWO, "fifo", outages=outages(tmp_path, *rows))
