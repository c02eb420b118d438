"""Arrow schemas of a run's files: the one place that names result columns, with unit and meaning as metadata.

And what who writes results and who reads them agree on beside: words, versions, what JSON can hold.

`docs/results.md` is generated from here (`python -m sim.results.schema`). Time is float64 seconds on the trace's own
clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from textwrap import wrap
from typing import Any

import pyarrow as pa

from traces import leftovers
from traces.columns import MAX_TIME_S

SCHEMA_VERSION = "5"
#: Versions that are read: columns that a later one added are null in what an earlier one wrote.
READABLE = ("2", "3", "4", SCHEMA_VERSION)


def _field(
    name: str,
    kind: pa.DataType,
    meaning: str,
    unit: str = "",
    since: str = "",
    within: tuple[float, float] | None = None,
    null: bool = False,
) -> pa.Field:
    """One column; `since`: the version that added it, where that is not the first.

    `within`: smallest and largest value (of a list: of its elements); `null`: whether null has a meaning there.
    Who reads results refuses other values: not one of them is a number that the simulator could have written.
    """
    low, high = ("", "") if within is None else (repr(float(end)) for end in within)
    told = {"unit": unit, "meaning": meaning, "since": since, "low": low, "high": high, "null": "yes" if null else ""}
    return pa.field(name, kind, nullable=True, metadata=told)


def within(field: pa.Field) -> tuple[float, float] | None:
    """Smallest and largest value of a column; None: any (text)."""
    low, high = field.metadata[b"low"], field.metadata[b"high"]
    return (float(low), float(high)) if low else None


def nullable(field: pa.Field) -> bool:
    """Whether null means something in a column ("unknown", "never")."""
    return bool(field.metadata[b"null"])


def allowed(field: pa.Field) -> str:
    """What a column may hold, in words; empty: any text."""
    ends = within(field)
    said = []
    if ends is not None:
        low, high = (f"{end:.7g}".replace("e+0", "e").replace("e+", "e") for end in ends)
        said = [f"{low} or more" if ends[1] == _MAX_I4 else f"{low} to {high}"]
    return ", or ".join(said + ["null"] * nullable(field))


def _schema(meaning: str, *fields: pa.Field) -> pa.Schema:
    return pa.schema(fields, metadata={"meaning": meaning, "schema_version": SCHEMA_VERSION})


_TEXT, _F8, _I4 = pa.string(), pa.float64(), pa.int32()
_TIME, _SPAN = (-MAX_TIME_S, MAX_TIME_S), (0.0, MAX_TIME_S)
_WORK, _RATE = (0.0, 1e20), (0.0, 1e9)
_MAX_I4 = 2**31 - 1
_SHARE, _COUNT, _FROM_1 = (1, 1000), (0, _MAX_I4), (1, _MAX_I4)
_NODE_GPUS, _USD, _WATT = (1, 100_000), (0.0, 1e9), (0.0, 1e9)

#: Why a segment ended. "respeed": a neighbour came or went; the job goes on where it is, at another speed.
#: "lease_ended": its GPUs were given for a time, and nobody renewed it.
END_REASONS = (
    "done", "preempted", "resized", "migrated", "failed", "node_failed", "horizon", "respeed", "lease_ended",
    "maintenance",
)
#: What maintenance does to a GPU, in this order: no new job starts on it; it is out of service; it is back.
DRAINED, OUT, BACK = MAINTENANCE = ("drained", "out", "back")
#: How a job stands at the end of the run. "rejected": it could never run here; "refused": it could, but was not let in.
STATES = ("done", "killed", "failed", "rejected", "refused", "unfinished")

SWEEP_LAYOUT = 1
"""Version of the layout of a sweep's folder."""
CELL_DONE, CELL_FAILED, CELL_WAITING = "done", "failed", "waiting"
"""How a cell of a sweep stands."""

