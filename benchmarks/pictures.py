"""The pictures of docs/performance.md: where the time of a run goes, and how it grows."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.bench import ROOT
from benchmarks.measuring import measured, timed
from benchmarks.rows import rows

COLOURS = {"hetsim run": "#dddddd", "start-up": "#b0b0b0", "trace": "#7fb2d9", "workload": "#b3d4ea",
           "play()": "#f2c57c", "tables": "#f7dcae", "write": "#a8cf9c", "the rest": "#e8e8e8", "loop": "#e9a23b",
           "engine": "#d9822b", "policy": "#c05a4d", "kernels": "#7d4f9e"}
LANES: dict[str, list[str]] = {"fast lane": [], "plain loop": ["--set", "engine.fast_lane=off"]}
GROWN = {
    "jobs": [{"jobs": n} for n in (5_000, 20_000, 80_000)],
    "GPUs": [{"cluster": f"v100:{n}x8"} for n in (40, 160, 640)],
    "GPU types": [{"cluster": "+".join(f"{one}:{40 // n}x8" for one in ("v100", "p100", "t4", "k80")[:n])}
                  for n in (1, 2, 4)],
    "running jobs": [{"cluster": "v100:320x8", "load": load} for load in (0.1, 0.3, 0.9)],
}
BASE = {"trace": "philly", "jobs": 5_000, "cluster": "v100:40x8", "load": 0.9, "work": "recorded", "seed": 0}


def parts(cpu_s: float, phases: Mapping[str, float]) -> list[list[tuple[str, float, float]]]:
    """Layers of an icicle, from the whole down: name, begin and length in CPU seconds of each piece.

    What a phase takes beside its own parts is the piece without a name of the layer below.
    """
    trace = phases["trace"]
    first = [("start-up", phases["imports"]), ("trace", trace),
             ("workload", max(phases["workload, trace included"] - trace, 0.0)), ("play()", phases["play"]),
             ("write", phases["write"])]
    first.append(("the rest", max(cpu_s - sum(length for _, length in first), 0.0)))
    layers = [[("hetsim run", 0.0, cpu_s)], _laid(first, 0.0)]
    at = next(begin for name, begin, _ in layers[1] if name == "play()")
    layers.append(_laid([("loop", phases["loop"]), ("tables", max(phases["play"] - phases["loop"], 0.0))], at))
    kernels = phases.get("kernels", 0.0)
    policy = max(phases.get("policy", 0.0) - phases.get("kernels of the policy", 0.0), 0.0)
    layers.append(_laid([("engine", max(phases["loop"] - kernels - policy, 0.0)), ("policy", policy),
                         ("kernels", kernels)], at))
    return layers


def _laid(pieces: list[tuple[str, float]], at: float) -> list[tuple[str, float, float]]:
    out = []
    for name, length in pieces:
        out.append((name, at, length))
        at += length
    return out


def draw(folder: Path, say: Callable[[str], None] = lambda _: None) -> None:
    """Measure, and write performance-profile.png and performance-growth.png into a folder."""
    import matplotlib

    matplotlib.use("Agg")
    draw_profile(folder, say)
    draw_growth(folder, say)


def draw_profile(folder: Path, say: Callable[[str], None]) -> None:
    """Where the time of one run goes, in the fast lane and in the plain loop."""
    from matplotlib import pyplot as plt

    row = next(row for row in rows() if row.name == "srtf-320")
    figure, axes = plt.subplots(len(LANES), 1, figsize=(10, 5), constrained_layout=True)
    for axis, (lane, words) in zip(axes, LANES.items(), strict=True):
        say(f"profile, {lane}")
        with tempfile.TemporaryDirectory() as scratch:
            took = timed([*row.command(Path(scratch, "run")), *words], ROOT, split=True)
        _icicle(axis, parts(took.cpu_s, took.phases))
        axis.set_title(f"{row.what}: {lane}, {took.cpu_s:.1f} CPU s".replace("`", ""), loc="left", fontsize=10)
    axes[-1].set_xlabel("CPU time (s)")
    figure.savefig(folder / "performance-profile.png", dpi=110)
    plt.close(figure)


def draw_growth(folder: Path, say: Callable[[str], None]) -> None:
    """What `play()` takes a job as one thing grows."""
    from matplotlib import pyplot as plt

    figure, all_axes = plt.subplots(1, len(GROWN), figsize=(12, 3.2), constrained_layout=True)
    for axis, (what, steps) in zip(all_axes, GROWN.items(), strict=True):
        for policy in ("fifo", "srtf"):
            say(f"growth with {what}, {policy}")
            points = grown(policy, steps)
            along, cost = ([point[name] for point in points] for name in (_AT[what], "us_per_job"))
            axis.plot(along, cost, "o-", label=policy)
        axis.set(xlabel=what, xscale="log", ylim=(0, None))
        axis.minorticks_off()  # their labels would lie over each other
    all_axes[0].set_ylabel("play() a job (CPU µs)")
    all_axes[0].legend()
    figure.savefig(folder / "performance-growth.png", dpi=110)
    plt.close(figure)


_AT = {"jobs": "jobs", "GPUs": "gpus", "GPU types": "types", "running jobs": "running"}


def grown(policy: str, steps: list[dict[str, Any]]) -> list[dict[str, float]]:
    """CPU µs a job that `play()` takes as one setting grows: the less of two, in one process."""
    settings = json.dumps([BASE | {"policy": policy} | step for step in steps])
    found: list[dict[str, float]] = json.loads(
        measured([sys.executable, "-m", "benchmarks.pictures", settings], ROOT).out)
    return found


def _icicle(axis: Any, layers: list[list[tuple[str, float, float]]]) -> None:
    whole_s = layers[0][0][2]
    for depth, layer in enumerate(layers):
        for name, begin, length in layer:
            axis.broken_barh([(begin, length)], (-depth - 1, 0.92), facecolors=COLOURS[name], edgecolor="white")
            if length > 0.045 * whole_s:
                axis.text(begin + length / 2, -depth - 0.54, f"{name}\n{length:.2f}", ha="center", va="center",
                          fontsize=7)
    axis.set(yticks=[], xlim=(0, whole_s))
    axis.spines[["top", "left", "right"]].set_visible(False)


def play(settings: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Play runs, each twice; jobs, GPUs, types, mean running jobs, and the less of their CPU µs a job."""
    import time

    import numpy as np

    from sim.settings.config import RunConfig
    from sim.sweeps.replay import Replay

    out = []
    for one in settings:
        best_s = np.inf
        for _ in range(2):
            replay = Replay(RunConfig(**one))
            jobs = len(replay.workload.trace)
            began = time.process_time()
            result = replay.play()
            best_s = min(best_s, time.process_time() - began)
        segments = result.tables["segments"]
        begin_s, end_s = segments["begin_s"].to_numpy(), segments["end_s"].to_numpy()
        out.append({"jobs": jobs, "gpus": replay.cluster.num_gpus, "types": len(replay.cluster.types),
                    "running": float((end_s - begin_s).sum() / (end_s.max() - begin_s.min())),
                    "us_per_job": best_s / jobs * 1e6})
    return out


if __name__ == "__main__":
    print(json.dumps(play(json.loads(sys.argv[1]))))
