"""The slowest jobs of each run, told span by span."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.explain import Explainer, Span
from analysis.formats import human
from analysis.metrics.jobtimes import whole_life
from analysis.report import html
from analysis.run import Run

SLOWEST = 10
MOST_SPANS = 24
"""Spans of a job that the page tells: the longest."""
RANKED = {"longest JCT": "jct_s", "largest slowdown": "bounded_slowdown"}


def slowest(
    runs: Sequence[Run], names: Sequence[str], per_job: Sequence[pd.DataFrame]
) -> tuple[str, list[dict[str, str]]]:
    """The slowest jobs of each run as HTML, and where each is told: an anchor by job id, a run each.

    Parameters
    ----------
    per_job : `analysis.metrics.per_job` of each run.
    """
    parts, anchors = [], []
    for i, (run, label, times) in enumerate(zip(runs, names, per_job, strict=True)):
        explainer, mine, lists = Explainer(whole_life(run)), dict[str, str](), []
        for title, column in RANKED.items():
            told = []
            for row in _worst(times[column].to_numpy(np.float64)):
                job = str(times.index[row])
                if job in mine:
                    told.append(f'<p><a href="#{mine[job]}">{html.name(job)}</a>: told above.</p>')
                else:
                    mine[job] = f"why-{i}-{len(mine)}"
                    told.append(_story(explainer, times.iloc[row], job, mine[job]))
            inside = "".join(told) or "<p>No job finished.</p>"
            lists.append(f"<div><h3>{html.name(label)}: {title}</h3>{inside}</div>")
        parts.append(f'<div class="grid" data-run="{i}">{"".join(lists)}</div>')
        anchors.append(mine)
    return "".join(parts), anchors


def _worst(values: np.ndarray) -> list[int]:
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")[:SLOWEST]
    return [int(row) for row in order if np.isfinite(values[row])]


def _story(explainer: Explainer, times: pd.Series, job: str, anchor: str) -> str:
    count = explainer.count(job)
    spans = explainer.explain(job, MOST_SPANS)
    submit, whole, preempted = float(explainer.submit_s(job)), float(times["jct_s"]), int(times["preemptions"])
    said = f"{html.text(explainer.summed(job))}; bounded slowdown {times['bounded_slowdown']:,.2f}" + (
        f"; preempted {preempted:,} {'time' if preempted == 1 else 'times'}" if preempted else ""
    )
    told = "".join(_span(span, submit) for span in spans)
    left_out = f"<p>The {len(spans)} longest of {count:,} stretches are told.</p>" if len(spans) < count else ""
    return (
        f'<details id="{anchor}"><summary>{html.name(job)} <span class="count">{said}</span></summary>'
        f'{_strip(spans, submit, whole)}{left_out}<ol class="spans">{told}</ol></details>'
    )


def _span(span: Span, submit: float) -> str:
    words = re.sub(r"^(waited|ran)", r"<b>\1</b>", html.text(span.text))
    return f'<li class="{span.kind}"><time>after {human(span.begin_s - submit)}</time><span>{words}.</span></li>'


def _strip(spans: Sequence[Span], submit: float, whole: float) -> str:
    """The job's life as a bar: hatched waiting, running, and time lost at the end of a stretch. For the eye only."""
    if whole <= 0:
        return ""
    parts, at = [], submit
    for span in spans:
        lost = min(span.overhead_s + span.lost_s, span.length_s)
        pieces = {"untold": span.begin_s - at, span.kind: span.length_s - lost, "lost": lost}
        parts += [f'<i class="{kind}" style="width:{100 * s / whole:.3f}%"></i>' for kind, s in pieces.items() if s > 0]
        at = span.end_s
    return f'<div class="strip" aria-hidden="true">{"".join(parts)}</div>'
