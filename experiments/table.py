"""Run every policy on the experiment of `all-policies.toml` and print the table that the README shows.

    .venv/bin/python experiments/table.py [--load 0.25] [--out FOLDER]

Runs that are there already, made by the same code, are not made again. JCT and queueing are those of the jobs that
finished in that run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from analysis.metrics import summary
from analysis.run import load_run
from policies.registry import find, names
from sim.kernels.cache_folder import code_hash

CONFIG = Path(__file__).with_name("all-policies.toml")
OTHERWISE = {"sia": ("-P", "round_s=360")}
"""Settings that are not the defaults: with rounds of a minute `sia` takes more than ten minutes here."""
HEAD = (
    "| policy | jobs finished | JCT mean (h) | JCT median (h) | JCT p99 (h) | queueing mean (h) | GPU-hours | "
    "cost (USD) |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)


def simulate(policy: str, out: Path, *options: str) -> Path:
    """Run one policy in a process of its own, unless its folder is there, made by this code; returns the folder."""
    kept = out / "run.json"
    if not (kept.exists() and json.loads(kept.read_text("utf-8"))["code_hash"] == code_hash()):
        asked = ["--config", str(CONFIG), "--policy", policy, "--out", str(out), "--force"]
        command = [sys.executable, "-m", "sim", "run", "--quiet", *asked, *OTHERWISE.get(policy, ()), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return out


def row(policy: str, folder: Path) -> str:
    """One line of the table; times in hours, the rest in the unit of its head."""
    s = summary(load_run(folder))
    hours = [f"{s[key] / 3600:,.1f}" for key in ("jct_mean_s", "jct_p50_s", "jct_p99_s", "queue_mean_s")]
    cost = "unknown" if s["cost_usd"] is None else f"{s['cost_usd']:,.0f}"
    return " | ".join((f"| {policy}", f"{s['jobs_finished']:,}", *hours, f"{s['gpu_hours']:,.0f}", f"{cost} |"))


def main() -> None:
    """Print the table, lowest mean JCT first."""
    parser = argparse.ArgumentParser(description="Run every policy on one experiment and print a table.")
    parser.add_argument("--load", help="another load than the file's")
    parser.add_argument("--out", type=Path, help="folder of the runs  [runs/all-policies, or that name and the load]")
    given = parser.parse_args()
    options = () if given.load is None else ("--load", given.load)
    out = given.out or Path("runs", "-".join(("all-policies", *options[1:])))
    folders = {name: simulate(name, out / name, *options) for name in names() if not find(name).needs_starts}
    ranked = sorted(folders, key=lambda name: summary(load_run(folders[name]))["jct_mean_s"])
    print("\n".join((*HEAD, *(row(name, folders[name]) for name in ranked))))


if __name__ == "__main__":
    main()
