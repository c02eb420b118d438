"""`hetsim recommend --uncertain`: speeds that may be wrong, the profiling runs that are worth their cost, the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from sim.cli.console import cell, new_table
from sim.cli.perftables import time
from sim.cli.recommendinput import NUMBER, Question, methods, refused, usd_of
from sim.cli.recommendtables import usd
from traces.errors import HetsimError, did_you_mean

if TYPE_CHECKING:
    from rich.table import Table

    from policies.recommend.request.request import Request
    from policies.recommend.uncertain_speeds.belief import Belief
    from policies.recommend.uncertain_speeds.profiling import Run
    from sim.api import Plan

COLUMNS = ("gpu_type", "kind", "seconds")
MOST_ERROR = 2.0


@dataclass(frozen=True)
class Doubt:
    """The options as they were given.

    Attributes
    ----------
    error : mean error of modelled operator times, as 0.2 or 20%; 'auto': the calibration's own.
    profile : budget of profiling runs.
    runs : CSV file of what runs have measured.
    """

    error: str
    profile: str | None
    runs: str | None


def check(error: str | None, profile: str | None, runs: str | None, asked: Question) -> Doubt | None:
    """The options, or None where speeds are taken to be certain.

    Raises
    ------
    HetsimError
        An option without effect, or one that the doubt needs and lacks.
    """
    if error is None:
        for option, given in (("--profile", profile), ("--runs", runs)):
            if given is not None:
                raise HetsimError("an option has no effect", got=f"{option} {given}",
                                  allowed=f"{option} with --uncertain")
        return None
    for option, given in (("--within", asked.within), ("--budget", asked.budget), ("--keep", asked.keep)):
        if given is not None:
            raise HetsimError("limits are not kept where speeds are uncertain", got=f"{option} {given}",
                              allowed="--uncertain without it")
    if asked.objective == "front":
        raise refused("no front of uncertain plans", "--objective", asked.objective, "time, cost")
    if asked.iterations is None:
        raise HetsimError("what a better plan is worth is not known", allowed="--iterations N with --uncertain",
                          todo="Name the iterations of the job: runs are weighed against what they save of it.")
    if [name for name in methods(asked) if name != "search"] == []:
        raise refused("no method proposes plans", "--methods", asked.methods, "one beside search")
    return Doubt(error, profile, runs)


def answer(asked: Question, doubt: Doubt, request: Request) -> dict[str, Any]:
    """The plan of the least mean, and each run with what it costs and whether to make it: plain values."""
    from policies.recommend.searching import plain
    from policies.recommend.searching.gather import proposed
    from policies.recommend.uncertain_speeds.belief import Belief
    from policies.recommend.uncertain_speeds.profiling import log_ratios, runs_of
    from policies.recommend.uncertain_speeds.uncertain import advise, candidates_under

    names = [name for name in methods(asked) if name != "search"]
    belief, budget_usd = Belief.prior(request, _spread(doubt, request)), float("inf")
    if doubt.profile is not None:
        budget_usd = usd_of(doubt.profile, "--profile")
    runs = runs_of(request)
    made = _measured(doubt.runs, runs) if doubt.runs is not None else {}
    for run in runs:
        if run.gpu_type in made:
            belief = belief.given(run.gpu_type, log_ratios(run, made[run.gpu_type]))
    left = [run for run in runs if run.gpu_type not in made]

    def propose(there: Request) -> Iterator[Plan]:
        return chain.from_iterable(proposed(there, name) for name in names)

    plans = candidates_under(request, belief, propose, seed=request.seed)
    found = advise(request, plans, asked.iterations or 0, objective=asked.objective, belief=belief, runs=left,
                   budget_usd=budget_usd)  # fmt: skip
    believed = belief.under(request)
    chosen = believed.truth(found.plan)
    assert chosen is not None  # it fits: memory does not depend on times
    return {
        "model": request.model, "batch_size": request.batch_size, "objective": asked.objective,
        "iterations": asked.iterations, "seed": request.seed, "methods": names, "candidates": len(plans),
        "deviation": dict(zip(belief.types, _deviations(belief), strict=True)),
        "plan": plain.plan_row(believed, chosen, asked.iterations),
        "stages": [{"operators": [s.first_op, s.last_op], "gpus": {part.gpu_type: part.gpus for part in s.all_parts}}
                   for s in found.plan.stages],
        "expected": found.expected, "expected_regret": found.expected_regret, "stopped": found.stopped,
        "runs": [
            {"gpu_type": run.gpu_type, "samples": run.samples, "run_s": run.seconds, "run_usd": plain.known(run.usd),
             "made": run.gpu_type in made, "make": run in found.runs,
             "worth": plain.known(found.worth[run]) if run in found.worth else None,
             "modelled_s": dict(run.modelled_s), "measured_s": made.get(run.gpu_type)}
            for run in runs
        ],
    }  # fmt: skip


def _spread(doubt: Doubt, request: Request) -> dict[str, float] | None:
    """Standard deviation of each type's logarithms; None: the calibration's."""
    from policies.recommend.uncertain_speeds.belief import deviation_of

    if doubt.error == "auto":
        return None
    match = re.fullmatch(NUMBER + r"\s*(%?)", doubt.error.strip(), re.ASCII)
    value = float(f"{match[1]}e{match[2] or 0}") / (100 if match[3] else 1) if match else -1.0
    if not 0 <= value <= MOST_ERROR:
        raise refused("not a mean error", "--uncertain", doubt.error, "auto, or a number from 0 to 2, as 0.2 or 20%")
    return dict.fromkeys(request.fleet.names, deviation_of(value))


def _deviations(belief: Belief) -> list[float]:
    """Mean over a type's kinds of the standard deviation that is left."""
    variance = belief.covariance.diagonal().reshape(len(belief.types), len(belief.kinds))
    return [float(sd) for sd in variance.clip(0).mean(axis=1) ** 0.5]


