"""Jobs on one GPU: slices of time, side by side, measured pairs; and how far a simple model is from Gavel's pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.performance import PerformanceError
from sim.performance.sharing import PairTable, beside, crowding, gpu_use, read_pairs, slicing

HEADER = "gpu_type,model_a,batch_a,model_b,batch_b,scale_factor,norm_a,norm_b\n"


def pairs(tmp_path: Path, *rows: str) -> PairTable:
    file = tmp_path / "pairs.csv"
    file.write_text(HEADER + "".join(row + "\n" for row in rows))
    return read_pairs(file)


def test_switching_costs_only_who_has_company() -> None:
    assert slicing(others=False, switching_loss=0.2) == 1.0
    assert slicing(others=True, switching_loss=0.2) == 1.25


def test_side_by_side_nobody_is_slowed_until_the_gpu_is_full() -> None:
    assert crowding([0.5]) == crowding([0.5, 0.5]) == 1.0
    assert crowding([0.5, 0.75, 0.25]) == 1.5


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=6), st.floats(0.01, 1))
def test_one_more_never_speeds_anyone_up_and_the_gpu_does_no_more_than_it_can(uses: list[float], more: float) -> None:
    alone, crowded = crowding(uses), crowding([*uses, more])
    assert 1 <= alone <= crowded
    assert sum(use / alone for use in uses) <= 1 + 1e-12


def test_slowdowns_add_up() -> None:
    """Three who take turns: each pair at half speed, all three at a third."""
    assert beside([]) == 1.0
    assert beside([0.5]) == 2.0
    assert beside([0.5, 0.5]) == 3.0


def test_a_pair_is_the_same_pair_the_other_way_round(tmp_path: Path) -> None:
    table = pairs(tmp_path, "v100,ResNet-18,16,A3C,,1,0.9,0.6")
    resnet, a3c = ("ResNet-18", 16), ("A3C", 0)
    assert table.rates("V100", resnet, a3c) == (0.9, 0.6)
    assert table.rates("V100", a3c, resnet) == (0.6, 0.9)


def test_p25_jobs_of_different_width_are_no_pair(tmp_path: Path) -> None:
    table = pairs(tmp_path, "v100,LM,5,LM,10,1,0.9,0.6", "v100,LM,5,LM,10,2,0.8,0.5", "v100,LM,5,LM,5,4,0,0")
    assert table.rates("V100", ("LM", 5), ("LM", 10), 2, 2) == (0.8, 0.5)
    with pytest.raises(PerformanceError, match="different width") as error:
        table.rates("V100", ("LM", 5), ("LM", 10), 1, 2)
    assert "1 and 2 GPUs" in str(error.value) and "LM (batch 5)" in str(error.value)
    assert ("V100", ("LM", 5), ("LM", 5), 4) not in table  # a row of zeros for several GPUs is no measurement


def test_what_was_not_measured_is_an_error_that_names_it(tmp_path: Path) -> None:
    table = pairs(tmp_path, "v100,LM,5,LM,10,1,0.9,0.6")
    with pytest.raises(PerformanceError, match="the pair was not measured") as error:
        table.rates("V100", ("LM", 5), ("LM", 20))
    assert "LM (batch 20) on 1 V100" in str(error.value)
    with pytest.raises(PerformanceError, match="this GPU type"):
        table.rates("V10", ("LM", 5), ("LM", 10))


@pytest.mark.parametrize(("row", "message"), [
    ("v100,LM,5,LM,10,1,0.9,fast", "line 2, column 'norm_b'"),
    ("v100,LM,5,LM,10,1,-0.1,0.5", "line 2, column 'norm_a'"),
    ("v100,LM,5,LM,10,nan,0.1,0.5", "line 2, column 'scale_factor'"),
    ("v100,LM,5", "line 2"),
])  # fmt: skip
def test_a_cell_that_cannot_be_read_is_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(PerformanceError, match=message):
        pairs(tmp_path, row)


def test_a_file_of_another_kind_is_told_its_columns(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("gpu,a,b\n")
    with pytest.raises(PerformanceError, match="columns are missing") as error:
        read_pairs(tmp_path / "pairs.csv")
    assert "Add gpu_type" in str(error.value)
    with pytest.raises(PerformanceError, match="cannot be read"):
        read_pairs(tmp_path / "no.csv")


@pytest.mark.parametrize(("gpu", "most"), [("K80", 0.07), ("P100", 0.09), ("V100", 0.17)])
def test_how_far_one_figure_a_type_is_from_gavels_pairs(data_dir: Path, gpu: str, most: float) -> None:
    """Summed rates of all pairs that ran together, both jobs relative to being alone.

    The median error is 6, 8 and 16 %. On the V100 the mean is 34 %: some pairs (an autoencoder of small batches,
    ResNet-50 with itself) fight over the host, and do less together than one does alone; others do twice as much.
    """
    table = read_pairs(data_dir / "gavel" / "gavel_colocated.csv")
    kinds = sorted({key[1] for key in table if key[0] == gpu.lower()})
    together = [(a, b) for i, a in enumerate(kinds) for b in kinds[i:] if (gpu, a, b, 1) in table]
    assert len(together) == 351
    measured = np.array([sum(table.rates(gpu, a, b)) for a, b in together])
    measured = measured[measured > 0]
    predicted = 2 / crowding([gpu_use(gpu)] * 2)
    error = np.abs(predicted / measured - 1)
    print(f"{gpu}: {len(measured)} pairs, sum of rates {np.median(measured):.3f}, predicted {predicted:.3f}; "
          f"error: median {np.median(error):.3f}, mean {error.mean():.3f}, worst {error.max():.2f}")  # fmt: skip
    assert np.median(error) <= most
    turns = np.abs(1 / measured - 1)
    assert np.median(error) < np.median(turns) or gpu == "K80"  # there, taking turns is as good: 6 %
