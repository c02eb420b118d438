"""Time of one training iteration under a pipeline schedule, and where the time goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sim.kernels.pipeline import gpipe_many_s, interleaved_many_s, one_f_one_b_many_s, pipedream_many_s
from sim.performance.graph import PerformanceError
from traces.errors import did_you_mean

BOTH = "both"
"""Of transfers: the sender waits until its message is through, and so does the receiver."""
SCHEDULES = ("1f1b", "gpipe", "interleaved", "async")


@dataclass(frozen=True)
class Iteration:
    """One iteration, divided as the stage that ends last spends it (async: as the busiest stage does).

    iteration = compute + bubble + transfer + all-reduce + update

    Attributes
    ----------
    iteration_s : the whole; inf where it does not fit.
    compute_s : the stage computes, m (forward + backward).
    bubble_s : it waits, even if transfers took no time.
    allreduce_s : gradients are summed over its replicas, after its last backward (no overlap; async: after each).
    transfer_s : what transfers between stages add.
    memory_gib : needed on a GPU of each stage, of several parts on those that are fullest; empty where unknown
        (measured tables).
    fits, reason : whether memory suffices, and what is lacking.
    update_s : its optimizer step (async: its m steps).
    tensor_s : what of compute_s are the sums of tensor parallelism, or the all-to-alls of a stage that is divided
        among its replicas (which has no tensor parallelism).
    """

    iteration_s: float
    compute_s: float
    bubble_s: float
    allreduce_s: float
    transfer_s: float
    memory_gib: tuple[float, ...]
    fits: bool
    reason: str = ""
    update_s: float = 0.0
    tensor_s: float = 0.0
    source: str = "modelled"
    memory_part: tuple[float, ...] = ()
    """`memory_gib` as parts of what those GPUs have."""
    egress_usd: float = 0.0
    """For bytes that leave a zone; NaN: a price is unknown."""

    def tight(self, margin: float) -> tuple[int, ...]:
        """Stages whose GPUs have less than the part `margin` of their memory left."""
        return tuple(s for s, part in enumerate(self.memory_part) if part > 1 - margin)

    @property
    def rate(self) -> float:
        """Iterations a second; 0 where it does not fit."""
        return 1.0 / self.iteration_s if self.fits else 0.0

    def without_fit(self, reason: str) -> Iteration:
        """The same, refused."""
        return replace(self, iteration_s=math.inf, fits=False, reason=reason)


def pipeline_iteration(
    schedule: str,
    fwd: np.ndarray,
    bwd: np.ndarray,
    comm: np.ndarray,
    micro_batches: int,
    allreduce: np.ndarray,
    update: np.ndarray,
    memory_gib: tuple[float, ...],
    *,
    comm_bwd: np.ndarray | None = None,
    tensor: np.ndarray | None = None,
    chunks: int = 1,
    blocking: bool | str = False,
) -> Iteration:
    """Run the schedule and add what follows each stage's last backward.

    One stage repeats forward and backward m times and then sums its gradients once: gradient accumulation.
    Interleaved, a GPU sums and steps chunk after chunk when its last backward has ended. Asynchronous, each
    micro-batch is a batch of its own, after whose backward a stage sums and steps; the iteration is the time of m of
    them once the pipeline is full.

    Parameters
    ----------
    schedule : one of SCHEDULES.
    fwd, bwd : [v p], seconds of a micro-batch in each stage.
    comm : [v p - 1], seconds of a message across each border; `comm_bwd` backward, where it differs.
    allreduce, update : [v p], seconds of each stage.
    tensor : [v p], seconds of fwd + bwd that are sums of tensor parallelism or all-to-alls.
    chunks : v, stages on each of p GPUs (interleaved): stage q is on GPU q mod p.
    blocking : as `schedule_ends_s`.

    Raises
    ------
    PerformanceError
        As `schedule_ends_s`.
    """
    back = comm if comm_bwd is None else comm_bwd
    sums = np.zeros(len(fwd)) if tensor is None else tensor
    f, b, there, again, reduce, step, sums = (_row(a) for a in (fwd, bwd, comm, back, allreduce, update, sums))
    for what, a in (("all-reduce", reduce), ("update", step), ("tensor parallelism", sums)):
        if a.shape != f.shape or not _possible(a):
            raise PerformanceError(
                f"impossible times of {what}", got=a[0].tolist(), allowed=f"{f.shape[1]} times, 0 s or more, finite"
            )
    if schedule == "async":
        return _asynchronous((f, b, there, again), micro_batches, reduce, step, sums, memory_gib, chunks, blocking)
    p, left = divmod(f.shape[1], max(chunks, 1))
    if left:
        raise PerformanceError("chunks do not divide the stages", got=chunks, allowed=f"a divisor of {f.shape[1]}")
    # As it is and, where there are borders, as it would be if transfers took no time.
    rows = 1 + bool(there.size)
    played = [np.concatenate(pair[:rows]) for pair in ((f, f), (b, b), (there, 0 * there), (again, 0 * again))]
    (f2, b2, there2, again2), counts = played, ([p] * rows, [micro_batches] * rows)
    ends = schedule_ends_s(schedule, f2, b2, there2, again2, *counts, chunks=chunks, blocking=blocking)[1]
    of_gpu = [slice(g, None, p) for g in range(p)]
    end, instant = ([max(row[one]) for one in of_gpu] for row in (ends[0].tolist(), ends[-1].tolist()))
    columns = ((f + b)[0].tolist(), *(a[0].tolist() for a in (reduce, step, sums)))
    work, summed, stepped, tensor_s = ([sum(column[one]) for one in of_gpu] for column in columns)
    whole = [sum(parts) for parts in zip(end, summed, stepped, strict=True)]
    last = whole.index(max(whole))
    # A stage ends no sooner than it has worked: what the sums of its schedule fall short of that is rounding, and so is
    # what they exceed it by where a single stage never waits.
    busy = min(micro_batches * work[last], instant[last]) if there.size else micro_batches * work[last]
    return Iteration(
        iteration_s=whole[last],
        compute_s=busy,
        bubble_s=instant[last] - busy if there.size else 0.0,
        allreduce_s=summed[last],
        transfer_s=end[last] - instant[last],
        memory_gib=memory_gib,
        fits=True,
        update_s=stepped[last],
        tensor_s=micro_batches * tensor_s[last],
    )


def _asynchronous(
    times: tuple[np.ndarray, ...],
    micro_batches: int,
    reduce: np.ndarray,
    step: np.ndarray,
    sums: np.ndarray,
    memory_gib: tuple[float, ...],
    chunks: int,
    blocking: bool | str,
) -> Iteration:
    f, b, there, again = times
    if chunks != 1:
        raise PerformanceError("only the schedule 'interleaved' has several chunks", got=chunks, allowed="1")
    period = steady_period_s(f, b, there, again, reduce + step, [f.shape[1]], blocking=blocking)
    m = _positive("micro-batches", np.array([micro_batches]))[0]
    # Without transfers the slowest stage sets the pace, and never waits.
    slowest = int(np.argmax((f + b + reduce + step)[0]))
    whole, *parts = (float(m * a) for a in (period[0], *(a[0, slowest] for a in (f + b, reduce, step, sums))))
    compute, reduced, stepped, summed = parts
    # No stage is faster than its own work: less is rounding.
    transfer = max(0.0, whole - compute - reduced - stepped) if there.size else 0.0
    return Iteration(whole, compute, 0.0, reduced, transfer, memory_gib, True, update_s=stepped, tensor_s=summed)


def schedule_ends_s(
    schedule: str,
    fwd: np.ndarray,
    bwd: np.ndarray,
    comm_fwd: np.ndarray,
    comm_bwd: np.ndarray,
    stages: np.ndarray | list[int],
    micro_batches: np.ndarray | list[int],
    *,
    chunks: int = 1,
    blocking: bool | str = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Play a synchronous schedule of n plans: the checked door to `sim.kernels.pipeline`.

    Parameters
    ----------
    schedule : '1f1b', 'gpipe' or 'interleaved'.
    fwd, bwd : [n, P], seconds of a micro-batch in each stage; beyond a plan's stages anything.
    comm_fwd, comm_bwd : [n, P - 1], seconds of a message across each border.
    stages, micro_batches : [n]; interleaved: GPUs p, of chunks * p stages.
    blocking : transfers overlap with computation, each border with its own channel a direction (False); or the sending
        GPU does nothing else until its message is through, and no message waits for another (True). The receiver is
        free meanwhile. Where a message takes as long back as there, this is also what neighbours lose in the steady
        state who wait for each other's exchange.

    Returns
    -------
    iteration_s : float64 [n], end of the last backward of all (blocking: and of its message).
    last_end_s : float64 [n, P], of each stage; NaN beyond a plan's stages.

    Raises
    ------
    PerformanceError
        Unknown schedule; shapes that do not match; a count below 1; a time that is negative, NaN or infinite;
        micro-batches that p does not divide (interleaved).
    """
    if schedule not in SCHEDULES or schedule == "async":
        names = [name for name in SCHEDULES if name != "async"]
        raise PerformanceError(
            "not a schedule that ends" if schedule == "async" else "unknown pipeline schedule",
            got=schedule,
            allowed=", ".join(names),
            todo=did_you_mean(schedule, names),
        )
    if chunks != 1 and schedule != "interleaved":
        raise PerformanceError("only the schedule 'interleaved' has several chunks", got=chunks, allowed="1")
    p, m = _positive("stages", np.array(stages)), _positive("micro-batches", np.array(micro_batches))
    v = _positive("chunks", np.full(len(p), chunks))
    times = _checked((fwd, bwd), (comm_fwd, comm_bwd), p * v)
    if m.shape != p.shape:
        raise PerformanceError("stages and micro-batches differ in length", got=len(m), allowed=str(len(p)))
    if blocking:
        times = _with_messages(times, p * v, blocking)
    if schedule == "gpipe":
        result = gpipe_many_s(*times, p, m)
    elif schedule == "1f1b":
        result = one_f_one_b_many_s(*times, p, m)
    else:
        if (m % p).any():
            plan = int(np.argmax(m % p != 0))
            raise PerformanceError(
                "interleaved stages take micro-batches in groups of as many as there are GPUs in the pipeline",
                got=int(m[plan]),
                allowed=f"a multiple of {p[plan]}",
                todo="Change micro_batches, or use the schedule '1f1b'.",
            )
        result = interleaved_many_s(*times, p, m, v)
    return result[0], result[1]


