"""What the end of a Parquet file says of its columns, read without Arrow: its look at a damaged one ends the process (a
column that claims to be encrypted), where its reader would only complain.

The footer is a struct in the compact protocol of Apache Thrift; numbers of fields are those of `parquet.thrift`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

_ROW_GROUPS, _COLUMNS, _COLUMN, _CRYPTO = 4, 1, 3, (8, 9)
_KIND, _PATH, _VALUES, _UNPACKED = 1, 3, 5, 6
_DEEPEST = 32


@dataclass(frozen=True)
class Chunk:
    """A column in a row group: its outermost name, the number of its physical type, values, bytes unpacked."""

    name: str
    kind: int
    values: int
    unpacked_bytes: int


def chunks(source: Path | pa.BufferReader) -> Iterator[Chunk]:
    """All chunks of a file, row group by row group.

    Raises
    ------
    pyarrow.ArrowInvalid
        It has no footer that can be read, or is encrypted.
    OSError
    """
    try:
        for group in _Walk(_footer(source)).struct(0).get(_ROW_GROUPS, ()):
            for column in group.get(_COLUMNS, ()):
                if any(field in column for field in _CRYPTO):
                    raise pa.ArrowInvalid("a column is encrypted")
                about = column.get(_COLUMN, {})
                path = about.get(_PATH) or (b"",)
                yield Chunk(path[0].decode("utf-8", "replace"), int(about.get(_KIND, -1)),
                            max(int(about.get(_VALUES, 0)), 0), max(int(about.get(_UNPACKED, 0)), 0))
    except (IndexError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise pa.ArrowInvalid(f"its footer is damaged ({error})") from None


def _footer(source: Path | pa.BufferReader) -> bytes:
    if isinstance(source, Path):
        with source.open("rb") as file:
            return _end_of(file, file.seek(0, 2))
    found = _end_of(source, source.size())
    source.seek(0)
    return found


def _end_of(file: Any, size: int) -> bytes:
    file.seek(max(size - 8, 0))
    length = int.from_bytes(file.read(8)[:4], "little")
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
