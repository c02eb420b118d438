"""Run a hetsim command, and write how much of its CPU time went where: `python timed.py FILE [--split] WORDS...`.

It wraps what plays, writes and prepares in clocks of its own, so that it measures any revision that has them; the
revision is that of the present folder. Seconds are CPU seconds of this process (`time.process_time`), those of what a
phase calls included. `--split` also counts policies and kernels within the loop, which costs a microsecond a call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

sys.path.insert(0, os.getcwd())

SPENT: dict[str, float] = {}


def clocked(owner: Any, name: str, phase: str) -> None:
    """Count the CPU time of a function, or of a method, to a phase."""
    inner: Callable[..., Any] = getattr(owner, name)

    def outer(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        try:
            return inner(*args, **kwargs)
        finally:
            SPENT[phase] = SPENT.get(phase, 0.0) + time.process_time() - began

    setattr(owner, name, outer)


def before(owner: Any, name: str, call: Callable[[], None]) -> None:
    """Call something before a method, as late as when the method is called."""
    inner: Callable[..., Any] = getattr(owner, name)

    def outer(*args: Any, **kwargs: Any) -> Any:
        call()
        return inner(*args, **kwargs)

    setattr(owner, name, outer)


class Kernel:
    """A compiled function with a clock; a kernel called by another is the other's time, since it is compiled in."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __call__(self, *args: Any) -> Any:
        began = time.process_time()
        try:
            return self._inner(*args)
        finally:
            took_s = time.process_time() - began
            SPENT["kernels"] = SPENT.get("kernels", 0.0) + took_s
            if DECIDING:
                SPENT["kernels of the policy"] = SPENT.get("kernels of the policy", 0.0) + took_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Kernels:
    """A module of kernels, seen through clocks."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return Kernel(found) if hasattr(found, "py_func") else found


DECIDING: list[bool] = []


def split() -> None:
    """Put clocks round kernels, where Python calls them, and round what the engine asks a policy."""
    for name, module in list(sys.modules.items()):
        if name.startswith("sim.kernels") or name.partition(".")[0] not in ("sim", "policies"):
            continue  # kernels that call kernels are compiled as they stand
        for key, value in list(vars(module).items()):
            if hasattr(value, "py_func") and not isinstance(value, Kernel):
                setattr(module, key, Kernel(value))
            elif isinstance(value, ModuleType) and value.__name__.startswith("sim.kernels."):
                setattr(module, key, Kernels(value))
            elif key in ("decision_of", "keys_of") and name == "sim.engine.engine":
                setattr(module, key, _asked(value))


def _asked(inner: Callable[..., Any]) -> Callable[..., Any]:
    """A question to the policy, with a clock."""

    def outer(*args: Any, **kwargs: Any) -> Any:
        DECIDING.append(True)
        began = time.process_time()
        try:
            return inner(*args, **kwargs)
        finally:
            DECIDING.pop()
            SPENT["policy"] = SPENT.get("policy", 0.0) + time.process_time() - began

    return outer


def main(out: str, words: list[str]) -> None:
    """Run the command with clocks, then write the seconds of each phase as JSON, however it ends."""
    started_s = time.process_time()
    wants_split = words[:1] == ["--split"]
    words = words[wants_split:]
    try:
        if words[:1] == ["run"]:
            from sim.engine import engine, simulate
            from sim.sweeps import replay
            from sim.workload import prepare

            clocked(prepare, "whole_trace", "trace")
            clocked(replay, "prepare", "workload, trace included")
            clocked(replay.Replay, "play", "play")
            clocked(engine.Engine, "run", "loop")
            if wants_split:
                before(engine.Engine, "run", split)
            clocked(simulate.RunResult, "write", "write")
            SPENT["imports"] = time.process_time()
        sys.argv = ["hetsim", *words]
        from sim.__main__ import main as run

        run()
    finally:
        SPENT.setdefault("imports", started_s)
        with open(out, "w", encoding="utf-8") as file:
            json.dump(SPENT, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
