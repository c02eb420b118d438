"""Every policy passes the conformance suite, and the suite notices a policy that breaks a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from policies.checks import Ran, cases, check_policy
from policies.mechanisms import Ordered, Preemptive
from policies.ordering.fifo import Fifo
from policies.registry import names
from sim.api import Decision, Placement, Policy, PolicyError, param
from sim.cli.schedulers import replay as runner

PREEMPTIVE = ("las", "srsf", "srtf", "tiresias")
RULES = ("count", "first-fit", "best-fit")
VARIANTS: list[tuple[str, dict[str, str]]] = [
    *((name, {}) for name in names()),
    *((name, {"placement": rule}) for name in ("fifo", "easy", "srsf") for rule in RULES),
    *((name, {"replace": "all"}) for name in PREEMPTIVE),
    *((name, {"ties": "previous"}) for name in PREEMPTIVE),
    ("las", {"by": "time", "quantum_s": "60"}),
    ("sia", {"max_scale": "4"}),
    ("tiresias", {"queue_limits": "60,120", "promote": "2"}),
    ("tiresias", {"semantics": "as-simulated", "placement": "count"}),
]


def label(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(f"{k}={v}" for k, v in value.items())


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=label)
def test_policy_passes_the_suite(name: str, settings: dict[str, str]) -> None:
    report = check_policy(name, settings, runner=runner)
    assert report.ok, report.text
    assert len(report.checks) == 3 + 4 * len(cases())


# -- the suite notices ---------------------------------------------------------------------------------------


def failed(policy: type[Policy], settings: dict[str, Any] | None = None) -> dict[str, str]:
    """Failed checks of a policy: name -> reason."""
    report = check_policy(policy, settings, runner=runner)
    assert report.ok == (not [c for c in report.checks if c.reason])
    return {c.name: c.reason for c in report.checks if not c.ok}


def test_the_report_reads_well() -> None:
    report = check_policy("fifo", runner=runner)
    assert report.text.splitlines()[0] == f"policy fifo: {len(report.checks)} checks passed"
    assert "  ok      one job: each job ends" in report.text.splitlines()


def test_the_audit_looks_at_one_run_of_a_case_and_is_heard() -> None:
    """Its reruns leave the same tables, so that the audit of one is the audit of all."""
    audited = []

    def finds_fault(case: Any, policy: Policy) -> Ran:
        return Ran(runner(case, policy).tables, lambda: audited.append(case.name) or f"wrong in {case.name}")

    report = check_policy("fifo", runner=finds_fault)
    assert audited == [case.name for case in cases()]
    assert {c.name: c.reason for c in report.checks if not c.ok} == \
        {f"{name}: the audit finds nothing": f"wrong in {name}" for name in audited}


def test_no_such_policy_is_the_callers_error() -> None:
    with pytest.raises(PolicyError, match="did you mean 'fifo'"):
        check_policy("fifoo", runner=runner)


def test_an_unknown_setting_is_noticed() -> None:
    with pytest.raises(PolicyError, match="unknown setting"):
        check_policy("fifo", {"plaecment": "count"}, runner=runner)


def test_a_class_that_is_no_policy_is_refused() -> None:
    for thing in (int, Policy, Preemptive):
        with pytest.raises(PolicyError, match="not a policy that can be used"):
            check_policy(thing, runner=runner)  # type: ignore[arg-type]


def test_a_policy_without_words_or_with_a_bare_field_is_noticed() -> None:
    @dataclass
    class Mute(Fifo):
        depth: int = 3

    found = failed(Mute)
    assert found.keys() == {"says what it does", "each field is a documented setting"}
    assert "'depth' was not made by param" in found["each field is a documented setting"]


def test_work_in_the_constructor_is_noticed() -> None:
    @dataclass
    class Eager(Fifo):
        """Doubles its setting when it is made, and counts."""

        depth: int = param(3, help="looked at")

        def __post_init__(self) -> None:
            self.seen = 0

    assert failed(Eager) == {
        "constructing only stores the settings":
            "it makes attributes that are no settings: seen; make them in prepare()"
    }

    @dataclass
    class Doubling(Fifo):
        """Doubles its setting when it is made."""

        depth: int = param(3, help="looked at")

        def __post_init__(self) -> None:
            self.depth *= 2

    assert failed(Doubling) == {
        "constructing only stores the settings": "setting 'depth' was given as 3 and stored as 6"
    }


def test_state_outside_the_object_is_noticed() -> None:
    @dataclass
    class Moody(Ordered):
        """Turns the order around at each run."""

        runs: ClassVar[list[int]] = []

        def prepare(self, view: Any) -> None:
            super().prepare(view)
            self.runs.append(1)

        def key(self, view: Any, rows: np.ndarray) -> np.ndarray:
            return rows * (-1.0) ** len(self.runs)

    assert "a crowd: decides the same again" in failed(Moody)


def test_state_kept_over_runs_is_noticed() -> None:
    @dataclass
    class Tired(Ordered):
        """Numbers its decisions from the first run on."""

        def key(self, view: Any, rows: np.ndarray) -> np.ndarray:
            self.count = getattr(self, "count", 0) + 1
            return np.full(rows.size, float(self.count % 7))

    found = failed(Tired)
    assert "a crowd: prepare() starts afresh" in found
    assert not any("decides the same again" in name for name in found)


def test_a_lazy_policy_and_a_refuser_are_noticed() -> None:
    @dataclass
    class Lazy(Policy):
        """Never starts anything."""

        def decide(self, view: Any) -> Decision:
            return Decision()

    assert failed(Lazy)["one job: each job ends"] == \
        "job '0' is unfinished: the policy leaves it waiting on an idle cluster"

    @dataclass
    class Refuser(Fifo):
        """Rejects everybody."""

        def decide(self, view: Any) -> Decision:
            return Decision(reject=[(int(row), "no") for row in view.queued])

    assert failed(Refuser)["one job: each job ends"] == "job '0' can run here, but was rejected: no"


def test_a_policy_that_never_lets_anything_be_done_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policies.checks.MAX_DECISIONS", 500)

    @dataclass
    class Restless(Fifo):
        """Takes each running job off its GPUs after half a second; a restart takes a second."""

        def decide(self, view: Any) -> Decision:
            if view.running.size:
                return Decision(stop=view.running.tolist(), wake_s=view.now_s + 0.5)
            decision = super().decide(view)
            decision.wake_s = view.now_s + 0.5
            return decision

    assert "no end after 500 decisions" in failed(Restless)["one job: each job ends"]


def test_an_illegal_decision_is_told_in_the_engines_words() -> None:
    @dataclass
    class Greedy(Policy):
        """Gives each job the first GPU, taken or not."""

        def decide(self, view: Any) -> Decision:
            first = Placement(np.zeros(1, dtype=np.int32))
            return Decision(start=[(int(row), first) for row in view.queued])

    found = failed(Greedy)
    assert "one job: each job ends" not in found
    assert "a gang starts whole" in found["equal jobs: each job ends"]
    assert "not free" in found["shares of a GPU: each job ends"]


def test_a_fault_of_the_guest_is_a_finding_not_a_traceback() -> None:
    @dataclass
    class Broken(Fifo):
        """Divides by zero."""

        def decide(self, view: Any) -> Decision:
            raise ZeroDivisionError("oops")

    assert "the policy failed; got 'ZeroDivisionError: oops" in failed(Broken)["one job: each job ends"]


def test_reading_what_was_not_declared_is_noticed() -> None:
    @dataclass
    class Peeking(Ordered):
        """Reads run times without saying so."""

        def key(self, view: Any, rows: np.ndarray) -> np.ndarray:
            return view.estimate_s[rows]

    assert "without declaring needs_estimates" in failed(Peeking)["one job: each job ends"]
