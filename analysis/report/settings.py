"""How each run was made: its settings laid flat, with those that differ between runs told apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.run import Run

ORIGIN = ("trace", "cluster", "work", "versions", "code_hash", "schema_version", "estimate", "speed_belief", "seed",
          "window")
"""Of run.json, what says where results come from; the rest of it is in the settings, or is a result."""


@dataclass(frozen=True)
class Row:
    """One setting: its dotted name, its value under each run (None: it has no such setting), whether they differ."""

    name: str
    values_of_runs: tuple[str | None, ...]
    differs: bool


def resolved(runs: Sequence[Run]) -> list[Row]:
    """Settings of the runs as they were after defaults, options and files: `config` of run.json.

    A run without it (an older one) shows what it has: policy, policy settings, settings of the engine.
    """
    return _rows([_settings(run.info) for run in runs])


def origins(runs: Sequence[Run]) -> list[Row]:
    """Trace, cluster, versions and hashes of the runs."""
    return _rows([{name: run.info[name] for name in ORIGIN if name in run.info} for run in runs])


def _settings(info: Mapping[str, Any]) -> Mapping[str, Any]:
    config = info.get("config")
    if isinstance(config, Mapping):
        return config
    names = {"policy": "policy", "policy_settings": "policy_settings", "settings": "engine"}
    return {name: info[key] for key, name in names.items() if key in info}


def _rows(settings: Sequence[Mapping[str, Any]]) -> list[Row]:
    flat = [dict(_flat("", one)) for one in settings]
    found = []
    for name in dict.fromkeys(name for one in flat for name in one):
        values = tuple(one.get(name) for one in flat)
        found.append(Row(name, values, len(set(values)) > 1))
    return found


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    """A setting by its dotted name; lists and empty tables as JSON."""
    if isinstance(value, Mapping) and value:
        return [pair for key, inner in value.items() for pair in _flat(f"{name}.{key}" if name else str(key), inner)]
    return [(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]
