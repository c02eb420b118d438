"""Nodes that do not send alike: adapters by the kind of node, zones with rates and prices between them. By hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cli.whatif import ask, parse_stage
from sim.cluster.plan import Plan
from sim.cluster.sites import Adapter, Site, SiteError, Sites, ZoneLink, ring_egress_usd
from sim.cluster.spec import ClusterSpec, Links
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.contention import Network
from sim.performance.messages import transfer_s
from sim.performance.stage_sites import StageGpus
from sim.performance.throughput import iteration_on
from traces.errors import HetsimError

V100, T4 = gpu_type("V100"), gpu_type("T4")
ZONES = (ZoneLink("a", "b", 1.0, 0.03, 0.02), ZoneLink("b", "c", 0.5, 0.05, 0.08), ZoneLink("c", "a", 2.0, 0.01, 0.01))
LINKS = Links(10.0, 5.0, network_latency_s=1e-5, sites=Sites(zones=ZONES))
TABLE_BYTES = 2 * 50257 * 1600
"""Of GPT-2 1.5B's tied table, words x width, in half precision."""
NODES = '[[nodes]]\ntype = "{}"\ncount = {}\ngpus = {}\n'
A, B = (f'zone = "{zone}"\n' for zone in "ab")
BETWEEN = '[[links.zones]]\nbetween = ["a", "b"]\ngbits_per_s = 8\nlatency_s = 0.03\negress_usd_per_gb = 0.02\n'


def stage(*zones, rates=(10.0, 5.0)):
    """A stage with one V100 on a node of its own in each of these zones."""
    nodes = tuple(ord(zone) for zone in zones)
    return StageGpus(V100, nodes, (0,) * len(nodes), sites=tuple(Site(*rates, zone) for zone in zones))


def test_a_message_between_zones_takes_their_rate_and_latency():
    """900 MB at 0.9 of 1 Gbyte/s is a second, and 30 ms; within a zone 0.9 of 10 Gbyte/s."""
    assert transfer_s(9e8, stage("a"), stage("b"), LINKS) == pytest.approx(1.0 + 0.03)
    assert transfer_s(9e8, stage("b"), stage("a"), LINKS) == pytest.approx(1.0 + 0.03)
    assert transfer_s(9e8, stage("b"), stage("c"), LINKS) == pytest.approx(2.0 + 0.05)
    other = replace(stage("a"), nodes=(1,))
    assert transfer_s(9e8, stage("a"), other, LINKS) == pytest.approx(0.1 + 1e-5)


def test_a_node_sends_no_faster_than_its_own_adapter_and_gets_no_faster_than_the_other_s():
    """From 10 to 2 Gbyte/s: the receiver's adapter counts; from one to two of 2, each of which gets half: as well."""
    slow = (2.0, 2.0)
    fast, one, two = stage("a"), replace(stage("a", rates=slow), nodes=(1,)), stage("a", "a", rates=slow)
    two = replace(two, nodes=(1, 2))
    assert transfer_s(9e8, fast, one, LINKS) == pytest.approx(0.5 + 1e-5)
    assert transfer_s(9e8, fast, two, LINKS) == pytest.approx(0.25 + 1e-5)


def test_a_ring_over_zones_is_as_slow_as_its_slowest_link():
    sites = [Site(10.0, 5.0, zone) for zone in "abc"]
    assert LINKS.among(sites[:1]) == replace(LINKS, sites=Sites())
    two, three = LINKS.among(sites[:2]), LINKS.among(sites)
    assert (two.network_gbytes_per_s, two.rack_gbytes_per_s, two.network_latency_s) == (1.0, 1.0, 0.03)
    assert (three.network_gbytes_per_s, three.network_latency_s) == (0.5, 0.05)
    assert LINKS.among([Site(0.1, 0.1, "a"), sites[1]]).network_gbytes_per_s == 0.1
    with pytest.raises(SiteError, match=r"nothing is known of what joins two zones; got .*'a' and 'd'"):
        LINKS.among([sites[0], Site(1.0, 1.0, "d")])


