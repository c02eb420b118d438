"""The deep audit: a run's files against what its own settings make anew: jobs, cluster, speeds, and the run itself.

The audit (`analysis.audit`) reads the files alone, and cannot know how fast a job should have been. Here trace, cluster
and policy are made again from `config` of run.json: what the files say of them must be what they are, each rate must be
the performance model's, and a second run, event by event in Python (no compiled loop), must write the same tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from analysis.audit import Report
from analysis.run import Run
from analysis.run.facts import Facts, Finding, Violation
from sim.api import DECLARED
from sim.kernels.cache_folder import code_hash
from sim.results.as_tables import jobs_table, nodes_table
from sim.results.schema import SCHEMA_VERSION, zoned
from sim.settings.config import EngineConfig, RunConfig
from sim.settings.values import checked
from sim.sweeps.kept import SweepError
from sim.sweeps.replay import Replay
from traces.errors import HetsimError

SAME = 1e-12
"""Relative difference of rates that is rounding: the same sum in another order."""
OF_THE_RUN = ("first_start_s", "end_s", "state", "reason")
"""Columns of jobs that the run decides; all others are the trace's."""
LOG_SAYS = {"passed": "done", "unknown": "done", "killed": "killed", "failed": "failed"}
"""State of a job that ran to its end, by its status in the trace: not the engine's own map, which may be wrong."""
OF_TIME = ("down_s", "up_s", "maintenance", "maintenance_s", "maintenance_gpu")


def look_again(run: Run, report: Report) -> Report:
    """What the audit found, and what the deep one finds beside.

    Parameters
    ----------
    run : as the audit took it, of sound form.
    report : the audit's; one that stopped at a law of form is given back as it is.

    Raises
    ------
    SweepError
        The run cannot be made anew here: it does not say its settings, or other code made it.
    HetsimError
        Its settings are refused, or name a file that is not there.
    """
    if any(violation.where for violation in report.violations):
        return report
    here, there = code_hash(), run.info.get("code_hash")
    where = f"{run.path}/run.json"
    if "config" not in run.info:
        raise SweepError("the run does not say all its settings, so it cannot be made anew", where=where,
                         got="no key 'config'", allowed="a run of hetsim run, or of a sweep",
                         todo="Audit it without --deep.")
    if (there, run.info["schema_version"]) != (here, SCHEMA_VERSION):
        raise SweepError("the run was made by other code, which may play it otherwise", where=where,
                         got=f"code_hash {there}", allowed=f"{here}, that of this code",
                         todo="Audit it with the code that made it, or without --deep.")
    replay = Replay(_config(run.info["config"], where))
    facts, checked_laws, found = Facts(run), dict(report.checked), list(report.violations)
    for name, law in LAWS.items():
        finding = law(facts, replay)
        checked_laws[name] = f"{finding.count:,} {finding.unit}" if finding.count else f"no {finding.unit}"
        if finding.violation is not None:
            found.append(finding.violation.named(name))
            if law is jobs_of_trace:
                break  # rows of other jobs are compared with nothing
    found.sort(key=lambda v: -np.inf if v.time_s is None else v.time_s)
    return Report(report.run, checked_laws, tuple(found))


def _config(said: dict[str, Any], where: str) -> RunConfig:
    """The settings of a run, as `Replay.settings` wrote them: infinity is text there."""
    engine = {name: np.inf if value == "inf" else value for name, value in said.get("engine", {}).items()}
    return checked(RunConfig, {**said, "engine": engine}, lambda key: f"{where}, config.{key}", error=SweepError)


def jobs_of_trace(facts: Facts, replay: Replay) -> Finding:
    """The trace of the settings has the hash of run.json; each job is one of it, with the work that it has there."""
    trace, truth = replay.workload.trace, replay.workload.truth
    blank = np.full(len(trace), np.nan)
    none = [""] * len(trace)
    want = jobs_table(trace, truth.work_total, blank, blank, none, none).drop_columns(list(OF_THE_RUN))
    said = facts.run.info.get("trace", {}).get("hash")
    if said != trace.content_hash():
        text = f"the settings give a trace of hash {trace.content_hash()}; run.json says {said}"
        return Finding(len(trace), "jobs", Violation(text))
    return Finding(len(trace), "jobs", _differs(facts.run.tables["jobs"].drop_columns(list(OF_THE_RUN)), want, "jobs"))


