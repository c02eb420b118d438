"""Experiments of `hetsim perf`: many questions out of a file, a table and a figure."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.conftest import ROOT

EXPERIMENT = """
[perf]
model = ["vgg16", "resnet50"]
gpu = ["P100"]
gpus = [1, 2, 4]
batch_per_gpu = [16]

[figure]
x = "gpus"
y = "samples_per_s"
line = "model"
"""


def test_each_combination_is_a_row_and_the_figure_is_drawn(hetsim, here):
    (here / "e.toml").write_text(EXPERIMENT)
    said = hetsim("perf", "--config", "e.toml", "--out", "pictures")
    assert said.code == 0
    assert said.out.split() == ["pictures/e.csv", "pictures/e.png", "pictures/e.pdf"]
    table = pd.read_csv(here / "pictures" / "e.csv")
    assert len(table) == 6
    assert (table["batch_size"] == 16 * table["gpus"]).all()


def test_the_same_experiment_gives_the_same_bytes(hetsim, here):
    (here / "e.toml").write_text(EXPERIMENT)
    for folder in ("one", "two"):
        assert hetsim("perf", "--config", "e.toml", "--out", folder).code == 0
    for name in ("e.csv", "e.png", "e.pdf"):
        assert (here / "one" / name).read_bytes() == (here / "two" / name).read_bytes()


def test_resnet18_has_diminishing_returns_over_gpus_and_less_so_in_larger_batches(hetsim, here):
    """The survey's Fig. 2b (Ye et al. 2024): each doubling of GPUs brings less, and small batches stop first."""
    assert hetsim("perf", "--config", ROOT / "experiments" / "resnet18-scaling.toml", "--out", "f").code == 0
    table = pd.read_csv(here / "f" / "resnet18-scaling.csv").query("fits")
    speed = table.pivot_table(index="gpus", columns="batch_size", values="samples_per_s")
    for batch in (128, 256, 512):
        gains = (speed[batch] / speed[batch].shift()).dropna().to_numpy()
        assert (gains < 2).all()
        assert gains[-1] < gains[0]
    assert speed.loc[32, 128] / speed.loc[4, 128] < speed.loc[32, 2048] / speed.loc[4, 2048]


def test_vgg16_suffers_far_more_from_placement_than_resnet50(hetsim, here):
    """The survey's Fig. 3b (Ye et al. 2024): PCIe switch, host bridge, QPI, network, each slower than the last."""
    assert hetsim("perf", "--config", ROOT / "experiments" / "placement-sensitivity.toml", "--out", "f").code == 0
    table = pd.read_csv(here / "f" / "placement-sensitivity.csv")
    speed = table.pivot_table(index="link", columns="model", values="samples_per_s")
    speed = speed.loc[["pcie3-switch", "pcie3-host", "qpi", "network"]] / speed.loc["pcie3-switch"]
    assert (speed.diff().dropna() < 0).all().all()
    lost = 1 - speed.loc["network"]
    assert lost["vgg16"] > 2 * lost["resnet50"]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("model = [", "modle = ["), "did you mean 'model'"),
        (('"vgg16"', '"vgg17"'), "vgg16"),
        (('"P100"', '"P1000"'), "P100"),
        (("gpus = [1, 2, 4]", "gpus = []"), "gpus"),
        (("gpus = [1, 2, 4]", "gpus = [0]"), "1 or more"),
        (("gpus = [1, 2, 4]", 'gpus = ["two"]'), "gpus"),
        (("batch_per_gpu = [16]", "batch_per_gpu = [16]\nbatch_size = [16]"), "given twice"),
        (("batch_per_gpu = [16]", 'batch_per_gpu = [16]\nlink = ["string"]'), "unknown link"),
        (("batch_per_gpu = [16]", 'batch_per_gpu = [16]\ncalibration = "wishful"'), "tuned"),
        (('y = "samples_per_s"', 'y = "samples"'), "samples_per_s"),
        (('line = "model"', 'line = "model"\nrelative_to = "3"'), "no such value"),
        (("[perf]", "[prf]"), "prf"),
    ],
)
def test_what_makes_no_sense_is_told_and_nothing_is_written(hetsim, here, edit, words):
    (here / "e.toml").write_text(EXPERIMENT.replace(*edit))
    said = hetsim("perf", "--config", "e.toml", "--out", "pictures")
    assert said.code == 2
    assert words in said.err
    assert "Traceback" not in said.err
    assert not (here / "pictures").exists()
