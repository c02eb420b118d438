"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

#: How long a test waits for another process or a page before it calls it lost: only a hang takes that long, also on a
#: slow machine that is busy with something else.
PATIENCE_S = 1800.0

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


def _folder(path: Path, what: str) -> Path:
    if not path.is_dir():
        pytest.skip(f"{what} not found (set HETSIM_DATA to the folder with the real inputs)")
    return path


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real traces and measurements (HETSIM_DATA, default ../shared/data); skips where absent."""
    return _folder(Path(os.environ.get("HETSIM_DATA", ROOT.parent / "shared" / "data")), "real data")


@pytest.fixture(scope="session")
def oracle_dir(data_dir: Path) -> Path:
    """Folder of other simulators' results, beside the data; skips where absent."""
    return _folder(data_dir.parent / "oracles", "oracle results")
