"""The matrix of heterogeneous schedulers: each against `hetero`, over workloads, clusters, rates, loads and seeds.

    .venv/bin/python -m experiments.heterogeneous ../shared/data [--only load=1.2 ...] [--worlds "philly gavel"] [-j 8]

Who competes, and at which loads and seeds, stands in `heterogeneous.toml`; every other policy of the family (of
`policies/heterogeneous`) that is there takes part by its own settings. Worlds whose data are not there are left out,
with the reason. It is a sweep: what is done stays, and the same command goes on; `--table` plays nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.paired import interval, ratio_of_means
from analysis.sweeps import load_sweep
from policies.registry import find, names
from sim.cli.sweep import chosen, executor_of, played
from sim.settings.values import read_toml
from sim.sweeps.grid import read_grid
from sim.sweeps.store import Store

FILE = Path(__file__).with_suffix(".toml")
FAMILY = "policies.heterogeneous."
BASE = "hetero"
SCARCE = "a100:1x8+v100:8x8+t4:16x8"
RATES = "gavel/simulation_throughputs.json"
WINDOW_JOBS, STEP = 1_000, 15_000
"""Jobs of a window of a real log, and how far apart windows begin: a seed has one of its own."""

GROUPS = ("rigid", "sized", "planner")
"""Gangs as the trace has them, as data parallelism makes them best, and as the policy chooses them."""


def contenders(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Settings of those who compete: the listed ones that are there, and the family, rigid ones also on sized gangs."""
    there, named = names(), {one["policy"] for one in listed}
    more = [name for name in there if find(name).__module__.startswith(FAMILY) and name not in named]
    scale = max(one.get("gang_scale", 1.0) for one in listed)
    return [*(one for one in listed if one["policy"] in there),
            *({"policy": name} for name in more),
            *({"policy": name, "gang_scale": scale} for name in more if not find(name).sizes_gangs)]


def worlds(data: Path, fixed: Mapping[str, Any], seeds: list[int]) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Name of a world -> its settings, a table a seed; and why others are left out."""
    measured = {"measured": str(data / RATES), "measured_gaps": "amdahl", "assign": "gavel",
                "assign_with.names": "table"}
    logs = {"philly-log": data / "philly/philly.csv", "pai-log": data / "pai/pai_job_no_estimate_100K.csv"}
    traces = {name: [{"trace": name, "seed": seed} for seed in seeds] for name in (fixed["trace"], "pai")}
    traces |= {name: [{"trace": str(file), "jobs": WINDOW_JOBS, "skip": number * STEP, "seed": seed}
                      for number, seed in enumerate(seeds)] for name, file in logs.items()}
    lacking = [f"{name}: {file} is not there" for name, file in (*logs.items(), ("measured", data / RATES))
               if not file.is_file()]
    found: dict[str, list[dict[str, Any]]] = {}
    for name, each in traces.items():
        if name in logs and not logs[name].is_file():
            continue
        found[f"{name} gavel"] = [one | {"cluster": fixed["cluster"]} for one in each]
        found[f"{name} scarce"] = [one | {"cluster": SCARCE} for one in each]
        if (data / RATES).is_file():
            found[f"{name} gavel measured"] = [one | {"cluster": fixed["cluster"]} | measured for one in each]
    lacking += ["scarce measured: Gavel's table has no rates on A100 and T4"]
    return found, lacking


def as_toml(table: Mapping[str, Any]) -> str:
    """A table of numbers, texts, lists of them and inline tables."""
    return "{" + ", ".join(f"{json.dumps(key)} = {_value(one)}" for key, one in table.items()) + "}"


def _value(one: Any) -> str:
    if isinstance(one, Mapping):
        return as_toml(one)
    return "[" + ", ".join(map(_value, one)) + "]" if isinstance(one, list) else json.dumps(one)


def written(out: Path, asked: Mapping[str, Any], found: Mapping[str, list[dict[str, Any]]]) -> Path:
    """The sweep that is played: a block for each world and contender."""
    lines = ["[run]", *(f"{key} = {_value(one)}" for key, one in asked["run"].items())]
    for each in found.values():
        for one in contenders(asked["sweep"]["with"]):
            settings = {"load": asked["sweep"]["load"], **one, "with": each}
            lines += ["[[sweep]]", *(f"{json.dumps(key)} = {_value(given)}" for key, given in settings.items())]
    file = out.with_suffix(".toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def label(row: Mapping[str, Any]) -> tuple[str, str]:
    """Group and name of a contender, by the columns of a sweep's table."""
    policy, scale, most = row["policy"], row.get("gang_scale"), row.get("policy_max_scale")
    words = [policy, *(str(row[name]) for name in ("policy_objective",) if _given(row.get(name)))]
    words += ["agnostic"] if row.get("policy_aware") is False or row.get("policy_aware") == 0 else []
    if find(policy).sizes_gangs:
        default = find(policy).max_scale if hasattr(find(policy), "max_scale") else most
        words += [f"max_scale {most:g}"] if _given(most) and most != default else []
        return GROUPS[2], " ".join(words)
    return GROUPS[1 if _given(scale) else 0], " ".join(words)


def _given(one: Any) -> bool:
    return one is not None and one == one  # noqa: PLR0124  (NaN: not given)