def nodes_of_cluster(facts: Facts, replay: Replay) -> Finding:
    """Nodes, types, racks, prices and power are those of the cluster of the settings."""
    nothing: list[list[float]] = [[] for _ in range(replay.cluster.num_nodes)]
    want = nodes_table(replay.cluster, nothing, nothing).drop_columns(list(OF_TIME))
    found = _differs(facts.run.tables["nodes"].drop_columns(list(OF_TIME)), want, "nodes")
    return Finding(replay.cluster.num_nodes, "nodes", found)


def policy_declared(facts: Facts, replay: Replay) -> Finding:
    """run.json says of the policy what its class declares, and of the engine what was set."""
    info, policy = facts.run.info, replay.policy
    declared = {"policy": policy.name, "sizes_gangs": policy.sizes_gangs, "one_type_gangs": not policy.sizes_gangs,
                "declares": [word for word in DECLARED if getattr(policy, word)]}
    wrong = [f"{key} {info.get(key)!r}, not {value!r}" for key, value in declared.items() if info.get(key) != value]
    return Finding(len(declared), "words of run.json", Violation("; ".join(wrong)) if wrong else None)


def ends_of_trace(facts: Facts, replay: Replay) -> Finding:
    """Who ran to the end is done, killed or failed as the trace says, after as many failed attempts (`retries`)."""
    trace = replay.workload.trace
    state = np.array([LOG_SAYS[status] for status in trace.status.tolist()], dtype=object)
    failed = np.bincount(facts.job[facts.ended_by("failed")], minlength=len(trace))
    want = trace.attempts - 1 if replay.config.engine.retries else np.zeros(len(trace), dtype=np.int64)
    bad = facts.ended & ((facts.state != state) | (failed != want)) | (failed > want)
    return Finding(int(facts.ended.sum()), "finished jobs", facts.of_jobs(
        bad, lambda i: f"{facts.state[i]} after {failed[i]} failed attempts; the trace: {state[i]} after {want[i]}"))


def rates_of_model(facts: Facts, replay: Replay) -> Finding:
    """`rate` is what the truth about progress gives on the GPUs of the segment; with neighbours it is at most that.

    Segments with terms of their own (another share, batch or cap) and jobs that were planned are left to the second
    run: what they agreed on is not in one table.
    """
    engine, truth = replay.config.engine, replay.workload.truth
    rate, milli = facts.run.column("segments", "rate"), facts.run.column("segments", "gpu_milli")
    own = _plain(facts)
    alone = engine.contention == "none" and engine.sharing in ("free", "slice")
    wide = np.where((milli < 1000) & (engine.sharing == "spatial"), 1000.0 / milli, 1.0)
    want = wide * _of_gpus(facts, own, lambda row, gpus: truth.rate(row, gpus, None))
    off = np.abs(rate - want) > SAME * want if alone else rate > want * (1.0 + 1e-9)
    bad = own & (off | np.isnan(want))
    return Finding(int(own.sum()), "segments", facts.of_segments(
        bad, lambda i: f"does {rate[i]} work a second; on these GPUs the model gives {want[i]}"))


def _plain(facts: Facts) -> np.ndarray:
    """bool [segments]: without a plan or terms of its own."""
    own: np.ndarray = facts.run.column("segments", "gpu_milli") == facts.run.column("jobs", "gpu_milli")[facts.job]
    for name in ("batch_size", "power_cap_w"):
        own &= np.isnan(facts.run.column("segments", name).astype(float))
    planned = set(facts.run.tables["plans"]["job_id"].to_pylist())
    if planned:
        own &= ~np.array([name in planned for name in facts.run.tables["segments"]["job_id"].to_pylist()], dtype=bool)
    return own


