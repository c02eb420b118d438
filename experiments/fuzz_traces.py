"""Damaged trace files: each must become a valid trace or a message that says where and what; never a traceback.

    python -m experiments.fuzz_traces --files 100000 [--data ../shared/data] [--seed 0] [--only 1234]

File `n` of a seed is made from a small file of one of the formats (`fuzz_seeds.py`) or, with --data, from the beginning
of a real one, by one to three kinds of damage (`fuzz_damage.py`). It is read as a user would, by content or by name of
the format, at times with options. What is refused must name the file; what is read must be a valid trace whose numbers
are possible. Prints files a second, what came of them by format, and each failure with its number, which makes it
again. `tests/traces/test_fuzzed_files.py` runs the first ones.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.fuzz_damage import DAMAGES, pick
from experiments.fuzz_seeds import SEEDS, Seed, real_seeds
from traces.columns import COLUMNS
from traces.errors import TraceError
from traces.load import FORMATS, load_trace
from traces.machines.any_form import read_machines
from traces.machines.capacity import Capacity, Machines
from traces.reading.text import LONGEST_RUN_S
from traces.study.check import check
from traces.study.describe import describe
from traces.study.summary import as_text
from traces.trace import Trace

HANGS_S = 20.0
LONGEST_MESSAGE = 3000
SHOWN_EVERY = 8
"""Of so many traces that were read, one is described and checked."""


OPTION_WORDS = (
    "keep", "drop", "sum", "last", "span", "first", "most", "job", "task", "instance", "requested", "used", "min", "s",
    "naive", "UTC", "America/Los_Angeles", "Asia/Shanghai", "Mars/Base", "user_dur", "duration", "", "0", "1", "2.5",
    "nan", "-1", "Pretrain", "refuse", "v100", "k80", "true", "no", "\0", "x" * 300,
)


@dataclass(frozen=True)
class Case:
    """File `number` of a seed: what is damaged, how, and how it is read."""

    number: int
    seed: Seed
    data: bytes
    damages: tuple[str, ...]
    format: str | None
    options: dict[str, str]


def case(random_seed: int, number: int, seeds: Sequence[Seed]) -> Case:
    """Make file `number`: the same for the same seeds, on every machine."""
    rng = np.random.default_rng([random_seed, number])
    seed = seeds[number % len(seeds)]
    data, done = seed.data, []
    for _ in range(int(pick(rng, (1, 1, 1, 2, 3)))):
        damage = pick(rng, DAMAGES)
        data = damage(data, rng)
        done.append(damage.__name__)
    named = bool(seed.format) and rng.random() < 0.5
    options = {}
    if named and not seed.machines and FORMATS[seed.format].options and rng.random() < 0.3:
        options[pick(rng, sorted(FORMATS[seed.format].options))] = pick(rng, OPTION_WORDS)
    return Case(number, seed, data, tuple(done), seed.format if named or seed.paths else None, options)


def outcome(made: Case, folder: Path) -> str:
    """Read a damaged file: "read" or "refused", or AssertionError or whatever else went wrong.

    `folder` is empty before and after.
    """
    path = folder / made.seed.name
    files = [path, *(folder / name for name, _ in made.seed.beside)]
    for file, data in zip(files, (made.data, *(data for _, data in made.seed.beside)), strict=True):
        file.write_bytes(data)
    target = folder if made.seed.folder else path
    read = read_machines if made.seed.machines else load_trace
    try:
        with _no_longer_than(HANGS_S), warnings.catch_warnings():
            warnings.simplefilter("error")
            paths = {key: str(folder / name) for key, name in made.seed.paths}
            found = read(target, made.format, **paths | made.options)
            _check(found, made)
            return "read"
    except TraceError as error:
        _check_message(error, folder, made)
        return "refused"
    finally:
        for file in files:
            file.unlink()


def _check_message(error: TraceError, folder: Path, made: Case) -> None:
    text = str(error)
    assert error.what, "the message does not say what is wrong"
    places = (folder.name, "--", "option", *(repr(value)[1:-1] for value in made.options.values()))
    assert any(place in error.where for place in places), f"the message does not say where: {text[:300]}"
    assert len(text) < LONGEST_MESSAGE, f"a message of {len(text)} characters: {text[:300]}"


def _check(found: Trace | Machines | Capacity, made: Case) -> None:
    """Raise AssertionError if what was read cannot be."""
    if not isinstance(found, Trace):
        gpus = np.asarray(found.gpus)
        assert len(gpus) == 0 or (gpus.min() >= 0 and gpus.max() <= 1e9), "GPUs below 0 or above a thousand million"
        return
    about = found.provenance
    assert len(found) > 0
    assert np.isfinite(found.submit_s).all(), "a submission that is not finite"
    assert (found.submit_s[1:] >= found.submit_s[:-1]).all(), "not in order of submission"
    longest = 1e11 if about.format == "canonical" else LONGEST_RUN_S
    assert ((found.duration_s >= 0) & (found.duration_s <= longest)).all(), "a duration below 0, or above ten years"
    assert ((found.wait_s >= 0) | np.isnan(found.wait_s)).all(), "a wait below 0"
    assert (found.num_gpus >= 1).all()
    assert about.format in FORMATS, f"format {about.format!r}"
    assert about.rule
    assert all(isinstance(n, int) and n > 0 for n in about.counts.values()), f"counts {dict(about.counts)}"
    assert set(about.first) <= set(about.counts), "places of rows that were not counted"
    if about.format != "canonical":
        assert about.rows_read >= len(found), f"{len(found)} jobs of {about.rows_read} rows"
    again = Trace.from_columns({column.name: getattr(found, column.name) for column in COLUMNS}, about)
    assert again.content_hash() == found.content_hash(), "not what its own columns give"
    if made.number % SHOWN_EVERY == 0:
        assert as_text(describe(found, {"V100": 8})).count("\n") > 5
        assert all(oddity.count > 0 for oddity in check(found, gpus_by_type={"V100": 8}))


@contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread after so much work of the process: others may keep the machine busy."""
    def alarm(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds:g} s of work")

    before = signal.signal(signal.SIGPROF, alarm)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(frozen=True)