SEGMENTS = _schema(
    "one stretch in which one job held one set of GPUs at one speed: the truth, from which all else follows",
    _field("job_id", _TEXT, "the job"),
    _field("begin_s", _F8, "when it took the GPUs", "s", within=_TIME),
    _field("end_s", _F8, "when it gave them back", "s", within=_TIME),
    _field("nodes", pa.list_(_I4), "nodes held, ascending", within=_COUNT),
    _field("gpus", pa.list_(_F8), "GPUs held on each of `nodes` (shares added up)", "GPU", within=(0.001, 100_000.0)),
    _field("gpu_ids", pa.list_(_I4), "GPU numbers in the cluster, one a slot (GPU g of node n is first GPU of n + g)",
           within=_COUNT),
    _field("gpu_milli", _I4, "share of a GPU that each slot takes", "1/1000 GPU", within=_SHARE),
    _field("overhead_s", _F8, "time at the start of the segment without progress (restart)", "s", within=_SPAN),
    _field("rate", _F8, "work done a second after the overhead", "work/s", within=_RATE),
    _field("work_done", _F8, "work done in the segment: max(0, end_s - begin_s - overhead_s) × rate", "work",
           within=_WORK),
    _field("work_lost", _F8, "work thrown away at its end (since the last checkpoint)", "work", within=_WORK),
    _field("end_reason", _TEXT, "one of: " + ", ".join(END_REASONS)),
    _field("batch_size", _I4, "samples an iteration, where the policy set them; null: the job's own", "samples",
           since="4", within=_FROM_1, null=True),
    _field("power_cap_w", _F8, "what each of its GPUs draws while held; null: no cap, it draws `busy_w` of its node",
           "W", since="4", within=_WATT, null=True),
    _field("lease_until_s", _F8, "when its lease was to end, as last renewed; null: it had none", "s", since="4",
           within=_TIME, null=True),
)
JOBS = _schema(
    "one job of the trace, also those rejected or unfinished, in submit order",
    _field("job_id", _TEXT, "the job"),
    _field("user", _TEXT, "who submitted it"),
    _field("vc", _TEXT, "virtual cluster"),
    _field("submit_s", _F8, "when it entered the queue", "s", within=_TIME),
    _field("first_start_s", _F8, "when it first got GPUs; null: never", "s", within=_TIME, null=True),
    _field("end_s", _F8, "when it left for good; null: it did not, or was turned away", "s", within=_TIME, null=True),
    _field("num_gpus", _I4, "gang size asked for", "GPU slots", within=(1, 1_000_000)),
    _field("gpu_milli", _I4, "share of a GPU that each slot takes", "1/1000 GPU", within=_SHARE),
    _field("gpu_type", _TEXT, "GPU types allowed, joined by '|'; empty: any"),
    _field("model", _TEXT, "model that the job trains; empty: unknown"),
    _field("batch_size", _I4, "global batch; 0: unknown", "samples", within=_COUNT),
    _field("duration_s", _F8, "recorded run time in the trace", "s", within=_SPAN),
    _field("cut", _TEXT, "what the log does not show of it, so that it holds GPUs and is counted apart: before, after "
           "its begin and end, both; empty or null: nothing", since="5", null=True),
    _field("deadline_s", _F8, "when it should have ended; null: it has no deadline", "s", since="3",
           within=_TIME, null=True),
    _field("priority", _F8, "weight of the job in the trace: a larger one matters more", since="3",
           within=(0.0, 1e9), null=True),
    _field("min_batch_size", _I4, "smallest batch that the job allows; 0: its own", "samples", since="4",
           within=_COUNT, null=True),
    _field("max_batch_size", _I4, "largest batch that the job allows; 0: its own", "samples", since="4",
           within=_COUNT, null=True),
    _field("min_gpus", _I4, "fewest GPUs that the job runs on if resized; 0: it says nothing", "GPU slots", since="4",
           within=_COUNT, null=True),
    _field("max_gpus", _I4, "most GPUs that the job runs on if resized; 0: it says nothing", "GPU slots", since="4",
           within=_COUNT, null=True),
    _field("work_total", _F8, "work asked for, in the unit that run.json names (s or iterations)", "work",
           within=_WORK, null=True),
    _field("state", _TEXT, "one of: " + ", ".join(STATES)),
    _field("reason", _TEXT, "why it was rejected, refused or is unfinished; empty or null otherwise", null=True),
)
NODES = _schema(
    "one node of the cluster",
    _field("node", _I4, "node number", within=_COUNT),
    _field("gpu_type", _TEXT, "its GPU type"),
    _field("gpus", _I4, "its GPUs", "GPU", within=_NODE_GPUS),
    _field("first_gpu", _I4, "number of its first GPU in the cluster", within=_COUNT),
    _field("rack", _I4, "its rack", within=_COUNT),
    _field("price_usd_per_gpu_h", _F8, "price of one GPU-hour; null: unknown, never zero", "USD/GPU-h",
           within=_USD, null=True),
    *(_field(f"{kind}_usd_per_gpu_h", _F8, f"price of the catalogue, {kind.replace('_', '-')}; null: unknown",
             "USD/GPU-h", since="3", within=_USD, null=True) for kind in ("on_demand", "spot", "reserved")),
    _field("busy_w", _F8, "power limit of one GPU: at most what it draws while held", "W", since="3",
           within=_WATT, null=True),
    _field("idle_w", _F8, "what one GPU draws while no job holds it; null: unknown", "W", since="3",
           within=_WATT, null=True),
    _field("down_s", pa.list_(_F8), "times at which it failed, or left by the timetable", "s", within=_TIME),
    _field("up_s", pa.list_(_F8), "times at which it came back (one fewer if it was down at the end)", "s",
           within=_TIME),
    _field("maintenance", pa.list_(_TEXT), "what maintenance did to its GPUs, in order of time, each one of: "
           + ", ".join(MAINTENANCE) + "; null: nothing", since="4", null=True),
    _field("maintenance_s", pa.list_(_F8), "when, for each of `maintenance`", "s", since="4", within=_TIME, null=True),
    _field("maintenance_gpu", pa.list_(_I4), "to which GPU (its number in the cluster), for each of `maintenance`",
           since="4", within=_COUNT, null=True),
)
DECISIONS = _schema(
    "one policy call",
    _field("now_s", _F8, "when", "s", within=_TIME),
    _field("queued", _I4, "jobs waiting before it", within=_COUNT),
    _field("running", _I4, "jobs running before it", within=_COUNT),
    _field("started", _I4, "jobs that it started or moved", within=_COUNT),
    _field("stopped", _I4, "jobs that it stopped or moved", within=_COUNT),
)
PLANS = _schema(
    "one part of one stage of one plan that a policy chose for a job (a stage of one GPU type has one part)",
    _field("job_id", _TEXT, "the job"),
    _field("begin_s", _F8, "when the job started with it", "s", within=_TIME),
    _field("stage", _I4, "stage number, from 0; of n stages those from n / `chunks` on hold no GPUs of their own",
           within=_COUNT),
    _field("part", _I4, "part of the stage, from 0", within=_COUNT),
    _field("first_op", _I4, "first operator of the stage", within=_COUNT),
    _field("last_op", _I4, "last operator of the stage", within=_COUNT),
    _field("ops", pa.list_(_I4), "its operators where the plan has an order of its own, in which the two before are "
           "places; null: the model's order", within=_COUNT, null=True),
    _field("gpu_type", _TEXT, "GPU type of the part"),
    _field("gpus", _I4, "GPUs of the part", "GPU", within=_FROM_1),
    _field("share", _F8, "of a micro-batch's samples, those that the part works on", within=(0.0, 1e9)),
    _field("tensor", _I4, "GPUs of a replica (tensor parallelism)", "GPU", within=_FROM_1),
    _field("micro_batches", _I4, "micro-batches an iteration", within=_FROM_1),
    _field("schedule", _TEXT, "order of the pipeline; empty: that of the performance model"),
    _field("chunks", _I4, "stages that each GPU runs (interleaved)", within=_FROM_1),
    _field("recompute", pa.bool_(), "activations are computed again for the backward pass"),
    _field("zero", _I4, "stage of ZeRO", within=(0, 3)),
    _field("iteration_s", _F8, "time of an iteration as the planner believed it; null: it believed nothing", "s",
           within=_SPAN, null=True),
    _field("true_iteration_s", _F8, "time of an iteration on the GPUs that the job got, without neighbours; null: work "
           "is not iterations", "s", within=_SPAN, null=True),
    _field("memory_gib", _F8, "peak memory of a GPU of the stage (of several parts, of that which is fullest)", "GiB",
           within=(0.0, 1e9), null=True),
)
#: Columns that a table has besides where the cluster has what they tell of, each with those that come with it: without
#: several zones, or machines of several GPU types, the files are as they ever were.
FURTHER: dict[str, tuple[tuple[pa.Field, ...], ...]] = {
    "segments": ((
        _field("egress_usd_per_work", _F8, "where the cluster has several zones: what a unit of work costs for bytes "
               "that leave one: 0 within one; null: unknown", "USD/work", within=_USD, null=True),
        _field("egress_usd", _F8, "what the segment cost for them, also where work was lost: work_done × "
               "egress_usd_per_work; null: unknown, never zero", "USD", within=(0.0, 1e20), null=True),
    ),),
    "nodes": (
        (_field("zone", _TEXT, "where the cluster has several zones: its zone; empty: it has no name"),),
        (_field("machine", _I4, "where machines hold several GPU types: that which its GPUs are in", within=_COUNT),),
    ),
}
FILES: dict[str, pa.Schema] = {
    "segments": SEGMENTS,
    "jobs": JOBS,
    "nodes": NODES,
    "decisions": DECISIONS,
    "plans": PLANS,
}


