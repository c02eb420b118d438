"""Tables of measured layers: by hand, by law, what is refused, and Sailor's files where they are."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.api import Plan, Stage
from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.calibration import for_graphs, shipped
from sim.performance.graph import OperatorGraph
from sim.performance.iteration import pipeline_iteration
from sim.performance.layer_times import SOURCES, worst
from sim.performance.memory import GIB, stage_memory
from sim.performance.operator_time import operator_times_s, source, update_times_s
from sim.performance.readers import read_pipedream, read_piper
from sim.performance.readers.layer_table import COLUMNS, as_layers, read_layers
from sim.performance.readers.sailor_files import TYPES
from tests.performance.test_graph_readers import PIPEDREAM, _piper

TABLE = """\
model,value_bytes,layer,tensor,params,border_bytes,kept_bytes,gpu_type,micro_batch,fwd_s,bwd_s,update_s
toy,4,0,1,1000,400,800,A100,1,0.001,0.002,0.0005
toy,4,1-2,1,2000,400,1600,a100,1,0.002,0.004,0.0005
toy,4,0,1,,,,A100,4,0.004,0.008,0.0007
toy,4,1-2,1,,,,A100,4,0.004,0.016,0.0007
toy,4,0,2,600,400,500,A100,4,0.003,0.005,0.0004
toy,4,1-2,2,1000,400,900,A100,4,0.003,0.006,0.0004
"""
A100, V100, T4 = gpu_type("A100"), gpu_type("V100"), gpu_type("T4")


def read(tmp_path: Path, text: str = TABLE, **options: str) -> OperatorGraph:
    path = tmp_path / "layers.csv"
    path.write_text(text)
    return read_layers(path, **options)["toy"]


def times(graph: OperatorGraph, samples: float, gpu=A100) -> tuple[list[float], list[float], str]:
    fwd_s, bwd_s = operator_times_s(graph, samples, gpu)
    return fwd_s.tolist(), bwd_s.tolist(), source(graph, samples, gpu)


# -- by hand -------------------------------------------------------------------------------------------------------


def test_what_was_measured_is_taken_as_it_is(tmp_path):
    graph = read(tmp_path)
    assert times(graph, 1) == ([0.001, 0.002, 0.002], [0.002, 0.004, 0.004], "measured")
    assert times(graph, 4) == ([0.004, 0.004, 0.004], [0.008, 0.016, 0.016], "measured")
    half = graph.tensor_parallel(2)
    assert times(half, 4) == ([0.003, 0.003, 0.003], [0.005, 0.006, 0.006], "measured")
    assert (half.weight_params.tolist(), half.profile.ways) == ([600, 1000, 1000], 2)
    assert graph.profile.degrees == (1, 2) and graph.profile.gpus == ("A100",)


def test_between_micro_batches_times_are_geometric_and_said_to_be_interpolated(tmp_path):
    """2 is halfway from 1 to 4 in logarithms: the time is the geometric mean."""
    fwd_s, bwd_s, how = times(read(tmp_path), 2)
    assert fwd_s == pytest.approx([0.002, math.sqrt(8) / 1000, math.sqrt(8) / 1000], rel=1e-12)
    assert (bwd_s[0], how) == (pytest.approx(0.004, rel=1e-12), "interpolated")


def test_beyond_micro_batches_a_fixed_part_stays_and_the_rest_is_in_proportion(tmp_path):
    """Of layer 1 forward 2 ms for 1 and 4 ms for 4: 4/3 + 2/3 x ms. With one micro-batch alone: in proportion."""
    graph = read(tmp_path)
    fwd_s, _, how = times(graph, 7)
    assert fwd_s == pytest.approx([0.007, 0.006, 0.006], rel=1e-12) and how == "extrapolated"
    assert times(graph, 0.5)[0] == pytest.approx([0.0005, 0.005 / 3, 0.005 / 3], rel=1e-12)
    assert times(graph.tensor_parallel(2), 2)[0] == pytest.approx([0.0015] * 3, rel=1e-12)


def test_the_step_is_the_median_of_what_was_measured(tmp_path):
    graph = read(tmp_path)
    assert update_times_s(graph, A100).tolist() == pytest.approx([0.0006] * 3, rel=1e-12)
    without = read(tmp_path, TABLE.replace("0.0007", ""))
    assert update_times_s(without, A100).tolist() == [0.0005] * 3


def test_an_iteration_is_the_sum_of_its_layers(tmp_path):
    """3 micro-batches of 4 on two A100 that share each layer: 3 (9 + 17) ms and a step of 3 x 0.4 ms."""
    graph = read(tmp_path)
    performance = Performance(graphs={"toy": graph}, calibration=for_graphs(shipped("tuned"), [graph]))
    cluster = ClusterSpec.build("two", [A100], [0], [2])
    plan = Plan((Stage(0, 2, "A100", 2, 2),), 3)
    found = performance.plan("toy", 12, plan, np.arange(2, dtype=np.int32), cluster)
    assert found.iteration_s == pytest.approx(3 * 0.026 + 0.0012, rel=1e-12)
    assert (found.source, found.tensor_s) == ("measured", 0.0)


def test_sizes_are_of_the_values_that_were_measured(tmp_path):
    """4,000 bytes in the file are 4,000 bytes kept, in single precision; and so where a value has two bytes."""
    for size, name in ((4, "fp32"), (2, "mixed")):
        graph = read(tmp_path, TABLE.replace("toy,4", f"toy,{size}"))
        fit = for_graphs(shipped("tuned"), [graph])
        assert (fit.precision, fit.value_bytes) == (name, size)
        got = stage_memory(graph, [(0, 2)], 1.0, 1, value_bytes=fit.value_bytes)
        assert got.activations_gib * GIB == pytest.approx(800 + 2 * 1600, rel=1e-12)
        assert graph.cut_bytes[0] * size / 2 == 400


def test_the_kept_bytes_of_a_file_in_single_precision_count_once(tmp_path):
    """PipeDream's file keeps 800 + 800 + 400 + 100 bytes, and is of values of four bytes."""
    path = tmp_path / "net.graph.txt"
    path.write_text(PIPEDREAM)
    graph = read_pipedream(path, gpu="V100")
    fit = for_graphs(shipped("tuned"), [graph])
    got = stage_memory(graph, [(0, 3)], 1.0, 1, value_bytes=fit.value_bytes)
    assert fit.value_bytes == 4 and got.activations_gib * GIB == pytest.approx(2100, rel=1e-12)
    assert "does not say what is kept" in graph.profile.notes[0]


