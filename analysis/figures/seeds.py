"""Runs that differ in nothing but their seed share a look, and one entry of the legend."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare.repetitions import kind_of
from analysis.figures.style import look
from analysis.run import Run, labels

THIN = 0.7
"""Width of a line of one seed of several, in points."""


@dataclass(frozen=True)
class Entry:
    """How a run is drawn.

    Attributes
    ----------
    number : of its look: of its settings in order of appearance.
    label : its entry in the legend; '_', which makes none, but for the first seed.
    seeds : how many runs share the look.
    """

    number: int
    label: str
    seeds: int

    @property
    def line(self) -> dict[str, Any]:
        """How its line looks: a thin one of each seed where there are several."""
        return look(self.number) | {"label": self.label} | ({"linewidth": THIN} if self.seeds > 1 else {})


def entries(runs: Sequence[Run]) -> list[Entry]:
    """An entry a run. Runs of equal settings share a look where each has a seed of its own."""
    teams: dict[str, list[Run]] = {}
    for run in runs:
        teams.setdefault(_settings(run), []).append(run)
    seeds = {key: {run.info.get("seed") for run in team} for key, team in teams.items()}
    shared = {key for key, team in teams.items() if len(seeds[key]) == len(team) > 1 and None not in seeds[key]}
    keys = [key if key in shared else f"{key} {i}" for i, key in enumerate(map(_settings, runs))]
    order = list(dict.fromkeys(keys))
    names = dict(zip(order, labels([runs[keys.index(key)] for key in order]), strict=True))
    found = []
    for i, key in enumerate(keys):
        count = len(teams[key]) if key in shared else 1
        label = f"{names[key]}, {count} seeds" if count > 1 else names[key]
        found.append(Entry(order.index(key), label if keys.index(key) == i else "_", count))
    return found


def _settings(run: Run) -> str:
    """All but the seed that a user set."""
    config = {name: value for name, value in run.info.get("config", {}).items() if name != "seed"}
    return kind_of(run) + json.dumps(config, sort_keys=True)
