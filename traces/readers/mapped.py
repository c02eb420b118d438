"""A log of one's own: any CSV or Parquet file with a row a job, whose columns and units a map names (--map)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traces.columns import BY_NAME, MAX_TIME_S
from traces.errors import TraceError, did_you_mean
from traces.readers.pai import gang
from traces.readers.rows import MOST_ASKED, job_ids, trace_of
from traces.reading import status
from traces.reading.gpu_types import catalogue_names
from traces.reading.logguess import proposal
from traces.reading.logmap import DATE, EPOCH, FIELDS, INSTANTS, SPANS, WHERE, LogMap, log_map, units_of
from traces.reading.parquet_tables import read_parquet
from traces.reading.reader import PARQUET_MAGIC, Head, Reader
from traces.reading.spans import spans
from traces.reading.stream import joined, pieces
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table, check_header_first, check_text, read_bytes, read_header
from traces.reading.times import AS_NAMED, EARLIEST_S, LATEST_S, any_posix_s, zone_name
from traces.reading.unpack import room_of
from traces.trace import Trace

#: Cells that stand for no number and no time, in lower case.
NOTHING = ("", "none", "null", "nan", "na", "n/a", "nat", "unknown", "-")
#: The delimiters that are told from the header.
TOLD = (",", "\t", ";", "|")


def read_mapped(path: Path, map: str = "") -> Trace:
    """Read a file with a row a job by a map of its columns (`traces.reading.logmap`; docs/traces.md).

    =======================  ==============================================================================
    the map names            becomes
    =======================  ==============================================================================
    submit                   submit_s: of dates, and of times since 1970, from the first that is kept
    duration                 duration_s
    end, and start or wait   duration_s = end - start, wait_s = start - submit
    start, with duration     wait_s = start - submit
    gpus                     num_gpus; below 1: a share, gpu_milli. 0 or blank: dropped and counted
    workers, worker_gpus     num_gpus = workers x worker_gpus, each on one node
    gpus, workers            worker_gpus = gpus / workers where whole, else 1 (counted)
    id; without              job_id; the number of the row
    status                   status, by the map's words, then by those of `traces.reading.status`
    any other field          the column of the job table that is called so
    =======================  ==============================================================================

    Raises
    ------
    TraceError
        There is no map, it names a column that is not there, or not what a trace needs; see also
        `traces.reading.stream.pieces` and `Trace.from_columns`.
    """
    head = Head.of(path)
    header, delimiter = _header(path, head, "")
    if not map.strip():
        raise TraceError("no map of the columns", where=f"{path}, {WHERE}",
                         allowed="NAME=COLUMN:UNIT,…, or a TOML file", todo=f"Perhaps: {proposal(header)}")
    log = log_map(map)
    header, delimiter = _header(path, head, log.delimiter)
    sources = _sources(log, header, path, head)
    _check_needed(log, header, path)
    wanted = [name for name in dict.fromkeys(sources.values()) if name is not None]
    parquet = head.first.startswith(PARQUET_MAGIC)
    table = _parquet(path, wanted) if parquet else joined(
        pieces(path, wanted, delimiter=delimiter, held=True), str(path))
    return _Jobs.of(table, log, sources).trace()


def _header(path: Path, head: Head, delimiter: str) -> tuple[Sequence[str], str]:
    """The names of the columns, and what stands between cells: as named, else what parts the header into most."""
    if head.first.startswith(PARQUET_MAGIC):
        return head.header, ""
    if not head.first.strip():
        raise TraceError("the file is empty", where=str(path), got=f"{len(head.first)} bytes",
                         allowed="a header and at least one row")
    data = head.first.split(b"\n", 1)[0]
    check_text(data, str(path))
    line = data.decode("utf-8")
    told = delimiter or max(TOLD, key=lambda one: len(read_header(line, str(path), (), one)))
    return read_header(line, str(path), (), told), told


def header_of(head: Head) -> Sequence[str]:
    """The names of the columns of any file, whatever stands between them; none where it is no table."""
    try:
        return _header(head.path, head, "")[0]
    except TraceError:
        return ()


def _sources(log: LogMap, header: Sequence[str], path: Path, head: Head) -> dict[str, str | None]:
    """Field -> the column of the file that it is read from; None: one value for all jobs."""
    found: dict[str, str | None] = dict.fromkeys(log.constants)
    for field, name in log.columns.items():
        if name in header:
            if list(header).count(name) > 1:
                raise TraceError(f"column {name!r} is there twice", where=f"{path}, header",
                                 got=", ".join(header)[:200], allowed="each column once")
            found[field] = name
        elif _is_number(name) and not _is_text(field):
            found[field] = None
        else:
            if not head.first.startswith(PARQUET_MAGIC):
                check_header_first(head.first[:1000].decode("utf-8", "replace"), str(path))
            near = did_you_mean(name, header) or next(
                (f"did you mean {one!r}?" for one in header if one.lower() == name.lower()), "")
            all_jobs = f"One value for all jobs: constants.{field}={name}" if _is_text(field) else ""
            raise TraceError(f"no column {name!r} for {field}", where=f"{path}, {WHERE}", got=name,
                             allowed=", ".join(header)[:400], todo=near or all_jobs)
    return found


def _check_needed(log: LogMap, header: Sequence[str], path: Path) -> None:
    """Refuse a map that does not tell when a job came, how long it ran, or its GPUs, and one that tells it twice."""
    timed = "duration" in log or ("end" in log and ("start" in log or "wait" in log))
    sized = "gpus" in log or ("workers" in log and "worker_gpus" in log)
    lacking = ["submit"] * ("submit" not in log) + ["duration (or end, with start or wait)"] * (not timed) \
        + ["gpus (or workers and worker_gpus)"] * (not sized)
    if lacking:
        given = {field: name + (f":{log.units[field]}" if field in log.units else "")
                 for field, name in log.columns.items()}
        raise TraceError(f"the map does not name {', '.join(lacking)}", where=f"{path}, {WHERE}",
                         got=log.text, allowed="columns of the file: " + (", ".join(header)[:400] or "none"),
                         todo=f"Perhaps: {proposal(header, given)}")
    for one, other in (("duration", "end"), ("start", "wait")):
        if one in log and other in log:
            raise TraceError(f"{one} and {other} both", where=f"{path}, {WHERE}", got=log.text, allowed="one of them: "
                             "which is right where they differ is not told", todo=f"Leave out {other}.")
    if "gpus" in log and "workers" in log and "worker_gpus" in log:
        raise TraceError("gpus, workers and worker_gpus, all three", where=f"{path}, {WHERE}", got=log.text,
                         allowed="two of them", todo="Leave out gpus.")


def _parquet(path: Path, wanted: list[str]) -> Table:
    """The columns of a Parquet file as text, for the same rules as those of a CSV file."""
    try:
        table = read_parquet(pa.BufferReader(read_bytes(path)), room_of(path), wanted)
        cells = {}
        for name in wanted:
            kind = table.column(name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if pa.types.is_duration(kind) or pa.types.is_time(kind) or pa.types.is_nested(kind):
                raise TraceError("column of another type", where=f"{path}, column {name!r}", got=str(kind),
                                 allowed="numbers, text or timestamps", todo="Write it as a number, and name its unit.")
            cells[name] = pc.fill_null(table.column(name).cast(pa.string()), "")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError("the file is no whole Parquet file", where=str(path), got=str(error)[:150],
                         todo="Write it again: it may be cut short.") from None
    return Table(str(path), cells, np.arange(1, table.num_rows + 1), "row")


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _is_text(field: str) -> bool:
    column = BY_NAME.get(FIELDS[field])
    return column is not None and column.dtype == "text"


@dataclass(frozen=True)
class _Jobs:
    """The rows of a file by the fields of its map: `texts` as they are, `numbers` with "" for what is no value."""

    texts: Table
    numbers: Table
    log: LogMap
    names: Mapping[str, str]
    tally: Tally

    @classmethod
    def of(cls, table: Table, log: LogMap, sources: Mapping[str, str | None]) -> _Jobs:
        names = {field: f"{WHERE} {field}" if name is None else name for field, name in sources.items()}
        values = log.columns | log.constants
        cells = table.cells | {names[field]: pa.chunked_array([pa.repeat(values[field], len(table))])
                               for field, name in sources.items() if name is None}
        numbers = {}
        for name in {names[field] for field in names if not _is_text(field)}:
            text = pc.utf8_trim_whitespace(cells[name])
            nothing = pc.is_in(pc.utf8_lower(text), pa.array(NOTHING))
            numbers[name] = pc.if_else(nothing, "", text)
        return cls(Table(table.source, cells, table.lines, table.word),
                   Table(table.source, numbers, table.lines, table.word), log, names, Tally(table.lines, table.word))

    def trace(self) -> Trace:
        submit_s, at, calendar = self._times()
        gpus = self._gpus()
        rows: np.ndarray = gpus["num_gpus"] > 0
        self.tally.rows("CPU-only jobs dropped", gpus["num_gpus"] == 0)
        self.tally.rows("jobs without a number of GPUs dropped", np.isnan(gpus["num_gpus"]))
        kept, duration_s, wait_s = self._spans(submit_s, at, rows)
        shift_s = float(submit_s[kept].min()) if calendar and kept.any() else 0.0
        columns = {
            "job_id": self.texts.text(self.names["id"]) if "id" in self.names else job_ids(len(self.texts)),
            "submit_s": submit_s - shift_s, "duration_s": duration_s, "wait_s": wait_s, **gpus,
        }
        if "deadline" in at:
            columns["deadline_s"] = at["deadline"] - shift_s
        for field in self.names:
            if FIELDS[field] and FIELDS[field] not in columns and field not in INSTANTS:
                columns[FIELDS[field]] = self._text(field) if _is_text(field) else self._plain(field)
        if "status" in self.names:
            words = np.where(kept & (columns["status"] != ""), columns["status"], "unknown")  # dropped rows: not asked
            columns["status"] = status.canonical(words.tolist(), self.texts.source, self.texts.lines, self.texts.word,
                                                 self.log.words)
        unit = self.log.units.get("duration")
        rule = "end - start" if "end" in self.names else "duration_s as recorded" + (f" (in {unit}, {AS_NAMED}" if unit
                                                                                    else "")
        start_s = self._start_s()
        return trace_of(self.texts, columns, kept, self.tally, format="mapped", rule=rule,
                        notes=self._notes(calendar), options={"map": self.log.text}, tz=zone_name(self.log.zone),
                        epoch_s=shift_s if calendar else start_s)

    def _number(self, field: str, low: float = 0.0, high: float = np.inf, integer: bool = False) -> np.ndarray:
        """A field in our unit; NaN where a cell says nothing."""
        one = units_of(field).get(self._unit(field), Fraction(1))
        found = self.numbers.number(self.names[field], low=low / float(one), high=high / float(one),
                                    integer=integer, blank=True)
        return found * float(one.numerator) / float(one.denominator)

    def _unit(self, field: str) -> str:
        """The unit of a field; a time of day without one has that of submit."""
        return self.log.units.get(field) or (self.log.units.get("submit", "") if field in INSTANTS else "")

    def _text(self, field: str) -> np.ndarray:
        cells = self.texts.text(self.names[field])
        return catalogue_names(cells) if field == "gpu_type" else cells

    def _plain(self, field: str) -> np.ndarray:
        """A number that is no time of day, of a column of the job table; blank: its default."""
        column = BY_NAME[FIELDS[field]]
        values = self._number(field, high=MOST_ASKED if field not in SPANS else MAX_TIME_S)
        return np.where(np.isnan(values), float(str(column.default)), values)

    def _start_s(self) -> float | None:
        """POSIX time of time 0, where the map says its date."""
        if not self.log.start:
            return None
        zone = self.log.zone
        return float(any_posix_s([self.log.start], zone, lambda _: f"{WHERE}, calendar, start").posix_s[0])

    def _is_date(self, field: str) -> bool:
        unit = self._unit(field)
        if unit:
            return unit == DATE or "%" in unit
        cells = self.numbers.cells[self.names[field]]
        given = cells.filter(pc.not_equal(cells, ""))
        return len(given) > 0 and not _is_number(given[0].as_py())

    def _times(self) -> tuple[np.ndarray, dict[str, np.ndarray], bool]:
        """Submissions; all times of day by field, on one clock; whether that is the calendar's (POSIX seconds)."""
        dates = {field: self._is_date(field) for field in INSTANTS if field in self.names}
        at = {field: self._instant(field, dated) for field, dated in dates.items()}
        submit_s, start_s = at["submit"], self._start_s()
        since_1970 = not dates["submit"] and _since_1970(submit_s)
        calendar = dates["submit"] or since_1970
        where = f"{self.texts.source}, {WHERE}"
        if calendar and start_s is not None:
            raise TraceError("two calendars", where=where, got=f"start {self.log.start}", allowed="the date of time 0 "
                             "where submissions are no dates", todo="Leave out the start of the calendar.")
        if self.log.zone and not calendar and start_s is None:
            raise TraceError("a zone without a calendar", where=where, got=self.log.zone,
                             allowed="a zone where times are dates or seconds since 1970",
                             todo="Say which date time 0 was: calendar.start=2020-04-01.")
        for field, dated in dates.items():
            if dated and not calendar:
                if start_s is None:
                    raise TraceError("times on two clocks", where=where, got=f"dates in {field}, none in submit",
                                     allowed="dates in both, or in none",
                                     todo="Say the date of time 0: calendar.start.")
                at[field] = at[field] - start_s
            elif not dated and dates["submit"] and not _since_1970(at[field]):
                raise TraceError("times on two clocks", where=where, got=f"dates in submit, none in {field}",
                                 allowed="dates in both, or in none", todo=f"Check the unit of {field}.")
        return at["submit"], at, calendar

    def _instant(self, field: str, dated: bool) -> np.ndarray:
        if not dated:
            epoch = self._unit(field) == EPOCH
            low, high = (EARLIEST_S, LATEST_S) if epoch else (-MAX_TIME_S, MAX_TIME_S)
            return self._number(field, low, high)
        name, unit = self.names[field], self._unit(field)
        found = any_posix_s(self.numbers.text(name).tolist(), self.log.zone, lambda row: self.numbers.where(row, name),
                            unit if "%" in unit else "")
        self.tally.add("times made unclear by a clock change", found.unclear)
        return found.posix_s

    def _gpus(self) -> dict[str, np.ndarray]:
        """num_gpus (NaN: not told), gpu_milli and worker_gpus, as far as the map tells them."""
        if "gpus" not in self.names:
            workers, each = self._number("workers", high=1e6, integer=True), self._number("worker_gpus", high=1e6)
            told = np.flatnonzero(workers * each > 0)
            of_told = gang(workers, each, told, self.tally,
                           lambda row: self.numbers.where(row, self.names["worker_gpus"]))
            found = {"num_gpus": workers * each * 0.0, "gpu_milli": np.full(len(workers), 1000.0),
                     "worker_gpus": np.ones(len(workers))}
            for name, values in of_told.items():
                found[name][told] = values
            return found
        gpus = self._number("gpus", high=1e6)
        known = gpus > 0
        found = {"num_gpus": np.ceil(gpus)}
        shared = known & (gpus < 1)
        if shared.any() and "gpu_milli" not in self.names:
            found["gpu_milli"] = np.where(shared, np.maximum(np.round(gpus * 1000), 1), 1000.0)
        self.tally.rows("fractions above one GPU rounded up", known & ~shared & (gpus != found["num_gpus"]))
        if "workers" in self.names:
            workers = self._number("workers", high=1e6, integer=True)
            each = np.divide(gpus, workers, out=np.full(len(gpus), np.nan), where=workers > 0)
            whole = known & (each == np.floor(each))
            self.tally.rows("jobs whose GPUs do not lie evenly on their workers: may lie anywhere", known & ~whole)
            found["worker_gpus"] = np.where(whole, each, 1.0)
        return found

    def _spans(
        self, submit_s: np.ndarray, at: Mapping[str, np.ndarray], rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows that are kept, run times, waits."""
        if "end" in at:
            start_s = at["start"] if "start" in at else submit_s + self._number("wait", high=MAX_TIME_S)
            found = spans(self.tally, submit_s, start_s, at["end"], rows)
            for row in np.flatnonzero(found.kept & (found.duration_s > LONGEST_RUN_S))[:1].tolist():
                raise TraceError("a run of more than ten years", where=self.numbers.where(row, self.names["end"]),
                                 got=f"{found.duration_s[row]:g} s", allowed=f"up to {LONGEST_RUN_S:g} s",
                                 todo="Check the unit.")
            return found.kept, found.duration_s, found.wait_s
        duration_s, kept = self._number("duration", high=LONGEST_RUN_S), rows.copy()
        for what, hit in (("without a time of submission", np.isnan(submit_s)),
                          ("without a duration", np.isnan(duration_s))):
            self.tally.rows(f"jobs {what} dropped", kept & hit)
            kept &= ~hit
        self.tally.rows("zero-length jobs kept", kept & (duration_s == 0))
        if "start" not in at:
            wait_s = self._number("wait", high=MAX_TIME_S) if "wait" in self.names else np.full(len(rows), np.nan)
            return kept, duration_s, wait_s
        early = kept & (at["start"] < submit_s)
        self.tally.rows("jobs that start before their submission: wait unknown", early)
        return kept, duration_s, np.where(early, np.nan, at["start"] - submit_s)

    def _notes(self, calendar: bool) -> tuple[str, ...]:
        """What the map left to be told."""
        found = []
        dates = [field for field in INSTANTS if field in self.names and self._is_date(field)]
        if dates:
            found.append(f"{', '.join(dates)}: dates, those without an offset in {zone_name(self.log.zone)}")
        elif calendar:
            found.append(f"submit from 2000 to 2099 as time since 1970: a calendar, in {zone_name(self.log.zone)}")
        told = [field for field in (*INSTANTS, *SPANS) if field in self.names and field not in dates
                and not self._unit(field)]
        if told:
            found.append(f"no unit named, read as seconds: {', '.join(told)}")
        return tuple(found)


def _since_1970(times_s: np.ndarray) -> bool:
    known = times_s[~np.isnan(times_s)]
    return len(known) > 0 and bool(((known >= EARLIEST_S) & (known < LATEST_S)).all())


READER = Reader(
    name="mapped",
    description="a log of one's own, CSV or Parquet with a row a job: its columns and units are named with --map",
    public="yours: any file",
    licence="yours",
    header=(),
    read=read_mapped,
    options={"map": "columns and units, submit=COLUMN:UNIT,duration=COLUMN:UNIT,gpus=COLUMN,…, or a TOML file; the "
             "same as --map"},
    sniff=lambda head: False,
)
