"""Gavel's and Shockwave's traces: job types and steps become models, iterations, deadlines and run times."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from traces.errors import TraceError
from traces.load import detect, load_trace
from traces.readers.gavel_rates import read_rates

RATES = {
    "v100": {"('ResNet-18 (batch size 16)', 1)": {"null": 10.0}, "('ResNet-18 (batch size 16)', 2)": {"null": 16.0},
             "('A3C', 1)": {"null": 4.0}, "('Recommendation (batch size 512)', 1)": {"null": 5.0}},
    "p100": {"('ResNet-18 (batch size 16)', 1)": {"null": 5.0}, "('A3C', 1)": {"null": 0},
             "('Recommendation (batch size 512)', 1)": {"null": 50.0}},
}
RESNET = "ResNet-18 (batch size 16)"


@pytest.fixture
def rates(tmp_path):
    (tmp_path / "simulation_throughputs.json").write_text(json.dumps(RATES))
    return tmp_path


def ten(job=RESNET, steps=1600, gpus=2, weight=5, slo="-1.000000", arrival="7.5"):
    return "\t".join(map(str, (job, "python3 main.py", "cifar10", "--num_steps", 1, steps, gpus, weight, slo, arrival)))


def seven(job=RESNET, steps=1600, arrival="7.5", gpus=2):
    return "\t".join(map(str, (job, "cd %s && python3 main.py", "--num_steps", 1, steps, arrival, gpus)))


def twelve(job=RESNET, steps=1600, gpus=2, mode="gns", slo="1.500000", duration=90, arrival=40):
    return "\t".join(map(str, (job, "python3 main.py", "cifar10", "--num_steps", 1, steps, gpus, mode, 1, slo, duration,
                               arrival)))


def written(folder, *rows, name="jobs.trace"):
    path = folder / name
    path.write_text("\n".join(rows) + "\n")
    return path


def test_ten_columns_by_hand(rates):
    trace = load_trace(written(rates, ten(slo="2.000000"), ten(job="A3C", steps=8, gpus=1, weight=1, arrival="9")))
    assert trace.provenance.format == "gavel" and trace.job_id.tolist() == ["0", "1"]
    assert trace.model.tolist() == [RESNET, "A3C"] and trace.batch_size.tolist() == [16, 0]
    assert trace.work_iters.tolist() == [1600, 8] and trace.num_gpus.tolist() == [2, 1]
    assert trace.duration_s.tolist() == [100, 2]  # 1600 / 16 and 8 / 4
    assert trace.submit_s.tolist() == [7.5, 9] and trace.priority.tolist() == [5, 1]
    assert trace.deadline_s[0] == 207.5 and np.isnan(trace.deadline_s[1])  # 7.5 + 2 x 100, and none


def test_seven_columns_have_the_last_ones_in_another_order(rates):
    trace = load_trace(written(rates, seven(), seven(arrival="100.0", gpus=1)))
    assert trace.num_gpus.tolist() == [2, 1] and trace.submit_s.tolist() == [7.5, 100]
    assert trace.duration_s.tolist() == [100, 160] and trace.priority.tolist() == [1, 1]
    assert np.isnan(trace.deadline_s).all()


def test_rates_are_found_up_to_three_folders_above_as_in_gavels_repository(rates):
    deep = rates / "traces" / "msr" / "seed=0"
    deep.mkdir(parents=True)
    assert load_trace(written(deep, ten())).duration_s.tolist() == [100]
    deeper = deep / "too" / "deep"
    deeper.mkdir(parents=True)
    with pytest.raises(TraceError, match=r"steps and no run times.*option throughputs"):
        load_trace(written(deeper, ten()))


def test_another_gpu_type_and_one_that_is_unknown(rates):
    path = written(rates, ten(gpus=1))
    assert load_trace(path, gpu_type="p100").duration_s.tolist() == [320]
    with pytest.raises(TraceError, match=r"no rates on this GPU type; got 'v10'; allowed: v100, p100"):
        load_trace(path, gpu_type="v10")


@pytest.mark.parametrize("gpu_type", ["v100", "p100"])  # no such key; a rate of 0: did not fit
def test_jobs_without_a_rate_are_dropped_kept_at_that_of_one_gpu_or_refused(rates, gpu_type):
    path = written(rates, ten(gpus=1), ten(job="A3C", gpus=4) if gpu_type == "v100" else ten(job="A3C", gpus=1))
    trace = load_trace(path, gpu_type=gpu_type)
    what = f"jobs without a rate on {gpu_type} for their GPUs dropped"
    assert trace.job_id.tolist() == ["0"] and trace.provenance.counts == {what: 1}
    assert trace.provenance.first[what] == ("line 2",)
    with pytest.raises(TraceError, match=r"line 2.*A3C"):
        load_trace(path, gpu_type=gpu_type, unmeasured="refuse")
    single = load_trace(path, gpu_type=gpu_type, unmeasured="single")
    assert single.duration_s.tolist() == ([160, 400] if gpu_type == "v100" else [320])


def test_what_was_dropped_is_told_at_one_gpu_and_what_was_kept_at_its_own_rate(rates):
    """Dropped: 1,600 s on 4 GPUs at 4 steps/s; kept: 100 s on 2 GPUs at 16: 97 % (at one GPU's rate 95 %)."""
    path = written(rates, ten(), ten(job="A3C", gpus=4, steps=6400))
    note = next(note for note in load_trace(path).provenance.notes if "dropped" in note)
    assert note.startswith("dropped jobs are 97 % of the GPU time") and "--set measured_gaps=linear" in note
    path = written(rates, ten(steps=160_000), ten(job="A3C", gpus=4, steps=6400))
    note = next(note for note in load_trace(path).provenance.notes if "dropped" in note)
    assert note.startswith("dropped jobs are 24 % of the GPU time")  # 6,400 of 26,400 GPU-s; 17 % at that of one GPU


def test_rates_that_are_known_to_be_too_low_are_counted(rates):
    path = written(rates, ten(job="Recommendation (batch size 512)", gpus=1), ten(gpus=1))
    what = "Recommendation at rates that are several times too low"
    assert load_trace(path).provenance.counts == {what: 1}
    assert load_trace(path, gpu_type="p100").provenance.counts == {}


def test_a_file_of_exactly_2000_rows_is_noted(rates):
    notes = load_trace(written(rates, *[seven()] * 2000)).provenance.notes
    assert any("exactly 2,000 rows" in note for note in notes)
    assert not any("2,000" in note for note in load_trace(written(rates, *[seven()] * 1999)).provenance.notes)


def test_the_tidy_table_tells_the_physical_cluster(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text("model,batch_size,scale_factor,simulation_v100,physical_v100,physical_k80\n"
                    "ResNet-18,16,2,16,20,\nA3C,,1,4,8,2\n")
    assert read_rates(path) == {"v100": {(RESNET, 2): 20.0, ("A3C", 1): 8.0}, "k80": {("A3C", 1): 2.0}}
    assert load_trace(written(tmp_path, ten()), throughputs=str(path)).duration_s.tolist() == [80]


@pytest.mark.parametrize("text", ["{", "[]", '{"v100": 3}', '{"v100": {"A3C": {"null": 1}}}',
                                  '{"v100": {"(\'A3C\', 1)": {"null": -1}}}', '{"v100": {"(\'A3C\', 1)": {}}}'])
def test_broken_throughputs_are_refused(tmp_path, text):
    (tmp_path / "simulation_throughputs.json").write_text(text)
    with pytest.raises(TraceError):
        load_trace(written(tmp_path, ten()))


@pytest.mark.parametrize(("row", "column"), [
    (ten(steps="many"), "total_steps"), (ten(gpus=0), "scale_factor"), (ten(arrival=""), "arrival_time"),
    (ten(weight=-1), "priority_weight"), (ten(slo="soon"), "SLO"),
])
def test_a_wrong_cell_is_named(rates, row, column):
    with pytest.raises(TraceError, match=f"line 2, column '{column}'"):
        load_trace(written(rates, ten(), row))


def test_a_row_of_the_other_layout_and_a_layout_of_nine(rates):
    with pytest.raises(TraceError, match="line 2"):
        load_trace(written(rates, ten(), seven()))
    with pytest.raises(TraceError, match="another number of columns; got 9"):
        load_trace(written(rates, "\t".join("123456789")), "gavel")


def test_shockwave_has_run_times_of_its_own(tmp_path):
    trace = load_trace(written(tmp_path, twelve(), twelve(mode="static", slo="-1.000000", arrival=50)))
    assert trace.provenance.format == "shockwave" and trace.duration_s.tolist() == [90, 90]
    assert trace.work_iters.tolist() == [1600, 1600] and trace.submit_s.tolist() == [40, 50]
    assert trace.deadline_s[0] == 40 + 1.5 * 90 and np.isnan(trace.deadline_s[1])
    assert list(trace.provenance.counts.values()) == [1] and "accordion, gns" in next(iter(trace.provenance.counts))
    with pytest.raises(TraceError, match=r"line 1, column 'mode': unknown mode; got 'adaptive'"):
        load_trace(written(tmp_path, twelve(mode="adaptive")))


def test_layouts_are_told_apart(rates):
    for row, name in ((seven(), "gavel"), (ten(), "gavel"), (twelve(), "shockwave")):
        assert detect(written(rates, row)).name == name


def test_every_gavel_trace_of_the_data_folder(data_dir):
    """Rows that have no rate were counted by other means; run times are the steps over the rate of the JSON file."""
    rows = {"artifact_evaluation": (15, 0), "debug": (14, 0), "max_min_fairness": (96, 0), "medium_test": (20, 0),
            "small_test": (20, 0), "msr/0e4a51": (1181, 197), "msr/103959": (986, 125), "msr/11cb48": (2000, 181),
            "msr/6214e9": (2000, 15), "msr/ee9e8c": (2000, 373)}
    for name, (read, dropped) in rows.items():
        trace = load_trace(data_dir / "gavel" / f"{name}.trace")
        assert trace.provenance.rows_read == read and len(trace) == read - dropped, name
        assert trace.provenance.counts.get("jobs without a rate on v100 for their GPUs dropped", 0) == dropped
        assert len(load_trace(data_dir / "gavel" / f"{name}.trace", unmeasured="single")) == read


def test_job_types_are_those_of_the_measured_table(data_dir):
    from sim.performance.tables import load_table

    table = load_table(data_dir / "gavel" / "simulation_throughputs.json")
    trace = load_trace(data_dir / "gavel" / "msr" / "103959.trace")
    assert set(trace.model) <= set(table.job_types)
    for row in range(40):
        rate = table.rate(trace.model[row], 0, "V100", (int(trace.num_gpus[row]),)).iterations_per_s
        assert trace.duration_s[row] == pytest.approx(trace.work_iters[row] / rate, rel=1e-12)


def test_steps_of_a_philly_trace_are_run_times_at_one_rate_a_job_type_whatever_the_gpus(data_dir):
    """Of jobs of virtual cluster 103959 told by (arrival, GPUs), steps over Philly's run time: one value a type."""
    with (data_dir / "elasticflow" / "philly_103959.csv").open() as stream:
        real = {(float(r["submit_time"]), int(r["num_gpu"])): float(r["duration"]) for r in csv.DictReader(stream)}
    trace = load_trace(data_dir / "gavel" / "msr" / "103959.trace", unmeasured="single")
    of = [(job, n, work / real[at, n]) for job, n, at, work in zip(
        trace.model, trace.num_gpus.tolist(), trace.submit_s.tolist(), trace.work_iters.tolist(), strict=True)
        if (at, n) in real]
    assert len(of) > 800
    for job in {job for job, _, _ in of}:
        medians = [np.median(values) for n in (1, 4) if len(values := [v for j, m, v in of if (j, m) == (job, n)]) > 5]
        assert max(medians) == pytest.approx(min(medians), rel=0.01), job


def test_gavels_own_results_name_the_same_jobs(oracle_dir, data_dir):
    """Ids, arrivals and steps as in the results that Gavel wrote for the trace; none is done sooner than it can be."""
    folder, rates = oracle_dir / "gavel", data_dir / "gavel" / "simulation_throughputs.json"
    trace = load_trace(folder / "cont_single_s0_lam3600_n200.trace", throughputs=str(rates))
    by_type = read_rates(rates)
    with (folder / "contS_12-12-12_s0_max_min_fairness_perf.jobs.csv").open() as stream:
        theirs = {row["job_id"]: row for row in csv.DictReader(stream)}
    assert len(trace) == 200 and set(theirs) <= set(trace.job_id)
    for row, job in enumerate(trace.job_id):
        if job in theirs:
            them = theirs[job]
            assert (them["job_type"], float(them["total_steps"])) == (trace.model[row], trace.work_iters[row])
            assert float(them["arrival_s"]) == pytest.approx(trace.submit_s[row], abs=1e-6)
            fastest = max(by_type[gpu][trace.model[row], 1] for gpu in ("v100", "p100", "k80"))
            assert float(them["jct_s"]) >= trace.work_iters[row] / fastest * (1 - 1e-9)
    assert set(np.round((trace.deadline_s - trace.submit_s) / trace.duration_s, 6)) == {1.2, 2.0, 10.0}
