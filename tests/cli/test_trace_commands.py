"""`hetsim trace` and the options that say which jobs are taken: on a log of six jobs, by hand."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sim.cli import console
from sim.settings.config import load_config
from traces.load import FORMATS, load_trace
from traces.synthetic.month import month

LOG = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-08 23:00:00,7200,1,7200,a
2017-10-09 00:00:00,100,2,200,a
2017-10-09 12:00:00,50,1,50,b
2017-10-09 12:00:00,50,1,50,b
2017-10-10 00:00:00,10,8,80,b
2017-10-10 01:00:00,10,0,0,c
"""
TABLE = "job_id,submit_s,duration_s,num_gpus,worker_gpus,status,user\n" \
    "x,0,100,4,2,passed,NA\ny,50,20,1,1,failed,nan\nz,100,30,1,1,passed,null\n"


@pytest.fixture
def log(here):
    (here / "log.csv").write_text(LOG)
    (here / "table.csv").write_text(TABLE)
    return here


def described(hetsim, *arguments):
    said = hetsim("trace", "describe", *arguments, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


# -- which jobs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "jobs"),
    [
        ([], 5),
        (["--read", "duplicates=drop"], 4),
        (["--from", "2017-10-09"], 4),
        (["--from", "2017-10-09", "--to", "2017-10-10"], 3),
        (["--to", "1h"], 1),
        (["--vc", "a"], 2),
        (["--vc", "a", "--vc", "b"], 5),
        (["--from", "3600", "--vc", "b", "--jobs", "1"], 1),
        (["--status", "unknown"], 5),
    ],
    ids=str,
)
def test_options_say_which_jobs_are_taken(hetsim, log, options, jobs):
    assert described(hetsim, "log.csv", *options)["jobs"] == jobs


def test_gangs_are_split_and_a_load_is_reached(hetsim, log):
    assert described(hetsim, "table.csv", "--gangs", "split")["jobs"] == 4
    scaled = described(hetsim, "table.csv", "--cluster", "v100:2", "--load", "0.5")
    assert scaled["load"]["total"] == pytest.approx(0.5)
    assert "submissions stretched by" in scaled["provenance"]["notes"][-2]
    thin = described(hetsim, "table.csv", "--cluster", "v100:2", "--load", "0.6", "--load-by", "thin", "--seed", "1")
    assert "jobs kept by a hash of their ids (seed 1)" in thin["provenance"]["notes"][-2]


def test_users_called_na_nan_and_null_have_rows(hetsim, log):
    assert {row["value"] for row in described(hetsim, "table.csv")["top_users"]} == {"NA", "nan", "null"}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["describe", "log.csv", "--read", "duplicate=drop"], ["no such option", "did you mean 'duplicates'"]),
        (["describe", "log.csv", "--read", "duplicates"], ["without a value", "NAME=VALUE"]),
        (["describe", "log.csv", "--read", "tz=UTC", "--read", "tz=UTC"], ["given twice", "--read tz"]),
        (["describe", "log.csv", "--read", "tz=Mars"], ["unknown time zone", "Mars"]),
        (["describe", "log.csv", "--read", "path=x"], ["no such option", "'path'"]),
        (["describe", "philly", "--jobs", "9", "--read", "seed=3"], ["'philly' has no such option", "'seed'"]),
        (["check", "log.csv", "--status", "pass"], ["no such status", "did you mean 'passed'"]),
        (["check", "log.csv", "--vc", "x"], ["no such vc", "allowed: a, b"]),
        (["check", "log.csv", "--from", "soon"], ["from: not a time", "soon"]),
        (["check", "table.csv", "--to", "2017-10-09"], ["no calendar"]),
        (["check", "log.csv", "--from", "2018-01-01"], ["no jobs left"]),
        (["convert", "log.csv", "out.csv", "--gangs", "explode"], ["run.gangs", "keep, split"]),
        (["convert", "log.csv", "out.csv", "--load", "2"], ["a load without a cluster", "--cluster"]),
        (["convert", "log.csv", "out.csv", "--load", "9", "--load-by", "thin", "--cluster", "v100:2"],
         ["thinning only lowers"]),
        (["convert", "log.csv", "deep/out.parquet", "--vc", "nobody"], ["no such vc"]),
        (["describe", "log.csv", "--picture", "out.gif"], ["unknown figure format", ".png"]),
        (["describe", "log.csv", "--picture", "log.csv/out.png"], ["log.csv/out.png: the file cannot be written"]),
        (["formats", "phily"], ["unknown trace format", "did you mean 'philly"]),
        (["again", "log.csv.json"], ["log.csv.json", "cannot read the file"]),
        (["again", "log.csv"], ["cannot read the file"]),
    ],
    ids=str,
)
def test_bad_input_is_a_message_and_leaves_nothing_behind(hetsim, log, arguments, parts):
    before = sorted(log.rglob("*"))
    said = hetsim("trace", *arguments)
    assert (said.code, said.out) == (2, "")
    assert all(part in said.err for part in parts), said.err
    assert "Traceback" not in said.err
    assert sorted(log.rglob("*")) == before


