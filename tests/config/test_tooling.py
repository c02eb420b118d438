"""The lock, the Makefile and the import contracts keep their promises. No network: pip is a stand-in here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports
from packaging.requirements import Requirement
from packaging.version import Version

from tests.conftest import PATIENCE_S, ROOT, pytest_collection_modifyitems

LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MAKE = shutil.which("make")


def pins() -> dict[str, Version]:
    return {name: Version(version) for name, version in re.findall(r"^([\w.-]+)==(\S+) \\$", LOCK, re.M)}


# -- the lock


def test_the_lock_pins_everything_that_the_project_asks_for():
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["dev"],
             *PROJECT["build-system"]["requires"]]
    assert len(asked) > 15
    for text in asked:
        need = Requirement(text)
        assert pins()[need.name.lower()] in need.specifier, text


def test_every_pin_has_hashes_and_compiled_packages_have_those_of_several_platforms():
    blocks = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.M)[1:]
    digest = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")
    hashes = {block.split("==")[0]: len(digest.findall(block)) for block in blocks}
    assert set(hashes) == set(pins())
    assert min(hashes.values()) >= 1
    for name in ("numpy", "pandas", "pyarrow", "numba", "llvmlite", "pydantic-core", "matplotlib", "ruff"):
        assert hashes[name] > 8, f"{name}: too few for three Pythons on Linux, macOS and Windows"


def test_the_lock_names_no_host_and_no_path_of_a_machine():
    assert not re.search(r"https?:|file:/|--index|--extra-index|--find-links|--trusted", LOCK)
    assert not re.search(r"(^|\s)/\w", LOCK)


# -- the direction of imports


def test_imports_go_one_way(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    status = lint_imports(no_cache=True)
    shown = capsys.readouterr().out
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    assert f"Contracts: {len(contracts)} kept, 0 broken." in shown, shown
    assert status == EXIT_STATUS_SUCCESS


# -- the Makefile, in a folder with a blank in its name


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    if MAKE is None:
        pytest.skip("make is not installed")
    repo = tmp_path / "a repo"
    repo.mkdir()
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copyfile(ROOT / name, repo / name)
    return repo


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
    path.chmod(0o755)


def tools_of(repo: Path, *more: str) -> Path:
    """A folder with the few programs that may be on the PATH."""
    tools = repo.parent / "tools"
    tools.mkdir(exist_ok=True)
    for tool in ("rm", "mkdir", "touch", "cat", "sed", "expand", "chmod", "find", "echo", *more):
        if not (tools / tool).exists():
            (tools / tool).symlink_to(shutil.which(tool))
    return tools


def make(repo: Path, *words: str, python: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run make with no Python on the PATH but the stand-in `python3`, if one is given."""
    tools = tools_of(repo)
    if python is not None:
        script(tools / "python3", python)
    assert MAKE is not None
    return subprocess.run([MAKE, *words], cwd=repo, env={"PATH": str(tools), "HOME": str(repo.parent)},
                          text=True, capture_output=True, check=False, timeout=PATIENCE_S)


def ready(repo: Path, hetsim: str = 'for word in "$@"; do echo "<$word>"; done') -> None:
    """An environment that is complete; its python tells of each call."""
    script(repo / ".venv/bin/python", 'echo "python called: $*"')
    script(repo / ".venv/bin/hetsim", hetsim)
    (repo / ".venv/.complete").touch()


#: A python3 whose `-m venv` makes an environment that logs what its python is asked to do.
NEW_ENOUGH = r"""
case "$1" in
-c) exit 0 ;;
-V) echo Python 3.12.0 ;;
-m) mkdir -p .venv/bin
    printf '#!/bin/sh\necho "$@" >> log\n%s\n' "$(cat ../pip 2>/dev/null)" > .venv/bin/python
    printf '#!/bin/sh\necho simulated\n' > .venv/bin/hetsim
    chmod +x .venv/bin/python .venv/bin/hetsim ;;
esac
"""


def test_make_alone_lists_the_targets(repo):
    result = make(repo)
    assert result.returncode == 0
    for target in ("sim", "test", "lint", "bench", "figures", "clean", "help"):
        assert re.search(rf"^  {target}\s+\w", result.stdout, re.M), target


def test_make_sim_runs_hetero_on_philly_and_never_calls_pip_again(repo):
    ready(repo)
    result = make(repo, "sim")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split("\n") == ["<run>", "<--policy>", "<hetero>", "<--trace>", "<philly>", ""]


def test_make_sim_hands_its_settings_on_blanks_and_all(repo):
    ready(repo)
    result = make(repo, "sim", "POLICY=las", "TRACE=my trace.csv", "FORMAT=philly", "CLUSTER=v100:8x4+t4:2x8",
                  "JOBS=10", "SEED=3", "LOAD=0.7", "OUT=my runs/1", "ARGS=--quiet -P a=1")
    assert result.stdout.split("\n")[:-1] == [f"<{word}>" for word in (
        "run", "--policy", "las", "--trace", "my trace.csv", "--format", "philly",
        "--cluster", "v100:8x4+t4:2x8", "--jobs", "10", "--seed", "3", "--load", "0.7",
        "--out", "my runs/1", "--quiet", "-P", "a=1")]


def test_a_run_that_fails_makes_make_fail(repo):
    ready(repo, hetsim="echo trouble >&2; exit 2")
    result = make(repo, "sim")
    assert result.returncode == 2
    assert "trouble" in result.stderr


