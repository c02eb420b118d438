"""The conformance suite that every policy must pass, ours or a guest's: `hetsim check NAME`.

A policy may not know the engine, and neither does this file: the caller gives a `Runner`, which replays a
small `Case` under a policy and hands back the run's tables. The suite looks at the policy's own form first
(settings documented, parameters only stored), then lets it schedule each case three times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from inspect import isabstract, isclass
from typing import Any, Protocol

import numpy as np

from policies.registry import find
from sim.api import Decision, HetsimError, Policy, PolicyError, View

MAX_DECISIONS = 20_000
"""Decisions that a policy may need for one case; the cases have at most 40 jobs."""

ENDED = ("done", "killed", "failed")

BRISK: Mapping[str, Any] = {"preemption_overhead_s": 1.0}
"""Engine settings of a case: restarts so short that turns of some seconds get work done."""


@dataclass(frozen=True)
class Case:
    """One small trace on one small cluster.

    Attributes
    ----------
    nodes : (GPU type, nodes, GPUs a node) groups.
    columns : columns of the trace (`traces.columns`); each job has a model, so that any policy can plan it.
    engine : settings of the engine that differ from their defaults, such as quotas.
    impossible : job ids that no policy can run here; they must be rejected with a reason.
    """

    name: str
    nodes: tuple[tuple[str, int, int], ...]
    columns: Mapping[str, list[Any]]
    engine: Mapping[str, Any] = field(default_factory=lambda: BRISK)
    impossible: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Ran:
    """What a runner hands back.

    Attributes
    ----------
    tables : rows of each result table as dictionaries (`pyarrow.Table.to_pylist`).
    audit : says the audit's first violation; empty for a clean run. It is asked once a case: of the reruns the tables
        must be the same, and the audit of the same is the same.
    """

    tables: Mapping[str, list[dict[str, Any]]]
    audit: Callable[[], str]


class Runner(Protocol):
    """Replays a case: builds trace and cluster, simulates, audits.

    Run times and speeds are believed as they are (oracle, exact); work is iterations where the policy
    `needs_performance` or `needs_throughput`, else recorded durations. Errors are let through.
    """

    def __call__(self, case: Case, policy: Policy) -> Ran: ...


@dataclass(frozen=True)
class Check:
    """One named check; `reason` says why it failed, and is empty where it did not."""

    name: str
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class CheckReport:
    """All checks of one policy, in the order in which they were made."""

    policy: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def text(self) -> str:
        """The report for printing, one line a check."""
        failed = sum(not check.ok for check in self.checks)
        total = f"{len(self.checks)} checks"
        head = f"{failed} of {total} failed" if failed else f"{total} passed"
        lines = [f"policy {self.policy}: {head}"]
        for check in self.checks:
            lines.append(f"  ok      {check.name}" if check.ok else f"  FAILED  {check.name}: {check.reason}")
        return "\n".join(lines)


def check_policy(policy: str | type[Policy], settings: dict[str, Any] | None = None, *, runner: Runner) -> CheckReport:
    """Run the conformance suite.

    Parameters
    ----------
    policy : name of a policy, or the class itself.
    settings : settings to check it with (default: its defaults).
    runner : replays a case; `hetsim check` and the tests bring one.

    Returns
    -------
    CheckReport
        A policy that breaks a rule is a finding, not an error.

    Raises
    ------
    PolicyError
        No policy of that name, an object that is no policy class, or settings that it does not take.
    """
    cls = find(policy) if isinstance(policy, str) else policy
    if not (isclass(cls) and issubclass(cls, Policy)) or isabstract(cls):
        raise PolicyError("not a policy that can be used", got=cls,
                          allowed="a concrete subclass of sim.api.Policy")
    name = cls.name or cls.__name__
    form = (
        ("says what it does", _documented),
        ("each field is a documented setting", _settings_documented),
        ("constructing only stores the settings", _only_stores),
    )
    checks = [Check(title, _reason(rule, cls, settings or {})) for title, rule in form]
    make = lambda: cls.from_settings(dict(settings or {}))  # noqa: E731 - a fresh policy for each run
    make()  # settings that it does not take are the caller's error
    for case in cases():
        checks += _on_case(case, make, runner)
    return CheckReport(name, tuple(checks))


def _reason(rule: Callable[..., str], *given: Any) -> str:
    """What a rule finds; whatever a guest's code raises is a finding as well."""
    try:
        return rule(*given)
    except HetsimError as error:
        return str(error)
    except Exception as error:  # the suite must outlive any fault of the policy that it checks
        return f"{type(error).__name__}: {error}"


# -- form ------------------------------------------------------------


def _documented(cls: type[Policy], settings: dict[str, Any]) -> str:
    """The class has a docstring of its own (a dataclass without one gets its signature)."""
    own = cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")
    return "" if own else "the class has no docstring"


