"""What users of schedulers and of their simulators ran into, each as the smallest case that shows it (R2-nn)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from analysis.metrics import summary
from analysis.metrics.energy import energy_held_kwh, energy_kwh
from analysis.metrics.jobtimes import preempted
from analysis.run import Run
from policies.mechanisms import Placing
from sim.api import Decision, Placement, View
from sim.cluster.maintenance import MAINTENANCE
from sim.engine.simulate import RunResult, simulate
from sim.settings.config import EngineConfig
from sim.workload.progress import Recorded
from tests.helpers import by_job, jobs, nodes, run, segments

ONE, TWO, FOUR = (nodes(("V100", 1, n)) for n in (1, 2, 4))
PAIR = nodes(("V100", 2, 1))


def loaded(result: RunResult) -> Run:
    return Run(Path("memory"), result.tables, result.info, result.timing)


def begins(result: RunResult) -> list[float]:
    """When each job first started; NaN: never."""
    return by_job(result).sort_index()["first_start_s"].tolist()


def ends(result: RunResult) -> list[float]:
    return by_job(result).sort_index()["end_s"].tolist()


def windows(folder: Path, *rows: str) -> str:
    path = folder / "maintenance.csv"
    path.write_text(",".join(MAINTENANCE) + "\n" + "".join(row + "\n" for row in rows))
    return str(path)


def capacity(folder: Path, *rows: str) -> str:
    path = folder / "capacity.csv"
    path.write_text("time_s,vc,gpu_type,gpus\n" + "".join(row + "\n" for row in rows))
    return str(path)


# -- nodes -------------------------------------------------------------------------------------------------------------


@dataclass
class Careful(Placing):
    """In order of submission, but nothing that would reach into a window that is known, wherever it is."""

    needs_estimates: ClassVar[bool] = True
    knows_maintenance: ClassVar[bool] = True

    def decide(self, view: View) -> Decision:
        until_s = min((w.down_s for w in view.maintenance if w.down_s > view.now_s), default=np.inf)
        scratch, decision = view.scratch(), Decision()
        for row in view.queued.tolist():
            ends_in_time = view.now_s + view.estimate_s[row] <= until_s
            if ends_in_time and (gpus := scratch.place(row, self.placement)) is not None:
                decision.start.append((row, Placement(gpus)))
        return decision


def test_r2_09_maintenance_that_is_known_in_advance_can_be_kept_clear(tmp_path: Path) -> None:
    """Both GPUs are out on [100, 200): 150 s wait for 200, 50 s go first. Who does not look loses 100 s of two GPUs."""
    file = windows(tmp_path, "0,,100,100,200,")
    trace = jobs([(0, 150, 2), (1, 50, 2)])
    config = EngineConfig(preemption_overhead_s=0.0, preempted_work="lost", checkpoint_interval_s=np.inf,
                          maintenance=file)
    careful = simulate(trace, TWO, Careful(), Recorded(trace, TWO), config, estimate_s=trace.duration_s)
    assert ends(careful) == [350, 51]
    assert preempted(loaded(careful)).sum() == 0
    plain = run(trace, TWO, "easy", maintenance=file, preempted_work="lost", checkpoint_interval_s=np.inf)
    assert ends(plain) == [350, 400]


def test_r2_10_a_drained_node_lets_its_job_end_and_starts_none(tmp_path: Path) -> None:
    """Drained from 10 s and never out: the job ends at 100, the next one goes to the other node."""
    file = windows(tmp_path, "0,,10,1e9,,")
    result = run(jobs([(0, 100, 1), (20, 10, 1), (40, 10, 1)]), PAIR, "fifo", maintenance=file)
    assert ends(result) == [100, 30, 50]
    table = segments(result)
    assert [gpus.tolist() for gpus in table["gpu_ids"]] == [[0], [1], [1]]
    assert set(table["end_reason"]) == {"done"}


def test_r2_16_a_bad_gpu_is_taken_away_and_what_needs_it_is_refused_once(tmp_path: Path) -> None:
    """Two nodes of two, a bad GPU on each: a worker of two is rejected, two workers of one run."""
    file = windows(tmp_path, "0,0,,0,,", "1,1,,0,,")
    trace = jobs([(0, 10, 2), (0, 10, 2)], worker_gpus=[2, 1])
    table = by_job(run(trace, nodes(("V100", 2, 2)), "fifo", maintenance=file))
    assert table["state"].tolist() == ["rejected", "done"]
    assert table.loc["1", "end_s"] == 10


def test_r2_19_spot_gpus_that_go_and_come(tmp_path: Path) -> None:
    """Availability 1, 1, 0, 0, 1 a minute, a job of 100 s at 50 s: it ends at 270, without checkpoints at 340."""
    file = capacity(tmp_path, "0,,V100,1", "120,,V100,0", "240,,V100,1")
    for interval_s, end_s in ((0.0, 270), (np.inf, 340)):
        result = run(jobs([(50, 100, 1)]), ONE, "fifo", capacity=file, checkpoint_interval_s=interval_s)
        assert ends(result) == [end_s]


def test_r2_19_many_spot_nodes_go_at_once_and_few_come_back(tmp_path: Path) -> None:
    """200 jobs of 100 s on 200 nodes, all away at 50, ten back at 500: twenty rounds of ten, 200 x 50 GPU-s lost."""
    file = capacity(tmp_path, "0,,V100,200", "50,,V100,0", "500,,V100,10")
    trace, cluster = jobs([(0, 100, 1)] * 200), nodes(("V100", 200, 1))
    result = run(trace, cluster, "fifo", capacity=file, checkpoint_interval_s=np.inf)
    assert sorted(ends(result)) == [end for end in range(600, 2501, 100) for _ in range(10)]
    table = segments(result)
    assert (table["end_reason"] == "node_failed").sum() == 200
    assert table["work_lost"].sum() == 200 * 50


# -- quotas ------------------------------------------------------------------------------------------------------------


def test_r2_11_a_guarantee_is_taken_back_from_who_borrowed_it() -> None:
    trace = jobs([(0, 1000, 1), (0, 1000, 1), (10, 50, 1)], vc=["b", "b", "a"])
    result = run(trace, TWO, "capacity", guarantees={"a": 1})
    assert (begins(result)[2], ends(result)[2]) == (10, 60)
    assert preempted(loaded(result)).tolist() == [0, 1, 0]


def test_r2_13_a_quota_by_gpu_type() -> None:
    """One V100 and two T4 for a: its second V100 job waits for the first, a T4 job does not."""
    trace = jobs([(0, 100, 1), (0, 100, 1), (1, 100, 1)], vc=["a"] * 3, gpu_type=["V100", "T4", "V100"])
    result = run(trace, nodes(("V100", 1, 4), ("T4", 1, 4)), "capacity", quotas={"a@V100": 1, "a@T4": 2})
    assert begins(result) == [0, 0, 100]


def test_r2_18_at_most_two_of_an_array_run_at_once() -> None:
    """As the quota of a virtual cluster: two, then two; the job of another one starts at once."""
    trace = jobs([(0, 10, 1)] * 4 + [(0, 10, 1)], vc=["array"] * 4 + ["other"])
    assert begins(run(trace, FOUR, "fifo-skip", quotas={"array": 2})) == [0, 0, 10, 10, 0]


def test_r2_24_shares_of_several_gpus_add_up_against_a_quota() -> None:
    """Two slots of 0.6 are 1.2 GPUs, above a quota of 1; 0.6 and 0.4 fill it."""
    trace = jobs([(0, 10, 2), (0, 10, 1), (0, 10, 1)], vc=["a"] * 3, gpu_milli=[600, 600, 400])
    table = by_job(run(trace, FOUR, "fifo-skip", quotas={"a": 1}))
    assert table["state"].tolist() == ["rejected", "done", "done"]
    assert "1.2 GPUs" in table.loc["0", "reason"]
    assert table["end_s"].tolist()[1:] == [10, 10]


# -- preemption --------------------------------------------------------------------------------------------------------


def test_r2_20_of_equals_the_latest_is_stopped_and_comes_back_first() -> None:
    result = run(jobs([(0, 100, 1)] * 3 + [(10, 20, 1)]), TWO, "srtf")
    assert ends(result) == [100, 120, 200, 30]
    assert preempted(loaded(result)).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("case", ["above its quota", "wider than any node", "of a type that is away"])
def test_r2_21_a_job_that_cannot_run_stops_nobody(tmp_path: Path, case: str) -> None:
    long, settings, engine = [(0, 1000, 1)] * 2, {"vc": ["a", "a", "p"]}, {}
    columns: dict[str, Any] = {**settings, "gpu_type": ["V100", "V100", ""]}
    cluster, short = nodes(("V100", 1, 2), ("T4", 1, 1)), (5, 10, 2)
    if case == "above its quota":
        engine = {"quotas": {"p": 1}}
    elif case == "wider than any node":
        columns["worker_gpus"], short = [1, 1, 3], (5, 10, 3)
    else:
        columns["gpu_type"], short = ["V100", "V100", "T4"], (5, 10, 1)
        engine = {"capacity": capacity(tmp_path, "0,,T4,0", "300,,T4,1")}
    result = run(jobs([*long, short], **columns), cluster, "srtf", **engine)
    assert preempted(loaded(result)).sum() == 0
    table = by_job(result)
    if case == "of a type that is away":
        assert begins(result)[2] == 300
    else:
        assert table.loc["2", "state"] == "rejected" and table.loc["2", "reason"]


def test_r2_23_within_a_full_quota_the_queue_itself_is_preempted() -> None:
    trace = jobs([(0, 1000, 4), (0, 100, 3), (10, 20, 3)], vc=["b", "a", "a"])
    result = run(trace, nodes(("V100", 1, 12)), "srtf", quotas={"a": 4})
    assert ends(result) == [1000, 120, 30]
    assert preempted(loaded(result)).tolist() == [0, 1, 0]


def test_r2_26_a_run_in_which_all_jobs_are_refused_ends() -> None:
    result = run(jobs([(0, 10, 5), (0, 10, 8)]), FOUR, "fifo")
    assert by_job(result)["state"].tolist() == ["rejected"] * 2
    assert len(segments(result)) == 0
    assert summary(loaded(result))["jct_mean_s"] is None


# -- power, gangs, shares ----------------------------------------------------------------------------------------------


def test_r2_29_a_gpu_draws_less_while_nobody_holds_it() -> None:
    """A V100 of 300 W, 40 W idle: two hours held, one between them free."""
    result = loaded(run(jobs([(0, 3600, 1), (7200, 3600, 1)]), ONE, "fifo"))
    assert energy_kwh(result) == pytest.approx(0.64)
    assert energy_held_kwh(result) == pytest.approx(0.6)


def test_r2_14_a_gang_over_two_types_is_refused_with_both_numbers() -> None:
    trace = jobs([(0, 10, 24)], worker_gpus=[8])
    job = by_job(run(trace, nodes(("A100", 2, 8), ("H100", 1, 8)), "fifo")).loc["0"]
    assert job["state"] == "rejected"
    assert "24" in job["reason"] and "16" in job["reason"]


def test_r2_15_shares_are_no_mig_slices() -> None:
    """Seven sevenths, four of which end at 10: a job of four sevenths starts at 20, though on MIG it had no place."""
    trace = jobs([(0, 1000 if i in (0, 1, 5) else 10, 1) for i in range(7)] + [(20, 10, 1)],
                 gpu_milli=[142] * 7 + [571])
    assert begins(run(trace, ONE, "fifo"))[7] == 20
