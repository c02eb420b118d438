"""Fronts that were worked out before, in the user's cache folder (`sim.kernels.cache_folder`): asked for, not redone.

A file is named after a hash of all that a front depends on: our sources and the versions of what computes, processor,
model (each array of its graph), batch, budget, GPU types with their prices, counts and nodes, links, calibration,
optimizer, schedule, methods and space. So nothing stale is read. What is damaged or foreign is worked out anew and
written over; files appear whole, under a name of their own first. Beyond `MOST_BYTES` the files that were not asked for
longest go. `HETSIM_KEEP_FRONTS=0` turns all of it off.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import llvmlite.binding
import numpy as np

from policies.recommend.request.request import Recommendation, Request
from sim.api import Part, Plan, Stage
from sim.kernels.cache_folder import cache_root, code_hash
from sim.performance import OperatorGraph, Performance

MOST_BYTES = 64 * 2**20
"""Of all files together; a front takes some 20 KiB."""
LEFT = 0.75
"""Of MOST_BYTES, what remains when files have to go."""
MARK = "hetsim front"
SUFFIX = ".front"


def kept_name(request: Request, methods: Sequence[str]) -> str:
    """Name of the file of a request's front; '' where none is kept: a belief, a measured model, no wish."""
    performance = request.performance
    if os.environ.get("HETSIM_KEEP_FRONTS") == "0" or type(performance) is not Performance or request.measured:
        return ""
    fleet = request.fleet
    depends_on = (
        code_hash(), platform.python_version(), np.__version__, llvmlite.__version__, platform.machine(),
        llvmlite.binding.get_host_cpu_name(), request.model, _graph_digest(performance.graph(request.model)),
        request.batch_size, request.budget, request.space, request.seed, request.seconds, tuple(methods),
        fleet.types, fleet.counts, fleet.node_gpus, fleet.rented_gpus, fleet.machines,
        performance.links, performance.calibration, performance.optimizer, performance.schedule, performance.blocking,
        performance.overlap, performance.exchange, performance.context_gib,
    )  # fmt: skip
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()


def _graph_digest(graph: OperatorGraph) -> str:
    """Of all that a graph says."""
    digest = hashlib.sha256()
    for owner in (graph, graph.profile):
        for one in fields(owner) if owner is not None else ():
            value = getattr(owner, one.name)
            if value is graph.profile and value is not None:
                continue
            digest.update(f"{one.name} ".encode())
            digest.update(f"{value.dtype} {value.shape} ".encode() + value.tobytes() if isinstance(value, np.ndarray)
                          else repr(value).encode())  # fmt: skip
    return digest.hexdigest()


def read_front(name: str) -> tuple[Recommendation, ...] | None:
    """The front of that name; None where it is not kept, or the file is not what was written."""
    try:
        path = _folder() / f"{name}{SUFFIX}"
        head, _, body = path.read_bytes().partition(b"\n")
        if head.decode() != _head(name, body):
            return None
        with suppress(OSError):
            os.utime(path)
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None
    return tuple(_recommendation(*row) for row in json.loads(body))


def write_front(name: str, front: Sequence[Recommendation]) -> None:
    """Keep a front. Where the folder cannot be written it is not kept, and no run fails of it."""
    body = json.dumps([_row(r) for r in front], separators=(",", ":")).encode()
    with suppress(OSError, RuntimeError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(suffix=".part", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_head(name, body).encode() + b"\n" + body)
            os.replace(part, folder / f"{name}{SUFFIX}")
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
        _make_room(folder)


def _folder() -> Path:
    return cache_root() / "fronts"


def _head(name: str, body: bytes) -> str:
    return f"{MARK} {name} {hashlib.sha256(body).hexdigest()}"


def _make_room(folder: Path) -> None:
    """Delete what was not asked for longest, should there be too much, halves that a killed process left among it."""
    files = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process may have been faster
            found = path.stat()
            files.append((found.st_mtime_ns, found.st_size, path))
    size = sum(num_bytes for _, num_bytes, _ in files)
    if size <= MOST_BYTES:
        return
    for _, num_bytes, path in sorted(files):
        if size <= LEFT * MOST_BYTES:
            break
        path.unlink(missing_ok=True)
        size -= num_bytes


def _row(r: Recommendation) -> list:
    plan = r.plan
    stages = [[s.first_op, s.last_op, s.gpu_type, s.gpus, s.tensor,
               [[p.gpu_type, p.gpus, p.share, p.tensor] for p in s.parts], s.sharded] for s in plan.stages]  # fmt: skip
    return [stages, plan.micro_batches, plan.iteration_s, plan.memory_gib, plan.schedule, plan.chunks, plan.recompute,
            plan.zero, plan.order, r.iteration_s, r.usd_per_iteration, r.counts]  # fmt: skip


def _recommendation(
    stages: list, micro_batches: int, plan_s: float, memory_gib: list, schedule: str, chunks: int, recompute: bool,
    zero: int, order: list, iteration_s: float, usd: float, counts: list,
) -> Recommendation:  # fmt: skip
    cut = tuple(Stage(first, last, name, gpus, tensor, tuple(Part(*part) for part in parts), sharded)
                for first, last, name, gpus, tensor, parts, sharded in stages)  # fmt: skip
    how = micro_batches, plan_s, tuple(memory_gib), schedule, chunks, recompute, zero, tuple(order)
    return Recommendation(Plan(cut, *how), iteration_s, usd, tuple(counts))
