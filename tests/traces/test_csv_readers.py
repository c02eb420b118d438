"""The CSV readers on small files written by hand: what each source column becomes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from traces.errors import TraceError
from traces.load import FORMATS, detect, load_trace
from traces.reading.status import WORDS, canonical

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
PAI = "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user\n"
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
ITP = "job_id,submission_time,duration,num_gpu\n"
OWN = "job_id,submit_s,duration_s,num_gpus\n"


def written(tmp_path, text, name="trace.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# --- what columns become ------------------------------------------------------------------------------------


def test_philly_csv_counts_from_the_first_submission(tmp_path):
    trace = load_trace(
        written(
            tmp_path,
            PHILLY
            + (
                "2017-10-09 07:01:55,66.0,1,66.0,b\n"
                "2017-10-09 07:00:55,10.0,2,20.0,a\n"
                "2017-10-09 07:01:55,5.0,0,0.0,a\n"
                "2017-10-09 07:01:55,0.0,1,7.0,a\n"
            ),
        )
    )
    assert trace.job_id.tolist() == ["2", "1", "4"]  # rows of the file, by time
    assert trace.submit_s.tolist() == [0, 60, 60] and trace.num_gpus.tolist() == [2, 1, 1]
    assert trace.vc.tolist() == ["a", "b", "a"] and trace.provenance.epoch_s == 1_507_532_455
    assert trace.provenance.counts == {
        "CPU-only jobs dropped": 1,
        "zero-length jobs kept": 1,
        "rows where gpu_time is not duration x num_gpus": 1,
    }


def test_philly_csv_in_pacific_time_has_the_hour_that_clocks_went_back(tmp_path):
    path = written(tmp_path, PHILLY + "2017-11-04 23:00:00,1,1,1,a\n2017-11-05 05:00:00,1,1,1,a\n")
    assert load_trace(path).submit_s.tolist() == [0, 21_600]
    assert load_trace(path, tz="America/Los_Angeles").submit_s.tolist() == [0, 25_200]


def test_pai_demand_is_instances_times_gpus(tmp_path):
    trace = load_trace(
        written(
            tmp_path,
            PAI
            + ("a,3.0,0,6,0.25,T4,10,u\nb,2,0,6,4,V100M32,10,u\nc,1,0,6,0,CPU,10,u\nd,1,0,6,1.5,misc,10,u\n"),
        )
    )
    assert trace.job_id.tolist() == ["a", "b", "d"]
    assert trace.num_gpus.tolist() == [3, 8, 2]
    assert trace.gpu_milli.tolist() == [250, 1000, 1000]
    assert trace.worker_gpus.tolist() == [1, 4, 2]
    assert trace.gpu_type.tolist() == ["T4", "V100-32", ""]
    assert trace.provenance.counts == {"CPU-only jobs dropped": 1, "fractions above one GPU rounded up": 1}


def test_pai_status_and_estimates_where_the_columns_are_there(tmp_path):
    path = written(
        tmp_path,
        PAI.strip()
        + ",status,group_dur\n"
        + ("a,1,0,6,1,T4,10,u,Terminated,12.5\nb,1,0,6,1,T4,10,u,Failed,\nc,1,0,6,1,T4,10,u,Running,0\n"),
    )
    trace = load_trace(path, estimate_column="group_dur")
    assert trace.status.tolist() == ["passed", "failed", "unknown"]
    assert trace.estimate_s[[0, 2]].tolist() == [12.5, 0] and np.isnan(trace.estimate_s[1])
    with pytest.raises(TraceError, match=r"no such column.*'grp_dur'.*did you mean 'group_dur'"):
        load_trace(path, estimate_column="grp_dur")


def test_tiresias_and_itp(tmp_path):
    trace = load_trace(written(tmp_path, TIRESIAS + "7,4,30,100,vgg19,164,30\n8,0,30,1,x,1,0\n"))
    assert (trace.job_id[0], trace.num_gpus[0], trace.submit_s[0], trace.duration_s[0]) == ("7", 4, 30, 164)
    assert trace.model.tolist() == ["vgg19"] and trace.provenance.counts == {"CPU-only jobs dropped": 1}
    trace = load_trace(written(tmp_path, ITP + "x,5,600,2\ny,4,0,0", "cluster09.csv"))
    assert trace.vc.tolist() == ["cluster09"] and trace.num_gpus.tolist() == [2]


def test_each_format_says_what_its_durations_are(tmp_path):
    rows = {
        "philly-csv": PHILLY + "2017-10-09 07:01:55,66,1,66,b\n",
        "pai": PAI + "a,1,0,1,1,T4,1,u\n",
        "tiresias": TIRESIAS + "7,4,30,100,vgg19,164,30\n",
        "itp": ITP + "x,5,600,2\n",
        "canonical": OWN + "a,0,1,1\n",
    }
    for name, text in rows.items():
        path = written(tmp_path, text)
        assert detect(path).name == name
        assert "duration_s as" in load_trace(path, name).provenance.rule
        assert load_trace(path).provenance.format == name


# --- text stays text ----------------------------------------------------------------------------------------


def test_ids_above_2_to_the_53_stay_apart_and_a_blank_one_is_reported(tmp_path):
    twins = OWN + "1925036343869802844,0,1,1\n1925036343869802843,0,1,1\n"
    trace = load_trace(written(tmp_path, twins))
    assert set(trace.job_id) == {"1925036343869802844", "1925036343869802843"}
    with pytest.raises(TraceError, match="line 4, column 'job_id': value not allowed; got ''"):
        load_trace(written(tmp_path, twins + ",0,1,1\n"))


def test_users_called_na_nan_and_null_are_users(tmp_path):
    users = ["NA", "nan", "null", "None", "uA"]
    rows = "".join(f"{i},1,0,6,1,T4,10,{u}\n" for i, u in enumerate(users))
    assert load_trace(written(tmp_path, PAI + rows)).user.tolist() == users


@pytest.mark.parametrize(
    "rename",
    [
        lambda t: "\ufeff" + t,
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t.rstrip("\n"),
        lambda t: t + "\n\n",
        lambda t: t.replace("job_id,", " job_id , ").replace("1,2", " 1 , 2 "),
        lambda t: t.replace("a,0", '"a",0'),
        lambda t: t.replace("1,2", "+1.0,2e0"),
    ],
)
def test_harmless_ways_to_write_the_same_csv(tmp_path, rename):
    trace = load_trace(written(tmp_path, rename(OWN + "a,0,1,2\nb,1,1,2\n")), "canonical")
    assert trace.job_id.tolist() == ["a", "b"] and trace.duration_s.tolist() == [1, 1]
    assert trace.num_gpus.tolist() == [2, 2]


def test_a_quoted_cell_may_hold_commas_quotes_and_line_ends(tmp_path):
    trace = load_trace(written(tmp_path, OWN + '"a,""b""\nc",0,1,1\nd,0,1,1\n'))
    assert sorted(trace.job_id) == ['a,"b"\nc', "d"]


# --- bad input: the message says where, what was found, what is allowed -------------------------------------

OK_PHILLY = "2017-10-09 07:01:55,66,1,66,b\n"
OK_PAI = "a,1,0,6,1,T4,10,u\n"
BAD = [
    (PHILLY + OK_PHILLY + "2017-10-09,66,1,66,b\n", ["line 3", "'timestamp'", "'2017-10-09'", "YYYY-MM-DD"]),
    (PHILLY + ",66,1,66,b\n", ["line 2", "'timestamp'", "''", "YYYY-MM-DD"]),
    (PHILLY + "None,66,1,66,b\n", ["line 2", "'timestamp'", "'None'"]),
    (PHILLY + "1970-01-01 00:00:00,66,1,66,b\n", ["line 2", "1970", "2000"]),
    (PHILLY + "2017-10-09 07:01:55,-1,1,66,b\n", ["line 2", "'duration'", "'-1'", "from 0 to 3.2e+08"]),
    (PHILLY + OK_PHILLY * 2 + "2017-10-09 07:01:55,nan,1,1,b\n", ["line 4", "'duration'", "'nan'", "finite"]),
    (PHILLY + "2017-10-09 07:01:55,inf,1,66,b\n", ["line 2", "'duration'", "'inf'"]),
    (PHILLY + "2017-10-09 07:01:55,4628226000,1,66,b\n", ["'duration'", "'4628226000'", "Check the unit"]),
    (PHILLY + "2017-10-09 07:01:55,66,1.5,66,b\n", ["'num_gpus'", "'1.5'", "an integer from 0"]),
    (PHILLY + "2017-10-09 07:01:55,66,,66,b\n", ["'num_gpus'", "''", "an integer from 0"]),
    (PHILLY + "2017-10-09 07:01:55,66,0,0,b\n", ["no jobs", "0 of 1 rows", "CPU-only jobs dropped: 1"]),
    (PHILLY + "2017-10-09 07:01:55,66,1,66\n", ["line 2", "wrong number of cells", "5 cells"]),
    (
        PHILLY + OK_PHILLY + "\n" + OK_PHILLY.strip() + ",\n",
        ["line 4", "wrong number of cells", "trailing comma"],
    ),
    (PHILLY, ["no jobs", "at least one row"]),
    ("timestamp,duration,num_gpus,gpu_time\n1,2,3,4\n", ["Nearest is 'philly-csv'", "'cluster' is missing"]),
    (PAI + OK_PAI + "a,1,0,6,1,T4,10,u\n", ["line 3", "duplicate job id (first seen in line 2)", "'a'"]),
    (PAI + "a,0,0,6,1,T4,10,u\n", ["'num_inst'", "'0'", "an integer from 1"]),
    (PAI + "a,1,0,6,-1,T4,10,u\n", ["'num_gpu'", "'-1'"]),
    (PAI + "a,1,0,6,1_0,T4,10,u\n", ["'num_gpu'", "'1_0'"]),
    (PAI + "a,1,1505304000000,6,1,T4,10,u\n", ["submit_s", "1505304000000", "1e+11"]),
    (PAI + "a,1000,0,6,1001,T4,10,u\n", ["line 2", "wider than any cluster", "1,000,000"]),
    (
        PAI.strip() + ",status\na,1,0,6,1,T4,10,u,Dead\n",
        ["line 2, status", "unknown status", "'Dead'", "terminated"],
    ),
    (TIRESIAS + "7,4,30,100,vgg19,1e9,30\n", ["'duration'", "'1e9'"]),
    (ITP + "x,-5,600,2\n", ["'submission_time'", "'-5'"]),
    (OWN + "a,0,1,0\n", ["line 2", "'num_gpus'", "'0'", "an integer from 1"]),
    (OWN.strip() + ",gpu_mili\na,0,1,1,500\n", ["unknown column", "'gpu_mili'", "did you mean 'gpu_milli'"]),
    (OWN.strip() + ",duration_s\na,0,1,1,500\n", ["'duration_s' is there twice"]),
    (OWN.strip() + ",worker_gpus\na,0,1,3,2\n", ["no multiple of worker_gpus", "3 and 2"]),
    (OWN.strip() + ",status\na,0,1,3,dead\n", ["unknown status", "'dead'", "passed, killed"]),
    ("", ["empty file", "at least one job"]),
    ("\n\n", ["empty file"]),
    ("a,b\n1,2\n", ["format not recognised", "a, b", "--format"]),
    (b"\x00\x01\xff\xfe" * 500, ["format not recognised"]),
    (b"PAR1" + b"\x00" * 100, ["no whole Parquet file"]),
    ((PAI + OK_PAI).encode() + b"b,1,0,6,1,T4,10,\xff\n", ["line 3", "not UTF-8", "CSV as UTF-8"]),
    ((PAI + OK_PAI).encode() + b"b,1,0,6,1,T4,10,\x00\n", ["line 3", "not UTF-8"]),
    ((PAI + OK_PAI).encode("utf-16"), ["format not recognised"]),
]


@pytest.mark.parametrize(("text", "parts"), BAD)
def test_bad_input_is_refused_with_place_value_and_rule(tmp_path, text, parts):
    path = written(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    for part in [str(path), *parts]:
        assert part in str(caught.value)


def test_a_column_that_is_missing_when_the_format_is_named(tmp_path):
    path = written(tmp_path, PAI.replace("duration", "durations") + OK_PAI)
    with pytest.raises(TraceError) as caught:
        load_trace(path, "pai")
    for part in ["line 1", "'duration' is missing", "durations", "did you mean 'durations'"]:
        assert part in str(caught.value)


def test_a_path_that_is_not_there_names_path_formats_and_public_files(tmp_path):
    path = tmp_path / "cluster_job_log"
    for name in (None, "philly-log"):
        with pytest.raises(TraceError) as caught:
            load_trace(path, name)
        for part in [str(path), "philly-log", "https://github.com/msr-fiddle/philly-traces"]:
            assert part in str(caught.value)
        assert caught.value.exit_code == 2


def test_unknown_format_option_and_folder(tmp_path):
    path = written(tmp_path, OWN + "a,0,1,1\n")
    with pytest.raises(TraceError, match=r"unknown trace format.*'philly-cvs'.*did you mean 'philly-csv'"):
        load_trace(path, "philly-cvs")
    with pytest.raises(
        TraceError, match=r"no such option; got 'tzz'; allowed: tz, duplicates. did you mean 'tz'"
    ):
        load_trace(path, "philly-csv", tzz="UTC")
    with pytest.raises(TraceError, match=r"option 'duplicates'.*'kep'.*did you mean 'keep'"):
        load_trace(written(tmp_path, PHILLY + OK_PHILLY), duplicates="kep")
    with pytest.raises(TraceError, match=r"unknown time zone; got 'Mars'"):
        load_trace(written(tmp_path, PHILLY + OK_PHILLY), tz="Mars")
    with pytest.raises(TraceError, match=r"a folder, not a file"):
        load_trace(tmp_path, "pai")
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in (None, "itp"):
        with pytest.raises(TraceError, match="CSV"):
            load_trace(empty, name)


def test_every_format_is_listed_with_what_a_user_needs():
    for name, reader in FORMATS.items():
        assert reader.name == name and reader.description and reader.public


# --- statuses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("Pass", "passed"),
        ("Killed", "killed"),
        ("Failed", "failed"),
        ("Terminated", "passed"),
        ("Running", "unknown"),
        ("Waiting", "unknown"),
        ("COMPLETED", "passed"),
        ("CANCELLED", "killed"),
        ("FAILED", "failed"),
        ("TIMEOUT", "killed"),
        ("NODE_FAIL", "failed"),
        ("Succeeded", "passed"),
        ("Pending", "unknown"),
    ],
)
def test_one_map_for_the_words_of_all_logs(word, status):
    assert canonical([word], "log", [1]).tolist() == [status]


def test_an_unknown_word_is_an_error_that_lists_the_known_ones():
    with pytest.raises(TraceError) as caught:
        canonical(["Pass", "Gone"], "log", [10, 11])
    assert "log, line 11" in str(caught.value) and "'Gone'" in str(caught.value)
    assert all(word in str(caught.value) for word in WORDS)
