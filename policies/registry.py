"""Policies by name: each file in a family's folder that defines one; others come by entry point.

A family is a folder here that is not one of the `SHARED` ones; a new folder, and a new file in it, is listed nowhere.

A third party's package declares `[project.entry-points."hetsim.policies"]  my-policy = "package.module:Class"`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import policies
from sim.api import Policy, PolicyError
from traces.errors import did_you_mean

ENTRY_POINTS = "hetsim.policies"
SHARED = frozenset({"checks", "estimate", "matching", "mechanisms", "place", "recommend", "registry", "shares"})
"""What policies share, and no policy is looked for in."""


@cache
def names() -> tuple[str, ...]:
    """Names of all policies, sorted."""
    return tuple(sorted({*_ours(), *(e.name for e in entry_points(group=ENTRY_POINTS))}))


def _ours() -> dict[str, type[Policy]]:
    return _read_folder()[0]


def _modules() -> Iterator[str]:
    """Names of the modules in which a policy may be: those of the families' folders, and files beside the folders."""
    for entry in pkgutil.iter_modules(policies.__path__, "policies."):
        if entry.name.rpartition(".")[2] in SHARED:
            continue
        if entry.ispkg:
            family = importlib.import_module(entry.name)
            yield from (file.name for file in pkgutil.iter_modules(family.__path__, f"{entry.name}.") if not file.ispkg)
        else:
            yield entry.name


Read = tuple[dict[str, type[Policy]], dict[str, tuple[str, str]]]
"""Our policies by name, and those whose file cannot be read: the file, and what is wrong (others still run)."""


def _named(module: str) -> str:
    """The name of the policy of a module."""
    return module.rpartition(".")[2].replace("_", "-")


@cache
def _read_folder() -> Read:
    return _read(_modules())


def _read_alone(name: str) -> Read | None:
    """What the one file of that name has: to read all files is what a small run would spend a tenth of its start on.
    None where there is no such file, or several, or it defines no policy."""
    files = [module for module in _modules() if _named(module) == name]
    read = _read(files) if len(files) == 1 else None
    return read if read and any(read) else None


def _read(modules: Iterable[str]) -> Read:
    found: dict[str, type[Policy]] = {}
    broken: dict[str, tuple[str, str]] = {}
    for module in modules:
        name, file = _named(module), module.replace(".", "/") + ".py"
        try:
            policy = _defined_in(importlib.import_module(module))
        except Exception as error:  # whatever a policy's file raises is that file's trouble, not the others'
            frames = traceback.extract_tb(error.__traceback__)
            line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno
            broken[name] = file, f"{type(error).__name__} (line {line}): {error}"
            continue
        if policy is None:
            continue
        if name in found:
            broken[name] = file, f"{found[name].__module__} has that name already"
        found[name] = policy
    return found, broken


def _defined_in(module: Any) -> type[Policy] | None:
    """The concrete policy that a module defines itself (not one that it imports), or None."""
    own = [
        c
        for c in vars(module).values()
        if inspect.isclass(c)
        and issubclass(c, Policy)
        and c.__module__ == module.__name__
        and not inspect.isabstract(c)
    ]
    if len(own) > 1:
        raise PolicyError("a policy file defines one policy", where=module.__name__, got=[c.__name__ for c in own])
    return own[0] if own else None


def find(name: str) -> type[Policy]:
    """Return a policy class by name ('_' and '-' are the same).

    Raises
    ------
    PolicyError
        No such policy (the message lists those there are), or an entry point that is no policy.
    """
    name = name.replace("_", "-")
    ours, broken = _read_alone(name) or _read_folder()
    if name in broken:
        raise PolicyError("the policy's file cannot be imported", where=broken[name][0], got=broken[name][1],
                          todo="Correct the file.")
    if name in ours:
        policy = ours[name]
    else:
        entry = next((e for e in entry_points(group=ENTRY_POINTS) if e.name == name), None)
        if entry is None:
            empty = next((m for m in _modules() if _named(m) == name), None)
            if empty:
                raise PolicyError("the file defines no policy", where=empty.replace(".", "/") + ".py",
                                  allowed="one class derived from sim.api.Policy, with a decide()")
            raise PolicyError("unknown policy", got=name, allowed=", ".join(names()), todo=did_you_mean(name, names()))
        policy = entry.load()
        if not (inspect.isclass(policy) and issubclass(policy, Policy)):
            raise PolicyError("an entry point is no policy", where=f"{ENTRY_POINTS}: {entry.value}", got=policy)
    policy.name = name
    return policy


def make(name: str, settings: dict[str, Any] | None = None) -> Policy:
    """Return a policy by name with settings (text or values)."""
    return find(name).from_settings(settings or {})
