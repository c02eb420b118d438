"""Profiles of PipeDream (Narayanan et al. 2019, SOSP): `graph.txt`.

A line is a node, `id -- what -- forward_compute_time=ms, backward_compute_time=ms, activation_size=bytes,
parameter_size=bytes`, with `stage_id=` behind it in a partitioned graph, or an edge, `<tab>id -- id`. Times and
sizes are for a minibatch, whose size the file does not tell.
"""

from __future__ import annotations

import re
from pathlib import Path

from sim.performance.graph import OperatorGraph, PerformanceError
from sim.performance.readers.files import number, read_bytes
from sim.performance.readers.profiled import FILE_VALUE_BYTES, Node, profiled_graph

_NODE = re.compile(
    r"(?P<id>\S+) -- (?P<what>.*) -- forward_compute_time=(?P<fwd>[^,]*), backward_compute_time=(?P<bwd>[^,]*), "
    r"activation_size=(?P<out>\[[^\]]*\]|[^,]*), parameter_size=(?P<params>[^, ]*)"
    r"(?:(?:,| --) stage_id=\d+)?"
)
_EDGE = re.compile(r"(\S+) -- (\S+)")
KEPT = "a PipeDream profile does not say what is kept for the backward pass: each operator keeps its output"
_INPUT = re.compile(r"Input\d*")


def _node(match: re.Match[str], place: str) -> Node:
    found = match.groupdict()
    sizes = found["out"].strip("[]").split(";")  # one for each tensor that it makes
    out_bytes = sum(number(size, "activation_size", place) for size in sizes)
    digits = re.search(r"\d+$", found["id"])
    return Node(
        key=found["id"],
        name=f"{found['id']} {found['what']}",
        place=place,
        fwd_s=number(found["fwd"], "forward_compute_time", place) / 1e3,
        bwd_s=number(found["bwd"], "backward_compute_time", place) / 1e3,
        out_bytes=out_bytes,
        params=number(found["params"], "parameter_size", place) / FILE_VALUE_BYTES,
        stored_bytes=out_bytes,
        # The ids count in the order of execution; the lines are shuffled.
        rank=number(digits[0], "the number of a node", place) if digits else 0.0,
        is_input=_INPUT.fullmatch(found["what"]) is not None,
    )


def read_pipedream(path: Path, *, samples: float | None = None, gpu: str = "") -> OperatorGraph:
    """The graph of a PipeDream profile, with its times.

    The nodes 'Input', 'Input0', ... are dropped with their time, which is that of loading data. Parameters are
    `parameter_size` / 4. The file has no kept activations: as in PipeDream each operator keeps its output, and the
    profile's notes say so.

    Parameters
    ----------
    samples : size of the minibatch that was timed; None: a sample of the graph is that minibatch.
    gpu : GPU type it was timed on; the file does not tell.

    Raises
    ------
    PerformanceError
        A line is neither node nor edge, a number is unusable, an id occurs twice, an edge leads nowhere, or there
        is a cycle; with file and line.
    """
    nodes, edges = [], []
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise PerformanceError("not text", where=str(path), got=str(error)) from error
    for count, line in enumerate(text.splitlines(), start=1):
        place = f"{path}, line {count}"
        if match := _NODE.fullmatch(line.strip()):
            nodes.append(_node(match, place))
        elif match := _EDGE.fullmatch(line.strip()):
            edges.append((match[1], match[2], place))
        elif line.strip():
            raise PerformanceError(
                "neither a node nor an edge of a PipeDream profile",
                where=place,
                got=line[:80],
                allowed="'id -- what -- forward_compute_time=..., ...' or '<tab>id -- id'",
            )
    name = path.name.removesuffix(".txt").removesuffix(".graph")
    return profiled_graph(str(path), name, nodes, edges, samples=samples, gpu=gpu, notes=(KEPT,))
