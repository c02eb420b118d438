"""Microsoft ITP: files of clusters, alone and together, and the layout with models and deadlines drawn."""

from __future__ import annotations

import numpy as np
import pytest

from traces.errors import TraceError
from traces.load import detect, load_trace

ITP = "job_id,submission_time,duration,num_gpu\n"
DRAWN = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"


def written(folder, text, name):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


def test_each_column_and_no_final_newline(tmp_path):
    trace = load_trace(written(tmp_path, ITP + "a-b,20,700,8\nc-d,10,0,1\ne-f,5,60,0", "cluster01.csv"))
    assert trace.job_id.tolist() == ["c-d", "a-b"] and trace.submit_s.tolist() == [10, 20]
    assert trace.duration_s.tolist() == [0, 700] and trace.num_gpus.tolist() == [1, 8]
    assert set(trace.vc) == {"cluster01"} and set(trace.status) == {"unknown"}
    assert trace.provenance.counts == {"CPU-only jobs dropped": 1, "zero-length jobs kept": 1}
    assert trace.provenance.first["CPU-only jobs dropped"] == ("line 4",)
    assert trace.provenance.epoch_s is None  # the day is told, the hour is not


def test_a_folder_is_one_trace_and_places_name_the_file(tmp_path):
    written(tmp_path, ITP + "a,20,700,8\n", "cluster01.csv")
    written(tmp_path, ITP + "b,10,0,1\n", "cluster02.csv")
    trace = load_trace(tmp_path)
    assert trace.vc.tolist() == ["cluster02", "cluster01"]
    assert trace.provenance.first == {"zero-length jobs kept": ("cluster02.csv, line 2",)}
    assert trace.provenance.notes == ("2 cluster file(s) read",)


def test_models_and_deadlines_of_the_second_layout_are_read_and_said_to_be_drawn(tmp_path):
    path = written(tmp_path, DRAWN + "a,100,40285,bert,4900,64,4,3890\n", "cluster01.csv")
    assert detect(path).name == "itp"
    trace = load_trace(path)
    assert trace.deadline_s.tolist() == [4900] and trace.work_iters.tolist() == [40_285]
    assert trace.model.tolist() == ["bert"] and trace.batch_size.tolist() == [64]
    assert trace.num_gpus.tolist() == [4] and trace.duration_s.tolist() == [3890]
    assert "models, batches, iterations and deadlines are drawn" in trace.provenance.notes


def test_a_job_that_is_in_two_clusters_is_named(tmp_path):
    written(tmp_path, ITP + "a,20,700,8\n", "cluster01.csv")
    written(tmp_path, ITP + "a,10,100,1\n", "cluster02.csv")
    with pytest.raises(TraceError, match="duplicate job id"):
        load_trace(tmp_path)


def test_the_six_public_clusters_hold_39480_jobs(data_dir):
    """Six files of ten. A count of 31,411 for them, met in a list of these data, is not what the files hold."""
    files = sorted((data_dir / "itp").glob("*.csv"))
    jobs = {file.stem: len(load_trace(file)) for file in files}
    assert jobs == {"cluster01": 1595, "cluster03": 3011, "cluster04": 15_802, "cluster05": 3629, "cluster06": 2396,
                    "cluster08": 13_047}
    whole = load_trace(data_dir / "itp")
    assert len(whole) == whole.provenance.rows_read == 39_480 == sum(jobs.values())
    assert whole.provenance.counts == {}  # clean: no job without GPUs, none of no length


def test_jobs_under_ten_minutes_are_absent(data_dir):
    trace = load_trace(data_dir / "itp")
    assert trace.duration_s.min() == 600 and np.quantile(trace.duration_s, 0.5) > 10_000
    assert round((trace.duration_s * trace.num_gpus).sum() / 3600) == 1_099_147  # of 1,632,720 in all ten
