"""The page docs/add-a-policy.md is true: its policy runs, does what it says, and passes the conformance suite."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policies import mechanisms
from policies.checks import check_policy
from policies.registry import find
from sim import api
from sim.api import Policy
from sim.cli.schedulers import replay as runner
from sim.cluster.spec import ClusterSpec
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled, Recorded
from tests.helpers import jobs, nodes, segments
from traces.trace import Trace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add-a-policy.md"


NAMES = ("LargestFirst", "MaxMinShares", "GrowAndShrink", "PackPairs")


@pytest.fixture
def guide() -> Iterator[dict[str, type[Policy]]]:
    """The policies of the page by name, each executed as a module of its own."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == len(NAMES)
    found = {}
    for name, block in zip(NAMES, blocks, strict=True):
        module = types.ModuleType(f"guide_{name}")
        sys.modules[module.__name__] = module  # dataclasses look their module up
        exec(compile(block, str(PAGE), "exec"), vars(module))
        found[name] = vars(module)[name]
    yield found
    for name in NAMES:
        del sys.modules[f"guide_{name}"]


@pytest.fixture
def example(guide: dict[str, type[Policy]]) -> type[Policy]:
    """The first policy of the page."""
    return guide["LargestFirst"]


@pytest.mark.parametrize("name", NAMES)
def test_each_policy_of_the_page_is_short_and_passes_the_suite(guide: dict[str, type[Policy]], name: str) -> None:
    report = check_policy(guide[name], runner=runner)
    assert report.ok, report.text


def modelled(policy: Policy, cluster: ClusterSpec, trace: Trace, **engine: Any) -> RunResult:
    """Replay iterations of models at exact beliefs."""
    performance = Performance()
    truth = Modelled(trace, cluster, performance, gpu_type("V100"))
    return simulate(trace, cluster, policy, truth, EngineConfig(**{"preemption_overhead_s": 0.0, **engine}),
                    performance=performance)


def test_rounds_make_the_slowest_job_as_fast_as_can_be(guide: dict[str, type[Policy]]) -> None:
    """Two equal jobs, one V100 and one K80: each has either for about half of its time."""
    cluster = nodes(("V100", 1, 1), ("K80", 1, 1))
    trace = jobs([(0, 40_000, 1)] * 2, model=["resnet50"] * 2, batch_size=[32] * 2)
    table = segments(modelled(guide["MaxMinShares"](), cluster, trace, horizon_s=36_000))
    table["held_s"] = table["end_s"] - table["begin_s"]
    table["kind"] = [["V100", "K80"][gpus[0]] for gpus in table["gpu_ids"]]
    held = table.groupby(["job_id", "kind"])["held_s"].sum().unstack()
    assert (held["V100"] - 18_000).abs().max() <= 720 and (held["K80"] - 18_000).abs().max() <= 720


def test_elastic_jobs_grow_when_alone_and_shrink_for_others(guide: dict[str, type[Policy]]) -> None:
    """Alone a job has all 8 GPUs; while a second is there each has 4."""
    cluster = nodes(("V100", 1, 8))
    trace = jobs([(0, 4000, 2), (600, 600, 2)], model=["resnet50"] * 2, batch_size=[256] * 2, min_gpus=[1] * 2,
                 max_gpus=[8] * 2)
    table = segments(modelled(guide["GrowAndShrink"](), cluster, trace))
    mine = table[table["job_id"] == "0"]
    assert [len(gpus) for gpus in mine["gpu_ids"]] == [8, 4, 8]
    assert [len(gpus) for gpus in table[table["job_id"] == "1"]["gpu_ids"]] == [4]


def test_pairs_are_packed_where_their_memory_fits(guide: dict[str, type[Policy]]) -> None:
    """Two small models share one GPU from the start; with a batch that fills half of the card each waits its turn."""
    cluster = nodes(("V100", 1, 1))
    small = jobs([(0, 600, 1)] * 2, model=["resnet18"] * 2, batch_size=[16] * 2)
    assert segments(modelled(guide["PackPairs"](), cluster, small, sharing="spatial"))["begin_s"].tolist()[:2] == [0, 0]
    wide = jobs([(0, 600, 1)] * 2, model=["resnet50"] * 2, batch_size=[160] * 2)
    table = segments(modelled(guide["PackPairs"](), cluster, wide, sharing="spatial"))
    assert table["begin_s"].tolist() == [0, table["end_s"].tolist()[0]]


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

    point = EntryPoint("largest-first", "guide_LargestFirst:LargestFirst", policies.registry.ENTRY_POINTS)
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
