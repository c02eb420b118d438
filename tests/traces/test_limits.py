"""A small file does not fill the memory: what an input file may hold, at every door that reads one."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.run import RunError, load_run
from analysis.sweeps import load_sweep
from sim.cluster.clusterfiles import load_cluster
from sim.cluster.prices import read_prices
from sim.performance.calibration import Calibration
from sim.performance.calibration_rows import read_rows
from sim.performance.readers import read_graph
from sim.performance.sharing import read_pairs
from sim.performance.tables.any_table import load_table
from sim.settings.config import load_config, parse_setting
from sim.settings.values import read_toml
from traces.errors import HetsimError, TraceError
from traces.load import load_trace
from traces.reading import parquet_tables
from traces.reading.limits import (
    FOLD,
    ROW_BYTES,
    SETTING,
    SMALL_BYTES,
    VALUE_BYTES,
    Room,
    parse_toml,
    plain_bytes,
)
from traces.reading.logmap import log_map
from traces.reading.parquet_tables import read_parquet
from traces.reading.text import read_bytes

HEADER = b"job_id,submit_s,duration_s,num_gpus\n"
MIB = 1 << 20
MAP = "id=job_id,submit=submit_s,duration=duration_s,gpus=num_gpus"
TOO_MUCH = (r"the file holds more than is taken; got '[\d,]+ bytes unpacked.*allowed: [\d,]+ bytes, "
            "of which each of the ")


@pytest.fixture
def room_mib(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    return lambda mib: monkeypatch.setenv(SETTING, str(mib / 1024))


def rows_gz(folder: Path, rows: int) -> Path:
    path = folder / "jobs.csv.gz"
    path.write_bytes(gzip.compress(HEADER + b"".join(b"%d,0,1,1\n" % i for i in range(rows))))
    return path


def folded(folder: Path, rows: int, text: str = "a") -> Path:
    """Equal rows as a Parquet file of a few kilobytes."""
    ids = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))
    numbers = pa.array(np.ones(rows))
    pq.write_table(pa.table([ids, numbers, numbers, numbers], names=HEADER.decode().strip().split(",")),
                   folder / "jobs.parquet", store_schema=False)
    return folder / "jobs.parquet"


# The room


def test_a_room_is_256_mib_and_a_multiple_of_the_size_on_the_disk() -> None:
    for disk, whole, streamed in ((0, 268_435_456, 268_435_456), (5 * 10**6, 348_435_456, 428_435_456),
                                  (10**9, 16_268_435_456, 32_268_435_456)):
        assert (Room("x", disk).bytes, Room("x", disk, streamed=True).bytes) == (whole, streamed)
    assert FOLD == 16


@pytest.mark.parametrize("disk", [0, 10**6, 10**8])
def test_text_and_rows_have_one_room(disk: int) -> None:
    most = SMALL_BYTES + disk * FOLD
    for text in (0, most // 3):
        rows = (most - text) // ROW_BYTES
        Room("x", disk).take(text, rows)
        with pytest.raises(TraceError, match=f"got '{text:,} bytes unpacked in {rows + 1:,} rows, or more'; allowed: "
                           f"{most:,} bytes, of which each of the rows takes 192 besides .256 MiB and 16 times its "
                           f"{disk:,} bytes on the disk"):
            Room("x", disk).take(text, rows + 1)
    Room("x", disk).take(0, most // VALUE_BYTES, row_bytes=VALUE_BYTES, what="values")


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 20)), max_size=20), st.integers(1, 5000))
def test_a_room_is_full_when_bytes_and_rows_pass_it_and_not_before(takes: list[tuple[int, int]], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, repr(size / 2**30))
        room, taken, rows = Room("x", 0), 0, 0
        for more, of_rows in takes:
            taken, rows = taken + more, rows + of_rows
            if taken + 192 * rows > room.bytes:
                with pytest.raises(TraceError, match=f"got '{taken:,} bytes unpacked.*allowed: {room.bytes:,} bytes"):
                    room.take(more, of_rows)
                return
            room.take(more, of_rows)


@pytest.mark.parametrize("text", ["x", "0", "-1", "nan", "inf", "1e9"])
def test_a_setting_that_is_no_size_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, text)
    with pytest.raises(HetsimError, match=f"environment, {SETTING}: value not allowed; got '{text}'"):
        Room("x", 0)


# Traces


@pytest.mark.parametrize("options", [{}, {"map": MAP}], ids=["canonical", "mapped"])
def test_rows_of_a_packed_file_are_counted_and_both_numbers_told(
    tmp_path: Path, room_mib: Callable[[float], None], options: dict[str, str]
) -> None:
    path = rows_gz(tmp_path, 20_000)
    room_mib(5)
    assert len(load_trace(path, **options)) == 20_000  # type: ignore[arg-type]
    room_mib(1)
    with pytest.raises(TraceError, match=TOO_MUCH + r"rows takes 192 besides \(HETSIM_INPUT_GIB\).*say how many GiB"):
        load_trace(path, "mapped" if options else "canonical", **options)


@pytest.mark.parametrize("options", [{}, {"map": MAP}], ids=["canonical", "mapped"])
@pytest.mark.parametrize("text", ["a", "x" * 5000])
def test_folded_rows_of_a_parquet_file_are_counted_before_they_unfold(
    tmp_path: Path, room_mib: Callable[[float], None], options: dict[str, str], text: str
) -> None:
    path = folded(tmp_path, 20_000, text)
    assert path.stat().st_size < 20_000
    room_mib(2)
    with pytest.raises(TraceError, match=TOO_MUCH):
        load_trace(path, "mapped" if options else "canonical", **options)


def test_elements_of_lists_and_unlike_types_come_back_as_they_were(tmp_path: Path) -> None:
    table = pa.table({
        "text": pa.array(["a", None, "\u00e9", "a"] * 700),
        "large": pa.array(["x", "", None, "y"] * 700, pa.large_string()),
        "folded": pa.array(["p", "q", None, "p"] * 700).dictionary_encode(), "raw": pa.array([b"\xff", None] * 1400),
        "list": pa.array([[1, 2], [], None, [3]] * 700), "texts": pa.array([["a"], None, ["b", "c"], []] * 700),
        "flag": pa.array([True, None] * 1400), "none": pa.nulls(2800),
    })
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=999)
    path = tmp_path / "t.parquet"
    assert read_parquet(path, Room.of(path)).equals(table)
    assert read_parquet(path, Room.of(path), ["list", "text"]).equals(table.select(["list", "text"]))
    pq.write_table(table.slice(0, 0), path)
    assert read_parquet(path, Room.of(path)).equals(table.slice(0, 0))


def test_one_row_with_a_list_of_millions_is_refused_unread(tmp_path: Path, room_mib: Callable[[float], None]) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": pa.array([[1] * 2_000_000], pa.list_(pa.int8()))}), path)
    room_mib(4)
    with pytest.raises(TraceError, match=TOO_MUCH):
        read_parquet(path, Room.of(path))


def test_a_tar_that_asks_for_all_at_once_gets_no_more_than_the_room(
    tmp_path: Path, room_mib: Callable[[float], None]
) -> None:
    """A header of a tar may say that it goes on for gigabytes, and is read at once."""
    about = tarfile.TarInfo("x")
    about.type, about.size = b"x", 16 * MIB
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(about.tobuf(tarfile.GNU_FORMAT) + bytes(16 * MIB)))
    room_mib(4)
    with pytest.raises(TraceError, match=TOO_MUCH):
        read_bytes(path)


def test_values_of_json_are_counted_and_its_lines_are_not(tmp_path: Path, room_mib: Callable[[float], None]) -> None:
    lists, lines = tmp_path / "lists.json", tmp_path / "cluster_job_log.gz"
    lists.write_text(json.dumps([[]] * 50_000))
    lines.write_bytes(gzip.compress(b"[" + b"\n" * 50_000 + b"[]" + b",[]" * 40_000 + b"]"))
    room_mib(1)
    with pytest.raises(TraceError, match=TOO_MUCH + "values"):
        load_trace(lines, "philly-log")
    with pytest.raises(HetsimError, match=TOO_MUCH + "values"):
        load_table(lists)
    assert read_bytes(tmp_path / "lists.json")
    lines.write_bytes(gzip.compress(b"[" + b"\n" * 50_000 + b"]"))
    assert len(read_bytes(lines)) == 50_002


# Files that are not packed: one with a hole is as large as its owner likes

DOORS: dict[str, Callable[[Path], object]] = {
    "settings": load_config, "cluster.toml": lambda path: load_cluster(str(path)), "prices": read_prices,
    "calibration": Calibration.load, "rows": read_rows, "pairs": read_pairs, "measured": load_table,
    "graph": read_graph,
    "map.toml": lambda path: log_map(str(path)), "trace": lambda path: load_trace(path, "itp"),
    "swf": lambda path: load_trace(path, "swf"), "sweep.json": lambda path: load_sweep(path.parent),
    "run.json": lambda path: load_run(path.parent),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_sparse_file_is_refused_by_its_size(door: str, tmp_path: Path, room_mib: Callable[[float], None]) -> None:
    path = tmp_path / door
    with path.open("wb") as file:
        file.write(b"job_id")
        file.truncate(64 * MIB)
    room_mib(8)
    with pytest.raises(HetsimError, match=TOO_MUCH):
        DOORS[door](path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a pipe, socket or device"):
        plain_bytes(tmp_path / "pipe")


# TOML

DEEP = ".".join(["a"] * 100_000)
TOMLS = {"a key": f"{DEEP} = 1", "a table": f"x = 1\n[{DEEP}]", "a key inside": f"x = {{{DEEP} = 1}}",
         "quoted": ".".join(['"a b"'] * 60) + " = 1", "blanks": " . ".join(["a"] * 60) + " = 1",
         "brackets": "x = " + "[" * 100_000, "tables": "x = " + "{a=" * 5_000,
         "lists": "x = " + "[" * 200 + "]" * 200}


@pytest.mark.parametrize("text", TOMLS.values(), ids=TOMLS)
def test_a_key_of_many_parts_is_refused_before_it_is_parsed(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(HetsimError, match="nested too deeply"):
        read_toml(tmp_path / "x.toml")


def test_the_line_of_a_deep_key_is_told_and_a_setting_of_the_command_line_is_text() -> None:
    with pytest.raises(ValueError, match=r"a key of more than 50 parts \(at line 3\)"):
        parse_toml(f"a = 1\n\n{DEEP} = 2\n")
    assert parse_setting(f"x={{{DEEP}=1}}") == ("x", f"{{{DEEP}=1}}")


@pytest.mark.parametrize("text", ["x = [" + "0.1, " * 10_000 + "]", "x = '" + "." * 10_000 + "'",
                                  "a" * 100_000 + " = 1", ".".join(["a"] * 49) + " = 1", '"' * 2 + " = 1"])
def test_what_only_looks_deep_is_read(text: str) -> None:
    assert parse_toml(text)


def test_a_text_of_toml_has_a_share_of_the_room(room_mib: Callable[[float], None]) -> None:
    room_mib(1)
    with pytest.raises(ValueError, match=r"it has 40,000 characters, of which up to 32,768 are taken"):
        parse_toml("#" * 40_000)
    assert parse_toml("#" * 32_768) == {}


# Results


def test_a_table_of_results_is_counted_like_a_trace(
    tmp_path: Path, small_run: Path, room_mib: Callable[[float], None]
) -> None:
    file = small_run / "jobs.parquet"
    table = pq.read_table(file)
    out = io.BytesIO()
    pq.write_table(pa.concat_tables([table.slice(0, 1)] * 30_000), out, compression="zstd")
    file.write_bytes(out.getvalue())
    assert file.stat().st_size < MIB
    room_mib(2)
    with pytest.raises(RunError, match=TOO_MUCH):
        load_run(small_run)


@pytest.fixture
def small_run(tmp_path: Path) -> Path:
    from sim.settings.config import RunConfig
    from sim.sweeps.replay import Replay

    Replay(RunConfig(policy="fifo", trace="philly", jobs=5, work="recorded")).play().write(tmp_path / "run")
    return tmp_path / "run"


def test_lists_of_numbers_are_read_by_many_rows_and_lists_of_text_by_few(tmp_path: Path) -> None:
    """How long lists of numbers are stands in the file; of text, only what is read tells."""
    rows = 3 * parquet_tables.FEW_ROWS
    for cell, pieces in (([1, 2], 1), ([[1], [2]], 1), (["a"], 3), ({"x": "a"}, 3)):
        table = pa.table({"x": [cell] * rows})
        pq.write_table(table, tmp_path / "x.parquet")
        found = parquet_tables.read_parquet(tmp_path / "x.parquet", Room.of(tmp_path / "x.parquet"))
        assert found.equals(table)
        assert found.column("x").num_chunks == pieces


def test_equal_lists_of_numbers_count_as_often_as_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HETSIM_INPUT_GIB", str(2**20 / 2**30))
    pq.write_table(pa.table({"x": [[7] * 1000] * 1000}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 2**15
    with pytest.raises(TraceError, match="holds more than is taken"):
        parquet_tables.read_parquet(tmp_path / "x.parquet", Room.of(tmp_path / "x.parquet"))


def test_millions_of_rows_of_numbers_are_taken_by_their_values(tmp_path: Path) -> None:
    """A policy that decides each minute of a year, always alike: a small file, and no hostile one."""
    rows, path = SMALL_BYTES // ROW_BYTES + 1, tmp_path / "decisions.parquet"
    pq.write_table(pa.table({"now_s": np.zeros(rows), "queued": np.zeros(rows, np.int32)}), path)
    assert read_parquet(path, Room.of(path), arrays=True).num_rows == rows
    with pytest.raises(TraceError, match=TOO_MUCH):  # as jobs they would be objects
        read_parquet(path, Room.of(path))
    room = Room("x", 0)
    room.bytes = 12 * rows - 1
    with pytest.raises(TraceError, match="bytes unpacked"):
        read_parquet(path, room, arrays=True)
