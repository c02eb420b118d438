"""What a command may not import: each of these costs a tenth of a second or more, at every start."""

from __future__ import annotations

import gc
import json
import os

import pytest

from sim.__main__ import ONE_THREAD, main
from sim.cli import app, asked
from tests.cli.test_processes import JOBS, python

LATE = ("scipy.optimize", "scipy.stats", "scipy.sparse", "scipy.interpolate", "matplotlib", "networkx", "sklearn",
        "pyarrow.dataset", "onnx", "dask", "distributed", "torch", "analysis.figures", "analysis.report")  # fmt: skip
COMPILING = ("numba.np.arraymath", "numba.np.npyimpl", "scipy.linalg")
"""What Numba reads in before it compiles; kernels that were kept need none of it."""
IF_THERE = ("coverage", "scipy", "yaml", "policies.planning.hetero")
"""What Numba looks at where it is there, and a policy that was not asked for."""
ARRAYS = ("numpy", "pandas", "pyarrow", "numba", "simpy", "scipy", "sim.performance", "sim.engine")
REPLAY = ["run", "--trace", "jobs.csv", "--cluster", "v100:2", "--out", "out", "--force"]
PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-03 00:00:10,600,1,600,b
2017-10-03 00:00:10,600,1,600,b
2017-10-03 00:01:00,90,2,180,a
"""
ASK = """
import json, sys
from sim.__main__ import main
sys.argv = ["hetsim", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""


def test_at_the_end_python_looks_through_nothing(tmp_path):
    ends = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 1000, len(gc.get_objects())))"
    done = python("-c", f"{ends}; import sys; sys.argv[1:] = ['--version']; from sim.__main__ import main; main()",
                  cwd=tmp_path)
    frozen, left = done.stdout.splitlines()[-1].split()
    assert (done.returncode, frozen) == (0, "True"), done.stderr
    assert int(left) < 100


@pytest.mark.parametrize(("words", "commands", "groups"), [
    (["run", "--jobs", "3"], ["run"], []), (["policies"], ["list_policies"], []),
    (["trace", "check", "x"], [], ["trace"]),
])  # fmt: skip
def test_of_the_command_line_only_what_is_asked_for_is_made(words, commands, groups):
    part = asked(words)
    assert [one.callback.__name__ for one in part.registered_commands] == commands
    assert [one.name for one in part.registered_groups] == groups


@pytest.mark.parametrize("words", [[], ["--help"], ["--help", "run"], ["rum"], ["--version"], [""]])
def test_words_that_begin_with_no_command_get_all_of_them(words):
    assert asked(words) is app
    assert len(app.registered_commands) > 10


@pytest.mark.parametrize(("command", "late"), [
    (["--help"], (*ARRAYS, *LATE)),
    (["run", "--help"], (*ARRAYS, *LATE)),
    (["--version"], (*ARRAYS, *LATE)),
    (["perf", "resnet50"], ("pandas", "pyarrow", "simpy", "analysis", *COMPILING, *LATE)),
    ([*REPLAY, "--policy", "fifo"], ("pandas", *IF_THERE, *COMPILING, *LATE)),
    ([*REPLAY, "--policy", "srsf"], ("pandas", *COMPILING, *LATE)),
    (["run", "--trace", "philly.csv", "--out", "out", "--force", "--policy", "las", "--work", "recorded", "--set",
      "engine.mtbf_h=0.01"], ("pandas", *COMPILING, *LATE)),
    (["run", "--trace", "philly", "--jobs", "20", "--cluster", "v100:8x8", "--work", "recorded", "--policy", "fifo",
      "--out", "out", "--force"], ("pandas", *COMPILING, *LATE)),
])  # fmt: skip
def test_what_a_command_does_not_need_it_does_not_import(tmp_path, command, late):
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "philly.csv").write_text(PHILLY)
    for _ in range(2 if COMPILING[0] in late else 1):  # the first may compile
        done = python("-c", ASK, json.dumps(command), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    imported = json.loads(done.stdout.splitlines()[-1])
    assert "sim.cli" in imported
    assert [name for name in late if name in imported] == []


@pytest.mark.parametrize("given", [None, "3"])
def test_matrices_are_multiplied_by_one_thread_unless_another_number_is_given(given, monkeypatch):
    """A search of some dozen trials took 2.4 s of work with two threads, 0.3 s with one."""
    monkeypatch.delenv(ONE_THREAD, raising=False)
    if given is not None:
        monkeypatch.setenv(ONE_THREAD, given)
    seen = []
    monkeypatch.setattr("sim.cli.main", lambda: seen.append(os.environ[ONE_THREAD]))
    monkeypatch.setattr("sim.__main__._leave_cleanly", lambda: None)
    thresholds = gc.get_threshold()
    try:
        main()
    finally:
        gc.set_threshold(*thresholds)
    assert seen == [given or "1"]


def test_numpy_is_imported_only_once_the_number_of_threads_is_set(tmp_path):
    """It is read at the import."""
    done = python("-c", "import sys, sim.__main__; print('numpy' in sys.modules)", cwd=tmp_path)
    assert done.stdout == "False\n", done.stderr
