"""Laws of decisions: the policy is asked at once, after all that is due then, and does what the segments show."""

from __future__ import annotations

import numpy as np

from analysis.run.facts import Facts, Finding, Violation, earliest

BY_DECISION = ("preempted", "resized", "migrated")
"""What ends a segment by the policy's word."""
BEFORE_IT = ("done", "failed", "node_failed", "maintenance")
"""What ends one at an instant before the policy is asked."""


def _told(facts: Facts) -> bool:
    """Whether the run has decisions at all: one of which run.json counts none need not say any."""
    return len(facts.run.tables["decisions"]) > 0


def starts_and_stops(facts: Facts) -> Finding:
    """At each instant `started` adds up to the segments that take GPUs, `stopped` to those that a decision ends."""
    if not _told(facts):
        return Finding(0, "decisions")
    now = facts.run.column("decisions", "now_s")
    stops = facts.ended_by(*BY_DECISION)
    when, texts, total = [], [], 0
    for word, times in (("started", facts.begin[facts.starts]), ("stopped", facts.end[stops])):
        said = facts.run.column("decisions", word).astype(np.int64)
        time_s, at = np.unique(np.concatenate((now, times)), return_inverse=True)
        want = np.bincount(at[len(now) :], minlength=len(time_s))
        got = np.zeros(len(time_s), dtype=np.int64)
        np.add.at(got, at[: len(now)], said)
        total += int(want.sum())
        i = earliest(got != want, time_s)
        if i is not None:
            when.append(float(time_s[i]))
            texts.append(f"decisions say {got[i]} {word}; the segments show {want[i]}")
    found = Violation(texts[int(np.argmin(when))], min(when)) if when else None
    return Finding(total, "starts and stops", found)


def at_once(facts: Facts) -> Finding:
    """Each submission, end, failure, return and change by maintenance before the run's end has a decision at its time.

    At the end of the run there need be none: nobody is left to decide on.
    """
    if not _told(facts):
        return Finding(0, "instants")
    nodes = facts.run.tables["nodes"]
    lists = (nodes[name].combine_chunks().flatten().to_numpy(zero_copy_only=False).astype(float)
             for name in ("down_s", "up_s", "maintenance_s"))
    happened = (("a submission", facts.submit), ("an end", facts.end[facts.ended_by(*BEFORE_IT, "lease_ended")]),
                *zip(("a node that left", "a node that came back", "a change by maintenance"), lists, strict=True))
    now, stop = facts.run.column("decisions", "now_s"), facts.run.window_s[1]
    count, found = 0, None
    for what, times in happened:
        due = times[times < stop]
        count += len(due)
        missed = due[~np.isin(due, now)]
        if len(missed) and (found is None or found.time_s is None or missed.min() < found.time_s):
            found = Violation(f"{what}, but no decision then", float(missed.min()))
    return Finding(count, "events", found)


def seen(facts: Facts) -> Finding:
    """The first decision of an instant counts the jobs that run and wait then, after all else that is due then.

    Who was turned away, or left by the engine's verdict, may have gone at any time; who lost a lease at the instant may
    have lost it before the decision or after: there the count has a range.
    """
    if not _told(facts):
        return Finding(0, "decisions")
    now = facts.run.column("decisions", "now_s")
    first = np.flatnonzero(np.concatenate(([True], now[1:] != now[:-1])))
    time_s = now[first]
    launches = _Launches(facts)
    found = None
    for word, (least, most) in (("running", launches.running(time_s)), ("queued", launches.waiting(time_s))):
        said = facts.run.column("decisions", word).astype(np.int64)[first]
        i = earliest((said < least) | (said > most), time_s)
        if i is not None and (found is None or found.time_s is None or time_s[i] < found.time_s):
            most_said = "" if least[i] == most[i] else f" to {most[i]}"
            found = Violation(f"the decision saw {said[i]} jobs {word}; the segments show {least[i]}{most_said}",
                              float(time_s[i]))
    return Finding(len(first), "instants", found)


class _Launches:
    """Launches as arrays: row of the job, begin, end; whether it was surely, or perhaps, over before a decision at its
    end; and of each the one before of the same job (-1: none)."""

    def __init__(self, facts: Facts) -> None:
        count = int(facts.starts.sum())
        self._facts, before = facts, facts.neighbours[0]
        self._job, self._begin = np.zeros(count, dtype=np.int64), np.zeros(count)
        self._end, tail_begin = np.full(count, np.inf), np.full(count, np.inf)
        head, tail = np.flatnonzero(facts.starts), np.flatnonzero(~facts.ended_by("respeed"))
        self._job[facts.launch[head]] = facts.job[head]
        self._begin[facts.launch[head]] = facts.begin[head]
        self._end[facts.launch[tail]] = facts.end[tail]
        tail_begin[facts.launch[tail]] = facts.begin[tail]
        over, leased = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        over[facts.launch[tail]] = facts.ended_by(*BEFORE_IT)[tail]
        leased[facts.launch[tail]] = facts.ended_by("lease_ended")[tail]
        earlier = self._begin < self._end
        # A job whose speed changed at the very instant at which it then ended was there when the policy was asked.
        self._surely = over & earlier & (tail_begin < self._end)
        self._perhaps = (leased & earlier) | (over & earlier & (tail_begin == self._end))
        self._before = np.full(count, -1)
        self._before[facts.launch[head]] = np.where(before[head] < 0, -1, facts.launch[before[head]])

    def running(self, at_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fewest and most jobs that run when the policy is asked at each time."""
        there = _below(self._begin, at_s) - _below(self._end, at_s) - _equal(self._end[self._surely], at_s)
        return there - _equal(self._end[self._perhaps], at_s), there

    def waiting(self, at_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fewest and most jobs that wait when the policy is asked at each time."""
        facts, head = self._facts, self._before < 0
        since = np.where(head, facts.submit[self._job], self._end[self._before])
        ready = head | self._surely[self._before]
        perhaps = ~head & self._perhaps[self._before]
        # From `since` on, up to and at the begin; at `since` itself only who came back before the decision.
        always = _below(since, at_s) + _equal(since[ready], at_s) - _below(self._begin, at_s)
        least, most = always, always + _equal(since[perhaps], at_s)
        left = facts.ended.copy()
        left[facts.job[facts.ended_by("horizon")]] = True
        last = np.full(len(facts.submit), -np.inf)
        np.maximum.at(last, facts.job, facts.end)
        gone = np.where(np.isfinite(last), last, facts.submit)[~left]
        return least, most + _below(gone, at_s) + _equal(gone, at_s)


def _below(times: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """How many times lie before each."""
    return np.searchsorted(np.sort(times), at_s, side="left")


def _equal(times: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """How many times are equal to each."""
    times = np.sort(times)
    return np.searchsorted(times, at_s, side="right") - np.searchsorted(times, at_s, side="left")


LAWS = {
    "decisions start and stop what the segments show": starts_and_stops,
    "what happens is decided upon at once": at_once,
    "decisions see who runs and who waits": seen,
}
