"""Laws of conduct in time and space: each takes a run's facts, returns a count and the earliest violation."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.run import wishes
from analysis.run.facts import Facts, Finding, Violation, earliest

WHOLE = 1000
"""Milli-GPU in a GPU."""


def after_submit(facts: Facts) -> Finding:
    """``begin_s >= submit_s``."""
    submit = facts.submit[facts.job]
    return Finding(
        len(facts.begin),
        "segments",
        facts.of_segments(facts.begin < submit, lambda i: f"submitted at {submit[i]} s"),
    )


def speed_changes(facts: Facts) -> Finding:
    """After a segment that a change of speed ended, its job goes on at once, on the same GPUs.

    It loses no work, and what is left of its overhead is the overhead of the next segment, within the last binary
    digits of the clock.
    """
    i = np.flatnonzero(facts.ended_by("respeed"))
    j = facts.neighbours[1][i]
    overhead, lost = (facts.run.column("segments", name) for name in ("overhead_s", "work_lost"))
    left = np.maximum(0.0, facts.begin[i] + overhead[i] - facts.end[i])
    ids = facts.run.tables["segments"]["gpu_ids"].to_pylist() if len(i) else []
    bad = np.zeros(len(facts.begin), dtype=bool)
    bad[i] = (j < 0) | (facts.begin[j] != facts.end[i]) | (lost[i] != 0)
    bad[i] |= np.abs(overhead[j] - left) > 4.0 * np.spacing(np.abs(facts.end[i]))
    bad[i] |= np.array([ids[a] != ids[b] for a, b in zip(i.tolist(), j.tolist(), strict=True)], dtype=bool)
    return Finding(
        len(i),
        "changes of speed",
        facts.of_segments(bad, lambda k: "its speed changed, but it did not just go on where it was", facts.end),
    )


def _sweep(
    facts: Facts, segment: np.ndarray, where: np.ndarray, milli: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is held over time at each place: times, places, milli held from then on (one state an instant).

    Segments are half open: at equal times an end frees before a begin takes.
    """
    time_s = np.concatenate((facts.begin[segment], facts.end[segment]))
    where = np.concatenate((where, where))
    order = np.lexsort((time_s, where))
    # All events of a place cancel, so one running sum serves all; it counts after an instant's last event.
    time_s, where, used = time_s[order], where[order], np.cumsum(np.concatenate((milli, -milli))[order])
    settled = np.ones(len(order), dtype=bool)
    settled[:-1] = (time_s[1:] != time_s[:-1]) | (where[1:] != where[:-1])
    return time_s[settled], where[settled], used[settled]


def gpu_capacity(facts: Facts) -> Finding:
    """On each GPU, shares held add up to at most 1000 milli at each instant.

    Segments are half open: at equal times an end frees before a begin takes.
    """
    segment, gpu = facts.slots
    milli = facts.run.column("segments", "gpu_milli").astype(np.int64)[segment]
    time_s, where, used = _sweep(facts, segment, gpu, milli)
    i = earliest(used > WHOLE, time_s)
    found = None
    if i is not None:
        g, now = int(where[i]), float(time_s[i])
        inside = segment[(gpu == g) & (facts.begin[segment] <= now) & (facts.end[segment] > now)]
        names = sorted({facts.job_id(facts.job[s]) for s in inside})
        latest = facts.job_id(facts.job[inside[np.argmax(facts.begin[inside])]])
        found = Violation(
            f"{used[i]} milli held, by {', '.join(names)}", now, latest, g, int(facts.gpu_node[g])
        )
    return Finding(len(time_s), "GPU states", found)


