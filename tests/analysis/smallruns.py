"""Small random runs of whole seconds in which everything happens, and a twin that looks at each second of them."""

from __future__ import annotations

from typing import Any

import numpy as np

HORIZON_S = 40


def small_run(run: Any, seed: int, begin_s: int = 0) -> Any:
    """Fill an empty `RunFiles`: shares, preempted and failed jobs, lost work, outages; valid by construction."""
    rng = np.random.default_rng([seed, 9])
    sizes = rng.integers(1, 4, size=int(rng.integers(2, 4)))
    free = np.full((int(sizes.sum()), HORIZON_S), 1000)
    for number, size in enumerate(sizes.tolist()):
        down = np.sort(rng.choice(np.arange(1, HORIZON_S), 2, replace=False)) + begin_s
        away = rng.random() < 0.4
        kind = ("V100", "T4")[number % 2]
        run.node(kind, size, (2.0, 1.0)[number % 2], [float(down[0])] * away, [float(down[1])] * away)
        run.nodes[-1] |= {"busy_w": 300.0, "idle_w": 50.0, "spot_usd_per_gpu_h": 0.5, "reserved_usd_per_gpu_h": 0.4}
        if away:
            first = run.nodes[-1]["first_gpu"]
            free[first : first + size, down[0] - begin_s : down[1] - begin_s] = 0
    for number, submit in enumerate(sorted(rng.integers(0, 25, size=9).tolist())):
        _job(run, rng, free, f"j{number}", submit, begin_s)
    run.segments.sort(key=lambda s: s["end_s"])
    run.info |= {"start_s": float(min(j["submit_s"] for j in run.jobs)), "end_s": float(begin_s + HORIZON_S)}
    return run


def _job(run: Any, rng: np.random.Generator, free: np.ndarray, name: str, submit: int, begin_s: int) -> None:
    """One job with up to three segments wherever it fits."""
    share = int(rng.choice([1000, 1000, 500, 300]))
    kind = str(rng.choice(["", "", "V100", "T4|V100"]))
    state = str(rng.choice(["done", "done", "done", "killed", "failed", "unfinished", "rejected"]))
    gang = int(rng.integers(1, 4))
    run.job(name, float(submit + begin_s), float(rng.integers(1, 10)), gang, share, state, gpu_type=kind,
            vc=f"v{rng.integers(2)}", user=f"u{rng.integers(3)}")
    run.jobs[-1] |= {"deadline_s": float(begin_s + rng.integers(10, 40)), "priority": float(rng.integers(1, 4))}
    able = [g for n in run.nodes for g in range(n["first_gpu"], n["first_gpu"] + n["gpus"])
            if not kind or n["gpu_type"] in kind]
    now, level, many = submit, 0.0, int(rng.integers(1, 4))
    placed = []
    for _ in range(many if state != "rejected" and len(able) >= gang else 0):
        now += int(rng.integers(0, 4))
        gpus = sorted(rng.choice(able, gang, replace=False).tolist())
        end = min(now + int(rng.integers(1, 9)), HORIZON_S)
        if now >= HORIZON_S or (free[gpus, now:end] < share).any():
            continue
        free[gpus, now:end] -= share
        placed.append((now, end, gpus))
        now = end
    if state in ("done", "killed", "failed") and not placed:
        run.jobs[-1]["state"] = "unfinished"
    for k, (begin, end, gpus) in enumerate(placed):
        last = k == len(placed) - 1
        reason = "done" if last else str(rng.choice(["preempted", "migrated", "node_failed", "failed"]))
        if last and run.jobs[-1]["state"] == "unfinished":
            reason = "horizon" if end == HORIZON_S else "preempted"
        run.segment(name, float(begin + begin_s), float(end + begin_s), gpus, float(rng.integers(0, 3)),
                    end_reason=reason)
        segment = run.segments[-1]
        segment["rate"] = float(rng.choice([0.5, 1.0, 2.0]))
        segment["work_done"] *= segment["rate"]
        level += segment["work_done"]
        if reason in ("node_failed", "failed"):
            segment["work_lost"] = level if reason == "failed" else level * float(rng.random())
            level -= segment["work_lost"]


def free_at(run: Any, second: int) -> np.ndarray:
    """1/1000 GPU free and in service on each GPU during the second that begins then; -1 where its node is away."""
    free = np.full(sum(n["gpus"] for n in run.nodes), 1000)
    for node in run.nodes:
        gpus = slice(node["first_gpu"], node["first_gpu"] + node["gpus"])
        for down, up in zip(node["down_s"], node["up_s"], strict=True):
            if down <= second < up:
                free[gpus] = -1
    for s in run.segments:
        if s["begin_s"] <= second < s["end_s"]:
            free[s["gpu_ids"]] -= s["gpu_milli"]
    return free


def waits_at(run: Any, second: int) -> list[dict[str, Any]]:
    """Jobs that wait during the second that begins then."""
    return [
        j for j in run.jobs
        if j["state"] != "rejected" and j["submit_s"] <= second and (j["end_s"] is None or second < j["end_s"])
        and not any(s["job_id"] == j["job_id"] and s["begin_s"] <= second < s["end_s"] for s in run.segments)
        and not any(s["job_id"] == j["job_id"] and s["end_reason"] == "horizon" and s["end_s"] <= second
                    for s in run.segments)
    ]
