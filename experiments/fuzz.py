"""Damaged files that are no traces: each is accepted or refused with a message and exit code 2; never anything else.

    python -m experiments.fuzz --mutants 100000 [--seed 0] [--kind cluster] [--only 1234]

Clusters, prices, settings, sweeps, calibrations, maps, measured tables, operator graphs (ONNX, too), each file of a run
and of a sweep (`fuzz_inputs.py`), damaged as bytes, cells, trees or tables. Mutant `n` of a seed is the same on every
machine. They are read in forked processes with 4 GiB of address space more than they begin with. Prints by kind:
mutants, refused, accepted, tracebacks, deaths of a process, hangs (20 s of work, or ten minutes of waiting), above
1 GiB; then each failure once, with the number that makes it again. `--log FILE`: how far it is, and each failure as it
comes, so that nothing is lost when it is stopped.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.fuzz_damage import DAMAGES, NASTY, NASTY_JSON, pick
from experiments.fuzz_inputs import Kind, kinds
from experiments.fuzz_traces import _no_longer_than
from traces.errors import HetsimError
from traces.reading.limits import deeper_than

HANGS_S = 20.0
"""Of work: on a busy machine, a second of it may take many."""
WAITS_S = 600
MOST_MIB = 1024
OWN_MIB = 300
"""What a command has before it reads: a file takes more than 1 GiB where it takes the rest of that. The process that
forks may be much larger, such as one that ran thousands of tests before."""
MORE_ADDRESSES = 4 << 30
BLOCK = 200
FATES = ("refused", "accepted", "traceback", "died", "hung", "above 1 GiB")
NUMBERS = (0, -1, 1, 2**31, 2**63 - 1, -(2**63), 1e308, -1e308, 1e-320, float("nan"), float("inf"), 0.5, 1e18, 10**30)


def mutant(seed: int, number: int, kind: Kind) -> bytes:
    """Damage a kind's file: the same for the same numbers."""
    rng = np.random.default_rng([seed, number])
    data = kind.content
    for _ in range(int(pick(rng, (1, 1, 1, 2, 3)))):
        if kind.form in _DAMAGES and rng.random() < 0.7:
            data = _DAMAGES[kind.form](data, rng)
        elif kind.form in ("parquet", "bytes"):
            data = pick(rng, DAMAGES[:5])(data, rng)
        else:
            data = pick(rng, DAMAGES)(data, rng)
    return data


def _json_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return bytes(pick(rng, DAMAGES[:5])(data, rng))
    return json.dumps(_tree_damaged(tree, rng)).encode("utf-8", "surrogatepass")


def _toml_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    try:
        tree = tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return bytes(pick(rng, DAMAGES[:5])(data, rng))
    changed = _tree_damaged(tree, rng)
    if deeper_than(changed, 300):  # from two damages: it is not written
        return bytes(pick(rng, DAMAGES[:5])(data, rng))
    lines = [f"{json.dumps(key)} = {_toml(value)}" for key, value in changed.items()] \
        if isinstance(changed, dict) else [f"value = {_toml(changed)}"]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return '""' if value is None else json.dumps(value, default=str)


def _tree_damaged(tree: Any, rng: np.random.Generator) -> Any:
    """One place somewhere in it replaced, lost, doubled, renamed, nested or put elsewhere."""
    places = list(_places(tree))
    if not places:
        return pick(rng, NASTY_JSON)
    parent, key = pick(rng, places)
    other_parent, other_key = pick(rng, places)
    what = int(rng.integers(9))
    if what <= 2:
        parent[key] = pick(rng, (*NASTY_JSON, *NASTY, *NUMBERS))
    elif what == 3:
        del parent[key]
    elif what == 4:
        parent[key] = json.loads(json.dumps(other_parent[other_key], default=str))
    elif what == 5:
        for _ in range(int(pick(rng, (1, 3, 60, 300)))):
            parent[key] = [parent[key]] if rng.random() < 0.5 else {"x": parent[key]}
    elif what == 6:
        parent[key] = [parent[key]] * int(pick(rng, (2, 50, 2000)))
    elif what == 7 and isinstance(parent, dict):
        parent[str(pick(rng, (key + "x", key.upper(), "", "x y", "\u00e9", key[:-1], *NASTY)))] = parent.pop(key)
    else:
        value = parent[key]
        parent[key] = value * pick(rng, (-1, 0, 1e-9, 1e9, 1.5)) if isinstance(value, int | float) else str(value)
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    steps = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    for key, value in steps:
        yield tree, key
        yield from _places(value)


