"""Make the view of a run: the columns that a scheduler may know, and the beliefs that the policy declared it needs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sim.api import Jobs, Policy, PolicyError, View
from sim.cluster.spec import ClusterSpec, Ledger
from sim.cluster.tenants import TenantLedger, is_plain, make_tenants
from sim.cluster.timetable import Timetable
from sim.performance import Performance
from sim.performance.throughput import Throughput
from sim.settings.config import EngineConfig
from sim.workload.progress import Truth
from traces.columns import BY_NAME, shared
from traces.errors import did_you_mean
from traces.given_back import zeros
from traces.trace import Trace
from traces.words import coded

AS_SUBMITTED = (
    "user", "group", "recurrence", "deadline_s", "priority", "cpus", "memory_gib", "min_gpus", "max_gpus", "model",
    "batch_size", "min_batch_size", "max_batch_size",
)
"""Columns that a policy sees as they are in the trace. What is known only afterwards is in none of them."""


SEEN = ("job_id", "submit_s", "num_gpus", "gpu_milli", "worker_gpus", "gpu_type", "vc", "deadline_kind", *AS_SUBMITTED)
"""Columns that a policy sees in some form (`view.jobs`), and so may need."""


def make_view(
    trace: Trace,
    cluster: ClusterSpec,
    ledger: Ledger,
    truth: Truth,
    config: EngineConfig,
    policy: Policy,
    timetable: Timetable,
    *,
    performance: Performance | None = None,
    estimate_s: np.ndarray | None = None,
    tenants: TenantLedger | None = None,
) -> View:
    """Build the view of a run. Before the run begins, `vc_left` is the largest quota that each virtual cluster has.

    As the cluster is as large as it ever is: how much there may be is known, when it is there is not.

    Raises
    ------
    PolicyError
        The policy needs a column, estimates or modelled speeds that this run does not have. Nothing has run yet.
    """
    _check_needs(trace, policy, truth, performance, estimate_s)
    names, vc = virtual_clusters(trace)
    jobs = Jobs(
        job_id=trace.job_id,
        submit_s=trace.submit_s,
        num_gpus=trace.num_gpus,
        gpu_milli=trace.gpu_milli,
        worker_gpus=trace.worker_gpus,
        gpus=trace.num_gpus * (trace.gpu_milli / 1000.0),
        types=_reading(_type_masks(trace, cluster, truth, policy.sizes_gangs).view()),
        vc=_reading(vc.view()),
        vc_names=names,
        deadline_kind=_deadline_kinds(trace),
        **_side_by_side({name: getattr(trace, name) for name in AS_SUBMITTED}),
    )
    view = View(
        jobs,
        cluster,
        ledger,
        performance=performance if policy.needs_performance else None,
        estimate_s=estimate_s if policy.needs_estimates else None,
        preemption_overhead_s=config.preemption_overhead_s,
        throughput=Throughput(
            performance, cluster, trace.model.tolist(), trace.batch_size.tolist(), trace.gpu_milli.tolist(),
            config.sharing == "spatial",
        ) if policy.needs_throughput else None,
        reference_rate=truth.reference_rate if policy.needs_throughput else None,
        tenants=None if tenants is None else tenants.reading(),
        recorded_start_s=trace.submit_s + np.nan_to_num(trace.wait_s) if policy.needs_starts else None,
    )  # fmt: skip
    view.keep(happened=policy.reads_happened, time_by_type=policy.reads_time_by_type, memory=policy.shares_gpus)
    if policy.knows_maintenance:
        view.announced = [window for window in timetable.windows if window.known_s <= trace.submit_s[0]]
    for index in timetable.quotas:
        view.vc_left[index] = timetable.quota_ahead(index)[0]
    return view


def virtual_clusters(trace: Trace) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the virtual clusters, sorted, and int32 [jobs], the index of each job's."""
    vc, names = coded(trace.vc, sort=True)
    return tuple(names.tolist()), vc.astype(np.int32)


