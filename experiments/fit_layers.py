"""Fit the calibration 'megatron' to measured layers of transformers, and say how far it is on whole runs held out.

    python experiments/fit_layers.py ../shared/data [--save sim/performance/calibrations/megatron.toml]

Rows: seconds forward, backward and of the update of a layer of OPT-350 and GPT-Neo-2.7 on 1, 2 or 4 GPUs (DeepSpeed
and Megatron, FP32 values, TF32 tensor cores where present), published with Sailor (SOSP 2025). Layers of LLAMA-3-8 are
left out: their attention keeps its scores, that of our decoder does not; so are those of OPT-30, which on an A100 take
four times as long as the others' do for their FLOPs. Runs: iterations of whole models on 1 to 32 nodes, none fitted;
which rows are fitted was settled with them in sight, so their error is a little too good.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sim.cli.whatif import on_full_nodes
from sim.cluster.plan import Part, Plan, Stage
from sim.cluster.spec import Links
from sim.hardware.gputypes import GpuType, gpu_type
from sim.performance import Performance
from sim.performance.calibrate import fit_models, predicted_s
from sim.performance.calibration import Calibration, FitError, named_calibration, shipped
from sim.performance.calibration_rows import ModelRow
from sim.performance.gpu_links import PCIE_EFFICIENCY, gang_allreduce_s
from sim.performance.graph import VALUE_BYTES, OperatorGraph
from sim.performance.zoo.language import gpt

TYPES = {"A100-40": "A100", "A100-80": "A100-80", "V100-16": "V100", "GH-96": "GH200", "Titan-RTX": "TitanRTX",
         "RTX-2080": "RTX2080Ti", "RTX-3090": "RTX3090"}
"""Their RTX-2080 has 11 GB: it is the one with Ti."""
MODELS = {"OPT-350": (24, 1024, 16, 50272), "GPT-Neo-2.7": (32, 2560, 20, 50257)}
"""Layers, width, heads, words; sequences of 2,048 tokens."""
TOKENS = 2048
UNTIED = ("OPT-350",)
"""Models whose last stage steps a table of its own, as the sizes of its last layer say."""
SUMMED = ("GH200", "A100", "A100-80", "V100")
"""Types whose nodes join their GPUs by NVLink, as we know it: of these, layers on 2 and 4 GPUs are fitted as well."""
LINKS = {
    # Four adapters of 200 Gbit/s (one for each GH200); 1 Gbit/s Ethernet.
    "clariden": Links(100.0, 100.0, network_latency_s=14e-6, network_class="infiniband-hdr"),
    "mit": Links(0.125, 0.125, network_latency_s=40e-6, network_class="ethernet-1"),
}
SOURCE = ("layers of OPT-350 and GPT-Neo-2.7 on 1, 2 or 4 A100, A100-80, V100 or GH200 and on one TitanRTX, RTX2080Ti "
          "or RTX3090, published with Sailor (SOSP 2025): DeepSpeed and Megatron in FP32 and TF32")


@cache
def whole(model: str) -> OperatorGraph:
    """The model as the zoo builds it: block 0 looks words up, the last one scores them, those between are layers."""
    layers, hidden, heads, words = MODELS[model]
    graph = gpt(layers, hidden, heads, TOKENS, words, name=model)
    if model not in UNTIED:
        return graph
    weights = graph.weight_params.copy()
    weights[graph.ops.index("logits")] += hidden * words
    return replace(graph, weight_params=weights)


@cache
def layer(name: str) -> OperatorGraph:
    """One of several GPUs' share of a layer, `OPT-350 1 /4`, as a graph of its own."""
    model, number, ways = name.split(" ")
    graph = whole(model).tensor_parallel(int(ways[1:]))
    mine = graph.block == int(number)
    columns = {f.name: getattr(graph, f.name)[mine] for f in fields(graph)
               if isinstance(getattr(graph, f.name), np.ndarray)}
    ops, kind = (tuple(one for one, use in zip(all_of, mine, strict=True) if use) for all_of in (graph.ops, graph.kind))
    # Times ask what an operator reads by its bytes alone, not from where.
    return replace(graph, name=name, ops=ops, kind=kind, inputs=((-1,),) * len(ops), **columns)


def rows(data: Path) -> list[ModelRow]:
    """A row for each kind of layer, GPU type, degree and micro-batch, without the sums over the GPUs of a degree."""
    found = []
    for row in layer_rows(data):
        model, first = row["model"], int(row["first_layer"])
        ways, gpu, batch = int(row["tensor"]), TYPES[row["gpu_type"]], float(row["micro_batch"])
        if model not in MODELS or (model == "GPT-Neo-2.7" and first == 33):
            continue  # the last layer of GPT-Neo is its norm alone
        if ways > 1 and (gpu not in SUMMED or ways > 4):
            continue
        time_s = sum(float(row[key]) for key in ("fwd_s", "bwd_s", "update_s"))
        name = f"{model} {first if first == 0 or first > MODELS[model][0] else 1} /{ways}"
        time_s -= sums_s(name, batch, gpu)
        if time_s > 0:
            found.append(ModelRow(gpu, "tf32", name, batch, "layer", time_s))
    return found


def layer_rows(data: Path) -> list[dict[str, str]]:
    """The rows of the file, as they are there."""
    with open(data / "sailor" / "layer_times.csv", newline="") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


