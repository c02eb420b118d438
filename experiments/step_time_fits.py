"""How well step-time laws meet measured steps: 6 jobs x 6 kinds of machines (Pollux' and Sia's profiles).

    python experiments/step_time_fits.py ../shared/data [--quick]

Errors are mean relative ones of a fit's rows, in %. First table, every row fitted:

- peer, 16 starts: Pollux' seven parameters as shipped, and the best of 16 restarts.
- ours, median, p95: our law (12 parameters; 7 where all is on one node).
- 5-fold, node count: rows left out at random; all rows of one number of nodes (2 or more) left out.
- others' work: for yolov3, work(b) from other types of GPU only (it trains on images of random size, so its batches
  differ in work; the same ones on every machine). no work: with work(b) = 1.
- repeats: mean deviation of repeated measurements of a row from their mean. Only some rows have more than one, and a
  repeat on one node is mostly the same measurement listed twice.
- monotone: the least error of ANY law that rises with the batch on the same GPUs and with GPUs on the same nodes.

Second table, single-node rows fitted, steps on several nodes asked for: `known` network fitted to the job's own steps
there (what the form of the law allows), `borrowed` from the other jobs on that machine per byte of gradients, `link` a
ring at 90 % of the link's nominal speed. work(b) is that of other types of GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from sim.performance.pollux import read_models
from sim.performance.stepfit import fit_law, fit_network, held_out, random_parts, shared_work
from sim.performance.steptime import Network, StepRows, StepTimeLaw, read_steps
from sim.performance.tables.sia_steps import steps
from sim.performance.zoo import zoo_graph

Rows = dict[tuple[str, str], StepRows]
RANDOM_SIZES = "yolov3"
ZOO = {"bert": "bert-base-384", "cifar10": "resnet18-cifar", "imagenet": "resnet50", "ncf": "neumf", "yolov3": "yolov3"}
"""Jobs whose gradients are known (4 bytes a parameter). DeepSpeech2's size is not published: see `unknown_bytes`."""
LINK_GBIT_PER_S = {"aws": 50, "azure": 100, "rtx": 50, "dgx": 1600, "dgx-ext": 1600}
"""A node's network, nominal: g4dn.12xlarge, DGX A100 and NDv2 as advertised; that azure is an NDv2 is an
assumption, and so is the rate of rtx."""
TYPE = {"dgx-ext": "dgx"}
"""Machines with the GPU of another: none of them is 'another type' for it."""


def work_of(rows: Rows, model: str, but: str = "") -> dict[int, float] | None:
    """Work of a model's batches, from all machines or those of another GPU type than `but`."""
    if model != RANDOM_SIZES:
        return None
    return shared_work({m: r for (name, m), r in rows.items() if name == model and another(m, but)})


def another(machine: str, but: str) -> bool:
    """Whether two machines have different types of GPU."""
    return TYPE.get(machine, machine) != TYPE.get(but, but)


def monotone_floor(rows: StepRows) -> float:
    """Least mean relative error of times that fall neither with the batch nor with GPUs on the same nodes: an LP."""
    at = {key: i for i, key in enumerate(zip(rows.nodes, rows.replicas, rows.local_bsz, strict=True))}
    pairs = []
    for order in ((0, 1, 2), (0, 2, 1)):  # neighbours in the last of the three, the others equal
        keys = sorted(at, key=lambda key: tuple(key[i] for i in order))
        pairs += [(at[a], at[b]) for a, b in pairwise(keys) if all(a[i] == b[i] for i in order[:2])]
    n, e = len(rows), np.arange(len(rows))
    lower, upper = np.array(pairs).T
    k = np.arange(len(pairs))  # f[lower] <= f[upper];  |f / t - 1| <= d
    row = np.concatenate([k, k, len(k) + e, len(k) + e, len(k) + n + e, len(k) + n + e])
    column = np.concatenate([lower, upper, e, n + e, e, n + e])
    value = np.concatenate([0 * k + 1.0, 0 * k - 1.0, 1 / rows.step_s, -np.ones(n), -1 / rows.step_s, -np.ones(n)])
    bound = np.concatenate([0.0 * k, np.ones(n), -np.ones(n)])
    found = linprog(np.concatenate([np.zeros(n), np.ones(n)]), coo_array((value, (row, column))).tocsr(), bound)
    return float(found.fun) / n


def repeats(folder: Path, model: str, machine: str) -> float:
    """Mean relative deviation of repeated measurements from their mean."""
    times: dict[tuple[int, int, int], list[float]] = {}
    for kind in ("placements", "scalability"):
        for s in steps(folder / "sia" / "traces" / model / f"{kind}-{machine}.csv"):
            times.setdefault((s.nodes, s.replicas, s.local_bsz), []).append(s.step_s)
    return float(np.mean([np.abs(np.array(t) / np.mean(t) - 1).mean() for t in times.values() if len(t) > 1]))


