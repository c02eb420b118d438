"""A graph file as a user names it: read, with what its profile does not say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from traces.errors import HetsimError

if TYPE_CHECKING:
    from sim.performance.graph import OperatorGraph


def read(path: str, profiled_on: str | None, profiled_samples: float | None) -> OperatorGraph:
    """The graph of a file.

    Raises
    ------
    HetsimError
        Not a graph; or a profile whose GPU type or minibatch neither the file nor the user names: its times would be
        taken for those of another GPU, or a whole minibatch for one sample.
    """
    from sim.hardware.gputypes import catalogue
    from sim.performance.readers import read_graph

    said: dict[str, Any] = {"gpu": profiled_on, "samples": profiled_samples}
    graph = read_graph(path, **{name: value for name, value in said.items() if value is not None})
    if graph.profile is None:
        return graph
    if not graph.profile.gpu:
        raise HetsimError("the file does not say on which GPU type it was measured", where=path,
                          allowed=", ".join(catalogue()), todo="Name it: --profiled-on V100.")
    if profiled_samples is None and Path(path).suffix == ".txt":
        raise HetsimError("a PipeDream profile does not say how many samples its minibatch has", where=path,
                          allowed="a number above 0", todo="Name it: --profiled-samples 64.")
    return graph
