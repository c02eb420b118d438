"""`make bench`: how fast the simulator is, as whole commands and within, beside a bare loop and another revision.

    python -m benchmarks [--all | --only NAME ...] [--rounds 3] [--against REVISION] [--out bench.json] [--docs]

CPU seconds are user and system time of processes, so that a busy machine changes them little; ratios are of one run, in
which all sides take turns. `--docs` puts the table into docs/performance.md; `--pictures` draws its pictures anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.bench import ROOT, bench
from benchmarks.measuring import BenchError
from benchmarks.rows import rows
from benchmarks.table import markdown, write


def main(words: list[str] | None = None) -> int:
    """Measure, print and keep; 2: what was asked for cannot be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all rows; else those that take three minutes together")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these rows: "
                        + ", ".join(row.name for row in rows()))
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians are told (one more is not counted)")
    parser.add_argument("--against", metavar="REVISION", help="a git revision, or a folder with another checkout")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="where the measurements go, as JSON")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--pictures", action="store_true", help="draw the pictures of docs/performance.md, no more")
    given = parser.parse_args(words)
    try:
        if given.pictures:
            from benchmarks.pictures import draw

            draw(ROOT / "docs" / "images", _say)
            return 0
        unknown = set(given.only) - {row.name for row in rows()}
        if unknown:
            raise BenchError(f"--only: no row {', '.join(sorted(unknown))}; "
                             f"there are {', '.join(row.name for row in rows())}")
        if given.rounds < 1:
            raise BenchError(f"--rounds: {given.rounds}; it must be 1 or more")
        chosen = [row for row in rows() if (row.name in given.only if given.only else given.all or row.quick)]
        found = bench(chosen, given.rounds, given.against, _say)
        given.out.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
        print(markdown(found))
        if given.docs:
            write(ROOT / "docs" / "performance.md", markdown(found))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


def _say(text: str) -> None:
    print(f"bench: {text} ...", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
