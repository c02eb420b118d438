"""One decorator for every kernel: `@jit`, with an on-disk cache that is safe to share and never stale.

Numba's own cache looks at a function's own file, so that an edited helper in another file would go unseen, and it
gives up where the source tree is read-only. Here the cache directory is named after a hash of *all* kernel
sources and of the library versions: any edit starts a fresh directory. Numba writes each file under a temporary name
and renames it, so parallel processes may share it; of those that want the same kernel one compiles it, and the
others wait for it. Where no directory can be written, kernels compile in memory, with one notice. `HETSIM_CACHE_DIR`
moves the cache; `NUMBA_DISABLE_JIT=1` runs the same source as plain Python (the slow twin of the tests).

Kernels are called from Python with one dtype an argument (the callers see to it), and take whole numbers of each other
as int64, so that each compiles once. What a cluster, or a run, needs none of is left out by the type of an argument:
`if len(groups) > 0` is settled as Numba compiles where groups is a tuple, and the other branch is not compiled.
"""

from __future__ import annotations

import hashlib
import pickle
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any

from sim.kernels.cache_folder import cache_root
from traces.late import unseen

# Numba imports SciPy to look at its version, PyYAML for a file of settings that is rarely there, and Coverage for who
# measures it (it is imported by then): a fifteenth of a small run.
with unseen("coverage", "scipy", *["yaml"] * (not Path(".numba_config.yaml").exists())):
    import numba
    from numba.core import event, types
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.environment import Environment, _rebuild_env, lookup_environment
    from numba.core.registry import CPUDispatcher
    from numba.core.runtime.nrt import rtsys

try:
    import fcntl
except ImportError:  # Windows: each process compiles for itself
    fcntl = None  # type: ignore[assignment]

LONG_S = 1.0
"""Compiling for which a user is told what takes so long."""


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


class _Unpickler(pickle.Unpickler):
    """Reads a kept kernel without the modules of Numba that it was compiled with (`_environment`)."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (Environment.__module__, _rebuild_env.__name__):
            return _environment
        return super().find_class(module, name)


def _environment(module: str, consts: Any, name: str) -> Any:
    """The constants of a function of a kernel. Numba's own imports the function's module, too, for the names that
    object mode looks up; kernels are never in object mode, and `np.argsort` alone would bring in SciPy."""
    if module in sys.modules or not module.startswith("numba.") or lookup_environment(name) is not None:
        return _rebuild_env(module, consts, name)
    found: Any = Environment({"__name__": module})
    found.consts[:], found.env_name = consts, name
    Environment._memo[name] = found
    return found


class _Files(IndexDataCacheFile):
    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:
            return _Unpickler(file).load()


class _Cache(FunctionCache):
    _impl_class = _Impl

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        locator, base = self._impl.locator, self._impl.filename_base
        self._cache_file = _Files(self._cache_path, base, locator.get_source_stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """A kernel that was kept, or None. As Numba's own, but for all that Numba knows of Python and NumPy: to read
        that in takes three times as long as a small run, and only who compiles needs it (and then it is read)."""
        rtsys.initialize(target_context)  # what counts references to arrays: compiled code calls it
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def jit(function: Callable) -> Any:
    """Compile a kernel at its first call (nopython, no GIL, no fastmath), cached as the module says."""
    return _compiled(function, nogil=True, no_cfunc_wrapper=True)


def part(function: Callable) -> Any:
    """`jit` for what only other kernels call: Python cannot, which saves half of the compiling."""
    return _compiled(function, nogil=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)


class _Kernel(CPUDispatcher):
    """Takes whole numbers as int64, whatever the caller has (int32, a literal): one compilation for all of them."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(tuple(map(_wide, args)), kws)


def _wide(kind: Any) -> Any:
    """The type as which a kernel takes an argument of another kernel."""
    wide = types.unliteral(kind)
    return types.int64 if wide in types.signed_domain else wide


def _compiled(function: Callable, **options: Any) -> Any:
    settings: Any = numba.config
    if settings.DISABLE_JIT:
        return function
    kernel: Any = _Kernel(py_func=function, targetoptions={"nopython": True, **options})
    if (directory := cache_directory()) is not None:
        kernel._cache = _Cache(function)
        kernel.compile = _in_turn(kernel.compile, directory / f"{_name(function)}.lock")
    return kernel


class _Watch(event.Listener):
    """Adds up the time for which kernels compile, and tells once, when it is long."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell, self._told, self._open, self._since_s, self._before_s = tell, False, 0, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        now_s = time.monotonic()
        if self._open == 0:
            self._since_s = now_s
        self._open += 1
        if not self._told and self._before_s + now_s - self._since_s >= LONG_S:
            self._told = True
            self._tell()

    def on_end(self, event: Any) -> None:
        self._open -= 1
        if self._open == 0:
            self._before_s += time.monotonic() - self._since_s


def told_of_compiling(tell: Callable[[], None]) -> AbstractContextManager[Any]:
    """Have it told, once, that kernels compile, when they have for `LONG_S` (what was kept takes no time)."""
    watched: AbstractContextManager[Any] = event.install_listener("numba:compile", _Watch(tell))
    return watched


def _in_turn(compiled: Callable, lock: Path) -> Callable:
    """Load or compile a kernel while no other process does: who waited finds it in the cache.

    No two processes wait for each other: a process holds the locks of a kernel and of those it is called by, and
    kernels do not call themselves, through others neither. The lock of Numba, which is a process's own, comes first,
    or two threads of one process could.
    """

    @wraps(compiled)
    def compile_in_turn(signature: Any) -> Any:
        with global_compiler_lock, _held(lock):
            return compiled(signature)

    return compile_in_turn


def _held(lock: Path) -> AbstractContextManager[Any]:
    """Hold a lock file until the end of a `with`; the system lets go of it, too, where the process ends before.

    Where the file cannot be locked (some network drives) there is no turn: two processes may then do the same work.
    """
    if fcntl is None:
        return nullcontext()
    try:
        file = lock.open("ab")
    except OSError:
        return nullcontext()
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _name(function: Callable) -> str:
    """A kernel's name in the cache, as Numba begins the names of its files."""
    return f"{Path(function.__code__.co_filename).stem}.{function.__name__}"


def is_kept(kernel: Any) -> bool:
    """Whether some process has compiled a kernel before, so that it costs nothing."""
    directory, function = cache_directory(), getattr(kernel, "py_func", kernel)
    return directory is not None and any(directory.glob(f"{_name(function)}-*.nbi"))
