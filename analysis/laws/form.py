"""Laws of form: the tables can be read as what they say they are. The laws of conduct rest on them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.laws.facts import Facts, Finding, Violation
from sim.schema import END_REASONS, STATES

NULLABLE = {
    ("jobs", "first_start_s"),
    ("jobs", "end_s"),
    ("jobs", "work_total"),
    ("jobs", "deadline_s"),
    ("jobs", "priority"),
    ("nodes", "price_usd_per_gpu_h"),
    ("nodes", "on_demand_usd_per_gpu_h"),
    ("nodes", "spot_usd_per_gpu_h"),
    ("nodes", "reserved_usd_per_gpu_h"),
    ("nodes", "busy_w"),
    ("nodes", "idle_w"),
    ("plans", "iteration_s"),
    ("plans", "true_iteration_s"),
    ("plans", "ops"),
    ("plans", "memory_gib"),
}
"""Columns in which null says 'unknown' or 'never'; laws of conduct check when a job may have one."""
NAN_OK = {("plans", "iteration_s")}
"""A planner may believe nothing about the time of an iteration."""


def values_finite(facts: Facts) -> Finding:
    """No NaN, no infinity, and null only where the schema says what null means."""
    count = 0
    for name, table in facts.run.tables.items():
        for column in table.column_names:
            values = table[column].combine_chunks()
            layers = [values, values.flatten()] if pa.types.is_list(values.type) else [values]
            for layer in layers:
                wrong = np.zeros(len(layer), dtype=bool)
                if (name, column) not in NULLABLE:
                    wrong |= layer.is_null().to_numpy(zero_copy_only=False)
                if pa.types.is_floating(layer.type):
                    number = layer.to_numpy(zero_copy_only=False)
                    nan = np.isnan(number) & layer.is_valid().to_numpy(zero_copy_only=False)
                    wrong |= np.isinf(number) | (nan if (name, column) not in NAN_OK else False)
                count += len(layer)
                if wrong.any():
                    row = int(np.flatnonzero(wrong)[0])
                    what = "row" if layer is values else "list element"
                    text = f"{name}.parquet, column {column!r}, {what} {row}: {layer[row].as_py()}"
                    return Finding(count, "values", Violation(text))
    return Finding(count, "values")


def words_known(facts: Facts) -> Finding:
    """Each state and end reason is one of those that the schema lists."""
    for table, column, known in (("jobs", "state", STATES), ("segments", "end_reason", END_REASONS)):
        words = facts.run.tables[table][column]
        fine = pc.is_in(words, pa.array(known))
        if not pc.all(fine, min_count=0).as_py():
            row = pc.index(fine, pa.scalar(False)).as_py()
            found = Violation(f"{table}.parquet, column {column!r}, row {row}: {words[row].as_py()!r}")
            return Finding(len(words), "words", found)
    return Finding(len(facts.state) + len(facts.begin), "words")


def jobs_once(facts: Facts) -> Finding:
    """Job ids are unique, in submit order, as many as in the trace; segments and plans name no others."""
    jobs, run = len(facts.ids), facts.run
    found = None
    counts = pc.value_counts(facts.ids)
    twice = pc.greater(counts.field("counts"), 1)
    named = run.info.get("trace", {}).get("jobs")
    if pc.any(twice).as_py():
        name = counts.field("values").filter(twice)[0].as_py()
        found = Violation("is in jobs.parquet more than once", job_id=name)
    elif isinstance(named, int) and named != jobs:
        found = Violation(f"jobs.parquet has {jobs} jobs, the trace had {named}")
    elif (np.diff(facts.submit) < 0).any():
        row = int(np.flatnonzero(np.diff(facts.submit) < 0)[0]) + 1
        found = Violation("jobs.parquet is not in submit order", job_id=facts.job_id(row))
    for table in ("segments", "plans"):
        stray = pc.invert(pc.is_in(run.tables[table]["job_id"], facts.ids.combine_chunks()))
        if found is None and pc.any(stray).as_py():
            found = Violation(
                f"is in {table}.parquet but not in jobs.parquet",
                job_id=run.tables[table]["job_id"].filter(stray)[0].as_py(),
            )
    return Finding(jobs, "jobs", found)


def nodes_counted(facts: Facts) -> Finding:
    """Nodes are numbered 0, 1, …, GPUs node by node; no other number occurs; outages do not overlap."""
    run = facts.run
    gpus, node = run.column("nodes", "gpus").astype(np.int64), run.column("nodes", "node")
    found = None
    bad = (
        (node != np.arange(len(node)))
        | (gpus < 1)
        | (run.column("nodes", "first_gpu") != np.cumsum(gpus) - gpus)
    )
    if bad.any():
        return Finding(
            len(node),
            "nodes",
            Violation("number, GPUs or first GPU do not add up", node=int(np.flatnonzero(bad)[0])),
        )
    for what, values, size in (("GPU", facts.slots[1], int(gpus.sum())), ("node", run.held.node, len(node))):
        outside = (values < 0) | (values >= size)
        if found is None and outside.any():
            found = Violation(f"no such {what}: {values[outside][0]} (there are {size})")
    tables = run.tables["segments"]
    ragged = pc.not_equal(pc.list_value_length(tables["nodes"]), pc.list_value_length(tables["gpus"]))
    if found is None and pc.any(ragged).as_py():
        found = Violation(
            "lists of nodes and of GPUs differ in length", job_id=tables["job_id"].filter(ragged)[0].as_py()
        )
    for n, (down, up) in enumerate(
        zip(run.tables["nodes"]["down_s"].to_pylist(), run.tables["nodes"]["up_s"].to_pylist(), strict=True)
    ):
        turns = [t for pair in zip(down, [*up, np.inf], strict=False) for t in pair]
        if found is None and (len(down) - len(up) not in (0, 1) or turns != sorted(turns)):
            found = Violation("times down and up do not alternate", node=n)
    return Finding(len(node), "nodes", found)
