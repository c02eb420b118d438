"""Which runs are repetitions of one policy: they differ in trace and seed, and in nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from analysis.run import Run, RunError
from analysis.tables import cut_in_words, rule, speed_belief


def repetitions(runs: Sequence[Run], different_traces: bool = False) -> tuple[list[list[Run]], list[str]]:
    """Policies in order of appearance, each with its repetitions in one order; and what to say of that.

    Each run stands for itself (a list of one) where no policy is repeated, where all runs have one trace and seed, or
    with `different_traces`.

    Raises
    ------
    RunError
        Different traces without repetitions that fit, or a repetition twice.
    """
    found: dict[str, dict[tuple[str, str], list[Run]]] = {}
    for run in runs:
        found.setdefault(kind_of(run), {}).setdefault(_repetition(run), []).append(run)
    keys = {key for team in found.values() for key in team}
    if different_traces or len(found) < 2 or len(keys) == 1 or all(len(team) == 1 for team in found.values()):
        return [[run] for run in runs], [*_traces(runs, different_traces), *_differences(runs)]
    twice = [same for team in found.values() for same in team.values() if len(same) > 1]
    if twice:
        raise RunError("a repetition is there twice", where=f"{twice[0][0].path} and {twice[0][1].path}",
                       todo="Name one of them only, or pass --different-traces to take each run for itself.")
    first, *others = found.values()
    shared = [key for key in first if all(key in team for team in others)]
    if not shared:
        _traces(runs, False)
        raise RunError("no trace and seed that all policies have", where=", ".join(str(run.path) for run in runs),
                       todo="Run each policy with the same seeds, or pass --different-traces.")
    teams = [[team[key][0] for key in shared] for team in found.values()]
    notes = _differences([team[0] for team in teams])
    alone = sum(len(team) for team in found.values()) - len(teams) * len(shared)
    if alone:
        runs_are = "run is" if alone == 1 else "runs are"
        notes.append(f"{alone} {runs_are} left out: not every policy has such a trace and seed.")
    for what, values in (
        ("traces", [run.info.get("trace", {}).get("source") for run in teams[0]]),
        ("loads", [run.info.get("config", {}).get("load") for run in teams[0]]),
    ):
        if len(set(values)) > 1:
            told = ", ".join(str(value) for value in dict.fromkeys(values))
            notes.append(f"The repetitions are of several {what} ({told}): the interval is over these, too.")
    return teams, notes


def kind_of(run: Run) -> str:
    """All but trace and seed that makes a run what it is."""
    said = ("policy", "policy_settings", "cluster", "settings", "estimate")
    # What work is worth on average follows from the trace.
    work = {name: value for name, value in (run.info.get("work") or {}).items() if name != "worth_gpus"}
    return json.dumps([*(run.info.get(name) for name in said), work, rule(run), speed_belief(run)], sort_keys=True)


def _repetition(run: Run) -> tuple[str, str]:
    return str(run.info.get("trace", {}).get("hash")), str(run.info.get("seed"))


def repeated(team: Sequence[Run]) -> str:
    """What tells the repetitions of a policy apart: 'seeds' or 'traces', if all have another, else 'repetitions'."""
    keys = np.array([_repetition(run) for run in team])
    distinct = {name: len(set(keys[:, k])) == len(team) for name, k in (("seeds", 1), ("traces", 0))}
    return next((name for name, all_differ in distinct.items() if all_differ), "repetitions")


def _traces(runs: Sequence[Run], different_traces: bool) -> list[str]:
    hashes = [run.info.get("trace", {}).get("hash") for run in runs]
    if len(set(hashes)) == 1:
        return []
    other = next(i for i, h in enumerate(hashes) if h != hashes[0])
    if not different_traces:
        raise RunError(
            "the runs replayed different traces",
            where=f"{runs[0].path} and {runs[other].path}",
            got=f"trace hashes {str(hashes[0])[:12]} and {str(hashes[other])[:12]}",
            allowed="one trace, or the same ones under each policy",
            todo=(_stretched(runs) or "Run both on one trace, or pass --different-traces to pair jobs by id only."),
        )
    return ["The runs replayed different traces: jobs are paired by id only."]


def _stretched(runs: Sequence[Run]) -> str:
    """What to do where one trace became several because it was brought to a load of each cluster; else nothing."""
    asked = [run.info.get("config") or {} for run in runs]
    clusters = {str(config.get("cluster")) for config in asked}
    if len(clusters) < 2 or any(config.get("load") is None for config in asked):
        return ""
    trace, load = asked[0].get("trace"), asked[0]["load"]
    return (
        f"Submissions were stretched to bring each cluster to its load ({load}). Convert once (hetsim trace convert "
        f"{trace} jobs.parquet --cluster {asked[0].get('cluster')} --load {load}), then run that file on each "
        "cluster without --load; or pass --different-traces to pair jobs by id though they come at other times."
    )


def _differences(runs: Sequence[Run]) -> list[str]:
    """What else than the policy the runs differ in."""
    found = (
        ("clusters", [run.info.get("cluster") for run in runs]),
        ("rules", [rule(run) for run in runs]),
        ("engine settings", [run.info.get("settings") for run in runs]),
        ("measuring windows", [_window_s(run) for run in runs]),
    )
    return [
        f"The runs differ in more than the policy: {what} differ."
        for what, values in found if any(value != values[0] for value in values[1:])
    ]


def _window_s(run: Run) -> tuple[float, float] | None:
    window = run.info.get("window")
    if window is None:
        return None
    return window["begin_s"], float("inf") if window["to_the_end"] else window["end_s"]


def measured_when(team: Sequence[Run]) -> list[str]:
    """The measuring window, and what the log cuts off, in words; nothing where all jobs of whole runs are compared."""
    cut = [text for text in dict.fromkeys(map(cut_in_words, team)) if text]
    if len(cut) > 1:
        cut = ["The logs cut off some jobs of each run, which hold GPUs and do not count."]
    return _window_in_words(team) + cut


def _window_in_words(team: Sequence[Run]) -> list[str]:
    windows = {window for window in map(_window_s, team) if window is not None}
    if not windows:
        return []
    if len(windows) > 1:
        return [f"Only jobs submitted in the measuring window of their run count{_followed(team)}."]
    ((begin_s, end_s),) = windows
    until = "the end" if end_s == float("inf") else f"{end_s:,.10g} s"
    return [f"Only jobs submitted from {begin_s:,.10g} s to {until} on the trace's clock count{_followed(team)}."]


def _followed(team: Sequence[Run]) -> str:
    return ", and are followed to their end" if all(run.followed for run in team) else ""
