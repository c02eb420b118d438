"""Modules that are imported when they are first used: what takes long to import, and what most commands never ask."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


class Late:
    """Stands for a module under the name that the code uses for it, such as `pd` here.

    Where types are checked it is the module itself.

    Examples
    --------
    >>> maths = Late("math")
    >>> maths.floor(2.5)
    2
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self._name), attribute)
        setattr(self, attribute, found)
        return found


if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Late("pandas")

__all__ = ["Late", "pd"]
