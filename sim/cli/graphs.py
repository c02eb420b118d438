"""A graph file as a user names it: read, with what the file does not say."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console
from traces.errors import HetsimError, did_you_mean

if TYPE_CHECKING:
    from sim.performance.graph import OperatorGraph

HELP = "a graph file: ONNX, PipeDream, dnn-partitioning, Piper"
SUFFIXES = (".onnx", ".json", ".txt", ".pt2", ".pt", ".pth")
"""An argument that ends so is a file, no model's name."""
ProfiledOn = Annotated[str | None, typer.Option(
    help="GPU type on which a graph file's times were measured, where it does not say.")]
ProfiledSamples = Annotated[float | None, typer.Option(
    help="Samples of the minibatch that a graph file's times are of, where it does not say.")]
Dim = Annotated[list[str] | None, typer.Option(
    metavar="NAME=N", help="Size of an open dimension of an ONNX file, by its name or as INPUT:DIMENSION; repeat it.")]
Tokens = Annotated[int | None, typer.Option(
    help="Length of a sequence: of a gpt, bert, llama or mixtral; as MODEL(tokens=N).")]
MARGIN = 0.1
"""Part of a GPU's memory that a plan had better leave: fragments, libraries and longer batches take some."""
Margin = Annotated[float, typer.Option(
    "--memory-margin", min=0.0, max=1.0, metavar="PART",
    help="Part of a GPU's memory that should stay free; what leaves less is marked as tight.")]
Layers = Annotated[Path | None, typer.Option(
    "--layers", metavar="FILE", help="Table of measured layers that has the model (docs/measured-tables.md).")]
LayersFrom = Annotated[str | None, typer.Option(
    "--layers-from", metavar="TYPE", help="With --layers: predict GPU types without measured layers from this one.  "
    "[refused]")]
BatchAxis = Annotated[int | None, typer.Option(
    help="Dimension of an ONNX file's inputs that is the batch, from 0.  [0]")]


def sized(model: str | None, tokens: int | None) -> str | None:
    """The model on sequences of so many tokens."""
    from sim.performance.zoo.families import with_tokens

    if tokens is None:
        return model
    if model is None or Path(model).suffix in SUFFIXES:
        raise HetsimError("an option has no effect", got=f"--tokens {tokens}", allowed="--tokens with a model by name")
    return with_tokens(model, tokens)


@dataclass(frozen=True)
class Beside:
    """What is said of a graph file beside it, as it was given; None: nothing."""

    profiled_on: str | None
    profiled_samples: float | None
    dim: list[str] | None
    batch_axis: int | None
    layers: Path | None = None
    layers_from: str | None = None

    def refuse_without(self, file: bool, needs: str) -> None:
        """Refuse what would change nothing, where there is no graph file."""
        if self.layers_from is not None and self.layers is None:
            raise HetsimError("an option has no effect", got=f"--layers-from {self.layers_from}",
                              allowed="--layers-from with --layers FILE")  # fmt: skip
        if self.layers is not None and file:
            raise HetsimError("two models are given", got=f"--layers {self.layers} and a graph file",
                              allowed="a model of the table, or the file alone")  # fmt: skip
        for option, given in (
            ("--profiled-on", self.profiled_on), ("--profiled-samples", self.profiled_samples),
            ("--dim", " ".join(self.dim) if self.dim else None), ("--batch-axis", self.batch_axis),
        ):  # fmt: skip
            if given is not None and not file:
                raise HetsimError("an option has no effect", got=f"{option} {given}", allowed=f"{option} with {needs}")

    def options(self) -> dict[str, Any]:
        """The options of the readers that were given."""
        said = {"gpu": self.profiled_on, "samples": self.profiled_samples, "dims": _sizes(self.dim or []),
                "batch_axis": self.batch_axis}
        return {name: value for name, value in said.items() if value is not None and value != {}}


OPTIONS = {"gpu": "--profiled-on", "samples": "--profiled-samples", "dims": "--dim", "batch_axis": "--batch-axis"}
"""How the readers' options are called here."""


def _sizes(texts: list[str]) -> dict[str, int]:
    """Sizes by name, of NAME=N."""
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal() or name in sizes or len(size) > 12:
            what = "a dimension is given twice" if name in sizes else "not the size of a dimension"
            raise HetsimError(what, where="--dim", got=text, allowed="NAME=N, each name once: --dim height=320")
        sizes[name] = int(size)
    return sizes


def read(path: str, beside: Beside) -> OperatorGraph:
    """The graph of a file.

    Raises
    ------
    HetsimError
        Not a graph; or a profile whose GPU type or minibatch neither the file nor the user names: its times would be
        taken for those of another GPU, or a whole minibatch for one sample; or an option that its format has not.
    """
    from sim.hardware.gputypes import catalogue
    from sim.performance.readers import format_of, options_of, read_graph

    said = beside.options()
    name = format_of(Path(path))
    for option in said:
        if option not in options_of(name):
            raise HetsimError(f"a file of the format {name} has no such option", where=path, got=OPTIONS[option],
                              allowed=", ".join(OPTIONS[one] for one in options_of(name) if one in OPTIONS))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        graph = read_graph(path, name, **said)
    for text in dict.fromkeys(str(one.message) for one in told):
        console.say(console.printable(text))
    if graph.profile is None:
        return graph
    for note in graph.profile.notes:
        console.say(console.printable(f"{path}: {note}"))
    if "" in graph.profile.gpus:
        raise HetsimError("the file does not say on which GPU type it was measured", where=path,
                          allowed=", ".join(catalogue()), todo="Name it: --profiled-on V100.")
    if beside.profiled_samples is None and Path(path).suffix == ".txt":
        raise HetsimError("a PipeDream profile does not say how many samples its minibatch has", where=path,
                          allowed="a number above 0", todo="Name it: --profiled-samples 64.")
    return graph


def of_layers(beside: Beside, model: str) -> dict[str, OperatorGraph]:
    """The model out of the table of measured layers, by its name; empty where no table was given.

    Raises
    ------
    HetsimError
        Not such a table, or it lacks the model.
    """
    from sim.performance.readers.layer_table import read_layers

    if beside.layers is None:
        return {}
    found = read_layers(beside.layers, beside.layers_from)
    if model not in found:
        raise HetsimError("the table of measured layers has no such model", where=str(beside.layers), got=model,
                          allowed=", ".join(found), todo=did_you_mean(model, found))  # fmt: skip
    return {model: found[model]}
