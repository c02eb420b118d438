"""What one choice is worth against another: the same jobs under both, and the same seeds.

Jobs are compared with themselves: only those that finished under both count, and a seed counts that both have. Within a
seed there is one figure, of means over its jobs; across seeds these figures have a spread, and that is the interval.
Of a single seed the only spread is that between its jobs. They share a queue and are not independent: such an interval
tells how much the figure hangs on a few jobs of this trace, nothing of another trace.

Over seeds the interval is Student's t (of ratios: of their logarithms, so that A/B and B/A say the same), exact for few
of them, where a bootstrap is too narrow; over the jobs of one seed it is the BCa bootstrap: job times have long tails.
Source: ratios by logarithms: Fleming and Wallace, "How Not to Lie with Statistics", CACM 1986.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.bootstrap import Interval, bootstrap, interval
from analysis.run import RunError
from traces.errors import did_you_mean

__all__ = ["Interval", "difference_of_means", "effects", "interval", "pareto", "ratio_of_means"]

COLUMNS = ("low", "high", "seeds", "jobs", "jobs_left_out", "seeds_left_out", "method")
"""Of a result, behind its heads and its figure; `method` is where the interval comes from: 't' (two seeds or more),
'jobs' (the bootstrap over those of the one seed), 'none' (no job finished under both)."""


def ratio_of_means(
    table: pd.DataFrame,
    axis: str,
    baseline: Any,
    value: str,
    pairs: str = "job_id",
    over: Sequence[str] = ("seed",),
    by: Sequence[str] = (),
    *,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """How many times the baseline's mean each other choice's is, on the same jobs.

    ``ratio = exp(mean over seeds of log(mean_x / mean_baseline))``: the means of a seed are over the jobs that finished
    under both. As the jobs are the same, this is the ratio of totals, too (`value` 'cost_usd': of what they cost).

    Parameters
    ----------
    table : a row a job, with the axes as columns: the table 'jobs' of a sweep.
    axis, baseline : the column of what is compared ('policy'), and which of its values the others are measured by.
    value : column of numbers, none negative. A NaN of a job that finished is unknown and makes the seed's figure so.
    pairs : column by which jobs are matched within a seed.
    over : columns that tell repetitions apart (seeds, traces, windows); () where there is one.
    by : columns that tell settings apart (loads, clusters): a figure each.
    level, seed : of the interval, and of its random numbers.

    A job finished where column `finished` says so; in a table without it, where the value is a number.

    Returns
    -------
    DataFrame
        A row for each (`by`…, value of `axis` but the baseline), in that order: ratio, low, high (NaN: no
        value, or none can be told), seeds, jobs (those compared, of all seeds), jobs_left_out (of these seeds: finished
        under one of the two only, or absent in one), seeds_left_out (in one of the two only), method.

    Raises
    ------
    RunError
        No such column or baseline; a job twice (then `over` and `by` leave out an axis).
    """
    return _compared("ratio", table, axis, baseline, value, pairs, over, by, level, seed)


def difference_of_means(
    table: pd.DataFrame,
    axis: str,
    baseline: Any,
    value: str,
    pairs: str = "job_id",
    over: Sequence[str] = ("seed",),
    by: Sequence[str] = (),
    *,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """How much more each other choice's mean is than the baseline's, on the same jobs, in the unit of `value`.

    ``difference = mean over seeds of (mean_x - mean_baseline)``. As `ratio_of_means` in all else; column `difference`.
    """
    return _compared("difference", table, axis, baseline, value, pairs, over, by, level, seed)


def _compared(
    kind: str, table: pd.DataFrame, axis: str, baseline: Any, value: str, pairs: str, over: Sequence[str],
    by: Sequence[str], level: float, seed: int,
) -> pd.DataFrame:
    over, by = list(over), list(by)
    _check(table, axis, baseline, [value, pairs, *over, *by], level)
    side = _sides(table, axis, baseline, value, [*by, *over, pairs])
    rows = []
    for setting, here in _groups(side, by):
        base = here[here["_base"]]
        for (other,), mine in _groups(here[~here["_base"]], [axis]):
            head = dict(zip(by, setting, strict=True)) | {axis: other}
            rows.append(head | _figure(kind, mine, base, [*over, pairs], over, level, seed))
    return pd.DataFrame(rows, columns=[*by, axis, kind, *COLUMNS])


def _groups(table: pd.DataFrame, by: list[str]) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """The groups that are there, in order of their names; unknown names (a setting that is None) are a group."""
    if not by:
        yield (), table
    else:
        yield from table.groupby(by, observed=True, dropna=False)


def _is(column: pd.Series, wanted: Any) -> pd.Series:
    return column.isna() if pd.isna(wanted) else column == wanted


def _check(table: pd.DataFrame, axis: str, baseline: Any, columns: list[str], level: float) -> None:
    for column in (axis, *columns):
        if column not in table.columns:
            raise RunError("no such column", got=column, allowed=", ".join(map(str, table.columns)),
                           todo=did_you_mean(column, map(str, table.columns)))
    if not _is(table[axis], baseline).any():
        names = [str(name) for name in table[axis].unique()]
        raise RunError(f"nothing to measure by: no {axis} of that value", got=baseline, allowed=", ".join(names),
                       todo=did_you_mean(str(baseline), names))
    check_level(level)


def check_level(level: float) -> None:
    """Refuse what is no confidence level."""
    if not 0 < level < 1:
        raise RunError("no confidence level", got=level, allowed="a share above 0 and below 1, such as 0.95")


def _sides(table: pd.DataFrame, axis: str, baseline: Any, value: str, keys: list[str]) -> pd.DataFrame:
    """What is needed of the table, with `_base` (the baseline's rows) and `_done` (jobs that finished)."""
    side = table[list(dict.fromkeys([axis, *keys, value]))].copy()
    twice = side.duplicated([axis, *keys])
    if twice.any():
        row = side[twice].iloc[0]
        raise RunError("a job is there twice", got=", ".join(f"{name} {row[name]}" for name in [axis, *keys]),
                       todo="Name every other axis in `over` (repetitions) or `by` (settings).")
    side["_base"] = _is(side[axis], baseline)
    side["_value"] = side[value].astype(np.float64)
    side["_done"] = table["finished"].astype(bool) if "finished" in table.columns else side["_value"].notna()
    return side


def _figure(
    kind: str, mine: pd.DataFrame, base: pd.DataFrame, keys: list[str], over: list[str], level: float, seed: int
) -> dict[str, Any]:
    """One row of the result but its head: the two sides matched by `keys`."""
    both = mine.merge(base[[*keys, "_value", "_done"]], on=keys, how="outer", suffixes=("", "_b"), indicator=True)
    # An outer join is in order of its keys: whatever the order of the rows, the resamples are the same.
    mine_done, base_done = (both[name].eq(True).to_numpy() for name in ("_done", "_done_b"))
    done, paired = mine_done | base_done, mine_done & base_done
    repetition = both.groupby(over, observed=True, dropna=False) if over else both.groupby(np.zeros(len(both)))
    matched = repetition["_merge"].transform(lambda sides: (sides == "both").any())
    codes = repetition.ngroup().to_numpy()
    values = both[["_value", "_value_b"]].to_numpy(np.float64)
    seeds = [values[paired & (codes == code)] for code in np.unique(codes[paired])]
    (found,), used = effects([one[:, None] for one in seeds], [kind], level=level, seed=seed)
    return {
        kind: found.mean, "low": found.low, "high": found.high, "seeds": len(seeds), "jobs": int(paired.sum()),
        "jobs_left_out": int((done & matched & ~paired).sum()),
        "seeds_left_out": int(codes.max(initial=-1) + 1 - len(seeds)), "method": used,
    }


def effects(
    seeds: Sequence[np.ndarray], kinds: Sequence[str], *, level: float = 0.95, seed: int = 0
) -> tuple[list[Interval], str]:
    """Ratios or differences of means with their intervals, several at once on the same resamples; and their method.

    Parameters
    ----------
    seeds : one float64 [jobs, k, 2] a seed: k values of each job, each beside the same value under the baseline.
    kinds : k times 'ratio' or 'difference'.
    level, seed : as of `ratio_of_means`.
    """
    ratio = np.array([kind == "ratio" for kind in kinds])

    def statistic(means: np.ndarray) -> np.ndarray:
        """Log ratios and differences: on this scale A against B is B against A with another sign, interval and all."""
        a, b = means[..., 0::2], means[..., 1::2]
        with np.errstate(all="ignore"):
            found: np.ndarray = np.where(ratio, np.log(a) - np.log(b), a - b)
        return np.where(np.isfinite(found), found, np.nan)

    flat = [one.reshape(len(one), -1) for one in seeds if len(one)]
    if not flat:
        return [Interval(np.nan, np.nan, np.nan, 0)] * len(ratio), "none"
    figures = np.array([statistic(one.mean(axis=0)) for one in flat])
    if len(flat) > 1:
        students = [interval(column, level) for column in figures.T]
        low, high = np.array([[one.low for one in students], [one.high for one in students]])
    else:
        low, high = bootstrap(flat[0], statistic, level, seed=seed)
    with np.errstate(over="ignore"):
        middle, low, high = (np.where(ratio, np.exp(found), found) for found in (figures.mean(axis=0), low, high))
    if len(flat) == 1:
        a, b = flat[0].mean(axis=0).reshape(-1, 2).T
        # Not by way of a logarithm: the very quotient.
        middle = np.divide(a, b, out=middle, where=ratio & np.isfinite(middle))
    rows = zip(middle.tolist(), low.tolist(), high.tolist(), strict=True)
    return [Interval(mean, first, last, len(flat)) for mean, first, last in rows], "t" if len(flat) > 1 else "jobs"


def pareto(table: pd.DataFrame, *columns: str, at_least: Mapping[str, str] | None = None) -> pd.Series:
    """Which rows no other row beats: none is at most as large in all columns and smaller in one (smaller is better).

    Parameters
    ----------
    at_least : for columns with unknown values (NaN) the columns that say what is known of these, a lower bound.

    Returns
    -------
    Series of dtype boolean, with the table's index
        NA where a value is unknown: such a row is neither on the front nor off it. It beats nobody; but where it would
        beat a row of the front with what is known of it (`at_least`), it may do so, and that row is NA, too. Equal
        rows are on the front together.
    """
    values = table[list(columns)].to_numpy(np.float64, na_value=np.nan)
    known = ~np.isnan(values).any(axis=1)
    points = values[known]
    front = pd.Series(pd.NA, index=table.index, dtype="boolean", name="on_front")
    front[known] = ~_beaten(points, points)
    if at_least:
        bounds = table.assign(**{name: table[name].fillna(table[bound]) for name, bound in at_least.items()})
        unsure = np.flatnonzero(known)[_beaten(points, bounds[list(columns)].to_numpy(np.float64)[~known])]
        front.iloc[unsure[front.iloc[unsure].to_numpy(bool)]] = pd.NA
    return front


def _beaten(points: np.ndarray, by: np.ndarray) -> np.ndarray:
    return np.array([((by <= p).all(axis=1) & (by < p).any(axis=1)).any() for p in points], dtype=bool)
