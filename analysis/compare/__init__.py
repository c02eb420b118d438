"""Policies side by side, job by job and seed by seed: each job is compared with itself under the first policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.compare.bill import Bill
from analysis.compare.bootstrap import Interval, interval
from analysis.compare.comparison import Comparison, Effects
from analysis.compare.matching import Matched, matched
from analysis.compare.paired import check_level, effects, pareto
from analysis.compare.repetitions import measured_when, repeated, repetitions
from analysis.metrics import makespan_s, preemptions, utilisation
from analysis.run import Run, RunError, labels
from analysis.tables import rule

__all__ = ["Comparison", "compare"]

SAME = 1e-9
"""Two JCTs that differ by less than this share of the larger are equal."""

EFFECTS = ("ratio", "difference", "ratio")
"""How the `VALUES` of two policies are compared: waits may be 0, and have no ratio then."""

COLUMNS = (
    "jct_mean_s", "jct_mean_ratio", "jct_ratio_low", "jct_ratio_high", "jct_p50_s", "jct_p99_s",
    "queue_mean_s", "queue_change_s", "queue_change_low_s", "queue_change_high_s", "better_share", "worse_share",
    "jobs_cost_usd", "jobs_cost_known_usd", "jobs_unpriced_gpu_h", "cost_ratio", "cost_ratio_low", "cost_ratio_high",
    "on_front", "makespan_s", "utilisation", "cost_usd", "cost_known_usd", "unpriced_gpu_h", "preemptions",
)

UNLIKE = 0.01
"""Shares of jobs that did not finish which differ by more than this make the jobs compared a choice of their own."""

def compare(
    runs: Sequence[Run], *, different_traces: bool = False, level: float = 0.95, seed: int = 0,
    price: str | None = None, per: str | None = None,
) -> Comparison:
    """Compare runs over the jobs that finished in all of them, paired by job id and, of several seeds, by seed.

    Runs that differ in trace or seed only (same policy and settings, cluster and rules) are repetitions of one policy.
    Where there are two such policies or more, repetitions are paired by the trace's hash and the seed, each gives one
    figure, and the interval is Student's t over these. Else each run stands for itself, and the interval is a bootstrap
    over the jobs (`analysis.compare.paired`).

    Parameters
    ----------
    runs : sequence of Run
        Two or more; the first (with its repetitions) is the baseline.
    different_traces : bool
        Also compare runs whose trace hashes differ, each for itself (ids must then mean the same jobs).
    level : float
        Of the intervals, above 0 and below 1.
    seed : int
        Of the bootstrap.
    price, per : str, optional
        Which price, and what is paid for at it (`analysis.compare.bill.Bill`). None: the GPUs held, at the runs' own
        price. Of whole nodes and of the cluster no job has a part: then the cost ratio is that of whole runs, which of
        a single repetition has no interval.

    Raises
    ------
    RunError
        Fewer than two runs, different traces, a repetition twice, or no job that finished in all runs; no such price or
        unit.

    Examples
    --------
    A long job and a short one, at once, on one GPU: in turn they end at 100 s and 110 s, the short one first at 110 s
    and 10 s.

    >>> from pathlib import Path
    >>> from analysis.run import load_run
    >>> from policies.registry import make
    >>> from sim.cluster.clusterfiles import load_cluster
    >>> from sim.engine.simulate import simulate
    >>> from sim.workload.progress import Recorded
    >>> from traces.trace import Trace
    >>> trace = Trace.from_columns(
    ...     {"job_id": ["1", "2"], "submit_s": [0, 0], "duration_s": [100, 10], "num_gpus": [1, 1]})
    >>> cluster = load_cluster("v100:1x1")
    >>> for name in ("fifo", "sjf"):
    ...     result = simulate(trace, cluster, make(name), Recorded(trace, cluster), estimate_s=trace.duration_s)
    ...     result.write(Path(name))
    >>> found = compare([load_run("fifo"), load_run("sjf")])
    >>> found.table["jct_mean_s"].to_dict()
    {'fifo': 105.0, 'sjf': 60.0}
    """
    check_level(level)
    if len(runs) < 2:
        raise RunError("a comparison needs runs to compare", got=len(runs), allowed="two or more run folders")
    teams, notes = repetitions(runs, different_traces)
    names = labels([team[0] for team in teams])
    bill = Bill(price, per)
    matches = [matched(at_once, bill) for at_once in zip(*teams, strict=True)]
    found, method = _effects(matches, len(teams), level, seed)
    bills = [[bill.of_run(run) for run in team] for team in teams]
    if bill.whole:
        found = [(*one[:2], cost) for one, cost in zip(found, _of_whole_runs(bills, level), strict=True)]
    table = _table(teams, matches, found, bills, names, bill)
    return Comparison(
        table,
        sum(len(one.measured) for one in matches),
        sum(one.left_out for one in matches),
        tuple(rule(team[0]) for team in teams),
        (*measured_when(teams[0]), *notes, *([bill.words] if bill.words else []), *_losses(names, matches),
         *_cautions(table, method, bill, len(matches))),
        len(matches),
        repeated(teams[0]),
        level,
        tuple(found[1:]),
        sum((one.nowhere for one in matches), Counter[str]()),
        bill,
        tuple(_warnings(names, teams, matches)),
    )


def _table(
    teams: list[list[Run]], matches: list[Matched], found: list[Effects],
    bills: list[list[tuple[float | None, float, float]]], names: list[str], bill: Bill,
) -> pd.DataFrame:
    rows = []
    for t, team in enumerate(teams):
        row = _mean([
            _row(run, one.measured[:, t], one.measured[:, 0])
            | dict(zip(("cost_usd", "cost_known_usd", "unpriced_gpu_h"), paid, strict=True))
            for run, one, paid in zip(team, matches, bills[t], strict=True)
        ])
        jct, queue, cost = found[t]
        row |= {"jct_mean_ratio": jct.mean, "jct_ratio_low": jct.low, "jct_ratio_high": jct.high}
        row |= {"queue_change_s": queue.mean, "queue_change_low_s": queue.low, "queue_change_high_s": queue.high}
        row |= {"cost_ratio": cost.mean, "cost_ratio_low": cost.low, "cost_ratio_high": cost.high}
        rows.append(row)
    table = pd.DataFrame(rows, index=pd.Index(names, name="run"))
    known = bill.column.replace("_usd", "_known_usd")
    table["on_front"] = pareto(
        table.astype({bill.column: float}), "jct_mean_s", bill.column, at_least={bill.column: known}
    )
    return table[list(COLUMNS)]


def _losses(names: list[str], matches: list[Matched]) -> list[str]:
    """Who did not finish which of the jobs left out."""
    lost = {name: sum((one.lost[t] for one in matches), Counter[str]()) for t, name in enumerate(names)}
    told = {name: ", ".join(f"{count:,} {word}" for word, count in sorted(words.items()))
            for name, words in lost.items() if words}
    found = ["Left out, since not finished: " + "; ".join(f"{name} {words}" for name, words in told.items()) + "."
             ] if told else []
    nowhere = sum((one.nowhere for one in matches), Counter[str]())
    if nowhere:
        words = ", ".join(f"{count:,} {word}" for word, count in sorted(nowhere.items()))
        found.append(f"Finished under no policy: {words}.")
    return found


def _warnings(names: list[str], teams: list[list[Run]], matches: list[Matched]) -> list[str]:
    """What makes the jobs compared a choice of their own: not equally many finished under each policy."""
    counted = [sum(int(one.counted[t]) for one in matches) for t in range(len(teams))]
    left = [n - sum(int(one.done[t]) for one in matches) for t, n in enumerate(counted)]
    shares = [missing / n if n else 0.0 for missing, n in zip(left, counted, strict=True)]
    if max(shares) - min(shares) <= UNLIKE:
        return []
    told = ", ".join(f"{name} {missing:,} of {n:,}, {100 * share:.1f} %"
                     for name, missing, n, share in zip(names, left, counted, shares, strict=True))
    cut = any("window" in run.info and run.followed is None and not run.info["window"]["to_the_end"]
              for team in teams for run in team)
    todo = "Follow the jobs to their end (without --clip), or leave out --to and --cooldown." if cut else \
        "Compare runs that go on until all jobs are through, on clusters that can run them all."
    return [f"WARNING: the runs leave unlike shares of their jobs unfinished ({told}). Only jobs that finished under "
            f"all are compared: a run that left many may look better than it is. {todo}"]


def _cautions(table: pd.DataFrame, method: str, bill: Bill, repetitions: int) -> list[str]:
    found = []
    if method == "jobs":
        found.append("Intervals are over the jobs of one trace, which share a queue: they say how much hangs on single "
                     "jobs, not what another trace would show. Several seeds a policy say that.")
    elif (table["jct_ratio_low"] == table["jct_ratio_high"]).any():
        found.append("An interval of no length: the repetitions are equal, nothing in them hangs on the seed.")
    unknown, unsure = table[bill.column].isna(), table["on_front"].isna()
    if unknown.any():
        beaten = table.index[unsure & ~unknown]
        found.append(f"Of unknown cost, neither on the Pareto front nor off it: {', '.join(table.index[unknown])}."
                     + (f" These may beat {', '.join(beaten)}, at what is known of their cost." if len(beaten) else ""))
    if repetitions > 1:
        for what, mean, ratio in (("mean JCT", "jct_mean_s", "jct_mean_ratio"), ("cost", bill.column, "cost_ratio")):
            found += _contradictions(table, what, mean, ratio)
    return found


def _contradictions(table: pd.DataFrame, what: str, mean: str, ratio: str) -> list[str]:
    """Where the means over seeds say one thing and the geometric mean of the seeds' ratios another."""
    found, base = [], table.index[0]
    means, ratios = table[mean].to_numpy(np.float64, na_value=np.nan), table[ratio].to_numpy(np.float64)
    for name, of_means, of_seeds in list(zip(table.index, means / means[0] - 1, ratios - 1, strict=True))[1:]:
        if of_means * of_seeds < 0:
            found.append(
                f"{name} against {base}: averaged over the repetitions {what} is {100 * abs(of_means):.1f} % "
                f"{'more' if of_means > 0 else 'less'}, but the repetitions' ratios have the geometric mean "
                f"{1 + of_seeds:.3f}: repetitions with large values rule the average, and the Pareto front; in the "
                "ratio each counts the same.")
    return found


