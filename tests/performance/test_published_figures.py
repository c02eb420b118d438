"""Published training speeds against the model, with nothing fitted to them (`pytest -s` prints each row).

The links' efficiencies are Calculon's, whose authors checked it against the four rows of Korthikanti et al.
The rows, and the rule by which they were chosen, are in `published.py`.
"""

from __future__ import annotations

from functools import cache
from itertools import groupby

import numpy as np
import pytest
from scipy.stats import spearmanr

from sim.performance.calibration import shipped
from tests.performance.published import ROWS, SLOWER, Row, built

MEGATRON = tuple(row for row in ROWS if row.unit == "TFLOP/s")
DATA_PARALLEL = tuple(row for row in ROWS if row.unit == "samples/s")


@cache
def predicted_s(row: Row) -> float:
    """Seconds of an iteration; inf where it does not fit."""
    return row.predict(shipped("tuned")).iteration_s


def errors(rows: tuple[Row, ...]) -> np.ndarray:
    """Relative errors of the predicted times: float64 [rows]; below 0, we are too fast."""
    return np.array([predicted_s(row) / row.published_s - 1 for row in rows])


def show(rows: tuple[Row, ...]) -> None:
    print(f"\n{'model':<16} {'GPUs':>13}  {'precision':<9} {'published':>10} {'ours':>10} {'error':>7}")
    for row in rows:
        gpus = f"{row.gpus} x {row.gpu}"
        times = f"{row.published_s:>8.3f} s {predicted_s(row):>8.3f} s"
        print(f"{row.model:<16} {gpus:>15}  {row.precision:<7} {times} {errors((row,))[0]:>+7.1%}")
    for group, members in groupby(rows, key=lambda row: (row.group, row.source)):
        error = errors(tuple(members))
        print(f"{group[0]} ({group[1]}): mean {np.abs(error).mean():.1%}, signed {error.mean():+.1%}")
    error = errors(rows)
    print(f"all {len(rows)} rows: mean {np.abs(error).mean():.1%}, median {np.median(np.abs(error)):.1%}, "
          f"worst {np.abs(error).max():.1%}, signed {error.mean():+.1%}")  # fmt: skip


def test_published_figures_are_predicted_within_15_percent_on_average() -> None:
    show(ROWS)
    assert len(ROWS) >= 10
    assert np.abs(errors(ROWS)).mean() <= 0.15


def test_megatrons_figures_are_predicted_within_10_percent_each() -> None:
    """Tensor parallelism, pipelines, interleaving and recomputation at once, on 8 to 3,072 GPUs: no row is worse."""
    rows = tuple(row for row in ROWS if row.group.startswith("Megatron"))
    assert len(rows) == 14
    assert np.abs(errors(rows)).max() <= 0.10


def test_larger_models_use_a_gpu_better_as_published() -> None:
    """Megatron-LM reaches 137 TFLOP/s of a GPU at 1.7 billion parameters, 163 at a trillion: ours rises alike."""
    ours = [row.counted_flop / row.gpus / predicted_s(row) for row in MEGATRON]
    rank = spearmanr(ours, [row.figure for row in MEGATRON]).statistic
    print(f"rank correlation of TFLOP/s a GPU over {len(MEGATRON)} sizes: {rank:.2f}")
    assert rank >= 0.8


def test_more_gpus_slow_each_other_down_about_as_published() -> None:
    """Data parallelism on one machine: rate on all GPUs / rate on one / GPUs. One GPU's own error cancels."""
    pairs = list(zip(DATA_PARALLEL[::2], DATA_PARALLEL[1::2], strict=True))
    off = []
    for one, many in pairs:
        assert (one.model, one.gpu, one.precision, one.gpus) == (many.model, many.gpu, many.precision, 1)
        published, ours = (
            one_s / many_s * many.batch / one.batch / many.gpus
            for one_s, many_s in ((one.published_s, many.published_s), (predicted_s(one), predicted_s(many)))
        )
        print(f"{one.model}, {one.precision}, {many.gpus} {one.gpu}: published {published:.3f}, ours {ours:.3f}")
        off.append(abs(ours - published))
    assert np.mean(off) <= 0.05


def test_what_ran_fits_into_memory() -> None:
    """No run of the table is refused: all of them happened."""
    for row in ROWS + SLOWER:
        got = row.predict(shipped("tuned"))
        assert got.fits, f"{row.model} on {row.gpus} {row.gpu}: {got.reason}"


def test_the_same_models_in_other_hands_are_slower_than_the_model() -> None:
    """P-45: 'tuned' is what careful code reaches. Other code of the same vendor for the same model is further off."""
    show(SLOWER)
    print(f"with those that count, {len(ROWS + SLOWER)} rows: mean {np.abs(errors(ROWS + SLOWER)).mean():.1%}")
    assert errors(SLOWER).mean() < errors(ROWS).mean() < 0
    assert np.abs(errors(SLOWER)).mean() > np.abs(errors(ROWS)).mean()


def test_the_rows_agree_with_what_else_the_paper_says() -> None:
    """Table 1 of Narayanan et al. 2021 also has the sum over all GPUs, in PFLOP/s, and the parameters, in billions."""
    aggregate = [4.4, 8.8, 18.2, 34.6, 70.8, 143.8, 227.1, 297.4, 410.2, 502.0]
    for row, total in zip(MEGATRON, aggregate, strict=True):
        assert row.gpus * row.figure / 1e3 == pytest.approx(total, rel=0.005)
        billions = float(row.model.removeprefix("GPT ").removesuffix("B"))
        assert built(row.graph).params / 1e9 == pytest.approx(billions, abs=0.06)


def test_the_paper_counts_the_flop_of_our_graph() -> None:
    """Equation 3 of the paper is our graph's FLOP: layers forward twice and backward, logits forward and backward."""
    for row in MEGATRON:
        graph = built(row.graph)
        logits = graph.flops_fwd[graph.ops.index("logits")]
        layers = graph.flops_fwd_total - logits
        assert row.batch * (4 * layers + 3 * logits) == pytest.approx(row.counted_flop, rel=1e-9)


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: row.model)
def test_each_stage_has_as_many_layers(row: Row) -> None:
    """A plan by hand: the first stage has the embedding besides, the last one the logits and the loss."""
    graph = built(row.graph)
    stages = row.plan(len(graph)).stages
    each = row.layers // len(stages)
    for stage in stages:
        names = graph.ops[stage.first_op : stage.last_op + 1]
        assert sum(name.endswith(".fc2") for name in names) == each
    assert graph.ops[stages[0].first_op] == "embeddings"
    assert graph.ops[stages[-1].last_op] == "loss"
    assert row.gpus % (row.tensor * row.pipeline) == 0 and row.layers % len(stages) == 0
