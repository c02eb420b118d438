"""GPU and CPU types of the user's own: read, refused, known by name while they are needed, kept by value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.clusterfiles import load_cluster
from sim.hardware.gputypes import HardwareError, catalogue, gpu_type, with_types
from sim.settings.config import load_config
from sim.settings.hardwarefile import as_table, own_types, read_hardware
from sim.sweeps.replay import Replay
from traces.errors import HetsimError

FIGURES = {"memory_gib": 24.0, "peak_tflops": 100.0, "mem_gbytes_per_s": 500.0, "pcie_gbytes_per_s": 16.0,
           "power_w": 200.0, "source": "made up"}
CARD = "[gpu.Card]\n" + "".join(f"{key} = {value!r}\n" for key, value in FIGURES.items())
XEON = {"sockets": 2, "memory_gib": 512.0, "mem_gbytes_per_s": 200.0, "fp32_tflops": 4.0, "pcie_gbytes_per_s": 32.0,
        "power_w": 270.0, "source": "datasheet"}
MONEY = {"kind": "on-demand", "amount_per_h": 16.0, "per": "node", "node_gpus": 8, "date": "2026-01", "source": "us"}


def one(**more):
    """The type of one table of its own."""
    return own_types({"gpu": {"Card": FIGURES | more}}, "test")["Card"]


def test_figures_are_those_given_and_what_nobody_said_is_unknown_or_an_estimate():
    card = one(prices=[MONEY])
    assert (card.memory_gib, card.peak_tflops, card.nvlink_gbytes_per_s) == (24.0, 100.0, 0.0)
    assert (card.fp32_tflops, card.sms, card.idle_w) == (None, None, None)
    assert card.price_usd_per_h == 2.0
    assert card.rented_gpus == 8
    assert card.cite["compute_efficiency"] == "made up; estimate: compute_efficiency and memory_efficiency"
    with pytest.raises(HardwareError, match="fp32_tflops of a GPU type is unknown"):
        card.matrix_tflops("fp32")


def test_a_type_is_like_another_but_for_what_it_says():
    a100, row = gpu_type("A100"), {"like": "a100", "memory_gib": 64, "source": "us"}
    big = own_types({"gpu": {"Big": row}}, "test")["Big"]
    assert big.memory_gib == 64
    assert big.price_usd_per_h is None  # what the other one costs says nothing of this
    for name in ("peak_tflops", "tf32_tflops", "mem_gbytes_per_s", "compute_efficiency", "sms", "power_w"):
        assert getattr(big, name) == getattr(a100, name)
    assert big.cite["device"] == "us; else as A100"


def test_a_server_of_two_sockets_is_one_device_whose_rates_add_up():
    xeon = own_types({"cpu": {"Xeon": XEON}}, "test")["Xeon"]
    assert (xeon.memory_gib, xeon.mem_gbytes_per_s, xeon.power_w) == (512.0, 400.0, 540.0)
    assert xeon.matrix_tflops("fp32") == (8.0, 0.71)
    assert xeon.matrix_tflops("tf32") == xeon.matrix_tflops("fp32")
    assert xeon.matrix_tflops("mixed") == (8.0, 0.71)
    amx = own_types({"cpu": {"Xeon": XEON | {"peak_tflops": 30.0}}}, "test")["Xeon"]
    assert amx.matrix_tflops("mixed") == (60.0, 0.71)


rates = st.floats(0.01, 1e5, allow_subnormal=False)


@given(rates, rates, st.none() | rates, st.none() | st.integers(1, 1000), st.booleans(), st.booleans())
def test_types_kept_by_value_are_the_same_types(memory, bandwidth, idle, sms, like, priced):
    said = {"memory_gib": memory, "mem_gbytes_per_s": bandwidth, "idle_w": idle, "sms": sms}
    said = {key: value for key, value in said.items() if value is not None}
    row = ({"like": "T4", "source": "us"} if like else FIGURES) | said
    row |= {"prices": [MONEY, MONEY | {"kind": "spot", "amount_per_h": "unknown"}]} if priced else {}
    types = own_types({"gpu": {"Card": row}, "cpu": {"Xeon": XEON}}, "test")
    kept = as_table(types.values())
    assert own_types(kept, "run.json") == types
    assert as_table(own_types(kept, "run.json").values()) == kept


@pytest.mark.parametrize(("text", "words"), [
    ("", "the file has no types"),
    (CARD.replace("24.0", "0"), r"gpu\.Card\.memory_gib: value not allowed; got 0; allowed: a finite number above 0"),
    (CARD.replace("24.0", "-1"), r"gpu\.Card\.memory_gib"),
    (CARD.replace("24.0", "nan"), r"gpu\.Card\.memory_gib"),
    (CARD.replace("24.0", '"24"'), r"gpu\.Card\.memory_gib"),
    (CARD.replace("24.0", "1e9"), r"gpu\.Card\.memory_gib"),
    (CARD.replace("memory_gib = 24.0\n", ""), "a type lacks memory_gib"),
    (CARD.replace("memory_gib", "memory_gb"), "unknown key; got 'memory_gb'.*did you mean 'memory_gib'"),
    (CARD + "compute_efficiency = 1.0\n", r"gpu\.Card\.compute_efficiency"),
    (CARD + "fp32_tflops = 200.0\n", "fp32_tflops is above peak_tflops"),
    (CARD + 'like = "A1000"\n', "unknown GPU type; got 'A1000'.*did you mean"),
    (CARD.replace("source = 'made up'", "source = ''"), r"gpu\.Card\.source"),
    (CARD.replace("gpu.Card", "gpu.v100"), "a type of the catalogue has this name.*got 'v100'"),
    (CARD.replace("gpu.Card", 'gpu."a b"'), "not a name of a type; got 'a b'"),
    (CARD.replace("gpu.Card", 'gpu."4x"'), "not a name of a type"),
    (CARD + CARD.replace("gpu.Card", "gpu.CARD"), "a type is there twice; got 'CARD'"),
    (CARD.replace("gpu.Card", "gpus.Card"), "unknown key; got 'gpus'"),
    ("gpu = 3\n", r"gpu: value not allowed"),
    ("[cpu.X]\nsockets = 0\n", r"cpu\.X"),
    (CARD + '[[gpu.Card.prices]]\nkind = "on-demand"\namount_per_h = ""\nper = "gpu"\ndate = "2026"\nsource = "x"\n',
     r"gpu\.Card\.prices\.0\.amount_per_h"),
    (CARD + '[[gpu.Card.prices]]\nkind = "free"\namount_per_h = 1\nper = "gpu"\ndate = "2026"\nsource = "x"\n',
     "the kind of a price cannot be used"),
])
def test_nonsense_is_refused_with_file_table_and_key(tmp_path, text, words):
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(HetsimError, match=words) as caught:
        read_hardware(str(file))
    assert str(file) in str(caught.value)


def test_own_types_are_known_while_they_are_needed_and_no_longer():
    card = one()
    with with_types([card]):
        assert gpu_type("CARD") is card
        assert "Card" in catalogue()
        with with_types([card]):  # twice the same is one
            assert gpu_type("Card") is card
        with pytest.raises(HardwareError, match="two types have one name"), with_types([one(memory_gib=25.0)]):
            pass
        assert gpu_type("Card") is card
    with pytest.raises(HardwareError, match=r"unknown GPU type; got 'Card'.*--hardware FILE"):
        gpu_type("Card")


def test_a_cluster_file_may_bring_its_types(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[prices_usd_per_gpu_h]\ncard = 3.0\n[[nodes]]\ntype = "card"\ncount = 2\ngpus = 4\n' + CARD)
    cluster = load_cluster(str(file))
    assert [gpu.name for gpu in cluster.types] == ["Card"]
    assert cluster.types[0].price_usd_per_h == 3.0
    assert cluster.types[0].memory_gib == 24.0
    assert "Card" not in catalogue()
    file.write_text('[[nodes]]\ntype = "card"\ncount = 2\ngpus = 4\n' + CARD.replace("24.0", "0"))
    with pytest.raises(HetsimError, match=r"mine\.toml, gpu\.Card\.memory_gib"):
        load_cluster(str(file))


def test_a_run_keeps_its_types_by_value_and_plays_the_same_from_them(tmp_path):
    """The file is gone when the run is made again from what it kept."""
    file, cluster = tmp_path / "own.toml", tmp_path / "mine.toml"
    file.write_text(CARD + "fp32_tflops = 10.0\ntf32_tflops = 50.0\n")
    cluster.write_text('[[nodes]]\ntype = "card"\ncount = 2\ngpus = 4\n[[nodes]]\ntype = "Other"\ncount = 1\ngpus = 4\n'
                       + CARD.replace("Card", "Other") + "fp32_tflops = 9.0\ntf32_tflops = 0.0\n")
    given = {"policy": "fifo", "jobs": 40, "cluster": str(cluster), "reference": "card"}
    replay = Replay(load_config(None, given | {"hardware": str(file)}))
    kept = replay.settings["hardware"]
    assert list(kept["gpu"]) == ["Card", "Other"]
    tables = replay.play().tables
    file.unlink()
    cluster.write_text(cluster.read_text().split("[gpu")[0])
    again = Replay(load_config(None, given | {"hardware": kept}))
    assert again.settings == replay.settings
    for name, table in again.play().tables.items():
        assert table.equals(tables[name]), name


def test_without_types_of_ones_own_a_run_says_nothing_of_them():
    assert "hardware" not in Replay(load_config(None, {"policy": "fifo", "jobs": 5})).settings
