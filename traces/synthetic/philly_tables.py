"""What philly.toml says: statistics of Philly's jobs by virtual cluster, size class and length class."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

DAY_S, WEEK_S = 86_400.0, 7 * 86_400.0
#: Size classes: fewest GPUs. Length classes: shortest run time, s.
SIZES = {"one": 1, "two": 2, "four": 4, "eight": 8, "many": 16}
LENGTHS = {"short": 0.0, "middle": 3600.0, "long": 86_400.0}


@dataclass(frozen=True)
class Class:
    """Jobs of one virtual cluster, size class and length class: weights by week, and what philly.toml says of them."""

    jobs: np.ndarray
    typical_s: np.ndarray
    spread: float
    gpus: dict[int, float]
    run_s: dict[int, tuple[float, ...]]
    """By number of GPUs; 0: those that have no table of their own."""


@dataclass(frozen=True)
class VirtualCluster:
    """A tenant: its bursts, its hours, its classes of jobs."""

    name: str
    burst_exponent: float
    burst_most: int
    burst_gap_s: float
    hour_shape: float
    days: np.ndarray
    """Jobs by day of the log."""
    classes: tuple[Class, ...]

    @property
    def weight(self) -> float:
        return float(sum(c.jobs.sum() for c in self.classes))


@dataclass(frozen=True)
class Statistics:
    """What is in philly.toml."""

    jobs: int
    span_s: float
    hours: tuple[float, ...]
    days: tuple[float, ...]
    likeness: float
    robot_jobs: np.ndarray
    robot_begin_s: float
    robot_run_s: tuple[float, ...]
    clusters: tuple[VirtualCluster, ...]


@cache
def statistics() -> Statistics:
    """Those of philly.toml, read once."""
    return parsed(Path(__file__).with_name("philly.toml").read_text("utf-8"))


def parsed(text: str) -> Statistics:
    """Statistics from the text of such a file, as experiments/fit_philly.py writes it."""
    data = tomllib.loads(text)
    head = {name: data.pop(name) for name in ("jobs", "span_s", "hours", "days", "likeness")}
    robot, common = data.pop("robot"), data.pop("all")
    return Statistics(
        head["jobs"], head["span_s"], tuple(head["hours"]), tuple(head["days"]), head["likeness"],
        np.array(robot["jobs"]), robot["begin_s"], tuple(robot["run_s"]),
        tuple(_cluster(name, rows, common) for name, rows in data.items()),
    )


def _cluster(name: str, rows: dict[str, Any], common: dict[str, Any]) -> VirtualCluster:
    classes = [
        Class(
            np.array(c["jobs"]), np.array(c["typical_s"], dtype=float), c["spread"],
            {int(g): float(n) for g, n in c.get("gpus", {"1": 1}).items()},
            {0: tuple(c.get("run_s", common[size][length]))}
            | {int(key[6:]): tuple(value) for key, value in c.items() if key.startswith("run_s_")},
        )
        for size in SIZES if size in rows for length, c in rows[size].items()
    ]
    return VirtualCluster(name, rows["burst_exponent"], rows["burst_most"], rows["burst_gap_s"], rows["hour_shape"],
                          np.array(rows["days"], dtype=float), tuple(classes))
