"""Operators of one training step on two GPUs: step time by method, and what faster compute and links change.

    .venv/bin/python experiments/placement_methods.py ../shared [--quick] [--out figures/placement] [--only steps]

The setting is Pesto's (Hafeez et al. 2021, Middleware, tables 2 and 3, figures 7 and 8): two V100 with 16 GiB, one
channel each way of 25 GB/s and 10 us. Graphs are profiles of PipeDream and made ones (RNNLM, NMT, Transformer), not
theirs. `expert`: layers of recurrent networks in turn, contiguous blocks of equal work otherwise. Gain over a method
is 1 - time / its time; a method that does not fit the memory has no gain.

`--only rows` prints instead what the annealing and Pesto reach on the rows of `oracles/placement/reference.csv`: those
with annealing, those solved by CP-SAT and HiGHS, and Baechi's best of three on graphs of up to 200 operators.
"""

from __future__ import annotations

import argparse
import csv
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from policies.place.annealing import anneal
from policies.place.baechi import m_etf, m_sct, m_topo
from policies.place.coarsen import coarsen
from policies.place.pesto import pesto
from policies.place.placement_problem import Devices, PlacementGraph, Placer, Schedule
from policies.place.program import solve
from policies.place.simple import expert, layers, single
from policies.place.step import profiled_step
from sim.performance.readers.pipedream_profile import read_pipedream
from sim.performance.readers.synthetic import read_synthetic
from tests.place.test_oracle_baechi import graph_of, rows

MODELS = (
    "rnnlm_L2_T20_h2048_b128", "rnnlm_L4_T20_h1024_b128", "nmt_L2_T20_h1024_b128", "transformer_L6_H8_d512_b64_s64",
    "transformer_L4_H16_d1024_b32_s64", "nasnetamobile", "inception_v3",
)  # fmt: skip
QUICK = ("rnnlm_L4_T20_h1024_b128", "nmt_L2_T20_h1024_b128")
S_PER_BYTE, LATENCY_S, MEMORY_BYTES = 1 / 25e9, 10e-6, 16 * 2**30
COMPUTE, LINKS = (1, 2, 4, 8), (0.25, 0.5, 1, 2, 4, 8)
BAECHI = ("m_topo", "m_etf", "m_sct")
LAYER = re.compile(r"[ced](\d+)_\d+")


def nvlink(count: int, **settings: bool | float) -> Devices:
    return Devices.alike(count, S_PER_BYTE, LATENCY_S, **settings)


@cache
def model(folder: Path, name: str) -> tuple[PlacementGraph, np.ndarray | None]:
    """The training step, and the layer of each operator where it has recurrent layers (-1: with its neighbours)."""
    profile = folder / f"data/graphs/pipedream/{name}.graph.txt"
    if profile.exists():
        return profiled_step(read_pipedream(profile)), None
    graph = read_synthetic(folder / f"data/graphs/synthetic/{name}.json")
    found = [LAYER.fullmatch(op) for op in graph.ops]
    layer = np.array([int(match[1]) if match else -1 for match in found])
    return profiled_step(graph), np.tile(layer, 2) if any(found) else None


def methods(layer: np.ndarray | None, quick: bool) -> dict[str, Placer]:
    by_hand = expert if layer is None else partial(layers, layer=layer)
    pesto_s, iterations = (3.0, 10_000) if quick else (30.0, 100_000)
    return {
        "single": single, "expert": by_hand, "m_topo": m_topo, "m_etf": m_etf, "m_sct": m_sct,
        "pesto": partial(pesto, seconds=pesto_s), "anneal": partial(anneal, iterations=iterations),
    }  # fmt: skip


def placed(place: Placer, graph: PlacementGraph, devices: Devices) -> tuple[Schedule, float]:
    began = time.perf_counter()
    return place(graph, devices), time.perf_counter() - began


def gain(time_s: float, other_s: float) -> float:
    return 1 - time_s / other_s


