"""The Tiresias simulator (Gu et al., NSDI 2019; github.com/SymbioticLab/Tiresias): `simulator/run_sim.py`, Python 2.7.

It reads a row a job and one row for the cluster, both CSV with a header (its README names the columns), and writes
`job.csv` with a row for each job that ends. Its placement `count` is our `placement=count`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from traces.trace import Trace


class Tiresias:
    """See `benchmarks.peers.peer.Peer`."""

    name = "tiresias"
    policies: Mapping[str, str] = {"fifo": "fifo", "fifo-skip": "fjf", "srtf": "shortest", "srsf": "shortest-gpu"}
    fits: tuple[int, ...] = ()

    def write(self, trace: Trace, nodes: int, gpus: int, checkout: Path, folder: Path) -> None:
        with (folder / "their-jobs.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval"])
            for row in range(len(trace)):
                out.writerow([row, int(trace.num_gpus[row]), int(trace.submit_s[row]), 1, "resnet50",
                              int(trace.duration_s[row]), 0])
        with (folder / "their-cluster.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node"])
            out.writerow([1, nodes, gpus, 128, 256])

    def words(self, policy: str, nodes: int, gpus: int, checkout: Path, folder: Path, python: str) -> Sequence[str]:
        return [python, str(checkout / "simulator" / "run_sim.py"), "--cluster_spec=their-cluster.csv",
                "--trace_file=their-jobs.csv", "--scheme=count", f"--schedule={policy}", "--log_path=theirs"]

    def ends_s(self, folder: Path, out: str) -> Mapping[int, float]:
        with (folder / "theirs" / "job.csv").open(newline="") as file:
            return {int(row["job_id"]): float(row["end_time"]) - float(row["submit_time"])
                    for row in csv.DictReader(file)}