def test_models_of_one_question_are_of_one_precision(tmp_path):
    four, two = read(tmp_path), read(tmp_path, TABLE.replace("toy,4", "toy,2"))
    with pytest.raises(PerformanceError, match="values of different size"):
        for_graphs(shipped("tuned"), [four, two])
    assert for_graphs(shipped("tuned"), []).precision == "mixed"


def test_what_was_not_measured_is_refused_by_name(tmp_path):
    graph = read(tmp_path)
    with pytest.raises(PerformanceError, match=r"no layer was measured.*got 'V100, tensor 1'.*tensor 1 of A100"):
        operator_times_s(graph, 1, V100)
    with pytest.raises(PerformanceError, match=r"not measured with tensor degree 4; got 4; allowed: 1, 2"):
        graph.tensor_parallel(4)


def test_another_type_is_predicted_on_request_and_marked(tmp_path):
    """Without FLOPs in the ratio of the memory bandwidths that are reached; so is the step."""
    graph = read(tmp_path, scaled_from="A100")
    ratio = A100.memory_efficiency * A100.mem_gbytes_per_s / (V100.memory_efficiency * V100.mem_gbytes_per_s)
    fwd_s, _, how = times(graph, 4, V100)
    assert fwd_s == pytest.approx([0.004 * ratio] * 3, rel=1e-12) and how == "predicted"
    assert update_times_s(graph, V100)[0] == pytest.approx(0.0006 * ratio, rel=1e-12)
    assert times(graph, 4)[2] == "measured"


def test_flops_let_a_prediction_tell_arithmetic_from_memory(tmp_path):
    """A product of 10 TFLOP in some bytes is bound by arithmetic, as wave scaling has it."""
    rows = [line + (",1e13" if i else ",flops_fwd") for i, line in enumerate(TABLE.splitlines())]
    graph = read(tmp_path, "\n".join(rows), scaled_from="A100")
    peaks = [peak * efficiency for peak, efficiency in (gpu.matrix_tflops("mixed") for gpu in (A100, T4))]
    assert times(graph, 4, T4)[0][0] == pytest.approx(0.004 * peaks[0] / peaks[1], rel=1e-3)


def test_the_least_sure_source_is_told():
    assert worst(["measured", "predicted", "interpolated"]) == "predicted"
    assert worst(["measured", "interpolated"]) == "interpolated" and SOURCES[0] == "measured"


