"""Arrow schemas of a run's files: the one place that names result columns, with unit and meaning as metadata.

`docs/results.md` is generated from here (`python -m sim.schema`). Time is float64 seconds on the trace's own clock.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = "3"
#: Versions that are read: columns that a later one added are null in what an earlier one wrote.
READABLE = ("2", SCHEMA_VERSION)


def _field(name: str, kind: pa.DataType, meaning: str, unit: str = "", since: str = "") -> pa.Field:
    """One column; `since`: the version that added it, where that is not the first."""
    return pa.field(name, kind, nullable=True, metadata={"unit": unit, "meaning": meaning, "since": since})


def _schema(meaning: str, *fields: pa.Field) -> pa.Schema:
    return pa.schema(fields, metadata={"meaning": meaning, "schema_version": SCHEMA_VERSION})


_TEXT, _F8, _I4 = pa.string(), pa.float64(), pa.int32()

#: Why a segment ended. "respeed": a neighbour came or went; the job goes on where it is, at another speed.
END_REASONS = ("done", "preempted", "resized", "migrated", "failed", "node_failed", "horizon", "respeed")
#: How a job stands at the end of the run.
STATES = ("done", "killed", "failed", "rejected", "unfinished")

SEGMENTS = _schema(
    "one stretch in which one job held one set of GPUs at one speed: the truth, from which all else follows",
    _field("job_id", _TEXT, "the job"),
    _field("begin_s", _F8, "when it took the GPUs", "s"),
    _field("end_s", _F8, "when it gave them back", "s"),
    _field("nodes", pa.list_(_I4), "nodes held, ascending"),
    _field("gpus", pa.list_(_F8), "GPUs held on each of `nodes` (shares added up)", "GPU"),
    _field("gpu_ids", pa.list_(_I4), "GPU numbers in the cluster, one a slot (GPU g of node n is first GPU of n + g)"),
    _field("gpu_milli", _I4, "share of a GPU that each slot takes", "1/1000 GPU"),
    _field("overhead_s", _F8, "time at the start of the segment without progress (restart)", "s"),
    _field("rate", _F8, "work done a second after the overhead", "work/s"),
    _field("work_done", _F8, "work done in the segment: max(0, end_s - begin_s - overhead_s) × rate", "work"),
    _field("work_lost", _F8, "work thrown away at its end (since the last checkpoint)", "work"),
    _field("end_reason", _TEXT, "one of: " + ", ".join(END_REASONS)),
)
JOBS = _schema(
    "one job of the trace, also those rejected or unfinished, in submit order",
    _field("job_id", _TEXT, "the job"),
    _field("user", _TEXT, "who submitted it"),
    _field("vc", _TEXT, "virtual cluster"),
    _field("submit_s", _F8, "when it entered the queue", "s"),
    _field("first_start_s", _F8, "when it first got GPUs; null: never", "s"),
    _field("end_s", _F8, "when it left for good; null: it did not", "s"),
    _field("num_gpus", _I4, "gang size asked for", "GPU slots"),
    _field("gpu_milli", _I4, "share of a GPU that each slot takes", "1/1000 GPU"),
    _field("gpu_type", _TEXT, "GPU types allowed, joined by '|'; empty: any"),
    _field("model", _TEXT, "model that the job trains; empty: unknown"),
    _field("batch_size", _I4, "global batch; 0: unknown", "samples"),
    _field("duration_s", _F8, "recorded run time in the trace", "s"),
    _field("deadline_s", _F8, "when it should have ended; null: it has no deadline", "s", since="3"),
    _field("priority", _F8, "weight of the job in the trace: a larger one matters more", since="3"),
    _field("work_total", _F8, "work asked for, in the unit that run.json names (s or iterations)", "work"),
    _field("state", _TEXT, "one of: " + ", ".join(STATES)),
    _field("reason", _TEXT, "why it was rejected or is unfinished; empty otherwise"),
)
NODES = _schema(
    "one node of the cluster",
    _field("node", _I4, "node number"),
    _field("gpu_type", _TEXT, "its GPU type"),
    _field("gpus", _I4, "its GPUs", "GPU"),
    _field("first_gpu", _I4, "number of its first GPU in the cluster"),
    _field("rack", _I4, "its rack"),
    _field("price_usd_per_gpu_h", _F8, "price of one GPU-hour; null: unknown, never zero", "USD/GPU-h"),
    *(_field(f"{kind}_usd_per_gpu_h", _F8, f"price of the catalogue, {kind.replace('_', '-')}; null: unknown",
             "USD/GPU-h", since="3") for kind in ("on_demand", "spot", "reserved")),
    _field("busy_w", _F8, "power limit of one GPU: at most what it draws while held", "W", since="3"),
    _field("idle_w", _F8, "what one GPU draws while no job holds it; null: unknown", "W", since="3"),
    _field("down_s", pa.list_(_F8), "times at which it failed, or left by the timetable", "s"),
    _field("up_s", pa.list_(_F8), "times at which it came back (one fewer if it was down at the end)", "s"),
)
DECISIONS = _schema(
    "one policy call",
    _field("now_s", _F8, "when", "s"),
    _field("queued", _I4, "jobs waiting before it"),
    _field("running", _I4, "jobs running before it"),
    _field("started", _I4, "jobs that it started or moved"),
    _field("stopped", _I4, "jobs that it stopped or moved"),
)
PLANS = _schema(
    "one part of one stage of one plan that a policy chose for a job (a stage of one GPU type has one part)",
    _field("job_id", _TEXT, "the job"),
    _field("begin_s", _F8, "when the job started with it", "s"),
    _field("stage", _I4, "stage number, from 0; of n stages those from n / `chunks` on hold no GPUs of their own"),
    _field("part", _I4, "part of the stage, from 0"),
    _field("first_op", _I4, "first operator of the stage"),
    _field("last_op", _I4, "last operator of the stage"),
    _field("ops", pa.list_(_I4), "its operators where the plan has an order of its own, in which the two before are "
           "places; null: the model's order"),
    _field("gpu_type", _TEXT, "GPU type of the part"),
    _field("gpus", _I4, "GPUs of the part", "GPU"),
    _field("share", _F8, "of a micro-batch's samples, those that the part works on"),
    _field("tensor", _I4, "GPUs of a replica (tensor parallelism)", "GPU"),
    _field("micro_batches", _I4, "micro-batches an iteration"),
    _field("schedule", _TEXT, "order of the pipeline; empty: that of the performance model"),
    _field("chunks", _I4, "stages that each GPU runs (interleaved)"),
    _field("recompute", pa.bool_(), "activations are computed again for the backward pass"),
    _field("zero", _I4, "stage of ZeRO"),
    _field("iteration_s", _F8, "time of an iteration as the planner believed it; null: it believed nothing", "s"),
    _field("true_iteration_s", _F8, "time of an iteration on the GPUs that the job got, without neighbours; null: work "
           "is not iterations", "s"),
    _field("memory_gib", _F8, "peak memory of a GPU of the stage (of several parts, of that which is fullest)", "GiB"),
)
FILES: dict[str, pa.Schema] = {
    "segments": SEGMENTS,
    "jobs": JOBS,
    "nodes": NODES,
    "decisions": DECISIONS,
    "plans": PLANS,
}


def markdown() -> str:
    """The results page of the documentation."""
    lines = [
        "# Results: the files of a run",
        "",
        "Generated from `sim/schema.py` by `python -m sim.schema > docs/results.md`; do not edit.",
        "",
        f"Schema version {SCHEMA_VERSION}. A run is a folder with one Parquet file a table, `run.json` (settings, "
        "seeds, hashes, versions; the same bytes for the same run) and `timing.json` (wall time, peak memory).",
    ]
    for name, schema in FILES.items():
        lines += [
            "",
            f"## `{name}.parquet`",
            "",
            f"A row is {schema.metadata[b'meaning'].decode()}.",
            "",
            "| column | type | unit | meaning |",
            "|---|---|---|---|",
        ]
        for f in schema:
            lines.append(
                f"| `{f.name}` | {f.type} | {f.metadata[b'unit'].decode()} | {f.metadata[b'meaning'].decode()} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
