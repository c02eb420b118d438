"""What a user gets wrong: one message that says what and what to do, exit code 2, no traceback, nothing left behind."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli import app

HEAD = "job_id,submit_s,duration_s,num_gpus\n"

#: name of the case -> (content of the trace file, parts of the message)
TRACES = {
    "missing column": ("job_id,submit_s,duration_s\na,0,1\n", ["bad.csv", "'num_gpus'", "missing"]),
    "NaN": (HEAD + "a,0,nan,1\n", ["bad.csv", "line 2", "'duration_s'", "nan"]),
    "negative run time": (HEAD + "a,0,5,1\nb,0,-3,1\n", ["bad.csv", "line 3", "'duration_s'", "-3", "from 0"]),
    "absurd time": (HEAD + "a,1e300,5,1\n", ["bad.csv", "line 2", "'submit_s'", "1e+11"]),
    "no GPU": (HEAD + "a,0,5,0\n", ["line 2", "'num_gpus'", "from 1"]),
    "half a GPU as a number": (HEAD + "a,0,5,1.5\n", ["line 2", "'num_gpus'", "1.5", "an integer"]),
    "words for numbers": (HEAD + "a,zero,5,1\n", ["line 2", "'submit_s'", "zero"]),
    "duplicate id": (
        HEAD + "a,0,5,1\nb,0,5,1\na,1,5,1\n",
        ["line 4", "duplicate job id", "first seen in line 2", "'a'"],
    ),
    "no rows": (HEAD, ["bad.csv", "no jobs"]),
    "an empty file": ("", ["bad.csv", "nothing to read"]),
    "another file": ("<html>\n<body>\n", ["bad.csv", "format not recognised", "job_id,submit_s,duration_s,num_gpus"]),
    "misspelt column": (
        "job_id,submit_s,duration_s,num_gpu,num_gpus\na,0,1,1,1\n",
        ["unknown column", "did you mean 'num_gpus'"],
    ),
}


def assert_refused(said, parts: list[str], here: Path) -> None:
    assert said.code == 2
    assert said.out == ""
    for part in parts:
        assert part in said.err
    assert "Traceback" not in said.err
    left = {path.name for path in here.iterdir()} - {"jobs.csv", "bad.csv", "bad.toml"}
    assert not left


@pytest.mark.parametrize("case", TRACES)
def test_a_trace_that_cannot_be_used(replay, here, case):
    content, parts = TRACES[case]
    (here / "bad.csv").write_text(content)
    assert_refused(replay("--trace", "bad.csv", "--quiet"), parts, here)


def test_a_missing_trace_is_told_where_it_was_sought_what_is_read_and_where_to_find_one(replay, here):
    parts = [str(here / "no-such-log"), "canonical", "philly-csv", "github.com/msr-fiddle/philly-traces"]
    assert_refused(replay("--trace", "no-such-log"), parts, here)


def test_a_trace_of_another_format_than_said(replay, here):
    assert_refused(replay("--format", "pai"), ["jobs.csv"], here)
    assert_refused(replay("--format", "phily"), ["unknown trace format", "did you mean 'philly-log'"], here)


OPTIONS = {
    "unknown policy": (
        ["--policy", "tiresia"],
        ["unknown policy", "'tiresia'", "fifo", "srtf", "did you mean 'tiresias'"],
    ),
    "no policy": (["--policy", ""], ["run.policy", "not empty"]),
    "unknown GPU type": (["--cluster", "v1000:2x4"], ["unknown GPU type", "'v1000'", "did you mean 'v100'"]),
    "no nodes": (["--cluster", "v100:0x4"], ["nodes.0.count", "got 0", "from 1"]),
    "no GPUs on a node": (["--cluster", "v100:2x0"], ["nodes.0.gpus", "got 0", "from 1"]),
    "unknown cluster": (["--cluster", "gavle"], ["no such cluster", "did you mean 'gavel'"]),
    "unknown reference": (["--reference", "v10"], ["run.reference", "unknown GPU type"]),
    "unknown policy setting": (
        ["-P", "placment=count"],
        ["policy 'fifo'", "unknown setting", "did you mean 'placement'"],
    ),
    "policy setting not among the choices": (["-P", "placement=tight"], ["'placement'", "'tight'", "first-fit"]),
    "policy setting without a value": (["-P", "placement"], ["without a value", "name=value"]),
    "a truncated number": (["--policy", "hetero", "-P", "depth=2.5"], ["'depth'", "2.5", "an integer"]),
    "a truth value for a number": (["--policy", "hetero", "-P", "depth=true"], ["'depth'", "True", "an integer"]),
    "misspelt setting": (
        ["--set", "engine.preemption_overhed_s=30"],
        ["command line, engine.preemption_overhed_s", "did you mean 'preemption_overhead_s'"],
    ),
    "a setting without its section": (["--set", "mtbf_h=3"], ["run.mtbf_h", "did you mean 'engine.mtbf_h'"]),
    "a setting out of range": (
        ["--set", "engine.preemption_overhead_s=-1"],
        ["engine.preemption_overhead_s", "-1", "from 0"],
    ),
    "a setting given twice": (["--seed", "1", "--set", "seed=2"], ["given twice", "seed"]),
    "no jobs": (["--jobs", "0"], ["run.jobs", "got 0", "from 1"]),
    "negative seed": (["--seed", "-1"], ["run.seed", "-1", "from 0"]),
    "no load": (["--load", "0"], ["run.load", "above 0"]),
    "load that is no number": (["--load", "nan"], ["run.load", "nan"]),
    "unknown estimate": (["--estimate", "orcle"], ["run.estimate", "did you mean 'oracle'"]),
    "an estimate that the trace does not have": (
        ["--policy", "sjf", "--estimate", "column"],
        ["announces no run times"],
    ),
    "unknown belief of speeds": (["--speed-belief", "nosy:0.3"], ["run.speed_belief", "did you mean 'noisy'"]),
    "a profile of no GPU type": (["--speed-belief", "completed:0"], ["run.speed_belief", "completed:K"]),
    "a profile of no length": (["--speed-belief", "profiled:long"], ["run.speed_belief", "profiled:SECONDS"]),
    "an error of speeds that is none": (["--speed-belief", "noisy:11"], ["run.speed_belief", "from 0 to 10"]),
    "a belief of speeds without its file": (["--speed-belief", "table:no.csv"], ["run.speed_belief", "no such file"]),
    "a belief of speeds by no calibration": (["--speed-belief", "calibration:tunde"], ["did you mean 'tuned'"]),
    "a belief of speeds that is no table": (
        ["--speed-belief", "table:jobs.csv", "--policy", "hetero", "--work", "iterations"], ["jobs.csv"],
    ),
    "unknown work": (["--work", "recordet"], ["run.work", "did you mean 'recorded'"]),
    "a policy that plans, on recorded durations": (["--policy", "hetero"], ["--work iterations"]),
    "a quota for nobody": (["--set", "engine.quotas.x=3"], ["virtual cluster", "'x'"]),
    "missing file of settings": (["--config", "no.toml"], ["no.toml", "cannot be read"]),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_an_option_that_cannot_be_used(hetsim, here, case):
    options, parts = OPTIONS[case]
    given = {"--policy": "fifo", "--trace": "jobs.csv", "--cluster": "v100:2", "--work": "recorded"}
    more = [text for name, value in given.items() if name not in options for text in (name, value)]
    assert_refused(hetsim("run", "--quiet", *more, *options), parts, here)


def test_a_typing_error_in_a_file_of_settings_names_the_file_and_the_key(replay, here):
    (here / "bad.toml").write_text("[engine]\npreemption_overhed_s = 30\n")
    parts = ["bad.toml, engine.preemption_overhed_s", "did you mean 'preemption_overhead_s'"]
    assert_refused(replay("--config", "bad.toml"), parts, here)


def test_an_option_or_command_that_does_not_exist(hetsim, here):
    assert_refused(hetsim("run", "--polcy", "fifo"), ["--polcy", "--policy"], here)
    assert_refused(hetsim("rnu"), ["rnu", "run"], here)
    assert_refused(hetsim("run", "--jobs", "many"), ["--jobs", "integer"], here)


# -- the output -----------------------------------------------------------------------------------------------------


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_an_earlier_run_is_not_overwritten(replay, here):
    replay("--out", "out")
    before = content(here)
    said = replay("--out", "out")
    assert (said.code, said.out) == (2, "")
    assert "not empty" in said.err
    assert "--force" in said.err
    assert content(here) == before


def test_force_does_not_replace_what_is_no_run(replay, here):
    (here / "thesis").mkdir()
    (here / "thesis" / "chapter1.tex").write_text("years of work")
    said = replay("--out", "thesis", "--force")
    assert said.code == 2
    assert "not part of a run" in said.err
    assert (here / "thesis" / "chapter1.tex").read_text() == "years of work"


@pytest.mark.parametrize("out", ["jobs.csv", "jobs.csv/out", "/proc/out", "n" * 300])
def test_a_folder_that_cannot_be_made(replay, here, out):
    assert_refused(replay("--out", out), [out, "--out"], here)


def test_folders_made_for_a_run_that_fails_are_removed_again(replay, here):
    (here / "bad.csv").write_text(HEAD)
    assert_refused(replay("--trace", "bad.csv", "--out", "deep/deeper/out"), ["no jobs"], here)


def test_an_empty_folder_of_the_user_stays(replay, here):
    (here / "mine").mkdir()
    (here / "bad.csv").write_text(HEAD)
    assert replay("--trace", "bad.csv", "--out", "mine").code == 2
    assert (here / "mine").is_dir()


@pytest.fixture
def full_disk(monkeypatch):
    """A disk that fills up at the third table."""
    import sim.results.recorder

    write, written = sim.results.recorder.pq.write_table, []

    def write_table(*arguments, **options):
        written.append(arguments)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*arguments, **options)

    monkeypatch.setattr(sim.results.recorder.pq, "write_table", write_table)
    return written


def test_a_full_disk_leaves_nothing_behind(replay, here, full_disk):
    assert_refused(replay("--out", "new/out"), ["No space left on device", "new/out", "nothing was left behind"], here)
    assert len(full_disk) == 3


def test_a_full_disk_leaves_the_earlier_run_as_it_was(replay, here, monkeypatch, request):
    replay("--out", "out")
    before = content(here)
    request.getfixturevalue("full_disk")
    said = replay("--out", "out", "--force", "--seed", 3)
    assert said.code == 2
    assert "No space left on device" in said.err
    assert content(here) == before


def test_a_run_that_came_to_the_same_folder_meanwhile_is_kept(replay, here, monkeypatch):
    from sim.sweeps.replay import Replay

    play = Replay.play

    def meanwhile(*arguments):
        (here / "out" / "run.json").write_text("another run's")
        return play(*arguments)

    monkeypatch.setattr(Replay, "play", meanwhile)
    said = replay("--out", "out")
    assert said.code == 2
    assert content(here / "out") == {"run.json": b"another run's"}


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (["audit", "nowhere"], ["no such run folder", "nowhere"]),
        (["compare", "nowhere", "elsewhere"], ["no such run folder"]),
        (["figures", "nowhere"], ["no such run folder"]),
        (["policies", "fifi"], ["unknown policy", "did you mean 'fifo'"]),
        (["check", "fifi"], ["unknown policy", "did you mean 'fifo'"]),
        (["cluster", "show", "gavle"], ["did you mean 'gavel'"]),
        (["trace", "describe", "nowhere.csv"], ["no such file", "nowhere.csv"]),
        (["trace", "check", "jobs.csv", "--cluster", "v100:0"], ["from 1"]),
        (["trace", "convert", "jobs.csv", "x.xlsx"], ["'.xlsx'", ".parquet, .csv"]),
        (["trace", "convert", "jobs.csv", "jobs.csv"], ["over itself", "Name another file"]),
        (["trace", "convert", "philly", "jobs.csv"], ["there already", "--force"]),
        (["trace", "convert", "jobs.csv", "jobs.csv/x.csv"], ["cannot write the trace"]),
    ],
)
def test_other_commands_refuse_as_plainly(hetsim, here, command, parts):
    assert_refused(hetsim(*command), parts, here)


def test_a_pipe_that_nobody_writes_to_is_refused_and_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for option in ("--trace", "--config", "--cluster"):
        name = pipe if option != "--cluster" else tmp_path / "pipe.toml"
        if option == "--cluster":
            os.mkfifo(name)
        done = CliRunner().invoke(app, ["run", option, str(name), "--out", str(tmp_path / "run")])
        assert done.exit_code == 2, (option, done.output)


HUGE_RACK = '[[nodes]]\ntype = "V100"\ncount = 1\ngpus = 1\nrack_size = ' + "9" * 30


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, HUGE_RACK], ids=["nested", "rack"])
def test_a_cluster_file_beyond_all_measure_is_a_message(tmp_path, text):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    done = CliRunner().invoke(app, ["cluster", "show", str(path)])
    assert done.exit_code == 2, done.exception


def test_the_generated_pai_jobs_run_on_the_cluster_that_is_said(tmp_path):
    """The default cluster of a trace is the one that runs, not only the one that is recorded."""
    out = tmp_path / "run"
    arguments = ["run", "--policy", "fifo-skip", "--trace", "pai", "--jobs", "50", "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    info = json.loads((out / "run.json").read_text())
    assert info["config"]["cluster"] == info["cluster"]["name"] == "pai320"


@pytest.mark.parametrize("stranger", ["notes.txt", "sub/run.json"])
def test_force_never_removes_what_is_not_part_of_a_run(tmp_path, stranger):
    """A run.json of somebody else's, or a note beside a run, does not make a folder ours."""
    out = tmp_path / "other"
    precious = out / stranger
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    (out / "run.json").write_text('{"name": "another program"}')
    arguments = ["run", "--policy", "fifo", "--jobs", "5", "--out", str(out), "--force", "--quiet"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.output
    assert precious.read_text() == "precious"


def test_a_swap_that_fails_gives_the_earlier_run_back(tmp_path, monkeypatch):
    """Whatever happens between the two renames, one whole run is there."""
    out = tmp_path / "run"
    arguments = ["run", "--policy", "fifo", "--jobs", "5", "--out", str(out), "--quiet"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    rename = Path.rename

    def fail(self, target):
        if ".part" in self.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    done = CliRunner().invoke(app, [*arguments, "--force", "--seed", "3"])
    assert done.exit_code == 2
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
