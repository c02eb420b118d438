"""Cost by kind of price and by what is paid for, and energy: by hand and by law."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import metrics
from analysis.metrics.costs import (
    UNITS,
    cost_by_type_usd,
    cost_known_by_type_usd,
    cost_known_usd,
    cost_usd,
    paid_gpu_s,
)
from analysis.metrics.energy import energy_by_type_kwh, energy_held_kwh, energy_kwh
from analysis.run import RunError
from tests.analysis.smallruns import HORIZON_S, free_at, small_run
from tests.conftest import ONE_FOLDER

relaxed = settings(
    max_examples=30, suppress_health_check=ONE_FOLDER
)


@pytest.fixture
def hours(run_files):
    """Two nodes of four GPUs. In two hours, one GPU of the first is held for the first hour."""
    run = run_files().node("V100", 4, 2.0).node("T4", 4, None)
    run.nodes[0] |= {"on_demand_usd_per_gpu_h": 2.5, "spot_usd_per_gpu_h": 1.0, "reserved_usd_per_gpu_h": 1.5}
    run.nodes[1] |= {"on_demand_usd_per_gpu_h": 0.5, "spot_usd_per_gpu_h": None, "reserved_usd_per_gpu_h": 0.25}
    run.job("a", 0, 3600).job("b", 7200, 0).segment("a", 0, 3600, [0]).segment("b", 7200, 7200, [0])
    return run


def test_what_is_paid_for(hours):
    run = hours.load()
    assert paid_gpu_s(run, "gpu").tolist() == [3600, 0]
    assert paid_gpu_s(run, "node").tolist() == [4 * 3600, 0]
    assert paid_gpu_s(run, "cluster").tolist() == [8 * 3600, 8 * 3600]


def test_cost_by_kind_and_unit(hours):
    run = hours.load()
    assert cost_usd(run) == 2.0
    assert [cost_usd(run, "on-demand", per) for per in UNITS] == [2.5, 10, 24]
    assert (cost_usd(run, "spot"), cost_usd(run, "spot", "node")) == (1, 4)
    # Reserved GPUs are paid whether they are used or not, unless told otherwise.
    assert (cost_usd(run, "reserved"), cost_usd(run, "reserved", "gpu")) == (8 * 1.5 + 8 * 0.25, 1.5)


def test_cost_by_type_adds_up_and_names_the_type_of_unknown_price(hours):
    run = hours.load()
    assert cost_by_type_usd(run) == {"V100": 2.0, "T4": 0.0}  # no time was held on T4: nothing of unknown price
    assert cost_by_type_usd(run, None, "cluster") == {"V100": 16.0, "T4": None}
    assert cost_known_by_type_usd(run, None, "cluster") == {"V100": 16.0, "T4": 0.0}
    assert sum(cost_by_type_usd(run, "on-demand", "cluster").values()) == cost_usd(run, "on-demand", "cluster")


def test_an_unknown_price_is_unknown_and_leaves_a_lower_bound(hours):
    run = hours.load()
    assert cost_usd(run, None, "cluster") is None
    assert cost_known_usd(run, None, "cluster") == 16
    assert cost_usd(run, "spot", "cluster") is None
    assert cost_known_usd(run, "spot", "cluster") == 8
    assert metrics.measures(run)["cost_cluster_usd"] is None


def test_prices_of_the_catalogue_are_unknown_in_runs_of_an_older_schema(run_files):
    run = run_files().node(price=2.0).job("a", 0, 3600).segment("a", 0, 3600, [0]).load()
    row = metrics.measures(run)
    assert (row["cost_usd"], row["cost_on_demand_usd"], row["cost_spot_usd"], row["cost_reserved_usd"]) == (
        2.0, None, None, None)
    assert row["energy_kwh"] is None


@pytest.mark.parametrize(("kind", "per", "near"), [("sopt", "gpu", "spot"), ("spot", "nodes", "node")])
def test_a_misspelt_kind_or_unit_is_an_error_with_the_nearest(hours, kind, per, near):
    with pytest.raises(RunError, match=f"did you mean '{near}'"):
        cost_usd(hours.load(), kind, per)


@relaxed
@given(seed=st.integers(0, 10_000))
def test_gpus_cost_no_more_than_their_nodes_and_these_no_more_than_the_cluster(run_files, seed):
    """And each is what a look at each second has."""
    files = small_run(run_files(f"cost{seed}"), seed)
    run = files.load()
    gpu, node, cluster = (cost_usd(run, None, per) for per in UNITS)
    assert gpu <= node + 1e-12
    assert node <= cluster + 1e-12
    looked = dict.fromkeys(UNITS, 0.0)
    for second in range(int(run.window_s[0]), HORIZON_S):
        free = free_at(files, second)
        for n in files.nodes:
            mine, rate = free[n["first_gpu"] : n["first_gpu"] + n["gpus"]], n["price_usd_per_gpu_h"] / 3600
            if mine[0] >= 0:
                looked["gpu"] += rate * (1000 - mine).sum() / 1000
                looked["node"] += rate * n["gpus"] * (mine < 1000).any()
                looked["cluster"] += rate * n["gpus"]
    assert {"gpu": gpu, "node": node, "cluster": cluster} == pytest.approx(looked, abs=1e-12)


# -- energy ------------------------------------------------------------


def test_energy_by_hand(hours):
    """300 W for the hour that one GPU is held; 50 W for 7 idle GPU-h of that node and 10 W for 8 of the other."""
    hours.nodes[0] |= {"busy_w": 300.0, "idle_w": 50.0}
    hours.nodes[1] |= {"busy_w": 70.0, "idle_w": 10.0}
    run = hours.load()
    assert energy_held_kwh(run) == pytest.approx(0.3)
    assert energy_kwh(run) == pytest.approx(0.3 + 0.35 + 0.08)
    assert energy_by_type_kwh(run) == pytest.approx({"V100": 0.65, "T4": 0.08})
    assert metrics.per_job(run)["energy_kwh"].tolist() == pytest.approx([0.3, 0])


def test_an_unknown_idle_power_makes_the_energy_unknown_but_not_that_of_held_gpus(hours):
    hours.nodes[0] |= {"busy_w": 300.0, "idle_w": None}
    hours.nodes[1] |= {"busy_w": 70.0, "idle_w": 10.0}
    run = hours.load()
    assert energy_kwh(run) is None
    assert energy_held_kwh(run) == pytest.approx(0.3)
    assert energy_by_type_kwh(run) == {"V100": None, "T4": pytest.approx(0.08)}


def test_a_node_that_is_away_draws_nothing(run_files):
    run = run_files().node(gpus=1, down=[0.0], up=[1800.0]).job("a", 0, 3600)
    run.nodes[0] |= {"busy_w": 100.0, "idle_w": 100.0}
    run.segment("a", 1800, 3600, [0], end_reason="horizon")
    run.of("a").update(state="unfinished", reason="still running at the horizon", end_s=None)
    assert energy_kwh(run.load()) == pytest.approx(0.05)


def test_p40_events_that_share_a_time_add_no_energy_and_no_nan(run_files):
    """Three events at 5 s, one of them a job of no length: the energy is that of the states that last."""
    run = run_files().node(gpus=1)
    run.nodes[0] |= {"busy_w": 360.0, "idle_w": 0.0}
    run.job("a", 0, 5).job("zero", 5, 0).job("b", 5, 5)
    run.segment("a", 0, 5, [0]).segment("zero", 5, 5, [0]).segment("b", 5, 10, [0])
    run = run.load()
    assert energy_kwh(run) == pytest.approx(0.001)
    assert metrics.per_job(run)["energy_kwh"].tolist() == pytest.approx([0.0005, 0, 0.0005])


@relaxed
@given(seed=st.integers(0, 10_000))
def test_energy_of_jobs_is_that_of_held_gpus(run_files, seed):
    run = small_run(run_files(f"energy{seed}"), seed).in_memory()
    assert metrics.per_job(run)["energy_kwh"].sum() == pytest.approx(energy_held_kwh(run), rel=1e-12)
    assert metrics.per_job(run)["cost_usd"].sum() == pytest.approx(cost_usd(run), rel=1e-12)
    held, there = metrics.held_gpu_s(run).sum(), metrics.capacity_gpu_s(run).sum()
    assert energy_kwh(run) == pytest.approx((300 * held + 50 * (there - held)) / 3.6e6, rel=1e-12)
