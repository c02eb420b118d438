"""Very many jobs of generated logs, of which some will be drawn: packed small, and a trace only once they are.

A million jobs at a load may have to be drawn of ten million, of which nothing else is asked than when they come, what
they ask for and the hash of their id. As a trace (`traces.synthetic.month`) those would take gigabytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from traces.columns import BY_NAME
from traces.digests import digests
from traces.given_back import zeros
from traces.offered_load import WEEK_S, hash_key
from traces.stretch import Crowd
from traces.synthetic.generate import about, checked, in_order
from traces.synthetic.month import further_seed, logs_needed, mark
from traces.trace import Provenance, Trace
from traces.words import Worded, coded


class Packed:
    """A column in as few bytes as hold it: text as numbers of words, whole numbers as the smallest integers."""

    def __init__(self, values: np.ndarray | Worded) -> None:
        self._words: np.ndarray | None = None
        if isinstance(values, Worded):
            self._words, values = values.words, values.number
        self._dtype = values.dtype
        if values.dtype == object:
            values, self._words = coded(values)
        elif values.dtype.kind == "f" and np.isfinite(values).all() and (values == np.floor(values)).all() \
                and np.abs(values).max(initial=0) < 2**31 and not np.signbit(values).any():
            values = values.astype(np.int32)
        if values.dtype.kind == "i" and len(values):
            low, high = int(values.min()), int(values.max())
            values = values.astype(next(kind for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64)
                                        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max))
        self._values = values

    def at(self, rows: np.ndarray | slice) -> np.ndarray:
        """The values of some rows, as they were."""
        values = self._values[rows]
        return values.astype(self._dtype) if self._words is None else self._words[values]


@dataclass(frozen=True, eq=False)
class Log:
    """The jobs of one log that lie in the weeks that are taken, in its order: their numbers are their ids.

    `number`: of those jobs; `last`: what is added to a number to make the id; `names`: the numbers of all jobs as text.
    """

    number: range
    columns: Mapping[str, Packed]
    last: str
    names: Sequence[str]
    seed: int

    def __len__(self) -> int:
        return len(self.number)

    def ids(self, rows: np.ndarray | None = None) -> list[str]:
        numbers = self.number if rows is None else (self.number.start + rows).tolist()
        return [f"{number}{self.last}" for number in numbers]

    def keys(self, rows: np.ndarray) -> np.ndarray:
        """Hashes of the ids (`traces.offered_load.hashes`) of some jobs."""
        if len(rows) == len(self):
            names = self.names[self.number.start : self.number.stop]
        else:
            names = [self.names[job] for job in (self.number.start + rows).tolist()]
        hashes = digests([name + self.last for name in names] if self.last else names, hash_key(self.seed), 8)
        return np.frombuffer(hashes, dtype="<u8")

    def column(self, name: str, rows: np.ndarray | None = None) -> np.ndarray:
        """A column of some jobs, its default where the generator has none of that name."""
        if name in self.columns:
            return self.columns[name].at(slice(None) if rows is None else rows)
        return BY_NAME[name].defaults(len(self) if rows is None else len(rows))


@dataclass(frozen=True, eq=False)
class Pool:
    """Jobs of some logs in the order of a trace's rows: what a draw looks at (`crowd`), and where the rest is (`at`:
    the row of each in all logs, one after another)."""

    crowd: Crowd
    at: np.ndarray
    logs: tuple[Log, ...]
    about: Provenance

    def __len__(self) -> int:
        return len(self.at)

    def drawn(self, rows: np.ndarray) -> Drawn:
        """Some jobs, without what only a draw looks at."""
        return Drawn(self.crowd.submit_s[rows], self.at[rows], self.logs, self.about)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Jobs that were drawn of a pool: when they come, and the rest as there."""

    submit_s: np.ndarray
    at: np.ndarray
    logs: tuple[Log, ...]
    about: Provenance

    def trace(self) -> Trace:
        """Their trace."""
        at = self.at
        order = np.argsort(at)
        begins = np.cumsum([0, *map(len, self.logs)])
        bounds = np.searchsorted(at[order], begins).tolist()
        columns: dict[str, np.ndarray] = {"submit_s": self.submit_s}
        for name in ("job_id", *self.logs[0].columns.keys() - columns.keys()):
            of_logs = []
            for log, begin, low, high in zip(self.logs, begins[:-1], bounds[:-1], bounds[1:], strict=True):
                mine = at[order[low:high]] - begin
                of_logs.append(np.array(log.ids(mine), dtype=object) if name == "job_id" else log.column(name, mine))
            columns[name] = np.empty(len(at), dtype=of_logs[0].dtype)
            columns[name][order] = np.concatenate(of_logs)
        return Trace.from_columns(columns, self.about)


