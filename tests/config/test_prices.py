"""Prices: of a kind, for a GPU or a node, in a currency, of a date (user report P-53)."""

from __future__ import annotations

import pytest

from sim.cluster.prices import priced, read_prices
from sim.hardware.gputypes import HardwareError, Price, catalogue, gpu_type
from sim.settings.values import ConfigError
from traces.errors import HetsimError


def price(**more):
    return Price(**{"kind": "on-demand", "amount_per_h": 8.0, "per": "gpu", "date": "2025-01-01", "source": "x"} | more)


ROW = (
    '[[prices]]\ngpu_type = "{0}"\nkind = "{1}"\namount_per_h = {2}\nper = "{3}"\n'
    'date = "2025-11-30"\nsource = "mine"\n'
)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "prices.toml"
        path.write_text(text)
        return path

    return write


def test_p53_a_price_of_a_node_is_shared_by_its_gpus():
    assert price(per="node", node_gpus=8).usd_per_gpu_h == 1.0
    assert price().usd_per_gpu_h == 8.0


def test_p53_a_node_of_the_catalogue_costs_what_its_provider_asks():
    """p4d.24xlarge, eight A100: 21.957642 USD an hour for all of them."""
    assert 8 * gpu_type("A100").price_usd_per_h == pytest.approx(21.957642)


def test_p53_money_of_another_currency_is_turned_into_usd():
    yuan = price(amount_per_h=9.53, currency="CNY", currency_per_usd=7.2)
    assert yuan.usd_per_gpu_h == pytest.approx(1.3236, abs=1e-4)


def test_p53_each_price_of_the_catalogue_has_kind_what_for_currency_date_and_source():
    counts = [(gpu, [row for row in gpu.prices if row.kind == "on-demand"]) for gpu in catalogue().values()]
    rows = [(gpu, found[0]) for gpu, found in counts if found]
    assert len(rows) >= 10
    for gpu, row in rows:
        assert gpu.price_usd_per_h == row.usd_per_gpu_h
        assert row.date in gpu.cite["price"]
        assert row.source in gpu.cite["price"]
        assert row.kind in gpu.cite["price"]


def test_p53_spot_is_not_on_demand_and_unknown_stays_unknown():
    v100 = gpu_type("V100")
    assert v100.at("on-demand") == v100
    spot = v100.at("spot")
    assert spot.price_usd_per_h is None
    assert spot.cite["price"] == "unknown"


def test_p53_prices_of_a_file(file):
    path = file(ROW.format("v100", "spot", 8.0, "node") + "node_gpus = 8\n" + ROW.format("T4", "spot", 0.2, "gpu"))
    v100, t4, a100 = priced([gpu_type(name) for name in ("V100", "T4", "A100")], str(path))
    assert (v100.price_usd_per_h, t4.price_usd_per_h, a100.price_usd_per_h) == (1.0, 0.2, None)
    assert v100.cite["price"] == "mine, spot, 2025-11-30, a node of 8"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kind": "futures"}, "kind of a price"),
        ({"amount_per_h": -1.0}, "a price cannot be used"),
        ({"amount_per_h": float("nan")}, "a price cannot be used"),
        ({"per": "rack"}, "what a price is for"),
        ({"per": "node"}, "GPUs of a price"),
        ({"node_gpus": 8}, "GPUs of a price"),
        ({"currency": "EUR"}, "rate of a currency"),
        ({"currency_per_usd": 2.0}, "rate of a currency"),
        ({"currency": "EUR", "currency_per_usd": 1e-305}, "currency_per_usd from 0.000001 to 1,000"),
        ({"currency": "EUR", "currency_per_usd": 1e10}, "currency_per_usd from 0.000001 to 1,000"),
        ({"amount_per_h": 1e9, "currency": "KWD", "currency_per_usd": 0.1}, r"1e\+10 USD.*0 to 1,000,000 USD"),
        ({"amount_per_h": 1e7, "per": "node", "node_gpus": 8}, "1,000,000 USD an hour for the node"),
        ({"date": ""}, "date and source"),
        ({"date": "2025-13-77"}, "the date of a price"),
        ({"date": "2025-02-29"}, "the date of a price"),
        ({"date": "2025-13"}, "the date of a price"),
        ({"date": "20251130"}, "the date of a price"),
        ({"date": "autumn"}, "the date of a price"),
    ],
)
def test_p53_a_price_that_says_too_little_is_refused(more, words):
    with pytest.raises(HardwareError, match=words):
        price(**more)


