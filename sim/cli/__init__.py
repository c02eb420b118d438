"""The command line: `hetsim`, or `python -m sim`. Only it knows a policy, the engine and the analysis.

Results go to stdout, all else to stderr. A `HetsimError` is shown as one message, with its exit code: 2 for
what was asked wrongly, 1 for what was found (an illegal decision, a broken law). Commands import what they
need when they are called, so that `hetsim --help` is fast.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from sim.cli import (
    auditing,
    clusters,
    comparing,
    console,
    drawing,
    explaining,
    inputs,
    measuring,
    perf,
    placing,
    recommend,
    report,
    reproduce,
    run,
    schedulers,
    streams,
    sweep,
    timeline,
)
from traces.errors import HetsimError

__all__ = ["app", "main"]

UsageError: Any = typer.BadParameter.__bases__[0]
"""Of all that typer says of what was typed."""


class Commands(TyperGroup):
    """Shows errors as messages."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with _messages():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _messages():
            return super().invoke(ctx)


@contextmanager
def _messages() -> Iterator[None]:
    """Show errors as messages: nothing that a user does ends in a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        _interrupted()
    except BrokenPipeError:
        raise  # typer ends quietly on it
    except UsageError as error:  # typer shows it: what was typed must not drive the terminal
        error.message = console.printable(error.message)
        raise
    except HetsimError as error:
        _fail(error)
    except OSError as error:
        what = error.strerror or str(error)
        _fail(HetsimError(f"the system refused: {what}", where=str(error.filename or "")))
    except MemoryError:
        _fail(HetsimError("out of memory", todo="Take fewer jobs with --jobs, or a smaller cluster."))


def _warned(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Our own warnings as messages; those of others, which tell of code, as Python shows them."""
    if category is UserWarning:
        console.say(message)
    else:
        sys.stderr.write(console.printable(warnings.formatwarning(message, category, *place[:2])))


def _fail(error: HetsimError) -> NoReturn:
    console.say(error, style="bold red")
    sys.exit(error.exit_code)


def _end(end: SystemExit) -> NoReturn:
    """End the process as asked, but not as if all were well where what was printed is lost."""
    try:
        streams.flushed()
    except BrokenPipeError:
        sys.exit(end.code or 1)  # as typer does
    except HetsimError as error:
        if not end.code:
            _fail(error)
    raise end


def _interrupted() -> NoReturn:
    console.say("interrupted, nothing is half written", style="bold red")
    sys.exit(130)


def _group(help: str, cls: type[TyperGroup] | None = None) -> typer.Typer:
    return typer.Typer(
        cls=cls, help=help, no_args_is_help=True, add_completion=False, rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("hetsim"))
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app = _group("Simulate deep-learning training jobs on clusters of mixed GPU types.", Commands)
app.callback()(_options)
app.command()(run.run)
app.command()(perf.perf)
app.command()(recommend.recommend)
app.command()(placing.place)
app.command("policies")(schedulers.list_policies)
app.command("check")(schedulers.check)
app.command()(auditing.audit)
app.command()(measuring.metrics)
app.command()(comparing.compare)
app.command()(drawing.figures)
app.command()(reproduce.reproduce)
app.command()(report.report)
app.command()(explaining.explain)
app.command()(sweep.sweep)
app.command()(timeline.timeline)
_trace = _group("Look at, check and convert traces.")
_trace.command()(inputs.describe)
_trace.command()(inputs.check)
_trace.command()(inputs.convert)
_trace.command()(inputs.again)
_trace.command()(inputs.formats)
_trace.command()(inputs.recipes)
_trace.command()(inputs.compare)
app.add_typer(_trace, name="trace")
_cluster = _group("Look at clusters.")
_cluster.command()(inputs.show)
_cluster.command("from")(clusters.from_table)
app.add_typer(_cluster, name="cluster")


def asked(words: Sequence[str]) -> typer.Typer:
    """The command line as far as these words can ask for it: to make all its commands takes ten times as long as to
    make one. It is all of it where they begin with no command."""
    commands = [one for one in app.registered_commands if words and (one.name or _name(one.callback)) == words[0]]
    groups = [one for one in app.registered_groups if words and one.name == words[0]]
    if not commands and not groups:
        return app
    part = copy(app)
    part.registered_commands, part.registered_groups = commands, groups
    return part


def _name(command: Any) -> str:
    return str(command.__name__)


def main() -> None:
    """Run the command line; ends the process."""
    try:
        with _messages(), warnings.catch_warnings():
            warnings.showwarning = _warned
            streams.opened()
            asked(sys.argv[1:])(prog_name="hetsim")
    except SystemExit as end:
        _end(end)
