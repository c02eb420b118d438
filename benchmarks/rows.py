"""What `make bench` measures: the rows of the table of docs/performance.md, each a command as a user types it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("HETSIM_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
PHILLY = DATA / "philly" / "philly.csv"
OURS = "Philly" if PHILLY.is_file() else "generated"
"""What the jobs are of which the table speaks as Philly's: on a machine without the log they are made."""
ONCE = {"set": "engine.retries=false"}
"""Generated jobs fail and are tried again; the bare loop plays each once."""


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes
    ----------
    name : by which `--only` asks for it.
    what : in words, for the table.
    settings : of `hetsim run`; empty: it is another command.
    words : of that other command.
    wanted_s : CPU seconds that the whole command shall take at most; None: none were named.
    quick : measured without `--all`.
    bare : beside the bare loop of the same jobs and GPUs.
    """

    name: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    wanted_s: float | None = None
    quick: bool = False
    bare: bool = True

    def command(self, out: Path) -> list[str]:
        """The words after `hetsim`."""
        if not self.settings:
            return [word.format(out=out, here=out.parent) for word in self.words]
        options = [text for name, value in self.settings.items() for text in (f"--{name}", str(value))]
        return ["run", *options, "--out", str(out), "--force", "--quiet"]

    @property
    def fifo(self) -> bool:
        """Whether the bare loop decides as the policy does, so that mean completion times must be equal."""
        return self.settings.get("policy") == "fifo" and self.settings.get("work") == "recorded"


def _philly(policy: str, nodes: int, **more: Any) -> dict[str, Any]:
    """The real Philly jobs, or as many generated ones where they are not there."""
    trace = {"trace": str(PHILLY)} if PHILLY.is_file() else {"trace": "philly", "jobs": 82_247} | ONCE
    return trace | {"policy": policy, "cluster": f"v100:{nodes}x8", "work": "recorded"} | more


def _made(policy: str, trace: str, jobs: int, **more: Any) -> dict[str, Any]:
    return {"trace": trace, "jobs": jobs, "policy": policy, "cluster": "v100:320x8", "work": "recorded"} | ONCE | more


def rows() -> list[Row]:
    """All rows, in the order of the table."""
    return [
        Row("help", "`hetsim --help`", words=("--help",), wanted_s=0.2, quick=True),
        Row("perf", "`hetsim perf resnet50`", words=("perf", "resnet50", "--stage", "1xV100"), wanted_s=1.0,
            quick=True),
        Row("ten", "10 generated jobs, `fifo`", _made("fifo", "philly", 10), wanted_s=1.2, quick=True, bare=False),
        Row("fifo-320", f"82,247 {OURS} jobs, `fifo`, 320 GPUs", _philly("fifo", 40), wanted_s=3, quick=True),
        Row("fifo-2560", f"82,247 {OURS} jobs, `fifo`, 2,560 GPUs", _philly("fifo", 320), wanted_s=3),
        Row("srsf-320", f"82,247 {OURS} jobs, `srsf`, 320 GPUs", _philly("srsf", 40), wanted_s=8),
        Row("srtf-320", f"82,247 {OURS} jobs, `srtf`, 320 GPUs", _philly("srtf", 40), wanted_s=8, quick=True),
        Row("tiresias-320", f"82,247 {OURS} jobs, `tiresias`, 320 GPUs", _philly("tiresias", 40), wanted_s=8),
        Row("las-320", f"82,247 {OURS} jobs, `las`, 320 GPUs", _philly("las", 40), wanted_s=18),
        Row("easy-320", f"82,247 {OURS} jobs, `easy`, 320 GPUs", _philly("easy", 40), wanted_s=6),
        Row("srsf-256", f"10,000 {OURS} jobs, `srsf`, 256 GPUs", _philly("srsf", 32, jobs=10_000), wanted_s=1.5,
            quick=True),
        Row("srtf-200k", "200,000 generated jobs, `srtf`, 2,560 GPUs", _made("srtf", "philly", 200_000), wanted_s=40),
        Row("fifo-1m", "1,000,000 generated jobs, `fifo`, 2,560 GPUs", _made("fifo", "philly", 1_000_000), wanted_s=40),
        Row("pai-1m", "1,000,000 generated `pai` jobs, `fifo`, 2,560 GPUs", _made("fifo", "pai", 1_000_000),
            wanted_s=45, bare=False),
        # The log has not so many at that load: their arrivals are compressed.
        Row("fifo-3.4m", "3,400,000 generated jobs, `fifo`, 2,560 GPUs",
            _made("fifo", "philly", 3_400_000, **{"load-by": "compress"}), bare=False),
        Row("hetero", "`make sim`: 2,920 generated jobs, `hetero`",
            {"policy": "hetero", "trace": "philly"}, wanted_s=8, bare=False),
        Row("hetero-10k", "10,000 of them", {"policy": "hetero", "trace": "philly", "jobs": 10_000}, wanted_s=8,
            bare=False),
        Row("sweep", "sweep of 20 cells × 1,000 jobs, 2 workers",
            words=("sweep", "{here}/sweep.toml", "--out", "{out}", "--workers", "2", "--json", "--quiet"), quick=True),
    ]


def sweep_file() -> str:
    """The settings of the row `sweep`."""
    trace = f'trace = "{PHILLY}"' if PHILLY.is_file() else 'trace = "philly"'
    return f"""[run]
{trace}
jobs = 1000
work = "recorded"
cluster = "v100:40x8"
[sweep]
policy = ["fifo", "srtf"]
load = [0.7, 0.8, 0.9, 1.0, 1.1]
"engine.preemption_overhead_s" = [0, 10]
"""
