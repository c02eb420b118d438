"""Moves of the local search that change on which GPUs stages are: types, counts, splits and mergers, parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policies.recommend.request.ground import Ground
from policies.recommend.searching.move import pick, plain, put
from sim.api import Part, Plan, Stage
from sim.performance.samples import part_samples, whole_parts, whole_shares

SHARES = 64
"""Parts of a micro-batch that are handed from one type of a stage to another."""


def _on(stage: Stage, device: Stage) -> Stage:
    """The operators of one stage on the GPUs of another."""
    return replace(device, first_op=stage.first_op, last_op=stage.last_op)


def retype(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """A stage goes to another type: to as many GPUs, to all that are free, or to as many as work as fast."""
    s = int(rng.integers(len(plan.stages)))
    stage = plan.stages[s]
    names = [name for name in ground.names if name != stage.gpu_type]
    if not names:
        return None
    name = pick(names, rng)
    free = min(ground.free(plan)[name], ground.spare(plan) + stage.gpus)
    alike = round(stage.gpus * ground.pace[name] / ground.pace[stage.gpu_type])
    gpus = min(free, int(pick((stage.gpus, free, max(1, alike)), rng)))
    return put(plan, s, plain(stage, name, gpus, stage.tensor)) if gpus > 0 else None


def resize(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """A stage gets one replica more or fewer, twice or half as many, all that are free, or any number."""
    s = int(rng.integers(len(plan.stages)))
    stage = plan.stages[s]
    if stage.parts:
        return None
    most = stage.gpus + min(ground.free(plan)[stage.gpu_type], ground.spare(plan))
    most, r = most // stage.tensor, stage.gpus // stage.tensor
    wanted = (r + 1, r + 1, r - 1, r - 1, 2 * r, r // 2, most, 1 + int(rng.integers(most)))
    replicas = int(pick(wanted, rng))
    if replicas == r or not 1 <= replicas <= most:
        return None
    return put(plan, s, replace(stage, gpus=replicas * stage.tensor))


def hand_over(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """A stage gives one GPU, or half of what it can, to another of its type."""
    s, q = (int(x) for x in rng.integers(len(plan.stages), size=2))
    giver, taker = plan.stages[s], plan.stages[q]
    unit = max(giver.tensor, taker.tensor)
    if s == q or giver.gpu_type != taker.gpu_type or giver.parts or taker.parts or giver.gpus <= unit:
        return None
    gpus = unit if rng.random() < 0.6 else max(unit, giver.gpus // 2 // unit * unit)
    plan = put(plan, s, replace(giver, gpus=giver.gpus - gpus))
    return put(plan, q, replace(taker, gpus=taker.gpus + gpus))


def swap(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """Two stages change places."""
    s, q = (int(x) for x in rng.integers(len(plan.stages), size=2))
    one, other = plan.stages[s], plan.stages[q]
    if _on(one, other) == one:
        return None
    return put(put(plan, s, _on(one, other)), q, _on(other, one))


def split(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """A stage becomes two: each has half of its GPUs, or one gets free GPUs of any type."""
    s = int(rng.integers(len(plan.stages)))
    stage = plan.stages[s]
    if stage.first_op == stage.last_op:
        return None
    cut = int(rng.integers(stage.first_op, stage.last_op))
    front, back = replace(stage, last_op=cut), replace(stage, first_op=cut + 1)
    free, spare = ground.free(plan), ground.spare(plan)
    names = [name for name in ground.names if min(free[name], spare) > 0]
    if names and (rng.random() < 0.6 or stage.parts or stage.gpus < 2):
        name = pick(names, rng)
        most = min(free[name], spare)
        gpus = int(pick((1, most, min(most, stage.gpus), 1 + int(rng.integers(most))), rng))
        if rng.random() < 0.5:
            front = plain(front, name, gpus, stage.tensor)
        else:
            back = plain(back, name, gpus, stage.tensor)
        return put(plan, s, front, back)
    if stage.parts or stage.gpus < 2 * stage.tensor:
        return None
    gpus = (1 + int(rng.integers(stage.gpus // stage.tensor - 1))) * stage.tensor
    return put(plan, s, replace(front, gpus=gpus), replace(back, gpus=stage.gpus - gpus))


def merge(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """Two neighbours become one, on the GPUs of either, or of both where they are of one type."""
    if len(plan.stages) < 2:
        return None
    s = int(rng.integers(len(plan.stages) - 1))
    left, right = plan.stages[s : s + 2]
    kept = left if rng.random() < 0.5 else right
    whole = replace(kept, first_op=left.first_op, last_op=right.last_op)
    if left.gpu_type == right.gpu_type and not (left.parts or right.parts) and rng.random() < 0.6:
        whole = plain(whole, kept.gpu_type, left.gpus + right.gpus, kept.tensor)
    return put(plan, s, whole, instead_of=2)


def tensor(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """Another number of GPUs shares each operator: of one stage, or of all."""
    ways = int(pick(ground.tensor, rng))
    chosen = range(len(plan.stages)) if rng.random() < 0.4 else [int(rng.integers(len(plan.stages)))]
    for s in chosen:
        stage = plan.stages[s]
        if stage.parts:
            return None
        gpus = max(ways, stage.gpus // ways * ways)
        plan = put(plan, s, replace(stage, gpus=gpus, tensor=ways))
    return plan


# -- several types in a stage --------------------------------------------------------------------------------


def mix_in(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """A stage gets free GPUs of a further type; shares go by speed."""
    s = int(rng.integers(len(plan.stages)))
    stage, free, spare = plan.stages[s], ground.free(plan), ground.spare(plan)
    has = {part.gpu_type for part in stage.all_parts}
    # Mostly at the stage's tensor degree; with one degree there is no choice.
    ways = int(pick(ground.tensor, rng)) if len(ground.tensor) > 1 and rng.random() < 0.4 else stage.tensor
    names = [name for name in ground.names if name not in has and min(free[name], spare) >= ways]
    if not names:
        return None
    name = pick(names, rng)
    most = min(free[name], spare) // ways
    gpus = int(pick((1, most, 1 + int(rng.integers(most))), rng)) * ways
    return _mixed(plan, ground, s, [*stage.all_parts, Part(name, gpus, 0.0, ways)])


def mix_out(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """A stage of several types loses one."""
    s = _mixed_stage(plan, rng)
    if s < 0:
        return None
    parts = list(plan.stages[s].parts)
    parts.pop(int(rng.integers(len(parts))))
    return _mixed(plan, ground, s, parts)


def resize_part(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """One type of a stage gets other GPUs; shares go by speed."""
    s = _mixed_stage(plan, rng)
    if s < 0:
        return None
    stage = plan.stages[s]
    parts = list(stage.parts)
    k = int(rng.integers(len(parts)))
    ways = stage.degree(parts[k])
    most = (parts[k].gpus + min(ground.free(plan)[parts[k].gpu_type], ground.spare(plan))) // ways
    r = parts[k].gpus // ways
    replicas = int(pick((r + 1, r - 1, 2 * r, r // 2, most), rng))
    if not 1 <= replicas <= most:
        return None
    parts[k] = replace(parts[k], gpus=replicas * ways)
    return _mixed(plan, ground, s, parts)


def tensor_of_part(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """Another number of GPUs shares each operator in one type of a stage, on about as many GPUs; shares go by speed."""
    s = _mixed_stage(plan, rng)
    if s < 0:
        return None
    stage = plan.stages[s]
    parts = list(stage.parts)
    k, ways = int(rng.integers(len(parts))), int(pick(ground.tensor, rng))
    if ways == stage.degree(parts[k]):
        return None
    most = parts[k].gpus + min(ground.free(plan)[parts[k].gpu_type], ground.spare(plan))
    gpus = max(ways, parts[k].gpus // ways * ways)
    if gpus > most:
        return None
    parts[k] = replace(parts[k], gpus=gpus, tensor=ways)
    return _mixed(plan, ground, s, parts)


def reshare(plan: Plan, ground: Ground, rng: np.random.Generator) -> Plan | None:
    """Samples of a micro-batch go from one type of a stage to another: one a replica of either, or 1 / SHARES."""
    s = _mixed_stage(plan, rng)
    if s < 0:
        return None
    stage = plan.stages[s]
    replicas = [stage.replicas_of(part) for part in stage.parts]
    micro = ground.batch_size / plan.micro_batches
    a, b = (int(x) for x in rng.choice(len(replicas), 2, replace=False))
    moved = int(pick((replicas[a], replicas[b], max(1, int(micro) // SHARES)), rng))
    samples = part_samples(micro, replicas, [part.share for part in stage.parts])
    if not samples or samples[a] - moved < replicas[a]:
        return None
    samples[a], samples[b] = samples[a] - moved, samples[b] + moved
    shares = whole_parts(micro, replicas, samples)
    parts = tuple(replace(part, share=share) for part, share in zip(stage.parts, shares, strict=True))
    return put(plan, s, replace(stage, parts=parts))


def _mixed_stage(plan: Plan, rng: np.random.Generator) -> int:
    """A stage of several types, or -1."""
    mixed = [s for s, stage in enumerate(plan.stages) if stage.parts]
    return int(pick(mixed, rng)) if mixed else -1


def _mixed(plan: Plan, ground: Ground, s: int, parts: Sequence[Part]) -> Plan | None:
    """Stage s on these parts, whole samples in proportion to what their replicas do in a second at equal ones each."""
    stage, ways = plan.stages[s], [plan.stages[s].degree(part) for part in parts]
    if len(parts) == 1:
        return put(plan, s, plain(stage, parts[0].gpu_type, parts[0].gpus, ways[0]))
    replicas = [part.gpus // degree for part, degree in zip(parts, ways, strict=True)]
    micro = ground.batch_size / plan.micro_batches
    if sum(replicas) > micro or any(max(ways) % degree for degree in ways):
        return None
    mean, slopes_s = micro / sum(replicas), []
    for part, degree in zip(parts, ways, strict=True):
        line = ground.times_s(part.gpu_type, mean, degree, plan.order)
        took = line[stage.last_op] - (line[stage.first_op - 1] if stage.first_op else 0.0)
        slopes_s.append(max(took, 1e-12) / mean)
    together = micro / sum(n / slope for n, slope in zip(replicas, slopes_s, strict=True))
    most = whole_shares(replicas, [max(1.0, together / slope) for slope in slopes_s], [(0.0, b) for b in slopes_s])
    samples = [n * k for n, k in zip(replicas, most, strict=True)]
    # A part says its degree where it is not the first one's: of equal plans one form.
    shared = tuple(replace(part, share=n / sum(samples), tensor=0 if degree == ways[0] else degree)
                   for part, n, degree in zip(parts, samples, ways, strict=True))  # fmt: skip
    gpus = sum(part.gpus for part in parts)
    return put(plan, s, replace(stage, gpu_type=parts[0].gpu_type, gpus=gpus, tensor=ways[0], parts=shared))
