"""Modules that are imported when they are first used: what takes long to import, and what most commands never ask."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def unseen(*names: str) -> Iterator[None]:
    """Within it some modules cannot be imported: what another library imports only if it is there, and we do not use.

    Modules that are imported already are left alone.

    Examples
    --------
    >>> with unseen("wave"):
    ...     try:
    ...         import wave
    ...     except ImportError:
    ...         print("not there")
    not there
    >>> import wave
    """
    hidden = [name for name in names if name not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]


if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Late("pandas")

__all__ = ["Late", "pd", "unseen"]
