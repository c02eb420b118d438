"""One configuration a job, of those that there are GPUs for: an integer program, solved by HiGHS."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from traces.late import Late

if TYPE_CHECKING:
    from scipy import optimize, sparse
else:  # half a second, which runs of other policies need not wait for
    optimize, sparse = Late("scipy.optimize"), Late("scipy.sparse")

BEST, STOPPED, GREEDY = "best", "stopped", "greedy"
"""How a choice was found (`Choice.how`)."""


@dataclass(frozen=True)
class Menu:
    """Groups of jobs that are alike, and what each job of a group may have.

    Attributes
    ----------
    saving : float64 [groups, configurations], what it is worth that a job of the group has it; not above 0: not to be
        had, or not worth it.
    milli : int64 [groups, configurations], thousandths of GPUs that it takes.
    kind : int64 [configurations], the GPU type that it takes them of.
    jobs : int64 [groups], how many jobs are alike.
    owner : int64 [groups], who is charged.
    there : int64 [types], milli-GPU of each type.
    left : int64 [owners], milli-GPU that each may take.
    """

    saving: np.ndarray
    milli: np.ndarray
    kind: np.ndarray
    jobs: np.ndarray
    owner: np.ndarray
    there: np.ndarray
    left: np.ndarray

    def fits(self, given: np.ndarray) -> bool:
        """Whether there is room for all of it: exact, in thousandths of GPUs."""
        taken = given * self.milli
        by_type = np.bincount(self.kind, weights=taken.sum(axis=0), minlength=self.there.size)
        by_owner = np.bincount(self.owner, weights=taken.sum(axis=1), minlength=self.left.size)
        enough = (given.sum(axis=1) <= self.jobs).all() and (given >= 0).all()
        return bool(enough and (by_type <= self.there).all() and (by_owner <= self.left).all())


@dataclass(frozen=True)
class Choice:
    """The answer of `choose`: int64 [groups, configurations], how many jobs of a group have it; and how it was found.

    `best` is the optimum, within the gap; `stopped` the best that the solver had when its nodes were used up; `greedy`
    what `greedy` makes where it had nothing.
    """

    given: np.ndarray
    how: str


def choose(menu: Menu, gap: float, nodes: int) -> Choice:
    """max sum_gc saving[g, c] x[g, c], x whole numbers from 0, with

        sum_c x[g, c] <= jobs[g],   sum_{g, c of type t} milli[g, c] x[g, c] <= there[t],   and the same for each owner.

    Where each job can have what is worth most for it, that is the best, and no program is solved. A group of alike jobs
    is one whole number a configuration and not one binary for each job: as good, since what a job gets hangs on nothing
    but its row. What is not worth anything is in no best choice.

    Parameters
    ----------
    gap : the best may be missed by this part of what is saved.
    nodes : of branch and bound, after which the solver stops: not a time, so that a run is the same on any machine.
    """
    wanted = _all_want(menu)
    if menu.fits(wanted):
        return Choice(wanted, BEST)
    columns = np.flatnonzero(_able(menu))
    if not columns.size:
        return Choice(np.zeros_like(menu.milli), BEST)
    g, _ = np.unravel_index(columns, menu.milli.shape)
    worth, limits, most = _program(menu, columns)
    with _silent():
        found = optimize.milp(
            -worth, integrality=np.ones(columns.size), bounds=optimize.Bounds(0, menu.jobs[g]),
            constraints=optimize.LinearConstraint(limits, -np.inf, most),
            # There is nothing to presolve, and what it makes of so few rows is less exact.
            options={"mip_rel_gap": gap, "node_limit": nodes, "presolve": False},
        )  # fmt: skip
    if found.x is not None:
        given = np.zeros_like(menu.milli)
        given.flat[columns] = np.rint(found.x).astype(np.int64)
        if menu.fits(given):
            return Choice(given, BEST if found.status == 0 else STOPPED)
    return Choice(greedy(menu), GREEDY)


@contextmanager
def _silent() -> Iterator[None]:
    """HiGHS says a line now and then on the process's standard output, whatever it is told: it goes nowhere."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def greedy(menu: Menu) -> np.ndarray:
    """A choice by the relaxation, x any numbers: first its whole parts, then the rest by what is left of x, then what
    else there is room for by what it saves a GPU. int64 [groups, configurations]; all of it fits."""
    given = np.zeros_like(menu.milli)
    columns = np.flatnonzero(_able(menu))
    if not columns.size:
        return given
    g, c = np.unravel_index(columns, menu.milli.shape)
    worth, limits, most = _program(menu, columns)
    bounds = np.column_stack([np.zeros(columns.size), menu.jobs[g]])
    found = optimize.linprog(-worth, A_ub=limits, b_ub=most, bounds=bounds, method="highs")
    relaxed = np.zeros(columns.size) if found.x is None else np.maximum(found.x, 0.0)
    whole = np.floor(relaxed + 1e-9)
    a_gpu = worth / menu.milli[g, c]
    jobs, there, left = menu.jobs.copy(), menu.there.copy(), menu.left.copy()
    for order, wanted in (
        (np.lexsort((columns, -a_gpu)), whole),
        (np.lexsort((columns, -a_gpu, whole - relaxed)), np.ceil(relaxed - 1e-9) - whole),
        (np.lexsort((columns, -a_gpu)), menu.jobs[g]),
    ):
        for i in order.tolist():
            need, t, who = int(menu.milli[g[i], c[i]]), int(menu.kind[c[i]]), int(menu.owner[g[i]])
            count = int(min(wanted[i], jobs[g[i]], there[t] // need, left[who] // need))
            if count > 0:
                given[g[i], c[i]] += count
                jobs[g[i]] -= count
                there[t] -= count * need
                left[who] -= count * need
    return given


def _able(menu: Menu) -> np.ndarray:
    """bool [groups, configurations]: worth something, and a job of it fits."""
    room = np.minimum(menu.there[menu.kind][None, :], menu.left[menu.owner][:, None])
    return np.asarray((menu.saving > 0) & (menu.milli <= room))


def _all_want(menu: Menu) -> np.ndarray:
    """Each job has what is worth most for it, as if there were GPUs enough."""
    given = np.zeros_like(menu.milli)
    best = menu.saving.argmax(axis=1)
    rows = np.arange(len(menu.jobs))
    given[rows, best] = np.where(menu.saving[rows, best] > 0, menu.jobs, 0)
    return given


def _program(menu: Menu, columns: np.ndarray) -> tuple[np.ndarray, sparse.csr_array, np.ndarray]:
    """What columns save, and the limits: one row a group, a GPU type, and an owner that is limited."""
    g, c = np.unravel_index(columns, menu.milli.shape)
    groups, types, at = len(menu.jobs), menu.there.size, np.arange(columns.size)
    # In the largest unit that divides all, mostly a GPU: large numbers are at odds with the solver's tolerance.
    unit = int(np.gcd.reduce(menu.milli[g, c]))
    milli = (menu.milli[g, c] // unit).astype(float)
    bound = menu.left < menu.there.sum()  # others are limited by what there is
    row = np.cumsum(bound) - 1 + groups + types
    own = bound[menu.owner[g]]
    rows = np.concatenate([g, groups + menu.kind[c], row[menu.owner[g]][own]])
    values = np.concatenate([np.ones(columns.size), milli, milli[own]])
    shape = groups + types + int(bound.sum()), columns.size
    limits = sparse.csr_array((values, (rows, np.concatenate([at, at, at[own]]))), shape=shape)
    most = np.concatenate([menu.jobs, menu.there // unit, menu.left[bound] // unit]).astype(float)
    return menu.saving[g, c], limits, most
