"""A measuring window: the part of a run between two times, as a run of its own. Everything is cut the same way.

All that is a sum over time (GPU time, cost, energy, waste, queue length) is cut at the window's ends, whoever it
belongs to; sums over adjacent windows add up to that of the whole. All that is said of jobs (JCT, slowdown, rho,
deadlines, the counts) is said of the jobs submitted in the window, which count: of what the window saw of them, or,
where it follows them, of their whole life.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.metrics.gputime import work
from analysis.run import Run, RunError
from sim.results.schema import BACK, DRAINED, MAINTENANCE, NODES, OUT, zoned
from traces.arrow import as_numpy


def windowed(run: Run, begin_s: float, end_s: float, follow: bool = False) -> Run:
    """The part of a run in ``[begin_s, end_s)``, in s on the trace's clock, as a run.

    - Jobs that count are submitted in the window (``begin_s <= submit_s < end_s``; if the window reaches the run's end,
      also those submitted then). `Run.counted` says which. Jobs that were there before stay in the tables: they
      hold GPUs and wait, but are in no JCT and no count. Others are left out.
    - A job that had not left when the window closed is unfinished, its JCT unknown (censored on the right): a window
      much shorter than the longest JCT measures the short jobs, and each policy by those that it let leave.
    - With `follow` the jobs that count are followed to their end, as far as the run has it: state, JCT, waiting,
      slowdown, rho, deadlines, preemptions of a job, makespan, backlog and drain are those of the whole run. It is
      the usual way to measure a steady state (Narayanan et al., "Gavel", OSDI 2020, section 7). What is a sum over
      time stays cut.
    - Segments are cut. Overhead is at a segment's start, then lasting work, then work that is lost later
      (`gputime.work`); each is what the window has of it, so that in each segment ``work_done = max(0, end_s
      - begin_s - overhead_s) * rate``, and `work_lost` is put where the lost work was done, not where it was lost.
      A segment cut at the window's end ends with 'horizon'; one that ends in the window keeps its reason, so that a
      preemption or a failure at time t counts in the window with ``begin_s < t <= end_s``.
    - Outages, decisions (``begin_s <= now_s < end_s``) and plans (of segments in the window) are cut too.

    ``run.info["window"]`` of the result: begin_s, end_s; to_the_end (it reaches the run's end); jobs_counted;
    jobs_there_at_begin (submitted before, still there: censored on the left, do not count); jobs_there_at_end (count,
    but had not left); jobs_before, jobs_after (outside, left out); follow. ``run.life`` is the whole run.

    Raises
    ------
    RunError
        The window has no length, a time is no number, or it does not lie within the run.
    """
    _check(run, begin_s, end_s)
    whole, rows = run.life or (run, np.arange(len(run.counted)))
    to_the_end = bool(end_s == whole.window_s[1])
    submit, leave = run.column("jobs", "submit_s"), run.column("jobs", "end_s")
    away = run.turned_away
    gone = np.where(away, submit, np.where(np.isnan(leave), np.inf, leave))
    counts = (submit >= begin_s) & ((submit < end_s) | to_the_end)
    earlier = (submit < begin_s) & (gone > begin_s)
    late = (gone > end_s) & ~away
    info = dict(run.info) | {
        "start_s": begin_s,
        "end_s": end_s,
        "window": {
            "begin_s": begin_s,
            "end_s": end_s,
            "to_the_end": to_the_end,
            "jobs_counted": int((counts & ~run.cut).sum()),
            "jobs_cut": int((counts & run.cut).sum()),
            "jobs_there_at_begin": int(earlier.sum()),
            "jobs_there_at_end": int((counts & late & ~run.cut).sum()),
            "jobs_before": int(((submit < begin_s) & ~earlier).sum()),
            "jobs_after": int(((submit >= begin_s) & ~counts).sum()),
            "follow": follow,
        },
    }
    kept = counts | earlier
    segments, inside = _segments(run, begin_s, end_s)
    now = run.column("decisions", "now_s")
    tables = {
        "jobs": _jobs(whole, rows[kept], np.where(counts & follow, np.inf, end_s)[kept]),
        "segments": segments,
        "nodes": _nodes(run, begin_s, end_s),
        "decisions": _rows(run.tables["decisions"], (now >= begin_s) & ((now < end_s) | to_the_end)),
        "plans": _plans(run, inside),
    }
    life = replace(whole, info=dict(whole.info) | {"window": info["window"]}, life=None)
    return replace(run, tables=tables, info=info, life=(life, rows[kept]))


def _check(run: Run, begin_s: float, end_s: float) -> None:
    first_s, last_s = run.window_s
    if not first_s <= begin_s < end_s <= last_s:
        raise RunError(
            "no such measuring window", where=str(run.path), got=f"from {begin_s:g} s to {end_s:g} s",
            allowed=f"a begin before its end, both within the run, {first_s:g} s to {last_s:g} s",
        )


def _rows(table: pa.Table, keep: np.ndarray, **columns: Any) -> pa.Table:
    """Some rows of a table, with new values in some columns."""
    return _with(table.filter(pa.array(keep)), **columns)


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    """A table with new values in some columns, of the types that they had; of an array, NaN becomes null."""
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        if isinstance(values, np.ndarray):
            values = pa.array(values, field.type, from_pandas=True)
        table = table.set_column(at, field, values)
    return table


def _jobs(whole: Run, rows: np.ndarray, seen_s: np.ndarray) -> pa.Table:
    """Jobs of the window, each as it was seen until then; those that leave later are unfinished."""
    first, leave = whole.column("jobs", "first_start_s")[rows], whole.column("jobs", "end_s")[rows]
    table = whole.tables["jobs"].take(pa.array(rows))
    late = (leave > seen_s) & ~whole.turned_away[rows]
    table = _with(
        table, first_start_s=np.where(first <= seen_s, first, np.nan), end_s=np.where(late, np.nan, leave)
    )
    cut = pa.array(late)
    why = "had not left when the measuring window ended"
    return _with(
        table, state=pc.if_else(cut, "unfinished", table["state"]), reason=pc.if_else(cut, why, table["reason"])
    )


def _segments(run: Run, begin_s: float, end_s: float) -> tuple[pa.Table, np.ndarray]:
    """Segments of the window, cut; and bool [segments of the run], which those are."""
    first, last = run.column("segments", "begin_s"), run.column("segments", "end_s")
    at_once = (first == last) & (last == begin_s) & (begin_s == run.window_s[0])
    inside = ((last > begin_s) & (first < end_s)) | ((first == last) & (last > begin_s) & (last <= end_s)) | at_once
    rate, spent = run.column("segments", "rate")[inside], work(run)
    begin, end = np.maximum(first[inside], begin_s), np.minimum(last[inside], end_s)
    working = (first + spent.overhead_s)[inside]
    losing = (last - spent.lost_s)[inside]
    whole = (begin == first[inside]) & (end == last[inside])
    overhead = np.where(whole, run.column("segments", "overhead_s")[inside], np.clip(working - begin, 0.0, end - begin))
    done = np.where(whole, run.column("segments", "work_done")[inside], np.maximum(0.0, end - begin - overhead) * rate)
    lost_s = np.where(whole, spent.lost_s[inside], np.clip(end - np.maximum(begin, losing), 0.0, None))
    lost = np.minimum(done, lost_s * rate)
    table = _rows(
        run.tables["segments"], inside,
        begin_s=begin, end_s=end, overhead_s=overhead, work_done=done, work_lost=lost,
    )
    if zoned(table):
        table = _with(table, egress_usd=np.where(done > 0, done * as_numpy(table["egress_usd_per_work"]), 0.0))
    reason = pc.if_else(pa.array(last[inside] > end_s), "horizon", table["end_reason"])
    return _with(table, end_reason=reason), inside


def _nodes(run: Run, begin_s: float, end_s: float) -> pa.Table:
    """Nodes, their outages cut: one that began before the window begins with it, one that outlasts it has no end."""
    away = run.outages.sort_values(["node", "down_s"], kind="stable")
    away = away[(away["up_s"] > begin_s) & (away["down_s"] < end_s)]
    back = away[away["up_s"] <= end_s]
    table, numbers = run.tables["nodes"], np.arange(len(run.node_type) + 1)
    for name, rows, times in (
        ("down_s", away, away["down_s"].clip(lower=begin_s)), ("up_s", back, back["up_s"]),
    ):
        starts = np.searchsorted(rows["node"].to_numpy(), numbers).astype(np.int32)
        lists: Any = pa.ListArray.from_arrays(starts, pa.array(times.to_numpy(np.float64)))
        table = _with(table, **{name: lists.cast(table.schema.field(name).type)})
    return _with(table, **_maintenance(run, begin_s, end_s))


def _maintenance(run: Run, begin_s: float, end_s: float) -> dict[str, Any]:
    """What maintenance did in the window; what it had done to a GPU before, and holds, it does at the begin."""
    changes: list[list[tuple[float, int, str]]] = [[] for _ in run.node_type]
    for node, gpu, *times_s in run.maintenance.itertuples(index=False):
        if times_s[-1] > begin_s:
            changes[node] += [(max(t, begin_s), gpu, what) for t, what in zip(times_s, MAINTENANCE, strict=True)
                              if t < end_s or (what == BACK and t == end_s)]
    order = {BACK: 0, DRAINED: 1, OUT: 2}  # as GPUs come back before others are drained
    lists = [sorted(mine, key=lambda change: (change[0], order[change[2]])) for mine in changes]
    return {name: pa.array([[change[i] for change in mine] or None for mine in lists], NODES.field(name).type)
            for i, name in enumerate(("maintenance_s", "maintenance_gpu", "maintenance"))}


def _plans(run: Run, inside: np.ndarray) -> pa.Table:
    """Plans with which the segments of the window began (cut or not, a plan keeps the time at which it began)."""
    keys = ["job_id", "begin_s"]
    plans, began = run.tables["plans"].select(keys), run.tables["segments"].select(keys).filter(pa.array(inside))
    kept = plans.to_pandas().merge(began.to_pandas().drop_duplicates(), on=keys, how="left", indicator=True)
    return _rows(run.tables["plans"], (kept["_merge"] == "both").to_numpy())


UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def asked(
    run: Run, begin: str | None = None, end: str | None = None, warmup: str | None = None, cooldown: str | None = None,
    follow: bool = True,
) -> Run:
    """The window that a user asks for in words, as `bounds` reads them; the run itself where nothing is asked.

    Its jobs are followed to their end unless asked otherwise (`windowed`).

    Raises
    ------
    RunError
        As `bounds`.
    """
    if not len(run.tables["jobs"]) or all(word is None for word in (begin, end, warmup, cooldown)):
        return run
    return windowed(run, *bounds(run, begin, end, warmup, cooldown), follow)


def bounds(
    run: Run, begin: str | None = None, end: str | None = None, warmup: str | None = None, cooldown: str | None = None
) -> tuple[float, float]:
    """Begin and end of the window that a user asks for in words, in s on the trace's clock.

    Parameters
    ----------
    begin, end : a plain number is a time on the trace's clock, as in the tables, in s. With a unit (`2h`, `1.5d`,
        `90min`, `600s`) it counts from the first submission; in % (`10%`) it is that part of the time from the first
        to the last submission. None: the run's own begin or end.
    warmup, cooldown : lengths, in the same words (a plain number: s): a begin so long after the first submission, an
        end so long before the last.

    The submissions are those of the trace, so that a begin or an end in % or by length is the same for every policy; an
    end that is not asked for is that of each run.

    Raises
    ------
    RunError
        Words that are no time; begin and warmup, or end and cooldown, at once; a window that is not within the run.
    """
    _check_twice(begin, end, warmup, cooldown)
    submit, (begin_s, end_s) = run.column("jobs", "submit_s"), run.window_s
    first_s, last_s = (float(submit.min()), float(submit.max())) if len(submit) else (begin_s, begin_s)
    if begin is not None:
        begin_s = _moment_s(begin, first_s, last_s, "from")
    if warmup is not None:
        begin_s = first_s + _length_s(warmup, last_s - first_s, "warmup")
    if end is not None:
        end_s = _moment_s(end, first_s, last_s, "to")
    if cooldown is not None:
        end_s = last_s - _length_s(cooldown, last_s - first_s, "cooldown")
    _check(run, begin_s, end_s)
    return begin_s, end_s


def check_words(
    begin: str | None = None, end: str | None = None, warmup: str | None = None, cooldown: str | None = None
) -> None:
    """Refuse, before there is a run, words that `bounds` reads as no time.

    Raises
    ------
    RunError
        As `bounds`, but for a window that is not within a run.
    """
    _check_twice(begin, end, warmup, cooldown)
    for word, name in ((begin, "from"), (end, "to")):
        if word is not None:
            _moment_s(word, 0.0, 0.0, name)
    for word, name in ((warmup, "warmup"), (cooldown, "cooldown")):
        if word is not None:
            _length_s(word, 0.0, name)


def _check_twice(begin: str | None, end: str | None, warmup: str | None, cooldown: str | None) -> None:
    for one, other, names in ((begin, warmup, "from and warmup"), (end, cooldown, "to and cooldown")):
        if one is not None and other is not None:
            raise RunError(f"{names} say the same", got=f"{one} and {other}", todo="Leave out one of them.")


def _moment_s(word: str, first_s: float, last_s: float, name: str) -> float:
    try:
        return float(word)
    except ValueError:
        return first_s + _length_s(word, last_s - first_s, name)


def _length_s(word: str, span_s: float, name: str) -> float:
    """A length in s from its words; % are of `span_s`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|min|h|d|%)?\s*", word)
    if found is None:
        raise RunError(
            "no time of a measuring window", where=name, got=word, allowed="a number of seconds, or one with a unit: "
            "600s, 90min, 2h, 1d, or 10% of the time of submissions",
        )
    number, unit = float(found[1]), found[2] or "s"
    return number / 100.0 * span_s if unit == "%" else number * UNITS_S[unit]


def in_words(run: Run) -> str:
    """What the measuring window is and which jobs count; empty for a whole run."""
    w = run.info.get("window")
    if w is None:
        return ""
    late = w["jobs_there_at_end"]
    if w["follow"]:
        end = (f", of which {late:,} outlast it" if late else "") + (
            "; they are followed to their end (--clip: not). What is a sum over time ends with the window; ")
    elif late:
        end = (f", of which {late:,} had not left when it closed: their JCT is unknown, and means of jobs are of those "
               "that had (without --clip they are seen to their end); ")
    else:
        end = ", all of which had left when it closed; "
    early = w["jobs_there_at_begin"]
    return (
        f"Measured from {w['begin_s']:,.10g} s to {w['end_s']:,.10g} s on the trace's clock: {w['jobs_counted']:,} "
        f"jobs submitted in it count{end}{early:,} {'was' if early == 1 else 'were'} "
        f"there when it opened (holding GPUs and waiting, but not counted); {w['jobs_before']:,} had left before, "
        f"{w['jobs_after']:,} came after."
    )
