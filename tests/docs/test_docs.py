"""The documentation is true: links lead somewhere, code runs, lists are those of the code, numbers those of runs."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import subprocess
import tomllib
from itertools import dropwhile, takewhile
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from house import index
from policies.heterogeneous.allox import AlloX
from policies.heterogeneous.hare import Hare
from policies.heterogeneous.sia import Sia
from policies.mechanisms import Preemptive, Rounds
from policies.mechanisms.tenantqueues import TenantQueues
from policies.registry import find, names
from sim.cli import app
from sim.results import schema
from sim.settings.config import load_config
from tests.conftest import ROOT
from traces.columns import COLUMNS, STATUSES
from traces.load import FORMATS
from traces.reading.status import WORDS

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("experiments/**/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FORBIDDEN = re.compile(
    r"(?i)(?<![\w.])/(work|home|tmp|root|usr|mnt|opt|Users)/|localhost|pypi|\b(session|assistant)s?\b"
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text(page: Path | str) -> str:
    return (ROOT / page).read_text("utf-8")


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def rows(page: str, after: str = "") -> list[list[str]]:
    """Cells of the first table behind `after`, its head left out."""
    lines = text(page)[text(page).index(after) :].splitlines()
    table = takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in list(table)[2:]]


def anchors(page: Path) -> set[str]:
    """Names of a page's headings as they are linked to: lower case, blanks to dashes, no punctuation."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{named(page)}: {link}"
        assert not anchor or anchor in anchors(target), f"{named(page)}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_lines_are_not_long(page: Path) -> None:
    """At most 140 characters, but in tables and in blocks of code."""
    lines = FENCE.sub("", page.read_text("utf-8")).splitlines()
    assert not [line for line in lines if len(line) > 140 and not line.startswith("|")]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_name_no_machine_and_no_package_index(page: Path) -> None:
    found = FORBIDDEN.search(page.read_text("utf-8"))
    assert not found, f"{named(page)}: {found.group(0)!r}"


# -- lists that must be those of the code -------------------------------------------------------------------------


def test_result_columns_are_those_of_the_schema() -> None:
    assert text("docs/results.md") == schema.markdown(), "run: python -m sim.results.schema > docs/results.md"


def test_policies_are_those_of_the_registry() -> None:
    """Name by name, with what each declares of itself."""
    table = {row[0].strip("`"): row for row in rows("docs/policies.md")}
    assert tuple(table) == names()
    for name, (_, _, preemptive, needs, source) in table.items():
        policy = find(name)
        # As it is unless told otherwise.
        preempts = issubclass(policy, (Preemptive, Rounds, TenantQueues, Hare, Sia)) and not issubclass(policy, AlloX)
        assert preemptive == ("yes" if preempts else "no"), name
        declared = ["estimates"] * policy.needs_estimates + ["performance"] * policy.needs_performance
        declared += ["starts"] * policy.needs_starts
        declared += ["throughput"] * policy.needs_throughput
        assert needs == (", ".join(declared) or "nothing"), name
        assert source, name


def test_trace_columns_are_those_of_the_schema() -> None:
    table = [[cell.replace("&#124;", "|") for cell in row] for row in rows("docs/traces.md", "## The job table")]
    assert [row[0].strip("`") for row in table] == [c.name for c in COLUMNS]
    for row, column in zip(table, COLUMNS, strict=True):
        assert row[1:3] == [column.dtype, column.unit]
        assert (row[3] == "required") == column.required
        assert row[4:] == [column.allowed, column.meaning]


def test_each_format_has_a_section() -> None:
    for name in FORMATS:
        assert f"\n### `{name}`" in text("docs/traces.md") or name == "canonical", name


def test_the_status_map_is_that_of_the_code() -> None:
    table = {row[0]: row[1] for row in rows("docs/traces.md", "## How a job ended")}
    assert tuple(table) == STATUSES
    assert table == {s: ", ".join(w for w, to in WORDS.items() if to == s and w != s) for s in STATUSES}


def test_what_the_map_names_is_there() -> None:
    for row in rows("README.md", "## Map"):
        for name in re.findall(r"`([\w./-]+)`", row[0]):
            assert (ROOT / name).exists(), name


def test_the_architecture_is_short_and_names_each_room() -> None:
    """A room is a folder of one of the packages, or of their rooms, with modules in it; no other is named."""
    page = text("docs/architecture.md")
    assert len(page.split()) <= 1200
    named_there = set(re.findall(r"`(\w+)/`", page))
    drawn = set(re.findall(r"\bsim\.(\w+)", page.split("```")[1]))
    folders = {init.parent for package in index.PACKAGES for init in (ROOT / package).rglob("__init__.py")}
    assert {folder.name for folder in folders} <= named_there | drawn
    assert named_there <= {folder.name for folder in folders}


