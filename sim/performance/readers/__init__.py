"""Readers of operator graphs: one door for the files of profilers and planners, and for ONNX models."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.performance.graph import OperatorGraph, PerformanceError
from sim.performance.readers.dnn_partitioning import read_dnn_partitioning
from sim.performance.readers.files import parse_json, read_bytes
from sim.performance.readers.onnx_graph import read_onnx
from sim.performance.readers.pipedream_profile import read_pipedream
from sim.performance.readers.piper_graph import read_piper
from sim.performance.readers.synthetic import read_synthetic
from sim.performance.readers.torch_graph import read_torch
from traces.errors import did_you_mean

__all__ = [
    "FORMATS",
    "format_of",
    "options_of",
    "read_dnn_partitioning",
    "read_graph",
    "read_onnx",
    "read_pipedream",
    "read_piper",
    "read_synthetic",
    "read_torch",
]

FORMATS: dict[str, Callable[..., OperatorGraph]] = {
    "pipedream": read_pipedream,
    "dnn-partitioning": read_dnn_partitioning,
    "piper": read_piper,
    "synthetic": read_synthetic,
    "onnx": read_onnx,
}


def format_of(path: Path) -> str:
    """Name of a file's format, by its content.

    Raises
    ------
    PerformanceError
        It cannot be read, is broken JSON, or is of no format in `FORMATS`.
    """
    content = read_bytes(path)
    if content.lstrip().startswith(b"{"):
        document = parse_json(content, str(path))
        nodes = document.get("nodes")
        first = nodes[0] if isinstance(nodes, list) and nodes else None
        if isinstance(nodes, dict):
            return "synthetic"
        for key, name in (("TMPCs", "piper"), ("fpgaLatency", "dnn-partitioning")):
            if isinstance(first, dict) and key in first:
                return name
    elif b"forward_compute_time=" in content:
        return "pipedream"
    elif path.suffix in (".pt2", ".pt", ".pth"):
        raise PerformanceError(
            "files of PyTorch are not read", where=str(path), allowed=", ".join(FORMATS),
            todo="Write the model with torch.onnx.export, or read the module itself from Python: "
            "sim.performance.readers.read_torch(module, example_inputs).",
        )  # fmt: skip
    # A model in ONNX's protobuf begins with the tag of ir_version.
    elif content.startswith(b"\x08") or path.suffix == ".onnx":
        return "onnx"
    raise PerformanceError(
        "the file is no operator graph of a known format", where=str(path), allowed=", ".join(FORMATS)
    )


def options_of(format: str) -> list[str]:
    """Names of the options that a format's reader has."""
    return list(inspect.signature(FORMATS[format]).parameters)[1:]


def read_graph(path: str | Path, format: str | None = None, **options: Any) -> OperatorGraph:
    """The operator graph in a file.

    Parameters
    ----------
    format : one of `FORMATS`; None: told from the content.
    options : those of the format's reader (`samples`, `gpu`; Piper: `degree`, `time_unit`; ONNX: `dims`, `batch_axis`).

    Raises
    ------
    PerformanceError
        The file is not of the format, or is wrong; the message names file and line, node or edge.
    """
    path = Path(path)
    name = format_of(path) if format is None else format
    if name not in FORMATS:
        raise PerformanceError(
            "unknown format of operator graphs",
            where=str(path),
            got=name,
            allowed=", ".join(FORMATS),
            todo=did_you_mean(name, FORMATS),
        )
    allowed = options_of(name)
    for option in options:
        if option not in allowed:
            raise PerformanceError(
                f"the reader of {name} files has no such option",
                where=str(path),
                got=option,
                allowed=", ".join(allowed),
            )
    return FORMATS[name](path, **options)
