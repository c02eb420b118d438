"""Times of jobs: completion, waiting, slowdown, deadlines. NaN for a job that has no such time.

Only jobs that count do so (`Run.counted`): of which the log shows all, and in a measuring window those submitted in it.
What takes more of them than
their row of jobs.parquet has is `of_life`: where a window follows its jobs, their whole life.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import pyarrow.compute as pc

from analysis.run import FINISHED, Run
from traces.arrow import as_numpy, column, word
from traces.late import pd

SLOWDOWN_BOUND_S = 10.0


def of_life(work: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The function of a run (and further arguments) to an entry a job. Of a window that follows its jobs, it is worked
    out on the whole run, in which the same jobs count."""

    @wraps(work)
    def found(run: Run, *arguments: Any) -> np.ndarray:
        if run.followed is None:
            return work(run, *arguments)
        whole, rows = run.followed
        of_whole: np.ndarray = work(whole, *arguments)[rows]
        return of_whole

    return found


def whole_life(run: Run) -> Run:
    """The run in which the jobs that count are seen for as long as the run's numbers see them: a window's whole run
    where it follows its jobs, else the run itself."""
    return run if run.followed is None else run.followed[0]


def in_state(run: Run, *states: str) -> np.ndarray:
    """bool [jobs]: the job counts and stands so at the end of the run (words of `sim.results.schema.STATES`)."""
    found: np.ndarray = as_numpy(pc.is_in(run.tables["jobs"]["state"], column(states))) & run.counted
    return found


def finished(run: Run) -> np.ndarray:
    """bool [jobs]: the job counts and left after its work, as done, killed or failed (as the trace says it ended)."""
    return in_state(run, *FINISHED)


def gpus_asked(run: Run) -> np.ndarray:
    """float64 [jobs]: GPUs that each job asks for, ``num_gpus * gpu_milli / 1000``; a share of one is that share."""
    asked: np.ndarray = run.column("jobs", "num_gpus") * run.column("jobs", "gpu_milli") / 1000.0
    return asked


def jct_s(run: Run) -> np.ndarray:
    """Job completion time of each job, in s: ``end_s - submit_s``; NaN for a job that did not finish."""
    return np.where(finished(run), run.column("jobs", "end_s") - run.column("jobs", "submit_s"), np.nan)


def of_jobs(run: Run, per_segment: np.ndarray) -> np.ndarray:
    """float64 [jobs]: sum of a value of segments over each job's segments."""
    job = run.segment_job
    total: np.ndarray = np.bincount(job[job >= 0], weights=per_segment[job >= 0], minlength=len(run.counted))
    return total


@of_life
def queue_s(run: Run) -> np.ndarray:
    """Time that each finished job waited, in s: JCT minus the time in its segments; NaN for other jobs.

    Summed as the gaps before the first and between further segments, which is the same number but exactly 0
    for a job that never waited.
    """
    job, n = run.segment_job, len(run.counted)
    begin, end = run.column("segments", "begin_s"), run.column("segments", "end_s")
    order = np.lexsort((begin, job))
    order = order[job[order] >= 0]
    job, begin, end = job[order], begin[order], end[order]
    first = np.ones(len(job), dtype=bool)
    first[1:] = job[1:] != job[:-1]
    submit = run.column("jobs", "submit_s")
    ready = np.where(first, submit[job], np.concatenate((begin[:1], end[:-1])))
    waited = np.bincount(job, weights=begin - ready, minlength=n)
    last = submit.astype(float)
    last[job] = end
    return np.where(finished(run), waited + (run.column("jobs", "end_s") - last), np.nan)


def slowdown(run: Run) -> np.ndarray:
    """Slowdown of each finished job without a bound, ``JCT / duration_s``; NaN for other jobs and where that is 0.

    NaN, too, where it is so small that no number holds the ratio.
    Below 1 where a job ran on GPUs faster than those on which its run time was recorded. Source: Feitelson and
    Rudolph, "Metrics and Benchmarking for Parallel Job Scheduling", JSSPP 1998.
    """
    duration = run.column("jobs", "duration_s")
    with np.errstate(over="ignore"):
        ratio: np.ndarray = jct_s(run) / np.where(duration > 0, duration, np.nan)
    ratio[np.isinf(ratio)] = np.nan
    return ratio


