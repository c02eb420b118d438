"""What mixing GPU types is worth to one job, and why: whole fronts of time and cost, each gain split into its parts.

    .venv/bin/python experiments/recommend_value.py [--out FOLDER] [--evaluations 10000] [--jobs 2] [--minutes M]

Models of the zoo x fleets x how many there are of the best type, 1 to 8. A question is a model on a fleet: one search
of all plans and of those on one type (`gather`), then a planner that is blind to operators (`blind_plans`), and that
planner once more with the truth in place of its belief: what its search lacks. What fewer of the best type allow are
those plans that use no more of them. Each front is scored by

- least time and least cost;
- time at equal cost: the mean over 10 budgets, from what the cheapest plan on one type costs to what the fastest does;
- cost at equal time: the mean over 10 times, from the fastest plan on one type to its cheapest;
- hypervolume: the area in log time and log cost that a front dominates, up to twice the slowest and the dearest plan.

All but the last are split as `why_mixing` says: GPUs exchanged, GPUs added, operators. Prices are of one provider and
kind on a fleet. `even` fleets have prices at which a model costs the same on both types as a whole: where a market of
spot GPUs would go, and where operators matter most. `net` is `operators` less what the blind planner's search missed.
Each question is a file in --out: what is there is not asked again, and the answer of the most evaluations counts.
`--quick`: three models, two fleets, 500 evaluations.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from policies.recommend.request.fleet import Fleet
from policies.recommend.request.objective import Limits
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Recommendation, Request, Space, by_cost
from policies.recommend.searching.blind import blind_plans, mixes
from policies.recommend.searching.bounds import lower_bound
from policies.recommend.searching.cheapest_type import cheapest_type, most_saved
from policies.recommend.searching.gather import METHODS, gather
from policies.recommend.searching.why_mixing import Split, split
from sim.hardware.gputypes import GpuType, gpu_type
from sim.performance import Performance

VOCABULARY = "gpt(layers=12, hidden=768, heads=12, vocabulary=200000)"
EXPERTS = "llama(layers=16, hidden=1024, heads=16, inner=2816, tokens=1024, experts=8, chosen=2)"
TABLES = "dlrm(rows=40000000, width=128)"
JOBS: dict[str, tuple[str, int, str]] = {
    "dlrm": ("dlrm", 2048, "sgd"), "dlrm, 10 GB of tables": (TABLES, 2048, "sgd"), "lstm-lm": ("lstm-lm", 160, "adam"),
    "gnmt-8": ("gnmt-8", 256, "adam"), "alexnet": ("alexnet", 512, "adam"), "vgg16": ("vgg16", 256, "adam"),
    "gpt, 200,000 words": (VOCABULARY, 64, "adam"), "8 experts": (EXPERTS, 64, "adam"),
    "neumf": ("neumf", 4096, "adam"), "autoencoder-ml20m": ("autoencoder-ml20m", 512, "adam"),
    "transformer-big": ("transformer-big", 256, "adam"), "bert-large": ("bert-large", 256, "adam"),
    "resnet50": ("resnet50", 256, "adam"), "gpt2-1.5b": ("gpt2-1.5b", 64, "adam"), "yolov3": ("yolov3", 64, "adam"),
    "inception-v3": ("inception-v3", 256, "adam"), "gnmt-16": ("gnmt-16", 256, "adam"),
    "bert-base": ("bert-base", 256, "adam"), "resnet152": ("resnet152", 256, "adam"),
    "densenet121": ("densenet121", 256, "adam"), "nasnet-mobile": ("nasnet-mobile", 256, "adam"),
    "lstm-wikitext2": ("lstm-wikitext2", 160, "adam"),
}
"""By the name in tables: the model, samples of an iteration, optimizer."""


@dataclass(frozen=True)
class Pair:
    """A fleet: the best type, of which there are 1 to 8, another, and how they are paid."""

    best: str
    other: str
    others: int
    even: bool = False
    by_node: tuple[int, int] = (1, 1)


FLEETS = {
    "V100 + T4": Pair("V100", "T4", 16),
    "V100 + CPU": Pair("V100", "CPU", 8),
    "V100 + CPU, even": Pair("V100", "CPU", 8, even=True),
    "A100 + V100": Pair("A100", "V100", 16),
    "A100 + V100, even": Pair("A100", "V100", 16, even=True),
    "L40S + L4": Pair("L40S", "L4", 16),
    "V100 + T4, even": Pair("V100", "T4", 16, even=True),
    "H100 + A100": Pair("H100", "A100", 16),
    "A100 by node + T4": Pair("A100", "T4", 16, by_node=(8, 1)),
}
"""AWS on demand; a GPU of a node that is rented whole costs its share, but where `by_node` says how many are paid."""
MOST_OF_BEST = 8
POINTS = 10
BLIND = 0.5
"""Part of the search's evaluations that the blind planner has, and it again with the truth."""
FIRST = 6
"""Fleets that are asked for all jobs before the others."""
MEASURES = ("least time", "least cost", "time at equal cost", "cost at equal time")