def _of_gpus(facts: Facts, asked: np.ndarray, of: Callable[[int, np.ndarray], float]) -> np.ndarray:
    """float64 [segments]: a value of a job on the GPUs of a segment, of those asked for; NaN of others."""
    segment, gpu = facts.slots
    first = np.searchsorted(segment, np.arange(len(asked) + 1))
    known: dict[tuple[int, bytes], float] = {}
    found = np.full(len(asked), np.nan)
    for i in np.flatnonzero(asked).tolist():
        gpus = gpu[first[i] : first[i + 1]].astype(np.int32)
        key = int(facts.job[i]), gpus.tobytes()
        if key not in known:
            known[key] = of(key[0], gpus)
        found[i] = known[key]
    return found


def egress_of_model(facts: Facts, replay: Replay) -> Finding:
    """`egress_usd_per_work` is what the truth says that an iteration sends out of a zone, priced by the settings.

    Segments with plans or terms of their own are left to the second run, as rates are.
    """
    if not zoned(facts.run.tables["segments"]):
        return Finding(0, "segments of clusters with zones")
    price = facts.run.column("segments", "egress_usd_per_work")
    wide = _plain(facts) & (price != 0.0)  # within a zone: the audit's own law
    truth = replay.workload.truth
    want = _of_gpus(facts, wide, lambda row, gpus: truth.egress_usd(row, gpus, None))
    bad = wide & ~((np.abs(price - want) <= SAME * np.abs(want)) | (np.isnan(price) & np.isnan(want)))
    return Finding(int(wide.sum()), "segments", facts.of_segments(
        bad, lambda i: f"pays {price[i]} USD a unit of work; by these GPUs and zones it is {want[i]}"))


def played_again(facts: Facts, replay: Replay) -> Finding:
    """A second run of the same settings, without the compiled loop, writes the same tables, value by value."""
    plain = replay.config.model_copy(update={"engine": EngineConfig(
        **{**replay.config.engine.model_dump(), "fast_lane": "off"})})
    second = Replay(plain, None)
    try:
        result = second.play()
    except HetsimError as error:
        return Finding(1, "second runs", Violation(f"the second run ends with: {error}"))
    count = sum(len(table) for table in result.tables.values())
    found = None
    for name, table in result.tables.items():
        found = found or _differs(facts.run.tables[name], table, name)
    for key in ("start_s", "end_s", "decisions"):
        if found is None and facts.run.info.get(key) != result.info[key]:
            found = Violation(f"run.json, {key!r}: {facts.run.info.get(key)}; the second run: {result.info[key]}")
    return Finding(count, "rows", found)


def _differs(got: pa.Table, want: pa.Table, name: str) -> Violation | None:
    """The first value in which a table is not what it should be."""
    if len(got) != len(want):
        return Violation(f"{name}.parquet has {len(got)} rows; there should be {len(want)}")
    first: tuple[int, str] | None = None
    for column in want.column_names:
        mine, other = (table[column].combine_chunks() for table in (got, want))
        if mine.equals(other):
            continue
        one, two = mine.to_pylist(), other.to_pylist()
        row = next((i for i, pair in enumerate(zip(one, two, strict=True)) if pair[0] != pair[1]), None)
        if row is not None and (first is None or row < first[0]):
            first = row, column
    if first is None:
        return None
    row, column = first
    job = str(got["job_id"][row].as_py()) if "job_id" in got.column_names else None
    text = f"{name}.parquet, row {row}, column {column!r}: {got[column][row].as_py()}; it should be " \
           f"{want[column][row].as_py()}"
    return Violation(text, job_id=job)


LAWS: dict[str, Callable[[Facts, Replay], Finding]] = {
    "deep: jobs and their work are those of the trace": jobs_of_trace,
    "deep: nodes are those of the cluster": nodes_of_cluster,
    "deep: the policy is what it declares": policy_declared,
    "deep: jobs end as the trace says": ends_of_trace,
    "deep: rates are those of the model": rates_of_model,
    "deep: bytes that leave a zone cost what the model sends": egress_of_model,
    "deep: a second run gives the same": played_again,
}