def test_piper_files_hold_all_their_degrees(tmp_path):
    path = tmp_path / "made.json"
    path.write_text(json.dumps(_piper({7: (0.03, 0.04), 3: (0.06, 0.075)}, [(7, 3)])))
    graph = read_piper(path, gpu="V100")
    assert graph.profile.degrees == (1, 2)
    assert operator_times_s(graph.tensor_parallel(2), 1, V100)[0] == pytest.approx([0.005, 0.0075], rel=1e-12)
    assert (2 * graph.tensor_parallel(2).stored_bytes).tolist() == [70, 70]
    assert read_piper(path, degree=2).profile.degrees == (1,)


def test_a_branch_is_read_where_the_table_says_so(tmp_path):
    rows = TABLE.splitlines()
    extra = "toy,4,3,{},10,100,50,A100,{},0.001,0.001,0.0001,0 2"
    text = "\n".join([rows[0] + ",reads", *(row + "," for row in rows[1:]),
                      extra.format(1, 1), extra.format(1, 4).replace("0 2", ""), extra.format(2, 4)])  # fmt: skip
    graph = read(tmp_path, text)
    assert graph.inputs == ((-1,), (0,), (1,), (0, 2))
    assert (2 * graph.cut_bytes).tolist() == [400, 800, 800, 0]
    moved = graph.reordered([0, 1, 2, 3]).tensor_parallel(2)
    assert (2 * moved.cut_bytes).tolist() == [400, 800, 800, 0]


def test_both_sides_of_a_message_wait_for_it():
    """One micro-batch: 2 + 1 + 3, back 5 + 1 + 4 = 16. Many: the last stage works 3 + 5 and waits 1 + 1 each."""
    def ask(m: int, blocking: bool | str) -> float:
        return pipeline_iteration(
            "1f1b", np.array([2.0, 3.0]), np.array([4.0, 5.0]), np.array([1.0]), m, np.zeros(2), np.zeros(2),
            (1.0, 1.0), blocking=blocking,
        ).iteration_s  # fmt: skip

    assert [ask(1, how) for how in (False, True, "both")] == [16.0, 16.0, 16.0]
    assert ask(11, "both") - ask(1, "both") == 10 * 10.0
    assert ask(11, True) - ask(1, True) == 10 * 9.0


# -- laws ----------------------------------------------------------------------------------------------------------

SECONDS = st.floats(1e-6, 10.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200), SECONDS, SECONDS), min_size=1, max_size=5, unique_by=lambda t: t[0]),
       st.floats(0.25, 500.0))
def test_times_lie_between_their_neighbours_and_are_never_negative(tmp_path_factory, rows, samples):
    text = [",".join(name for name in COLUMNS)]
    for micro, fwd, bwd in rows:
        cells = {"model": "toy", "layer": 0, "tensor": 1, "value_bytes": 4, "params": 1, "border_bytes": 1,
                 "kept_bytes": 1, "gpu_type": "A100", "micro_batch": micro, "fwd_s": fwd, "bwd_s": bwd}  # fmt: skip
        text.append(",".join(str(cells.get(name, "")) for name in COLUMNS))
    path = tmp_path_factory.mktemp("law") / "layers.csv"
    path.write_text("\n".join(text))
    graph = read_layers(path)["toy"]
    for part, column in ((0, 1), (1, 2)):
        got, known = times(graph, samples)[part][0], {row[0]: row[column] for row in rows}
        below = [at for at in known if at <= samples]
        above = [at for at in known if at >= samples]
        if below and above:
            ends = known[max(below)], known[min(above)]
            assert min(ends) * (1 - 1e-9) <= got <= max(ends) * (1 + 1e-9)
        else:
            near = max(known) if below else min(known)
            # Twice the samples take no more than twice as long, and no less than as long.
            low, high = sorted((known[near], known[near] * samples / near))
            assert low * (1 - 1e-9) <= got <= high * (1 + 1e-9)


def test_a_table_written_is_read_the_same(tmp_path):
    graph = read(tmp_path)
    again = read(tmp_path, as_layers({"toy": graph}))
    assert as_layers({"toy": again}) == as_layers({"toy": graph})
    for samples in (1, 2, 4, 9):
        assert times(again, samples) == times(graph, samples)
    assert again.tensor_parallel(2).stored_bytes.tolist() == graph.tensor_parallel(2).stored_bytes.tolist()


