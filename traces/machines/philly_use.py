"""Philly's samples of use: what each machine's GPUs, processors and memory were doing, minute by minute.

Where: the repository philly-traces of the GitHub organisation msr-fiddle (CC-BY-4.0): cluster_gpu_util,
cluster_cpu_util and cluster_mem_util in its archive, up to gigabytes each; read in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traces.errors import TraceError
from traces.late import pd
from traces.reading.stream import whole_rows
from traces.reading.text import Table, check_text, parse_rows
from traces.reading.times import posix_s

PIECE_BYTES = 1 << 24
ZONES = {"PDT": 7 * 3600.0, "PST": 8 * 3600.0}
"""Pacific time with and without daylight saving: seconds that UTC is ahead."""


@dataclass(frozen=True)
class Kind:
    """One of the tables: its columns after time and machine, in our names, and the largest value of each."""

    what: str
    header: tuple[str, ...]
    columns: tuple[str, ...]
    high: float


KINDS = (
    Kind("GPU use, %", tuple(f"gpu{i}_util" for i in range(8)), tuple(f"gpu{i}_util" for i in range(8)), 100.0),
    Kind("processor use, %", ("cpu_util",), ("cpu_util",), 100.0),
    Kind("memory, KiB", ("mem_total", "mem_free"), ("mem_total_kib", "mem_free_kib"), 1e12),
)


def read_use(path: Path, *, piece_bytes: int = PIECE_BYTES) -> Iterator[pd.DataFrame]:
    """Read a table of use piece by piece.

    ============================  =============================================================================
    source                        becomes
    ============================  =============================================================================
    time, with PDT or PST         time_s, POSIX s: the zone stands in each row, so nothing is unclear in November
    machineId or machine_id       machine
    gpu0_util … gpu7_util, in %   the same; NA (offline) and GPUs that a row does not have: NaN, never 0
    cpu_util, in %                the same
    mem_total, mem_free           mem_total_kib, mem_free_kib (KiB: a machine of 504 GiB says 528,272,672)
    ============================  =============================================================================

    Rows of GPU use end in a comma, which is no cell. Which table it is, the longest row of the first piece tells.

    Raises
    ------
    TraceError
        A row without time, zone or machine, with too many cells, or a value that is no number, below 0 or above 100 %
        (of memory: above 1e12 KiB); names the line.
    """
    above = 0
    kind: Kind | None = None
    for data in whole_rows(path, piece_bytes):
        check_text(data, str(path), above)
        body = _plain(data)
        if body.strip():
            kind = kind or _kind(body, path)
            yield _frame(body, kind, path, above)
        above += data.count(b"\n")
    if kind is None:
        raise TraceError("the file is empty", where=str(path), got="0 rows", allowed="rows of use")


def read_all_use(path: Path) -> pd.DataFrame:
    """The whole of a table of use, see `read_use`: for tables that fit in memory."""
    return pd.concat(list(read_use(path)), ignore_index=True)


def _plain(data: bytes) -> bytes:
    """The rows alone, in as many lines: comments and headers made empty, a comma at the end of a row dropped."""
    lines = data.replace(b"\r\n", b"\n").replace(b",\n", b"\n").removesuffix(b",")
    if b"#" in lines or b"time" in lines:
        lines = b"\n".join(b"" if line.startswith((b"#", b"time,")) else line for line in lines.split(b"\n"))
    return lines


def _kind(body: bytes, path: Path) -> Kind:
    cells = max(line.count(b",") for line in body.split(b"\n")) - 1
    for kind in sorted(KINDS, key=lambda k: len(k.header)):
        if 1 <= cells <= len(kind.header):
            return kind
    raise TraceError("not a table of use", where=str(path), got=body.lstrip()[:80].decode("utf-8", "replace"),
                     allowed="time with PDT or PST, machine, and 1, 2 or up to 8 values")


def _frame(body: bytes, kind: Kind, path: Path, above: int) -> pd.DataFrame:
    names = ("time", "machine", *kind.columns)
    want = len(names) - 1
    # Rows of machines with fewer GPUs are filled up: Arrow wants rows of one length.
    body = b"\n".join(line + b"," * (want - line.count(b",")) if line else line for line in body.split(b"\n"))
    table = parse_rows(body, names, str(path), ",", above)
    text = pc.utf8_trim_whitespace(table.cells["time"])
    zones = pc.utf8_slice_codeunits(text, -3).to_numpy(zero_copy_only=False)
    ahead_s = pd.Series(zones, dtype=object).map(ZONES).to_numpy(dtype=np.float64)
    wrong = np.isnan(ahead_s) | (table.text("machine") == "")
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise TraceError("no time with a zone, or no machine", where=table.where(at, "time"), got=text[at].as_py(),
                         allowed="YYYY-MM-DD HH:MM:SS with PDT or PST, then a machine")
    stamps = pc.utf8_rtrim_whitespace(pc.utf8_slice_codeunits(text, 0, -3)).to_pylist()
    times = posix_s(stamps, "UTC", lambda i: table.where(i, "time"), required=True)
    out = {"time_s": times.posix_s + ahead_s, "machine": table.text("machine")}
    for name in kind.columns:
        out[name] = _values(table, name, kind.high)
    return pd.DataFrame(out)


def _values(table: Table, name: str, high: float) -> np.ndarray:
    """A column of numbers; NA and what a row does not have are NaN."""
    cells = pc.utf8_trim_whitespace(table.cells[name])
    told = pc.if_else(pc.equal(cells, "NA"), pa.scalar(""), cells)
    return Table(table.source, {name: told}, table.lines).number(name, high=high, blank=True)
