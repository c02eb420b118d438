"""Gavel: an objective over effective throughputs says which share of its time each job deserves on each GPU type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.estimate.time_left import TimeLeft
from policies.mechanisms import GavelRounds
from policies.shares.demand import Demand, grouped
from policies.shares.finish_time import fairest_finish
from policies.shares.linear import SolverError
from policies.shares.objectives import fair_need, fairest, in_order, soonest, worthiest
from policies.shares.water_filling import always, by_tenant, filled
from sim.api import Decision, PolicyError, View, param
from traces.errors import did_you_mean

BY_RUN_TIMES = ("ftf", "makespan", "cost-slo")
LEAVES_IDLE = ("fifo", "cost", "cost-slo")
"""Who deserves nothing by these is to have nothing: else jobs would be passed, or run where it is dear."""


@dataclass
class Gavel(GavelRounds):
    """Gives each job the share of time on each GPU type that an objective says (Narayanan et al., OSDI'20).

    Shares X >= 0 of time, with sum_t X[j, t] <= 1 for each job and sum_j gpus[j] X[j, t] <= GPUs of t for each type,
    give job j the effective throughput E[j] = sum_t T[j, t] X[j, t]; T is the believed work a second of its gang. M[j]
    is sum_t T[j, t] GPUs[t] / all GPUs, w[j] its weight (`priority`), L[j] its believed work left, n the jobs there.

    ============  ==========================================================================================
    las           max min_j gpus[j] E[j] / (w[j] M[j]), max-min fairness (section 4.1)
    ftf           min max_j (age[j] + L[j] / E[j]) / (the same on a 1/n of the cluster), finish-time fairness
    makespan      max min_j E[j] / L[j]: the jobs that are there end soonest, all together
    fifo          in order of submission, all the time on the type with room where it is fastest; no one passes
    throughput    max sum_j E[j], in units of work, as there: who does many small iterations counts more
    cost          max sum_jt T[j, t] X[j, t] / price of t: work for each USD
    cost-slo      the same with E[j] >= L[j] / (time to the deadline)
    hierarchical  max-min over tenants (virtual clusters) by `tenant_weights`, and jobs `within` them, by water filling
    ============  ==========================================================================================

    What the objective leaves open is given so that sum_j E[j] / M[j] is the largest. With `aware=false` T is 1 on each
    type that the job may use, and work is in seconds on the reference GPUs: the heterogeneity-agnostic twin. Jobs that
    are alike are one column of the program. Rounds, priorities and placement: the mechanism `GavelRounds`.

    Must know: speeds (`--speed-belief`); ftf, makespan and cost-slo run times, too (`--estimate`; unknown: the mean of
    those known). A job that no type is believed to run is rejected; one of which no speed is known counts as equally
    fast on all its types. Deadlines that cannot all be met are missed by the same factor; past ones are let go. Where
    the solver fails or its time is up, shares are equal. A weight of 0 gets what others leave. The last four are
    counted in run.json (`policy_counts`), as are jobs of unknown speed.

    Departs from the paper: its fifo is a program over the same order; its cost divides the sums, whose best is one job
    on one type; its makespan is bisected. Not here: pairs of jobs that share GPUs. Gangs are counted in GPUs, so wide
    ones may not fit together as the shares suppose, and quotas are not in the program.
    """

    needs_throughput: ClassVar[bool] = True

    spare: str = param(
        "by-objective", choices=("by-objective", "idle", "fill"), help="GPUs that no job deserves: stay idle, or fill: "
        "go to other jobs, as if at priority 0; by-objective: idle with fifo, cost and cost-slo, else fill (run.json "
        "has which)")
    walk: str = param(
        "by-awareness", choices=("by-awareness", "pairs", "types", "shuffled"), help="pairs of job and type by "
        "priority, type by type in the cluster's order, or in an order drawn for each round; by-awareness: types, and "
        "shuffled where not aware, since in the cluster's order who fills gets the fastest GPUs (run.json has which)")
    objective: str = param(
        "las", choices=("las", "ftf", "makespan", "fifo", "throughput", "cost", "cost-slo", "hierarchical"),
        help="what shares are best by: see the policy's description")
    aware: bool = param(True, help="knows how fast each job is on each GPU type; false: takes all types as equal")
    blind: str = param(
        "able", choices=("able", "all"), help="where not aware: the types on which a job runs count (able), or all, as "
        "in Gavel's simulator, so that time that it deserves on the others is lost")
    water_filling: bool = param(
        False, help="las: raise those who can still rise when the slowest cannot, and so on")
    within: str = param(
        "fair", choices=("fair", "fifo"), help="hierarchical: a tenant's jobs alike, or in order of submission")
    tenant_weights: str = param(
        "", help="hierarchical: weights of virtual clusters, such as a=2,b=1; those not named: 1")
    rest: str = param(
        "best", choices=("best", "centre"), help="las, ftf and makespan leave shares open: best gives what is left to "
        "those who gain most by it; centre takes the centre of all shares that are as good (always where not aware)")
    bisected: float = param(
        0.0, low=0, help="makespan with rest=centre: found by bisection to within this part, as Gavel's simulator has "
        "it (0.05); 0: exact")
    solver_s: float = param(60.0, unit="s", above=0, help="time of the solver for one program; then shares are equal")

    def __post_init__(self) -> None:
        if self.objective in BY_RUN_TIMES:
            vars(self).update(needs_estimates=True)

    def prepare(self, view: View) -> None:
        """Speeds, weights and prices of the run.

        Raises
        ------
        PolicyError
            Tenant weights that cannot be read or name no virtual cluster; a cost objective where a price is unknown.
        """
        if self.spare == "by-objective":  # from here on what is used, so that run.json tells it
            self.spare = "idle" if self.objective in LEAVES_IDLE else "fill"
        if self.walk == "by-awareness":
            self.walk = "types" if self.aware else "shuffled"
        super().prepare(view)
        self._counts: Counter[str] = Counter()
        self._left_s = TimeLeft(view, aware=self.aware)
        self._centre = self.rest == "centre" or not self.aware
        self._price = np.array([gpu.price_or_nan for gpu in view.cluster.types])
        if self.objective.startswith("cost") and not (self._price > 0).all():
            raise PolicyError("the price of a GPU type is unknown", where="policy 'gavel', setting 'objective'",
                              got=", ".join(g.name for g in view.cluster.types if not g.price_or_nan > 0),
                              allowed="a price above 0 of each type", todo="Give prices with --prices.")
        self._tenant_weight = self._weights_of_tenants(view.jobs.vc_names)
        n = len(view.jobs)
        # Finish-time fairness: time that what is done would have taken on a part of its own, and since when.
        self._isolated_s, self._work_then, self._isolated_rate = np.zeros(n), np.full(n, np.nan), np.ones(n)
        self._kept: tuple[bytes, np.ndarray] | None = None

    def counted(self) -> Mapping[str, int]:
        return {**self._left_s.counts, **self._counts}

    def decide(self, view: View) -> Decision:
        if lost := self._left_s.lost(view):
            return Decision(reject=lost)  # before others' rests go to them; asked again at once
        return super().decide(view)

    def able(self, view: View, rows: np.ndarray) -> np.ndarray:
        return np.asarray(super().able(view, rows) & (self._left_s.speeds(view, rows) > 0))

    def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
        there = np.maximum(view.scratch(view.running).type_milli(), 0) / 1000.0
        gpus = view.jobs.gpus[rows]
        speed = np.where(gpus[:, None] <= there, self._speeds(view, rows), 0.0)
        timeless = self.objective not in BY_RUN_TIMES
        asked = rows.tobytes() + there.tobytes() + speed.tobytes()
        if timeless and self._kept is not None and self._kept[0] == asked:
            return self._kept[1]
        try:
            shares = self._shares_by(view, rows, speed, gpus, there)
        except SolverError as error:
            why = "the solver's time was up" if error.limit else "the solver found no best ones"
            self._counts[f"decisions by equal shares, since {why}"] += 1
            demand, _, group = grouped(speed, gpus, there)
            shares = demand.equal()[group]
        self._kept = (asked, shares) if timeless else None
        return shares

    def _shares_by(
        self, view: View, rows: np.ndarray, speed: np.ndarray, gpus: np.ndarray, there: np.ndarray
    ) -> np.ndarray:
        """Shares by the objective: float64 [rows, types]."""
        weight, limit_s, centre = view.jobs.priority[rows], self.solver_s, self._centre
        if self.objective == "fifo":
            return in_order(speed, gpus, there)
        if self.objective == "ftf":
            return self._by_finish_times(view, rows, speed, gpus, there)
        if self.objective == "makespan":
            demand, first, group = grouped(speed, gpus, there, left := self._left_s.work(view, rows))
            return soonest(demand, left[first], limit_s, centre=centre, within=self.bisected)[group]
        if self.objective == "hierarchical":
            tenant = view.jobs.vc[rows].astype(np.int64)
            apart = np.arange(rows.size) if self.within == "fifo" else np.zeros(rows.size)
            demand, first, group = grouped(speed, gpus, there, weight, tenant, apart)
            weights = by_tenant(tenant[first], self._tenant_weight, weight[first], demand.jobs, self.within)
            return filled(demand, weights, limit_s)[group]
        if self.objective == "las":
            demand, first, group = grouped(speed, gpus, there, weight)
            if self.water_filling:
                return filled(demand, always(weight[first]), limit_s)[group]
            return fairest(demand, fair_need(demand, weight[first]), limit_s, centre=centre)[group]
        need = self._deadline_rates(view, rows) if self.objective == "cost-slo" else np.zeros(rows.size)
        demand, first, group = grouped(speed, gpus, there, need)
        price = np.ones(there.size) if self.objective == "throughput" else self._price
        shares, met = worthiest(demand, demand.speed / price, need[first], limit_s)
        if met < 1 - 1e-6:
            self._counts["decisions in which deadlines could not all be met"] += 1
        return shares[group]

    def _by_finish_times(
        self, view: View, rows: np.ndarray, speed: np.ndarray, gpus: np.ndarray, there: np.ndarray
    ) -> np.ndarray:
        """Finish-time fairness, with its books: what is done counts as of the part of its own that a job had then."""
        left = self._left_s.work(view, rows)
        known = ~np.isnan(self._work_then[rows])
        done = np.where(known, self._work_then[rows] - left, 0.0)
        self._isolated_s[rows] += np.maximum(done, 0.0) / self._isolated_rate[rows]
        part = Demand(speed, gpus, np.ones(rows.size), there)
        rate = part.rate(part.equal())
        self._work_then[rows], self._isolated_rate[rows] = left, np.where(rate > 0, rate, np.inf)
        age_s = view.now_s - view.jobs.submit_s[rows]
        whole_s = self._isolated_s[rows] + left / np.where(rate > 0, rate, 1.0)
        demand, first, group = grouped(speed, gpus, there, age_s, left, whole_s)
        return fairest_finish(
            demand, age_s[first], left[first], whole_s[first], self.solver_s, centre=self._centre
        )[0][group]

    def _deadline_rates(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Work a second that each job needs to end by its deadline: float64 [rows], 0 without one, or past it."""
        time_s = view.jobs.deadline_s[rows] - view.now_s
        self._counts["deadlines let go in a decision, since they are past"] += int((time_s <= 0).sum())
        return np.where(time_s > 0, self._left_s.work(view, rows) / np.where(time_s > 0, time_s, 1.0), 0.0)

    def _speeds(self, view: View, rows: np.ndarray) -> np.ndarray:
        """Speed of each job on each type, 0 where it may not or cannot run: float64 [rows, types]."""
        speed = self._left_s.speeds(view, rows)
        if not self.aware and self.blind == "all":
            speed[(speed > 0).any(axis=1)] = 1.0
        return speed

    def _weights_of_tenants(self, names: tuple[str, ...]) -> np.ndarray:
        weights = np.ones(max(1, len(names)))
        for part in filter(None, (word.strip() for word in self.tenant_weights.split(","))):
            name, _, value = part.rpartition("=")
            try:
                number = float(value)
            except ValueError:
                number = np.nan
            if not 0 < number < np.inf or not name:
                raise PolicyError("value not allowed", where="policy 'gavel', setting 'tenant_weights'", got=part,
                                  allowed="name=weight, weights above 0, joined by commas")
            if name not in names:
                raise PolicyError("no such virtual cluster", where="policy 'gavel', setting 'tenant_weights'", got=name,
                                  allowed=", ".join(names) or "none", todo=did_you_mean(name, names))
            weights[names.index(name)] = number
        return weights
