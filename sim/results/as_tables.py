"""Tables of jobs, of nodes and of plans: from what the engine knows to the columns of `sim.results.schema`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sim.api import Plan
from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import PRICE_KINDS
from sim.results import schema
from traces.arrow import column
from traces.trace import Trace


def plans_table(trace: Trace, plans: Sequence[tuple[int, float, Plan, float]]) -> pa.Table:
    """One row a stage and part, plan after plan."""
    rows = [
        {
            "job_id": trace.job_id[row],
            "begin_s": begin,
            "stage": number,
            "part": k,
            "first_op": stage.first_op,
            "last_op": stage.last_op,
            "ops": list(plan.order[stage.first_op : stage.last_op + 1]) or None,
            "gpu_type": part.gpu_type,
            "gpus": part.gpus,
            "share": part.share,
            "tensor": stage.degree(part),
            "micro_batches": plan.micro_batches,
            "schedule": plan.schedule,
            "chunks": plan.chunks,
            "recompute": plan.recompute,
            "zero": plan.zero,
            "iteration_s": _known(plan.iteration_s),
            "true_iteration_s": _known(true_s),
            "memory_gib": plan.memory_gib[number % len(plan.memory_gib)] if plan.memory_gib else None,
        }
        for row, begin, plan, true_s in plans
        for number, stage in enumerate(plan.stages)
        for k, part in enumerate(stage.all_parts)
    ]
    return table_of(schema.PLANS, {name: [row[name] for row in rows] for name in schema.PLANS.names})


def _known(value: float) -> float | None:
    """Null where a number is unknown."""
    return None if np.isnan(value) else value


def table_of(kind: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """A table of that kind; what is no Arrow array becomes one of its field's type."""
    arrays = []
    for f in kind:
        values = columns[f.name]
        arrays.append(values if isinstance(values, pa.Array) else column(values, f.type))
    return pa.Table.from_arrays(arrays, schema=kind)


def jobs_table(
    trace: Trace,
    work_total: np.ndarray,
    first_start_s: np.ndarray,
    end_s: np.ndarray,
    state: list[str],
    reason: list[str],
) -> pa.Table:
    """One row a job of the trace, in submit order; NaN times become null."""
    return table_of(
        schema.JOBS,
        {
            **{
                name: column(getattr(trace, name), schema.JOBS.field(name).type)
                for name in (
                    "job_id",
                    "user",
                    "vc",
                    "submit_s",
                    "num_gpus",
                    "gpu_milli",
                    "gpu_type",
                    "model",
                    "batch_size",
                    "duration_s",
                    "cut",
                )
            },
            "deadline_s": column(trace.deadline_s, nan_is_null=True),
            "priority": trace.priority,
            **{name: getattr(trace, name) for name in ("min_batch_size", "max_batch_size", "min_gpus", "max_gpus")},
            "first_start_s": column(first_start_s, nan_is_null=True),
            "end_s": column(end_s, nan_is_null=True),
            "work_total": column(work_total, nan_is_null=True),
            "state": state,
            "reason": reason,
        },
    )


def nodes_table(
    cluster: ClusterSpec, down_s: list[list[float]], up_s: list[list[float]],
    maintenance: Sequence[tuple[int, float, int, str]] = (),
) -> pa.Table:
    """One row a node, with when it was down; `maintenance`: node, when, GPU, and what, in order of time."""
    types = [cluster.types[t] for t in cluster.node_type]
    changes: list[list[tuple[int, float, int, str]]] = [[] for _ in types]
    for change in maintenance:
        changes[change[0]].append(change)
    return table_of(
        schema.with_further("nodes", [*["zone"] * cluster.zoned, *["machine"] * bool(cluster.node_machine)]),
        {
            "node": np.arange(cluster.num_nodes, dtype=np.int32),
            "gpu_type": [t.name for t in types],
            "gpus": cluster.node_gpus,
            "first_gpu": cluster.node_first[:-1],
            "rack": cluster.node_rack,
            "price_usd_per_gpu_h": [None if math.isnan(usd) else usd for usd in cluster.node_usd_per_gpu_h.tolist()],
            **{
                f"{kind.replace('-', '_')}_usd_per_gpu_h": [t.usd_per_gpu_h(kind) for t in types]
                for kind in PRICE_KINDS
            },
            "busy_w": [t.power_w for t in types],
            "idle_w": [t.idle_w for t in types],
            "down_s": down_s,
            "up_s": up_s,
            **{name: [[change[i] for change in of_node] or None for of_node in changes]
               for i, name in ((3, "maintenance"), (1, "maintenance_s"), (2, "maintenance_gpu"))},
            "zone": list(cluster.node_zone),
            "machine": list(cluster.node_machine),
        },
    )
