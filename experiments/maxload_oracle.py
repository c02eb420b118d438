"""Max-load splits against other planners' on the same graphs: the rows 'maxload' of the oracle file.

    python experiments/maxload_oracle.py ../shared/data [--seconds 60] [--workers 1] [--only TEXT]

A line for each row: what it reached, and ours in its problem (contiguous or not, with or without a CPU). `status` is
ours: optimal (bound met) or the gap to our bound. `ok` says whether ours is no worse, but for the row's rounding.
CPU time of ours is after warm-up, one thread unless `--workers` says otherwise.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from policies.recommend.algorithms.maxload_graph import Split
from policies.recommend.algorithms.maxload_solve import anywhere, contiguous

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "recommend"))
from maxload_files import Row, read_problem, read_rows


def solved(row: Row, data: Path, seconds: float, workers: int) -> tuple[Split, float]:
    """Our split of a row's problem, and the CPU time that it took."""
    problem = read_problem(row.path(data), cpus=row.cpus)
    start = time.process_time()
    split = anywhere(problem, seconds=seconds, workers=workers) if row.anywhere else contiguous(problem)
    return split, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of real inputs")
    parser.add_argument("--seconds", type=float, default=60.0, help="wall time of a non-contiguous split")
    parser.add_argument("--workers", type=int, default=1, help="threads of CP-SAT")
    parser.add_argument("--only", default="", help="rows whose instance or algorithm holds this text")
    asked = parser.parse_args()
    rows = [row for row in read_rows(asked.data.parent / "oracles") if asked.only in f"{row.instance} {row.algorithm}"]
    for row in rows[:1]:
        contiguous(read_problem(row.path(asked.data)))  # compiles
    known: dict[tuple[str, int, bool], tuple[Split, float]] = {}
    print(f"{'instance':38} {'algorithm':44} {'theirs':>9} {'cpu_s':>7} {'ours':>9} {'cpu_s':>7}  status, ok")
    for row in rows:
        key = row.instance, row.cpus, row.anywhere
        if key not in known:
            known[key] = solved(row, asked.data, asked.seconds, asked.workers)
        split, cpu_s = known[key]
        status = "optimal" if split.optimal else f"gap {split.gap:.2%}"
        ok = "-" if row.load != row.load else "ok" if split.load <= row.load * (1 + row.slack) else "WORSE"
        print(f"{row.instance.removeprefix('dnnp/throughput/'):38} {row.algorithm[:44]:44} {row.load:9.4f} "
              f"{row.cpu_s or '-':>7} {split.load:9.4f} {cpu_s:7.2f}  {status}, {ok}", flush=True)


if __name__ == "__main__":
    main()
