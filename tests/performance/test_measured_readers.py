"""Files of measured rates: one's own, Gavel's, Sia's and ElasticFlow's, by hand and beside the real ones."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware.gputypes import catalogue
from sim.performance import MeasuredTable, PerformanceError
from sim.performance.tables import ANY_PLACEMENT, SPREAD, Measurement, Point, Rate, load_table
from sim.performance.tables.own_table import as_text, points
from sim.performance.tables.sia_steps import MACHINES

HEAD = "model,batch_size,gpu_type,gpus,nodes,iterations_per_s_total\n"


def own(folder: Path, text: str | bytes) -> Path:
    path = folder / "rates.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# -- one's own ---------------------------------------------------------------------------------------------


def test_a_table_of_one_s_own(tmp_path: Path) -> None:
    read = load_table(own(tmp_path, HEAD + 'toy,64,a100,4,1,400\n"big, new",8,T4,2,,3\nmixed,,V100,4,spread,1e-3\n'))
    assert {point: m.iterations_per_s for point, m in read.points.items()} == {
        Point("toy", 64, "A100", 4, 1): 400.0,
        Point("big, new", 8, "T4", 2, ANY_PLACEMENT): 3.0,
        Point("mixed", 0, "V100", 4, SPREAD): 0.001,
    }


@pytest.mark.parametrize(
    ("columns", "cells", "rate", "batch"),
    [
        ("iterations_per_s_total", "400", 400, 0),
        ("iterations_per_s_per_gpu", "100", 400, 0),
        ("iteration_s", "0.0025", 400, 0),
        ("batch_size,samples_per_s_total", "64,25600", 400, 64),
        ("batch_size_per_gpu,samples_per_s_per_gpu", "16,6400", 400, 64),
    ],
)
def test_p26_the_column_says_whether_it_is_the_whole_job_s(
    tmp_path: Path, columns: str, cells: str, rate: float, batch: int
) -> None:
    """P-26: the same four GPUs in five ways of writing it down; always 400 iterations a second together."""
    read = load_table(own(tmp_path, f"model,gpu_type,gpus,{columns}\ntoy,A100,4,{cells}\n"))
    assert [(p.batch_size, m.iterations_per_s) for p, m in read.points.items()] == [(batch, pytest.approx(rate))]


@pytest.mark.parametrize("column", ["iterations_per_s", "throughput", "rate", "iterations_total", "samples_per_s"])
def test_a_rate_without_unit_or_owner_is_refused(tmp_path: Path, column: str) -> None:
    path = own(tmp_path, f"model,batch_size,gpu_type,gpus,{column}\ntoy,64,A100,4,400\n")
    with pytest.raises(PerformanceError, match=r"rates.csv, header: no column says.*iterations_per_s_total.*per_gpu"):
        load_table(path)


BAD_FILES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "an empty file"),
    "blank lines": ("\n \n", "an empty file"),
    "binary": (b"\x93NUMPY\xff\xfe\x00", r"no UTF-8 text \(byte 0\)"),
    "a zero byte": (HEAD + "to\0y,64,A100,4,1,400\n", "zero byte"),
    "no rows": (HEAD, "no rows"),
    "a missing column": ("model,gpus,iteration_s\ntoy,1,1\n", "column 'gpu_type' is missing"),
    "a misspelt column": (HEAD.replace("nodes", "node") + "toy,64,A100,4,1,4\n", "did you mean 'nodes'"),
    "a column twice": (HEAD.replace("nodes", "gpus") + "toy,64,A100,4,1,4\n", "a column is there twice"),
    "two rates": (HEAD.replace("nodes", "iteration_s") + "toy,64,A100,4,1,4\n", "two columns say the rate"),
    "two batches": (HEAD.replace("nodes", "batch_size_per_gpu") + "toy,64,A100,4,1,4\n", "two columns say the batch"),
    "a negative rate": (HEAD + "toy,64,A100,4,1,-4\n", "line 2, column 'iterations_per_s_total'.*'-4'.*from 0"),
    "NaN": (HEAD + "toy,64,A100,4,1,nan\n", "line 2, column 'iterations_per_s_total'.*'nan'"),
    "infinity": (HEAD + "toy,64,A100,4,1,inf\n", "line 2.*'inf'"),
    "too large a number": (HEAD + "toy,64,A100,4,1,1e999\n", "line 2.*'1e999'"),
    "no rate": (HEAD + "toy,64,A100,4,1,\n", "line 2, column 'iterations_per_s_total'"),
    "no time at all": ("model,gpu_type,gpus,iteration_s\ntoy,A100,1,0\n", "line 2, column 'iteration_s'.*above 0"),
    "half a GPU": (HEAD + "toy,64,A100,0.5,1,4\n", "line 2, column 'gpus'.*an integer from 1"),
    "no GPUs": (HEAD + "toy,64,A100,0,1,4\n", "line 2, column 'gpus'"),
    "more nodes than GPUs": (HEAD + "toy,64,A100,4,5,4\n", "line 2, column 'nodes'.*from 1 to 4"),
    "a batch of zero": (HEAD + "toy,0,A100,4,1,4\n", "line 2, column 'batch_size'"),
    "no model": (HEAD + ",64,A100,4,1,4\n", "line 2, column 'model'"),
    "an unknown type": (HEAD + "toy,64,A10O,4,1,4\n", "line 2, column 'gpu_type'.*unknown GPU type.*did you mean 'a10"),
    "a cell too few": (HEAD + "toy,64,A100,4,1\n", "line 2: a row has the wrong number of cells; got 5"),
    "an open quote": (HEAD + '"toy,64,A100,4,1,4\n', "no CSV"),
    "samples without a batch": ("model,gpu_type,gpus,samples_per_s_total\ntoy,A100,1,9\n", "without a batch size"),
    "a blank batch of samples": (
        "model,batch_size,gpu_type,gpus,samples_per_s_total\ntoy,,A100,1,9\n", "line 2, column 'batch_size'",
    ),
    "with and without a batch": (
        HEAD + "toy,64,A100,4,1,4\ntoy,,A100,8,1,4\n", "line 3: a model with and without.*line 2",
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_cannot_be_used(tmp_path: Path, case: str) -> None:
    content, message = BAD_FILES[case]
    with pytest.raises(PerformanceError, match=f"rates.csv.*{message}"):
        load_table(own(tmp_path, content))


def test_a_point_in_two_lines_is_refused_and_both_are_named(tmp_path: Path) -> None:
    """Also in other letters; blank lines count as lines."""
    rows = "toy,64,A100,4,1,400\n\ntoy,64,A100,8,1,700\ntoy,64,a100,4,1,390\n"
    with pytest.raises(PerformanceError, match=r"line 5: a point is there twice.*first in line 2"):
        load_table(own(tmp_path, HEAD + rows))


def test_folders_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(PerformanceError, match="no step times that can be used"):
        load_table(tmp_path)
    for name in ("none.csv", "no\0name"):
        with pytest.raises(PerformanceError, match="cannot be read"):
            load_table(tmp_path / name)


def test_line_ends_byte_order_mark_and_blanks_do_not_matter(tmp_path: Path) -> None:
    plain = points(own(tmp_path, HEAD + "toy,64,A100,4,1,400\n"))
    odd = "\ufeff" + (HEAD + " toy , 64,A100, 4,1, 400 ").replace("\n", "\r\n")
    assert points(own(tmp_path, odd)) == plain


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)
POINTS = st.builds(
    Point, NAMES, st.just(16), st.sampled_from(sorted(catalogue())), st.integers(8, 64),
    st.sampled_from([ANY_PLACEMENT, SPREAD, 1, 2, 8]),
)


@given(found=st.dictionaries(POINTS, st.floats(0, 1e9, allow_subnormal=False).map(Measurement), min_size=1))
def test_what_is_written_is_read_back(tmp_path_factory: Any, found: dict[Point, Measurement]) -> None:
    path = own(tmp_path_factory.getbasetemp(), as_text(found))
    rates = {point: measured.iterations_per_s for point, measured in points(path).items()}
    assert rates == {point: measured.iterations_per_s for point, measured in found.items()}


# -- Gavel -------------------------------------------------------------------------------------------------

GAVEL = {
    "v100": {"('Toy', 1)": {"null": 150.0, "('Other', 1)": [1.0, 2.0]}, "('Toy', 4)": {"null": 400.0}},
    "v100_unconsolidated": {"('Toy', 4)": {"null": 200.0}},
    "k80": {"('Toy', 1)": {"null": 0.0}},
}


def written(folder: Path, content: Any) -> Path:
    path = folder / "rates.json"
    path.write_text(json.dumps(content))
    return path


def test_gavel_s_rates_alone_packed_and_spread(tmp_path: Path) -> None:
    read = load_table(written(tmp_path, GAVEL))
    assert read.job_types == ("Toy",)
    got = [read.rate("Toy", 0, "V100", gpus).iterations_per_s for gpus in ((1,), (4,), (2, 2), (3, 1))]
    assert got == [150, 400, 200, 200] and read.rate("Toy", 0, "K80", (1,)) == Rate(0.0, "measured")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "not a throughput table"),
        ({"v100": 3}, "not a throughput table"),
        ({}, "no rows"),
        ({"v100": {"Toy, 1": {"null": 1.0}}}, "a key cannot be read"),
        ({"v100": {"('Toy', 0)": {"null": 1.0}}}, "a key cannot be read"),
        ({"v100": {"('Toy', 1)": {"null": -1.0}}}, r"v100, \('Toy', 1\): a rate cannot be used; got -1.0"),
        ({"v100": {"('Toy', 1)": {"null": math.nan}}}, "a rate cannot be used; got nan"),
        ({"v100": {"('Toy', 1)": {"null": "fast"}}}, "a rate cannot be used"),
        ({"v100": {"('Toy', 1)": {}}}, "a rate cannot be used; allowed"),
        ({"v101": {"('Toy', 1)": {"null": 1.0}}}, "unknown GPU type.*did you mean 'v100'"),
    ],
)
def test_bad_throughputs_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(PerformanceError, match=message):
        MeasuredTable.from_gavel(written(tmp_path, content))


def test_half_a_json_file(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"v100": {')
    with pytest.raises(PerformanceError, match="cannot be read"):
        load_table(tmp_path / "half.json")


@pytest.fixture(scope="module")
def gavel(data_dir: Path) -> MeasuredTable:
    return MeasuredTable.from_gavel(data_dir / "gavel" / "simulation_throughputs.json")


def test_gavel_s_table_is_read_whole(gavel: MeasuredTable, data_dir: Path) -> None:
    """83 points a type, 6 fewer for spread K80, as counted in the file itself; spot values to the last digit."""
    raw = json.loads((data_dir / "gavel" / "simulation_throughputs.json").read_text())
    counts = Counter(point.gpu.lower() + "_unconsolidated" * (point.nodes == SPREAD) for point in gavel.points)
    assert counts == {gpu: len(entries) for gpu, entries in raw.items()} and sum(counts.values()) == 6 * 83 - 6
    for gpu, job, count, where in (
        ("v100", "ResNet-50 (batch size 64)", 1, (1,)),
        ("p100_unconsolidated", "Transformer (batch size 16)", 8, (2,) * 4),
    ):
        rate = gavel.rate(job, 0, gpu.partition("_")[0], where)
        assert rate.source == "measured"
        assert rate.iterations_per_s == pytest.approx(raw[gpu][f"('{job}', {count})"]["null"], rel=1e-12)
    assert gavel.rate("ResNet-50 (batch size 128)", 0, "K80", (2,)) == Rate(0.0, "measured")
    with pytest.raises(PerformanceError, match="no such point"):
        gavel.rate("ResNet-50 (batch size 128)", 0, "K80", (1, 1))


@pytest.mark.parametrize("cluster", ["simulation", "physical"])
def test_gavel_s_tidy_table_is_the_same(data_dir: Path, oracle_dir: Path, cluster: str) -> None:
    """The physical file is read, too; where one has a point and the other none, it is a type's spread gang."""
    files = {
        "simulation": data_dir / "gavel" / "simulation_throughputs.json",
        "physical": oracle_dir / "gavel" / "physical_cluster_throughputs.json",
    }
    json_, tidy = (
        MeasuredTable.from_gavel(files[cluster]),
        MeasuredTable.from_gavel(data_dir / "gavel" / "gavel_isolated_throughput.csv", cluster=cluster),
    )
    both = set(json_.points) & set(tidy.points)
    assert len(both) >= 492 and {p.nodes for p in set(json_.points) ^ set(tidy.points)} <= {SPREAD}
    for point in both:
        assert tidy.points[point].iterations_per_s == pytest.approx(json_.points[point].iterations_per_s, rel=1e-12)


