"""What schedulers share, one file a mechanism; a scheduler adds its key, or what it deserves, and little else.

`Ordered` walks the queue and starts, `Preemptive` chooses anew who runs (`ByForm`: by keys that kernels know), `Rounds`
gives GPUs for a round at a time (`GavelRounds`: as Gavel does), `TenantQueues` lends what its owners leave idle and
takes it back, `ByEnds` plans by believed ends. All place gangs by one of the rules of `sim.kernels.placement`: count,
first-fit, best-fit, consolidate (`Placing`).
"""

from policies.mechanisms.by_ends import ByEnds
from policies.mechanisms.informed import Informed
from policies.mechanisms.ordered import Ordered
from policies.mechanisms.placing import Placing, nothing_to_do
from policies.mechanisms.preemptive import ByForm, Preemptive
from policies.mechanisms.rounds import GavelRounds, Rounds, rounds_param
from policies.mechanisms.tenantqueues import TenantQueues

__all__ = [
    "ByEnds",
    "ByForm",
    "GavelRounds",
    "Informed",
    "Ordered",
    "Placing",
    "Preemptive",
    "Rounds",
    "TenantQueues",
    "nothing_to_do",
    "rounds_param",
]