def bounded_slowdown(run: Run, bound_s: float = SLOWDOWN_BOUND_S) -> np.ndarray:
    """Bounded slowdown of each finished job, ``max(1, JCT / max(duration_s, bound_s))``; NaN for other jobs.

    `duration_s` is the recorded run time: what the job takes on its reference GPUs with no queue. The bound
    keeps very short jobs from ruling the mean. Source: Feitelson and Rudolph, "Metrics and Benchmarking for
    Parallel Job Scheduling", JSSPP 1998.
    """
    ratio: np.ndarray = jct_s(run) / np.maximum(run.column("jobs", "duration_s"), bound_s)
    bounded: np.ndarray = np.maximum(ratio, 1.0)
    return bounded


def makespan_s(run: Run) -> float | None:
    """First submit to the last time at which a job gave back GPUs, in s, of the jobs submitted in the window, those
    that the log cuts off, too; None where none ran, and in a measuring window that some of them outlast (it would say
    how long the window is).
    """
    if outlasting(run).any():
        return None
    seen = whole_life(run)
    job = seen.segment_job
    end = seen.column("segments", "end_s")[(job >= 0) & seen.asked[job]]
    return float(end.max() - seen.column("jobs", "submit_s")[seen.asked].min()) if len(end) else None


def lateness_s(run: Run) -> np.ndarray:
    """Lateness of each finished job that has a deadline, in s: ``end_s - deadline_s``, negative where early."""
    return np.where(finished(run), run.column("jobs", "end_s") - run.column("jobs", "deadline_s"), np.nan)


def censored(run: Run) -> np.ndarray:
    """bool [jobs]: the job counts, and outlasts the measuring window, which does not follow it."""
    found: np.ndarray = outlasting(run) & run.counted
    return found


def unfinished(run: Run) -> np.ndarray:
    """bool [jobs]: submitted in the window and unfinished, whether or not the log shows all of it."""
    found: np.ndarray = as_numpy(pc.equal(run.tables["jobs"]["state"], word("unfinished"))) & run.asked
    return found


def outlasting(run: Run) -> np.ndarray:
    """bool [jobs]: of these, those that outlast a measuring window, which does not follow them."""
    window = run.info.get("window", {"to_the_end": True})
    return unfinished(run) & (run.followed is None and not window["to_the_end"])


def ends_badly(run: Run) -> np.ndarray:
    """bool [jobs]: the job ends as killed or failed, by the end of the whole run; whether or not it counts."""
    whole, rows = run.life or (run, slice(None))
    state = whole.tables["jobs"]["state"]
    bad: np.ndarray = as_numpy(pc.is_in(state, column(("killed", "failed"))))[rows]
    return bad


@of_life
def preempted(run: Run) -> np.ndarray:
    """int64 [jobs]: how often each job was put back into the queue."""
    stopped = as_numpy(pc.equal(run.tables["segments"]["end_reason"], word("preempted")))
    return of_jobs(run, stopped.astype(float)).astype(np.int64)


def deadline_met(run: Run) -> pd.Series:
    """Whether each job met its deadline, ``end_s <= deadline_s`` (nullable boolean, a row a job).

    A job met it if it ran to its recorded end by then, whatever the trace calls that end (done, killed, failed:
    the same work was replayed). It missed it if it was turned away, or is unfinished past it. Null where there is
    no deadline, the job does not count, or the run or its window ends before the deadline of an unfinished job.
    """
    met, known = _met(run)
    found = pd.array(met, dtype="boolean")
    found[~known] = pd.NA
    return pd.Series(found)


def deadlines_met(run: Run) -> np.ndarray:
    """bool, whether each deadline was met of which that is known (`deadline_met`)."""
    met, known = _met(run)
    kept: np.ndarray = met[known]
    return kept


def _met(run: Run) -> tuple[np.ndarray, np.ndarray]:
    deadline = run.column("jobs", "deadline_s")
    missed = run.turned_away | (in_state(run, "unfinished") & (deadline < whole_life(run).window_s[1]))
    known = ~np.isnan(deadline) & (finished(run) | missed) & run.counted
    return np.where(known, lateness_s(run) <= 0, False), known


def weighted_jct_s(run: Run) -> float | None:
    """Mean JCT weighted by `priority`, in s: ``sum(w * JCT) / sum(w)`` over finished jobs; None without weights.

    The objective ``sum(w_j C_j)`` of scheduling theory, divided by the weights. Source: Graham et al.,
    "Optimization and Approximation in Deterministic Sequencing and Scheduling", 1979.
    """
    done = finished(run)
    weight, jct = run.column("jobs", "priority")[done], jct_s(run)[done]
    total = float(weight.sum()) if len(weight) else 0.0
    return float(weight @ jct) / total if total > 0 else None
