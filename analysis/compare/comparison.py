"""What a comparison found, and how it is shown: sentences, tables for a terminal, a page or a paper, CSV."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from analysis.compare.bill import Bill
from analysis.compare.bootstrap import Interval
from analysis.compare.verdict import decimals, verdict
from analysis.formats import IN_FULL, NONE, formatted, markdown, one_line, span, value, without_price

WIDE = 8
"""More policies than this stand below each other, not side by side."""

Effects = tuple[Interval, Interval, Interval]
"""What a policy is against the baseline: ratio of mean JCT, change of mean queueing in s, ratio of cost."""


@dataclass(frozen=True)
class Comparison:
    """Policies side by side; the first is the baseline.

    Attributes
    ----------
    table : one row a policy (a run, or its runs of several seeds: then means over the seeds).
        Over the paired jobs: jct_mean_s; jct_mean_ratio (mean JCT over the baseline's; of several seeds the geometric
        mean of their ratios) with its interval jct_ratio_low, jct_ratio_high; jct_p50_s, jct_p99_s; queue_mean_s;
        queue_change_s (how much longer jobs wait on average than under the baseline) with queue_change_low_s,
        queue_change_high_s; better_share, worse_share (jobs whose JCT is lower or higher than there); jobs_cost_usd
        (what these jobs cost; NaN: a price is unknown), what is known of it, jobs_cost_known_usd, without
        jobs_unpriced_gpu_h; cost_ratio with cost_ratio_low, cost_ratio_high; on_front (of mean JCT and that cost, see
        `analysis.compare.paired.pareto`; null: cannot be said, as a cost is unknown).
        Of the whole run: makespan_s, utilisation, cost_usd with cost_known_usd and unpriced_gpu_h, preemptions.
    paired : jobs finished in all runs (added up over seeds).
    left_out : jobs finished in some runs but not in all (or not in their traces).
    rules : what a duration is for each policy.
    notes : what does not match between the runs, and who left which jobs out, in words.
    seeds : repetitions (traces or seeds) that all policies have.
    repeated : what these are: 'seeds', 'traces', or 'repetitions' where neither alone tells them apart.
    level : of the intervals.
    effects : for each policy but the first its JCT ratio, change of queueing in s, and cost ratio, with intervals.
    nowhere : jobs that finished in no run, by what became of them.
    bill : what cost is; of whole runs where it is not of the GPUs held, and so are its ratio and the front.
    warnings : what makes the comparison one-sided; it stands above all else.
    verdicts : for each policy but the first what it is worth against it, in a sentence.
    """

    table: pd.DataFrame
    paired: int
    left_out: int
    rules: tuple[str, ...]
    notes: tuple[str, ...]
    seeds: int
    repeated: str
    level: float
    effects: tuple[Effects, ...]
    nowhere: Mapping[str, int]
    bill: Bill
    warnings: tuple[str, ...]

    @property
    def jobs(self) -> int:
        """Jobs that count in any run: paired, left out, and those that finished nowhere."""
        return self.paired + self.left_out + sum(self.nowhere.values())

    @property
    def verdicts(self) -> tuple[str, ...]:
        base, *others = map(str, self.table.index)
        over = f"{self.seeds} {self.repeated}, " if self.seeds > 1 else ""
        basis = f"{100 * self.level:g} %, {over}{self.paired:,} jobs"
        return tuple(verdict(name, base, *one, basis) for name, one in zip(others, self.effects, strict=True))

    @property
    def text(self) -> str:
        """The comparison for printing without colour."""
        if len(self.table) > WIDE:
            lines = [*self.warnings, self._title, *self.verdicts, "", formatted(self.brief), *self._remarks]
            return "\n".join(line.rstrip("\n") for line in lines) + "\n"
        out = io.StringIO()
        width = max(80, 4 + max(map(len, self._cells())) + 26 * len(self.table))
        Console(file=out, width=width, color_system=None, highlight=False).print(self.rich())
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"

    @property
    def _title(self) -> str:
        over = f" of {self.seeds} {self.repeated}" if self.seeds > 1 else ""
        others = ((self.left_out, "in some only"), (sum(self.nowhere.values()), "in none"))
        rest = ", ".join(f"{count:,} {where}" for count, where in others if count)
        return f"{self.paired:,} of {self.jobs:,} jobs{over} finished in all runs{'; ' if rest else ''}{rest}"

    @property
    def _remarks(self) -> list[str]:
        return [*(f"rule: {text}" for text in dict.fromkeys(self.rules)), *self.notes]

    def rich(self) -> Table:
        """The comparison as a rich table, a column a policy."""
        title = escape("\n".join([*self.warnings, self._title]))
        table = Table(title=title, title_justify="left", caption_justify="left")
        table.add_column("", no_wrap=True)
        for name in self.table.index:
            table.add_column(escape(str(name)), justify="right", overflow="fold")
        for label, cells in self._cells().items():
            table.add_row(label, *cells)
        table.caption = escape("\n".join([*self.verdicts, *self._remarks]))
        return table

    def _cells(self) -> dict[str, list[str]]:
        t = self.table

        def column(name: str, show: Any) -> list[str]:
            return [NONE if pd.isna(v) else show(v) for v in t[name]]

        def percent(v: float) -> str:
            return value(100 * v, "%")

        of_cost = f"cost {'' if self.bill.whole else 'of these '}/ baseline's"
        return {
            "JCT mean (s)": column("jct_mean_s", span),
            self._ratio("JCT", "JCT mean / baseline's"): self._ratios("jct_mean_ratio")[0],
            f"JCT ratio, {100 * self.level:g} % interval": self._ratios("jct_mean_ratio")[1],
            "JCT median (s)": column("jct_p50_s", span),
            "JCT 99th percentile (s)": column("jct_p99_s", span),
            "queueing mean (s)": column("queue_mean_s", span),
            "jobs better (%)": column("better_share", percent),
            "jobs worse (%)": column("worse_share", percent),
            "cost of these jobs (USD)": self._paid("jobs_cost_usd", "jobs_unpriced_gpu_h"),
            self._ratio("cost", of_cost): self._ratios("cost_ratio")[0],
            f"cost ratio, {100 * self.level:g} % interval": self._ratios("cost_ratio")[1],
            "on the Pareto front": self._fronts(),
            "makespan (s)": column("makespan_s", span),
            "GPUs held (%)": column("utilisation", percent),
            "cost (USD)": self._paid("cost_usd", "unpriced_gpu_h"),
            "preemptions": column("preemptions", lambda v: f"{v:,.0f}"),
        }

    def _ratio(self, what: str, label: str) -> str:
        """Of several repetitions the ratio is not that of the means that stand above it."""
        return f"{what} ratio, geometric mean over {self.repeated}" if self.seeds > 1 else label

    def _fronts(self) -> list[str]:
        return ["cannot be said" if pd.isna(on) else "yes" if on else "no" for on in self.table["on_front"]]

    def _paid(self, cost: str, gpu_h: str) -> list[str]:
        """Costs in USD; of unknown ones what is known, and for what there is no price."""
        known = cost.replace("_usd", "_known_usd")
        return [f"≥ {value(least, 'USD')} ({without_price(hours)})" if pd.isna(v) else value(v, "USD")
                for v, least, hours in self.table[[cost, known, gpu_h]].itertuples(index=False)]

    def _ratios(self, name: str) -> tuple[list[str], list[str]]:
        """Ratios and their intervals, a policy each, to as many places as the interval is worth, but three."""
        low, high = (f"{name.removesuffix('_ratio').removesuffix('_mean')}_ratio_{end}" for end in ("low", "high"))
        ratios, ends = [], []
        for v, a, b in self.table[[name, low, high]].itertuples(index=False):
            places = decimals((b - a) / 2, 3, 3, 6)
            ratios.append(NONE if pd.isna(v) else f"{v:,.{places}f}")
            ends.append(NONE if pd.isna(a) else f"{a:,.{places}f} to {b:,.{places}f}")
        return ratios, ends

    @property
    def brief(self) -> pd.DataFrame:
        """What fits a page: a row a policy, ratios with their intervals as text."""
        over = f"geometric mean over {self.repeated}, " if self.seeds > 1 else ""
        t, to = self.table, f"/ {self.table.index[0]} ({over}{100 * self.level:g} % interval)"
        cost = self.bill.column
        gpu_h = cost.replace("cost_usd", "unpriced_gpu_h")

        def ratios(name: str) -> list[str]:
            return [ratio if ends == NONE else f"{ratio} ({ends})"
                    for ratio, ends in zip(*self._ratios(name), strict=True)]

        return pd.DataFrame(
            {
                "JCT mean (s)": t["jct_mean_s"],
                f"JCT {to}": ratios("jct_mean_ratio"),
                "JCT p99 (s)": t["jct_p99_s"],
                "queueing mean (s)": t["queue_mean_s"],
                "cost (USD)": self._paid(cost, gpu_h) if t[cost].isna().any() else t[cost],
                f"cost {to}": ratios("cost_ratio"),
                "on the Pareto front": self._fronts(),
            },
            index=t.index.rename("policy"),
        )

    def plain(self) -> dict[str, Any]:
        """All of it for JSON: columns of `table` by policy (None where unknown), counts, sentences."""
        rows = self.table.astype(object).where(self.table.notna(), None)
        return {
            "policies": {str(name): dict(row) for name, row in rows.iterrows()},
            "jobs": self.jobs,
            "paired": self.paired, "left_out": self.left_out, "nowhere": dict(self.nowhere),
            "repetitions": self.seeds, "repeated": self.repeated, "level": self.level,
            "warnings": list(self.warnings), "verdicts": list(self.verdicts), "notes": list(self.notes),
            "rules": list(self.rules),
        }

    def csv(self) -> str:
        """The table as CSV: a row a policy, full precision; empty where unknown."""
        return formatted(self.table, "csv")

    def formatted(self, kind: str = "text") -> str:
        """As 'text'; the table in full: 'csv', 'spreadsheet'; what fits a page: 'markdown', 'latex'."""
        if kind == "text":
            return self.text
        if kind in IN_FULL:
            return formatted(self.table, kind)
        said = [one_line(line) for line in (*self.warnings, *self.verdicts, self._title + ".", *self._remarks)]
        table = formatted(self.brief, kind)
        if kind == "markdown":
            return table + "\n" + "".join(f"- {markdown(line)}\n" for line in said)
        return table + "".join(f"% {line}\n" for line in said)
