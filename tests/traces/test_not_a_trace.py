"""Files that stand for a trace, or hold one in a way that is not read: told as what they are, with what to do."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from traces.errors import TraceError
from traces.load import load_trace

OWN = "job_id,submit_s,duration_s,num_gpus\na,0,60,1\n"
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"


def put(folder: Path, content: str | bytes) -> Path:
    path = folder / "jobs.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("format", [None, "canonical", "philly-log"])
@pytest.mark.parametrize(("content", "words"), [
    (LFS, r"a Git LFS pointer.*git lfs pull"),
    (b"PK\x03\x04\x14\0" + bytes(600), r"a ZIP archive, or a workbook.*unzip"),
    (b"BZh91AY&SY", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"(\xb5/\xfd\0", "zstd"),
    (gzip.compress(LFS.encode(), mtime=0), "Git LFS"),
])
def test_what_stands_for_a_trace_or_packs_it_is_told_as_what_it_is(tmp_path, format, content, words):
    with pytest.raises(TraceError, match=f"jobs.csv: .*{words}"):
        load_trace(put(tmp_path, content), format)


@pytest.mark.parametrize("format", [None, "canonical"])
def test_lines_with_a_hash_above_the_header_are_told(tmp_path, format):
    with pytest.raises(TraceError, match=r"jobs.csv, line 1: lines that begin with # .*got '# of May'.*Remove them"):
        load_trace(put(tmp_path, "# of May\n# zone: UTC\n" + OWN), format)


@pytest.mark.parametrize("first", [OWN, "a,b\n" + "1,2\n" * 40_000, "# note\n" * 20_000])
def test_a_tar_with_several_logs_names_them(tmp_path, first):
    """Also where the first alone, of which only the beginning was looked at, is no trace."""
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        for name, text in (("one.csv", first), ("two.csv", OWN)):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    with pytest.raises(TraceError, match=r"not one table; got 'more than one file in it: one.csv, two.csv'.*Unpack it"):
        load_trace(tmp_path / "all.tar")
