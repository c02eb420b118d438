"""Transfers and all-reduces: by hand, and the laws that a network obeys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.spec import Links
from sim.hardware.gputypes import catalogue, gpu_type
from sim.kernels.collectives import allreduce_s, p2p_s, ring_allreduce_s
from sim.performance.gpu_links import (
    NETWORK_EFFICIENCY,
    NVLINK_EFFICIENCY,
    PCIE_EFFICIENCY,
    network_bytes_per_s,
    node_bytes_per_s,
)
from sim.performance.messages import transfer_s
from sim.performance.stage_sites import StageGpus


def gang(*gpus: int) -> np.ndarray:
    return np.array(gpus, dtype=np.int64)


def test_by_hand() -> None:
    """1 GB over 10 GB/s is 0.1 s; a ring of four moves 1.5 times the bytes in six steps."""
    assert p2p_s(1e9, 1e10, 0.25) == pytest.approx(0.35)
    assert ring_allreduce_s(1e9, 4, 1e10, 0.01) == pytest.approx(0.15 + 0.06)
    assert ring_allreduce_s(1e9, 1, 1e10, 0.01) == 0.0


def test_two_nodes_of_two_by_hand() -> None:
    """Fast node links: 0.01 inside, then 0.1 between the nodes. Slow ones: a flat ring wins."""
    assert allreduce_s(1e9, gang(2, 2), 1e11, 0.0, 1e10, 0.0) == pytest.approx(0.01 + 0.1)
    assert allreduce_s(1e9, gang(2, 2), 1e10, 0.0, 1e10, 0.0) == pytest.approx(0.15)
    # Latency: two steps inside and two between against six between.
    assert allreduce_s(0.0, gang(2, 2), 1e10, 1.0, 1e10, 10.0) == pytest.approx(2 * 1.0 + 2 * 10.0)


def test_one_gpu_a_node_never_uses_the_node_links() -> None:
    slow, fast = (allreduce_s(1e9, gang(1, 1, 1), rate, 0.0, 1e10, 0.0) for rate in (1e3, 1e12))
    assert slow == fast == pytest.approx(2 * 2 / 3 * 0.1)


rates = st.floats(1e8, 1e12)
gangs = st.lists(st.integers(1, 8), min_size=1, max_size=5)


@given(gangs, rates, rates, st.floats(1.0, 100.0), st.floats(0.0, 1e11))
def test_more_bandwidth_is_never_slower(
    gpus: list[int], node: float, network: float, gain: float, size: float
) -> None:
    """P-42: no knob works backwards, and none is dead once it is the bottleneck."""
    args = gang(*gpus)
    before = allreduce_s(size, args, node, 5e-6, network, 2e-5)
    assert allreduce_s(size, args, node * gain, 5e-6, network, 2e-5) <= before * (1 + 1e-12)
    assert allreduce_s(size, args, node, 5e-6, network * gain, 2e-5) <= before * (1 + 1e-12)
    assert before >= 0.0


def test_within_a_node_the_type_s_own_links_count() -> None:
    assert node_bytes_per_s(gpu_type("V100")) == pytest.approx(150e9 * NVLINK_EFFICIENCY)
    assert node_bytes_per_s(gpu_type("T4")) == pytest.approx(16e9 * PCIE_EFFICIENCY)


def test_between_racks_the_slower_level_counts() -> None:
    links = Links(network_gbytes_per_s=10.0, rack_gbytes_per_s=2.0)
    assert network_bytes_per_s(links, 1) == pytest.approx(10e9 * NETWORK_EFFICIENCY)
    assert network_bytes_per_s(links, 2) == pytest.approx(2e9 * NETWORK_EFFICIENCY)
    faster = Links(network_gbytes_per_s=10.0, rack_gbytes_per_s=50.0)
    assert network_bytes_per_s(faster, 2) == pytest.approx(10e9 * NETWORK_EFFICIENCY)


LINKS = Links(network_gbytes_per_s=10.0, rack_gbytes_per_s=1.0, network_latency_s=0.5, node_latency_s=0.25)


def at(name: str, *nodes: int, rack: int = 0) -> StageGpus:
    return StageGpus(gpu_type(name), nodes, (rack,) * len(nodes))


@pytest.mark.parametrize(
    ("sender", "receiver", "seconds"),
    [
        # One GPU to its neighbour: all the bytes over PCIe.
        (at("T4", 0), at("T4", 0), 0.25 + 1e9 / 12e9),
        # A V100 to a T4 on a node: the slower of their links.
        (at("V100", 0), at("T4", 0), 0.25 + 1e9 / 12e9),
        # To another node, and to another rack.
        (at("T4", 0), at("T4", 1), 0.5 + 1e9 / 9e9),
        (at("T4", 0), at("T4", 1, rack=1), 0.5 + 1e9 / 0.9e9),
        # Two replicas each way on two nodes: they share the two network links, or one of them.
        (at("T4", 0, 1), at("T4", 2, 3), 0.5 + 0.5e9 / 9e9),
        (at("T4", 0, 0), at("T4", 1, 1), 0.5 + 1e9 / 9e9),
        # Replica 0 stays on node 0, replica 1 on node 1: nothing crosses.
        (at("T4", 0, 1), at("T4", 0, 1), 0.25 + 0.5e9 / 12e9),
        # The same, crossed over.
        (at("T4", 0, 1), at("T4", 1, 0), 0.5 + 0.5e9 / 9e9),
        # Two to three: the receiver's thirds, the sender's halves.
        (at("T4", 0, 0), at("T4", 0, 0, 0), 0.25 + 0.5e9 / 12e9),
    ],
)
def test_a_message_between_stages_by_hand(sender: StageGpus, receiver: StageGpus, seconds: float) -> None:
    assert transfer_s(1e9, sender, receiver, LINKS) == pytest.approx(seconds)


@given(st.integers(1, 12), st.integers(1, 12))
def test_no_byte_is_lost_between_any_replica_counts(a: int, b: int) -> None:
    """A stage on one node, the next on another: the whole message passes one network link."""
    took = transfer_s(1e9, at("T4", *[0] * a), at("T4", *[1] * b), LINKS)
    assert took == pytest.approx(0.5 + 1e9 / 9e9)


def test_every_type_of_the_catalogue_has_a_link_within_a_node() -> None:
    assert all(node_bytes_per_s(gpu) > 1e9 for gpu in catalogue().values())
