"""Files that a command writes: whole or not at all, and none is replaced unasked."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from traces.errors import HetsimError
from traces.outfile import refuse_existing, write_text, written


def test_what_is_written_is_there_and_nothing_else(tmp_path: Path) -> None:
    assert write_text(tmp_path / "new" / "folder" / "a.txt", "é\n").read_bytes() == "é\n".encode()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.txt"]


def test_a_file_that_is_there_is_refused_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    refuse_existing(file)
    file.write_text("mine")
    with pytest.raises(HetsimError, match=r"a\.txt: the file is there already.*--force"):
        write_text(file, "yours", force=False)
    assert file.read_text() == "mine"
    assert write_text(file, "yours", force=True).read_text() == "yours"


@pytest.mark.parametrize("name", [".", "folder", "/", "/dev/null"])
def test_what_is_no_file_is_never_replaced(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    with pytest.raises(HetsimError, match="not a file that can be written"):
        write_text(Path(name), "x", force=True)


@pytest.mark.parametrize("reason", [ValueError, KeyboardInterrupt])
def test_whatever_stops_it_all_is_as_it_was(tmp_path: Path, reason: type[BaseException]) -> None:
    (tmp_path / "a.txt").write_text("mine")
    for file in (tmp_path / "a.txt", tmp_path / "new" / "folder" / "b.txt"):
        with pytest.raises(reason), written(file) as part:
            part.write_text("half")
            raise reason
    assert [path.name for path in tmp_path.rglob("*")] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "mine"


def test_a_folder_in_which_another_wrote_meanwhile_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stop"), written(tmp_path / "new" / "a.txt"):
        (tmp_path / "new" / "other.txt").write_text("theirs")
        raise ValueError("stop")
    assert (tmp_path / "new" / "other.txt").read_text() == "theirs"


def test_what_the_system_refuses_is_told_of_the_file_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HetsimError, match=r"file/x\.csv: the file cannot be written; got '.*'\. Name another"):
        write_text(tmp_path / "file" / "x.csv", "x")
    with pytest.raises(HetsimError, match=r"a\.txt: .*No space left on device'\. Free some space"), \
            written(tmp_path / "a.txt", todo="Free some space."):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(HetsimError, match="cannot be written"):
        write_text(tmp_path / ("x" * 300), "x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "link.txt", tmp_path / "far" / "a.txt"
    link.symlink_to("far/a.txt")
    write_text(link, "first", force=False)  # it named nothing yet
    assert (link.is_symlink(), target.read_text()) == (True, "first")
    with pytest.raises(HetsimError, match=r"link\.txt: the file is there already"):
        write_text(link, "second", force=False)
    write_text(link, "second")
    assert (link.is_symlink(), target.read_text()) == (True, "second")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.txt", "far", "link.txt"]


@pytest.mark.parametrize("target", ["/dev/null", "folder", "link"])
def test_a_link_to_what_is_no_file_is_refused_and_stays(tmp_path: Path, target: str) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(target)
    for force in (False, True):
        with pytest.raises(HetsimError, match="link: not a file that can be written"):
            refuse_existing(link, force)
    with pytest.raises(HetsimError, match="link: not a file that can be written"):
        write_text(link, "x")
    assert str(link.readlink()) == target


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(HetsimError, match="not a file that can be written"):
        write_text(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    file = write_text(tmp_path / "a.txt", "x")
    file.chmod(0o600)
    assert stat.S_IMODE(write_text(file, "y").stat().st_mode) == 0o600
