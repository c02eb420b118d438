"""The options that say how a trace is read and which jobs are taken: the same for every command that reads one."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from sim.cli.options import FORMAT, JOBS, MAP

#: Name of the setting -> its option. All are left out by default.
OPTIONS: dict[str, Any] = {
    "format": Annotated[str | None, typer.Option("--format", help=FORMAT)],
    "read": Annotated[list[str] | None, typer.Option(
        "--read", metavar="NAME=VALUE", help="An option of the format, see `hetsim trace formats`; may be repeated.")],
    "map": Annotated[str | None, typer.Option("--map", help=MAP)],
    "gpu_types": Annotated[list[str] | None, typer.Option(
        "--gpu-type", metavar="NAME=TYPE", help="A GPU type that the trace names, and what it is taken for, such as "
        "G2=A10 (G2= for any); may be repeated.")],
    "submitted_from": Annotated[str | None, typer.Option(
        "--from", metavar="TIME", help="Only jobs submitted from then on: seconds on the trace's clock, 36h, 7d, or a "
        "date such as 2017-10-09 in its zone.")],
    "submitted_to": Annotated[str | None, typer.Option(
        "--to", metavar="TIME", help="Only jobs submitted before then.")],
    "status": Annotated[list[str] | None, typer.Option(
        "--status", help="Only jobs that ended so: passed, killed, failed or unknown; may be repeated.")],
    "vc": Annotated[list[str] | None, typer.Option(
        "--vc", help="Only jobs of this virtual cluster; may be repeated.")],
    "user": Annotated[list[str] | None, typer.Option("--user", help="Only jobs of this user; may be repeated.")],
    "gangs": Annotated[str | None, typer.Option(
        "--gangs", help="Jobs of several workers: 'keep' them, or 'split' them into jobs of one worker.  [keep]")],
    "skip": Annotated[int | None, typer.Option(
        "--skip", help="Leave out the first so many jobs of a file, before --jobs counts.  [0]")],
    "jobs": Annotated[int | None, typer.Option("--jobs", help=JOBS)],
    "assign": Annotated[str | None, typer.Option(
        "--assign", metavar="RECIPE", help="Give jobs the model, batch, deadline or weight that they lack by the rule "
        "of a paper: gavel, pollux, elasticflow, chronus (see `hetsim trace recipes`).")],
    "assign_with": Annotated[list[str] | None, typer.Option(
        "--assign-with", metavar="NAME=VALUE", help="A setting of the recipe; may be repeated.")],
    "seed": Annotated[int | None, typer.Option("--seed", help="Seed of all random numbers.  [0]")],
    "load": Annotated[float | None, typer.Option(
        "--load", help="Bring the GPU time asked for to this multiple of the cluster's.  "
        "[run of a generated trace: 0.7; else as it is]")],
    "load_by": Annotated[str | None, typer.Option(
        "--load-by", help="How: 'compress' stretches arrivals, 'thin' leaves out jobs by a hash of their ids, 'repeat' "
        "lays the trace over itself.  [a generated trace: thin; else compress]")],
    "load_rule": Annotated[str | None, typer.Option(
        "--load-rule", help="Which load: 'modelled' (GPUs as fast as they are modelled) or 'recorded' (all as fast as "
        "those on which run times were recorded).  [modelled]")],
}

_FLAGS = {"submitted_from": "--from", "submitted_to": "--to", "load_by": "--load-by", "load_rule": "--load-rule",
          "assign_with": "--assign-with",
          "gpu_types": "--gpu-type"}
#: Settings that are tables, given as NAME=VALUE.
_TABLES = ("read", "gpu_types", "assign_with")


def reads_a_trace(command: Callable[..., None]) -> Callable[..., None]:
    """Add `OPTIONS` to a command, which gets those given as `which`: settings by dotted name, for `load_config`."""
    mine = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in mine.parameters.items() if name != "which"]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
             for name, kind in OPTIONS.items()]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        command(which=settings({name: given.pop(name) for name in OPTIONS}), **given)

    # The command's own parameters keep their order, in which arguments are read from the command line.
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters = [*own, *added]
    wrapper.__signature__ = mine.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the command line as settings by dotted name; what was left out is not there.

    Raises
    ------
    ConfigError
        --read, --gpu-type or --assign-with without a value, or the same name twice.
    """
    found = {name: value for name, value in given.items()
             if value not in (None, [], ()) and name not in (*_TABLES, "map")}
    for table in _TABLES:
        texts = given.get(table) or ()
        found |= {f"{table}.{name}": value for name, value in pairs(texts, _FLAGS.get(table, f"--{table}")).items()}
    return found | mapping(given.get("map"), found)


def mapping(text: str | None, found: Mapping[str, Any]) -> dict[str, str]:
    """--map as a setting; a ConfigError where `found` has one already."""
    from sim.settings.config import ConfigError

    if text is not None and "read.map" in found:
        raise ConfigError("an option is given twice", where="command line, --map", got=text,
                          todo="Leave out --read map.")
    return {} if text is None else {"read.map": text}


def pairs(texts: Sequence[str], flag: str) -> dict[str, str]:
    """NAME=VALUE, as often as `flag` was given, by name.

    Raises
    ------
    ConfigError
        One without a name or a value, or the same name twice.
    """
    from sim.settings.config import ConfigError

    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError("an option without a value", where=f"command line, {flag}", got=text,
                              allowed="NAME=VALUE")
        if name in found:
            raise ConfigError("an option is given twice", where=f"command line, {flag} {name}", got=text)
        found[name] = value.strip()
    return found


def command_line(recipe: Mapping[str, Any], out: str) -> str:
    """`hetsim trace convert …` with the settings of a recipe (`sim.cli.inputs.convert`)."""
    words = ["hetsim", "trace", "convert", str(recipe["trace"]), out]
    for name, value in recipe.items():
        if name == "trace":
            continue
        flag = _FLAGS.get(name, f"--{name}")
        if name == "read" and "map" in value:
            words += ["--map", value["map"]]
            value = {k: v for k, v in value.items() if k != "map"}
        values = [f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else \
            value if isinstance(value, list) else [value]
        words += [word for one in values for word in (flag, str(one))]
    return shlex.join(words)
