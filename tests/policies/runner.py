"""The runner that lets `policies.checks` use the engine and the audit."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from analysis.audit import audit
from analysis.run import Run
from policies.checks import Case, Ran
from sim.api import Policy
from sim.config import EngineConfig
from sim.hardware import gpu_type
from sim.performance import Performance
from sim.progress import Modelled, Recorded
from sim.simulate import simulate
from tests.helpers import nodes
from traces.trace import Trace


@cache
def performance() -> Performance:
    return Performance()


def runner(case: Case, policy: Policy) -> Ran:
    """Replay a case and audit it."""
    trace, cluster = Trace.from_columns(case.columns), nodes(*case.nodes)
    plans = policy.needs_performance
    truth = Modelled(trace, cluster, performance(), gpu_type("V100")) if plans else Recorded(trace, cluster)
    config = EngineConfig(**{"preemption_overhead_s": 1.0, **case.engine})
    result = simulate(trace, cluster, policy, truth, config, estimate_s=trace.duration_s,
                      performance=performance() if plans else None)
    report = audit(Run(Path("memory"), result.tables, result.info, result.timing))
    return Ran({name: table.to_pylist() for name, table in result.tables.items()}, str(report.first or ""))
