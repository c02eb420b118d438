"""What GPU time costs: at the run's own price or at the catalogue's, by the GPU, by the node, or for the whole cluster.

An unknown price is never zero: it makes a total unknown, and what is known of it a lower bound.
"""

from __future__ import annotations

import numpy as np

from analysis.metrics.gputime import capacity_gpu_s, held_gpu_s, of_types
from analysis.metrics.occupancy import node_states
from analysis.run import Run, RunError
from sim.hardware.gputypes import PRICE_KINDS
from sim.results.schema import zoned
from traces.errors import did_you_mean

UNITS = ("gpu", "node", "cluster")
"""What is paid for: the GPUs held, each node while any of its GPUs is held, or all that is in service."""


def paid_gpu_s(run: Run, per: str = "gpu") -> np.ndarray:
    """GPU time that is paid for on each node, in GPU-s.

    'gpu': what jobs held, shares as shares (`held_gpu_s`). 'node': all GPUs of the node while any of them is
    held. 'cluster': all GPUs in service, held or not, over the whole window (`capacity_gpu_s`).

    Raises
    ------
    RunError
        `per` is none of `UNITS`.
    """
    if per not in UNITS:
        raise RunError("unknown unit of what is paid for", got=per, allowed=", ".join(UNITS),
                       todo=did_you_mean(per, UNITS))
    if per == "gpu":
        return held_gpu_s(run)
    if per == "cluster":
        return capacity_gpu_s(run)
    state = node_states(run)
    in_use_s = np.bincount(state.unit, weights=state.length_s * (state.held_milli > 0), minlength=len(run.node_type))
    rented: np.ndarray = in_use_s * run.column("nodes", "gpus")
    return rented


def price_usd_per_gpu_h(run: Run, kind: str | None = None) -> np.ndarray:
    """Price of a GPU-hour on each node, in USD; NaN where unknown. `kind` None: the price that the run was made with.

    Raises
    ------
    RunError
        `kind` is none of `sim.hardware.gputypes.PRICE_KINDS`.
    """
    if kind is None:
        return run.column("nodes", "price_usd_per_gpu_h")
    if kind not in PRICE_KINDS:
        raise RunError("unknown kind of price", got=kind, allowed=", ".join(PRICE_KINDS),
                       todo=did_you_mean(kind, PRICE_KINDS))
    return run.column("nodes", f"{kind.replace('-', '_')}_usd_per_gpu_h")


def _bill(run: Run, kind: str | None, per: str | None) -> tuple[np.ndarray, np.ndarray]:
    """GPU-hours paid for and their price, a node each."""
    per = per or ("cluster" if kind == "reserved" else "gpu")
    return paid_gpu_s(run, per) / 3600.0, price_usd_per_gpu_h(run, kind)


def cost_usd(run: Run, kind: str | None = None, per: str | None = None) -> float | None:
    """Cost in USD, ``sum(GPU-h paid for * price)`` and, of several zones, `cost_egress_usd`.

    None as soon as any of that time, or of what leaves a zone, has no known price.

    Parameters
    ----------
    kind : 'on-demand', 'spot', 'reserved': prices of the catalogue as they were when the run was made.
        None: the run's own price.
    per : what is paid for, see `paid_gpu_s`. None: 'cluster' for reserved GPUs, which are paid whether they are
        used or not, else 'gpu'.
    """
    parts = [*cost_by_type_usd(run, kind, per).values(), cost_egress_usd(run)]
    return None if None in parts else sum(part for part in parts if part is not None)


def cost_known_usd(run: Run, kind: str | None = None, per: str | None = None) -> float:
    """Known part of `cost_usd`: over GPUs and bytes whose price is known; a lower bound of the cost."""
    return sum([*cost_known_by_type_usd(run, kind, per).values(), float(np.nansum(segment_egress_usd(run)))])


def segment_egress_usd(run: Run) -> np.ndarray:
    """float64 [segments]: USD for bytes that left a zone, ``work_done * egress_usd_per_work``; NaN where unknown.

    It is paid whatever the GPUs cost, and is no part of the cost of a GPU type. 0 in runs without zones.
    """
    if not zoned(run.tables["segments"]):
        return np.zeros(len(run.segment_job))
    return run.column("segments", "egress_usd")


def cost_egress_usd(run: Run) -> float | None:
    """Part of the cost that is for bytes that left a zone, in USD; None: some of it is unknown."""
    usd = float(segment_egress_usd(run).sum())
    return None if np.isnan(usd) else usd


def unpriced_types(run: Run, kind: str | None = None, per: str | None = None) -> list[str]:
    """GPU types of which time that is paid for has no known price."""
    return [name for name, cost in cost_by_type_usd(run, kind, per).items() if cost is None]


def cost_by_type_usd(run: Run, kind: str | None = None, per: str | None = None) -> dict[str, float | None]:
    """`cost_usd` of GPUs by their type; None for a type of which any time that is paid for has no known price."""
    hours, price = _bill(run, kind, per)
    bill = of_types(run, np.where(hours > 0, hours * price, 0.0))
    return {name: None if np.isnan(part) else part for name, part in bill.items()}


def cost_known_by_type_usd(run: Run, kind: str | None = None, per: str | None = None) -> dict[str, float]:
    """`cost_known_usd` of GPUs by their type."""
    hours, price = _bill(run, kind, per)
    return of_types(run, np.nan_to_num(hours * price))
