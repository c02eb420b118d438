"""What mixing GPU types is worth in a cluster: `hetero` against each planner of one type, in JCT and in cost.

    .venv/bin/python experiments/hetero_value.py [--config experiments/hetero-value.toml] [--out FOLDER] [--processes 2]

Each run is made once: a row of runs.csv, that an interrupted experiment goes on from. Ratios are of the same jobs in
the same order (same trace, load and seed), hetero / baseline; the interval is that of the mean of their logarithms
over the seeds (Student's t, 95 %). Jobs that one of the two rejects count in neither.
"""

from __future__ import annotations

import argparse
import csv
import tomllib
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from policies.registry import make
from sim.clusters import load_cluster
from sim.config import RunConfig
from sim.simulate import code_hash, simulate
from sim.workload import prepare, resolved

Key = tuple[str, float, int, str]


def run(key: Key, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """One run, a row a job: its JCT and what its GPUs cost (NaN where it was rejected)."""
    trace, load, seed, policy = key
    config = resolved(RunConfig(trace=trace, load=load, seed=seed, **settings))
    cluster = load_cluster(config.cluster)
    work = prepare(config, cluster)
    result = simulate(work.trace, cluster, make(policy), work.truth, performance=work.performance, seed=seed)
    jobs, held = result.tables["jobs"].to_pandas(), result.tables["segments"].to_pandas()
    price = np.array([gpu.price_or_nan for gpu in cluster.types])[cluster.node_type]
    usd_per_h = [float(np.dot(gpus, price[nodes])) for nodes, gpus in zip(held.nodes, held.gpus, strict=True)]
    usd = (held.end_s - held.begin_s) / 3600 * usd_per_h
    cost = usd.groupby(held.job_id).sum().reindex(jobs.job_id).to_numpy()
    jct_s = np.where(jobs.state == "rejected", np.nan, jobs.end_s - jobs.submit_s)
    head = {"trace": trace, "load": load, "seed": seed, "policy": policy}
    return [{**head, "job": job, "jct_s": t, "usd": usd} for job, t, usd in
            zip(jobs.job_id, jct_s.tolist(), cost.tolist(), strict=True)]


def played(grid: dict[str, Any], settings: dict[str, Any], folder: Path, processes: int) -> pd.DataFrame:
    """All runs of the grid, those that are there already from their files."""
    folder.mkdir(parents=True, exist_ok=True)
    keys: list[Key] = list(product(grid["traces"], grid["loads"], grid["seeds"], grid["policies"]))
    code = code_hash()[:12]
    files = {key: folder / ("-".join(map(str, (*key, settings.get("jobs", "all"), code))) + ".csv") for key in keys}
    missing = [key for key in keys if not files[key].exists()]
    with ProcessPoolExecutor(processes) as pool:
        for n, (key, rows) in enumerate(zip(missing, pool.map(run, missing, [settings] * len(missing)), strict=True)):
            with files[key].with_suffix(".part").open("w", newline="") as stream:
                writer = csv.DictWriter(stream, rows[0])
                writer.writeheader()
                writer.writerows(rows)
            files[key].with_suffix(".part").rename(files[key])
            print(f"{n + 1} of {len(missing)}: {' '.join(map(str, key))}", flush=True)
    return pd.concat([pd.read_csv(file, dtype={"job": str}) for file in files.values()], ignore_index=True)


def ratios(runs: pd.DataFrame) -> pd.DataFrame:
    """Hetero / baseline of mean JCT and of cost: a row a trace, load, seed and baseline."""
    out = []
    for (trace, load, seed), one in runs.groupby(["trace", "load", "seed"]):
        wide = one.pivot_table(["jct_s", "usd"], "job", "policy", dropna=False)
        for policy in one.policy.unique():
            if policy != "hetero":
                both = wide.loc[:, (slice(None), ["hetero", policy])].dropna()
                mean = both.mean()
                out.append({"trace": trace, "load": load, "seed": seed, "baseline": policy, "jobs": len(both),
                            **{what: mean[what, "hetero"] / mean[what, policy] for what in ("jct_s", "usd")}})
    return pd.DataFrame(out)


def interval(values: pd.Series) -> tuple[float, float, float]:
    """Geometric mean and its 95 % interval."""
    logs = np.log(values.to_numpy())
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
    return tuple(np.exp([logs.mean(), logs.mean() - half, logs.mean() + half]).tolist())


def table(found: pd.DataFrame) -> list[str]:
    """The ratios as a table for people."""
    lines = ["| trace | load | baseline | JCT, hetero / baseline | cost, hetero / baseline |",
             "|---|---:|---|---:|---:|"]
    for (trace, load, baseline), one in found.groupby(["trace", "load", "baseline"], sort=False):
        cells = ["{:.3f} ({:.3f}–{:.3f})".format(*interval(one[what])) for what in ("jct_s", "usd")]
        lines.append(f"| {trace} | {load:g} | {baseline} | {cells[0]} | {cells[1]} |")
    return lines


def draw(found: pd.DataFrame, file: Path) -> None:
    """One panel a trace and measure: ratio over load, a line a baseline."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    traces = list(found.trace.unique())
    figure, axes = plt.subplots(len(traces), 2, figsize=(8, 3 * len(traces)), squeeze=False, sharex=True)
    for row, trace in enumerate(traces):
        for column, (what, name) in enumerate((("jct_s", "mean JCT"), ("usd", "cost"))):
            axis = axes[row, column]
            for shift, (baseline, one) in enumerate(found[found.trace == trace].groupby("baseline", sort=False)):
                bars = one.groupby("load")[what].apply(interval)
                middle = np.array([b[0] for b in bars])
                spread = np.abs(np.array([b[1:] for b in bars]).T - middle)
                axis.errorbar(bars.index + 0.008 * shift, middle, spread, marker="o", ms=3, capsize=2, label=baseline)
            axis.axhline(1.0, color="0.6", lw=0.8)
            axis.set(title=f"{trace}: {name}", xlabel="load", ylabel="hetero / baseline")
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(file, dpi=150)


def main() -> None:
    """Play the grid, print the table and draw the figure."""
    parser = argparse.ArgumentParser(description="hetero against each planner of one GPU type.")
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("hetero-value.toml"))
    parser.add_argument("--out", type=Path, default=Path("runs", "hetero-value"))
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    settings = tomllib.loads(given.config.read_text("utf-8"))
    found = ratios(played(settings["grid"], settings["run"], given.out, given.processes))
    found.to_csv(given.out / "ratios.csv", index=False)
    draw(found, given.out / "hetero-value.png")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
