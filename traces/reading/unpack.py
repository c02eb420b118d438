"""The bytes of a file, unpacked: plain, gzip, the one file in a tar, or a file in parts; and how far one has read."""

from __future__ import annotations

import io
import re
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from traces.errors import TraceError
from traces.reading.limits import Room, on_disk_bytes

#: Called with bytes read so far and bytes in all, both as they lie on the disk (packed where the file is).
Watcher = Callable[[int, int], None]
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)

BUFFER_BYTES = 1 << 20
GZIP = b"\x1f\x8b"
LFS = b"version https://git-lfs.github.com/spec/"
PACKED_OTHERWISE = (
    (b"PK\x03\x04", "a ZIP archive, or a workbook", "unzip, or save the sheet as CSV"), (b"BZh", "bzip2", "bunzip2"),
    (b"\xfd7zXZ", "xz", "unxz"), (b"(\xb5/\xfd", "zstd", "unzstd"), (b"7z\xbc\xaf", "7-Zip", "7z x"),
)
"""How files begin that are packed as we do not read them, what that is, and what unpacks it."""
_PART = re.compile(r"(.+)\.part([0-9a-z]{2}|\d+)")
_PACKED = re.compile(r"(.+?)(\.tgz|(\.tar)?(\.gz)?)")
_opened: ContextVar[dict[Path, None] | None] = ContextVar("opened", default=None)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Within it, every file that is read tells `watcher(done, total)` in bytes how far it is."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


@contextmanager
def noting() -> Iterator[dict[Path, None]]:
    """Within it, every file that is opened is noted: the keys of what it gives are their paths, in order."""
    files: dict[Path, None] = {}
    token = _opened.set(files)
    try:
        yield files
    finally:
        _opened.reset(token)


def parts(path: Path) -> list[Path]:
    """The files that `x.tar.gz.partaa` is one of, in order; of any other file: itself.

    Parts are named as `split` names them: aa, ab, … or by number, from 0 or 1. `x.tar.gz.partaa.md5` is none.

    Raises
    ------
    TraceError
        A part is missing before or between those that are there.
    OSError
        The folder cannot be read.
    """
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    found = {m[2]: file for file in path.parent.iterdir() if (m := _PART.fullmatch(file.name)) and m[1] == match[1]}
    suffixes = sorted(found, key=lambda suffix: (len(suffix), suffix))
    for suffix in suffixes[:1]:
        if _place(suffix) > (1 if suffix.isdigit() else 0):
            raise _gap(path, f"none before {found[suffix].name}")
    for before, suffix in pairwise(suffixes):
        if before.isdigit() == suffix.isdigit() and _place(suffix) > _place(before) + 1:
            raise _gap(path, f"{found[before].name}, then {found[suffix].name}")
    return [found[suffix] for suffix in suffixes] or [path]


def _place(suffix: str) -> int:
    """Which part a suffix of digits or letters is, from 0; -1 of both (split -x): not looked at."""
    if suffix.isdigit():
        return int(suffix)
    return 26 * (ord(suffix[0]) - 97) + ord(suffix[1]) - 97 if suffix.isalpha() else -1


def _gap(path: Path, got: str) -> TraceError:
    return TraceError("a part of the file is missing", where=str(path), got=got, allowed="all parts, one after another",
                      todo="Fetch the missing part.")


def inner_name(name: str) -> str:
    """Name of a file without its packing: x.csv of x.csv, x.csv.gz, x.csv.tar.gz and x.csv.gz.partab."""
    part = _PART.fullmatch(name)
    packed = _PACKED.fullmatch(part[1] if part else name)
    return packed[1] if packed else name


def room_of(path: Path, *, streamed: bool = False) -> Room:
    """What may be taken of a file, or of one in parts: by who holds it whole, or (`streamed`) piece by piece."""
    return Room(str(path), sum(on_disk_bytes(file) for file in parts(path)), streamed=streamed)


def files_by(folder: Path, key: Callable[[str], str | None]) -> dict[str, list[Path]]:
    """The files of a folder by what `key` makes of their names (None: not wanted), sorted; of parts only the first.

    Hidden files are left out. Pipes and devices are not: who wants one is told so when it is opened.
    """
    found: dict[str, dict[str, Path]] = {}
    for file in sorted(folder.iterdir()):
        name = None if file.name.startswith(".") or file.is_dir() else key(file.name)
        if name is not None:
            part = _PART.fullmatch(file.name)
            found.setdefault(name, {}).setdefault(part[1] if part else file.name, file)
    return {name: list(files.values()) for name, files in sorted(found.items())}


def only(files: list[Path]) -> Path:
    """The one file of a table; a TraceError that names all where there are more."""
    if len(files) > 1:
        raise TraceError("more than one file of the same table", where=str(files[0].parent),
                         got=", ".join(file.name for file in files), allowed="one of them",
                         todo="Remove the others: which one is right is not told.")
    return files[0]


