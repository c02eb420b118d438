"""Calendar times of a log as seconds, with the zone stated: a log without one is read as UTC unless told."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traces.errors import TraceError
from traces.late import pd

FORMAT = "%Y-%m-%d %H:%M:%S"
PLAIN = "0000-00-00 00:00:00"
#: Words that logs use for a time that they do not have.
NO_TIME = (None, "", "None", "null", "NULL")
#: How the rule of a trace says that its reader took minutes and made seconds of them.
BY_MINUTES = "(minutes x 60)"
#: How it ends where the user said what the unit is.
AS_NAMED = "as named)"
#: POSIX seconds of 2000-01-01 and 2100-01-01: GPU clusters have no jobs outside them.
EARLIEST_S, LATEST_S = 946_684_800, 4_102_444_800
LONGEST_ZONE = 64
"""Characters of a zone's name: each part of a longer one is looked for as a package, one within the other."""
_OFFSET = r"\d\d:\d\d.*(?:Z|[+-]\d\d(?::?\d\d)?)$"


@dataclass(frozen=True)
class Times:
    """POSIX seconds (NaN: no time) and how many were unclear because the clocks changed."""

    posix_s: np.ndarray
    unclear: int


def zone(tz: str, where: str = "option 'tz'") -> ZoneInfo | None:
    """Return the named time zone; None for '' and 'naive' (take times as UTC). `where` it was named, for a message.

    Raises
    ------
    TraceError
        The system knows no such zone.
    """
    if tz in ("", "naive", "UTC"):
        return None
    with suppress(ZoneInfoNotFoundError, ValueError, OSError):
        if len(tz) <= LONGEST_ZONE:
            return ZoneInfo(tz)
    raise TraceError("unknown time zone", where=where, got=tz,
                     allowed="naive, UTC or a name such as America/Los_Angeles") from None


def zone_name(tz: str) -> str:
    """The zone in words: times without one are read as UTC."""
    return "UTC" if tz in ("", "naive") else tz


def posix_s(
    texts: Sequence[object], tz: str, where: Callable[[int], str], *, required: bool = False
) -> Times:
    """Read times written as 2017-10-09 07:01:55.

    In a zone with daylight saving time the repeated hour of autumn is read as daylight time (the first of
    the two), and a time in the hour that spring leaves out is moved to its end; both are counted as unclear.

    Parameters
    ----------
    texts : sequence of str or None
        One time each; "None", null and "" are no time.
    tz : str
        Zone of the log; '' or 'naive': UTC.
    where : callable
        Index to the place that a message names.
    required : bool
        Whether no time is an error.

    Raises
    ------
    TraceError
        A text is no time in that form, or lies outside 2000..2099.
    """
    region = zone(tz)
    if region is None and (plain := _plain_s(texts)) is not None:
        return Times(plain, 0)
    cells = [t if isinstance(t, str) or t is None else "?" for t in texts]
    missing = pd.Series(cells, dtype=object).isin(NO_TIME).to_numpy()
    index = pd.DatetimeIndex(pd.to_datetime(pd.Series(cells, dtype=object), format=FORMAT, errors="coerce"))
    index = index.as_unit("s")
    seconds = index.asi8.astype(np.float64)
    seconds[index.isna()] = np.nan
    wrong = ~((seconds >= EARLIEST_S) & (seconds < LATEST_S))
    if not required:
        wrong &= ~missing
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise TraceError("not a time", where=where(at), got=texts[at],
                         allowed="YYYY-MM-DD HH:MM:SS between the years 2000 and 2099",
                         todo="Check the column order and the unit.")
    return _in_zone(index, region, missing)