# -- Sia ---------------------------------------------------------------------------------------------------


def sia_file(folder: Path, name: str, text: str) -> Path:
    (folder / "bert").mkdir(exist_ok=True)
    path = folder / "bert" / name
    path.write_text(text)
    return path


def test_sia_s_steps_are_iterations_of_all_gpus(tmp_path: Path) -> None:
    """By hand: 12 and 21 are two nodes with three GPUs; their mean is 0.3 s, with a deviation of a third."""
    sia_file(tmp_path, "placements-rtx.csv",
             "local_bsz,step_time,sync_time,placement\n4,0.2,0.1,12\n4,0.4,0.1,21\n4,0.1,0.01,1\n")
    sia_file(tmp_path, "scalability-rtx.csv",
             "num_nodes,num_replicas,local_bsz,step_time,sync_time\n1,2,8,0.5,0.1\n")
    read = MeasuredTable.from_sia(tmp_path)
    assert {p: m.iterations_per_s for p, m in read.points.items()} == pytest.approx({
        Point("bert", 12, "RTX2080Ti", 3, 2): 1 / 0.3,
        Point("bert", 4, "RTX2080Ti", 1, 1): 10.0,
        Point("bert", 16, "RTX2080Ti", 2, 1): 2.0,
    })
    averaged, single = (read.points[Point("bert", b, "RTX2080Ti", n, nodes)] for b, n, nodes in ((12, 3, 2), (4, 1, 1)))
    assert averaged.measurements == 2 and averaged.spread == pytest.approx(math.sqrt(2) / 10 / 0.3)
    assert single.measurements == 1 and math.isnan(single.spread)  # unknown, not zero


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("placements-rtx.csv", "placement,local_bsz,step_time,sync_time\n1a,4,1,0\n", "line 2, column 'placement'"),
        ("placements-rtx.csv", "placement,local_bsz,step_time,sync_time\n10,4,1,0\n", "a digit from 1 to 9"),
        ("placements-rtx.csv", "placement,local_bsz,step_time,sync_time\n1,4,0,0\n", "'step_time'.*above 0"),
        ("placements-rtx.csv", "placement,local_bsz,step_tme,sync_time\n1,4,1,0\n", "did you mean 'step_tme'"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n1,4,1,0\n", "the machine is unknown"),
        ("placements-cray.csv", "placement,local_bsz,step_time,sync_time\n1,4,1,0\n", "machines left out: cray"),
        ("placements-rtx.csv", "placement,local_bsz,step_time,sync_time\n1,4,1,2\n", "does not hold the whole step"),
    ],
)
def test_step_times_that_cannot_be_used(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(PerformanceError, match=message):
        load_table(sia_file(tmp_path, name, text))


def test_two_machines_of_one_type_would_be_two_rates_of_one_point(tmp_path: Path) -> None:
    with pytest.raises(PerformanceError, match="two machines of one GPU type"):
        MeasuredTable.from_sia(tmp_path, {"dgx": "A100", "dgx-ext": "A100"})


EXTENDED = {"aws": "T4", "azure": "V100", "dgx-ext": "A100", "quad": "RTX6000", "rtx": "RTX2080Ti"}


@pytest.mark.parametrize(("machines", "count"), [(MACHINES, 9_726), (EXTENDED, 10_046)])
def test_sia_s_files_have_the_means_of_the_tidy_table(
    data_dir: Path, machines: dict[str, str], count: int
) -> None:
    """The tidy file has six digits. gpt_pmp is left out of both, and said to be."""
    tidy_path = data_dir / "pollux" / "pollux_sia_throughput.csv"
    raw, tidy = (MeasuredTable.from_sia(path, machines) for path in (data_dir / "sia" / "traces", tidy_path))
    with tidy_path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu_type"] in machines and row["model"] != "gpt_pmp"]
    assert len(raw.points) == len(rows) == count and set(raw.points) == set(tidy.points)
    ratio = np.array([raw.points[p].iterations_per_s / tidy.points[p].iterations_per_s for p in raw.points])
    assert np.abs(ratio - 1).max() < 1e-5
    assert all(raw.points[p].measurements == tidy.points[p].measurements for p in raw.points)
    assert sum(m.measurements for m in raw.points.values()) == sum(int(row["n_meas"]) for row in rows)
    assert any("gpt_pmp on rtx left out" in note for note in raw.notes)


def test_a_real_step_time_to_the_last_digit(data_dir: Path) -> None:
    """On one aws machine: a T4 by itself, 32 images, was measured once; the column order does not matter."""
    path = data_dir / "sia" / "traces" / "cifar10" / "placements-aws.csv"
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["placement"], row["local_bsz"]) == ("1", "32")]
        step_s = [float(row["step_time"]) for row in rows]
    got = load_table(path).rate("cifar10", 32, "T4", (1,))
    assert got == Rate(pytest.approx(1 / np.mean(step_s), rel=1e-12), "measured")


