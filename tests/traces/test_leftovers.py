"""What killed writers leave is put right by the next one; the instants of the kill are the calls that change names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from traces import leftovers
from traces.errors import HetsimError
from traces.outfile import write_text, written, written_folder

KILL = """
import os, shutil, signal, sys
from pathlib import Path
from traces.outfile import write_text, written_folder
target, at, done = Path(sys.argv[1]), int(sys.argv[2]), 0

def counted(call):
    def wrapped(*args, **kwargs):
        global done
        if done == at:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        return call(*args, **kwargs)
    return wrapped

for owner, name in ((os, "rename"), (os, "replace"), (os, "mkdir"), (os, "rmdir"), (os, "unlink"), (os, "open")):
    setattr(owner, name, counted(getattr(owner, name)))
import io
io.open = counted(io.open)
if target.suffix:
    write_text(target, "new")
else:
    with written_folder(target) as part:
        (part / "run.json").write_text("new")
        (part / "jobs").write_text("new")
print(done)
"""


def dead_pid() -> int:
    """The number of a process that is no more."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    return gone.pid


def left(folder: Path, name: str, kind: str, pid: int | None = None, host: str | None = None) -> Path:
    return folder / f".{name}.{host or leftovers._host()}-{pid or dead_pid()}.{kind}"


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("target", ["run", "table.csv"])
def test_killed_at_each_step_the_old_or_the_new_is_there_and_nothing_else_is_left(tmp_path: Path, target: str) -> None:
    """Every call that touches a name is an instant of a SIGKILL, the two renames included."""
    old, new = ({"run/run.json": word, "run/jobs": word} if target == "run" else {target: word} for word in
                ("old", "new"))
    if target == "run":
        (tmp_path / "run").mkdir()
    seen, at = set(), 0
    while True:
        for name, text in old.items():
            (tmp_path / name).write_text(text)
        done = subprocess.run([sys.executable, "-c", KILL, tmp_path / target, str(at)], check=False,
                              capture_output=True, text=True)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        leftovers.recover(tmp_path)
        found = {name: text for name, text in contents(tmp_path).items() if not name.startswith(".")}
        assert found in (old, new), at
        seen.add(found == new)
        leftovers.clear(tmp_path)
        assert contents(tmp_path) == found, at
        at += 1
    assert at == int(done.stdout) >= 2 and contents(tmp_path) == new
    assert False in seen


def test_the_next_writer_clears_what_the_dead_left_and_nothing_else(tmp_path: Path) -> None:
    for gone in (left(tmp_path, "x.csv", "part"), left(tmp_path, "other", "part", os.getpid())):
        gone.write_text("half")
    (folder := left(tmp_path, "run", "part")).mkdir()
    (folder / "jobs.parquet").write_text("half")
    living = left(tmp_path, "y", "part", os.getppid())
    elsewhere = left(tmp_path, "z", "part", host="00000000")
    strangers = [tmp_path / name for name in (".x.part01", ".hidden", "x.0a0b0c0d-1.part", ".x.old", ".x.7.part")]
    for kept in (living, elsewhere, *strangers):
        kept.write_text("theirs")
    write_text(tmp_path / "a.txt", "new")
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for path in (living, elsewhere, *strangers, tmp_path / "a.txt")}


def test_of_another_host_a_leftover_is_one_after_a_day_and_so_is_one_whose_number_another_has_now(
    tmp_path: Path,
) -> None:
    elsewhere, reused = left(tmp_path, "z", "part", host="00000000"), left(tmp_path, "y", "part", os.getppid())
    for file in (elsewhere, reused):
        file.write_text("half")
    for ago_s, there in ((leftovers.DAY_S / 2, True), (leftovers.DAY_S * 2, False)):
        for file in (elsewhere, reused):
            os.utime(file, (time.time() - ago_s,) * 2)
        leftovers.clear(tmp_path)
        assert (elsewhere.exists(), reused.exists()) == (there, there)


