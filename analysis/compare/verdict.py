"""What one policy is worth against another, in a sentence: how much, how sure, and on what basis."""

from __future__ import annotations

from math import ceil, isfinite, log10

from analysis.compare.bootstrap import Interval
from analysis.formats import human

MINUS = "−"

LOPSIDED = 1.5
"""One side of an interval longer than the other by more than this: its ends are told, not half its length."""


def verdict(name: str, base: str, jct: Interval, queue: Interval, cost: Interval, basis: str) -> str:
    """A sentence such as 'x is better than y in mean JCT by 18 % ± 3 %; jobs wait 5 min 0 s less; …'.

    Parameters
    ----------
    name, base : the policy, and the baseline that it is measured by.
    jct, cost : ratios to the baseline's (of mean JCT, of cost on the same jobs), with their intervals.
    queue : how much longer a job waits on average, in s.
    basis : what stands in brackets: level of the intervals, repetitions, jobs.
    """
    return f"{_jct(name, base, jct)}; {_queue(queue)}; {_cost(cost)} ({basis})."


def _jct(name: str, base: str, jct: Interval) -> str:
    if not isfinite(jct.mean):
        return f"{name} and {base} cannot be compared in mean JCT"
    if _none(jct, 1.0):
        return f"{name} and {base} have the same mean JCT"
    if jct.low <= 1 <= jct.high:
        return f"{name} and {base}: no difference in mean JCT beyond the interval, {change(jct)}"
    return f"{name} is {'better' if jct.mean < 1 else 'worse'} than {base} in mean JCT by {change(jct, signed=False)}"


def _queue(queue: Interval) -> str:
    if not isfinite(queue.mean):
        return "waits unknown"
    if _none(queue, 0.0):
        return "jobs wait as long"
    if queue.low <= 0 <= queue.high:
        # Of both signs: the ends, as a ± around a small number looks as if waits could be negative.
        ends = f" ({_time(queue.low)} to {_time(queue.high)})"
        return f"no difference in waiting beyond the interval, {_time(queue.mean)}{ends}"
    mean, low, high = (queue.mean, queue.low, queue.high) if queue.mean > 0 else (-queue.mean, -queue.high, -queue.low)
    wide = " (interval unknown)"
    if isfinite(high - low):
        wide = f" ({_time(low)} to {_time(high)})" if _lopsided(mean, low, high) else f" ± {_time((high - low) / 2)}"
    return f"jobs wait {_time(mean)}{wide} {'less' if queue.mean < 0 else 'longer'}"


def _cost(cost: Interval) -> str:
    if not isfinite(cost.mean):
        return "cost unknown"
    if _none(cost, 1.0):
        return "at the same cost"
    if cost.low <= 1 <= cost.high:
        return f"no difference in cost beyond the interval, {change(cost)}"
    return f"{'cheaper' if cost.mean < 1 else 'dearer'} by {change(cost, signed=False)}"


def _none(effect: Interval, neutral: float) -> bool:
    """No effect at all: nothing differs, not even within the interval (if there is one)."""
    return effect.mean == neutral and not (effect.low < neutral < effect.high)


def change(ratio: Interval, *, signed: bool = True) -> str:
    """A ratio as a change in per cent, with its interval: '−1 % ± 3 %', '18 % (14 % to 27 %)' where it is lopsided.

    Digits are as many as the interval is worth. Not `signed`: its size only.
    """
    mean, low, high = (100 * (value - 1) for value in (ratio.mean, ratio.low, ratio.high))
    if not signed and mean < 0:
        mean, low, high = -mean, -high, -low
    half = (high - low) / 2
    if not isfinite(half):
        return f"{_percent(mean, 0 if abs(mean) >= 10 else 1)}, interval unknown"
    digits = decimals(half, 1, 0, 4)
    if _lopsided(mean, low, high):
        return f"{_percent(mean, digits)} ({_percent(low, digits)} to {_percent(high, digits)})"
    return f"{_percent(mean, digits)} ± {_percent(half, digits)}"


def _lopsided(mean: float, low: float, high: float) -> bool:
    return max(high - mean, mean - low) > LOPSIDED * min(high - mean, mean - low)


def decimals(half: float, otherwise: int, least: int, most: int) -> int:
    """Decimal places that an interval of this half length is worth; `otherwise` where it has none."""
    return min(most, max(least, ceil(-log10(half)))) if half > 0 else otherwise


def _time(time_s: float) -> str:
    return human(time_s).replace("-", MINUS)


def _percent(value: float, digits: int) -> str:
    # Adding zero takes the sign from what is rounded to none.
    return f"{round(value, digits) + 0.0:,.{digits}f} %".replace("-", MINUS)
