"""Which GPUs of a node a gang gets: those that the nearest link joins, by hand and by law against all choices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.registry import make
from sim.cluster.scratch import NO_QUOTA, Scratch
from sim.cluster.spec import ClusterSpec, Ledger, Links
from sim.engine.simulate import simulate
from sim.hardware.gputypes import gpu_type
from sim.kernels.placement import RULES, place
from sim.performance import Performance
from sim.performance.gpu_links import gang_link, inside
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled
from tests.helpers import by_job, jobs, segments
from traces.trace import Trace

ISLANDS = Links(gpus_per_nvlink=4)
BOX = Links(gpus_per_nvlink=2, gpus_per_switch=2, gpus_per_socket=4, socket_class="qpi")


def box(links: Links, *sizes: int, gpu: str = "V100") -> ClusterSpec:
    return ClusterSpec.build("box", [gpu_type(gpu)], [0] * len(sizes), sizes, links=links)


def pick(
    cluster: ClusterSpec, used: dict[int, int], need: int, worker: int = 1, *, milli: int = 1000,
    rule: str = "consolidate",
) -> list[int]:
    """GPUs of a gang in the order of its slots, where `used` milli of some GPUs are taken; empty: it does not fit."""
    ledger = Ledger(cluster)
    for g, share in used.items():
        ledger.take(np.array([g], dtype=np.int32), share)
    before, out = ledger.free_milli.copy(), np.full(need, -1, dtype=np.int32)
    end = place(RULES[rule], np.int32(need), np.int32(milli), np.int32(worker), np.uint64(1), ledger.state,
                ledger.shape, out, 0)
    if end < 0:
        return []
    assert (before - ledger.free_milli == milli * np.bincount(out, minlength=cluster.num_gpus)).all()
    assert ledger.idle.tolist() == np.bincount(cluster.gpu_node[ledger.free_milli == 1000],
                                               minlength=cluster.num_nodes).tolist()
    return out.tolist()


def busy(*gpus: int) -> dict[int, int]:
    return dict.fromkeys(gpus, 1000)


def held(links: Links, trace: Trace, policy: str, rule: str, gpu: str = "V100") -> tuple[dict[str, list[int]], Any]:
    """GPUs of each job's last segment on a node of 8, durations at the modelled speed of one GPU; and the jobs."""
    cluster = box(links, 8, gpu=gpu)
    result = simulate(
        trace, cluster, make(policy, {"placement": rule}), Modelled(trace, cluster, Performance(links=links),
        gpu_type(gpu)), EngineConfig(preemption_overhead_s=0.0), estimate_s=trace.duration_s,
    )  # fmt: skip
    table = segments(result)
    return {job: list(ids) for job, ids in zip(table["job_id"], table["gpu_ids"], strict=True)}, by_job(result)


SLOW_SOCKETS = Links(gpus_per_socket=4, socket_class="qpi")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("links", "gpu"), [(ISLANDS, "V100"), (SLOW_SOCKETS, "T4")])
def test_r2_02_a_gang_beside_another_is_as_fast_as_alone(links: Links, gpu: str, rule: str) -> None:
    trace = jobs([(0, 100_000, 1), (1, 1000, 4)], worker_gpus=[1, 4], model=["vgg16"] * 2, batch_size=[32, 128])
    gpus, ends = held(links, trace, "fifo", rule, gpu)
    assert gpus == {"0": [0], "1": [4, 5, 6, 7]}
    assert ends.loc["1", "end_s"] == pytest.approx(1001, abs=0.1)


@pytest.mark.parametrize("rule", RULES)
def test_who_takes_gpus_by_force_takes_no_more_jobs_but_one_island(rule: str) -> None:
    """GPUs 1 to 3 are free, all others an endless job's: it loses a whole island, as it must lose one GPU."""
    trace = jobs([(0, 100, 1), (0, 100_000, 4), (10, 20, 4)], model=["vgg16"] * 3, batch_size=[32, 128, 128])
    gpus, ends = held(ISLANDS, trace, "srtf", rule)
    assert gpus["2"] == [4, 5, 6, 7]
    assert ends.loc["2", "end_s"] == pytest.approx(30)


