"""The bytes of a file, unpacked: plain, gzip, the one file in a tar, or a file in parts; and how far one has read."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from traces.errors import TraceError

#: Called with bytes read so far and bytes in all, both as they lie on the disk (packed where the file is).
Watcher = Callable[[int, int], None]
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)

BUFFER_BYTES = 1 << 20
GZIP = b"\x1f\x8b"
_PART = re.compile(r"(.+)\.part\w+")


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Within it, every file that is read tells `watcher(done, total)` in bytes how far it is."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def parts(path: Path) -> list[Path]:
    """The files that `x.tar.gz.partaa` is one of, in order of their names; of any other file: itself."""
    match = _PART.fullmatch(path.name)
    return sorted(path.parent.glob(f"{match[1]}.part*")) if match else [path]


class Unpacked:
    """A file opened for reading from its beginning; `read` gives what is inside. Use it as a context.

    Whether a file is packed is told from its content, never from its name. Of a tar, the one regular file in it is
    read. Memory does not grow with the file.

    Raises
    ------
    TraceError
        The file cannot be opened or read, is cut short or damaged (checksums are verified at the end), or is a tar
        with no file or with more than one.
    """

    def __init__(self, path: Path) -> None:
        self._source, self._tar = str(path), None
        with self._named():
            self._stream = cast(IO[bytes], io.BufferedReader(_Files(parts(path)), BUFFER_BYTES))
            if self._peek(2).startswith(GZIP):
                inside = pa.CompressedInputStream(pa.PythonFile(self._stream, "r"), "gzip")
                self._stream = cast(IO[bytes], io.BufferedReader(inside, BUFFER_BYTES))
            self._inside = self._stream
            if self._peek(512)[257:262] == b"ustar" and b"\0" in self._peek(512):
                self._tar = tarfile.open(fileobj=self._stream, mode="r|", bufsize=BUFFER_BYTES)  # noqa: SIM115
                self._inside = self._member() or self._refuse("no file in it")

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes (fewer only at the end); all that is left where it is negative."""
        with self._named():
            data = self._inside.read(size)
            if self._tar is not None and (size < 0 or len(data) < size):
                if self._member() is not None:
                    self._refuse("more than one file in it")
                while self._stream.read(BUFFER_BYTES):  # the checksum of the gzip comes last
                    pass
                self._tar, self._inside = None, io.BytesIO()
            return data

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _peek(self, size: int) -> bytes:
        return cast(io.BufferedReader, self._stream).peek(size)[:size]

    def _member(self) -> IO[bytes] | None:
        """The next regular file of the tar; those that macOS adds (._name) are none."""
        assert self._tar is not None
        while (member := self._tar.next()) is not None:
            if member.isreg() and not Path(member.name).name.startswith("._"):
                return self._tar.extractfile(member)
        return None

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


class _Files(io.RawIOBase):
    """Files one after the other as one, telling the watcher how far it is."""

    def __init__(self, paths: list[Path]) -> None:
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
