"""Job by job, exactly, what Alibaba's PAI simulator gave on the same input.

Its rules: at each change sort the waiting jobs by (key, id), start those that fit, skip the others, never preempt;
start at t, end at t + duration. FIFO's key is the submit time (our `fifo-skip`), SJF's the true duration, SJU's a
duration estimated from the user's earlier jobs (our `sjf`, with that column as estimate). Files called pg1k have eight
nodes, tried by number (our first-fit); the others have one big node. All six runs of the oracle are matched.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.helpers import by_job, nodes, run, segments
from traces.trace import Trace

RUNS = {
    "p1k_g64_FIFO": 19997.22, "p1k_g64_SJF": 16977.16, "p1k_g64_SJU": 19701.05, "p1k_g256_SJF": 3167.68,
    "pg1k_n8s0_FIFO": None, "pg1k_n8s0_SJF": None,
}


def read(path: Path) -> Trace:
    """Their input as a trace; each job has one instance, so gang and worker are the same."""
    table = pd.read_csv(path)
    assert (table["num_inst"] == 1).all()
    return Trace.from_columns({
        "job_id": table["job_id"].astype(str), "submit_s": table["submit_time"], "duration_s": table["duration"],
        "num_gpus": table["num_gpu"], "estimate_s": table["user_dur"],
    })


@pytest.mark.parametrize("name", RUNS)
def test_every_start_and_end_agrees(name: str, oracle_dir: Path) -> None:
    folder = oracle_dir / "pai"
    size, cluster, policy = name.split("_")
    trace = read(folder / ("pai_philly_1k.csv" if size == "p1k" else "pai_phillygang_1k.csv"))
    ours = nodes(("V100", 8, 8)) if cluster == "n8s0" else nodes(("V100", 1, int(cluster[1:])))
    believed = trace.estimate_s if policy == "SJU" else trace.duration_s
    result = run(trace, ours, "fifo-skip" if policy == "FIFO" else "sjf", {"placement": "first-fit"},
                 estimate_s=believed)
    theirs = pd.read_csv(folder / f"{name}.csv", dtype={"job_id": str}).set_index("job_id")
    jobs = by_job(result).loc[theirs.index]
    assert len(theirs) == len(trace) == 1000
    wrong = jobs[(jobs["first_start_s"] != theirs["start_time"]) | (jobs["end_s"] != theirs["end_time"])]
    assert wrong.empty, f"{len(wrong)} jobs differ, first: {wrong.iloc[0].to_dict()}"
    if cluster == "n8s0":
        node = segments(result).set_index("job_id")["nodes"].map(lambda held: held[0]).loc[theirs.index]
        assert (node == theirs["node"]).all()
    if RUNS[name] is not None:  # the mean JCT that they print, in s
        assert round((jobs["end_s"] - jobs["submit_s"]).mean(), 2) == RUNS[name]


def test_the_oracle_can_tell_policies_apart(oracle_dir: Path) -> None:
    """Head-of-line blocking, which their simulator does not have, gives other starts for many jobs."""
    trace = read(oracle_dir / "pai" / "pai_philly_1k.csv")
    theirs = pd.read_csv(oracle_dir / "pai" / "p1k_g64_FIFO.csv", dtype={"job_id": str}).set_index("job_id")
    blocked = by_job(run(trace, nodes(("V100", 1, 64)), "fifo")).loc[theirs.index]
    assert (blocked["first_start_s"] != theirs["start_time"]).sum() > 100