# -- check ---------------------------------------------------------------------------------------------------


def test_check_names_the_lines_that_the_reader_dropped_and_the_jobs_that_are_odd(hetsim, log):
    said = hetsim("trace", "check", "log.csv", "--cluster", "v100:4")
    assert said.code == 0
    assert "counted  1 CPU-only jobs dropped" in said.out
    assert "odd      2 jobs that share their time of submission (first: 3, 4)" in said.out
    assert "odd      1 jobs wider than 4 GPUs: they can never run (first: 5)" in said.out


def test_strict_fails_for_what_was_dropped_and_not_for_what_was_asked_for(hetsim, log):
    fine = "job_id,submit_s,duration_s,num_gpus,vc\na,0,1.5,1,v\nb,1,2.5,1,v\nc,2,3.5,1,w\n"
    (log / "fine.csv").write_text(fine)
    assert hetsim("trace", "check", "fine.csv", "--strict").code == 0
    assert hetsim("trace", "check", "fine.csv", "--strict", "--vc", "v", "--jobs", "1").code == 0
    header, _, _ = LOG.partition("\n")
    (log / "dropped.csv").write_text(f"{header}\n2017-10-09 00:00:00,10,1,10,a\n2017-10-10 01:00:01,9,0,0,c\n")
    said = hetsim("trace", "check", "dropped.csv", "--strict")
    assert said.code == 1 and "1 CPU-only jobs dropped" in said.out


# -- convert, and again --------------------------------------------------------------------------------------

RECIPES = [
    ["log.csv", "--read", "duplicates=drop", "--from", "2017-10-09", "--vc", "b"],
    ["table.csv", "--gangs", "split", "--status", "passed", "--jobs", "2"],
    ["table.csv", "--cluster", "v100:2", "--load", "3.5", "--load-by", "repeat", "--seed", "9"],
    ["philly", "--jobs", "300", "--seed", "4", "--cluster", "v100:2x4", "--load", "0.1", "--load-by", "thin"],
]


@pytest.mark.parametrize("arguments", RECIPES, ids=" ".join)
def test_p12_a_converted_trace_says_how_it_was_made_and_is_made_again_the_same(hetsim, log, arguments):
    """By `trace again`, and by the command line that the description has, in words for people."""
    source, *options = arguments
    assert hetsim("trace", "convert", source, "one.parquet", *options).code == 0
    about = json.loads((log / "one.parquet.json").read_text("utf-8"))
    said = hetsim("trace", "again", "one.parquet.json", "--to", "two.parquet")
    assert said.code == 0 and "the same trace" in said.out
    assert (log / "two.parquet").read_bytes() == (log / "one.parquet").read_bytes()
    hetsim_, *words = shlex.split(about["recipe"]["command"].replace("one.parquet", "three.parquet"))
    assert hetsim_ == "hetsim" and hetsim(*words).code == 0
    assert json.loads((log / "three.parquet.json").read_text("utf-8"))["sha256"] == about["sha256"]
    stated = {"source", "source_sha256", "hetsim", "format", "options", "seed", "rows_read", "counts", "first", "notes"}
    assert stated <= set(about)