def test_f49_the_bound_of_a_price_is_in_usd_whatever_the_currency():
    rial = price(amount_per_h=9e8, currency="IRR", currency_per_usd=42_000.0)
    assert rial.usd_per_gpu_h == pytest.approx(21_428.57, abs=0.01)
    assert price(amount_per_h=1e6).usd_per_gpu_h == 1e6
    for text in ("2025", "about 2025", "2025-11", "2024-02-29"):
        assert price(date=text).date == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ROW.format("V100", "spot", 1, "gpu") * 2, "two prices of a kind"),
        (ROW.format("V10", "spot", 1, "gpu"), "unknown GPU type"),
        (ROW.format("V100", "spot", -1, "gpu"), "amount_per_h"),
        (ROW.format("V100", "spots", 1, "gpu"), "kind of a price"),
        (ROW.format("V100", "spot", 1, "gpu").replace("date", "dates"), "did you mean 'date'"),
        ("prices = []\n", "prices"),
    ],
)
def test_a_file_of_prices_that_cannot_be_meant_is_refused(file, text, words):
    with pytest.raises(HetsimError, match=words):
        read_prices(file(text))


def test_an_unknown_kind_and_a_file_that_is_not_there():
    with pytest.raises(HardwareError, match="did you mean 'spot'"):
        priced([gpu_type("V100")], "spott")
    with pytest.raises(HardwareError, match="did you mean 'spot'"):
        gpu_type("V100").at("spott")
    with pytest.raises(ConfigError, match=r"none\.toml"):
        priced([gpu_type("V100")], "none.toml")


def test_a_price_may_be_said_to_be_unknown_which_is_neither_zero_nor_blank(file):
    """As long as `unknown` was refused, a made-up number stood there."""
    t4 = gpu_type("T4")
    (unknown,) = priced([t4], str(file(ROW.format("T4", "spot", '"unknown"', "gpu"))))
    assert unknown.price_usd_per_h is None
    assert unknown.cite["price"] == "mine, spot, 2025-11-30, unknown"
    (zero,) = priced([t4], str(file(ROW.format("T4", "spot", "0", "gpu"))))
    assert zero.price_usd_per_h == 0
    for other in ('""', '"Unknown"', "nan", "true", "-1", "[]"):
        with pytest.raises(ConfigError, match=r"prices\.0\.amount_per_h: value not allowed.*'unknown'"):
            read_prices(file(ROW.format("T4", "spot", other, "gpu")))


def test_a_price_of_one_gpu_by_itself_is_marked_where_nodes_have_more():
    """T4: g4dn.xlarge has one for 0.526 USD, g4dn.metal eight for 7.824, which are 0.978 for each."""
    t4, v100, a100, gh200 = (gpu_type(name) for name in ("T4", "V100", "A100", "GH200"))
    assert "0.978 for each of 8" in t4.alone(8)
    assert "0.978 for each of 8" in t4.alone(2)  # the smallest node that is sold with as many
    assert t4.alone(1) == ""
    assert v100.alone(8) == ""  # eight cost eight times one
    assert a100.alone(8) == ""  # the price is that of a node
    assert "no price of such a node is known" in t4.alone(16)
    assert "no price of such a node is known" in gh200.alone(4)
    assert t4.priced(price(source="mine", per="node", node_gpus=1)).alone(8) == ""  # the user knows
