"""What the options of several commands have in common."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sim.cluster.spec import ClusterSpec

TRACE = "philly, pai, helios or acme (generated), or a file."
FORMAT = "Format of the trace file; left out: told from its content."
MAP = "Columns of a log of one's own: submit=COLUMN:UNIT,duration=COLUMN:UNIT,gpus=COLUMN,…, or a TOML file " \
    "(docs/traces.md)."
CLUSTER = "Preset, TOML file, or shorthand such as v100:8x4+t4:2x8."
JOBS = "Only the first so many jobs.  [generated: those of a month, at a load up to 5000; file: all]"
OptimizerOption = Annotated[
    str,
    typer.Option("--optimizer", metavar="NAME or BYTES", help="What is kept of a parameter: adam (16 bytes), "
                 "adam-fp32-grads (18), adam-fp32 (20), adam8bit, sgd-momentum, sgd, adafactor, or bytes in all."),
]
BlockingOption = Annotated[bool, typer.Option("--blocking", help="GPUs wait while they send to the next stage.")]
BlockingBothOption = Annotated[
    bool, typer.Option("--blocking-both", help="Those that get a message wait for it, too.")
]
OverheadOption = Annotated[
    float,
    typer.Option("--overhead-gib", min=0.0, max=1000.0, metavar="GIB", help="Memory of each GPU that the framework "
                 "takes, whatever the model."),
]
Params = Annotated[
    list[str] | None,
    typer.Option("-P", "--param", metavar="NAME=VALUE", help="A setting of the policy; may be repeated."),
]


_COMMAND: ContextVar[typer.Context] = ContextVar("the command that takes --hardware")


def _know(ctx: typer.Context, file: str | None) -> str | None:
    """Make the types of a file known by name, for as long as the command goes on."""
    _COMMAND.set(ctx)
    if file is not None:
        from sim.hardware.gputypes import with_types
        from sim.settings.hardwarefile import read_hardware

        ctx.with_resource(with_types(read_hardware(file).values()))
    return file


HardwareOption = Annotated[
    str | None,
    typer.Option("--hardware", metavar="FILE.toml", callback=_know, is_eager=True,
                 help="GPU and CPU types of your own, known by name beside those of the catalogue (docs/hardware.md)."),
]


def load_named_cluster(text: str, prices: str | None = None) -> ClusterSpec:
    """A cluster, whose own types are known by name for as long as the command goes on."""
    from sim.cluster.clusterfiles import load_cluster
    from sim.hardware.gputypes import with_types

    cluster = load_cluster(text, prices)
    _COMMAND.get().with_resource(with_types(gpu for gpu in cluster.types if gpu.own))
    return cluster


def optimizer_said(name: str) -> str:
    """How the line under a table names an optimizer that is not the default."""
    return "" if name == "adam" else f"; optimizer: {name}"


def said_source(source: str) -> str:
    """Where a speed comes from, with what that means where it was not measured just so."""
    of = {"interpolated": " (between measured micro-batches)", "extrapolated": " (beyond the measured micro-batches)",
          "predicted": " (from the times of another GPU type)"}  # fmt: skip
    return source + of.get(source, "")
