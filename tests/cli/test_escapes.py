"""What comes from a file or from whoever typed must not drive the terminal, and nothing ends in a traceback."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.cli import console
from tests.cli.conftest import Said
from tests.conftest import PATIENCE_S, ROOT

OWNS = "\x1b]0;owned\x07\x1b[31m"
SHOWN = r"\x1b]0;owned\x07\x1b[31m"


@pytest.fixture
def owned(here: Path) -> Path:
    """A trace whose virtual cluster, user and ids drive a terminal."""
    rows = "".join(f"j{OWNS}{i},0,10,1,vc{OWNS},u{OWNS}\n" for i in range(3))
    (here / "owned.csv").write_text("job_id,submit_s,duration_s,num_gpus,vc,user\n" + rows)
    return here / "owned.csv"


RUN = ("run", "--policy", "fifo", "--trace", "owned.csv", "--work", "recorded", "--cluster")


@pytest.mark.parametrize("arguments", [
    (*RUN, "v100:2", "--vc", "other"),  # after 'allowed:'
    (*RUN, "v100:2", "--vc", f"other{OWNS}"),
    (*RUN, f"v100:{OWNS}"),
    (*RUN, "v100:2", "--set", f"{OWNS}=1"),
    ("run", "--trace", f"no{OWNS}file.csv"),
    ("run", f"--{OWNS}"), (OWNS,), ("trace", OWNS), ("run", "--work", OWNS),  # typer says these
    ("trace", "check", "owned.csv"), ("trace", "describe", "owned.csv"),
    ("trace", "convert", "owned.csv", f"made{OWNS}.csv"),
])
def test_text_of_a_trace_or_of_an_option_never_drives_the_terminal(
    owned: Path, hetsim: Callable[..., Said], arguments: tuple[str, ...]
) -> None:
    said = hetsim(*arguments)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", said.out + said.err)
    assert SHOWN[:4] in said.out + said.err


def test_tables_show_it_escaped_too(capsys: pytest.CaptureFixture[str]) -> None:
    table = console.new_table("name", title=f"of {OWNS}")
    table.add_row(console.cell(OWNS))
    console.show(table)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and shown.count(r"\x1b]0;owned") == 2


def test_no_command_prints_past_the_escape() -> None:
    """`console` has the only print of the commands, but that of the version."""
    for file in sorted((ROOT / "sim" / "cli").glob("*.py")):
        bare = re.findall(r"(?<![\w.])print\((?!version)", file.read_text())
        assert len(bare) == (file.name == "console.py"), file.name


def test_ctrl_c_while_modules_are_imported_is_a_message() -> None:
    code = ("import sys\n"
            "class Stopped:\n"
            "    def find_spec(self, name, *_):\n"
            "        if name == 'sim.cli':\n"
            "            raise KeyboardInterrupt\n"
            "sys.meta_path.insert(0, Stopped())\n"
            "from sim.__main__ import main\n"
            "main()\n")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT,
                          timeout=PATIENCE_S)
    assert (said.returncode, said.stdout, said.stderr) == (130, "", "hetsim: interrupted, nothing is half written\n")


@pytest.mark.filterwarnings("default::UserWarning")
def test_warnings_are_messages_without_a_line_of_our_code(
    here: Path, hetsim: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    import warnings

    def warned(*_: object) -> None:
        warnings.warn(f"node 2: taken for {OWNS}", stacklevel=2)

    monkeypatch.setattr(console, "policies_table", warned)
    monkeypatch.setattr(console, "show", lambda _: None)
    said = hetsim("policies")
    assert (said.code, said.out, said.err) == (0, "", f"hetsim: node 2: taken for {SHOWN}\n")
