"""ElasticFlow's throughputs: iterations a second of the whole job by global batch size and number of GPUs.

Source: ElasticFlow's artifact (Apache 2.0), `throughputs_A100/<model>.csv` and `throughputs_T4/<model>.csv`: a
column `global_batch_size`, then one a GPU count. Blank, `nan` and 0 mean not measurable: such points are not in the
table. Where the GPUs were is not in the files.
"""

from __future__ import annotations

from pathlib import Path

from sim.performance.graph import PerformanceError
from sim.performance.tables.cells import Row, header_of, read_text, rows_of
from sim.performance.tables.points import ANY_PLACEMENT, Measurement, Point, catalogue_name

_FOLDER = "throughputs_"


def points(path: str | Path, gpu: str | None = None) -> dict[Point, Measurement]:
    """Read one file, whose name is the model's, or all files of a folder.

    Parameters
    ----------
    gpu : GPU type; None: told by the folder's name, throughputs_<GPU type>.

    Raises
    ------
    PerformanceError
        Not such files, or no GPU type.
    """
    path = Path(path)
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    if not files:
        raise PerformanceError("no throughputs in the folder", where=str(path), allowed="<model>.csv")
    folder = files[0].resolve().parent.name
    if gpu is None and not folder.startswith(_FOLDER):
        raise PerformanceError("the GPU type is unknown", where=str(path), got=f"folder {folder}",
                               allowed=f"a folder {_FOLDER}<GPU type>, such as {_FOLDER}A100")
    name = catalogue_name(gpu or folder.removeprefix(_FOLDER), str(path))
    return {point: measured for file in files for point, measured in _of_file(file, name).items()}


def _of_file(path: Path, gpu: str) -> dict[Point, Measurement]:
    text, source = read_text(path), str(path)
    first, *counts = header_of(text)
    if first != "global_batch_size" or not counts or not all(c.isascii() and c.isdigit() and int(c) for c in counts):
        raise PerformanceError("not ElasticFlow's throughputs", where=source, got=",".join((first, *counts))[:200],
                               allowed="global_batch_size, then GPU counts")
    found: dict[Point, Measurement] = {}
    lines: dict[int, int] = {}
    for row in rows_of(text, source):
        batch = row.integer("global_batch_size")
        if lines.setdefault(batch, row.line) != row.line:
            raise PerformanceError("a batch size is there twice", where=row.where, got=batch,
                                   allowed=f"each once (first in line {lines[batch]})")
        for count in counts:
            if rate := _rate(row, count):
                found[Point(path.stem, batch, gpu, int(count), ANY_PLACEMENT)] = Measurement(rate)
    return found


def _rate(row: Row, count: str) -> float:
    """Iterations a second; 0: not measurable."""
    return 0.0 if row.cells[count].lower() in ("", "nan") else row.number(count)
