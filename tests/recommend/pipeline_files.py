"""The pipeline planners' own inputs as problems, and the oracle's rows on them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from policies.recommend.algorithms.all_downsets import down_sets
from policies.recommend.algorithms.pipedream_levels import Cuts, Level, hierarchical
from policies.recommend.algorithms.piper_stages import Piper, PiperPlan, best_plan, equal_stages
from sim.performance.graph import VALUE_BYTES, OperatorGraph
from sim.performance.readers.pipedream_profile import read_pipedream
from sim.performance.readers.profiled import FILE_VALUE_BYTES

GIB = 2.0**30
WAYS = ("vanilla", "activation recomp")
GBYTES_PER_S = {"3.1": 3.125}
"""The oracle's rounded figures: 25 Gbit/s (its `dp_s` tell)."""


def sets_of(inputs: list[list[int]]) -> np.ndarray:
    """Down-sets of a graph, bool [I, n], smaller ones first."""
    found = down_sets(inputs)
    assert found is not None
    sets = np.zeros((len(found), len(inputs)), dtype=bool)
    for g, ops in enumerate(found.groups):
        sets[:, list(ops)] = found.members[:, [g]]
    return sets


# -- PipeDream ---------------------------------------------------------------------------------------------


def pipedream_cuts(path: Path, *, as_published: bool = True) -> Cuts:
    """The cuts of a PipeDream profile, without inputs and without outputs of tuples that nobody reads.

    `as_published`: bytes across a cut as the published optimizer counts them, see `published_cut_bytes`; else those
    of each output made before the cut and read after it, once.
    """
    graph = read_pipedream(path)
    read = {source for sources in graph.inputs for source in sources}
    kept = [op for op, name in enumerate(graph.ops) if "__getitem__" not in name or op in read]
    place = {op: i for i, op in enumerate(kept)}
    inputs = [[place[s] for s in graph.inputs[op] if s >= 0] for op in kept]
    sets = sets_of(inputs)
    crossing = (published_cut_bytes if as_published else _cut_bytes)(sets, inputs, _out_bytes(graph, kept))
    return Cuts.of_sets(sets, *_columns(graph, kept), crossing)