def _of_whole_runs(bills: list[list[tuple[float | None, float, float]]], level: float) -> list[Interval]:
    """Ratios of what runs cost altogether to the first policy's: geometric means and Student's t over repetitions."""
    cost = np.array([[paid[0] for paid in team] for team in bills], dtype=np.float64)
    with np.errstate(all="ignore"):
        ratios = cost / cost[0]
        logs = np.where(ratios > 0, np.log(ratios), np.nan)
    n = cost.shape[1]
    if n == 1:
        return [Interval(float(one), np.nan, np.nan, 1) for one in np.where(np.isfinite(logs), ratios, np.nan)[:, 0]]
    found = [interval(row, level) for row in logs]
    with np.errstate(over="ignore"):
        ends = [np.exp([one.mean, one.low, one.high]).tolist() for one in found]
    return [Interval(mean, low, high, n) for mean, low, high in [(ends[0][0], np.nan, np.nan), *ends[1:]]]


def _effects(matches: list[Matched], policies: int, level: float, seed: int) -> tuple[list[Effects], str]:
    """What each policy is against the first (which is 1, 0 and 1 to itself), and the method of the intervals."""
    pairs = []
    for one in matches:
        values = one.measured[:, :, : len(EFFECTS)]
        against = np.broadcast_to(values[:, :1], values[:, 1:].shape)
        pairs.append(np.stack([values[:, 1:], against], axis=-1).reshape(len(values), -1, 2))
    found, method = effects(pairs, EFFECTS * (policies - 1), level=level, seed=seed)
    n, known = len(matches), all(not np.isnan(one.measured[:, 0, 2]).any() for one in matches)
    itself = (Interval(1.0, np.nan, np.nan, n), Interval(0.0, np.nan, np.nan, n),
              Interval(1.0 if known else np.nan, np.nan, np.nan, n))
    return [itself] + [(found[k], found[k + 1], found[k + 2]) for k in range(0, len(found), 3)], method


