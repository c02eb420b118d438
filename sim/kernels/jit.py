"""One decorator for every kernel: `@jit`, with an on-disk cache that is safe to share and never stale.

Numba's own cache looks at a function's own file, so that an edited helper in another file would go unseen, and it
gives up where the source tree is read-only. Here the cache directory is named after a hash of *all* kernel
sources and of the library versions: any edit starts a fresh directory. Numba writes each file under a temporary name
and renames it, so parallel processes may share it. Where no directory can be written, kernels compile in memory, with
one notice. `HETSIM_CACHE_DIR` moves the cache; `NUMBA_DISABLE_JIT=1` runs the same source as plain Python (the
slow twin of the tests).

Kernels are called with one dtype an argument (the callers see to it), so that each compiles once.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from sim.kernels.cache_folder import cache_root


@cache
def cache_directory() -> Path | None:
    """Directory of compiled kernels for exactly these sources and versions, or None where none is writable."""
    digest = hashlib.sha256(f"{numba.__version__} {platform.python_version()} {platform.machine()}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    try:
        directory = cache_root() / f"kernels-{digest.hexdigest()[:16]}"
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except (OSError, RuntimeError) as error:
        print(
            f"hetsim: compiled kernels cannot be kept ({error}); compiling anew in each run. "
            "Set HETSIM_CACHE_DIR to a folder that can be written.",
            file=sys.stderr,
        )
        return None
    return directory


class _Locator(_CacheLocator):
    """Puts each kernel into `cache_directory()`; freshness is in the directory's name."""

    def __init__(self, py_func: Any, directory: Path) -> None:
        self._directory, self._line = directory, py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(self._directory)

    def get_source_stamp(self) -> str:
        return self._directory.name

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator | None:
        directory = cache_directory()
        return None if directory is None else cls(py_func, directory)


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 - the name and form are Numba's


class _Cache(FunctionCache):
    _impl_class = _Impl


def jit(function: Callable) -> Any:
    """Compile a kernel at its first call (nopython, no GIL, no fastmath), cached as the module says."""
    return _compiled(function, nogil=True, no_cfunc_wrapper=True)


def part(function: Callable) -> Any:
    """`jit` for what only other kernels call: Python cannot, which saves half of the compiling."""
    return _compiled(function, nogil=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def _compiled(function: Callable, **options: Any) -> Any:
    dispatcher = numba.njit(**options)(function)
    if hasattr(dispatcher, "_cache") and cache_directory() is not None:
        dispatcher._cache = _Cache(function)
    return dispatcher


def is_kept(kernel: Any) -> bool:
    """Whether some process has compiled a kernel before, so that it costs nothing."""
    directory, function = cache_directory(), getattr(kernel, "py_func", kernel)
    name = f"{Path(function.__code__.co_filename).stem}.{function.__name__}"
    return directory is not None and any(directory.glob(f"{name}-*.nbi"))