def test_p12_another_source_gives_another_trace_and_says_so(hetsim, log):
    hetsim("trace", "convert", "log.csv", "out.csv")
    (log / "log.csv").write_text(LOG.replace(",7200,1,7200,a", ",7201,1,7201,a"))
    said = hetsim("trace", "again", "out.csv.json")
    assert said.code == 1
    assert "ANOTHER trace" in said.out and "differs  the source" in said.out
    assert load_trace(log / "out.csv").duration_s.max() == 7200


def test_a_description_without_a_recipe_is_refused(hetsim, log):
    hetsim("trace", "convert", "log.csv", "out.csv")
    about = json.loads((log / "out.csv.json").read_text("utf-8"))
    for recipe in (None, {}, {"settings": {"trace": "log.csv", "policy": "fifo"}}, {"settings": {"trace": 3}}, []):
        (log / "out.csv.json").write_text(json.dumps(about | {"recipe": recipe}))
        said = hetsim("trace", "again", "out.csv.json")
        assert said.code == 2 and "has no recipe" in said.err


def test_a_description_that_is_somebody_elses_file_is_not_overwritten(hetsim, log):
    (log / "out.csv.json").write_text("mine")
    said = hetsim("trace", "convert", "log.csv", "out.csv")
    assert said.code == 2 and "out.csv.json: the file is there already" in said.err
    assert not (log / "out.csv").exists()
    assert (log / "out.csv.json").read_text() == "mine"


# -- formats, picture, progress ------------------------------------------------------------------------------


def test_formats_lists_all_and_each_in_full(hetsim):
    said = hetsim("trace", "formats")
    assert all(name in said.out for name in [*FORMATS, "philly", "pai"])
    for name, reader in FORMATS.items():
        said = hetsim("trace", "formats", name)
        assert said.code == 0
        assert reader.public in said.out and reader.licence in said.out
        assert all(f"--read {option}=…" in said.out for option in reader.options)
    assert "[keep]" in hetsim("trace", "formats", "philly-csv").out
    assert "generated" in hetsim("trace", "formats", "philly").out


def test_a_picture_is_drawn_and_is_the_same_each_time(hetsim, log):
    for name in ("one.png", "two.png"):
        assert hetsim("trace", "describe", "log.csv", "--picture", f"new/{name}").code == 0
    one, two = ((log / "new" / name).read_bytes() for name in ("one.png", "two.png"))
    assert one.startswith(b"\x89PNG") and one == two
    assert hetsim("trace", "describe", "table.csv", "--jobs", "1", "--picture", "one-job.pdf").code == 0
    assert (log / "one-job.pdf").read_bytes().startswith(b"%PDF")


def test_a_bar_is_drawn_for_a_large_file_on_a_terminal_and_nowhere_else(hetsim, log, capsys, monkeypatch):
    quiet = hetsim("trace", "check", "log.csv")
    assert quiet.err == ""
    monkeypatch.setattr(console, "BIG_BYTES", 10)
    assert hetsim("trace", "check", "log.csv").err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    capsys.readouterr()
    with console.reading(Path("log.csv")):
        load_trace("log.csv")
    assert "log.csv" in capsys.readouterr().err
    monkeypatch.setattr(console, "BIG_BYTES", 10**9)
    with console.reading(Path("log.csv")):
        load_trace("log.csv")
    assert capsys.readouterr().err == ""


# -- the same options of a run -------------------------------------------------------------------------------


