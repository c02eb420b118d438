"""A Philly-like workload: virtual clusters that differ and drift, a robot, bursts of like jobs, retries.

The statistics are those of the public subset of Microsoft's Philly trace (Jeon et al., "Analysis of Large-Scale
Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019, and the trace that goes with it): 82,247 jobs
of 109 days in `philly.toml`, which `experiments/fit_philly.py` writes. They are

- jobs by virtual cluster, size class, length class and week of the log (`jobs`), and by virtual cluster and day
  (`days`): what drifts together is kept together;
- GPU counts in each class (`gpus`), run times as quantiles (`run_s`, of common GPU counts their own), and how run times
  drift within a class (`typical_s` by week, `spread` around it);
- hours in all, and of each virtual cluster how large and how dense its bursts are, and how uneven its hours; of a
  program that submits a short 1-GPU job every ten minutes: since when, and in how many of them each week.

Run times and GPU counts are dealt out, not drawn one by one: each class gets its distribution, so that the sum of GPU
time hangs on no luck. What is drawn: who comes when and after whom, and which job of a class has which run time.

A trace of fewer jobs has the same rate per hour, and the weeks of the log pass faster; one of more, slower. A run takes
a month of the whole log instead (`traces.synthetic.month`).
How jobs end is from published totals. Users are assumed: the subset names none.
"""

from __future__ import annotations

import numpy as np

from traces.synthetic.draw import choose, fill, numbered, pick, within_bursts
from traces.synthetic.philly_tables import DAY_S, WEEK_S, Class, Statistics, VirtualCluster, statistics
from traces.words import Worded

ROBOT_VC, ROBOT, ROBOT_PERIOD_S = "11cb48", "11cb48-robot", 600.0

#: How jobs end, the same words in both: shares of jobs and of GPU time in the public trace are 60/9/31 % and
#: 32/29/39 %, so long jobs are killed more often. Weights below and above a day.
ENDS_SHORT = {"passed": 0.615, "killed": 0.082, "failed": 0.303}
ENDS_LONG = {"passed": 0.30, "killed": 0.32, "failed": 0.38}
#: Attempts of failed and of other jobs; all jobs together: 1 80 %, 2 10 %, 3 2.6 %, 4 1.5 %, 5 5 %, 6 1 %.
TRIES_FAILED = {1: 0.50, 2: 0.20, 3: 0.07, 4: 0.04, 5: 0.16, 6: 0.03}
TRIES_OTHER = {1: 0.936, 2: 0.052, 3: 0.0066, 4: 0.004, 5: 0.0014}
#: Jobs that come together at most, and the shape of the gamma distribution of gaps in a burst: a quarter are below 2 s.
PIECE, GAP_SHAPE = 50, 0.8
#: Assumed: a burst is of the user of the one before it with this chance.
SAME_USER = 0.6


def philly_columns(jobs: int, seed: int) -> dict[str, np.ndarray | Worded]:
    """Columns of a Philly-like trace, unsorted; time 0 is a Monday 00:00 UTC, times are whole seconds."""
    return columns_like(statistics(), jobs, seed)


def philly_jobs() -> int:
    """How many jobs the log has."""
    return statistics().jobs


def columns_like(stats: Statistics, jobs: int, seed: int) -> dict[str, np.ndarray | Worded]:
    """Columns of a trace with these statistics."""
    deal, arrivals, runs, ends = (np.random.default_rng([seed, stream]) for stream in (4, 1, 2, 3))
    span_s = stats.span_s * jobs / stats.jobs
    weights = [stats.robot_jobs, *(c.jobs for vc in stats.clusters for c in vc.classes)]
    dealt = iter(np.split(shared_out(deal, jobs, np.concatenate(weights)), len(weights)))
    robots = next(dealt)
    parts, users = [_robot(arrivals, runs, robots, stats, span_s)], [Worded.of_parts([(ROBOT, int(robots.sum()))])]
    clusters = [(ROBOT_VC, len(users[0]))]
    for vc in stats.clusters:
        weeks = [next(dealt) for _ in vc.classes]
        if sum(int(w.sum()) for w in weeks):
            part, user = _people(arrivals, runs, vc, weeks, stats, span_s)
            parts.append(part)
            users.append(user)
            clusters.append((vc.name, len(user)))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    # A log begins with its first job and ends with its last one.
    columns["submit_s"][np.argmin(columns["submit_s"])] = 0.0
    if jobs > 1:
        columns["submit_s"][np.argmax(columns["submit_s"])] = np.floor(span_s)
    status, attempts = _ends(ends, columns["duration_s"])
    return {**columns, "user": Worded.joined(users), "vc": Worded.of_parts(clusters), "status": status,
            "attempts": attempts}


