"""The policy is asked; it is a guest, whose mistakes are told as such, with the place where they were made."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

import numpy as np

from sim.api import Decision, HetsimError, IllegalDecisionError, Policy, PolicyError, View
from sim.engine.outcome import described


def decision_of(policy: Policy, view: View, where: Callable[..., str]) -> Decision:
    """What the policy decides now. `where` gives the place that a message names.

    Raises
    ------
    PolicyError
        It failed, or tried to leave.
    """
    try:
        return policy.decide(view)
    except HetsimError:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyError("the policy failed", where=where(), got=described(error)) from error


def keys_of(policy: Policy, view: View, rows: list[int], where: Callable[..., str]) -> list[float]:
    """The keys of jobs that begin to wait, a number each.

    Raises
    ------
    PolicyError
        It gave none, or not one a job.
    IllegalDecisionError
        A key is not a number.
    """
    try:
        keys: list[float] = policy.key(view, np.array(rows, dtype=np.int32)).astype(np.float64).tolist()
        pairs = list(zip(rows, keys, strict=True))
    except HetsimError:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyError("the policy gave no key a job", where=where(), got=described(error)) from error
    for row, key in pairs:
        if isnan(key):
            raise IllegalDecisionError("a key is not a number", where=where(row), got=key)
    return keys
