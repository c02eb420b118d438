"""Chronus (minutes, deadlines from the submission on) and ElasticFlow (seconds, deadlines on the clock)."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from traces.errors import TraceError
from traces.load import detect, load_trace

CHRONUS = ("job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,"
           "expect_value_list,best_effort,job_type")
ELASTIC = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration"


def written(folder, *lines):
    path = folder / "jobs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_chronus_by_hand_minutes_become_seconds(tmp_path):
    path = written(
        tmp_path, CHRONUS, "b,vc_11cb48,4,30,900,vgg16,20,1,45,10,0,strict",
        "a,vc_11cb48,1,10,5,alexnet,2,1,1,10,1,best",
        "c,ann,0,0,5,alexnet,2,1,9,10,0,strict", "d,ann,2,40,5,alexnet,0,1,9-30,10-5,0,strict",
    )
    assert detect(path).name == "chronus"
    trace = load_trace(path)
    assert trace.job_id.tolist() == ["a", "b", "d"]  # in order of submission; without the job that asks for no GPU
    assert trace.submit_s.tolist() == [600, 1800, 2400] and trace.duration_s.tolist() == [120, 1200, 0]
    assert np.isnan(trace.deadline_s[0]) and trace.deadline_s[1:].tolist() == [1800 + 2700, 2400 + 540]
    assert trace.user.tolist() == ["vc_11cb48", "vc_11cb48", "ann"] and trace.vc.tolist() == ["11cb48", "11cb48", ""]
    assert trace.model.tolist() == ["alexnet", "vgg16", "alexnet"] and set(trace.status) == {"unknown"}
    assert trace.provenance.counts == {
        "jobs with several deadlines: the first is taken": 1, "best-effort jobs: no deadline": 1,
        "CPU-only jobs dropped": 1, "zero-length jobs kept": 1,
    }
    assert trace.provenance.first["CPU-only jobs dropped"] == ("line 4",)


def test_chronus_in_seconds_as_elasticflow_converts_into_it(tmp_path):
    header = CHRONUS.replace("num_gpu,", "num_gpu,batch_size,")
    path = written(tmp_path, header, "a,user0,4,256,30,900,vgg16,20,0,45,10,0,strict")
    trace = load_trace(path, unit="s")
    assert (trace.submit_s[0], trace.duration_s[0], trace.deadline_s[0]) == (30, 20, 75)
    with pytest.raises(TraceError, match=r"option 'unit'.*got 'hours'; allowed: min, s"):
        load_trace(path, unit="hours")


@pytest.mark.parametrize("entry", ["", "soon", "-5", "9-", "1.5", "٣"])
def test_a_list_of_deadlines_that_is_none_is_named(tmp_path, entry):
    with pytest.raises(TraceError, match="line 2, column 'expect_time_list'"):
        load_trace(written(tmp_path, CHRONUS, f"a,u,1,1,5,vgg16,2,1,{entry},10,0,strict"))


def test_chronus_real_file(data_dir):
    trace = load_trace(data_dir / "chronus" / "trace_job_Philly_SLO.csv")
    # The data's index says 184 or more rows without a GPU: there are 205.
    assert trace.provenance.rows_read == 30_940 and trace.provenance.counts == {"CPU-only jobs dropped": 205}
    assert len(trace) == 30_735 and np.bincount(trace.num_gpus)[[1, 2, 4, 8, 16, 32]].tolist() == [
        28_319, 215, 1186, 894, 105, 13]
    assert trace.duration_s.min() == 20 * 60 and trace.submit_s[-1] == 20_151 * 60
    slack = (trace.deadline_s - trace.submit_s) / trace.duration_s
    assert 1.1 < slack.min() < slack.max() == 5 and len(set(trace.vc)) == 11


@pytest.mark.parametrize(("jobs", "result"), [("chr_SLO_1k", "none_SLO_1k_n30"), ("chr_MIX1_1k", "none_MIX1_1k_n30")])
def test_deadlines_are_those_that_chronus_counted_as_missed(oracle_dir, jobs, result):
    """Of every strict job: Chronus' own end lies after our deadline if and only if it said that it was missed."""
    trace = load_trace(oracle_dir / "chronus" / f"{jobs}.csv")
    deadline_min = dict(zip(trace.job_id, trace.deadline_s / 60, strict=True))
    with (oracle_dir / "chronus" / f"{result}.csv").open() as stream:
        theirs = list(csv.DictReader(stream))
    strict = [row for row in theirs if row["best_effort"] == "0"]
    assert len(theirs) == 1000 and len(strict) == np.isfinite(trace.deadline_s).sum()
    missed = [float(row["end_time"]) > deadline_min[row["job_id"]] for row in strict]
    assert missed == [float(row["miss_ddl"]) == 1 for row in strict]
    assert 1 - np.mean(missed) == pytest.approx({"chr_SLO_1k": 0.675, "chr_MIX1_1k": 0.740}[jobs], abs=5e-4)


