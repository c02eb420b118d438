"""Times that are written in full are read as pandas reads them, and all others are left to it."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.errors import TraceError
from traces.reading import times
from traces.reading.times import FORMAT, posix_s

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31, 23, 59, 59)).map(lambda when: when.strftime(FORMAT))
ODD = ("2023-02-29 00:00:00", "2024-13-01 00:00:00", "2024-00-01 00:00:00", "2024-01-00 00:00:00",
       "2024-04-31 00:00:00", "2024-01-01 24:00:00", "2024-01-01 00:60:00",
       "1999-12-31 23:59:59", "2100-01-01 00:00:00", "2024-01-01T00:00:00", "\uff12024-01-01 00:00:00",
       "2024-01-01 0a:00:00", "2024-01-01 00:00:60", "-024-01-01 00:00:00", "2024-01-01 00:00:0", "", None,
       7)  # fmt: skip


def place(index: int) -> str:
    return f"row {index}"


@given(st.lists(MOMENTS, min_size=1, max_size=20))
def test_times_in_full_are_those_of_pandas(texts):
    wanted = pd.DatetimeIndex(pd.to_datetime(pd.Series(texts, dtype=object), format=FORMAT)).as_unit("s").asi8
    assert times._plain_s(texts).tolist() == wanted.tolist()
    assert posix_s(texts, "naive", place).posix_s.tolist() == wanted.tolist()


@pytest.mark.parametrize("leap", ["2000-02-29 23:59:59", "2024-02-29 00:00:00"])
def test_leap_days(leap):
    assert times._plain_s([leap]).tolist() == [datetime.fromisoformat(leap + "+00:00").timestamp()]


@pytest.mark.parametrize("text", ODD)
def test_what_is_not_written_so_is_left_to_pandas(text):
    assert times._plain_s(["2024-01-01 00:00:00", text]) is None


@pytest.mark.parametrize("text", ODD[:9])
def test_a_time_that_is_none_is_refused_by_its_row(text):
    with pytest.raises(TraceError) as said:
        posix_s(["2024-01-01 00:00:00", text], "naive", place)
    assert "row 1" in str(said.value)


def test_no_times_at_all():
    assert times._plain_s([]) is None
    np.testing.assert_array_equal(posix_s([], "naive", place).posix_s, [])
