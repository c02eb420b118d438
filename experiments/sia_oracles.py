"""Sia's simulator beside ours: its Gavel (and Sia) on Saturn workload-1, average JCT theirs and ours, jobs as rigid.

    .venv/bin/python -m experiments.sia_oracles ../shared [--policy gavel|sia|las] [--accounts ours] [-P name=value ...]

The folder holds `data/pollux`, `data/sia/traces` and `oracles/pollux-sia`. A job keeps its GPUs and its batch, so that
what it has to do is a number of iterations: with p(e) the progress at the end of epoch e, b its batch, and the gain of
an iteration of it in that epoch

    gain(b, e) = (var + sqr) / (var b0 / b + sqr),    iterations = sum_e (p(e) - p(e - 1)) / gain(b, e),

over the epochs until its metric is reached; an iteration takes the measured step and its accumulation steps, times
what their simulator was slowed down by to agree with real runs, and an epoch whole seconds. Where the memory of a type
splits its batch otherwise, so that b differs, its rate there is that of iterations of the batch asked for. Cluster: 24
T4, 16 A100, 24 RTX 2080 Ti.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from policies.mechanisms import Rounds
from policies.mechanisms.round_accounts import ACCOUNTS, Accounts, Standing
from policies.registry import make
from sim.cluster.clusterfiles import load_cluster
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import MeasuredTable, Performance, PerformanceError
from sim.performance.pollux import MeasuredSteps
from sim.performance.tables import Measurement, Point
from sim.settings.config import EngineConfig, parse_setting
from sim.workload.progress import Modelled
from traces.readers.pollux import read_pollux

CLUSTER = "T4:6x4+A100:2x8+RTX2080Ti:3x8"
MACHINES = {"T4": ("aws", 4, 6), "A100": ("dgx-ext", 8, 2), "RTX2080Ti": ("rtx", 8, 3)}
"""GPU type -> machine of the measurements, GPUs on a node, nodes."""
REFERENCE = "T4"
GAVEL = {"objective": "throughput", "round_s": 360.0, "spare": "fill", "wide_first": True,
         "placement": "count"}
"""What their Gavel is: the largest sum of throughputs (their default); GPUs that nobody deserves go to others."""
POLICIES: dict[str, dict[str, Any]] = {"gavel": GAVEL, "sia": {}, "las": {}}
THEIRS = {"gavel": "sia_gavel_sat1_n160", "sia": "sia_sia_sat1_n160"}
EDGE_S = {"gavel": 360.0, "sia": 60.0, "las": 60.0}
"""Their simulator hears of a job at the next multiple of its interval only."""
COLD_S = 50.0
"""Of a first start: what one of cifar10 costs, as most are."""
Kind = tuple[str, int, int]
"""Application, GPUs, batch."""


@dataclass(frozen=True)
class App:
    """What is known of an application.

    Attributes
    ----------
    limits : batch sizes, restart and slow-down, as `pollux_apps.json` has them.
    curves : batch size -> float64 [epochs, 3]: progress, squared norm and variance of the gradient.
    steps : machine -> measured steps.
    """

    limits: dict[str, Any]
    curves: dict[int, np.ndarray]
    steps: dict[str, MeasuredSteps]

    def iterations(self, batch: int) -> np.ndarray:
        """Iterations of a batch size in each epoch until the application's metric is reached: float64 [epochs]."""
        low, high = max(b for b in self.curves if b <= batch), min(b for b in self.curves if b >= batch)
        part = 0.0 if low == high else (batch - low) / (high - low)
        ends = {int(b): int(e) for b, e in self.limits["completion_epoch_by_batch"].items()}
        epochs = round((1 - part) * ends[low] + part * ends[high]) + 1
        sqr, var = (((1 - part) * self.curves[low] + part * self.curves[high])[:epochs, i] for i in (1, 2))
        progress = np.min([curve[:epochs, 0] for curve in self.curves.values() if len(curve) >= epochs], axis=0)
        gain = (var + sqr) / (var * self.limits["init_batch_size"] / batch + sqr)
        return np.diff(progress, prepend=0.0) / gain

    def split(self, machine: str, layout: tuple[int, ...], batch: int) -> tuple[int, int]:
        """Samples of a GPU in a step, and steps that are accumulated besides the last."""
        gpus, steps = sum(layout), self.steps[machine]
        local = math.ceil(batch / gpus - 1e-8)
        curve = steps.placements.get(min(layout[i:] + layout[:i] for i in range(len(layout))))
        among = steps.points[(steps.points[:, 0] >= len(layout)) & (steps.points[:, 1] >= gpus), 2]
        most = curve[-1, 0] if curve is not None else among.max()
        accum = math.ceil(local / most - 1e-8) - 1
        if gpus == 1 and batch > self.limits["init_batch_size"]:
            accum = max(1, accum)
        atomic = math.ceil(local / (accum + 1) - 1e-8)
        return min(atomic, int(self.limits["max_batch_size"] / (gpus * (accum + 1)))), accum

    def run_s(self, kind: str, layout: tuple[int, ...], batch: int, rounded: bool) -> float:
        """Run time on GPUs of a type; with epochs of whole seconds, as they have them, or not."""
        machine = MACHINES[kind][0]
        atomic, accum = self.split(machine, layout, batch)
        step_s, sync_s = self.steps[machine].step_s(layout, atomic)
        whole_s = (step_s + accum * (step_s - sync_s)) * self.limits["slowdown_calibration"]
        epochs_s = self.iterations(atomic * (accum + 1) * sum(layout)) * whole_s
        return float((np.rint(epochs_s) if rounded else epochs_s).sum())


