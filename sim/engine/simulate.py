"""One run, from a trace, a cluster and a policy to tables: the call that the command line, tests and scripts share."""

from __future__ import annotations

import gc
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.api import DECLARED, HetsimError, Policy, PolicyError
from sim.cluster.spec import ClusterSpec, Ledger
from sim.cluster.timetable import make_timetable
from sim.engine.engine import Engine
from sim.engine.outcome import described
from sim.engine.viewsetup import make_view, tenants_of, virtual_clusters
from sim.kernels.cache_folder import code_hash
from sim.results import schema
from sim.results.as_tables import jobs_table, nodes_table
from sim.results.recorder import Recorder, write_run
from sim.results.spool import Spool
from sim.settings.config import EngineConfig
from sim.view.profile_time import Profiling
from sim.workload.progress import Truth
from traces.given_back import MANY, give_back
from traces.trace import Trace

if TYPE_CHECKING:
    from sim.performance import Performance


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run yields: the tables of `sim.results.schema`, what run.json says, and what was measured while it ran.

    Of tables: Arrow's, or files read column by column (`sim.results.spool.Spooled`), where a spool was given.
    """

    tables: dict[str, Any]
    info: dict[str, Any]
    timing: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Write the run folder, whole or not at all."""
        write_run(folder, self.tables, self.info, self.timing)


