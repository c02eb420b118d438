"""Philly's samples of use: three tables, a comma too many, machines of unlike size, zones that change in November."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from traces.errors import TraceError
from traces.machines.philly_use import read_all_use, read_use


def table(tmp_path, text: str):
    path = tmp_path / "cluster_gpu_util"
    path.write_text(text)
    return path


GPU_HEADER = "time,machineId," + ",".join(f"gpu{i}_util" for i in range(8)) + "\n"


def test_a_row_of_utilisation_that_ends_in_a_comma(tmp_path):
    row = "2017-10-03 00:08:00 PDT,m29,60.8,99.3,100.0,63.3,100.0,100.0,100.0,100.0,\n"
    frame = read_all_use(table(tmp_path, GPU_HEADER + row))
    assert frame["machine"].tolist() == ["m29"]
    assert frame["gpu0_util"].tolist() == [60.8]
    assert frame["gpu7_util"].tolist() == [100.0]
    assert frame["time_s"].tolist() == [pd.Timestamp("2017-10-03 07:08", tz="UTC").timestamp()]


def test_offline_is_unknown_and_so_are_gpus_that_a_machine_lacks(tmp_path):
    rows = "2017-10-03 00:08:00 PDT,m1,NA,5.0,\n2017-10-03 00:08:00 PDT,m2,0.0,1,2,3,4,5,6,NA,\n"
    frame = read_all_use(table(tmp_path, rows))
    assert np.isnan(frame.loc[0, "gpu0_util"]) and frame.loc[0, "gpu1_util"] == 5.0
    assert frame.loc[0, [f"gpu{i}_util" for i in range(2, 8)]].isna().all()
    assert frame.loc[1, "gpu0_util"] == 0.0 and np.isnan(frame.loc[1, "gpu7_util"])


def test_the_hour_that_november_repeats_is_two_hours(tmp_path):
    rows = "".join(f"2017-11-05 01:30:00 {zone},m1,50.0\n" for zone in ("PDT", "PST"))
    assert np.diff(read_all_use(table(tmp_path, "time,machine_id,cpu_util\n" + rows))["time_s"]).tolist() == [3600.0]


def test_memory_is_in_kib(tmp_path):
    frame = read_all_use(table(tmp_path, "2017-10-03 00:06:00 PDT,m29,528272672.0,2030730.6667\n"))
    assert frame["mem_total_kib"][0] / 2**20 == pytest.approx(503.8, abs=0.1)
    assert frame["mem_free_kib"][0] == 2030730.6667


def test_pieces_of_any_size_are_the_same_table(tmp_path):
    rows = "".join(f"2017-10-03 00:{i:02d}:00 PDT,m{i},{i}.5,{i}," + "\n" for i in range(60))
    path = table(tmp_path, GPU_HEADER + rows)
    in_pieces = pd.concat(list(read_use(path, piece_bytes=100)), ignore_index=True)
    pd.testing.assert_frame_equal(read_all_use(path), in_pieces)


@pytest.mark.parametrize(("row", "says"), [
    ("2017-10-03 00:08:00,m29,1.0", "line 2.*no time with a zone"),
    ("2017-10-03 00:08:00 CET,m29,1.0", "line 2.*no time with a zone"),
    ("2017-10-03 00:08:00 PDT,,1.0", "line 2.*no machine"),
    ("yesterday PDT,m29,1.0", "line 2.*not a time"),
    ("2017-10-03 00:08:00 PDT,m29,much", "line 2.*value not allowed"),
    ("2017-10-03 00:08:00 PDT,m29,101", "line 2.*from 0 to 100"),
    ("2017-10-03 00:08:00 PDT,m29,1,2,3,4,5,6,7,8,9", "not a table of use"),
])
def test_a_bad_row_is_refused_by_its_line(tmp_path, row, says):
    with pytest.raises(TraceError, match=says):
        read_all_use(table(tmp_path, GPU_HEADER + row + "\n"))


def test_no_rows_are_no_table(tmp_path):
    with pytest.raises(TraceError, match="the file is empty"):
        read_all_use(table(tmp_path, GPU_HEADER))


def test_the_genuine_samples_of_the_three_tables(data_dir, tmp_path):
    lines = [line for line in (data_dir / "philly" / "cluster_util.samples.txt").read_text().splitlines()
             if not line.startswith("#")]
    columns = [list(read_all_use(table(tmp_path, line + "\n")).columns[2:]) for line in lines]
    assert columns == [[f"gpu{i}_util" for i in range(8)], ["cpu_util"], ["mem_total_kib", "mem_free_kib"]]