@pytest.mark.parametrize("rule", RULES)
def test_a_planner_s_target_of_counts_lies_on_one_island(rule: str) -> None:
    ledger = Ledger(box(ISLANDS, 8))
    free = Scratch(ledger.state, np.array([NO_QUOTA]), ledger.shape, ())
    assert free.take(np.array([0], dtype=np.int32))
    assert free.place_by_type(np.array([4]), rule=rule).tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("rule", RULES)
def test_r2_02_a_gang_gets_the_whole_island_and_not_the_lowest_gpus(rule: str) -> None:
    assert pick(box(ISLANDS, 8), busy(0), 4, 4, rule=rule) == [4, 5, 6, 7]
    assert pick(box(ISLANDS, 8), busy(0), 4, rule=rule) == [4, 5, 6, 7]
    assert pick(box(ISLANDS, 8), busy(4), 1, rule=rule) == [5], "a broken island has room"
    assert pick(box(SLOW_SOCKETS, 8, gpu="T4"), busy(2), 4, rule=rule) == [4, 5, 6, 7]


@pytest.mark.parametrize(("used", "need", "worker", "expected"), [
    ((), 1, 1, [0]), ((), 2, 2, [0, 1]), ((), 8, 8, [0, 1, 2, 3, 4, 5, 6, 7]),
    ((0,), 1, 1, [1]), ((6,), 1, 1, [7]),  # the broken pair
    ((0, 2), 2, 2, [4, 5]),  # a pair, though 1 and 3 are of one socket
    ((0, 6), 2, 2, [2, 3]),  # of two pairs that of the lowest number
    ((4, 5), 2, 1, [6, 7]),  # of equal pairs that in the fullest socket
    ((0, 4), 3, 3, [2, 3, 1]),  # one socket: a pair and one more
    ((0, 2, 5), 4, 2, [1, 3, 6, 7]),  # no socket has four: a worker on each
    ((0, 5), 4, 2, [2, 3, 6, 7]),  # two whole workers
    ((1, 2, 3), 4, 4, [4, 5, 6, 7]),
])
def test_pairs_then_sockets(used: tuple[int, ...], need: int, worker: int, expected: list[int]) -> None:
    assert pick(box(BOX, 8), busy(*used), need, worker) == expected


def test_a_gang_across_nodes_lies_well_on_each() -> None:
    assert pick(box(ISLANDS, 8, 8), busy(1, 9), 8, 4, rule="count") == [4, 5, 6, 7, 12, 13, 14, 15]
    assert pick(box(ISLANDS, 8, 8), busy(0, 9), 7, rule="count") == [4, 5, 6, 7, 1, 2, 3]
    assert pick(box(ISLANDS, 8, 8), busy(0, 8), 11, rule="consolidate") == [4, 5, 6, 7, 1, 2, 3, 12, 13, 14, 15]


@pytest.mark.parametrize("rule", RULES)
def test_shares_of_one_gang_lie_on_one_island(rule: str) -> None:
    assert set(pick(box(ISLANDS, 8), {0: 500, 1: 1000, 2: 1000, 3: 1000}, 2, milli=600, rule=rule)) == {4, 5}
    assert set(pick(box(ISLANDS, 8), {3: 400, 4: 400, 5: 1000}, 3, milli=600, rule=rule)) == {4, 6, 7}


@pytest.mark.parametrize(("rule", "expected"), [("count", 0), ("best-fit", 5), ("consolidate", 5)])
def test_a_share_that_finds_no_broken_gpu_breaks_no_whole_island(rule: str, expected: int) -> None:
    """The first GPU, by rules that take the first; of idle ones, all equally full, that of the broken island."""
    assert pick(box(ISLANDS, 8), busy(4), 1, milli=500, rule=rule) == [expected]
    assert pick(box(ISLANDS, 8), {1: 300, 4: 1000}, 1, milli=500, rule=rule) == [0 if rule == "count" else 1]


