"""Damaged files of every format become a valid trace or a message that says where and what: never a traceback, a hang.

The files are those of `experiments/fuzz_traces.py`, which makes any number of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments import fuzz_traces
from experiments.fuzz_damage import DAMAGES, Damage
from experiments.fuzz_seeds import SEEDS, Seed, real_seeds
from experiments.fuzz_traces import case, fuzz, outcome
from tests.conftest import PATIENCE_S
from traces.errors import TraceError
from traces.load import FORMATS, load_trace
from traces.machines.any_form import forms, read_machines
from traces.machines.philly_use import read_all_use
from traces.trace import Trace

BLOCK = 1000


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is merely slow does not hang."""
    monkeypatch.setattr(fuzz_traces, "HANGS_S", PATIENCE_S)


def whole(seed: Seed, folder: Path) -> object:
    """What a seed's own, undamaged file is read as."""
    for name, data in ((seed.name, seed.data), *seed.beside):
        (folder / name).write_bytes(data)
    paths = {key: str(folder / name) for key, name in seed.paths}
    target = folder if seed.folder else folder / seed.name
    return read_machines(target, **paths) if seed.machines else load_trace(target, **paths)


def test_every_format_and_every_form_of_machine_list_has_a_file_to_damage() -> None:
    assert {seed.format for seed in SEEDS if not seed.machines} == set(FORMATS)
    assert {seed.format for seed in SEEDS if seed.machines} == set(forms())


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.format}-{seed.name}")
def test_a_whole_file_is_read_as_its_format(seed: Seed, tmp_path: Path) -> None:
    found = whole(seed, tmp_path)
    if isinstance(found, Trace):
        assert found.provenance.format == seed.format
    assert len(found) > 0 if isinstance(found, Trace) else np.sum(found.gpus) > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("block", range(4))
def test_a_damaged_file_is_read_or_refused(block: int, tmp_path: Path) -> None:
    tally, failures = fuzz(0, range(block * BLOCK, (block + 1) * BLOCK), SEEDS, tmp_path)
    assert not failures, f"file {failures[0].made.number}: {failures[0].error}"
    assert sum(tally.values()) == BLOCK
    assert sum(count for name, count in tally.items() if name.endswith(": read")) > BLOCK / 20


def test_a_damaged_real_file_is_read_or_refused(data_dir: Path, tmp_path: Path) -> None:
    seeds = real_seeds(data_dir)
    assert len({seed.format for seed in seeds}) >= 10
    _, failures = fuzz(1, range(BLOCK), seeds, tmp_path)
    assert not failures, f"file {failures[0].made.number}: {failures[0].error}"


def test_a_damaged_row_of_utilisation_is_read_or_refused(tmp_path: Path) -> None:
    """Philly's samples of GPU use, which no door detects."""
    row = b"2017-10-03 00:08:00 PDT,m29,60.8,99.4,NA,63.3,100.0,100.0,100.0,100.0,\n"
    whole_one, read = Seed("", "cluster_gpu_util", row * 3), 0
    for number in range(500):
        path = tmp_path / "cluster_gpu_util"
        path.write_bytes(case(2, number, [whole_one]).data)
        try:
            values = read_all_use(path).filter(like="util").to_numpy()
        except TraceError as error:
            assert str(path) in error.where
        else:
            read += 1
            assert not (values < 0).any()
            assert not np.isinf(values).any()
    assert read > 20


def test_the_same_number_makes_the_same_file() -> None:
    made, again, other = case(0, 7, SEEDS), case(0, 7, SEEDS), case(1, 7, SEEDS)
    assert made == again
    assert made.data != other.data


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_each_kind_of_damage_does_some(damage: Damage) -> None:
    """To almost every text it is given; the same generator damages alike."""
    changed = 0
    for seed in SEEDS:
        out = damage(seed.data, np.random.default_rng(5))
        assert out == damage(seed.data, np.random.default_rng(5))
        changed += out != seed.data
    assert changed > len(SEEDS) / 3


@pytest.mark.parametrize("fault", ["raises", "hangs", "warns", "tells nowhere", "floods", "years"])
def test_a_reader_with_a_fault_is_found_out(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path, *_: object, **__: object) -> Trace:
        if fault == "raises":
            raise KeyError("a traceback")
        if fault == "hangs":
            while True:
                pass
        if fault == "warns":
            np.array([1e300]) * 1e300
        if fault == "tells nowhere":
            raise TraceError("something is wrong")
        if fault == "floods":
            raise TraceError("x" * 100_000, where=str(path))
        return load_trace(path).replace(duration_s=np.full(3, 1e10))

    monkeypatch.setattr(fuzz_traces, "load_trace", read)
    monkeypatch.setattr(fuzz_traces, "HANGS_S", 0.05)
    seed = next(seed for seed in SEEDS if seed.format == "itp")
    whole_one = fuzz_traces.Case(0, seed, seed.data, (), None, {})
    with pytest.raises(Exception) as error:
        outcome(whole_one, tmp_path)
    assert not isinstance(error.value, TraceError)
    assert not list(tmp_path.iterdir())
