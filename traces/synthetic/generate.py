"""Made-up workloads with the statistics of published ones: what is replayed where no trace is at hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traces.errors import TraceError, did_you_mean
from traces.synthetic.pai import pai_columns
from traces.synthetic.philly import philly_columns
from traces.trace import Provenance, Trace

Generator = Callable[[int, int], dict[str, np.ndarray]]
"""jobs, seed -> columns without job_id."""

GENERATORS: dict[str, Generator] = {"philly": philly_columns, "pai": pai_columns}

MOST_JOBS = 20_000_000


def generate(name: str, jobs: int, seed: int = 0) -> Trace:
    """Make a trace of `jobs` jobs that looks like a published one.

    The arrival rate is that of the original whatever the number of jobs; `traces.load.scale_load` fits it to
    a cluster. The same name, number and seed give the same bytes in any process; another number of jobs gives
    another trace, not a longer one. Ids count jobs in the order of submission.

    Parameters
    ----------
    name : {"philly", "pai"}
        See `traces.synthetic.philly` and `traces.synthetic.pai` for what is fitted and what is left out.
    jobs : int
        From 1 to `MOST_JOBS`.
    seed : int
        From 0.

    Raises
    ------
    TraceError
        Unknown name, or a number out of range.
    """
    if name not in GENERATORS:
        raise TraceError("unknown synthetic trace", got=name, allowed=", ".join(GENERATORS),
                         todo=did_you_mean(name, GENERATORS))
    if not 1 <= jobs <= MOST_JOBS:
        raise TraceError("value not allowed", where=f"synthetic {name!r}, jobs", got=jobs,
                         allowed=f"an integer from 1 to {MOST_JOBS}")
    if seed < 0:
        raise TraceError("value not allowed", where=f"synthetic {name!r}, seed", got=seed,
                         allowed="an integer from 0")
    columns = GENERATORS[name](jobs, seed)
    order = np.argsort(columns["submit_s"], kind="stable")
    columns = {key: values[order] for key, values in columns.items()}
    columns["job_id"] = np.arange(jobs).astype(str).astype(object)
    provenance = Provenance(
        source=f"synthetic {name}", format="synthetic", seed=seed, rows_read=jobs,
        rule="duration_s drawn from mixtures fitted to published run times",
        notes=("submit_s = 0 is a Monday, 00:00 " + ("UTC+8" if name == "pai" else "UTC"),),
    )
    return Trace.from_columns(columns, provenance)