def test_a_run_takes_the_same_options_and_says_what_was_done(hetsim, log):
    said = hetsim("run", "--policy", "fifo", "--trace", "log.csv", "--cluster", "v100:8", "--work", "recorded",
                  "--read", "duplicates=drop", "--from", "2017-10-09", "--vc", "b", "--json", "--out", "out")
    assert said.code == 0, said.err
    assert json.loads(said.out)["jobs_finished"] == 2
    assert "trace: read with tz = naive, duplicates = drop" in said.err
    assert "trace: only vc b: 2 of 3 jobs" in said.err
    config = json.loads((log / "out" / "run.json").read_text("utf-8"))["config"]
    assert (config["read"], config["submitted_from"], config["vc"]) == ({"duplicates": "drop"}, "2017-10-09", ["b"])


def test_a_file_of_settings_has_them_too_and_a_date_of_toml_is_a_date(hetsim, log):
    (log / "run.toml").write_text(
        '[run]\npolicy = "fifo"\ntrace = "log.csv"\ncluster = "v100:8"\nwork = "recorded"\n'
        'read = {duplicates = "drop"}\nsubmitted_from = 2017-10-09\nsubmitted_to = "26h"\nvc = ["a", "b"]\n'
        'gangs = "split"\nload_by = "thin"\n')
    config = load_config("run.toml")
    assert config.submitted_from == "2017-10-09" and config.read == {"duplicates": "drop"}
    said = hetsim("run", "--config", "run.toml", "--read", "tz=UTC", "--json")
    assert said.code == 0, said.err
    # 26 h after the first submission is 2017-10-10 01:00: jobs of 2, 1 and 8 GPUs in workers of one.
    assert json.loads(said.out)["jobs_finished"] == 11
    assert "duplicates = drop" in said.err and "tz = UTC" in said.err
    assert "load_by has no effect without load" in said.err


@pytest.mark.parametrize(
    ("text", "part"),
    [("read = 3", "run.read"), ("read = {tz = [1]}", "run.read.tz"), ('status = "passed"', "run.status"),
     ("submitted_from = true", "run.submitted_from"), ("vc = [3]", "run.vc"),
     ('load_by = "squeeze"', "compress, thin, repeat")])
def test_settings_of_another_kind_are_refused(hetsim, log, text, part):
    (log / "run.toml").write_text(f"[run]\ntrace = \"log.csv\"\n{text}\n")
    said = hetsim("run", "--config", "run.toml", "--read", "duplicates=keep", "--quiet")
    assert said.code == 2 and part in said.err and "Traceback" not in said.err


@pytest.mark.parametrize("by", ["thin", "repeat"])
def test_a_run_reaches_its_load_by_other_jobs_as_well(hetsim, log, by):
    factor = {"thin": "0.3", "repeat": "40"}[by]
    said = hetsim("run", "--policy", "fifo", "--trace", "philly", "--jobs", "200", "--cluster", "v100:8x4", "--work",
                  "iterations", "--load", factor, "--load-by", by, "--json")
    assert said.code == 0, said.err
    jobs = json.loads(said.out)["jobs_finished"]
    assert jobs == 200 if by == "thin" else jobs > 200
    assert "by a hash of ids" in said.err if by == "thin" else "laid over itself" in said.err


# -- recipes -------------------------------------------------------------------------------------------------


def test_a_recipe_gives_jobs_what_the_log_lacks_and_the_description_makes_it_again(hetsim, log):
    asked = ["--assign", "elasticflow", "--assign-with", "tightest=2", "--assign-with", "loosest=2", "--seed", "3"]
    assert hetsim("trace", "convert", "log.csv", "out.parquet", *asked).code == 0
    trace = load_trace(log / "out.parquet")
    assert (trace.model != "").all() and (trace.batch_size > 0).all()
    assert (trace.deadline_s - trace.submit_s).tolist() == (2 * trace.duration_s).tolist()
    again = hetsim("trace", "again", "out.parquet.json")
    assert again.code == 0 and "the same trace" in again.out