def _row(run: Run, values: np.ndarray, base: np.ndarray) -> dict[str, float | int | None]:
    jct, queue, cost, known, unpriced = values.T
    same = np.abs(jct - base[:, 0]) <= SAME * np.maximum(jct, base[:, 0])
    p50, p99 = np.percentile(jct, [50, 99])
    return {
        "jct_mean_s": float(jct.mean()),
        "jct_p50_s": float(p50),
        "jct_p99_s": float(p99),
        "queue_mean_s": float(queue.mean()),
        "better_share": float((~same & (jct < base[:, 0])).mean()),
        "worse_share": float((~same & (jct > base[:, 0])).mean()),
        "jobs_cost_usd": float(cost.sum()),
        "jobs_cost_known_usd": float(known.sum()),
        "jobs_unpriced_gpu_h": float(unpriced.sum()),
        "makespan_s": makespan_s(run),
        "utilisation": utilisation(run)["all"],
        "preemptions": preemptions(run),
    }


def _mean(rows: list[dict[str, float | int | None]]) -> dict[str, float | int | None]:
    """The one row, or the mean of several: unknown where one of them is."""
    if len(rows) == 1:
        return rows[0]
    values = {name: [row[name] for row in rows] for name in rows[0]}
    return {name: None if None in found else float(np.mean(np.array(found, dtype=float)))
            for name, found in values.items()}
