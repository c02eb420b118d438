"""Cells on a Dask cluster: one that is there, one made here, or one of Slurm jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from sim.sweeps.cell import Outcome, Task, play
from sim.sweeps.kept import SweepError
from sim.sweeps.sweepfile import DaskSettings

CONNECT_S = 30
"""How long a scheduler may take to answer."""


class Dask:
    """A Dask cluster. A worker process plays one cell at a time, however many threads it has.

    Tasks and outcomes go through the scheduler, so that workers need no disk that this machine has, but for the files
    that settings name.
    """

    def __init__(self, client: Any, workers: int = 0) -> None:
        self._client = client
        self._asked = workers  # where they are yet to come
        self.busy = 0

    @property
    def workers(self) -> int:
        return len(self._client.nthreads()) or self._asked

    def outcomes(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        from distributed import as_completed

        ended = as_completed()
        cells: dict[str, str] = {}

        def hand_out() -> None:
            workers = self.workers
            while len(cells) < 2 * max(workers, 1) and (task := next(tasks, None)):  # one is on its way to each
                future = self._client.submit(play, task, worker=True, pure=False)
                cells[future.key] = task.cell
                ended.add(future)
            self.busy = min(len(cells), workers)

        hand_out()
        while cells:
            future = next(ended)
            cell = cells.pop(future.key)
            if future.status == "finished":
                outcome = future.result()
            elif future.status == "error":  # its workers ended, or lack our code; `play` itself raises nothing
                error = future.exception()
                outcome = Outcome(cell, error=f"{type(error).__name__}: {error}")
            else:
                raise SweepError("the Dask scheduler has lost the cell", got=future.status,
                                 todo="What is done stays; the same command goes on.")
            future.release()
            hand_out()
            yield outcome

    def close(self) -> None:
        self._client.close()
        if self._client.cluster is not None:
            self._client.cluster.close()


def connect(where: str, workers: int, slurm: DaskSettings) -> Dask:
    """The cluster that a user named: `local`, `slurm`, or a scheduler's address.

    Raises
    ------
    SweepError
        The extra is not installed, or nothing answers there.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise SweepError("Dask is not installed", where=f"--dask {where}", todo="pip install hetsim[dask]") from None
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm", "distributed.nanny"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters of it is said in our words
    if where == "local":
        # Its page is where none is: the usual port may be that of another sweep.
        cluster = LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1",
                               dashboard_address="127.0.0.1:0")
        return Dask(Client(cluster))
    if where == "slurm":
        cluster = slurm_cluster(slurm)
        cluster.scale(jobs=workers)
        return Dask(Client(cluster), workers)
    try:
        return Dask(Client(where, timeout=CONNECT_S))
    except (OSError, ValueError) as error:
        raise SweepError("no Dask scheduler answers", where=f"--dask {where}", got=str(error),
                         allowed="an address such as tcp://host:8786, local or slurm") from None


def slurm_cluster(settings: DaskSettings) -> Any:
    """A scheduler here whose workers are jobs of Slurm, one cell at a time each; none is asked for yet.

    Raises
    ------
    SweepError
        dask-jobqueue is not installed.
    """
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise SweepError("dask-jobqueue is not installed", where="--dask slurm",
                         todo="pip install hetsim[slurm]") from None
    return SLURMCluster(
        queue=settings.queue, account=settings.account, memory=settings.memory, walltime=settings.time,
        interface=settings.interface, job_extra_directives=list(settings.options),
        job_script_prologue=list(settings.setup), cores=1, processes=1,
        scheduler_options={"dashboard_address": "127.0.0.1:0"},  # it shows all, and asks for no password
    )
