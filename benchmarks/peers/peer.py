"""What is asked of another simulator, and the comparison with it: nothing of theirs is here, a user fetches it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow.parquet as pq

from benchmarks.measuring import BenchError, measured
from traces.readers.canonical import write_trace
from traces.trace import Trace

ROOT = Path(__file__).resolve().parents[2]


class Peer(Protocol):
    """Another simulator in a folder that a user fetched.

    Attributes
    ----------
    name : by which it is asked for.
    policies : our name of a policy, with its settings -> its name there.
    fits : numbers of GPUs that a job may ask for there; empty: any.
    """

    name: str
    policies: Mapping[str, str]
    fits: tuple[int, ...]

    def write(self, trace: Trace, nodes: int, gpus: int, checkout: Path, folder: Path) -> None:
        """Write the jobs (whole seconds, the first at 0) and the cluster in its formats."""

    def words(self, policy: str, nodes: int, gpus: int, checkout: Path, folder: Path, python: str) -> Sequence[str]:
        """The command that plays what was written."""

    def ends_s(self, folder: Path, out: str) -> Mapping[int, float]:
        """Row of each job that ended -> its completion time (JCT), in s; `out` is what the command printed."""


@dataclass(frozen=True)
class Compared:
    """Both simulators on the same jobs: CPU seconds, peak memory, and completion times (means over the same jobs)."""

    jobs: int
    ours_cpu_s: float
    theirs_cpu_s: float
    ours_mib: float
    theirs_mib: float
    ours_jct_s: float
    theirs_jct_s: float
    equal: int
    furthest_s: float

    @property
    def text(self) -> str:
        """A few lines that say all of it."""
        more = self.theirs_jct_s / self.ours_jct_s - 1
        return (f"  CPU time  {self.theirs_cpu_s:10.2f} s    ours {self.ours_cpu_s:10.2f} s    "
                f"{self.theirs_cpu_s / self.ours_cpu_s:.1f} times ours\n"
                f"  memory    {self.theirs_mib:10.0f} MiB  ours {self.ours_mib:10.0f} MiB\n"
                f"  mean JCT  {self.theirs_jct_s:10.0f} s    ours {self.ours_jct_s:10.0f} s    {more:+.3%}\n"
                f"  of {self.jobs:,} jobs {self.equal:,} end within a second of ours; "
                f"the furthest is {self.furthest_s:,.0f} s away")


def whole_seconds(trace: Trace, most_gpus: int, fits: Sequence[int] = ()) -> Trace:
    """The trace as all simulators can read it: jobs that fit, whole seconds, the first submission at 0.

    Raises
    ------
    BenchError
        No job fits.
    """
    keep = trace.num_gpus <= most_gpus
    if fits:
        keep &= np.isin(trace.num_gpus, np.array(fits))
    if not keep.any():
        raise BenchError(f"no job asks for {' or '.join(map(str, fits)) or 'at most'} of {most_gpus} GPUs; take more "
                         "jobs or GPUs")
    first_s = trace.submit_s[keep][0]
    return Trace.from_columns({
        "job_id": [f"{row:07d}" for row in range(int(keep.sum()))],
        "submit_s": np.round(trace.submit_s[keep] - first_s),
        "duration_s": np.maximum(np.round(trace.duration_s[keep]), 1),
        "num_gpus": trace.num_gpus[keep],
    })


def compare(
    peer: Peer, trace: Trace, policy: str, nodes: int, gpus: int, checkout: Path, python: str,
) -> Compared:
    """Play jobs in both simulators, each in a process of its own.

    Parameters
    ----------
    trace : in whole seconds, see `whole_seconds`.
    nodes, gpus : how many nodes there are, and GPUs on each.
    checkout : folder with the other simulator.
    python : with which it runs.

    Raises
    ------
    BenchError
        It has no such policy, a command failed, or the two did not finish the same jobs.
    """
    if policy not in peer.policies:
        raise BenchError(f"{peer.name}: no policy {policy}; there are {', '.join(peer.policies)}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        peer.write(trace, nodes, gpus, checkout, folder)
        theirs = measured(list(peer.words(peer.policies[policy], nodes, gpus, checkout, folder, python)), folder)
        write_trace(trace, folder / "jobs.csv")
        ours = measured([
            sys.executable, "-m", "sim", "run", "--trace", str(folder / "jobs.csv"), "--policy", policy,
            "--cluster", f"v100:{nodes}x{gpus}", "--work", "recorded", "-P", "placement=count",
            "--out", str(folder / "run"), "--quiet"], ROOT)
        ours_s = _ends_s(folder / "run" / "jobs.parquet")
        theirs_s = peer.ends_s(folder, theirs.out)
    if ours_s.keys() != theirs_s.keys():
        raise BenchError(f"{peer.name} finished {len(theirs_s):,} jobs, we {len(ours_s):,}; "
                         "only runs that finish the same jobs can be compared")
    rows = sorted(ours_s)
    one, other = (np.array([times[row] for row in rows]) for times in (ours_s, theirs_s))
    return Compared(len(rows), ours.cpu_s, theirs.cpu_s, ours.peak_mib, theirs.peak_mib, float(one.mean()),
                    float(other.mean()), int((abs(one - other) <= 1).sum()), float(abs(one - other).max()))


def _ends_s(jobs: Path) -> dict[int, float]:
    """Completion time of each job of a run of ours that ended, in s."""
    table = pq.read_table(jobs, columns=["job_id", "submit_s", "end_s"])
    jct_s = table["end_s"].to_numpy() - table["submit_s"].to_numpy()
    return {int(job): float(took_s) for job, took_s in zip(table["job_id"].to_pylist(), jct_s, strict=True)
            if np.isfinite(took_s)}
