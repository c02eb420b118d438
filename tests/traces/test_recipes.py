"""Named recipes: the rules by which other systems' papers give jobs a model, a batch, a deadline, a weight."""

from __future__ import annotations

import json
import re
from inspect import signature
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.performance.zoo import MODELS
from traces.errors import TraceError
from traces.recipes import COMMON_SETTINGS, RECIPES, assign_recipe, chronus, elasticflow, gavel, pollux
from traces.synthetic.generate import generate
from traces.trace import Trace

NAMES = tuple(RECIPES)
HOUR = 3600.0


def trace_of(durations_s: list[float], gpus: list[int], **columns: object) -> Trace:
    n = len(gpus)
    return Trace.from_columns({
        "job_id": [f"j{i}" for i in range(n)], "submit_s": np.arange(n), "duration_s": durations_s, "num_gpus": gpus,
        **columns,
    })


def many(gpus: int, n: int = 4000, duration_s: float = 1000.0) -> Trace:
    return trace_of([duration_s] * n, [gpus] * n)


def columns_of(trace: Trace) -> pd.DataFrame:
    return trace.to_frame().set_index("job_id").sort_index()


# -- what holds for each of them ------------------------------------------------------------------------------------


def test_there_are_four_and_each_says_where_it_comes_from_and_what_it_needs() -> None:
    assert set(NAMES) == {"chronus", "elasticflow", "gavel", "pollux"}
    for recipe in RECIPES.values():
        assert "https://" in recipe.source
        assert recipe.needs
        assert "model" in recipe.fills


@pytest.mark.parametrize("name", NAMES)
def test_a_draw_depends_on_seed_and_id_alone(name: str) -> None:
    """Not on the order of rows, nor on the other jobs; another seed gives another draw."""
    trace = generate("philly", 400, 1)
    done = columns_of(assign_recipe(trace, name, 3))
    some = np.arange(0, 400, 7)
    alone = columns_of(assign_recipe(trace.select(some), name, 3))
    pd.testing.assert_frame_equal(alone, done.loc[alone.index])
    pd.testing.assert_frame_equal(columns_of(assign_recipe(trace.select(slice(None, None, -1)), name, 3)), done)
    assert not columns_of(assign_recipe(trace, name, 4)).equals(done)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_columns_that_a_recipe_names_are_filled(name: str) -> None:
    trace = generate("philly", 300, 2)
    before, after = trace.to_frame(), assign_recipe(trace, name, 0).to_frame()
    changed = {column for column in before if not before[column].equals(after[column])}
    assert changed <= set(RECIPES[name].fills)
    assert "model" in changed


@pytest.mark.parametrize("name", NAMES)
def test_given_values_stay_unless_they_are_to_be_overwritten(name: str) -> None:
    trace = trace_of([500.0] * 50, [1] * 50, model=["mine"] * 50, batch_size=[7] * 50, deadline_s=[1e6] * 50)
    kept = assign_recipe(trace, name, 0)
    assert kept.content_hash() == trace.content_hash()
    assert "model of 0 of 50 jobs" in kept.provenance.notes[-1]
    new = assign_recipe(trace, name, 0, overwrite="yes")
    assert "mine" not in new.model
    assert not (new.batch_size == 7).any() or name == "chronus"  # Chronus publishes no batches


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_never_put_beside_a_model_that_another_gave(name: str) -> None:
    done = assign_recipe(trace_of([500.0, 500.0], [2, 2], model=["mine", ""]), name, 0)
    assert done.batch_size[0] == 0
    assert done.model.tolist()[0] == "mine"


@pytest.mark.parametrize("name", NAMES)
def test_a_note_says_what_was_done(name: str) -> None:
    done = assign_recipe(many(1, 20), name, 5)
    assert re.match(rf"recipe {name} \(seed 5\): model of 20 of 20 jobs", done.provenance.notes[-1])


def test_names_are_those_of_the_zoo_where_it_has_the_same_network() -> None:
    """And each name that a recipe takes for one of the zoo's is one."""
    types = {kind.name: kind.zoo for kind in (*gavel.TYPES, *elasticflow.TYPES, *chronus.TYPES)}
    types |= {app.name: app.zoo for app in pollux.APPLICATIONS.values()}
    assert {zoo for zoo in types.values() if zoo} <= set(MODELS)
    assert not {name for name, zoo in types.items() if not zoo} & set(MODELS)
    theirs = set(assign_recipe(many(1), "gavel", 0, names="table").model.tolist())
    assert "ResNet-50 (batch size 64)" in theirs
    assert theirs == {kind.name for kind in gavel.TYPES}


