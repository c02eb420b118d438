"""Damaged files that are no traces are accepted or refused by name: the first mutants of `experiments/fuzz.py`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.audit import audit
from analysis.run import RunError, load_run
from analysis.run.runjson import _Settings
from experiments import fuzz
from experiments.fuzz_inputs import Kind, kinds
from sim.performance.calibration import Calibration
from sim.performance.graph import PerformanceError
from sim.performance.tables.any_table import load_table
from tests.conftest import PATIENCE_S
from traces.errors import HetsimError, TraceError
from traces.readers import gavel_rates
from traces.reading.limits import is_amount
from traces.reading.logmap import log_map
from traces.reading.times import zone

EACH = 6


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Kind]]:
    yield kinds(tmp_path_factory.mktemp("whole"))


def laid(kind: Kind, folder: Path) -> Path:
    for name, data in {**kind.beside, kind.file: kind.content}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder / kind.file


@pytest.mark.filterwarnings("ignore:.*its output is not in the file:UserWarning")
def test_each_whole_file_is_read(every: list[Kind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n, kind in enumerate(every):
        path = laid(kind, tmp_path / str(n))
        monkeypatch.chdir(tmp_path / str(n))
        kind.read(path)


def test_a_damaged_file_is_accepted_or_refused(
    every: list[Kind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "HANGS_S", PATIENCE_S)
    tally, failures = fuzz.fuzz(0, range(EACH * len(every)), every, tmp_path)
    assert not failures, f"mutant {failures[0].number} of {failures[0].kind}: {failures[0].text}"
    assert sum(tally.values()) == EACH * len(every)
    assert {kind.name for kind in every} == {name for name, _ in tally}
    assert {found for _, found in tally} == {"accepted", "refused"}


def _raises(_: Path) -> object:
    raise KeyError("a traceback")


def _dies(_: Path) -> object:
    os.abort()


def _fills(_: Path) -> object:
    raise MemoryError


def _ends_otherwise(_: Path) -> object:
    error = HetsimError("wrong")
    error.exit_code = 1
    raise error


@pytest.mark.parametrize(("read", "fate"), [
    (_raises, "traceback"), (_ends_otherwise, "traceback"), (_dies, "died"), (_fills, "above 1 GiB")])
def test_a_door_with_a_fault_is_found_out(read: Callable[[Path], object], fate: str, tmp_path: Path) -> None:
    tally, failures = fuzz.fuzz(0, range(3), [Kind("faulty", "x.csv", b"a,b\n1,2\n", read)], tmp_path)
    assert tally == {("faulty", fate): 3}
    assert [failure.number for failure in failures] == [0, 1, 2]


def test_the_same_number_makes_the_same_mutant(every: list[Kind]) -> None:
    for number, kind in enumerate(every):
        assert fuzz.mutant(0, number, kind) == fuzz.mutant(0, number, kind)


# What was found, as kinds


@pytest.mark.parametrize("gpus", ["1.5", "[1]", '"V100"', "{}"])
def test_gpus_of_a_calibration_are_a_list_of_texts(gpus: str, tmp_path: Path, every: list[Kind]) -> None:
    text = next(kind for kind in every if kind.name == "calibration").content.decode()
    lines = [line for line in text.splitlines() if not line.startswith("gpus")]
    (tmp_path / "c.toml").write_text("\n".join([f"gpus = {gpus}", *lines]))
    with pytest.raises(PerformanceError, match="gpus is not a list of GPU types"):
        Calibration.load(tmp_path / "c.toml")


@pytest.mark.parametrize("figure", ["[1]", '["x"]', "[[]]", '[{name = "a", kind = "lines", y = [[1]], x = "seed"}]'])
def test_a_figure_that_is_no_table_is_refused(figure: str, tmp_path: Path) -> None:
    from analysis.figures.sweepdrawing import drawings

    (tmp_path / "s.toml").write_text(f"figure = {figure}\n")
    with pytest.raises(HetsimError, match="figure"):
        drawings(tmp_path / "s.toml")


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, every: list[Kind]) -> None:
    path = laid(next(kind for kind in every if kind.name == "a run's nodes.parquet"), tmp_path)
    table = pq.read_table(path)
    twice = [*table.column_names, table.column_names[0]]
    pq.write_table(pa.table([*table.columns, table.column(0)], names=twice), path)
    with pytest.raises(RunError, match="is there twice"):
        load_run(tmp_path)


def test_a_map_that_goes_too_deep_to_be_kept_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text("[columns]\nid = " + "[" * 300 + "]" * 300)
    with pytest.raises(HetsimError, match="nested too deeply"):
        log_map(str(tmp_path / "m.toml"))


@pytest.mark.parametrize("value", ["a lot", [1.0], {}, True, -1.0])
def test_settings_that_the_audit_counts_with_are_numbers(value: object, tmp_path: Path, every: list[Kind]) -> None:
    path = laid(next(kind for kind in every if kind.name == "a run's run.json"), tmp_path)
    whole = json.loads(path.read_text())
    numbers = [name for name, field in _Settings.model_fields.items() if name.endswith("_s")]
    assert len(numbers) == 6
    for name in numbers:
        path.write_text(json.dumps(whole | {"settings": whole["settings"] | {name: value}}))
        with pytest.raises(RunError, match=f"key 'settings.{name}': a key has a value that it cannot have"):
            load_run(tmp_path)
        assert not audit(load_run(tmp_path, check=False)).ok
    path.write_text(json.dumps(whole | {"settings": whole["settings"] | {"checkpoint_interval_s": "inf"}}))
    load_run(tmp_path)


@pytest.mark.parametrize("key", ["engine", "policy_settings"])
def test_what_was_asked_for_is_a_table(key: str, tmp_path: Path, every: list[Kind]) -> None:
    path = laid(next(kind for kind in every if kind.name == "a run's run.json"), tmp_path)
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | {"config": whole["config"] | {key: [1]}}))
    with pytest.raises(RunError, match=f"key 'config.{key}'"):
        load_run(tmp_path)
    assert not audit(load_run(tmp_path, check=False)).ok


@pytest.mark.parametrize("value", [10**400, -1, float("nan"), float("inf"), True, "1", None])
def test_no_amount_is_larger_than_a_float_can_hold(value: object, tmp_path: Path) -> None:
    """JSON and TOML know integers of any length."""
    assert not is_amount(value)
    assert is_amount(10**300)
    (tmp_path / "g.json").write_text(json.dumps({"v100": {"('LM', 1)": {"null": value}}}))
    with pytest.raises(PerformanceError, match="a rate cannot be used"):
        load_table(tmp_path / "g.json")
    with pytest.raises(TraceError, match="a rate cannot be used"):
        gavel_rates.read_rates(tmp_path / "g.json")


@pytest.mark.parametrize("name", ["a/" * 2000, "Asia/Shanghai/" * 5, "x" * 10_000])
def test_a_zone_whose_name_is_too_long_for_one_is_not_looked_for(name: str) -> None:
    with pytest.raises(TraceError, match="unknown time zone"):
        zone(name)
