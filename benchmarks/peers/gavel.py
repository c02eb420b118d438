"""Gavel's simulator (Narayanan et al., OSDI 2020; github.com/stanford-futuredata/gavel): trace driver of `scheduler/`.

It needs CVXPY, gRPC (its Makefile makes the stubs), psutil and matrix_completion. Jobs have steps instead of seconds:
as many as its own table of measured rates says for the time on V100s. It decides once a round of 360 s, so that jobs
wait for rounds that do not wait for anything here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measuring import BenchError
from traces.trace import Trace

MODEL = "ResNet-50 (batch size 64)"
DONE = re.compile(r"^Job (\d+): ([\d.]+)$", re.MULTILINE)


class Gavel:
    """See `benchmarks.peers.peer.Peer`."""

    name = "gavel"
    policies: Mapping[str, str] = {"las": "max_min_fairness", "fifo": "fifo"}
    fits: tuple[int, ...] = (1, 2, 4, 8)

    def write(self, trace: Trace, nodes: int, gpus: int, checkout: Path, folder: Path) -> None:
        rates = json.loads((checkout / "scheduler" / "simulation_throughputs.json").read_text("utf-8"))["v100"]
        with (folder / "their.trace").open("w") as out:
            for row in range(len(trace)):
                wanted = int(trace.num_gpus[row])
                try:
                    rate = rates[str((MODEL, wanted))]["null"]
                except KeyError:
                    raise BenchError(f"gavel: its table of rates has no {MODEL} on {wanted} GPUs") from None
                steps = max(round(float(trace.duration_s[row]) * rate), 1)
                out.write("\t".join([MODEL, "train", ".", "--steps", "0", str(steps), str(wanted), "1", "-1",
                                     f"{trace.submit_s[row]:.0f}"]) + "\n")

    def words(self, policy: str, nodes: int, gpus: int, checkout: Path, folder: Path, python: str) -> Sequence[str]:
        scheduler = checkout / "scheduler"
        return [python, str(scheduler / "scripts" / "drivers" / "simulate_scheduler_with_trace.py"),
                "--trace_file", "their.trace", "--policy", policy, "--seed", "0",
                "--throughputs_file", str(scheduler / "simulation_throughputs.json"),
                "--cluster_spec", f"{nodes * gpus}:0:0", "--num_gpus_per_server", f"{gpus}:1:1"]

    def ends_s(self, folder: Path, out: str) -> Mapping[int, float]:
        return {int(row): float(jct_s) for row, jct_s in DONE.findall(out.partition("Job completion times:")[2])}
