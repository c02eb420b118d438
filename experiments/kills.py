"""Writers killed at any instant: nothing half written has a final name, and the next one writes the same bytes.

    python -m experiments.kills --kills 200 [--seed 0] [--markdown]

`run` (into `runs/`, and over an earlier run), `sweep`, `report`, `trace convert` and `recommend` are each forked from
one warm process, and end by SIGKILL: at the n-th call that opens a file to write or changes a name; some time after
its first hidden file is there, which is while it writes; or at any time of its life. Then each file under a final name
is compared with what was there before and with what the whole command writes, folders that are replaced as one are
looked at as one, and the command is given again: it must write the whole one's bytes and leave nothing else. What
varies between equal commands (wall times, memory) is not compared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traces.leftovers import recover

JOBS = "\n".join(["job_id,submit_s,duration_s,num_gpus",
                  *(f"j{i},{30 * i},{600 + 7 * i},{1 + i % 4}" for i in range(60)), ""])
SWEEP = """\
[run]
trace = "jobs.csv"
cluster = "v100:1x4"
work = "recorded"
[[sweep]]
policy = ["fifo", "srtf"]
seed = [0, 1]
[results]
tables = ["jobs", "segments", "runs"]
"""
VARIES = frozenset({"wall_s", "loop_s", "cpu_s", "peak_mib", "worker", "files"})
"""Keys of JSON files; `files`: hashes of files, of which some hold such keys."""
RUN = ("run", "--trace", "jobs.csv", "--cluster", "v100:1x4", "--work", "recorded", "--quiet", "--policy")
RECOMMEND = ("recommend", "--model", "resnet50", "--gpus", "V100:2,T4:2", "--methods", "gpipe,pipedream",
             "--evaluations", "20", "--out", "best")
HOWS = ("call", "writing", "life")
Files = dict[str, Any]


@dataclass(frozen=True)
class Command:
    """What is killed.

    Attributes
    ----------
    words : of the command line.
    out : what it writes, in the folder that it is called in.
    before : words of the commands that were given before, whole.
    whole : what is there as one: all files of the earlier one, or all of the new one.
    """

    name: str
    words: tuple[str, ...]
    out: str
    before: tuple[tuple[str, ...], ...] = ()
    whole: bool = False


ONE = (*RUN, "fifo", "--out", "one")
COMMANDS = (
    Command("run", (*RUN, "fifo"), "runs", whole=True),
    Command("run --force", (*RUN, "srtf", "--out", "one", "--force"), "one", (ONE,), whole=True),
    Command("sweep", ("sweep", "sweep.toml", "--out", "cells", "--quiet"), "cells"),
    Command("report --force", ("report", "one", "two", "--out", "out/r.html", "--force"), "out",
            (ONE, (*RUN, "srtf", "--out", "two"), ("report", "one", "--out", "out/r.html"))),
    Command("trace convert --force", ("trace", "convert", "jobs.csv", "out/t.parquet", "--force"), "out",
            (("trace", "convert", "jobs.csv", "out/t.parquet", "--jobs", "20"),)),
    Command("trace convert", ("trace", "convert", "jobs.csv", "out/t.parquet"), "out"),
    Command("recommend", RECOMMEND, "best", whole=True),
)


def call(words: Sequence[str]) -> int:
    """The command line in this process, quiet; the exit code."""
    from sim.cli import main

    sys.argv = ["hetsim", *words]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def forked(words: Sequence[str], folder: Path, at_call: int | None = None) -> int:
    """The command in a process of its own; its id. `at_call`: it kills itself before this call that changes files."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.chdir(folder)
        _hush()
        if at_call is not None:
            _count_calls(lambda done: os.kill(os.getpid(), signal.SIGKILL) if done == at_call else None)
        code = call(words)
    finally:
        os._exit(code)


def _hush() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)


