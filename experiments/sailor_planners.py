"""Ours beside Sailor and its ports of AMP, FlashFlex, Metis, Piper and DTFM on the same layers, under both models.

    .venv/bin/python -m experiments.sailor_planners ../shared

The folder holds `data/sailor` and `oracles/sailor`. Each question (`plans.json`) is put to the methods and the search
of `recommend`, once with our truth as the judge and once with Sailor's closed form (`sailor_form`), as its planner has
it. Every plan, theirs and both of ours, is then judged by both. Both take whole samples a replica.

Our world is Sailor's: each replica is a machine of its own, of as many GPUs as its tensor degree, whose network rate is
that of its GPUs (`network.csv`, for messages of 16 MB: what a ring of 32 sends of a bucket at once). Messages block
both sides. What fits in memory is Sailor's rule for both (24 bytes a parameter, 2 or 3e9 of the framework). So the two
differ in the model alone: a closed form, or the schedule played out.

Left out: questions over several zones (geo32, fig11, fig12). By our truth no time is given for pipelines that differ
side by side (FlashFlex), which our plans do not have, nor for a replica without a sample (Piper).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.sailor_form import Form, Pipelines, Replica, StageOf, as_pipelines, read_form
from policies.recommend.request.fleet import Fleet
from policies.recommend.request.objective import Limits, on, ranked
from policies.recommend.request.request import Recommendation, Request, Space
from policies.recommend.request.stage_gpus import counts_of
from policies.recommend.searching.gather import METHODS, gather
from sim.api import Part, Plan, Stage
from sim.cluster.sites import Adapter, Sites
from sim.cluster.spec import ClusterSpec, Links
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.calibration import for_graphs, shipped
from sim.performance.gpu_links import NETWORK_EFFICIENCY
from sim.performance.readers.sailor_files import TYPES
from sim.performance.samples import largest_share

NODE_GPUS = 4
MESSAGE_MB = 16
"""Whose rate is taken."""
PARAM_BYTES = "24"
OVERHEAD_GIB = 2e9 / 2**30
MICRO_BATCHES = (4, 8, 12, 16, 19, 20, 24, 26, 32, 40, 48, 64, 96, 128, 192, 256)
OURS = {False: "ours", True: "ours, by the form"}
"""By whether the search is judged by Sailor's form."""


@dataclass(frozen=True)
class Answer:
    """A plan: who proposes it, seconds and USD by Sailor's form and by our truth (NaN: it has no such plan)."""

    question: str
    planner: str
    form_s: float
    form_usd: float
    truth_s: float
    truth_usd: float
    cpu_s: float
    gpus: str
    note: str = ""