def test_types_without_nvlink_know_no_islands_and_alike_nodes_no_groups() -> None:
    assert Links(gpus_per_nvlink=4).groups(gpu_type("T4")) == ()
    assert Links(gpus_per_nvlink=4, gpus_per_switch=2, gpus_per_socket=8).groups(gpu_type("V100")) == (4, 8)
    assert Links(gpus_per_nvlink=1, gpus_per_switch=2, gpus_per_socket=4).groups(gpu_type("V100")) == (2, 4)
    assert Links(node_class="nvlink2", gpus_per_socket=4).groups(gpu_type("V100")) == ()
    assert Ledger(box(Links(), 8)).shape[-1] == ()


def rate(slots: list[int], links: Links, gpu: str) -> float:
    """Bandwidth of the slowest link among some GPUs of one node; that of one GPU is the best that there is."""
    if len(slots) < 2:
        return np.inf
    return inside(gpu_type(gpu), links, gang_link(gpu_type(gpu), slots, links))[0]


def in_workers(gpus: tuple[int, ...], worker: int) -> Iterator[list[tuple[int, ...]]]:
    """All ways to make workers of some GPUs."""
    if not gpus:
        yield []
        return
    for others in combinations(gpus[1:], worker - 1):
        mine = (gpus[0], *others)
        for rest in in_workers(tuple(g for g in gpus if g not in mine), worker):
            yield [mine, *rest]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_faster_layout_of_the_node_is_free(data: st.DataObject) -> None:
    """By all choices: the gang's slowest link is the best there is, and with it that of its workers."""
    switch = data.draw(st.sampled_from([0, 1, 2, 4]))
    links = Links(
        gpus_per_nvlink=data.draw(st.sampled_from([0, 1, 2, 4])), gpus_per_switch=switch,
        gpus_per_socket=data.draw(st.sampled_from([0, 4, 8])),
        socket_class=data.draw(st.sampled_from(["", "qpi"])),
    )
    gpu, size = data.draw(st.sampled_from(["V100", "T4"])), data.draw(st.integers(2, 8))
    free = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    worker = data.draw(st.sampled_from([w for w in (1, 2, 3, 4) if w <= len(free)]))
    need = worker * data.draw(st.integers(1, len(free) // worker))
    rule = data.draw(st.sampled_from(list(RULES)))
    got = pick(box(links, size, gpu=gpu), busy(*set(range(size)) - free), need, worker, rule=rule)

    def worst(workers: list[tuple[int, ...]]) -> float:
        return min(rate(list(mine), links, gpu) for mine in workers)

    best = max(
        (rate(list(all_of), links, gpu), max(worst(workers) for workers in in_workers(all_of, worker)))
        for all_of in combinations(sorted(free), need)
    )
    assert (rate(got, links, gpu), worst([tuple(got[i : i + worker]) for i in range(0, need, worker)])) == best


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_faster_layout_of_shares_is_free(data: st.DataObject) -> None:
    links, gpu = data.draw(st.sampled_from([(ISLANDS, "V100"), (BOX, "V100"), (BOX, "T4"), (SLOW_SOCKETS, "T4")]))
    free = data.draw(st.lists(st.sampled_from([0, 300, 500, 700, 1000]), min_size=2, max_size=8))
    milli = data.draw(st.sampled_from([300, 500, 600]))
    room = [share // milli for share in free]
    assume(sum(room) > 0)
    need, rule = data.draw(st.integers(1, sum(room))), data.draw(st.sampled_from(list(RULES)))
    used = {g: 1000 - share for g, share in enumerate(free) if share < 1000}
    got = pick(box(links, len(free), gpu=gpu), used, need, milli=milli, rule=rule)

    def own(slots: list[int]) -> float:
        return inside(gpu_type(gpu), links, gang_link(gpu_type(gpu), slots, links))[0]

    assert own(got) == max(
        own(list(some)) for n in range(1, len(free) + 1) for some in combinations(range(len(free)), n)
        if sum(room[g] for g in some) >= need and all(room[g] for g in some)
    )
