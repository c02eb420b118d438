"""Reading traces: the Philly CSV read and checked, and a PAI instance table of a gigabyte, streamed.

`python -m benchmarks.bench_traces [--gb 1]` makes the instance table in a temporary folder (plain, and as tar.gz) from
the rows of the public sample, repeated with other names and with times, reads each in a process of its own, and prints
speed, processor time, peak memory, and the ratio to a bare Arrow read of the same text. `make bench-parts` does less.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv as pa_csv

from benchmarks.conftest import DATA
from traces.load import load_trace
from traces.readers.pai_tables import COLUMNS, instance_spans
from traces.reading.tally import Tally
from traces.reading.unpack import Unpacked
from traces.study.check import check

PHILLY = DATA / "philly" / "philly.csv"
SAMPLE = DATA / "pai" / "pai_instance_table.tail_sample.csv"
NAMES = COLUMNS["pai_instance_table"]
LONGEST_S, LOG_S = 100_000, 6_400_000


def test_philly_csv_read_and_checked(benchmark: Any) -> None:
    if not PHILLY.is_file():
        pytest.skip("the real Philly CSV is not there (HETSIM_DATA)")
    benchmark(lambda: check(load_trace(PHILLY)))
    began = time.perf_counter()
    pd.read_csv(PHILLY)
    benchmark.extra_info["ratio_to_pandas"] = benchmark.stats.stats.min / (time.perf_counter() - began)


@pytest.mark.parametrize("kind", ["csv", "tar.gz"])
def test_stream_100_mb_of_instances(benchmark: Any, tmp_path: Path, kind: str) -> None:
    path = make(tmp_path, 100_000_000)[kind]
    benchmark.pedantic(instance_spans, (path, Tally()), rounds=3, warmup_rounds=1)
    benchmark.extra_info["mb_per_s"] = 100 / benchmark.stats.stats.min


def make(folder: Path, size_bytes: int, seed: int = 0) -> dict[str, Path]:
    """A made instance table of about this size, plain and packed: the sample's rows, again and again.

    Each repetition has names of its own (so tasks keep their instances), and times: 70 % of the rows Terminated, 20 %
    Failed, 10 % still running. Without the sample, rows of the same widths stand for it.
    """
    if SAMPLE.is_file():
        with SAMPLE.open(newline="") as file:
            rows = list(csv.reader(file))
    else:
        rows = [[f"{i // 3:024x}", "worker", f"{i:060x}", f"{i:060x}", f"{i // 3:060x}", "", "", "", f"{i:024x}"]
                for i in range(206)]
    rng = np.random.default_rng([seed, 0])
    plain, size = folder / "pai_instance_table.csv", 0
    with plain.open("w") as out:
        while size < size_bytes:
            mark = rng.bytes(4).hex()
            start_s = rng.integers(1, LOG_S, len(rows))
            end_s = start_s + rng.integers(1, LONGEST_S, len(rows))
            state = rng.choice(["Terminated", "Failed", "Running"], len(rows), p=[0.7, 0.2, 0.1])
            size += out.write("".join(
                f"{mark}{row[0][8:]},{row[1]},{mark}{row[2][8:]},{mark}{row[3][8:]},{mark}{row[4][8:]},{word},{start}.0,"
                f"{'' if word == 'Running' else f'{end}.0'},{row[8]}\n"
                for row, start, end, word in zip(rows, start_s, end_s, state, strict=True)))
    packed = folder / "pai_instance_table.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as archive:
        archive.add(plain, plain.name)
    return {"csv": plain, "tar.gz": packed}


def ours(path: Path) -> str:
    tally = Tally()
    spans = instance_spans(path, tally)
    return f"{int(spans.columns['rows'].sum()):,} instances of {len(spans.keys):,} tasks"


def arrow(path: Path) -> str:
    """All columns as text, by the bare reader, on one thread as ours: of packed text, Arrow's own unpacking alone."""
    if path.suffix == ".gz":
        with Unpacked(path) as stream:
            size = sum(len(block) for block in iter(lambda: stream.read(1 << 24), b""))
        return f"{size:,} bytes unpacked, not parsed"
    reader = pa_csv.open_csv(
        path, read_options=pa_csv.ReadOptions(column_names=list(NAMES), block_size=1 << 24, use_threads=False),
        convert_options=pa_csv.ConvertOptions(column_types=dict.fromkeys(NAMES, pa.string())))
    return f"{sum(len(batch) for batch in reader):,} rows"


def measured(how: str, path: Path) -> None:
    """Run one of the two and print seconds, processor seconds, peak memory in bytes, and what it said."""
    began, cpu = time.perf_counter(), time.process_time()
    said = {"ours": ours, "arrow": arrow}[how](path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{time.perf_counter() - began}|{time.process_time() - cpu}|{peak}|{said}")


def report(gb: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = make(Path(folder), int(gb * 1e9))
        size = files["csv"].stat().st_size / 1e6
        for kind, path in files.items():
            took = {}
            for how in ("arrow", "ours", "arrow", "ours"):  # the second time round, the file is in memory
                line = subprocess.run([sys.executable, "-m", "benchmarks.bench_traces", "--child", how, str(path)],
                                      check=True, capture_output=True, text=True).stdout
                numbers, said = line.strip().rsplit("|", 1)
                took[how] = [float(number) for number in numbers.split("|")]
                wall_s, cpu_s, peak = took[how]
                print(f"{kind:7}{how:6} {size:,.0f} MB of text: {size / wall_s:4.0f} MB/s ({size / cpu_s:.0f} MB in a "
                      f"second of processor), peak {peak / 1e6:,.0f} MB; {said}")
            print(f"{kind:7}ours / arrow: {took['ours'][0] / took['arrow'][0]:.2f} in time, "
                  f"{took['ours'][1] / took['arrow'][1]:.2f} in processor time")
    if PHILLY.is_file():
        philly()


def philly() -> None:
    """Best of five, after a warm-up: read and checked, against pandas.read_csv alone."""
    best = {}
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: load_trace(PHILLY),
        "read and checked": lambda: check(load_trace(PHILLY)),
        "pandas.read_csv": lambda: pd.read_csv(PHILLY),
    }
    for name, call in calls.items():
        call()
        took = []
        for _ in range(5):
            began = time.perf_counter()
            call()
            took.append(time.perf_counter() - began)
        best[name] = min(took)
    base = best["pandas.read_csv"]
    print("Philly CSV: " + ", ".join(f"{name} {s:.3f} s ({s / base:.1f} x pandas)" for name, s in best.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=1.0, help="size of the instance table as text, 10^9 bytes")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        measured(args.child[0], Path(args.child[1]))
    else:
        report(args.gb)
