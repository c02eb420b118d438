"""How much of an input file is taken: what is small on the disk must not fill the memory.

A packed file of some megabytes can hold thousands of millions of bytes, a Parquet file of one megabyte forty million
rows, a sparse file whatever its owner likes. So each door counts what a file holds while it reads, or before where the
file says it, and refuses what is beyond the room of the file: 256 MiB and 16 times its size on the disk, of any size;
twice the second where it is read piece by piece. Text counts as long as it is, a row 192 bytes besides, a value of JSON
64. What is read takes up to three times that in memory, while it becomes jobs: of a small file 768 MiB.
`HETSIM_INPUT_GIB` names another room, the same for every file.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeGuard

from traces.errors import HetsimError, TraceError

SETTING = "HETSIM_INPUT_GIB"
SMALL_BYTES = 1 << 28
FOLD = 16
"""Times that the text of a log and its rows are longer than its packed file: text of logs as they are, 4 to 20."""
ROW_BYTES, VALUE_BYTES = 192, 64
"""What a row of a table and a value of JSON take besides their text, once they are objects, over three."""
TOML_SHARE = 32
"""A byte of TOML takes so many bytes once it is read: of files of it, a 32nd of the room is taken, 8 MiB."""
DEEPEST_KEY = 50
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-])(?:{_PART}[ \t]*+\.[ \t]*+){{{DEEPEST_KEY}}}")


class Room:
    """What one file may hold, and what of it is taken.

    Parameters
    ----------
    source : the file, as messages name it.
    on_disk_bytes : its size there.
    streamed : it is never held whole: twice as many times its size.
    error : what is raised.

    Raises
    ------
    HetsimError
        The setting is no number of GiB above 0.
    """

    def __init__(
        self, source: str, on_disk_bytes: int, *, streamed: bool = False, error: type[HetsimError] = TraceError
    ) -> None:
        self._source, self._error, self._bytes, self._rows, self._held = source, error, 0, 0, 0
        given, fold = _given_bytes(), FOLD * (2 if streamed else 1)
        self.bytes = SMALL_BYTES + on_disk_bytes * fold if given is None else given
        self._rule = f"256 MiB and {fold} times its {on_disk_bytes:,} bytes on the disk" if given is None else SETTING

    @classmethod
    def of(cls, path: Path, error: type[HetsimError] = TraceError) -> Room:
        """The room of a plain file.

        Raises
        ------
        OSError
            There is none, or it cannot be looked at.
        """
        return cls(str(path), on_disk_bytes(path), error=error)

    def take(self, size_bytes: int, rows: int = 0, *, row_bytes: int = ROW_BYTES, what: str = "rows") -> None:
        """Count what is about to be held.

        Raises
        ------
        HetsimError
            It does not fit: names what there is and what may be.
        """
        self._bytes, self._rows = self._bytes + size_bytes, self._rows + rows
        self._held += size_bytes + rows * row_bytes
        if self._held > self.bytes:
            rows_there = f" in {self._rows:,} {what}" if self._rows else ""
            raise self._error(
                "the file holds more than is taken", where=self._source,
                got=f"{self._bytes:,} bytes unpacked{rows_there}, or more",
                allowed=f"{self.bytes:,} bytes, of which each of the {what} takes {row_bytes} besides ({self._rule})",
                todo=f"If it is meant to be so large, say how many GiB a file may hold: {SETTING}=8.",
            )

    def take_json(self, data: bytes | str) -> None:
        """Count the values of a JSON text, each of which becomes an object.

        Raises
        ------
        HetsimError
            As `take`.
        """
        text = data.encode("utf-8", "replace") if isinstance(data, str) else data
        self.take(len(text), sum(map(text.count, (b",", b"[", b"{"))), row_bytes=VALUE_BYTES, what="values")


def _given_bytes() -> int | None:
    """The setting in bytes; None: it is not set."""
    text = os.environ.get(SETTING, "")
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found < 1e6:
        raise HetsimError("value not allowed", where=f"environment, {SETTING}", got=text,
                          allowed="GiB that an input file may hold unpacked: a number above 0")
    return int(found * 2**30)


def on_disk_bytes(path: Path) -> int:
    """What a file takes on the disk: less than its size where it has holes.

    Raises
    ------
    OSError
        There is none, or it cannot be looked at.
    """
    about = path.stat()
    blocks: int | None = getattr(about, "st_blocks", None)
    return about.st_size if blocks is None else min(about.st_size, blocks * 512)


def plain_bytes(path: Path, error: type[HetsimError] = TraceError) -> bytes:
    """All bytes of a file that is not packed.

    Raises
    ------
    HetsimError
        It is larger than its room.
    OSError, ValueError
        It cannot be read; no file has such a name.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):  # it might be waited for, or never end
        raise OSError(errno.EINVAL, "a pipe, socket or device")
    with path.open("rb") as stream:
        Room.of(path, error).take(os.fstat(stream.fileno()).st_size)
        return stream.read()


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """The content of a TOML text.

    A key of many parts takes the square of their number in the parser, so its depth is looked at before.

    Raises
    ------
    ValueError
        It is no TOML, is too long, or is nested too deeply; `tomllib.TOMLDecodeError` is one.
    """
    most = (_given_bytes() or SMALL_BYTES) // TOML_SHARE
    if len(text) > most:
        raise ValueError(f"it has {len(text):,} characters, of which up to {most:,} are taken ({SETTING} in GiB: "
                         f"a {TOML_SHARE}nd of it)")
    if deep := _DEEP_KEY.search(text):
        raise ValueError(f"it is nested too deeply: a key of more than {DEEPEST_KEY} parts "
                         f"(at line {text.count(chr(10), 0, deep.start()) + 1})")
    try:
        content = tomllib.loads(text, parse_float=parse_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if deeper_than(content, DEEPEST_KEY):  # who writes or shows it goes down as deep
        raise ValueError(f"it is nested too deeply: more than {DEEPEST_KEY} levels")
    return content


def deeper_than(content: Any, levels: int) -> bool:
    """Whether tables and lists lie in each other more than so many levels deep."""
    layer: list[Any] = [content]
    for _ in range(levels):
        layer = [entry for part in layer for entry in _entries(part)]
    return bool(layer)


def is_amount(value: object) -> TypeGuard[int | float]:
    """Whether a value of a JSON or TOML file is a number from 0 that a float can hold: an integer may be too large."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


def _entries(part: Any) -> Iterable[Any]:
    return part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
