"""Calendar times of a log as seconds, with the zone stated: a log without one is read as UTC unless told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd

from traces.errors import TraceError

FORMAT = "%Y-%m-%d %H:%M:%S"
#: Words that logs use for a time that they do not have.
NO_TIME = (None, "", "None", "null", "NULL")
#: How the rule of a trace says that its reader took minutes and made seconds of them.
BY_MINUTES = "(minutes x 60)"
#: POSIX seconds of 2000-01-01 and 2100-01-01: GPU clusters have no jobs outside them.
EARLIEST_S, LATEST_S = 946_684_800, 4_102_444_800


@dataclass(frozen=True)
class Times:
    """POSIX seconds (NaN: no time) and how many were unclear because the clocks changed."""

    posix_s: np.ndarray
    unclear: int


def zone(tz: str) -> ZoneInfo | None:
    """Return the named time zone; None for '' and 'naive' (take times as UTC).

    Raises
    ------
    TraceError
        The system knows no such zone.
    """
    if tz in ("", "naive", "UTC"):
        return None
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise TraceError("unknown time zone", where="option 'tz'", got=tz,
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
    if region is None:
        return Times(seconds, 0)
    strict = index.tz_localize(region, ambiguous="NaT", nonexistent="NaT")
    unclear = strict.isna() & ~missing
    if unclear.any():
        daylight = np.ones(len(index), dtype=bool)
        strict = index.tz_localize(region, ambiguous=daylight, nonexistent="shift_forward")
    seconds = strict.as_unit("s").asi8.astype(np.float64)
    seconds[missing] = np.nan
    return Times(seconds, int(unclear.sum()))
