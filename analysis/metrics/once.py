"""What is worked out once a run, and kept as long as the run is."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from analysis.run import Run

T = TypeVar("T")


def per_run(work: Callable[..., T]) -> Callable[..., T]:
    """The function of a run (and further arguments, by position), worked out at its first call with each of them.

    A run never changes (a window of it is another run), so neither does what follows from it: nobody may write into
    what is returned.
    """
    kept: WeakKeyDictionary[Run, dict[tuple[Any, ...], T]] = WeakKeyDictionary()

    @wraps(work)
    def found(run: Run, *arguments: Any) -> T:
        of_run = kept.setdefault(run, {})
        if arguments not in of_run:
            of_run[arguments] = work(run, *arguments)
        return of_run[arguments]

    return found