def applications(shared: Path, names: set[str]) -> dict[str, App]:
    """What was measured of each application."""
    limits = json.loads((shared / "data/pollux/pollux_apps.json").read_text())
    curves: dict[str, dict[int, list[list[float]]]] = {}
    with (shared / "data/pollux/pollux_convergence.csv").open() as file:
        for row in csv.DictReader(file):
            of_batch = curves.setdefault(row["model"], {}).setdefault(int(row["batch_size"]), [])
            of_batch.append([float(row[name]) for name in ("progress", "grad_sqr", "grad_var")])
    return {
        name: App(limits[name], {b: np.array(c) for b, c in curves[name].items()},
                  {m: MeasuredSteps.read(shared / f"data/sia/traces/{name}", m) for m, _, _ in MACHINES.values()})
        for name in names
    }  # fmt: skip


def table(apps: dict[str, App], kinds: set[Kind], rounded: bool) -> tuple[MeasuredTable, dict[Kind, float]]:
    """Rates of all kinds of jobs on each type, on as many nodes as may be; and their run times on the reference."""
    points, run_s = {}, {}
    for app, gpus, batch in sorted(kinds):
        iterations = apps[app].iterations(batch).sum()
        asked = spread(gpus, REFERENCE, fewest(gpus, REFERENCE))
        run_s[app, gpus, batch] = apps[app].run_s(REFERENCE, asked, batch, rounded)
        for kind, (_, _, nodes) in MACHINES.items():
            for count in range(fewest(gpus, kind), min(nodes, gpus) + 1):
                try:
                    whole_s = apps[app].run_s(kind, spread(gpus, kind, count), batch, rounded)
                except PerformanceError:
                    continue  # nobody measured it
                points[Point(app, batch, kind, gpus, count)] = Measurement(iterations / whole_s)
    sizes = {kind: size for kind, (_, size, _) in MACHINES.items()}
    return MeasuredTable(points, "steps of Sia's artifact", gpus_per_node=sizes), run_s


