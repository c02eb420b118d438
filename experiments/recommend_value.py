"""What mixing GPU types is worth to one job: the recommended plan against the best one on one GPU type.

    .venv/bin/python experiments/recommend_value.py [--out FOLDER] [--evaluations 3000] [--quick]

Models of the zoo x fleets x four objectives. Both plans come from one search over both spaces (`gather`: each method,
then the self-optimising search, half of it on one type), so that neither is searched less. The objectives:
least time; least cost; least cost within 1.2 x the best time on one type; least time at 1.2 x its least cost.
Where nothing is saved, the reason is one of three: the best plan leaves GPUs of its own type idle (more of any type
would not help); it takes all of them, and what others add does not repay what they cost; no mixture does a sample for
less (it pays by cost only where no type does all parts of the model best).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from policies.recommend.request.fleet import Fleet
from policies.recommend.request.objective import Limits, on, ranked
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Recommendation, Request, Space, by_cost
from policies.recommend.searching.bounds import lower_bound
from policies.recommend.searching.gather import METHODS, gather
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance

JOBS = {
    "resnet50": 256, "vgg16": 256, "inception-v3": 256, "nasnet-mobile": 256, "resnet152": 256, "bert-large": 256,
    "bert-base": 256, "gpt2-1.5b": 64, "transformer-big": 256, "gnmt-8": 256, "lstm-lm": 160, "dlrm": 2048,
    "yolov3": 64,
}
FLEETS: dict[str, tuple[dict[str, int], int]] = {
    "V100:16,P100:16,K80:16": ({"V100": 16, "P100": 16, "K80": 16}, 4),
    "V100:4,P100:4": ({"V100": 4, "P100": 4}, 4),
    "A100:8,V100:16,T4:32": ({"A100": 8, "V100": 16, "T4": 32}, 8),
    "T4:16,V100:8": ({"T4": 16, "V100": 8}, 8),
}
SLACK = 1.2
"""Of the third and fourth objective."""
OBJECTIVES = ("least time", "least cost", "cost within time", "time within cost")


def choose(objective: str, found: Sequence[Recommendation], single: Sequence[Recommendation]) -> Recommendation:
    """The best of `found`; limits are relative to the best on one type."""
    if objective == "least time":
        return ranked(found)[0]
    if objective == "least cost":
        return ranked(found, "cost")[0]
    if objective == "cost within time":
        return ranked(found, "cost", limits=Limits(time_s=SLACK * ranked(single)[0].iteration_s))[0]
    return ranked(found, limits=Limits(usd=SLACK * ranked(single, "cost")[0].usd_per_iteration))[0]


def reason(objective: str, request: Request, best: Recommendation) -> str:
    """Why mixing saves nothing."""
    if objective in ("least cost", "cost within time"):
        return "no mixture does a sample for less"
    left = [there - n for n, there in zip(best.counts, request.fleet.counts, strict=True) if n]
    return "GPUs of its type are left: more do not help" if min(left) > 0 else "what others add does not repay"


def rows(model: str, fleet: str, evaluations: int, methods: Sequence[str]) -> list[dict[str, Any]]:
    """One model on one fleet, a row an objective."""
    counts, node_gpus = FLEETS[fleet]
    performance, types = Performance(), [gpu_type(name) for name in counts]
    there = Fleet(performance, types, list(counts.values()), [node_gpus] * len(types))
    space = Space(recompute=(False, True), mixed=True, tensor=(1, 2, 4), orders=True)
    request = Request(performance, model, JOBS[model], there, sum(counts.values()), space)
    began = time.process_time()
    try:
        found = gather(request, methods, evaluations)
    except RecommendError:
        found = []
    cpu_s = time.process_time() - began
    gap_time, gap_cost = lower_bound(request).gap(found)
    single = [r for r in found if sum(n > 0 for n in r.counts) == 1]
    head = {"model": model, "fleet": fleet, "cpu_s": cpu_s, "front": len(by_cost(found)),
            "gap_time": gap_time, "gap_cost": gap_cost}
    if not single:
        note = "only mixtures fit" if found else "nothing fits"
        return [{**head, "objective": objective, "reason": note} for objective in OBJECTIVES]
    out = []
    for objective in OBJECTIVES:
        ours, theirs = choose(objective, found, single), choose(objective, single, single)
        by_time = objective in ("least time", "time within cost")
        saved = 1 - (ours.iteration_s / theirs.iteration_s if by_time else
                     ours.usd_per_iteration / theirs.usd_per_iteration)
        out.append({**head, "objective": objective, "saving": saved, "iteration_s": ours.iteration_s,
                    "usd": ours.usd_per_iteration, "gpus": on(ours), "one_type": on(theirs),
                    "one_type_s": theirs.iteration_s, "one_type_usd": theirs.usd_per_iteration,
                    "reason": "" if saved > 1e-9 else reason(objective, request, theirs)})
    return out


def draw_fronts(rows_of: dict[str, list[Recommendation]], file: Path) -> None:
    """Time against cost of all plans found, and of those on one type."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(rows_of), figsize=(4 * len(rows_of), 3.2), squeeze=False)
    for axis, (title, found) in zip(axes[0], rows_of.items(), strict=True):
        single = [r for r in found if sum(n > 0 for n in r.counts) == 1]
        for plans, name, style in ((single, "one GPU type", "--"), (found, "any types", "-")):
            front = by_cost(plans)
            axis.step([r.iteration_s for r in front], [1e3 * r.usd_per_iteration for r in front], style,
                      where="post", marker=".", label=name)
        axis.set(title=title, xlabel="iteration (s)", ylabel="USD / 1,000 iterations", xscale="log")
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(file, dpi=150)