@pytest.mark.parametrize(("name", "wrong", "told"), [
    ("gavle", {}, "did you mean 'gavel'"),
    ("gavel", {"deadline": True}, "did you mean 'deadlines'"),
    ("gavel", {"deadlines": "maybe"}, "yes or no"),
    ("gavel", {"jobs": "draw"}, "did you mean 'drawn'"),
    ("gavel", {"names": "zo"}, "did you mean 'zoo'"),
    ("gavel", {"without": "A4C"}, "did you mean 'A3C'"),
    ("gavel", {"without": "ResNet,LM,Transformer"}, "no job type is left for several GPUs"),
    ("pollux", {"configuration": "best"}, "recorded, tuned"),
    ("pollux", {"names": "theirs"}, "zoo, table"),
    ("chronus", {"best_effort": "1.5"}, "a number from 0 to 1"),
    ("chronus", {"best_effort": "nan"}, "a number from 0 to 1"),
    ("elasticflow", {"tightest": "a third"}, "a number"),
    ("elasticflow", {"tightest": 2.0}, "0 < tightest <= loosest"),
    ("elasticflow", {"loosest": float("inf")}, "0 < tightest <= loosest"),
])
def test_a_setting_that_is_not_allowed_is_refused_by_name(name: str, wrong: dict[str, object], told: str) -> None:
    with pytest.raises(TraceError, match=re.escape(told)):
        assign_recipe(many(1, 3), name, 0, **wrong)


def test_each_setting_is_described() -> None:
    for recipe in RECIPES.values():
        for key in (*COMMON_SETTINGS, *recipe.settings):
            assert key in signature(recipe.apply).parameters
        assert len(signature(recipe.apply).parameters) == 2 + len(COMMON_SETTINGS) + len(recipe.settings)


# -- Gavel ----------------------------------------------------------------------------------------------------------


def test_gavel_draws_each_of_26_types_equally_and_three_models_on_one_gpu_only() -> None:
    one = assign_recipe(many(1, 26_000), "gavel", 0, names="table").model
    counts = pd.Series(one).value_counts()
    assert len(counts) == 26
    assert counts.between(870, 1130).all()  # 1,000 each, within four standard deviations
    several = set(assign_recipe(many(4), "gavel", 0, names="table").model.tolist())
    assert len(several) == 19
    assert not [name for name in several if name.startswith(("Recommendation", "A3C", "CycleGAN"))]


def test_gavel_s_batch_is_that_of_a_gpu() -> None:
    done = assign_recipe(many(4), "gavel", 0, names="table")
    said = [int(re.search(r"size (\d+)", name)[1]) for name in done.model.tolist()]  # type: ignore[index]
    assert (done.batch_size == 4 * np.array(said)).all()


def test_gavel_s_weights_and_objectives_are_given_when_asked_for() -> None:
    plain = assign_recipe(many(1), "gavel", 0)
    assert (plain.priority == 1).all()
    assert np.isnan(plain.deadline_s).all()
    done = assign_recipe(many(1, 10_000), "gavel", 0, priorities=True, deadlines="yes")
    assert set(done.priority.tolist()) == {1.0, 5.0}
    assert (done.priority == 5).mean() == pytest.approx(0.2, abs=0.016)
    factors = np.round((done.deadline_s - done.submit_s) / done.duration_s, 6)
    shares = pd.Series(factors).value_counts(normalize=True)
    assert shares[1.2] == pytest.approx(0.33, abs=0.019)
    assert shares[2.0] == pytest.approx(0.34, abs=0.019)
    assert shares[10.0] == pytest.approx(0.33, abs=0.019)


def test_gavel_s_own_durations_and_gangs() -> None:
    """60 × 10^u s: between half an hour and a week; 80 % under 1,000 minutes; 70, 10, 15, 5 % of 1, 2, 4, 8 GPUs."""
    done = assign_recipe(many(3, 10_000), "gavel", 0, jobs="drawn")
    minutes = done.duration_s / 60
    assert minutes.min() >= 10**1.5
    assert minutes.max() <= 10**4
    assert (minutes < 1000).mean() == pytest.approx(0.8, abs=0.016)
    assert np.median(np.log10(minutes[minutes < 1000])) == pytest.approx(2.25, abs=0.03)
    shares = pd.Series(done.num_gpus).value_counts(normalize=True)
    for gpus, share in ((1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05)):
        assert shares[gpus] == pytest.approx(share, abs=0.019)
    assert "drawn" in done.provenance.rule


def test_gavel_without_the_models_that_the_zoo_lacks_can_all_be_simulated() -> None:
    done = assign_recipe(many(1), "gavel", 0, without="A3C, CycleGAN")
    assert set(done.model.tolist()) <= set(MODELS)
    assert (done.batch_size > 0).all()


