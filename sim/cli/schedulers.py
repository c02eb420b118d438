"""`hetsim policies` and `hetsim check`: the schedulers, and whether one keeps the rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.cli import console
from sim.cli.options import Params

if TYPE_CHECKING:
    from policies.checks import Case, Ran
    from sim.api import Policy


def list_policies(name: Annotated[str | None, typer.Argument(help="Policy to show in full.")] = None) -> None:
    """List the policies, or show one: its settings, and what it needs.

    \b
    Examples:
      hetsim policies
      hetsim policies tiresias
    """
    from policies.registry import find, names

    if name is None:
        console.show(console.policies_table({each: find(each) for each in names()}))
    else:
        console.show(console.policy_table(find(name)))


def check(
    name: Annotated[str, typer.Argument(help="Policy to check.")],
    param: Params = None,
) -> None:
    """Check that a policy keeps the rules that every policy must keep; exit with 1 if it does not.

    \b
    Examples:
      hetsim check fifo
      hetsim check tiresias -P queue_limits=600
    """
    from policies.checks import check_policy
    from sim.settings.config import parse_setting

    report = check_policy(name, dict(parse_setting(text) for text in param or []), runner=replay)
    console.tell(report.text)
    if not report.ok:
        raise typer.Exit(1)


def replay(case: Case, policy: Policy, speed_belief: str = "exact") -> Ran:
    """Simulate and audit one case of the conformance suite (see `policies.checks.Runner`), under a belief of speeds."""
    from analysis.audit import audit as audited
    from analysis.run import Run
    from policies.checks import Ran
    from policies.estimate.speeds import believed_speeds, profile
    from sim.cluster.clusterfiles import load_cluster
    from sim.engine.simulate import simulate
    from sim.hardware.gputypes import gpu_type
    from sim.performance import Performance
    from sim.settings.config import EngineConfig
    from sim.workload.progress import Modelled, Recorded
    from traces.trace import Trace

    cluster = load_cluster("+".join(f"{kind}:{count}x{gpus}" for kind, count, gpus in case.nodes))
    trace, performance = Trace.from_columns(case.columns), Performance(links=cluster.links)
    planned = policy.needs_performance or policy.needs_throughput
    truth = Modelled(trace, cluster, performance, gpu_type("V100")) if planned else Recorded(trace, cluster)
    true_s = truth.work_total / truth.reference_rate
    believed = believed_speeds(speed_belief, performance, trace.model.tolist(), 0, "refuse", cluster.types)
    result = simulate(trace, cluster, policy, truth, EngineConfig(**case.engine), estimate_s=true_s,
                      performance=believed if planned else None, speed_belief=speed_belief,
                      profiling_s=profile(speed_belief)[0])

    def audit() -> str:
        return str(audited(Run(Path(case.name), result.tables, result.info, result.timing)).first or "")

    return Ran({name: table.to_pylist() for name, table in result.tables.items()}, audit)
