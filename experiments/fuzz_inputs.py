"""Files that a user gives beside traces, whole, and the doors that read them: what `fuzz.py` damages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

JOBS = "job_id,submit_s,duration_s,num_gpus\na,0,60,1\nb,30,600,4\nc,40,20,2\n"

CLUSTER = """\
name = "ours"
[[nodes]]
type = "V100"
count = 4
gpus = 8
rack_size = 2
price_usd_per_gpu_h = 2.5
[[nodes]]
type = "T4"
count = 3
gpus = 4
[links]
network_gbytes_per_s = 12.5
"""
PRICES = """\
[[prices]]
gpu_type = "V100"
amount_per_h = 2.48
per = "gpu"
currency = "USD"
kind = "on-demand"
source = "a list"
date = "2024-05-01"
"""
CONFIG = """\
[run]
policy = "srtf"
trace = "jobs.csv"
cluster = "v100:8x4+t4:2x8"
work = "recorded"
seed = 3
[policy]
[engine]
mtbf_h = 100.0
repair_h = 1.0
preemption_overhead_s = 5.0
quotas = {a = 4, b = 2}
"""
SWEEP = """\
[run]
trace = "jobs.csv"
cluster = "v100:1x4"
work = "recorded"
[[sweep]]
policy = ["fifo", "srtf"]
seed = [0, 1]
[results]
tables = ["jobs", "segments"]
[[figure]]
name = "jct"
kind = "lines"
y = "jct_s"
x = "policy"
"""
PERF = """\
[perf]
model = ["resnet18"]
gpu = ["V100", "T4"]
gpus = [1, 2, 8]
batch_size = [128, 256]
node_gpus = 4
network_gbytes_per_s = 3.125
[figure]
x = "gpus"
y = "samples_per_s"
line = "batch_size"
"""
MAP = """\
delimiter = "comma"
[columns]
id = "job_id"
submit = "submit_s"
duration = "duration_s"
gpus = "num_gpus"
[units]
submit = "s"
duration = "min"
[status]
passed = ["DONE", "OK"]
[calendar]
start = "2020-04-01"
zone = "Asia/Shanghai"
"""
OPERATOR_ROWS = """\
gpu,precision,kind,name,flops,bytes,fwd_s,bwd_s,launches
H100,mixed,launch,one,0,0,9.7e-06,,1
H100,mixed,gemm,64x1024,134217728,2359296,4.5e-06,7.5e-06,1
V100,mixed,conv,3x3,1e9,1e6,1e-4,2e-4,1
"""
MODEL_ROWS = ("gpu,precision,model,batch_size,mode,time_s\nH100,mixed,resnet50,16,eager,0.0187\n"
              "T4,fp32,vgg16,64,eager,0.3\n")
PAIRS = ("gpu_type,model_a,batch_a,model_b,batch_b,scale_factor,steps_per_s_a,steps_per_s_b,norm_a,norm_b\n"
         "v100,ResNet-18,16,ResNet-18,32,1,2.5,3.1,0.53,0.43\nk80,A3C,,LM,5,1,2.5,3.1,0.5,0.4\n")
MEASURED = ("model,gpu_type,gpus,batch_size,nodes,iterations_per_s_total\nresnet50,V100,1,64,,5.5\n"
            "resnet50,V100,4,256,1,5.1\nvgg16,T4,2,32,spread,0\n")
GAVEL = {"v100": {"('ResNet-18 (batch size 16)', 1)": {"null": 4.8, "('LM (batch size 5)', 1)": [2.5, 3.1]},
                  "('ResNet-18 (batch size 16)', 4)": {"null": 14.5}}}
PIPEDREAM = """\
node1 -- Input0 -- forward_compute_time=636.0, backward_compute_time=0.0, activation_size=400.0, parameter_size=0.0
node2 -- Conv2d(3, 8) -- forward_compute_time=4.0, backward_compute_time=7.0, activation_size=80.0, parameter_size=89.0
node3 -- LSTM(8) -- forward_compute_time=2.0, backward_compute_time=3.0, activation_size=[3.0; 5.0], parameter_size=24.0
\tnode1 -- node2
\tnode2 -- node3
"""
SYNTHETIC = {
    "nodes": {
        "a": {"t": 10.0, "par": 400, "out": 64, "group": "a", "bw": False},
        "ba": {"t": 20.0, "par": 0, "out": 64, "group": "a", "bw": True},
    },
    "edges": [["a", "ba", 64]],
}
PIPER = {
    "maxDevices": 2,
    "nodes": [{"id": i, "name": f"op{i}", "TMPCs": {"1": [{
        "id": "vanilla", "timePerSample": 0.3, "parameterSize": 40.0, "memoryUsageA": 8.0, "memoryUsageB": 4.0,
        "syncTimeFw": {}, "syncTimeBw": {}}]}} for i in (1, 2)],
    "edges": [{"sourceId": 1, "destId": 2, "communicationCost": 8.0}],
}
DNN = {
    "maxFPGAs": 2, "maxCPUs": 1, "maxMemoryPerFPGA": 16e9,
    "nodes": [{"id": i, "name": f"op{i}", "supportedOnFpga": 1, "cpuLatency": 9.0, "fpgaLatency": float(i),
               "size": 100.0, "isBackwardNode": 0, "colorClass": i} for i in (1, 2, 3)],
    "edges": [{"sourceId": i, "destId": i + 1, "size": 10.0, "cost": 10.0} for i in (1, 2)],
}


@dataclass(frozen=True)
class Kind:
    """One kind of file.

    Attributes
    ----------
    file : the file that is damaged, in the folder of `beside`.
    read : what reads the folder's file, as a command does.
    form : how its content is damaged as a tree or table: toml, json, parquet; bytes: as bytes alone; empty: as text.
    """

    name: str
    file: str
    content: bytes
    read: Callable[[Path], object]
    form: str = ""
    beside: Mapping[str, bytes] = field(default_factory=dict)


def kinds(scratch: Path) -> list[Kind]:
    """All kinds; a run and a sweep are played in `scratch`, from which their files are."""
    return [*_described(), *_graphs(), *_played(scratch)]


def _described() -> list[Kind]:
    from sim.cli.questions import load_experiment
    from sim.cluster.clusterfiles import load_cluster
    from sim.cluster.prices import read_prices
    from sim.performance.calibration import Calibration
    from sim.performance.calibration_rows import read_rows
    from sim.performance.sharing import read_pairs
    from sim.performance.tables.any_table import load_table
    from sim.settings.config import load_config
    from sim.sweeps.grid import read_grid
    from traces.load import load_trace

    shipped = files("sim").joinpath("performance", "calibrations", "eager.toml").read_bytes()
    jobs = {"jobs.csv": JOBS.encode()}
    return [
        Kind("cluster", "cluster.toml", CLUSTER.encode(), lambda path: load_cluster(str(path)), "toml"),
        Kind("prices", "prices.toml", PRICES.encode(), read_prices, "toml"),
        Kind("settings", "run.toml", CONFIG.encode(), _replayed(load_config), "toml", jobs),
        Kind("sweep", "sweep.toml", SWEEP.encode(), _swept(read_grid), "toml", jobs),
        Kind("perf", "perf.toml", PERF.encode(), load_experiment, "toml"),
        Kind("calibration", "calibration.toml", shipped, Calibration.load, "toml"),
        Kind("map", "map.toml", MAP.encode(),
             lambda path: load_trace(path.with_name("jobs.csv"), "mapped", map=str(path)), "toml", jobs),
        Kind("operator rows", "rows.csv", OPERATOR_ROWS.encode(), read_rows),
        Kind("model rows", "models.csv", MODEL_ROWS.encode(), read_rows),
        Kind("pairs", "pairs.csv", PAIRS.encode(), read_pairs),
        Kind("measured", "measured.csv", MEASURED.encode(), load_table),
        Kind("measured, Gavel's", "gavel.json", json.dumps(GAVEL).encode(), load_table, "json"),
    ]


def _replayed(load: Callable[[Path], Any]) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        from sim.sweeps.replay import Replay

        return Replay(load(path))
    return read


def _swept(load: Callable[[Path], Any]) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        from analysis.figures.sweepdrawing import drawings

        return load(path), drawings(path)
    return read


def _graphs() -> list[Kind]:
    from sim.performance.readers import read_graph

    def kind(name: str, file: str, content: object, form: str = "json") -> Kind:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        return Kind(f"graph, {name}", file, data, read_graph, form)

    return [kind("Piper's", "piper.json", PIPER), kind("DNN partitioning's", "dnn.json", DNN),
            kind("made", "made.json", SYNTHETIC), kind("PipeDream's", "graph.txt", PIPEDREAM.encode(), ""),
            kind("ONNX", "model.onnx", _onnx(), "bytes")]


def _onnx() -> bytes:
    """A small model: a convolution, a multiplication of matrices, a reshape by a constant."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    weights = [numpy_helper.from_array(np.zeros(shape, np.float32), name)
               for name, shape in (("w", (4, 3, 3, 3)), ("m", (64, 10)))]
    weights.append(numpy_helper.from_array(np.array([-1, 64], np.int64), "s"))
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("Reshape", ["r", "s"], ["f"]), helper.make_node("MatMul", ["f", "m"], ["y"])]
    graph = helper.make_graph(
        nodes, "made", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (8, 10))], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data: bytes = model.SerializeToString()
    return data


