"""Prices in cluster files and of runs: by GPU or node, of a kind, in any currency, of nodes of one type that differ."""

from __future__ import annotations

import math

import pytest

from sim.cluster.clusterfiles import load_cluster
from sim.cluster.spec import ClusterError
from traces.errors import HetsimError

A100 = '[[nodes]]\ntype = "A100"\ncount = 2\ngpus = 8\n'
T4 = '[[nodes]]\ntype = "T4"\ncount = {0}\ngpus = 1\n{1}\n'
ROW = '[[prices]]\ngpu_type = "{0}"\nkind = "{1}"\namount_per_h = {2}\nper = "gpu"\ndate = "2025"\nsource = "x"\n'
NODE_EUR = ROW.replace('"gpu"', '"node"\nnode_gpus = 8\ncurrency = "EUR"\ncurrency_per_usd = 0.92')


@pytest.fixture
def cluster(tmp_path):
    def load(text, prices=None, rows=""):
        (tmp_path / "c.toml").write_text(text)
        (tmp_path / "p.toml").write_text(rows)
        return load_cluster(str(tmp_path / "c.toml"), str(tmp_path / "p.toml") if rows else prices)

    return load


@pytest.mark.parametrize(("said", "usd"), [
    ("[prices_usd_per_node_h]\nA100 = 32.77\n", 32.77 / 8),
    ("[prices_usd_per_gpu_h]\nA100 = 32.77\n", 32.77),
    ("price_usd_per_node_h = 16\n", 2.0),
    ("price_usd_per_gpu_h = 16\n", 16.0),
    (NODE_EUR.format("A100", "reserved", 7.36), 1.0),
    (ROW.format("a100", "spot", 1.5), 1.5),
    ("", 21.957642 / 8),
])
def test_r3_15_a_price_of_the_gpu_or_of_the_node_in_any_currency(cluster, said, usd):
    spec = cluster(A100 + said)
    assert spec.types[0].price_usd_per_h == pytest.approx(usd)
    assert spec.node_usd_per_gpu_h == pytest.approx([usd, usd])


@pytest.mark.parametrize(("said", "words"), [
    ("[prices_usd_per_gpu_h]\nA100 = 1\n[prices_usd_per_node_h]\na100 = 8\n", "two prices; got 'A100'"),
    ("[prices_usd_per_gpu_h]\nA100 = 1\n" + ROW.format("A100", "spot", 1), "two prices; got 'A100'"),
    (ROW.format("A100", "spot", 1) * 2, "two prices of a kind"),
    (ROW.format("A100", "spot", 1) + ROW.format("A100", "reserved", 1), "two prices; got 'spot, reserved'.*price_kind"),
    (ROW.format("A100", "spots", 1), r"prices\.0: the kind of a price"),
    (ROW.format("A100", "spot", 1e7), r"prices\.0: a price cannot be used; got '1e\+07 USD an hour'.*1,000,000 USD"),
    (ROW.format("T4", "spot", 1), "the cluster lacks; got 'T4'"),
    ("[prices_usd_per_node_h]\nT4 = 1\n", "prices_usd_per_node_h: .*the cluster lacks"),
    ("price_usd_per_gpu_h = 1\nprice_usd_per_node_h = 8\n", r"nodes\.0: the price is given twice"),
    ('price_kind = "spot"\nprice_usd_per_gpu_h = 1\n', "the price is given twice: price_kind and price_usd_per_gpu_h"),
    ('price_kind = "spots"\n', "unknown kind of price 'spots'.*did you mean 'spot'"),
    ("price_usd_per_gpu_h = -1\n", r"nodes\.0\.price_usd_per_gpu_h"),
    ('[[nodes]]\ntype = "A100"\ncount = 1\ngpus = 4\n[prices_usd_per_node_h]\nA100 = 8\n',
     r"nodes of several sizes; got 'A100: nodes of 4, 8 GPUs'.*price_usd_per_node_h in each"),
    ("[prices_per_node]\nA100 = 8\n", "did you mean 'prices_usd_per_node_h'"),
])
def test_r3_15_a_price_that_could_mean_two_things_is_refused(cluster, said, words):
    with pytest.raises(HetsimError, match=f"(?s){words}"):
        cluster(A100 + said)


def test_r3_14_nodes_of_one_type_have_prices_of_their_own(cluster):
    """One T4 on demand, five spot ones: 0.526 + 5 x 0.158 an hour. Of the type is told the mean."""
    here = "price_usd_per_gpu_h = 0.158"
    spec = cluster(T4.format(1, "") + T4.format(5, here))
    assert spec.node_usd_per_gpu_h.tolist() == [0.526] + [0.158] * 5
    assert spec.node_usd_per_gpu_h.sum() == pytest.approx(1.316)
    assert spec.types[0].price_usd_per_h == pytest.approx(1.316 / 6)
    assert spec.types[0].cite["price_usd_per_h"] == "mean of its GPUs: 1 at 0.526, 5 at 0.158"
    by_kind = T4.format(1, 'price_kind = "on-demand"') + T4.format(5, 'price_kind = "spot"')
    of_file = ROW.format("T4", "spot", 0.158)
    assert cluster(by_kind + of_file).node_usd_per_gpu_h.tolist() == spec.node_usd_per_gpu_h.tolist()
    both = ROW.format("T4", "on-demand", 0.5) + ROW.format("T4", "spot", 0.1)
    assert cluster(by_kind, rows=both).node_usd_per_gpu_h.tolist() == [0.5] + [0.1] * 5


