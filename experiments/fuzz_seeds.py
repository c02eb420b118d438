"""Whole files for `fuzz_traces.py` to damage: a small one of each format, made up, and the beginnings of real ones."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from traces.errors import TraceError
from traces.load import detect

REAL_ROWS, REAL_BYTES = 50, 20_000


@dataclass(frozen=True)
class Seed:
    """A file that is whole, to be damaged.

    `format` is what reads it ("": only its content tells), `name` how the file is called, `beside` files that lie
    beside it, and `folder` whether the folder is what is read. `paths` are options whose values are files beside it, by
    name. `machines`: a side table of machines, not a trace.
    """

    format: str
    name: str
    data: bytes
    beside: tuple[tuple[str, bytes], ...] = ()
    folder: bool = False
    paths: tuple[tuple[str, str], ...] = ()
    machines: bool = False


def _csv(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _parquet() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({
        "job_id": ["a", "b", "c"], "submit_s": [0.0, 5.5, 9.0], "duration_s": [60.0, 0.0, 1e5],
        "num_gpus": pa.array([1, 8, 2], pa.int32()), "user": ["NA", "u1", None],
    }), stream)
    return stream.getvalue()


_PHILLY_LOG = json.dumps([
    {"status": "Pass", "vc": "v1", "jobid": "application_1_1", "user": "u1", "submitted_time": "2017-10-07 01:00:00",
     "attempts": [{"start_time": "2017-10-07 01:00:10", "end_time": "2017-10-07 01:01:00",
                   "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
                  {"start_time": "2017-10-07 01:02:00", "end_time": "None",
                   "detail": [{"ip": "m2", "gpus": ["gpu7"]}]}]},
    {"status": "Killed", "vc": "v2", "jobid": "application_1_2", "user": "u2", "submitted_time": "2017-11-05 00:30:00",
     "attempts": [{"start_time": "2017-11-05 00:45:00", "end_time": "2017-11-05 03:00:00",
                   "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
    {"status": "Failed", "vc": "v2", "jobid": "application_1_3", "user": "u2", "submitted_time": "None",
     "attempts": []},
], indent=1).encode()

_GAVEL = "ResNet-18 (batch size 64)\tpython3 main.py --b 64\timage/cifar10\t--num_steps\t1\t{}\t{}\t1\t-1.000000\t{}"
_RATES = json.dumps({
    gpu: {f"('ResNet-18 (batch size 64)', {n})": {"null": 20.0 * n} for n in (1, 2, 4)}
    for gpu in ("v100", "p100", "k80")
}).encode()

_PAI_RAW = (
    ("pai_task_table.csv", _csv("j1,worker,2,Terminated,100,400,600,30,50,T4", "j2,ps,1,Running,,,600,30,,",
                                "j3,worker,1,Failed,50,90,600,30,200,MISC")),
    ("pai_job_table.csv", _csv("j1,i1,u1,Terminated,90,410", "j2,i2,u2,Running,10,", "j3,i3,u2,Failed,40,95")),
    ("pai_instance_table.csv", _csv("j1,worker,a,w1,i1,Terminated,120,390,m1",
                                    "j1,worker,b,w2,i1,Terminated,130,400,m1",
                                    "j2,ps,c,w3,i2,Waiting,,,", "j3,worker,d,w4,i3,Failed,60,90,m2")),
    ("pai_group_tag_table.csv", _csv("i1,u1,T4,g1,ctr", "i3,u2,,g2,")),
    ("pai_sensor_table.csv", _csv("j1,worker,w1,i1,m1,/dev/nvidia0,100,30,1,2,0.5,1,1,1,1,1",
                                  "j1,worker,w2,i1,m1,/dev/nvidia0,100,20.5,1,2,0.5,1,1,1,1,1")),
)

SEEDS: tuple[Seed, ...] = (
    Seed("canonical", "own.csv", _csv(
        "job_id,submit_s,duration_s,num_gpus,gpu_milli,user,status,estimate_s,deadline_s,work_iters",
        "a,0,60,1,500,NA,passed,,,", "b,5.5,0,8,1000,nan,failed,70,1000.25,5", "c,5.5,1e5,2,1000,\"x,y\",killed,,,")),
    Seed("canonical", "submitted.csv", _csv(
        "job_id,submit_s,duration_s,num_gpus,deadline_s,deadline_kind,group,recurrence,cpus,memory_gib,min_gpus,max_gpus,"
        "batch_size,min_batch_size,max_batch_size",
        "a,0,60,2,900,soft,g1,r1,16,64.5,1,8,32,16,64", "b,5,60,1,,,NA,,,,0,0,0,0,0",
        "c,9,7,4,50,strict,,r1,0,1,4,4,8,8,9")),
    Seed("canonical", "own.parquet", _parquet()),
    Seed("mapped", "mine.csv", _csv(
        "task;came;ran;gpus;queue;state;limit", "a;1507532515000;10;4;x;DONE;60", "b;1507532500000;20;0;x;LOST;",
        "c;1507539715500;1.5;0.5;y;GONE;5", "d;1507539715500;;2;y;DONE;5"),
        beside=(("map.toml", _csv(
            "[columns]", 'id = "task"', 'submit = "came"', 'duration = "ran"', 'gpus = "gpus"', 'vc = "queue"',
            'status = "state"', 'estimate = "limit"', "[units]", 'submit = "ms"', 'duration = "min"',
            'estimate = "min"', "[status]", 'passed = "DONE"', 'killed = ["LOST", "GONE"]')),),
        paths=(("map", "map.toml"),)),
    Seed("mapped", "dates.tsv", _csv(
        "created\tstarted\tended\tnodes\tgpus", "2017-10-09T07:01:55Z\t2017-10-09 07:02:00\t2017-10-09 08:00\t2\t8",
        "2017-11-05 01:30:00\t2017-11-05 01:31:00.5\tNone\t1\t1", "2017-10-10\t2017-10-10 01:00\t2017-10-11\t3\t8"),
        beside=(("map.toml", _csv(
            "[columns]", 'submit = "created"', 'start = "started"', 'end = "ended"', 'gpus = "gpus"',
            'workers = "nodes"', "[calendar]", 'zone = "America/Los_Angeles"')),), paths=(("map", "map.toml"),)),
    Seed("philly-csv", "philly.csv", _csv(
        "timestamp,duration,num_gpus,gpu_time,cluster", "2017-10-09 07:01:55,66.0,1,66.0,v1",
        "2017-10-09 06:13:03,2951.0,2,5902.0,v2", "2017-11-05 01:30:00,10.0,0,0.0,v2",
        "2017-10-09 06:13:03,2951.0,2,5902.0,v2")),
    Seed("philly-log", "cluster_job_log", _PHILLY_LOG),
    Seed("itp", "cluster01.csv", _csv(
        "job_id,submission_time,duration,num_gpu", "965d-1,1932025,2429,64", "fb10-2,2000581,1532,1", "x,0,600,8")),
    Seed("itp", "cluster01.csv", _csv("job_id,submission_time,duration,num_gpu", "1,10,2429,4", "2,20,1532,1"),
         beside=(("cluster02.csv", _csv("job_id,submission_time,duration,num_gpu", "3,5,700,8")),), folder=True),
    Seed("pai", "pai_job.csv", _csv(
        "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user", "0,1.0,0,2.0,0.0,CPU,34,u1",
        "1,12.0,3,6.0,0.25,T4,15748,u1", "2,2,7,6.0,2,V100M32,500,u2", "3,1,9,6.0,1,MISC,0,NA")),
    Seed("tiresias", "60_job.csv", _csv(
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval", "0,1,0,606,vgg19,164,30",
        "1,8,30,133,vgg11,147,23", "2,0,53,1,alexnet,5,0")),
    Seed("openb", "openb_pod_list_default.csv", _csv(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
        "pod-0,12000,16384,1,1000,,LS,Running,0,12537496,0",
        "pod-1,6000,12288,1,460,,LS,Succeeded,427061,427900,427062",
        "pod-2,6000,1,8,1000,V100M16|V100M32,BE,Failed,5,99,6", "pod-3,6000,1,1,1000,,BE,Pending,5,99,",
        "pod-4,6000,1,0,0,,BE,Running,5,99,6")),
    Seed("helios", "cluster_log.csv", _csv(
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
        "1,u1,vcA,8,64,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 01:00:20,3600,10",
        "2,u2,vcB,0,4,1,FAILED,2020-04-01 00:00:11,2020-04-01 00:00:20,2020-04-01 00:00:30,10,9",
        "3,u2,vcB,16,4,2,TIMEOUT,2020-04-02 00:00:11,2020-04-02 00:00:20,2020-04-02 00:00:30,10,9",
        "4,u2,vcB,1,4,1,CANCELLED,2020-04-02 00:00:11,None,2020-04-02 00:00:30,0,19")),
    Seed("acme", "trace_seren.csv", _csv(
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time",
        "a1,u1,2,16,32,Pretrain,COMPLETED,2023-03-01 10:00:00+08:00,2023-03-01 10:00:05+08:00,"
        "2023-03-01 11:00:05+08:00,3600,5,57600",
        "a2,u2,1,1,4,Eval,FAILED,2023-03-01 10:00:00+08:00,2023-03-01 10:00:05+08:00,2023-03-01 10:00:35+08:00,30,5,30",
        "a3,u2,1,0,4,Other,CANCELLED,2023-03-01 10:00:00+08:00,2023-03-01 10:00:05+08:00,"
        "2023-03-01 10:00:35+08:00,30,5,0")),
    Seed("gavel", "small.trace", _csv(*(_GAVEL.format(*row) for row in ((4000, 1, 0), (9000, 2, 10.5), (50, 4, 99)))),
         beside=(("simulation_throughputs.json", _RATES),)),
    Seed("gavel", "msr.trace", _csv(*(
        f"ResNet-18 (batch size 64)\tcd %s && python3 main.py\t--num_steps\t1\t{steps}\t{at}\t{gpus}"
        for steps, at, gpus in ((4000, 0.0, 1), (9000, 6.0, 2), (50, 6.0, 4)))),
        beside=(("simulation_throughputs.json", _RATES),)),
    Seed("shockwave", "120_job.trace", _csv(*(
        f"ResNet-18 (batch size 64)\tpython3 main.py\timage\t--num_steps\t1\t{steps}\t{gpus}\t{mode}\t1\t-1.000000\t"
        f"{run}\t{at}" for steps, gpus, mode, run, at in (
            (4000, 1, "static", 200, 0.0), (9000, 2, "accordion", 300, 6.5), (50, 4, "gns", 10, 6.5))))),
    Seed("chronus", "trace_job_Philly_SLO.csv", _csv(
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,"
        "best_effort,job_type", "0,vc_a,4,12198,6910,resnet101,211,8,282,10,0,strict",
        "1,vc_b,1,19772,8897,alexnet,31,6,88-99-120,10-8-5,0,soft", "2,vc_b,0,1,1,alexnet,31,6,1,10,1,best")),
    Seed("elasticflow", "philly_x.csv", _csv(
        "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration",
        "0,0,1282877,vgg16,771220,256,1,976570,976570,1282877", "1,219316,100,vgg16,2065619,64,4,1792395,1792395,100")),
    Seed("muri", "muri.csv", _csv(
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
        "resource_time_0,resource_time_1,resource_time_2,priority",
        "1,1,0,1000,vgg19,16,150000,30,150,1,2,3,0", "2,4,30000,10,bert,4,5000,0,500,1,2,3,1")),
    Seed("blox", "blox.csv", _csv("job,submit_s,gpus,duration_s", "0,174,1,348277.862", "1,1892,8,7040.023")),
    Seed("pollux", "workload-1.csv", _csv(
        "name,time,application,num_replicas,batch_size", "cifar10-0,53,cifar10,6,2048", "bert-1,154,bert,8,384"),
        beside=(("times.csv", _csv("application,num_replicas,batch_size,duration_s", "cifar10,6,2048,1800",
                                   "bert,8,384,9000.5")),), paths=(("run_times", "times.csv"),)),
    Seed("swf", "log.swf", _csv(
        "; Version: 2.2", "; UnixStartTime: 820454400", "; TimeZoneString: Europe/Oslo", "; MaxProcs: 128",
        "1 0 10 3600 8 -1 -1 8 7200 -1 1 3 1 -1 1 1 -1 -1", "2 60 -1 -1 4 -1 -1 4 -1 -1 5 4 1 -1 1 1 -1 -1",
        "3 61 0 5 16 -1 -1 -1 60 -1 0 4 1 -1 1 2 -1 -1", "4 99 0 5 16 -1 -1 -1 60 -1 2 4 1 -1 1 2 -1 -1")),
    Seed("alibaba-2025", "disaggregated_DLRM_trace.csv", _csv(
        "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,rdma_request,rdma_limit,memory_request,"
        "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time",
        "i-0,CN,app-1,8,8,0,1,1,16,16,10,10,-1,,,", "i-1,HN,app-1,8,8,1,25,100,16,16,10,10,-1,5.5,6,90",
        "i-2,HN,app-2,8,8,2,25,100,16,16,10,10,1,,,1000", "i-3,HN,app-2,8,8,0.5,25,100,16,16,10,10,1,70,71,")),
    Seed("alibaba-2026", "job_info_df.csv", _csv(
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type",
        "j-1,o1,A10,4,1,1,0,1000,HP", "j-2,o1,A100-SXM4-80GB,8,8,4,5,60000,Spot", "j-3,o2,H800,4,0.25,2,9,0,Spot",
        "j-4,o2,A10,4,0,1,9,5,HP")),
    *(Seed("pai-raw", name, data, beside=tuple(pair for pair in _PAI_RAW if pair[0] != name), folder=True)
      for name, data in _PAI_RAW),
    Seed("capacity", "capacity.csv", _csv("time_s,vc,gpu_type,gpus", ",v1,V100,8", "3600,v1,V100,64", "0,,T4,4"),
         machines=True),
    Seed("openb", "openb_node_list_gpu_node.csv", _csv(
        "sn,cpu_milli,memory_mib,gpu,model", "openb-node-0000,64000,262144,2,P100", "openb-node-0001,32000,262144,0,"),
        machines=True),
    Seed("philly", "cluster_machine_list", _csv("machineId,number of GPUs, single GPU mem", "m1,2, 12GB", "m2,8, 24GB"),
         beside=(("cluster_job_log", _PHILLY_LOG),), paths=(("job_log", "cluster_job_log"),), machines=True),
    Seed("tiresias", "n32g4.csv", _csv("num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node",
                                      "1,32,4,40,256"), machines=True),
    Seed("helios", "cluster_gpu_number.csv", _csv("date,vcA,vcB,total", "2020-04-01,0,64,64", "2020-04-02,8,64,72"),
         machines=True),
    Seed("pai", "pai_machine_spec.csv", _csv("m1,MISC,96,512,8", "m2,CPU,64,512,0", "m3,V100M32,96,512,8"),
         machines=True),
    Seed("alibaba-2026", "node_info_df.csv", _csv(
        "node_name,gpu_model,gpu_capacity_num,cpu_num", "n-1,A10,1,128", "n-2,H800,8,192"), machines=True),
)
"""At least one of each format of `FORMATS`, and of each form of machine list (the tests see to it)."""


def real_seeds(data: Path) -> tuple[Seed, ...]:
    """The first 50 rows (at most 20 kB) of each trace under a folder of real files; one of those with one header."""
    found: dict[tuple[str, bytes], Seed] = {}
    for path in sorted(file for file in data.rglob("*") if file.is_file()):
        try:
            name = detect(path).name
        except TraceError:
            continue
        with path.open("rb") as stream:
            start = stream.read(REAL_BYTES)
        rows = start.split(b"\n")
        text = b"\n".join(rows[: min(REAL_ROWS + 1, max(len(rows) - 1, 1))])
        key = (name, rows[0].split(b"(", 1)[0][:200])
        found.setdefault(key, Seed(name, path.name, start if path.suffix == ".json" else text))
    return tuple(found.values())
