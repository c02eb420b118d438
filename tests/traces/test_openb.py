"""Alibaba openb 2023: what pods become, how each phase is used, and the nodes of the cluster."""

from __future__ import annotations

import numpy as np
import pytest

from traces.errors import TraceError
from traces.load import detect, load_trace
from traces.machines.any_form import read_machines
from traces.machines.capacity import Capacity
from traces.reading.gpu_types import catalogue_names

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"


def written(tmp_path, text, name="pods.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_each_column_of_a_pod(tmp_path):
    trace = load_trace(written(tmp_path, PODS + (
        "a,4000,1024,1,250,V100M16|V100M32,BE,Succeeded,10,115,15\n"
        "b,4000,1024,8,1000,,LS,Failed,20,120,20\n"
        "c,4000,1024,1,1000,T4,LS,Running,30,400,33\n"
    )))
    assert trace.job_id.tolist() == ["a", "b", "c"] and trace.submit_s.tolist() == [10, 20, 30]
    assert trace.duration_s.tolist() == [100, 100, 367] and trace.wait_s.tolist() == [5, 0, 3]
    assert trace.num_gpus.tolist() == [1, 8, 1] and trace.worker_gpus.tolist() == [1, 8, 1]
    assert trace.gpu_milli.tolist() == [250, 1000, 1000]
    assert trace.gpu_type.tolist() == ["V100|V100-32", "", "T4"]
    assert trace.status.tolist() == ["passed", "failed", "unknown"]
    assert trace.provenance.window_s == (115, 400)  # first deletion to last


def test_pods_that_give_no_run_time_are_counted_by_reason(tmp_path):
    trace = load_trace(written(tmp_path, PODS + (
        "cpu,1,1,0,0,,LS,Running,0,9,0\n"
        "waits,1,1,1,1000,,LS,Pending,0,9,\n"
        "there,1,1,1,1000,,LS,Running,0,,3\n"
        "back,1,1,1,1000,,LS,Failed,0,5,8\n"
        "zero,1,1,1,1000,,LS,Failed,0,8,8\n"
        "early,1,1,1,1000,,LS,Succeeded,6,100,2\n"
    )))
    assert trace.job_id.tolist() == ["zero", "early"] and trace.duration_s.tolist() == [0, 98]
    assert trace.wait_s[0] == 8 and np.isnan(trace.wait_s[1])
    assert trace.provenance.counts == {
        "CPU-only pods dropped": 1,
        "pods never started dropped": 1,
        "pods not ended when the log was taken dropped": 1,
        "pods that end before they start dropped": 1,
        "zero-length pods kept": 1,
        "pods that start before their submission: wait unknown": 1,
        "pods created before any was deleted: perhaps older than the log": 1,
        "pods deleted in the last second of the log: perhaps cut off there": 1,
    }
    assert trace.provenance.first["pods that end before they start dropped"] == ("line 5",)
    assert "phase Running: 2 pods, 0 kept, 1 without GPUs, 1 without a run time" in trace.provenance.notes


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("a,1,1,1,1000,,LS,Evicted,0,9,0\n", "unknown status; got 'Evicted'"),
        ("a,1,1,2,500,,LS,Running,0,9,0\n", "a worker of several slots takes whole GPUs"),
        ("a,1,1,1,1500,,LS,Running,0,9,0\n", "line 2, column 'gpu_milli'"),
        ("a,1,1,1,1000,,LS,Running,soon,9,0\n", "line 2, column 'creation_time'"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(tmp_path, row, words):
    with pytest.raises(TraceError, match=words):
        load_trace(written(tmp_path, PODS + row))


def test_alternatives_keep_their_order_and_count_once():
    cells = np.array(["", "V100M32|V100M16|V100M32", "G2", "a10| T4", "v100m32"], dtype=object)
    assert catalogue_names(cells).tolist() == ["", "V100-32|V100", "G2", "a10|T4", "V100-32"]


def test_nodes_are_a_side_table_and_a_cluster(tmp_path):
    path = written(tmp_path, NODES + "n0,32000,262144,0,\nn1,64000,524288,2,P100\nn2,64000,524288,8,G2\n", "nodes.csv")
    with pytest.raises(TraceError, match="no jobs here: the nodes of openb"):
        detect(path)
    machines = read_machines(path)
    assert machines.name.tolist() == ["n0", "n1", "n2"] and machines.gpus.tolist() == [0, 2, 8]
    assert machines.gpu_type.tolist() == ["", "P100", "G2"] and machines.cpu_cores.tolist() == [32, 64, 64]
    assert machines.memory_gib.tolist() == [256, 512, 512] and machines.about.counts == {"nodes without GPUs": 1}
    assert Capacity.of(machines).peak(gpu_type="G2") == 8


def test_p08_running_pods_with_a_deletion_are_kept(data_dir):
    trace = load_trace(data_dir / "openb" / "openb_pod_list_default.csv")
    assert trace.provenance.rows_read == 8152 and len(trace) == 6203
    assert trace.provenance.counts == {
        "CPU-only pods dropped": 1088,
        "pods never started dropped": 861,  # and 36 of the 897 Pending pods ask for no GPU
        "Running pods whose deletion ends the run": 4149,
        "pods created before any was deleted: perhaps older than the log": 31,
        "pods deleted in the last second of the log: perhaps cut off there": 32,
    }
    assert trace.provenance.notes == (
        "phase Failed: 1870 pods, 1869 kept as 'failed', 1 without GPUs, 0 without a run time",
        "phase Pending: 897 pods, 0 kept, 36 without GPUs, 861 without a run time",
        "phase Running: 5193 pods, 4149 kept as 'unknown', 1044 without GPUs, 0 without a run time",
        "phase Succeeded: 192 pods, 185 kept as 'passed', 7 without GPUs, 0 without a run time",
    )


def test_the_real_pods_have_the_published_shape(data_dir):
    trace = load_trace(data_dir / "openb" / "openb_pod_list_default.csv")
    begin_s, end_s = trace.provenance.window_s
    assert (begin_s, end_s) == (9_964_972, 12_902_960)  # of 149.3 days, the last 34.0 are logged
    assert (trace.submit_s < begin_s).sum() == 31 and trace.submit_s[31] == 9_965_463
    assert np.quantile(trace.wait_s, [0.5, 0.9]).tolist() == [2, 139]  # trace-facts, C
    one = trace.num_gpus == 1
    # Of all 1-GPU pods 44 % share (trace-facts, C); of those that were ever scheduled 42 %.
    assert (one.sum(), (trace.gpu_milli[one] < 1000).sum()) == (6129, 2573)
    assert (trace.gpu_milli[~one] == 1000).all()


@pytest.mark.parametrize(("name", "nodes", "without"), [("all_node", 1523, 310), ("gpu_node", 1213, 0)])
def test_both_node_lists_have_the_same_6212_gpus(data_dir, name, nodes, without):
    machines = read_machines(data_dir / "openb" / f"openb_node_list_{name}.csv")
    capacity = Capacity.of(machines)
    assert len(machines) == nodes and machines.about.counts.get("nodes without GPUs", 0) == without
    assert capacity.peak() == 6212 and capacity.constant
    types = {"A10": 2, "G2": 4392, "G3": 312, "P100": 265, "T4": 842, "V100M16": 195, "V100M32": 204}
    assert {kind: capacity.peak(gpu_type=kind) for kind in types} == types


def test_the_two_lists_number_the_nodes_differently(data_dir):
    every, gpu = (read_machines(data_dir / "openb" / f"openb_node_list_{n}.csv") for n in ("all_node", "gpu_node"))
    of = dict(zip(every.name.tolist(), every.gpus.tolist(), strict=True))
    assert any(of[name] != gpus for name, gpus in zip(gpu.name.tolist(), gpu.gpus.tolist(), strict=True))
