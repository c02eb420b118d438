"""How often kernels compile, what is left out of them, what is told meanwhile, and the sorts written for them."""

from __future__ import annotations

import json

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.kernels import jit, sorting
from tests.cli.test_processes import python
from tests.conftest import ROOT

ASK = """
import json
import sys
from importlib import import_module
from pkgutil import iter_modules

import sim.kernels
from sim.settings.config import RunConfig
from sim.sweeps.replay import Replay

for policy in sys.argv[1].split(","):
    for lane in sys.argv[2].split(","):
        Replay(RunConfig(policy=policy, trace="philly", jobs=100, engine={"fast_lane": lane})).play(None)
found = {}
for module in iter_modules(sim.kernels.__path__):
    for name, value in vars(import_module(f"sim.kernels.{module.name}")).items():
        if hasattr(value, "signatures") and hasattr(value, "py_func"):
            found[f"{value.py_func.__module__}.{name}"] = len(value.signatures)
print(json.dumps(found))
"""
compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


def how_often(policies: str, lanes: str, **environment: str) -> dict[str, int]:
    """How many signatures each kernel has after these runs; 0: nobody called it, or what calls it was kept."""
    done = python("-c", ASK, policies, lanes, cwd=ROOT, **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


@compiled
def test_each_kernel_compiles_once_and_none_of_faster_links_where_all_gpus_are_joined_alike(tmp_path):
    times = how_often("fifo", "off", HETSIM_CACHE_DIR=str(tmp_path))
    assert times["sim.kernels.admit.admit"] == times["sim.kernels.placement.place"] == 1
    assert {name: many for name, many in times.items() if many > 1} == {}
    within = {name.rpartition(".")[2]: many for name, many in times.items() if ".within_node." in name}
    assert {name for name, many in within.items() if many} == {"take_from_node", "gather_shares"}


@compiled
def test_python_calls_each_kernel_of_the_loops_with_one_signature():
    times = how_often("fifo,easy,las", "on,off")
    assert times["sim.kernels.lane.run_ordered"] == 1
    assert {name: many for name, many in times.items() if many > 1} == {}


@compiled
def test_a_kernel_takes_whole_numbers_of_another_as_one_type():
    @jit.part
    def twice(x):
        return 2 * x

    @jit.jit
    def caller(small, large, real):
        return twice(3) + twice(small) + twice(large) + twice(real)

    assert caller(np.int32(4), 5, 0.5) == 25.0
    assert sorted(str(kinds) for (kinds,) in twice.signatures) == ["float64", "int64"]


@compiled
def test_long_compiling_is_told_once_and_what_is_compiled_already_is_not(monkeypatch):
    monkeypatch.setattr(jit, "cache_directory", lambda: None)
    monkeypatch.setattr(jit, "LONG_S", 0.0)
    told = []

    def kernel():
        return jit.jit(lambda x: x + 1)

    known = kernel()
    known(1)
    with jit.told_of_compiling(lambda: told.append(1)):
        known(2)
        assert told == []
        kernel()(1)
        kernel()(1)
    assert told == [1]
    monkeypatch.setattr(jit, "LONG_S", float("inf"))
    with jit.told_of_compiling(lambda: told.append(1)):
        kernel()(1)
    assert told == [1]


@numba.njit
def _numbers_sorted(values):
    sorting.sort_numbers(values)
    return values


@numba.njit
def _pairs_sorted(keys, numbers):
    sorting.sort_pairs(keys, numbers)
    return keys, numbers


@given(st.lists(st.integers(-5, 5) | st.integers(-2**31, 2**31 - 1), max_size=60))
def test_numbers_are_sorted(values):
    assert _numbers_sorted(np.array(values, dtype=np.int32)).tolist() == sorted(values)


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 1.5, float("inf"), -2.0]), max_size=60), st.randoms())
def test_pairs_are_sorted_by_key_then_number(keys, random):
    numbers = list(range(len(keys)))
    random.shuffle(numbers)
    found = _pairs_sorted(np.array(keys), np.array(numbers, dtype=np.int32))
    expected = sorted(zip(keys, numbers, strict=True))
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