def test_the_first_use_installs_the_lock_with_hashes_then_the_project_and_says_so(repo):
    result = make(repo, "sim", python=NEW_ENOUGH)
    assert (result.returncode, result.stdout) == (0, "simulated\n")
    assert result.stderr.startswith("Making .venv with Python 3.12.0")
    lock, project = (repo / "log").read_text().splitlines()
    assert "--require-hashes -r requirements.lock" in lock
    assert "--no-deps --no-build-isolation -e ." in project
    assert make(repo, "sim", python=NEW_ENOUGH).stderr == ""
    assert len((repo / "log").read_text().splitlines()) == 2, "the second run called pip"


def test_a_new_lock_is_installed_on_the_next_use(repo):
    make(repo, "sim", python=NEW_ENOUGH)
    os.utime(repo / ".venv/.complete", (1, 1))  # as if the lock had been changed since
    assert make(repo, "sim", python=NEW_ENOUGH).stderr.startswith("Bringing .venv up to requirements.lock")
    assert sum("-r requirements.lock" in line for line in (repo / "log").read_text().splitlines()) == 2


def test_a_failed_installation_leaves_nothing_and_the_next_run_repairs(repo):
    (repo.parent / "pip").write_text("exit 1")
    assert make(repo, "sim", python=NEW_ENOUGH).returncode != 0
    assert not (repo / ".venv").exists()
    (repo.parent / "pip").unlink()
    assert make(repo, "sim", python=NEW_ENOUGH).stdout == "simulated\n"


def test_an_environment_that_was_left_half_made_is_made_anew(repo):
    script(repo / ".venv/bin/python", "exit 0")
    (repo / ".venv/.building").touch()
    (repo / ".venv/leftover").touch()
    assert make(repo, "sim", python=NEW_ENOUGH).stdout == "simulated\n"
    assert not (repo / ".venv/leftover").exists()
    assert not (repo / ".venv/.building").exists()


def test_without_a_python_that_will_do_the_message_says_what_is_needed(repo):
    for python in (None, "exit 1"):
        result = make(repo, "sim", python=python)
        assert result.returncode != 0
        assert "hetsim needs Python 3.11 or newer with its venv module" in result.stderr
        assert not (repo / ".venv").exists()


def test_make_clean_removes_the_environment_and_keeps_the_runs(repo):
    ready(repo)
    (repo / "runs").mkdir()
    (repo / "sim/__pycache__").mkdir(parents=True)
    assert make(repo, "clean").returncode == 0
    assert not (repo / ".venv").exists()
    assert not (repo / "sim/__pycache__").exists()
    assert (repo / "runs").exists()


def test_make_test_uses_every_core_and_hands_its_arguments_on(repo):
    ready(repo)
    said = make(repo, "test", "ARGS=tests/engine -k x").stdout
    assert said == "python called: -m pytest -n auto --dist worksteal tests/engine -k x\n"
    said = make(repo, "test-quick", "ARGS=tests/engine -k x").stdout
    assert said == "python called: -m pytest --quick -n auto --dist worksteal tests/engine -k x\n"


@dataclass(frozen=True)
class Item:
    """A test as the collection shows it."""

    nodeid: str
    slow: bool = False

    @property
    def path(self) -> str:
        return self.nodeid.partition("::")[0]

    def get_closest_marker(self, name: str) -> bool | None:
        return True if self.slow and name == "slow" else None


class Chosen:
    """A configuration with or without `--quick`, which hears what is left out."""

    def __init__(self, quick: bool) -> None:
        self.quick, self.left, self.hook = quick, [], self

    def getoption(self, name: str, default: bool) -> bool:
        return self.quick if name == "--quick" else default

    def pytest_deselected(self, items: list[Item]) -> None:
        self.left += items


def test_slow_tests_come_first_and_the_quick_layer_is_the_rest_with_two_parameters_each():
    items = [Item("a::one[1]"), Item("a::one[2[x]]"), Item("a::two", slow=True), Item("a::one[3]"), Item("b::one"),
             Item("b::all[1]", slow=True), Item("b::few[1]"), Item("c::one"), Item("d::one", slow=True)]
    whole, quick = list(items), list(items)
    pytest_collection_modifyitems(Chosen(False), whole)
    assert whole == [items[i] for i in (0, 1, 2, 3, 4, 5, 6, 8, 7)]
    config = Chosen(True)
    pytest_collection_modifyitems(config, quick)
    assert quick == [items[i] for i in (0, 3, 4, 6, 7)] and config.left == [items[i] for i in (1, 2, 5, 8)]


@pytest.mark.parametrize(("stand_ins", "told"), [
    ({"chromium": "exit 0", "chromedriver": "exit 0", "apt-get": "echo called >&2"}, ""),
    ({"id": "echo 0", "apt-get": "exit 100"}, "No Chromium could be installed: tests in a browser are skipped.\n"),
    ({"id": "echo 1000", "apt-get": "echo called >&2"}, ""),
], ids=["a browser is there", "none can be installed", "installing is not allowed"])  # fmt: skip
def test_ci_runs_the_tests_from_the_repository_root_with_or_without_a_browser(repo, stand_ins, told):
    ready(repo)
    shutil.copytree(ROOT / ".ci", repo / ".ci")
    tools = tools_of(repo, "make", "sh", "dirname", *(() if "id" in stand_ins else ("id",)))
    for tool, body in {"timeout": 'shift 3; exec "$@"', **stand_ins}.items():
        script(tools / tool, body)
    elsewhere = repo.parent
    result = subprocess.run([str(shutil.which("bash")), str(repo / ".ci/run")], cwd=elsewhere, text=True,
                            capture_output=True, check=False, timeout=PATIENCE_S,
                            env={"PATH": str(tools), "MAKELEVEL": "1"})
    assert (result.returncode, result.stderr) == (0, told)
    assert result.stdout == "python called: -m pytest -n auto --dist worksteal\n"
