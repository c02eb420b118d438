"""Fronts that are kept on disk: the same as worked out, never another's, never damaged, never too many."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from policies.recommend import Planner, Recommendation, RecommendError
from policies.recommend.searching import kept_fronts
from policies.recommend.searching.kept_fronts import kept_name, read_front, write_front
from sim.api import Part, Plan, Stage
from sim.cluster.spec import Links
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.calibration import shipped

V100, T4 = gpu_type("V100"), gpu_type("T4")
METHODS = ("exact", "uneven")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of fronts, of a cache of the test's own."""
    monkeypatch.setenv("HETSIM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("HETSIM_KEEP_FRONTS")
    return tmp_path / "hetsim" / "fronts"


def planner(performance=None, types=(V100, T4), counts=(4, 4), node_gpus=(4, 4), methods=METHODS):
    return Planner(performance or Performance(), types, counts, node_gpus, methods=methods, keep=True)


def unasked(monkeypatch):
    """From here on a front that is worked out fails the test."""
    def fail(self, request):
        raise AssertionError("worked out anew")

    monkeypatch.setattr(Planner, "_front", fail)


def test_a_kept_front_is_the_one_that_was_worked_out(folder, monkeypatch):
    free = replace(T4, price_usd_per_h=None, prices=())  # its cost is NaN, which equals nothing
    for types in ((V100, T4), (V100, free)):
        first = planner(types=types).front("vgg16", 128, 6)
        with monkeypatch.context() as patched:
            unasked(patched)
            again = planner(types=types).front("vgg16", 128, 6)
        assert repr(again) == repr(first)
        assert [r.plan.stages for r in again] == [r.plan.stages for r in first]
        assert {type(r.iteration_s) for r in again} == {float} and {type(n) for r in again for n in r.counts} == {int}
    assert len(list(folder.iterdir())) == 2


def test_all_that_a_plan_may_say_is_kept(folder):
    parts = (Part("V100", 2, 1 / 3), Part("T4", 2, 2 / 3))
    stages = (Stage(0, 4, "V100", 4, tensor=2, parts=parts), Stage(5, 9, "T4", 1, sharded=True))
    plan = Plan(stages, 8, 0.1, (1.5, 2.0), "gpipe", 1, True, 2, tuple(range(10)))
    front = (Recommendation(plan, 0.1, 1e-7, (2, 3)), Recommendation(replace(plan, zero=0), 0.3, 0.0, (2, 3)))
    write_front("f" * 64, front)
    assert read_front("f" * 64) == front and read_front("e" * 64) is None


def test_whatever_a_front_depends_on_is_in_its_name(folder, monkeypatch):
    request = planner().request("vgg16", 128, 6)
    graph = Performance().graph("vgg16")
    stored = replace(graph, stored_bytes=2 * graph.stored_bytes)
    models = [
        Performance(Links(network_gbytes_per_s=1.0)), Performance(calibration="scripts"), Performance(schedule="gpipe"),
        Performance(optimizer="sgd"), Performance(blocking=True), Performance(overlap=True),
        Performance(exchange="tree"), Performance(graphs={"vgg16": stored}),
        Performance(calibration=replace(shipped("tuned"), host_s=1e-3)),
    ]  # fmt: skip
    fleets = [
        {"counts": (4, 3)}, {"node_gpus": (4, 2)}, {"types": (V100, replace(T4, price_usd_per_h=9.0))},
        {"types": (V100, replace(T4, memory_gib=15.0))}, {"types": (T4, V100)},
    ]  # fmt: skip
    requests = [planner(one).request("vgg16", 128, 6) for one in models]
    requests += [planner(**one).request("vgg16", 128, 6) for one in fleets]
    requests += [planner().request(*one) for one in (("vgg16", 64, 6), ("resnet50", 128, 6), ("vgg16", 128, 5))]
    requests.append(planner().request("vgg16", 128, 6, single_type=True))
    names = [kept_name(request, ("exact",)), *(kept_name(one, METHODS) for one in [request, *requests])]
    monkeypatch.setattr(kept_fronts, "code_hash", lambda: "of other sources")
    names.append(kept_name(request, METHODS))
    assert all(names) and len(set(names)) == len(names)


def test_beliefs_and_the_unwilling_are_not_kept(folder, monkeypatch):
    class Belief(Performance):
        pass

    assert kept_name(planner(Belief()).request("vgg16", 128, 2), METHODS) == ""
    monkeypatch.setenv("HETSIM_KEEP_FRONTS", "0")
    assert planner().front("vgg16", 128, 2) and not folder.exists()


@pytest.mark.parametrize("damage", [
    lambda good, other: b"", lambda good, other: good[:-40], lambda good, other: good.replace(b"V100", b"V101", 1),
    lambda good, other: b"\xff\x00" * 99, lambda good, other: other, lambda good, other: good + b" ",
], ids=["empty", "cut", "edited", "foreign", "of another front", "longer"])  # fmt: skip
def test_what_is_damaged_is_worked_out_anew_and_written_over(folder, damage):
    names = [kept_name(planner().request("vgg16", batch, 2), METHODS) for batch in (128, 64)]
    fronts = [planner().front("vgg16", batch, 2) for batch in (128, 64)]
    path, other = (folder / f"{name}.front" for name in names)
    good = path.read_bytes()
    path.write_bytes(damage(good, other.read_bytes()))
    assert read_front(names[0]) is None
    assert planner().front("vgg16", 128, 2) == fronts[0]
    assert path.read_bytes() == good and read_front(names[1]) == fronts[1]


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.delenv("HETSIM_KEEP_FRONTS")
    front = planner()._front(planner().request("vgg16", 128, 2))
    monkeypatch.setattr(kept_fronts, "cache_root", lambda: tmp_path / "file")
    assert planner().front("vgg16", 128, 2) == front

    def homeless():
        raise RuntimeError("no home")

    monkeypatch.setattr(kept_fronts, "cache_root", homeless)
    assert planner().front("vgg16", 128, 2) == front


def test_that_nothing_fits_is_said_each_time(folder):
    small = (replace(V100, memory_gib=1.1),)
    for _ in range(2):
        with pytest.raises(RecommendError, match="fits"):
            planner(types=small, counts=(2,), node_gpus=(2,)).front("gpt2-1.5b", 8, 2)
    assert not folder.exists()


def test_what_was_not_asked_for_longest_goes_first(folder, monkeypatch):
    front = planner().front("vgg16", 128, 2)
    (kept,) = folder.iterdir()
    size = kept.stat().st_size
    monkeypatch.setattr(kept_fronts, "MOST_BYTES", 4 * size + 10)
    for number, name in enumerate("abc"):
        write_front(name * 64, front)
        os.utime(folder / f"{name * 64}.front", ns=(number, number))
    assert read_front("a" * 64) == front  # and so it is not the one asked for longest ago
    write_front("e" * 64, front)
    assert {path.name[0] for path in folder.iterdir() if path != kept} == {"a", "e"} and kept.exists()