def _measured(path: str, runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Seconds by kind of each type that was profiled.

    Raises
    ------
    HetsimError
        Not such a file; a type that has no run, a kind that the model has not, or one that is there twice.
    """
    from sim.hardware.gputypes import gpu_type
    from sim.performance.tables.cells import header_of, read_text, rows_of

    text = read_text(path)
    if sorted(names := header_of(text)) != sorted(COLUMNS):
        raise HetsimError("not a file of profiling runs", where=f"{path}, header", got=", ".join(names)[:200],
                          allowed=", ".join(COLUMNS))
    kinds = {run.gpu_type: list(run.modelled_s) for run in runs}
    found: dict[str, dict[str, float]] = {}
    for row in rows_of(text, path):
        name, kind = gpu_type(row.text("gpu_type")).name, row.text("kind")
        if name not in kinds:
            raise HetsimError("a GPU type that was not asked about", where=row.where, got=name,
                              allowed=", ".join(kinds))
        if kind not in kinds[name]:
            raise HetsimError("a kind of operator that the model has not", where=row.where, got=kind,
                              allowed=", ".join(kinds[name]), todo=did_you_mean(kind, kinds[name]))
        if kind in found.setdefault(name, {}):
            raise HetsimError("a kind is there twice", where=row.where, got=f"{name}, {kind}", allowed="each once",
                              todo="Average repeated measurements.")
        found[name][kind] = row.number("seconds", above=True)
    return found


def tables(said: Mapping[str, Any]) -> Iterator[Table]:
    """All that is printed of an answer."""
    yield _plan_table(said)
    yield _runs_table(said)


def _plan_table(said: Mapping[str, Any]) -> Table:
    plan, by = said["plan"], "time" if said["objective"] == "time" else "cost"
    table = new_table("", "plan of the least mean", title=f"Plan for {said['model']}, {said['batch_size']:,} samples "
                      f"an iteration, by least expected {by}")  # fmt: skip
    table.add_row("stages", cell(plan["layout"]))
    table.add_row("operators", ", ".join(f"{first}-{last}" for first, last in (s["operators"] for s in said["stages"])))
    table.add_row("micro-batches", f"{plan['micro_batches']}")
    table.add_row("iteration, by the mean of the belief", time(plan["iteration_s"]))
    table.add_row("cost of an iteration", usd(plan["usd_per_iteration"]))
    table.add_row(f"expected {by} of an iteration", time(said["expected"]) if by == "time" else usd(said["expected"]))
    table.add_row("expected regret", f"{100 * said['expected_regret']:.2f} %")
    table.caption = (f"{said['candidates']} candidates of {', '.join(said['methods'])}; regret: what it is worse than "
                     "the plan that would be best if speeds were known")
    return table


def _runs_table(said: Mapping[str, Any]) -> Table:
    """Each run: cost, worth, what to do, and what it is to measure."""
    table = new_table("run on", "samples", "takes", "costs", "gain of it alone", "", "modelled seconds by kind",
                      title=f"Profiling runs, for {said['iterations']:,} iterations")  # fmt: skip
    for run in said["runs"]:
        worth = "" if run["worth"] is None else f"{run['worth']:,.4g} {'s' if said['objective'] == 'time' else 'USD'}"
        word = "made" if run["made"] else "make it" if run["make"] else "not worth it"
        kinds = ", ".join(f"{kind} {s:.4g}" for kind, s in run["modelled_s"].items() if s > 0)
        table.add_row(run["gpu_type"], f"{run['samples']}", time(run["run_s"]), usd(run["run_usd"]), worth, word,
                      cell(kinds))  # fmt: skip
    left = ", ".join(f"{name} {100 * sd:.1f} %" for name, sd in said["deviation"].items())
    word = f"no run: {said['stopped']}" if said["stopped"] else "make these runs, then ask again with --runs"
    table.caption = f"{word}\ndeviation of operator times: {left}"
    return table
