"""Plug-ins as modules of a package: a new one is a new file, and nothing else changes."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


def discovered(package: ModuleType, attribute: str) -> dict[str, Any]:
    """What each module of a package calls `attribute`, by the `name` that it has, in order of the modules."""
    names = sorted(info.name for info in iter_modules(package.__path__))
    modules = [import_module(f"{package.__name__}.{name}") for name in names]
    found = [getattr(module, attribute) for module in modules if hasattr(module, attribute)]
    return {one.name: one for one in found}
