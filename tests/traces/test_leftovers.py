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


def left(
    folder: Path, name: str, kind: str, pid: int | None = None, host: str | None = None, began: str | None = None
) -> Path:
    writer = f"{pid or dead_pid()}{f'-{began}' if began else ''}"
    return folder / f".{name}.{host or leftovers._host()}-{writer}.{kind}"


def began(pid: int) -> str:
    """When a process began: the 22nd word of what Linux says of it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


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


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="when a process began is told by /proc")
def test_who_lives_keeps_what_it_writes_for_years_and_who_has_its_number_later_does_not(tmp_path: Path) -> None:
    parent = os.getppid()
    (theirs := left(tmp_path, "run", "claim", parent, began=began(parent))).touch()
    (folder := left(tmp_path, "x", "part", parent, began=began(parent))).mkdir()
    later = left(tmp_path, "run-2", "claim", parent, began=str(int(began(parent)) + 1))
    ours = leftovers.beside(tmp_path / "run-3", "claim")
    assert ours.name == f".run-3.{leftovers._host()}-{os.getpid()}-{began(os.getpid())}.claim"
    for file in (theirs, folder, later, ours):
        file.touch()
        os.utime(file, (time.time() - 1000 * leftovers.DAY_S,) * 2)
    os.utime(later)  # a moment ago
    assert [leftovers.claimed(tmp_path / name) for name in ("run", "run-2", "run-3")] == [True, False, False]
    with leftovers.held(ours):
        leftovers.clear(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted((theirs, folder, ours))
    leftovers.clear(tmp_path)  # it is ours, and we are not at it
    assert sorted(tmp_path.iterdir()) == sorted((theirs, folder))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="when a process began is told by /proc")
def test_who_was_killed_and_not_asked_for_yet_writes_no_more(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (mark := left(tmp_path, "run", "claim", child.pid, began=began(child.pid))).touch()
    assert leftovers.claimed(tmp_path / "run")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays as it is
    assert not leftovers.claimed(tmp_path / "run") and mark.exists()
    child.communicate()
    assert not leftovers.claimed(tmp_path / "run")


@pytest.mark.parametrize("told", [True, False])
def test_a_day_decides_where_the_process_cannot_be_asked(
    tmp_path: Path, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another host; of our own where the name does not say when the process began, or the system does not."""
    elsewhere = left(tmp_path, "z", "part", host="00000000", began="17")
    unsaid = left(tmp_path, "y", "part", os.getppid(), began=None if told else "17")
    if not told:
        monkeypatch.setattr(leftovers, "_state_and_began", lambda _: ("", ""))
        assert leftovers.beside(tmp_path / "x", "part").name == f".x.{leftovers._host()}-{os.getpid()}.part"
    for file in (elsewhere, unsaid):
        file.write_text("half")
    for ago_s, there in ((leftovers.DAY_S / 2, True), (leftovers.DAY_S * 2, False)):
        for file in (elsewhere, unsaid):
            os.utime(file, (time.time() - ago_s,) * 2)
        leftovers.clear(tmp_path)
        assert (elsewhere.exists(), unsaid.exists()) == (there, there)


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