def test_a_profile_becomes_a_table_with_its_branches(tmp_path):
    path = tmp_path / "net.graph.txt"
    path.write_text(PIPEDREAM)
    graph = read_pipedream(path, samples=4, gpu="V100")
    table = tmp_path / "net.csv"
    table.write_text(as_layers({"net": graph}))
    again = read_layers(table)["net"]
    assert again.inputs == graph.inputs
    assert times(again, 4, V100) == times(graph, 4, V100)
    assert again.in_bytes.tolist() == graph.in_bytes.tolist()
    with pytest.raises(PerformanceError, match="no measured layers to write"):
        as_layers({"net": read_pipedream(path)})


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new", "message"), [
    ("model,value_bytes", "model,bytes", r"column 'value_bytes' is missing"),
    ("update_s\n", "update_s,more\n", r"unknown column; got 'more'|wrong number of cells"),
    ("toy,4,0,1,1000", "toy,3,0,1,1000", r"line 2, column 'value_bytes'.*2 \(mixed"),
    ("toy,4,0,2", "toy,2,0,2", r"line 6, column 'value_bytes'.*4, as in line 2"),
    ("toy,4,0,2", "toy,4,x,2", r"line 6, column 'layer'"),
    ("toy,4,0,2", "toy,4,5-3,2", r"line 6, column 'layer'"),
    ("toy,4,0,2", "toy,4,0-10000,2", r"line 6, column 'layer'.*from 0 to 9,999"),
    ("0.001,0.002,0.0005", "-1,0.002,0.0005", r"line 2, column 'fwd_s'.*from 0"),
    ("0.001,0.002,0.0005", "nan,0.002,0.0005", r"line 2, column 'fwd_s'"),
    ("a100,1", "A1000,1", r"line 3, column 'gpu_type'"),
    ("toy,4,1-2,1,,,,A100,4", "toy,4,1-2,1,,,,A100,1", r"layer is there twice.*first in line 3"),
    ("toy,4,1-2,1,,,,A100,4", "toy,4,1,1,,,,A100,4", r"missing: times on A100, tensor 1, micro-batch 4.*no layer 2"),
    ("toy,4,0,1,,,", "toy,4,0,1,7,,", r"line 4, column 'params'.*1000, as in line 2, or blank"),
    ("toy,4,0,2,600", "toy,4,0,2,", r"missing: params of tensor 2.*no layer 0"),
    ("toy,4,0,1,1000,400", "toy,4,0,1,1000,", r"missing: border_bytes of tensor 1"),
])  # fmt: skip
def test_what_is_wrong_in_a_table_is_said_with_its_place(tmp_path, old, new, message):
    assert old in TABLE
    with pytest.raises(PerformanceError, match=message):
        read(tmp_path, TABLE.replace(old, new, 1))


def test_there_must_be_something_to_predict_from(tmp_path):
    with pytest.raises(PerformanceError, match=r"no layer was measured on the type to predict from; got 'T4'; allowed"
                       r": A100|got T4.*A100"):
        read(tmp_path, scaled_from="T4")


# -- Sailor's files ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sailor(data_dir: Path) -> Path:
    folder = data_dir / "sailor"
    return folder if folder.is_dir() else pytest.skip("Sailor's files are not there")


def test_each_time_of_sailor_is_read(sailor):
    """Sums of a micro-batch over the layers, against the file read by itself."""
    models = read_layers(sailor)
    sizes = {(name, ways) for name, graph in models.items() for ways in (1, *graph.profile.shares)}
    lines = (sailor / "layer_times.csv").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    sums: dict[tuple, float] = {}
    for row in csv.DictReader(io.StringIO(text)):
        key = row["model"], row["gpu_type"], int(row["tensor"]), int(row["micro_batch"])
        many = int(row["last_layer"]) - int(row["first_layer"]) + 1
        sums[key] = sums.get(key, 0.0) + many * (float(row["fwd_s"]) + float(row["bwd_s"]))
    checked = 0
    for (name, gpu, ways, micro), total in sums.items():
        if (name, ways) in sizes:
            found = operator_times_s(models[name].tensor_parallel(ways), micro, gpu_type(TYPES[gpu]))
            assert sum(part.sum() for part in found) == pytest.approx(total, rel=1e-12)
            checked += 1
    assert checked > 150


def test_measured_layers_meet_sailors_measured_runs(sailor):
    """Nearer than Sailor's own simulator but for OPT-350, whose runs of one sample are faster than their layers."""
    from experiments.sailor_runs import compare, means

    rows = compare(sailor)
    assert len(rows) == 25
    found = means(rows)
    most = {"GH200 OPT-350": 0.1, "GH200 GPT-Neo-2.7": 0.095, "RTX mixed": 0.07}
    assert {group for group, (time, *_) in found.items() if time <= most[group]} == set(most)
    for group, (time, memory, sailor_time, _) in found.items():
        assert time <= sailor_time or group == "GH200 OPT-350"
        assert memory <= 0.08 or group == "RTX mixed"
