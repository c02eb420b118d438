"""What `run.json` and `timing.json` must be: the keys that the analysis reads, with their types.

Further keys are kept as they are. A key that is missing has no say; one of another type is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from analysis.run.facts import Facts, Finding, Violation
from sim.results.schema import JOBS, within

_EARLIEST_S, _LATEST_S = within(JOBS.field("submit_s")) or (0.0, 0.0)
Time = Annotated[float, Field(ge=_EARLIEST_S, le=_LATEST_S, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0.0, le=1e15, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Quota = Annotated[int, Field(ge=0, le=10**9)]
Set = Annotated[Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None,
                BeforeValidator(lambda value: None if value == "inf" else value)]
"""A number among the settings: infinity is written as text; null: it is not set."""
_Number = Annotated[float, Field(ge=-1e16, le=1e16, allow_inf_nan=False)]
Steps = Annotated[list[Annotated[list[_Number], Field(min_length=2, max_length=2)]], Field(min_length=1)]
"""Times in s, each with the GPUs of the quota from then on."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Trace(_Part):
    source: str = ""
    format: str = ""
    rule: str = ""
    jobs: Count | None = None
    counts: dict[str, Count] = {}
    notes: list[str] = []
    options: dict[str, Any] = {}
    hash: str | None = None


class _Cluster(_Part):
    name: str = ""
    gpus_by_type: dict[str, Count] = {}


class _Work(_Part):
    mode: str = ""
    unit: str = ""
    rule: str = ""
    worth_gpus: Amount | None = None


class _Settings(_Part):
    preemption_overhead_s: Set = None
    cold_start_s: Set = None
    resize_overhead_s: Set = None
    move_overhead_s: Set = None
    restart_gib_per_s: Set = None
    checkpoint_interval_s: Set = None
    preempted_work: str | None = None
    sharing: str | None = None
    quotas: dict[str, Quota] | None = None
    guarantees: dict[str, Quota] | None = None


class _Timetable(_Part):
    quotas: dict[str, Steps] = {}
    notes: list[str] = []


class _Config(_Part):
    load: Amount | None = None
    engine: dict[str, Any] | None = None
    policy_settings: dict[str, Any] | None = None


class RunJson(_Part):
    """`run.json`. Times are in s on the trace's clock, within the schema's bounds."""

    schema_version: str
    policy: str = ""
    policy_settings: dict[str, Any] = {}
    trace: _Trace = _Trace()
    cluster: _Cluster = _Cluster()
    work: _Work = _Work()
    settings: _Settings = _Settings()
    timetable: _Timetable = _Timetable()
    config: _Config = _Config()
    estimate: str | None = None
    speed_belief: str | None = None
    profiling_s: Amount | None = None
    speed_error: Amount | None = None
    seed: Count | None = None
    one_type_gangs: bool = False
    sizes_gangs: bool = False
    declares: list[str] = []
    start_s: Time
    end_s: Time
    decisions: Count | None = None
    versions: dict[str, str] = {}
    code_hash: str | None = None
    window: None = None  # a measuring window is the reader's: `analysis.measuring_window.windowed` sets it in memory


class TimingJson(_Part):
    """`timing.json`."""

    wall_s: Amount | None = None
    loop_s: Amount | None = None
    peak_mib: Amount | None = None


def settings_typed(facts: Facts) -> Finding:
    """Keys of run.json and timing.json are of the types that the analysis reads; the run ends at or after its start."""
    run = facts.run
    found = _wrong("run.json", RunJson, run.info) or _wrong("timing.json", TimingJson, run.timing)
    if found is None and run.window_s[0] > run.window_s[1]:
        found = Violation("ends before it starts", where="run.json, key 'end_s'", got=run.info["end_s"],
                          allowed=f"from 'start_s' on, {run.info['start_s']} s")
    return Finding(len(run.info) + len(run.timing), "keys", found)


def _wrong(file: str, model: type[BaseModel], content: Mapping[str, Any]) -> Violation | None:
    """The first key that the model refuses."""
    try:
        model.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        missing = first["type"] == "missing"
        said = first["msg"].removeprefix("Input should be ")
        return Violation(
            "a key is missing" if missing else "a key has a value that it cannot have",
            where=f"{file}, key {key!r}", got=None if missing else _Shown(first["input"]),
            allowed="" if missing else said,
        )
    return None


class _Shown:
    """A value, also null, as JSON shows it to who reads the message."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "null" if self.value is None else repr(self.value)
