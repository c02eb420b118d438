"""The measures of a run by name: unit, meaning and formula, in the order in which they are shown.

`analysis.metrics.measures` works them out; `docs/metrics.md` shows this table. A name ends in its unit: _s, _gpu_h,
_usd, _kwh, _share (from 0 to 1); slowdowns, rho, loads and Jain's indices have none, and the others count.
"""

from __future__ import annotations

from typing import NamedTuple

from analysis.formats import without_unit


class Measure(NamedTuple):
    """What a number of a run is."""

    unit: str
    """'' for a number without one."""
    meaning: str
    formula: str
    name: str = ""
    """What the field calls it: along axes and in tables. In `MEASURES` each has one."""

    @property
    def label(self) -> str:
        """The name with its unit in brackets; shares say theirs in their values."""
        return self.name + (f" ({self.unit})" if self.unit not in ("", "share") else "")


def _quantiles(name: str, unit: str, what: str, formula: str, levels: str, short: str = "") -> dict[str, Measure]:
    """Mean and percentiles of a value of finished jobs; percentiles interpolate linearly."""
    end = f"_{unit}" if unit else ""
    words = {"mean": "mean", "p50": "median", "p90": "90th percentile", "p99": "99th percentile",
             "p999": "99.9th percentile"}
    brief = {"mean": "mean", "p50": "median", "p90": "p90", "p99": "p99", "p999": "p99.9"}
    return {
        f"{name}_{level}{end}": Measure(unit, f"{what}, {words[level]}", formula, f"{brief[level]} {short or what}")
        for level in levels.split()
    }