def _table_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """A cell, column or row of a Parquet file changed, and the file written again as a whole one."""
    try:
        table = pq.ParquetFile(io.BytesIO(data)).read()
        names, rows = table.column_names, table.num_rows
        i = int(rng.integers(len(names)))
        column, what = table.column(i), int(rng.integers(10))
        if what <= 3 and rows:
            cells = column.to_pylist()
            for row in [int(rng.integers(rows))] if what < 3 else range(rows):
                cells[row] = pick(rng, (*NUMBERS, *NASTY, None, None, True, [], [0], [2**31 - 1], cells[0]))
            array = _array(cells, column.type)
            table = table.set_column(i, names[i], array)
        elif what == 4:
            table = table.drop_columns([names[i]])
        elif what == 5:
            kind = pick(rng, (pa.string(), pa.float64(), pa.int8(), pa.float32(), pa.large_string(), pa.bool_()))
            table = table.set_column(i, names[i], column.cast(kind, safe=False))
        elif what == 6:
            table = table.take(pa.array(rng.integers(0, max(rows, 1), int(rng.integers(2 * rows + 1)))))
        elif what == 7:
            table = table.set_column(i, names[i], table.column(int(rng.integers(len(names)))))
        elif what == 8:
            table = table.append_column(str(pick(rng, (names[i], "more", "", "cell", "run"))), column)
        else:
            table = table.replace_schema_metadata({b"x": b"y"}).set_column(
                i, names[i], pa.nulls(rows, pick(rng, (column.type, pa.null()))))
        out = io.BytesIO()
        packing = pick(rng, ("zstd", "none", "snappy"))
        pq.write_table(table, out, compression=packing, store_schema=bool(rng.integers(2)))
        return out.getvalue()
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError):
        return bytes(pick(rng, DAMAGES[:5])(data, rng))


def _array(cells: list[Any], kind: pa.DataType) -> pa.Array:
    """Cells as the column's type where they go into it, else as whatever they all are, else as text."""
    for build in (lambda: pa.array(cells, kind), lambda: pa.array(cells),
                  lambda: pa.array([None if cell is None else str(cell) for cell in cells])):
        try:
            return build()
        except (pa.ArrowException, OverflowError, ValueError, TypeError, UnicodeError):
            continue
    return pa.nulls(len(cells))


_DAMAGES = {"toml": _toml_damaged, "json": _json_damaged, "parquet": _table_damaged}


def fate(kind: Kind, data: bytes, folder: Path) -> tuple[str, str]:
    """Read a damaged file in a folder that has the others: what came of it, and the traceback."""
    path = folder / kind.file
    path.write_bytes(data)
    try:
        with _no_longer_than(HANGS_S), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)  # that is said to the user
            kind.read(path)
        return "accepted", ""
    except HetsimError as error:
        text = str(error)
        wrong = error.exit_code != 2 or len(text) > 4000 or not error.what
        return ("traceback", f"exit code {error.exit_code}, {len(text)} characters: {text[:300]}") if wrong else \
            ("refused", "")
    except TimeoutError:
        return "hung", traceback.format_exc(limit=-6)
    except MemoryError:
        return "above 1 GiB", traceback.format_exc(limit=-6)
    except Exception:  # whatever a door lets through is what is looked for
        return "traceback", traceback.format_exc(limit=-6)


@dataclass(frozen=True)
class Failure:
    """A mutant that was neither accepted nor refused."""

    kind: str
    number: int
    fate: str
    text: str


def fuzz(
    seed: int, numbers: Sequence[int], chosen: Sequence[Kind], folder: Path, say: Callable[[str], None] = lambda _: None
) -> tuple[Counter[tuple[str, str]], list[Failure]]:
    """Read these mutants, each block in a forked process; how many of each kind had which fate, and what failed."""
    tally: Counter[tuple[str, str]] = Counter()
    failures: list[Failure] = []
    begin = 0
    while begin < len(numbers):
        block = numbers[begin : begin + BLOCK]
        done = _forked(lambda tell, block=block: _read_all(seed, block, chosen, folder, tell))  # type: ignore[misc]
        for number, (found, text) in zip(block, done, strict=False):
            kind = chosen[number % len(chosen)]
            tally[kind.name, found] += 1
            if found not in ("refused", "accepted"):
                failures.append(Failure(kind.name, number, found, text))
                say(f"--only {number} ({kind.name}; {found})\n{text}")
        begin += max(len(done), 1)
        say(f"{begin:,} of {len(numbers):,}: " + ", ".join(
            f"{sum(n for (_, found), n in tally.items() if found == word):,} {word}" for word in FATES))
    return tally, failures