def test_virtual_machines_of_more_gpus_have_more_of_an_adapter(cluster):
    """Two V100 on two nodes: of 8 GPUs 100 Gbit/s, of 2 GPUs 16; one of each: the slower; nobody said of 4."""
    text = NODES.format("V100", 2, 8) + "network_gbits_per_s = 100\n" + NODES.format("V100", 2, 2)
    text += "network_gbytes_per_s = 2\n" + NODES.format("V100", 2, 4) + "[links]\nnetwork_gbytes_per_s = 5\n"
    spec = cluster(text)
    speed, first = Performance(spec.links), spec.node_first
    for nodes, rate in (((0, 1), 12.5), ((2, 3), 2.0), ((4, 5), 5.0), ((0, 2), 2.0), ((0, 4), 5.0)):
        got = iteration_on(speed, "vgg16", 64, first[list(nodes)], None, spec)
        plain = Performance(Links(rate, rate)).data_parallel("vgg16", 64, V100, (1, 1))
        assert got == plain, nodes
    kinds = [(V100, 8, 12.5), (V100, 2, 2.0), (V100, 4, 5.0), (V100, 1, 2.0), (V100, 3, 5.0), (V100, 16, 12.5),
             (T4, 8, 5.0)]
    assert [spec.links.site(gpu, n).network_gbytes_per_s for gpu, n, _ in kinds] == [rate for *_, rate in kinds]
    assert spec.links.fastest.network_gbytes_per_s == 12.5


def test_between_racks_an_adapter_keeps_the_oversubscription(cluster):
    text = NODES.format("V100", 4, 8) + "network_gbits_per_s = 80\nrack_size = 2\n[links]\n"
    assert cluster(text).node_site[0] == (10.0, 10.0, "")
    assert cluster(text + "rack_oversubscription = 4\n").node_site[0] == (10.0, 2.5, "")
    assert cluster(text + "rack_gbytes_per_s = 3\n").node_site[0] == (10.0, 3.0, "")


def across(stages, zones, batch=8, micro=4, model="gpt2-1.5b", links=LINKS):
    """An iteration of a pipeline whose stages are in these zones."""
    plan = Plan(tuple(parse_stage(text) for text in stages), micro)
    return ask(Performance(links), model, batch, plan, node_gpus=1, zones=zones), Performance(links).graph(model)


def test_egress_of_a_pipeline_is_what_crosses_there_and_back():
    """Activations and their gradients of all samples, 0.02 USD a GB, and the table of words and logits, 50,257 x 1,600
    values of 2 bytes; none where both stages are in one zone."""
    answer, graph = across(("1xA100-80@0-99", "1xA100-80@100-387"), ("a", "b"))
    crosses = 2 * 8 * float(graph.cut_bytes[99]) + 2 * TABLE_BYTES
    assert answer.iteration.egress_usd == pytest.approx(crosses / 1e9 * 0.02)
    rent = 2 * gpu_type("A100-80").price_usd_per_h * answer.iteration.iteration_s / 3600
    assert answer.usd_per_1000_iterations == pytest.approx(1000 * (rent + answer.iteration.egress_usd))
    alone, _ = across(("1xA100-80@0-99", "1xA100-80@100-387"), ("a", "a"))
    assert alone.iteration.egress_usd == 0
    assert alone.iteration.iteration_s < answer.iteration.iteration_s


