"""A generated log at its own clock: a month of it, more of it, or several such logs laid over each other.

A month is four whole weeks: each weekday is in it four times. Whoever asks for more weeks gets those that follow, as
far as the log is whole and busy, then those before the month, then the same weeks of another log with the same
statistics (another seed): so weekdays go on, and no job comes twice. A layer is such a log again, at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from traces.errors import TraceError
from traces.offered_load import WEEK_S, hashes
from traces.select import MOST_JOBS
from traces.synthetic.generate import Generator, about, as_text, checked, in_order
from traces.trace import Trace

MONTH_WEEKS = 4
_OTHERS = 53
"""Stream of the seeds of further logs."""


def month(
    name: str, seed: int = 0, options: Mapping[str, str] | None = None, weeks: int = MONTH_WEEKS, layers: int = 1,
    keep: float = 1.0,
) -> Trace:
    """The month of a log and what follows it, `weeks` in all, of `layers` logs.

    Parameters
    ----------
    name, seed, options
        See `traces.synthetic.generate.generate`.
    keep : float
        Share of the jobs, above 0: those with the smallest hashes of seed and id, see `traces.stretch`.

    Raises
    ------
    TraceError
        See `generate`; or more jobs than a trace may have.

    Examples
    --------
    >>> trace = month("philly")
    >>> len(trace), round(float(trace.submit_s[-1]) / 86_400, 1)
    (19572, 28.0)
    """
    options = options or {}
    generator = checked(name, seed, options)
    jobs = generator.log_jobs(**options)
    first, begin, end = (week * WEEK_S for week in generator.weeks)
    period_s = end - first
    parts = []
    for number in range(logs_needed(name, generator, jobs, weeks, layers, keep) * layers):
        turn = number // layers
        columns = in_order(name, jobs, further_seed(seed, number), options)
        submit_s = columns["submit_s"]
        moved = (submit_s - begin) % period_s + turn * period_s
        rows = np.flatnonzero((submit_s >= first) & (submit_s < end) & (moved < weeks * WEEK_S))
        job_id = np.array([f"{job}{mark(number)}" for job in rows.tolist()], dtype=object)
        if keep < 1:
            few = hashes(job_id, seed) < keep * 2.0**64
            rows, job_id = rows[few], job_id[few]
        taken = {key: as_text(values[rows]) for key, values in (columns | {"submit_s": moved}).items()}
        parts.append(taken | {"job_id": job_id})
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    made = len(columns["job_id"])
    return Trace.from_columns(columns, about(name, made, seed, options, weeks * WEEK_S))


def logs_needed(name: str, generator: Generator, jobs: int, weeks: int, layers: int, keep: float) -> int:
    """How many logs of so many jobs, one after another, have so many weeks.

    Raises
    ------
    TraceError
        More jobs than a trace may have.
    """
    rounds = math.ceil(weeks / (generator.weeks[2] - generator.weeks[0]))
    if (most := jobs * rounds * layers * keep) > MOST_JOBS:
        raise TraceError("too many jobs", where=f"synthetic {name!r}", got=f"{most:,.0f}",
                         allowed=f"up to {MOST_JOBS:,}", todo="Ask for fewer jobs, or a load nearer to the log's.")
    return rounds


def further_seed(seed: int, number: int) -> int:
    """The seed of the log of that number: the first has the one that was asked for."""
    return int(np.random.default_rng([seed, _OTHERS, number]).integers(2**62)) if number else seed


def mark(number: int) -> str:
    """What the ids of the log of that number end with."""
    return f"~{number}" if number else ""
