"""One run from its settings: the one place that brings policy, trace, cluster and engine together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from policies.estimate import run_times_s
from policies.estimate.completed import mean_error
from policies.estimate.speeds import believed_speeds, profile
from policies.registry import make
from sim.cluster.clusterfiles import load_cluster
from sim.engine.simulate import RunResult, simulate
from sim.hardware.gputypes import GpuType, with_types
from sim.performance.type_order import with_type_order
from sim.results.schema import in_json
from sim.results.spool import Spool
from sim.settings.config import RunConfig
from sim.settings.hardwarefile import as_table
from sim.workload.prepare import Workload, check_files, prepare, resolved
from traces.trace import Trace


class Replay:
    """A run that is about to be made: what fails fast has been tried (policy and its settings, cluster).

    Attributes
    ----------
    config : the settings, with what a built-in trace is given where nothing was said.
    policy : the scheduler, made anew for this run.
    cluster : what there is, its GPU types in the order in which they are tried (`type_order`).
    workload : the trace, read and made ready when first asked for (`whole`: by what, see
        `sim.workload.prepare.read_trace`).

    Raises
    ------
    HetsimError
        An unknown policy or setting of one, a cluster that cannot be made; with `workload`, a trace that cannot be
        read.

    Examples
    --------
    >>> replay = Replay(RunConfig(policy="las", trace="philly", jobs=100, cluster="v100:4x8", work="recorded"))
    >>> result = replay.play()
    >>> len(result.tables["jobs"]), result.info["policy"]
    (100, 'las')
    """

    def __init__(self, config: RunConfig, whole: Callable[[RunConfig], Trace] | None = None) -> None:
        self._whole = whole
        self.policy = make(config.policy, config.policy_settings)
        self.config = resolved(config)
        check_files(self.config)
        config = self.config
        with with_types(config.own_types):
            self.cluster = with_type_order(
                load_cluster(config.cluster, config.prices), config.type_order, config.calibration, config.seed
            )

    @property
    def own_types(self) -> tuple[GpuType, ...]:
        """Types of the user's own: those of the settings, then those of the cluster's file."""
        named = {gpu.name for gpu in self.config.own_types}
        return *self.config.own_types, *(gpu for gpu in self.cluster.types if gpu.own and gpu.name not in named)

    @cached_property
    def workload(self) -> Workload:
        with with_types(self.own_types):
            return prepare(self.config, self.cluster, self._whole)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings as JSON can hold them, the policy's own with their defaults; where results go is none."""
        kept = self.config.model_dump(exclude={"out", "policy_settings"})
        if own := as_table(self.own_types):  # by value: the files may change
            kept["hardware"] = own
        else:
            del kept["hardware"]
        kept["policy_settings"] = {name: getattr(self.policy, name) for name in self.policy.settings()}
        settings: dict[str, Any] = in_json(kept)
        return settings

    def play(
        self, on_progress: Callable[[int, float], None] | None = None, spool: Spool | None = None
    ) -> RunResult:
        """Replay the trace; see `sim.engine.simulate` for what is called now and then, and where long tables go."""
        with with_types(self.own_types):
            return self._play(on_progress, spool)

    def _play(self, on_progress: Callable[[int, float], None] | None, spool: Spool | None) -> RunResult:
        config, policy, work = self.config, self.policy, self.workload
        believed, truth, speeds, belief, more = None, work.performance, work.performance, "exact", {}
        if policy.needs_estimates:
            believed = run_times_s(config.estimate, work.true_s, work.trace.estimate_s, config.seed)
        if truth is not None and (policy.needs_performance or policy.needs_throughput):
            belief, models = config.speed_belief, work.trace.model.tolist()
            speeds = believed_speeds(belief, truth, models, config.seed, config.measured_gaps, self.cluster.types)
            if belief.startswith("completed:"):
                error = mean_error(speeds, truth, models, self.cluster.types)
                more = {} if np.isnan(error) else {"speed_error": error}
        return simulate(
            work.trace, self.cluster, policy, work.truth, config.engine, performance=speeds,
            estimate_s=believed, estimate=config.estimate, speed_belief=belief, profiling_s=profile(belief)[0],
            seed=config.seed,
            worth_gpus=None if work.performance is None else work.worth_gpus,
            settings={"config": self.settings, **more}, on_progress=on_progress, spool=spool,
        )
