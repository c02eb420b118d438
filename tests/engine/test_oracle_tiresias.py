"""Job by job, exactly, what Tiresias' own simulator gave on the same input (its semantics as settings of ours)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.helpers import by_job, nodes, run
from traces.trace import Trace

CLUSTERS = {"n4g4": (4, 4), "n8g8": (8, 8), "n32g8": (32, 8)}
INPUTS = {"60": "philly_60.csv", "1k": "philly_1k.csv", "5k": "philly_5k.csv"}
SIMULATED = {"semantics": "as-simulated"}
STABLE = {"ties": "previous", "replace": "all"}
POLICIES = {
    "fifo": ("fifo", {}),
    "fjf": ("fifo-skip", {}),
    "shortest": ("srtf", STABLE),
    "shortest-gpu": ("srsf", STABLE),
    "dlas": ("tiresias", {**SIMULATED, "by": "time"}),
    "dlas-gpu": ("tiresias", SIMULATED),
    "dlas-gpu-1": ("tiresias", {**SIMULATED, "promote": 1}),
    "dlas-gpu-8": ("tiresias", {**SIMULATED, "promote": 8}),
}
#: Every run of the oracle of these policies. Theirs called sjf is smallest-first and plain gittins needs a service
#: distribution: no policy of ours yet.
RUNS = [
    "60_n4g4_fifo_count",
    "60_n4g4_fifo_yarn",
    "60_n4g4_fjf_count",
    "60_n4g4_shortest_count",
    "60_n4g4_shortest-gpu_count",
    "60_n4g4_dlas_count",
    "60_n4g4_dlas-gpu_count",
    "1k_n8g8_fifo_count",
    "1k_n8g8_fifo_yarn",
    "1k_n8g8_fjf_count",
    "1k_n8g8_fjf_yarn",
    "1k_n8g8_shortest_count",
    "1k_n8g8_shortest-gpu_count",
    "1k_n8g8_shortest-gpu_yarn_fixed",
    "1k_n8g8_dlas_count",
    "1k_n8g8_dlas-gpu_count",
    "1k_n8g8_dlas-gpu-1_count",
    "1k_n8g8_dlas-gpu-8_count",
    "5k_n32g8_fifo_yarn",
    "5k_n32g8_fjf_yarn",
    "5k_n32g8_shortest-gpu_yarn_fixed",
    "5k_n32g8_dlas-gpu_yarn",
]


def read(path: Path) -> Trace:
    """Their input as a trace (the reader of traces/ has its own tests)."""
    table = pd.read_csv(path)
    return Trace.from_columns(
        {
            "job_id": table["job_id"].astype(str),
            "submit_s": table["submit_time"],
            "duration_s": table["duration"],
            "num_gpus": table["num_gpu"],
        }
    )


@pytest.mark.parametrize("name", RUNS)
def test_every_start_and_end_agrees(name: str, data_dir: Path, oracle_dir: Path) -> None:
    size, cluster, policy, placement = name.removesuffix("_fixed").split("_")
    folder = oracle_dir / "tiresias"
    trace = read(data_dir / "tiresias" / "60_job.csv" if size == "60" else folder / INPUTS[size])
    ours, settings = POLICIES[policy]
    # Their least-attained-service family looks at the number of free GPUs only, whatever placement was asked for.
    rule = "first-fit" if placement == "yarn" and not policy.startswith("dlas") else "count"
    count, gpus = CLUSTERS[cluster]
    result = by_job(run(trace, nodes(("V100", count, gpus)), ours, {**settings, "placement": rule}))
    theirs = pd.read_csv(folder / f"{name}.csv", dtype={"job_id": str}).set_index("job_id")
    result = result.loc[theirs.index]
    assert len(theirs) == len(result)
    wrong = result[(result["first_start_s"] != theirs["start_time"]) | (result["end_s"] != theirs["end_time"])]
    assert wrong.empty, f"{len(wrong)} jobs differ, first: {wrong.iloc[0].to_dict()}"


def test_their_late_demotion_is_a_setting_and_ours_is_the_published_one(oracle_dir: Path) -> None:
    """jump_*: a 4-GPU job leaves the first queue at 3250 GPU-s. That is 812.5 s; their formula gives 1112 s."""
    folder = oracle_dir / "tiresias"
    trace = read(folder / "tir_jump.csv")
    cluster = nodes(("V100", 1, 4))
    theirs = pd.read_csv(folder / "jump_dlas-gpu_count.csv", dtype={"job_id": str}).set_index("job_id")
    simulated = by_job(run(trace, cluster, "tiresias", {**SIMULATED, "placement": "count"}))
    assert (simulated["first_start_s"] == theirs["start_time"]).all()
    assert (simulated["end_s"] == theirs["end_time"]).all()
    published = by_job(run(trace, cluster, "tiresias", {"placement": "count"}))
    assert published.loc["1", "first_start_s"] == 812.5
    assert published.loc["2", "first_start_s"] == 822.5


def test_their_stale_end_is_not_repeated(oracle_dir: Path) -> None:
    """stale_*: after a preemption their simulator still ends the job when it would have ended: 3250 s of 4000 s done.

    A policy cannot shorten a job's work here, so this one file of the oracle is not matched: each job runs in full.
    """
    folder = oracle_dir / "tiresias"
    trace = read(folder / "tir_stale_end.csv")
    theirs = pd.read_csv(folder / "stale_dlas_count.csv", dtype={"job_id": str}).set_index("job_id")
    result = run(trace, nodes(("V100", 1, 1)), "tiresias", {**SIMULATED, "by": "time", "placement": "count"})
    ours = by_job(result)
    assert theirs.loc["0", "end_time"] == 4000
    segments = result.tables["segments"].to_pandas().groupby("job_id")["work_done"].sum()
    assert segments["0"] == 4000
    assert ours.loc["0", "end_s"] > 4000
    assert ours["end_s"].max() == 9100  # 4000 + 5000 + 100 s of work on one GPU, never idle
