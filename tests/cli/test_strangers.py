"""A folder called `traces` on the path must not break hetsim in odd ways: it is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.__main__ import strangers

ROOT = Path(__file__).resolve().parents[2]


def test_ours_are_ours() -> None:
    assert strangers() == []


@pytest.mark.parametrize("regular", [True, False], ids=["package", "bare folder"])
def test_a_stranger_is_named_with_where_it_is(tmp_path: Path, regular: bool) -> None:
    stranger = tmp_path / "first" / "traces"
    stranger.mkdir(parents=True)
    if regular:
        (stranger / "__init__.py").write_text("")
    path = os.pathsep.join([str(tmp_path / "first"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "sim", "policies"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )
    if regular:
        assert done.returncode == 2
        assert "'traces'" in done.stderr and str(stranger) in done.stderr
        assert "Traceback" not in done.stderr
    else:  # Python itself prefers a real package further down the path to a folder without one
        assert done.returncode == 0, done.stderr
