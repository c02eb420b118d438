"""Search methods: ways to come by plans. All see the same request, all answers are judged by the same truth.

A method is a module of this folder with `propose(request) -> Iterable[Plan]`; its name is the file's, with hyphens.
It proposes what it thinks worth judging, within the request's GPUs and space; what it may not choose (a second GPU
type, tensor parallelism) it leaves alone. One that may list operators in another order says so by `REORDERS = True`,
and one that proves how good its best is by `proves(request)`. So a new method touches one file, and a
planner of another paper, a pool chooser or a learned one is one more of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol

from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Request
from sim.api import Plan
from traces.errors import did_you_mean


class Method(Protocol):
    """A module of this folder."""

    def propose(self, request: Request) -> Iterable[Plan]:
        """Plans worth judging."""


def method_names() -> tuple[str, ...]:
    """All methods, sorted."""
    return tuple(sorted(module.name.replace("_", "-") for module in iter_modules(__path__)))


def method(name: str) -> Method:
    """A method by its name.

    Raises
    ------
    RecommendError
        Unknown; names the nearest one.
    """
    if name not in method_names():
        raise RecommendError("unknown method", got=name, allowed=", ".join(method_names()),
                             todo=did_you_mean(name, method_names()))
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def reorders(name: str) -> bool:
    """Whether a method may list operators in another topological order than the graph's."""
    return bool(getattr(method(name), "REORDERS", False))


def proves(name: str, request: Request) -> float | None:
    """How much less than its best by the form another plan may take, of all that cut operators anywhere into stages of
    one type, without sharing operators or recomputing (0.01: 1 %); None: a method that was asked proves nothing."""
    told = getattr(method(name), "proves", None)
    return None if told is None else told(request)


def about(name: str) -> str:
    """What a method is, in one line: the first of its module's text."""
    return (import_module(f"{__name__}.{name.replace('-', '_')}").__doc__ or "").strip().splitlines()[0]
