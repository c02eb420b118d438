"""Gavel's own simulator beside ours: average JCT and makespan of each recorded run, theirs, ours, and how far apart.

    .venv/bin/python -m experiments.gavel_oracles ../shared [--only max_min] [--as-published] [-P name=value ...]

The folder holds `oracles/gavel` and `data/gavel`. One GPU a server, rounds of 360 s, no overhead, and speeds that do
not depend on where a gang is, as their simulator has it; its mechanism, and the centre of what is best as its solver
ends there. With `--as-published` the policy's own defaults.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sim.performance.tables import load_table
from sim.performance.tables.points import ANY_PLACEMENT, SPREAD
from sim.settings.config import RunConfig
from sim.sweeps.replay import Replay

POLICIES: dict[str, dict[str, Any]] = {
    "fifo": {"objective": "fifo", "aware": False},
    "fifo_perf": {"objective": "fifo"},
    "max_min_fairness": {"objective": "las", "aware": False},
    "max_min_fairness_perf": {"objective": "las"},
    "finish_time_fairness": {"objective": "ftf", "aware": False},
    "finish_time_fairness_perf": {"objective": "ftf"},
    "min_total_duration": {"objective": "makespan", "aware": False},
    "min_total_duration_perf": {"objective": "makespan"},
}
"""Their name -> settings of ours."""

SIMULATED = {
    "rest": "centre", "blind": "all", "bisected": 0.05, "placement": "first-fit", "accounting": "gavel-simulator",
    "whole_steps": True,
}
"""Their simulator's semantics, where they are not what the policy does by default."""

INPUTS = {
    "contS": ("oracles/gavel/cont_single_s0_lam3600_n200.trace", "data/gavel/simulation_throughputs.json"),
    "phys": ("oracles/gavel/max_min_fairness.trace", "oracles/gavel/physical_cluster_throughputs.json"),
}
"""Kind of group -> trace and rates."""


@dataclass(frozen=True)
class Oracle:
    """One recorded run.

    Attributes
    ----------
    group, policy : as they name them.
    gpus : of each type: V100, P100, K80.
    jct_s, makespan_s : average over all jobs, end of the last.
    trace : a file of other jobs.
    """

    folder: Path = field(repr=False)
    group: str
    policy: str
    gpus: tuple[int, int, int]
    jct_s: float
    makespan_s: float
    cpu_s: float
    trace: str = ""

    @property
    def name(self) -> str:
        return f"{self.group}_{self.policy}"

    def jobs(self) -> list[dict[str, str]]:
        """The rows of its jobs.csv."""
        with (self.folder / f"oracles/gavel/{self.name}.jobs.csv").open() as file:
            return list(csv.DictReader(file))

    def simulated(self) -> dict[str, Any]:
        """Settings with which ours does as their simulator does under this policy."""
        walk = "types" if self.policy.endswith("_perf") else "shuffled"
        return SIMULATED | {"walk": walk}

    def config(self, policy: str, settings: Mapping[str, Any], scratch: Path) -> RunConfig:
        """The same jobs, rates and GPUs under a policy of ours; a table of the rates is written to `scratch`."""
        trace, rates = (self.folder / name for name in INPUTS[self.group.partition("_")[0]])
        trace = Path(self.trace or trace)
        table = load_table(rates)
        anywhere = {at._replace(nodes=ANY_PLACEMENT): one for at, one in table.points.items() if at.nodes != SPREAD}
        replace(table, points=anywhere).write_csv(scratch / "rates.csv")
        cluster = "+".join(f"{kind}:{n}x1" for kind, n in zip(("v100", "p100", "k80"), self.gpus, strict=True))
        return RunConfig.model_validate({
            "policy": policy, "policy_settings": dict(settings), "trace": str(trace), "cluster": cluster,
            "read": {"throughputs": str(rates)}, "measured": str(scratch / "rates.csv"), "type_order": "listed",
            "engine": {"preemption_overhead_s": 0.0},
        })


def oracles(folder: Path) -> Iterator[Oracle]:
    """All runs of `summary.csv`."""
    with (folder / "oracles/gavel/summary.csv").open() as file:
        for row in csv.DictReader(file):
            v100, p100, k80 = map(int, row["cluster"].split(":"))
            yield Oracle(folder, row["group"], row["variant"], (v100, p100, k80), float(row["avg_jct_s"]),
                         float(row["makespan_s"]), float(row["cpu_s"]))


def played_jobs(oracle: Oracle, settings: Mapping[str, Any], scratch: Path) -> tuple[np.ndarray, np.ndarray, float]:
    """Submit times and ends of the jobs of our run, in s, and its CPU seconds."""
    replay = Replay(oracle.config("gavel", settings, scratch))
    begin = time.process_time()
    jobs = replay.play().tables["jobs"]
    return jobs["submit_s"].to_numpy(), jobs["end_s"].to_numpy(), time.process_time() - begin


def played(oracle: Oracle, settings: Mapping[str, Any], scratch: Path) -> tuple[float, float, float]:
    """Average JCT, makespan, and CPU seconds of ours."""
    submit_s, end_s, cpu_s = played_jobs(oracle, POLICIES[oracle.policy] | settings, scratch)
    return float(np.mean(end_s - submit_s)), float(end_s.max()), cpu_s


def main(folder: Path, only: str, as_published: bool, settings: Mapping[str, Any]) -> None:
    print("| run | JCT theirs (s) | ours (s) | | makespan theirs (s) | ours (s) | | CPU theirs (s) | ours (s) |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for oracle in oracles(folder):
        if oracle.policy not in POLICIES or only not in oracle.name:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            semantics = {} if as_published else oracle.simulated()
            jct_s, makespan_s, cpu_s = played(oracle, semantics | settings, Path(scratch))
        print(f"| {oracle.name} | {oracle.jct_s:,.0f} | {jct_s:,.0f} | {100 * (jct_s / oracle.jct_s - 1):+.1f} % "
              f"| {oracle.makespan_s:,.0f} | {makespan_s:,.0f} | {100 * (makespan_s / oracle.makespan_s - 1):+.1f} % "
              f"| {oracle.cpu_s:.1f} | {cpu_s:.1f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with data/gavel and oracles/gavel")
    parser.add_argument("--only", default="", help="runs whose name has this in it")
    parser.add_argument("--as-published", action="store_true", help="the policy's own defaults")
    parser.add_argument("-P", dest="settings", action="append", default=[], metavar="name=value",
                        help="a further setting of the policy")
    arguments = parser.parse_args()
    main(arguments.folder, arguments.only, arguments.as_published,
         dict(text.split("=", 1) for text in arguments.settings))
