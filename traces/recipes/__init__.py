"""Named recipes: how other systems' papers give jobs of a log a model, a batch, a deadline, a weight.

A new recipe is a new module here that ends in `RECIPE = Recipe(...)`.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from inspect import signature
from typing import Any

from traces.errors import TraceError, did_you_mean
from traces.reading.discovery import discovered
from traces.recipes.recipe import COMMON_SETTINGS, Recipe
from traces.trace import Trace

__all__ = ["COMMON_SETTINGS", "RECIPES", "Recipe", "assign_recipe"]

_SAID = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}


#: Every recipe by name: the RECIPE of each module of this package.
RECIPES: dict[str, Recipe] = discovered(sys.modules[__name__], "RECIPE")


def assign_recipe(trace: Trace, name: str, seed: int, /, **settings: Any) -> Trace:
    """Fill what a trace does not have by a named recipe.

    Values that the trace has stay, unless `overwrite`. Draws are hashes of seed and job id: they depend neither on
    the order of rows nor on the other jobs. What was filled is in the notes of the result.

    Parameters
    ----------
    name : str
        One of `RECIPES`.
    **settings
        Those of `COMMON_SETTINGS` and of `RECIPES[name].settings`; a text is read as what the setting takes ("yes",
        "0.3").

    Raises
    ------
    TraceError
        The recipe or a setting is unknown, or a value is not allowed; names the nearest.
    """
    if name not in RECIPES:
        raise TraceError("unknown recipe", where="--assign", got=name, allowed=", ".join(RECIPES),
                         todo=did_you_mean(name, RECIPES))
    recipe = RECIPES[name]
    defaults = {p.name: p.default for p in signature(recipe.apply).parameters.values() if p.kind is p.KEYWORD_ONLY}
    for key in settings:
        if key not in defaults:
            raise TraceError(f"recipe {name!r} has no such setting", where="--assign", got=key,
                             allowed=", ".join(defaults), todo=did_you_mean(key, defaults))
    return recipe.apply(trace, seed, **{key: _read(key, value, defaults[key]) for key, value in settings.items()})


def _read(key: str, value: Any, default: Any) -> Any:
    """A setting's value, of the type that its default has.

    Raises
    ------
    TraceError
        It is not of that type.
    """
    kinds = {bool: "yes or no", float: "a number", str: "text"}
    if isinstance(default, bool) and isinstance(value, str):
        value = _SAID.get(value.strip().lower(), value)
    elif isinstance(default, float) and isinstance(value, int | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):  # left as it is: refused below
            value = float(value)
    if type(value) is not type(default):
        raise TraceError("value not allowed", where=f"setting {key!r}", got=value, allowed=kinds[type(default)])
    return value