@pytest.mark.parametrize(("name", "whose", "days", "holds", "there"), [
    (".run.part{}", "dead", 2, ["jobs.parquet", "run.json"], False),
    (".run.old{}", "dead", 2, ["jobs.parquet", "timing.json"], False),
    (".run.part{}", "dead", 2, [], False),
    (".run.part{}", "dead", 0.5, ["jobs.parquet"], True),
    (".run.part{}", "parent", 2, ["jobs.parquet"], True),
    (".run.part{}", "ours", 2, ["jobs.parquet"], True),
    (".run.part{}", "dead", 2, ["jobs.parquet", "notes.txt"], True),
    (".run.part{}", "dead", 2, ["jobs.parquet", "folder/"], True),
    (".run.parts{}", "dead", 2, ["jobs.parquet"], True),
])
def test_what_earlier_versions_left_goes_where_it_is_a_run_and_none_can_be_at_it(
    tmp_path: Path, name: str, whose: str, days: float, holds: list[str], there: bool
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("now")
    pid = {"dead": dead_pid, "parent": os.getppid, "ours": os.getpid}[whose]()
    (folder := tmp_path / name.format(pid)).mkdir()
    for file in holds:
        (folder / file).mkdir() if file.endswith("/") else (folder / file).write_text("then")
    os.utime(folder, (time.time() - days * leftovers.DAY_S,) * 2)
    stranger = tmp_path / f".x.part{dead_pid()}"
    stranger.write_text("a file: it may be another program's")
    os.utime(stranger, (0, 0))
    leftovers.clear(tmp_path)
    assert (folder.exists(), stranger.exists()) == (there, True)
    assert (tmp_path / "run" / "run.json").read_text() == "now"


def test_a_run_that_an_earlier_version_was_replacing_gets_its_name_back(tmp_path: Path) -> None:
    (old := tmp_path / f".run.old{dead_pid()}").mkdir()
    (old / "run.json").write_text("then")
    os.utime(old, (0, 0))
    leftovers.recover(tmp_path)
    assert contents(tmp_path) == {"run/run.json": "then"}


def test_what_this_process_writes_is_no_leftover(tmp_path: Path) -> None:
    with written(tmp_path / "a.txt") as part:
        part.write_text("new")
        leftovers.clear(tmp_path)
    with written_folder(tmp_path / "run") as part:
        (part / "run.json").write_text("new")
        leftovers.clear(tmp_path)
    assert contents(tmp_path) == {"a.txt": "new", "run/run.json": "new"}


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "a folder with something"])
def test_an_earlier_folder_gets_its_name_back_unless_it_has_another_owner(tmp_path: Path, there: str) -> None:
    (old := left(tmp_path, "run", "old")).mkdir()
    (old / "run.json").write_text("old")
    if there != "nothing":
        (tmp_path / "run").mkdir()
    if there == "a folder with something":
        (tmp_path / "run" / "run.json").write_text("new")
    leftovers.recover(tmp_path)
    assert (tmp_path / "run" / "run.json").read_text() == ("new" if there == "a folder with something" else "old")
    leftovers.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_name_is_claimed_by_who_lives_only(tmp_path: Path) -> None:
    target = tmp_path / "run"
    leftovers.beside(target, "claim").touch()
    left(tmp_path, "run", "claim").touch()
    left(tmp_path, "run-2", "claim", os.getppid()).touch()
    assert not leftovers.claimed(target)
    left(tmp_path, "run", "claim", os.getppid()).touch()
    assert leftovers.claimed(target)


def no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["replace", "rename", "mkdir"])
def test_a_full_disk_leaves_all_as_it_was(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "a.txt", "old")
    with written_folder(tmp_path / "run") as part:
        (part / "run.json").write_text("old")
    writers: tuple[Callable[[], object], ...] = (
        lambda: write_text(tmp_path / "a.txt", "new"), lambda: _write_run(tmp_path / "run"))
    monkeypatch.setattr(Path, call, no_space)
    failed = 0
    for writer in writers:
        try:
            writer()
        except (HetsimError, OSError) as error:
            failed += 1
            assert "No space left on device" in str(error)
    monkeypatch.undo()
    assert failed >= 1
    found = contents(tmp_path)
    assert set(found) == {"a.txt", "run/run.json"} and list(found.values()).count("old") == failed


def _write_run(folder: Path) -> None:
    with written_folder(folder) as part:
        (part / "run.json").write_text("new")
