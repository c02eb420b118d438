"""Every file of the data folder is read as the jobs that it has, or refused with the right reason; none is left out."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from traces.errors import TraceError
from traces.load import FORMATS, detect, load_trace
from traces.reading.sidetables import OTHERS

#: File -> (format, jobs), and what the file's rows become beside jobs.
JOBS: dict[str, tuple[str, int]] = {
    "chronus/trace_job_Philly_SLO.csv": ("chronus", 30_735),  # of 30,940 rows; 205 ask for no GPU
    "elasticflow/philly_103959.csv": ("elasticflow", 876),
    "gavel/artifact_evaluation.trace": ("gavel", 15),
    "gavel/debug.trace": ("gavel", 14),
    "gavel/max_min_fairness.trace": ("gavel", 96),
    "gavel/medium_test.trace": ("gavel", 20),
    "gavel/small_test.trace": ("gavel", 20),
    # Of 1181, 986, 2000, 2000 and 2000 rows: the others have GPUs that their job type was never measured on.
    "gavel/msr/0e4a51.trace": ("gavel", 984),
    "gavel/msr/103959.trace": ("gavel", 861),
    "gavel/msr/11cb48.trace": ("gavel", 1819),
    "gavel/msr/6214e9.trace": ("gavel", 1985),
    "gavel/msr/ee9e8c.trace": ("gavel", 1627),
    # 39,480 in all; the data's index says 31,411.
    "itp/cluster01.csv": ("itp", 1595),
    "itp/cluster03.csv": ("itp", 3011),
    "itp/cluster04.csv": ("itp", 15_802),
    "itp/cluster05.csv": ("itp", 3629),
    "itp/cluster06.csv": ("itp", 2396),
    "itp/cluster08.csv": ("itp", 13_047),
    "openb/openb_pod_list_default.csv": ("openb", 6203),  # of 8,152 pods: the others have no GPU or never ran
    "pai/pai_job_no_estimate_100K.head5.csv": ("pai", 4),  # of 5; one asks for no GPU
    "philly/cluster_job_log.sample.json": ("philly-log", 2),  # of 3; one has no attempt
    "philly/philly.csv": ("philly-csv", 82_247),
    "pollux/workloads/blox_synthetic_load3_seed1.csv": ("blox", 2000),
    "tiresias/60_job.csv": ("tiresias", 60),
}

#: Pattern -> words of the refusal. The first pattern that fits counts.
REFUSED: dict[str, str] = {
    "*.md": "text for people",
    "*/LICENSE.txt": "text for people",
    "*/LICENSE": "text for people",
    "chronus/model_info.json": "table of placement penalties",
    "elasticflow/throughputs_*/*.csv": "ElasticFlow's measured throughputs",
    "gavel/gavel_colocated.csv": "pairs of jobs that share a GPU",
    "gavel/gavel_isolated_throughput.csv": "Gavel's measured throughputs as a table",
    "gavel/simulation_throughputs.json": "Gavel's measured throughputs",
    "gpus.csv": "a catalogue of GPU types",
    "graphs/dnn-partitioning/human-experts/*.json": "a model split by hand over devices",
    "graphs/dnn-partitioning/*.json": "a graph of dnn-partitioning",
    "graphs/pipedream/*.txt": "a graph of PipeDream",
    "graphs/piper/*.json": "a graph of Piper",
    "graphs/synthetic/*.json": "a graph of operators with their times",
    "openb/openb_node_list_*.csv": "the nodes of openb",
    "pai/pai_*.header": "column names of a PAI table",
    "pai/pai_instance_table.tail_sample.csv": "pai_task_table is missing",
    "pai/pai_machine_spec.tar.gz": "PAI's machines",
    "philly/cluster_machine_list.sample.csv": "Philly's list of machines",
    "philly/cluster_util.samples.txt": "Philly's samples of GPU, CPU or memory use",
    "pollux/pollux_apps.json": "limits of the applications",
    "pollux/pollux_convergence.csv": "gradient noise and metric",
    "pollux/pollux_perf_params.csv": "fitted parameters of Pollux' speed model",
    "pollux/pollux_sia_throughput.csv": "step times that Pollux and Sia measured, as means",
    "pollux/ref_goodput.csv": "reference values of Pollux' goodput",
    "pollux/ref_single_job.csv": "run times of single jobs in Pollux' simulator",
    "pollux/ref_throughput.csv": "reference values of Pollux' speed model",
    "pollux/workloads/*.csv": "no run times in a Pollux or Sia workload",
    "published/acme_cluster_summary.csv": "a summary of whole clusters",
    "published/*.json": "distributions of run times, GPUs or use",
    "sailor/*": "format not recognised",  # Sailor's measurements of layers, links, prices and runs
    "sia/traces/*/placements*.csv": "step times that Pollux and Sia measured",
    "sia/traces/*/scalability*.csv": "step times that Pollux and Sia measured",
    "sia/traces/*/validation-*.csv": "gradient noise and metric",
    "tiresias/cluster_spec.csv": "a cluster of the Tiresias simulator",
    "tiresias/n*g*.csv": "a cluster of the Tiresias simulator",
    "tiresias/tf_job.csv": "duplicate job id (first seen in line 2); got '10'",  # an example with one job twice
    "tiresias/yarn-gput*.csv": "run times by which Tiresias ranks jobs",
}


def test_each_file_is_read_or_refused_as_expected(data_dir):
    files = [path for path in sorted(data_dir.rglob("*")) if path.is_file()]
    seen, wrong = set(), []
    for path in files:
        name = path.relative_to(data_dir).as_posix()
        try:
            trace = load_trace(path)
            found: object = (trace.provenance.format, len(trace))
        except TraceError as error:
            found = str(error)
        if name in JOBS:
            seen.add(name)
            fits = found == JOBS[name]
        else:
            pattern = next((p for p in REFUSED if fnmatchcase(name, p)), None)
            seen.add(pattern)
            fits = pattern is not None and isinstance(found, str) and REFUSED[pattern] in found
        if not fits:
            wrong.append(f"{name}: {found}")
    assert not wrong, "\n".join(wrong)
    assert seen == {*JOBS, *REFUSED}  # nothing is expected that is not there


def test_rows_read_are_those_of_the_index(data_dir):
    """Rows of the files as the data's index counts them; where it is wrong, as they are (see JOBS)."""
    rows = {"philly/philly.csv": 82_247, "chronus/trace_job_Philly_SLO.csv": 30_940,
            "openb/openb_pod_list_default.csv": 8152,
            "elasticflow/philly_103959.csv": 876, "tiresias/60_job.csv": 60, "gavel/msr/11cb48.trace": 2000}
    for name, expected in rows.items():
        assert load_trace(data_dir / name).provenance.rows_read == expected, name
    assert sum(jobs for name, jobs in JOBS.values() if name == "itp") == len(load_trace(data_dir / "itp")) == 39_480


