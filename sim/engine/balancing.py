"""At the end of a run the books balance: no job and no GPU is lost, whatever a policy wrote into its view."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from sim.api import IllegalDecisionError
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
