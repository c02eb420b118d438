"""Small sweeps: a file in a line, played here, and its bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.sweeps.executors import Executor, Here
from sim.sweeps.grid import Grid, read_grid
from sim.sweeps.store import Store
from sim.sweeps.sweeping import Progress, sweep

RUN = '[run]\npolicy = "fifo"\njobs = 40\ncluster = "v100:2x8"\nwork = "recorded"\n'
JOBS = "job_id,submit_s,duration_s,num_gpus,user\na,0,100,1,u\nb,10,50,2,v\nc,20,30,1,u\n"


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Grid]:
    """A grid from the text of its [sweep], and of other sections; jobs.csv stands beside."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(JOBS)

    def make(text: str, run: str = RUN) -> Grid:
        Path("sweep.toml").write_text(f"{run}\n[sweep]\n{text}\n" if "[[sweep]]" not in text else f"{run}\n{text}\n")
        return read_grid("sweep.toml")

    return make


def played(grid: Grid, folder: Path | str, executor: Callable[[], Executor] = Here, **how: object) -> Progress:
    """Play a sweep."""
    return sweep(grid, Store(Path(folder)), executor, **how)


def content(folder: Path | str) -> dict[str, str]:
    """SHA-256 of each Parquet file of a sweep, and of sweep.json, by name."""
    files = [file for file in Path(folder).rglob("*") if file.suffix == ".parquet" or file.name == "sweep.json"]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}
