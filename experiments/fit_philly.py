"""Fit the generator `philly` to the public subset of Microsoft's Philly trace, and print its statistics as TOML.

    .venv/bin/python experiments/fit_philly.py ../shared/data/philly/philly.csv > traces/synthetic/philly.toml

What is printed are statistics of groups of jobs, no job: counts by virtual cluster, size class, length class and week,
and by virtual cluster and day; quantiles of run times; typical run times of at least `FEWEST_OF_MEAN` jobs. How uneven
the hours of a virtual cluster are is found by trying, so that its hourly counts are as dispersed as in the log.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from traces.load import load_trace
from traces.synthetic.draw import fill
from traces.synthetic.philly import ROBOT_PERIOD_S, ROBOT_VC, cut, evened, submissions
from traces.synthetic.philly_tables import DAY_S, LENGTHS, SIZES, WEEK_S, Statistics
from traces.trace import Trace

#: Jobs that a mean needs, that a class's quantiles need, and those of one GPU count in it; jobs a quantile, and
#: quantiles at most. Smaller classes have the run times of all jobs of their size and length.
FEWEST_OF_MEAN, FEWEST, FEWEST_OF_TABLE, JOBS_A_QUANTILE, MOST_QUANTILES = 3, 5, 20, 6, 24
#: Jobs of one virtual cluster that follow each other within so many seconds are one burst.
BURST_GAP_S = 60.0
ROBOT_LATE_S, ROBOT_RUN_S = 4.0, (30.0, 200.0)
SHAPES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)


def table(trace: Trace) -> pd.DataFrame:
    """The jobs with what they are counted by; t is in s from the Monday 00:00 UTC before the first."""
    assert trace.provenance.epoch_s is not None
    monday_s = (trace.provenance.epoch_s + 3 * 86_400) % WEEK_S
    frame = pd.DataFrame({"t": trace.submit_s + monday_s, "run_s": trace.duration_s, "gpus": trace.num_gpus,
                          "vc": trace.vc})
    frame["size"] = np.searchsorted(list(SIZES.values())[1:], frame.gpus, side="right")
    frame["length"] = np.searchsorted(list(LENGTHS.values())[1:], frame.run_s, side="right")
    frame["week"] = (frame.t // WEEK_S).astype(int)
    frame["robot"] = robots(frame)
    return frame


def robots(frame: pd.DataFrame) -> np.ndarray:
    """Jobs of the program: short, of 1 GPU, in its virtual cluster, with another one ten minutes before or after."""
    like = np.flatnonzero((frame.vc == ROBOT_VC) & (frame.gpus == 1) & frame.run_s.between(*ROBOT_RUN_S))
    t, near = frame.t.to_numpy()[like], np.zeros(len(like), dtype=bool)
    for step_s in (ROBOT_PERIOD_S, -ROBOT_PERIOD_S):
        first = np.searchsorted(t, t + step_s - ROBOT_LATE_S)
        near |= np.searchsorted(t, t + step_s + ROBOT_LATE_S, side="right") > first
    return np.isin(np.arange(len(frame)), like[near])


def quantiles(run_s: np.ndarray) -> list[int]:
    """Run times at even shares from 0 to 1, s; those above the median moved so that the mean is that of the jobs.

    Between two, the logarithm is linear. The move is by a power of (run time / median), the same for all.
    """
    shares = np.linspace(0, 1, int(np.clip(len(run_s) // JOBS_A_QUANTILE, 2, MOST_QUANTILES)) + 1)
    knots = np.maximum(np.quantile(run_s, shares), 1.0)
    above = np.maximum(knots / np.median(knots), 1.0)
    low, high = -0.9, 3.0
    for _ in range(60):
        power = (low + high) / 2
        low, high = (low, power) if mean_of(knots * above**power) > run_s.mean() else (power, high)
    return [round(float(x)) for x in knots * above**high]


def mean_of(knots: np.ndarray) -> float:
    """Mean of the distribution that `quantiles` describes."""
    a, ratio = knots[:-1], np.log(knots[1:] / knots[:-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.where(ratio > 0, a * np.expm1(ratio) / ratio, a).mean())


def bursts(people: pd.DataFrame) -> np.ndarray:
    """Number of the burst of each job of one virtual cluster."""
    return np.cumsum(np.diff(people.t, prepend=-np.inf) > BURST_GAP_S)


def exponent(mean: float, most: int) -> float:
    """The a with sum of k^-a over k = 1..most equal to `mean`: the mean size of bursts with P(size >= k) = k^-a."""
    low, high, k = 0.0, 8.0, np.arange(1.0, most + 1)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if (k**-middle).sum() > mean else (low, middle)
    return round(high, 2) if most > 1 else 8.0


def dispersion(t: np.ndarray, hours: int) -> float:
    """Index of dispersion of hourly counts: variance / mean."""
    count = np.bincount((t // 3600).astype(int), minlength=hours)
    return float(count.var() / count.mean())


def by_day(people: pd.DataFrame, span_s: float) -> np.ndarray:
    """Jobs by day of the log."""
    return np.bincount((people.t // DAY_S).astype(int), minlength=int(span_s // DAY_S) + 1)


def unevenness(people: pd.DataFrame, mean: float, most: int, gap_s: float, stats: Statistics) -> float:
    """Shape of the gamma factors of hours with which the hourly counts are as dispersed as those of `people`."""
    hours, weeks, days = int(stats.span_s // 3600) + 1, np.bincount(people.week), by_day(people, stats.span_s)
    goal, best = dispersion(people.t.to_numpy(), hours), (np.inf, 0.0)
    for shape in SHAPES:
        got = []
        for seed in range(5):
            rng = np.random.default_rng([seed, 9])
            sizes, week = cut(fill(rng, len(people), exponent(mean, most), most), weeks)
            got.append(dispersion(submissions(rng, sizes, week, days, gap_s, shape, stats, stats.span_s), hours))
        best = min(best, (abs(np.log(np.median(got) / goal)), shape))
    return best[1]


def likeness(people: pd.DataFrame) -> float:
    """Share of the variance of log run time, within a size and length class of a virtual cluster, between bursts."""
    frame = people.assign(log=np.log(people.run_s), burst=0)
    for _, rows in people.groupby("vc"):
        frame.loc[rows.index, "burst"] = bursts(rows)
    frame["rest"] = frame.log - frame.groupby(["vc", "size", "length", "week"]).log.transform("mean")
    groups = frame.groupby(["vc", "size", "length", "burst"]).rest
    within = float((frame.rest - groups.transform("mean")).pow(2).sum() / (len(frame) - groups.ngroups))
    return round(1 - within / float(frame.rest.var()), 2)


def usual(t: pd.Series, unit_s: float, n: int) -> list[float]:
    """Jobs by hour of the day or by weekday, mean 1."""
    count = np.bincount((t // unit_s % n).astype(int), minlength=n)
    return [round(float(x), 2) for x in count / count.mean()]


def typical(jobs: pd.DataFrame, weeks: int, spread: float) -> list[int]:
    """Typical run time of each week, s, with which the jobs of that week are dealt as much run time in all as they had.

    A start, the mean of logarithms, is moved in small steps. Weeks are joined until they have `FEWEST_OF_MEAN` jobs.
    """
    of_week = joined(np.bincount(jobs.week, minlength=weeks))
    group, log, ascending = of_week[jobs.week], np.log(jobs.run_s), np.sort(jobs.run_s)
    usual, sums = np.array(log.groupby(group).mean()), np.array(jobs.run_s.groupby(group).sum())
    luck, step = evened(np.random.default_rng(0).random(len(jobs)), jobs.week.to_numpy()), 0.5
    best, found = np.inf, usual
    for _ in range(60):
        rank = np.argsort(np.argsort(usual[group] + spread * luck))
        off = np.log(sums / np.bincount(group, ascending[rank]))
        if (total := float(np.abs(off) @ sums)) < best:
            best, found = total, usual
        usual, step = usual + np.clip(off, -1, 1) * step, 0.97 * step
    return [round(float(x)) for x in np.exp(found)[of_week]]


def joined(count: np.ndarray) -> np.ndarray:
    """Group of each week: neighbours are together, so that each has `FEWEST_OF_MEAN` jobs (or is the only one)."""
    group, filled, out = 0, 0, []
    for n in count.tolist():
        out.append(group)
        filled += n
        if filled >= FEWEST_OF_MEAN:
            group, filled = group + 1, 0
    return np.minimum(out, max(group - 1, 0))


def class_lines(jobs: pd.DataFrame, weeks: int) -> Iterator[str]:
    """What is known of the jobs of one virtual cluster, size class and length class."""
    log = np.log(jobs.run_s)
    spread = (log - log.groupby(jobs.week).transform("mean")).std() if len(jobs) >= FEWEST else 0.0
    yield f"jobs = {np.bincount(jobs.week, minlength=weeks).tolist()}"
    yield f"typical_s = {typical(jobs, weeks, float(spread))}"
    yield f"spread = {round(float(spread), 2)}"
    gpus = jobs.gpus.value_counts().sort_index()
    if len(gpus) > 1 or gpus.index[0] != 1:
        yield "gpus = {" + ", ".join(f"{g} = {n}" for g, n in gpus.items()) + "}"
    own = [g for g, n in gpus.items() if n >= FEWEST_OF_TABLE and len(gpus) > 1]
    rest = jobs.run_s[~jobs.gpus.isin(own)]
    if len(jobs) >= FEWEST:
        yield f"run_s = {quantiles((rest if len(rest) >= FEWEST else jobs.run_s).to_numpy())}"
    for g in own:
        yield f"run_s_{g} = {quantiles(jobs.run_s[jobs.gpus == g].to_numpy())}"


def lines(frame: pd.DataFrame) -> Iterator[str]:
    span_s = float(frame.t.max())
    weeks = int(span_s // WEEK_S) + 1
    people, robot = frame[~frame.robot], frame[frame.robot]
    hour, day = (usual(people.t, unit_s, n) for unit_s, n in ((3600.0, 24), (DAY_S, 7)))
    yield "# Statistics of the public subset of Philly's jobs: experiments/fit_philly.py writes this file."
    yield f"jobs = {len(frame)}\nspan_s = {round(span_s)}\nhours = {hour}\ndays = {day}\nlikeness = {likeness(people)}"
    stats = Statistics(len(frame), span_s, tuple(hour), tuple(day), 0.0, np.array([]), 0.0, (), ())
    yield f"[robot]\njobs = {np.bincount(robot.week, minlength=weeks).tolist()}"
    yield f"begin_s = {round(float(robot.t.min()))}\nrun_s = {quantiles(robot.run_s.to_numpy())}"
    for s, size_name in enumerate(SIZES):
        yield f"[all.{size_name}]"
        for number, length in enumerate(LENGTHS):
            jobs = people[(people["size"] == s) & (people.length == number)]
            yield f"{length} = {quantiles(jobs.run_s.to_numpy())}"
    for vc in people.vc.value_counts().index.tolist():
        mine = people[people.vc == vc]
        size = np.bincount(bursts(mine))[1:]
        gaps = np.diff(mine.t)
        gap_s = float(gaps[gaps <= BURST_GAP_S].mean()) if (gaps <= BURST_GAP_S).any() else BURST_GAP_S
        shape = unevenness(mine, float(size.mean()), int(size.max()), gap_s, stats)
        yield f'["{vc}"]\nburst_exponent = {exponent(float(size.mean()), int(size.max()))}\nburst_most = {size.max()}'
        yield f"burst_gap_s = {round(gap_s, 1)}\nhour_shape = {shape}"
        yield f"days = {by_day(mine, span_s).tolist()}"
        for s, size_name in enumerate(SIZES):
            for number, length in enumerate(LENGTHS):
                jobs = mine[(mine["size"] == s) & (mine.length == number)]
                if len(jobs):
                    yield f'["{vc}".{size_name}.{length}]'
                    yield from class_lines(jobs, weeks)


if __name__ == "__main__":
    print("\n".join(lines(table(load_trace(Path(sys.argv[1]))))))
