"""Modules that are imported when they are first used: what takes long to import, and what most commands never ask."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Late:
    """Stands for a module, such as ``pd = Late("pandas")``, under the name that the code uses for it.

    Where types are checked, the module itself must be imported (`typing.TYPE_CHECKING`).

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
