"""The same trace cut, stretched and given models: numbers that can be done by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.assign import ModelChoice, assign
from traces.errors import TraceError
from traces.load import head, offered_load, scale_load
from traces.study.describe import describe
from traces.study.summary import as_text
from traces.synthetic.generate import generate
from traces.trace import Trace


def trace_of(submit_s, duration_s, num_gpus, **more):
    n = len(submit_s)
    ids = [f"j{i}" for i in range(n)]
    return Trace.from_columns(
        {"job_id": ids, "submit_s": submit_s, "duration_s": duration_s, "num_gpus": num_gpus, **more}
    )


# --- offered load -------------------------------------------------------------------------------------------


def test_three_jobs_at_once_on_two_gpus_are_a_load_of_one_and_a_half():
    trace = trace_of([0, 0, 0], [100, 100, 100], [1, 1, 1], gpu_type=["A10", "A10", "a10"])
    assert offered_load(trace, 2) == 1.5
    load = describe(trace, {"A10": 2})["load"]
    assert load["by_type"] == {"A10": 1.5} and load["total"] == 1.5 and load["span_s"] == 100
    assert "1.500 on A10: above 1, its queue grows" in as_text(describe(trace, {"A10": 2}))


def test_load_by_type_splits_what_may_run_anywhere_by_number_of_gpus():
    # Over 100 s: 100 GPU-s on T4 only, 400 GPU-s anywhere (3 T4 : 1 V100), 50 GPU-s on a type not there.
    trace = trace_of([0, 0, 100], [100, 200, 50], [1, 2, 1], gpu_type=["T4", "", "K80"])
    load = describe(trace, {"T4": 3, "V100": 1})["load"]
    assert load["by_type"] == {"T4": pytest.approx(400 / 300), "V100": pytest.approx(1.0)}
    assert load["gpu_hours_without_type"] == pytest.approx(50 / 3600)
    assert load["total"] == pytest.approx(550 / 400)
    either = trace_of([0, 100], [100, 0], [1, 1], gpu_type=["v100|T4", ""])
    assert describe(either, {"T4": 3, "V100": 1, "A100": 4})["load"]["by_type"] == {
        "T4": pytest.approx(0.25),
        "V100": pytest.approx(0.25),
        "A100": 0.0,
    }


def test_fractions_count_as_fractions():
    assert offered_load(trace_of([0, 10], [100, 100], [4, 1], gpu_milli=[250, 500]), 1) == 15.0


def test_scaling_the_load_moves_submissions_about_the_first():
    trace = trace_of([50, 60, 150], [100, 100, 100], [1, 2, 1])
    assert offered_load(trace, 4) == 1.0
    denser = scale_load(trace, 4, 2.0)
    assert denser.submit_s.tolist() == [50, 55, 100] and offered_load(denser, 4) == 2.0
    assert (denser.duration_s == trace.duration_s).all()
    assert "stretched by 0.5: load 1 to 2 on 4 GPUs" in denser.provenance.notes[-1]
    assert scale_load(denser, 4, 1.0).submit_s.tolist() == [50, 60, 150]


@given(load=st.floats(0.01, 100), capacity=st.integers(1, 5000), seed=st.integers(0, 5))
@settings(max_examples=60)
def test_the_load_asked_for_is_the_load_offered(load, capacity, seed):
    trace = scale_load(generate("pai", 60, seed), capacity, load)
    assert offered_load(trace, capacity) == pytest.approx(load, rel=1e-9)


@pytest.mark.parametrize(
    ("trace", "capacity", "load", "part"),
    [
        (trace_of([0, 1], [1, 1], [1, 1]), 4, 0.0, "a number from 1e-06"),
        (trace_of([0, 1], [1, 1], [1, 1]), 4, float("nan"), "a number from 1e-06"),
        (trace_of([0, 1], [1, 1], [1, 1]), 0, 1.0, "1 or more GPUs"),
        (trace_of([0, 1], [0, 0], [1, 1]), 4, 1.0, "no GPU time"),
        (trace_of([5, 5], [1, 1], [1, 1]), 4, 1.0, "all jobs submitted at once"),
    ],
)
def test_a_load_that_cannot_be_had_is_refused(trace, capacity, load, part):
    with pytest.raises(TraceError, match=part):
        scale_load(trace, capacity, load)


def test_head_takes_the_first_jobs_by_submission():
    trace = trace_of([30, 10, 20], [1, 2, 3], [1, 1, 1])
    assert head(trace, 2).job_id.tolist() == ["j1", "j2"]
    assert head(trace, 2).provenance.notes == ("first 2 of 3 jobs",)
    assert head(trace, 9) is trace
    with pytest.raises(TraceError, match="jobs: no jobs left; got 0"):
        head(trace, 0)


def test_shift_gaps_ties_and_jobs_without_work_are_all_legal():
    trace = trace_of([1e6, 1e6, 1e6 + 86_400], [0, 5, 5], [1, 1, 1])
    assert trace.submit_s.tolist() == [1e6, 1e6, 1e6 + 86_400] and trace.duration_s[0] == 0


# --- models -------------------------------------------------------------------------------------------------

ZOO = [
    ModelChoice("small", 1, (32, 64), 1, 4),
    ModelChoice("middle", 3, (16,), 1, 16),
    ModelChoice("large", 1, (4,), 8, 1000),
]


def test_models_go_to_gangs_that_can_train_them():
    trace = assign(generate("philly", 3000, 1), ZOO, seed=0)
    for model, low, high in [("small", 1, 4), ("middle", 1, 16), ("large", 8, 1000)]:
        gangs = trace.num_gpus[trace.model == model]
        assert len(gangs) > 0 and gangs.min() >= low and gangs.max() <= high
    per_gpu = trace.batch_size / trace.num_gpus
    assert set(per_gpu[trace.model == "small"]) == {32, 64} and set(per_gpu[trace.model == "large"]) == {4}
    single = trace.model[trace.num_gpus == 1]
    # 3 : 1 by weight, and about 2,800 draws: a share off by 0.04 would be five standard deviations.
    assert (single == "middle").mean() == pytest.approx(0.75, abs=0.04)
    small = per_gpu[trace.model == "small"]
    assert (small == 32).mean() == pytest.approx(0.5, abs=0.1)
    assert "models assigned to 3000 of 3000 jobs (seed 0)" in trace.provenance.notes[-1]


def test_a_fraction_of_a_gpu_gets_the_smallest_model():
    trace = assign(generate("pai", 2000, 1), ZOO, seed=0)
    shared = (trace.gpu_milli < 1000) & (trace.num_gpus <= 4)
    assert shared.sum() > 500 and set(trace.model[shared]) == {"small"}


def test_a_job_keeps_its_model_whatever_the_other_jobs_are():
    trace = generate("philly", 500, 2)
    alone = assign(trace.select(np.arange(0, 500, 7)), ZOO, seed=3)
    among = assign(trace, ZOO, seed=3).select(np.arange(0, 500, 7))
    assert alone.content_hash() == among.content_hash()
    backwards = Trace.from_columns(
        {
            name: values[::-1]
            for name, values in (
                (c, getattr(trace, c)) for c in ("job_id", "submit_s", "duration_s", "num_gpus")
            )
        }
    )
    again = assign(backwards, ZOO, seed=3)
    assert (again.model == assign(trace, ZOO, seed=3).model).all()
    assert (again.model != assign(trace, ZOO, seed=4).model).any()


def test_models_that_are_there_stay():
    trace = trace_of([0, 1], [1, 1], [2, 2], model=["vgg19", ""], batch_size=[7, 0])
    done = assign(trace, [ModelChoice("only", 1.0, (8,))], seed=0)
    assert done.model.tolist() == ["vgg19", "only"] and done.batch_size.tolist() == [7, 16]


@pytest.mark.parametrize(
    ("models", "part"),
    [
        ([], "no models to choose from"),
        ([ModelChoice("m", 0, (1,))], "model 'm': weight not allowed"),
        ([ModelChoice("m", 1, ())], "batch_per_gpu not allowed"),
        ([ModelChoice("m", 1, (0,))], "batch_per_gpu not allowed"),
        ([ModelChoice("m", 1, (1,), 4, 2)], "gang sizes not allowed; got '4 to 2 GPUs'"),
        (
            [ModelChoice("m", 1, (1,), 1, 2)],
            "job 'j0': no model fits the job; got '3 GPUs'; allowed: m: 1 to 2",
        ),
    ],
)
def test_choices_that_cannot_be_used_are_refused(models, part):
    with pytest.raises(TraceError, match=part):
        assign(trace_of([0], [1], [3]), models, seed=0)