def test_a_traces_folder_as_a_whole_is_refused_or_read(data_dir):
    """A folder is a trace only where its format says so."""
    assert load_trace(data_dir / "itp").provenance.format == "itp"
    for folder in ("tiresias", "gavel", "pollux", "graphs", "elasticflow/throughputs_T4", "philly"):
        with pytest.raises(TraceError):
            load_trace(data_dir / folder)


def test_no_two_side_tables_claim_one_file(data_dir):
    """A refusal does not hang on the order of the tables (but for documentation, known by its name alone)."""
    from traces.reading.reader import Head

    tables = [table for reader in FORMATS.values() for table in reader.side_tables] + list(OTHERS)
    for path in data_dir.rglob("*"):
        if path.is_file() and path.relative_to(data_dir).as_posix() not in JOBS:
            knowing = {table.what for table in tables if table.knows(Head.of(path))}
            assert len(knowing) <= 1, (path, knowing)


def test_results_of_other_simulators_are_not_taken_for_traces(oracle_dir):
    """They have jobs, GPUs and times, but the times of a schedule."""
    for name in ("tiresias/1k_n8g8_fifo_yarn.csv", "pai/p1k_g64_SJF.csv", "elasticflow/8a_edf.csv",
                 "chronus/none_SLO_1k_n30.csv", "gavel/contS_4-4-4_s0_isolated.jobs.csv", "gavel/summary.csv"):
        with pytest.raises(TraceError, match="format not recognised"):
            detect(oracle_dir / name)


def test_side_tables_are_recognised_without_the_real_files(tmp_path):
    heads = {
        "a.json": ('{"v100": {"(\'A3C\', 1)": {"null": 1.0}}}', "Gavel's measured throughputs"),
        "b.csv": ("global_batch_size,1,2\n64,1,2\n", "ElasticFlow's measured throughputs"),
        "c.txt": ("node1 -- Conv2d -- forward_compute_time=1, backward_compute_time=1\n", "a graph of PipeDream"),
        "d.json": ('{"maxSizePerFPGA": 1, "maxFPGAs": 2, "nodes": []}', "a graph of dnn-partitioning"),
        "e.csv": ("local_bsz,step_time,sync_time,placement\n1,1,1,2\n", "step times that Pollux and Sia measured"),
        "README.md": ("# Words\n", "text for people"),
    }
    for name, (text, what) in heads.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(TraceError, match=f"no jobs here: {what}"):
            load_trace(tmp_path / name)


def test_refusals_name_commands_and_options_that_exist():
    from typer.main import get_command

    from sim.cli import app

    commands = get_command(app).commands
    options = {name: {o for p in command.params for o in p.opts} for name, command in commands.items()}
    assert {"--measured"} <= options["run"] & options["perf"] and "--graph" in options["recommend"]
    named = {word.strip(".,") for table in OTHERS for word in table.todo.split() if word.startswith("--")}
    assert named == {"--measured", "--graph", "--list"} and named <= set().union(*options.values())