def quotas_kept(facts: Facts) -> Finding:
    """Where a job starts, its virtual cluster then holds no more than its quota of run.json, in GPUs.

    Quotas of the settings hold throughout, those of the timetable from their time on: they may shrink below what runs.
    """
    fixed = facts.run.info.get("settings", {}).get("quotas") or {}
    changing = facts.run.info.get("timetable", {}).get("quotas") or {}
    quotas = {**{name: [[-np.inf, gpus]] for name, gpus in fixed.items()}, **changing}
    if not quotas:
        return Finding(0, "quotas")
    held, names = facts.run.held, list(quotas)
    of_segment = pd.Index(names).get_indexer(pd.Index(facts.run.jobs["vc"]))[facts.job]
    vc = of_segment[held.segment]
    mine = vc >= 0
    time_s, where, used = _sweep(facts, held.segment[mine], vc[mine], held.milli[mine])
    limit = np.empty(len(time_s), dtype=np.int64)
    begun = np.zeros(len(time_s), dtype=bool)
    for v, name in enumerate(names):
        here = where == v
        when, gpus = np.array(quotas[name], dtype=float).T
        at = np.maximum(np.searchsorted(when, time_s[here], side="right") - 1, 0)
        limit[here] = 1000 * gpus[at].astype(np.int64)
        begun[here] = np.isin(time_s[here], facts.begin[facts.starts & (of_segment == v)])
    i = earliest(begun & (used > limit), time_s)
    found = None
    if i is not None:
        text = f"virtual cluster {names[where[i]]!r} holds {used[i]} milli of {limit[i]}"
        found = Violation(text, float(time_s[i]))
    return Finding(len(names), "quotas", found)


def ceilings_kept(facts: Facts) -> Finding:
    """No queue ever holds more than a quota of the settings by GPU type (`vc@type`), or of all in it (`org`: `org/vc`).

    Held counts for the virtual cluster of the job and for each queue around it, as its name says.
    """
    quotas = facts.run.info.get("settings", {}).get("quotas") or {}
    held, vcs = facts.run.held, facts.run.jobs["vc"].astype(str).to_numpy()
    present = set(vcs.tolist())
    kind = facts.run.node_type[held.node]
    checked, found = 0, None
    for name, gpus in quotas.items():
        queue, gpu_type = _queue_and_type(name, present)
        inside = np.array([vc == queue or vc.startswith(queue + "/") for vc in vcs], dtype=bool)
        if not gpu_type and not inside[vcs != queue].any():
            continue  # a plain one: `quotas_kept` knows that it may change
        checked += 1
        mine = inside[facts.job[held.segment]]
        if gpu_type:
            named = np.array([t.lower() == gpu_type.lower() for t in facts.run.types], dtype=bool)
            mine &= named[kind]
        time_s, _, used = _sweep(facts, held.segment[mine], np.zeros(int(mine.sum()), dtype=np.int64), held.milli[mine])
        i = earliest(used > WHOLE * gpus, time_s)
        if i is not None and (found is None or found.time_s is None or time_s[i] < found.time_s):
            what = f" on {gpu_type}" if gpu_type else ""
            found = Violation(f"queue {queue!r} holds {used[i]} milli{what} of {WHOLE * gpus}", float(time_s[i]))
    return Finding(checked, "quotas by type and of outer queues", found)


def _queue_and_type(name: str, vcs: set[str]) -> tuple[str, str]:
    """`queue@type` in its parts; a virtual cluster, or a queue around one, may have an @ in its own name."""
    if any(vc == name or vc.startswith(name + "/") for vc in vcs):
        return name, ""
    queue, _, gpu_type = name.rpartition("@")
    return queue, gpu_type


def gangs_whole(facts: Facts) -> Finding:
    """A segment has the slots that its job asked for; where run.json says `sizes_gangs`, any number from 1 will do."""
    asked = facts.run.column("jobs", "num_gpus")[facts.job]
    bad = facts.slot_count < 1 if facts.run.info.get("sizes_gangs", False) else facts.slot_count != asked
    return Finding(
        len(bad), "segments",
        facts.of_segments(bad, lambda i: f"{facts.slot_count[i]} slots; asked for {asked[i]}"),
    )