def steady_period_s(
    fwd: np.ndarray,
    bwd: np.ndarray,
    comm_fwd: np.ndarray,
    comm_bwd: np.ndarray,
    sync: np.ndarray,
    stages: np.ndarray | list[int],
    *,
    blocking: bool | str = False,
) -> np.ndarray:
    """Seconds between micro-batches of the asynchronous schedule once its pipeline is full: float64 [n].

    The formula is at `sim.kernels.pipeline.pipedream_many_s`; parameters and errors as `schedule_ends_s`, and

    sync : [n, P], seconds after each backward in which the stage sums gradients and steps (blocking: after it has sent
        its message).
    """
    p = _positive("stages", np.array(stages))
    f, b, after, there, again = _checked((fwd, bwd, sync), (comm_fwd, comm_bwd), p)
    times: tuple[np.ndarray, ...] = (f, b, there, again)
    if blocking:
        times = _with_messages(times, p, blocking)
    return np.asarray(pipedream_many_s(*times, after, p))


def _possible(times: np.ndarray) -> bool:
    """Whether all times are 0 s or more, and finite."""
    return times.size == 0 or bool(times.min() >= 0 and times.max() < np.inf)


def _row(values: np.ndarray) -> np.ndarray:
    return np.array(values, dtype=np.float64).reshape(1, -1)


