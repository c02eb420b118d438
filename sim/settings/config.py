"""What to simulate and how the cluster behaves: typed settings out of a TOML file and the command line.

A configuration file has three sections: `[run]` (what to simulate), `[policy]` (the policy's own settings,
which the policy itself checks) and `[engine]` (how the cluster behaves). `list_settings()` lists them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from sim.hardware.gputypes import GpuType, gpu_type, with_types
from sim.settings import beliefs
from sim.settings.hardwarefile import as_table, own_types, read_hardware
from sim.settings.values import (
    MAX_TIME_S,
    ConfigError,
    RefusedError,
    Settings,
    allowed_values,
    checked,
    key_names,
    parse_setting,
    plain,
    read_toml,
    setting,
)
from traces.errors import HetsimError, did_you_mean

__all__ = [
    "ConfigError", "EngineConfig", "RunConfig", "Setting", "config_of", "list_settings", "load_config",
    "parse_setting",
]

_GPUS_BY_NAME = "name = GPUs, an integer from 0 to 1,000,000,000, for each virtual cluster"


class EngineConfig(Settings):
    """How the cluster behaves while it runs jobs."""

    preemption_overhead_s: float = setting(
        30.0, "time without progress at each start after a preemption, move or failure", unit="s", ge=0, le=MAX_TIME_S)
    cold_start_s: float = setting(0.0, "time without progress at a job's first start", unit="s", ge=0, le=MAX_TIME_S)
    resize_overhead_s: float | None = setting(
        None, "time without progress after a resize; left out: preemption_overhead_s", unit="s", ge=0, le=MAX_TIME_S)
    move_overhead_s: float | None = setting(
        None, "time without progress after a move to as many other GPUs; left out: preemption_overhead_s", unit="s",
        ge=0, le=MAX_TIME_S)
    restart_gib_per_s: float | None = setting(
        None, "speed at which a job's weights and optimizer are loaded at each restart, on top of its overhead; left "
        "out: they take no time", unit="GiB/s", gt=0)
    gradient_noise: float = setting(
        1.0, "gradient noise scale of each job, in multiples of its own batch: what a larger batch is worth where a "
        "policy sets batch sizes", ge=0, le=1e9)
    preempted_work: Literal["kept", "lost"] = setting(
        "kept", "work since the last checkpoint: a preemption saves it first (kept) or throws it away (lost)")
    checkpoint_interval_s: float = setting(
        0.0, "working time between checkpoints; 0: continuous, inf: never", unit="s",
        allowed="a number from 0, or inf", ge=0, allow_inf_nan=True)
    retries: bool = setting(True, "replay each failed attempt that the trace records before the last one")
    mtbf_h: float | None = setting(
        None, "mean time between failures of one node (exponential); left out: nodes never fail", unit="h", gt=0)
    repair_h: float = setting(1.0, "time until a failed node is back", unit="h", ge=0, le=1e7)
    contention: Literal["none", "network"] = setting(
        "none", "jobs that share a node's network link or a rack's uplink slow each other down (network) or not (none)")
    sharing: Literal["free", "time", "spatial", "slice"] = setting(
        "free", "jobs with shares of one GPU take turns at no cost (free) or at that of switching_loss (time), or run "
        "side by side and slow each other down where together they ask for too much (spatial), or each has a slice "
        "of its own, of memory too (slice)")
    switching_loss: float = setting(
        0.05, "part of the GPU's time that taking turns costs a job (sharing = time); an estimate", ge=0, lt=1)
    pairs: str | None = setting(
        None, "file of measured pairs (sharing = spatial); pairs that it lacks, and all of them without it, by the "
        "part of a GPU that a job keeps busy", file=True, min_length=1)
    horizon_s: float | None = setting(
        None, "stop this long after the first submission; left out: run to the end", unit="s", gt=0, le=MAX_TIME_S)
    quotas: dict[str, Annotated[int, Field(ge=0, le=10**9)]] = setting(
        {}, "GPUs that each virtual cluster may hold at once; not listed: no limit. Also of one type (name@V100), or "
        "of all virtual clusters in a queue (org, of org/team)", unit="GPU", allowed=_GPUS_BY_NAME)
    guarantees: dict[str, Annotated[int, Field(ge=0, le=10**9)]] = setting(
        {}, "GPUs that each virtual cluster is promised, by names as for quotas: idle ones may be lent to others until "
        "it claims them; kept by policies that know tenants", unit="GPU", allowed=_GPUS_BY_NAME)
    capacity: str | None = setting(
        None, "file of GPUs over time, time_s,vc,gpu_type,gpus: nodes that go and come and, where vc is given, quotas; "
        "left out: all nodes are there", file=True, min_length=1)
    outages: str | None = setting(
        None, "file of nodes that go and come, time_s,node,up; left out: none does", file=True, min_length=1)
    maintenance: str | None = setting(
        None, "file of windows in which GPUs are drained, out and back, node,gpu,drain_s,down_s,up_s,known_s; left "
        "out: none is", file=True, min_length=1)
    fast_lane: Literal["auto", "on", "off"] = setting("auto", "one compiled loop, where a kernel can decide")


_MOMENT = "seconds, a number with min, h or d, or a date such as 2017-10-09"
_NOISY = ("noisy", "noisy-lognormal")
_ESTIMATES = "oracle, noisy:MRE or noisy-lognormal:MRE with MRE a number from 0, or column"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class RunConfig(Settings):
    """What to simulate: one trace under one policy on one cluster."""

    policy: str = setting("hetero", "scheduler: the name of a policy", min_length=1)
    policy_settings: dict[str, Any] = Field({}, description="section [policy]: the policy's own settings")
    trace: str = setting("philly", "trace: a built-in name or a file", file=True, min_length=1)
    format: str | None = setting(None, "format of the trace file; left out: told from its content")
    read: dict[str, str] = setting(
        {}, "options of the trace's reader (hetsim trace formats)", allowed="name = value, for each option")
    gpu_types: dict[str, str] = setting(
        {}, "GPU types that the trace names, and what they are taken for, such as G2 = A10",
        allowed="type of the trace = type of the catalogue")
    submitted_from: str | None = setting(
        None, "only jobs submitted from then on: seconds on the trace's clock, 36h, 7d, or a date in its zone",
        allowed=_MOMENT)
    submitted_to: str | None = setting(None, "only jobs submitted before then", allowed=_MOMENT)
    status: list[str] = setting([], "only jobs that ended so; left out: all", allowed="a list of ends")
    vc: list[str] = setting([], "only jobs of these virtual clusters; left out: all", allowed="a list of names")
    user: list[str] = setting([], "only jobs of these users; left out: all", allowed="a list of names")
    gangs: Literal["keep", "split"] = setting(
        "keep", "jobs of several workers: as they are (keep), or as jobs of one worker each (split)")
    gang_scale: float | None = setting(
        None, "before the policy sees a job it gets the gang that costs least by data parallelism, of up to so many "
        "times the GPUs asked for; left out: the gang asked for (work = iterations)", unit="x gang", ge=1, le=1000)
    assign: str | None = setting(
        None, "recipe by which jobs get a model, batch, deadline or weight that the trace lacks (hetsim trace recipes)",
        min_length=1)
    assign_with: dict[str, str] = setting({}, "settings of the recipe", allowed="name = value, for each setting")
    cluster: str = setting(
        "gavel", "cluster: preset, TOML file, or shorthand such as v100:8x4+t4:2x8", file=True, min_length=1)
    hardware: dict[str, Any] = setting(
        {}, "GPU and CPU types of one's own, kept by value", allowed="a TOML file, or tables gpu.NAME and cpu.NAME")
    prices: str | None = setting(
        None, "what GPUs cost: on-demand, spot or reserved prices of the catalogue, or a file of prices; left out: "
        "those of the cluster's file, else the catalogue's on demand", file=True, min_length=1)
    type_order: Literal["fastest", "cheapest", "listed", "random"] = setting(
        "fastest", "GPU type that a policy blind to speed tries first: the fastest by the model, the cheapest an hour, "
        "as the cluster is written (listed), or one order for the run by seed (random)")
    jobs: int | None = setting(
        None, "use the first so many jobs of the trace; left out: all (of a generated one: a month's, at a load up to "
        "5,000)", unit="jobs", ge=1)
    skip: int = setting(
        0, "leave out the first so many jobs of a trace file, before jobs are counted", unit="jobs", ge=0)
    seed: int = setting(0, "seed of all random numbers", allowed="an integer from 0 to 2**63 - 1", ge=0, lt=2**63)
    load: float | None = setting(
        None, "bring the work offered to this multiple of what the cluster can do; left out: as it is", gt=0, le=1000)
    load_by: Literal["compress", "thin", "repeat"] = setting(
        "compress", "how: arrivals stretched (compress), jobs left out by a hash of their ids (thin), or the trace "
        "laid over itself (repeat); left out: thin for a generated trace, else compress")
    load_rule: Literal["modelled", "recorded"] = setting(
        "modelled", "which load is meant: by modelled speed (modelled), or as if all GPUs were those that run times "
        "were recorded on (recorded); where work = recorded they are one")
    out: str | None = setting(None, "folder of the results; left out: a new one in runs/", min_length=1)
    work: Literal["iterations", "recorded"] = setting(
        "iterations", "what a job must do: iterations of a model, as fast as its GPUs allow (iterations), "
        "or its recorded run time on any GPUs (recorded)")
    reference: str = setting(
        "V100", "GPU type on which recorded run times were taken (work = iterations)",
        allowed="a GPU type of the catalogue")
    calibration: str = setting(
        "scripts", "how well jobs use GPUs (work = iterations): scripts (training scripts of 2018 to 2021), tuned "
        "(optimized code; the default of the generated acme), eager, or a file that hetsim perf --calibrate made",
        file=True, min_length=1)
    optimizer: str = setting(
        "adam", "what training keeps of a parameter (work = iterations): adam (16 bytes), adam-fp32-grads (18), "
        "adam-fp32 (20), adam8bit, sgd-momentum, sgd, adafactor, or bytes in all", allowed="a name, or bytes")
    measured: str | None = setting(
        None, "file or folder of measured rates: jobs whose model it has run at these (work = iterations)",
        file=True, min_length=1)
    layers: str | None = setting(
        None, "file of measured layers: jobs whose model it has run at these, in any plan (work = iterations)",
        file=True, min_length=1)
    layers_from: str | None = setting(
        None, "GPU type by which those without measured layers are predicted; left out: refused", min_length=1)
    overhead_gib: float = setting(
        1.0, "memory of each GPU that the framework takes (work = iterations)", unit="GiB", ge=0, le=1000)
    measured_gaps: Literal["refuse", "interpolate", "amdahl", "linear"] = setting(
        "interpolate", "rates that were not measured: refuse; interpolate between those of the same model and GPU "
        "type; or go beyond them, too (amdahl, linear)")
    estimate: str = setting(
        "oracle", "what a policy believes of run times: oracle (the truth), noisy:MRE (mean relative error, "
        "such as noisy:0.3), noisy-lognormal:MRE, or column (the trace's estimate_s)", allowed=_ESTIMATES)
    speed_belief: str = setting(
        "exact", "what a policy believes of speeds (work = iterations): exact (the truth), noisy:MRE (mean relative "
        "error for each model and GPU type), table:FILE (a file of measured rates), calibration:NAME_OR_FILE, "
        "completed:K (profiled on K GPU types) or profiled:SECONDS (of each job's first runs)",
        allowed=beliefs.ALLOWED, file=True)
    engine: EngineConfig = Field(EngineConfig(), description="section [engine]")

    @field_validator("submitted_from", "submitted_to", mode="before")
    @classmethod
    def _moment(cls, moment: Any) -> Any:
        return str(moment) if _is_number(moment) or isinstance(moment, date) else moment  # TOML has dates of its own

    @field_validator("optimizer", mode="before")
    @classmethod
    def _bytes(cls, optimizer: Any) -> Any:
        return str(optimizer) if _is_number(optimizer) else optimizer

    @field_validator("read", "gpu_types", "assign_with", mode="before")
    @classmethod
    def _options(cls, options: Any) -> Any:
        if not isinstance(options, dict):
            return options
        return {name: str(value).lower() if isinstance(value, bool) else str(value) if _is_number(value) else value
                for name, value in options.items()}

    @field_validator("read")
    @classmethod
    def _map(cls, read: dict[str, str]) -> dict[str, str]:
        """A map is kept as what it says: a file of it may change, or be elsewhere when the run is made again."""
        if "map" not in read:
            return read
        from traces.reading.logmap import settled  # with pandas and Arrow, which settings alone do without

        return read | {"map": settled(read["map"])}

    @field_validator("hardware", mode="before")
    @classmethod
    def _hardware(cls, hardware: Any) -> Any:
        """Types are kept as what a file says: it may change, or be elsewhere when the run is made again."""
        if isinstance(hardware, str):
            return as_table(read_hardware(hardware).values())
        return as_table(own_types(hardware, "run.hardware").values()) if isinstance(hardware, dict) else hardware

    @property
    def own_types(self) -> tuple[GpuType, ...]:
        """The types of `hardware`."""
        return tuple(own_types(self.hardware, "run.hardware").values())

    @field_validator("reference")
    @classmethod
    def _reference(cls, name: str, info: ValidationInfo) -> str:
        try:
            with with_types(own_types(info.data.get("hardware", {}), "run.hardware").values()):
                return gpu_type(name).name
        except HetsimError as error:
            raise RefusedError(error.what, allowed=error.allowed, todo=error.todo) from None

    @field_validator("estimate")
    @classmethod
    def _estimate(cls, kind: str) -> str:
        head, _, mre = kind.partition(":")
        try:
            right = kind in ("oracle", "column") or (head in _NOISY and 0 <= float(mre) < math.inf)
        except ValueError:
            right = False
        if not right:
            near = did_you_mean(head, ("oracle", *_NOISY, "column")) if head not in _NOISY else ""
            raise RefusedError("value not allowed", allowed=_ESTIMATES, todo=near)
        return kind

    @field_validator("speed_belief")
    @classmethod
    def _speed_belief(cls, kind: str) -> str:
        if not beliefs.is_belief(kind):
            head = kind.partition(":")[0]
            near = did_you_mean(head, beliefs.KINDS) if head not in beliefs.KINDS else ""
            raise RefusedError("value not allowed", allowed=beliefs.ALLOWED, todo=near)
        return kind


#: Section of a file -> where its table lies in RunConfig ("": it is RunConfig itself).
_SECTIONS = {"run": "", "policy": "policy_settings", "engine": "engine"}


@dataclass(frozen=True)
class Setting:
    """One line of the list of settings; `name` is dotted, `allowed` says in words what the value may be, `file`
    whether it may name a file."""

    name: str
    default: Any
    unit: str
    allowed: str
    meaning: str
    file: bool = False

    @property
    def default_text(self) -> str:
        """The default as it would stand in a file; empty where there is none."""
        return plain(self.default)


def list_settings() -> tuple[Setting, ...]:
    """All settings of [run] and [engine] with default, unit, rule and meaning (a policy lists its own)."""
    tables: tuple[tuple[str, type[Settings]], ...] = (("run", RunConfig), ("engine", EngineConfig))
    return tuple(_settings(tables))


def load_config(path: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Read settings from a TOML file, if any, and lay the command line's over them.

    Parameters
    ----------
    path : path, optional
        File with the sections [run], [policy] and [engine], each optional.
    overrides : mapping, optional
        Values that win over the file: `seed`, `policy.NAME`, `engine.NAME`, `engine.quotas.VC`,
        `engine.guarantees.VC`, `read.NAME`, `gpu_types.NAME`, `assign_with.NAME` (`run.seed` is the same as `seed`).
        A value of None counts as not given.

    Raises
    ------
    ConfigError
        No such file, no TOML, an unknown section or key (with the nearest right one), a value of the wrong
        type or out of range; the message names the file, or the command line, and the dotted path.
    """
    return config_of({} if path is None else read_toml(path), "" if path is None else str(path), overrides)


