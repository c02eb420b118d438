"""Measured throughput tables: rates as someone measured them, for job types and GPU types that they had."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sim.performance.graph import PerformanceError
from traces.errors import did_you_mean

_KEY = re.compile(r"^\('(?P<job>.+)', (?P<count>\d+)\)$")
_SPREAD = "_unconsolidated"


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """Steps a second of whole jobs (not of a GPU of theirs), by job type, GPU type, GPU count and placement.

    Attributes
    ----------
    steps_per_s : (job type, GPU type in lower case, GPUs, consolidated) -> rate; 0: it did not fit.
    gpus_per_node : GPUs on a node where this was measured; a gang on the fewest such nodes is consolidated.
    source : the file, for messages.
    """

    steps_per_s: Mapping[tuple[str, str, int, bool], float]
    gpus_per_node: int
    source: str

    @property
    def job_types(self) -> tuple[str, ...]:
        """Job types in the table, in the order of the file."""
        return tuple(dict.fromkeys(key[0] for key in self.steps_per_s))

    @classmethod
    def from_gavel(cls, path: str | Path, gpus_per_node: int = 4) -> MeasuredTable:
        """Read the Gavel project's JSON: GPU type -> "('job type', GPUs)" -> {"null": rate alone, ...}.

        A GPU type that ends in '_unconsolidated' holds the rates of gangs that are spread. Rates of jobs that
        share a GPU with another are not read.

        Raises
        ------
        PerformanceError
            Not such a file, or a rate that is not a number from 0 up.
        """
        where = str(path)
        try:
            raw = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise PerformanceError(
                "the throughput table cannot be read", where=where, got=str(error), allowed="a JSON file"
            ) from None
        if not isinstance(raw, dict) or not all(isinstance(entries, dict) for entries in raw.values()):
            raise PerformanceError(
                "not a throughput table",
                where=where,
                got=type(raw).__name__,
                allowed="GPU type -> job type and GPUs -> rates",
            )
        rates = {}
        for gpu, entries in raw.items():
            for key, values in entries.items():
                match = _KEY.match(key)
                rate = values.get("null") if isinstance(values, dict) else None
                at = f"{where}, {gpu}, {key}"
                if match is None:
                    raise PerformanceError(
                        "a key cannot be read", where=at, got=key, allowed="('job type', GPUs)"
                    )
                if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < math.inf:
                    raise PerformanceError(
                        "a rate cannot be used", where=at, got=rate, allowed="steps a second, 0 or more"
                    )
                name = gpu.removesuffix(_SPREAD).lower()
                rates[match["job"], name, int(match["count"]), not gpu.endswith(_SPREAD)] = float(rate)
        return cls(rates, gpus_per_node, where)

    def consolidated(self, gpus_on_nodes: tuple[int, ...]) -> bool:
        """Whether a gang with so many GPUs on each node is on as few nodes as the table's would need."""
        return len(gpus_on_nodes) <= -(-sum(gpus_on_nodes) // self.gpus_per_node)

    def rate(self, job_type: str, gpu: str, count: int, consolidated: bool = True) -> float:
        """Steps a second of the whole job; 0: it does not fit.

        Raises
        ------
        PerformanceError
            Nobody measured this: nothing is interpolated.
        """
        key = (job_type, gpu.lower(), count, consolidated)
        if key not in self.steps_per_s:
            known = sorted({k[1:] for k in self.steps_per_s if k[0] == job_type})
            allowed = (
                "; ".join(f"{n} {g}{'' if c else ' spread'}" for g, n, c in known)
                or ", ".join(self.job_types[:5]) + ", ..."
            )
            how = "consolidated" if consolidated else "spread"
            raise PerformanceError(
                "the throughput table has no such point",
                where=self.source,
                got=f"job type {job_type}, GPU type {gpu}, {count} GPUs, {how}",
                allowed=allowed,
                todo="" if known else did_you_mean(job_type, self.job_types),
            )
        return self.steps_per_s[key]
