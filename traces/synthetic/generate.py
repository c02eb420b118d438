"""Made-up workloads with the statistics of published ones: what is replayed where no trace is at hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from traces.errors import TraceError, did_you_mean
from traces.synthetic.acme import acme_columns, acme_jobs
from traces.synthetic.helios import helios_columns, helios_jobs
from traces.synthetic.pai import pai_columns, pai_jobs
from traces.synthetic.philly import philly_columns, philly_jobs
from traces.trace import Provenance, Trace
from traces.words import Worded

Columns = Callable[..., Mapping[str, np.ndarray | Worded]]
"""jobs, seed, *, options -> columns without job_id. Options are keywords with a default, each of them text."""


@dataclass(frozen=True)
class Generator:
    """A published trace to be like.

    `tz` is the time zone that its hours are read in, `clock` how that is written. The log has `log_jobs` jobs (of the
    options given); of its weeks, those from the first of `weeks` up to the last are whole and busy, and its month
    begins with the one in the middle: see `traces.synthetic.month`.
    """

    columns: Columns
    log_jobs: Callable[..., int]
    weeks: tuple[int, int, int]
    tz: str
    clock: str

    @property
    def options(self) -> dict[str, str]:
        """Names of its options and their defaults."""
        known = inspect.signature(self.columns).parameters.values()
        return {p.name: p.default for p in known if p.kind is p.KEYWORD_ONLY}


_SHANGHAI = ((0, 0, 4), "Asia/Shanghai", "UTC+8")
"""Logs that do not drift: any four weeks are a month."""

GENERATORS: dict[str, Generator] = {
    # Of all four whole weeks those from the ninth on (2 to 29 October 2017) are nearest to the log's mean of GPU time;
    # in the first three and the last two hardly anybody is there.
    "philly": Generator(philly_columns, philly_jobs, (3, 8, 14), "UTC", "UTC"),
    "pai": Generator(pai_columns, pai_jobs, *_SHANGHAI),
    "helios": Generator(helios_columns, helios_jobs, *_SHANGHAI),
    "acme": Generator(acme_columns, acme_jobs, *_SHANGHAI),
}

MOST_JOBS = 20_000_000
MOST_KEPT = 100_000
"""Jobs of a log that is kept for who asks for it again: some MiB."""


def generate(name: str, jobs: int, seed: int = 0, **options: str) -> Trace:
    """Make a trace of `jobs` jobs that looks like a published one.

    The arrival rate is that of the original whatever the number of jobs, and all that drifts in the original drifts as
    much (a month at the original's own clock: `traces.synthetic.month`). The same name, number, seed and options give
    the same bytes in any process; another number of jobs gives another trace, not a longer one. Ids count jobs in the
    order of submission.

    Parameters
    ----------
    name : {"philly", "pai", "helios", "acme"}
        See `traces.synthetic.philly` and so on for what is fitted and what is left out.
    jobs : int
        From 1 to `MOST_JOBS`.
    seed : int
        From 0.
    **options : str
        Those of the generator (`GENERATORS[name].options`): of helios and acme the cluster.

    Raises
    ------
    TraceError
        Unknown name or option, or a number out of range.

    Examples
    --------
    >>> trace = generate("philly", 1000, seed=0)
    >>> len(trace), trace.num_gpus[:5].tolist()
    (1000, [1, 1, 1, 2, 1])
    >>> generate("philly", 1000, seed=0).content_hash() == trace.content_hash()
    True
    """
    columns = columns_of(name, jobs, seed, options)
    return Trace.from_columns(columns, about(name, jobs, seed, options, float(columns["submit_s"][-1])))


def about(name: str, jobs: int, seed: int, options: Mapping[str, str], end_s: float) -> Provenance:
    """Where a generated trace comes from."""
    generator = GENERATORS[name]
    return Provenance(
        source=f"synthetic {name}", format="synthetic", seed=seed, rows_read=jobs,
        rule="duration_s drawn from distributions fitted to published run times",
        notes=(f"submit_s = 0 is a Monday, 00:00 {generator.clock}",), tz=generator.tz, date_is_real=False,
        window_s=(0.0, end_s), options={**generator.options, **options},
    )


def columns_of(name: str, jobs: int, seed: int, options: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Columns of a generated trace in the order of submission, which ids count.

    Raises
    ------
    TraceError
        See `generate`.
    """
    checked(name, seed, options)
    if not 1 <= jobs <= MOST_JOBS:
        raise TraceError("value not allowed", where=f"synthetic {name!r}, jobs", got=jobs,
                         allowed=f"an integer from 1 to {MOST_JOBS}")
    columns = {key: as_text(values) for key, values in in_order(name, jobs, seed, options).items()}
    columns["job_id"] = np.array(list(map(str, range(jobs))), dtype=object)
    return columns


def as_text(values: np.ndarray | Worded) -> np.ndarray:
    """A column as a trace has it."""
    return values.text() if isinstance(values, Worded) else values


def in_order(name: str, jobs: int, seed: int, options: Mapping[str, str]) -> dict[str, Any]:
    """The generator's columns in the order of submission; nobody may write into them."""
    make = _kept if jobs <= MOST_KEPT else _kept.__wrapped__
    return dict(make(name, jobs, seed, tuple(options.items())))


@lru_cache(maxsize=1)
def _kept(name: str, jobs: int, seed: int, options: tuple[tuple[str, str], ...]) -> dict[str, np.ndarray | Worded]:
    """The last log, as a month that turns out too short is the first part of something longer."""
    columns = GENERATORS[name].columns(jobs, seed, **dict(options))
    submit_s = columns["submit_s"]
    assert isinstance(submit_s, np.ndarray)
    order = np.argsort(submit_s, kind="stable")
    found = {key: values[order] for key, values in columns.items()}
    for values in found.values():
        (values.number if isinstance(values, Worded) else values).flags.writeable = False
    return found


def checked(name: str, seed: int, options: Mapping[str, str]) -> Generator:
    """The generator of that name, which takes such options.

    Raises
    ------
    TraceError
        Unknown name or option, or a seed below 0.
    """
    if name not in GENERATORS:
        raise TraceError("unknown synthetic trace", got=name, allowed=", ".join(GENERATORS),
                         todo=did_you_mean(name, GENERATORS))
    if seed < 0:
        raise TraceError("value not allowed", where=f"synthetic {name!r}, seed", got=seed,
                         allowed="an integer from 0")
    generator = GENERATORS[name]
    for option in options:
        if option not in generator.options:
            raise TraceError(f"synthetic {name!r} has no such option", got=option,
                             allowed=", ".join(generator.options) or "none",
                             todo=did_you_mean(option, generator.options))
    return generator