def types_of(pair: Pair, model: str, batch: int, performance: Performance) -> list[GpuType]:
    """Both types; at even prices the other one costs for the whole model what the best one costs."""
    best, other = (gpu_type(name) for name in (pair.best, pair.other))
    if pair.even:
        samples = float(max(1, batch // MOST_OF_BEST))
        a, b = (sum(map(np.sum, performance.op_times_s(model, samples, gpu))) for gpu in (best, other))
        other = replace(other, price_usd_per_h=best.price_or_nan * float(a / b))
    return [best, other]


def area(front: Sequence[Recommendation], time_s: float, usd: float) -> float:
    """What a front dominates in log time and log cost, up to a corner."""
    out, over = 0.0, math.log(usd)
    for r in front:
        down = math.log(r.usd_per_iteration)
        out += (math.log(time_s) - math.log(r.iteration_s)) * max(over - down, 0.0)
        over = min(over, down)
    return out


def mean_of(splits: Sequence[Split | None]) -> dict[str, float]:
    """The mean of each part over points; nothing of none."""
    known = [one for one in splits if one is not None]
    return {} if not known else {
        part: float(np.mean([getattr(one, part) for one in known]))
        for part in ("saved", "exchanged", "added", "operators")
    }


def scored(
    request: Request, found: Sequence[Recommendation], blind: Sequence[Recommendation], again: Sequence[Recommendation]
) -> list[dict[str, Any]]:
    """A row a measure, of the plans that a request's fleet has the GPUs for.

    `missed` is what `operators` would be if the blind planner (`again`) had seen operators: what its search lacks.
    """
    there = request.fleet.counts
    found, blind, again = ([r for r in plans if all(n <= most for n, most in zip(r.counts, there, strict=True))]
                           for plans in (found, blind, again))  # fmt: skip
    single = by_cost([r for r in found if not mixes(r)])
    if not single:
        return []
    costs = np.geomspace(single[-1].usd_per_iteration, single[0].usd_per_iteration, POINTS) * (1 + 1e-9)
    times = np.geomspace(single[0].iteration_s, single[-1].iteration_s, POINTS) * (1 + 1e-9)
    limits = dict(zip(MEASURES, (
        [Limits()], [Limits()], [Limits(usd=float(usd)) for usd in costs], [Limits(time_s=float(s)) for s in times],
    ), strict=True))  # fmt: skip
    parts, missed = ({
        name: mean_of([split(request, found, other, "cost" if "cost" in name[:10] else "time", one) for one in points])
        for name, points in limits.items()
    } for other in (blind, again))  # fmt: skip
    fronts = [single, by_cost([*single, *blind]), by_cost([*found, *blind])]
    corner = 2 * max(f[-1].iteration_s for f in fronts), 2 * max(f[0].usd_per_iteration for f in fronts)
    areas = dict(zip(("area_one", "area_blind", "area_aware"), (area(f, *corner) for f in fronts), strict=True))
    return [{"measure": name, **one, "missed": missed[name].get("operators"), **areas} for name, one in parts.items()]


def request_of(job: str, fleet: str) -> Request:
    """A job on all of a fleet."""
    (model, batch, optimizer), pair = JOBS[job], FLEETS[fleet]
    performance = Performance(optimizer=optimizer)
    types = types_of(pair, model, batch, performance)
    there = Fleet(performance, types, (MOST_OF_BEST, pair.others), (8, 8), pair.by_node)
    space = Space(mixed=True, micro_batches=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
    return Request(performance, model, batch, there, sum(there.counts), space)


def proven() -> pd.DataFrame:
    """What mixing may save in cost at the very most, memory aside: all jobs on all fleets, in seconds, by proof."""
    return pd.DataFrame({fleet: [most_saved(request_of(job, fleet)) for job in JOBS] for fleet in FLEETS},
                        index=list(JOBS))


def asked(job: str, fleet: str, evaluations: int) -> list[dict[str, Any]]:
    """One question: rows of each number of the best type and each measure."""
    request = request_of(job, fleet)
    performance, there = request.performance, request.fleet
    head: dict[str, Any] = {"job": job, "fleet": fleet, "evaluations": evaluations}
    began = time.process_time()
    found = gather(request, METHODS, evaluations)
    aware_s, began = time.process_time() - began, time.process_time()
    blind = blind_plans(request, found, evaluations, share=BLIND)
    blind_s = time.process_time() - began
    again = blind_plans(request, found, evaluations, share=BLIND, believed=performance)
    gaps, proof = lower_bound(request).gap([*found, *blind, *again]), cheapest_type(request)
    head |= {"aware_s": aware_s, "blind_s": blind_s, "gap_time": gaps[0], "gap_cost": gaps[1],
             "judged": request.evaluations, "cheapest": "" if proof is None else proof.gpu_type}  # fmt: skip
    rows: list[dict[str, Any]] = []
    for k in range(1, MOST_OF_BEST + 1):
        fewer = Fleet(performance, there.types, (k, there.counts[1]), there.node_gpus, there.rented_gpus)
        part = replace(request, fleet=fewer, max_gpus=sum(fewer.counts))
        rows += [{**head, "of_best": k, **row} for row in scored(part, [*found, *again], blind, again)]
    return rows or [{**head, "of_best": 0, "measure": "only mixtures fit" if found else "nothing fits"}]


def answered(job: str, fleet: str, evaluations: int, file: Path) -> None:
    """Ask and keep the answer, whole or not at all."""
    try:
        rows = asked(job, fleet, evaluations)
    except RecommendError as error:
        rows = [{"job": job, "fleet": fleet, "evaluations": evaluations, "of_best": 0, "measure": error.what}]
    part = file.with_suffix(".part")
    part.write_text(json.dumps(rows), "utf-8")
    part.rename(file)


def all_asked(questions: Sequence[tuple[str, str]], out: Path, evaluations: int, jobs: int, minutes: float) -> None:
    """Those that are not there yet, so many at a time, until the minutes are over."""
    files = {one: out / f"{one[0]}, {one[1]}.json" for one in questions}
    left = [one for one, file in files.items() if not file.exists()]
    began, done = time.monotonic(), 0
    print(f"{len(questions)} questions, {len(left)} to ask", flush=True)
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[None]] = set()
        while left or running:
            while left and len(running) < jobs and time.monotonic() - began < 60 * minutes:
                one = left.pop(0)
                running.add(pool.submit(answered, *one, evaluations, files[one]))
            if not running:
                break
            first = next(as_completed(running))
            running.remove(first)
            first.result()
            done, passed = done + 1, time.monotonic() - began
            still = len(left) + len(running)
            print(f"{done} asked in {passed / 60:.1f} min, {still} left: about {passed / done * still / 60:.0f} min",
                  flush=True)


def kept(out: Path) -> pd.DataFrame:
    """All answers that are there; of a question that was asked several times, that of the most evaluations."""
    answers: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for file in sorted(out.glob("*/*.json"), key=lambda file: int(file.parent.name)):
        rows = json.loads(file.read_text("utf-8"))
        answers[rows[0]["job"], rows[0]["fleet"]] = rows
    return pd.DataFrame([row for job in JOBS for fleet in FLEETS for row in answers.get((job, fleet), [])])


def draw(table: pd.DataFrame, most: pd.DataFrame, file: Path) -> None:
    """By job and fleet: what is saved over the front, what of it by operators, each at its best k; what is proven."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    front = table[table.measure.isin(MEASURES[2:])].groupby(["job", "fleet"])
    panels = {"saved over the front (%)": front.saved.max().unstack(),  # noqa: PD010
              "of it from operators, at its best (%)": front.net.max().unstack(),  # noqa: PD010
              "proven: mixing saves at most, in cost (%)": most}  # fmt: skip
    figure, axes = plt.subplots(1, 3, figsize=(13, 6.5), sharey=True, layout="constrained")
    for axis, (title, cells) in zip(axes, panels.items(), strict=True):
        shown = 100 * cells.reindex(index=list(JOBS), columns=list(FLEETS))
        axis.imshow(shown, cmap="Blues", vmin=0, vmax=40, aspect="auto")
        for (i, j), value in np.ndenumerate(shown.to_numpy()):
            if not math.isnan(value):
                axis.text(j, i, f"{value:.0f}" if value >= 0.5 else "·", ha="center", va="center", fontsize=7,
                          color="white" if value > 25 else "black")
        axis.set_xticks(range(len(FLEETS)), list(FLEETS), rotation=40, ha="right", fontsize=7)
        axis.set_yticks(range(len(JOBS)), list(JOBS), fontsize=7)
        axis.set_title(title, fontsize=9)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def told(table: pd.DataFrame) -> None:
    """The tables of docs/recommender.md and experiments/README.md."""
    known = table[table.measure.isin(MEASURES)]
    print("\n| fleet | measure | rows | saved: mean | exchanged | added | operators | net: mean | most | > 1 % |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for (fleet, measure), one in known.groupby(["fleet", "measure"], sort=False):
        parts = (f"{one[part].mean():.1%}" for part in ("saved", "exchanged", "added", "operators", "net"))
        print(f"| {fleet} | {measure} | {len(one)} | {' | '.join(parts)} | {one.net.max():.1%} | "
              f"{(one.net > 0.01).mean():.0%} |")
    print("\n| of the best type | saved: mean | exchanged | added | operators | area: one type | blind | aware |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for k, one in known.groupby("of_best"):
        front = one[one.measure.isin(MEASURES[2:])]
        means = [f"{front[part].mean():.1%}" for part in ("saved", "exchanged", "added", "operators")]
        means += [f"{one[part].mean():.2f}" for part in ("area_one", "area_blind", "area_aware")]
        print(f"| {k} | {' | '.join(means)} |")
    print("\n| job | fleet | of the best | measure | saved | exchanged | added | operators | of it net |")
    print("|---|---|---:|---|---:|---:|---:|---:|---:|")
    top = known.loc[known.groupby(["job", "fleet"]).net.idxmax()].sort_values("net", ascending=False)
    for row in top.head(15).itertuples():
        print(f"| {row.job} | {row.fleet} | {row.of_best} | {row.measure} | {row.saved:.1%} | {row.exchanged:.1%} | "
              f"{row.added:.1%} | {row.operators:.1%} | {row.net:.1%} |")
    each = table.drop_duplicates(["job", "fleet"])
    print("\nno plan on one type:", each[~each.measure.isin(MEASURES)][["job", "fleet"]].to_numpy().tolist())
    print(f"missed by the blind planner's search: mean {known.missed.mean():.2%}, most {known.missed.max():.1%}")
    print("questions by evaluations:", each.evaluations.value_counts().to_dict())
    if "gap_time" in each:
        sure = each.cheapest.fillna("") != ""
        print(f"one type is cheapest for every operator: {sure.sum()} of {len(each)} questions; by fleet:",
              each[sure].groupby("fleet").size().to_dict())
        print(f"gap to the bounds, median: time {each.gap_time.median():.1%}, cost {each.gap_cost.median():.1%}; "
              f"CPU-seconds a question: {each.aware_s.median():.1f}, blind {each.blind_s.median():.1f}")


def main() -> None:
    """Ask what is not there yet, print the tables, draw the picture."""
    parser = argparse.ArgumentParser(description="What mixing GPU types is worth, and why.")
    parser.add_argument("--out", type=Path, default=Path("runs", "recommend-value"))
    parser.add_argument("--evaluations", type=int, default=10_000, help="plans that the search may judge")
    parser.add_argument("--jobs", type=int, default=1, help="questions at a time, each in a process")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no question after so many; go on later")
    parser.add_argument("--only", action="append", default=[], metavar="JOB, FLEET", help="this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="three models, two fleets, 500 evaluations")
    given = parser.parse_args()
    jobs, fleets = list(JOBS), list(FLEETS)
    if given.quick:
        jobs, fleets, given.evaluations = ["dlrm", "lstm-lm", "vgg16"], fleets[:2], 500
    out = given.out / f"{given.evaluations}"
    out.mkdir(parents=True, exist_ok=True)
    questions = [(job, fleet) for some in (fleets[:FIRST], fleets[FIRST:]) for job in jobs for fleet in some]
    if given.only:
        questions = [one for one in questions if ", ".join(one) in given.only]
    all_asked(questions, out, given.evaluations, given.jobs, given.minutes)
    table = kept(given.out)
    # What the blind planner's search missed is no worth of operators.
    table["net"] = (table.operators - table.missed).clip(lower=0.0)
    table.to_csv(given.out / "savings.csv", index=False)
    parts = table[["exchanged", "added", "operators"]].dropna()
    assert (parts > -1e-12).all().all(), "a part of a saving is below nothing"
    assert ((table.exchanged + table.added + table.operators - table.saved).abs().dropna() < 1e-9).all(), "parts"
    told(table)
    most = proven()
    print("\nat most saved in cost (%):\n")
    print("| job | " + " | ".join(FLEETS) + " |\n|---|" + "---:|" * len(FLEETS))
    for job, one in (100 * most).iterrows():
        print(f"| {job} | " + " | ".join("" if math.isnan(part) else f"{part:.1f}" for part in one) + " |")
    draw(table, most, given.out / "why-mixing.png")


if __name__ == "__main__":
    main()
