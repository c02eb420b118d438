"""Jobs on one GPU: what they lose to each other, in slices of time or side by side.

Time slices
    One job at a time, each for its share of the time; switching costs a part of it (`slicing`).
Side by side (spatial, as with NVIDIA's MPS)
    All at once. A job alone keeps a part of the GPU busy, its use. Where the uses of those on a GPU add up to more than
    1, all are slowed in proportion (`crowding`); below, none is. Whether they fit the memory together is not asked.
Measured pairs (`PairTable`)
    Rates of two jobs on a GPU relative to each alone. Of more than two, slowdowns add up (`beside`): exact where jobs
    take turns, and for two.

A pair is two jobs of the same number of GPUs that hold the same GPUs. Jobs of different width never are one: the wider
would wait on its other GPUs for the narrower.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from sim.performance.graph import PerformanceError
from traces.errors import did_you_mean
from traces.reading.limits import plain_bytes

USE = {"K80": 0.95, "P100": 0.95, "V100": 0.75}
"""Part of a GPU that a training job alone keeps busy, by type: the multiple of 0.05 with about the least
median error of the summed rates of Gavel's pairs (Narayanan et al. 2020; 306, 340 and 330 pairs): 6, 8 and 16 %.

A roofline's part of busy arithmetic or memory, job by job, in place of these is 88, 57 and 44 % off: kernels that fill
neither still keep others out."""
OTHER_USE = 0.75
"""Of other types: the V100's, the first that runs kernels of several processes at once. An extrapolation."""


def gpu_use(gpu: str) -> float:
    """Part of a GPU of this type that a job alone keeps busy, where nothing more is known of the job."""
    return USE.get(gpu.upper(), OTHER_USE)


def slicing(others: bool, switching_loss: float) -> float:
    """Slowdown of a job that has its share of a GPU's time: 1 / (1 - switching_loss) where others run there, too."""
    return 1.0 / (1.0 - switching_loss) if others else 1.0


def crowding(uses: Iterable[float]) -> float:
    """Slowdown of each of the jobs side by side on a GPU: max(1, sum of their uses)."""
    return max(1.0, math.fsum(uses))


def beside(rates: Iterable[float]) -> float:
    """Slowdown of a job beside others, given its rate beside each of them: 1 + sum of (1 / rate - 1)."""
    return 1.0 + math.fsum(1.0 / rate - 1.0 for rate in rates)


Kind = tuple[str, int]
"""Model and batch of a job; 0: it has no batch."""


COLUMNS = ("gpu_type", "model_a", "batch_a", "model_b", "batch_b", "scale_factor", "norm_a", "norm_b")


class PairTable:
    """Measured pairs: rates of two jobs on the same GPUs, each relative to its rate alone (0: did not run together).

    A row holds for both orders. `source` names the file.
    """

    def __init__(self, rows: dict[tuple[str, Kind, Kind, int], tuple[float, float]],
                 source: str) -> None:  # fmt: skip
        self.source = source
        self._rows = {**{(gpu, b, a, k): (y, x) for (gpu, a, b, k), (x, y) in rows.items()}, **rows}
        self._types = sorted({gpu for gpu, *_ in rows})

    def __iter__(self) -> Iterator[tuple[str, Kind, Kind, int]]:
        """The pairs, each in both orders: GPU type in small letters, a, b, width."""
        return iter(self._rows)

    def __contains__(self, key: tuple[str, Kind, Kind, int]) -> bool:
        """Whether a pair was measured: (GPU type, a, b, width)."""
        return (key[0].lower(), *key[1:]) in self._rows

    def rates(
        self, gpu: str, a: Kind, b: Kind, width_a: int = 1, width_b: int = 1
    ) -> tuple[float, float]:
        """Rates of jobs a and b on `width` GPUs each, relative to being alone.

        Raises
        ------
        PerformanceError
            Different widths, or a pair, or GPU type, that was not measured.
        """
        names = f"{a[0]} (batch {a[1]}) and {b[0]} (batch {b[1]})"
        if width_a != width_b:
            raise PerformanceError(
                "jobs of different width are no pair", where=f"{self.source}, {names}",
                got=f"{width_a} and {width_b} GPUs", allowed="as many GPUs each", todo="Give each its own GPUs.",
            )  # fmt: skip
        key = (gpu.lower(), a, b, width_a)
        if key[0] not in self._types:
            raise PerformanceError("no pair was measured on this GPU type", where=self.source, got=gpu,
                                   allowed=", ".join(self._types), todo=did_you_mean(key[0], self._types))  # fmt: skip
        if key not in self:
            raise PerformanceError("the pair was not measured", where=self.source,
                                   got=f"{names} on {width_a} {gpu} each", allowed="pairs of the file")  # fmt: skip
        return self._rows[key]


def read_pairs(path: str | Path) -> PairTable:
    """Read a CSV file of pairs with the columns COLUMNS (others are ignored); an empty batch is 0.

    Gavel's rows of several GPUs (scale_factor above 1) are all 0: not measured, not 'does not run'. Such rows, and
    rows of jobs without a model, are left out.

    Raises
    ------
    PerformanceError
        No file, columns missing, a cell that is no number, a rate below 0.
    """
    try:
        text = plain_bytes(Path(path), PerformanceError).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise PerformanceError("columns are missing", where=str(path), got=", ".join(reader.fieldnames or ()),
                                   allowed=", ".join(COLUMNS), todo=f"Add {', '.join(missing)}.")  # fmt: skip
        table = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise PerformanceError("the file of pairs cannot be read", where=str(path), got=str(error)) from None
    rows = {}
    for line, row in enumerate(table, 2):
        where = f"{path}, line {line}"
        width, x, y = (_number(row[name], name, where) for name in ("scale_factor", "norm_a", "norm_b"))
        if (width > 1 and x == y == 0) or not (row["model_a"] and row["model_b"]):
            continue
        a, b = ((row[f"model_{side}"], int(_number(row[f"batch_{side}"] or "0", f"batch_{side}", where)))
                for side in "ab")  # fmt: skip
        for name, value in (("norm_a", x), ("norm_b", y)):
            if value < 0:
                raise PerformanceError("a rate relative to being alone", where=f"{where}, column {name!r}", got=value,
                                       allowed="0 or more")  # fmt: skip
        rows[row["gpu_type"].lower(), a, b, int(width)] = (x, y)
    return PairTable(rows, str(path))


def _number(text: str, column: str, where: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise PerformanceError("not a number", where=f"{where}, column {column!r}", got=text, allowed="a number")
    return value
