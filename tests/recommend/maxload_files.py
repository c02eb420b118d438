"""Max-load problems and splits from dnn-partitioning's files, and the oracle's rows on them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from policies.recommend.algorithms.maxload_graph import MaxLoad


def read_problem(path: Path, *, cpus: int | None = None) -> MaxLoad:
    """The problem of a file of `throughput-inputs`; `cpus` instead of its own number of them."""
    document = json.loads(path.read_text())
    nodes = document["nodes"]
    at = {node["id"]: i for i, node in enumerate(nodes)}
    transfer = np.zeros(len(nodes))
    for edge in document["edges"]:
        transfer[at[edge["sourceId"]]] = edge["cost"]

    def column(name: str) -> np.ndarray:
        return np.array([float(node[name]) for node in nodes])

    accelerator = np.where(column("supportedOnFpga") > 0, column("fpgaLatency"), np.inf)
    # A node without a colour is one by itself.
    colour = [node.get("colorClass", f"node {node['id']}") for node in nodes]
    number = {c: i for i, c in enumerate(dict.fromkeys(colour))}
    return MaxLoad(
        accelerator=accelerator, cpu=column("cpuLatency"), memory=column("size"), transfer=transfer,
        edges=tuple((at[edge["sourceId"]], at[edge["destId"]]) for edge in document["edges"]),
        colour=np.array([number[c] for c in colour]), backward=column("isBackwardNode") > 0,
        accelerators=int(document["maxFPGAs"]), cpus=int(document["maxCPUs"] if cpus is None else cpus),
        capacity=float(document["maxSizePerFPGA"]),
    )


@dataclass(frozen=True)
class Row:
    """A row of the oracle: `load` in ms, NaN where the algorithm did not finish; `slack`: its relative rounding.

    Rows of CP-SAT counted in whole quanta: 0.05 % where they say that they were rounded, and by the distance of some
    bounds *above* their objective 0.005 % elsewhere. The others are printed to 6 digits.
    """

    instance: str
    algorithm: str
    accelerators: int
    load: float
    cpu_s: str
    status: str
    slack: float

    @property
    def cpus(self) -> int:
        """CPUs of the row's problem: one, unless it says that there is none."""
        return 0 if "no CPU" in self.algorithm else 1

    @property
    def anywhere(self) -> bool:
        """Whether the row's devices may have any operators."""
        return "non-contiguous" in self.algorithm

    def path(self, data: Path) -> Path:
        """The file of its problem."""
        kind, name = self.instance.removeprefix("dnnp/throughput/").split("__")
        return data / "graphs" / "dnn-partitioning" / "throughput-inputs" / kind / f"{name}.json"


def read_rows(oracles: Path) -> Iterator[Row]:
    """Rows of the problem 'maxload'."""
    with (oracles / "placement" / "reference.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["problem"] == "maxload":
                solver = "CP-SAT" in row["algorithm"]
                yield Row(row["instance"], row["algorithm"], int(row["k"]), float(row["objective"] or "nan"),
                          row["cpu_s"], row["status"],
                          5e-4 if "rounded" in row["source"] else 5e-5 if solver else 1e-5)
