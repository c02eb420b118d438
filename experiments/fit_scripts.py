"""Fit the calibration 'scripts' to published single-GPU rates of training scripts, and say how far it is, by model.

    python experiments/fit_scripts.py ../shared/data [--save sim/performance/calibrations/scripts.toml]

Rows: Gavel's physical table, the step times of Pollux and Sia (least, middle and largest batch of each model and
type), ElasticFlow's A100 table. All but ImageNet are in single precision (TF32 on an A100): 600 images of 224 x 224 on
a V100 at 16.5 TFLOP/s are neither possible in its memory nor below its peak in FP32, so Pollux' ImageNet rows are
taken as mixed precision, and are not fitted but predicted.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import pandas as pd

from sim.performance.calibrate import fit_models, predicted_s
from sim.performance.calibration import FitError, shipped
from sim.performance.calibration_rows import ModelRow
from sim.performance.zoo import zoo_graph

GAVEL = {
    "LM": "lstm-wikitext2",
    "Recommendation": "autoencoder-ml20m",
    "ResNet-18": "resnet18-cifar",
    "ResNet-50": "resnet50",
    "Transformer": "transformer-multi30k",
}
POLLUX = {"bert": "bert-base-384", "cifar10": "resnet18-cifar", "yolov3": "yolov3", "imagenet": "resnet50"}
POLLUX_TYPES = {"aws": "T4", "rtx": "RTX2080Ti", "dgx-ext": "A100", "azure": "V100-32", "quad": "RTX6000"}
ELASTICFLOW = {"resnet50": "resnet50", "vgg16": "vgg16", "inception3": "inception-v3", "bert": "bert-base"}
SOURCE = (
    "published single-GPU rates: Gavel's physical table (V100, P100, K80), step times of Pollux and Sia (T4, "
    "RTX2080Ti, RTX6000, V100, A100; three batch sizes a model), ElasticFlow's A100 table"
)


def rows(data: Path) -> list[ModelRow]:
    """All rows; `mode` names the source."""
    return [*_gavel(data), *_pollux(data), *_elasticflow(data)]


def _gavel(data: Path) -> list[ModelRow]:
    found = []
    with open(data / "gavel" / "gavel_isolated_throughput.csv", newline="") as f:
        for row in csv.DictReader(f):
            for gpu in ("V100", "P100", "K80"):
                rate = float(row[f"physical_{gpu.lower()}"] or 0)
                if row["scale_factor"] == "1" and row["model"] in GAVEL and rate > 0:
                    batch = float(row["batch_size"])
                    found.append(ModelRow(gpu, "tf32", GAVEL[row["model"]], batch, "gavel", 1 / rate))
    return found


def _pollux(data: Path) -> list[ModelRow]:
    table = pd.read_csv(data / "pollux" / "pollux_sia_throughput.csv")
    table = table[table.num_replicas == 1].sort_values("local_bsz")
    found = []
    for (model, machine), group in table.groupby(["model", "gpu_type"]):
        if model in POLLUX and machine in POLLUX_TYPES:
            precision = "mixed" if model == "imagenet" else "tf32"
            for at in sorted({0, len(group) // 2, len(group) - 1}):
                batch, time_s = float(group.local_bsz.iloc[at]), float(group.step_time_s.iloc[at])
                found.append(ModelRow(POLLUX_TYPES[machine], precision, POLLUX[model], batch, "pollux", time_s))
    return found


def _elasticflow(data: Path) -> list[ModelRow]:
    found = []
    for file, model in ELASTICFLOW.items():
        with open(data / "elasticflow" / "throughputs_A100" / f"{file}.csv", newline="") as f:
            for row in csv.DictReader(f):
                batch, rate = float(row["global_batch_size"]), float(row["1"])
                found.append(ModelRow("A100", "tf32", model, batch, "elasticflow", 1 / rate))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with the real inputs")
    parser.add_argument("--save", type=Path, help="where the calibration is written")
    args = parser.parse_args()
    every = rows(args.data)
    single = [row for row in every if row.precision == "tf32"]
    fit = fit_models(single, zoo_graph, "scripts", SOURCE)
    if args.save:
        fit.save(args.save)
    measured = np.array([row.time_s for row in every])
    table = pd.DataFrame({
        "source": [row.mode for row in every],
        "model": [row.model for row in every],
        "gpu": [row.gpu for row in every],
        "precision": [row.precision for row in every],
        "ratio": predicted_s(every, fit, zoo_graph) / measured,
    })  # fmt: skip
    print(fit.error)
    print("nothing fitted:", FitError.of(predicted_s(single, shipped("tuned"), zoo_graph),
                                         np.array([row.time_s for row in single])))  # fmt: skip
    print("predicted / measured, mean over batch sizes:")
    print(table.pivot_table(index=["source", "precision", "model"], columns="gpu", values="ratio").round(2).to_string())


if __name__ == "__main__":
    main()
