"""A real Dask scheduler and two workers, as processes of their own on loopback, in a folder that is not ours."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sim.sweeps.cell import Outcome, Task
from sim.sweeps.daskcluster import Dask, connect, slurm_cluster
from sim.sweeps.kept import SweepError
from sim.sweeps.sweepfile import DaskSettings
from tests.conftest import PATIENCE_S, ROOT
from tests.sweeps.conftest import content, played

pytest.importorskip("distributed", reason="Dask is not installed: pip install hetsim[dask]")


class Cluster:
    """A scheduler and its workers; each is ended by its own process id."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.scheduler = self._start("dask_scheduler", "--port", "0")
        self._until(self.file.exists)
        self.workers: list[subprocess.Popen[bytes]] = []

    def _start(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{program}", "--host", "127.0.0.1", "--no-dashboard",
                   "--scheduler-file", str(self.file), *words]
        path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        return subprocess.Popen(command, cwd=self.folder, env=os.environ | {"PYTHONPATH": path},
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def add(self, workers: int) -> None:
        self.workers += [self._start("dask_worker", "--no-nanny", "--nthreads", "1") for _ in range(workers)]

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])

    @staticmethod
    def _until(ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not ready():
            assert time.monotonic() < deadline, "Dask does not start"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("dask"))
    try:
        made.add(2)
        yield made
    finally:
        made.end()


class KillsOne:
    """Dask, one of whose workers is killed while it plays."""

    def __init__(self, executor: Dask, cluster: Cluster) -> None:
        self._executor, self._cluster, self.busy = executor, cluster, 0

    @property
    def workers(self) -> int:
        return self._executor.workers

    def outcomes(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        for number, outcome in enumerate(self._executor.outcomes(tasks)):
            if number == 1:
                self._cluster.workers[0].kill()
            yield outcome

    def close(self) -> None:
        self._executor.close()


@pytest.mark.slow
def test_dask_changes_no_byte_reads_files_from_our_folder_and_outlives_a_killed_worker(grid, cluster):
    made = grid("""
        [[sweep]]
        policy = ["fifo", "srtf"]
        seed = [0, 1, 2]
        [[sweep]]
        trace = "jobs.csv"
        cluster = ["v100:2", "v100:4"]
    """)
    played(made, "here")
    now = played(made, "dask", lambda: connect(cluster.address, 2, DaskSettings()))
    assert (now.done, now.failed) == (8, [])
    assert content("dask") == content("here")
    then = played(made, "killed", lambda: KillsOne(connect(cluster.address, 2, DaskSettings()), cluster))
    assert (then.done, then.failed) == (8, [])
    assert content("killed") == content("here")
    assert cluster.workers[0].wait() != 0


def test_a_file_that_changed_meanwhile_is_not_played_as_if_it_were_the_same(grid, cluster):
    """The check has read jobs.csv; a worker, that has not read it yet, finds another."""
    Path("jobs.csv").write_text("job_id,submit_s,duration_s,num_gpus\nfirst,0,1,1\n")
    made = grid('trace = "jobs.csv"\ncluster = "v100:2"')

    def changing():
        Path("jobs.csv").write_text("job_id,submit_s,duration_s,num_gpus\nsecond,0,1,1\n")
        return connect(cluster.address, 2, DaskSettings())

    now = played(made, "out", changing)
    ((_, error),) = now.failed
    assert "the trace is not that with which the sweep was checked" in error


def test_no_scheduler_no_sweep(monkeypatch):
    monkeypatch.setattr("sim.sweeps.daskcluster.CONNECT_S", 1)
    with pytest.raises(SweepError, match=r"--dask tcp://127.0.0.1:1: no Dask scheduler answers"):
        connect("tcp://127.0.0.1:1", 2, DaskSettings())
    with pytest.raises(SweepError, match="no Dask scheduler answers"):
        connect("locale", 2, DaskSettings())


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SweepError, match=r"Dask is not installed. pip install hetsim\[dask\]"):
        connect("local", 2, DaskSettings())
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(SweepError, match=r"dask-jobqueue is not installed. pip install hetsim\[slurm\]"):
        slurm_cluster(DaskSettings())


def test_slurm_is_asked_for_what_the_file_says():
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed: pip install hetsim[slurm]")
    settings = DaskSettings(queue="batch", account="lab", memory="6GB", time="02:30:00", interface="lo",
                            options=["--exclusive"], setup=["module load python"])
    cluster = slurm_cluster(settings)
    try:
        script = cluster.job_script()
    finally:
        cluster.close()
    for line in ("#SBATCH -p batch", "#SBATCH -A lab", "#SBATCH -t 02:30:00", "#SBATCH --exclusive",
                 "#SBATCH --cpus-per-task=1", "#SBATCH --mem=6G", "module load python"):
        assert line in script, script


def test_a_cluster_of_our_own_listens_on_loopback_only():
    """A scheduler has no password."""
    psutil = pytest.importorskip("psutil")

    def listening() -> set[tuple[str, int]]:
        us = psutil.Process()
        return {tuple(at.laddr) for process in (us, *us.children(recursive=True))
                for at in process.net_connections("inet") if at.status == psutil.CONN_LISTEN}

    before = listening()  # what other tests have left
    executor = connect("local", 1, DaskSettings())
    beside = connect("local", 1, DaskSettings())  # two at once want no port twice
    try:
        ours = listening() - before
    finally:
        beside.close()
        executor.close()
    assert len(ours) >= 4
    assert not [at for at in ours if not ipaddress.ip_address(at[0]).is_loopback], ours