def _settings_documented(cls: type[Policy], settings: dict[str, Any]) -> str:
    """Each field was made by `param`, with a default that text can be read as, and says what it means."""
    if not is_dataclass(cls):
        return "the class is no dataclass"
    for f in fields(cls):
        if not f.metadata.get("help"):
            return f"field {f.name!r} was not made by param(default, help=…)"
        if not isinstance(f.default, bool | int | float | str):
            return f"the default of {f.name!r} is no number, text or truth value"
        choices = f.metadata["choices"]
        if choices and f.default not in choices:
            return f"the default of {f.name!r}, {f.default!r}, is not among its choices"
        if not choices and not isinstance(f.default, bool) and type(f.default)(str(f.default)) != f.default:
            return f"the default of {f.name!r} cannot be read back from text"
    return ""


def _only_stores(cls: type[Policy], settings: dict[str, Any]) -> str:
    """A new policy holds its settings as given and nothing else; the work is done in `prepare`."""
    first, second = cls.from_settings(settings), cls.from_settings(settings)
    if first != second:
        return "two policies with the same settings differ"
    # What a policy declares may hang on its settings (an objective that reads run times, say).
    extra = set(vars(first)) - {f.name for f in fields(cls)} - set(Policy.__annotations__)
    if extra:
        return f"it makes attributes that are no settings: {', '.join(sorted(extra))}; make them in prepare()"
    for name, f in cls.settings().items():
        got, want, kind = getattr(first, name), settings.get(name, f.default), type(f.default)
        if not isinstance(want, kind) and kind is not bool:
            want = kind(want)
        if kind is bool and isinstance(want, str):
            want = want.lower() in ("true", "yes", "1")
        if got != want:
            return f"setting {name!r} was given as {want!r} and stored as {got!r}"
    return ""


# -- conduct ------------------------------------------------------------


def _on_case(case: Case, make: Callable[[], Policy], runner: Runner) -> Iterator[Check]:
    """Run a case and look at what came out."""
    ran: list[Ran] = []
    policy = counted(make())

    def ends() -> str:
        ran.append(runner(case, policy))
        return _each_job_ends(case, ran[0], policy.refuses_jobs)

    def same(other: Policy) -> str:
        # As text, because NaN (an unknown iteration time, say) is not equal to itself.
        equal = repr(runner(case, other).tables) == repr(ran[0].tables)
        return "" if equal else "the tables of the second run differ"

    yield Check(f"{case.name}: each job ends", _reason(ends))
    if ran:
        yield Check(f"{case.name}: the audit finds nothing", ran[0].audit())
        yield Check(f"{case.name}: decides the same again", _reason(same, counted(make())))
        yield Check(f"{case.name}: prepare() starts afresh", _reason(same, policy))


def _each_job_ends(case: Case, ran: Ran, may_refuse: bool) -> str:
    """Each job reached its recorded end, or was rejected with a reason; what is impossible was rejected.

    Who declares that it refuses jobs may turn away any, with a reason.
    """
    for job in ran.tables["jobs"]:
        if may_refuse and job["state"] in ("refused", "unfinished") and job["reason"].strip():
            continue
        rejected = job["state"] == "rejected" and job["reason"].strip()
        if not rejected and job["state"] not in ENDED:
            return f"job {job['job_id']!r} is {job['state']}: {job['reason'] or 'no reason given'}"
        if job["job_id"] in case.impossible and not rejected:
            return f"job {job['job_id']!r} cannot run here, but is {job['state']}"
        if rejected and job["job_id"] not in case.impossible:
            return f"job {job['job_id']!r} can run here, but was rejected: {job['reason']}"
    return ""


def counted(policy: Policy) -> Policy:
    """The same policy, which raises a PolicyError once it has decided more often than any case can need."""
    decide, calls = type(policy).decide, 0

    def decide_and_count(view: View) -> Decision:
        nonlocal calls
        calls += 1
        if calls > MAX_DECISIONS:
            raise PolicyError(f"no end after {MAX_DECISIONS} decisions",
                              where=f"policy {policy.name!r} at {view.now_s:g} s",
                              todo="It preempts or wakes without anything being done.")
        return decide(policy, view)

    policy.decide = decide_and_count  # type: ignore[method-assign]
    return policy


# -- cases ------------------------------------------------------------


