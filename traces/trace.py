"""Trace: immutable columns, sorted by submit time, validated once.

A job is a row number. Rows are ordered by (submit_s, job_id in shortlex order), so that the order of rows in
a file never changes a result; shortlex (shorter first, then by text) puts job 9 before job 10.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traces.across import Where, check_across, let_go
from traces.columns import BY_NAME, COLUMNS, Column, shared
from traces.errors import TraceError, did_you_mean
from traces.late import pd


@dataclass(frozen=True)
class Provenance:
    """Where a trace comes from and what its reader did: printed with each result, kept in run.json.

    `counts` has one entry for each kind of row that was dropped, repaired or read in a special way, in the
    words that the user sees: {"CPU-only jobs dropped": 12}; `first` has the places of its first rows ("line 7"),
    see `traces.reading.tally.Tally`. `rule` states what duration_s is in this trace; `options` are those of the reader,
    as used, and `sha256` is that of the file. `epoch_s` is the POSIX time of submit_s = 0, None where the source has no
    calendar; hours and weekdays are to be read in zone `tz`; where not `date_is_real` they are true and the date is
    made up. `rates` says at whose rates work_iters were counted, where not at those of this simulator: at other rates
    they are other work. `window_s` is when the log begins and ends, on the clock of submit_s, where that is known.
    """

    source: str = "memory"
    format: str = "canonical"
    rule: str = "duration_s as given"
    seed: int | None = None
    rows_read: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    epoch_s: float | None = None
    first: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    sha256: str = ""
    tz: str = "UTC"
    date_is_real: bool = True
    window_s: tuple[float, float] | None = None
    rates: str = ""


@dataclass(frozen=True, eq=False)
class Trace:
    """The canonical job table. Each attribute named in `traces.columns.COLUMNS` is a read-only array.

    Build one with `Trace.from_columns`, which validates; text columns are object arrays of `str`.
    """

    job_id: np.ndarray
    submit_s: np.ndarray
    duration_s: np.ndarray
    num_gpus: np.ndarray
    gpu_milli: np.ndarray
    worker_gpus: np.ndarray
    gpu_type: np.ndarray
    vc: np.ndarray
    user: np.ndarray
    group: np.ndarray
    recurrence: np.ndarray
    status: np.ndarray
    attempts: np.ndarray
    cut: np.ndarray
    estimate_s: np.ndarray
    wait_s: np.ndarray
    deadline_s: np.ndarray
    deadline_kind: np.ndarray
    priority: np.ndarray
    cpus: np.ndarray
    memory_gib: np.ndarray
    min_gpus: np.ndarray
    max_gpus: np.ndarray
    model: np.ndarray
    batch_size: np.ndarray
    min_batch_size: np.ndarray
    max_batch_size: np.ndarray
    work_iters: np.ndarray
    provenance: Provenance = Provenance()

    def __len__(self) -> int:
        return len(self.job_id)

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, Any], provenance: Provenance | None = None, *,
        rows: np.ndarray | None = None, row_word: str = "row",
    ) -> Trace:
        """Validate and sort columns.

        Parameters
        ----------
        columns : mapping of column name to sequence
            Required: job_id, submit_s, duration_s, num_gpus. Others get their default.
        provenance : Provenance
            Its `source` opens each message.
        rows : int array, optional
            Row number in the source file of each entry, for messages (default 1, 2, …).
        row_word : str
            What `rows` counts, in the user's words: "row", "line", "job".

        Raises
        ------
        TraceError
            Unknown or missing column, no rows, a value that its rule does not allow, a duplicate id, values of a job
            that do not agree (`traces.across.check_across`); the message names the source, the first bad row, the
            column, what was found and what is allowed.

        Examples
        --------
        >>> trace = Trace.from_columns(
        ...     {"job_id": ["late", "early"], "submit_s": [30, 0], "duration_s": [600, 60], "num_gpus": [4, 1]})
        >>> trace.job_id.tolist(), trace.gpu_milli.tolist()
        (['early', 'late'], [1000, 1000])
        """
        provenance = provenance or Provenance()
        where = provenance.source
        for name in columns:
            if name not in BY_NAME:
                raise TraceError(
                    "unknown column", where=where, got=name, allowed=", ".join(BY_NAME),
                    todo=did_you_mean(name, BY_NAME),
                )
        for column in COLUMNS:
            if column.required and column.name not in columns:
                raise TraceError(
                    f"column {column.name!r} is missing", where=where, got=", ".join(columns),
                    allowed="a column of that name", todo="Rename the column, or name the right --format.",
                )
        n = len(next(iter(columns.values())))
        if n == 0:
            dropped = ", ".join(f"{k}: {v}" for k, v in provenance.counts.items())
            raise TraceError(
                "the trace has no jobs", where=where, allowed="at least one row",
                got=f"0 of {provenance.rows_read} rows" + (f" ({dropped})" if dropped else ""),
                todo="Check the file and the filters.",
            )
        at = Where(where, row_word, np.arange(1, n + 1) if rows is None else np.asarray(rows))
        return cls._of(columns, {}, n, at, provenance)

    @classmethod
    def _of(
        cls, columns: Mapping[str, Any], sound: Mapping[str, np.ndarray], n: int, at: Where, provenance: Provenance,
    ) -> Trace:
        """Columns that are known and of one length, checked and sorted; `sound`: those of a trace, which are."""
        given, out = BY_NAME.keys() - sound.keys(), {}
        blank: dict[tuple[str, str], np.ndarray] = {}
        for c in COLUMNS:
            if c.name in sound:
                out[c.name] = sound[c.name]
            elif (values := columns.get(c.name)) is None and not c.if_said:  # columns of one default are one array
                kind = c.dtype, str(c.default)
                out[c.name] = blank[kind] = blank[kind] if kind in blank else c.defaults(n)
            else:
                out[c.name] = _checked(c, values, n, at)
        check_across(out, at, given)
        if given & {"submit_s", "job_id"}:
            order = _order(out["submit_s"], out["job_id"])
            if not (order[1:] > order[:-1]).all():
                for name, values in columns.items():
                    if values is not None:  # a default is the same in any order
                        out[name] = out[name][order]
        for values in out.values():
            values.flags.writeable = False
        return cls(**out, provenance=provenance)

    def select(self, rows: np.ndarray | slice) -> Trace:
        """Return the trace of some rows (a mask, indices or a slice), order kept."""
        arrays: dict[str, np.ndarray] = {}
        taken: dict[int, np.ndarray] = {}  # columns of one default stay one array
        for c in COLUMNS:
            values = getattr(self, c.name)
            if shared(values):
                arrays[c.name] = c.defaults(len(arrays["job_id"]))
            else:
                arrays[c.name] = taken[id(values)] = taken[id(values)] if id(values) in taken else values[rows].copy()
            arrays[c.name].flags.writeable = False
        return Trace(**arrays, provenance=self.provenance)

    def replace(self, provenance: Provenance | None = None, **columns: Any) -> Trace:
        """Return a trace with some columns replaced (validated, and sorted anew where they say when or who).

        The others are those of this trace: they are neither checked again nor copied. A job that is given another
        num_gpus or batch_size outside its own bounds has none any more, and one that loses its deadline has no kind of
        deadline, unless these are given, too.
        """
        said = self.said()
        new = let_go(said | columns, columns)
        if not new.keys() <= BY_NAME.keys():
            return Trace.from_columns(new, provenance or self.provenance)  # which says what is wrong
        sound = {name: values for name, values in said.items() if new[name] is values}
        about = provenance or self.provenance
        return Trace._of(new, sound, len(self), Where(about.source, "row", np.arange(1, len(self) + 1)), about)

    def said(self) -> dict[str, np.ndarray]:
        """The columns by name; those that are there only `if_said` (`Column`) only where some job says something."""
        return {c.name: getattr(self, c.name) for c in COLUMNS if not c.if_said or c.said(getattr(self, c.name))}

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a pandas frame (a copy)."""
        return pd.DataFrame({c.name: getattr(self, c.name).copy() for c in COLUMNS})

    def content_hash(self) -> str:
        """SHA-256 (hex) of the columns that are `said`, in row order: equal traces, equal hash, in any process."""
        digest = hashlib.sha256()
        for name, values in self.said().items():
            digest.update(name.encode())
            if BY_NAME[name].dtype == "text":
                digest.update("\0".join(values).encode("utf-8", "surrogatepass"))
            else:
                digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


