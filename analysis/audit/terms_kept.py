"""Laws of what policies may say beside who runs where: shares, batch sizes, power caps, leases, refusals.

A policy declares which of these it uses; run.json has that as `declares`, and what was not declared is in no file.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from analysis.run.facts import Facts, Finding


def shares_declared(facts: Facts) -> Finding:
    """A segment has the share that its job asked for, unless the policy `shares_gpus`."""
    asked = facts.run.column("jobs", "gpu_milli")[facts.job]
    milli = facts.run.column("segments", "gpu_milli")
    other = milli != asked
    bad = other & (not _declares(facts, "shares_gpus"))
    return Finding(int(other.sum()), "other shares", facts.of_segments(
        bad, lambda i: f"holds {milli[i]} milli of each GPU; asked for {asked[i]}"))


def batches_allowed(facts: Facts) -> Finding:
    """Another batch size lies in the job's own bounds, and the policy `sets_batch`."""
    batch = facts.run.column("segments", "batch_size").astype(float)
    own, low, high = (facts.run.column("jobs", name).astype(float)[facts.job]
                      for name in ("batch_size", "min_batch_size", "max_batch_size"))
    said = ~np.isnan(batch)
    low, high = (np.where(np.nan_to_num(bound) > 0, bound, own) for bound in (low, high))
    bad = said & ((batch < low) | (batch > high) | ((batch != own) & (not _declares(facts, "sets_batch"))))
    return Finding(int(said.sum()), "batch sizes", facts.of_segments(
        bad, lambda i: f"{batch[i]:g} samples an iteration; the job allows {low[i]:g} to {high[i]:g}"))


def caps_held(facts: Facts) -> Finding:
    """A power cap is at most the board's limit on each of its nodes, and the policy `caps_power`."""
    cap_w = facts.run.column("segments", "power_cap_w").astype(float)
    said = ~np.isnan(cap_w)
    limit_w = np.full(len(cap_w), np.inf)
    held = facts.run.held
    np.fmin.at(limit_w, held.segment, facts.run.column("nodes", "busy_w").astype(float)[held.node])
    bad = said & (~(cap_w <= limit_w) | (not _declares(facts, "caps_power")))
    return Finding(int(said.sum()), "power caps", facts.of_segments(
        bad, lambda i: f"a cap of {cap_w[i]:g} W on boards of {limit_w[i]:g} W"))


def leases_kept(facts: Facts) -> Finding:
    """No segment outlasts its lease as last renewed; one that its lease ended, ended just then."""
    until = facts.run.column("segments", "lease_until_s").astype(float)
    said = ~np.isnan(until)
    ended = pc.equal(facts.run.tables["segments"]["end_reason"], "lease_ended").to_numpy()
    bad = (said & ((facts.end > until) | (not _declares(facts, "leases_gpus")))) | (ended & ~(facts.end == until))
    return Finding(int(said.sum()), "leases", facts.of_segments(
        bad, lambda i: f"held to {facts.end[i]} s on a lease to {until[i]} s", facts.end))


def refusals_said(facts: Facts) -> Finding:
    """A refused job has no segments and a reason, and the policy `refuses_jobs`."""
    mine = facts.state == "refused"
    reason = pc.fill_null(facts.run.tables["jobs"]["reason"], "")
    said = pc.not_equal(pc.utf8_trim_whitespace(reason), "").to_numpy()
    ran = np.bincount(facts.job, minlength=len(mine))
    bad = mine & (~said | (ran > 0) | (not _declares(facts, "refuses_jobs")))
    return Finding(int(mine.sum()), "refused jobs", facts.of_jobs(
        bad, lambda i: f"{ran[i]} segments, reason {reason[i].as_py()!r}"))


def _declares(facts: Facts, word: str) -> bool:
    return word in (facts.run.info.get("declares") or ())


LAWS = {
    "shares of GPUs are those asked for, or declared": shares_declared,
    "batch sizes are allowed": batches_allowed,
    "power caps are within the boards' limits": caps_held,
    "leases are kept": leases_kept,
    "refused jobs never ran and say why": refusals_said,
}
