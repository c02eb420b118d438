"""Shares of links: max-min fair by hand, by law and beside a plain twin; and jobs that send only part of the time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.spec import ClusterSpec, Links
from sim.hardware.gputypes import gpu_type
from sim.kernels.fairshare import balanced_rates, max_min_shares
from sim.performance import PerformanceError, contention
from sim.performance.contention import Network, shared_network_s

INF = math.inf
Flows = tuple[list[float], list[list[int]], list[float]]


def shares(demand: list[float], paths: list[list[int]], capacity: list[float]) -> list[float]:
    ptr = np.cumsum([0, *map(len, paths)])
    links = np.array([link for path in paths for link in path], dtype=np.int64)
    return max_min_shares(np.array(demand, dtype=float), ptr, links, np.array(capacity, dtype=float)).tolist()


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_flows_on_one_link_share_it_evenly() -> None:
    assert shares([INF] * 4, [[0]] * 4, [10.0]) == [2.5] * 4


def test_who_wants_less_leaves_the_rest_to_the_others() -> None:
    """10 for demands of 1, 4, 6: 1 has its wish, 4 too (9 / 2 = 4.5 each), the last gets what is left."""
    assert shares([1, 4, 6], [[0]] * 3, [10.0]) == [1, 4, 5]


def test_the_parking_lot() -> None:
    """One flow over three links, each of which has a flow of its own: half for all, though the long one uses three."""
    assert shares([INF] * 4, [[0, 1, 2], [0], [1], [2]], [1.0, 1.0, 1.0]) == [0.5] * 4


def test_a_narrow_link_frees_the_others() -> None:
    """The long flow gets 0.1 of the narrow link; its neighbours on the wide ones get 0.9, not a half."""
    assert shares([INF] * 4, [[0, 1, 2], [0], [1], [2]], [1.0, 0.2, 1.0]) == [0.1, 0.9, 0.1, 0.9]


def test_no_capacity_is_no_rate_and_no_link_is_no_limit() -> None:
    assert shares([INF, 3.0, 3.0, INF], [[0], [0, 1], [], []], [0.0, 1.0]) == [0, 0, 3, INF]


# -- by law ------------------------------------------------------------------------------------------------------------


@st.composite
def flows(draw: st.DrawFn) -> Flows:
    num_links = draw(st.integers(1, 5))
    paths = draw(st.lists(
        st.lists(st.integers(0, num_links - 1), min_size=1, max_size=num_links, unique=True), min_size=1, max_size=9,
    ))  # fmt: skip
    demand = draw(st.lists(st.one_of(st.just(INF), st.floats(0, 3)), min_size=len(paths), max_size=len(paths)))
    return demand, paths, draw(st.lists(st.floats(0.01, 5), min_size=num_links, max_size=num_links))


def used(rate: list[float], paths: list[list[int]], links: int) -> list[float]:
    return [sum(r for r, path in zip(rate, paths, strict=True) if link in path) for link in range(links)]


@given(flows())
def test_shares_fit_and_who_wants_more_is_held_back_by_a_full_link_where_nobody_has_more(given_flows: Flows) -> None:
    demand, paths, capacity = given_flows
    rate = shares(*given_flows)
    load = used(rate, paths, len(capacity))
    assert all(x <= c * (1 + 1e-12) for x, c in zip(load, capacity, strict=True))
    for r, wish, path in zip(rate, demand, paths, strict=True):
        assert r <= wish
        if r < wish:
            full = [link for link in path if load[link] >= capacity[link] * (1 - 1e-12)]
            most = [max(x for x, other in zip(rate, paths, strict=True) if link in other) for link in full]
            assert any(r >= m * (1 - 1e-12) for m in most)


@given(flows(), st.sampled_from([2.0**-20, 0.5, 1e9]), st.randoms())
def test_neither_units_nor_order_matter(given_flows: Flows, scale: float, random: object) -> None:
    demand, paths, capacity = given_flows
    rate = np.array(shares(*given_flows))
    scaled = shares([d * scale for d in demand], paths, [c * scale for c in capacity])
    assert scaled == pytest.approx((rate * scale).tolist(), rel=1e-12)
    order = list(range(len(demand)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert shares([demand[i] for i in order], [paths[i] for i in order], capacity) == pytest.approx(
        rate[order].tolist(), rel=1e-12
    )


def twin(demand: list[float], paths: list[list[int]], capacity: list[float]) -> list[float]:
    """Another way to the same rates: whoever is lexicographically poorest is settled first, then taken away.

    Each wish counts as a link of its own. The link with the least capacity left for each of its flows settles them.
    """
    own = [[*path, len(capacity) + i] for i, path in enumerate(paths)]
    left = dict(enumerate([*capacity, *demand]))
    rate: dict[int, float] = {}
    while len(rate) < len(own):
        on = {link: [i for i, path in enumerate(own) if link in path and i not in rate] for link in left}
        tight = min((link for link in left if on[link]), key=lambda link: left[link] / len(on[link]))
        share = max(0.0, left[tight] / len(on[tight]))
        for i in on[tight]:
            rate[i] = share
            for link in own[i]:
                left[link] -= share if share < INF else 0.0
    return [rate[i] for i in range(len(own))]


@given(flows())
def test_the_kernel_agrees_with_a_plain_twin(given_flows: Flows) -> None:
    assert shares(*given_flows) == pytest.approx(twin(*given_flows), rel=1e-9, abs=1e-12)


# -- jobs that send now and then ---------------------------------------------------------------------------------------

GOLDEN = (math.sqrt(5) - 1) / 2


def test_two_alike_that_compute_as_long_as_they_send() -> None:
    """1 s of each. r + 1 / (1 + 1 / r) = 1, so r^2 + r = 1: the golden ratio; sending takes 1.618 s, not 2."""
    assert shared_network_s([1, 1], [1, 1], [1, 1], [[0], [0]], [1]) == pytest.approx([1 / GOLDEN] * 2, rel=1e-11)


def test_jobs_that_always_send_share_evenly() -> None:
    for n in (1, 2, 3, 7):
        assert shared_network_s([0] * n, [2] * n, [5] * n, [[0]] * n, [5]) == pytest.approx([2.0 * n] * n, rel=1e-11)


def test_one_that_always_sends_and_one_that_seldom_does() -> None:
    """The first gets what the second leaves on average; the second has half of the link while it sends.

    u_2 = 1 / (100 + 2), r_1 = 1 - 1/102.
    """
    took = shared_network_s([0, 100], [1, 1], [1, 1], [[0], [0]], [1])
    assert took == pytest.approx([102 / 101, 2], rel=1e-11)


def test_a_job_alone_or_with_room_for_all_is_as_fast_as_ever() -> None:
    assert shared_network_s([0.3], [0.7], [11.25e9], [[0, 1]], [11.25e9, 11.25e9]).tolist() == [0.7]
    assert shared_network_s([0, 0], [0.7, 0.1], [1, 1], [[0], [0]], [2]).tolist() == [0.7, 0.1]


def test_alike_is_alike_to_the_last_digit() -> None:
    took = shared_network_s([0.37] * 6, [0.71] * 6, [1.0] * 6, [[0, 1], [0, 2], [1, 2]] * 2, [1.0, 1.0, 1.0])
    assert len(set(took.tolist())) == 1 and took[0] > 0.71


@st.composite
def senders(draw: st.DrawFn) -> tuple[list[float], list[float], list[float], list[list[int]], list[float]]:
    _, paths, capacity = draw(flows())
    n = len(paths)
    other = draw(st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 10)), min_size=n, max_size=n))
    network = draw(st.lists(st.floats(0.05, 5), min_size=n, max_size=n))
    part = draw(st.lists(st.sampled_from([1.0, 1.0, 0.5]), min_size=n, max_size=n))
    full = [p * min(capacity[link] for link in path) for p, path in zip(part, paths, strict=True)]
    return other, network, full, paths, capacity


@given(senders())
def test_each_rate_is_the_fair_share_among_the_average_uses_of_the_others(given_senders: tuple) -> None:
    """The fixed point that the docstring states, looked up with the other kernel; and no link carries more than it can.

    Jobs that hardly compute make the equations nearly singular, and the error of a rate larger than that of its
    equation; what is held to 1e-9 is the equation.
    """
    other, network, full, paths, capacity = given_senders
    took = shared_network_s(*given_senders)
    rate = np.array(full) * np.array(network) / took
    use = rate * took / (np.array(other) + took)
    for i, path in enumerate(paths):
        near = [j for j in range(len(paths)) if j != i and set(path) & set(paths[j])]
        fair = shares(
            [full[i], *use[near]], [path, *([link for link in paths[j] if link in path] for j in near)], capacity,
        )[0]  # fmt: skip
        assert rate[i] == pytest.approx(fair, rel=1e-9)
    assert all(x <= c * (1 + 1e-9) for x, c in zip(used(use.tolist(), paths, len(capacity)), capacity, strict=True))


@given(st.lists(st.tuples(st.floats(1e-3, 10), st.floats(0.05, 5)), min_size=2, max_size=8))
def test_on_one_link_nobody_is_slowed_by_somebody_leaving(jobs: list[tuple[float, float]]) -> None:
    other, network = map(list, zip(*jobs, strict=True))
    took = [shared_network_s(other[:n], network[:n], [1] * n, [[0]] * n, [1]) for n in (len(jobs), len(jobs) - 1)]
    assert (took[1] <= took[0][:-1] * (1 + 1e-8)).all() and (took[0] >= network).all()


def test_a_balance_that_is_not_found_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "MAX_ROUNDS", 0)
    with pytest.raises(PerformanceError, match="no balance between jobs that share links"):
        shared_network_s([1, 1], [1, 1], [1, 1], [[0], [0]], [1])


def test_a_hundred_jobs_on_a_hundred_links_take_few_steps() -> None:
    rng = np.random.default_rng(1)
    links = np.concatenate([rng.choice(100, 2, replace=False) for _ in range(100)])
    args = rng.uniform(0.1, 1, 100), rng.uniform(0.1, 1, 100), np.ones(100), np.arange(0, 201, 2), links, np.ones(100)
    _, rounds, error = balanced_rates(*args, 1e-12, 5000)
    assert error <= 1e-12 and rounds < 50


# -- on a cluster ------------------------------------------------------------------------------------------------------


def racks_of_two() -> ClusterSpec:
    """Four nodes of 4 GPUs in two racks; between racks half as fast."""
    return ClusterSpec.build("test", [gpu_type("V100")], [0] * 4, [4] * 4, [0, 0, 1, 1], Links(12.5, 6.25))


def test_only_who_shares_a_link_is_slowed_and_only_those_reached_are_solved_again() -> None:
    network = Network(racks_of_two())
    for job, gpus in ((7, [0, 4]), (3, [1, 5]), (5, [8, 12]), (9, [2, 3])):
        network.join(job, 0.0, 1.0, np.array(gpus))
    assert network.settle() == {3: pytest.approx(2.0), 7: pytest.approx(2.0), 5: 1.0}  # 9 is on one node
    network.leave(7)
    assert network.settle() == {3: 1.0}
    network.pace(5, 3.0)
    assert network.settle() == {5: 1.0}
    assert network.settle() == {}


def test_jobs_that_cross_racks_meet_on_the_uplink_though_they_share_no_node() -> None:
    """Each at most at 6.25 Gbyte/s; the uplink of two nodes carries two of them, not three."""
    network = Network(racks_of_two())
    network.join(0, 0.0, 1.0, np.array([0, 8]))
    network.join(1, 0.0, 1.0, np.array([4, 12]))
    assert network.settle() == {0: 1.0, 1: 1.0}
    network.join(2, 0.0, 1.0, np.array([1, 13]))
    assert network.settle() == {job: pytest.approx(1.5) for job in (0, 1, 2)}