def test_f49_of_many_prices_some_are_told_and_alike_ones_once(cluster):
    spec = cluster("".join(T4.format(2, f"price_usd_per_gpu_h = {1 + i % 9}") for i in range(900)))
    told = "mean of its GPUs: 200 at 1, 200 at 2, 200 at 3, 200 at 4 and 5 other prices"
    assert spec.types[0].cite["price_usd_per_h"] == told
    assert spec.types[0].price_usd_per_h == pytest.approx(5)


def test_f49_a_price_of_minus_zero_is_zero(cluster):
    spec = cluster(A100 + "price_usd_per_gpu_h = -0.0\n")
    assert str(spec.types[0].price_usd_per_h) == "0.0"


def test_r3_14_a_spot_price_that_nobody_knows_is_unknown_and_so_is_the_mean(cluster):
    spec = cluster(T4.format(1, "") + T4.format(5, 'price_kind = "spot"'))
    assert spec.node_usd_per_gpu_h[0] == 0.526
    assert all(math.isnan(usd) for usd in spec.node_usd_per_gpu_h[1:])
    assert spec.types[0].price_usd_per_h is None


def test_prices_asked_for_replace_those_of_the_cluster(cluster):
    text = A100 + "[prices_usd_per_gpu_h]\nA100 = 1\n"
    assert cluster(text, "on-demand").types[0].price_usd_per_h == pytest.approx(21.957642 / 8)
    assert cluster(text, "spot").types[0].price_usd_per_h is None
    assert cluster(text, rows=ROW.format("A100", "spot", 3)).types[0].price_usd_per_h == 3
    assert load_cluster("gavel", "spot").types[0].price_usd_per_h is None
    assert load_cluster("gavel").types[0].price_usd_per_h is not None
    with pytest.raises(HetsimError, match="did you mean 'spot'"):
        load_cluster("a100:8", "spott")
    with pytest.raises(ClusterError, match="unknown key"):
        cluster(A100 + "cost = 1\n")


@pytest.mark.parametrize("said", [
    '[prices_usd_per_gpu_h]\nA100 = "unknown"\n',
    '[prices_usd_per_node_h]\nA100 = "unknown"\n',
    'price_kind = "unknown"\n',
    ROW.format("A100", "spot", '"unknown"'),
])
def test_a_price_may_be_unknown_wherever_one_is_said(cluster, said):
    spec = cluster(A100 + said)
    assert spec.types[0].price_usd_per_h is None
    assert all(math.isnan(usd) for usd in spec.node_usd_per_gpu_h)


def test_a_blank_price_is_refused_with_what_to_say_instead(cluster):
    with pytest.raises(ClusterError, match=r"prices_usd_per_gpu_h.*'unknown'"):
        cluster(A100 + '[prices_usd_per_gpu_h]\nA100 = ""\n')


def test_nodes_of_eight_t4_cost_what_such_a_node_does(cluster):
    """g4dn.metal: 7.824 USD for eight; a node of one costs 0.526. Of four no price is known here."""
    eight = '[[nodes]]\ntype = "T4"\ncount = 2\ngpus = 8\n'
    assert cluster(eight).node_usd_per_gpu_h.tolist() == [0.526] * 2
    spec = cluster(eight + 'price_per = "node"\n')
    assert spec.node_usd_per_gpu_h.tolist() == [7.824 / 8] * 2
    assert "AWS g4dn.metal" in spec.types[0].cite["price"] and spec.types[0].alone(8) == ""
    assert cluster(eight + 'price_per = "node"\nprice_kind = "on-demand"\n').types == spec.types
    k80 = cluster(eight.replace("gpus = 8", "gpus = 16").replace("T4", "K80") + 'price_per = "node"\n')
    assert k80.node_usd_per_gpu_h.tolist() == [14.4 / 16] * 2


@pytest.mark.parametrize(("said", "words"), [
    ('price_per = "node"\n', r"nodes\.0\.price_per: no price of such a node is known; got 'T4, 4 GPUs a node'; "
                            "allowed: nodes of 1, 8 GPUs"),
    ('price_per = "node"\nprice_kind = "spot"\n', "no price of such a node is known"),
    ('price_per = "gpus"\n', "no such price: of a 'gpus'"),
    ('price_per = "node"\nprice_usd_per_gpu_h = 1\n', "the price is given twice"),
    ('price_per = "node"\nprice_kind = "unknown"\n', "the price is given twice"),
])
def test_a_node_whose_price_nobody_knows_is_refused(cluster, said, words):
    with pytest.raises(HetsimError, match=f"(?s){words}"):
        cluster('[[nodes]]\ntype = "T4"\ncount = 1\ngpus = 4\n' + said)
