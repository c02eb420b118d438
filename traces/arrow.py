"""Arrow arrays of NumPy's arrays and of lists, and back: what `pyarrow.array` and `to_numpy` make, without pandas.

Both of these import pandas at their first call, whatever they are given, and with it a sixth of a short run's time.
What is not made here, such as dates, is left to them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

MANY = 100_000
"""Texts from which on pyarrow's own way is taken: it is twice as fast, and pandas is soon paid for."""
_LONGEST = 2**31 - 1
"""Bytes of text, and entries of lists, that one array holds: their places are 32-bit numbers."""
_KINDS: dict[np.dtype, pa.DataType] = {
    np.dtype(name): getattr(pa, name)() for name in
    ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
}
_DTYPES = {kind: dtype for dtype, kind in _KINDS.items()}
_NUMBERS = {int, float, type(None)}
_TEXTS = {str, type(None)}


def column(values: Any, kind: pa.DataType | None = None, *, nan_is_null: bool = False) -> Any:
    """An Arrow array of some values, as ``pyarrow.array(values, kind, from_pandas=nan_is_null)``.

    Parameters
    ----------
    values : array or sequence
        Of numbers, bools, texts, None, or lists of them.
    kind : type, optional
        What it becomes; numbers that it cannot hold are refused. None: what the values are.

    Raises
    ------
    pyarrow.ArrowInvalid
        A number does not fit into `kind`.

    Examples
    --------
    >>> column(["a", None, "bc"]).to_pylist(), column(np.array([1.0, np.nan]), nan_is_null=True).to_pylist()
    (['a', None, 'bc'], [1.0, None])
    """
    if isinstance(values, array):
        values = np.asarray(values)
    made = None
    if isinstance(values, np.ndarray) and values.dtype != object:
        made = _of_numbers(values, nan_is_null) if values.ndim == 1 else None
    elif isinstance(values, np.ndarray | list | tuple):
        made = _of_objects(values.tolist() if isinstance(values, np.ndarray) else list(values), kind, nan_is_null)
    if made is None:
        return pa.array(values, kind, from_pandas=nan_is_null)
    return made if kind is None or made.type == kind else made.cast(kind)


def as_numpy(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """An Arrow array as NumPy's, as ``to_numpy``: numbers that are null become NaN, texts become objects.

    Examples
    --------
    >>> as_numpy(column([1, None])).tolist(), as_numpy(column(["a", None])).tolist()
    ([1.0, nan], ['a', None])
    """
    whole: Any = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    found = None
    if isinstance(whole, pa.Array):
        if whole.type in _DTYPES:
            found = _numbers(whole)
        elif pa.types.is_boolean(whole.type) and not whole.null_count:
            found = _bits(whole.buffers()[1], whole)
        elif pa.types.is_string(whole.type) and len(whole) < MANY:
            found = _texts(whole)
    if found is None:
        found = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values.to_numpy(zero_copy_only=False)
    return found


def word(text: str) -> pa.Scalar:
    """One text, for a comparison with a column; `pyarrow.compute` makes it of a `str` by `pyarrow.scalar`, which
    imports pandas, too."""
    return column([text])[0]


def _of_numbers(values: np.ndarray, nan_is_null: bool) -> pa.Array | None:
    if values.dtype == bool:
        bits = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])
    if values.dtype not in _KINDS:
        return None
    missing = np.isnan(values) if nan_is_null and values.dtype.kind == "f" else None
    return _of_buffer(np.ascontiguousarray(values), missing)


def _of_buffer(values: np.ndarray, missing: np.ndarray | None) -> pa.Array:
    return pa.Array.from_buffers(_KINDS[values.dtype], len(values), [_valid(missing), pa.py_buffer(values)])


def _valid(missing: np.ndarray | None) -> pa.Buffer | None:
    """Which entries are there, as bits; None: all."""
    if missing is None or not missing.any():
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))