def steps(folder: Path, names: Iterable[str], quick: bool) -> list[dict]:
    """Step and placement time of each method."""
    anneal(model(folder, QUICK[0])[0], nvlink(2, memory_bytes=MEMORY_BYTES), iterations=10)  # compiles
    table = []
    for name in names:
        graph, layer = model(folder, name)
        found = {
            method: placed(place, graph, nvlink(2, memory_bytes=MEMORY_BYTES))
            for method, place in methods(layer, quick).items()
        }
        known = {method: schedule.makespan_s for method, (schedule, _) in found.items() if schedule.fits}
        baechi = min((known[method] for method in BAECHI if method in known), default=np.nan)
        for method, (schedule, placing_s) in found.items():
            row = {
                "model": name, "operators": len(graph), "method": method, "step_ms": 1e3 * schedule.makespan_s,
                "fits": schedule.fits, "placing_s": placing_s, "peak_gib": schedule.peak_bytes.max() / 2**30,
                "gain_over_expert": gain(schedule.makespan_s, known.get("expert", np.nan)),
                "gain_over_m_sct": gain(schedule.makespan_s, known.get("m_sct", np.nan)),
                "gain_over_baechi_best": gain(schedule.makespan_s, baechi),
            }  # fmt: skip
            table.append(row if schedule.fits else row | {key: np.nan for key in row if key.startswith("gain")})
            fits = "" if schedule.fits else "  does not fit"
            print(f"{name:34} {method:8} {row['step_ms']:8.1f} ms  {placing_s:6.2f} s{fits}", flush=True)
    for method in ("pesto", "anneal"):
        mine = [row for row in table if row["method"] == method]
        for over in ("gain_over_expert", "gain_over_m_sct", "gain_over_baechi_best"):
            gains = [row[over] for row in mine]
            print(f"{method}: mean {over} {np.nanmean(gains):.1%}, most {np.nanmax(gains):.1%}")
    return table


def faster(folder: Path, names: Iterable[str], quick: bool, what: str) -> list[dict]:
    """Gain over expert as compute (`what` 'compute') or links ('links': bytes a second) get faster."""
    table = []
    for name in names:
        graph, layer = model(folder, name)
        for factor in COMPUTE if what == "compute" else LINKS:
            scaled = replace(graph, work_s=graph.work_s / factor) if what == "compute" else graph
            per_byte = S_PER_BYTE / factor if what == "links" else S_PER_BYTE
            devices = Devices.alike(2, per_byte, LATENCY_S, memory_bytes=MEMORY_BYTES)
            found = methods(layer, quick)
            by_hand = found["expert"](scaled, devices)
            for method in ("m_sct", "anneal"):
                place = partial(anneal, iterations=5_000 if quick else 40_000) if method == "anneal" else found[method]
                schedule = place(scaled, devices)
                fit = schedule.fits and by_hand.fits
                table.append({
                    "model": name, "faster": what, "factor": factor, "method": method,
                    "step_ms": 1e3 * schedule.makespan_s, "expert_ms": 1e3 * by_hand.makespan_s,
                    "gain_over_expert": gain(schedule.makespan_s, by_hand.makespan_s) if fit else np.nan,
                })  # fmt: skip
    return table


def write(out: Path, name: str, table: list[dict]) -> None:
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)


def draw_steps(out: Path, table: list[dict]) -> None:
    names = list(dict.fromkeys(row["model"] for row in table))
    kinds = list(dict.fromkeys(row["method"] for row in table))
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    for k, method in enumerate(kinds):
        times = {row["model"]: row["step_ms"] for row in table if row["method"] == method}
        base = {row["model"]: row["step_ms"] for row in table if row["method"] == "single"}
        places = np.arange(len(names)) + (k - len(kinds) / 2) * 0.11
        axes.bar(places, [times[name] / base[name] for name in names], 0.1, label=method)
    axes.set_xticks(np.arange(len(names)), [name.replace("_", "\n", 1) for name in names], fontsize=7)
    axes.set_ylabel("step time (single device = 1)")
    axes.legend(ncols=len(kinds), fontsize=7)
    figure.savefig(out / "steps.png", dpi=150)


