"""Other simulators beside this one, with a tiny one of our own in their place that reads and prints their formats."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.measuring import BenchError
from benchmarks.peers import __main__ as command
from benchmarks.peers.gavel import MODEL, Gavel
from benchmarks.peers.pai import Pai
from benchmarks.peers.peer import compare, whole_seconds
from benchmarks.peers.tiresias import Tiresias
from traces.trace import Trace

JOBS = {"job_id": ["x", "y", "z", "wide"], "submit_s": [1000.2, 1000.4, 1010.2, 1020.0],
        "duration_s": [100.0, 50.3, 0.2, 9.0], "num_gpus": [2, 1, 1, 64]}

#: Plays jobs of one column each, in the formats of the Tiresias simulator, one after the other on all GPUs.
SERIAL = """
import csv, os, sys
options = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
(cluster,) = csv.DictReader(open(options["cluster_spec"]))
assert int(cluster["num_switch"]) * int(cluster["num_node_p_switch"]) * int(cluster["num_gpu_p_node"]) == 2
assert (options["scheme"], options["schedule"]) == ("count", "fifo")
os.mkdir(options["log_path"])
with open(options["log_path"] + "/job.csv", "w", newline="") as file:
    out, now = csv.writer(file), 0
    out.writerow(["time", "job_id", "submit_time", "end_time"])
    for job in list(csv.DictReader(open(options["trace_file"])))[SKIPPED:]:
        now = max(now, int(job["submit_time"])) + int(job["duration"])
        out.writerow([now, job["job_id"], job["submit_time"], now])
"""


@pytest.fixture
def trace():
    return whole_seconds(Trace.from_columns(JOBS), 2)


def serial(folder, skipped=0):
    """A checkout with the simulator above."""
    (folder / "simulator").mkdir(parents=True)
    (folder / "simulator" / "run_sim.py").write_text(SERIAL.replace("SKIPPED", str(skipped)))
    return folder


def test_jobs_are_brought_to_whole_seconds_from_0_and_those_that_fit(trace):
    assert trace.submit_s.tolist() == [0, 0, 10]
    assert trace.duration_s.tolist() == [100, 50, 1]
    assert trace.num_gpus.tolist() == [2, 1, 1]
    assert whole_seconds(Trace.from_columns(JOBS), 64, (2, 64)).num_gpus.tolist() == [2, 64]
    with pytest.raises(BenchError, match="no job asks for 4 of 64 GPUs"):
        whole_seconds(Trace.from_columns(JOBS), 64, (4,))


def test_completion_times_and_their_differences(tmp_path, trace):
    """Ours, on two GPUs: 100, 150 and 101 - 10. One after the other: 100, 150 and 151 - 10."""
    found = compare(Tiresias(), trace, "fifo", 1, 2, serial(tmp_path), sys.executable)
    assert (found.jobs, found.equal, found.furthest_s) == (3, 2, 50)
    assert found.ours_jct_s == pytest.approx((100 + 150 + 91) / 3)
    assert found.theirs_jct_s == pytest.approx((100 + 150 + 141) / 3)
    assert min(found.ours_cpu_s, found.theirs_cpu_s, found.ours_mib, found.theirs_mib) > 0
    assert "of 3 jobs 2 end within a second of ours; the furthest is 50 s away" in found.text


def test_runs_that_finish_other_jobs_are_not_compared(tmp_path, trace):
    with pytest.raises(BenchError, match="tiresias finished 2 jobs, we 3"):
        compare(Tiresias(), trace, "fifo", 1, 2, serial(tmp_path, skipped=1), sys.executable)


def test_a_policy_that_it_lacks_names_those_that_it_has(tmp_path, trace):
    with pytest.raises(BenchError, match="tiresias: no policy easy; there are fifo, fifo-skip, srtf, srsf"):
        compare(Tiresias(), trace, "easy", 1, 2, tmp_path, sys.executable)


def test_gavel_gets_steps_for_seconds_and_its_lines_are_read(tmp_path, trace):
    (tmp_path / "scheduler").mkdir()
    rates = {"v100": {str((MODEL, 1)): {"null": 2.5}, str((MODEL, 2)): {"null": 4.0}}}
    (tmp_path / "scheduler" / "simulation_throughputs.json").write_text(json.dumps(rates))
    Gavel().write(trace, 1, 2, tmp_path, tmp_path)
    rows = [line.split("\t") for line in (tmp_path / "their.trace").read_text().splitlines()]
    assert [(row[0], row[5], row[6], row[9]) for row in rows] == [
        (MODEL, "400", "2", "0"), (MODEL, "125", "1", "0"), (MODEL, "2", "1", "10")]
    said = "Job 9: started\nJob completion times:\nJob 0: 360.000\nJob 2: 720.125\nAverage job completion time: 1\n"
    assert Gavel().ends_s(tmp_path, said) == {0: 360.0, 2: 720.125}
    with pytest.raises(BenchError, match=r"no ResNet-50 .* on 64 GPUs"):
        Gavel().write(whole_seconds(Trace.from_columns(JOBS), 64), 8, 8, tmp_path, tmp_path)


PAI = """
class Simulator:
    def __init__(self, csv_file, num_gpus, num_jobs_limit, alloc_policy, hetero, arrival_rate, **more):
        import csv
        jobs = list(csv.DictReader(open(csv_file)))
        assert (num_gpus, num_jobs_limit, alloc_policy, hetero, arrival_rate) == (2, len(jobs) + 1, 8, False, None)
        done = [{"job_id": int(job["job_id"]), "jct": 100 + int(job["job_id"])} for job in jobs]
        self.cluster = type("Cluster", (), {"job_history": type("History", (), {"job_done_list": done})})

    def simulator_go(self, repeat):
        print("a word of its own")
"""


def test_pai_is_called_with_our_jobs_and_its_list_is_read(tmp_path, trace):
    folder = tmp_path / "cluster-trace-gpu-v2020" / "simulator"
    folder.mkdir(parents=True)
    (folder / "simulator.py").write_text(PAI)
    found = compare(Pai(), trace, "fifo-skip", 1, 2, tmp_path, sys.executable)
    assert found.theirs_jct_s == 101


def test_a_folder_that_is_not_there_ends_with_2(tmp_path, capsys):
    assert command.main(["tiresias", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
