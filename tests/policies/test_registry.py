"""Policies by name: a broken file is that file's trouble, not the others'."""

from __future__ import annotations

from pathlib import Path

import pytest

import policies
from policies import registry
from sim.api import PolicyError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A second folder of policies, read afresh."""
    monkeypatch.setattr(policies, "__path__", [*policies.__path__, str(tmp_path)])
    for cached in (registry.names, registry._read_folder):
        cached.cache_clear()
    yield tmp_path
    for cached in (registry.names, registry._read_folder):
        cached.cache_clear()


BROKEN = [("def f(:\n", "line 1"), ("\nimport nothing_of_the_kind\n", "ModuleNotFoundError"), ("1 / 0\n", "line 1")]


@pytest.mark.parametrize(("text", "part"), BROKEN)
def test_a_broken_file_is_named_and_the_others_run(folder: Path, text: str, part: str) -> None:
    (folder / "unwell.py").write_text(text)
    assert registry.find("fifo").name == "fifo"
    assert "unwell" not in registry.names()
    with pytest.raises(PolicyError, match=part) as caught:
        registry.find("unwell")
    assert "policies/unwell.py" in str(caught.value)


def test_an_unknown_name_is_told_the_nearest(folder: Path) -> None:
    with pytest.raises(PolicyError, match="did you mean 'fifo'"):
        registry.find("fifoo")


A_POLICY = """
from dataclasses import dataclass
from sim.api import Decision, Policy


@dataclass
class Mine(Policy):
    \"\"\"Waits.\"\"\"

    def decide(self, view):
        return Decision()
"""


def test_a_policy_in_a_new_family_is_listed_nowhere_and_found(folder: Path) -> None:
    (folder / "newfamily").mkdir()
    (folder / "newfamily/__init__.py").write_text("")
    (folder / "newfamily/mine_alone.py").write_text(A_POLICY)
    assert registry.find("mine-alone").name == "mine-alone" and "mine-alone" in registry.names()


def test_two_files_of_one_name_are_told(folder: Path) -> None:
    (folder / "fifo.py").write_text(A_POLICY)
    with pytest.raises(PolicyError, match="has that name already"):
        registry.find("fifo")
    assert registry.find("las").name == "las"


@pytest.mark.parametrize("text", ["", "from policies.mechanisms import Placing\n\nclass Half(Placing):\n    x = 1\n"])
def test_a_file_without_a_policy_is_named(folder: Path, text: str) -> None:
    (folder / "half_done.py").write_text(text)
    with pytest.raises(PolicyError, match=r"policies/half_done\.py: the file defines no policy; .*with a decide\(\)"):
        registry.find("half-done")
