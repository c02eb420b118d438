"""Policies side by side, job by job and seed by seed: each job is compared with itself under the first policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.comparing.bootstrap import Interval
from analysis.comparing.comparison import Comparison, Effects
from analysis.comparing.matching import Matched, matched
from analysis.comparing.repetitions import measured_when, repeated, repetitions
from analysis.metrics import cost_usd, makespan_s, preemptions, utilisation
from analysis.paired import check_level, effects, pareto
from analysis.run import Run, RunError, labels
from analysis.tables import rule

__all__ = ["Comparison", "compare"]

SAME = 1e-9
"""Two JCTs that differ by less than this share of the larger are equal."""

KINDS = ("ratio", "difference", "ratio")
"""How the `VALUES` of two policies are compared: waits may be 0, and have no ratio then."""

COLUMNS = (
    "jct_mean_s", "jct_mean_ratio", "jct_ratio_low", "jct_ratio_high", "jct_p50_s", "jct_p99_s",
    "queue_mean_s", "queue_change_s", "queue_change_low_s", "queue_change_high_s", "better_share", "worse_share",
    "jobs_cost_usd", "cost_ratio", "cost_ratio_low", "cost_ratio_high", "on_front",
    "makespan_s", "utilisation", "cost_usd", "preemptions",
)

def compare(
    runs: Sequence[Run], *, different_traces: bool = False, level: float = 0.95, seed: int = 0
) -> Comparison:
    """Compare runs over the jobs that finished in all of them, paired by job id and, of several seeds, by seed.

    Runs that differ in trace or seed only (same policy and settings, cluster and rules) are repetitions of one policy.
    Where there are two such policies or more, repetitions are paired by the trace's hash and the seed, each gives one
    figure, and the interval is Student's t over these. Else each run stands for itself, and the interval is a bootstrap
    over the jobs (`analysis.paired`).

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

    Raises
    ------
    RunError
        Fewer than two runs, different traces, a repetition twice, or no job that finished in all runs.
    """
    check_level(level)
    if len(runs) < 2:
        raise RunError("a comparison needs runs to compare", got=len(runs), allowed="two or more run folders")
    teams, notes = repetitions(runs, different_traces)
    names = labels([team[0] for team in teams])
    matches = [matched(at_once) for at_once in zip(*teams, strict=True)]
    found, method = _effects(matches, len(teams), level, seed)
    table = _table(teams, matches, found, names)
    return Comparison(
        table,
        sum(len(one.measured) for one in matches),
        sum(one.left_out for one in matches),
        tuple(rule(team[0]) for team in teams),
        (*measured_when(teams[0]), *notes, *_losses(names, matches), *_cautions(table, method)),
        len(matches),
        repeated(teams[0]),
        level,
        tuple(found[1:]),
    )


def _table(
    teams: list[list[Run]], matches: list[Matched], found: list[Effects], names: list[str]
) -> pd.DataFrame:
    rows = []
    for t, team in enumerate(teams):
        row = _mean([_row(run, one.measured[:, t], one.measured[:, 0]) for run, one in zip(team, matches, strict=True)])
        jct, queue, cost = found[t]
        row |= {"jct_mean_ratio": jct.mean, "jct_ratio_low": jct.low, "jct_ratio_high": jct.high}
        row |= {"queue_change_s": queue.mean, "queue_change_low_s": queue.low, "queue_change_high_s": queue.high}
        row |= {"cost_ratio": cost.mean, "cost_ratio_low": cost.low, "cost_ratio_high": cost.high}
        rows.append(row)
    table = pd.DataFrame(rows, index=pd.Index(names, name="run"))
    table["on_front"] = pareto(table, "jct_mean_s", "jobs_cost_usd")
    return table[list(COLUMNS)]


def _losses(names: list[str], matches: list[Matched]) -> list[str]:
    """Who did not finish which of the jobs left out."""
    lost = {name: sum((one.lost[t] for one in matches), Counter[str]()) for t, name in enumerate(names)}
    told = {name: ", ".join(f"{count:,} {word}" for word, count in sorted(words.items()))
            for name, words in lost.items() if words}
    return ["Left out, since not finished: " + "; ".join(f"{name} {words}" for name, words in told.items()) + "."
            ] if told else []


def _cautions(table: pd.DataFrame, method: str) -> list[str]:
    found = []
    if method == "jobs":
        found.append("Intervals are over the jobs of one trace, which share a queue: they say how much hangs on single "
                     "jobs, not what another trace would show. Several seeds a policy say that.")
    elif (table["jct_ratio_low"] == table["jct_ratio_high"]).any():
        found.append("An interval of no length: the repetitions are equal, nothing in them hangs on the seed.")
    unknown = table.index[table["on_front"].isna()]
    if len(unknown):
        found.append(f"Of unknown cost, neither on the Pareto front nor off it: {', '.join(unknown)}.")
    return found


def _effects(matches: list[Matched], policies: int, level: float, seed: int) -> tuple[list[Effects], str]:
    """What each policy is against the first (which is 1, 0 and 1 to itself), and the method of the intervals."""
    pairs = []
    for one in matches:
        against = np.broadcast_to(one.measured[:, :1], one.measured[:, 1:].shape)
        pairs.append(np.stack([one.measured[:, 1:], against], axis=-1).reshape(len(one.measured), -1, 2))
    found, method = effects(pairs, KINDS * (policies - 1), level=level, seed=seed)
    n, known = len(matches), all(not np.isnan(one.measured[:, 0, 2]).any() for one in matches)
    itself = (Interval(1.0, np.nan, np.nan, n), Interval(0.0, np.nan, np.nan, n),
              Interval(1.0 if known else np.nan, np.nan, np.nan, n))
    return [itself] + [(found[k], found[k + 1], found[k + 2]) for k in range(0, len(found), 3)], method


def _row(run: Run, values: np.ndarray, base: np.ndarray) -> dict[str, float | int | None]:
    jct, queue, cost = values.T
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
        "makespan_s": makespan_s(run),
        "utilisation": utilisation(run)["all"],
        "cost_usd": cost_usd(run),
        "preemptions": preemptions(run),
    }


def _mean(rows: list[dict[str, float | int | None]]) -> dict[str, float | int | None]:
    """The one row, or the mean of several: unknown where one of them is."""
    if len(rows) == 1:
        return rows[0]
    values = {name: [row[name] for row in rows] for name in rows[0]}
    return {name: None if None in found else float(np.mean(np.array(found, dtype=float)))
            for name, found in values.items()}