def test_gavel_s_published_jobs_have_the_types_of_the_table(data_dir: Path) -> None:
    for file in ("max_min_fairness.trace", "msr/6214e9.trace"):
        lines = (data_dir / "gavel" / file).read_text().splitlines()
        assert {line.split("\t")[0] for line in lines} <= {kind.name for kind in gavel.TYPES}


def test_gavel_s_own_table_has_a_rate_for_each_job_drawn_by_its_rule(data_dir: Path) -> None:
    """So that duration x rate on a V100, which is how Gavel makes steps, can be had for all."""
    rates = json.loads((data_dir / "gavel" / "simulation_throughputs.json").read_text())["v100"]
    done = assign_recipe(many(1, 2000), "gavel", 0, names="table", jobs="drawn")
    keys = {f"('{model}', {gpus})" for model, gpus in zip(done.model, done.num_gpus.tolist(), strict=True)}
    assert len(keys) > 70
    assert min(rates[key]["null"] for key in keys) > 0


# -- Pollux ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpu_hours", "theirs"), [
    (0.99, {"cifar10", "ncf"}), (1.0, {"deepspeech2", "bert"}), (9.99, {"deepspeech2", "bert"}),
    (10.0, {"yolov3"}), (99.9, {"yolov3"}), (100.0, {"imagenet"}),
])
def test_pollux_tells_the_training_by_gpu_time(gpu_hours: float, theirs: set[str]) -> None:
    done = assign_recipe(many(4, 200, gpu_hours * HOUR / 4), "pollux", 0, names="table")
    assert set(done.model.tolist()) == theirs


def test_pollux_of_two_trainings_each_is_as_likely() -> None:
    done = assign_recipe(many(1, 10_000), "pollux", 0, names="table")
    assert (done.model == "ncf").mean() == pytest.approx(0.5, abs=0.02)


def test_pollux_users_who_do_not_tune_scale_the_first_batch_until_the_largest() -> None:
    done = assign_recipe(trace_of([40 * HOUR / 4, 40 * HOUR / 100], [4, 100]), "pollux", 0)
    assert done.model.tolist() == ["yolov3", "yolov3"]
    assert done.batch_size.tolist() == [32, 512]
    assert done.num_gpus.tolist() == [4, 100]


def test_pollux_tuned_jobs_take_published_gpus_and_batches_and_keep_their_gpu_time() -> None:
    trace = many(1, 2000, 200 * HOUR)
    done = assign_recipe(trace, "pollux", 0, configuration="tuned")
    assert set(zip(done.num_gpus.tolist(), done.batch_size.tolist(), strict=True)) == \
        {(24, 3200), (32, 6400), (48, 6400)}
    assert done.duration_s * done.num_gpus == pytest.approx(np.full(2000, 200 * HOUR))
    assert "GPU time kept" in done.provenance.notes[-1]


def test_pollux_tuned_leaves_jobs_that_have_a_model_on_their_gpus() -> None:
    done = assign_recipe(trace_of([9.0], [3], model=["mine"]), "pollux", 0, configuration="tuned")
    assert (done.num_gpus[0], done.duration_s[0]) == (3, 9.0)


def test_pollux_published_workload_has_only_tuned_choices(data_dir: Path) -> None:
    jobs = pd.read_csv(data_dir / "pollux" / "workloads" / "osdi_workload-6.csv")
    assert len(jobs) == 160
    for app, rows in jobs.groupby("application"):
        choices = set(zip(rows["num_replicas"], rows["batch_size"], strict=True))
        assert choices <= set(pollux.APPLICATIONS[str(app)].tuned)


# -- ElasticFlow ----------------------------------------------------------------------------------------------------


def test_elasticflow_draws_14_pairs_equally_and_no_gang_wider_than_its_batch() -> None:
    done = assign_recipe(many(1, 14_000), "elasticflow", 0, names="table")
    counts = pd.Series(list(zip(done.model, done.batch_size, strict=True))).value_counts()
    assert len(counts) == 14
    assert counts.between(870, 1130).all()
    wide = assign_recipe(many(200), "elasticflow", 0, names="table")
    assert set(zip(wide.model, wide.batch_size.tolist(), strict=True)) == \
        {("resnet50", 256), ("vgg16", 256), ("gpt2", 256)}
    assert set(assign_recipe(many(512, 10), "elasticflow", 0).model.tolist()) == {""}


