"""Samples are whole: how many each replica gets of a batch, and of that which has most, by which all others wait."""

from __future__ import annotations

import math
from collections.abc import Sequence

ROUNDING = 1e-9
"""By which a number of samples may miss a whole one, relatively: shares of a micro-batch round."""


def largest_share(samples: float) -> float:
    """Samples of the replica that gets most, of replicas that get `samples` on average: the next whole number.

    5 samples on 4 replicas are 2, 1, 1 and 1: as slow, and as large, as 8 samples. Below one sample a replica nothing
    is rounded: that is too few, and refused where it is asked for.
    """
    return samples if too_few(samples) else float(math.ceil(samples * (1 - ROUNDING)))


def too_few(samples: float) -> bool:
    """Whether so many samples a replica leave one without any."""
    return samples < 1 - ROUNDING


def uneven(batch_size: float, micro_batches: int, parts: Sequence[tuple[int, int, float]]) -> list[str]:
    """What is to be said of stages whose replicas get unequal shares of a batch.

    Parameters
    ----------
    parts : (stage, replicas, share of a micro-batch) of each part of a stage.
    """
    said = []
    for stage, replicas, share in parts:
        mean = batch_size / micro_batches * share / replicas
        most = largest_share(mean)
        if too_few(mean) or most <= mean * (1 + ROUNDING):
            continue
        of = f"{batch_size:,g} samples" + f" x {share:.4g}" * (share < 1)
        ways = f" / {micro_batches} micro-batches" * (micro_batches > 1) + f" / {replicas} replicas" * (replicas > 1)
        said.append(f"stage {stage}: {of}{ways} = {mean:.4g}: one with {most:g} decides time and memory")
    return said


def whole_shares(replicas: Sequence[int], samples: Sequence[float], work_s: Sequence[tuple[float, float]]) -> list[int]:
    """Whole samples of a replica of each type, no fewer together than `samples` are, as soon done as they can be.

    Parameters
    ----------
    replicas : of each type, 1 or more.
    samples : of a replica of each, 1 or more, so that all end together if samples could be cut.
    work_s : of each type (start, slope): seconds of n samples are start + slope n.
    """
    wanted = math.ceil(sum(n * s for n, s in zip(replicas, samples, strict=True)) * (1 - ROUNDING))
    whole = [max(1, math.floor(s * (1 + ROUNDING))) for s in samples]
    while (missing := wanted - sum(n * k for n, k in zip(replicas, whole, strict=True))) > 0:
        # Each step makes that type larger which then ends first; of equals, the one that leaves fewest missing.
        after_s = [start + slope * (k + 1) for (start, slope), k in zip(work_s, whole, strict=True)]
        one = min(range(len(whole)), key=lambda t: (after_s[t], abs(missing - replicas[t]), t))
        whole[one] += 1
    return whole
