"""What the options of several commands have in common."""

from __future__ import annotations

from typing import Annotated

import typer

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
OverheadOption = Annotated[
    float,
    typer.Option("--overhead-gib", min=0.0, max=1000.0, metavar="GIB", help="Memory of each GPU that the framework "
                 "takes, whatever the model."),
]
Params = Annotated[
    list[str] | None,
    typer.Option("-P", "--param", metavar="NAME=VALUE", help="A setting of the policy; may be repeated."),
]


def optimizer_said(name: str) -> str:
    """How the line under a table names an optimizer that is not the default."""
    return "" if name == "adam" else f"; optimizer: {name}"


def said_source(source: str) -> str:
    """Where a speed comes from, with what that means where it was not measured just so."""
    of = {"interpolated": " (between measured micro-batches)", "extrapolated": " (beyond the measured micro-batches)",
          "predicted": " (from the times of another GPU type)"}  # fmt: skip
    return source + of.get(source, "")
