"""Laws of settings: overheads, checkpoints, speeds, work and prices are what run.json says that was set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.audit.accounts import RELATIVE
from analysis.run.facts import Facts, Finding, Violation

NEVER_LOST = ("done", "failed", "horizon", "respeed")
"""Ends after which all work stands, whatever is set."""
OF_A_TYPE = ("on_demand_usd_per_gpu_h", "spot_usd_per_gpu_h", "reserved_usd_per_gpu_h", "busy_w", "idle_w")


def overheads_charged(facts: Facts) -> Finding:
    """`overhead_s` of a start is the setting for what ended the job's segment before: none, a resize, a move, or else.

    With `restart_gib_per_s` a restart takes longer by the time to load the state, which the files do not hold. Where
    jobs are profiled first (`profiling_s`), what their earlier launches have left of that comes on top.
    """
    usual, first = facts.setting("preemption_overhead_s"), facts.setting("cold_start_s")
    if usual is None:
        return Finding(0, "starts (run.json has no settings)")
    resize, move = facts.setting("resize_overhead_s"), facts.setting("move_overhead_s")
    before = facts.neighbours[0]
    want = np.where(before < 0, first or 0.0, usual)
    for reason, own in (("resized", resize), ("migrated", move)):
        if own is not None:
            want[(before >= 0) & facts.ended_by(reason)[before]] = own
    overhead = facts.run.column("segments", "overhead_s")
    want += _left_to_profile(facts, overhead)
    loads = facts.setting("restart_gib_per_s") is not None
    bad = facts.starts & (overhead != want)
    if loads:
        bad &= (before < 0) | (overhead < want)
    return Finding(int(facts.starts.sum()), "starts", facts.of_segments(
        bad, lambda i: f"overhead {overhead[i]} s; set is {'at least ' if loads else ''}{want[i]} s"))


def _left_to_profile(facts: Facts, overhead: np.ndarray) -> np.ndarray:
    """float64 [segments]: of a start, time that the job must still hold GPUs until its speed is known."""
    whole = float(facts.run.info.get("profiling_s") or 0.0)
    left = np.zeros(len(overhead))
    if whole == 0:
        return left
    ends = pd.Series(facts.end).groupby(facts.launch).max().to_numpy()
    of_job: dict[int, float] = {}
    for i in np.argsort(facts.job, kind="stable").tolist():
        if facts.starts[i]:
            job = int(facts.job[i])
            left[i] = of_job.get(job, whole)
            of_job[job] = max(0.0, min(left[i], facts.begin[i] + overhead[i] - ends[facts.launch[i]]))
    return left


def work_lost(facts: Facts) -> Finding:
    """A launch loses what it did since its last checkpoint where its node fails, or where preempted work is `lost`.

    Checkpoints are at full `checkpoint_interval_s` of working time since the launch (0: at any time; inf: none), over
    the changes of speed in it. Within 1e-9 of the job's work, or four binary digits of the clock; a working time that
    is a full interval but for these has the checkpoint or lacks it.
    """
    interval = facts.setting("checkpoint_interval_s")
    kept = (facts.run.info.get("settings") or {}).get("preempted_work")
    if interval is None or kept is None:
        return Finding(0, "launches (run.json has no settings)")
    count = int(facts.starts.sum())
    if not count:
        return Finding(0, "launches")
    done, lost, rate = (facts.run.column("segments", name) for name in ("work_done", "work_lost", "rate"))
    worked_s = np.maximum(0.0, facts.end - facts.begin - facts.run.column("segments", "overhead_s"))
    tail = np.flatnonzero(~facts.ended_by("respeed"))
    falls_back = np.zeros(count, dtype=bool)
    falls_back[facts.launch[tail]] = (facts.ended_by("node_failed") | (
        ~facts.ended_by(*NEVER_LOST) & (kept == "lost")))[tail] & (interval > 0)
    in_all_s = np.bincount(facts.launch, worked_s, count)
    until_s = pd.Series(worked_s).groupby(facts.launch).cumsum().to_numpy()
    digit_s = 4.0 * np.spacing(np.abs(facts.end[tail])) + RELATIVE * in_all_s[facts.launch[tail]]
    got = np.bincount(facts.launch, lost, count)
    scale = np.bincount(facts.launch, done, count)
    scale[facts.launch[tail]] += facts.work_before[tail]
    fits, want = np.zeros(count, dtype=bool), np.zeros(count)
    for shift in (0.0, -1.0, 1.0):
        since_s = np.zeros(count)
        since_s[facts.launch[tail]] = _saved_s(in_all_s[facts.launch[tail]] + shift * digit_s, interval)
        part = np.clip(until_s - since_s[facts.launch], 0.0, worked_s) * rate
        loss = np.where(falls_back, np.bincount(facts.launch, part, count), 0.0)
        want = loss if shift == 0.0 else want
        slack = RELATIVE * scale
        slack[facts.launch[tail]] += digit_s * rate[tail]
        fits |= np.abs(got - loss) <= slack
    bad = np.zeros(len(done), dtype=bool)
    bad[tail] = ~fits[facts.launch[tail]]
    return Finding(count, "launches", facts.of_segments(
        bad, lambda i: f"lost {got[facts.launch[i]]} work; by its last checkpoint {want[facts.launch[i]]}", facts.end))


def _saved_s(worked_s: np.ndarray, interval_s: float) -> np.ndarray:
    """Working time since the launch that the last checkpoint holds."""
    if interval_s in (0.0, np.inf):
        return np.zeros(len(worked_s)) if interval_s else worked_s
    saved: np.ndarray = np.maximum(0.0, np.floor(worked_s / interval_s)) * interval_s
    return saved


def recorded_replayed(facts: Facts) -> Finding:
    """Where durations are replayed as recorded, `work_total` is `duration_s`, and a second brings a second of work.

    A smaller share of GPUs than asked for brings so much less; power caps and jobs that take turns on a GPU less again.
    """
    if facts.run.info.get("work", {}).get("mode") != "recorded":
        return Finding(0, "jobs replayed as recorded")
    total, duration = facts.run.column("jobs", "work_total"), facts.run.column("jobs", "duration_s")
    rate, milli = facts.run.column("segments", "rate"), facts.run.column("segments", "gpu_milli").astype(float)
    want = np.minimum(1.0, milli / facts.run.column("jobs", "gpu_milli")[facts.job])
    capped = ~np.isnan(facts.run.column("segments", "power_cap_w").astype(float))
    slower = (capped | (_setting(facts, "sharing") == "time")) & (rate > 0)
    bad = np.where(slower, rate > want * (1.0 + RELATIVE), np.abs(rate - want) > RELATIVE * want)
    found = facts.of_segments(bad, lambda i: f"does {rate[i]} s of work a second; as recorded it is {want[i]}")
    found = found or facts.of_jobs(
        total != duration, lambda i: f"has {total[i]} s of work; recorded are {duration[i]} s")
    return Finding(len(total), "jobs", found)


def one_price(facts: Facts) -> Finding:
    """Nodes of one GPU type are alike in the catalogue's prices and in power; in price too, but for cluster files.

    A cluster file may give nodes prices of their own.
    """
    config = facts.run.info.get("config") or {}
    named = str(config.get("cluster") or "")
    columns = OF_A_TYPE + (("price_usd_per_gpu_h",) if named and not named.strip().lower().endswith(".toml") else ())
    kind = facts.run.node_type
    for name in columns:
        value = facts.run.column("nodes", name).astype(float)
        of_type = value[np.unique(kind, return_index=True)[1]][kind]
        other = np.flatnonzero(~((value == of_type) | (np.isnan(value) & np.isnan(of_type))))
        if len(other):
            node = int(other[0])
            text = f"{name} {value[node]} on a node of {facts.run.types[kind[node]]}; {of_type[node]} on its first"
            return Finding(len(kind), "nodes", Violation(text, node=node))
    return Finding(len(kind), "nodes")


def cluster_counted(facts: Facts) -> Finding:
    """GPUs of each type are as many as `cluster` of run.json says."""
    said = facts.run.info.get("cluster", {}).get("gpus_by_type")
    if said is None:
        return Finding(0, "GPU types (run.json does not count them)")
    counts = np.bincount(facts.run.node_type, facts.run.column("nodes", "gpus"), len(facts.run.types)).astype(int)
    got = dict(zip(facts.run.types, counts.tolist(), strict=True))
    text = f"nodes have {got}; run.json says {said}"
    same = got == {name: gpus for name, gpus in said.items() if gpus}
    return Finding(len(got), "GPU types", None if same else Violation(text))


def gangs_declared(facts: Facts) -> Finding:
    """A run's gangs are of one GPU type just where its policy does not size them."""
    info = facts.run.info
    if "sizes_gangs" not in info or "one_type_gangs" not in info:
        return Finding(0, "words of run.json")
    same = info["sizes_gangs"] == info["one_type_gangs"]
    text = f"run.json: sizes_gangs {info['sizes_gangs']}, one_type_gangs {info['one_type_gangs']}: one of them holds"
    return Finding(2, "words of run.json", Violation(text) if same else None)


