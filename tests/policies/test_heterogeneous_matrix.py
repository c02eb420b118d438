"""The matrix of heterogeneous schedulers: who competes, on what, and what its table says."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from experiments.heterogeneous import FAMILY, FILE, STEP, contenders, dressed, rows, told, worlds, written
from policies.registry import find, names
from sim.settings.values import read_toml
from sim.sweeps.grid import read_grid


def test_the_whole_family_competes_with_gangs_as_asked_and_sized():
    found = contenders(read_toml(FILE)["sweep"]["with"])
    family = {name for name in names() if find(name).__module__.startswith(FAMILY)}
    assert {"gavel", "isolated"} <= family
    assert family <= {one["policy"] for one in found if "gang_scale" not in one}
    sized = {one["policy"] for one in found if one.get("gang_scale") == 4.0}
    assert {name for name in family if not find(name).sizes_gangs} <= sized
    assert not any(find(name).sizes_gangs for name in sized), "who sizes gangs itself is no rigid policy"
    assert len(found) == len({str(sorted(one.items())) for one in found}), "each once"


def test_a_policy_that_is_not_there_is_left_out():
    listed = [{"policy": "fifo"}, {"policy": "no-such-policy"}, {"policy": "fifo", "gang_scale": 2.0}]
    found = contenders(listed)
    assert [one for one in found if one["policy"] == "fifo"] == [listed[0], listed[2]]
    assert "no-such-policy" not in {one["policy"] for one in found}
    assert {"policy": "gavel", "gang_scale": 2.0} in found


def test_worlds_whose_data_are_not_there_are_left_out_with_the_reason(tmp_path):
    found, lacking = worlds(tmp_path, {"trace": "philly", "cluster": "gavel"}, [1, 2])
    assert sorted(found) == ["pai gavel", "pai scarce", "philly gavel", "philly scarce"]
    assert sorted(line.split(":")[0] for line in lacking) == ["measured", "pai-log", "philly-log", "scarce measured"]


def test_each_seed_has_a_window_of_a_real_log_of_its_own(tmp_path):
    (tmp_path / "philly").mkdir()
    (tmp_path / "philly" / "philly.csv").write_text("")
    found, _ = worlds(tmp_path, {"trace": "philly", "cluster": "gavel"}, [7, 8])
    assert [one["skip"] for one in found["philly-log gavel"]] == [0, STEP]


def test_the_sweep_that_is_played_is_one(tmp_path):
    asked = {"run": {"trace": "philly", "jobs": 20, "cluster": "gavel"},
             "sweep": {"load": [0.7], "seed": [1, 2],
                       "with": [{"policy": "hetero"}, {"policy": "las", "gang_scale": 4.0}]}}
    found, _ = worlds(tmp_path, asked["run"], [1, 2])
    grid = read_grid(written(tmp_path / "matrix", asked, {"philly gavel": found["philly gavel"]}))
    assert len(grid.cells) == 2 * len(contenders(asked["sweep"]["with"]))
    assert {cell.config.gang_scale for cell in grid.cells} == {None, 4.0}


def test_the_table_by_hand():
    """Two seeds: a policy takes twice and eight times hetero's mean JCT: 4 times in the geometric mean."""
    heads = {"trace": "philly", "load": 0.7, "gang_scale": math.nan}
    jobs = pd.DataFrame([
        heads | {"policy": policy, "seed": seed, "job_id": job, "jct_s": jct_s, "cost_usd": jct_s / 2, "finished": True}
        for policy, times in (("hetero", {1: 1.0, 2: 1.0}), ("las", {1: 2.0, 2: 8.0}))
        for seed, factor in times.items() for job, jct_s in (("a", 100.0 * factor), ("b", 300.0 * factor))])
    metrics = pd.DataFrame([
        heads | {"policy": policy, "seed": seed, "jct_mean_s": 3600.0 * factor, "jct_p99_s": factor,
                 "queue_mean_s": 0.0, "rho_p99": factor, "unfair_share": 0.25, "jobs_rejected": 0}
        for policy, factor in (("hetero", 1.0), ("las", 3.0)) for seed in (1, 2)])
    fixed = {"trace": "pai", "cluster": "gavel"}  # what varies is a column
    found = {row["who"]: row for row in rows(dressed(jobs, fixed), dressed(metrics, fixed))}
    assert set(found) == {"planner: hetero", "rigid: las"}
    las = found["rigid: las"]
    assert las["jct"][0] == pytest.approx(4.0) and las["cost"][0] == pytest.approx(4.0)
    assert las["p99"][0] == pytest.approx(3.0) and las["rho"] == pytest.approx(3.0)
    assert las["unfair"] == (25.0, 25.0, 25.0) and las["world"] == "philly gavel"
    assert las["jct_h"] == pytest.approx(3.0) and las["seeds"] == 2
    spread = np.log([2.0, 8.0]).std(ddof=1) / np.sqrt(2) * 12.7062  # Student's t, one degree of freedom
    assert las["jct"][1:] == pytest.approx((4 / np.exp(spread), 4 * np.exp(spread)), rel=1e-4)
    assert told((1.0, math.nan, math.nan)) == "1.00" and told((1.5, 1.25, 1.75)) == "1.50 (1.25–1.75)"