@dataclass(frozen=True)
class Question:
    """One question, the answers of others, and how all are judged."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    form: Form
    request: Request
    zone: str

    @property
    def by_cost(self) -> bool:
        return bool(self.rows[0]["objective"] == "iteration_cost")

    @property
    def limits(self) -> Limits:
        least = self.rows[0]["limits"].get("min_throughput")
        return Limits(time_s=1 / least) if least else Limits()

    def theirs(self) -> Iterator[Answer]:
        """The plans of others, under both models."""
        for row in self.rows:
            if not row.get("pipelines"):
                continue
            plan = as_pipelines(row)
            ours = as_plan(plan)
            judged = None if ours is None else self.truth(ours)
            seconds, usd = (judged.iteration_s, judged.usd_per_iteration) if judged else (math.nan, math.nan)
            note = "" if judged else "no such plan" if ours is None else "a replica without a sample"
            gpus = " + ".join(f"{n} {TYPES[gpu]}" for gpu, n in plan.gpus().items())
            yield Answer(self.name, row["planner"], self.form.iteration_s(plan), self.form.usd(plan), seconds, usd,
                         row["planning_cpu_s"], gpus, note)  # fmt: skip

    def truth(self, plan: Plan) -> Recommendation | None:
        """Ours, of a plan that may have more micro-batches than asked about."""
        return self.request.truth(plan)

    def ours(self, evaluations: int, *, by_form: bool) -> Answer:
        """What our methods and search recommend, judged by our truth or by the form; under both models."""
        began = time.process_time()
        asked = replace(self.request, by_form=by_form, _judged={}, _shared={})
        # From better plans to begin with the search may end sooner, and higher: once with them, once without.
        found = [one for more in ((), ("sailor",)) for one in gather(asked, (*METHODS, *more), evaluations // 2)]
        cpu_s = time.process_time() - began
        best = ranked(found, "cost" if self.by_cost else "time", limits=self.limits)[0]
        plan = as_sailor(best.plan, self.request.batch_size, self.zone)
        judged = self.request.truth(best.plan)
        assert judged is not None
        return Answer(self.name, OURS[by_form], self.form.iteration_s(plan), self.form.usd(plan), judged.iteration_s,
                      judged.usd_per_iteration, cpu_s, on(best), stages_of(best.plan))  # fmt: skip


def stages_of(plan: Plan) -> str:
    """Layers, replicas and tensor degrees of each stage, and micro-batches."""
    stages = " / ".join(
        f"{stage.last_op - stage.first_op + 1} on "
        + "+".join(f"{stage.replicas_of(part)} {part.gpu_type}" + f" x{stage.degree(part)}" * stage.unlike
                   for part in stage.all_parts)
        + (f" x{stage.tensor}" if stage.tensor > 1 and not stage.unlike else "") for stage in plan.stages)  # fmt: skip
    return f"{stages}; {plan.micro_batches} micro-batches"


def as_plan(plan: Pipelines) -> Plan | None:
    """A plan of Sailor's as one of ours; None: pipelines side by side."""
    if len(plan.pipelines) > 1:
        return None
    stages = []
    for stage in plan.pipelines[0]:
        count = Counter((one.gpu, one.tensor) for one in stage.replicas)
        parts = [Part(TYPES[gpu], k * ways, k / len(stage.replicas), ways) for (gpu, ways), k in count.items()]
        stages.append(Stage(stage.first, stage.last, parts[0].gpu_type, sum(part.gpus for part in parts),
                            parts[0].tensor, tuple(parts) if len(parts) > 1 else ()))  # fmt: skip
    return Plan(tuple(stages), plan.count)


def as_sailor(plan: Plan, batch_size: float, zone: str) -> Pipelines:
    """A plan of ours as Sailor would have it, each replica with the samples that it gets."""
    names = {ours: theirs for theirs, ours in TYPES.items()}
    stages = []
    for stage in plan.stages:
        replicas: list[Replica] = []
        for part in stage.all_parts:
            n = stage.replicas_of(part)
            samples = int(largest_share(batch_size / plan.micro_batches * part.share / n))
            replicas += [Replica(names[part.gpu_type], stage.degree(part), zone, samples)] * n
        stages.append(StageOf(stage.first_op, stage.last_op, tuple(replicas)))
    return Pipelines((tuple(stages),), 0, int(batch_size), plan.micro_batches)


@dataclass(frozen=True, eq=False)
class OnMachines(Request):
    """A request whose plans are judged with each replica on a machine of its own, and in memory by Sailor's rule."""

    form: Form | None = None
    zone: str = ""
    by_form: bool = False
    """Judged by Sailor's form in place of our truth."""

    def _judge(self, plan: Plan) -> Recommendation | None:
        counts = counts_of(plan, self.fleet.names)
        if sum(counts) > self.budget or any(n > there for n, there in zip(counts, self.fleet.counts, strict=True)):
            return None
        kinds, sizes = [], []
        for stage in plan.stages:
            for part in stage.all_parts:
                replicas = stage.replicas_of(part)
                kinds += [self.fleet.names.index(part.gpu_type)] * replicas
                sizes += [stage.degree(part)] * replicas
        spec = ClusterSpec.build("machines", list(self.fleet.types), kinds, sizes, links=self.performance.links)
        gpus = np.arange(sum(sizes), dtype=np.int32)
        as_theirs = as_sailor(plan, self.batch_size, self.zone)
        assert self.form is not None
        if not (all(one.samples for one in as_theirs.replicas()) and self.form.fits(as_theirs)):
            return None
        if self.by_form:
            time_s = self.form.iteration_s(as_theirs)
        else:
            time_s = self.performance.plan(self.model, self.batch_size, plan, gpus, spec).iteration_s
        plan = replace(plan, iteration_s=time_s)
        return Recommendation(plan, time_s, time_s / 3600 * self.fleet.usd_per_h(counts), counts)


