"""The simulator of the Alibaba PAI trace (Weng et al., NSDI 2022; github.com/alibaba/clusterdata); it needs Matplotlib.

Its scripts fix trace and cluster, so `drive_pai.py` calls its class `Simulator` with ours. It moves the clock second by
second, sees the cluster as one node, and goes on behind a job that does not fit, as our `fifo-skip` does.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from traces.trace import Trace

DRIVER = Path(__file__).with_name("drive_pai.py")


class Pai:
    """See `benchmarks.peers.peer.Peer`."""

    name = "pai"
    policies: Mapping[str, str] = {"fifo-skip": "8"}
    fits: tuple[int, ...] = ()

    def write(self, trace: Trace, nodes: int, gpus: int, checkout: Path, folder: Path) -> None:
        with (folder / "their-jobs.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["job_id", "user", "num_cpu", "num_gpu", "submit_time", "num_inst", "gpu_type", "duration"])
            for row in range(len(trace)):
                out.writerow([row, "u", 0, int(trace.num_gpus[row]), int(trace.submit_s[row]), 1, "MISC",
                              int(trace.duration_s[row])])

    def words(self, policy: str, nodes: int, gpus: int, checkout: Path, folder: Path, python: str) -> Sequence[str]:
        simulator = checkout / "cluster-trace-gpu-v2020" / "simulator"
        return [python, str(DRIVER), str(simulator), str(folder / "their-jobs.csv"), policy, str(nodes * gpus)]

    def ends_s(self, folder: Path, out: str) -> Mapping[int, float]:
        return {int(row): float(jct_s) for row, jct_s in json.loads(out.splitlines()[-1])}
