"""--hardware: types of one's own in each command that names GPUs, and what is refused with exit code 2."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sim.hardware.gputypes import catalogue

CARD = """[gpu.Card]
like = "V100"
memory_gib = {}
source = "made up"
[[gpu.Card.prices]]
kind = "on-demand"
amount_per_h = 1.5
per = "gpu"
date = "2026"
source = "us"
"""


@pytest.fixture
def own(here):
    (here / "own.toml").write_text(CARD.format(16))
    return "own.toml"


@pytest.mark.parametrize("asked", [
    ("cluster", "show", "card:2x4"),
    ("perf", "resnet50", "-s", "2xCard"),
    ("perf", "--list"),
    ("recommend", "--model", "resnet50", "--gpus", "card:4,T4:4", "--evaluations", "20"),
    ("place", "--model", "alexnet", "--gpus", "card:2", "--methods", "single"),
    ("run", "--trace", "jobs.csv", "--cluster", "card:1x4", "--policy", "fifo", "--reference", "card", "--quiet"),
])
def test_each_command_that_names_gpus_takes_types_of_ones_own(hetsim, own, asked):
    said = hetsim(*asked, "--hardware", own)
    assert said.code == 0, said.err
    assert "Card" in said.out
    assert "Card" not in catalogue()  # what one command was told the next one does not know


def test_a_type_that_is_like_another_is_as_fast_and_has_a_price_of_its_own(hetsim, own):
    mine, theirs = (json.loads(hetsim("perf", "resnet50", "-s", f"4x{name}", "--hardware", own, "--json").out)
                    for name in ("Card", "V100"))
    assert mine["iteration_s"] == theirs["iteration_s"]
    assert mine["usd_per_1000_iterations"] == pytest.approx(theirs["usd_per_1000_iterations"] * 1.5 / 3.06)


@pytest.mark.parametrize("command", [
    ("cluster", "show", "card:2x4"), ("perf", "resnet50"), ("recommend", "--model", "resnet50", "--gpus", "card:4"),
    ("place", "--model", "alexnet"), ("run", "--trace", "jobs.csv"),
])
@pytest.mark.parametrize(("text", "words"), [
    (None, "No such file"), (CARD.format(-1), "own.toml, gpu.Card.memory_gib: value not allowed; got -1"),
    ("[", "is no TOML"),
])
def test_what_cannot_be_a_type_ends_each_command_with_exit_code_2(hetsim, here, command, text, words):
    if text is not None:
        (here / "own.toml").write_text(text)
    said = hetsim(*command, "--hardware", "own.toml")
    assert said.code == 2
    assert words in said.err
    assert "Traceback" not in said.err


def test_a_cluster_s_types_are_known_to_what_is_asked_of_it(hetsim, here):
    (here / "mine.toml").write_text('[[nodes]]\ntype = "card"\ncount = 1\ngpus = 8\n' + CARD.format(16))
    said = hetsim("perf", "resnet50", "-s", "4xCard", "--cluster", "mine.toml")
    assert said.code == 0
    assert "Card" in said.out


def test_the_page_on_hardware_can_be_followed(hetsim, here):
    """Its files are read, its command runs, and a run on its cluster passes the audit."""
    page = Path(__file__).parents[2].joinpath("docs", "hardware.md").read_text("utf-8")
    types, zones, machines = re.findall(r"```toml\n(.*?)```", page, re.S)
    (here / "types.toml").write_text(types)
    (here / "machines.toml").write_text(machines)
    (here / "zones.toml").write_text(zones)
    (command,) = re.findall(r"```sh\nhetsim (.*?)\n```", page)
    said = hetsim(*command.split())
    assert said.code == 0, said.err
    assert "for bytes that leave a zone" in " ".join(said.out.split())
    shown = " ".join(hetsim("cluster", "show", "zones.toml", "--hardware", "types.toml").out.split())
    assert "A100 nodes of 8: 12.5; A100 nodes of 2: 4" in shown
    assert "zones us-central1-a and us-west1-b: 0.9375 Gbyte/s a node" in shown
    shown = " ".join(hetsim("cluster", "show", "machines.toml").out.split())
    assert "machines of several types, which PCIe joins: 2 of 4 V100 and 2 T4" in shown
    ran = hetsim("run", "--policy", "srsf", "--jobs", "60", "--cluster", "zones.toml", "--out", "run", "--quiet")
    assert ran.code == 0, ran.err
    assert hetsim("audit", "run").code == 0
    refused = hetsim("recommend", "--model", "resnet50", "--cluster", "zones.toml")
    assert refused.code == 2
    assert "several zones" in refused.err
