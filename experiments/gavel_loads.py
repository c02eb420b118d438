"""Gavel's claim by load: mean JCT of max-min fairness that is blind to speed over that of its aware twin.

    .venv/bin/python -m experiments.gavel_loads ../shared
    .venv/bin/python -m experiments.gavel_loads ../shared --drawn 1000 --gpus 36 --every 1800 1200 900 720

The jobs are those of the recorded trace of Gavel's generator (200 jobs of one GPU, one each hour), whose submit times
are brought nearer; or so many drawn from them, one `every` so many seconds in the mean (exponential gaps). Of drawn
ones the middle half by submission counts, so that neither the empty cluster before nor the last jobs after matter.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.gavel_oracles import Oracle, played_jobs

TRACE = "oracles/gavel/cont_single_s0_lam3600_n200.trace"
EVERY_S = 3600.0
TWINS: dict[str, dict[str, Any]] = {"aware": {}, "blind": {"aware": False, "walk": "types"}, "blind, shuffled": {
    "aware": False, "blind": "all", "rest": "centre", "walk": "shuffled"}}
"""Settings of `gavel`; the last is blind as Gavel's simulator is: types are walked in drawn orders, so that idle GPUs
that are filled are not the fastest ones, and time that a job deserves where it cannot run is lost."""


def jobs_at(lines: list[str], every_s: float, drawn: int, seed: int) -> list[str]:
    """The lines of a trace with one job every so many seconds in the mean, or of so many drawn jobs."""
    fields = [line.rstrip("\n").split("\t") for line in lines]
    if not drawn:
        return ["\t".join((*of[:-1], repr(float(of[-1]) * every_s / EVERY_S))) + "\n" for of in fields]
    rng = np.random.default_rng(seed)
    rows, at_s = rng.integers(0, len(fields), drawn).tolist(), np.cumsum(rng.exponential(every_s, drawn)).tolist()
    return ["\t".join((*fields[row][:-1], repr(t))) + "\n" for row, t in zip(rows, at_s, strict=True)]


def mean_jct_s(oracle: Oracle, settings: dict[str, Any], middle: bool, scratch: Path) -> float:
    submit_s, end_s, _ = played_jobs(oracle, settings, scratch)
    jct_s = (end_s - submit_s)[np.argsort(submit_s)]
    some = slice(len(jct_s) // 4, 3 * len(jct_s) // 4) if middle else slice(None)
    return float(jct_s[some].mean())


def main(folder: Path, gpus: int, every_s: list[float], drawn: int, seed: int) -> None:
    lines = (folder / TRACE).read_text().splitlines(keepends=True)
    times = " | ".join(f"{name} (s)" for name in TWINS)
    print(f"| GPUs | a job every (s) | {times} | blind / aware | shuffled / aware |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    base = Oracle(folder, "contS", "max_min_fairness", (gpus, gpus, gpus), 0.0, 0.0, 0.0)
    for every in every_s:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "jobs.trace"
            path.write_text("".join(jobs_at(lines, every, drawn, seed)))
            one = replace(base, trace=str(path))
            aware, *blind = (mean_jct_s(one, settings, drawn > 0, Path(scratch)) for settings in TWINS.values())
        print(f"| 3 × {gpus} | {every:,.0f} | {aware:,.0f} | " + " | ".join(f"{jct:,.0f}" for jct in blind)
              + " | " + " | ".join(f"{jct / aware:.2f}" for jct in blind) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with data/gavel and oracles/gavel")
    parser.add_argument("--gpus", type=int, default=12, help="of each of V100, P100 and K80")
    parser.add_argument("--every", type=float, nargs="+", default=[3600.0, 1800.0, 1200.0, 720.0], help="s")
    parser.add_argument("--drawn", type=int, default=0, help="so many jobs drawn from the trace; 0: the trace")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.gpus, arguments.every, arguments.drawn, arguments.seed)
