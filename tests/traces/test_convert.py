"""The description beside a converted trace: what it states, that old ones are read, and how options reach a reader."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version

import numpy as np
import pytest

from traces.errors import TraceError
from traces.load import FORMATS, defaults, file_hash, load_trace, write_trace
from traces.readers import canonical
from traces.reading.reader import Reader
from traces.study.description import read_description, sidecar
from traces.trace import Provenance, Trace

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:00:00,10,1,10,b\n" \
    "2017-10-09 08:00:00,5,0,0,b\n2017-10-09 08:00:00,20,2,40,c\n2017-10-09 08:00:00,20,2,40,c\n"


def trace_of(**about):
    columns = {"job_id": ["a", "b"], "submit_s": [0, 1], "duration_s": [1, 2], "num_gpus": [1, 1]}
    return Trace.from_columns(columns, Provenance(**about))


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY)
    return path


# --- what load_trace says of where a trace is from ----------------------------------------------------------


def test_a_trace_knows_its_options_defaults_too_and_the_hash_of_its_file(log):
    about = load_trace(log, duplicates="drop").provenance
    assert about.options == {"tz": "naive", "duplicates": "drop"}
    assert about.sha256 == hashlib.sha256(PHILLY.encode()).hexdigest()


def test_the_hash_of_a_folder_is_of_names_and_contents_and_of_nothing_hidden(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, order in ((one, "ab"), (other, "ba")):
        folder.mkdir()
        for name in order:
            (folder / f"{name}.csv").write_text(f"content {name}")
    assert file_hash(one) == file_hash(other)
    (other / ".DS_Store").write_text("x")
    assert file_hash(one) == file_hash(other)
    (other / "a.csv").rename(other / "c.csv")
    assert file_hash(one) != file_hash(other)
    (other / "c.csv").rename(other / "a.csv")
    (other / "a.csv").write_text("content c")
    assert file_hash(one) != file_hash(other)


def test_every_option_of_every_format_is_a_parameter_of_its_reader_with_a_default():
    """So that `hetsim trace formats` can tell the default, and a text of the command line becomes the right kind."""
    for name, reader in FORMATS.items():
        for option, default in defaults(reader).items():
            assert default is None or isinstance(default, str | int | float | bool), (name, option)


@pytest.mark.parametrize(("given", "got"), [("3", 3), (3, 3), ("-1", -1)])
def test_an_option_that_comes_as_text_becomes_the_kind_that_the_default_is(monkeypatch, log, given, got):
    monkeypatch.setitem(FORMATS, "made", made_reader())
    assert load_trace(log, "made", size=given, share="0.5", deep="true", word=7).provenance.notes == (
        f"{got!r} 0.5 True '7'",)


@pytest.mark.parametrize(
    ("option", "value", "allowed"), [("size", "3.5", "an integer"), ("share", "half", "a number"),
                                     ("deep", "yes", "true or false")])
def test_an_option_of_another_kind_is_refused(monkeypatch, log, option, value, allowed):
    monkeypatch.setitem(FORMATS, "made", made_reader())
    with pytest.raises(TraceError, match=rf"option '{option}' of format 'made'.*allowed: {allowed}"):
        load_trace(log, "made", **{option: value})


def made_reader():
    def read(path, *, size: int = 1, share: float = 0.1, deep: bool = False, word: str = "x"):
        return trace_of(notes=(f"{size!r} {share!r} {deep!r} {word!r}",))

    return Reader("made", "made", "", (), read, options=dict.fromkeys(("size", "share", "deep", "word"), "meaning"))


@pytest.mark.parametrize("option", ["path", "format", "tzz"])
def test_what_is_no_option_is_refused_whatever_it_is_called(log, option):
    with pytest.raises(TraceError, match=f"no such option; got '{option}'"):
        load_trace(log, "philly-csv", **{option: "x"})


def test_a_file_that_the_system_does_not_give_up_is_an_error_of_the_trace(monkeypatch, log):
    def read(path, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setitem(FORMATS, "made", Reader("made", "made", "", (), read))
    with pytest.raises(TraceError, match=r"philly.csv: cannot read the trace; got 'Permission denied'"):
        load_trace(log, "made")


# --- the description ----------------------------------------------------------------------------------------


def test_the_description_states_source_version_options_filter_seed_counts_and_hashes(tmp_path, log):
    trace = load_trace(log, duplicates="drop")
    path = write_trace(trace, tmp_path / "out.parquet", recipe={"settings": {"trace": str(log)}, "command": "hetsim …"})
    about = json.loads(sidecar(path).read_text("utf-8"))
    assert about["hetsim"] == version("hetsim")
    assert (about["source"], about["format"]) == (str(log), "philly-csv")
    assert about["source_sha256"] == hashlib.sha256(PHILLY.encode()).hexdigest()
    assert about["options"] == {"tz": "naive", "duplicates": "drop"}
    assert about["recipe"] == {"settings": {"trace": str(log)}, "command": "hetsim …"}
    assert about["counts"] == {"exact duplicate rows dropped": 1, "CPU-only jobs dropped": 1}
    assert about["rows_read"] == 4 and about["jobs"] == 2 and "seed" in about and "selection" in about
    assert about["sha256"] == trace.content_hash() == load_trace(path).content_hash()


def test_calendar_window_and_first_rows_outlive_a_conversion(tmp_path):
    made = {"epoch_s": 12.5, "tz": "Asia/Shanghai", "date_is_real": False, "window_s": (-1.0, 99.0),
            "counts": {"dropped": 2}, "first": {"dropped": ("line 3", "line 9")}, "rule": "as given", "seed": 4}
    again = load_trace(write_trace(trace_of(**made), tmp_path / "t.csv")).provenance
    assert {name: getattr(again, name) for name in made} == made


def test_a_description_of_the_first_kind_is_read_too(tmp_path):
    """As written before options, hashes and zones were kept."""
    path = write_trace(trace_of(), tmp_path / "t.csv")
    old = {"hetsim_trace": 1, "jobs": 2, "sha256": trace_of().content_hash(), "selection": "first 2 jobs",
           "source": "log", "format": "itp", "rule": "as given", "seed": None, "rows_read": 9, "epoch_s": 5.0,
           "counts": {"dropped": 7}, "notes": ["a note"], "units": {}}
    sidecar(path).write_text(json.dumps(old))
    about = load_trace(path).provenance
    assert about.notes == ("made from log (itp)", "first 2 jobs", "a note")
    assert (about.rows_read, about.counts, about.epoch_s, about.tz) == (9, {"dropped": 7}, 5.0, "UTC")


@pytest.mark.parametrize(
    ("name", "value"),
    [("epoch_s", 1e300), ("epoch_s", "now"), ("tz", "Mars/Olympus"), ("window_s", [1]), ("window_s", {}), ("counts", 3),
     ("counts", {"x": "many"}), ("notes", "text"), ("first", []), ("seed", "x"), ("rule", None), ("rows_read", None)],
)
def test_a_description_that_makes_no_sense_is_ignored_with_a_note(tmp_path, name, value):
    path = write_trace(trace_of(), tmp_path / "t.csv")
    about = json.loads(sidecar(path).read_text())
    sidecar(path).write_text(json.dumps(about | {name: value}))
    assert load_trace(path).provenance.notes == ("t.csv.json is no description of a trace, ignored",)


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '{"hetsim_trace": 2}', "[" * 100_000])
def test_what_is_no_description_is_refused_where_one_is_asked_for(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(TraceError, match="no description of a trace"):
        read_description(tmp_path / "x.json")
    with pytest.raises(TraceError, match="cannot read the file"):
        read_description(tmp_path / "not-there.json")


def test_a_conversion_that_fails_midway_leaves_what_was_there(tmp_path, monkeypatch):
    path = write_trace(trace_of(), tmp_path / "t.csv")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def full(trace, stream):
        stream.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(canonical, "_write_csv", full)
    with pytest.raises(TraceError, match="No space left"):
        write_trace(trace_of(seed=3), path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_converting_what_was_converted_changes_no_value(tmp_path, log):
    trace = load_trace(log)
    first = load_trace(write_trace(trace, tmp_path / "1.parquet"))
    second = load_trace(write_trace(first, tmp_path / "2.csv"))
    assert second.content_hash() == trace.content_hash()
    assert np.array_equal(second.vc, trace.vc)
    assert second.provenance.notes[:2] == (
        f"made from {tmp_path / '1.parquet'} (canonical)", f"made from {log} (philly-csv)")
