"""The end of a Parquet file: what it says is what Arrow says of a whole one, and a damaged one is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traces.errors import TraceError
from traces.reading.limits import Room
from traces.reading.parquet_footer import Chunk, described
from traces.reading.parquet_tables import read_parquet

WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4,
          "FIXED_LEN_BYTE_ARRAY": 7}
#: What a file of a list of numbers, text, a truth value and more says, in two row groups of two rows.
TABLE = pa.table({
    "gpus": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int32())), "id": ["a", None, "é" * 40, "d"],
    "done": [True, False, None, True], "at_s": [0.0, 1.5, 2.5, 3.0], "n": pa.array([1, 2, 3, 4], pa.int64()),
    "odd": pa.array([{"x": 1, "y": "k", "z": [[1.5]]}] * 4), "key": pa.array([b"seven_b"] * 4, pa.binary(7))})


def said(path: Path) -> tuple[int, list[Chunk]]:
    with pa.OSFile(str(path)) as file:
        return described(file)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    pq.write_table(TABLE, tmp_path / "whole.parquet", row_group_size=2)
    return tmp_path / "whole.parquet"


def test_a_whole_file_says_what_arrow_says(whole):
    meta = pq.read_metadata(whole)
    told = [meta.row_group(i).column(j) for i in range(meta.num_row_groups) for j in range(meta.num_columns)]
    expected = [Chunk(one.path_in_schema.split(".")[0], WIDTHS[one.physical_type], one.physical_type == "BYTE_ARRAY",
                      one.num_values, one.total_uncompressed_size) for one in told]
    assert said(whole) == described(pa.BufferReader(whole.read_bytes())) == (4, expected)
    assert len(expected) == 2 * 9


def test_a_file_without_rows_has_no_chunks(tmp_path):
    pq.write_table(TABLE.slice(0, 0), tmp_path / "empty.parquet")
    rows, found = said(tmp_path / "empty.parquet")
    assert rows == sum(chunk.values for chunk in found) == 0


def test_a_damaged_end_is_refused_or_read_and_never_ends_the_process(whole):
    """Of 20,000 such files four ended the process: a column said that it was encrypted, which Arrow only throws."""
    data, draw, refused = whole.read_bytes(), random.Random(7), 0
    footer = int.from_bytes(data[-8:-4], "little") + 8
    for _ in range(1500):
        at, size = len(data) - 1 - draw.randrange(footer), draw.randint(1, 6)
        whole.write_bytes(data[:at] + bytes(draw.randrange(256) for _ in range(size)) + data[at + size :])
        try:
            read_parquet(whole, Room.of(whole))
        except (TraceError, pa.ArrowException, OSError, ValueError, KeyError):
            refused += 1
    assert refused > 500


def test_a_column_that_is_encrypted_is_refused(tmp_path, monkeypatch):
    pq.write_table(pa.table({"n": [1]}), tmp_path / "t.parquet")
    data = (tmp_path / "t.parquet").read_bytes()
    footer = int.from_bytes(data[-8:-4], "little")
    # A file of one row group with one column of nothing but field 8, an empty struct: its column's key.
    made = (b"\x15\x02\x19\x2c\x48\x01r\x15\x02\x00\x15\x04\x38\x01n\x00"  # version; a root with one child, n
            b"\x16\x02\x19\x1c\x19\x1c\x8c\x00\x00\x00\x00")
    (tmp_path / "t.parquet").write_bytes(data[: -8 - footer] + made + len(made).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(pa.ArrowInvalid, match="a column is encrypted"):
        said(tmp_path / "t.parquet")


@pytest.mark.parametrize("footer", [b"", b"\x19", b"\x49\xfc\xff\xff\xff\x0f", b"\x1c" * 5000, b"\x49" + b"\x19" * 5000,
                                    b"\x16" + b"\xff" * 50, b"\x18\xff\xff\x03", b"\x1e\x00"])
def test_footers_that_make_no_sense(tmp_path, footer):
    (tmp_path / "t.parquet").write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(pa.ArrowInvalid, match="its footer is damaged"):
        said(tmp_path / "t.parquet")


def small_and_long(path: Path, kind: str) -> None:
    """60,000 times the same 100,000 bytes, of which the file holds one a row group."""
    one = b"x" * 100_000
    table = pa.table({"text": pa.array([one] * 2000, pa.binary(100_000)) if kind == "fixed" else
                      pa.array([[one] * 2000], pa.list_(pa.binary(100_000)))})
    with pq.ParquetWriter(path, table.schema) as out:
        for _ in range(3):
            out.write_table(table)


@pytest.mark.parametrize("kind", ["fixed", "list of fixed"])
def test_texts_of_one_length_count_as_long_as_they_are(tmp_path, kind):
    small_and_long(tmp_path / "t.parquet", kind)
    assert (tmp_path / "t.parquet").stat().st_size < 1 << 20
    with pytest.raises(TraceError, match="600,000,000 bytes unpacked"):
        read_parquet(tmp_path / "t.parquet", Room.of(tmp_path / "t.parquet"))


@pytest.mark.parametrize("told", ["kind", "name", "rows"])
def test_what_is_said_twice_is_taken_as_arrow_takes_it(tmp_path, told):
    """A chunk's own type and name, and the file's rows, may lie: Arrow reads by the schema and the groups."""
    table = pa.table({"longer": pa.array([b"seven_b"] * 9, pa.binary(7))})
    pq.write_table(table, tmp_path / "t.parquet", store_schema=False, write_statistics=False)
    data = (tmp_path / "t.parquet").read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    start, footer = data[: -8 - size], data[-8 - size : -8]
    old, new = {"kind": (b"\x15\x0e", b"\x15\x02"), "name": (b"longer", b"anothe"),
                "rows": (b"\x16\x12", b"\x16\x02")}[told]
    # In the schema the name comes first; the rows of the file stand before those of the groups.
    at = footer.index(old) if told == "rows" else footer.rindex(old)
    (tmp_path / "t.parquet").write_bytes(start + footer[:at] + new + footer[at + len(old) :] + data[-8:])
    rows, found = said(tmp_path / "t.parquet")
    assert rows == 9
    assert [(one.name, one.value_bytes, one.values) for one in found] == [("longer", 7, 9)]


def test_text_that_arrow_views_is_read_as_other_text_is(tmp_path):
    table = pa.table({"a": pa.array(["x", None, "long enough to lie elsewhere"], pa.string_view())})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_parquet(tmp_path / "t.parquet", Room.of(tmp_path / "t.parquet")).equals(table)