class Unpacked:
    """A file opened for reading from its beginning; `read` gives what is inside. Use it as a context.

    Whether a file is packed is told from its content, never from its name. Of a tar, the one regular file in it is
    read. Memory does not grow with the file, and what a packed file holds is bounded (`traces.reading.limits`).

    Raises
    ------
    TraceError
        The file cannot be opened or read, is cut short or damaged (checksums are verified at the end), or is a tar
        with no file or with more than one; a gzip holds more than is taken.
    """

    def __init__(self, path: Path) -> None:
        self._source, self._tar = str(path), None
        self._names: list[str] = []
        with self._named():
            self._stream = cast(IO[bytes], io.BufferedReader(_Files(parts(path)), BUFFER_BYTES))
            if self._peek(2).startswith(GZIP):
                inside = pa.CompressedInputStream(pa.PythonFile(self._stream, "r"), "gzip")
                counted = _Inflated(inside, room_of(path, streamed=True))
                self._stream = cast(IO[bytes], io.BufferedReader(counted, BUFFER_BYTES))
            self._inside = self._stream
            block = self._peek(512)
            self._check_readable(block)
            if (block[257:262] == b"ustar" and b"\0" in block) or block == bytes(512):  # a tar of nothing is zeros
                self._tar = tarfile.open(fileobj=self._stream, mode="r|", bufsize=BUFFER_BYTES)  # noqa: SIM115
                self._inside = self._member() or self._refuse("no file in it")

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes (fewer only at the end); all that is left where it is negative."""
        with self._named():
            data = self._inside.read(size)
            if self._tar is not None and (size < 0 or len(data) < size):
                if self._member() is not None:
                    self._refuse(f"more than one file in it: {self._all_names()}")
                while self._stream.read(BUFFER_BYTES):  # the checksum of the gzip comes last
                    pass
                self._tar, self._inside = None, io.BytesIO()
            return data

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _check_readable(self, block: bytes) -> None:
        """Refuse what stands for a file, or holds it in a way that is not read, with what to do."""
        if block.startswith(LFS):
            raise TraceError("a Git LFS pointer, not the file that it stands for", where=self._source,
                             got=block[:40].decode("ascii", "replace"), allowed="the file itself",
                             todo="Fetch it: git lfs pull, in the repository that it is from.")
        for mark, what, how in PACKED_OTHERWISE:
            if block.startswith(mark):
                raise TraceError(f"the file is compressed: {what}", where=self._source, got=block[:8],
                                 allowed="plain, gzip, or a tar with one file", todo=f"Unpack it first: {how}.")

    def _peek(self, size: int) -> bytes:
        return cast(io.BufferedReader, self._stream).peek(size)[:size]

    def _member(self) -> IO[bytes] | None:
        """The next regular file of the tar; those that macOS adds (._name) are none."""
        assert self._tar is not None
        while (member := self._tar.next()) is not None:
            if member.isreg() and not Path(member.name).name.startswith("._"):
                self._names.append(member.name)
                return self._tar.extractfile(member)
        return None

    def _all_names(self) -> str:
        """The files of the tar, the first few by name."""
        while self._member() is not None:
            pass
        return ", ".join(self._names[:5]) + (f" and {len(self._names) - 5} more" if len(self._names) > 5 else "")

    def refuse_several(self) -> None:
        """Raise TraceError if this is a tar with more than one file, which is known once all of it is read."""
        while self._tar is not None and self.read(BUFFER_BYTES):
            pass

    def _refuse(self, got: str) -> IO[bytes]:
        raise TraceError("the archive is not one table", where=self._source, got=got, allowed="a tar with one file",
                         todo="Unpack it first and name one file.")

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of the system and of the unpackers, as one that names the file."""
        try:
            yield
        except (OSError, EOFError, tarfile.TarError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno is not None and error.strerror:
                raise TraceError("cannot read the file", where=self._source, got=error.strerror,
                                 todo="Check the path and its permissions.") from None
            raise TraceError("the packed file is cut short or damaged", where=self._source, got=str(error)[:120],
                             allowed="a whole gzip or tar", todo="Fetch it again; are all its parts there?") from None
        except ValueError as error:  # a path with a NUL in it
            raise TraceError("cannot read the file", where=repr(self._source), got=str(error)) from None


class _Inflated(io.RawIOBase):
    """What a gzip holds, counted as it comes: a tar within it may ask for all at once."""

    def __init__(self, inside: pa.CompressedInputStream, room: Room) -> None:
        self._inside, self._room = inside, room

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        count = int(self._inside.readinto(memoryview(buffer)[:BUFFER_BYTES]))
        self._room.take(count)
        return count

    def close(self) -> None:
        if not self.closed:
            self._inside.close()
        super().close()


class _Files(io.RawIOBase):
    """Files one after the other as one, telling the watcher how far it is. Pipes and devices are refused unopened."""

    def __init__(self, paths: list[Path]) -> None:
        for path in paths:
            if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():  # it might be waited for, or never end
                raise TraceError("neither a file nor a folder", where=str(path), got="a pipe, socket or device",
                                 allowed="a file", todo="Write its content to a file first.")
        noted = _opened.get()
        if noted is not None:
            noted.update(dict.fromkeys(paths))
        self._left = [path.open("rb", buffering=0) for path in paths]
        self._done, self._total = 0, sum(path.stat().st_size for path in paths)
        self._watcher = _watcher.get()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while self._left:
            count = self._left[0].readinto(buffer)
            if count:
                self._done += count
                if self._watcher is not None:
                    self._watcher(self._done, self._total)
                return count
            self._left.pop(0).close()
        return 0

    def close(self) -> None:
        for file in self._left:
            file.close()
        super().close()
