"""Gangs of the size that data parallelism makes best, before a policy sees them: what sizing alone is worth.

A policy that takes the number of GPUs from the trace is handed jobs whose gangs somebody has sized already; the work of
each job, its time of submission and the load are those of the gangs asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType
from sim.performance import Performance
from sim.workload.given_models import with_notes
from sim.workload.progress import Modelled
from traces.trace import Trace

HOUR_USD = 5.0
"""What an hour of a job is worth against the price of its GPUs: the default of the planners' setting `hour_usd`."""


def with_best_gangs(
    trace: Trace, scale: float, cluster: ClusterSpec, performance: Performance, reference: GpuType
) -> Trace:
    """Each job on the number of GPUs that costs it least by data parallelism, up to `scale` times its gang.

    An iteration of n GPUs of type t costs  c(n, t) = (HOUR_USD + n price[t]) / rate(n, t),  on as few nodes as hold
    them. A job gets the n of least  sum_t GPUs[t] log c(n, t)  over the types on which its own gang could run (all of
    which stay open to it), and of equal ones the fewest; an unknown price counts as 0. Bounds of elastic jobs are kept,
    and so are shares of a GPU, and jobs that cannot run on the reference type. A gang that changes has workers of one
    GPU; `duration_s`, and the estimate that the trace has, become those of the new gang on the reference type.

    Parameters
    ----------
    scale : 1 or more; fewer GPUs than asked for are always allowed.
    """
    work = Modelled(trace, cluster, performance, reference).work_total
    asked, whole = trace.num_gpus, (trace.gpu_milli == 1000) & ~np.isnan(work)
    gang = asked.copy()
    best: dict[tuple[str, int, int, str], dict[int, float]] = {}
    keys = zip(trace.model.tolist(), trace.batch_size.tolist(), asked.tolist(), trace.gpu_type.tolist(), strict=True)
    for row, key in enumerate(keys):
        if whole[row]:
            if key not in best:
                best[key] = _costs(*key, scale, cluster, performance, reference)
            lowest, most = int(trace.min_gpus[row]), int(trace.max_gpus[row])
            inside = {n: usd for n, usd in best[key].items() if n >= lowest and (not most or n <= most)}
            gang[row] = min(inside, key=inside.__getitem__, default=asked[row])
    changed = gang != asked
    told = f"{int((gang > asked).sum())} of {len(trace)} jobs got more GPUs and {int((gang < asked).sum())} fewer: {{}}"
    rule = f"the gang of least cost by data parallelism, up to {scale:g} times the one asked for (gang_scale)"
    columns: dict[str, Any] = {
        "num_gpus": gang, "worker_gpus": np.where(changed, 1, trace.worker_gpus),
        "work_iters": np.where(changed, work, trace.work_iters), "min_gpus": trace.min_gpus, "max_gpus": trace.max_gpus,
    }
    found = trace.replace(**columns)
    rate = Modelled(found, cluster, performance, reference).reference_rate
    slower = np.where(changed, work / rate / trace.duration_s, 1.0)
    times = {"duration_s": trace.duration_s * slower, "estimate_s": trace.estimate_s * slower}
    return with_notes(found, told.format(rule), **times)


def _costs(
    model: str, batch: int, asked: int, wish: str, scale: float, cluster: ClusterSpec, performance: Performance,
    reference: GpuType,
) -> dict[int, float]:
    """Number of GPUs -> mean logarithm of what an iteration costs, of all numbers that leave each type open."""
    there, nodes = cluster.gpus_by_type().tolist(), _largest_nodes(cluster)
    words = {word.lower() for word in wish.split("|")} - {""}
    types = [t for t, gpu in enumerate(cluster.types)
             if (not words or gpu.name.lower() in words) and asked <= there[t]
             and performance.fits(model, batch, gpu, asked)]
    if not types:
        return {}
    costs: dict[int, float] = {}
    for n in range(1, min(int(asked * scale + 1e-9), *(there[t] for t in types), max(there)) + 1):
        if not all(performance.fits(model, batch, gpu, n) for gpu in (reference, *(cluster.types[t] for t in types))):
            continue
        logs = []
        for t in types:
            gpu = cluster.types[t]
            rate = performance.data_parallel(model, batch, gpu, _packed(n, nodes[t])).rate
            usd = HOUR_USD + n * float(np.nan_to_num(gpu.price_or_nan))
            logs.append(there[t] * float(np.log(usd / rate)) if rate > 0 else np.inf)
        costs[n] = sum(logs)
    return costs


def _largest_nodes(cluster: ClusterSpec) -> Sequence[int]:
    """GPUs of the largest node of each type."""
    return [int(cluster.node_gpus[cluster.node_type == t].max(initial=1)) for t in range(len(cluster.types))]


def _packed(gpus: int, node: int) -> tuple[int, ...]:
    """So many GPUs on as few nodes as hold them."""
    full, rest = divmod(gpus, node)
    return (node,) * full + ((rest,) if rest else ())
