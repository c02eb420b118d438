"""Arrow arrays made without pandas are those that pyarrow makes, and go back as pyarrow takes them back."""

from __future__ import annotations

from array import array

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from traces import arrow
from traces.arrow import as_numpy, column, word

TEXT = st.text(max_size=5)
FLOATS = pa.list_(pa.float64())
NUMBERS = of_numpy.integer_dtypes(endianness="=") | of_numpy.unsigned_integer_dtypes(endianness="=") | \
    of_numpy.floating_dtypes(endianness="=", sizes=(32, 64)) | of_numpy.boolean_dtypes()


def same(found: pa.Array, wanted: pa.Array) -> None:
    found.validate(full=True)
    assert found.type == wanted.type
    assert found.null_count == wanted.null_count
    assert str(found.to_pylist()) == str(wanted.to_pylist())  # as text: NaN is NaN there


@given(of_numpy.arrays(NUMBERS, st.integers(0, 20)), st.booleans(), st.sampled_from((1, 2, -1)))
def test_numbers_and_bools_are_as_pyarrow_makes_them(values, nan_is_null, step):
    values = values[::step]
    same(column(values, nan_is_null=nan_is_null), pa.array(values, from_pandas=nan_is_null))


@given(st.lists(st.none() | TEXT, max_size=20), st.booleans())
def test_texts_are_as_pyarrow_makes_them(values, as_array):
    given = np.array([*values, None], dtype=object)[:-1] if as_array else values
    same(column(given, pa.string()), pa.array(given, pa.string()))


@given(st.lists(st.none() | st.lists(st.none() | TEXT, max_size=4), max_size=8),
       st.lists(st.none() | st.lists(st.floats() | st.integers(-5, 5), max_size=4), max_size=8))
def test_lists_are_as_pyarrow_makes_them(texts, numbers):
    same(column(texts, pa.list_(pa.string())), pa.array(texts, pa.list_(pa.string())))
    same(column(numbers, FLOATS), pa.array(numbers, FLOATS))


@pytest.mark.parametrize(("values", "kind"), [
    ([1, None, 3], pa.int32()), ([1, 2.5, None], pa.float64()), ([], pa.int64()), ([], pa.string()), ([], FLOATS),
    ([True, None], pa.bool_()), ([], pa.bool_()), ([None, None], pa.string()), ([None], pa.float64()), ([None], None),
    ([], None), ([1, 2], None), ([1.5, None], None), (["a", None], None), (("a", "b"), None), ([False], None),
    (array("d", [1.0, 2.0]), pa.float64()), (array("d"), pa.float64()), (array("i", [3]), pa.int64()),
    (np.array([1, 2]), pa.int32()), (np.array([1.0, 2.0]), pa.int64()), (np.array([1, 2], "i1"), pa.float64()),
    (np.array(["2020-01-01"], "M8[s]"), None), ([2**40], pa.int64()), (np.array([1.5], "f2"), None),
    ([{"a": 1}], None), ([[1], [2, 3]], None), ([[[1]], None], pa.list_(pa.list_(pa.int16()))),
    (np.array(["a", None, "ä"], dtype=object), None), (["\N{SNOWMAN}", "", "é"], pa.string()), ([1.5], pa.int64()),
])  # fmt: skip
def test_each_kind_is_as_pyarrow_makes_it(values, kind):
    same(column(values, kind), pa.array(values, kind))


@pytest.mark.parametrize(("values", "kind"), [
    (np.array([2**40]), pa.int32()), (np.array([1.5]), pa.int64()), (np.array([-1]), pa.uint8()), ([2**70], pa.int64()),
    (["a"], pa.float64()), ([1], pa.string()), ([2**40], pa.int16()), ([["a"]], FLOATS),
])  # fmt: skip
def test_what_does_not_fit_is_refused_as_pyarrow_refuses_it(values, kind):
    for make in (pa.array, column):
        with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)):
            make(values, kind)


def check_back(made: pa.Array | pa.ChunkedArray) -> None:
    wanted = made.to_numpy(zero_copy_only=False) if isinstance(made, pa.Array) else made.to_numpy()
    found = as_numpy(made)
    assert found.dtype == wanted.dtype
    assert str(found.tolist()) == str(wanted.tolist())


@given(of_numpy.arrays(NUMBERS, st.integers(0, 30)), st.booleans(), st.data())
def test_numbers_go_back_as_pyarrow_takes_them(values, holes, data):
    missing = data.draw(of_numpy.arrays(bool, len(values))) if holes else None
    made = pa.array(values, mask=missing)
    first = data.draw(st.integers(0, len(values)))
    for part in (made, made.slice(first), made.slice(0, first), pa.chunked_array([made, made.slice(first)])):
        if not (pa.types.is_boolean(part.type) and part.null_count):
            check_back(part)


@given(st.lists(st.none() | TEXT, max_size=20), st.data())
def test_texts_go_back_as_pyarrow_takes_them(values, data):
    made, first = pa.array(values, pa.string()), data.draw(st.integers(0, len(values)))
    for part in (made, made.slice(first), made.slice(0, first), pa.chunked_array([made.slice(first), made])):
        check_back(part)


def test_what_is_not_made_here_goes_back_by_pyarrow():
    for made in (pa.array([True, None]), pa.array(["2020-01-01"]).cast(pa.timestamp("s")), pa.array([[1]]),
                 pa.chunked_array([], pa.string()), pa.chunked_array([], pa.float64())):
        check_back(made)


def test_many_texts_take_pyarrows_own_way(monkeypatch):
    monkeypatch.setattr(arrow, "MANY", 3)
    same(column(["a", None, "b"], pa.string()), pa.array(["a", None, "b"]))
    assert as_numpy(pa.array(["a", None, "b"])).tolist() == ["a", None, "b"]


def test_a_word_can_be_compared_with():
    assert word("é") == pa.scalar("é")