def tenants_of(
    trace: Trace, cluster: ClusterSpec, config: EngineConfig, policy: Policy, timetable: Timetable
) -> TenantLedger | None:
    """The queues of a run; None where the policy knows no tenants: plain quotas then are all that binds.

    Raises
    ------
    ConfigError
        Guarantees or quotas that do not fit each other, the trace or the cluster.
    PolicyError
        Quotas by GPU type or of outer queues, under a policy that knows no tenants.
    """
    if not policy.knows_tenants and not config.guarantees and not config.quotas:
        return None
    names, vc = virtual_clusters(trace)
    tenants = make_tenants(cluster, names, vc, config, dict(timetable.quotas_at(0)))
    if policy.knows_tenants:
        return tenants
    for name in config.quotas:
        if not is_plain(name, names):
            raise PolicyError(
                "the policy knows no tenants: it keeps to quotas of virtual clusters only",
                where=f"policy {policy.name!r}, setting 'engine.quotas'", got=name,
                allowed="virtual clusters with no queue in them, without a GPU type",
                todo="Take a policy that knows tenants, such as capacity.",
            )
    return None


def _check_needs(
    trace: Trace, policy: Policy, truth: Truth, performance: Performance | None, estimate_s: np.ndarray | None
) -> None:
    where = f"policy {policy.name!r}, trace {trace.provenance.source}"
    for column in policy.needs_columns:
        if column not in SEEN:
            raise PolicyError("needs_columns names what a policy cannot read", where=f"policy {policy.name!r}",
                              got=column, allowed=", ".join(SEEN), todo=did_you_mean(column, SEEN))
        if not BY_NAME[column].said(getattr(trace, column)):
            raise PolicyError(f"the policy needs column {column!r}, which this trace does not have", where=where)
    if policy.needs_performance and performance is None:
        raise PolicyError(
            "the policy plans with modelled speeds, but this run replays durations as recorded",
            where=where,
            todo="Use --work iterations.",
        )
    if policy.needs_throughput and performance is None and truth.mode == "iterations":
        raise PolicyError("the policy needs throughputs, and this run gives no belief of speed", where=where)
    if policy.needs_starts and np.isnan(trace.wait_s).all():
        raise PolicyError("the policy starts jobs when the log did, and this trace records no waits", where=where,
                          todo="Give wait_s, or take another policy.")
    if policy.needs_estimates and estimate_s is None:
        raise PolicyError("the policy needs run-time estimates, and this run gives none", where=where)


def _side_by_side(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns, read-only. Numbers lie side by side, even one that all jobs share: kernels expect that layout. Of
    such columns those with the same number are one array, and one of zeros takes no memory."""
    found, made = {}, {}
    for name, column in columns.items():
        if column.dtype != object and shared(column) and len(column):
            kind = column.dtype, str(column[0])
            if kind not in made:
                made[kind] = np.ascontiguousarray(column) if column[0] else zeros(len(column), column.dtype)
            column = made[kind]
        found[name] = _reading(column)
    return found


def _reading(column: np.ndarray) -> np.ndarray:
    column.flags.writeable = False
    return column


def _deadline_kinds(trace: Trace) -> np.ndarray:
    """'strict' or 'soft' for each job with a deadline, '' for the others: the blank kind is strict."""
    kind = trace.deadline_kind
    bound = ~np.isnan(trace.deadline_s)
    if not bound.any():
        return kind
    kinds = np.where(bound & (kind == ""), "strict", kind).astype(object)
    kinds.flags.writeable = False
    return kinds


def _type_masks(trace: Trace, cluster: ClusterSpec, truth: Truth, sizes_gangs: bool) -> np.ndarray:
    """uint64 bit mask a job: types that it allows and, unless the policy sizes gangs, that its gang's memory fits."""
    allowed: dict[str, int] = {"": (1 << len(cluster.types)) - 1}
    masks = np.empty(len(trace), dtype=np.uint64)
    for row, wish in enumerate(trace.gpu_type.tolist()):
        if wish not in allowed:
            names = {name.strip().lower() for name in wish.split("|")}
            allowed[wish] = sum(1 << t for t, gpu in enumerate(cluster.types) if gpu.name.lower() in names)
        masks[row] = allowed[wish] if sizes_gangs else allowed[wish] & truth.types(row)
    return masks
