"""Files of any size in pieces: the same rows and lines as at once, packed or not, whole or refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import TraceError
from traces.load import detect
from traces.reading.stream import joined, names_beside, pieces, watching
from traces.reading.text import read_bytes, read_table

ROWS = "name,value\n" + "".join(f"n{i},{i}\n" for i in range(1000))


def packed(folder: Path, text: str) -> dict[str, Path]:
    """The text as each kind of file."""
    data, tar = text.encode(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, content in (("._t.csv", b"not a table"), ("folder/t.csv", data)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    tar_gz = gzip.compress(tar.getvalue())
    half = len(tar_gz) // 2
    content = {
        "plain.csv": data, "one.csv.gz": gzip.compress(data), "t.tar": tar.getvalue(), "t.tar.gz": tar_gz,
        "two.csv.gz": gzip.compress(data[:100]) + gzip.compress(data[100:]),
        "p.tar.gz.partaa": tar_gz[:half], "p.tar.gz.partab": tar_gz[half:],
    }
    for name, value in content.items():
        (folder / name).write_bytes(value)
    return {name: folder / name for name in content if name != "p.tar.gz.partab"}


def write(folder: Path, text: str) -> Path:
    path = folder / "t.csv"
    path.write_text(text, newline="")
    return path


def test_packed_files_are_read_like_plain_ones(tmp_path):
    for path in packed(tmp_path, ROWS).values():
        assert read_bytes(path) == ROWS.encode(), path.name
        table = joined(pieces(path, ("name", "value"), piece_bytes=700), str(path))
        assert table.number("value").tolist() == list(range(1000)), path.name
        assert table.lines.tolist() == list(range(2, 1002)), path.name


def test_a_packed_trace_is_recognised_as_the_plain_one(tmp_path):
    text = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 00:00:01,5,2,10,vc\n"
    for path in packed(tmp_path, text).values():
        assert detect(path).name == "philly-csv", path.name


def test_a_piece_holds_no_more_than_asked_and_rows_stay_whole(tmp_path):
    tables = list(pieces(write(tmp_path, ROWS), ("value",), piece_bytes=500))
    assert len(tables) > 10 and max(len(t) for t in tables) < 500 / len("n1,1\n")
    assert "name" not in tables[0]


@settings(max_examples=150)
@given(
    cells=st.lists(st.lists(st.text('ab,"\n é', max_size=6), min_size=2, max_size=2), min_size=1, max_size=30),
    piece_bytes=st.integers(1, 60), last_end=st.booleans(),
)
def test_pieces_are_the_file_whatever_their_size(tmp_path_factory, cells, piece_bytes, last_end):
    text = "x,y\n" + "\n".join(",".join('"' + c.replace('"', '""') + '"' for c in row) for row in cells)
    path = write(tmp_path_factory.mktemp("pieces"), text + "\n" * last_end)
    table, whole = joined(pieces(path, ("x", "y"), piece_bytes=piece_bytes), "t"), read_table(path, ("x", "y"))
    assert table.cells["x"].to_pylist() == whole.cells["x"].to_pylist() == [row[0] for row in cells]
    assert table.cells["y"].to_pylist() == [row[1] for row in cells]


def test_a_bad_row_is_named_by_its_line_in_the_whole_file(tmp_path):
    text = ROWS.replace("n700,700\n", "\nn700\n")  # a blank line before it, which counts
    with pytest.raises(TraceError, match=r"t\.csv, line 703: a row has the wrong number of cells; got '1: n700'"):
        list(pieces(write(tmp_path, text), ("name",), piece_bytes=300))


def test_a_bad_cell_is_named_by_its_line_in_the_whole_file(tmp_path):
    path = write(tmp_path, ROWS.replace("n700,700", "n700,many"))
    with pytest.raises(TraceError, match=r"line 702, column 'value': value not allowed; got 'many'"):
        for table in pieces(path, ("value",), piece_bytes=300):
            table.number("value")


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(ROWS.encode().replace(b"n700,", b"n\xff00,"))
    with pytest.raises(TraceError, match="line 702: the file is not UTF-8 text"):
        list(pieces(path, ("value",), piece_bytes=300))


def test_names_come_from_the_file_or_beside_it_or_are_known(tmp_path):
    path = write(tmp_path, "a,1\nb,2\n")
    known = ("name", "value")
    assert names_beside(path, known) == ["name", "value"]
    assert joined(pieces(path, known, names=known), "t").text("name").tolist() == ["a", "b"]
    (tmp_path / "t.header").write_text("value,name\n")
    assert names_beside(path, known) == ["value", "name"]
    with_header = write(tmp_path, "\ufeffvalue,other,name\n1,x,a\n")
    table = joined(pieces(with_header, known, names=known), "t")
    assert table.text("name").tolist() == ["a"] and table.lines.tolist() == [2]


def test_a_mark_before_the_first_row_of_a_file_without_a_header_is_no_part_of_it(tmp_path):
    path = write(tmp_path, "\ufeffa,1\n")
    assert joined(pieces(path, ("n",), names=("n", "v")), "t").text("n").tolist() == ["a"]
    assert read_table(path, ("n",), names=("n", "v")).text("n").tolist() == ["a"]


@pytest.mark.parametrize(("text", "words"), [("", "the file is empty"), ("name,value\n", "a header and no rows"),
                                             ("name\nx\n", "column 'value' is missing")])
def test_what_holds_no_rows_is_refused(tmp_path, text, words):
    with pytest.raises(TraceError, match=words):
        joined(pieces(write(tmp_path, text), ("name", "value")), "t")


def test_a_header_file_that_lacks_a_column_is_refused(tmp_path):
    (tmp_path / "t.header").write_text("name,other\n")
    with pytest.raises(TraceError, match=r"t\.header, line 1: column 'value' is missing"):
        names_beside(write(tmp_path, "a,1\n"), ("name", "value"))


@pytest.mark.parametrize("name", ["one.csv.gz", "t.tar", "t.tar.gz", "p.tar.gz.partaa"])
def test_a_packed_file_that_is_cut_short_is_refused(tmp_path, name):
    path = packed(tmp_path, ROWS)[name]
    path.write_bytes(path.read_bytes()[: 5000 if name == "t.tar" else -7])
    (tmp_path / "p.tar.gz.partab").unlink()
    for read in (lambda: joined(pieces(path, ("name",)), "t"), lambda: read_table(path, ("name",))):
        with pytest.raises(TraceError, match=f"{name}: the packed file is cut short or damaged"):
            read()


def test_a_damaged_gzip_is_refused_though_it_still_unpacks(tmp_path):
    path = packed(tmp_path, ROWS)["t.tar.gz"]
    data = bytearray(path.read_bytes())
    data[-6] ^= 1  # its checksum
    path.write_bytes(bytes(data))
    with pytest.raises(TraceError, match="cut short or damaged"):
        joined(pieces(path, ("name",)), "t")


def test_an_archive_of_several_tables_is_refused(tmp_path):
    path = tmp_path / "both.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("a.csv", "b.csv"):
            archive.add(write(tmp_path, ROWS), name)
    with pytest.raises(TraceError, match="more than one file in it"):
        read_bytes(path)


def test_a_quote_that_never_closes_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("traces.reading.stream.LONGEST_ROW_BYTES", 1000)
    with pytest.raises(TraceError, match="a row without an end"):
        list(pieces(write(tmp_path, 'name,value\n"a,1\n' + "b,2\n" * 1000), ("name",), piece_bytes=100))


def test_progress_is_told_in_bytes_of_the_file_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("traces.reading.unpack.BUFFER_BYTES", 1 << 14)
    for path in packed(tmp_path, "x\n" + "".join(f"{v}\n" for v in np.random.default_rng(0).random(20_000))).values():
        seen: list[tuple[int, int]] = []
        with watching(lambda done, total, seen=seen: seen.append((done, total))):
            joined(pieces(path, ("x",), piece_bytes=1 << 15), "t")
        size = sum(f.stat().st_size for f in tmp_path.glob(path.name.replace("partaa", "part*")))
        done = [d for d, _ in seen]
        assert done == sorted(done) and len(done) > 1, path.name
        assert seen[-1] == (size, size), path.name
    seen.clear()
    read_bytes(path)
    assert not seen