def _read_all(
    seed: int, numbers: Sequence[int], chosen: Sequence[Kind], folder: Path, tell: Callable[[str, str], None]
) -> None:
    """In a process of its own: one line of what came of each."""
    with open("/proc/self/statm") as pages:
        most = int(pages.read().split()[0]) * resource.getpagesize() + MORE_ADDRESSES
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]  # of a shell's ulimit -v, which nobody may raise
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    most_work_s = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + (MOST_MIB - OWN_MIB) * 1024
    for number in numbers:
        worked_s = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])  # a hang that no exception ends is killed
        resource.setrlimit(resource.RLIMIT_CPU, (int(worked_s + 3 * HANGS_S), most_work_s))
        kind = chosen[number % len(chosen)]
        place = folder / str(number % len(chosen))
        _lay(kind, place)
        os.chdir(place)
        found, text = fate(kind, mutant(seed, number, kind), place)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > most_kib:
            tell("above 1 GiB", text or "was read")
            return  # the highest that it had stays: the next ones need a new process
        tell(found, text)


def _lay(kind: Kind, place: Path) -> None:
    """The files beside the one that is damaged."""
    if not place.exists():
        for name, data in kind.beside.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        (place / kind.file).parent.mkdir(parents=True, exist_ok=True)


def _read_whole(chosen: Sequence[Kind], folder: Path) -> None:
    """Read each whole file here: what its door imports is there for every process forked later."""
    for n, kind in enumerate(chosen):
        _lay(kind, folder / str(n))
        (folder / str(n) / kind.file).write_bytes(kind.content)
        os.chdir(folder / str(n))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.read(folder / str(n) / kind.file)


def _forked(work: Callable[[Callable[[str, str], None]], None]) -> list[tuple[str, str]]:
    """What a forked process tells until it ends; the one at which it died or hung is the last."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        code = 1
        try:
            with os.fdopen(write_end, "w", buffering=1) as pipe:
                work(lambda found, text: print(json.dumps((found, text)), file=pipe))
            code = 0
        except Exception:  # a fault of this script, not of a door
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write_end)
    done: list[tuple[str, str]] = []
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    with os.fdopen(read_end) as pipe:
        signal.alarm(WAITS_S)
        for line in pipe:
            signal.alarm(WAITS_S)
            done.append(tuple(json.loads(line)))
        signal.alarm(0)
    _, status = os.waitpid(pid, 0)
    if status:
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        fate = "hung" if killed in (signal.SIGKILL, signal.SIGXCPU) else "died"
        done.append((fate, f"wait status {status}, signal {killed}"))
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", help="only kinds with this in their name")
    parser.add_argument("--log", type=Path, help="where to write running counts, and each failure as it comes")
    parser.add_argument("--only", type=int, help="number of the one mutant to make and read, with its traceback")
    options = parser.parse_args()
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        every = kinds(Path(scratch))
        chosen = [kind for kind in every if options.kind is None or options.kind in kind.name]
        numbers = range(options.first, options.first + options.mutants)
        if options.only is not None:
            numbers = range(options.only, options.only + 1)
        elif len(chosen) < len(every):
            numbers = [n for n in numbers if every[n % len(every)] in chosen]  # type: ignore[assignment]
        folder = Path(scratch, "mutants")
        _read_whole(every, Path(scratch, "whole"))
        with open(options.log or os.devnull, "a", buffering=1) as log:
            tally, failures = fuzz(options.seed, numbers, every, folder, lambda line: print(line, file=log, flush=True))
        kept = {failure.number: mutant(options.seed, failure.number, every[failure.number % len(every)])[:400]
                for failure in failures}
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'kind':24}{'mutants':>9}" + "".join(f"{name:>13}" for name in FATES))
    for kind in [*every, None]:
        row = [sum(n for (name, found), n in tally.items() if found == word and (kind is None or name == kind.name))
               for word in FATES]
        if sum(row):
            print(f"{kind.name if kind else 'all':24}{sum(row):9,}" + "".join(f"{n:13,}" for n in row))
    print(f"{time.perf_counter() - began_s:.0f} s")
    shown: dict[str, Failure] = {}
    for failure in failures:
        shown.setdefault(failure.text[-300:], failure)
    for failure in list(shown.values())[:40]:
        print(f"\n--only {failure.number} ({failure.kind}; {failure.fate})\n{kept[failure.number]!r}\n{failure.text}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