def cases() -> tuple[Case, ...]:
    """The small traces that every policy schedules."""
    one, two = (("V100", 1, 4),), (("V100", 2, 4),)
    mixed = (("V100", 1, 4), ("T4", 2, 2))
    rng = np.random.default_rng([0, 11])
    crowd = zip(rng.integers(0, 2000, 40), rng.integers(1, 600, 40), rng.choice([1, 1, 2, 4, 8], 40),
                strict=True)
    quota = {**BRISK, "quotas": {"a": 2}}
    promise = {**BRISK, "guarantees": {"a": 4, "b": 4}}
    failing = {**BRISK, "mtbf_h": 0.2, "repair_h": 0.05, "checkpoint_interval_s": 60.0}
    wide = Case("wider than the cluster", one, _columns((0, 50, 1), (1, 20, 400), gpu_milli=[1000, 900]),
                impossible=frozenset({"1"}))
    return (
        Case("one job", one, _columns((0, 100, 1))),
        Case("simultaneous arrivals", one, _columns(*((5, 10 * g, g) for g in (1, 2, 4, 1, 2, 4)))),
        Case("equal jobs", one, _columns(*[(0, 60, 4)] * 5)),
        Case("wider than a node", two, _columns((0, 50, 8), (0, 20, 4), (1, 30, 5))),
        wide,
        Case("shares of a GPU", (("V100", 1, 2),),
             _columns(*[(0, 50, 1)] * 8, gpu_milli=[200, 200, 200, 200, 200, 900, 100, 1000])),
        Case("gangs of shares", one, _columns((0, 50, 4), (0, 60, 4), (0, 70, 3), gpu_milli=[500, 500, 600])),
        Case("workers of several GPUs", two,
             _columns((0, 50, 4), (0, 60, 6), (0, 70, 8), worker_gpus=[4, 2, 2])),
        Case("zero-length jobs", one, _columns((0, 0, 4), (0, 10, 4), (3, 0, 1))),
        Case("a long idle gap", one, _columns((0, 10, 4), (1e6, 10, 4))),
        Case("quotas of virtual clusters", two,
             _columns((0, 50, 2), (0, 50, 2), (0, 50, 2), (1, 10, 4), vc=["a", "a", "b", "b"]), quota),
        Case("a quota that several jobs share, who come at different times", mixed,
             _columns((0, 5000, 2), (0, 5000, 2), (100, 5000, 1), vc=["p"] * 3), {**BRISK, "quotas": {"p": 3}}),
        Case("guarantees of virtual clusters", two, _columns((0, 50, 4), (0, 50, 4), (1, 10, 4),
                                                             vc=["a", "a", "b"]), promise),
        Case("GPU types asked for", mixed,
             _columns(*[(0, 50, 2)] * 3, (0, 50, 1), gpu_type=["T4", "T4", "V100", "v100|t4"])),
        Case("failed attempts", one,
             _columns((0, 90, 4), (0, 30, 4), attempts=[3, 1], status=["failed", "killed"])),
        Case("nodes that fail", two, _columns((0, 900, 4), (0, 600, 4), (0, 300, 2)), failing),
        Case("a crowd", two, _columns(*crowd)),
        Case("deadlines", one,
             _columns((0, 50, 4), (0, 50, 2), (0, 50, 2), (5, 50, 1), deadline_s=[60.0, 70.0, 10.0, float("nan")],
                      deadline_kind=["strict", "soft", "strict", ""], priority=[1.0, 2.0, 1.0, 1.0])),
        Case("sizes and batches of their own", two,
             _columns((0, 90, 2), (0, 60, 4), (9, 30, 1), min_gpus=[1, 2, 0], max_gpus=[4, 8, 0],
                      min_batch_size=[32, 0, 0], max_batch_size=[128, 0, 0])),
        Case("whole GPUs that may be shared", one, _columns(*[(0, 40 + 10 * i, 1) for i in range(7)]),
             {**BRISK, "sharing": "time"}),
        Case("slices of GPUs", (("V100", 1, 2),), _columns(*[(0, 50, 1)] * 5, gpu_milli=[500] * 5),
             {**BRISK, "sharing": "slice"}),
        Case("restarts that cost", two, _columns(*[(0, 60, 4)] * 3, (7, 20, 8)),
             {**BRISK, "cold_start_s": 2.0, "move_overhead_s": 0.5, "restart_gib_per_s": 10.0}),
    )


def _columns(*rows: tuple[float, float, int], **more: list[Any]) -> dict[str, list[Any]]:
    """Columns from (submit_s, duration_s, num_gpus), with all that a policy may need of its jobs beside."""
    n = len(rows)
    submit, duration, gpus = ([float(value) for value in column] for column in zip(*rows, strict=True))
    return {
        "job_id": [str(i) for i in range(n)], "user": [f"u{i % 2}" for i in range(n)], "vc": ["a"] * n,
        "model": ["resnet50"] * n, "batch_size": [32 * g for g in gpus], "estimate_s": duration,
        "wait_s": [float(i % 3) for i in range(n)],
        "submit_s": submit, "duration_s": duration, "num_gpus": gpus, **more,
    }
