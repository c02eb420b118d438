"""The door: any measured table, told by its content."""

from __future__ import annotations

from pathlib import Path

from sim.performance.tables.cells import header_of, read_text
from sim.performance.tables.measured_table import MeasuredTable


def load_table(path: str | Path, gaps: str = "interpolate") -> MeasuredTable:
    """Read Gavel's JSON or tidy CSV (physical cluster), Sia's step times, ElasticFlow's throughputs or one's own CSV.

    A folder is one of ElasticFlow's `throughputs_<GPU type>`, or of Sia's step times.

    Raises
    ------
    PerformanceError
        None of them (then the columns of one's own are named), or one that cannot be used.
    """
    if Path(path).is_dir():
        elastic = Path(path).resolve().name.startswith("throughputs_")
        return MeasuredTable.from_elasticflow(path, gaps=gaps) if elastic else MeasuredTable.from_sia(path, gaps=gaps)
    text = read_text(path)
    names = [] if text.lstrip().startswith(("{", "[")) else header_of(text)
    if not names or "scale_factor" in names:
        return MeasuredTable.from_gavel(path, gaps=gaps)
    if "global_batch_size" in names:
        return MeasuredTable.from_elasticflow(path, gaps=gaps)
    if "local_bsz" in names:
        return MeasuredTable.from_sia(path, gaps=gaps)
    return MeasuredTable.from_csv(path, gaps=gaps)