def test_egress_has_the_tied_table_of_each_replica_there_and_back():
    """Eight replicas sum 160.8 MB each with their peers, whatever the batch; nothing of it where nothing is tied."""
    stages = ("8xA100-80@0-259", "8xV100@260-387")
    graph = Performance(LINKS).graph("gpt2-1.5b")
    for batch in (64, 128):
        crosses = 2 * batch * float(graph.cut_bytes[259]) + 8 * 2 * TABLE_BYTES
        answer, _ = across(stages, ("a", "b"), batch, 8)
        assert answer.iteration.egress_usd == pytest.approx(crosses / 1e9 * 0.02)
    # Four replicas there, two here: the four tables of the larger side go both ways.
    answer, _ = across(("4xA100-80@0-259", "2xV100@260-387"), ("a", "b"), 64, 8)
    crosses = 2 * 64 * float(graph.cut_bytes[259]) + 4 * 2 * TABLE_BYTES
    assert answer.iteration.egress_usd == pytest.approx(crosses / 1e9 * 0.02)
    # The table is at the ends: what lies between them sends nothing of it, and two ends in one zone neither.
    answer, graph = across(("1xV100@0-99", "1xV100@100-199", "1xV100@200-387"), ("a", "b", "a"))
    crosses = 2 * 8 * float(graph.cut_bytes[99] + graph.cut_bytes[199])
    assert answer.iteration.egress_usd == pytest.approx(crosses / 1e9 * 0.02)
    # Two chunks on each of two GPUs: the first and the last chunk hold a table.
    plan = Plan(tuple(parse_stage(f"1xA100-80@{span}") for span in ("0-99", "100-199", "200-299", "300-387")), 4,
                schedule="interleaved", chunks=2)  # fmt: skip
    answer = ask(Performance(LINKS), "gpt2-1.5b", 8, plan, node_gpus=1, zones=("a", "b"))
    crosses = 2 * 8 * float(sum(graph.cut_bytes[op] for op in (99, 199, 299))) + 2 * TABLE_BYTES
    assert answer.iteration.egress_usd == pytest.approx(crosses / 1e9 * 0.02)


def test_three_zones_with_a_table_each_pay_for_the_ring_that_joins_them():
    """transformer-big: of three stages with a user each sends 4/3 of 37,000 x 1,024 values: 0.02 + 0.08 + 0.01."""
    graph = Performance(LINKS).graph("transformer-big")
    _, second, third = graph.tied[0][0]
    spans = (f"0-{second - 1}", f"{second}-{third - 1}", f"{third}-{len(graph) - 1}")
    answer, _ = across([f"1xA100-80@{span}" for span in spans], ("a", "b", "c"), model="transformer-big")
    there_and_back = 2 * 8 * (float(graph.cut_bytes[second - 1]) * 0.02 + float(graph.cut_bytes[third - 1]) * 0.08)
    ring = 4 / 3 * 2 * 37000 * 1024 * (0.02 + 0.08 + 0.01)
    assert answer.iteration.egress_usd == pytest.approx((there_and_back + ring) / 1e9)


def test_egress_of_a_ring_leaves_each_zone_once():
    """Four members send 2 * 3 / 4 of 1 GB each to the next: a to b, b to c, c to a are 0.02 + 0.08 + 0.01 USD a GB."""
    assert ring_egress_usd(LINKS.sites, 1e9, "abc", 4) == pytest.approx(1.5 * 0.11)
    assert ring_egress_usd(LINKS.sites, 1e9, "ab", 4) == pytest.approx(1.5 * 2 * 0.02)
    assert ring_egress_usd(LINKS.sites, 1e9, "b", 4) == 0


def test_data_parallelism_over_zones_pays_for_its_gradients(cluster):
    """resnet50 in half precision: 2 bytes a parameter, two replicas send each 2 * 1 / 2 of them, there and back."""
    spec = cluster(NODES.format("V100", 1, 1) + A + NODES.format("V100", 1, 1) + B + BETWEEN)
    speed = Performance(spec.links)
    got = iteration_on(speed, "resnet50", 64, np.array([0, 1], dtype=np.int32), None, spec)
    assert got.egress_usd == pytest.approx(2 * 2 * speed.graph("resnet50").params / 1e9 * 0.02)
    assert got.allreduce_s == pytest.approx(
        Performance(Links(1.0, 1.0, network_latency_s=0.03)).data_parallel("resnet50", 64, V100, (1, 1)).allreduce_s)


def test_an_unknown_price_of_egress_makes_the_cost_unknown_and_not_less():
    links = replace(LINKS, sites=Sites(zones=(replace(ZONES[0], egress_usd_per_gb=math.nan), *ZONES[1:])))
    answer, _ = across(("1xA100-80@0-99", "1xA100-80@100-387"), ("a", "b"), links=links)
    assert math.isnan(answer.usd_per_1000_iterations)
    assert math.isfinite(answer.iteration.iteration_s)


rates = st.floats(0.1, 100.0)