def table(head: tuple[str, ...], lines: Mapping[tuple[str, str], list[float]]) -> None:
    """Print one line a fit, then mean, median and worst of each column (in %; NaN left out)."""
    print(f"\n| job | machine | {' | '.join(head)} |\n|---|---|{'---:|' * len(head)}")
    values = 100 * np.array(list(lines.values()))
    for key, row in zip(lines, values, strict=True):
        print(f"| {key[0]} | {key[1]} |", " | ".join("–" if np.isnan(v) else f"{v:.1f}" for v in row), "|")
    for name, of in (("mean", np.nanmean), ("median", np.nanmedian), ("worst", np.nanmax)):
        print(f"| **{name}** | |", " | ".join(f"**{v:.1f}**" for v in of(values, axis=0)), "|", flush=True)


def fitted(folder: Path, rows: Rows, quick: bool) -> None:
    """The first table."""
    params = folder / "pollux" / "pollux_perf_params.csv"
    peers = [read_models(params, fit) for fit in ("peer", "multistart")]
    work = {model: work_of(rows, model) for model, _ in rows}
    lines = {}
    for (model, machine), r in rows.items():
        theirs = [p[model, machine].step_time_s(r.nodes, r.replicas, r.local_bsz) / r.step_s - 1 for p in peers]
        law = fit_law(r, work[model])
        error = law.errors(r)
        lines[model, machine] = line = [*(float(np.abs(e).mean()) for e in theirs), float(error.mean()),
                                        float(np.median(error)), float(np.quantile(error, 0.95))]
        if not quick:
            counts = np.where(r.nodes > 1, r.nodes, -1)
            other = work_of(rows, model, machine)
            line += [held_out(r, random_parts(len(r)), work[model]),
                     held_out(r, counts, work[model]) if len(np.unique(counts)) > 2 else float("nan"),
                     float(fit_law(r, other).errors(r).mean()), float(fit_law(r).errors(r).mean())]
        line += [repeats(folder, model, machine), monotone_floor(r)]
    held = () if quick else ("5-fold", "node count", "others' work", "no work")
    table(("peer", "16 starts", "ours", "median", "p95", *held, "repeats", "monotone"), lines)


def unknown_bytes(laws: Mapping[str, StepTimeLaw], rows: Rows, networks: Mapping[str, Network], model: str) -> float:
    """Gradient bytes that explain a job's steps on several nodes of these machines best, by the others' networks."""
    sizes = np.geomspace(1e7, 2e9, 60)
    apart = {m: rows[model, m].where(rows[model, m].nodes > 1) for m in laws}
    errors = [sum(float(law.with_network(networks[m].scaled(size)).errors(apart[m]).mean()) for m, law in laws.items())
              for size in sizes]
    return float(sizes[int(np.argmin(errors))])


def asked_apart(rows: Rows) -> None:
    """The second table."""
    machines = [m for m in LINK_GBIT_PER_S if ("bert", m) in rows]
    size = {job: 4.0 * float(zoo_graph(name).weight_params.sum()) for job, name in ZOO.items()}
    single = {(model, machine): fit_law(r.where(r.nodes == 1), work_of(rows, model, machine))
              for (model, machine), r in rows.items() if machine in machines}
    lines, guessed = {}, {}
    for (model, machine), law in single.items():
        apart = rows[model, machine].where(rows[model, machine].nodes > 1)
        networks = {m: fit_network({j: (single[j, m], rows[j, m], size[j]) for j in size if j != model})
                    for m in machines}
        own = size.get(model, 0.0)
        if not own:
            others = {m: single[model, m] for m in machines if another(m, machine)}
            own = unknown_bytes(others, rows, networks, model)
            guessed[machine] = round(own / 1e6)
        known = fit_network({model: (law, apart, own)}).scaled(own)
        link = Network.of_link(own, 0.9 * LINK_GBIT_PER_S[machine] / 8 * 1e9)
        lines[model, machine] = [float(law.with_network(network).errors(apart).mean())
                                 for network in (known, networks[machine].scaled(own), link)]
    table(("known", "borrowed", "link"), lines)
    print("\ndeepspeech2's gradients by the other machines, Mbyte:", guessed)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Fit step-time laws to measured steps and print their errors.")
    parser.add_argument("data", type=Path, help="folder with pollux/ and sia/")
    parser.add_argument("--quick", action="store_true", help="leave out cross-validation")
    given = parser.parse_args()
    rows = read_steps(given.data / "pollux" / "pollux_sia_throughput.csv")
    rows = {key: r for key, r in rows.items() if key[0] != "gpt_pmp"}  # a pipeline: its steps are not whole
    fitted(given.data, rows, given.quick)
    asked_apart(rows)


if __name__ == "__main__":
    main()
