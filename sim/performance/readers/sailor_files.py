"""Sailor's profiles (Strati et al. 2025, SOSP) as rows of a table of measured layers.

A folder with `layer_times.csv` (model, gpu_type, tensor, micro_batch, first_layer, last_layer, fwd_s, bwd_s, update_s)
and `layer_sizes.csv` (model, tensor, first_layer, last_layer and floats of 4 bytes: params_floats, act_input_floats,
act_output_floats, act_mem_floats). Lines that begin with # are comments. Times of a tensor degree whose sizes the files
lack are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sim.performance.graph import PerformanceError
from sim.performance.tables.cells import Row, read_text, rows_of

TIMES, SIZES = "layer_times.csv", "layer_sizes.csv"
FLOAT_BYTES = 4
TYPES = {
    "A100-40": "A100", "A100-80": "A100-80", "V100-16": "V100", "GH-96": "GH200", "RTX-3090": "RTX3090",
    "RTX-2080": "RTX2080", "Titan-RTX": "TitanRTX",
}  # fmt: skip
"""Its GPU types -> those of the catalogue."""
_TIMES = ("model", "gpu_type", "tensor", "micro_batch", "first_layer", "last_layer", "fwd_s", "bwd_s", "update_s")
_SIZES = {"params_floats": 1, "act_output_floats": FLOAT_BYTES, "act_mem_floats": FLOAT_BYTES,
          "act_input_floats": FLOAT_BYTES}  # fmt: skip
_OURS = ("params", "border_bytes", "kept_bytes", "in_bytes")


def is_sailor(path: Path) -> bool:
    """Whether it is such a folder."""
    return path.is_dir() and (path / TIMES).is_file() and (path / SIZES).is_file()


def sailor_rows(folder: Path) -> Iterator[Row]:
    """The rows, under the columns of `layer_table`: those of sizes, then those of times, whose sizes are blank.

    Raises
    ------
    PerformanceError
        A file is not as above, or a GPU type is none of `TYPES`.
    """
    blank = dict.fromkeys(
        ("gpu_type", "micro_batch", "fwd_s", "bwd_s", "update_s", *_OURS, "flops_fwd", "reads"), "")  # fmt: skip
    known = set()
    for row in _rows(folder / SIZES, ("model", "tensor", "first_layer", "last_layer", *_SIZES)):
        sizes = {ours: repr(row.number(name) * size) for ours, (name, size) in zip(_OURS, _SIZES.items(), strict=True)}
        known.add((row.cells["model"], row.cells["tensor"]))
        yield Row(blank | _which(row) | sizes, row.source, row.line)
    for row in _rows(folder / TIMES, _TIMES):
        if (row.cells["model"], row.cells["tensor"]) not in known:
            continue
        if row.cells["gpu_type"] not in TYPES:
            raise PerformanceError("unknown GPU type of Sailor", where=row.where, got=row.cells["gpu_type"],
                                   allowed=", ".join(TYPES))
        times = {name: row.cells[name] for name in ("micro_batch", "fwd_s", "bwd_s", "update_s")}
        yield Row(blank | _which(row) | times | {"gpu_type": TYPES[row.cells["gpu_type"]]}, row.source, row.line)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    # A comment stays a line, so that messages name the right one.
    text = "\n".join("" if line.startswith("#") else line for line in read_text(path).splitlines())
    for row in rows_of(text, str(path)):
        lacking = [name for name in columns if name not in row.cells]
        if lacking:
            raise PerformanceError(f"column {lacking[0]!r} is missing", where=f"{path}, header",
                                   got=", ".join(row.cells)[:200], allowed=", ".join(columns))
        yield row


def _which(row: Row) -> dict[str, str]:
    cells = row.cells
    return {"model": cells["model"], "layer": f"{cells['first_layer']}-{cells['last_layer']}",
            "tensor": cells["tensor"], "value_bytes": str(FLOAT_BYTES)}  # fmt: skip