def settings_twice(facts: Facts) -> Finding:
    """Settings that run.json has twice, by themselves and in all that was asked for (`config`), are the same."""
    info = facts.run.info
    config = info.get("config") or {}
    count, found = 0, None
    pairs = (("settings", config.get("engine")), ("policy_settings", config.get("policy_settings")))
    whole = {"policy": _of_ours(config.get("policy")), "seed": config.get("seed")}
    for name, told in (*pairs, ("config", {k: v for k, v in whole.items() if v is not None})):
        mine: Mapping[str, Any] = info if name == "config" else info.get(name) or {}
        other: Mapping[str, Any] = told or {}
        for key in sorted(other.keys() & mine.keys()):
            count += 1
            if not _same(mine[key], other[key]) and found is None:
                found = Violation(f"{key!r} is {mine[key]!r} in {name!r}, {other[key]!r} in 'config'")
    return Finding(count, "settings", found)


def _of_ours(policy: Any) -> str | None:
    """A policy's name as runs tell it, which may be asked for with underscores; None: it is asked for as a file."""
    return policy.replace("_", "-") if isinstance(policy, str) and not {".", "/", ":"} & set(policy) else None


def _same(one: Any, other: Any) -> bool:
    """Numbers may be written as text (infinity), or as whole ones."""
    return bool(one == other) or str(one) == str(other)


def _setting(facts: Facts, name: str) -> Any:
    return (facts.run.info.get("settings") or {}).get(name)


LAWS = {
    "starts cost the overhead that is set": overheads_charged,
    "work is lost back to the last checkpoint": work_lost,
    "durations are replayed as recorded": recorded_replayed,
    "nodes of a GPU type are alike": one_price,
    "the cluster has the GPUs that are counted": cluster_counted,
    "gangs are sized, or of one GPU type": gangs_declared,
    "settings are told once": settings_twice,
}
