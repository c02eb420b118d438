"""Several clusters of whole GPUs, each with its own sizes, ends, run times and hours: what helios and acme share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from traces.errors import TraceError, did_you_mean
from traces.synthetic.draw import numbered
from traces.synthetic.odds import RunTimes
from traces.synthetic.recurring import activity, alike, at, even, groups, submissions

#: How a job ends, in the order of the tables `ends`.
ENDS = np.array(["passed", "killed", "failed"], dtype=object)
#: All assumed, nothing of it is published: jobs of a burst, bursts of a group and gaps in a burst; unrest of the rate
#: (`recurring`); users of a cluster and sd of the logarithm of their activity; how alike run times in a group are.
BURST, AGAIN, GAPS_S = (1.8, 50), (2.2, 1000), {0: 0.4, 1: 0.3, 2: 0.2, 5: 0.1}
UNREST = (0.2, 0.7)
USERS, USER_SD = 200, 1.6
ALIKE = 0.08
ALL = "all"


@dataclass(frozen=True)
class Cluster:
    """One cluster: jobs an hour, by hour of the day; kinds of jobs are GPUs x ends.

    `gpus` and `weight` [g]: sizes and shares of jobs; `ends` [g, 3]: shares of passed, killed, failed at each size;
    `kind` [g, 3]: number of each kind in `run_times`.
    """

    name: str
    jobs_per_hour: float
    hours: Sequence[float]
    gpus: np.ndarray
    weight: np.ndarray
    ends: np.ndarray
    kind: np.ndarray
    run_times: RunTimes


def chosen(clusters: Mapping[str, Cluster], name: str) -> list[Cluster]:
    """One cluster, or all of them.

    Raises
    ------
    TraceError
        There is no cluster of that name.
    """
    if name != ALL and name not in clusters:
        raise TraceError("no such cluster", where="option 'cluster'", got=name,
                         allowed=", ".join((ALL, *clusters)), todo=did_you_mean(name, clusters))
    return list(clusters.values()) if name == ALL else [clusters[name]]


def jobs_in_four_weeks(clusters: Sequence[Cluster]) -> int:
    """How many jobs come to some clusters in four weeks."""
    return round(sum(cluster.jobs_per_hour for cluster in clusters) * 4 * 168)


def cluster_columns(clusters: Sequence[Cluster], jobs: int, seed: int, stream: int) -> dict[str, np.ndarray]:
    """Columns of the jobs of some clusters, unsorted; `vc` is the cluster; times are whole s from a Monday 00:00.

    Jobs are shared out by the clusters' rates; jobs up to 8 GPUs lie on one node, wider ones on whole nodes (assumed).
    """
    rate = np.array([c.jobs_per_hour for c in clusters])
    counts = np.random.default_rng([seed, stream]).multinomial(jobs, rate / rate.sum())
    span_s = jobs / rate.sum() * 3600.0
    parts = [
        _jobs(cluster, int(count), span_s, [seed, stream, index + 1])
        for index, (cluster, count) in enumerate(zip(clusters, counts, strict=True)) if count
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _jobs(cluster: Cluster, n: int, span_s: float, seed: list[int]) -> dict[str, np.ndarray]:
    """Columns of n jobs of one cluster."""
    rng = np.random.default_rng(seed)
    group = groups(rng, n, BURST, AGAIN)
    submit_s = submissions(rng, group.burst_jobs, span_s, cluster.hours, (1.0,) * 7, UNREST, GAPS_S)
    user = numbered(f"{cluster.name}-u", USERS)[at(even(rng, group.jobs), activity(USERS, USER_SD))]
    rare = cluster.weight[cluster.weight < 0.02 * cluster.weight.sum()].sum() / cluster.weight.sum()
    frequent = np.argsort(-cluster.weight, kind="stable")
    size = frequent[at(even(rng, group.jobs, rare), cluster.weight[frequent])][group.of_job]
    bounds = np.cumsum(cluster.ends, axis=1)[:, :2]
    end = (rng.random(n)[:, None] >= bounds[size]).sum(axis=1)
    kind = cluster.kind[size, end]
    rank = alike(rng, group.of_job, kind - cluster.kind.min(), ALIKE)
    gpus = cluster.gpus[size]
    name = np.empty(n, dtype=object)
    name[:] = cluster.name
    return {
        "submit_s": np.floor(submit_s), "duration_s": cluster.run_times.seconds(rank, kind),
        "num_gpus": gpus, "worker_gpus": np.minimum(gpus, 8), "vc": name, "user": user[group.of_job],
        "status": ENDS[end],
    }
