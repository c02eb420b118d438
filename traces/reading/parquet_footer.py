"""What the end of a Parquet file says of its columns, read without Arrow: its look at a damaged one ends the process (a
column that claims to be encrypted), where its reader would only complain.

The footer is a struct in the compact protocol of Apache Thrift; numbers of fields are those of `parquet.thrift`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_SCHEMA, _ROW_GROUPS, _COLUMNS, _ROWS, _COLUMN, _CRYPTO = 2, 4, 1, 3, 3, (8, 9)
_KIND, _WIDTH, _NAME, _CHILDREN = 1, 2, 4, 5
_VALUES, _UNPACKED = 5, 6
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value by the number of its physical type: truth values, INT32, INT64, INT96, FLOAT, DOUBLE."""
_FIXED = 7
"""Number of the physical type of texts of one length, which the schema says."""
_OFFSET_BYTES = 4
_DEEPEST = 32


@dataclass(frozen=True)
class Chunk:
    """A column in a row group, as the schema and the group say.

    Attributes
    ----------
    name : the outermost one.
    value_bytes : what a value takes, of text its place alone.
    is_text : how long a value is is only known once it is read.
    values : how many.
    unpacked_bytes : of its pages.
    """

    name: str
    value_bytes: int
    is_text: bool
    values: int
    unpacked_bytes: int


def described(source: pa.NativeFile) -> tuple[int, list[Chunk]]:
    """Rows of a file, and its chunks, row group by row group.

    Types are those of the schema, by the column's place, and rows those of the groups, as Arrow takes them: what is
    said of them elsewhere is not used.

    Raises
    ------
    pyarrow.ArrowInvalid
        It has no footer that can be read, or is encrypted.
    OSError
    """
    rows, found = 0, []
    try:
        about = _Walk(_end_of(source, source.size())).struct(0)
        leaves = list(_leaves(about.get(_SCHEMA, ())))
        for group in about.get(_ROW_GROUPS, ()):
            rows += max(int(group.get(_ROWS, 0)), 0)
            for (name, value_bytes, is_text), column in zip(leaves, group.get(_COLUMNS, ()), strict=False):
                if any(field in column for field in _CRYPTO):
                    raise pa.ArrowInvalid("a column is encrypted")
                told = column.get(_COLUMN, {})
                values, unpacked_bytes = (max(int(told.get(field, 0)), 0) for field in (_VALUES, _UNPACKED))
                found.append(Chunk(name, value_bytes, is_text, values, unpacked_bytes))
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise pa.ArrowInvalid(f"its footer is damaged ({error})") from None
    source.seek(0)
    return rows, found


def _leaves(schema: Sequence[dict[int, Any]]) -> Iterator[tuple[str, int, bool]]:
    """Of each column that holds values: its outermost name, bytes of a value, whether it is text."""
    name = ""
    to_come: list[int] = []  # children of the groups that are open
    for element in schema[1:]:
        if not to_come:
            name = element[_NAME].decode("utf-8", "replace")
        if children := int(element.get(_CHILDREN, 0)):
            to_come.append(children)
            continue
        kind = int(element.get(_KIND, -1))
        yield (name, max(int(element.get(_WIDTH, 0)), 0), False) if kind == _FIXED else \
            (name, _WIDTHS.get(kind, _OFFSET_BYTES), kind not in _WIDTHS)
        while to_come:
            to_come[-1] -= 1
            if to_come[-1]:
                break
            to_come.pop()


def _end_of(file: pa.NativeFile, size: int) -> bytes:
    file.seek(max(size - 8, 0))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1":
        raise ValueError("it does not end as Parquet does")
    if length > size - 8:
        raise ValueError(f"{length:,} bytes long, in a file of {size:,}")
    file.seek(size - 8 - length)
    return bytes(file.read(length))


class _Walk:
    """Goes once through a struct: field number to value, lists as lists; each value takes a byte or more."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, depth: int) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ValueError("structs in structs without end")
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._whole()
            found[number] = head & 15 == 1 if head & 15 in (1, 2) else self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):  # of a list, a truth value is a byte
            return self._byte()
        if kind in (4, 5, 6):
            return self._whole()
        if kind == 7:
            return struct.unpack("<d", self._bytes(8))[0]
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            head = self._byte()
            many = self._varint() if head >> 4 == 15 else head >> 4
            if many > len(self._data) - self._at:
                raise ValueError("a list longer than the footer")
            return [self._one(head & 15, depth) for _ in range(many)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"a value of kind {kind}")

    def _one(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("lists in lists without end")
        return self._value(kind, depth + 1)

    def _whole(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        byte = self._data[self._at]
        if byte < 128:  # of nearly all
            self._at += 1
            return byte
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("a number without end")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ValueError("text longer than the footer")
        self._at += size
        return self._data[self._at - size : self._at]
