"""What the benchmarks share: the real Philly jobs (or the generated ones where they are absent), and a warm-up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers import nodes, run
from traces.load import load_trace
from traces.synthetic.generate import generate
from traces.trace import Trace

DATA = Path(os.environ.get("HETSIM_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def philly() -> Trace:
    """The 82,247 real Philly jobs, or as many generated ones."""
    path = DATA / "philly" / "philly.csv"
    return load_trace(path) if path.is_file() else generate("philly", 82_247)


@pytest.fixture(scope="session", autouse=True)
def warm(philly: Trace) -> None:
    """Compile (or load) the kernels, so that no benchmark counts it."""
    for policy in ("fifo", "srtf", "las", "easy"):
        run(philly.select(slice(0, 300)), nodes(("V100", 2, 8)), policy)
