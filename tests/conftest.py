"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

#: How long a test waits for another process or a page before it calls it lost: only a hang takes that long, also on a
#: slow machine that is busy with something else.
PATIENCE_S = 1800.0

# As the program does: a process for each core, with threads that wait for each other, takes several times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Processes that tests start find our sources compiled, as with any user: else each compiles all of them (0.4 s).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Each test works out what it looks at: none is answered by an earlier one's, or an earlier session's, kept fronts.
os.environ["HETSIM_KEEP_FRONTS"] = "0"

# No law is decided by a clock: neither how long an example takes nor how long it takes to draw one.
TOO_SLOW = [HealthCheck.too_slow]
#: The same for laws whose examples write into one folder of a fixture, each over the last one's files.
ONE_FOLDER = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("hetsim", deadline=None, suppress_health_check=TOO_SLOW)
settings.load_profile("hetsim")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Processes of `-n auto`: one for each core that this one may use, eight at most (each takes about 1 GiB)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="first layer: no slow tests, and of each test its first and "
                     "last parameters only (docs/contributing.md)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that have slow tests, so that no process is left alone with one at the end.

    A file stays whole, since what its tests share is made once in each process that runs some of them. With `--quick`,
    leave the slow tests out, and all parameters of a test but the first and the last.
    """
    slow = {item for item in items if item.get_closest_marker("slow") is not None}
    others = [item for item in items if item not in slow]
    if not config.getoption("--quick", default=False):
        files = {item.path for item in slow}
        items.sort(key=lambda item: item.path not in files)
        return
    of_test: dict[str, list[pytest.Item]] = {}
    for item in others:
        of_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for same in of_test.values() for item in (same[0], same[-1])}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in others if item in kept]


def _share_compiling(config: pytest.Config) -> None:
    """Where several processes look for all tests, each begins at another file, and finds others compiled by then.

    In a fresh tree to compile the tests, with what makes asserts talk, takes half of the time to find them.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for file in sorted((ROOT / "tests").rglob("test_*.py"))[number::count]:
        # What is wrong with a file is told when its turn comes.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


@pytest.hookimpl(hookwrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is there once all tests are found stays: a million objects that no later garbage collection looks at."""
    gc.disable()
    _share_compiling(session.config)
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


def _folder(path: Path, what: str) -> Path:
    if not path.is_dir():
        pytest.skip(f"{what} not found (set HETSIM_DATA to the folder with the real inputs)")
    return path


@pytest.fixture(scope="session", autouse=True)
def _commands_made_once() -> Iterator[None]:
    """typer makes all commands anew whenever one is called (50 ms): nothing to a user, but tests call thousands."""
    made = cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", made)
        patch.setattr(typer.testing, "_get_command", made)
        yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real traces and measurements (HETSIM_DATA, default ../shared/data); skips where absent."""
    return _folder(Path(os.environ.get("HETSIM_DATA", ROOT.parent / "shared" / "data")), "real data")


@pytest.fixture(scope="session")
def oracle_dir(data_dir: Path) -> Path:
    """Folder of other simulators' results, beside the data; skips where absent."""
    return _folder(data_dir.parent / "oracles", "oracle results")


@pytest.fixture
def cluster(tmp_path):
    """A function that reads a cluster from the text of its file."""
    def load(text):
        (tmp_path / "c.toml").write_text(text)
        return import_module("sim.cluster.clusterfiles").load_cluster(str(tmp_path / "c.toml"))

    return load