def calls_of(words: Sequence[str], folder: Path) -> int:
    """How many calls that change files a command makes."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            _hush()
            _count_calls(lambda done: os.write(write_end, b"."))
            call(words)
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as dots:
        count = len(dots.read())
    os.waitpid(pid, 0)
    return count


def _count_calls(tell: Callable[[int], object]) -> None:
    """From now on, `tell` how many calls that open a file to write, or change a name, were made before this one."""
    done = 0

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        opens = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if (opens and arguments[0] != os.devnull) or event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove"):
            tell(done)
            done += 1

    sys.addaudithook(heard)


def files(folder: Path) -> Files:
    """What a folder holds by name: bytes, of JSON all but what varies. Hidden names are left out."""
    found: Files = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            found[name] = path.read_bytes()
            if path.suffix == ".json":
                try:
                    found[name] = _steady(json.loads(found[name]))
                except ValueError:
                    found[name] = "no JSON"
    return found


def _steady(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _steady(value) for key, value in content.items() if key not in VARIES}
    return [_steady(value) for value in content] if isinstance(content, list) else content


def hidden(folder: Path) -> list[str]:
    """What writers call what they have not finished."""
    return sorted(name for _, folders, names in os.walk(folder) for name in (*folders, *names)
                  if name.startswith(".") and name.endswith((".part", ".old", ".claim")))


class World:
    """One command's folder as it is before, what it writes, and how long it takes to."""

    def __init__(self, command: Command, scratch: Path) -> None:
        self.command, self._first = command, laid(scratch / "first")
        for words in command.before:
            if code := _ended(forked(words, self._first)):
                raise SystemExit(f"{' '.join(words)}: exit code {code}")
        self.earlier = files(self._first / command.out)
        self.place = scratch / "place"
        self.fresh()
        self.calls = calls_of(command.words, self.place)
        self.whole = files(self.place / command.out)
        if not self.whole or self.whole == self.earlier or hidden(self.place):
            raise SystemExit(f"{command.name}: does not write {command.out}")
        self.fresh()
        began_s = time.monotonic()
        pid = forked(command.words, self.place)
        self.quiet_s = _until_it_writes(pid, self.place) - began_s
        if _ended(pid):
            raise SystemExit(f"{command.name}: exit code")
        self.life_s = time.monotonic() - began_s

    def fresh(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self._first, self.place)

    def kill(self, how: str, rng: np.random.Generator) -> Counter[str]:
        """Kill it once; what came of it."""
        self.fresh()
        if how == "call":
            pid = forked(self.command.words, self.place, int(rng.integers(self.calls)))
        else:
            pid = forked(self.command.words, self.place)
            if how == "writing":
                _until_it_writes(pid, self.place)
            time.sleep(rng.random() * (self.life_s - self.quiet_s if how == "writing" else self.life_s))
            os.kill(pid, signal.SIGKILL)
        return self.judged(_ended(pid))

    def kill_at(self, number: int) -> Counter[str]:
        """Kill it before a call that changes files; what came of it."""
        self.fresh()
        return self.judged(_ended(forked(self.command.words, self.place, number)))

    def judged(self, code: int) -> Counter[str]:
        """What a killed one left, and what the next one makes of it."""
        found: Counter[str] = Counter(kills=1)
        found["had ended"] = code == 0
        found["not killed"] = code not in (0, -signal.SIGKILL)
        found["amid writing"] = bool(hidden(self.place))
        out = self.place / self.command.out
        recover(out.parent)  # as whoever reads it does
        got = files(out)
        found["earlier"], found["new"] = got == self.earlier, got == self.whole
        found["half"] = not (found["earlier"] or found["new"]) if self.command.whole else any(
            content not in (self.earlier.get(name), self.whole.get(name)) for name, content in got.items())
        found["lost"] = any(name not in got for name in self.earlier)
        words = self.command.words
        if got == self.whole and "--force" not in words and self.command.name != "sweep":
            return found  # it was done: the next one would be told so
        written = self.command.name == "trace convert" and bool(got)
        again = _ended(forked((*words, "--force") if written else words, self.place))
        found["rerun differs"] = again != 0 or files(out) != self.whole
        found["left over"] = bool(hidden(self.place))
        return found


def _until_it_writes(pid: int, folder: Path) -> float:
    """Wait until a hidden file of a writer is there, or the process has ended; when that was."""
    while not hidden(folder) and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.0005)
    return time.monotonic()


def _ended(pid: int) -> int:
    """Wait for it; its exit code, or minus the number of the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def laid(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "jobs.csv").write_text(JOBS)
    (folder / "sweep.toml").write_text(SWEEP)
    return folder


def warm(scratch: Path, commands: Sequence[Command] = COMMANDS) -> None:
    """Give each command once here, so that those forked later have all modules and kernels, and play cells at once."""
    from sim.sweeps import executors

    executors.Processes = lambda count: executors.Here()  # type: ignore[assignment,misc,return-value]
    home, streams = os.getcwd(), [os.dup(number) for number in range(3)]
    _hush()
    try:
        for n, command in enumerate(commands):
            place = laid(scratch / str(n))
            os.chdir(place)
            for words in (*command.before, command.words):
                call(words)
    finally:
        sys.stdout.flush()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(home)


COLUMNS = ("kills", "amid writing", "had ended", "earlier", "new", "half", "lost", "rerun differs", "left over",
           "not killed")
WRONG = ("half", "lost", "rerun differs", "left over", "not killed")


def table(tally: Mapping[tuple[str, str], Counter[str]], markdown: bool) -> list[str]:
    """A line a command and way to kill."""
    rows: list[tuple[str, ...]] = [("command", "killed", *COLUMNS)]
    rows += [(*key, *(str(int(found[c])) for c in COLUMNS)) for key, found in tally.items()]
    rows.append(("all", "", *(str(sum(found[c] for found in tally.values())) for c in COLUMNS)))
    if markdown:
        rows.insert(1, ("---", "---", *("---:" for _ in COLUMNS)))
        return ["| " + " | ".join(row) + " |" for row in rows]
    return [f"{row[0]:24}{row[1]:9}" + "".join(f"{cell:>15}" for cell in row[2:]) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="that came before the command had ended")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    tally: dict[tuple[str, str], Counter[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        warm(Path(scratch, "warm"))
        worlds = [World(command, Path(scratch, str(n))) for n, command in enumerate(COMMANDS)]
        ways = [(world, how) for world in worlds for how in HOWS]
        hit = 0
        for world, how in itertools.cycle(ways):
            if hit >= options.kills:
                break
            found = world.kill(how, rng)
            hit += not found["had ended"]
            tally.setdefault((world.command.name, how), Counter()).update(found)
    print("\n".join(table(dict(sorted(tally.items())), options.markdown)))
    sys.exit(any(found[wrong] for found in tally.values() for wrong in WRONG))


if __name__ == "__main__":
    main()
