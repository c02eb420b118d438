"""Checked, frozen tables of settings, and how a wrong key or value in one is put into words.

`sim.settings.config` and `sim.cluster.clusterfiles` declare their tables as `Settings`, and read them with `read_toml`
and `checked`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from traces.errors import HetsimError, did_you_mean
from traces.reading.limits import parse_toml, plain_bytes

#: Largest time that is taken seriously, in seconds (as in the trace schema): beyond it the unit is wrong.
MAX_TIME_S = 1e11


class ConfigError(HetsimError):
    """A setting, or a file of settings, that cannot be used; names the file and the dotted path."""


class RefusedError(ValueError):
    """What a validator says of a value; `checked` adds where it stands and what was found."""

    def __init__(self, what: str, *, allowed: str, todo: str = "") -> None:
        super().__init__(what)
        self.allowed, self.todo = allowed, todo


class Settings(BaseModel):
    """Base of all tables read from TOML: frozen, no unknown keys, no guessed types, finite numbers."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, ser_json_inf_nan="strings",
    )


def setting(
    default: Any, meaning: str, *, unit: str = "", allowed: str = "", file: bool = False, **rule: Any
) -> Any:
    """Declare one setting.

    Parameters
    ----------
    default : its default; `...` where it must be given.
    meaning, unit : for the list of settings.
    allowed : what it may be, in words; empty: told from type and bounds.
    file : it may name a file that a run reads: what the file holds counts as much as its name.
    rule : pydantic's bounds (`ge=0`, …).
    """
    extra: dict[str, Any] = {"unit": unit, "allowed": allowed, "file": file}
    return Field(default, description=meaning, json_schema_extra=extra, **rule)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    ConfigError
        The file cannot be read, is not UTF-8 text, or is no TOML (with the line).
    """

    def refused(what: str, got: str | None) -> ConfigError:
        return ConfigError(f"the file {what}", where=str(path), got=got, allowed="a TOML file in UTF-8")

    if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
        raise refused("cannot be read", "a pipe, socket or device")
    try:
        return parse_toml(plain_bytes(Path(path), ConfigError).decode("utf-8-sig"), _number)
    except OSError as error:
        raise refused("cannot be read", error.strerror) from None
    except UnicodeDecodeError as error:
        raise refused("is not UTF-8 text", str(error)) from None
    except ValueError as error:
        raise refused("is no TOML", str(error)) from None


def parse_setting(text: str) -> tuple[str, Any]:
    """Split `name=value` of the command line; the value is read as TOML where it is TOML, else as text.

    Raises
    ------
    ConfigError
        There is no `=`, or no name before it.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError("a setting without a value", where="command line", got=text, allowed="name=value")
    try:
        table = parse_toml(f"value = {value}")
    except ValueError:  # no TOML, a number of thousands of digits, brackets without end
        return name.strip(), value.strip()
    return name.strip(), table["value"] if len(table) == 1 else value.strip()


def _number(text: str) -> float:
    """A number of TOML; -0.0 is 0, so that nothing is told as '-0'."""
    return float(text) + 0.0


Table = TypeVar("Table", bound=Settings)


def checked(
    model: type[Table], data: Mapping[str, Any], where: Callable[[str], str], *,
    nearest: Callable[[str, str], str] | None = None, error: type[HetsimError] = ConfigError,
) -> Table:
    """Validate a table, and put the first complaint into our own words.

    Parameters
    ----------
    where : dotted path -> what opens the message.
    nearest : (path of the table, unknown key) -> "did you mean …?"; default: the nearest key of that table.
    error : what is raised.
    """
    try:
        return model.model_validate(data)
    except ValidationError as failure:
        # An unknown key first: with it, "missing" is most often the same key misspelt.
        complaints = failure.errors(include_url=False)
        complaint = min(complaints, key=lambda c: c["type"] != "extra_forbidden")
    steps, got, kind = complaint["loc"], complaint["input"], complaint["type"]
    place, last = where(".".join(str(step) for step in steps)), str(steps[-1])
    table, field = _locate(model, steps)
    if kind == "extra_forbidden":
        names = key_names(table)
        inside = ".".join(str(step) for step in steps[:-1])
        hint = nearest(inside, last) if nearest else did_you_mean(last, names)
        raise error("unknown key", where=place, got=last, allowed=", ".join(names), todo=hint)
    if field is None:
        raise error("value not allowed", where=place, got=got, allowed="a table")
    if kind == "missing":
        raise error("a key is missing", where=place, allowed=f"{last} = {allowed_values(field)}")
    refused = complaint.get("ctx", {}).get("error")
    if isinstance(refused, RefusedError):
        raise error(str(refused), where=place, got=got, allowed=refused.allowed, todo=refused.todo)
    hint = did_you_mean(got, [str(c) for c in _choices(field)]) if isinstance(got, str) else ""
    raise error("value not allowed", where=place, got=got, allowed=allowed_values(field), todo=hint)


def key_names(model: type[Settings]) -> list[str]:
    """The keys of a table that were declared with `setting`."""
    return [name for name, field in model.model_fields.items() if field.json_schema_extra is not None]


def allowed_values(field: FieldInfo) -> str:
    """The rule of one setting in words."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and extra.get("allowed"):
        return str(extra["allowed"])
    if choices := _choices(field):
        return ", ".join(str(choice) for choice in choices)
    kinds = _kinds(field)
    if bool in kinds:
        return "true or false"
    if any(get_origin(kind) is dict for kind in kinds):
        return "a table"
    if str in kinds:
        return "text, not empty" if any(isinstance(rule, MinLen) for rule in field.metadata) else "text"
    words = "an integer" if int in kinds else "a finite number"
    for rule in field.metadata:
        match rule:
            case Ge(ge=bound):
                words += f" from {bound:,.15g}"
            case Gt(gt=bound):
                words += f" above {bound:,.15g}"
            case Le(le=bound):
                words += f" to {bound:,.15g}"
            case Lt(lt=bound):
                words += f" below {bound:,.15g}"
    return words


def plain(value: object) -> str:
    """A default as it is written in TOML; empty where there is none."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return "inf" if value == math.inf else f"{value:g}"
    return str(value)


def _kinds(field: FieldInfo) -> list[Any]:
    """The types that a field takes, None left out."""
    return [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not NoneType] \
        if get_origin(field.annotation) not in (Literal, dict, tuple) else [field.annotation]


def _choices(field: FieldInfo) -> tuple[Any, ...]:
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def _locate(model: type[Settings], steps: tuple[int | str, ...]) -> tuple[type[Settings], FieldInfo | None]:
    """The table that a path of keys leads into, and the field at its end (None: not a key of it)."""
    field: FieldInfo | None = None
    for step in steps:
        if isinstance(step, int):
            continue
        inner = [field.annotation, *get_args(field.annotation)] if field is not None else []
        model = next((k for k in inner if isinstance(k, type) and issubclass(k, Settings)), model)
        # A key of a dict is no field of its own, nor is a member of a union, which pydantic names like a key.
        field = model.model_fields.get(step, field)
    return model, field
