"""Traces that a process keeps between cells: read once, not once a cell."""

from __future__ import annotations

import socket
from collections import OrderedDict

from sim.settings.config import RunConfig
from sim.workload.at_load import own_clock
from sim.workload.prepare import whole_trace
from traces.errors import HetsimError
from traces.synthetic.generate import GENERATORS
from traces.trace import Trace

KEEP = 4
"""Traces kept, those that were asked for last."""


class SweepError(HetsimError):
    """A sweep that cannot be played, or a folder that is none."""


def whole(config: RunConfig) -> tuple[object, ...]:
    """What a trace before its jobs are selected is made of."""
    made: tuple[object, ...] = (config.format,)
    if config.trace in GENERATORS:
        made = (config.seed, "month") if own_clock(config) else (config.seed, config.jobs)
    return (config.trace, *made, tuple(sorted(config.read.items())))


class Traces:
    """Whole traces by what they are made of; a file's by the hash of its content, so that none is ever stale."""

    def __init__(self, keep: int = KEEP) -> None:
        self._keep = keep
        self._kept: OrderedDict[tuple[object, ...], Trace] = OrderedDict()

    def get(self, config: RunConfig, sha256: str | None = None) -> Trace:
        """The trace before its jobs are selected; `sha256` is that which its file must have (None: any).

        Raises
        ------
        HetsimError
            It cannot be read, or is not the one that was asked for.
        """
        name = whole(config)
        key = (*name, sha256)
        if key not in self._kept:
            trace = whole_trace(config)
            if sha256 is not None and trace.provenance.sha256 != sha256:
                raise SweepError(
                    "the trace is not that with which the sweep was checked",
                    where=f"{config.trace} on {socket.gethostname()}", got=trace.provenance.sha256[:16],
                    allowed=f"a file with SHA-256 {sha256[:16]}…",
                    todo="Workers read traces by the same path: share the folder, or copy the same file there.")
            self._kept[(*name, trace.provenance.sha256)] = trace
            key = (*name, trace.provenance.sha256)
        self._kept.move_to_end(key)
        while len(self._kept) > self._keep:
            self._kept.popitem(last=False)
        return self._kept[key]


TRACES = Traces()
"""Those of this process, shared by the check of a sweep and by the cells that it plays."""
