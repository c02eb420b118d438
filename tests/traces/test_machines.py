"""What side tables say of the cluster: who is there when, what that makes over time, and hetsim's own two files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import TraceError
from traces.machines.any_form import forms, read_machines
from traces.machines.capacity import About, Capacity, Machines
from traces.machines.own_tables import NodeTimes, read_capacity, read_outages, write_capacity, write_outages

HOUR_S = 3600.0


def machines(*rows: tuple[str, int, float, float], **columns: object) -> Machines:
    """(name, GPUs, first hour, hour in which it is gone) of each stay."""
    name, gpus, first, last = zip(*rows, strict=True)
    times = {"first_s": np.array(first) * HOUR_S, "last_s": np.array(last) * HOUR_S}
    return Machines.from_columns({"name": name, "gpus": gpus, **times, **columns})


def test_distinct_over_time_is_not_capacity() -> None:
    """P-15: s1 is there in hours 0 to 4, s2 in hours 5 to 9: one at every hour, one at most, two in all."""
    listed = machines(("s1", 1, 0, 5), ("s2", 1, 5, 10))
    capacity = Capacity.of(listed)
    assert [capacity.at(hour * HOUR_S) for hour in range(10)] == [1] * 10
    assert capacity.peak() == 1 and capacity.distinct() == 2 and listed.distinct == 2
    assert capacity.at(-1.0) == 0 and capacity.at(10 * HOUR_S) == 0


def test_a_machine_that_comes_back_is_counted_once_among_the_distinct() -> None:
    listed = machines(("s1", 8, 0, 2), ("s2", 4, 1, 6), ("s1", 8, 5, 9))
    capacity = Capacity.of(listed)
    assert [capacity.at(hour * HOUR_S) for hour in range(10)] == [8, 12, 4, 4, 4, 12, 8, 8, 8, 0]
    assert listed.distinct == 2 and capacity.distinct() == 12 and capacity.peak() == 12


def test_machines_without_times_are_there_always() -> None:
    capacity = Capacity.of(Machines.from_columns({"name": ["a", "b"], "gpus": [2, 8], "gpu_type": ["T4", "V100"]}))
    assert capacity.constant and capacity.at(-1e9) == capacity.at(1e9) == 10
    assert capacity.at(0, gpu_type="T4") == capacity.peak(gpu_type="T4") == 2


def test_the_whole_is_what_rows_without_a_virtual_cluster_say_else_their_sum() -> None:
    """Helios: a column for each virtual cluster; two of them change at different times."""
    parts = Capacity.from_columns([0, 0, 10, 20], ["a", "b", "a", "b"], [""] * 4, [8, 16, 32, 0])
    assert [parts.at(t) for t in (0, 10, 20)] == [24, 48, 32] and parts.vcs == ("a", "b")
    assert [parts.at(t, vc="b") for t in (0, 10, 20)] == [16, 16, 0] and parts.distinct() is None
    told = Capacity.from_columns([0, 0], ["", "a"], ["", ""], [40, 8])
    assert told.at(0) == 40 and told.at(0, vc="a") == 8 and told.at(0, vc="z") == 0


@pytest.mark.parametrize(("rows", "message"), [
    ([("", 1, 0, 1)], "no name"),
    ([("a", -1, 0, 1)], "negative"),
    ([("a", 1, 2, 1)], "leaves before it comes"),
    ([("a", 1, 0, 3), ("b", 1, 0, 3), ("a", 1, 2, 4)], "twice at once"),
])
def test_impossible_machines_are_refused(rows: list[tuple[str, int, float, float]], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        machines(*rows)


STAYS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20), st.integers(1, 9), st.sampled_from(["", "a"]),
                           st.sampled_from(["T4", "V100"])), min_size=1, max_size=20)


@settings(max_examples=100)
@given(stays=STAYS)
def test_capacity_is_the_machines_that_are_there(stays: list[tuple[int, int, int, str, str]]) -> None:
    listed = machines(*((f"m{i}", gpus, first, first + hours) for i, (gpus, first, hours, _, _) in enumerate(stays)),
                      vc=[row[3] for row in stays], gpu_type=[row[4] for row in stays])
    capacity = Capacity.of(listed)
    whole = "" in listed.vc.tolist()
    for hour in range(31):
        there = [(g, vc, kind) for g, first, hours, vc, kind in stays if first <= hour < first + hours]
        assert capacity.at(hour * HOUR_S, vc="a") == sum(g for g, vc, _ in there if vc == "a")
        assert capacity.at(hour * HOUR_S, gpu_type="T4") == sum(
            g for g, vc, kind in there if kind == "T4" and (vc == "" or not whole))
    assert capacity.distinct() == sum(row[0] for row in stays)


# -- hetsim's own files ------------------------------------------------------------------------------------------------


def test_a_capacity_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "capacity.csv"
    capacity = Capacity.from_columns([-np.inf, 0.1 + 0.2, 5, 5], ["NA", "NA", "", "null"], ["T4", "T4", "", "V100"],
                                     [1, 0, 7, 3])
    write_capacity(capacity, path)
    again = read_machines(path)
    assert isinstance(again, Capacity) and again.about.format == "capacity"
    assert np.allclose(again.time_s, capacity.time_s, rtol=1e-14) and again.gpus.tolist() == capacity.gpus.tolist()
    assert again.vc.tolist() == capacity.vc.tolist() and again.gpu_type.tolist() == capacity.gpu_type.tolist()


def test_rows_of_a_capacity_file_may_be_in_any_order_and_repeat_a_count(tmp_path: Path) -> None:
    path = tmp_path / "capacity.csv"
    path.write_text("gpus,time_s,vc,gpu_type\n8,60,,\n4,0,,\n8,90,,\n")
    assert read_capacity(path).time_s.tolist() == [0, 60]


def test_an_outage_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    write_outages(NodeTimes(np.array([-np.inf, 3.5, 9.0]), np.array([1, 1, 0]), np.array([False, True, False])), path)
    assert path.read_text() == "time_s,node,up\n,1,0\n3.5,1,1\n9,0,0\n"
    times = read_outages(path, 2)
    assert times.time_s.tolist() == [-np.inf, 3.5, 9.0] and times.up.tolist() == [False, True, False]


# -- the door ----------------------------------------------------------------------------------------------------------


def test_forms_are_found_by_their_modules_and_each_knows_its_file(tmp_path: Path) -> None:
    assert {"capacity", "philly"} <= set(forms())
    listed = tmp_path / "list"
    listed.write_text("machineId,number of GPUs, single GPU mem\nm51,2, 12GB\n")
    found = read_machines(listed)
    assert isinstance(found, Machines) and found.about == About(str(listed), "philly", "listed")
    assert np.isnan(found.first_s).all() and found.gpu_memory_gib.tolist() == [12.0]


def test_philly_rules_that_want_a_job_log_say_so(tmp_path: Path) -> None:
    listed = tmp_path / "list"
    listed.write_text("machineId,number of GPUs, single GPU mem\nm51,2, 12GB\n")
    with pytest.raises(TraceError, match="rule 'strict' holds the list against the job log"):
        read_machines(listed, rule="strict")


@pytest.mark.parametrize(("format", "options", "message"), [
    (None, {}, "not a machine list that is known"),
    ("phily", {}, "did you mean 'philly'"),
    ("capacity", {"rule": "x"}, "no such option"),
])
def test_what_is_no_machine_list_is_refused(tmp_path: Path, format: str | None, options: dict[str, str], message: str):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match=message):
        read_machines(path, format, **options)
    with pytest.raises(TraceError, match="no such file"):
        read_machines(tmp_path / "absent.csv")


def test_the_real_philly_list_holds_one_machine(data_dir: Path) -> None:
    found = read_machines(data_dir / "philly" / "cluster_machine_list.sample.csv",
                          job_log=data_dir / "philly" / "cluster_job_log.sample.json")
    assert isinstance(found, Machines) and found.gpus[0] == 8 and found.gpu_memory_gib[0] == 24.0
    assert found.about.counts == {"machines seen but not listed": 4} and found.about.rule == "observed"
