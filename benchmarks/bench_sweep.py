"""A sweep of 100 cells of 10,000 jobs: how busy it keeps its workers. The figure to reach is 90 %.

Printed for each number of workers: the share of the time in which workers had a cell in hand (they wait for nothing but
the processor then); the processor time of cells / (time × workers); and the same of the processor time that other
programs left, since a shared machine gives less than one processor a worker.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from sim.sweeps.executors import Here, Processes, cores
from sim.sweeps.grid import read_grid
from sim.sweeps.store import Store
from sim.sweeps.sweeping import sweep
from traces.readers.canonical import write_trace
from traces.trace import Trace

CELLS = """
[run]
trace = "philly.csv"
jobs = 10_000
work = "recorded"
cluster = "v100:40x8"
[sweep]
policy = ["fifo-skip", "srtf"]
load = [0.7, 0.8, 0.9, 1.0, 1.1]
skip = [0, 5000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000]
"""


def ours_s() -> float:
    """Processor time of this process and of those that it has ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in spent)


def machine_s() -> float:
    """Processor time that all programs of the machine have had."""
    user, nice, system, _, _, irq, softirq, *_ = (
        int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("workers", sorted({1, 2, cores()}))
def test_busy_share(
    benchmark: Any, philly: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(philly, Path("philly.csv"))
    Path("sweep.toml").write_text(CELLS)
    grid, store = read_grid("sweep.toml"), Store(Path("out"))
    assert len(grid.cells) == 100
    ours, machine, began = ours_s(), machine_s(), time.monotonic()
    now = benchmark.pedantic(
        sweep, (grid, store, Here if workers == 1 else lambda: Processes(workers)), rounds=1, iterations=1)
    passed_s = time.monotonic() - began
    others_s = (machine_s() - machine) - (ours_s() - ours)
    left_s = min(now.wall_s * workers, (passed_s * cores() - others_s) * now.wall_s / passed_s)
    in_hand_s = sum(record["wall_s"] for record in store.records.values())
    benchmark.extra_info.update(
        workers=workers, wall_s=round(now.wall_s, 1), in_hand=round(in_hand_s / (now.wall_s * workers), 3),
        processor=round(now.cpu_s / (now.wall_s * workers), 3), of_what_was_left=round(now.cpu_s / left_s, 3))
    print(f"\n  {benchmark.extra_info}")
    assert now.done == 100