def _positive(what: str, counts: np.ndarray) -> np.ndarray:
    """Counts as int64 [n], each 1 or more."""
    whole = counts.ndim == 1 and (counts.dtype.kind in "iu" or bool((counts == np.floor(counts)).all()))
    if not whole or (counts.size and counts.min() < 1):
        bad = counts if not whole else counts[counts < 1][0].item()
        raise PerformanceError(f"impossible number of {what}", got=bad, allowed="1, 2, 3 ...")
    return counts.astype(np.int64)


def _checked(
    of_stages: tuple[np.ndarray, ...], of_borders: tuple[np.ndarray, ...], used: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Times as float64, each a writable copy: one signature for the kernels, whatever is given.

    Plan i uses the first used[i] stages and used[i] - 1 borders.
    """
    times = [np.array(a, dtype=np.float64) for a in (*of_stages, *of_borders)]
    shape = (len(used), times[0].shape[-1] if times[0].ndim else 0)
    wanted = [shape] * len(of_stages) + [(shape[0], shape[1] - 1)] * len(of_borders)
    if [a.shape for a in times] != wanted or (used > shape[1]).any():
        raise PerformanceError(
            "times of stages and borders do not match",
            got=", ".join(str(a.shape) for a in times),
            allowed=f"{len(used)} plans, {used.max(initial=1)} stages or more, a border less than stages",
        )
    if all(map(_possible, times)):
        return tuple(times)
    for k, a in enumerate(times):
        what, count = ("stage", used) if k < len(of_stages) else ("border", used - 1)
        bad = (np.arange(a.shape[1]) < count[:, None]) & ~((a >= 0) & (a < np.inf))
        if bad.any():
            plan, place = (int(x) for x in np.argwhere(bad)[0])
            raise PerformanceError(
                "a time is unknown or impossible",
                where=f"{what} {place} of plan {plan}",
                got=float(a[plan, place]),
                allowed="0 s or more, finite",
            )
    return tuple(times)


def _with_messages(
    times: tuple[np.ndarray, ...], used: np.ndarray, blocking: bool | str | str
) -> tuple[np.ndarray, ...]:
    """Blocking transfers: a stage is as long as its computation and its messages.

    Messages take no time of their own where the sender alone waits. Where both do, a message is the end of the sender's
    work and the beginning of the receiver's, who may therefore begin as much before the sender ends.
    """
    fwd, bwd, comm_fwd, comm_bwd = times
    inside = np.arange(comm_fwd.shape[1]) < (used - 1)[:, None]
    there, back = (np.where(inside, comm, 0.0) for comm in (comm_fwd, comm_bwd))
    fwd[:, :-1] += there
    bwd[:, 1:] += back
    if blocking != BOTH:
        return fwd, bwd, np.zeros_like(comm_fwd), np.zeros_like(comm_bwd)
    fwd[:, 1:] += there
    bwd[:, :-1] += back
    return fwd, bwd, -there, -back