def test_elasticflow_by_hand(tmp_path):
    path = written(tmp_path, ELASTIC + ",best_effort", "0,100,600,resnet50,150,256,4,60,0", "1,7,50,bert,9,64,1,5,1",
                   "2,90,50,bert,80,64,1,5,0", "3,1,1,bert,2,64,0,5,0")
    assert detect(path).name == "elasticflow"
    trace = load_trace(path)
    assert trace.job_id.tolist() == ["1", "2", "0"] and trace.num_gpus.tolist() == [1, 1, 4]
    assert np.isnan(trace.deadline_s[0]) and trace.deadline_s[1:].tolist() == [80, 150]  # on the clock, as written
    assert trace.work_iters.tolist() == [50, 50, 600] and trace.batch_size.tolist() == [64, 64, 256]
    assert trace.provenance.counts == {
        "best-effort jobs: no deadline": 1, "deadlines before the submission": 1, "CPU-only jobs dropped": 1}
    assert trace.provenance.notes == ("2 of 3 jobs cannot meet their deadline on the GPUs that they ask for",)


def test_elasticflow_layout_with_real_columns_is_checked(tmp_path):
    header = "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration"
    trace = load_trace(written(tmp_path, header, "0,0,10,vgg16,50,64,1,30,30,10", "1,0,10,vgg16,50,64,1,31,30,11"))
    assert trace.provenance.counts == {
        "rows where real_duration is not duration": 1, "rows where real_iteration is not iteration": 1}
    assert trace.duration_s.tolist() == [30, 30] and trace.work_iters.tolist() == [10, 11]


def test_elasticflow_real_file_has_the_run_times_that_its_throughputs_give(data_dir):
    """iterations / rate of the measured table on A100, for batch size and GPUs of each job, is the run time."""
    trace = load_trace(data_dir / "elasticflow" / "philly_103959.csv")
    assert len(trace) == 876 and trace.provenance.counts == {}
    rates = {}
    for path in (data_dir / "elasticflow" / "throughputs_A100").glob("*.csv"):
        with path.open() as stream:
            for row in csv.DictReader(stream):
                rates[path.stem, int(row["global_batch_size"])] = row
    for row in range(len(trace)):
        rate = float(rates[trace.model[row], int(trace.batch_size[row])][str(trace.num_gpus[row])])
        assert trace.work_iters[row] / rate == pytest.approx(trace.duration_s[row], rel=1e-3), row


def test_elasticflow_inputs_of_its_published_results(oracle_dir):
    for name, jobs in (("100jobs_1500lam", 100), ("elasticVpollux_e", 195)):
        trace = load_trace(oracle_dir / "elasticflow" / f"{name}.csv")
        assert len(trace) == jobs and (trace.deadline_s > trace.submit_s).all()
    with (oracle_dir / "elasticflow" / "8a_edf.csv").open() as stream:
        theirs = {row["job_id"]: row for row in csv.DictReader(stream)}
    for row, job in enumerate(trace.job_id):
        assert float(theirs[job]["submit_time"]) == trace.submit_s[row]
        assert float(theirs[job]["ddl"]) == trace.deadline_s[row]


def test_iterations_at_rates_of_others_are_work_only_at_measured_rates(tmp_path):
    """At the zoo's rates 600 iterations of ResNet-50 are not the 60 s that they took: the run time is the work."""
    from sim.settings.config import RunConfig
    from sim.workload.prepare import prepare
    from tests.helpers import nodes

    path = written(tmp_path, ELASTIC, "0,0,600,resnet50,150,256,1,60", "1,1,600,deepspeech9,150,256,1,60")
    # 256 images on one V100 fit in mixed precision only.
    work = prepare(RunConfig(trace=str(path), calibration="tuned"), nodes(("V100", 1, 8)))
    assert np.isnan(work.trace.work_iters).all() and work.true_s == pytest.approx([60, 60], rel=1e-12)
    assert "2 jobs have iterations at the rates of ElasticFlow's throughputs" in "".join(work.trace.provenance.notes)
    rates = tmp_path / "throughputs_V100"
    rates.mkdir()
    (rates / "resnet50.csv").write_text("global_batch_size,1,2\n256,5,9\n")
    measured = prepare(RunConfig(trace=str(path), measured=str(rates), calibration="tuned"), nodes(("V100", 1, 8)))
    assert measured.truth.work_total[0] == 600 and measured.true_s == pytest.approx([120, 60], rel=1e-12)


def test_a_job_whose_model_is_replaced_does_not_keep_the_iterations_of_the_other(tmp_path):
    from sim.settings.config import RunConfig
    from sim.workload.prepare import prepare
    from tests.helpers import nodes

    path = tmp_path / "own.csv"
    path.write_text("job_id,submit_s,duration_s,num_gpus,model,batch_size,work_iters\n"
                    "a,0,60,1,resnet50,64,600\nb,1,60,1,deepspeech9,64,600\n")
    work = prepare(RunConfig(trace=str(path)), nodes(("V100", 1, 8)))
    assert work.truth.work_total[0] == 600
    assert np.isnan(work.trace.work_iters[1]) and work.true_s[1] == pytest.approx(60, rel=1e-12)


def test_ids_and_users_are_text_whatever_they_look_like(tmp_path):
    """Ids above 2**53 stay apart (P-21), and users may be called NA or nan (P-22)."""
    big = ("1925036343869802844", "1925036343869802843")
    rows = [f"{job},{user},1,1,5,vgg16,2,1,9,10,0,strict" for job, user in zip((*big, "007"), ("NA", "nan", "uA"),
                                                                            strict=True)]
    trace = load_trace(written(tmp_path, CHRONUS, *rows))
    assert set(trace.job_id) == {*big, "007"} and set(trace.user) == {"NA", "nan", "uA"}
