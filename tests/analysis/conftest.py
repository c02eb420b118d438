"""Hand-made run folders: rows as dictionaries, written with the schemas of `sim.results.schema`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.run import Run, load_run
from sim.results.schema import FILES, SCHEMA_VERSION, with_further


class RunFiles:
    """A run that a test writes by hand. Edit the rows (lists of dicts) or the info, then `load()`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: list[dict[str, Any]] = []
        self.segments: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.decisions: list[dict[str, Any]] = []
        self.plans: list[dict[str, Any]] = []
        self.info: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "policy": "fifo",
            "policy_settings": {},
            "trace": {
                "source": "memory",
                "format": "canonical",
                "rule": "duration_s as given",
                "counts": {},
                "notes": [],
                "hash": "h1",
            },
            "work": {
                "mode": "recorded",
                "unit": "s",
                "rule": "durations as recorded",
                "reference": "any GPU",
            },
            "one_type_gangs": True,
            "sizes_gangs": False,
        }
        self.timing: dict[str, Any] | None = {"wall_s": 0.5, "peak_mib": 100.0, "decide_s": 0.1}

    def node(
        self,
        gpu_type: str = "V100",
        gpus: int = 2,
        price: float | None = 2.0,
        down: list[float] | None = None,
        up: list[float] | None = None,
    ) -> RunFiles:
        first = sum(n["gpus"] for n in self.nodes)
        self.nodes.append(
            {
                "node": len(self.nodes),
                "gpu_type": gpu_type,
                "gpus": gpus,
                "first_gpu": first,
                "rack": 0,
                "price_usd_per_gpu_h": price,
                "down_s": down or [],
                "up_s": up or [],
            }
        )
        return self

    def job(
        self,
        job_id: str,
        submit_s: float,
        duration_s: float,
        num_gpus: int = 1,
        gpu_milli: int = 1000,
        state: str = "done",
        reason: str = "",
        gpu_type: str = "",
        vc: str = "",
        user: str = "",
    ) -> RunFiles:
        self.jobs.append(
            {
                "job_id": job_id,
                "user": user,
                "vc": vc,
                "submit_s": submit_s,
                "first_start_s": None,
                "end_s": None,
                "num_gpus": num_gpus,
                "gpu_milli": gpu_milli,
                "gpu_type": gpu_type,
                "model": "",
                "batch_size": 0,
                "duration_s": duration_s,
                "work_total": duration_s,
                "state": state,
                "reason": reason,
            }
        )
        return self

    def segment(
        self,
        job_id: str,
        begin_s: float,
        end_s: float,
        gpu_ids: list[int],
        overhead_s: float = 0.0,
        work_lost: float = 0.0,
        end_reason: str = "done",
    ) -> RunFiles:
        """Add a segment; also sets the job's first start and, where it is finished, its end."""
        job = next(j for j in self.jobs if j["job_id"] == job_id)
        owner = [n for n in self.nodes for _ in range(n["gpus"])]
        on: dict[int, int] = {}
        for gpu in sorted(gpu_ids):
            on[owner[gpu]["node"]] = on.get(owner[gpu]["node"], 0) + job["gpu_milli"]
        self.segments.append(
            {
                "job_id": job_id,
                "begin_s": begin_s,
                "end_s": end_s,
                "nodes": list(on),
                "gpus": [m / 1000 for m in on.values()],
                "gpu_ids": gpu_ids,
                "gpu_milli": job["gpu_milli"],
                "overhead_s": overhead_s,
                "rate": 1.0,
                "work_done": max(0.0, end_s - begin_s - overhead_s),
                "work_lost": work_lost,
                "end_reason": end_reason,
            }
        )
        if job["first_start_s"] is None:
            job["first_start_s"] = begin_s
        if job["state"] in ("done", "killed", "failed"):
            job["end_s"] = end_s
        return self

    def of(self, job_id: str) -> dict[str, Any]:
        """The row of a job."""
        return next(j for j in self.jobs if j["job_id"] == job_id)

    def stretch(self, job_id: str, number: int = 0) -> dict[str, Any]:
        """One of a job's segments."""
        return [s for s in self.segments if s["job_id"] == job_id][number]

    def in_zones(self, *zones: str) -> RunFiles:
        """Put each node into a zone; nothing leaves any."""
        for node, zone in zip(self.nodes, zones, strict=True):
            node["zone"] = zone
        for segment in self.segments:
            segment |= {"egress_usd_per_work": 0.0, "egress_usd": 0.0}
        return self

    def _tables(self) -> dict[str, pa.Table]:
        """The tables; the info says what follows from the rows."""
        if "start_s" not in self.info:
            submits = [j["submit_s"] for j in self.jobs]
            self.info |= {
                "start_s": min(submits),
                "end_s": max(submits + [s["end_s"] for s in self.segments]),
            }
        counts: dict[str, int] = {}
        for n in self.nodes:
            counts[n["gpu_type"]] = counts.get(n["gpu_type"], 0) + n["gpus"]
        self.info.setdefault("cluster", {"name": "hand-made", "gpus_by_type": counts})
        rows = {name: getattr(self, name) for name in FILES}
        return {name: pa.Table.from_pylist(of, schema=with_further(name, {key for row in of for key in row}))
                for name, of in rows.items()}

    def write(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, table in self._tables().items():
            pq.write_table(table, self.folder / f"{name}.parquet")
        (self.folder / "run.json").write_text(json.dumps(self.info))
        if self.timing is not None:
            (self.folder / "timing.json").write_text(json.dumps(self.timing))
        return self.folder

    def load(self, check: bool = True) -> Run:
        return load_run(self.write(), check)

    def in_memory(self) -> Run:
        """The same run without its files, for tests of many."""
        return Run(self.folder, self._tables(), self.info, self.timing or {})


@pytest.fixture
def run_files(tmp_path: Path) -> Callable[..., RunFiles]:
    """Make an empty run in a folder of the given name."""
    return lambda name="run": RunFiles(tmp_path / name)


@pytest.fixture
def story(run_files: Callable[..., RunFiles]) -> RunFiles:
    """A valid run in which nearly everything happens: 140 s, two V100 (down from 50 to 60 s) and two T4."""
    run = run_files("story").node("V100", 2, 2.0, [50.0], [60.0]).node("T4", 2, 1.0)
    run.job("a", 0, 10, 2, gpu_type="V100", vc="x", user="ann").job(
        "b", 0, 20, gpu_milli=500, vc="x", user="bob"
    )
    run.job("c", 1, 20, gpu_milli=500, vc="y", user="bob", state="killed")
    run.job("d", 1, 5, 8, state="rejected", reason="asks for 8 GPUs; the cluster has 2 of a type")
    run.job("e", 2, 100, gpu_type="v100", vc="y", user="ann")
    run.job("f", 120, 100, gpu_type="T4|V100", state="unfinished", reason="still running at the horizon")
    run.job("g", 139, 1, 2, state="unfinished", reason="still waiting at the horizon")
    run.segment("c", 1, 5, [2], end_reason="preempted").segment("a", 0, 10, [0, 1]).segment("b", 0, 20, [2])
    run.segment("c", 20, 38, [3], overhead_s=2)
    run.segment("e", 10, 50, [0], work_lost=10, end_reason="node_failed").segment("e", 60, 130, [1])
    run.segment("f", 120, 140, [3], end_reason="horizon")
    for now_s, *counts in (
        (0, 2, 0, 2, 0), (1, 1, 2, 1, 0), (2, 1, 3, 0, 0), (5, 1, 3, 0, 1), (10, 2, 1, 1, 0), (20, 1, 1, 1, 0),
        (38, 0, 1, 0, 0), (50, 1, 0, 0, 0), (60, 1, 0, 1, 0), (120, 1, 1, 1, 0), (130, 0, 1, 0, 0), (139, 1, 1, 0, 0),
    ):
        run.decisions.append({"now_s": float(now_s), **dict(zip(("queued", "running", "started", "stopped"), counts,
                                                                strict=True))})
    run.plans.append(
        {
            "job_id": "a",
            "begin_s": 0.0,
            "stage": 0,
            "part": 0,
            "first_op": 0,
            "last_op": 9,
            "ops": None,
            "gpu_type": "V100",
            "gpus": 2,
            "share": 1.0,
            "tensor": 1,
            "micro_batches": 1,
            "schedule": "",
            "chunks": 1,
            "recompute": False,
            "zero": 0,
            "iteration_s": 0.1,
            "true_iteration_s": None,
            "memory_gib": 4.0,
        }
    )
    return run


def random_run(folder: Path, jobs: int, seed: int, nodes: int = 50) -> RunFiles:
    """A first-come, first-served run of jobs of 1, 2 and 4 GPUs, each on one node: valid by construction."""
    rng = np.random.default_rng([seed, 1])
    run = RunFiles(folder)
    for n in range(nodes):
        run.node("V100" if n % 2 else "T4", 4, 2.0 if n % 2 else 0.5)
    free = np.zeros((nodes, 4))
    now = 0.0
    ends = []
    for i in range(jobs):
        now += float(rng.exponential(10.0))
        gang, length = int(rng.choice([1, 2, 4])), float(rng.exponential(1000.0))
        ready = np.sort(free, axis=1)[:, gang - 1]
        n = int(np.argmin(ready))
        begin = max(now, float(ready[n]))
        slots = np.argsort(free[n], kind="stable")[:gang]
        free[n, slots] = begin + length
        run.job(f"j{i}", now, length, gang, vc=f"vc{i % 5}", user=f"u{i % 17}")
        ends.append((begin + length, f"j{i}", begin, [4 * n + int(s) for s in slots]))
    place = {j["job_id"]: j for j in run.jobs}
    for end, name, begin, gpus in sorted(ends):
        gpus = sorted(gpus)
        run.segments.append(
            {
                "job_id": name,
                "begin_s": begin,
                "end_s": end,
                "nodes": [gpus[0] // 4],
                "gpus": [float(len(gpus))],
                "gpu_ids": gpus,
                "gpu_milli": 1000,
                "overhead_s": 0.0,
                "rate": 1.0,
                "work_done": end - begin,
                "work_lost": 0.0,
                "end_reason": "done",
            }
        )
        place[name].update(first_start_s=begin, end_s=end)
    return run


@pytest.fixture
def many_jobs(tmp_path: Path) -> Callable[..., RunFiles]:
    """Make a random valid run."""
    return lambda jobs, seed=0, nodes=50, name="many": random_run(tmp_path / name, jobs, seed, nodes)


@pytest.fixture(scope="session")
def big_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a valid run of 80,000 jobs on 1,600 GPUs."""
    return random_run(tmp_path_factory.mktemp("big") / "run", 80_000, seed=0, nodes=400).write()