def with_further(name: str, there: Collection[str]) -> pa.Schema:
    """The schema of a table with those of `FURTHER` of which any column is there."""
    schema = FILES[name]
    for group in FURTHER.get(name, ()):
        if any(field.name in there for field in group):
            for field in group:
                schema = schema.append(field)
    return schema


def zoned(segments: pa.Table) -> bool:
    """Whether a table of segments tells what bytes that leave a zone cost."""
    return "egress_usd" in segments.column_names


def in_json(value: Any) -> Any:
    """A value as JSON can hold it: infinity, which it has no number for, as text; all else that it lacks, too."""
    if isinstance(value, Mapping):
        return {key: in_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [in_json(entry) for entry in value]
    known = value is None or isinstance(value, bool | int | str)
    return value if known or (isinstance(value, float) and math.isfinite(value)) else str(value)


def markdown() -> str:
    """The results page of the documentation."""
    lines = [
        "# Results: the files of a run",
        "",
        "Generated from `sim/results/schema.py` by `python -m sim.results.schema > docs/results.md`; do not edit.",
        "",
        *wrap(
            f"Schema version {SCHEMA_VERSION}. A run is a folder with one Parquet file a table, `run.json` (settings, "
            "seeds, hashes, versions; the same bytes for the same run) and `timing.json` (wall time, peak memory). "
            "Commands that read a run refuse values outside those given here: the file was damaged or edited.",
            width=120,
        ),
    ]
    for name, schema in FILES.items():
        lines += [
            "",
            f"## `{name}.parquet`",
            "",
            f"A row is {schema.metadata[b'meaning'].decode()}.",
            "",
            "| column | type | unit | values | meaning |",
            "|---|---|---|---|---|",
        ]
        for f in with_further(name, {field.name for group in FURTHER.get(name, ()) for field in group}):
            lines.append(
                f"| `{f.name}` | {f.type} | {f.metadata[b'unit'].decode()} | {allowed(f)} "
                f"| {f.metadata[b'meaning'].decode()} |"
            )
    lines += ["", "## Runs that were killed"]
    for paragraph in (*(leftovers.__doc__ or "").split("\n\n")[1:], _EMPTY):
        lines += ["", *wrap(paragraph, width=120)]
    return "\n".join(lines) + "\n"


_EMPTY = ("An empty folder in `runs/` that no living run has taken is taken by the next run of that name, and left out "
          "by commands that read runs.")

if __name__ == "__main__":
    print(markdown(), end="")