#: Longest id, in characters, that is put into a table of fixed width.
SHORT_ID = 64


def _order(submit_s: np.ndarray, job_id: np.ndarray) -> np.ndarray:
    """Row order: submit time, then id in shortlex order. Ids are compared only where times are equal."""
    order = np.argsort(submit_s, kind="stable")
    same = submit_s[order][1:] == submit_s[order][:-1]
    tied = np.append(same, False) | np.insert(same, 0, False)
    rows = order[tied]
    ids = job_id[rows]
    length = np.fromiter(map(len, ids.tolist()), dtype=np.int64, count=len(rows))
    if length.max(initial=0) <= SHORT_ID:  # as a table of code points: many times faster than one by one
        order[tied] = rows[np.lexsort((ids.astype(str), length, submit_s[rows]))]
    else:
        keys = list(zip(submit_s[rows].tolist(), length.tolist(), ids.tolist(), strict=True))
        order[tied] = rows[sorted(range(len(keys)), key=keys.__getitem__)]
    return order


def _checked(column: Column, values: Any, n: int, at: Where) -> np.ndarray:
    """One column as its own dtype, each value within its rule."""

    def bad(index: int, got: object) -> TraceError:
        return TraceError("value not allowed", where=at(index, column.name), got=got,
                          allowed=column.allowed, todo="Correct the row or drop it.")

    if values is None:
        return column.defaults(n)
    raw = np.asarray(values)
    if raw.shape != (n,):
        raise TraceError("columns differ in length", where=f"{at.source}, column {column.name!r}",
                         got=raw.shape, allowed=f"({n},)")
    if column.dtype == "text":
        text = _as_text(raw)
        if column.required and len(empty := np.flatnonzero(text == "")):
            raise bad(int(empty[0]), "")
        return text
    try:
        number = raw.astype(np.float64)  # a copy, always: the caller keeps its array
    except (TypeError, ValueError):
        index = next(i for i, v in enumerate(raw) if not _is_number(v))
        raise bad(index, raw[index]) from None
    finite = np.isfinite(number) | (np.isnan(number) if column.nan_ok else False)
    wrong = ~finite | (number < column.low) | (number > column.high)
    if column.dtype.startswith("int"):
        wrong |= number != np.floor(number)
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        raise bad(index, raw[index].item() if isinstance(raw[index], np.generic) else raw[index])
    return number.astype(column.dtype, copy=False)


def _as_text(raw: np.ndarray) -> np.ndarray:
    """Return an object array of `str`, always a new one; None and NaN become the empty string."""
    if raw.dtype == object:
        if set(map(type, raw)) == {str}:
            return raw.copy()
        text = np.empty(len(raw), dtype=object)
        text[:] = ["" if _blank(v) else str(v) for v in raw]
        return text
    return np.where(np.isnan(raw), "", raw.astype(str)).astype(object) if raw.dtype.kind == "f" \
        else raw.astype(str).astype(object)


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _blank(value: object) -> bool:
    no_value = getattr(sys.modules.get("pandas"), "NA", None)  # who has it has imported pandas
    return value is None or value is no_value or (isinstance(value, float) and np.isnan(value))
