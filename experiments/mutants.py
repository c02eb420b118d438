"""Seeded faults: what catches them. None may be left uncaught.

    python -m experiments.mutants [--only WORDS] [--markdown]

Each fault of `engine_faults.py` is planted in a copy of the tree, where the worlds of `mutant_worlds.py` are played by
plain Python (kernels are not compiled: the same source), audited, and audited deeply; where nothing objects the test
file that the fault names is run. Each fault of `run_faults.py` is planted in the tables of a finished run. Prints a
line a fault: the first that objected, which is the engine itself, a law of the audit, one of the deep audit, or a test.
Ends with code 1 where a fault was not caught. Takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from analysis.audit import audit
from experiments import engine_faults, run_faults
from experiments.engine_faults import EngineFault
from experiments.mutant_worlds import WORLDS, play, write_jobs
from experiments.run_faults import Files, RunFault
from sim.sweeps.second_look import look_again
from traces.errors import HetsimError

TREE = Path(__file__).resolve().parents[1]
COPIED = ("sim", "policies", "traces", "analysis", "experiments", "tests", "pyproject.toml")
ENDLESS_S = 600.0
"""A run of a world that has not ended by then never does; it takes a second."""
NOBODY = "NOT CAUGHT"
LONGEST = 110
"""Characters of a message that are shown."""


def judge_run(fault: RunFault, trace: Path) -> str:
    """Who objects to a run with the fault in its files."""
    files = Files(play(fault.world, trace))
    fault.plant(files)
    run = files.changed()
    report = audit(run)
    if report.first is None:
        report = look_again(run, report)
    return "" if report.first is None else f"{_kind(report.first.law)}: {report.first.law.removeprefix('deep: ')}"


def _kind(law: str) -> str:
    return "deep audit" if law.startswith("deep: ") else "audit"


def judge_tree(trace: Path) -> str:
    """Who objects to the engine of this tree: itself, the audit, the deep audit; empty: nobody."""
    runs = []
    for world in WORLDS:
        try:
            runs.append(play(world, trace))
        except Exception as error:  # whatever it is that a fault breaks, it is no table
            said = error.what if isinstance(error, HetsimError) else f"{type(error).__name__}: {error}"
            return f"engine: {' '.join(said.split())[:LONGEST]}"
    reports = [(run, audit(run)) for run in runs]
    for deep in (False, True):
        for run, report in reports:
            first = (look_again(run, report) if deep else report).first
            if first is not None:
                return f"{_kind(first.law)}: {first.law.removeprefix('deep: ')}"
    return ""


class Copy:
    """A copy of the tree, in which one fault at a time is planted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in COPIED:
            source = TREE / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / name)

    def judge(self, fault: EngineFault) -> str:
        """Who objects to the engine with the fault."""
        file = self._folder / fault.file
        sound = file.read_text("utf-8")
        if sound.count(fault.old) != 1:
            raise SystemExit(f"{fault.file} has {sound.count(fault.old)} times, not once: {fault.old!r}")
        file.write_text(sound.replace(fault.old, fault.new), "utf-8")
        try:
            return self._engine() or self._test(fault.test)
        finally:
            file.write_text(sound, "utf-8")

    def _python(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTHONPATH", None)
        return subprocess.run([sys.executable, *words], cwd=self._folder, env=environment, capture_output=True,
                              text=True, timeout=ENDLESS_S, check=False)

    def _engine(self) -> str:
        try:
            done = self._python("-m", "experiments.mutants", "--judge")
        except subprocess.TimeoutExpired:
            return f"engine: no end within {ENDLESS_S:g} s"
        if done.returncode:
            return f"engine: {done.stderr.strip().splitlines()[-1][:LONGEST]}"
        return str(json.loads(done.stdout.splitlines()[-1]))

    def _test(self, file: str) -> str:
        done = self._python("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", file)
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        return f"test: {failed[0].removeprefix('FAILED ').split(' - ')[0]}" if failed else ""


def judged(only: str = "") -> Iterator[tuple[str, str, str]]:
    """Where each fault lies, what it is, and who catches it (empty: nobody)."""
    with tempfile.TemporaryDirectory() as scratch:
        trace = write_jobs(Path(scratch) / "jobs.csv")
        copy = Copy(Path(scratch) / "tree")
        for fault in engine_faults.FAULTS:
            if only in fault.what:
                yield fault.file.removeprefix("sim/"), fault.what, copy.judge(fault)
        for wrong in run_faults.FAULTS:
            if only in wrong.what:
                yield "a run's files", wrong.what, judge_run(wrong, trace)


def main() -> None:
    """Print who catches what."""
    parser = argparse.ArgumentParser(description="Plant faults in the engine and in a run's files; who catches them?")
    parser.add_argument("--only", default="", help="faults with these words")
    parser.add_argument("--markdown", action="store_true", help="as the table of docs/metrics.md")
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.judge:
        with tempfile.TemporaryDirectory() as scratch:
            print(json.dumps(judge_tree(write_jobs(Path(scratch) / "jobs.csv"))))
        return
    missed = count = 0
    if given.markdown:
        print("| where | fault | caught by |\n|---|---|---|")
    for where, what, by in judged(given.only):
        line = f"| {where} | {what} | {by or NOBODY} |" if given.markdown else f"{by or NOBODY:70}  {where}: {what}"
        print(line, flush=True)
        count, missed = count + 1, missed + (not by)
    if count == 0:
        parser.error(f"--only {given.only!r}: no fault has these words")
    print(f"{count} faults, {missed} not caught", file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