def config_of(
    file: Mapping[str, Any], source: str, overrides: Mapping[str, Any] | None = None, given_by: str = "command line"
) -> RunConfig:
    """The same from a file that was read before: its sections, its name, and who gives the overrides."""
    data = _sections(file, source)
    given = {name.removeprefix("run."): value for name, value in (overrides or {}).items() if value is not None}
    for name, value in given.items():
        _put(data, name, value)

    def where(dotted: str) -> str:
        overridden = any(dotted == name or dotted.startswith(name + ".") for name in given)
        origin = given_by if overridden or not source else source
        return f"{origin}, {dotted if dotted.startswith('engine') else 'run.' + dotted}"

    return checked(RunConfig, data, where, nearest=_nearest)


def _sections(file: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The sections of a file as one table of RunConfig's form."""
    data: dict[str, Any] = {}
    for section, table in file.items():
        if section not in _SECTIONS:
            raise ConfigError("unknown section", where=source, got=section, allowed=", ".join(_SECTIONS),
                              todo=did_you_mean(section, _SECTIONS) or _nearest("", section))
        if not isinstance(table, dict):
            raise ConfigError("value not allowed", where=f"{source}, {section}", got=table, allowed="a table")
        if section != "run":
            data[_SECTIONS[section]] = table
            continue
        for key, name in {"policy_settings": "policy", "engine": "engine"}.items():
            if key in table:
                raise ConfigError("not a key of this section", where=f"{source}, run.{key}",
                                  todo=f"It has its own: [{name}].")
        data.update(table)
    return data


def _put(data: dict[str, Any], name: str, value: Any) -> None:
    """Set one value by its dotted name; tables on the way are made. (The name of a quota may have dots.)"""
    section, dot, rest = name.partition(".")
    if dot and section in ("read", "gpu_types", "assign_with"):
        table = data.setdefault(section, {})
        if isinstance(table, dict):  # else the file has a value where a table belongs: `checked` says so
            data[section] = {**table, rest: value}
        return
    if not dot or section not in _SECTIONS:
        data[name] = value
        return
    by_name = rest.startswith(("quotas.", "guarantees."))
    steps = [_SECTIONS[section], *(rest.split(".", 1) if by_name else [rest])]
    for step in steps[:-1]:
        data = data.setdefault(step, {})
        if not isinstance(data, dict):
            return  # the file has a value where a table belongs: `checked` says so
    data[steps[-1]] = value


def _nearest(table: str, key: str) -> str:
    """The setting that an unknown key most likely meant, wherever it belongs."""
    own = key_names(EngineConfig if table == "engine" else RunConfig)
    dotted = {s.name.partition(".")[2]: s.name for s in list_settings()}
    near = get_close_matches(key, dotted, n=1, cutoff=0.5)
    if not near:
        return ""
    return f"did you mean {near[0] if table and near[0] in own else dotted[near[0]]!r}?"


def _settings(tables: tuple[tuple[str, type[Settings]], ...]) -> Iterator[Setting]:
    for section, model in tables:
        for name in key_names(model):
            field = model.model_fields[name]
            extra = field.json_schema_extra
            assert isinstance(extra, dict)  # of all that `setting` has declared
            yield Setting(f"{section}.{name}", field.get_default(call_default_factory=False), str(extra["unit"]),
                          allowed_values(field), field.description or "", bool(extra["file"]))
