"""Operator graphs from files: profiles made here by hand, hostile ones, and the real ones where they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.performance import OperatorGraph, PerformanceError
from sim.performance.readers import (
    FORMATS,
    format_of,
    read_dnn_partitioning,
    read_graph,
    read_pipedream,
    read_piper,
    read_synthetic,
)
from sim.performance.readers.operators import Op, recompute_blocks

PIPEDREAM = """\
node3 -- ReLU(inplace) -- forward_compute_time=1.5, backward_compute_time=2.5, activation_size=800.0, parameter_size=0.000
node1 -- Input0 -- forward_compute_time=636.0, backward_compute_time=0.0, activation_size=400.0, parameter_size=0.0
node2 -- Conv2d(3, 8, kernel_size=(3, 3)) -- forward_compute_time=4.0, backward_compute_time=7.0, activation_size=800.0, parameter_size=896.0
node4 -- LSTM(8, 8) -- forward_compute_time=2.0, backward_compute_time=3.0, activation_size=[300.0; 50.0; 50.0], parameter_size=2048.0 -- stage_id=1
node10 -- Add -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=100.0, parameter_size=0.0
\tnode1 -- node2
\tnode2 -- node3
\tnode2 -- node3
\tnode3 -- node4
\tnode4 -- node10
\tnode2 -- node10
"""  # noqa: E501


def _write(folder: Path, content: object, name: str = "made.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def _assert_in_order(graph: OperatorGraph) -> None:
    for op, inputs in enumerate(graph.inputs):
        assert len(set(inputs)) == len(inputs) > 0
        assert all(-1 <= source < op for source in inputs)


# PipeDream


def test_pipedream_drops_the_input_and_its_time(tmp_path):
    graph = read_pipedream(_write(tmp_path, PIPEDREAM, "net.graph.txt"), samples=4)
    assert graph.name == "net"
    assert [op.split()[0] for op in graph.ops] == ["node2", "node3", "node4", "node10"]
    assert graph.profile.fwd_s.tolist() == [0.004, 0.0015, 0.002, 0.0]
    assert graph.profile.bwd_s.tolist() == [0.007, 0.0025, 0.003, 0.0]
    assert graph.inputs == ((-1,), (0,), (1,), (2, 0))


def test_pipedream_sizes_are_for_a_sample_and_times_for_the_minibatch(tmp_path):
    graph = read_pipedream(_write(tmp_path, PIPEDREAM), samples=4, gpu="V100")
    # A list of tensors is one output; what the input has is what the first operator reads.
    assert (2 * graph.out_bytes).tolist() == [200, 200, 100, 25]
    assert (2 * graph.in_bytes).tolist() == [100, 200, 200, 300]
    assert graph.weight_params.tolist() == [224, 0, 512, 0]
    assert (2 * graph.cut_bytes).tolist() == [200, 400, 300, 0]
    assert (graph.profile.samples, graph.profile.gpu) == (4, "V100")


def test_without_a_minibatch_size_a_sample_is_the_minibatch(tmp_path):
    graph = read_pipedream(_write(tmp_path, PIPEDREAM))
    assert graph.sample == "a minibatch of the profile"
    assert 2 * graph.out_bytes[0] == 800
    assert graph.profile.samples == 1


def test_flops_of_a_profile_are_unknown_not_zero(tmp_path):
    graph = read_pipedream(_write(tmp_path, PIPEDREAM))
    assert np.isnan(graph.flops_fwd).all()
    assert graph.kind == ("conv", "elementwise", "lstm", "elementwise")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("node5 -- Add -- forward_compute_time=1", "line 12: neither a node nor an edge"),
        ("\tnode2 -- node99", r"line 12: an edge names a node that does not exist; got 'node99'"),
        ("\tnode10 -- node2", r"line 1: the graph has a cycle; got 'node3"),
        ("\tnode4 -- node4", r"line 4: the graph has a cycle; got 'node4"),
        (PIPEDREAM.splitlines()[2], r"line 12: two nodes have the same id; got 'node2'.*line 3"),
    ],
    ids=["half a line", "edge to nowhere", "cycle", "self-loop", "same id"],
)
def test_pipedream_errors_name_the_line(tmp_path, line, message):
    path = _write(tmp_path, f"{PIPEDREAM}{line}\n")
    with pytest.raises(PerformanceError, match=message) as error:
        read_pipedream(path)
    assert str(path) in error.value.where


@pytest.mark.parametrize("value", ["-1.0", "nan", "inf", "1e400", "1e30", "x", "", "[]", "0x10"])
@pytest.mark.parametrize("figure", ["forward_compute_time", "activation_size", "parameter_size"])
def test_unusable_numbers_are_refused(tmp_path, figure, value):
    text = re.sub(rf"(node4 .*{figure}=)(\[[^\]]*\]|[\d.]+)", rf"\g<1>{value}", PIPEDREAM)
    with pytest.raises(PerformanceError, match="line 4: "):
        read_pipedream(_write(tmp_path, text))


# dnn-partitioning


def _dnn_node(key: int, ms: float, size: float, color: int | None = None, back: int = 0) -> dict:
    return {"id": key, "name": f"n{key}", "fpgaLatency": ms, "size": size, "colorClass": color, "isBackwardNode": back}


def _dnn(nodes: list[dict], edges: list[tuple[int, int, float]]) -> dict:
    made = [{"sourceId": a, "destId": b, "size": size, "cost": size / 2**31} for a, b, size in edges]
    return {"maxFPGAs": 1, "nodes": nodes, "edges": made}


LAYERS = _dnn(
    [
        _dnn_node(1, 0, 0, 1),
        _dnn_node(2, 3, 500, 2),
        _dnn_node(3, 4, 300, 3),
        _dnn_node(4, 5, 100, 4),
        _dnn_node(14, 1, 100, 4, 1),
        _dnn_node(13, 8, 300, 3, 1),
        _dnn_node(99, 0.5, 0, None, 1),  # a sum of gradients: the backward node before it is of node 3
        _dnn_node(12, 6, 500, 2, 1),
    ],
    [(1, 2, 0), (2, 3, 100), (3, 4, 60), (4, 14, 100), (14, 13, 60), (13, 99, 100), (99, 12, 100)],
)


def test_backward_nodes_are_folded_into_their_forward_ones(tmp_path):
    graph = read_dnn_partitioning(_write(tmp_path, LAYERS))
    assert graph.ops == ("2 n2", "3 n3", "4 n4")
    assert graph.profile.fwd_s.tolist() == [0.003, 0.004, 0.005]
    assert graph.profile.bwd_s == pytest.approx([0.006, 0.0085, 0.001], rel=1e-15)
    assert graph.inputs == ((-1,), (0,), (1,))


def test_what_exceeds_a_layers_output_is_its_weights(tmp_path):
    graph = read_dnn_partitioning(_write(tmp_path, LAYERS))
    assert (2 * graph.out_bytes).tolist() == [100, 60, 100]
    assert graph.weight_params.tolist() == [100, 60, 0]


def test_weights_that_are_nodes_belong_to_who_reads_them_first(tmp_path):
    nodes = [_dnn_node(0, 0, 400), _dnn_node(1, 2, 100), _dnn_node(2, 3, 100), _dnn_node(3, 0, 80)]
    edges = [(0, 1, 400), (0, 2, 400), (1, 2, 100), (3, 2, 80)]
    graph = read_dnn_partitioning(_write(tmp_path, _dnn(nodes, edges)))
    assert graph.ops == ("1 n1", "2 n2")
    assert graph.weight_params.tolist() == [100, 20]
    assert graph.inputs == ((-1,), (0,))


def test_a_graph_of_inference_knows_no_backward_times(tmp_path):
    nodes = [_dnn_node(1, 2, 100), _dnn_node(2, 3, 0)]
    graph = read_dnn_partitioning(_write(tmp_path, _dnn(nodes, [(1, 2, 100)])))
    assert graph.profile.fwd_s.tolist() == [0.002, 0.003]
    assert np.isnan(graph.profile.bwd_s).all()


def test_weights_that_cannot_be_told_from_an_output_are_said(tmp_path):
    nodes = [_dnn_node(1, 2, 100), _dnn_node(2, 3, 900)]
    with pytest.warns(UserWarning, match="node id 2: its output is not in the file and counts as weights"):
        read_dnn_partitioning(_write(tmp_path, _dnn(nodes, [(1, 2, 100)])))


@settings(max_examples=40)
@given(st.data())
def test_no_time_is_lost_in_folding(tmp_path_factory, data):
    count = data.draw(st.integers(1, 8))
    ms = st.floats(0, 100)
    forward = [_dnn_node(i, data.draw(ms), 0, data.draw(st.integers(0, 3))) for i in range(count)]
    backward = [
        _dnn_node(100 + i, data.draw(ms), 0, data.draw(st.one_of(st.none(), st.integers(0, 5))), 1)
        for i in range(data.draw(st.integers(0, 8)))
    ]
    nodes = [*forward, *backward]
    # Every edge goes from an earlier node to a later one: no cycle.
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=20))
    edges = [(nodes[a]["id"], nodes[b]["id"], 0) for a, b in pairs if a < b < len(nodes)]
    nodes[0]["fpgaLatency"] = 1.0
    path = _write(tmp_path_factory.mktemp("fold"), _dnn(nodes, edges))
    graph = read_dnn_partitioning(path)
    _assert_in_order(graph)
    total = np.nansum(graph.profile.fwd_s) + np.nansum(graph.profile.bwd_s)
    assert 1e3 * total == pytest.approx(sum(node["fpgaLatency"] for node in nodes), rel=1e-12)


# Piper


def _piper(times: dict[int, tuple[float, float]], edges: list[tuple[int, int]]) -> dict:
    def ways(vanilla, again):
        made = []
        for name, time in (("vanilla", vanilla), ("activation recomp", again)):
            made.append({"id": name, "timePerSample": time, "parameterSize": 400.0, "memoryUsageA": 70.0})
        return made

    nodes = [
        {"id": key, "name": "layer", "TMPCs": {"1": ways(*time), "2": ways(time[0] / 2, time[1] / 2)}}
        for key, time in times.items()
    ]
    made = [{"sourceId": a, "destId": b, "communicationCost": 50.0} for a, b in edges]
    return {"maxDevices": 2, "nodes": nodes, "edges": made}


def test_piper_forward_time_is_what_recomputation_adds(tmp_path):
    path = _write(tmp_path, _piper({7: (0.03, 0.04), 3: (0.06, 0.075)}, [(7, 3)]))
    graph = read_piper(path)
    assert graph.ops == ("7 layer", "3 layer")
    assert graph.profile.fwd_s == pytest.approx([0.01, 0.015], rel=1e-12)
    assert graph.profile.bwd_s == pytest.approx([0.02, 0.045], rel=1e-12)
    assert graph.weight_params.tolist() == [100, 100]
    assert (2 * graph.stored_bytes).tolist() == [70, 70]
    assert (2 * graph.out_bytes).tolist() == [50, 0]


def test_piper_has_costs_by_degree_of_tensor_parallelism(tmp_path):
    path = _write(tmp_path, _piper({1: (0.03, 0.04)}, []))
    assert read_piper(path, degree=2).profile.fwd_s == pytest.approx([0.005], rel=1e-12)
    with pytest.raises(PerformanceError, match=r"no cost for 8-way tensor parallelism; allowed: 1, 2"):
        read_piper(path, degree=8)


def test_piper_times_that_cannot_be_seconds_need_a_unit(tmp_path):
    path = _write(tmp_path, _piper({1: (30, 40)}, []))
    with pytest.raises(PerformanceError, match=r"too long; got 30.*time_unit='ms'"):
        read_piper(path)
    assert read_piper(path, time_unit="ms").profile.fwd_s == pytest.approx([0.01], rel=1e-12)
    with pytest.raises(PerformanceError, match="not a unit of time"):
        read_piper(path, time_unit="h")


def test_piper_recomputation_cannot_take_longer_than_both_passes(tmp_path):
    with pytest.raises(PerformanceError, match=r"node 0 .*takes no time that it could"):
        read_piper(_write(tmp_path, _piper({1: (0.03, 0.07)}, [])))


# Made graphs


SYNTHETIC = {
    "nodes": {
        "a": {"t": 10.0, "par": 400, "out": 64, "group": "a", "bw": False},
        "ba": {"t": 20.0, "par": 0, "out": 64, "group": "a", "bw": True},
        "b": {"t": 30.0, "par": 0, "out": 32, "group": "b", "bw": False},
        "bb": {"t": 50.0, "par": 0, "out": 32, "group": "b", "bw": True},
    },
    "edges": [["a", "b", 64], ["a", "ba", 0], ["b", "bb", 0], ["bb", "ba", 64]],
}


def test_made_graphs_have_times_in_microseconds(tmp_path):
    graph = read_synthetic(_write(tmp_path, SYNTHETIC), samples=2)
    assert graph.ops == ("a", "b")
    assert graph.profile.fwd_s == pytest.approx([10e-6, 30e-6], rel=1e-15)
    assert graph.profile.bwd_s == pytest.approx([20e-6, 50e-6], rel=1e-15)
    assert (2 * graph.out_bytes).tolist() == [32, 16]
    assert graph.weight_params.tolist() == [100, 0]


# The door


@pytest.mark.parametrize(
    ("content", "name"),
    [(PIPEDREAM, "pipedream"), (LAYERS, "dnn-partitioning"), (_piper({1: (0.3, 0.4)}, []), "piper"), (SYNTHETIC,) * 2],
    ids=["pipedream", "dnn-partitioning", "piper", "synthetic"],
)
def test_the_format_is_told_from_the_content(tmp_path, content, name):
    path = _write(tmp_path, content, "graph")
    assert format_of(path) == (name if isinstance(name, str) else "synthetic")
    assert len(read_graph(str(path))) > 0


def test_wrong_formats_and_options_are_named(tmp_path):
    path = _write(tmp_path, PIPEDREAM)
    with pytest.raises(PerformanceError, match="did you mean 'pipedream'"):
        read_graph(path, "pipedreem")
    with pytest.raises(PerformanceError, match="no such option; got 'degree'; allowed: samples, gpu"):
        read_graph(path, degree=2)
    with pytest.raises(PerformanceError, match="samples of a profile must be a number above 0; got 0"):
        read_graph(path, samples=0)


_HOSTILE = {
    "empty": b"",
    "blank": b"  \n\n",
    "truncated JSON": json.dumps(LAYERS).encode()[:300],
    "garbage": bytes(range(256)) * 20,
    "zeros": bytes(1000),
    "like protobuf": b"\x08\x07" + bytes(range(200, 256)) * 5,
    "JSON of nothing": b"{}",
    "a list": b"[1, 2]",
    "no nodes": b'{"nodes": [], "edges": []}',
    "nodes of numbers": b'{"nodes": [1, 2], "edges": []}',
    "an empty table": b'{"nodes": {}, "edges": []}',
    "deep": b'{"nodes": ' + b"[" * 100_000,
    "long number": b'{"nodes": {"a": {"t": ' + b"9" * 10_000 + b"}}}",
    "words": b"once upon a time\n",
    "UTF-16": PIPEDREAM.encode("utf-16"),
    "broken UTF-8": PIPEDREAM.encode() + b"\xff\xfe\n",
}


@pytest.mark.parametrize("content", _HOSTILE.values(), ids=_HOSTILE)
def test_hostile_files_are_refused_by_name(tmp_path, content):
    path = tmp_path / "hostile"
    path.write_bytes(content)
    for name in (None, *FORMATS):
        with pytest.raises(PerformanceError) as error:
            read_graph(path, name)
        assert str(path) in str(error.value)


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(PerformanceError, match="cannot be read"):
            read_graph(path)


def _change(document: dict, where: str, key: str, value: object) -> dict:
    changed = json.loads(json.dumps(document))
    part = changed[where][1]
    if value is None:
        del part[key]
    else:
        part[key] = value
    return changed


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 1e300, 10**400, True, None, [], {}, "many"])
@pytest.mark.parametrize("key", ["id", "fpgaLatency", "size"])
def test_bad_values_of_a_json_node_are_refused_with_their_place(tmp_path, key, value):
    # json writes a whole number of any length; Python refuses to read more than 4,300 digits of one.
    path = _write(tmp_path, _change(LAYERS, "nodes", key, value))
    with pytest.raises(PerformanceError, match=r"node 1|node id|edge|too long") as error:
        read_dnn_partitioning(path)
    assert str(path) in error.value.where


@pytest.mark.parametrize(
    ("where", "key", "value", "message"),
    [
        ("edges", "destId", 77, "edge 1: an edge names a node that does not exist; got 77"),
        ("edges", "sourceId", None, "edge 1: 'sourceId' is missing"),
        ("edges", "size", -5, "edge 1: size is not a usable number; got -5"),
        ("nodes", "id", 3, "node id 3: two nodes have the same id"),
        ("nodes", "isBackwardNode", "yes", "node id 2: isBackwardNode is no truth value"),
        ("nodes", "colorClass", [1], "node id 2: colorClass is not a number"),
    ],
)
def test_errors_in_json_name_node_or_edge(tmp_path, where, key, value, message):
    with pytest.raises(PerformanceError, match=message):
        read_dnn_partitioning(_write(tmp_path, _change(LAYERS, where, key, value)))


def test_a_cycle_in_json_names_a_node_on_it(tmp_path):
    document = _dnn([_dnn_node(i, 1, 0) for i in range(5)], [(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 2, 0), (3, 4, 0)])
    with pytest.raises(PerformanceError, match=r"node id [23]: the graph has a cycle"):
        read_dnn_partitioning(_write(tmp_path, document))


def test_a_name_twice_in_a_table_is_refused(tmp_path):
    text = json.dumps(SYNTHETIC).replace('"ba": {', '"a": {', 1)
    with pytest.raises(PerformanceError, match="a name occurs twice in one JSON object; got 'a'"):
        read_synthetic(_write(tmp_path, text))


@settings(max_examples=150)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_no_file_ends_in_a_traceback(tmp_path_factory, noise, at):
    path = tmp_path_factory.mktemp("fuzz") / "file"
    for base in (PIPEDREAM.encode(), json.dumps(LAYERS).encode(), json.dumps(SYNTHETIC).encode()):
        path.write_bytes(base[:at] + noise + base[at:])
        try:
            graph = read_graph(path)
        except PerformanceError as error:
            assert str(path) in str(error)
        else:
            _assert_in_order(graph)


# Blocks


def test_blocks_begin_only_where_one_tensor_crosses():
    # Two residual blocks: 0 -> (1, 2) -> 3 -> (4, 5) -> 6.
    inputs = [(-1,), (0,), (1, 0), (2,), (3,), (4, 2), (5,)]
    ops = [Op(str(i), "conv", source, 8.0, stored_bytes=8.0) for i, source in enumerate(inputs)]
    blocks = recompute_blocks(ops)
    assert blocks == sorted(blocks)
    borders = [i for i in range(1, len(ops)) if blocks[i] != blocks[i - 1]]
    assert borders
    for border in borders:
        crossing = {source for op in ops[border:] for source in op.inputs if 0 <= source < border}
        assert len(crossing) <= 1


def test_a_chain_of_n_operators_has_about_sqrt_n_blocks():
    ops = [Op(str(i), "conv", (i - 1,), 8.0, stored_bytes=8.0) for i in range(100)]
    assert max(recompute_blocks(ops)) + 1 == 10


# Real files


def _independent_count(path: Path) -> tuple[int, int]:
    """Nodes that are no input, and edges between them, each once, by the lines of a PipeDream file."""
    lines = path.read_text().splitlines()
    inputs = {line.split(" -- ")[0] for line in lines if re.match(r"\S+ -- Input\d* -- ", line)}
    nodes = sum(line[:1] not in ("\t", "") for line in lines) - len(inputs)
    pairs = {tuple(line.strip().split(" -- ")) for line in lines if line.startswith("\t")}
    return nodes, sum(not inputs & set(pair) for pair in pairs)


def test_each_pipedream_profile_has_the_nodes_and_edges_of_its_lines(data_dir):
    paths = sorted((data_dir / "graphs" / "pipedream").rglob("*.txt"))
    paths = [path for path in paths if not path.name.startswith("LICENSE")]
    assert len(paths) == 19
    for path in paths:
        graph = read_graph(path)
        _assert_in_order(graph)
        edges = sum(source >= 0 for inputs in graph.inputs for source in inputs)
        assert (len(graph), edges) == _independent_count(path), path.name


@pytest.mark.parametrize(
    ("name", "params"),
    [("alexnet", 61_100_840), ("vgg16", 138_357_544), ("resnet18", 11_689_512), ("resnet50", 25_557_032)],
)
def test_pipedream_profiles_have_the_published_parameters(data_dir, name, params):
    assert read_graph(data_dir / "graphs" / "pipedream" / f"{name}.graph.txt").weight_params.sum() == params


def test_vgg16_was_profiled_with_128_images_in_single_precision(data_dir):
    graph = read_graph(data_dir / "graphs" / "pipedream" / "vgg16.graph.txt", samples=128)
    assert 2 * graph.out_bytes[0] == 64 * 224 * 224 * 4
    assert 2 * graph.in_bytes[0] == 3 * 224 * 224 * 4


def test_alexnets_fake_input_time_is_dropped(data_dir):
    graph = read_graph(data_dir / "graphs" / "pipedream" / "alexnet.graph.txt")
    assert 1e3 * graph.profile.fwd_s.sum() == pytest.approx(44.801, abs=1e-9)


LAYER_GRAPHS = [("gnmt", 520.453), ("resnet50", 462.381), ("inceptionv3", 710.738), ("bert24", 217.813)]


def _layer_graph(data_dir: Path, name: str) -> Path:
    """ResNet-50's times are whole only in Piper's copy: dnn-partitioning's folder has it for inference."""
    folder = data_dir / "graphs"
    if name == "resnet50":
        return folder / "piper" / "resnet.json"
    return folder / "dnn-partitioning" / "throughput-inputs" / "LayerGraphs" / f"{name}_training.json"