def nodes_up(facts: Facts) -> Finding:
    """No segment overlaps a time at which one of its nodes was down.

    It may end at the instant of the failure, or begin at that of the return.
    """
    held, outages = facts.run.held, facts.run.outages
    order = np.argsort(held.node, kind="stable")
    node = held.node[order]
    when = np.full(len(facts.begin), np.inf)
    where = np.zeros(len(facts.begin), dtype=np.int64)
    for n, down, up in outages.itertuples(index=False):
        mine = held.segment[order[np.searchsorted(node, n) : np.searchsorted(node, n, side="right")]]
        hit = mine[(facts.begin[mine] < up) & (facts.end[mine] > down)]
        since = np.maximum(facts.begin[hit], down)
        sooner = since < when[hit]
        when[hit[sooner]], where[hit[sooner]] = since[sooner], n
    return Finding(
        len(outages),
        "outages",
        facts.of_segments(
            np.isfinite(when),
            lambda i: f"segment from {facts.begin[i]} to {facts.end[i]} s",
            when,
            node=lambda i: where[i],
        ),
    )


def maintenance_kept(facts: Facts) -> Finding:
    """On a GPU that is drained, no job takes GPUs until it is back, and none holds it when it is out.

    A job that was there goes on until then, also at another speed. It may end as the GPU goes out, and another begin
    as it is back.
    """
    segment, gpu = facts.slots
    order = np.argsort(gpu, kind="stable")
    segment, gpu = segment[order], gpu[order]
    begin, end, taken = facts.begin, facts.end, facts.starts
    when = np.full(len(begin), np.inf)
    where = np.zeros(len(begin), dtype=np.int64)
    windows = facts.run.maintenance
    for _, g, drain, out, back in windows.itertuples(index=False):
        mine = segment[np.searchsorted(gpu, g) : np.searchsorted(gpu, g, side="right")]
        started = taken[mine] & (begin[mine] >= drain) & (begin[mine] < back)
        hit = mine[started | ((begin[mine] < back) & (end[mine] > out))]
        since = np.maximum(begin[hit], drain)
        sooner = since < when[hit]
        when[hit[sooner]], where[hit[sooner]] = since[sooner], g
    return Finding(
        len(windows),
        "times that a GPU was drained",
        facts.of_segments(
            np.isfinite(when), lambda i: f"segment from {begin[i]} to {end[i]} s", when, gpu=lambda i: where[i]
        ),
    )


def types_allowed(facts: Facts) -> Finding:
    """Each slot lies on a GPU type that its job allows ('' allows any; names in any case)."""
    segment, kind = facts.slot_kinds
    wish, allowed = wishes(facts.run)
    wrong = ~allowed[wish[facts.job[segment]], kind]
    bad = np.zeros(len(facts.begin), dtype=bool)
    bad[segment[wrong]] = True
    got = dict(zip(segment[wrong].tolist(), kind[wrong].tolist(), strict=True))
    return Finding(
        len(segment),
        "slots",
        facts.of_segments(
            bad,
            lambda i: (
                f"runs on {facts.run.types[got[i]]}; allowed: {facts.run.jobs['gpu_type'].iloc[facts.job[i]]}"
            ),
        ),
    )


def one_type(facts: Facts) -> Finding:
    """Where run.json says `one_type_gangs`, all slots of a segment are of one GPU type."""
    if not facts.run.info.get("one_type_gangs", False):
        return Finding(0, "segments (run.json does not ask for it)")
    segment, kind = facts.slot_kinds
    low, high = np.full(len(facts.begin), len(facts.run.types)), np.full(len(facts.begin), -1)
    np.minimum.at(low, segment, kind)
    np.maximum.at(high, segment, kind)
    return Finding(
        len(low),
        "segments",
        facts.of_segments(
            low < high, lambda i: f"spans {facts.run.types[low[i]]} and {facts.run.types[high[i]]}"
        ),
    )