@pytest.mark.parametrize("axis", ["batch", "GPUs"])
def test_how_far_interpolation_is_from_what_was_measured(data_dir: Path, axis: str) -> None:
    """Sia's points told from the others: without the batch itself, or without all points on as many GPUs.

    The worst is YOLOv3 on A100: with 6 images a GPU it was measured up to twice as slow as with 4 and with 8.
    """
    read = MeasuredTable.from_sia(data_dir / "pollux" / "pollux_sia_throughput.csv")
    groups: dict[tuple[str, str], dict[Point, Measurement]] = {}
    for point, measured in read.points.items():
        groups.setdefault((point.model, point.gpu), {})[point] = measured
    errors = []
    for group in groups.values():
        node = max(-(-p.gpus // p.nodes) for p in group)
        for p in list(group)[:: max(1, len(group) // 40)]:
            other = {q: m for q, m in group.items() if q.gpus != p.gpus}
            beside = {q: m for q, m in group.items() if q[3:] == p[3:] and q != p}
            rest = other if axis == "GPUs" else other | beside
            on = tuple(p.gpus // p.nodes + (i < p.gpus % p.nodes) for i in range(p.nodes))
            try:
                told = MeasuredTable(rest, "rest", gpus_per_node={p.gpu: node}).rate(p.model, p.batch_size, p.gpu, on)
            except PerformanceError:
                continue  # at the edge of what was measured: refused
            errors.append(told.iterations_per_s / group[p].iterations_per_s - 1)
    size = np.abs(errors)
    print(f"between {axis}, {len(size)} points: mean error {size.mean():.1%}, median {np.median(size):.1%}, "
          f"90th percentile {np.quantile(size, 0.9):.1%}, worst {size.max():.1%}")
    assert len(size) > 500 and np.median(size) < 0.05 and size.mean() < 0.10


# -- ElasticFlow -------------------------------------------------------------------------------------------


def elasticflow_file(folder: Path, text: str) -> Path:
    (folder / "throughputs_T4").mkdir()
    path = folder / "throughputs_T4" / "bert.csv"
    path.write_bytes(text.encode())
    return path


def test_elasticflow_s_gaps_are_no_zeros(tmp_path: Path) -> None:
    text = "global_batch_size,1,2,4,8\r\n64,3.5,nan,,0\r\n128,2,3,4,5"
    path = elasticflow_file(tmp_path, text)
    read = load_table(path)
    assert {(p.batch_size, p.gpus): m.iterations_per_s for p, m in read.points.items()} == {
        (64, 1): 3.5, (128, 1): 2.0, (128, 2): 3.0, (128, 4): 4.0, (128, 8): 5.0,
    }
    assert {(p.model, p.gpu, p.nodes) for p in read.points} == {("bert", "T4", ANY_PLACEMENT)}
    with pytest.raises(PerformanceError, match="no such point"):
        read.rate("bert", 64, "T4", (8,))
    assert MeasuredTable.from_elasticflow(path.parent).points == read.points
    assert {p.gpu for p in MeasuredTable.from_elasticflow(path, gpu="a100").points} == {"A100"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("global_batch_size,1,two\n64,1,2\n", "not ElasticFlow's throughputs"),
        ("global_batch_size,1\n64,-2\n", "line 2, column '1'"),
        ("global_batch_size,1\n64,2\n64,3\n", "line 3: a batch size is there twice.*first in line 2"),
    ],
)
def test_throughputs_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PerformanceError, match=message):
        load_table(elasticflow_file(tmp_path, text))


def test_the_gpu_type_of_throughputs_is_told_by_the_folder(tmp_path: Path) -> None:
    path = own(tmp_path, "global_batch_size,1\n64,2\n")
    with pytest.raises(PerformanceError, match="the GPU type is unknown"):
        load_table(path)


@pytest.mark.parametrize(("gpu", "models"), [("A100", 7), ("T4", 6)])
def test_elasticflow_s_files_are_read_whole(data_dir: Path, gpu: str, models: int) -> None:
    folder = data_dir / "elasticflow" / f"throughputs_{gpu}"
    read = MeasuredTable.from_elasticflow(folder)
    cells = {}
    for file in folder.glob("*.csv"):
        for row in csv.DictReader(file.read_text().splitlines()):
            batch = int(row.pop("global_batch_size"))
            told = {int(n): float(cell) for n, cell in row.items() if cell not in ("", "nan")}
            cells.update({(file.stem, batch, n): rate for n, rate in told.items()})
    rates = {(p.model, p.batch_size, p.gpus): m.iterations_per_s for p, m in read.points.items()}
    assert rates == {key: rate for key, rate in cells.items() if rate > 0} and len(read.job_types) == models
