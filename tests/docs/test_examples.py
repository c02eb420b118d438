"""Examples in docstrings run, and give what they show; where a newcomer starts there is one."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from analysis.audit import audit
from analysis.compare import compare
from analysis.explain import told
from analysis.metrics import measures
from analysis.run import load_run
from house.index import PACKAGES
from policies.recommend import recommend
from sim.cluster.clusterfiles import load_cluster
from sim.engine.simulate import simulate
from sim.performance import Performance
from sim.sweeps.replay import Replay
from tests.conftest import ROOT
from traces.load import load_trace, scale_load
from traces.synthetic.generate import generate
from traces.trace import Trace

DOORS = (load_trace, Trace.from_columns, scale_load, generate, load_cluster, Performance.data_parallel,
         Performance.plan, recommend, simulate, Replay, load_run, measures, compare, audit, told)


def with_examples() -> list[str]:
    """Names of the modules that show an example."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    parts = [file.relative_to(ROOT).with_suffix("").parts for file in files if ">>> " in file.read_text("utf-8")]
    return [".".join(names[:-1] if names[-1] == "__init__" else names) for names in parts]


@pytest.mark.parametrize("module", with_examples())
def test_examples_give_what_they_show(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, so that an example may write a file."""
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert tried and not failed


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__qualname__)
def test_where_a_newcomer_starts_there_is_an_example(door: object) -> None:
    assert ">>> " in (door.__doc__ or "")
    assert "+SKIP" not in (door.__doc__ or "")
