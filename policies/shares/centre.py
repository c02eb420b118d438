"""The centre of all best shares: where several are best, the one that an interior-point method ends at."""

from __future__ import annotations

import numpy as np

from policies.shares.demand import Demand
from policies.shares.linear import SolverError

CENTRED = 1e-9
"""Products of slack and price at which the path ends."""
NEAR = 1e-3
"""How far products may be from their mean at the end, as a part of it."""
MOST_STEPS = 200


def centred(demand: Demand, need: np.ndarray, level: float | None = None) -> np.ndarray:
    """Analytic centre of the shares with the largest z, rate[i] >= z need[i]; or of all shares with z = `level`.

    Float64 [groups, types]. It is the end of the central path (Megiddo 1989): of the limit mu -> 0 of

        max z + mu (sum_it jobs[i] (log X[i, t] + log slack of i's time and rate) + sum_t log slack of t's GPUs).

    Alike jobs have alike shares in it, by symmetry: each group counts as often as it has jobs. Who cannot tell types
    apart is spread over them, where a corner would pin a job to one. Gavel's simulator has it from its solver (ECOS).
    Primal-dual steps from an infeasible start (Wright 1997, chapter 5); a step solves two equations for each group, and
    types + 1 for GPUs and z.

    Raises
    ------
    SolverError
        The path did not end in `MOST_STEPS` steps, such as where no shares have that level.
    """
    out = np.zeros(demand.speed.shape)
    runs = np.flatnonzero(demand.fastest > 0)
    if runs.size:
        try:
            with np.errstate(all="ignore"):
                out[runs] = _end_of_path(demand, runs, need, level)
        except np.linalg.LinAlgError as error:
            raise SolverError(2, f"the central path: {error}") from None
    return out


def _end_of_path(demand: Demand, runs: np.ndarray, need: np.ndarray, level: float | None) -> np.ndarray:
    """The shares of the groups `runs`, which run somewhere: [runs, types].

    In words of linear programming: p, q, r are the slacks of time, GPUs and rates, s of X's own bound; y, w and price
    belong to the first three.
    """
    fast, on = demand.fastest[runs], demand.speed[runs] > 0
    a, wants = demand.speed[runs] / fast[:, None], need[runs] / fast
    unit = wants.max()
    n = wants / unit
    many, free = demand.jobs[runs][:, None], level is None
    c = np.where(on, many * demand.gpus[runs][:, None], 0.0)
    # In parts of each type's GPUs, so that rows are alike in size. A type that nobody can use has no row to speak of.
    room = np.where(demand.there > 0, demand.there, 1.0)
    c, ones = c / room, on.astype(float)
    x = np.where(on, 1 / (2 * on.sum(axis=1, keepdims=True)), 1.0)
    z = 0.0 if level is None else level * unit
    p, q, r = np.ones(runs.size), np.ones(room.size), np.ones(runs.size)
    s, y, w, price = np.ones(x.shape), np.ones(runs.size), np.ones(room.size), np.ones(runs.size)
    m, k, pairs = many[:, 0], room.size, (on * many).sum() + 2 * many.sum() + room.size
    spots = np.arange(k)
    left, right = np.zeros((runs.size, k + 2, k + 2)), np.zeros((runs.size, k + 2, k + 2))
    left[:, :k, k], left[:, :k, k + 1], left[:, k, :k], left[:, k + 1, :k] = -a, ones, a, -ones
    right[:, k, 1] = n
    right[:, spots, 2 + spots] = -c
    for _ in range(MOST_STEPS):  # where no shares have the level, numbers grow out of bounds
        products = (x * s / many)[on], p * y / m, q * w, r * price / m  # all equal mu on the path
        gap = ((x * s)[on].sum() + p @ y + q @ w + r @ price) / pairs
        apart = max(float(np.abs(part / gap - 1).max()) for part in products)
        lack_r, lack_p = (a * x).sum(axis=1) - z * n - r, 1 - (ones * x).sum(axis=1) - p
        lack_q = 1 - (c * x).sum(axis=0) - q
        lack_z = 1 - price @ n if free else 0.0
        lack_x = np.where(on, price[:, None] * a - y[:, None] - c * w + s, 0.0)
        off = abs(lack_z) + sum(float(np.abs(lack).max()) for lack in (lack_r, lack_p, lack_q, lack_x))
        if not np.isfinite(off + gap):
            raise SolverError(2, "the central path has no end")
        if off < CENTRED and gap < 2 * CENTRED and apart < NEAR:
            break
        mu = max(0.2 * gap, CENTRED)
        # Of each group dx, dprice, dy, as numbers + (per dz) dz + (per dw) dw; then dw and dz from the rest.
        left[:, spots, spots] = np.where(on, s / x, 1.0)
        left[:, k, k], left[:, k + 1, k + 1] = r / price, p / y
        right[:, :k, 0] = np.where(on, lack_x + (mu * many - x * s) / x, 0.0)
        right[:, k, 0], right[:, k + 1, 0] = (mu * m - r * price) / price - lack_r, (mu * m - p * y) / y - lack_p
        solved = np.linalg.solve(left, right)
        in_x, in_price = solved[:, :k], solved[:, k]
        small = np.zeros((k + 1, k + 1))
        small[:k, :k] = np.diag(q / w) - np.einsum("it,itk->tk", c, in_x[:, :, 2:])
        small[:k, k] = -(c * in_x[:, :, 1]).sum(axis=0)
        side = np.append((mu - q * w) / w - lack_q + (c * in_x[:, :, 0]).sum(axis=0), 0.0)
        if free:
            small[k, :k], small[k, k], side[k] = n @ in_price[:, 2:], n @ in_price[:, 1], lack_z - n @ in_price[:, 0]
        else:
            small[k, k] = 1.0
        answer = np.linalg.solve(small, side)
        dw, dz = answer[:k], answer[k]
        change = solved[:, :, 0] + solved[:, :, 1] * dz + solved[:, :, 2:] @ dw
        dx, dprice, dy = change[:, :k] * on, change[:, k], change[:, k + 1]
        dr, dp, dq = lack_r + (a * dx).sum(axis=1) - n * dz, lack_p - dx.sum(axis=1), lack_q - (c * dx).sum(axis=0)
        ds = np.where(on, (mu * many - x * s - s * dx) / x, 0.0)
        ahead = _step(((x, dx), (p, dp), (q, dq), (r, dr)))
        back = _step(((s, ds), (y, dy), (w, dw), (price, dprice)))
        x, p, q, r, z = x + ahead * dx, p + ahead * dp, q + ahead * dq, r + ahead * dr, z + ahead * dz
        s, y, w, price = s + back * ds, y + back * dy, w + back * dw, price + back * dprice
    else:
        raise SolverError(2, f"the central path did not end in {MOST_STEPS} steps")
    return np.asarray(np.where(on, x, 0.0))


def _step(pairs: tuple[tuple[np.ndarray, np.ndarray], ...]) -> float:
    """The longest step up to 1 that leaves all above a tenth of what would take the first to 0."""
    least = min(float((change / value).min()) for value, change in pairs)
    return min(1.0, 0.9 / -least) if least < 0 else 1.0
