"""Microsoft ITP 2021: one CSV a cluster, one row a job, times in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.readers.rows import lines_of_files
from traces.reading.reader import Reader
from traces.reading.tally import Tally
from traces.reading.text import LONGEST_RUN_S, Table, read_table
from traces.reading.unpack import files_by, inner_name, only
from traces.trace import Provenance, Trace

HEADER = ("job_id", "submission_time", "duration", "num_gpu")
DRAWN = ("num_iteration", "model_name", "deadline", "batch_size")


def read_itp(path: Path) -> Trace:
    """Read `job_id,submission_time,duration,num_gpu`, from one file or from a folder of them.

    Where: the repository elasticflow-traces of the GitHub organisation microsoft, data/raw-traces.tar.gz (MIT); columns
    after its README; used in Gu et al., "ElasticFlow", ASPLOS 2023. Ten clusters, 69,351 jobs, 2021-03-04 to
    2021-05-03; six of the clusters have 39,480 of them.

    ================  =====================================================================================
    source            becomes
    ================  =====================================================================================
    job_id            job_id
    submission_time   submit_s, as given (s from the start of the collection, the same for all clusters)
    duration          duration_s, in s
    num_gpu           num_gpus; rows with 0 are dropped and counted
    (file name)       vc: clusters do not share GPUs; cluster02 of cluster02.csv, cluster02.csv.gz, …
    num_iteration     work_iters         in data/elasticflow-traces.tar.gz only, and there drawn at random or by
    model_name        model              rule, as its README says
    batch_size        batch_size
    deadline          deadline_s, on the clock of submission_time
    ================  =====================================================================================

    There is no status in the files: all are "unknown". At what time of day the collection began is not told, nor how
    large the clusters are. Jobs under ten minutes are nearly absent, so the files are no picture of short jobs.

    Raises
    ------
    TraceError
        See `traces.reading.text.read_table` and `Trace.from_columns`; a folder without CSV files, with two of one
        cluster, or with both layouts.
    """
    files, others = _files(path) if path.is_dir() else ({_cluster(path.name) or path.stem: path}, ())
    tables = [read_table(file, HEADER) for file in files.values()]
    drawn = _layout(tables)
    several, total = len(files) > 1, Tally()
    for file, table in zip(files.values(), tables, strict=True):
        tally = Tally(table.lines)
        gpus = table.number("num_gpu", integer=True, high=1e6)
        tally.rows("CPU-only jobs dropped", gpus == 0)
        tally.rows("zero-length jobs kept", (gpus > 0) & (table.number("duration", high=LONGEST_RUN_S) == 0))
        for what, count in tally.counts.items():
            total.add(what, count, (f"{file.name}, " * several + place for place in tally.first[what]))
    keep = np.flatnonzero(_joined(tables, "num_gpu") > 0)
    columns = {
        "job_id": np.concatenate([t.text("job_id") for t in tables])[keep],
        "submit_s": _joined(tables, "submission_time")[keep],
        "duration_s": _joined(tables, "duration")[keep],
        "num_gpus": _joined(tables, "num_gpu")[keep],
        "vc": np.repeat(np.array(list(files), dtype=object), [len(t) for t in tables])[keep],
        "status": np.full(len(keep), "unknown", dtype=object),
    }
    if drawn:
        columns |= {
            "work_iters": _joined(tables, "num_iteration")[keep], "deadline_s": _joined(tables, "deadline")[keep],
            "batch_size": _joined(tables, "batch_size")[keep],
            "model": np.concatenate([t.text("model_name") for t in tables])[keep],
        }
    notes = (f"{len(files)} cluster file(s) read", *drawn * ("models, batches, iterations and deadlines are drawn",),
             *(f"in the folder and not read: {', '.join(names)}" for names in [others[:5]] if names))
    provenance = Provenance(source=str(path), format="itp", rule="duration_s as recorded", notes=notes,
                            rates="the publishers' throughputs",
                            rows_read=sum(map(len, tables)), counts=total.counts, first=total.first)
    rows = np.concatenate([t.lines for t in tables])[keep]
    if several:
        rows = lines_of_files([f.name for f in files.values()], [t.lines for t in tables])[keep]
    return Trace.from_columns(columns, provenance, rows=rows, row_word="file" if several else "line")


def _files(folder: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """The file of each cluster, and the names of what else is in the folder."""
    files = {name: only(same) for name, same in files_by(folder, _cluster).items()}
    if not files:
        raise TraceError("no CSV files in the folder", where=str(folder), allowed="one CSV a cluster")
    return files, tuple(name for same in files_by(folder, lambda n: None if _cluster(n) else n).values()
                        for name in [same[0].name])


def _cluster(name: str) -> str | None:
    """cluster02 of cluster02.csv, cluster02.csv.gz, …; None: no CSV."""
    inner = inner_name(name)
    return inner.removesuffix(".csv") if inner.endswith(".csv") else None


def _layout(tables: list[Table]) -> bool:
    """Whether the files have what the publishers drew; a TraceError that names two files where some have it."""
    having = [all(name in table for name in DRAWN) for table in tables]
    if any(having) and not all(having):
        first, other = tables[having.index(True)].source, tables[having.index(False)].source
        raise TraceError("files of two layouts in one folder", where=str(Path(first).parent),
                         got=f"{Path(first).name} with {', '.join(DRAWN)}, {Path(other).name} without",
                         allowed="files of one layout", todo="Put them into two folders.")
    return all(having)


def _joined(tables: list[Table], name: str) -> np.ndarray:
    """A column of all files, one after the other."""
    highest = {"num_gpu": 1e6, "duration": LONGEST_RUN_S}.get(name, np.inf)
    whole = name in ("num_gpu", "batch_size")
    return np.concatenate([t.number(name, integer=whole, high=highest) for t in tables])


READER = Reader(
    name="itp",
    description="Microsoft ITP: job_id,submission_time,duration,num_gpu; a file or a folder of cluster files",
    public="https://github.com/microsoft/elasticflow-traces (data/raw-traces.tar.gz, one cluster0N.csv a cluster)",
    licence="MIT",
    header=HEADER,
    read=read_itp,
    folders=True,
)
