"""Samples are whole: how many each replica gets of a batch, and of that which has most, by which all others wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

LISTED = 6
"""Replicas whose samples are told one by one."""
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


def part_samples(micro: float, replicas: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Whole samples of a micro-batch for each part of a stage, all of it together; empty: too few for the replicas.

    No replica gets more than the share of its part rounded up, by which the stage is judged (`largest_share`). Rounding
    up may give out more than there is. What is too much is taken off again: a sample of each replica of the part that
    was rounded up most, while that is not more than what is over; then the rest of one part, whose replicas are then
    unequal: 8 samples on 3 of them are 3, 3 and 2.
    """
    means = [micro * share / n for n, share in zip(replicas, shares, strict=True)]
    if any(map(too_few, means)):
        return []
    most = [int(largest_share(mean)) for mean in means]
    there = int(largest_share(max(1.0, micro)))
    over = sum(n * k for n, k in zip(replicas, most, strict=True)) - there
    while over > 0 and (larger := [t for t, k in enumerate(most) if k > 1 and replicas[t] <= over]):
        one = max(larger, key=lambda t: (most[t] - means[t], replicas[t], -t))
        most[one] -= 1
        over -= replicas[one]
    whole = [n * k for n, k in zip(replicas, most, strict=True)]
    if over > 0:
        larger = [t for t, k in enumerate(most) if k > 1]
        if not larger:
            return []
        whole[max(larger, key=lambda t: (replicas[t], -t))] -= over
    return whole


def whole_parts(micro: float, replicas: Sequence[int], samples: Sequence[int]) -> list[float]:
    """Shares of a micro-batch of parts that take so many whole samples of it; they add up to 1.

    Where micro-batches are unequal, `micro` is their mean, and what it lacks of a larger one is taken off the part that
    has most to spare: it still rounds up to the same.
    """
    taken = [float(n) for n in samples]
    spare = max(range(len(taken)), key=lambda t: (samples[t] - replicas[t], -t))
    taken[spare] -= sum(samples) - micro
    return [n / micro for n in taken]


def of_each(samples: int, replicas: int) -> list[int]:
    """Whole samples of each replica of a part, as equal as they can be, most first."""
    each, rest = divmod(samples, replicas)
    return [each + 1] * rest + [each] * (replicas - rest)


def micro_batches_of(batch_size: int, micro_batches: int) -> list[tuple[int, int]]:
    """How a batch is cut: (micro-batches, whole samples of each), the larger ones first."""
    each, rest = divmod(batch_size, micro_batches)
    return [(count, size) for count, size in ((rest, each + 1), (micro_batches - rest, each)) if count]


def uneven(batch_size: float, micro_batches: int, parts: Sequence[tuple[int, int, float]]) -> list[str]:
    """What is to be said of micro-batches that are not equal, and of replicas that get unequal shares of them.

    Parameters
    ----------
    parts : (stage, replicas, share of a micro-batch) of each part of a stage.
    """
    said, cut = [], micro_batches_of(int(batch_size), micro_batches)
    if len(cut) > 1:
        ways = " and ".join(f"{count} of {size:,}" for count, size in cut)
        said.append(f"{batch_size:,g} samples / {micro_batches} micro-batches = {ways}: one with {cut[0][1]:,} decides "
                    "time and memory")  # fmt: skip
    for stage, rows in groupby(parts, key=lambda part: part[0]):
        _, replicas, shares = zip(*rows, strict=True)
        for n, whole in zip(replicas, part_samples(cut[0][1], replicas, shares), strict=False):
            each = of_each(whole, n)
            if each[0] > each[-1]:
                said.append(f"stage {stage}: {whole:,} samples / {n} replicas = {in_words(each)}: one with {each[0]:,} "
                            "decides time and memory")  # fmt: skip
    return said


def in_words(each: Sequence[int]) -> str:
    """'3, 3, 2'; of many replicas '12 x 3, 4 x 2'."""
    if len(each) <= LISTED:
        return ", ".join(f"{n:,}" for n in each)
    return ", ".join(f"{each.count(n)} x {n:,}" for n in dict.fromkeys(each))


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