ALL_LEVELS = "mean p50 p90 p99 p999"
MEASURES: dict[str, Measure] = {
    "window_s": Measure("s", "length of the window that is measured", "end − begin; a whole run: first submit to last "
                        "event"),
    "jobs": Measure("", "jobs that count", "submitted in the window; a whole run: all of the trace; less those cut"),
    "jobs_cut": Measure("", "jobs of which the log shows a part: they hold GPUs, and do not count",
                        "cut = before, after or both"),
    "jobs_finished": Measure("", "of those that count, ran to their recorded end", "done + killed + failed"),
    "jobs_done": Measure("", "finished, and well as the trace has it", "state = done"),
    "jobs_killed": Measure("", "finished where the trace says that they were killed", "state = killed"),
    "jobs_failed": Measure("", "finished where the trace says that they failed", "state = failed"),
    "jobs_rejected": Measure("", "rejected: they cannot run here", "state = rejected"),
    "jobs_refused": Measure("", "refused by the policy, though they could run", "state = refused"),
    "jobs_unfinished": Measure("", "still there when the run or the window ended", "state = unfinished"),
    "jobs_censored": Measure("", "of these, outlast the measuring window: their JCT is unknown",
                             "unfinished when a window closed that does not follow its jobs"),
    **_quantiles("jct", "s", "job completion time", "end_s − submit_s", ALL_LEVELS, "JCT"),
    "jct_weighted_s": Measure("s", "mean job completion time weighted by priority", "Σ w JCT / Σ w"),
    **_quantiles("queue", "s", "time waited", "JCT − time in segments", ALL_LEVELS, "queueing time"),
    **_quantiles("slowdown", "", "slowdown", "JCT / duration_s", "mean p50 p99"),
    **_quantiles("bounded_slowdown", "", "bounded slowdown", "max(1, JCT / max(duration_s, 10 s))", "mean p50 p99"),
    "makespan_s": Measure("s", "first submit to last end of the window's jobs; unknown where a window censors some",
                          "max end_s of segments − min submit_s"),
    "capacity_gpu_h": Measure("GPU-h", "GPU time in service", "Σ gpus × (window − time down) − Σ time of GPUs out"),
    "held_gpu_h": Measure("GPU-h", "GPU time held", "Σ gpus × (end_s − begin_s) of segments"),
    "utilisation_share": Measure("share", "GPU time held of that in service", "held / capacity"),
    "partly_free_share": Measure("share", "free GPU time that lies on partly held nodes", "Σ free GPU-s of nodes with "
                                 "0 < held / Σ free GPU-s"),
    "fragmented_share": Measure("share", "free GPU time of no use, where it is, to a job drawn from those of the "
                                "window that were not rejected",
                                "∫ Σ_nodes Σ_m p_m F(m) dt / Σ free GPU-s"),
    "stranded_share": Measure("share", "free GPU time while a job waited that fitted in number, but on no node",
                              "∫ free × [such a job waits] dt / Σ free GPU-s"),
    "goodput_share": Measure("share", "GPU time held that made lasting progress", "1 − wasted / held"),
    "wasted_gpu_h": Measure("GPU-h", "GPU time held without lasting progress", "overhead + lost"),
    "wasted_overhead_gpu_h": Measure("GPU-h", "of it, restarts", "Σ gpus × min(overhead_s, end_s − begin_s)"),
    "wasted_lost_gpu_h": Measure("GPU-h", "of it, work that was done again", "Σ gpus × lost work / rate"),
    "wasted_share": Measure("share", "wasted GPU time of that held", "wasted / held"),
    "unsuccessful_gpu_h": Measure("GPU-h", "GPU time of all jobs that the trace says were killed or failed (not waste)",
                                  "Σ gpu_s of jobs that end as killed or failed in the whole run"),
    "modelled_load": Measure("", "the load: demand of the window's jobs, cut ones too, over what the cluster can do by "
                             "modelled speed while they come, as the setting load has it", "D / (W T), W what the "
                             "cluster is worth in recorded GPUs"),
    "offered_load_span": Measure("", "the same as if all GPUs were those that run times were recorded on", "D / (N T)"),
    "offered_load": Measure("", "the recorded load, with a mean run time for the last to end", "D / (N (T + D / G))"),
    "backlog_gpu_h": Measure("GPU-h", "recorded GPU time of their work that was late at the end of T + D / G",
                             "Σ GPUs × max(0, due − done)"),
    "drain_s": Measure("s", "how long after it the window's jobs, cut ones too, were on GPUs; unknown "
                       "while one is unfinished",
                       "max(0, max end_s − (min submit_s + T + D / G))"),
    "preemptions": Measure("", "times that a policy put a job back into the queue", "segments that end with preempted"),
    "moves": Measure("", "times that a policy moved or resized a job", "segments that end with migrated or resized"),
    "leases_ended": Measure("", "times that a lease ended that nobody renewed", "segments that end with lease_ended"),
    "node_failures": Measure("", "times that a job lost its node", "segments that end with node_failed"),
    **_quantiles("rho", "", "finish-time fairness", "JCT / (duration_s max(1, gpus n / N))", "mean p50 p99",
                 "finish-time fairness ρ"),
    "rho_worst": Measure("", "finish-time fairness, worst job", "max rho"),
    "unfair_share": Measure("share", "finished jobs treated worse than by a 1/n share",
                            "jobs with rho > 1 + 1e-9 / jobs"),
    "jain_speed": Measure("", "Jain's index over finished jobs of speed", "(Σx)² / (n Σx²), x = duration_s / JCT"),
    "jain_user_gpu_s": Measure("", "Jain's index over users of GPU time held", "(Σx)² / (n Σx²), x = GPU-s"),
    "jain_vc_gpu_s": Measure("", "Jain's index over virtual clusters of GPU time held", "(Σx)² / (n Σx²), x = GPU-s"),
    "deadline_jobs": Measure("", "jobs with a deadline of which it is known whether they met it", "see deadlines"),
    "deadline_met_share": Measure("share", "of these, met it", "end_s ≤ deadline_s"),
    "lateness_mean_s": Measure("s", "mean lateness of finished jobs with a deadline, negative if early",
                               "end_s − deadline_s"),
    "tardiness_mean_s": Measure("s", "mean tardiness of finished jobs with a deadline", "max(0, end_s − deadline_s)"),
    "cost_usd": Measure("USD", "cost of GPUs held at the run's own price", "Σ GPU-h held × price + cost_egress_usd"),
    "cost_known_usd": Measure("USD", "its part of known price: a lower bound", "the same where the price is known"),
    "cost_egress_usd": Measure("USD", "part of each cost that is for bytes that left a zone, on whatever price of GPUs",
                               "Σ work_done × egress_usd_per_work"),
    "cost_node_usd": Measure("USD", "cost at that price if whole nodes are paid while in use",
                             "Σ GPUs of the node × hours in use × price"),
    "cost_cluster_usd": Measure("USD", "cost at that price if all that is in service is paid", "Σ capacity × price"),
    "cost_on_demand_usd": Measure("USD", "cost of GPUs held at the catalogue's on-demand price",
                                  "Σ GPU-h held × price"),
    "cost_spot_usd": Measure("USD", "cost of GPUs held at the catalogue's spot price", "Σ GPU-h held × price"),
    "cost_reserved_usd": Measure("USD", "cost of all GPUs in service at the catalogue's reserved price",
                                 "Σ capacity × price"),
    "energy_kwh": Measure("kWh", "energy of all GPUs, held ones at their power limit: an upper bound",
                          "Σ busy_w held + idle_w (capacity − held)"),
    "energy_held_kwh": Measure("kWh", "of it, GPUs while held", "Σ busy_w held"),
}