def dressed(table: pd.DataFrame, fixed: Mapping[str, Any]) -> pd.DataFrame:
    """The table with a column `who` (group and name) and `world`, of settings that vary or are `fixed`."""
    table = table.assign(**{name: fixed[name] for name in ("trace", "cluster") if name not in table})
    heads = [name for name in ("policy", "policy_objective", "policy_aware", "gang_scale", "policy_max_scale")
             if name in table]
    kinds = table[heads].drop_duplicates()
    told = {tuple(map(str, row)): ": ".join(label(dict(zip(heads, row, strict=True))))
            for row in kinds.astype(object).to_numpy().tolist()}
    who = [told[tuple(map(str, row))] for row in table[heads].astype(object).to_numpy().tolist()]
    by = [name for name in ("trace", "cluster", "measured") if name in table]
    world = table[by].fillna("").agg(lambda row: " ".join(filter(None, (Path(part).name for part in row))), axis=1)
    return table.assign(who=who, world=world)


def rows(jobs: pd.DataFrame, metrics: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One row a world, load and contender: ratios to `hetero` on the same jobs, and finish-time fairness."""
    base = f"{GROUPS[2]}: {BASE}"
    pairs = {value: ratio_of_means(jobs, "who", base, value, by=("world", "load")).set_index(["world", "load", "who"])
             for value in ("jct_s", "cost_usd")}
    for (world, load), here in metrics.groupby(["world", "load"]):
        ours = here[here["who"] == base].set_index("seed")
        for who, mine in here.groupby("who"):
            mine = mine.set_index("seed")
            seeds = mine.index.intersection(ours.index)
            tail = interval(np.log(mine.loc[seeds, "jct_p99_s"] / ours.loc[seeds, "jct_p99_s"]))
            unfair = interval(100 * mine["unfair_share"])
            row = {"world": world, "load": load, "who": who, "seeds": len(seeds),
                   "p99": tuple(np.exp([tail.mean, tail.low, tail.high])),
                   "unfair": (unfair.mean, *np.clip([unfair.low, unfair.high], 0.0, 100.0)),
                   "rho": float(np.exp(np.log(mine["rho_p99"]).mean())),
                   "jct_h": mine["jct_mean_s"].mean() / 3600, "queue_h": mine["queue_mean_s"].mean() / 3600,
                   "rejected": int(mine["jobs_rejected"].sum())}
            for name, value in (("jct", "jct_s"), ("cost", "cost_usd")):
                found = pairs[value].loc[(world, load, who)] if who != base else None
                row[name] = (1.0, np.nan, np.nan)
                if found is not None:  # of one seed no interval over seeds can be told
                    spread = tuple(found[["low", "high"]]) if found["method"] == "t" else (np.nan, np.nan)
                    row[name] = (found["ratio"], *spread)
            yield row


def told(three: tuple[float, float, float], digits: int = 2) -> str:
    """A figure with its interval; an interval that cannot be told is left out."""
    middle, low, high = (f"{one:.{digits}f}" for one in three)
    return middle if not three[1] < three[2] else f"{middle} ({low}–{high})"


def show(found: list[dict[str, Any]]) -> None:
    """The table as Markdown: lowest mean JCT first within each group."""
    print("| workload and cluster | load | gangs | policy | JCT mean (h) | queueing mean (h) | JCT mean / hetero | "
          "JCT p99 / hetero | cost / hetero | jobs with ρ > 1 (%) | ρ p99 | rejected | seeds |")
    print("|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    order = {group: number for number, group in enumerate(GROUPS)}
    for row in sorted(found, key=lambda r: (r["world"], r["load"], order[r["who"].split(":")[0]], r["jct"][0])):
        group, name = row["who"].split(": ")
        ratios = " | ".join(told(row[key], *digits) for key, *digits in (
            ("jct",), ("p99",), ("cost",), ("unfair", 0)))
        print(f"| {row['world']} | {row['load']:g} | {group} | {name} | {row['jct_h']:.2f} | {row['queue_h']:.2f} | "
              f"{ratios} | {row['rho']:.0f} | {row['rejected']} | {row['seeds']} |")


def main() -> None:
    """Play what is missing, and print the table."""
    parser = argparse.ArgumentParser(description="Heterogeneous schedulers against hetero.")
    parser.add_argument("data", type=Path, help="folder of public data: philly/, pai/, gavel/; what lacks is left out")
    parser.add_argument("--worlds", nargs="+", help="only these, such as 'philly gavel' 'pai scarce'")
    parser.add_argument("--only", action="append", default=[], metavar="AXIS=VALUE", help="as of hetsim sweep")
    parser.add_argument("--out", type=Path, default=Path("sweeps/heterogeneous"))
    parser.add_argument("--table", action="store_true", help="play nothing: the table of what is done")
    parser.add_argument("-j", "--workers", type=int)
    given = parser.parse_args()
    if not given.table:
        asked = read_toml(FILE)
        found, lacking = worlds(given.data, asked["run"], asked["sweep"]["seed"])
        for line in lacking:
            print(f"left out: {line}")
        if given.worlds and (strange := set(given.worlds) - set(found)):
            parser.error(f"no such world: {', '.join(strange)}; allowed: {', '.join(found)}")
        grid = read_grid(written(given.out, asked, {name: found[name] for name in given.worlds or found}))
        now = played(grid, Store(given.out), chosen(grid, given.only), executor_of(grid, given.workers, None), False)
        print(f"{len(now.failed)} cells have failed")
    sweep, fixed = load_sweep(given.out), read_toml(FILE)["run"]
    show(list(rows(dressed(sweep.table("jobs"), fixed), dressed(sweep.table(), fixed))))


if __name__ == "__main__":
    main()