def questions(folder: Path) -> list[Question]:
    """Those in one zone."""
    grouped: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in json.loads((folder / "oracles/sailor/plans.json").read_text())["plans"]:
        grouped[row["question"]].append(row)
    forms: dict[str, Form] = {}
    out = []
    for name, rows in grouped.items():
        asked = {tuple(key.rsplit("_", 1)): n for key, n in rows[0]["gpus"].items()}
        zones = {zone for _, zone in asked}
        if len(zones) > 1:
            continue
        model = rows[0]["model"]
        form, zone = forms.setdefault(model, read_form(folder / "data/sailor", model)), zones.pop()
        gpus = {gpu: n for (gpu, _), n in asked.items()}
        out.append(Question(name, rows, form, _request(form, gpus, rows[0]["global_batch"], zone), zone))
    return out


def _request(form: Form, gpus: Mapping[str, int], batch_size: int, zone: str) -> Request:
    graph = form.graph
    adapters = []
    for name in gpus:
        for n in (1, 2, 4):
            rate = form.rate((zone, name, n), (zone, name, n), MESSAGE_MB * 1e6) / 1e9 / NETWORK_EFFICIENCY
            adapters.append(Adapter(TYPES[name], n, rate, rate))
    performance = Performance(
        Links(sites=Sites(tuple(adapters))), graphs={graph.name: graph},
        calibration=for_graphs(shipped("tuned"), [graph]), optimizer=PARAM_BYTES, context_gib=OVERHEAD_GIB,
        blocking="both",
    )  # fmt: skip
    types = [replace(gpu_type(TYPES[name]), price_usd_per_h=form.usd_per_h[name]) for name in gpus]
    fleet = Fleet(performance, types, list(gpus.values()), [NODE_GPUS] * len(types))
    space = Space(micro_batches=MICRO_BATCHES, tensor=(1, 2, 4), mixed=True)
    return OnMachines(performance, graph.name, batch_size, fleet, sum(gpus.values()), space, form=form, zone=zone)


def main() -> None:
    """Print a row a plan, and how ours compare with the best of the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--evaluations", type=int, default=4000, help="plans that the searches may judge")
    parser.add_argument("--only", nargs="*", help="questions")
    parser.add_argument("--theirs", action="store_true", help="only the plans of others")
    asked = parser.parse_args()
    print("| question | planner | GPUs | Sailor's form (s) | our truth (s) | USD, form | planning (CPU s) | |")
    print("|---|---|---|---:|---:|---:|---:|---|")
    gains: dict[str, list[float]] = defaultdict(list)
    for question in questions(asked.folder):
        if asked.only and question.name not in asked.only:
            continue
        others = list(question.theirs())
        ours = [] if asked.theirs else [question.ours(asked.evaluations, by_form=by_form) for by_form in OURS]
        for one in (*others, *ours):
            print(f"| {one.question} | {one.planner} | {one.gpus} | {one.form_s:.3f} | {one.truth_s:.3f} "
                  f"| {one.form_usd:.4f} | {one.cpu_s:.2f} | {one.note} |", flush=True)  # fmt: skip
        if asked.theirs:
            continue
        unit = "usd" if question.by_cost else "s"
        best = min(others, key=lambda one: getattr(one, f"form_{unit}"))
        for model in ("form", "truth"):
            known = [value for one in others if not math.isnan(value := getattr(one, f"{model}_{unit}"))]
            # Where our truth knows none of the best of them there is nothing to be compared with.
            comparable = not math.isnan(getattr(best, f"{model}_{unit}"))
            for one in ours if comparable else ():
                gains[f"by {model}, {one.planner}"].append(1 - getattr(one, f"{model}_{unit}") / min(known))
    for what, of in gains.items():
        print(f"\n{what}, against the best of the others: median {100 * statistics.median(of):+.1f} %, "
              f"worst {100 * min(of):+.1f} %, best {100 * max(of):+.1f} %, {len(of)} questions")  # fmt: skip


if __name__ == "__main__":
    main()
