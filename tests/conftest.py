"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


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