_NAMES = {
    "window_s": "measuring window",
    "jct_weighted_s": "mean JCT by priority",
    "capacity_gpu_h": "GPU time in service",
    "held_gpu_h": "GPU time held",
    "partly_free_share": "free GPU time on partly held nodes",
    "fragmented_share": "fragmented free GPU time",
    "stranded_share": "stranded free GPU time",
    "wasted_gpu_h": "GPU time wasted",
    "wasted_overhead_gpu_h": "GPU time wasted by restarts",
    "wasted_lost_gpu_h": "GPU time wasted by lost work",
    "wasted_share": "GPU time wasted of that held",
    "unsuccessful_gpu_h": "GPU time of killed and failed jobs",
    "modelled_load": "modelled load",
    "offered_load_span": "recorded load",
    "offered_load": "recorded load to the end",
    "drain_s": "drain time",
    "moves": "moves and resizes",
    "rho_worst": "worst finish-time fairness ρ",
    "unfair_share": "jobs treated unfairly",
    "jain_speed": "Jain's index of speed",
    "jain_user_gpu_s": "Jain's index of users",
    "jain_vc_gpu_s": "Jain's index of virtual clusters",
    "deadline_jobs": "jobs with a deadline",
    "deadline_met_share": "deadlines met",
    "lateness_mean_s": "mean lateness",
    "tardiness_mean_s": "mean tardiness",
    "cost_known_usd": "known part of the cost",
    "cost_egress_usd": "cost of bytes that left a zone",
    "cost_node_usd": "cost of nodes in use",
    "cost_cluster_usd": "cost of the cluster",
    "cost_on_demand_usd": "cost on demand",
    "cost_spot_usd": "cost at spot prices",
    "cost_reserved_usd": "cost at reserved prices",
    "energy_held_kwh": "energy while held",
}
"""Short names of measures; of others they are the words of the key without its unit."""
MEASURES = {
    key: measure._replace(
        name=measure.name or _NAMES.get(key, without_unit(key).removesuffix("_share").replace("_", " "))
    )
    for key, measure in MEASURES.items()
}


def markdown() -> str:
    """The table of measures in `docs/metrics.md`."""
    rows = [f"| `{key}` | {m.name} | {m.unit or '–'} | {m.meaning} | {m.formula} |" for key, m in MEASURES.items()]
    return "\n".join(["| measure | name | unit | meaning | formula |", "|---|---|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
