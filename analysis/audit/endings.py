"""Laws of endings: a segment ends for the reason that it says, and a job when its work is done."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from analysis.audit.accounts import RELATIVE
from analysis.run.facts import Facts, Finding
from analysis.run.one_run import explode
from sim.results.schema import OUT


def reasons_true(facts: Facts) -> Finding:
    """What the tables show at the end of a segment is what its reason says.

    done: the last one of a job that ran to its end, and such a job has no other end. failed: an attempt, so not of a
    job that ended there. horizon: the end of the run, of an unfinished job. node_failed: one of its nodes went down
    then. maintenance: one of its GPUs went out then. migrated, resized: the job goes on at once, on as many GPUs, or on
    another number.
    """
    after = facts.neighbours[1]
    last, ended = after < 0, facts.ended[facts.job]
    goes_on = ~last & (facts.begin[after] == facts.end)
    alike = facts.slot_count[after] == facts.slot_count
    node, down_s = explode(facts.run.tables["nodes"]["down_s"])
    held = facts.run.held
    down = _ends_with(facts, held.segment, held.node, node, down_s)
    _, what = explode(facts.run.tables["nodes"]["maintenance"])
    _, gpu = explode(facts.run.tables["nodes"]["maintenance_gpu"])
    _, out_s = explode(facts.run.tables["nodes"]["maintenance_s"])
    went = what == OUT
    out = _ends_with(facts, *facts.slots, gpu[went], out_s[went])
    right = {
        "done": last & ended, "failed": ~(last & ended), "node_failed": down & ~(last & ended),
        "horizon": last & (facts.state[facts.job] == "unfinished") & (facts.end == facts.run.window_s[1]),
        "maintenance": out & ~(last & ended), "migrated": goes_on & alike, "resized": goes_on & ~alike,
    }
    bad = last & ended & ~facts.ended_by("done")
    for reason, fits in right.items():
        bad |= facts.ended_by(reason) & ~fits
    words = facts.run.tables["segments"]["end_reason"]
    return Finding(len(bad), "segments", facts.of_segments(
        bad, lambda i: f"ends by {words[i].as_py()!r}, which the rest denies; the job is {facts.state[facts.job[i]]}",
        facts.end))


def _ends_with(
    facts: Facts, segment: np.ndarray, place: np.ndarray, gone: np.ndarray, when_s: np.ndarray
) -> np.ndarray:
    """bool [segments]: whether something went at the segment's end at one of its places (of each: segment, place)."""
    found = np.zeros(len(facts.begin), dtype=bool)
    if not len(gone):
        return found
    times, at = np.unique(when_s.astype(float), return_inverse=True)
    when = np.searchsorted(times, facts.end[segment])
    there = (when < len(times)) & (times[np.minimum(when, len(times) - 1)] == facts.end[segment])
    key = place.astype(np.int64) * len(times) + when
    found[segment[there & np.isin(key, gone.astype(np.int64) * len(times) + at)]] = True
    return found


def nothing_overdue(facts: Facts) -> Finding:
    """``end_s <= begin_s + overhead_s + (work_total - work that stood) / rate``; of an unfinished job's last ``<``.

    Within 1e-9, or four binary digits of the clock: nobody works on what is done, and who is done does not stay.
    """
    total, rate = facts.run.column("jobs", "work_total")[facts.job], facts.run.column("segments", "rate")
    left = np.maximum(0.0, total - facts.work_before)
    with np.errstate(divide="ignore", invalid="ignore"):
        due = facts.begin + facts.run.column("segments", "overhead_s") + np.where(left > 0, left / rate, 0.0)
        slack = 4.0 * np.spacing(np.abs(facts.end)) + RELATIVE * np.where(total > 0, total / rate, 0.0)
    bad = facts.end > due + slack
    unfinished = (facts.state == "unfinished")[facts.job] & (facts.neighbours[1] < 0)
    bad |= unfinished & (facts.end >= due)
    return Finding(len(bad), "segments", facts.of_segments(
        bad, lambda i: f"held to {facts.end[i]} s; its work was done at {due[i]} s", facts.end))


def attempts_even(facts: Facts) -> Finding:
    """After the k-th of n attempts of a finished job ``k / n`` of `work_total` stands, within 1e-9.

    n is one more than the attempts that failed.
    """
    failed = facts.ended_by("failed")
    if not failed.any():
        return Finding(0, "failed attempts")
    of_job = np.bincount(facts.job[failed], minlength=len(facts.submit))
    order = np.argsort(facts.job, kind="stable")
    number = np.zeros(len(failed), dtype=np.int64)
    number[order] = np.cumsum(failed[order])
    start = np.concatenate(([0], np.cumsum(of_job)[:-1]))
    total = facts.run.column("jobs", "work_total")[facts.job]
    stands = facts.work_before + facts.run.column("segments", "work_done") - facts.run.column("segments", "work_lost")
    want = total * (number - start[facts.job]) / (of_job[facts.job] + 1)
    bad = failed & facts.ended[facts.job] & ~(np.abs(stands - want) <= RELATIVE * np.abs(total))
    return Finding(int(failed.sum()), "failed attempts", facts.of_segments(
        bad, lambda i: f"an attempt failed at {stands[i]} of {total[i]} work, not at {want[i]}", facts.end))


def turned_away_for_good(facts: Facts) -> Finding:
    """A job that ran to its end gives no reason why it did not."""
    said = pc.not_equal(pc.utf8_trim_whitespace(pc.fill_null(facts.run.tables["jobs"]["reason"], "")), "").to_numpy()
    bad = facts.ended & said
    return Finding(int(facts.ended.sum()), "finished jobs", facts.of_jobs(
        bad, lambda i: f"{facts.state[i]}, with the reason {facts.run.jobs['reason'].iloc[i]!r}", facts.job_end))


LAWS = {
    "segments end for the reason that they say": reasons_true,
    "nothing works on what is done": nothing_overdue,
    "attempts are equal parts of the work": attempts_even,
    "finished jobs say no reason": turned_away_for_good,
}
