"""Small worlds for `mutants.py`: settings under which, with a few dozen jobs, nearly everything happens in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from analysis.run import Run
from sim.settings.config import EngineConfig, RunConfig
from sim.sweeps.replay import Replay

JOBS = 36
RESTARTS: dict[str, Any] = {"preemption_overhead_s": 5.0, "cold_start_s": 2.0, "checkpoint_interval_s": 60.0}
LANE: dict[str, Any] = {**RESTARTS, "fast_lane": "on", "quotas": {"a": 4}}
PLAIN: dict[str, Any] = {**LANE, "fast_lane": "off"}
FAILING: dict[str, Any] = {**PLAIN, "mtbf_h": 0.2, "repair_h": 0.05}
MIXED = "v100:1x4+t4:2x2"
HALVES = "halves.csv"
"""Beside the trace: jobs of half a GPU that come while others restart."""
OUTAGES = "outages.csv"
"""Beside the trace; at times at which jobs are submitted, too."""

WORLDS: dict[str, dict[str, Any]] = {
    "las, nodes fail": {"policy": "las", "policy_settings": {"quantum_s": 40.0}, "work": "recorded",
                        "engine": FAILING},
    "srsf, nodes fail, iterations": {"policy": "srsf", "cluster": MIXED, "engine": FAILING},
    "srsf, iterations, in the lane": {"policy": "srsf", "cluster": MIXED, "engine": LANE},
    "las, work lost, in the lane": {"policy": "las", "policy_settings": {"quantum_s": 40.0}, "work": "recorded",
                                    "engine": {**LANE, "preempted_work": "lost"}},
    "fifo, in the lane": {"policy": "fifo", "work": "recorded", "engine": LANE},
    "easy, in the lane": {"policy": "easy", "work": "recorded", "engine": LANE},
    "fifo, shares take turns": {"policy": "fifo", "work": "recorded", "cluster": "v100:1x2", "trace": HALVES,
                                "engine": {**RESTARTS, "cold_start_s": 35.0, "sharing": "time",
                                           "switching_loss": 0.1}},
    "las, nodes leave and come": {"policy": "las", "policy_settings": {"quantum_s": 40.0}, "work": "recorded",
                                  "engine": {**PLAIN, "outages": OUTAGES}},
    "hetero, plans": {"policy": "hetero", "cluster": MIXED, "jobs": 12, "engine": RESTARTS},
}


def write_jobs(path: Path) -> Path:
    """A trace of jobs that come and end at equal times, fail, share GPUs and belong to virtual clusters."""
    rng = np.random.default_rng([15, 0])
    lines = ["job_id,submit_s,duration_s,num_gpus,gpu_milli,vc,user,attempts,status,model,batch_size"]
    submit_s = np.sort(10 * rng.integers(0, 60, JOBS))
    for i in range(JOBS):
        gpus = int(rng.choice([1, 1, 2, 4]))
        milli = 500 if gpus == 1 and rng.random() < 0.5 else 1000
        attempts = int(rng.choice([1, 1, 2, 3]))
        status = rng.choice(["passed", "killed", "failed"], p=[0.6, 0.2, 0.2])
        lines.append(f"j{i},{submit_s[i]},{30 * rng.integers(1, 12)},{gpus},{milli},{rng.choice(['a', 'b'])},"
                     f"u{i % 3},{attempts},{status},resnet50,{32 * gpus}")
    path.write_text("\n".join(lines) + "\n")
    halves = [f"h{i},{10 * i},{40 + 15 * i},1,500" for i in range(12)]
    path.with_name(HALVES).write_text("\n".join(["job_id,submit_s,duration_s,num_gpus,gpu_milli", *halves]) + "\n")
    steps = [f"{submit_s[4 * k]},1,{k % 2}" for k in range(2, 9)]
    path.with_name(OUTAGES).write_text("\n".join(["time_s,node,up", *steps]) + "\n")
    return path


def play(world: str, trace: Path) -> Run:
    """The run of a world, as its files would hold it."""
    said = WORLDS[world]
    engine = {**said["engine"]}
    if "outages" in engine:
        engine["outages"] = str(trace.with_name(engine["outages"]))
    jobs = trace.with_name(said.get("trace", trace.name))
    config = RunConfig(**{"cluster": "v100:2x4", **said, "trace": str(jobs), "engine": EngineConfig(**engine)})
    result = Replay(config).play()
    return Run(Path(world), result.tables, result.info, result.timing)
