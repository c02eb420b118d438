"""The order in which GPU types are tried: by the rule asked for, whatever the order of the cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.registry import find, names
from sim.api import HetsimError
from sim.cluster.clusterfiles import load_cluster
from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import catalogue, gpu_type
from sim.performance import Performance
from sim.performance.type_order import speeds, with_type_order
from sim.settings.config import RunConfig, load_config
from sim.sweeps.replay import Replay
from tests.helpers import nodes

BY_SPEED = ("fastest-free", "gandiva-fair", "heft", "mct", "min-min", "type-queues")
BLIND = tuple(name for name in names() if find(name).blind_to_speed() and not find(name).needs_starts)


def order(types: Sequence[str], rule: str, calibration: str = "tuned", seed: int = 0) -> list[str]:
    return [gpu.name for gpu in with_type_order(nodes(*((t, 1, 1) for t in types)), rule, calibration, seed).types]


def played(folder: Path, rows: str, cluster: str, **more: Any) -> dict[str, tuple[float, float]]:
    """First start and end of each job of a CSV trace."""
    (folder / "jobs.csv").write_text(rows)
    table = Replay(RunConfig(trace=str(folder / "jobs.csv"), cluster=cluster, **more)).play().tables["jobs"]
    return {job["job_id"]: (job["first_start_s"], job["end_s"]) for job in table.to_pylist()}


# -- the rules, by hand ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", list(permutations(("V100", "P100", "K80"))))
def test_fastest_first_is_fastest_first_however_it_is_listed(listed: Sequence[str]) -> None:
    assert order(listed, "fastest") == ["V100", "P100", "K80"]
    assert order(listed, "cheapest") == ["K80", "P100", "V100"]  # 0.90, 1.46 and 3.06 USD an hour
    assert order(listed, "listed") == list(listed)


def test_the_speed_is_that_of_the_run_s_own_calibration() -> None:
    # In half precision a T4 has tensor cores and a P100 has none; scripts of their time computed in single precision.
    assert order(("P100", "T4"), "fastest", "tuned") == ["T4", "P100"]
    assert order(("T4", "P100"), "fastest", "scripts") == ["P100", "T4"]
    config = RunConfig(policy="fifo", cluster="p100:1+t4:1", calibration="scripts", jobs=1)
    assert [gpu.name for gpu in Replay(config).cluster.types] == ["P100", "T4"]


def test_a_speed_is_the_geometric_mean_of_samples_a_second_over_the_models_that_jobs_are_given() -> None:
    batches = {"resnet50": 128, "vgg16": 64, "bert-large": 16, "gpt2-1.5b": 2, "transformer": 128, "lstm-lm": 80}
    performance, gpu = Performance(), gpu_type("T4")
    each = []
    for model, batch in batches.items():
        forward_s, backward_s = performance.op_times_s(model, batch, gpu)
        each.append(batch / (forward_s.sum() + backward_s.sum()))
    assert speeds([gpu]) == pytest.approx([np.prod(each) ** (1 / 6)])


def test_types_of_one_speed_are_tried_by_price_and_of_one_price_by_speed_then_by_name() -> None:
    assert order(("V100-32", "V100"), "fastest") == ["V100", "V100-32"]  # 3.90 and 3.06 USD an hour
    v100 = catalogue()["V100"]
    twins = [replace(v100, name=name) for name in ("B", "C", "A")]
    for rule in ("fastest", "cheapest"):
        cluster = with_type_order(ClusterSpec.build("twins", twins, [0, 1, 2], [1, 1, 1]), rule, "tuned", 0)
        assert [gpu.name for gpu in cluster.types] == ["A", "B", "C"]
    cheap = [replace(gpu, price_usd_per_h=1.0) for gpu in (catalogue()["T4"], v100)]
    cluster = with_type_order(ClusterSpec.build("cheap", cheap, [0, 1], [1, 1]), "cheapest", "tuned", 0)
    assert [gpu.name for gpu in cluster.types] == ["V100", "T4"]


def test_an_unknown_price_is_never_the_cheapest() -> None:
    assert catalogue()["RTX2080Ti"].price_usd_per_h is None
    assert order(("RTX2080Ti", "H100", "T4"), "cheapest") == ["T4", "H100", "RTX2080Ti"]


def test_a_price_of_the_cluster_s_own_counts(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    groups = "".join(f'[[nodes]]\ntype = "{kind}"\ncount = 1\ngpus = 1\n' for kind in ("T4", "V100"))
    file.write_text(f"{groups}[prices_usd_per_gpu_h]\nV100 = 0.1\n")
    cluster = with_type_order(load_cluster(str(file)), "cheapest", "tuned", 0)
    assert [gpu.name for gpu in cluster.types] == ["V100", "T4"]


def test_a_random_order_is_that_of_the_seed_and_every_one_occurs() -> None:
    drawn = {seed: tuple(order(("V100", "P100", "K80"), "random", seed=seed)) for seed in range(60)}
    assert drawn == {seed: tuple(order(("K80", "V100", "P100"), "random", seed=seed)) for seed in range(60)}
    assert set(drawn.values()) == set(permutations(("V100", "P100", "K80")))


def test_nodes_keep_their_numbers_and_their_types() -> None:
    before = nodes(("T4", 2, 4), ("V100", 1, 8), ("T4", 1, 2))
    after = with_type_order(before, "fastest", "tuned", 0)
    assert [before.types[t].name for t in before.node_type] == [after.types[t].name for t in after.node_type]
    assert [gpu.name for gpu in after.types] == ["V100", "T4"]
    assert after.gpus_by_type().tolist() == [8, 10]
    assert np.array_equal(before.node_first, after.node_first)
    assert not after.node_type.flags.writeable


@pytest.mark.parametrize("preset", ["gavel", "helios", "mixed", "pai320"])
def test_presets_whose_fastest_types_come_first_are_as_they_were(preset: str) -> None:
    cluster = load_cluster(preset)
    assert with_type_order(cluster, "fastest", "tuned", 0) is cluster


def test_another_word_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(HetsimError, match=r"type_order.*got 'quickest'.*fastest.*cheapest.*listed.*random"):
        load_config(None, {"type_order": "quickest"})


# -- what it does to jobs ----------------------------------------------------------------------------------------------

HEAD = "job_id,submit_s,duration_s,num_gpus,gpu_type"


@pytest.mark.parametrize("wish", ["", "T4|V100", "V100|T4"])
@pytest.mark.parametrize("policy", BLIND)
def test_r2_06_a_job_gets_the_type_that_the_rule_says_however_the_cluster_is_written(
    tmp_path: Path, policy: str, wish: str
) -> None:
    """1,000 s on a V100 is what the log says; a T4 takes about three times as long."""
    rows = f"{HEAD},model,batch_size\nj,0,1000,1,{wish},resnet50,32\n"
    for cluster in ("t4:1x1+v100:1x1", "v100:1x1+t4:1x1"):
        how: dict[str, Any] = {"policy": policy, "calibration": "tuned"}
        assert played(tmp_path, rows, cluster, **how)["j"][1] == pytest.approx(1000)
        on_t4 = played(tmp_path, rows, cluster, **how, type_order="cheapest")["j"][1]
        assert on_t4 == pytest.approx(3083, abs=1)
        listed = played(tmp_path, rows, cluster, **how, type_order="listed")["j"][1]
        assert listed == pytest.approx(on_t4 if cluster.startswith("t4") else 1000)


@pytest.mark.parametrize("wish", ["", "T4|V100", "V100|T4"])
def test_r2_06_policies_that_know_speeds_or_prices_take_the_type_by_their_own_rule(tmp_path: Path, wish: str) -> None:
    """The V100 where the job ends first, the T4 where it costs least: whatever the order of types."""
    rows = f"{HEAD},model,batch_size\nj,0,1000,1,{wish},resnet50,32\n"
    for cluster in ("t4:1x1+v100:1x1", "v100:1x1+t4:1x1"):
        for rule in ("fastest", "cheapest", "listed"):
            how: dict[str, Any] = {"calibration": "tuned", "type_order": rule}
            for policy in BY_SPEED:
                end_s = played(tmp_path, rows, cluster, **how, policy=policy)["j"][1]
                assert end_s == pytest.approx(1000), (cluster, rule, policy)
            cheapest = played(tmp_path, rows, cluster, **how, policy="cheapest-that-meets")["j"][1]
            assert cheapest == pytest.approx(3083, abs=1)


def test_r2_06_among_queues_that_start_at_once_the_cheapest_is_joined(tmp_path: Path) -> None:
    """By start: the T4, the cheaper one, while both are idle; then the V100, which starts sooner."""
    rows = f"{HEAD},model,batch_size\nj,0,1000,1,,resnet50,32\nk,1,1000,1,,resnet50,32\n"
    found = played(tmp_path, rows, "v100:1x1+t4:1x1", policy="type-queues", policy_settings={"by": "start"},
                   calibration="tuned")
    assert found["j"] == (0, pytest.approx(3083, abs=1))
    assert found["k"] == (1, pytest.approx(1001))


def test_the_next_type_is_tried_where_the_first_has_no_room_or_is_not_allowed(tmp_path: Path) -> None:
    rows = f"{HEAD}\na,0,100,1,\nb,1,100,1,\nc,2,100,1,K80|T4\n"
    folder = tmp_path / "jobs.csv"
    folder.write_text(rows)
    config = RunConfig(policy="fifo", trace=str(folder), cluster="k80:1+t4:1+v100:1", work="recorded")
    result = Replay(config).play()
    on = {row["job_id"]: row["gpu_ids"][0] for row in result.tables["segments"].to_pylist()}
    assert on == {"a": 2, "b": 1, "c": 0}  # the GPUs are numbered as they are listed: K80, T4, V100
    assert list(result.info["cluster"]["gpus_by_type"]) == ["V100", "T4", "K80"]
    assert result.info["config"]["type_order"] == "fastest"


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[str], list[str], str]:
    """Node groups of a cluster, the same in another order, and a trace.

    Groups of one type keep their order: nodes of a type are tried by their numbers.
    """
    kinds = draw(st.lists(st.sampled_from(("v100", "t4", "p100", "k80", "v100-32")), min_size=2, max_size=5))
    groups = [f"{kind}:{draw(st.integers(1, 3))}x{draw(st.sampled_from((1, 2, 4)))}" for kind in kinds]
    left = {kind: [group for group in groups if group.startswith(f"{kind}:")] for kind in kinds}
    other = [left[kind].pop(0) for kind in draw(st.permutations(kinds))]
    rows = ["first,0,50,1,", "last,300,50,1,"]  # a load needs some time and work
    for i in range(draw(st.integers(0, 12))):
        submit_s, duration_s = draw(st.integers(0, 300)), draw(st.integers(0, 500))
        wish = draw(st.sampled_from(("", "", "V100", "K80|T4", "P100|V100")))
        rows.append(f"{i},{submit_s},{duration_s},{draw(st.integers(1, 5))},{wish}")
    return groups, other, "\n".join([HEAD, *rows, ""])


@given(
    world=worlds(), policy=st.sampled_from((*BLIND, *BY_SPEED, "cheapest-that-meets", "hetero")),
    rule=st.sampled_from(("fastest", "cheapest", "random")), work=st.sampled_from(("iterations", "recorded")),
    load=st.sampled_from((None, 0.9)), seed=st.integers(0, 3),
)  # fmt: skip
@settings(deadline=None, max_examples=30)
def test_r2_06_node_groups_in_another_order_change_no_job_s_times(
    world: tuple[list[str], list[str], str], policy: str, rule: Any, work: Any, load: float | None, seed: int
) -> None:
    groups, other, rows = world
    work = "iterations" if policy == "hetero" else work
    how: dict[str, Any] = {"policy": policy, "type_order": rule, "work": work, "load": load, "seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        one = played(Path(folder), rows, "+".join(groups), **how)
        two = played(Path(folder), rows, "+".join(other), **how)
    assert repr(one) == repr(two)  # to the last digit; NaN is NaN
