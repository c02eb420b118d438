"""Faults that `mutants.py` plants in the files of a finished run: one thing is changed, as if by a slip of the pen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from analysis.run import Run
from sim.results.schema import FILES

FAILS, TURNS, PLANS = "las, nodes fail", "fifo, shares take turns", "hetero, plans"
MODELS = "srsf, nodes fail, iterations"


class Files:
    """The tables of a run as rows, and its run.json, to be changed."""

    def __init__(self, run: Run) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: table.to_pylist() for name, table in run.tables.items()}
        self.info: dict[str, Any] = _copied(run.info)
        self._run = run

    def changed(self) -> Run:
        """The run as its files are now."""
        tables = {name: pa.Table.from_pylist(rows, schema=FILES[name]) for name, rows in self.rows.items()}
        return Run(self._run.path, tables, self.info, self._run.timing)

    def stretch(self, reason: str, number: int = 0) -> dict[str, Any]:
        """A segment that ended for a reason."""
        return [s for s in self.rows["segments"] if s["end_reason"] == reason][number]

    def job(self, segment: dict[str, Any]) -> dict[str, Any]:
        return next(job for job in self.rows["jobs"] if job["job_id"] == segment["job_id"])

    def first(self, table: str, fits: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The first row that fits."""
        return next(row for row in self.rows[table] if fits(row))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    return [_copied(entry) for entry in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class RunFault:
    """What is wrong, of the run of which world, and what makes it so."""

    what: str
    world: str
    plant: Callable[[Files], Any]


def _twice_as_fast(files: Files) -> None:
    segment = files.stretch("done")
    segment.update(rate=2 * segment["rate"], work_done=2 * segment["work_done"])
    files.job(segment)["work_total"] += segment["work_done"] / 2


def _all_faster(files: Files) -> None:
    """Everything 5 % faster and 5 % more work: only the model knows better."""
    for segment in files.rows["segments"]:
        for name in ("rate", "work_done", "work_lost"):
            segment[name] *= 1.05
    for job in files.rows["jobs"]:
        job["work_total"] *= 1.05


def _without_overhead(files: Files) -> None:
    """What the job then does more it loses again, so that its work adds up."""
    segment = files.first("segments", lambda s: s["overhead_s"] == 5.0 and s["end_s"] - s["begin_s"] > 5.0)
    more = segment["overhead_s"] * segment["rate"]
    segment.update(overhead_s=0.0, work_done=segment["work_done"] + more, work_lost=segment["work_lost"] + more)


def _lost_nothing(files: Files) -> None:
    segment = files.first("segments", lambda s: s["work_lost"] > 0)
    job = files.job(segment)
    job["work_total"] += segment["work_lost"]
    job["duration_s"] += segment["work_lost"]
    segment["work_lost"] = 0.0


def _unfinished(files: Files, reason: str) -> None:
    last = files.rows["segments"][-1]
    last["end_reason"] = reason
    files.job(last).update(state="unfinished", end_s=None, reason="still running at the horizon")


def _swap_gpus(files: Files) -> None:
    """A segment on one GPU moves to the next one of its node."""
    segment = files.first("segments", lambda s: len(s["gpu_ids"]) == 1 and s["gpu_milli"] == 1000
                          and s["end_s"] - s["begin_s"] > 30)
    segment["gpu_ids"] = [segment["gpu_ids"][0] ^ 1]


def _without_a_segment(files: Files) -> None:
    files.rows["segments"].remove(files.stretch("preempted"))


def _later(files: Files) -> None:
    """A job's only segment a second later."""
    ids = [s["job_id"] for s in files.rows["segments"]]
    segment = files.first("segments", lambda s: ids.count(s["job_id"]) == 1)
    segment["begin_s"] += 1.0
    segment["end_s"] += 1.0
    job = files.job(segment)
    job["first_start_s"] += 1.0
    job["end_s"] += 1.0


def _set(row: dict[str, Any], **values: Any) -> None:
    row.update(values)


def _settings(files: Files, **values: Any) -> None:
    files.info["settings"].update(values)


FAULTS = (
    RunFault("rate 2 under recorded work, with its work", FAILS, _twice_as_fast),
    RunFault("one rate twice as high", FAILS, lambda f: _set(f.stretch("done"), rate=2.0)),
    RunFault("all rates and all work 5 % higher", MODELS, _all_faster),
    RunFault("`work_total` of a job", FAILS, lambda f: _set(f.rows["jobs"][3], work_total=1.0)),
    RunFault("`duration_s` of a job", FAILS, lambda f: _set(f.rows["jobs"][3], duration_s=1.0)),
    RunFault("`duration_s` of a job with a model", MODELS, lambda f: _set(f.rows["jobs"][3], duration_s=1.0)),
    RunFault("the overhead of a start taken away", FAILS, _without_overhead),
    RunFault("the overhead of all starts, in the settings", FAILS, lambda f: _settings(f, preemption_overhead_s=0.0)),
    RunFault("what a failure lost, with its work", FAILS, _lost_nothing),
    RunFault("work lost where it was kept", FAILS, lambda f: _set(f.stretch("preempted", 5), work_lost=1.0)),
    RunFault("another checkpoint interval", FAILS, lambda f: _settings(f, checkpoint_interval_s=1e4)),
    RunFault("`started` of all decisions 0", FAILS, lambda f: [_set(d, started=0) for d in f.rows["decisions"]]),
    RunFault("`stopped` of all decisions 0", FAILS, lambda f: [_set(d, stopped=0) for d in f.rows["decisions"]]),
    RunFault("`queued` of a decision", FAILS, lambda f: _set(f.rows["decisions"][40], queued=33)),
    RunFault("`running` of a decision", FAILS, lambda f: _set(f.rows["decisions"][40], running=33)),
    RunFault("the time of a decision", FAILS, lambda f: _set(f.rows["decisions"][40],
                                                            now_s=f.rows["decisions"][40]["now_s"] + 1e-3)),
    RunFault("a decision left out", FAILS, lambda f: (f.rows["decisions"].pop(40),
                                                     f.info.update(decisions=len(f.rows["decisions"])))),
    RunFault("done for preempted", FAILS, lambda f: _set(f.stretch("preempted"), end_reason="done")),
    RunFault("failed for preempted", FAILS, lambda f: _set(f.stretch("preempted"), end_reason="failed")),
    RunFault("node_failed for preempted", FAILS, lambda f: _set(f.stretch("preempted"), end_reason="node_failed")),
    RunFault("preempted for migrated", FAILS, lambda f: _set(f.stretch("migrated"), end_reason="preempted")),
    RunFault("migrated for preempted", FAILS, lambda f: _set(f.stretch("preempted"), end_reason="migrated")),
    RunFault("resized for migrated", FAILS, lambda f: _set(f.stretch("migrated"), end_reason="resized")),
    RunFault("maintenance for node_failed", FAILS, lambda f: _set(f.stretch("node_failed"), end_reason="maintenance")),
    RunFault("preempted for failed", FAILS, lambda f: _set(f.stretch("failed"), end_reason="preempted")),
    RunFault("horizon for done", FAILS, lambda f: _set(f.stretch("done"), end_reason="horizon")),
    RunFault("all work done, yet unfinished", FAILS, lambda f: _unfinished(f, "horizon")),
    RunFault("all work done, yet unfinished and done", FAILS, lambda f: _unfinished(f, "done")),
    RunFault("`sizes_gangs` true", FAILS, lambda f: f.info.update(sizes_gangs=True)),
    RunFault("`sizes_gangs` true, `one_type_gangs` false", FAILS, lambda f: f.info.update(
        sizes_gangs=True, one_type_gangs=False)),
    RunFault("`declares` more", FAILS, lambda f: f.info.update(declares=["shares_gpus"])),
    RunFault("two prices within a GPU type", FAILS, lambda f: _set(f.rows["nodes"][1], price_usd_per_gpu_h=9.0)),
    RunFault("two powers within a GPU type", FAILS, lambda f: _set(f.rows["nodes"][1], busy_w=9.0)),
    RunFault("all prices", FAILS, lambda f: [_set(n, price_usd_per_gpu_h=9.0) for n in f.rows["nodes"]]),
    RunFault("the rack of a node", FAILS, lambda f: _set(f.rows["nodes"][1], rack=7)),
    RunFault("the GPUs of the cluster, as counted", FAILS, lambda f: f.info["cluster"].update(
        gpus_by_type={"V100": 9})),
    RunFault("a failure that never was", FAILS, lambda f: _set(
        f.rows["nodes"][0], down_s=[f.info["start_s"] + 0.5], up_s=[f.info["start_s"] + 0.6])),
    RunFault("a failure left out", FAILS, lambda f: [_set(n, down_s=[], up_s=[]) for n in f.rows["nodes"]]),
    RunFault("a segment left out", FAILS, _without_a_segment),
    RunFault("a segment twice", FAILS, lambda f: f.rows["segments"].append(dict(f.stretch("done")))),
    RunFault("a job's only segment a second later", TURNS, _later),
    RunFault("a segment on the next GPU", FAILS, _swap_gpus),
    RunFault("killed for done", FAILS, lambda f: _set(f.first("jobs", lambda j: j["state"] == "done"), state="killed")),
    RunFault("a reason of a job that is done", FAILS, lambda f: _set(
        f.first("jobs", lambda j: j["state"] == "done"), reason="it was late")),
    RunFault("the user of a job", FAILS, lambda f: _set(f.rows["jobs"][3], user="nobody")),
    RunFault("the virtual cluster of a job", FAILS, lambda f: _set(f.rows["jobs"][3], vc="c")),
    RunFault("the deadline of a job", FAILS, lambda f: _set(f.rows["jobs"][3], deadline_s=1e6)),
    RunFault("the submission of a job", FAILS, lambda f: _set(
        f.rows["jobs"][3], submit_s=f.rows["jobs"][2]["submit_s"])),
    RunFault("another seed", FAILS, lambda f: f.info.update(seed=9)),
    RunFault("another policy", FAILS, lambda f: f.info.update(policy="fifo")),
    RunFault("another end of the run", FAILS, lambda f: f.info.update(end_s=f.info["end_s"] + 5.0)),
    RunFault("another hash of the trace", FAILS, lambda f: f.info["trace"].update(hash="0" * 16)),
    RunFault("the iteration time of a plan", PLANS, lambda f: _set(f.rows["plans"][0], iteration_s=9.0)),
    RunFault("the true iteration time of a plan", PLANS, lambda f: _set(f.rows["plans"][0], true_iteration_s=9.0)),
    RunFault("the rate of a planned job", PLANS, lambda f: _set(f.stretch("done"), rate=9.0)),
    RunFault("overhead forgotten at a change of speed", TURNS, lambda f: _set(f.stretch("respeed"), end_reason="done")),
)
