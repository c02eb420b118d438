"""The books balance: no job, no GPU and no end is lost, whatever a policy wrote into its view."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from sim.api import HetsimError, IllegalDecisionError
from sim.cluster.spec import Ledger

HANDS_OFF = "Let the policy write into copies only: view.free_milli.copy(), view.scratch()."


def must_balance(lost: Collection[int], ledger: Ledger, node_down: np.ndarray, where: Callable[..., str]) -> None:
    """No job is lost, and all GPUs have been given back.

    Raises
    ------
    IllegalDecisionError
    """
    must_be_there(lost, where)
    if not ledger.balanced(node_down):
        raise IllegalDecisionError(
            "GPUs were lost or doubled: the policy wrote into the view", where=where(), todo=HANDS_OFF
        )


def must_be_there(lost: Collection[int], where: Callable[..., str]) -> None:
    """No job has vanished from the queue, or stands in it that does not wait.

    Raises
    ------
    IllegalDecisionError
    """
    if not lost:
        return
    try:
        place = where(min(row for row in lost if row >= 0))
    except (ValueError, IndexError):  # no job of the trace stands there
        place = where()
    raise IllegalDecisionError("a job was lost: the policy wrote into the view", where=place, todo=HANDS_OFF)


def must_end(overdue: Collection[int], where: Callable[..., str]) -> None:
    """No job runs on though its work is done: where nodes fail it would start anew for ever, and the run with it.

    Raises
    ------
    HetsimError
    """
    if overdue:
        raise HetsimError("a job holds its GPUs though its work is done: its end was lost", where=where(min(overdue)),
                          todo="This is a fault of hetsim, not of the policy: please report it with the settings.")
