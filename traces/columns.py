"""The canonical job table: the one place that names its columns, units, defaults and rules.

A trace has one row a job. Every reader ends here, every generator ends here, and the simulator reads
nothing else. Units are part of the names. Ids are text, always: a number above 2**53 must not collapse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.given_back import zeros

#: What a job's log says of its end, and the map from each source's own words (docs/traces.md).
STATUSES = ("passed", "killed", "failed", "unknown")

#: What a deadline means. strict: worth nothing once it has passed; soft: worth less. Blank is strict: the published
#: traces that name no kind only know met and missed.
DEADLINE_KINDS = ("", "strict", "soft")

#: What a log shows of a job. Blank: all of it; before: it was there when the log (or the part of it that was taken)
#: began, so that its wait is unknown and its run time a lower bound (censored on the left); after: it still ran when
#: the log ended, so that its run time is a lower bound (censored on the right); both.
CUTS = ("", "before", "after", "both")

#: Largest time that is taken seriously, in seconds (about 3,170 years): beyond it the unit is wrong.
MAX_TIME_S = 1e11


@dataclass(frozen=True)
class Column:
    """One column: its dtype ("text" or a NumPy dtype), unit, default (None: required), and bounds or choices.

    A column that is there only `if_said` costs nothing where no job has other than its default: the trace holds one
    value for all jobs, and neither files nor hashes have the column, so that they are those of a trace without it.
    """

    name: str
    dtype: str
    unit: str
    meaning: str
    default: object = None
    low: float = -np.inf
    high: float = np.inf
    nan_ok: bool = False
    choices: tuple[str, ...] = ()
    if_said: bool = False

    @property
    def required(self) -> bool:
        return self.default is None

    @property
    def allowed(self) -> str:
        """The rule in words, for messages."""
        if self.choices:
            return ", ".join(choice or "blank" for choice in self.choices)
        if self.dtype == "text":
            return "text" if not self.required else "non-empty, unique text"
        kind = "an integer" if self.dtype.startswith("int") else "a finite number"
        text = f"{kind} from {self.low:g} to {self.high:g}"
        return text + ", or blank for unknown" if self.nan_ok else text

    def defaults(self, jobs: int) -> np.ndarray:
        """The default for each job; of a column that is there only `if_said`, one shared value, read-only."""
        dtype = object if self.dtype == "text" else self.dtype
        if self.if_said:
            return np.broadcast_to(np.array(self.default, dtype=dtype), jobs)
        if self.default == 0:
            return zeros(jobs, dtype)
        return np.full(jobs, self.default, dtype=dtype)

    def nothing(self, values: np.ndarray) -> np.ndarray:
        """bool[jobs]: where a job has the default."""
        return np.asarray(np.isnan(values) if self.nan_ok else values == self.default, dtype=bool)

    def said(self, values: np.ndarray) -> bool:
        """Whether some job has other than the default."""
        return not self.nothing(values[:1] if shared(values) else values).all()


def shared(values: np.ndarray) -> bool:
    """Whether all jobs have one value that is kept once (see `Column.defaults`)."""
    return values.strides == (0,)


COLUMNS: tuple[Column, ...] = (
    Column("job_id", "text", "", "unique name of the job"),
    Column("submit_s", "float64", "s", "when the job enters the queue", low=-MAX_TIME_S, high=MAX_TIME_S),
    Column("duration_s", "float64", "s", "recorded run time (queueing not included)", low=0, high=MAX_TIME_S),
    Column("num_gpus", "int32", "GPU slots", "gang size: slots that start together", low=1, high=1_000_000),
    Column("gpu_milli", "int32", "1/1000 GPU", "share of a GPU that each slot takes", 1000, 1, 1000),
    Column(
        "worker_gpus",
        "int32",
        "GPU slots",
        "slots that must lie on one node together; divides num_gpus",
        1,
        1,
        1_000_000,
    ),
    Column("gpu_type", "text", "", "GPU types the job may run on, joined by '|'; empty: any", ""),
    Column("vc", "text", "", "virtual cluster (tenant) that the job belongs to", ""),
    Column("user", "text", "", "who submitted the job", ""),
    Column(
        "group", "text", "", "name that jobs submitted as one share, such as a parameter search; empty: alone", "",
        if_said=True,
    ),
    Column(
        "recurrence", "text", "", "the recurring job that this is a run of; empty: none is known", "", if_said=True
    ),
    Column("status", "text", "", "how the recorded job ended", "unknown", choices=STATUSES),
    Column("attempts", "int32", "", "how often the recorded job was tried; all but the last failed", 1, 1, 10_000),
    Column(
        "cut", "text", "", "what the log does not show of the job: before: it was there when the log began; after: it "
        "still ran when the log ended; both; blank: it shows all", "", choices=CUTS, if_said=True,
    ),
    Column("estimate_s", "float64", "s", "run time that the user announced", np.nan, 0, MAX_TIME_S, nan_ok=True),
    Column("wait_s", "float64", "s", "recorded time from submission to start", np.nan, 0, MAX_TIME_S, nan_ok=True),
    Column(
        "deadline_s", "float64", "s", "when the job should have ended, on the clock of submit_s", np.nan, -MAX_TIME_S,
        MAX_TIME_S, nan_ok=True,
    ),
    Column(
        "deadline_kind", "text", "", "strict: worth nothing after deadline_s; soft: worth less; blank: strict", "",
        choices=DEADLINE_KINDS, if_said=True,
    ),
    Column("priority", "float64", "", "weight of the job: a larger one matters more", 1.0, 0, 1e9),
    Column(
        "cpus", "float64", "CPU cores", "CPU cores asked for, all workers together", np.nan, 0, 1e9, nan_ok=True,
        if_said=True,
    ),
    Column(
        "memory_gib", "float64", "GiB", "host memory asked for, all workers together", np.nan, 0, 1e9, nan_ok=True,
        if_said=True,
    ),
    Column(
        "min_gpus", "int32", "GPU slots", "fewest slots that the job may be resized to; 0: not elastic", 0, 0,
        1_000_000, if_said=True,
    ),
    Column(
        "max_gpus", "int32", "GPU slots", "most slots that the job may be resized to; 0: not elastic", 0, 0, 1_000_000,
        if_said=True,
    ),
    Column("model", "text", "", "model of the zoo that the job trains; empty: unknown", ""),
    Column(
        "batch_size",
        "int32",
        "samples",
        "global batch: samples an iteration, all GPUs together; 0: unknown",
        0,
        0,
        2**31 - 1,
    ),
    Column(
        "min_batch_size", "int32", "samples", "smallest global batch that the job may be given; 0: fixed", 0, 0,
        2**31 - 1, if_said=True,
    ),
    Column(
        "max_batch_size", "int32", "samples", "largest global batch that the job may be given; 0: fixed", 0, 0,
        2**31 - 1, if_said=True,
    ),
    Column(
        "work_iters", "float64", "iterations", "iterations to run; blank: from duration_s", np.nan, 0, 1e15, nan_ok=True
    ),
)
BY_NAME: dict[str, Column] = {c.name: c for c in COLUMNS}
REQUIRED: tuple[str, ...] = tuple(c.name for c in COLUMNS if c.required)
