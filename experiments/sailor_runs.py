"""How well measured layers, put together, meet measured iterations: the 27 runs that Sailor's authors published.

    .venv/bin/python -m experiments.sailor_runs ../shared/data

No number is fitted to the runs; two choices, of transfers and of one rate, were made with them in view. Assumed, of how
DeepSpeed runs a pipeline:

- Messages between stages block both sides (`blocking="both"`). `--transfers` shows the others.
- Gradients are summed by a ring when the last backward has ended; the optimizer steps layer by layer, as measured.
- 24 bytes a parameter and 5e9 bytes of the framework on each GPU: the convention of Sailor's own model.
- A node's network reaches what `network.csv` says of its largest messages. RTX 3090 are 1 Gbit/s from all others. The
  rows between RTX 2080 and Titan RTX of 8 GPUs repeat, digit by digit, the fit of RTX 2080 to RTX 3090; those of 4 GPUs
  say 2.86 GB/s, and these are taken (`--as-listed`: those of 8).

Left out: runs whose note says SUSPECT. Memory is of the fullest stage. That of the RTX runs is PyTorch's own, without
the framework's, which is left out of ours there, too; it is not judged.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.cluster.plan import Part, Plan, Stage
from sim.cluster.spec import ClusterSpec, Links
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.calibration import for_graphs, shipped
from sim.performance.gpu_links import NETWORK_EFFICIENCY
from sim.performance.graph import OperatorGraph
from sim.performance.readers.layer_table import read_layers
from sim.performance.readers.sailor_files import TYPES

PARAM_BYTES = "24"
OVERHEAD_GIB = 5e9 / 2**30
TRANSFERS: Mapping[str, bool | str] = {"both": "both", "sender": True, "overlap": False}
ALONE = "RTX-3090"
"""Its nodes are joined by the slow network only."""


@dataclass(frozen=True)
class Compared:
    """A run: measured, as Sailor's own simulator has it, and ours."""

    group: str
    file: str
    measured_s: float
    sailor_s: float
    ours_s: float
    measured_gib: float
    sailor_gib: float
    ours_gib: float

    @property
    def time_error(self) -> float:
        return self.ours_s / self.measured_s - 1

    @property
    def memory_error(self) -> float:
        return self.ours_gib / self.measured_gib - 1


def compare(folder: Path, transfers: str = "both", *, as_listed: bool = False) -> list[Compared]:
    """Each run that is not suspect.

    Parameters
    ----------
    folder : Sailor's files.
    transfers : one of TRANSFERS.
    as_listed : between RTX 2080 and Titan RTX the rate of the rows of 8 GPUs.
    """
    models = read_layers(folder)
    rates = _rates(folder / "network.csv")
    runs = json.loads((folder / "measured_runs.json").read_text())["runs"]
    return [_compared(run, models, rates, transfers, as_listed) for run in runs if "SUSPECT" not in run["note"]]


def _rates(path: Path) -> dict[tuple[str, str, str], float]:
    """GB/s of the largest messages by the types at both ends and the GPUs of a VM, in one zone."""
    with open(path, newline="") as f:
        rows = csv.DictReader(line for line in f if not line.startswith("#"))
        return {
            (row["from_gpu"], row["to_gpu"], row["from_n"]): float(row["max_bytes_per_s"]) / 1e9
            for row in rows if row["from_zone"] == row["to_zone"] and row["from_n"] == row["to_n"]
        }  # fmt: skip


