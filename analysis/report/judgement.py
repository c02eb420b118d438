"""Which run of a page is best at what: only where the runs can be judged by each other, and beyond the interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.compare import compare
from analysis.compare.comparison import Comparison
from analysis.metrics.jobtimes import finished
from analysis.run import Run, RunError

INTERVALS = {
    "jct_mean_s": ("jct_ratio_low", "jct_ratio_high", 1.0),
    "queue_mean_s": ("queue_change_low_s", "queue_change_high_s", 0.0),
    "jobs_cost_usd": ("cost_ratio_low", "cost_ratio_high", 1.0),
}
"""What a comparison has intervals of, less being better: their ends, and what is no change."""
MEASURED = {"jct_mean_s": "jct_mean_s", "queue_mean_s": "queue_mean_s", "cost_usd": "jobs_cost_usd"}
"""Measures of a run that are these values of a comparison where the same jobs finished in all runs."""


@dataclass(frozen=True)
class Judgement:
    """What can be said of the runs of a page side by side.

    Attributes
    ----------
    found : each run against the first; None for one run, or where they cannot be compared.
    refused : why they cannot be; empty where they can.
    unlike : why no number of finished jobs tells one policy from the other; empty where the same jobs finished in all.
    best : for a measure the run (its number) that is better than each other one beyond the interval.
    """

    found: Comparison | None = None
    refused: str = ""
    unlike: str = ""
    best: dict[str, int] = field(default_factory=dict)


def judge(runs: Sequence[Run], names: Sequence[str]) -> Judgement:
    """Compare the runs of a page, and say which is best at what if that can be said."""
    if len(runs) < 2:
        return Judgement()
    try:
        found = compare(runs)
    except RunError as error:
        # Its advice is for a command line that has an option for this.
        refused = "; ".join([error.what, *([f"got {error.got}"] if error.got is not None else [])])
        return Judgement(refused=refused, unlike=f"Not judged by each other ({refused}): numbers and charts of "
                         "finished jobs are of other jobs under each run, and none is marked as best.")
    if len(found.table) < len(runs):
        return Judgement(found, unlike="The runs are of several traces or seeds: two of them differ by more than "
                         "their policy, and none is marked as best. The comparison is by policy.")
    if found.left_out:
        counts = ", ".join(f"{name} {int(finished(run).sum()):,} of {int(run.counted.sum()):,}"
                           for name, run in zip(names, runs, strict=True))
        return Judgement(found, unlike=f"Not the same jobs finished under each run ({counts}): means, percentiles and "
                         "charts of finished jobs are of other jobs under each, so none is marked as best. The "
                         f"comparison is over the {found.paired:,} that finished under all.")
    return Judgement(found, best=_best(runs, found))


def _best(runs: Sequence[Run], found: Comparison) -> dict[str, int]:
    best, against = {}, {0: found}
    for measure, key in MEASURED.items():
        values = found.table[key].to_numpy(np.float64, na_value=np.nan)
        if np.isnan(values).any() or (measure == "cost_usd" and not _all_of_it(found)):
            continue
        low, high, none = INTERVALS[key]
        i = int(values.argmin())
        if i > 0 and len(runs) == 2:
            surely = bool((found.table[high].iloc[1:] < none).all())
        else:
            if i not in against:
                against[i] = compare([runs[i], *(run for k, run in enumerate(runs) if k != i)])
            surely = bool((against[i].table[low].iloc[1:] > none).all())
        if surely:
            best[measure] = i
    return best


def _all_of_it(found: Comparison) -> bool:
    """The cost of the runs is that of the jobs compared: no other job cost anything."""
    of_runs = found.table["cost_usd"].to_numpy(np.float64, na_value=np.nan)
    return np.allclose(of_runs, found.table["jobs_cost_usd"].to_numpy(np.float64), rtol=1e-9)
