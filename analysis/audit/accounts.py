"""Laws of account: work adds up, and what jobs and plans say of themselves is what the segments show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from analysis.run.facts import Facts, Finding, Violation, earliest
from sim.results.schema import zoned

RELATIVE = 1e-9
"""Largest relative error of work."""


def segment_work(facts: Facts) -> Finding:
    """``work_done = max(0, end_s - begin_s - overhead_s) * rate`` within 1e-9.

    A time is only known to its last binary digit (0.24 µs on
    a clock of 1.5e9 s), so work may also differ by what the rate does in four such digits; the relative
    bound alone would accuse short jobs of rounding.
    """
    table: dict[str, np.ndarray] = {
        n: facts.run.column("segments", n) for n in ("overhead_s", "rate", "work_done", "work_lost")
    }
    overhead, rate, done = table["overhead_s"], table["rate"], table["work_done"]
    want = np.maximum(0.0, facts.end - facts.begin - overhead) * rate
    digit = np.spacing(np.maximum(np.abs(facts.begin), np.abs(facts.end)))
    bad = ~(np.abs(done - want) <= RELATIVE * np.abs(want) + 4.0 * digit * np.abs(rate))
    return Finding(
        len(want),
        "segments",
        facts.of_segments(
            bad,
            lambda i: (
                f"work_done {done[i]}, but {facts.end[i] - facts.begin[i]} s less {overhead[i]} s overhead "
                f"at rate {rate[i]} is {want[i]}; work_lost {table['work_lost'][i]}"
            ),
            facts.end,
        ),
    )


def egress_paid(facts: Facts) -> Finding:
    """``egress_usd = work_done * egress_usd_per_work`` within 1e-9, also of work that is lost: it was sent.

    Nothing leaves within one zone; of a launch each unit of work costs the same; what is unknown is so in both columns,
    unless nothing was done.
    """
    run = facts.run
    if not zoned(run.tables["segments"]):
        return Finding(0, "segments of clusters with zones")
    done, price, usd = (run.column("segments", name) for name in ("work_done", "egress_usd_per_work", "egress_usd"))
    names, held = run.tables["nodes"]["zone"].to_pylist(), run.held
    zone = np.unique(np.array([name or "" for name in names]), return_inverse=True)[1][held.node]
    first, last = np.full(len(done), len(names)), np.full(len(done), -1)
    np.minimum.at(first, held.segment, zone)
    np.maximum.at(last, held.segment, zone)
    want = np.where(done > 0, done * price, 0.0)
    before, _ = facts.neighbours
    known = np.nan_to_num(price, nan=-1.0)
    bad = ~((np.abs(usd - want) <= RELATIVE * np.abs(want)) | (np.isnan(usd) & np.isnan(want)))
    bad |= (first == last) & (price != 0.0)
    bad |= ~facts.starts & (known != known[before])
    return Finding(len(done), "segments", facts.of_segments(
        bad,
        lambda i: f"{usd[i]} USD left {'one zone' if first[i] == last[i] else 'zones'}, {price[i]} USD a unit of work; "
                  f"of {done[i]} work that is {want[i]}",
        facts.end,
    ))


def job_work(facts: Facts) -> Finding:
    """``sum(work_done - work_lost) = work_total`` within 1e-9 for each job that ran to its end."""
    net = np.bincount(
        facts.job,
        weights=facts.run.column("segments", "work_done") - facts.run.column("segments", "work_lost"),
        minlength=len(facts.submit),
    )
    total = facts.run.column("jobs", "work_total")
    bad = facts.ended & ~(np.abs(net - total) <= RELATIVE * np.abs(total))
    return Finding(
        int(facts.ended.sum()),
        "finished jobs",
        facts.of_jobs(bad, lambda i: f"did {net[i]} of {total[i]} work", facts.job_end),
    )


def job_times(facts: Facts) -> Finding:
    """`first_start_s` is the first begin (null: never ran), `end_s` the last end (null: did not finish)."""
    n = len(facts.submit)
    first, last = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(first, facts.job, facts.begin)
    np.maximum.at(last, facts.job, facts.end)
    ran = np.isfinite(first)
    bad = np.where(ran, facts.first_start != first, ~np.isnan(facts.first_start))
    bad |= np.where(facts.ended, facts.job_end != last, ~np.isnan(facts.job_end))
    return Finding(
        n,
        "jobs",
        facts.of_jobs(
            bad,
            lambda i: (
                f"{facts.state[i]}, from {facts.first_start[i]} to {facts.job_end[i]} s; segments from "
                f"{first[i] if ran[i] else None} to {last[i] if ran[i] else None} s"
            ),
            np.fmin(facts.first_start, np.where(ran, first, np.nan)),
        ),
    )


def _reasoned(facts: Facts, state: str) -> tuple[np.ndarray, np.ndarray]:
    """Which jobs are in a state, and which jobs give a reason."""
    reason = pc.fill_null(facts.run.tables["jobs"]["reason"], "")
    return facts.state == state, pc.not_equal(pc.utf8_trim_whitespace(reason), "").to_numpy()


def rejected(facts: Facts) -> Finding:
    """A rejected job has no segments, and a reason."""
    mine, said = _reasoned(facts, "rejected")
    ran = np.bincount(facts.job, minlength=len(mine))
    return Finding(
        int(mine.sum()),
        "rejected jobs",
        facts.of_jobs(
            mine & (~said | (ran > 0)), lambda i: f"{ran[i]} segments" if ran[i] else "no reason given"
        ),
    )


def unfinished(facts: Facts) -> Finding:
    """An unfinished job has a reason; jobs that finished need none."""
    mine, said = _reasoned(facts, "unfinished")
    return Finding(
        int(mine.sum()), "unfinished jobs", facts.of_jobs(mine & ~said, lambda i: "no reason given")
    )


def plans_match(facts: Facts) -> Finding:
    """Each plan begins with a segment of its job, on as many GPUs of each type as the parts of its stages name.

    Interleaved, a GPU runs several stages and is counted with the first of them.
    """
    plans, run = facts.run.plans, facts.run
    if plans.empty:
        return Finding(0, "plans")
    segment, kind = facts.slot_kinds
    # GPUs by type, of each segment and each plan; the last column is for types not in the cluster.
    held = np.zeros((len(facts.begin), len(run.types) + 1), dtype=np.int64)
    np.add.at(held, (segment, kind), 1)
    first = ((plans["stage"] == 0) & (plans["part"] == 0)).to_numpy()
    number = first.cumsum() - 1
    stages = np.zeros(number[-1] + 1, dtype=np.int64)
    np.maximum.at(stages, number, plans["stage"].to_numpy() + 1)
    own = plans["stage"].to_numpy() * plans["chunks"].to_numpy() < stages[number]
    types = pd.Index(run.types).get_indexer(pd.Index(plans["gpu_type"]))
    want = np.zeros((number[-1] + 1, held.shape[1]), dtype=np.int64)
    np.add.at(want, (number[own], types[own]), plans["gpus"].to_numpy()[own])
    heads = plans.loc[first, ["job_id", "begin_s"]].assign(plan=range(len(want)))
    begun = run.segments[["job_id", "begin_s"]].assign(segment=range(len(held)))
    pairs = heads.merge(begun, on=["job_id", "begin_s"])
    same = (want[pairs["plan"]] == held[pairs["segment"]]).all(axis=1)
    bad = ~np.isin(np.arange(len(want)), pairs["plan"].to_numpy()[same])
    i = earliest(bad, heads["begin_s"].to_numpy())
    if i is None:
        return Finding(len(want), "plans")
    gpus = {name: int(n) for name, n in zip((*run.types, "unknown types"), want[i], strict=True) if n}
    text = f"the plan names {gpus}; no segment of the job begins then with just these"
    return Finding(
        len(want), "plans", Violation(text, float(heads["begin_s"].iloc[i]), str(heads["job_id"].iloc[i]))
    )