def fewest(gpus: int, kind: str) -> int:
    return -(-gpus // MACHINES[kind][1])


def spread(gpus: int, kind: str, nodes: int) -> tuple[int, ...]:
    """GPUs on each of so many nodes: full ones and a rest on the fewest, else as even as can be."""
    if nodes == fewest(gpus, kind):
        size = MACHINES[kind][1]
        return tuple(min(size, gpus - size * i) for i in range(nodes))
    return tuple(gpus // nodes + (i < gpus % nodes) for i in range(nodes))


class Ever(Accounts):
    """Their accounts: priority = X / (share of the type's time that the job had, ever), half a round given to each."""

    def __init__(self, jobs: int, types: int, round_s: float) -> None:
        super().__init__(jobs, types, round_s)
        self._came = np.zeros(jobs, dtype=bool)

    def standing(self, rows: np.ndarray) -> Standing:
        self._came[rows] = True
        had_s = self.received_s + self._round_s / 2
        share = self.share[rows]
        return Standing(share * had_s[self._came].sum(axis=0) / had_s[rows], np.zeros_like(share), share)


class Restarting(Modelled):
    """Jobs whose restart costs what their application's does: a state of so many GiB, loaded at one GiB a second."""

    restart_s: dict[str, float]

    def state_gib(self, row: int) -> float:
        return self.restart_s[self._model[row]]


def replay(
    shared: Path, policy: str, settings: dict[str, Any], restart_s: float | None = None, accounts: str = "theirs",
    rounded: bool = True,
) -> RunResult:
    """Our run of the workload."""
    source = shared / "data/pollux/workloads/sia_saturn_workload-1.csv"
    with source.open() as file:
        kinds = {(row["application"], int(row["num_replicas"]), int(row["batch_size"])) for row in csv.DictReader(file)}
    apps = applications(shared, {app for app, _, _ in kinds})
    rates, run_s = table(apps, kinds, rounded)
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "run_times.csv"
        rows = [f"{app},{gpus},{batch},{at!r}" for (app, gpus, batch), at in run_s.items()]
        times.write_text("\n".join(["application,num_replicas,batch_size,duration_s", *rows]) + "\n")
        edges = Path(folder) / "at_edges.csv"
        head, *lines = source.read_text().splitlines()
        every_s = EDGE_S[policy]
        for i, (job, at, *rest) in enumerate(line.split(",") for line in lines):
            lines[i] = ",".join([job, repr(math.ceil(float(at) / every_s) * every_s), *rest])
        edges.write_text("\n".join([head, *lines]) + "\n")
        trace = read_pollux(edges, run_times=str(times))
    cluster, speeds = load_cluster(CLUSTER), Performance(table=rates)
    truth = Restarting(trace, cluster, speeds, gpu_type(REFERENCE))
    truth.restart_s = {name: app.limits["checkpoint_restart_s"] for name, app in apps.items()}
    engine = EngineConfig(preemption_overhead_s=0.0, cold_start_s=COLD_S, restart_gib_per_s=1.0)
    if restart_s is None and policy == "sia":
        restart_s = COLD_S  # it weighs what a restart costs, and sees no loading of states
    if restart_s is not None:
        engine = EngineConfig(preemption_overhead_s=restart_s, cold_start_s=restart_s)
    scheduler = make(policy, settings)
    if accounts == "theirs" and isinstance(scheduler, Rounds):
        ACCOUNTS["ever"] = Ever
        scheduler.accounting = "ever"
    return simulate(trace, cluster, scheduler, truth, engine, performance=speeds,
                    estimate_s=truth.work_total / truth.reference_rate)


def theirs(shared: Path, name: str, column: str = "jct_s") -> dict[str, float]:
    """JCT of each of their jobs, in s, or another column."""
    with (shared / f"oracles/pollux-sia/{name}_jobs.csv").open() as file:
        return {row["job"]: float(row[column]) for row in csv.DictReader(file)}


def report(result: RunResult, submit_s: dict[str, float], their_jct_s: dict[str, float] | None) -> list[str]:
    """Average JCT, and by application, theirs and ours."""
    jobs = result.tables["jobs"].to_pandas().set_index("job_id")
    jct_s = jobs.end_s - jobs.index.map(submit_s)
    held = result.tables["segments"].to_pandas()
    gpu_h = sum((row.end_s - row.begin_s) * len(row.gpu_ids) for row in held.itertuples()) / 3600
    lines = [f"ours: average JCT {jct_s.mean():,.1f} s, median {jct_s.median():,.1f} s, "
             f"makespan {jobs.end_s.max():,.0f} s, {gpu_h:,.0f} GPU-h, {len(held) / len(jobs) - 1:.2f} restarts a job, "
             f"{dict(Counter(jobs.state))}"]
    if their_jct_s is None:
        return lines
    lines.append(f"theirs: average JCT {np.mean(list(their_jct_s.values())):,.1f} s, "
                 f"median {np.median(list(their_jct_s.values())):,.1f} s")
    lines.append(f"ours / theirs: {jct_s.mean() / np.mean(list(their_jct_s.values())):.3f}")
    app = jct_s.index.str.rsplit("-", n=1).str[0]
    for name, mine in jct_s.groupby(app):
        other = np.array([their_jct_s[job] for job in mine.index])
        lines.append(f"  {name:12} {len(mine):4} jobs: {mine.mean():10,.1f} s ours, {other.mean():10,.1f} s theirs")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--policy", default="gavel", choices=tuple(POLICIES), help="one of ours")
    parser.add_argument("--restart-s", type=float, help="cost of each start; left out: of a restart its application's, "
                        "25 to 250 s (policy sia: 50 s), of a first start 50 s")
    parser.add_argument("-P", dest="settings", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--accounts", choices=("theirs", "ours"), default="theirs", help="of rounds (policy gavel)")
    parser.add_argument("--exact-epochs", action="store_true", help="epochs take as long as they do; theirs: whole s")
    told = parser.parse_args()
    settings = POLICIES.get(told.policy, {}) | dict(parse_setting(text) for text in told.settings)
    began = time.process_time()
    result = replay(told.shared, told.policy, settings, told.restart_s, told.accounts, not told.exact_epochs)
    print(f"{told.policy} {settings}, {time.process_time() - began:.1f} CPU-s")
    name = THEIRS.get(told.policy)
    submit_s = theirs(told.shared, THEIRS["sia"], "submit_s")
    print("\n".join(report(result, submit_s, None if name is None else theirs(told.shared, name))))


if __name__ == "__main__":
    main()