def simulate(
    trace: Trace,
    cluster: ClusterSpec,
    policy: Policy,
    truth: Truth,
    config: EngineConfig | None = None,
    *,
    performance: Performance | None = None,
    estimate_s: np.ndarray | None = None,
    estimate: str = "oracle",
    speed_belief: str = "exact",
    profiling_s: float = 0.0,
    seed: int = 0,
    worth_gpus: float | None = None,
    settings: dict[str, Any] | None = None,
    on_progress: Callable[[int, float], None] | None = None,
    spool: Spool | None = None,
) -> RunResult:
    """Replay a trace on a cluster under a policy.

    Parameters
    ----------
    truth : how much work each job has and how fast it does it (`sim.workload.progress`).
    performance : the belief about speed, for policies that plan or read throughputs; `speed_belief` names its kind.
    profiling_s : time that each job's first runs hold their GPUs until its speed is known, under policies that use it.
    estimate_s : believed run times (s on the reference gang), for policies that read them; `estimate` names their kind.
    worth_gpus : what the cluster is worth on the trace (`sim.workload.at_load.worth_gpus`), to keep in run.json where
        known.
    settings : further settings to keep in run.json.
    on_progress : called now and then with (jobs that have left, simulated time).
    spool : where long tables go while the run goes on; None: they are held.

    Raises
    ------
    OSError
        The spool's files cannot be written.
    PolicyError
        The policy's declared needs are not met (before anything runs).
    IllegalDecisionError
        The policy asked for something impossible.

    Examples
    --------
    Three jobs on two GPUs, first come, first served: job c waits until both GPUs of job a are free.

    >>> from policies.registry import make
    >>> from sim.cluster.clusterfiles import load_cluster
    >>> from sim.workload.progress import Recorded
    >>> trace = Trace.from_columns(
    ...     {"job_id": ["a", "b", "c"], "submit_s": [0, 0, 10], "duration_s": [100, 50, 20], "num_gpus": [2, 1, 1]})
    >>> cluster = load_cluster("v100:1x2")
    >>> result = simulate(trace, cluster, make("fifo"), Recorded(trace, cluster))
    >>> result.tables["jobs"].select(["job_id", "first_start_s", "end_s"]).to_pylist()[2]
    {'job_id': 'c', 'first_start_s': 100.0, 'end_s': 120.0}
    """
    config = config or EngineConfig()
    began = time.perf_counter()
    ledger, recorder = Ledger(cluster), Recorder(trace, cluster, spool)
    first_s, last_s = float(trace.submit_s[0]), float(trace.submit_s[-1])
    timetable = make_timetable(cluster, virtual_clusters(trace)[0], config, first_s, last_s)
    tenants = tenants_of(trace, cluster, config, policy, timetable)
    view = make_view(
        trace, cluster, ledger, truth, config, policy, timetable, performance=performance, estimate_s=estimate_s,
        tenants=tenants,
    )
    profiling_s = profiling_s if policy.needs_performance or policy.needs_throughput else 0.0
    if profiling_s > 0:
        view.profiling = Profiling(len(trace), profiling_s)
    try:
        policy.prepare(view)
    except HetsimError:
        raise
    except (Exception, SystemExit) as error:
        where = f"policy {policy.name!r}"
        raise PolicyError("the policy failed to prepare", where=where, got=described(error)) from error
    engine = Engine(
        trace, cluster, policy, truth, config, recorder, view, ledger, timetable, tenants=tenants, seed=seed,
        on_progress=on_progress,
    )
    with _collector_off():
        outcome = engine.run()
    looped = time.perf_counter()
    del engine, view, ledger
    if len(trace) >= MANY:
        gc.collect()  # engine and desk know each other: a third of a GiB of a million jobs, where tables are made now
        give_back()
    tables = {
        "segments": recorder.table("segments"),
        "jobs": jobs_table(
            trace, truth.work_total, outcome.first_start_s, outcome.end_s, outcome.state, outcome.reason
        ),
        "nodes": nodes_table(cluster, outcome.down_s, outcome.up_s, outcome.maintenance),
        "decisions": recorder.table("decisions"),
        "plans": recorder.table("plans"),
    }
    counts = dict(zip(cluster_names(cluster), cluster.gpus_by_type().tolist(), strict=True))
    provenance = trace.provenance
    info = {
        "schema_version": schema.SCHEMA_VERSION,
        "policy": policy.name,
        "policy_settings": {k: ("inf" if v == np.inf else v) for k in policy.settings() for v in [getattr(policy, k)]},
        "trace": {
            "source": provenance.source,
            "format": provenance.format,
            "rule": provenance.rule,
            "jobs": len(trace),
            "rows_read": provenance.rows_read,
            "counts": dict(provenance.counts),
            "notes": list(provenance.notes),
            "options": dict(provenance.options),
            "source_sha256": provenance.sha256,
            "hash": trace.content_hash(),
        },
        "cluster": {
            "name": cluster.name,
            "gpus_by_type": counts,
            "nodes": cluster.num_nodes,
            "links": schema.in_json(asdict(cluster.links)),  # an unknown price is no number
        },
        "work": {
            "mode": truth.mode, "unit": truth.unit, "rule": truth.rule,
            **({} if worth_gpus is None else {"worth_gpus": worth_gpus}),
        },
        "settings": {k: ("inf" if v == np.inf else v) for k, v in config.model_dump().items()},
        "estimate": estimate if policy.needs_estimates else "none",
        "speed_belief": speed_belief if policy.needs_performance or policy.needs_throughput else "none",
        **({"profiling_s": profiling_s} if profiling_s > 0 else {}),
        "seed": seed,
        "one_type_gangs": not policy.sizes_gangs,
        "sizes_gangs": policy.sizes_gangs,
        "declares": [word for word in DECLARED if getattr(policy, word)],
        "start_s": float(trace.submit_s[0]),
        "end_s": outcome.last_s,
        "decisions": outcome.decisions,
        "versions": dict(versions()),
        **({"timetable": timetable.info} if timetable.info else {}),
        **({"policy_counts": counts} if (counts := {k: v for k, v in policy.counted().items() if v}) else {}),
        "code_hash": code_hash(),
        **(settings or {}),
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    timing = {"wall_s": time.perf_counter() - began, "loop_s": looped - began, "peak_mib": peak}
    return RunResult(tables, info, timing)


@contextmanager
def _collector_off() -> Iterator[None]:
    """No garbage collection while the loop runs: it makes no cycles, and looking for some walks the whole calendar."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def cluster_names(cluster: ClusterSpec) -> list[str]:
    """Names of the cluster's GPU types, in its order."""
    return [t.name for t in cluster.types]


@cache
def versions() -> Mapping[str, str]:
    """Versions of what computes the numbers: read from the disk once a process, not once a run."""
    packages = ("numpy", "numba", "pyarrow", "simpy")
    return MappingProxyType({"hetsim": version("hetsim"), "python": platform.python_version(),
                             **{name: version(name) for name in packages}})
