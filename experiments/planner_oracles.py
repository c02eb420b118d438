"""What PipeDream's and Piper's planners reach on their own inputs, and what ours do: theirs, ours, CPU time.

    .venv/bin/python experiments/planner_oracles.py ../shared

The folder holds `data/graphs` and `oracles/placement`. 'better': the published optimizer of PipeDream looks at fewer
cuts of a graph with several inputs, and gave no answer in 240 s where a graph branches much.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from tests.recommend.pipeline_files import (
    best_replicas,
    networks,
    pipedream_cuts,
    pipedream_rows,
    piper_rows,
    published_configs,
    read_piper_document,
)

Answer = TypeVar("Answer")


def timed(ask: Callable[[], Answer]) -> tuple[Answer, float]:
    """An answer and its CPU seconds, once what it needs is compiled."""
    ask()
    start = time.process_time()
    answer = ask()
    return answer, time.process_time() - start


def verdict(ours: float, theirs: float) -> str:
    """'equal' within the digits that the file gives."""
    if abs(ours - theirs) <= 1e-8 * theirs + 1e-9:
        return "equal"
    return "worse" if ours > theirs else "better"


def pipedream(folder: Path) -> None:
    """The 'pipeline bottleneck' rows."""
    cuts = cache(lambda graph: pipedream_cuts(folder / "data/graphs/pipedream" / f"{graph}.graph.txt"))
    print("| graph | network | theirs (s) | ours (s) | | replicas | cuts | theirs (wall s) | ours (CPU s) |")
    print("|---|---|---:|---:|---|---|---:|---:|---:|")
    for row in pipedream_rows(folder / "oracles"):
        of = cuts(row.graph)
        answer, cpu_s = timed(lambda row=row, of=of: row.ours(of))
        replicas = "-".join(str(stage.replicas) for stage in answer.stages)
        print(f"| {row.graph} | {row.config} | {row.period_s:.9f} | {answer.period_s:.9f} "
              f"| {verdict(answer.period_s, row.period_s)} | {replicas} | {len(of.work_s)} | {row.wall_s:.2f} "
              f"| {cpu_s:.4f} |")


def published(folder: Path) -> None:
    """Replicas of each stage that PipeDream's authors ran, and what is best on networks that they may have had.

    Their files do not tell bandwidths, batch sizes or GPUs.
    """
    print("\n| graph | GPUs | published | ours, by network | agrees on |")
    print("|---|---:|---|---|---|")
    for graph, gpus, replicas in published_configs(folder / "oracles"):
        cuts = pipedream_cuts(folder / "data/graphs/pipedream" / f"{graph}.graph.txt")
        ours = {name: best_replicas(cuts, levels) for name, levels in networks(gpus).items()}
        told = ", ".join(f"{name}: {dashes(answer)}" for name, answer in ours.items())
        agrees = ", ".join(name for name, answer in ours.items() if answer == replicas)
        print(f"| {graph} | {gpus} | {dashes(replicas)} | {told} | {agrees or 'none'} |")


def dashes(replicas: tuple[int, ...]) -> str:
    return "-".join(map(str, replicas))


def piper(folder: Path) -> None:
    """The rows of Piper's dynamic program and of what restricts it."""
    documents = cache(lambda layers: read_piper_document(folder / "data/graphs/piper/bert32a100.json", layers))
    print("\n| model | GPUs | planner | theirs (s) | ours (s) | | stages | theirs (CPU s) | ours (CPU s) |")
    print("|---|---:|---|---:|---:|---|---:|---:|---:|")
    for row in piper_rows(folder / "oracles"):
        document = documents(row.layers)
        answer, cpu_s = timed(lambda row=row, document=document: row.ours(document))
        print(f"| BERT-{row.layers} | {row.devices} | {row.algorithm} | {row.period_s:.10f} | {answer.period_s:.10f} "
              f"| {verdict(answer.period_s, row.period_s)} | {len(answer.stages)} | {row.cpu_s:.3f} | {cpu_s:.3f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with data/graphs and oracles/placement")
    arguments = parser.parse_args()
    pipedream(arguments.folder)
    published(arguments.folder)
    piper(arguments.folder)
