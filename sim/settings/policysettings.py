"""Settings of a policy: how its fields are declared, and text or numbers read as their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field
from typing import Any

import numpy as np

from traces.errors import HetsimError, did_you_mean


class PolicyError(HetsimError):
    """A policy that cannot be used as asked: unknown name or setting, or a need that the run does not meet."""


def param(
    default: Any,
    *,
    unit: str = "",
    help: str,
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
) -> Any:
    """Declare a policy setting: a dataclass field with its default, unit and meaning, as `hetsim policies NAME` lists.

    Numbers are at least `low` and at most `high`, or greater than `above`, where given.
    """
    bounds = {"low": low, "high": high, "above": above}
    return field(default=default, metadata={"unit": unit, "help": help, "choices": choices, **bounds})


def read_settings(given: Mapping[str, Any], known: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of the settings that were given, of those that are `known` (name -> dataclass field).

    Raises
    ------
    PolicyError
        An unknown name, or a value that is not of the default's type, out of bounds, or not among the choices.
    """
    values = {}
    for name, value in given.items():
        if name not in known:
            raise PolicyError("unknown setting", where=where, got=name, allowed=", ".join(known) or "none",
                              todo=did_you_mean(name, known))
        assert known[name].default is not MISSING
        values[name] = _read(value, known[name], f"{where}, setting {name!r}")
    return values


def _read(value: Any, setting: Any, where: str) -> Any:
    """One setting's value as the type of its default."""
    default, choices = setting.default, setting.metadata["choices"]
    kind = type(default)
    if isinstance(value, str) and kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if value.lower() not in words:
            raise PolicyError("value not allowed", where=where, got=value, allowed="true or false")
        return words[value.lower()]
    allowed = {bool: "true or false", int: "an integer", float: "a number"}.get(kind, "text")
    refused = PolicyError("value not allowed", where=where, got=value, allowed=allowed)
    # Only text is converted freely: int(2.7) is 2 and bool(5) is True, which nobody meant.
    if isinstance(value, bool) != (kind is bool) and not (isinstance(value, str) or kind is str):
        raise refused
    try:
        result = kind(value)
    except (TypeError, ValueError, OverflowError):
        raise refused from None
    if kind is int and not isinstance(value, str) and result != value:
        raise refused
    if isinstance(result, float) and np.isnan(result):
        raise PolicyError("value not allowed", where=where, got=value, allowed="a number")
    low, high, above = (setting.metadata[name] for name in ("low", "high", "above"))
    beyond = high is not None and result > high
    if beyond or (low is not None and result < low) or (above is not None and not above < result < np.inf):
        raise PolicyError(
            "value not allowed",
            where=where,
            got=value,
            allowed=f"a number greater than {above:g}" if above is not None
            else f"a number from {low:g}" if high is None else f"a number from {low:g} to {high:g}",
        )
    if choices and result not in choices:
        raise PolicyError(
            "value not allowed",
            where=where,
            got=value,
            allowed=", ".join(choices),
            todo=did_you_mean(str(result), choices),
        )
    return result