def test_elasticflow_s_deadline_is_half_to_one_and_a_half_times_the_duration() -> None:
    done = assign_recipe(many(1, 4000, 1e6), "elasticflow", 0)
    factor = (done.deadline_s - done.submit_s) / done.duration_s
    assert factor.min() >= 0.5 - 1e-6
    assert factor.max() <= 1.5
    assert np.quantile(factor, [0.25, 0.5, 0.75]) == pytest.approx([0.75, 1.0, 1.25], abs=0.03)


def test_elasticflow_s_best_effort_jobs_have_no_deadline() -> None:
    done = assign_recipe(many(1, 10_000), "elasticflow", 0, best_effort="0.25")
    assert np.isnan(done.deadline_s).mean() == pytest.approx(0.25, abs=0.018)


def test_elasticflow_s_published_jobs_obey_the_rule(data_dir: Path) -> None:
    """Pairs of the table, and deadlines of 0.5 to 1.5 times the duration (whole seconds)."""
    jobs = pd.read_csv(data_dir / "elasticflow" / "philly_103959.csv")
    pairs = set(zip(jobs["model_name"], jobs["batch_size"], strict=True))
    assert pairs <= {(kind.name, kind.batch_size) for kind in elasticflow.TYPES}
    allowed = jobs["ddl"] - jobs["submit_time"]
    assert (allowed >= 0.5 * jobs["duration"] - 1).all()
    assert (allowed <= 1.5 * jobs["duration"]).all()


# -- Chronus --------------------------------------------------------------------------------------------------------


def test_chronus_deadlines_lie_between_the_published_extremes() -> None:
    """A job of 20 minutes: 22 to 100 after it comes; a share of the jobs has none."""
    done = assign_recipe(many(1, 4000, 20 * 60), "chronus", 0, best_effort=0.3)
    minutes = (done.deadline_s - done.submit_s) / 60
    assert np.nanmin(minutes) >= 22
    assert np.nanmax(minutes) <= 100
    assert np.isnan(minutes).mean() == pytest.approx(0.3, abs=0.03)


def test_chronus_rule_gives_the_distribution_of_the_published_trace(data_dir: Path) -> None:
    """Time allowed over duration: the largest distance of the two distributions (KS) is under 0.05."""
    jobs = pd.read_csv(data_dir / "chronus" / "trace_job_Philly_SLO.csv", dtype={"expect_time_list": float})
    jobs = jobs[jobs["num_gpu"] > 0]
    assert set(jobs["model_name"]) == {kind.name for kind in chronus.TYPES}
    theirs = np.sort(jobs["expect_time_list"] / jobs["duration"])
    trace = trace_of((60.0 * jobs["duration"]).tolist(), jobs["num_gpu"].tolist())
    done = assign_recipe(trace, "chronus", 0)
    ours = np.sort((done.deadline_s - done.submit_s) / done.duration_s)
    at = np.linspace(1, 5, 401)
    distance = np.abs(np.searchsorted(theirs, at) / len(theirs) - np.searchsorted(ours, at) / len(ours)).max()
    assert distance < 0.05


# -- laws -----------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    name=st.sampled_from(NAMES), seed=st.integers(-(2**63), 2**63),
    rows=st.lists(st.tuples(st.floats(0, 1e9), st.integers(1, 4096)), min_size=1, max_size=8),
)
def test_any_trace_stays_valid_and_filling_twice_is_filling_once(
    name: str, seed: int, rows: list[tuple[float, int]]
) -> None:
    durations_s, gpus = map(list, zip(*rows, strict=True))
    once = assign_recipe(trace_of(durations_s, gpus), name, seed)
    assert assign_recipe(once, name, seed).content_hash() == once.content_hash()
    told = ~np.isnan(once.deadline_s)
    assert (once.deadline_s[told] >= once.submit_s[told]).all()


def test_chronus_allows_no_job_more_time_than_any_published_one_and_whole_minutes():
    n = 4000
    trace = Trace.from_columns({"job_id": np.arange(n).astype(str), "submit_s": np.zeros(n),
                                "duration_s": np.linspace(1200, 5000 * 60, n), "num_gpus": np.ones(n)})
    allowed_min = assign_recipe(trace, "chronus", 1).deadline_s / 60
    possible = trace.duration_s * 1.1 <= 5100 * 60
    assert (allowed_min[possible] <= 5100).all()
    assert (allowed_min[trace.duration_s < 4400 * 60] % 1 == 0).all()
    assert allowed_min[~possible] * 60 == pytest.approx(1.1 * trace.duration_s[~possible])


def test_what_gavel_draws_in_place_of_the_recorded_is_noted():
    trace = generate("philly", 300, 1)
    note = assign_recipe(trace, "gavel", 1, jobs="drawn").provenance.notes[-1]
    assert "duration_s of 300 of 300 jobs drawn in place of the recorded" in note and "num_gpus of" in note