def _plain_s(texts: Sequence[object]) -> np.ndarray | None:
    """POSIX seconds of texts of which each is a time of the years that are taken, all its digits written; None where
    one is not: what it is then, and whether that is allowed, takes longer to say.

    As pandas reads them, which is not imported for that.
    """
    if set(map(type, texts)) != {str} or set(map(len, texts)) != {len(PLAIN)}:  # type: ignore[arg-type]
        return None
    signs = np.array(texts, dtype=f"U{len(PLAIN)}").view(np.uint32).reshape(len(texts), len(PLAIN))
    for place, sign in enumerate(PLAIN):
        column = signs[:, place]
        if ((column < ord("0")) | (column > ord("9"))).any() if sign == "0" else (column != ord(sign)).any():
            return None
    tens, ones = (signs[:, first::3].astype(np.int64) - ord("0") for first in (2, 3))  # YY, MM, DD, hh, mm, ss
    year, month, day, hour, minute, second = (10 * tens + ones).T
    year += 100 * (10 * signs[:, 0].astype(np.int64) + signs[:, 1] - 11 * ord("0"))
    months = 12 * (year - 1970) + month - 1
    days = months.astype("M8[M]").astype("M8[D]").astype(np.int64) + day - 1
    wrong = (month < 1) | (month > 12) | (day < 1) | (hour > 23) | (minute > 59) | (second > 59)
    wrong |= days.astype("M8[D]").astype("M8[M]").astype(np.int64) != months  # the 31st of a month of 30 days
    seconds = 86_400 * days + 3600 * hour + 60 * minute + second
    wrong |= (seconds < EARLIEST_S) | (seconds >= LATEST_S)
    return None if wrong.any() else seconds.astype(np.float64)


def any_posix_s(texts: Sequence[str], tz: str, where: Callable[[int], str], form: str = "") -> Times:
    """Read times of any log: as `form` says, or as ISO 8601 has them.

    These are 2017-10-09, 2017-10-09 07:01:55.5, 2017-10-09T07:01:55+08:00.

    Parameters
    ----------
    texts : sequence of str
        One time each; "" is no time.
    tz, where :
        As of `posix_s`; a time that names its own offset from UTC needs no zone.
    form : str
        As for `strptime`, such as "%d/%m/%Y %H:%M".

    Raises
    ------
    TraceError
        A text is no such time, or lies outside 2000..2099.
    """
    region, cells = zone(tz), pd.Series(texts, dtype=object)
    missing = (cells == "").to_numpy(dtype=bool)
    try:
        found = pd.DatetimeIndex(pd.to_datetime(cells, format=form or "ISO8601", errors="coerce", utc=True))
    except (ValueError, re.error) as error:
        raise TraceError("no form of a time", where=where(0), got=form, allowed="as %d/%m/%Y %H:%M:%S",
                         todo=str(error)[:100]) from None
    index = found.tz_localize(None).as_unit("us")
    own = np.full(len(cells), "%z" in form) if form else \
        pc.match_substring_regex(pa.array(texts, pa.string()), _OFFSET).to_numpy(zero_copy_only=False)
    seconds = index.asi8 / 1e6
    wrong = ~missing & (index.isna() | ~((seconds >= EARLIEST_S) & (seconds < LATEST_S)))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        form_words = f"a time as {form}" if form else "a date such as 2017-10-09 07:01:55 or 2017-10-09T07:01:55+08:00"
        raise TraceError("not a time", where=where(at), got=texts[at], allowed=f"{form_words}, between 2000 and 2099",
                         todo="Check the column; another form is named as COLUMN:%d/%m/%Y %H:%M.")
    times = _in_zone(index, region, missing | own)
    return Times(np.where(own & ~missing, seconds, times.posix_s), times.unclear)


def _in_zone(index: pd.DatetimeIndex, region: ZoneInfo | None, missing: np.ndarray) -> Times:
    """Wall-clock times of a zone as POSIX seconds."""
    unclear = 0
    if region is not None:
        strict = index.tz_localize(region, ambiguous="NaT", nonexistent="NaT")
        hit = strict.isna() & ~missing
        if hit.any():
            daylight = np.ones(len(index), dtype=bool)
            strict = index.tz_localize(region, ambiguous=daylight, nonexistent="shift_forward")
        index, unclear = strict, int(hit.sum())
    seconds = index.as_unit("us").asi8 / 1e6
    seconds[missing] = np.nan
    return Times(seconds, unclear)
