"""What a recipe is, and what all of them share: draws by hash, columns filled where they are blank, a note."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from traces.assign import uniforms
from traces.columns import BY_NAME
from traces.errors import TraceError
from traces.reading.reader import choice
from traces.trace import Trace

NAMES = ("zoo", "table")


@dataclass(frozen=True)
class Recipe:
    """A published rule that gives jobs what their log does not have.

    Attributes
    ----------
    name : str
        What `--assign` calls it.
    apply : callable (trace, seed, **settings) -> Trace
        A pure function: the same trace, seed and settings give the same trace, whatever the order of its rows.
    source : str
        Paper, section and repository.
    fills : tuple of str
        Columns that it fills.
    needs : str
        What it takes from the trace, and what must be had elsewhere.
    settings : mapping of setting name to its meaning, besides those of `COMMON_SETTINGS`
    """

    name: str
    apply: Callable[..., Trace]
    source: str
    fills: tuple[str, ...]
    needs: str
    settings: Mapping[str, str] = field(default_factory=dict)


COMMON_SETTINGS: Mapping[str, str] = {
    "names": "zoo: the zoo's name where it has the same network (default); table: the names of the published table",
    "overwrite": "whether values that the trace has are replaced (default: no)",
}


@dataclass(frozen=True)
class JobType:
    """A row of a published table of job types.

    Attributes
    ----------
    name, zoo : str
        Its name in the table, and that of the same network in the zoo; empty: the zoo has none.
    batch_size : int
        Samples an iteration; 0: not published.
    batch_of_gpu : bool
        Whether each GPU does `batch_size` samples, or all together.
    max_gpus : int
        The largest gang that trains it.
    """

    name: str
    zoo: str
    batch_size: int
    batch_of_gpu: bool = False
    max_gpus: int = 1_000_000


def draw(trace: Trace, seed: int, purpose: str) -> np.ndarray:
    """One number in [0, 1) a job, float64[jobs]."""
    return uniforms(trace.job_id, seed, purpose)[:, 0]


def drawn_types(
    types: Sequence[JobType], draws: np.ndarray, num_gpus: np.ndarray, names: str
) -> dict[str, np.ndarray]:
    """Columns `model` and `batch_size`: for each job one of the types that train a gang of its size, equally likely.

    A job whose gang none of them trains gets "" and 0. `draws` is float64[jobs] in [0, 1).

    Raises
    ------
    TraceError
        `names` is neither of `NAMES`.
    """
    choice("names", names, NAMES)
    model, batch_size = np.full(len(draws), "", dtype=object), np.zeros(len(draws), dtype=np.int64)
    for gpus in np.unique(num_gpus).tolist():
        fitting = [t for t in types if gpus <= t.max_gpus]
        gang = np.flatnonzero(num_gpus == gpus)
        which = (draws[gang] * len(fitting)).astype(np.int64)
        for index, kind in enumerate(fitting):
            rows = gang[which == index]
            model[rows] = (kind.zoo or kind.name) if names == "zoo" else kind.name
            batch_size[rows] = kind.batch_size * (gpus if kind.batch_of_gpu else 1)
    return {"model": model, "batch_size": batch_size}


def filled(
    trace: Trace, recipe: str, seed: int, columns: Mapping[str, np.ndarray], *, overwrite: bool,
    said: Sequence[str] = (),
) -> Trace:
    """Fill columns where the trace has nothing (everywhere, if `overwrite`) and the recipe has a value; note it.

    Nothing is "", NaN, batch_size 0, priority 1. `batch_size` goes with `model`: a batch drawn for one network is
    never put beside another.

    Parameters
    ----------
    said : sequence of str
        More clauses for the note.
    """
    new: dict[str, Any] = {}
    told, taken = [], np.zeros(len(trace), dtype=bool)
    for name, values in columns.items():
        old = getattr(trace, name)
        if name == "batch_size":
            rows = taken
        else:
            rows = (BY_NAME[name].nothing(old) | overwrite) & ~BY_NAME[name].nothing(values)
            told.append(f"{name} of {int(rows.sum())} of {len(trace)} jobs")
        new[name] = np.where(rows, values, old)
        if name == "model":
            taken = rows
    note = f"recipe {recipe} (seed {seed}): " + "; ".join((*told, *said))
    provenance = replace(trace.provenance, notes=(*trace.provenance.notes, note))
    return trace.replace(provenance, **new)


def share(name: str, value: float) -> float:
    """Return a setting that is a share.

    Raises
    ------
    TraceError
        It is not from 0 to 1.
    """
    if not 0 <= value <= 1:
        raise TraceError("value not allowed", where=f"setting {name!r}", got=value, allowed="a number from 0 to 1")
    return value