def _played(scratch: Path) -> list[Kind]:
    """Each file of a run, read as the audit, the metrics and the report read it; and the files of a sweep."""
    from analysis.sweeps import load_sweep
    from sim.settings.config import RunConfig
    from sim.sweeps.replay import Replay

    run = scratch / "run"
    config = RunConfig(policy="srtf", trace="philly", jobs=30, work="recorded", cluster="v100:2x4+t4:2x4", seed=1)
    Replay(config).play().write(run)
    content = {file.name: file.read_bytes() for file in sorted(run.iterdir())}
    found = []
    for name, data in content.items():
        beside = {other: more for other, more in content.items() if other != name}
        form = "parquet" if name.endswith(".parquet") else "json"
        found.append(Kind(f"a run's {name}", name, data, _analysed, form, beside))
    sweep = _sweep(scratch)
    for name in ("sweep.json", next(n for n in sweep if n.startswith("cells/")),
                 next(n for n in sweep if n.startswith("metrics/"))):
        beside = {other: more for other, more in sweep.items() if other != name}
        form = "parquet" if name.endswith(".parquet") else "json"
        depth = name.count("/")
        found.append(Kind(f"a sweep's {name.split('/')[0]}", name, sweep[name],
                          lambda path, depth=depth: load_sweep(path.parents[depth]).table("metrics"),  # type: ignore[misc]
                          form, beside))
    return found


def _sweep(scratch: Path) -> dict[str, bytes]:
    """The files of a small sweep, by their place in its folder."""
    from sim.sweeps.executors import Here
    from sim.sweeps.grid import read_grid
    from sim.sweeps.store import Store
    from sim.sweeps.sweeping import sweep

    (scratch / "jobs.csv").write_text(JOBS)
    file, out = scratch / "sweep.toml", scratch / "sweep"
    file.write_text(SWEEP.replace("jobs.csv", str(scratch / "jobs.csv")))
    sweep(read_grid(file), Store(out), Here)
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*"))
            if path.is_file() and not path.name.startswith(".")}


def _analysed(path: Path) -> object:
    from analysis.audit import audit
    from analysis.metrics import measures, per_job
    from analysis.run import load_run

    audit(load_run(path.parent, check=False))
    run = load_run(path.parent)
    return measures(run), per_job(run)
