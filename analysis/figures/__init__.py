"""Figures, drawn from a run's tables only: PNG, PDF and SVG of the same bytes for the same run.

`FIGURES` names each: a function from runs and a width to a Figure of its own, which `style.save` writes.
`draw_all` draws those that are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from analysis.figures.distribution import jct_cdf, queueing, rho_cdf
from analysis.figures.gantt import MAX_GANTT_BARS, bars_of, gantt
from analysis.figures.overtime import overview, queue_over_time, utilisation_over_time
from analysis.figures.planfigure import plan_of
from analysis.figures.style import DRAWN, FORMATS, MAX_RUNS, WIDTHS_IN, save
from analysis.figures.tradeoff import cost_bars, pareto
from analysis.run import Run, RunError, labels
from traces.errors import did_you_mean
from traces.outfile import refuse_existing

FIGURES: Mapping[str, Callable[[Sequence[Run], float], Figure]] = {
    "jct_cdf": jct_cdf,
    "queueing": queueing,
    "rho_cdf": rho_cdf,
    "utilisation": utilisation_over_time,
    "queue": queue_over_time,
    "overview": overview,
    "cost": cost_bars,
    "pareto": pareto,
}
"""Figures of all runs together, by name; besides, `gantt` is one of each run."""


def draw_all(
    runs: Sequence[Run], out_dir: str | Path, formats: Sequence[str] = DRAWN, only: Sequence[str] = (),
    width: str = "medium", *, force: bool = False,
) -> list[Path]:
    """Draw figures of these runs into a folder; return the files.

    All of `FIGURES` together (`pareto` from two runs on), and a `gantt` of each run that has room for one.

    Parameters
    ----------
    only : names of figures; those that were named are drawn or refused, never left out.
    width : key of `WIDTHS_IN`.
    force : replace files that are there.

    Raises
    ------
    HetsimError
        No runs or too many, an unknown figure, format or width, a Gantt chart with no room for its bars; as `write`.
    """
    if not runs:
        raise RunError("no runs to draw", got=0, allowed="one or more run folders")
    if len(runs) > MAX_RUNS:
        raise RunError(
            "too many runs for one picture", got=len(runs), allowed=f"1 to {MAX_RUNS}", todo="Name those to compare."
        )
    _known("figure format", formats, FORMATS)
    _known("figure", only, (*FIGURES, "gantt"))
    _known("width of a figure", [width], tuple(WIDTHS_IN))
    width_in = WIDTHS_IN[width]
    figures = {
        name: draw(runs, width_in) for name, draw in FIGURES.items()
        if name in only or (not only and (name != "pareto" or len(runs) > 1))
    }
    if not only or "gantt" in only:
        figures |= _gantts(runs, width_in, asked="gantt" in only)
    return write(figures, Path(out_dir), formats, force=force)


def _gantts(runs: Sequence[Run], width_in: float, asked: bool) -> dict[str, Figure]:
    """A Gantt chart of each run; where it was not asked for, only of runs that have room for one."""
    figures = {}
    for name, run in zip(_names(runs), runs, strict=True):
        fits = 0 < bars_of(run) <= MAX_GANTT_BARS and run.window_s[1] > run.window_s[0]
        if fits or asked:
            stem = "gantt" if len(runs) == 1 else f"gantt_{_stem(name)}"
            figures[stem] = gantt(run, width_in=width_in)
    return figures


def draw_plan(
    run: Run, job_id: str, out_dir: str | Path, formats: Sequence[str] = DRAWN, width: str = "medium", *,
    force: bool = False,
) -> list[Path]:
    """Draw the plans of a job of a run (`analysis.figures.planfigure.plan_of`) into a folder; return the files.

    Raises
    ------
    HetsimError
        As `plan_of` and `write`; an unknown format or width.
    """
    _known("figure format", formats, FORMATS)
    _known("width of a figure", [width], tuple(WIDTHS_IN))
    return write({f"plan_{_stem(job_id)}": plan_of(run, job_id, WIDTHS_IN[width])}, Path(out_dir), formats, force=force)


def _names(runs: Sequence[Run]) -> list[str]:
    """What a file of each run is named after: its policy, or else its folder where that tells them apart."""
    for names in ([run.policy for run in runs], [run.path.name for run in runs]):
        if len({_stem(name) for name in names}) == len(runs):
            return names
    return labels(runs)


def _stem(name: str) -> str:
    """A name as part of a file's."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-")[:80]


def write(
    figures: Mapping[str, Figure], folder: Path, formats: Sequence[str] = DRAWN, *, force: bool = False
) -> list[Path]:
    """Write figures by name into a folder; return the files.

    Raises
    ------
    HetsimError
        One of the files is there already (without `force`; then none is written), or cannot be written.
    """
    files = {folder / f"{name}.{kind}": figure for name, figure in figures.items() for kind in formats}
    for file in files:
        refuse_existing(file, force)
    return [save(figure, file) for file, figure in files.items()]


def _known(what: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    for name in names:
        if name not in allowed:
            raise RunError(f"unknown {what}", got=name, allowed=", ".join(allowed), todo=did_you_mean(name, allowed))
