"""Why a job took so long: its life as spans, each with what it waited for, where it ran and who took its GPUs.

Everything is read from the tables: the files do not hold why a policy decided as it did.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from analysis.explain.free_gpus import Free, Waiting
from analysis.explain.span import Span, gpu_words, node_words, run_text, share_words, wait_text
from analysis.formats import human
from analysis.metrics.jobtimes import gpus_asked
from analysis.run import FINISHED, TURNED_AWAY, Run, wishes

__all__ = ["Explainer", "Span", "explain", "told"]


class Explainer:
    """Explains jobs of one run; what all explanations need is worked out once."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._ids = run.tables["jobs"]["job_id"]
        self._submit, self._leave = run.column("jobs", "submit_s"), run.column("jobs", "end_s")
        self._state, self._reason = run.column("jobs", "state"), run.column("jobs", "reason")
        self._asked = gpus_asked(run)
        self._duration = run.column("jobs", "duration_s")
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            self._recorded_rate = run.column("jobs", "work_total") / self._duration
        self._begin, self._end = run.column("segments", "begin_s"), run.column("segments", "end_s")
        self._why = run.column("segments", "end_reason")
        self._by_begin = np.argsort(self._begin, kind="stable")
        self._begins = self._begin[self._by_begin]
        # The segments of a job are a slice of this order.
        self._by_job = np.lexsort((self._begin, run.segment_job))
        self._jobs = run.segment_job[self._by_job]
        self._wish, self._allowed = wishes(run)
        self._type_of = np.array(run.types, dtype=object)
        self._outages = run.outages
        self._unit = str(run.info.get("work", {}).get("unit", "work"))

    @cached_property
    def free(self) -> Free:
        return Free(self.run)

    @cached_property
    def waiting(self) -> Waiting:
        return Waiting(self.run)

    def submit_s(self, job_id: str) -> float:
        """When a job was submitted, in s on the trace's clock."""
        return float(self._submit[self.run.row_of(job_id)])

    def segments(self, job: int) -> np.ndarray:
        """int64: rows of the segments of a job (by its row), in order of time."""
        low, high = np.searchsorted(self._jobs, [job, job + 1])
        rows: np.ndarray = self._by_job[low:high]
        return rows

    def explain(self, job_id: str, most: int | None = None) -> list[Span]:
        """Spans of a job in order of time.

        Parameters
        ----------
        most : int, optional
            Of more spans than this only the longest are told, in order of time, the last always.
        """
        job = self.run.row_of(job_id)
        outline = self._outline(job)
        if most is not None and len(outline) > most:
            length = np.array([end - begin for _, begin, end in outline])
            length[-1] = np.inf
            keep = np.sort(np.argsort(-length, kind="stable")[:most])
            outline = [outline[i] for i in keep.tolist()]
        spans = [self._waited(job, begin, end) if at < 0 else self._ran(at) for at, begin, end in outline]
        return spans + self._left(job)

    def told(self, job_id: str) -> list[str]:
        """A job's time in sum where it finished, then its spans as lines: time since its submit, what happened."""
        submit, whole = self.submit_s(job_id), self.summed(job_id)
        spans = [f"+{human(span.begin_s - submit)}: {span.text}." for span in self.explain(job_id)]
        return [f"{whole}.", *spans] if whole else spans

    def summed(self, job_id: str) -> str:
        """'JCT 3 h 0 min: waited 1 h 0 min, ran 2 h 0 min on T4 at 0.35 of its recorded speed; …'.

        The speed is the mean while it worked, restarts apart: ``Σ work_done / Σ (end_s - begin_s - overhead_s)`` over
        the recorded rate, ``work_total / duration_s``. Empty for a job that did not finish.
        """
        job = self.run.row_of(job_id)
        if self._state[job] not in FINISHED:
            return ""
        rows, segments = self.segments(job), self.run.tables["segments"]
        length = self._end[rows] - self._begin[rows]
        jct, ran = float(self._leave[job] - self._submit[job]), float(length.sum())
        waits = [end - begin for at, begin, end in self._outline(job) if at < 0]
        parts = [f"waited {human(sum(waits))}" if waits else "never waited", f"ran {human(ran)}"]
        nodes = segments["nodes"].take(rows).combine_chunks().flatten().to_numpy()
        kinds = " and ".join(dict.fromkeys(self._type_of[self.run.node_type[nodes]].tolist()))
        parts[-1] += f" on {kinds}" if kinds else ""
        restart = np.minimum(segments["overhead_s"].take(rows).to_numpy(), length)
        worked = length - restart
        work, recorded = float(segments["work_done"].take(rows).to_numpy().sum()), float(self._recorded_rate[job])
        if worked.sum() > 0 and np.isfinite(recorded) and recorded > 0:
            parts[-1] += f" at {share_words(work / float(worked.sum()) / recorded)}"
        idle = [
            f"{human(value)} {what}" for what, value in (
                ("of it to restart", float(restart.sum())),
                ("of it lost", sum(span.lost_s for span in map(self._ran, rows.tolist()))),
            ) if value > 0
        ]
        return f"JCT {human(jct)}: {', '.join([*parts, *idle])}; its recorded run time is {human(self._duration[job])}"

    def count(self, job_id: str) -> int:
        """Waits and segments of a job."""
        return len(self._outline(self.run.row_of(job_id)))

    def _outline(self, job: int) -> list[tuple[int, float, float]]:
        """Waits (-1) and segments (their row) of a job with begin and end, in order."""
        found: list[tuple[int, float, float]] = []
        if self._state[job] in TURNED_AWAY:
            return found
        since = float(self._submit[job])
        for at in self.segments(job).tolist():
            begin, end = float(self._begin[at]), float(self._end[at])
            if begin > since:
                found.append((-1, since, begin))
            found.append((at, begin, end))
            since = end
        until = float(self._leave[job]) if np.isfinite(self._leave[job]) else self.run.window_s[1]
        if until > since:
            found.append((-1, since, until))
        return found

    def _left(self, job: int) -> list[Span]:
        state, reason = str(self._state[job]), str(self._reason[job] or "")
        if state in FINISHED:
            return []
        submit, asked = float(self._submit[job]), float(self._asked[job])
        at = max(submit, self.run.window_s[1]) if state == "unfinished" else submit
        what = f"was {state}" if state in TURNED_AWAY else "had not finished when the run ended"
        return [Span("left", at, at, f"{what}: {reason}" if reason else what, asked, end_reason=state)]

    def _waited(self, job: int, begin: float, end: float) -> Span:
        allowed = self._allowed[self._wish[job]]
        asked, types = float(self._asked[job]), tuple(self._type_of[allowed].tolist())
        low, high = np.searchsorted(self._begins, [begin, end])
        started = self.run.segment_job[self._by_begin[low:high]]
        started = started[started >= 0]
        later = np.unique(started[self._submit[started] > self._submit[job]])
        span = Span(
            "waited", begin, end, "", asked, types,
            queued=max(self.waiting.at(begin), 1),
            overtaken=int((later != job).sum()),
            free=self.free.best(begin, end, allowed) if types else 0.0,
            free_node=self.free.best_node(begin, end, allowed) if types else 0.0,
            enough_s=self.free.enough_s(begin, end, allowed, asked) if types else 0.0,
            quota=self._quota(job, begin),
        )  # fmt: skip
        return replace(span, text=wait_text(span, len(types) == len(self.run.types)))

    def _quota(self, job: int, time_s: float) -> float | None:
        """GPUs that the job's virtual cluster may hold at that time; None: no limit."""
        vc = self.run.jobs["vc"].iloc[job]
        steps = (self.run.info.get("timetable", {}).get("quotas") or {}).get(vc)
        if steps is None:
            fixed = (self.run.info.get("settings", {}).get("quotas") or {}).get(vc)
            return None if fixed is None else float(fixed)
        passed = [gpus for at, gpus in steps if at <= time_s]
        return float(passed[-1]) if passed else None

    def _ran(self, at: int) -> Span:
        table = self.run.tables["segments"].slice(at, 1)
        nodes, ids = tuple(table["nodes"][0].as_py()), tuple(table["gpu_ids"][0].as_py())
        rate = float(table["rate"][0].as_py())
        lost = float(table["work_lost"][0].as_py())
        reason, end, job = str(self._why[at]), float(self._end[at]), int(self.run.segment_job[at])
        recorded = float(self._recorded_rate[job])
        span = Span(
            "ran", float(self._begin[at]), end, "",
            asked=float(self._asked[job]),
            types=tuple(dict.fromkeys(self._type_of[self.run.node_type[list(nodes)]].tolist())),
            gpus=float(sum(table["gpus"][0].as_py())), nodes=nodes, gpu_ids=ids,
            rate=rate, speed=rate / recorded if np.isfinite(recorded) and recorded > 0 else None,
            overhead_s=float(table["overhead_s"][0].as_py()),
            lost_s=lost / rate if rate > 0 else 0.0, end_reason=reason,
            taken_by=self._took(at, ids) if reason in ("preempted", "migrated", "resized") else (),
            failed_nodes=self._down(nodes, end) if reason == "node_failed" else (),
            terms=self._terms(at),
        )  # fmt: skip
        return replace(span, text=run_text(span, self._unit, str(self._state[job]), self._next(at)))

    def _terms(self, at: int) -> tuple[str, ...]:
        """What a segment says beside GPUs, where it says anything."""
        table, row = self.run.tables["segments"], int(self.run.segment_job[at])
        milli = int(table["gpu_milli"][at].as_py())
        words = [f"{milli / 1000:g} of each GPU"] * (milli != int(self.run.column("jobs", "gpu_milli")[row]))
        for name, text in (("batch_size", "{:,} samples an iteration"), ("power_cap_w", "at most {:g} W a GPU"),
                           ("lease_until_s", "a lease to {:.12g} s")):
            value = table[name][at].as_py()
            words += [] if value is None else [text.format(value)]
        return tuple(words)

    def _took(self, at: int, ids: tuple[int, ...]) -> tuple[tuple[str, float], ...]:
        """Jobs, but for the segment's own, that took any of the GPUs at the instant the segment ended; GPUs of each."""
        low = int(np.searchsorted(self._begins, self._end[at]))
        high = int(np.searchsorted(self._begins, self._end[at], side="right"))
        rows = [r for r in self._by_begin[low:high].tolist() if self.run.segment_job[r] != self.run.segment_job[at]]
        held = self.run.tables["segments"]["gpu_ids"].take(rows).to_pylist() if rows else []
        mine = set(ids)
        took = {
            int(self.run.segment_job[r]): sum(self.run.tables["segments"]["gpus"][r].as_py())
            for r, gpus in zip(rows, held, strict=True) if mine & set(gpus)
        }
        return tuple((self._ids[job].as_py(), float(gpus)) for job, gpus in sorted(took.items()))

    def _down(self, nodes: tuple[int, ...], time_s: float) -> tuple[int, ...]:
        now = self._outages[self._outages["down_s"] == time_s]["node"]
        return tuple(sorted(set(now.tolist()) & set(nodes)))

    def _next(self, at: int) -> str:
        """Where the job went after this segment, if it went on at once."""
        mine = self.segments(int(self.run.segment_job[at])).tolist()
        after = mine[mine.index(at) + 1 :][:1]
        if not after or self._begin[after[0]] != self._end[at]:
            return ""
        row = self.run.tables["segments"].slice(after[0], 1)
        return f"to {gpu_words(sum(row['gpus'][0].as_py()))} of {node_words(tuple(row['nodes'][0].as_py()))}"