def _of_objects(values: list[Any], kind: pa.DataType | None, nan_is_null: bool) -> pa.Array | None:
    """Python's own objects; None: of which nothing is known here."""
    if kind is not None and pa.types.is_list(kind):
        return _of_lists(values, kind, nan_is_null)
    there = set(map(type, values))
    missing = np.fromiter((value is None for value in values), dtype=bool, count=len(values)) \
        if type(None) in there else None
    if there <= _TEXTS and (kind == pa.string() or (kind is None and str in there)):
        return _of_texts(["" if value is None else value for value in values] if missing is not None else values,
                         missing)
    if there <= {bool, type(None)} and (kind == pa.bool_() or (kind is None and bool in there)):
        bits = np.packbits(np.array(values, dtype=bool), bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [_valid(missing), pa.py_buffer(bits)])
    number = float if float in there else int
    if there <= _NUMBERS and (kind in _DTYPES or (kind is None and number in there)):
        if number is float and kind is not None and not pa.types.is_floating(kind):
            return None
        if missing is not None:
            values = [0 if value is None else value for value in values]
        try:
            found = np.array(values, dtype=np.float64 if number is float else np.int64)
        except OverflowError:
            return None
        if nan_is_null and number is float:
            missing = np.isnan(found) if missing is None else missing | np.isnan(found)
        return _of_buffer(found, missing)
    return None


def _of_texts(values: Sequence[str], missing: np.ndarray | None) -> pa.Array | None:
    if len(values) >= MANY:
        return None
    together = "".join(values)
    data = together.encode("utf-8")
    if len(data) > _LONGEST:
        return None
    lengths = map(len, values) if len(data) == len(together) else (len(value.encode("utf-8")) for value in values)
    return pa.Array.from_buffers(pa.string(), len(values), [_valid(missing), _places(lengths, len(values)),
                                                            pa.py_buffer(data)])


def _of_lists(values: list[Any], kind: pa.DataType, nan_is_null: bool) -> pa.Array | None:
    if not set(map(type, values)) <= {list, tuple, type(None)}:
        return None
    missing = np.fromiter((value is None for value in values), dtype=bool, count=len(values))
    inner = [entry for value in values if value is not None for entry in value]
    if len(inner) > _LONGEST:
        return None
    lengths = (0 if value is None else len(value) for value in values)
    return pa.Array.from_buffers(kind, len(values), [_valid(missing), _places(lengths, len(values))],
                                 children=[column(inner, kind.value_type, nan_is_null=nan_is_null)])


def _places(lengths: Any, count: int) -> pa.Buffer:
    """Where each of some texts or lists begins, and where the last one ends."""
    places = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.fromiter(lengths, dtype=np.int32, count=count), out=places[1:])
    return pa.py_buffer(places)


def _numbers(whole: pa.Array) -> np.ndarray:
    dtype = _DTYPES[whole.type]
    values = np.frombuffer(whole.buffers()[1], dtype, len(whole), whole.offset * dtype.itemsize) if len(whole) \
        else np.empty(0, dtype)
    if not whole.null_count:
        return values
    found: np.ndarray = values.astype(dtype if dtype.kind == "f" else np.float64)
    found[~_bits(whole.buffers()[0], whole)] = np.nan
    return found


def _bits(buffer: pa.Buffer, whole: pa.Array) -> np.ndarray:
    """The bits of a buffer that are an array's, as bool."""
    first, end = whole.offset // 8, whole.offset + len(whole)
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8)[first:-(-end // 8)], bitorder="little")
    found: np.ndarray = bits[whole.offset - 8 * first : end - 8 * first].astype(bool)
    return found


def _texts(whole: pa.Array) -> np.ndarray:
    found = np.empty(len(whole), dtype=object)
    if not len(whole):
        return found
    _, at, data = whole.buffers()
    places = np.frombuffer(at, np.int32)[whole.offset : whole.offset + len(whole) + 1]
    first, end = int(places[0]), int(places[-1])
    content = b"" if data is None else bytes(memoryview(data)[first:end])
    places = (places - first).tolist()
    if content.isascii():
        text = content.decode("ascii")
        found[:] = [text[low:high] for low, high in pairwise(places)]
    else:
        found[:] = [content[low:high].decode("utf-8") for low, high in pairwise(places)]
    if whole.null_count:
        found[~_bits(whole.buffers()[0], whole)] = None
    return found