@pytest.mark.parametrize(("name", "ms"), LAYER_GRAPHS)
@pytest.mark.filterwarnings("ignore:.*its output is not in the file")
def test_times_of_layer_graphs_add_up_to_those_of_the_profile(data_dir, name, ms):
    path = _layer_graph(data_dir, name)
    graph = read_graph(path, **({"time_unit": "ms"} if name == "resnet50" else {}))
    _assert_in_order(graph)
    assert 1e3 * (graph.profile.fwd_s.sum() + graph.profile.bwd_s.sum()) == pytest.approx(ms, abs=1e-9)


@pytest.mark.filterwarnings("ignore:.*its output is not in the file")
def test_each_dnn_partitioning_graph_keeps_its_time(data_dir):
    paths = sorted((data_dir / "graphs" / "dnn-partitioning").glob("*-inputs/*/*.json"))
    assert len(paths) == 19
    for path in paths:
        graph = read_graph(path)
        _assert_in_order(graph)
        total = sum(node["fpgaLatency"] for node in json.loads(path.read_text())["nodes"])
        found = np.nansum(graph.profile.fwd_s) + np.nansum(graph.profile.bwd_s)
        assert 1e3 * found == pytest.approx(total, rel=1e-12), path.name


def test_resnet50_as_operators_has_the_published_parameters(data_dir):
    folder = data_dir / "graphs" / "dnn-partitioning" / "throughput-inputs" / "OperatorGraphs"
    assert read_graph(folder / "resnet50_training.json").weight_params.sum() == 25_557_032


