"""Rounds against the public simulator of Gavel: the same jobs, rates and shares give the same rounds and ends.

Its results name who ran where in which round (`rounds.csv`), when each job was done (`jobs.csv`, to a millionth of a
second), and which shares its solver found (`alloc.jsonl`); how they came about: the README beside them.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from policies.mechanisms import GavelRounds
from sim.api import View
from sim.engine.simulate import RunResult
from sim.settings.config import RunConfig
from sim.sweeps.replay import Replay
from tests.helpers import segments

TYPES = ("v100", "p100", "k80")
AS_SIMULATED = {"accounting": "gavel-simulator", "whole_steps": True, "placement": "first-fit"}
CLOSE_S = 1e-6

RUNS = ("contS_12-12-12_s0_allox", "contS_12-12-12_s0_isolated", "contS_12-12-12_s0_max_min_fairness_perf",
        "contS_4-4-4_s0_max_min_fairness_perf")
"""Of these the shares are recorded."""
ISOLATED = ("phys_maxmin_8-16-24_s0_isolated", "contS_12-12-12_s0_isolated", "contS_8-8-8_s0_isolated",
            "contS_4-4-4_s0_isolated")
SOON_S = 150_000.0
"""The first rounds are always looked at, the whole run among the slow tests."""
WHOLE = pytest.param(None, marks=pytest.mark.slow, id="whole")
TO_HORIZON = [SOON_S, WHOLE]


@dataclass
class AsRecorded(GavelRounds):
    """Shares as another solver found them, one after the other."""

    needs_throughput: ClassVar[bool] = True
    solves: ClassVar[Iterator[dict[str, Any]]]

    def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
        solve = next(type(self).solves)
        assert solve["t"] == pytest.approx(view.now_s, abs=CLOSE_S)
        shares = {int(job): [by_type.get(name, 0.0) for name in TYPES] for job, by_type in solve["alloc"].items()}
        assert sorted(shares) == rows.tolist()
        return np.array([shares[row] for row in rows.tolist()])


def replay_of(
    run: str, oracles: Path, data: Path, horizon_s: float | None, policy: str = "isolated", **more: Any
) -> Replay:
    """The run's trace, by its rates, on its cluster: V100, P100 and K80, one GPU a server.

    The physical rates are of gangs on as few servers as hold them: there a server has all GPUs of a type. (In theirs
    placement never changes speed.)
    """
    by_type = [int(count) for count in run.partition("_s0_")[0].rpartition("_")[2].split("-")]
    physical = run.startswith("phys")
    trace = oracles / ("max_min_fairness.trace" if physical else "cont_single_s0_lam3600_n200.trace")
    rates = str(oracles / "physical_cluster_throughputs.json" if physical
                else data / "gavel" / "simulation_throughputs.json")
    shape = "1x{}" if physical else "{}x1"
    return Replay(RunConfig.model_validate({
        "policy": policy, "policy_settings": AS_SIMULATED | more, "trace": str(trace),
        "cluster": "+".join(f"{name}:{shape.format(n)}" for name, n in zip(TYPES, by_type, strict=True)),
        "work": "iterations", "measured": rates, "measured_gaps": "refuse", "reference": "V100",
        "read": {"throughputs": rates, "unmeasured": "refuse"},
        "engine": {"preemption_overhead_s": 0.0, "horizon_s": horizon_s},
    }))


def completions(folder: Path, run: str, until_s: float) -> dict[str, float]:
    with (folder / f"{run}.jobs.csv").open(newline="") as lines:
        ends = {row["job_id"]: float(row["completion_s"]) for row in csv.DictReader(lines)}
    return {job: end for job, end in ends.items() if end < until_s}


def same_ends(result: RunResult, oracles: Path, run: str, horizon_s: float | None) -> None:
    theirs = completions(oracles, run, horizon_s or np.inf)
    table = result.tables["jobs"].to_pandas()
    ours = dict(zip(table["job_id"], table["end_s"], strict=True))
    assert len(theirs) >= (20 if horizon_s else len(table))
    off = {job: ours[job] - end for job, end in theirs.items() if not abs(ours[job] - end) < CLOSE_S}
    assert not off


@pytest.mark.parametrize("horizon_s", TO_HORIZON)
@pytest.mark.parametrize("run", RUNS)
def test_by_recorded_shares_jobs_end_when_theirs_do(
    run: str, horizon_s: float | None, oracle_dir: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracles = oracle_dir / "gavel"
    with gzip.open(oracles / f"{run}.alloc.jsonl.gz", "rt") as lines:
        solves = [json.loads(line) for line in lines]
    monkeypatch.setattr(AsRecorded, "solves", iter([s for s in solves if s["alloc"]]), raising=False)
    replay = replay_of(run, oracles, data_dir, horizon_s)
    replay.policy = AsRecorded(**AS_SIMULATED, walk="shuffled" if run.endswith("isolated") else "types")
    result = replay.play()
    same_ends(result, oracles, run, horizon_s)
    assert horizon_s or next(AsRecorded.solves, None) is None, "as many solves as theirs"
    assert not differing_rounds(result, oracles, run, horizon_s or np.inf)


def differing_rounds(result: RunResult, oracles: Path, run: str, until_s: float) -> list[str]:
    """Rounds of theirs in which a job of ours was elsewhere, or stopped at another time."""
    v100, p100, k80 = (int(count) for count in run.split("_")[1].split("-"))
    # They number workers by the names of the types, we GPUs by the order of the cluster.
    shift = {"k80": v100 + p100, "p100": v100 - k80, "v100": -k80 - p100}
    held: dict[str, list[Any]] = defaultdict(list)
    for segment in segments(result).itertuples():
        held[segment.job_id].append(segment)
    at: dict[str, int] = defaultdict(int)
    off, seen = [], 0
    with gzip.open(oracles / f"{run}.rounds.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            job, begin_s, end_s = row["job"], float(row["round_start_s"]), float(row["finish_s"])
            if end_s >= until_s:
                continue
            while at[job] < len(held[job]) - 1 and held[job][at[job]].end_s < end_s - CLOSE_S:
                at[job] += 1
            ours = held[job][at[job]]
            # Who ends the round and stays goes on without a break: one segment of several rounds.
            same = (ours.begin_s <= begin_s + CLOSE_S and ours.end_s >= end_s - CLOSE_S
                    and list(ours.gpu_ids) == [int(worker) + shift[row["worker_type"]]
                                               for worker in row["worker_ids"].split()])
            seen += 1
            if not same:
                off.append(f"round {row['round']}, job {job}")
    assert seen > 500
    return off


@pytest.mark.parametrize("horizon_s", TO_HORIZON)
@pytest.mark.parametrize("run", ISOLATED)
def test_isolated_jobs_end_when_theirs_do(
    run: str, horizon_s: float | None, oracle_dir: Path, data_dir: Path
) -> None:
    replay = replay_of(run, oracle_dir / "gavel", data_dir, horizon_s)
    same_ends(replay.play(), oracle_dir / "gavel", run, horizon_s)
