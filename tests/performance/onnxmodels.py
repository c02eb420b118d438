"""Small ONNX models, made for the tests of the reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sim.performance import OperatorGraph
from sim.performance.readers import read_onnx

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def zeros(**shapes: tuple[int, ...]) -> list[TensorProto]:
    """Weights of some shapes."""
    return [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in shapes.items()]


def integers(**values: object) -> list[TensorProto]:
    """Constants of whole numbers."""
    return [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in values.items()]


def made(nodes, inputs, outputs, weights=(), opset=17) -> ModelProto:
    """A model; inputs and outputs as name -> (type, shape)."""

    def infos(entries):
        return [helper.make_tensor_value_info(name, *kind) for name, kind in entries.items()]

    graph = helper.make_graph(nodes, "made", infos(inputs), infos(outputs), list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def save(folder: Path, model: ModelProto) -> Path:
    """The model's file."""
    path = folder / "made.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def read(folder: Path, model: ModelProto, **options) -> OperatorGraph:
    """The model's graph."""
    return read_onnx(save(folder, model), **options)


def by_name(graph: OperatorGraph, column: str) -> dict[str, float]:
    """A column of a graph by the names of its operators."""
    return dict(zip(graph.ops, getattr(graph, column).tolist(), strict=True))