def draw_sweep(out: Path, table: list[dict], what: str) -> None:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name in dict.fromkeys(row["model"] for row in table):
        mine = [row for row in table if row["model"] == name and row["method"] == "anneal"]
        gains = [100 * row["gain_over_expert"] for row in mine]
        axes.plot([row["factor"] for row in mine], gains, marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xlabel(f"{what}, times as fast")
    axes.set_ylabel("gain over expert (%)")
    axes.legend(fontsize=7)
    figure.savefig(out / f"faster_{what}.png", dpi=150)


def annealing_rows(folder: Path, quick: bool) -> None:
    """'simulated annealing + list scheduler', 12 CPU-s: here as many neighbours as take no more."""
    print("| graph | devices | theirs (us) | ours, by seed (us) | theirs, ours (CPU s) |\n|---|---:|---:|---|---|")
    for row in rows_of(folder, "simulated annealing + list scheduler"):
        name, found, spent_s = row["instance"].split("/")[1], [], []
        graph, devices = model(folder, name)[0], nvlink(int(row["k"]))
        iterations = int(2e8 / len(graph) ** 1.05) // (10 if quick else 2)
        for seed in range(1 if quick else 3):
            began = time.process_time()
            found.append(1e6 * anneal(graph, devices, iterations=iterations, seed=seed).makespan_s)
            spent_s.append(time.process_time() - began)
        print(f"| {name} | {row['k']} | {float(row['objective']):.0f} | {', '.join(f'{us:.0f}' for us in found)} "
              f"| {row['cpu_s']}, {max(spent_s):.1f} |", flush=True)


def pesto_rows(folder: Path, quick: bool) -> None:
    """'Pesto makespan' at the same vertices, in the wall time of the row or less; and on the fine graph."""
    print("| graph | devices | theirs (us) | ours (us) | bound (us) | fine (us) | theirs, ours (wall s) |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for row in rows_of(folder, "CP-SAT no-overlap", "HiGHS big-M MILP"):
        _, name, size = row["instance"].split("/")
        graph, devices = model(folder, name)[0], nvlink(int(row["k"]), cache=False)
        coarse, began = coarsen(graph, int(size.removeprefix("coarse"))), time.perf_counter()
        warm = anneal(coarse.graph, devices, iterations=20_000)
        seconds = min(float(row["wall_s"]), 5.0 if quick else 30.0)
        answer = solve(coarse.graph, devices, warm, seconds=seconds)
        spent_s = time.perf_counter() - began
        fine = pesto(graph, devices, target=len(coarse.graph), seconds=seconds) if not quick else None
        print(f"| {row['instance']} | {row['k']} | {row['objective'] or 'none'} | {1e6 * answer.makespan_s:.0f} "
              f"| {1e6 * answer.bound_s:.0f} | {f'{1e6 * fine.makespan_s:.0f}' if fine else ''} "
              f"| {row['wall_s']}, {spent_s:.1f} |", flush=True)


def baechi_rows(folder: Path, quick: bool, most: int = 200) -> None:
    """Baechi's best of three in its own model; a tie is given to the solver for a proof that nothing is better."""
    print("| graph | devices | their best (us) | ours (us) | ours, their scheduler (us) | |")
    print("|---|---:|---:|---:|---:|---|")
    best: dict[tuple[str, int], float] = {}
    for row in rows(folder / "oracles", BAECHI):
        if int(re.search(r"n=(\d+)", row["extra"])[1]) <= most:
            key = row["instance"], int(row["k"])
            best[key] = min(best.get(key, np.inf), float(row["objective"]))
    for (instance, count), theirs in best.items():
        graph = graph_of(instance, folder / "data")
        devices = Devices.alike(count, 1.0, 0.0, links="shared")
        ours, eager = (
            anneal(graph, devices, iterations=20_000 if quick else 100_000, eager=eager) for eager in (False, True)
        )
        verdict = f"{min(ours.makespan_s, eager.makespan_s) / theirs - 1:+.2%}"
        if min(ours.makespan_s, eager.makespan_s) >= theirs:
            bound = solve(graph, devices, ours, seconds=60, quantum_s=1.0).bound_s
            verdict = "equal, optimal" if bound >= theirs else f"not better, bound {bound:.0f}"
        print(f"| {instance} | {count} | {theirs:.0f} | {ours.makespan_s:.0f} | {eager.makespan_s:.0f} | {verdict} |",
              flush=True)


def rows_of(folder: Path, *algorithms: str) -> list[dict[str, str]]:
    with (folder / "oracles/placement/reference.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["algorithm"] in algorithms]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with data/graphs and oracles/placement")
    parser.add_argument("--quick", action="store_true", help="two models, short searches")
    parser.add_argument("--out", type=Path, default=Path("figures/placement"))
    parser.add_argument("--only", choices=("steps", "compute", "links", "rows"))
    asked = parser.parse_args()
    names = QUICK if asked.quick else MODELS
    if asked.only == "rows":
        compare: Callable[[Path, bool], None]
        for compare in (annealing_rows, baechi_rows, pesto_rows):
            compare(asked.folder, asked.quick)
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.only in (None, "steps"):
        table = steps(asked.folder, names, asked.quick)
        write(asked.out, "steps", table)
        draw_steps(asked.out, table)
    for what in ("compute", "links"):
        if asked.only in (None, what):
            table = faster(asked.folder, names, asked.quick, what)
            write(asked.out, f"faster_{what}", table)
            draw_sweep(asked.out, table, what)


if __name__ == "__main__":
    main()