def test_a_recipe_and_its_settings_stand_in_a_file_of_settings_too(here):
    (here / "run.toml").write_text('[run]\nassign = "gavel"\nassign_with = {deadlines = true}\n')
    config = load_config(here / "run.toml", {"assign_with.priorities": "yes"})
    assert (config.assign, config.assign_with) == ("gavel", {"deadlines": "true", "priorities": "yes"})


@pytest.mark.parametrize(("options", "says"), [
    (["--assign", "gavl"], "did you mean 'gavel'"),
    (["--assign", "gavel", "--assign-with", "deadline=yes"], "did you mean 'deadlines'"),
    (["--assign", "gavel", "--assign-with", "deadlines=maybe"], "yes or no"),
    (["--assign-with", "deadlines=yes"], "Name the recipe with --assign"),
    (["--assign", "gavel", "--assign-with", "deadlines"], "NAME=VALUE"),
], ids=str)
def test_a_recipe_that_cannot_be_followed_is_refused(hetsim, log, options, says):
    said = hetsim("trace", "describe", "log.csv", *options)
    assert said.code == 2 and says in said.err and said.out == ""


def test_recipes_are_listed_and_one_is_told_in_full(hetsim):
    listed = hetsim("trace", "recipes").out
    assert all(name in listed for name in ("gavel", "pollux", "elasticflow", "chronus"))
    assert "--assign-with deadlines" in hetsim("trace", "recipes", "gavel").out
    assert hetsim("trace", "recipes", "gavl").code == 2


def test_a_quota_that_is_asked_for_more_than_it_gives_is_told_before_the_run(hetsim, log):
    """Virtual cluster b asks for 180 GPU-s within 26 h at most: much, where it may hold no GPU most of the time."""
    (log / "quota.csv").write_text("time_s,vc,gpu_type,gpus\n0,a,,8\n0,b,,0\n93600,b,,8\n")
    said = hetsim("run", "--trace", "log.csv", "--cluster", "v100:2x8", "--policy", "fifo", "--work", "recorded",
                  "--set", "engine.capacity=quota.csv", "--out", "out")
    assert said.code == 0
    assert "load of virtual cluster 'b' on its quota without end, above 1" in said.err
    assert "load of virtual cluster 'a'" not in said.err


@pytest.mark.parametrize("name", ["seed", "name", "trace"])
def test_a_recipe_has_no_setting_of_the_call_that_makes_it(hetsim, log, name):
    said = hetsim("trace", "check", "log.csv", "--assign", "gavel", "--assign-with", f"{name}=3")
    assert said.code == 2 and "no such setting" in said.err


def test_a_trace_is_not_written_over_itself(hetsim, log):
    before = (log / "log.csv").read_bytes()
    said = hetsim("trace", "convert", "log.csv", "./log.csv", "--jobs", "1", "--force")
    assert said.code == 2 and "over itself" in said.err and (log / "log.csv").read_bytes() == before


def test_nothing_is_replaced_where_the_description_cannot_be(hetsim, log):
    (log / "out.csv").write_text("kept")
    (log / "out.csv.json").mkdir()
    assert hetsim("trace", "convert", "log.csv", "out.csv", "--force").code == 2
    assert (log / "out.csv").read_text() == "kept"


@pytest.mark.parametrize("name", [".", "", "log.csv"])
def test_what_is_no_description_is_not_made_again(hetsim, log, name):
    said = hetsim("trace", "again", name)
    assert said.code == 2 and ("hetsim trace convert wrote" in said.err or "log.csv.json" in said.err)


def test_names_from_a_file_do_not_drive_the_terminal(hetsim, log):
    (log / "odd.csv").write_text("job_id,submit_s,duration_s,num_gpus,user\na,0,1,1,\x1b[2Jx\nb,1,1,1,y\n")
    said = hetsim("trace", "describe", "odd.csv")
    assert said.code == 0 and "\x1b" not in said.out and "\\x1b[2Jx" in said.out


