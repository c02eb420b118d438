"""Jobs of generated logs that are drawn before they are made: the same as if all were made first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sim.cluster.clusterfiles import load_cluster
from sim.settings.config import RunConfig
from sim.workload import prepare as preparing
from sim.workload.prepare import prepare, resolved
from traces.errors import TraceError
from traces.offered_load import by_hash, demand_gpu_s, hashes
from traces.stretch import thinned
from traces.synthetic.month import month
from traces.synthetic.pool import Logs, Packed


@pytest.mark.parametrize(("name", "weeks", "layers", "keep"), [
    ("philly", 4, 1, 1.0), ("philly", 13, 3, 1.0), ("philly", 24, 1, 0.4), ("pai", 5, 1, 0.2), ("helios", 1, 2, 0.3),
    ("acme", 5, 11, 0.1)])
def test_a_pool_holds_the_jobs_of_the_month_in_their_order(name, weeks, layers, keep):
    made = month(name, 3, {}, weeks, layers, keep)
    pool = Logs(name, 3, {}).pool(weeks, layers, keep)
    same = pool.drawn(np.arange(len(pool))).trace()
    assert len(pool) == len(made) and same.content_hash() == made.content_hash()
    assert same.provenance == made.provenance
    np.testing.assert_array_equal(pool.crowd.submit_s, made.submit_s)
    np.testing.assert_array_equal(pool.crowd.demand_gpu_s, demand_gpu_s(made))
    np.testing.assert_array_equal(pool.crowd.key, hashes(made.job_id, 3))
    rows = thinned(pool.crowd, 1000)
    assert rows.tolist() == sorted(by_hash(made, 3)[:1000].tolist())
    assert pool.drawn(rows).trace().content_hash() == made.select(rows).content_hash()


def test_logs_that_are_there_already_serve_a_longer_pool():
    logs = Logs("philly", 1, {})
    logs.pool(4, 1)
    longer, made = logs.pool(12, 2), month("philly", 1, {}, 12, 2)
    assert longer.drawn(np.arange(len(longer))).trace().content_hash() == made.content_hash()
    np.testing.assert_array_equal(longer.crowd.key, hashes(made.job_id, 1))


def test_a_pool_of_too_many_jobs_is_refused_before_any_is_made():
    with pytest.raises(TraceError, match="too many jobs"):
        Logs("philly", 0, {}).pool(4000, 100)


@given(st.one_of(
    arrays(np.float64, st.integers(0, 20), elements=st.floats(width=64)),
    arrays(np.float64, st.integers(0, 20), elements=st.integers(-2**31, 2**32).map(float)),
    arrays(np.int64, st.integers(0, 20), elements=st.integers(-2**62, 2**62)),
    arrays(np.int64, st.integers(0, 20), elements=st.integers(-200, 200)),
    st.lists(st.text(max_size=3), max_size=20).map(lambda words: np.array(words, dtype=object))))
def test_what_is_packed_comes_out_as_it_went_in(values):
    out = Packed(values).at(slice(None))
    assert out.dtype == values.dtype
    assert out.tolist() == values.tolist() if out.dtype == object else out.tobytes() == values.tobytes()


@pytest.mark.parametrize(("trace", "jobs", "work", "more"), [
    ("philly", 5000, "iterations", {}), ("philly", 3000, "recorded", {}), ("pai", 60_000, "iterations", {}),
    ("acme", 2000, "recorded", {}), ("philly", 30_000, "recorded", {"load": None, "cluster": "v100:4x8"}),
    ("philly", 30_000, "iterations", {"cluster": "v100:300x8"})])
def test_a_run_s_jobs_are_those_that_are_drawn_of_whole_traces(trace, jobs, work, more, monkeypatch):
    config = resolved(RunConfig(trace=trace, jobs=jobs, work=work, seed=2, **more))
    cluster = load_cluster(config.cluster)
    one = prepare(config, cluster)
    monkeypatch.setattr(preparing, "_all_taken", lambda config: False)
    other = prepare(config, cluster)
    assert len(one.trace) == jobs
    assert one.trace.content_hash() == other.trace.content_hash()
    assert one.worth_gpus == other.worth_gpus
    assert one.trace.provenance.notes[-1] == other.trace.provenance.notes[-1]
    np.testing.assert_array_equal(one.truth.work_total, other.truth.work_total)
