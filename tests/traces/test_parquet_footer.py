"""The end of a Parquet file: what it says is what Arrow says of a whole one, and a damaged one is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traces.errors import TraceError
from traces.reading.limits import Room
from traces.reading.parquet_footer import Chunk, chunks
from traces.reading.parquet_tables import read_parquet

KINDS = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
#: What a file of a list of numbers, text, a truth value and more says, in two row groups of two rows.
TABLE = pa.table({
    "gpus": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int32())), "id": ["a", None, "é" * 40, "d"],
    "done": [True, False, None, True], "at_s": [0.0, 1.5, 2.5, 3.0], "n": pa.array([1, 2, 3, 4], pa.int64()),
    "odd": pa.array([{"x": 1, "y": "k"}] * 4)})


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    pq.write_table(TABLE, tmp_path / "whole.parquet", row_group_size=2)
    return tmp_path / "whole.parquet"


def test_a_whole_file_says_what_arrow_says(whole):
    meta = pq.read_metadata(whole)
    told = [meta.row_group(i).column(j) for i in range(meta.num_row_groups) for j in range(meta.num_columns)]
    expected = [Chunk(one.path_in_schema.split(".")[0], KINDS.index(one.physical_type), one.num_values,
                      one.total_uncompressed_size) for one in told]
    assert list(chunks(whole)) == list(chunks(pa.BufferReader(whole.read_bytes()))) == expected
    assert len(expected) == 2 * 7


def test_a_file_without_rows_has_no_chunks(tmp_path):
    pq.write_table(TABLE.slice(0, 0), tmp_path / "empty.parquet")
    assert sum(chunk.values for chunk in chunks(tmp_path / "empty.parquet")) == 0


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
    made = b"\x15\x02\x19\x0c\x16\x02\x19\x1c\x19\x1c\x8c\x00\x00\x00\x00"
    (tmp_path / "t.parquet").write_bytes(data[: -8 - footer] + made + len(made).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(pa.ArrowInvalid, match="a column is encrypted"):
        list(chunks(tmp_path / "t.parquet"))


@pytest.mark.parametrize("footer", [b"", b"\x19", b"\x49\xfc\xff\xff\xff\x0f", b"\x1c" * 5000, b"\x49" + b"\x19" * 5000,
                                    b"\x16" + b"\xff" * 50, b"\x18\xff\xff\x03", b"\x1e\x00"])
def test_footers_that_make_no_sense(tmp_path, footer):
    (tmp_path / "t.parquet").write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(pa.ArrowInvalid, match="its footer is damaged"):
        list(chunks(tmp_path / "t.parquet"))