def test_layers_are_those_that_the_linter_holds() -> None:
    """The picture of the rooms, behind its head, is the contract: the same rooms, those on a line beside each other."""
    contracts = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    drawn = text("docs/architecture.md").split("```")[1].splitlines()[2:]
    assert [line.split("  ")[0] for line in drawn] == contracts[0]["layers"]


def test_the_index_of_files_is_up_to_date() -> None:
    assert text("docs/files.md") == index.page(), "run: make index"


def test_a_module_that_says_nothing_of_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"mute\.py: no docstring"):
        index.first_line(tmp_path / "mute.py")


# -- code that must run, figures that must be so --------------------------------------------------------------------


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder in which `hetsim run` was called once, as the README does, with fewer jobs."""
    folder = tmp_path_factory.mktemp("docs")
    hetsim(folder, "run", "--jobs", "40", "--quiet")
    return folder


def hetsim(folder: Path, *words: str) -> str:
    """What the program prints, called in a folder."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_python_on_the_page_runs(page: str, workplace: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [code for language, code in FENCE.findall(text(page)) if language == "python"]
    assert blocks
    monkeypatch.chdir(workplace)
    for code in blocks:
        exec(compile(code, page, "exec"), {})
        assert "count" in capsys.readouterr().out


@pytest.mark.slow
def test_the_tutorial_shows_what_its_commands_print(workplace: Path) -> None:
    """Each line that it shows is printed by the commands above it; its jobs and settings can be used."""
    page = text("docs/tutorial.md")
    for command in re.findall(r"^hetsim (run --policy .*|audit .*|trace convert philly .*)$", page, re.MULTILINE):
        hetsim(workplace, *command.split())
    shown = next(code for language, code in FENCE.findall(page) if language == "text")
    printed = hetsim(workplace, *re.search(r"^hetsim (compare .*)$", page, re.MULTILINE)[1].split())
    squeezed = {re.sub(r"\s+", " ", line) for line in printed.splitlines()}
    for line in shown.splitlines():
        assert re.sub(r"\s+", " ", line) in squeezed, line
    blocks = dict(FENCE.findall(page))
    (workplace / "jobs.csv").write_text(blocks["csv"])
    for command in re.findall(r"^hetsim (trace check .*|run --trace .*)$", page, re.MULTILINE):
        hetsim(workplace, *command.split())
    for language, code in FENCE.findall(page):
        if language == "toml":
            (workplace / code.splitlines()[0].removeprefix("# ")).write_text(code)
    assert load_config(workplace / "experiment.toml").engine.mtbf_h == 2000
    for command in re.findall(r"^hetsim (explain .*|sweep .*|reproduce .*|compare sweeps.*)$", page, re.MULTILINE):
        hetsim(workplace, *command.split("#")[0].split())


def table_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("experiments_table", ROOT / "experiments" / "table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_rows_of_the_comparison_are_what_runs_give(tmp_path: Path) -> None:
    """Two of its rows made anew, a plain policy and a planner; each other policy has a row."""
    script = table_script()
    table = text("README.md").split("<!-- table: experiments/all-policies.toml -->\n")[1].split("\n\n")[0].splitlines()
    assert tuple(table[:2]) == script.HEAD
    by_name = {line.split("|")[1].strip(): line for line in table[2:]}
    assert sorted(by_name) == [name for name in names() if not find(name).needs_starts], "who replays is no scheduler"
    for name in ("fifo-skip", "homogeneous"):
        assert script.row(name, script.simulate(name, tmp_path / name)) == by_name[name]


def test_the_experiment_is_the_default_run() -> None:
    """`make sim` and the table are the same run: nothing in the file differs from the defaults."""
    from sim.workload.prepare import resolved

    file, plain = (resolved(load_config(path)) for path in (ROOT / "experiments" / "all-policies.toml", None))
    assert file == plain


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs" / "images" / "jct-cdf.png").stat().st_size < 150_000


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_two_commands_are_targets() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, text=True, capture_output=True, check=True).stdout
    for target in re.findall(r"^make (\w+)", text("README.md"), re.MULTILINE):
        assert re.search(rf"^  {target}\s", listed, re.MULTILINE), target


def test_each_answered_report_names_tests_that_exist() -> None:
    sources = [file.read_text("utf-8") for file in ROOT.glob("tests/**/*.py")]
    defined = {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}
    claimed = re.findall(r"`(test_\w+)`", text("docs/user-reports.md"))
    assert len(claimed) >= 30
    assert not [name for name in claimed if name not in defined]


def test_each_column_has_its_unit_in_the_metadata() -> None:
    """The unit that a name ends in is the one that the metadata says."""
    for table, columns in schema.FILES.items():
        for field in columns:
            unit = field.metadata[b"unit"].decode()
            for suffix, expected in (("_s", "s"), ("_gib", "GiB"), ("_usd", "USD"), ("_milli", "1/1000 GPU")):
                if field.name.endswith(suffix):
                    assert unit == expected, (table, field.name)