@given(rates, st.floats(1.0, 8.0), st.sampled_from(["resnet50", "vgg16"]), st.sampled_from([(4, 4), (2, 1), (8, 8, 8)]))
def test_nodes_that_all_send_alike_are_as_if_nothing_was_said(rate, over, model, gang):
    plain = Links(rate, rate / over)
    said = replace(plain, sites=Sites((Adapter("V100", 8, rate, rate / over),)))
    spec = ClusterSpec.build("test", [V100], [0] * len(gang), [8] * len(gang), range(len(gang)), said)
    gpus = np.concatenate([spec.node_first[i] + np.arange(n) for i, n in enumerate(gang)]).astype(np.int32)
    got = iteration_on(Performance(said), model, 120, gpus, None, spec)
    assert got == Performance(plain).data_parallel(model, 120, V100, gang, len(gang))


@given(rates, rates, st.floats(0.0, 0.1))
def test_a_faster_link_between_zones_never_makes_an_iteration_longer(one, other, latency_s):
    slow, fast = sorted((one, other))
    took = []
    for rate, late in ((slow, latency_s), (fast, latency_s / 2)):
        links = replace(LINKS, sites=Sites(zones=(ZoneLink("a", "b", rate, late, 0.0),)))
        took.append(across(("2xV100@0-60", "2xV100@61-125"), ("a", "b"), 64, 4, "resnet50", links)[0])
    assert took[1].iteration.iteration_s <= took[0].iteration.iteration_s


TWO = NODES.format("V100", 1, 8) + A + NODES.format("V100", 1, 8) + B


@pytest.mark.parametrize(("text", "words"), [
    (TWO, r"links\.zones: nothing is said of what joins two zones; got 'a and b'"),
    (TWO + NODES.format("T4", 1, 8) + BETWEEN, "got 'a and nodes without a zone'"),
    (TWO + BETWEEN + BETWEEN, r"links\.zones\.1: two zones are joined twice"),
    (TWO + BETWEEN.replace('"b"', '"c"'), "a zone has no nodes; got 'c'"),
    (TWO + BETWEEN.replace('"b"', '"a"'), "not two zones"),
    (TWO + BETWEEN.replace(', "b"', ""), r"links\.zones\.0\.between"),
    (TWO + BETWEEN.replace("gbits_per_s = 8\n", ""), "the rate between two zones is given nowhere"),
    (TWO + BETWEEN + "gbytes_per_s = 1\n", "the rate between two zones is given twice"),
    (TWO + BETWEEN.replace("= 8", "= 0"), r"links\.zones\.0\.gbits_per_s"),
    (TWO + BETWEEN.replace("0.02", "-1"), r"links\.zones\.0\.egress_usd_per_gb"),
    (TWO + BETWEEN.replace("0.03", "nan"), r"links\.zones\.0\.latency_s"),
    (NODES.format("V100", 1, 8) + "network_gbits_per_s = 8\nnetwork_gbytes_per_s = 1\n",
     "the network bandwidth is given twice"),
    (NODES.format("V100", 1, 8) + "network_gbits_per_s = 8\n" + NODES.format("V100", 1, 8),
     "nodes of one GPU type and size have two network rates; got 'V100, 8 GPUs'"),
    (NODES.format("V100", 1, 8) + "network_gbytes_per_s = inf\n", r"nodes\.0\.network_gbytes_per_s"),
])
def test_nonsense_is_refused_with_its_place(cluster, text, words):
    with pytest.raises(HetsimError, match=words):
        cluster(text)


def test_stages_need_a_zone_each_that_the_cluster_has():
    stages = ("1xA100-80@0-99", "1xA100-80@100-387")
    with pytest.raises(PerformanceError, match="a zone for each stage is needed; got '1 zones'"):
        across(stages, ("a",))
    with pytest.raises(PerformanceError, match="no such zone; got 'z'; allowed: a, b, c"):
        across(stages, ("a", "z"))


def test_jobs_do_not_share_links_of_nodes_that_do_not_send_alike(cluster):
    with pytest.raises(PerformanceError, match="nodes that do not send alike cannot share links"):
        Network(cluster(TWO + BETWEEN))