class Failure:
    """A file that was neither read nor refused."""

    made: Case
    error: str


def fuzz(
    random_seed: int, numbers: Sequence[int], seeds: Sequence[Seed], folder: Path
) -> tuple[Counter[str], list[Failure]]:
    """Read the files of these numbers; how often each format was "read" or "refused", and what failed."""
    tally: Counter[str] = Counter()
    failures = []
    for number in numbers:
        made = case(random_seed, number, seeds)
        name = made.seed.format or "real files"
        try:
            tally[f"{name}: {outcome(made, folder)}"] += 1
        except Exception:  # whatever a reader lets through is what is looked for
            tally[f"{name}: FAILED"] += 1
            failures.append(Failure(made, traceback.format_exc(limit=-4)))
    return tally, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder with real files to damage, too")
    parser.add_argument("--only", type=int, help="number of the one file to make and read")
    parser.add_argument("--format", help="damage only files of this format")
    options = parser.parse_args()
    seeds = [*SEEDS, *(real_seeds(options.data) if options.data else ())]
    seeds = [seed for seed in seeds if options.format in (None, seed.format)]
    numbers = range(options.files) if options.only is None else [options.only]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tally, failures = fuzz(options.seed, numbers, seeds, Path(folder))
    took_s = time.perf_counter() - began
    for name, count in sorted(tally.items()):
        print(f"{count:8,} {name}")
    print(f"{len(numbers):,} files from {len(seeds)} whole ones in {took_s:.0f} s: "
          f"{len(numbers) / took_s:,.0f} a second; {len(failures)} failed")
    kinds: dict[str, Failure] = {}
    for failure in failures:
        kinds.setdefault(failure.error, failure)
    for failure in list(kinds.values())[:30]:
        made = failure.made
        print(f"\n--only {made.number} ({made.seed.format or made.seed.name}; {', '.join(made.damages)}; "
              f"format {made.format}, options {made.options})\n{made.data[:300]!r}\n{failure.error}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