def _compared(
    run: dict[str, Any], models: Mapping[str, OperatorGraph], rates: Mapping[tuple[str, str, str], float],
    transfers: str, as_listed: bool,
) -> Compared:  # fmt: skip
    graph, mixed = models[run["model"]], run["cluster"] == "mit"
    if mixed:
        far = rates["RTX-2080", "RTX-3090", "8"]
        near = rates["RTX-2080", "Titan-RTX", "8" if as_listed else "4"]
    else:
        near = far = rates["GH-96", "GH-96", "4"]
    links = Links(near / NETWORK_EFFICIENCY, far / NETWORK_EFFICIENCY)
    performance = Performance(
        links, graphs={graph.name: graph}, calibration=for_graphs(shipped("tuned"), [graph]), optimizer=PARAM_BYTES,
        context_gib=0.0 if mixed else OVERHEAD_GIB, blocking=TRANSFERS[transfers],
    )  # fmt: skip
    plan, gpus, cluster = _planned(run, links)
    found = performance.plan(graph.name, run["global_batch"], plan, gpus, cluster)
    return Compared(
        "RTX mixed" if mixed else f"GH200 {run['model']}", run["file"], run["measured_s"], run["sailor_predicted_s"],
        found.iteration_s, run["measured_peak_bytes"] / 2**30, run["sailor_predicted_bytes"] / 2**30,
        max(found.memory_gib),
    )  # fmt: skip


def _planned(run: dict[str, Any], links: Links) -> tuple[Plan, np.ndarray, ClusterSpec]:
    """The plan of a run, each replica on a node of its own, and a cluster of these nodes in the plan's order."""
    names = sorted({name for stage in run["stages"] for name, _ in stage["replicas"]})
    stages, kinds, sizes, racks = [], [], [], []
    for stage in run["stages"]:
        replicas = sorted(stage["replicas"])
        (tensor,) = {ways for _, ways in replicas}
        count = {name: sum(name == one for one, _ in replicas) for name, _ in replicas}
        parts = [Part(TYPES[name], n * tensor, n / len(replicas)) for name, n in count.items()]
        stages.append(Stage(*stage["layers"], parts[0].gpu_type, len(replicas) * tensor, tensor,
                            tuple(parts) if len(parts) > 1 else ()))  # fmt: skip
        for name, _ in replicas:
            kinds.append(names.index(name))
            sizes.append(tensor)
            racks.append(len(racks) + 1 if name == ALONE else 0)
    cluster = ClusterSpec.build("runs", [gpu_type(TYPES[name]) for name in names], kinds, sizes, racks, links)
    micro = run["micro_batch"] * len(run["stages"][0]["replicas"])
    return Plan(tuple(stages), run["global_batch"] // micro), np.arange(sum(sizes), dtype=np.int32), cluster


def means(rows: Sequence[Compared]) -> dict[str, tuple[float, float, float, float]]:
    """Mean relative errors by group: of time and memory, ours; then Sailor's."""
    groups: dict[str, list[Compared]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)

    def mean(errors: Sequence[float]) -> float:
        return float(np.mean(np.abs(errors)))

    return {
        group: (mean([r.time_error for r in of]), mean([r.memory_error for r in of]),
                mean([r.sailor_s / r.measured_s - 1 for r in of]),
                mean([r.sailor_gib / r.measured_gib - 1 for r in of]))
        for group, of in groups.items()
    }  # fmt: skip


def main() -> None:
    """Print the table of runs and that of means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--transfers", choices=TRANSFERS, default="both")
    parser.add_argument("--as-listed", action="store_true")
    asked = parser.parse_args()
    rows = compare(asked.data / "sailor", asked.transfers, as_listed=asked.as_listed)
    print("| run | measured (s) | ours (s) | error (%) | Sailor's (%) | measured (GiB) | ours (GiB) | error (%) |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        print(f"| {row.file.removesuffix('.json').replace('plan_config_', '')} | {row.measured_s:.3f} "
              f"| {row.ours_s:.3f} | {100 * row.time_error:+.1f} | {100 * (row.sailor_s / row.measured_s - 1):+.1f} "
              f"| {row.measured_gib:.2f} | {row.ours_gib:.2f} | {100 * row.memory_error:+.1f} |")  # fmt: skip
    print("\n| runs | time: ours (%) | Sailor's (%) | memory: ours (%) | Sailor's (%) |")
    print("|---|---:|---:|---:|---:|")
    for group, (time, memory, sailor_time, sailor_memory) in means(rows).items():
        judged = not group.startswith("RTX")
        there = f"{100 * memory:.1f} | {100 * sailor_memory:.1f}" if judged else "not judged | not judged"
        print(f"| {group} | {100 * time:.1f} | {100 * sailor_time:.1f} | {there} |")


if __name__ == "__main__":
    main()
