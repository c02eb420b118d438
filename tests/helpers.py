"""Small things that tests share: a bare GPU type, clusters and traces in one line, a run in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from policies.registry import make
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import GpuType, gpu_type
from sim.settings.config import EngineConfig
from sim.workload.progress import Recorded
from traces.trace import Trace


def nodes(*groups: tuple[str, int, int]) -> ClusterSpec:
    """A cluster from (GPU type, nodes, GPUs a node) groups."""
    types: list[GpuType] = []
    node_type, node_gpus = [], []
    for name, count, gpus in groups:
        gpu = gpu_type(name)
        if gpu not in types:
            types.append(gpu)
        node_type += [types.index(gpu)] * count
        node_gpus += [gpus] * count
    return ClusterSpec.build("test", types, node_type, node_gpus)


def jobs(rows: Sequence[tuple[float, float, int]], **columns: Any) -> Trace:
    """A trace from (submit_s, duration_s, num_gpus) rows; ids are '0', '1', …"""
    submit, duration, gpus = zip(*rows, strict=True)
    return Trace.from_columns(
        {
            "job_id": [str(i) for i in range(len(rows))],
            "submit_s": submit,
            "duration_s": duration,
            "num_gpus": gpus,
            **columns,
        }
    )


def run(
    trace: Trace,
    cluster: ClusterSpec,
    policy: str,
    settings: dict[str, Any] | None = None,
    *,
    seed: int = 0,
    estimate_s: Any = None,
    **engine: Any,
) -> RunResult:
    """Replay durations as recorded; no preemption overhead unless given; estimates are the truth unless given."""
    config = EngineConfig(**{"preemption_overhead_s": 0.0, **engine})
    estimate_s = trace.duration_s if estimate_s is None else estimate_s
    return simulate(
        trace, cluster, make(policy, settings), Recorded(trace, cluster), config, estimate_s=estimate_s, seed=seed
    )


def by_job(result: RunResult) -> pd.DataFrame:
    """The jobs table, indexed by job id."""
    return result.tables["jobs"].to_pandas().set_index("job_id")


def segments(result: RunResult) -> pd.DataFrame:
    """The segments table in order of begin."""
    return result.tables["segments"].to_pandas().sort_values(["begin_s", "job_id"]).reset_index(drop=True)