def _columns(graph: OperatorGraph, kept: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time, parameter bytes and activation bytes of operators."""
    assert graph.profile is not None
    work_s = (graph.profile.fwd_s + graph.profile.bwd_s)[kept]
    return work_s, graph.weight_params[kept] * FILE_VALUE_BYTES, _out_bytes(graph, kept)


def _out_bytes(graph: OperatorGraph, kept: list[int]) -> np.ndarray:
    """Outputs of operators, as large as in the file."""
    return graph.out_bytes[kept] * FILE_VALUE_BYTES / VALUE_BYTES


def _cut_bytes(sets: np.ndarray, inputs: list[list[int]], out_bytes: np.ndarray) -> np.ndarray:
    reads = np.zeros((len(inputs),) * 2, dtype=bool)
    for op, sources in enumerate(inputs):
        reads[sources, op] = True
    return np.array([out_bytes[inside & reads[:, ~inside].any(axis=1)].sum() for inside in sets])


def published_cut_bytes(sets: np.ndarray, inputs: list[list[int]], out_bytes: np.ndarray) -> np.ndarray:
    """Outputs of a set's last operators, and of their ancestors that anything but an ancestor of theirs reads.

    So an output that nothing behind the cut reads counts, where one last operator is no ancestor of another's input.
    """
    n = len(inputs)
    before, readers = np.zeros((n, n), dtype=bool), np.zeros((n, n), dtype=bool)  # [op, ancestor], [op, reader]
    for op in _topological(inputs):
        for source in inputs[op]:
            before[op] |= before[source]
            before[op, source] = readers[source, op] = True
    out = np.zeros(len(sets))
    for i, inside in enumerate(sets):
        counted = inside & ~(readers & inside).any(axis=1)
        for last in np.flatnonzero(counted):
            others = ~before[last]
            others[last] = False
            counted |= before[last] & (readers & others).any(axis=1)
        out[i] = out_bytes[counted].sum()
    return out


def _topological(inputs: list[list[int]]) -> list[int]:
    done: list[int] = []
    seen: set[int] = set()
    while len(done) < len(inputs):
        ready = [op for op, sources in enumerate(inputs) if op not in seen and seen.issuperset(sources)]
        done += ready
        seen.update(ready)
    return done


@dataclass(frozen=True)
class PipedreamRow:
    """One row of the oracle: a profile, a network, and the period that the published optimizer found (NaN: none)."""

    graph: str
    config: str
    period_s: float
    data_parallel_s: float
    wall_s: float

    @property
    def levels(self) -> list[Level]:
        outer, inner, rates = re.match(r"(\d+)x(\d+)@([\d.,]+)GBps", self.config).groups()
        machines = [int(inner), int(outer)][: len(rates.split(","))]
        return [Level(m, GBYTES_PER_S.get(rate, float(rate)) * 1e9)
                for m, rate in zip(machines, rates.split(","), strict=True)]

    def settings(self) -> dict[str, Any]:
        """Options of `hierarchical`: activations cost nothing in the configurations of plain '1x4'."""
        free = self.config in ("1x4@1GBps", "1x4@10GBps", "1x4@10GBps mem16GB")
        room = 16e9 if "mem16GB" in self.config else float("inf")
        return {"straight": "straight" in self.config, "transfers": not free, "room_bytes": room}

    def ours(self, cuts: Cuts):
        return hierarchical(cuts, self.levels, **self.settings())


def _rows(oracle_dir: Path) -> Iterator[dict[str, str]]:
    with (oracle_dir / "placement" / "reference.csv").open() as file:
        yield from csv.DictReader(file)


def pipedream_rows(oracle_dir: Path) -> list[PipedreamRow]:
    out = []
    for row in _rows(oracle_dir):
        if row["problem"] == "pipeline bottleneck":
            told = re.search(r"dp_s=(\S+)", row["extra"])
            out.append(PipedreamRow(
                row["instance"].removeprefix("pipedream/"), row["config"], float(row["objective"] or "nan"),
                float(told[1]) if told else float("nan"), float(row["wall_s"] or "nan"),
            ))
    return out


def published_configs(oracle_dir: Path) -> list[tuple[str, int, tuple[int, ...]]]:
    """Profile, GPUs and replicas of each stage that PipeDream's authors ran."""
    out = []
    for row in _rows(oracle_dir):
        if row["problem"] == "published config":
            text = row["objective"].split(" ")[0].replace("1x8", "-".join("1" * 8))
            out.append((row["instance"].removeprefix("pipedream/"), int(row["k"]),
                        tuple(int(n) for n in text.split("-"))))
    return out


def networks(gpus: int) -> dict[str, list[Level]]:
    """Networks that PipeDream's authors may have had: one bandwidth for all, or servers of four GPUs at 10 Gbit/s.

    No file of theirs tells. The 8 GB/s within a server are ours, chosen after the fact: of 60 bandwidths from 0.1 to
    40 GB/s, those from 3.9 to 8.7 and from 16 on give the published replicas of ResNet-50, and no others do.
    """
    flat = {f"{rate} GB/s": [Level(gpus, rate * 1e9)] for rate in (1, 1.25, 3.125, 12)}
    inner = [Level(4, 8e9)]
    if gpus == 4:
        return flat | {"a server": inner}
    return flat | ({"servers of 4": [*inner, Level(gpus // 4, 1.25e9)]} if gpus % 4 == 0 else {})


def best_replicas(cuts: Cuts, levels: list[Level]) -> tuple[int, ...]:
    """Replicas of each stage of the best pipeline."""
    return tuple(stage.replicas for stage in hierarchical(cuts, levels).stages)


# -- Piper -------------------------------------------------------------------------------------------------


def read_piper_document(path: Path, layers: int) -> dict[str, Any]:
    """Piper's BERT-32, with the layer before the last repeated until there are `layers`, as Piper's own runs do."""
    document = json.loads(path.read_text())
    nodes = {node["id"]: node for node in document["nodes"]}
    chain = layer_chain(document)
    before, copied, last = chain[-3:]
    for _ in range(layers - len(chain)):
        new = max(nodes) + 1
        edge = next(e for e in document["edges"] if (e["sourceId"], e["destId"]) == (copied, last))
        document["edges"].append({**edge, "sourceId": new})
        edge["destId"] = new
        node = json.loads(json.dumps({**nodes[copied], "id": new}))
        for way in _all_ways(node):
            way["syncTimeFw"] = {str(copied): way["syncTimeFw"][str(before)]}
            way["syncTimeBw"] = {str(last): way["syncTimeBw"][str(last)]}
        for way in _all_ways(nodes[copied]):
            way["syncTimeBw"][str(new)] = way["syncTimeBw"].pop(str(last))
        for way in _all_ways(nodes[last]):
            way["syncTimeFw"][str(new)] = way["syncTimeFw"].pop(str(copied))
        nodes[new] = node
        document["nodes"].append(node)
        before, copied = copied, new
    return document


def _all_ways(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [way for ways in node["TMPCs"].values() for way in ways]


def layer_chain(document: dict[str, Any]) -> list[int]:
    """The transformer layers, in order."""
    layers = {node["id"] for node in document["nodes"] if node["name"] == "ParallelTransformerLayer"}
    follows = {e["sourceId"]: e["destId"] for e in document["edges"] if {e["sourceId"], e["destId"]} <= layers}
    chain = list(layers - set(follows.values()))
    while chain[-1] in follows:
        chain.append(follows[chain[-1]])
    return chain


def piper_problem(document: dict[str, Any], devices: int, memory_bytes: float, micro_batches: int,
                  bytes_per_s: float) -> Piper:
    """A file of Piper's as a problem; its nodes are numbered from 0 without gaps."""
    nodes = document["nodes"]
    assert [node["id"] for node in nodes] == list(range(len(nodes)))
    edges = np.array([(e["sourceId"], e["destId"]) for e in document["edges"]], dtype=np.int64)
    tensor = sorted({int(t) for node in nodes for t in node["TMPCs"]})
    time_s = np.full((len(tensor), len(nodes), 2), np.inf)
    params, flight, fixed = (np.zeros(time_s.shape) for _ in range(3))
    sync_in, sync_out = (np.zeros((len(tensor), len(edges), 2)) for _ in range(2))
    for node in nodes:
        v = node["id"]
        for t, ways in node["TMPCs"].items():
            for way in ways:
                at = tensor.index(int(t)), v, WAYS.index(way["id"])
                time_s[at], params[at] = way["timePerSample"], way["parameterSize"]
                flight[at], fixed[at] = way["memoryUsageA"], way["memoryUsageB"]
                for e, (source, reader) in enumerate(edges):
                    if reader == v:
                        sync_in[at[0], e, at[2]] = way["syncTimeFw"][str(source)]
                    if source == v:
                        sync_out[at[0], e, at[2]] = way["syncTimeBw"][str(reader)]
    edge_bytes = np.array([e["communicationCost"] for e in document["edges"]])
    return Piper(tuple(tensor), time_s, params, flight, fixed, edges, edge_bytes, sync_in, sync_out, devices,
                 memory_bytes, bytes_per_s, micro_batches)


@dataclass(frozen=True)
class PiperRow:
    """One row of the oracle: layers of BERT, devices, micro-batches, what was allowed, and the period found."""

    layers: int
    devices: int
    micro_batches: int
    algorithm: str
    period_s: float
    cpu_s: float

    def problem(self, document: dict[str, Any]) -> Piper:
        return piper_problem(document, self.devices, 8 * GIB, self.micro_batches, 25 * GIB)

    def ours(self, document: dict[str, Any]) -> PiperPlan | None:
        problem = self.problem(document)
        if self.algorithm.startswith("equi"):
            layers = layer_chain(document)
            ends = set(range(problem.operators)) - set(layers)
            after = [reader for source, reader in problem.edges.tolist() if source in layers and reader in ends]
            return equal_stages(problem, layers, sorted(ends - set(after)), after, tensor=self.algorithm == "equi")
        return best_plan(problem, piper_sets(problem), data=self.algorithm != "noDP",
                         tensor=self.algorithm != "noTP", recompute=self.algorithm != "noAR")


def piper_sets(problem: Piper) -> np.ndarray:
    """Down-sets of a problem's operators."""
    inputs: list[list[int]] = [[] for _ in range(problem.operators)]
    for source, reader in problem.edges.tolist():
        inputs[reader].append(source)
    return sets_of(inputs)


def piper_rows(oracle_dir: Path) -> list[PiperRow]:
    out = []
    for row in _rows(oracle_dir):
        if row["problem"] == "TPS (max stage time)":
            assert row["config"].startswith("mem=8GiB") and row["config"].endswith("bw=25GiB/s")
            out.append(PiperRow(
                int(row["instance"].removeprefix("piper/bert")), int(row["k"]),
                int(re.search(r"N=(\d+)", row["config"])[1]), row["algorithm"].removeprefix("Piper "),
                float(row["objective"]), float(row["cpu_s"] or "nan"),
            ))
    return out