def explain(run: Run, job_id: str) -> list[Span]:
    """The life of a job as spans in order of time, from its submit to its end, without gaps.

    Raises
    ------
    RunError
        The run has no such job.
    """
    return Explainer(run).explain(job_id)


def told(run: Run, job_id: str) -> list[str]:
    """The life of a job as lines: time since its submit, then what happened.

    Examples
    --------
    Two jobs of 100 s at once, on one GPU: the second waits for the first.

    >>> from pathlib import Path
    >>> from analysis.run import load_run
    >>> from policies.registry import make
    >>> from sim.cluster.clusterfiles import load_cluster
    >>> from sim.engine.simulate import simulate
    >>> from sim.workload.progress import Recorded
    >>> from traces.trace import Trace
    >>> trace = Trace.from_columns(
    ...     {"job_id": ["1", "2"], "submit_s": [0, 0], "duration_s": [100, 100], "num_gpus": [1, 1]})
    >>> cluster = load_cluster("v100:1x1")
    >>> simulate(trace, cluster, make("fifo"), Recorded(trace, cluster)).write(Path("run"))
    >>> for line in told(load_run("run"), "2")[1:]:
    ...     print(line)
    +0.0 s: waited 1 min 40 s for 1 GPU of any type; none was free all the while; nobody else waited when it began.
    +1 min 40 s: ran 1 min 40 s on 1 GPU of V100 on node 0 at its recorded speed; then it was done.
    """
    return Explainer(run).told(job_id)
