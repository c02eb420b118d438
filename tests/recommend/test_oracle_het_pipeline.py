"""Pipelines over several GPU types against an independent exact planner's results on PipeDream's graphs.

Its problem, found by fitting to its rows (all 27 agree): a stage on r GPUs of a type takes
(compute / speed + 4 (r - 1) P / (r B)) / r for P bytes of parameters, its transfers 2 a / (B r) on either side for a
bytes that cross (each output once); B = 12.5 GB/s. 3 P + activations, undivided, within 16 GB (A100: 40 GB). Costs
are $ for a million minibatches. The file has the six fastest of each front.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from policies.recommend.algorithms.chain_fleet import FleetTable
from policies.recommend.algorithms.long_chain import Chain, chain_of, reach_of
from sim.performance.graph import VALUE_BYTES, OperatorGraph
from sim.performance.readers import read_graph

BYTES_PER_S = 12.5e9
SPEED = {"V100": 1.0, "P100": 1 / 1.7, "T4": 1 / 2.6, "A100": 2.2}
USD_PER_H = {"V100": 3.06, "P100": 1.46, "T4": 0.526, "A100": 4.10}
ROOM_BYTES = {"V100": 16e9, "P100": 16e9, "T4": 16e9, "A100": 40e9}
GRAPHS = ("alexnet", "vgg16", "gnmt", "resnet18", "resnet50", "inception_v3", "resnet101", "densenet121",
          "nasnetamobile")  # fmt: skip


def chain(graph: OperatorGraph, fleet: dict[str, int]) -> Chain:
    """The problem of the file; options are (type, replicas)."""
    options = [(k, r) for k, name in enumerate(fleet) for r in range(1, fleet[name] + 1)]
    names, kinds = list(fleet), [k for k, _ in options]
    replicas = np.array([r for _, r in options])
    assert graph.profile is not None
    op_s = graph.profile.fwd_s + graph.profile.bwd_s
    # Of values of four bytes, as in the file.
    param_bytes, scale = 4 * graph.weight_params, graph.profile.value_bytes / VALUE_BYTES
    speed = np.array([SPEED[names[k]] for k in kinds])
    slope = 4 * (replicas - 1) / (replicas * BYTES_PER_S) / replicas
    reach = reach_of(3 * param_bytes + scale * graph.stored_bytes, 0 * op_s, 0 * op_s, [0.0] * len(options),
                     [ROOM_BYTES[names[k]] for k in kinds])
    degree = np.arange(1, replicas.max() + 1)
    transfer_s = 2 * np.concatenate([[0.0], scale * graph.cut_bytes]) / BYTES_PER_S
    return chain_of(
        op_s / speed[:, None] / replicas[:, None], kinds, replicas, [USD_PER_H[name] / 3600 * 1e6 for name in names],
        params=param_bytes, sync=np.stack([0 * slope, slope], axis=1)[:, None], reach=reach, group=replicas - 1,
        border_s=transfer_s[:, None, None] / np.minimum(degree[:, None], degree[None, :]),
    )  # fmt: skip


def rows(oracle_dir: Path, name: str) -> Iterator[dict[str, str]]:
    with (oracle_dir / "placement" / "reference.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["problem"] == "het pipeline bottleneck" and row["instance"] == f"pipedream/{name}":
                yield row


@pytest.mark.parametrize("name", GRAPHS)
def test_period_and_front_of_each_fleet_are_the_oracles(name, data_dir, oracle_dir):
    graph = read_graph(data_dir / "graphs" / "pipedream" / f"{name}.graph.txt")
    found = list(rows(oracle_dir, name))
    assert len(found) == 3
    for row in found:
        fleet = {kind: int(count) for kind, count in re.findall(r"(\w+):(\d+)", row["k"])}
        table = FleetTable(chain(graph, fleet), list(fleet.values()))
        assert table.period_s.min() == pytest.approx(float(row["objective"]), abs=1e-9)
        everything = re.search(r"all-devices=(\S+)", row["extra"])
        assert everything is not None
        assert table.period_s[-1] == pytest.approx(float(everything[1]), abs=1e-9)
        front = json.loads(row["extra"].split("pareto=")[1])
        ours = [(p.period_s, p.usd, p.counts) for p in table.front()][:6]
        assert [counts for *_, counts in ours] == [tuple(counts) for *_, counts in front]
        for (period_s, usd, _), (their_s, their_usd, _) in zip(ours, front, strict=True):
            assert period_s == pytest.approx(their_s, abs=1e-6)
            assert usd == pytest.approx(their_usd, abs=1e-3)
