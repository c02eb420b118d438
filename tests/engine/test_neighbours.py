"""Neighbours come and go: jobs that share a link or a GPU slow each other down from then on, by hand and by law."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audit import audit
from analysis.metrics import preemptions, queue_s
from analysis.run import Run
from analysis.tables import summary_table
from policies.registry import make
from sim.api import Decision, HetsimError, Placement, Plan, Policy, View
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError
from sim.settings.config import EngineConfig, RunConfig
from sim.sweeps.replay import Replay
from sim.workload.progress import Modelled, ProgressError, Recorded
from tests.helpers import by_job, jobs, nodes, run, segments
from traces.trace import Trace

TWO = nodes(("V100", 2, 4))
"""Node 0 has the GPUs 0 to 3, node 1 the GPUs 4 to 7."""
GOLDEN = (math.sqrt(5) - 1) / 2


class Toys(Recorded):
    """Work is iterations of 2 s alone: `network` s of them on the network where a job is on two nodes."""

    mode, unit = "iterations", "iterations"

    def __init__(self, trace: Trace, cluster: ClusterSpec, network: float = 1.0, iteration_s: float = 2.0) -> None:
        super().__init__(trace, cluster)
        self._network, self._iteration_s, self._cluster = network, iteration_s, cluster
        self._share = (trace.gpu_milli / 1000).tolist()

    def rate(self, row: int, gpus: np.ndarray, plan: Plan | None) -> float:
        return self._share[row] / self._iteration_s

    def lacks(self, what: str) -> str:
        return ""

    def network_s(self, row: int, gpus: np.ndarray, plan: Plan | None) -> float:
        return self._network if len(np.unique(self._cluster.gpu_node[gpus])) > 1 else 0.0


@dataclass
class Script(Policy):
    """Each job starts when it comes, on the GPUs written down for it; some are stopped and go on at set times."""

    name = "script"
    gpus: dict[int, list[int]] = field(default_factory=dict)
    stop: dict[float, int] = field(default_factory=dict)
    hold: dict[int, float] = field(default_factory=dict)
    """Time at which a stopped job may start again."""

    def decide(self, view: View) -> Decision:
        stop = [row for time, row in self.stop.items() if time == view.now_s]
        free = [r for r in view.queued.tolist() if view.now_s >= self.hold.get(r, 0.0) or view.now_s < min(self.stop)]
        start = [(row, Placement(np.array(self.gpus[row], dtype=np.int32))) for row in free]
        later = [time for time in (*self.stop, *self.hold.values()) if time > view.now_s]
        return Decision(start=start, stop=stop, wake_s=min(later, default=None))


def play(
    trace: Trace, gpus: list[list[int]], cluster: ClusterSpec = TWO, truth: Any = None,
    policy: dict[str, Any] | None = None, **engine: Any,
) -> RunResult:  # fmt: skip
    """Jobs on given GPUs, with contention unless said otherwise; the audit has to find nothing."""
    config = EngineConfig(**{"preemption_overhead_s": 0.0, "contention": "network", **engine})
    script = Script(dict(enumerate(gpus)), **(policy or {}))
    result = simulate(trace, cluster, script, truth or Toys(trace, cluster), config)
    report = audit(loaded(result))
    assert report.ok, report.text
    return result


def loaded(result: RunResult) -> Run:
    return Run(Path("memory"), result.tables, result.info, result.timing)


def stretches(result: RunResult, job_id: str) -> list[tuple[float, float, str]]:
    table = segments(result).query("job_id == @job_id")
    return list(table[["begin_s", "end_s", "end_reason"]].itertuples(index=False, name=None))


def exactly(value: Any) -> Any:
    return pytest.approx(value, rel=1e-9)


# -- on a link --------------------------------------------------------------------------------------------------------


def test_two_jobs_meet_on_a_link_and_the_one_that_stays_speeds_up_again() -> None:
    """1 s of computing, 1 s of sending. Together sending takes 1 / golden = 1.618 s (r^2 + r = 1).

    Job 0 has done 25 of 100 iterations when job 1 comes for 10, which take 26.18 s; then it has 65 left.
    """
    result = play(jobs([(0, 100, 2), (50, 10, 2)]), [[0, 4], [1, 5]])
    gone = 50 + 10 * (1 + 1 / GOLDEN)
    assert stretches(result, "0") == [
        (0, 50, "respeed"), (50, exactly(gone), "respeed"), (exactly(gone), exactly(gone + 65 * 2), "done"),
    ]  # fmt: skip
    assert stretches(result, "1") == [(50, exactly(gone), "done")]
    assert segments(result)["work_done"].tolist() == exactly([25, 10, 10, 65])
    assert segments(result)["rate"].iloc[-1] == 0.5  # alone again: to the last bit


@pytest.mark.parametrize("count", [2, 3, 4])
def test_jobs_that_only_send_share_evenly(count: int) -> None:
    trace = jobs([(0, 10, 2)] * count)
    result = play(trace, [[i, 4 + i] for i in range(count)], truth=Toys(trace, TWO, network=2.0))
    assert by_job(result)["end_s"].tolist() == exactly([20.0 * count] * count)
    assert len(segments(result)) == count  # they come and go together: nothing to note


def test_who_has_no_neighbour_notices_nothing() -> None:
    """Job 2 is on one node only, job 1 on other nodes: one segment each, as long as alone."""
    cluster = nodes(("V100", 4, 4))
    trace = jobs([(0, 100, 2), (1, 100, 2), (1, 100, 2), (50, 10, 2)])
    result = play(trace, [[0, 4], [8, 12], [2, 3], [1, 5]], cluster)
    assert len(stretches(result, "0")) == 3
    assert stretches(result, "1") == stretches(result, "2") == [(1, 201, "done")]


def test_without_the_setting_or_without_a_meeting_the_tables_are_the_same() -> None:
    trace, apart = jobs([(0, 100, 2), (50, 10, 2), (70, 9, 1)]), [[0, 4], [1, 2], [5]]
    both = [play(trace, apart, contention=kind).tables for kind in ("none", "network")]
    assert all(both[0][name].equals(both[1][name]) for name in both[0])
    meet = play(trace, [[0, 4], [1, 5], [2]], contention="none")
    assert stretches(meet, "0") == [(0, 200, "done")]


def test_a_change_of_speed_is_no_preemption_and_no_wait() -> None:
    done = loaded(play(jobs([(0, 100, 2), (50, 10, 2)]), [[0, 4], [1, 5]]))
    assert preemptions(done) == 0
    assert queue_s(done).tolist() == [0, 0]
    assert done.jobs["first_start_s"].tolist() == [0, 50]


def test_attempts_fail_where_they_would_have() -> None:
    """Two attempts of 50 iterations. The first ends at 100 s; in the second a neighbour comes for 10 at 120."""
    trace = jobs([(0, 100, 2), (120, 10, 2)], attempts=[2, 1])
    gone = 120 + 10 * (1 + 1 / GOLDEN)
    assert stretches(play(trace, [[0, 4], [1, 5]]), "0") == [
        (0, 100, "failed"), (100, 120, "respeed"), (120, exactly(gone), "respeed"),
        (exactly(gone), exactly(gone + 30 * 2), "done"),
    ]  # fmt: skip


def test_a_restart_takes_as_long_though_a_neighbour_comes_in_the_middle() -> None:
    """Job 0, stopped at 100 and on again at 110, restarts until 140; job 1 comes at 120, at 140 both do iterations."""
    trace = jobs([(0, 100, 2), (120, 30, 2)])
    policy = {"stop": {100.0: 0}, "hold": {0: 110.0}}
    result = play(trace, [[0, 4], [1, 5]], policy=policy, preemption_overhead_s=30.0)
    one = segments(result).query("job_id == '0'")
    assert one["overhead_s"].tolist() == [0, 30, 20, 0]
    gone = 120 + 30 * (1 + 1 / GOLDEN)
    done = (gone - 140) / (1 + 1 / GOLDEN)
    assert one["work_done"].tolist() == exactly([50, 0, done, 50 - done])
    assert one["end_s"].iloc[-1] == exactly(gone + (50 - done) * 2)


@pytest.mark.parametrize(("every_s", "kept"), [
    (0.0, 25 + 30 / (1 + 1 / GOLDEN)),  # continuously: nothing is lost
    (30.0, 25 + 10 / (1 + 1 / GOLDEN)),  # at 30 and 60 s of work, the second of them among neighbours
    (45.0, 22.5),  # at 45 s: before the neighbour came
    (math.inf, 0.0),
])  # fmt: skip
def test_checkpoints_go_on_through_a_change_of_speed(every_s: float, kept: float) -> None:
    """Job 0 works from 0, among neighbours from 50, and is thrown out at 80."""
    trace, policy = jobs([(0, 100, 2), (50, 30, 2)]), {"stop": {80.0: 0}, "hold": {0: 500.0}}
    result = play(trace, [[0, 4], [1, 5]], policy=policy, preempted_work="lost", checkpoint_interval_s=every_s)
    one = segments(result).query("job_id == '0'")
    assert (one["work_done"] - one["work_lost"]).iloc[:2].sum() == pytest.approx(kept, rel=1e-9, abs=1e-9)
    assert one["work_done"].iloc[2] == exactly(100 - kept)
    assert one["begin_s"].iloc[2] == 500


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[tuple[float, float, int]], float]:
    rows = draw(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60)), min_size=2, max_size=6))
    return [(float(s), float(d), 2) for s, d in sorted(rows)], draw(st.sampled_from([0.2, 1.0, 1.9]))


@settings(max_examples=60)
@given(crowds())
def test_on_one_link_all_work_is_done_nobody_gains_and_nobody_loses_by_anothers_absence(crowd: Any) -> None:
    rows, network = crowd
    wide = nodes(("V100", 2, 8))
    gpus = [[i, 8 + i] for i in range(len(rows))]
    trace = jobs(rows)
    full = by_job(play(trace, gpus, wide, Toys(trace, wide, network)))
    alone = trace.submit_s + 2 * trace.duration_s
    assert (full["end_s"] >= alone * (1 - 1e-12)).all()
    fewer = jobs(rows[:-1])
    ends = by_job(play(fewer, gpus, wide, Toys(fewer, wide, network)))["end_s"].to_numpy()
    assert (ends <= full["end_s"].to_numpy()[:-1] * (1 + 1e-8)).all()


@settings(max_examples=40)
@given(st.permutations(range(5)))
def test_names_and_numbers_do_not_matter(order: list[int]) -> None:
    """Five jobs that come at once, in a chain over three nodes: who is listed first makes no difference."""
    cluster = nodes(("V100", 3, 4))
    work, gpus = [10.0, 20.0, 30.0, 40.0, 50.0], [[0, 4], [1, 8], [5, 9], [2, 6], [3, 7]]
    usual = by_job(play(jobs([(0, w, 2) for w in work]), gpus, cluster))["end_s"].to_numpy()
    other = play(jobs([(0, work[i], 2) for i in order]), [gpus[i] for i in order], cluster)
    assert by_job(other)["end_s"].to_numpy() == exactly(usual[order])


# -- on a GPU ---------------------------------------------------------------------------------------------------------


def test_taking_turns_costs_a_part_of_the_time_while_there_are_two() -> None:
    """Replayed as recorded: at 0.8 of the speed from 10 s until job 1 has done its 20 s, at 35; then 70 s are left."""
    trace = jobs([(0, 100, 1), (10, 20, 1)], gpu_milli=[500, 500])
    result = play(trace, [[0], [0]], truth=Recorded(trace, TWO), contention="none", sharing="time", switching_loss=0.2)
    assert stretches(result, "0") == [(0, 10, "respeed"), (10, 35, "respeed"), (35, exactly(105), "done")]
    assert stretches(result, "1") == [(10, 35, "done")]


def test_side_by_side_a_job_alone_has_the_whole_gpu_and_two_fill_it() -> None:
    """V100: each keeps 0.75 of it busy. Alone 1 iteration takes 2 s though the share is a half; together 3 s."""
    trace = jobs([(0, 100, 1), (50, 10, 1)], gpu_milli=[500, 500])
    result = play(trace, [[0], [0]], contention="none", sharing="spatial")
    assert [end for _, end, _ in stretches(result, "0")] == exactly([50, 80, 210])
    assert segments(result)["rate"].tolist() == exactly([1 / 2, 1 / 3, 1 / 3, 1 / 2])


@pytest.mark.parametrize("sharing", ["free", "time", "spatial", "slice"])
def test_a_job_alone_on_its_share_takes_as_long_as_its_log_says(tmp_path: Path, sharing: str) -> None:
    """Half a V100 for 1,000 s: what a share does to the rate, it does to the work. Two jobs of 0.75 take 1.5 times."""
    rows = "".join(f"{i},{at_s},1000,1,500,resnet50,32\n" for i, at_s in enumerate((0, 5000, 5000)))
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,duration_s,num_gpus,gpu_milli,model,batch_size\n" + rows)
    config = RunConfig(trace=str(tmp_path / "jobs.csv"), cluster="v100:1x1", policy="srtf",
                       engine=EngineConfig(sharing=sharing, switching_loss=0.2))
    replay = Replay(config)
    assert replay.workload.true_s.tolist() == exactly([1000] * 3)
    together_s = {"free": 1000, "slice": 1000, "time": 1250, "spatial": 1500}[sharing]
    assert by_job(replay.play())["end_s"].tolist() == exactly([1000, 5000 + together_s, 5000 + together_s])


def test_measured_pairs_say_what_they_lose(tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("gpu_type,model_a,batch_a,model_b,batch_b,scale_factor,norm_a,norm_b\n"
                    "v100,x,8,y,16,1,0.5,0.8\nv100,x,8,z,1,1,0,0\n")  # fmt: skip
    trace = jobs([(0, 100, 1), (50, 10, 1)], gpu_milli=[500, 500], model=["x", "y"], batch_size=[8, 16])
    settings = {"contention": "none", "sharing": "spatial", "pairs": str(file)}
    assert segments(play(trace, [[0], [0]], **settings))["rate"].tolist() == exactly([0.5, 0.25, 0.4, 0.5])
    apart = jobs([(0, 100, 1), (50, 10, 1)], gpu_milli=[500, 500], model=["x", "z"], batch_size=[8, 1])
    with pytest.raises(PerformanceError, match="did not run together") as error:
        play(apart, [[0], [0]], **settings)
    assert "'0' and '1' on GPU 0 (V100)" in str(error.value)


def test_p25_jobs_of_different_width_are_never_put_side_by_side() -> None:
    trace = jobs([(0, 100, 1), (50, 10, 2)], gpu_milli=[500, 500])
    with pytest.raises(ProgressError, match="different width") as error:
        play(trace, [[0], [0, 1]], contention="none", sharing="spatial")
    assert "shares of 1, 2 GPUs" in str(error.value) and "sharing = time" in str(error.value)
    whole = jobs([(0, 100, 1), (50, 10, 2)], gpu_milli=[500, 1000])  # whole GPUs are nobody's neighbour
    assert len(segments(play(whole, [[0], [1, 2]], contention="none", sharing="spatial"))) == 2


def test_what_is_lost_on_a_gpu_leaves_the_link_to_others() -> None:
    """Both at once: jobs 0 and 1 take turns (4 s an iteration for half a GPU, 5 s with the loss), job 2 shares a link.

    Job 0: 4 s off the network, 1 s on it at most. Job 2: 1 and 1. r_0 + u_2 = 1 and r_2 + u_0 = 1.
    """
    trace = jobs([(0, 10, 2), (0, 10, 1), (0, 10, 2)], gpu_milli=[500, 500, 1000])
    table = segments(play(trace, [[0, 4], [0], [1, 5]], sharing="time", switching_loss=0.2))
    rates = table.groupby("job_id")["rate"].first()
    r0, r2 = 1.0, 1.0
    for _ in range(200):
        r0, r2 = 1 - 1 / (1 + 1 / r2), 1 - 1 / (4 + 1 / r0)
    assert rates.tolist() == exactly([1 / (4 + 1 / r0), 1 / 5, 1 / (1 + 1 / r2)])


# -- with the performance model ---------------------------------------------------------------------------------------


def modelled(count: int) -> tuple[Trace, ClusterSpec, Performance, Modelled]:
    trace = jobs([(i, 1000, 8) for i in range(count)], model=["vgg16"] * count, batch_size=[256] * count)
    cluster = nodes(("V100", 2, 8))
    performance = Performance(links=cluster.links)
    return trace, cluster, performance, Modelled(trace, cluster, performance, gpu_type("V100"))


def test_vgg16_across_nodes_slows_its_like_down_and_alone_it_does_as_the_model_says() -> None:
    """Two gangs of 8 on two nodes, 4 GPUs on each. Alike, they have a share r of the link while they send with

    r + send / (rest + send / r) = 1,  so  rest r^2 + (2 send - rest) r - send = 0.
    """
    trace, cluster, performance, truth = modelled(2)
    gpus = [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]
    alone = performance.data_parallel("vgg16", 256, gpu_type("V100"), (4, 4))
    table = segments(play(trace, gpus, cluster, truth))
    first, met, *_, last = table["rate"].tolist()
    assert first == last == alone.rate
    send, rest = alone.allreduce_s, alone.iteration_s - alone.allreduce_s
    b = 2 * send - rest
    share = (-b + math.sqrt(b * b + 4 * rest * send)) / (2 * rest)
    assert 1 / met == exactly(rest + send / share)


@pytest.mark.parametrize("policy", ["fifo-skip", "srtf", "las"])
def test_policies_that_know_nothing_of_links_leave_true_books(policy: str) -> None:
    """Forty gangs, failures and lost work, with contention: the audit finds nothing and all work is done."""
    rng, count = np.random.default_rng(3), 40
    submit, work = np.sort(rng.uniform(0, 4000, count)), rng.uniform(50, 3000, count)
    rows = zip(submit.tolist(), work.tolist(), rng.choice([1, 3, 6, 12], count).tolist(), strict=True)
    models = rng.choice(["vgg16", "resnet50"], count).tolist()
    trace = jobs(list(rows), model=models, batch_size=[96] * count)
    cluster = nodes(("V100", 4, 4))
    performance = Performance(links=cluster.links)
    truth = Modelled(trace, cluster, performance, gpu_type("V100"))
    config = EngineConfig(contention="network", preempted_work="lost", checkpoint_interval_s=300.0, mtbf_h=5.0)
    result = simulate(trace, cluster, make(policy), truth, config, estimate_s=truth.work_total / truth.reference_rate)
    report = audit(loaded(result))
    assert report.ok, report.text
    assert set(by_job(result)["state"]) == {"done"}
    assert (segments(result)["end_reason"] == "respeed").any()


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "unknown"), [
    ({"contention": "network"}, "how long jobs use the network is unknown"),
    ({"contention": "none", "sharing": "spatial"}, "how fast jobs are on whole GPUs is unknown"),
])  # fmt: skip
def test_recorded_durations_do_not_tell_what_neighbours_would_cost(engine: dict[str, Any], unknown: str) -> None:
    trace = jobs([(0, 100, 1)])
    with pytest.raises(HetsimError, match=unknown) as error:
        play(trace, [[0]], truth=Recorded(trace, TWO), **engine)
    assert "--work iterations" in str(error.value)


def test_p46_more_work_than_the_cluster_can_do_is_flagged_in_the_summary() -> None:
    """Seven jobs of 100 s on one GPU, one every 200 s or every 66 s: 700 s of work within 6 x 66 s + 100 s."""
    said = []
    for apart_s in (200, 66):
        result = run(jobs([(i * apart_s, 100, 1) for i in range(7)]), nodes(("V100", 1, 1)), "fifo")
        said.append(str(summary_table(loaded(result)).caption))
    assert "above 1" not in said[0]
    assert "Recorded load on V100 is 1.41, above 1" in said[1]
