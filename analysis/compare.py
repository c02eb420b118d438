"""Policies side by side, job by job: each job is compared with itself under the first policy."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from analysis.metrics import cost_usd, jct_s, makespan_s, preemptions, queue_s, utilisation
from analysis.run import Run, RunError, labels
from analysis.tables import human, rule

SAME = 1e-9
"""Two JCTs that differ by less than this share of the larger are equal."""


@dataclass(frozen=True)
class Comparison:
    """Runs side by side; the first is the baseline.

    Attributes
    ----------
    table : one row a run: jct_mean_s, jct_p50_s, jct_p99_s, queue_mean_s over the paired jobs;
    jct_mean_ratio (mean JCT
        over the baseline's mean JCT); better_share, worse_share (jobs whose JCT is lower or higher than in
        the baseline); then of the whole run makespan_s, utilisation, cost_usd, preemptions.
    paired : jobs finished in all runs.
    left_out : jobs finished in some runs but not in all (or not in their traces).
    rules : what a duration is in each run.
    notes : what does not match between the runs, in words.
    """

    table: pd.DataFrame
    paired: int
    left_out: int
    rules: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The comparison for printing without colour."""
        out = io.StringIO()
        Console(file=out, width=max(80, 26 + 20 * len(self.table)), color_system=None, highlight=False).print(
            self.rich()
        )
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"

    def rich(self) -> Table:
        """The comparison as a rich table, a column a run."""
        table = Table(
            title=f"{self.paired:,} jobs finished in all runs; {self.left_out:,} left out",
            title_justify="left",
            caption_justify="left",
        )
        table.add_column("", no_wrap=True)
        for name in self.table.index:
            table.add_column(escape(str(name)), justify="right", overflow="fold")
        for label, cells in self._cells().items():
            table.add_row(label, *cells)
        table.caption = escape(
            "\n".join([*(f"rule: {text}" for text in dict.fromkeys(self.rules)), *self.notes])
        )
        return table

    def _cells(self) -> dict[str, list[str]]:
        t = self.table

        def column(name: str, show: object) -> list[str]:
            return ["–" if pd.isna(v) else show(v) for v in t[name]]  # type: ignore[operator]

        def span(v: float) -> str:
            return f"{v:,.1f}" if v < 59.95 else f"{v:,.1f} ({human(v)})"

        def percent(v: float) -> str:
            return f"{100 * v:.1f}"

        return {
            "JCT mean (s)": column("jct_mean_s", span),
            "JCT mean / baseline's": column("jct_mean_ratio", lambda v: f"{v:.3f}"),
            "JCT median (s)": column("jct_p50_s", span),
            "JCT 99th percentile (s)": column("jct_p99_s", span),
            "queueing mean (s)": column("queue_mean_s", span),
            "jobs better (%)": column("better_share", percent),
            "jobs worse (%)": column("worse_share", percent),
            "makespan (s)": column("makespan_s", span),
            "GPUs held (%)": column("utilisation", percent),
            "cost (USD)": ["unknown" if pd.isna(v) else f"{v:,.2f}" for v in t["cost_usd"]],
            "preemptions": column("preemptions", lambda v: f"{int(v):,}"),
        }

    def csv(self) -> str:
        """The table as CSV: a row a run, full precision; empty where unknown."""
        return self.table.to_csv(lineterminator="\n")


def compare(runs: Sequence[Run], *, different_traces: bool = False) -> Comparison:
    """Compare runs over the jobs that finished in all of them, paired by job id.

    Parameters
    ----------
    runs : sequence of Run
        Two or more; the first is the baseline.
    different_traces : bool
        Also compare runs whose trace hashes differ (ids must then mean the same jobs).

    Raises
    ------
    RunError
        Fewer than two runs, different traces, or no job that finished in all runs.
    """
    if len(runs) < 2:
        raise RunError("a comparison needs runs to compare", got=len(runs), allowed="two or more run folders")
    hashes = [run.info.get("trace", {}).get("hash") for run in runs]
    notes = []
    if len(set(hashes)) > 1:
        other = next(i for i, h in enumerate(hashes) if h != hashes[0])
        if not different_traces:
            raise RunError(
                "the runs replayed different traces",
                where=f"{runs[0].path} and {runs[other].path}",
                got=f"trace hashes {str(hashes[0])[:12]} and {str(hashes[other])[:12]}",
                allowed="one trace",
                todo="Run both on one trace, or pass --different-traces to pair jobs by id only.",
            )
        notes.append("The runs replayed different traces: jobs are paired by id only.")
    for what, values in (
        ("clusters", [r.info.get("cluster") for r in runs]),
        ("rules", [rule(r) for r in runs]),
    ):
        if any(value != values[0] for value in values[1:]):
            notes.append(f"The runs differ in more than the policy: {what} differ.")
    jct = pd.concat(
        [pd.Series(jct_s(r), index=pd.Index(r.jobs["job_id"], dtype=object)) for r in runs],
        axis=1,
        join="outer",
    )
    queue = pd.concat(
        [pd.Series(queue_s(r), index=pd.Index(r.jobs["job_id"], dtype=object)) for r in runs], axis=1
    )
    done = jct.notna()
    both = done.all(axis=1)
    if not both.any():
        raise RunError(
            "no job finished in all runs",
            where=", ".join(str(r.path) for r in runs),
            got=f"{done.sum().tolist()} finished jobs",
            todo="Compare runs of the same jobs.",
        )
    times, waits = jct[both].to_numpy(), queue[both].to_numpy()
    rows = [_row(run, times[:, i], times[:, 0], waits[:, i]) for i, run in enumerate(runs)]
    table = pd.DataFrame(rows, index=pd.Index(labels(runs), name="run"))
    return Comparison(
        table,
        int(both.sum()),
        int((done.any(axis=1) & ~both).sum()),
        tuple(rule(r) for r in runs),
        tuple(notes),
    )


def _row(run: Run, jct: np.ndarray, base: np.ndarray, queue: np.ndarray) -> dict[str, float | int | None]:
    same = np.abs(jct - base) <= SAME * np.maximum(jct, base)
    p50, p99 = np.percentile(jct, [50, 99])
    return {
        "jct_mean_s": float(jct.mean()),
        "jct_mean_ratio": float(jct.mean() / base.mean()) if base.mean() > 0 else None,
        "jct_p50_s": float(p50),
        "jct_p99_s": float(p99),
        "queue_mean_s": float(queue.mean()),
        "better_share": float((~same & (jct < base)).mean()),
        "worse_share": float((~same & (jct > base)).mean()),
        "makespan_s": makespan_s(run),
        "utilisation": utilisation(run)["all"],
        "cost_usd": cost_usd(run),
        "preemptions": preemptions(run),
    }