def shared_out(rng: np.random.Generator, total: int, weights: np.ndarray) -> np.ndarray:
    """Whole numbers that add up to `total`, each within 1 of its share by weight; sums of neighbours are, too."""
    upto = np.cumsum(weights) * (total / weights.sum())
    upto[-1] = total
    counts: np.ndarray = np.diff(np.floor(upto + rng.random() * (upto < total)), prepend=0).astype(np.int64)
    return counts


def cut(bursts: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut bursts of jobs so that none reaches from one cell into the next: sizes, and the cell of each."""
    ends = np.sort(np.concatenate((np.cumsum(bursts), np.cumsum(cells))))
    ends = ends[np.diff(ends, prepend=0) > 0]
    return np.diff(ends, prepend=0), np.searchsorted(np.cumsum(cells), ends)


def hour_rates(
    rng: np.random.Generator, week_jobs: np.ndarray, day_jobs: np.ndarray, shape: float, stats: Statistics,
    span_s: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Edges of slots of at most an hour, s, and jobs expected in each.

    They are as many by week of the log as `week_jobs`, go with `day_jobs` within it, and by hour of the day with the
    usual hours. Where the log's days pass faster or slower than days, weekdays are those of the calendar: `day_jobs` is
    taken relative to what its weekday usually has. Each slot has a gamma factor of this shape (mean 1, variance 1 /
    shape) on top: people work in some hours and not in others. Then rates are scaled to the sums, in turns.
    """
    day_s = DAY_S * span_s / stats.span_s
    edges_s = np.append(np.arange(0.0, span_s, min(3600.0, day_s / 2)), span_s)
    middle_s = (edges_s[1:] + edges_s[:-1]) / 2
    day = np.minimum((middle_s // day_s).astype(np.int64), len(day_jobs) - 1)
    hour = (middle_s // 3600 % 24).astype(np.int64)
    usual = np.diff(edges_s) * np.asarray(stats.hours)[hour]
    usual *= np.asarray(stats.days)[(middle_s // DAY_S % 7).astype(np.int64)]
    drift = day_jobs / np.asarray(stats.days)[np.arange(len(day_jobs)) % 7]
    by_day = _scaled(np.bincount(day, usual, len(drift)) * drift, np.arange(len(drift)) // 7, week_jobs)
    by_hour = np.diff(edges_s) @ (hour[:, None] == np.arange(24)) * np.asarray(stats.hours)
    by_hour *= week_jobs.sum() / by_hour.sum()
    rate = usual * (rng.gamma(shape, 1 / shape, len(usual)) + 1e-9)
    for _ in range(30):
        rate = _scaled(_scaled(rate, hour, by_hour), day, by_day)
    return edges_s, rate


def _scaled(values: np.ndarray, group: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Values times a factor of their group, so that each group has its sum; a group of zeros stays."""
    now = np.bincount(group, values, len(sums))
    out: np.ndarray = values * np.divide(sums, now, out=np.zeros(len(sums)), where=now > 0)[group]
    return out


def submissions(
    rng: np.random.Generator, sizes: np.ndarray, week: np.ndarray, day_jobs: np.ndarray, gap_s: float, shape: float,
    stats: Statistics, span_s: float,
) -> np.ndarray:
    """Submission of each job, s, of bursts of given sizes and weeks, in which jobs come `gap_s` apart on average.

    Bursts take their turns in random order within a week, each as much of the expected jobs (`hour_rates`) as it has
    jobs: an hour gets as many as it should, up to the size of a burst.
    """
    week_jobs = np.bincount(week, sizes, (len(day_jobs) + 6) // 7)
    edges_s, rate = hour_rates(rng, week_jobs, day_jobs, shape, stats, span_s)
    turn = np.lexsort((rng.random(len(sizes)), week))
    ahead = np.empty(len(sizes))
    ahead[turn] = np.cumsum(sizes[turn]) - sizes[turn]
    # A long burst comes in pieces, lest it spread its jobs over hours in which few come.
    parts = -(-sizes // PIECE)
    number = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    size = np.minimum(np.repeat(sizes, parts) - PIECE * number, PIECE)
    upto = np.repeat(ahead, parts) + PIECE * number + size * rng.random(len(size))
    middle_s = np.interp(upto, np.cumsum(np.append(0.0, rate)), edges_s)
    after_s = within_bursts(rng.gamma(GAP_SHAPE, gap_s / GAP_SHAPE, int(size.sum())), size)
    length_s = after_s[np.cumsum(size) - 1]
    begin_s = np.maximum(np.minimum(middle_s - length_s / 2, span_s - length_s), 0.0)
    submit_s: np.ndarray = np.minimum(np.repeat(begin_s, size) + after_s, span_s)
    return submit_s


def _people(
    arrivals: np.random.Generator, runs: np.random.Generator, vc: VirtualCluster, weeks: list[np.ndarray],
    stats: Statistics, span_s: float,
) -> tuple[dict[str, np.ndarray], Worded]:
    """Jobs of one virtual cluster, and who submits each; `weeks`: how many of each class come in each week."""
    n = int(sum(w.sum() for w in weeks))
    most = int(np.clip(n // 10, 1, vc.burst_most))
    sizes, cell = cut(fill(arrivals, n, vc.burst_exponent, most), np.concatenate(weeks))
    kind, week = np.divmod(cell, len(weeks[0]))
    submit_s = submissions(arrivals, sizes, week, vc.days, vc.burst_gap_s, vc.hour_shape, stats, span_s)
    gpus, run_s = np.empty(n, dtype=np.int64), np.empty(n)
    bounds = np.searchsorted(np.repeat(kind, sizes), np.arange(len(weeks) + 1))
    for index, jobs in enumerate(vc.classes):
        mine, rows = kind == index, slice(bounds[index], bounds[index + 1])
        if mine.any():
            gpus[rows], run_s[rows] = _work(runs, jobs, sizes[mine], week[mine], stats.likeness)
    user = _users(arrivals, vc, submit_s[np.cumsum(sizes) - sizes], 100 * vc.weight / stats.jobs)
    return ({"submit_s": np.floor(submit_s), "duration_s": np.rint(run_s), "num_gpus": gpus},
            Worded(np.repeat(user.number, sizes), user.words))


def _work(
    rng: np.random.Generator, jobs: Class, sizes: np.ndarray, week: np.ndarray, likeness: float
) -> tuple[np.ndarray, np.ndarray]:
    """GPUs and run time, s, of the jobs of one class, given as bursts: one number of GPUs, and run times alike."""
    # GPUs by weight of jobs, to bursts in random order.
    turn = rng.permutation(len(sizes))
    upto = np.cumsum(sizes[turn]) - sizes[turn] * rng.random(len(sizes))
    weight = np.cumsum(list(jobs.gpus.values()))
    of = np.empty(len(sizes), dtype=np.int64)
    of[turn] = np.array(list(jobs.gpus))[np.searchsorted(weight[:-1], upto * (weight[-1] / sizes.sum()), side="right")]
    gpus = np.repeat(of, sizes)
    # Run times by rank: who is how long beside the others of the class hangs on week, burst and luck.
    burst, own = rng.standard_normal(len(sizes)), rng.standard_normal(len(gpus))
    luck = np.repeat(np.sqrt(likeness) * burst, sizes) + np.sqrt(1 - likeness) * own
    of_week = np.repeat(week, sizes)
    key = np.log(jobs.typical_s)[of_week] + jobs.spread * evened(luck, of_week)
    run_s = np.empty(len(gpus))
    table = np.where(np.isin(gpus, list(jobs.run_s)), gpus, 0) if len(jobs.run_s) > 1 else np.zeros(len(gpus), int)
    for name, knots in jobs.run_s.items():
        rows = np.flatnonzero(table == name)
        share = (_ranks(key[rows]) + rng.random(len(rows))) / max(len(rows), 1)
        run_s[rows] = np.exp(np.interp(share, np.linspace(0, 1, len(knots)), np.log(knots)))
    return gpus, run_s


def evened(luck: np.ndarray, week: np.ndarray) -> np.ndarray:
    """The same order within each week (ascending), at quantiles of the normal distribution: no week is lucky."""
    count = np.bincount(week)
    before = np.cumsum(count) - count
    rank = np.empty(len(luck))
    rank[np.lexsort((luck, week))] = np.arange(len(luck)) - np.repeat(before, count)
    # Logistic quantiles, scaled to the normal ones: close, and without a table.
    share = (rank + 0.5) / count[week]
    score: np.ndarray = np.log(share / (1 - share)) / 1.702
    return score


def _ranks(values: np.ndarray) -> np.ndarray:
    """Rank of each value from 0, as float64."""
    rank = np.empty(len(values))
    rank[np.argsort(values, kind="stable")] = np.arange(len(values))
    return rank


def _robot(
    arrivals: np.random.Generator, runs: np.random.Generator, weeks: np.ndarray, stats: Statistics, span_s: float
) -> dict[str, np.ndarray]:
    """Jobs of the program: one in ten minutes, of which some are missing, about five in a row."""
    n, scale = int(weeks.sum()), span_s / stats.span_s
    beat_s = np.arange(stats.robot_begin_s * scale, span_s, ROBOT_PERIOD_S) + ROBOT_PERIOD_S * arrivals.random()
    worth = arrivals.random(len(beat_s) // 5 + 1)[np.arange(len(beat_s)) // 5]
    submit_s = [np.empty(0)]
    for week, count in enumerate(weeks.tolist()):
        begin_s, end_s = np.clip(WEEK_S * scale * np.array([week, week + 1]), 0, span_s)
        here = np.flatnonzero((beat_s >= begin_s) & (beat_s < end_s))
        kept = beat_s[np.sort(here[np.argsort(-worth[here], kind="stable")[:count]])]
        more_s = begin_s + (end_s - begin_s) * arrivals.random(count - len(kept))
        submit_s += [kept + 2.0 * arrivals.random(len(kept)), more_s]
    share = (runs.permutation(n) + runs.random(n)) / max(n, 1)
    knots = np.log(stats.robot_run_s)
    return {"submit_s": np.floor(np.minimum(np.concatenate(submit_s), span_s)),
            "duration_s": np.rint(np.exp(np.interp(share, np.linspace(0, 1, len(knots)), knots))),
            "num_gpus": np.ones(n, dtype=np.int64)}


def _users(rng: np.random.Generator, vc: VirtualCluster, begin_s: np.ndarray, weight: float) -> Worded:
    """A user for each burst. Assumed: 8 x sqrt(weight in %) users a tenant, the first submit the most, and return."""
    people = numbered(f"{vc.name}-u", max(2, int(8 * np.sqrt(weight))))
    n = len(begin_s)
    drawn = (len(people) * rng.random(n) ** 2).astype(np.int64)
    # In order of time, a burst that is no new user's has that of the one before.
    order = np.argsort(begin_s, kind="stable")
    new = np.where(rng.random(n) < SAME_USER, 0, np.arange(n))
    user = np.empty(n, dtype=np.int64)
    user[order] = drawn[np.maximum.accumulate(new)]
    return Worded(user, people)


def _ends(rng: np.random.Generator, duration_s: np.ndarray) -> tuple[Worded, np.ndarray]:
    """Status and number of attempts of each job."""
    n, long = len(duration_s), duration_s > 86_400
    end = np.where(long, pick(rng, n, list(ENDS_LONG.values())), pick(rng, n, list(ENDS_SHORT.values())))
    failed = end == list(ENDS_SHORT).index("failed")
    attempts = np.where(failed, choose(rng, n, TRIES_FAILED), choose(rng, n, TRIES_OTHER))
    return Worded(end, np.array(list(ENDS_SHORT), dtype=object)), attempts