@pytest.mark.filterwarnings("ignore:.*its output is not in the file")
def test_piper_and_dnn_partitioning_agree_on_gnmt_forward_and_backward(data_dir):
    """Piper states one time for both passes; what recomputation adds is the forward time of the other file."""
    piper = read_graph(data_dir / "graphs" / "piper" / "gnmt.json", time_unit="ms")
    layers = read_graph(_layer_graph(data_dir, "gnmt"))
    for part in ("fwd_s", "bwd_s"):
        ours, theirs = getattr(piper.profile, part).sum(), getattr(layers.profile, part).sum()
        assert ours == pytest.approx(theirs, rel=1e-12)


def test_pipers_bert_is_in_seconds_and_its_other_files_are_not(data_dir):
    folder = data_dir / "graphs" / "piper"
    bert = read_graph(folder / "bert32a100.json")
    assert bert.profile.fwd_s.sum() + bert.profile.bwd_s.sum() == pytest.approx(0.972864, rel=1e-9)
    for name in ("gnmt", "resnet"):
        with pytest.raises(PerformanceError, match="time_unit='ms'"):
            read_graph(folder / f"{name}.json")


def test_made_graphs_keep_their_time(data_dir):
    paths = sorted((data_dir / "graphs" / "synthetic").glob("*.json"))
    assert len(paths) == 5
    for path in paths:
        graph = read_graph(path)
        _assert_in_order(graph)
        total = sum(node["t"] for node in json.loads(path.read_text())["nodes"].values())
        assert 1e6 * (graph.profile.fwd_s.sum() + graph.profile.bwd_s.sum()) == pytest.approx(total, rel=1e-12)
