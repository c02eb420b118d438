"""Capacity scheduling: queues with guarantees that lend what is idle, as YARN's capacity scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from policies.mechanisms.tenantqueues import TenantQueues
from sim.api import Tenants


@dataclass
class Capacity(TenantQueues):
    """First in, first out in each queue; the queue that uses the least part of its guarantee goes first.

    Turn: held / guaranteed of the virtual cluster's queues, the outermost first (without a guarantee: inf), as the
    ordering by utilization of YARN's capacity scheduler (Hadoop's documentation; Vavilapalli et al., SoCC'13); there
    preemption is gradual, here what is claimed comes back at once, gang by gang.
    """

    def turn(self, tenants: Tenants, vc: int) -> tuple[float, ...]:
        """Used part of the guarantee on the way down to a virtual cluster."""
        return tuple(tenants.used(queue) for queue in tenants.paths[vc])