def sums_s(name: str, samples: float, gpu: str) -> float:
    """Seconds of a layer's sums over the GPUs of a degree, on one node by the type's own links."""
    ways, graph = int(name.rsplit("/", 1)[1]), layer(name)
    scale = samples * 4 / VALUE_BYTES
    return sum(gang_allreduce_s(size * scale, gpu_type(gpu), (ways,), 1, Links()) for of in
               (graph.reduce_fwd_bytes, graph.reduce_bwd_bytes) for size in of.tolist() if size and ways > 1)


def joined(data: Path, fit: Calibration) -> dict[str, GpuType]:
    """The cards of which nobody says what joins them, each at the PCIe rate that its layers on several GPUs tell.

    A ring sends 2 (n - 1) / n of each sum: these bytes over the seconds that the layers take longer than predicted
    without sums, in the median over degrees and micro-batches.
    """
    found: dict[str, list[float]] = {}
    for row in layer_rows(data):
        ways, gpu, batch = int(row["tensor"]), TYPES[row["gpu_type"]], float(row["micro_batch"])
        if row["model"] not in MODELS or gpu in SUMMED or ways == 1 or int(row["first_layer"]) != 1:
            continue
        name = f"{row['model']} 1 /{ways}"
        graph = layer(name)
        one = ModelRow(gpu, "tf32", name, batch, "layer", math.nan)
        spent_s = sum(float(row[key]) for key in ("fwd_s", "bwd_s", "update_s")) - predicted_s([one], fit, layer)[0]
        summed = float((graph.reduce_fwd_bytes + graph.reduce_bwd_bytes).sum()) * batch * 4 / VALUE_BYTES
        found.setdefault(gpu, []).append(2 * (ways - 1) / ways * summed / spent_s)
    return {gpu: replace(gpu_type(gpu), nvlink_gbytes_per_s=0.0,
                         pcie_gbytes_per_s=float(np.median(rates)) / 1e9 / PCIE_EFFICIENCY)
            for gpu, rates in found.items()}


def run_s(run: dict[str, Any], performance: Performance, cards: Mapping[str, GpuType]) -> float:
    """Predicted seconds of an iteration of a measured run; inf: it would not fit into memory."""
    graph, replicas = whole(run["model"]), len(run["stages"][0]["replicas"])
    tensor, stages = run["stages"][0]["replicas"][0][1], []
    for stage in run["stages"]:
        first, last = (np.flatnonzero(np.asarray(graph.block) == n)[end] for n, end in zip(stage["layers"], (0, -1),
                                                                                            strict=True))
        types = Counter(TYPES[name] for name, _ in stage["replicas"])
        parts = tuple(Part(name, n * tensor, n / replicas) for name, n in types.items())
        stages.append(Stage(int(first), int(last), parts[0].gpu_type, replicas * tensor, tensor,
                            parts if len(parts) > 1 else ()))
    plan = Plan(tuple(stages), round(run["global_batch"] / run["micro_batch"] / replicas), schedule="1f1b")
    types = tuple(cards.get(name, gpu_type(name)) for name in dict.fromkeys(part.gpu_type for part in plan.parts))
    cluster, gpus = on_full_nodes(plan, types, tensor, performance)
    return performance.plan(run["model"], run["global_batch"], plan, gpus, cluster).iteration_s


def held_out(data: Path, names: tuple[str, ...], fit: Calibration) -> pd.DataFrame:
    """Predicted / measured of each run that its source does not call suspect, by calibration."""
    found, cards = [], joined(data, fit)
    for gpu in cards.values():
        print(f"{gpu.name}: {gpu.pcie_gbytes_per_s * PCIE_EFFICIENCY:.2f} Gbyte/s between its GPUs, by its layers")
    for run in json.loads((data / "sailor" / "measured_runs.json").read_text())["runs"]:
        if "SUSPECT" in run["note"]:
            continue
        row = {"cluster": run["cluster"], "model": run["model"], "replicas": len(run["stages"][0]["replicas"]),
               "stages": len(run["stages"]), "batch": run["global_batch"], "micro": run["micro_batch"]}
        for name in (*names, fit.name):
            calibration = fit if name == fit.name else named_calibration(name)
            speed = Performance(LINKS[run["cluster"]], calibration=calibration,
                                graphs={run["model"]: whole(run["model"])})
            row[name] = run_s(run, speed, cards) / run["measured_s"]
        found.append({**row, "sailor": run["sailor_predicted_s"] / run["measured_s"]})
    return pd.DataFrame(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with the real inputs")
    parser.add_argument("--save", type=Path, help="where the calibration is written")
    args = parser.parse_args()
    every = rows(args.data)
    fit = fit_models(every, layer, "megatron", SOURCE, update_apart=True)
    if args.save:
        fit.save(args.save)
    measured = np.array([row.time_s for row in every])
    table = pd.DataFrame({
        "layer": [row.model for row in every], "gpu": [row.gpu for row in every],
        "ratio": predicted_s(every, fit, layer) / measured,
    })  # fmt: skip
    print(fit.error)
    for name in ("tuned", "scripts"):
        print(f"{name}:", FitError.of(predicted_s(every, shipped(name), layer), measured))
    print("predicted / measured, mean over micro-batches:")
    print(table.pivot_table(index="layer", columns="gpu", values="ratio").round(2).to_string())
    runs = held_out(args.data, ("tuned", "scripts"), fit)
    print(runs.round(3).to_string())
    error = (runs.set_index(["cluster", "model"])[["tuned", "scripts", "megatron", "sailor"]] - 1).abs()
    error = error.where(np.isfinite(error))
    print("mean error of time, of runs that would fit into memory:")
    print(error.groupby(level=[0, 1]).mean().round(3).to_string())


if __name__ == "__main__":
    main()
