"""Laws of form: the tables can be read as what they say they are.

The laws of conduct, and all that is measured, rest on them: `analysis.run.load_run` refuses a run that breaks one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.run.facts import Facts, Finding, Violation
from analysis.run.one_run import Run, explode
from analysis.run.runjson import settings_typed
from sim.results.schema import END_REASONS, MAINTENANCE, STATES, allowed, nullable, with_further, within
from traces.columns import CUTS


def values_finite(facts: Facts) -> Finding:
    """No NaN, no infinity, and null only where the schema says what null means."""
    count = 0
    for name, field, column, flat in _columns(facts.run):
        count += len(flat)
        for layer in (column, flat):
            if layer.null_count and not (layer is column and nullable(field)):
                row = _row(column, layer, layer.is_null().to_numpy(zero_copy_only=False))
                text = "null, which has no meaning here"
                return Finding(count, "values", _at(name, field, row, text))
        if pa.types.is_floating(flat.type):
            number = flat.to_numpy(zero_copy_only=False)
            wrong = ~np.isfinite(number)
            if flat.null_count:
                wrong &= flat.is_valid().to_numpy(zero_copy_only=False)
            if wrong.any():
                got = float(number[wrong][0])
                found = _at(name, field, _row(column, flat, wrong), "no finite number", got)
                return Finding(count, "values", found)
    return Finding(count, "values")


def values_within(facts: Facts) -> Finding:
    """Each number lies within what the schema allows in its column."""
    count = 0
    for name, field, column, flat in _columns(facts.run):
        ends = within(field)
        if ends is None:
            continue
        count += len(flat)
        least, most = (end.as_py() for end in pc.min_max(flat).values())
        if least is None or (least >= ends[0] and most <= ends[1]):
            continue
        number = flat.to_numpy(zero_copy_only=False)
        wrong = (number < ends[0]) | (number > ends[1])
        got = number[wrong][0].item()
        return Finding(count, "numbers", _at(name, field, _row(column, flat, wrong), "out of range", got))
    return Finding(count, "numbers")


def _columns(run: Run) -> Iterator[tuple[str, pa.Field, pa.Array, pa.Array]]:
    """Each column: table, field, values, and the values or, of lists, their elements."""
    for name, table in run.tables.items():
        for field in with_further(name, table.column_names):
            column = table[field.name].combine_chunks()
            yield name, field, column, column.flatten() if pa.types.is_list(column.type) else column


def _row(column: pa.Array, layer: pa.Array, wrong: np.ndarray) -> int:
    """Row of the first wrong value."""
    first = int(np.flatnonzero(wrong)[0])
    return first if layer is column else int(pc.list_parent_indices(column)[first].as_py())


def _at(table: str, field: pa.Field, row: int, text: str, got: object = None) -> Violation:
    where = f"{table}.parquet, column {field.name!r}, row {row}"
    return Violation(text, where=where, got=got, allowed=allowed(field))


def words_known(facts: Facts) -> Finding:
    """Each state, end reason and change by maintenance is one of those that the schema lists."""
    for table, column, known in (
        ("jobs", "state", STATES), ("jobs", "cut", (*CUTS, None)), ("segments", "end_reason", END_REASONS),
        ("nodes", "maintenance", MAINTENANCE),
    ):
        cells = facts.run.tables[table][column].combine_chunks()
        words = cells.flatten() if pa.types.is_list(cells.type) else cells
        fine = pc.is_in(words, pa.array(known, words.type))
        if not pc.all(fine, min_count=0).as_py():
            first = pc.index(fine, pa.scalar(False)).as_py()
            row = _row(cells, words, ~fine.to_numpy(zero_copy_only=False))
            where = f"{table}.parquet, column {column!r}, row {row}"
            fit = ", ".join(word or "blank" for word in known if word is not None)
            found = Violation("unknown word", where=where, got=words[first].as_py(), allowed=fit)
            return Finding(len(words), "words", found)
    return Finding(len(facts.state) + len(facts.begin), "words")


def tables_whole(facts: Facts) -> Finding:
    """There are jobs and nodes, and as many jobs and decisions as run.json says."""
    run = facts.run
    trace = run.info.get("trace", {}).get("jobs")
    found = None
    for table, said in (("jobs", trace), ("decisions", run.info.get("decisions")), ("nodes", None)):
        rows = len(run.tables[table])
        least = 0 if table == "decisions" else 1
        if found is None and (rows < least or (said is not None and rows != said)):
            found = Violation("rows are missing, or too many", where=f"{table}.parquet", got=rows,
                              allowed=f"{said:,} rows, as run.json says" if said else "1 row or more")
    return Finding(3, "tables", found)


def jobs_once(facts: Facts) -> Finding:
    """Job ids are unique, in submit order; segments and plans name no others."""
    jobs, run = len(facts.ids), facts.run
    found = None
    if pc.count_distinct(facts.ids).as_py() != jobs:
        counts = pc.value_counts(facts.ids)
        twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        found = Violation("is there more than once", where="jobs.parquet", job_id=twice[0].as_py())
    elif (np.diff(facts.submit) < 0).any():
        row = int(np.flatnonzero(np.diff(facts.submit) < 0)[0]) + 1
        found = Violation("not in submit order", where=f"jobs.parquet, row {row}", job_id=facts.job_id(row))
    plans = pc.index_in(run.tables["plans"]["job_id"], facts.ids.combine_chunks())
    for table, rows in (("segments", facts.job), ("plans", pc.fill_null(plans, -1).to_numpy())):
        if found is None and (rows < 0).any():
            row = int(np.flatnonzero(rows < 0)[0])
            found = Violation("is not in jobs.parquet", where=f"{table}.parquet, row {row}",
                              job_id=run.tables[table]["job_id"][row].as_py())
    return Finding(jobs, "jobs", found)


def nodes_counted(facts: Facts) -> Finding:
    """Nodes are numbered 0, 1, …, GPUs node by node; no other number occurs; outages do not overlap, nor does
    maintenance of one GPU."""
    run = facts.run
    gpus, node = run.column("nodes", "gpus").astype(np.int64), run.column("nodes", "node")
    first = np.cumsum(gpus) - gpus
    bad = (node != np.arange(len(node))) | (run.column("nodes", "first_gpu") != first)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        got = {name: run.tables["nodes"][name][row].as_py() for name in ("node", "first_gpu")}
        found = Violation("number or first GPU does not add up", where=f"nodes.parquet, row {row}", node=row, got=got,
                          allowed=f"node {row}, first_gpu {first[row]}")
        return Finding(len(node), "nodes", found)
    return Finding(len(node), "nodes", _numbers(facts, len(node), int(gpus.sum())) or _turns(run) or _rounds(run))


def _numbers(facts: Facts, nodes: int, gpus: int) -> Violation | None:
    """The first segment that names a node or GPU that is not there, or whose lists do not fit."""
    table = facts.run.tables["segments"]
    for what, name, size in (("GPU", "gpu_ids", gpus), ("node", "nodes", nodes)):
        column = table[name].combine_chunks()
        flat = column.flatten()
        most = pc.max(flat).as_py()
        if most is not None and most >= size:
            row = _row(column, flat, flat.to_numpy() >= size)
            return Violation(f"no such {what}: {most} (there are {size})", job_id=facts.job_id(facts.job[row]),
                             where=f"segments.parquet, column {name!r}, row {row}")
    lengths = {name: pc.list_value_length(table[name]).to_numpy() for name in ("nodes", "gpus", "gpu_ids")}
    for name, bad in (("gpus", lengths["nodes"] != lengths["gpus"]), ("gpu_ids", lengths["gpu_ids"] == 0)):
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            return Violation("lists of nodes and of GPUs differ in length, or hold nothing",
                             where=f"segments.parquet, column {name!r}, row {row}", job_id=facts.job_id(facts.job[row]))
    return None


def _turns(run: Run) -> Violation | None:
    """The first node whose times down and up do not alternate."""
    downs, ups = (run.tables["nodes"][name].to_pylist() for name in ("down_s", "up_s"))
    for node, (down, up) in enumerate(zip(downs, ups, strict=True)):
        turns = [time for pair in zip(down, [*up, np.inf], strict=False) for time in pair]
        if len(down) - len(up) not in (0, 1) or turns != sorted(turns):
            return Violation("times down and up do not alternate", where="nodes.parquet", node=node,
                             got={"down_s": down, "up_s": up})
    return None


def _rounds(run: Run) -> Violation | None:
    """The first node with a GPU that is not drained, out and back in turn, at times that go forward."""
    columns = ("maintenance", "maintenance_s", "maintenance_gpu", "first_gpu", "gpus")
    for node, row in enumerate(run.tables["nodes"].select(columns).to_pylist()):
        what, times, gpus = (row[name] or [] for name in columns[:3])
        turns: dict[int, list[str]] = {}
        for gpu, word in zip(gpus, what, strict=False):
            turns.setdefault(gpu, []).append(word)
        own = all(row["first_gpu"] <= gpu < row["first_gpu"] + row["gpus"] for gpu in turns)
        right = all(word == MAINTENANCE[at % 3] for words in turns.values() for at, word in enumerate(words))
        if not (len(what) == len(times) == len(gpus) and times == sorted(times) and own and right):
            return Violation("maintenance is no turn of drained, out and back of the node's GPUs",
                             where="nodes.parquet", node=node, got={name: row[name] for name in columns[:3]})
    return None


def time_forward(facts: Facts) -> Finding:
    """Segments and decisions lie within the run; no segment ends before it begins; decisions are in order."""
    start, stop = facts.run.window_s
    begin, end, now = facts.begin, facts.end, facts.run.column("decisions", "now_s")
    found = facts.of_segments(
        (end < begin) | (begin < start) | (end > stop),
        lambda i: f"segment from {begin[i]} to {end[i]} s in a run from {start} to {stop} s",
        file="segments.parquet",
    )
    back = np.flatnonzero((now < np.maximum.accumulate(np.concatenate(([start], now)))[:-1]) | (now > stop))
    if len(back) and (found is None or now[back[0]] < float(found.time_s or 0.0)):
        text = f"decision {back[0]} lies before an earlier one or outside the run"
        found = Violation(text, float(now[back[0]]), where="decisions.parquet")
    return Finding(len(begin) + len(now), "segments and decisions", found)


def jobs_timed(facts: Facts) -> Finding:
    """``submit_s <= first_start_s <= end_s``: a start where the job has segments, an end where it ran to its end."""
    submit, start, end = facts.submit, facts.first_start, facts.job_end
    ran = np.bincount(facts.job, minlength=len(submit)) > 0
    bad = (ran == np.isnan(start)) | (facts.ended == np.isnan(end)) | (start < submit) | (end < start)
    return Finding(
        len(submit),
        "jobs",
        facts.of_jobs(
            bad,
            lambda i: (
                f"{facts.state[i]}, {'with' if ran[i] else 'without'} segments; "
                f"submitted at {submit[i]} s, first start {start[i]} s, end {end[i]} s"
            ),
            file="jobs.parquet",
        ),
    )


def _in_segments(found: Violation | None) -> Violation | None:
    return None if found is None else replace(found, where="segments.parquet")


def no_overlap(facts: Facts) -> Finding:
    """In the order of the file, each segment of a job begins at or after the end of the one before."""
    order = np.argsort(facts.job, kind="stable")
    same = facts.job[order][1:] == facts.job[order][:-1]
    bad = np.zeros(len(order), dtype=bool)
    before = np.full(len(order), -np.inf)
    before[order[1:]] = facts.end[order[:-1]]
    bad[order[1:]] = same & (facts.begin[order[1:]] < before[order[1:]])
    return Finding(
        int(same.sum()),
        "pairs of segments",
        _in_segments(facts.of_segments(bad, lambda i: f"its segment before ends at {before[i]} s")),
    )


def slots_agree(facts: Facts) -> Finding:
    """`nodes` (ascending) and `gpus` of a segment are what its `gpu_ids` and `gpu_milli` add up to."""
    segment, gpu = facts.slots
    held, size = facts.run.held, len(facts.run.nodes)
    milli = facts.run.column("segments", "gpu_milli").astype(np.int64)
    pair, slots = np.unique(segment * size + facts.gpu_node[gpu], return_counts=True)
    said = held.segment * size + held.node
    bad = np.bincount(pair // size, minlength=len(milli)) != np.bincount(held.segment, minlength=len(milli))
    bad[held.segment[1:][np.diff(said) <= 0]] = True
    # Both lists are in order of (segment, node), so where they agree they agree entry by entry.
    shares = explode(facts.run.tables["segments"]["gpus"])[1]
    if np.array_equal(pair, said):
        bad[held.segment[np.abs(shares * 1000.0 - slots * milli[pair // size]) > 1e-6]] = True
    else:
        bad[held.segment[~np.isin(said, pair)]] = True
        bad[pair[~np.isin(pair, said)] // size] = True
    nodes, gpus, ids = (facts.run.tables["segments"][c] for c in ("nodes", "gpus", "gpu_ids"))
    return Finding(
        len(said),
        "nodes of segments",
        _in_segments(facts.of_segments(
            bad,
            lambda i: (
                f"GPUs {ids[i].as_py()} of {milli[i]} milli; nodes {nodes[i].as_py()}, gpus {gpus[i].as_py()}"
            ),
        )),
    )


LAWS: dict[str, Callable[[Facts], Finding]] = {
    "run.json says what it may": settings_typed,
    "values are finite": values_finite,
    "values are in range": values_within,
    "words are known": words_known,
    "tables are whole": tables_whole,
    "each job is there once": jobs_once,
    "nodes and GPUs are numbered as counted": nodes_counted,
    "time goes forward": time_forward,
    "jobs say when they ran": jobs_timed,
    "segments of a job do not overlap": no_overlap,
    "slots agree with nodes": slots_agree,
}
"""In this order: each rests on those before it."""


def malformed(run: Run) -> Violation | None:
    """The first law of form that a run breaks."""
    facts = Facts(run)
    for name, law in LAWS.items():
        found = law(facts).violation
        if found is not None:
            return found.named(name)
    return None
