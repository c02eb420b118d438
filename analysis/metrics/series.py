"""Time series of a run as step functions: a state holds from its time until the next one.

Times increase strictly: however many events share an instant, there is one state for it, that after all
of them. So no interval has zero length and an average over time never divides by zero.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from analysis.run import Run, wishes
from traces.late import pd

ANY = "any"
"""Label of jobs that may run on every GPU type."""
NONE = "none"
"""Label of jobs that ask for types which the cluster lacks."""


def steps(time_s: np.ndarray, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step function from changes: unique times, and at each the sum of all changes up to and including it.

    Parameters
    ----------
    time_s : float64 [events], in any order.
    change : int64 [events, columns]; integers, so that what is taken and given back leaves exactly nothing.
    """
    order = np.argsort(time_s, kind="stable")
    time_s, state = time_s[order], np.cumsum(change[order], axis=0)
    last = np.ones(len(time_s), dtype=bool)
    last[:-1] = time_s[1:] != time_s[:-1]
    return time_s[last], state[last]


def _frame(time_s: np.ndarray, values: np.ndarray, names: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"time_s": time_s} | {name: values[:, i] for i, name in enumerate(names)})


def _one_hot(index: np.ndarray, size: np.ndarray, width: int) -> np.ndarray:
    change = np.zeros((len(index), width), dtype=np.int64)
    change[np.arange(len(index)), index] = size
    return change


def gpus_in_use(run: Run, by_type: bool = False) -> pd.DataFrame:
    """GPUs held over time, in GPUs: columns time_s and 'all', or one for each GPU type.

    A state is ``sum(shares of segments with begin_s <= t < end_s)``. The first is that at the first submit.
    """
    held, width = run.held, len(run.types) if by_type else 1
    kind = run.node_type[held.node] if by_type else np.zeros(len(held.node), dtype=np.int64)
    begin, end = (
        run.column("segments", "begin_s")[held.segment],
        run.column("segments", "end_s")[held.segment],
    )
    change = _one_hot(kind, held.milli, width)
    start = np.zeros((1, width), dtype=np.int64)
    time_s, state = steps(
        np.concatenate(([run.window_s[0]], begin, end)), np.concatenate((start, change, -change))
    )
    return _frame(time_s, state / 1000.0, list(run.types) if by_type else ["all"])


def capacity(run: Run) -> pd.DataFrame:
    """GPUs in service over time, in GPUs: columns time_s and one for each GPU type.

    They are those of nodes that are up, without those that are out for maintenance.
    """
    gpus, width = run.column("nodes", "gpus").astype(np.int64), len(run.types)
    node, down_s, up_s = (np.concatenate([times[name].to_numpy() for times in (run.outages, run.gpus_out)])
                          for name in ("node", "down_s", "up_s"))
    size = np.concatenate((gpus[run.outages["node"].to_numpy(np.int64)], np.ones(len(run.gpus_out), dtype=np.int64)))
    change = _one_hot(run.node_type[node.astype(np.int64)], size, width)
    back = np.isfinite(up_s)
    whole = _one_hot(run.node_type, gpus, width).sum(axis=0, keepdims=True)
    time_s, state = steps(
        np.maximum(
            np.concatenate(([run.window_s[0]], down_s, up_s[back])), run.window_s[0]
        ),
        np.concatenate((whole, -change, change[back])),
    )
    return _frame(time_s, state, list(run.types))


def waiting(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """When jobs begin (+1) and cease (-1) to wait: time in s, row of the jobs table, int64 sign; in no order.

    A job waits whenever it is there (from its submit until it leaves) and holds no GPUs. Jobs turned away, jobs
    submitted after the last event, and jobs that the horizon took off their GPUs do not wait.
    """
    submit, leave = run.column("jobs", "submit_s"), run.column("jobs", "end_s")
    waits = np.flatnonzero(~run.turned_away & (submit <= run.window_s[1]))
    gone, job = waits[leave[waits] <= run.window_s[1]], run.segment_job  # a window may follow jobs beyond its end
    again = pc.not_equal(run.tables["segments"]["end_reason"], "horizon").to_numpy()
    parts = (
        (submit[waits], waits, 1),
        (leave[gone], gone, -1),
        (run.column("segments", "begin_s"), job, -1),
        (run.column("segments", "end_s")[again], job[again], 1),
    )
    time_s, rows = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return time_s, rows, np.repeat([sign for _, _, sign in parts], [len(time) for time, _, _ in parts])


def queue_length(run: Run, by_type: bool = False) -> pd.DataFrame:
    """Jobs waiting over time, in jobs: columns time_s and 'all', or one a set of types that jobs ask for.

    See `waiting`: who waits, and who does not.
    """
    time_s, job, sign = waiting(run)
    if by_type:
        wish, allowed = wishes(run)
        texts = [ANY if fine.all() else "|".join(np.array(run.types)[fine]) or NONE for fine in allowed]
        codes, labels = pd.factorize(np.array(texts, dtype=object)[wish], sort=True)
        names = [str(label) for label in labels]
    else:
        codes, names = np.zeros(len(run.counted), dtype=np.int64), ["all"]
    start = np.zeros((1, len(names)), dtype=np.int64)
    time_s, state = steps(
        np.maximum(np.concatenate((run.window_s[:1], time_s)), run.window_s[0]),
        np.concatenate((start, _one_hot(codes[job], sign, len(names)))),
    )
    return _frame(time_s, state, names)


def averages(time_s: np.ndarray, values: np.ndarray, edges_s: np.ndarray) -> np.ndarray:
    """Mean of a step function over each bin, ``integral over the bin / its length`` (exact, not sampled).

    Parameters
    ----------
    time_s, values : the step function; 0 before its first time.
    edges_s : float64 [bins + 1], strictly increasing.
    """
    area = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(time_s))))
    at = np.searchsorted(time_s, edges_s, side="right") - 1
    inside = np.maximum(at, 0)
    integral = np.where(at >= 0, area[inside] + values[inside] * (edges_s - time_s[inside]), 0.0)
    return np.diff(integral) / np.diff(edges_s)