class Logs:
    """Logs of one name; each is made once.

    Parameters
    ----------
    name, seed, options
        See `traces.synthetic.generate.generate`.
    """

    def __init__(self, name: str, seed: int, options: Mapping[str, str]) -> None:
        self._name, self._seed, self._options = name, seed, options
        self._generator = checked(name, seed, options)
        self._jobs = self._generator.log_jobs(**options)
        self._made: list[Log] = []
        self._names = list(map(str, range(self._jobs)))

    def pool(self, weeks: int, layers: int, keep: float = 1.0) -> Pool:
        """The jobs of `traces.synthetic.month.month`, in the same order.

        Raises
        ------
        TraceError
            See there.
        """
        generator = self._generator
        first, begin, end = (week * WEEK_S for week in generator.weeks)
        rounds = logs_needed(self._name, generator, self._jobs, weeks, layers, keep)
        logs = tuple(self._log(number) for number in range(rounds * layers))
        most = sum(map(len, logs))
        come, demand, key, where = zeros(most), zeros(most), zeros(most, np.uint64), zeros(most, np.int32)
        there = before = 0
        for turn in range(rounds):  # each of them comes after all of the turn before
            side_by_side, parts = logs[turn * layers : (turn + 1) * layers], []
            for number, log in enumerate(side_by_side):
                moved = (log.column("submit_s") - begin) % (end - first) + turn * (end - first)
                rows = np.flatnonzero(moved < weeks * WEEK_S)
                keys = log.keys(rows)
                if keep < 1:
                    few = keys < keep * 2.0**64
                    rows, keys = rows[few], keys[few]
                of_log = np.full(len(rows), number, dtype=np.int32)
                parts.append((moved[rows], _demand_gpu_s(log, rows), keys, rows, of_log))
            moved, demands, keys, rows, of_log = map(np.concatenate, zip(*parts, strict=True))
            order = _order(moved, rows, of_log, side_by_side)
            begins = before + np.cumsum([0, *map(len, side_by_side)])
            now = slice(there, there + len(order))
            come[now], demand[now], key[now] = moved[order], demands[order], keys[order]
            where[now] = (rows + begins[of_log])[order]
            there, before = now.stop, int(begins[-1])
        provenance = about(self._name, there, self._seed, self._options, weeks * WEEK_S)
        return Pool(Crowd(come[:there], demand[:there], key[:there]), where[:there], logs, provenance)

    def _log(self, number: int) -> Log:
        """The log of that number, of the weeks that are taken."""
        while len(self._made) <= number:
            index = len(self._made)
            columns = in_order(self._name, self._jobs, further_seed(self._seed, index), self._options)
            first, _, end = (week * WEEK_S for week in self._generator.weeks)
            there = slice(*np.searchsorted(columns["submit_s"], (first, end)).tolist())
            self._made.append(Log(
                range(there.start, there.stop), {name: Packed(values[there]) for name, values in columns.items()},
                mark(index), self._names, self._seed))
        return self._made[number]


def _order(submit_s: np.ndarray, rows: np.ndarray, of_log: np.ndarray, logs: Sequence[Log]) -> np.ndarray:
    """The order of a trace's rows, see `traces.trace`. Ids are compared only where times are equal."""
    order = np.argsort(submit_s)
    come = submit_s[order]
    same = come[1:] == come[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    those = order[tied]
    log, job = of_log[those], rows[those] + np.array([log.number.start for log in logs])[of_log[those]]
    scale = np.array([11**len(one.last) for one in logs])
    added = np.array([int(one.last.replace("~", "a") or "0", 11) for one in logs])
    order[tied] = those[np.lexsort((_places(job) * scale[log] + added[log], come[tied]))]
    return order


def _places(job: np.ndarray) -> np.ndarray:
    """Numbers in the order of ids by length, then by text: a digit more is a place of base 11 more, and a mark comes
    after all digits. The number 207, as 1207 in base 11."""
    left = job.astype(np.int64)
    places, unit, more = np.zeros_like(left), np.ones_like(left), np.ones(len(left), dtype=bool)
    while more.any():
        places += np.where(more, left % 10 * unit, 0)
        unit = np.where(more, 11 * unit, unit)
        left //= 10
        more = left > 0
    return places + unit


def _demand_gpu_s(log: Log, rows: np.ndarray) -> np.ndarray:
    """See `traces.offered_load.demand_gpu_s`."""
    gpus, milli, run_s = (log.column(name, rows) for name in ("num_gpus", "gpu_milli", "duration_s"))
    demand: np.ndarray = gpus * (milli / 1000.0) * run_s
    return demand