def fronts(file: Path, evaluations: int) -> None:
    """The picture of three jobs."""
    shown = {}
    for model, fleet in (("gpt2-1.5b", "V100:4,P100:4"), ("bert-large", "T4:16,V100:8"),
                         ("vgg16", "A100:8,V100:16,T4:32")):
        counts, node_gpus = FLEETS[fleet]
        performance, types = Performance(), [gpu_type(name) for name in counts]
        there = Fleet(performance, types, list(counts.values()), [node_gpus] * len(types))
        space = Space(recompute=(False, True), mixed=True)
        request = Request(performance, model, JOBS[model], there, sum(counts.values()), space)
        shown[f"{model}, {fleet}"] = gather(request, METHODS, evaluations)
    draw_fronts(shown, file)


def main() -> None:
    """Plan all jobs on all fleets, print the savings, draw three fronts."""
    parser = argparse.ArgumentParser(description="The recommended plan against the best one on one GPU type.")
    parser.add_argument("--out", type=Path, default=Path("runs", "recommend-value"))
    parser.add_argument("--evaluations", type=int, default=3000, help="plans that the search may judge")
    parser.add_argument("--quick", action="store_true", help="three models, two fleets")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    models, fleets = list(JOBS), list(FLEETS)
    if given.quick:
        models, fleets = ["vgg16", "bert-large", "gpt2-1.5b"], fleets[1:3]
    methods = [name for name in METHODS if name != "search"] + ["metis", "search"]
    found: list[dict[str, Any]] = []
    for model in models:
        for fleet in fleets:
            found += rows(model, fleet, given.evaluations, methods)
            pd.DataFrame(found).to_csv(given.out / "savings.csv", index=False)
            print(model, fleet, *(f"{row.get('saving', float('nan')):.3f}" for row in found[-4:]), flush=True)
    table = pd.DataFrame(found)
    assert not (table.saving < -1e-12).any(), "a plan is worse than the best one on one type"
    print("\n| fleet | objective | jobs | saved: median | best | none |\n|---|---|---:|---:|---:|---:|")
    for key, one in table.groupby(["fleet", "objective"], sort=False):
        fleet, objective = map(str, key)
        known = one.saving.dropna()
        print(f"| {fleet} | {objective} | {len(known)} | {known.median():.1%} | {known.max():.1%} | "
              f"{(known <= 1e-9).sum()} |")
    gaps = table.drop_duplicates(["model", "fleet"])[["gap_time", "gap_cost"]]
    for name, gap in gaps.items():
        print(f"\n{name}, best found over what is proven: median {gap.median():.1%}, most {gap.max():.1%}", end="")
    print("\n\nreasons:", table.reason[table.reason != ""].value_counts().to_dict())
    fronts(given.out / "fronts.png", given.evaluations)


if __name__ == "__main__":
    main()
