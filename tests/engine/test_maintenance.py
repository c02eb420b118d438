"""Maintenance windows: GPUs are drained, go out and come back; by hand, by law, and what the audit and measures say."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import metrics
from analysis.audit import audit
from analysis.measuring_window import windowed
from analysis.metrics.occupancy import free_gpu_s, gpu_states
from analysis.metrics.series import capacity
from analysis.run import Run, load_run
from policies.ordering.fifo_skip import FifoSkip
from policies.registry import make
from sim.api import Decision, IllegalDecisionError, Placement, Policy, PolicyError, View, Window
from sim.cluster.maintenance import MAINTENANCE
from sim.cluster.spec import ClusterSpec, Ledger
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled, Recorded
from tests.helpers import by_job, jobs, nodes, run, segments
from traces.errors import TraceError
from traces.trace import Trace

ONE, TWO = nodes(("V100", 1, 8)), nodes(("V100", 2, 8))


def windows(folder: Path, *rows: str) -> str:
    path = folder / "maintenance.csv"
    path.write_text(",".join(MAINTENANCE) + "\n" + "".join(row + "\n" for row in rows))
    return str(path)


def loaded(result: RunResult, folder: Path) -> Run:
    """The run as its files tell it; the audit finds nothing."""
    result.write(folder)
    one = load_run(folder)
    report = audit(one)
    assert report.ok, report.text
    return one


def under(policy: Policy, trace: Trace, cluster: ClusterSpec, **engine: Any) -> RunResult:
    config = EngineConfig(**{"preemption_overhead_s": 0.0, **engine})
    return simulate(trace, cluster, policy, Recorded(trace, cluster), config)


def told(result: RunResult) -> list[list[Any]]:
    """Job, begin, end and why, of each segment in order of begin."""
    return segments(result)[["job_id", "begin_s", "end_s", "end_reason"]].to_numpy().tolist()


# -- drained, out, back ------------------------------------------------------------------------------------------------


def test_a_drain_lets_jobs_go_on_and_starts_none(tmp_path: Path) -> None:
    """Drained from 50 s, out from 200 to 300 s: the job that runs ends at 100 s, the next starts when all is back."""
    file = windows(tmp_path, "0,,50,200,300,")
    result = run(jobs([(0, 100, 8), (60, 10, 1)]), ONE, "fifo", maintenance=file)
    assert told(result) == [["0", 0, 100, "done"], ["1", 300, 310, "done"]]
    log = loaded(result, tmp_path / "run").maintenance
    assert log.to_numpy().tolist() == [[0, gpu, 50, 200, 300] for gpu in range(8)]


def test_what_still_runs_when_gpus_go_out_is_interrupted_and_keeps_its_work(tmp_path: Path) -> None:
    file = windows(tmp_path, "0,3,,40,90,")
    trace = jobs([(0, 100, 8)])
    kept, lost = (run(trace, ONE, "fifo", maintenance=file, preempted_work=how, checkpoint_interval_s=30.0)
                  for how in ("kept", "lost"))
    assert told(kept) == [["0", 0, 40, "maintenance"], ["0", 90, 150, "done"]]
    assert told(lost) == [["0", 0, 40, "maintenance"], ["0", 90, 160, "done"]]
    assert segments(lost)["work_lost"].tolist() == [10, 0]


def test_a_job_that_ends_as_its_gpus_go_out_has_ended_and_one_starts_as_they_are_back(tmp_path: Path) -> None:
    result = run(jobs([(0, 40, 8), (1, 5, 8)]), ONE, "fifo", maintenance=windows(tmp_path, "0,,,40,90,"))
    assert told(result) == [["0", 0, 40, "done"], ["1", 90, 95, "done"]]
    loaded(result, tmp_path / "run")


def test_a_job_of_a_whole_node_goes_elsewhere_while_one_gpu_is_bad(tmp_path: Path) -> None:
    """GPU 5 of node 0 is out until 500 s: 8 GPUs are on node 1 only, 7 stay on node 0."""
    file = windows(tmp_path, "0,5,,-10,500,")
    trace = jobs([(0, 100, 8), (0, 100, 8), (0, 50, 4), (0, 50, 3), (0, 20, 1)])
    result = run(trace, TWO, "fifo_skip", {"placement": "best-fit"}, maintenance=file)
    table = segments(result).set_index("job_id")
    assert [list(table.loc[row, "nodes"]) for row in "0123"] == [[1], [1], [0], [0]]
    assert table.loc["1", "begin_s"] == 100 and table.loc["4", "begin_s"] == 50
    assert 5 not in np.concatenate(table["gpu_ids"].to_numpy())
    loaded(result, tmp_path / "run")


def test_a_job_that_waits_for_a_bad_gpu_starts_when_it_is_back_and_leaves_where_it_never_is(tmp_path: Path) -> None:
    trace = jobs([(0, 100, 8), (1, 10, 7)])
    waits = run(trace, ONE, "fifo", maintenance=windows(tmp_path, "0,0,,0,70,"))
    assert told(waits) == [["0", 70, 170, "done"], ["1", 170, 180, "done"]]
    never = run(trace, ONE, "fifo", maintenance=windows(tmp_path, "0,0,30,40,,"))
    table = by_job(never)
    assert table["state"].tolist() == ["unfinished", "done"]
    assert table.loc["0", "reason"] == "asks for 8 slots of 1 GPU on any one type; the cluster has 7 from 30 s on"
    loaded(never, tmp_path / "run")


def test_workers_of_several_gpus_lack_the_pair_of_a_bad_gpu(tmp_path: Path) -> None:
    """Workers of 4 on nodes of 8: with one GPU bad for good, 3 workers are there, and 4 never are."""
    trace = jobs([(0, 10, 16), (0, 10, 12)], worker_gpus=[4, 4])
    table = by_job(run(trace, TWO, "fifo", maintenance=windows(tmp_path, "0,0,,0,,")))
    assert table["state"].tolist() == ["rejected", "done"]
    assert "at a time on a node; the cluster has 12 that lie so" in table.loc["0", "reason"]


def test_a_policy_that_waits_for_nothing_is_told_what_is_in_maintenance(tmp_path: Path) -> None:
    """14 GPUs are there, but 8 of them on no node: best-fit leaves the gang waiting for ever."""
    file = windows(tmp_path, "0,0,,0,,", "1,0,,0,,")
    table = by_job(run(jobs([(0, 10, 8)]), TWO, "fifo", {"placement": "best-fit"}, maintenance=file))
    assert table.loc["0", "reason"] == (
        "the policy leaves it waiting on an idle cluster, of which 2 GPUs are in maintenance")


@pytest.mark.parametrize("policy", ["srtf", "srsf", "las", "tiresias"])
def test_policies_that_preempt_leave_jobs_on_drained_gpus_and_put_none_there(tmp_path: Path, policy: str) -> None:
    """A long job holds the drained node; short ones come: they take the other node, and preempt nobody on this one."""
    trace = jobs([(0, 1000, 8), (1, 400, 8), *((20 + i, 30, 4) for i in range(4))])
    result = run(trace, TWO, policy, maintenance=windows(tmp_path, "0,,10,2000,3000,"))
    mine = segments(result).query("job_id == '0'")
    assert mine["end_reason"].tolist() == ["done"] and list(mine["nodes"].iloc[0]) == [0]
    assert all(0 not in held for held in segments(result).query("begin_s > 10")["nodes"])
    loaded(result, tmp_path / "run")


@pytest.mark.parametrize("policy", ["hetero", "homogeneous"])
def test_planners_move_no_job_with_a_bad_gpu_onto_it(tmp_path: Path, policy: str) -> None:
    cluster = nodes(("V100", 2, 4), ("T4", 2, 4))
    trace = jobs([(60 * i, 3600, 4) for i in range(8)], model=["resnet50"] * 8, batch_size=[256] * 8)
    performance = Performance()
    truth = Modelled(trace, cluster, performance, gpu_type("V100"))
    file = windows(tmp_path, "0,1,300,9000,12000,", "2,,400,5000,6000,")
    result = simulate(trace, cluster, make(policy), truth, EngineConfig(maintenance=file), performance=performance,
                      estimate_s=trace.duration_s)
    assert (by_job(result)["state"] == "done").all()
    loaded(result, tmp_path / "run")


def test_easy_promises_no_gpus_that_are_closed(tmp_path: Path) -> None:
    """What runs on the drained node ends at 100 s and gives nothing; 8 GPUs are free at 200 s, so 150 s fit before."""
    trace = jobs([(0, 100, 8), (0, 200, 4), (10, 50, 8), (10, 150, 4)])
    result = run(trace, TWO, "easy", maintenance=windows(tmp_path, "0,,5,1000,,"))
    assert segments(result).set_index("job_id")["begin_s"].to_dict() == {"0": 0, "1": 0, "3": 10, "2": 200}


def test_a_policy_that_asks_for_a_drained_gpu_is_refused(tmp_path: Path) -> None:
    @dataclass
    class Blind(Policy):
        """Takes GPU 0 whatever it is."""

        def decide(self, view: View) -> Decision:
            return Decision(start=[(row, Placement(np.array([0], np.int32))) for row in view.queued.tolist()])

    with pytest.raises(IllegalDecisionError, match="a GPU that is not free was asked for; got 'GPU 0"):
        under(Blind(), jobs([(0, 10, 1)]), ONE, maintenance=windows(tmp_path, "0,0,,-5,50,"))


# -- known in advance --------------------------------------------------------------------------------------------------


@dataclass
class Careful(FifoSkip):
    """Starts no job that would still run when the next window that is known takes its GPUs out."""

    knows_maintenance: ClassVar[bool] = True
    needs_estimates: ClassVar[bool] = True

    def decide(self, view: View) -> Decision:
        if not view.maintenance:
            return super().decide(view)
        down_s = min(window.down_s for window in view.maintenance)
        return Decision(start=self.admit(view, view.queued[view.now_s + view.estimate_s[view.queued] <= down_s], True))


@dataclass
class Listener(FifoSkip):
    """Notes at each decision what is known."""

    knows_maintenance: ClassVar[bool] = True

    def prepare(self, view: View) -> None:
        super().prepare(view)
        self.heard = [("prepare", view.maintenance)]

    def decide(self, view: View) -> Decision:
        self.heard.append((view.now_s, view.maintenance))
        return super().decide(view)


def test_a_window_known_in_advance_lets_a_careful_policy_avoid_the_loss(tmp_path: Path) -> None:
    """All is out from 100 to 150 s, and work is lost: who knows runs the short job first, and loses nothing."""
    trace = jobs([(0, 120, 8), (0, 80, 8)])
    engine = {"maintenance": windows(tmp_path, "0,,100,100,150,"), "preempted_work": "lost",
              "checkpoint_interval_s": float("inf")}
    blind = run(trace, ONE, "fifo_skip", **engine)
    config = EngineConfig(preemption_overhead_s=0.0, **engine)
    careful = simulate(trace, ONE, Careful(), Recorded(trace, ONE), config, estimate_s=trace.duration_s)
    assert told(blind) == [["0", 0, 100, "maintenance"], ["0", 150, 270, "done"], ["1", 270, 350, "done"]]
    assert told(careful) == [["1", 0, 80, "done"], ["0", 150, 270, "done"]]
    assert segments(careful)["work_lost"].sum() == 0 < segments(blind)["work_lost"].sum()


def test_a_policy_knows_of_a_window_from_then_on_and_is_asked_then(tmp_path: Path) -> None:
    """One is known from the start, one from 30 s on; both are forgotten once they are over."""
    listener = Listener()
    file = windows(tmp_path, "0,2,40,50,60,", "0,,70,80,90,30")
    under(listener, jobs([(0, 200, 1)]), ONE, maintenance=file)
    heard = [(when, [window.down_s for window in known]) for when, known in listener.heard]
    assert heard == [("prepare", [50]), (0, [50]), (30, [50, 80]), (40, [50, 80]), (50, [50, 80]), (60, [80]),
                     (70, [80]), (80, [80]), (90, [])]
    window = listener.heard[0][1][0]
    assert isinstance(window, Window)
    assert (window.node, window.gpus.tolist(), window.drain_s, window.up_s) == (0, [2], 40, 60)


def test_a_policy_that_declares_nothing_reads_nothing_and_is_not_asked_more_often(tmp_path: Path) -> None:
    @dataclass
    class Curious(FifoSkip):
        """Reads what it did not declare."""

        def decide(self, view: View) -> Decision:
            assert view.announced is None
            return Decision() if view.maintenance else super().decide(view)

    file = windows(tmp_path, "0,2,40,50,60,30")
    with pytest.raises(PolicyError, match="without declaring knows_maintenance"):
        under(Curious(), jobs([(0, 10, 1)]), ONE, maintenance=file)
    quiet = run(jobs([(0, 20, 1), (100, 10, 1)]), ONE, "fifo", maintenance=file)
    assert 30 not in quiet.tables["decisions"]["now_s"].to_pylist()


def test_news_that_is_to_come_is_waited_for(tmp_path: Path) -> None:
    """A policy may wait on an idle cluster until it hears of a window; then it decides."""
    @dataclass
    class Patient(FifoSkip):
        """Starts nothing before it knows of a window."""

        knows_maintenance: ClassVar[bool] = True

        def decide(self, view: View) -> Decision:
            return super().decide(view) if view.maintenance else Decision()

    result = under(Patient(), jobs([(0, 20, 1)]), ONE, maintenance=windows(tmp_path, "0,2,400,500,600,300"))
    assert told(result) == [["0", 300, 320, "done"]]


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "message"), [
    (["2,,,5,9,"], "column 'node': value not allowed; got '2'"),
    (["0,8,,5,9,"], "column 'gpu': value not allowed; got '8'"),
    (["1,4,,5,9,"], "line 2, column 'gpu': node 1 has no such GPU; got 4; allowed: 0 to 3, or blank"),
    (["0,0,,,9,"], "column 'down_s': value not allowed"),
    (["0,0,6,5,9,"], "column 'drain_s': the times of a window are not in order; got 6.0; allowed: known_s ≤ drain_s"),
    (["0,0,,5,5,"], "column 'down_s': the times of a window are not in order"),
    (["0,0,3,5,9,4"], "column 'known_s': the times of a window are not in order"),
    (["0,,,5,9,", "0,3,8,12,14,"], "line 3, column 'node': a GPU is in another window then; got 'GPU 3 of the cluster"),
    (["0,3,,5,,", "0,3,,50,60,"], "allowed: from inf s on"),
])
def test_a_maintenance_file_is_read_strictly(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(TraceError) as error:
        run(jobs([(0, 10, 1)]), nodes(("V100", 1, 8), ("V100", 1, 4)), "fifo", maintenance=windows(tmp_path, *rows))
    assert message in str(error.value)


def test_one_window_may_begin_as_another_ends_and_what_is_over_before_the_start_is_nothing(tmp_path: Path) -> None:
    file = windows(tmp_path, "0,,50,60,90,", "0,1,20,30,50,", "0,,-9,-8,-7,")
    result = run(jobs([(0, 100, 8)]), ONE, "fifo", maintenance=file)
    assert told(result) == [["0", 0, 30, "maintenance"], ["0", 90, 160, "done"]]
    log = loaded(result, tmp_path / "run").maintenance
    assert len(log) == 9 and log.query("gpu == 1").to_numpy().tolist() == [[0, 1, 20, 30, 50], [0, 1, 50, 60, 90]]
    told_of = result.info["timetable"]
    assert told_of["maintenance"]["file"] == "maintenance.csv" and told_of["notes"] == []


def test_a_file_on_another_clock_is_noted(tmp_path: Path) -> None:
    result = run(jobs([(0, 10, 1)]), ONE, "fifo", maintenance=windows(tmp_path, "0,,-9,-8,-7,"))
    assert result.info["timetable"]["notes"] == ["all changes of maintenance.csv lie before the first submission"]


# -- measures ----------------------------------------------------------------------------------------------------------


def test_gpus_that_are_out_are_not_there_and_those_that_are_drained_are(tmp_path: Path) -> None:
    """GPUs 0 and 1 of 8 are out from 40 to 60 s, the node is away from 50 to 70 s; the run lasts 100 s."""
    (tmp_path / "outages.csv").write_text("time_s,node,up\n50,0,0\n70,0,1\n")
    file = windows(tmp_path, "0,0,20,40,60,", "0,1,20,40,60,")
    trace = jobs([(0, 20, 8), (90, 10, 8)])
    one = loaded(run(trace, ONE, "fifo", maintenance=file, outages=str(tmp_path / "outages.csv")), tmp_path / "run")
    assert one.gpus_out.to_numpy().tolist() == [[0, 0, 40, 50], [0, 1, 40, 50]]
    there = 8 * 80 - 2 * 10
    assert metrics.capacity_gpu_s(one).tolist() == [there]
    assert metrics.utilisation(one)["all"] == 8 * 30 / there
    assert free_gpu_s(one).tolist() == [there - 8 * 30]
    state = gpu_states(one)
    assert (state.length_s * (state.held_milli + state.free_milli)).sum() == 1000 * there
    levels = capacity(one)
    assert levels.to_numpy().tolist() == [[0, 8], [40, 6], [50, 0], [70, 8]]
    cut = windowed(one, 45, 95)
    assert metrics.capacity_gpu_s(cut).tolist() == [8 * 30 - 2 * 5]
    assert cut.maintenance[["drain_s", "out_s", "back_s"]].to_numpy().tolist() == [[45, 45, 60]] * 2


# -- laws --------------------------------------------------------------------------------------------------------------


@st.composite
def plans(draw: st.DrawFn) -> list[str]:
    """Windows on two nodes of four GPUs that do not overlap on any GPU."""
    rows = []
    for node in (0, 1):
        for gpu in [""] if draw(st.booleans()) else map(str, range(4)):
            now = draw(st.integers(-10, 60))
            for _ in range(draw(st.integers(0, 2))):
                drain, down, up = now, now + draw(st.integers(0, 20)), ""
                if draw(st.integers(0, 4)):
                    up = str(down + draw(st.integers(1, 30)))
                rows.append(f"{node},{gpu},{drain},{down},{up},")
                if not up:
                    break
                now = int(up) + draw(st.integers(0, 20))
    return rows or ["0,0,1,2,3,"]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(plans(), st.sampled_from(["fifo", "fifo_skip", "easy", "srtf", "srsf", "las", "tiresias"]), st.booleans(),
       st.lists(st.tuples(st.integers(0, 80), st.integers(1, 40), st.sampled_from([1, 1, 2, 4, 6]),
                          st.sampled_from([1000, 1000, 500, 300])), min_size=1, max_size=12))
def test_drained_gpus_start_nothing_whatever_fails_besides(
    rows: list[str], policy: str, failing: bool, drawn: list[tuple[int, int, int, int]]
) -> None:
    """The audit proves it from the tables; each job ends, or says why not; work lost and done is work asked for."""
    trace = jobs([row[:3] for row in drawn], gpu_milli=[row[3] for row in drawn])
    faults = {"mtbf_h": 0.02, "repair_h": 0.004, "checkpoint_interval_s": 5.0} if failing else {}
    with tempfile.TemporaryDirectory() as folder:
        file = windows(Path(folder), *rows)
        result = run(trace, nodes(("V100", 2, 4)), policy, maintenance=file, **faults)
        one = loaded(result, Path(folder) / "run")
    table = by_job(result)
    left = table[table["state"] != "done"]
    assert (left["reason"].str.contains("the cluster has|waiting on an idle cluster|nodes fail faster")).all()
    used = segments(result)
    net = (used["work_done"] - used["work_lost"]).groupby(used["job_id"]).sum()
    done = table[table["state"] == "done"]
    np.testing.assert_allclose(net.reindex(done.index), done["duration_s"], rtol=1e-9)
    there, held = metrics.capacity_gpu_s(one).sum(), metrics.held_gpu_s(one).sum()
    assert held <= there + 1e-6
    np.testing.assert_allclose(free_gpu_s(one).sum(), there - held, rtol=1e-9, atol=1e-6)


CHANGES = st.lists(st.tuples(st.sampled_from(["close", "reopen", "down", "up", "take", "give"]), st.integers(0, 7),
                             st.sampled_from([1000, 500, 300])), max_size=60)


@given(CHANGES)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_the_ledger_is_whole_again_after_everything_in_any_order(changes: list[tuple[str, int, int]]) -> None:
    """A GPU is free where it is open, its node up, and nobody holds it; else nobody takes of it. Then all is undone."""
    cluster = nodes(("V100", 1, 4), ("T4", 1, 4))
    ledger, fresh = Ledger(cluster), Ledger(cluster)
    closed, down, held = set(), set(), []
    for what, gpu, milli in changes:
        node, one = gpu // 4, np.array([gpu], dtype=np.int32)
        if what == "close" and gpu not in closed:
            ledger.close(one)
            closed.add(gpu)
        elif what == "reopen" and gpu in closed:
            ledger.reopen(one)
            closed.remove(gpu)
        elif what == "down" and node not in down:
            for other in [entry for entry in held if entry[0] // 4 == node]:
                ledger.give(np.array([other[0]], dtype=np.int32), other[1])
                held.remove(other)
            ledger.node_down(node)
            down.add(node)
        elif what == "up" and node in down:
            ledger.node_up(node)
            down.remove(node)
        elif what == "take":
            free = 1000 - sum(m for g, m in held if g == gpu)
            may = gpu not in closed and node not in down and free >= milli
            assert (ledger.take(one, milli) < 0) == may
            held += [(gpu, milli)] * may
        elif what == "give" and held:
            other = held.pop()
            ledger.give(np.array([other[0]], dtype=np.int32), other[1])
        for g in range(8):
            free = 1000 - sum(m for h, m in held if h == g)
            assert max(0, ledger.free_milli[g]) == (0 if g in closed or g // 4 in down else free)
            assert (ledger.free_milli[g] < 0) == (g in closed)
        whole = [sum(ledger.free_milli[4 * n : 4 * n + 4] == 1000) for n in (0, 1)]
        assert ledger.idle.tolist() == ledger.type_idle.tolist() == whole
    for gpu, milli in held:
        ledger.give(np.array([gpu], dtype=np.int32), milli)
    for gpu in closed:
        ledger.reopen(np.array([gpu], dtype=np.int32))
    for node in down:
        ledger.node_up(node)
    for name in ("free_milli", "idle", "type_idle"):
        assert np.array_equal(getattr(ledger, name), getattr(fresh, name))
