"""What makes two cells the same: settings, what files hold, and the code that a cell's tables depend on."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sim.cluster.spec import ClusterSpec
from sim.sweeps.replay import Replay
from sim.workload.prepare import FILES, file_of
from traces.load import file_hash

ROOT = Path(__file__).resolve().parents[2]

#: Where a cell's tables are made; what these import counts, too. Policies and readers of traces are found by folder.
_ROOTS = ("sim/sweeps/replay.py", "sim/sweeps/cell.py", "analysis/metrics/__init__.py")
_WHOLE = ("policies", "traces")


#: An import at the beginning of a line: package and names, or names alone. (A parser takes ten times as long, in each
#: worker; what looks like an import within a text adds a file at most.)
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n]+)", re.MULTILINE)
_NAME = re.compile(r"[\w.]+")


@dataclass(frozen=True)
class Sources:
    """What a cell reads from outside, by hash.

    Attributes
    ----------
    trace : SHA-256 of the trace's files; empty: it is generated.
    cluster : of all that the cluster says.
    files : of each other file that a setting names.
    code : version of the code that makes tables (`code_version`), with that of a policy from another package.
    """

    trace: str
    cluster: str
    files: tuple[tuple[str, str], ...]
    code: str


def sources(replay: Replay, trace: str) -> Sources:
    """What a run depends on beside its settings. Each is looked at anew: files change.

    Raises
    ------
    OSError
        A file that is there cannot be read.
    """
    named = ((name, file_of(replay.config, name)) for name in FILES)
    hashes = ((name, file_hash(Path(file))) for name, file in named if file and Path(file).exists())
    return Sources(trace, _cluster(replay.cluster), tuple(hashes), code_version() + _foreign(type(replay.policy)))


def identity(replay: Replay, found: Sources, window: Mapping[str, Any]) -> str:
    """16 hex digits: the first of the SHA-256 of settings, sources and measuring window."""
    content = {"settings": replay.settings | {"policy": replay.policy.name}, "sources": asdict(found),
               "window": dict(window)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=8)  # a preset is one object; what a file or a shorthand makes is made anew
def _cluster(cluster: ClusterSpec) -> str:
    digest = hashlib.sha256()
    for field in fields(cluster):
        value = getattr(cluster, field.name)
        digest.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return digest.hexdigest()[:16]


@cache
def _foreign(policy: type) -> str:
    """The hash of a policy's file, where the policy is no one of ours; read once, as all code."""
    file = Path(inspect.getfile(policy)).resolve()
    return "" if ROOT in file.parents else "+" + file_hash(file)[:16]


@cache
def code_version() -> str:
    """16 hex digits of the sources that a cell's tables depend on: an edit of a figure or of the command line is none.

    Read once a process, so that it is the code that runs here, not what was written to disk since.
    """
    return hash_of(code_files())


def hash_of(files: Iterable[Path]) -> str:
    """16 hex digits of the names and contents of files of ours."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def code_files() -> set[Path]:
    """The files of `code_version`: policies, traces, what makes a cell's tables, and all that these import of ours."""
    whole = {file for folder in _WHOLE for kind in ("*.py", "*.toml") for file in (ROOT / folder).rglob(kind)}
    return whole | set((ROOT / "sim").rglob("*.toml")) | imported({ROOT / file for file in _ROOTS} | whole)


def imported(files: Iterable[Path]) -> set[Path]:
    """Those of the files that are Python, and all files of ours that they import, directly or not."""
    waiting = [file for file in files if file.suffix == ".py"]
    seen: set[Path] = set()
    known: set[str] = set()  # modules of which the files are among them
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for package, names in _IMPORT.findall(file.read_text("utf-8", errors="replace")):
            found = _NAME.findall(names)
            for module in [package, *(f"{package}.{name}" for name in found)] if package else found:
                if module not in known:
                    known.add(module)
                    waiting += _files_of(module)
    return seen


def _files_of(module: str) -> list[Path]:
    """The files that importing a module of ours reads: its own and those of the packages that it is in."""
    steps = module.split(".")
    if steps[0] not in ("sim", "policies", "traces", "analysis"):
        return []
    places = [ROOT.joinpath(*steps[:depth]) for depth in range(1, len(steps) + 1)]
    found = [place / "__init__.py" for place in places] + [places[-1].with_suffix(".py")]
    return [file for file in found if file.is_file()]
