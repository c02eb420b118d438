"""The page docs/add-a-policy.md is true: its policy runs, does what it says, and passes the conformance suite."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from policies import mechanisms
from policies.checks import check_policy
from policies.registry import find
from sim import api
from sim.api import Policy
from sim.cli.schedulers import replay as runner
from sim.engine.simulate import simulate
from sim.settings.config import EngineConfig
from sim.workload.progress import Recorded
from tests.helpers import jobs, nodes, segments
from traces.trace import Trace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add-a-policy.md"


@pytest.fixture
def example() -> Iterator[type[Policy]]:
    """The policy of the page, executed as a module of its own."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    module = types.ModuleType("largest_first")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(blocks[0], str(PAGE), "exec"), vars(module))
    yield module.LargestFirst
    del sys.modules[module.__name__]


def schedule(trace: Trace, policy: Policy) -> list[tuple[str, float]]:
    cluster = nodes(("V100", 1, 4))
    result = simulate(trace, cluster, policy, Recorded(trace, cluster), EngineConfig())
    return list(segments(result)[["job_id", "begin_s"]].itertuples(index=False, name=None))


def test_the_example_starts_wide_jobs_first(example: type[Policy]) -> None:
    trace = jobs([(0, 10, 4), (1, 10, 1), (2, 10, 2), (3, 10, 4)])
    assert schedule(trace, example()) == [("0", 0), ("3", 10), ("1", 20), ("2", 20)]


def test_its_setting_works(example: type[Policy]) -> None:
    """After 9 s the narrow job goes first; with it the 2-GPU job fits, the 4-GPU job must wait for both."""
    trace = jobs([(0, 10, 4), (1, 10, 1), (2, 10, 2), (3, 10, 4)])
    patient = example.from_settings({"patience_s": "9"})
    assert schedule(trace, patient) == [("0", 0), ("1", 10), ("2", 10), ("3", 20)]


def test_the_example_passes_the_suite(example: type[Policy]) -> None:
    for settings in ({}, {"patience_s": 30.0}, {"placement": "first-fit"}):
        report = check_policy(example, settings, runner=runner)
        assert report.ok, report.text


def test_a_guests_policy_comes_by_entry_point(example: type[Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    import policies.registry

    point = EntryPoint("largest-first", "largest_first:LargestFirst", policies.registry.ENTRY_POINTS)
    monkeypatch.setattr(policies.registry, "entry_points", lambda group: [point])
    assert find("largest_first") is example
    assert example.name == "largest-first"
    assert check_policy("largest-first", runner=runner).policy == "largest-first"


def test_the_page_names_what_is_there() -> None:
    """Attributes and classes in the page's tables exist."""
    text = PAGE.read_text("utf-8")
    for name in re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE):
        assert hasattr(mechanisms, name) or hasattr(api, name), name
    for name in re.findall(r"^\| `(\w+) = ", text, re.MULTILINE):
        assert hasattr(api.Policy, name), name
