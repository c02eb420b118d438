"""One stretch of a job's life, and how it is told."""

from __future__ import annotations

import re
from dataclasses import dataclass

from analysis.formats import human

MOST_NAMED = 3
"""Nodes and jobs that a sentence names; of more it says how many."""


@dataclass(frozen=True)
class Span:
    """One stretch of a job's life.

    Attributes
    ----------
    kind : 'waited' (no GPUs), 'ran' (held GPUs), or 'left' (an instant: rejected, or still there at the end).
    begin_s, end_s : on the trace's clock, in s.
    text : the whole as one sentence.
    asked : GPUs that it asked for (a share of a GPU as that share).
    types : GPU types allowed ('waited') or held ('ran').
    queued : jobs that waited at the beginning, itself included ('waited').
    overtaken : jobs submitted later that got GPUs before the span was over ('waited').
    free : most GPUs of its types free at once ('waited').
    free_node : most GPUs free at once on one node of its types ('waited').
    enough_s : for how long as many as it asked for were free, on whatever nodes, in s ('waited').
    quota : GPUs that its virtual cluster may hold where that is limited ('waited').
    gpus, nodes, gpu_ids : what it held ('ran').
    rate : work a second after the overhead; unit of work of run.json ('ran').
    speed : the rate over that at which the trace recorded the job, ``work_total / duration_s``; None: unknown ('ran').
    overhead_s : time without progress at its beginning, in s ('ran').
    lost_s : time whose work was thrown away at its end, in s ('ran').
    end_reason : why it ended ('ran': of `sim.results.schema.END_REASONS`; 'left': the state).
    taken_by : jobs that took any of its GPUs at the instant it ended, each with all GPUs that it took then ('ran').
    failed_nodes : its nodes that went out of service at that instant ('ran').
    terms : what the policy said of them besides: another share, batch size, power cap, lease ('ran').
    """

    kind: str
    begin_s: float
    end_s: float
    text: str
    asked: float = 0.0
    types: tuple[str, ...] = ()
    queued: int = 0
    overtaken: int = 0
    free: float = 0.0
    free_node: float = 0.0
    enough_s: float = 0.0
    quota: float | None = None
    gpus: float = 0.0
    nodes: tuple[int, ...] = ()
    gpu_ids: tuple[int, ...] = ()
    rate: float = 0.0
    speed: float | None = None
    overhead_s: float = 0.0
    lost_s: float = 0.0
    end_reason: str = ""
    taken_by: tuple[tuple[str, float], ...] = ()
    failed_nodes: tuple[int, ...] = ()
    terms: tuple[str, ...] = ()

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


def wait_text(span: Span, any_type: bool) -> str:
    """'waited 2 h 5 min for 8 GPUs of V100; ...'."""
    kinds = "any type" if any_type else " or ".join(span.types) or "a type that the cluster lacks"
    parts = [f"waited {human(span.length_s)} for {gpu_words(span.asked)} of {kinds}"]
    if span.types and not span.free:
        parts.append("none was free all the while")
    elif span.types and span.free < span.asked - 5e-4:
        parts.append(f"at best {span.free:g} of them were free at once")
    elif span.types:
        parts.append(f"as many were free for {human(span.enough_s)} of it, at best {span.free_node:g} on one node")
    if span.quota is not None:
        parts.append(f"its virtual cluster may hold {span.quota:g}")
    others = span.queued - 1
    parts.append("nobody else waited when it began" if not others else
                 f"{others:,} {'job' if others == 1 else 'jobs'} waited beside it when it began")
    if span.overtaken:
        parts.append(f"{span.overtaken:,} that came later got GPUs meanwhile")
    return "; ".join(parts)


def run_text(span: Span, unit: str, state: str, onward: str) -> str:
    """'ran 2 h 5 min on 8 GPUs of V100 on node 3 at its recorded speed; ...'."""
    where = f"{gpu_words(span.gpus)} of {' and '.join(span.types)} on {node_words(span.nodes)}"
    parts = [f"ran {human(span.length_s)} on {where} at {speed_words(span, unit)}"]
    if span.terms:
        parts.append(f"on terms: {', '.join(span.terms)}")
    if span.overhead_s:
        parts.append(f"the first {human(min(span.overhead_s, span.length_s))} of it to restart")
    by = f": {_names(span.taken_by)} took its GPUs" if span.taken_by else ""
    ends = {
        "done": {"killed": "then it was killed", "failed": "then it failed"}.get(state, "then it was done"),
        "preempted": f"then it was preempted{by or ' (no job took its GPUs at that instant)'}",
        "resized": f"then it was resized {onward}{by}",
        "migrated": f"then it was moved {onward}{by}",
        "failed": "then this attempt failed, as in the log, and it queued for the next",
        "node_failed": f"then {node_words(span.failed_nodes) if span.failed_nodes else 'a node of it'} failed or left",
        "maintenance": "then GPUs of it went out for maintenance",
        "lease_ended": "then its lease ended, was not renewed, and it queued again",
        "horizon": "and it still ran when the run was stopped",
        "respeed": "then a neighbour came or went and its speed changed",
    }
    end = ends.get(span.end_reason, "then it ended").rstrip()
    # The word of the files, of the timeline and of queries, where the sentence does not say it anyway.
    known = span.end_reason == "done" or re.search(rf"\b{re.escape(span.end_reason)}\b", end)
    parts.append(end if known else f"{end} ({span.end_reason})")
    if span.lost_s:
        parts.append(f"the work of {human(span.lost_s)} was lost")
    return "; ".join(parts)


def speed_words(span: Span, unit: str) -> str:
    """'its recorded speed', '0.35 of its recorded speed (12 iterations a second)'."""
    if span.speed is None:
        return f"{span.rate:.4g} {unit} of work a second"
    return share_words(span.speed) + ("" if unit == "s" else f" ({span.rate:.4g} {unit} a second)")


def share_words(speed: float) -> str:
    return "its recorded speed" if f"{speed:.3g}" == "1" else f"{speed:.3g} of its recorded speed"


def gpu_words(count: float) -> str:
    return f"{count:g} {'GPU' if count == 1 else 'GPUs'}"


def node_words(nodes: tuple[int, ...]) -> str:
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    if len(nodes) > MOST_NAMED:
        return f"{len(nodes):,} nodes ({nodes[0]} … {nodes[-1]})"
    return f"nodes {', '.join(map(str, nodes[:-1]))} and {nodes[-1]}" if nodes else "a node"


def _names(jobs: tuple[tuple[str, float], ...]) -> str:
    more = len(jobs) - MOST_NAMED
    named = ", ".join(f"{job} ({gpu_words(gpus)})" for job, gpus in jobs[:MOST_NAMED])
    return f"{named} and {more:,} more" if more > 0 else named
