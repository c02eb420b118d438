"""Every reader on the genuine files: the numbers below were counted in the files by other means."""

from __future__ import annotations

import numpy as np
import pytest

from traces.errors import TraceError
from traces.load import detect, load_trace


def test_philly_csv_all_82247_jobs(data_dir):
    trace = load_trace(data_dir / "philly" / "philly.csv")
    assert len(trace) == trace.provenance.rows_read == 82_247
    assert trace.provenance.counts == {"exact duplicate rows kept": 65}
    assert trace.duration_s.max() == 4_628_226 and trace.duration_s.min() == 1
    assert dict(zip(*np.unique(trace.num_gpus, return_counts=True), strict=True)) == {
        1: 76_627,
        2: 1818,
        4: 1870,
        8: 1643,
        12: 7,
        16: 199,
        24: 7,
        32: 67,
        64: 6,
        128: 3,
    }
    assert trace.submit_s[0] == 0 and (np.diff(trace.submit_s) >= 0).all()
    # 2017-09-04 10:30:41 to 2017-12-22 08:02:11 is 108 days, 21 h 31 min 30 s.
    assert trace.submit_s[-1] == 108 * 86_400 + 21 * 3600 + 31 * 60 + 30
    assert trace.provenance.epoch_s == 1_504_521_041
    assert set(trace.status) == {"unknown"}


def test_philly_csv_jobs_of_one_second_keep_the_order_of_the_file(data_dir):
    trace = load_trace(data_dir / "philly" / "philly.csv")
    same = np.diff(trace.submit_s) == 0
    row = trace.job_id.astype(int)
    assert same.sum() > 6000 and (np.diff(row)[same] > 0).all()


def test_philly_csv_can_drop_exact_duplicates(data_dir):
    trace = load_trace(data_dir / "philly" / "philly.csv", duplicates="drop")
    assert len(trace) == 82_247 - 65
    assert trace.provenance.counts == {"exact duplicate rows dropped": 65}


def test_philly_log_sample(data_dir):
    path = data_dir / "philly" / "cluster_job_log.sample.json"
    for rule, first_s, second_s in [("sum", 193_256, 43), ("last", 193_182, 43), ("span", 193_263, 469)]:
        trace = load_trace(path, attempts=rule)
        assert trace.job_id.tolist() == ["application_1506638472019_14199", "application_1506638472019_16565"]
        assert trace.duration_s.tolist() == [first_s, second_s]
        assert trace.num_gpus.tolist() == [8, 1] and trace.attempts.tolist() == [2, 4]
        assert trace.vc.tolist() == ["ee9e8c", "6214e9"] and trace.user.tolist() == ["ce2f4c", "2c46d5"]
        assert trace.provenance.counts == {
            "attempts without an end": 2,
            "attempts with an end and no start": 1,
            "jobs without attempts dropped": 1,
        }


def test_philly_machine_list_and_utilisation(data_dir):
    from traces.machines.philly_nodes import read_machines
    from traces.machines.philly_use import read_all_use

    philly = data_dir / "philly"
    machines = read_machines(
        philly / "cluster_machine_list.sample.csv", philly / "cluster_job_log.sample.json"
    )
    gpus = dict(zip(machines.name.tolist(), machines.gpus.tolist(), strict=True))
    assert gpus["m31"] == 8 and machines.gpu_memory_gib[machines.name == "m31"].tolist() == [24.0]
    assert gpus["m47"] == 8 and machines.about.counts == {"machines seen but not listed": 4}
    with pytest.raises(TraceError, match="line 1"):
        read_all_use(philly / "cluster_machine_list.sample.csv")


def test_itp_six_clusters_as_one_folder_and_one_by_one(data_dir):
    whole = load_trace(data_dir / "itp")
    parts = [load_trace(p) for p in sorted((data_dir / "itp").glob("*.csv"))]
    assert [len(p) for p in parts] == [1595, 3011, 15_802, 3629, 2396, 13_047]
    assert len(whole) == 39_480 == sum(map(len, parts))
    assert whole.duration_s.min() == 600 and whole.num_gpus.max() == 64
    assert whole.duration_s.sum() == sum(p.duration_s.sum() for p in parts)
    assert sorted(set(whole.vc)) == [f"cluster0{i}" for i in (1, 3, 4, 5, 6, 8)]


def test_pai_first_five_jobs(data_dir):
    trace = load_trace(data_dir / "pai" / "pai_job_no_estimate_100K.head5.csv")
    assert trace.provenance.counts == {"CPU-only jobs dropped": 1}
    assert trace.job_id.tolist() == ["1", "2", "3", "4"]
    assert trace.num_gpus.tolist() == [12, 1, 1, 1] and trace.gpu_milli.tolist() == [250, 1000, 1000, 1000]
    assert trace.gpu_type.tolist() == ["T4", "", "T4", ""]  # MISC is any type
    assert trace.duration_s.tolist() == [15_748, 84, 46, 80]


def test_pai_oracle_input_with_wide_instances_and_estimates(oracle_dir):
    trace = load_trace(oracle_dir / "pai" / "pai_philly_1k.csv", estimate_column="user_dur")
    assert len(trace) == 1000 and trace.estimate_s[0] == 1144.0
    # 991 jobs of 1 GPU, 6 of 2 and 3 of 8, each one instance: all GPUs of a job on one node.
    assert np.bincount(trace.num_gpus).tolist() == [0, 991, 6, 0, 0, 0, 0, 0, 3]
    assert (trace.worker_gpus == trace.num_gpus).all()
    assert np.isnan(load_trace(oracle_dir / "pai" / "pai_philly_1k.csv").estimate_s).all()


def test_tiresias_60_jobs_and_oracle_windows(data_dir, oracle_dir):
    trace = load_trace(data_dir / "tiresias" / "60_job.csv")
    assert len(trace) == 60 and trace.model[0] == "vgg19" and trace.num_gpus[1] == 8
    assert trace.submit_s[:2].tolist() == [0, 30] and trace.duration_s[:2].tolist() == [164, 147]
    assert len(load_trace(oracle_dir / "tiresias" / "philly_5k.csv")) == 5000


def test_tiresias_window_is_the_philly_file_cut_to_a_day(data_dir, oracle_dir):
    window = load_trace(oracle_dir / "tiresias" / "philly_1k.csv")
    philly = load_trace(data_dir / "philly" / "philly.csv")
    start_s = 1_507_507_200 - philly.provenance.epoch_s  # 2017-10-09T00:00:00Z
    first = int(np.searchsorted(philly.submit_s, start_s))
    rows = slice(first, first + 1000)
    assert (philly.num_gpus[rows] == window.num_gpus).all()
    assert (np.minimum(philly.duration_s[rows], 86_400) == window.duration_s).all()
    assert (philly.submit_s[rows] - philly.submit_s[first] == window.submit_s).all()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("philly/philly.csv", "philly-csv"),
        ("philly/cluster_job_log.sample.json", "philly-log"),
        ("itp", "itp"),
        ("itp/cluster01.csv", "itp"),
        ("pai/pai_job_no_estimate_100K.head5.csv", "pai"),
        ("tiresias/60_job.csv", "tiresias"),
    ],
)
def test_formats_are_found_out_from_the_content(data_dir, file, name):
    assert detect(data_dir / file).name == name
