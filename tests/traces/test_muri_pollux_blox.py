"""Muri (milliseconds), Pollux and Sia (no run times), Blox, Tiresias' other files."""

from __future__ import annotations

import numpy as np
import pytest

from traces.errors import TraceError
from traces.load import detect, load_trace
from traces.machines.any_form import read_machines

MURI = ("job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
        "resource_time_0,resource_time_1,resource_time_2,priority")
POLLUX = "name,time,application,num_replicas,batch_size"
TIMES = "application,num_replicas,batch_size,duration_s"


def written(folder, *lines, name="jobs.csv"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_muri_by_hand_milliseconds_become_seconds(tmp_path):
    path = written(tmp_path, MURI, "7,8,2500,1000,vgg16,16,214000,0,214,82,75,66,1",
                   "8,1,0,10,bert,4,5000,0,178,0.5,160,0,0",
                   "9,0,0,10,bert,4,1780,0,178,0.5,160,0,0")
    assert detect(path).name == "muri"  # though Tiresias' columns are all there
    trace = load_trace(path)
    assert trace.job_id.tolist() == ["8", "7"] and trace.submit_s.tolist() == [0, 2.5]
    assert trace.duration_s.tolist() == [5, 214] and trace.work_iters.tolist() == [10, 1000]
    assert trace.batch_size.tolist() == [4, 128]  # 16 on each of 8 GPUs
    assert trace.priority.tolist() == [1, 1]  # theirs is drawn by chance, for one baseline
    assert trace.provenance.counts == {
        "rows where duration is not iterations x iteration_time": 1, "CPU-only jobs dropped": 1}
    assert trace.provenance.first["rows where duration is not iterations x iteration_time"] == ("line 3",)


def test_a_unit_that_is_not_milliseconds_is_not_taken(tmp_path):
    with pytest.raises(TraceError, match="line 2, column 'duration'"):
        load_trace(written(tmp_path, MURI, "7,8,0,1,vgg16,16,1e15,0,1,1,1,1,1"))


def test_blox_by_hand(tmp_path):
    path = written(tmp_path, "job,submit_s,gpus,duration_s", "0,174,4,99.5", "1,20,1,0", "2,20,0,5")
    assert detect(path).name == "blox"
    trace = load_trace(path)
    assert trace.job_id.tolist() == ["1", "0"] and trace.duration_s.tolist() == [0, 99.5]
    assert trace.provenance.counts == {"CPU-only jobs dropped": 1, "zero-length jobs kept": 1}


def test_pollux_workloads_have_no_run_times(tmp_path):
    path = written(tmp_path, POLLUX, "cifar10-0,53,cifar10,6,2048")
    assert detect(path).name == "pollux"
    with pytest.raises(TraceError, match=r"no run times.*option run_times.*application,num_replicas,.*duration_s"):
        load_trace(path)


def test_pollux_with_run_times_of_ones_own(tmp_path):
    path = written(tmp_path, POLLUX, "a,53,cifar10,6,2048", "b,9.5,bert,2,384", "c,60,cifar10,6,2048")
    times = written(tmp_path, TIMES, "cifar10,6,2048,1000", "bert,2,384,20.5", name="times.csv")
    trace = load_trace(path, run_times=str(times))
    assert trace.job_id.tolist() == ["b", "a", "c"] and trace.duration_s.tolist() == [20.5, 1000, 1000]
    assert trace.num_gpus.tolist() == [2, 6, 6] and trace.batch_size.tolist() == [384, 2048, 2048]
    assert trace.model.tolist() == ["bert", "cifar10", "cifar10"] and "times.csv" in trace.provenance.rule
    few = written(tmp_path, TIMES, "cifar10,6,2048,1000", name="few.csv")
    with pytest.raises(TraceError, match=r"line 3: no run time for a job; got 'bert on 2 GPUs in batches of 384'"):
        load_trace(path, run_times=str(few))


def test_tiresias_early_layout_and_a_job_that_is_there_twice(tmp_path):
    header = "job_id,num_gpu,submit_time,start_time,duration,model_size,aggr_interval,model_name,model_scale"
    trace = load_trace(written(tmp_path, header, "10,12,11,14,20,400,0,vgg19,1"))
    assert trace.provenance.format == "tiresias" and (trace.submit_s[0], trace.duration_s[0]) == (11, 20)
    with pytest.raises(TraceError, match=r"line 3.*duplicate job id \(first seen in line 2\); got '10'"):
        load_trace(written(tmp_path, header, *["10,12,11,14,20,400,0,vgg19,1"] * 2))


def test_tiresias_clusters_by_hand(tmp_path):
    header = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node"
    path = written(tmp_path, header, "2,3,8,64,256")
    cluster = read_machines(path)
    assert cluster.name.tolist() == ["0", "1", "2", "3", "4", "5"] and cluster.gpus.tolist() == [8] * 6
    assert cluster.rack.tolist() == ["0", "0", "0", "1", "1", "1"] and set(cluster.memory_gib) == {256.0}
    with pytest.raises(TraceError, match="no jobs here: a cluster of the Tiresias simulator"):
        load_trace(path)
    for rows, what in ((["2,3,8,64,256"] * 2, "one row"), (["0,3,8,64,256"], "num_switch"),
                       (["1000000,1000000,8,64,256"], "larger than any")):
        with pytest.raises(TraceError, match=what):
            read_machines(written(tmp_path, header, *rows))


def test_tiresias_real_clusters(data_dir, oracle_dir):
    ours = {"n1g4": (1, 4, 1), "n32g4": (32, 4, 1), "n160g8": (160, 8, 5), "n256g8": (256, 8, 8),
            "cluster_spec": (16, 4, 1)}
    theirs = {"n4g4": (4, 4, 1), "n8g8": (8, 8, 1), "n32g8": (32, 8, 1)}
    for folder, nodes in ((data_dir, ours), (oracle_dir, theirs)):
        for name, (count, gpus, switches) in nodes.items():
            cluster = read_machines(folder / "tiresias" / f"{name}.csv")
            assert (len(cluster), set(cluster.gpus), len(set(cluster.rack))) == (count, {gpus}, switches), name


def test_real_workloads(data_dir, tmp_path):
    folder = data_dir / "pollux" / "workloads"
    blox = load_trace(folder / "blox_synthetic_load3_seed1.csv")
    assert len(blox) == 2000 and np.bincount(blox.num_gpus)[[1, 2, 4, 8]].tolist() == [1431, 192, 291, 86]
    for name, jobs in (("osdi_workload-6", 160), ("sia_newtrace_workload-1", 960), ("sia_philly_workload-1", 160),
                       ("sia_saturn_workload-1", 160)):
        rows = (folder / f"{name}.csv").read_text().split()
        times = written(tmp_path, TIMES, *sorted({",".join(row.split(",")[2:]) + ",100" for row in rows[1:]}),
                        name="times.csv")
        assert len(load_trace(folder / f"{name}.csv", run_times=str(times))) == jobs
