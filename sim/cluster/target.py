"""From what jobs hold to what they should hold, by the fewest stops, moves and starts (`Decision.toward`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sim.cluster.plan import Placement
from sim.cluster.scratch import Scratch
from sim.cluster.spec import ClusterError, ClusterSpec
from traces.errors import did_you_mean

MOST = 2**31 - 1
"""GPUs that a target may ask for of a type."""
Counts = Mapping[str, int] | Mapping[int, int]
"""GPUs of each type, by the type's name or index; types that are not named count 0."""


class Steps(NamedTuple):
    """Commands, as `sim.api.Decision` has them."""

    stop: list[int]
    move: list[tuple[int, Placement]]
    start: list[tuple[int, Placement]]


def steps_toward(
    target: Mapping[int, Placement | Counts], held: Mapping[int, Placement], free: Scratch, cluster: ClusterSpec,
    rule: str,
) -> Steps:
    """Steps from `held`, what each running job holds, to `target`; `free` is what is free without all of them.

    Placements that are named come first, then jobs that hold their counts already, then the other counts are placed by
    rule, in the order of the target. Counts that cannot be placed leave a running job as it is where nobody took its
    GPUs, else it waits.

    Raises
    ------
    ClusterError
        A GPU type that the cluster does not have, or a count that is no whole number from 0 on.
    """
    placed: dict[int, Placement] = {}
    counts: dict[int, np.ndarray] = {}
    for row, wish in target.items():
        if isinstance(wish, Placement):
            placed[row] = held[row] if row in held and wish.same(held[row]) else wish
            _take(free, row, wish)  # taken twice: the engine refuses it, and says which GPU
        elif (wanted := _by_type(wish, cluster, row)).any():
            counts[row] = wanted
    gpu_type = cluster.gpu_type
    for row, wanted in counts.items():
        if row in held and (np.bincount(gpu_type[held[row].gpus], minlength=wanted.size) == wanted).all():
            _keep(free, row, held, placed)
    for row, wanted in counts.items():
        if row not in placed and (gpus := _place(free, row, wanted, rule)) is not None:
            placed[row] = Placement(gpus)
    for row in counts:
        if row in held and row not in placed:
            _keep(free, row, held, placed)
    return Steps(
        [row for row in held if row not in placed],
        [(row, p) for row, p in placed.items() if row in held and p is not held[row]],
        [(row, p) for row, p in placed.items() if row not in held],
    )


def _take(free: Scratch, row: int, placement: Placement) -> bool:
    gang = free.gang(row)
    return free.take(placement.gpus, placement.milli or gang.gpu_milli, gang.vc)


def _keep(free: Scratch, row: int, held: Mapping[int, Placement], placed: dict[int, Placement]) -> None:
    """A running job goes on where it is, unless others have its GPUs."""
    if _take(free, row, held[row]):
        placed[row] = held[row]


def _place(free: Scratch, row: int, wanted: np.ndarray, rule: str) -> np.ndarray | None:
    gang, types = free.gang(row), np.flatnonzero(wanted)
    if types.size == 1:  # by the rule of its workers, too
        return free.place(gang._replace(num_gpus=int(wanted.sum()), types=1 << int(types[0])), rule)
    return free.place_by_type(wanted, gang.gpu_milli, gang.vc, rule)


def _by_type(counts: Counts, cluster: ClusterSpec, row: int) -> np.ndarray:
    """int64 [types]: counts by the index of the type."""
    wanted = np.zeros(len(cluster.types), dtype=np.int64)
    names = [t.name for t in cluster.types]
    for name, count in counts.items():
        index = cluster.type_index(name) if isinstance(name, str) else name
        if not isinstance(index, int | np.integer) or not 0 <= index < len(names):
            raise ClusterError(
                "a target asks for a GPU type that the cluster does not have", where=f"row {row}", got=name,
                allowed=f"{', '.join(names)}, or an index below {len(names)}", todo=did_you_mean(str(name), names),
            )  # fmt: skip
        whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if not whole or not 0 <= count <= MOST:
            raise ClusterError("GPUs of a target", where=f"row {row}, type {name!r}", got=count,
                               allowed=f"a whole number, 0 or more, up to {MOST:,}")  # fmt: skip
        wanted[index] += count
    return wanted