def test_a_name_in_another_script_is_drawn_without_noise(hetsim, log):
    (log / "cj.csv").write_text("job_id,submit_s,duration_s,num_gpus,vc\na,0,1,1,日本\nb,1,1,1,y\n", encoding="utf-8")
    said = hetsim("trace", "describe", "cj.csv", "--picture", "cj.png")
    assert said.code == 0 and "Glyph" not in said.err and (log / "cj.png").exists()


def test_two_traces_are_compared_and_a_generated_one_gets_as_many_jobs(hetsim, log):
    apart = json.loads(hetsim("trace", "compare", "philly", "log.csv", "--json").out)
    assert apart["jobs"] == [5, 5]
    same = hetsim("trace", "compare", "log.csv", "log.csv")
    assert same.code == 0 and "KS distance 0.000" in same.out
    assert hetsim("trace", "compare", "log.csv", "phily").code == 2


def test_a_load_is_told_to_be_of_all_gpus_where_some_are_away(hetsim, log):
    (log / "half.csv").write_text("time_s,vc,gpu_type,gpus\n,,,8\n")
    said = hetsim("run", "--trace", "log.csv", "--cluster", "v100:2x8", "--policy", "fifo", "--work", "recorded",
                  "--set", "engine.capacity=half.csv", "--out", "out")
    assert said.code == 0 and "8.0 of 16 GPUs are there on average while jobs come" in said.err


@pytest.mark.parametrize("by", [(), ("--load-by", "compress")])
def test_r2_07_a_trace_written_at_a_load_is_the_one_that_a_run_replays(hetsim, here, by):
    asked = ("--jobs", "600", "--seed", "3", "--cluster", "mixed", "--load", "0.9", *by)
    run = hetsim("run", "--trace", "philly", *asked, "--policy", "srtf", "--out", "one")
    assert run.code == 0, run.err
    made = hetsim("trace", "convert", "philly", "gen.parquet", *asked)
    assert "modelled load" in made.out and "with the models of seed 3" in made.out
    again = hetsim("run", "--trace", "gen.parquet", "--cluster", "mixed", "--policy", "srtf", "--out", "two")
    for table in ("jobs", "segments", "decisions"):
        assert (here / "one" / f"{table}.parquet").read_bytes() == (here / "two" / f"{table}.parquet").read_bytes()
    loads = [re.search(r"modelled load [0-9.]+, recorded load [0-9.]+", said.err)[0] for said in (run, again)]
    assert loads[0] == loads[1]
    assert hetsim("trace", "again", "gen.parquet.json").code == 0


def test_r2_07_the_recorded_load_is_asked_for_by_name(hetsim, here):
    asked = ("--jobs", "400", "--cluster", "mixed", "--load", "0.9", "--load-by", "compress")
    said = hetsim("trace", "convert", "philly", "gen.parquet", *asked, "--load-rule", "recorded")
    assert "recorded load" in said.out and "to 0.9 on 40 GPUs" in said.out
    load = described(hetsim, "gen.parquet", "--cluster", "mixed")["load"]
    assert load["total"] == pytest.approx(0.9)
    assert load["modelled"] > 1.2


def test_a_generated_run_is_a_month_of_its_log_at_its_own_times(hetsim, here):
    said = hetsim("run", "--policy", "fifo", "--out", "out")
    assert said.code == 0
    assert re.search(r"jobs of synthetic philly over 2[78]\.\d days .* modelled load 0\.70", said.err)
    assert re.search(r"[0-9,]+ of [0-9,]+ jobs of a month of the log, at their own times", said.err)
    log, jobs = month("philly"), pq.read_table(here / "out" / "jobs.parquet")
    times = dict(zip(log.job_id.tolist(), log.submit_s.tolist(), strict=True))
    assert jobs["submit_s"].to_pylist() == [times[job] for job in jobs["job_id"].to_pylist()]
