"""From a rate on one GPU type to another, beside Gavel's measurements; and plans whose stages are of mixed types."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from sim.api import Plan, Stage
from sim.cluster.spec import ClusterSpec
from sim.hardware.gputypes import GpuType, gpu_type
from sim.performance import Performance, PerformanceError
from sim.performance.across_types import TypeFit, Work, fit_type, scaled_rate, scaled_step_s
from sim.performance.graph import GraphBuilder, OperatorGraph
from sim.performance.operator_time import operator_times_s, update_time_s
from sim.performance.zoo import zoo_graph

V100, K80 = gpu_type("V100"), gpu_type("K80")


def test_work_is_the_operators_and_the_optimizer() -> None:
    graph = zoo_graph("resnet50")
    fwd, bwd = operator_times_s(graph, 32, V100, precision="fp32")
    work = Work(graph, 32, V100).time_s(TypeFit())
    assert work == pytest.approx(fwd.sum() + bwd.sum() + update_time_s(graph.params, V100))


def test_a_script_that_only_waits_for_its_host_is_as_fast_anywhere() -> None:
    """No graph: nothing is known to run on the GPU. A host that takes twice as long halves the rate."""
    assert scaled_rate(7.0, None, 1, V100, K80) == pytest.approx(7.0)
    assert scaled_rate(7.0, None, 1, V100, K80, TypeFit(host=2.0)) == pytest.approx(3.5)


def test_a_script_that_keeps_its_gpu_busy_slows_down_as_its_operators_do() -> None:
    graph = zoo_graph("resnet50")
    here, there = (Work(graph, 64, gpu).time_s(TypeFit()) for gpu in (V100, K80))
    for share in (1.0, 0.5):
        # Measured to take the modelled time, and half of it (the model is too slow: both by as much).
        assert scaled_rate(1 / (share * here), graph, 64, V100, K80) == pytest.approx(1 / (share * there))


def test_half_a_script_s_time_is_its_host_s() -> None:
    graph = zoo_graph("resnet50")
    here, there = (Work(graph, 64, gpu) for gpu in (V100, K80))
    took = scaled_step_s(2 * here.time_s(TypeFit()), here, there, TypeFit())
    assert took == pytest.approx(here.time_s(TypeFit()) + there.time_s(TypeFit()))


@given(st.floats(0.001, 100.0), st.floats(1.0, 4.0), st.integers(1, 64))
def test_a_slower_rate_is_never_predicted_faster(rate: float, gain: float, samples: int) -> None:
    graph = zoo_graph("resnet18")
    slow, fast = (scaled_rate(r, graph, samples, V100, K80) for r in (rate, rate * gain))
    assert slow <= fast * (1 + 1e-12)
    assert scaled_rate(rate, graph, samples, V100, V100) == rate


def test_what_did_not_fit_stays_so_and_nonsense_is_refused() -> None:
    assert scaled_rate(0.0, None, 1, V100, K80) == 0.0
    for rate in (-1.0, math.nan, math.inf):
        with pytest.raises(PerformanceError, match="a rate cannot be used"):
            scaled_rate(rate, None, 1, V100, K80)


def test_a_fit_finds_what_made_the_rates() -> None:
    """With rows enough; what they do not tell stays near 1."""
    truth = TypeFit(compute=0.6, host=2.0, launch_s=20e-6)
    cases = [(m, b) for m in ("resnet50", "bert-base", "resnet18-cifar", "alexnet") for b in (1, 4, 16, 64, 128)]
    here, there = ([Work(zoo_graph(m), b, gpu) for m, b in cases] for gpu in (V100, K80))
    took = [work.time_s(TypeFit()) + 0.02 for work in here]
    made = [scaled_step_s(t, a, b, truth) for t, a, b in zip(took, here, there, strict=True)]
    found = fit_type(made, took, here, there)
    assert (found.compute, found.host) == pytest.approx((0.6, 2.0), rel=0.05)
    again = [scaled_step_s(t, a, b, found) for t, a, b in zip(took, here, there, strict=True)]
    assert again == pytest.approx(made, rel=0.05)


def cyclegan() -> OperatorGraph:
    """A step of CycleGAN on two images of 256 x 256 (Zhu et al. 2017, arXiv:1703.10593, section 7.1): generators only.

    Two generators of nine residual blocks, three passes each: translation, way back, identity.
    """
    passes, images = 6, 2
    layers = ((7, 3, 64, 256), (3, 64, 128, 128), (3, 128, 256, 64), *[(3, 256, 256, 64)] * 18,
              (3, 256, 128, 128), (3, 128, 64, 256), (7, 64, 3, 256))  # fmt: skip
    b = GraphBuilder("cyclegan", "two images of 256 x 256", images * 2 * 3 * 256**2)
    x = -1
    for i, (kernel, c_in, c_out, size) in enumerate(layers):
        weights, values = kernel**2 * c_in * c_out, c_out * size**2
        x = b.add(f"conv{i}", "conv", (x,), passes * values, flops=2.0 * passes * weights * size**2, params=2 * weights)
        x = b.add(f"norm{i}", "norm", (x,), passes * values)
    return b.build()


MODELS = {
    "LM": "lstm-wikitext2",
    "Recommendation": "autoencoder-ml20m",
    "ResNet-18": "resnet18-cifar",
    "ResNet-50": "resnet50",
    "Transformer": "transformer-multi30k",
}
"""A3C has no graph: its nets are tiny, its time is the game's."""


@dataclass
class Job:
    family: str
    samples: float
    graph: OperatorGraph | None
    rate: dict[str, float]
    work: dict[str, Work]


@pytest.fixture(scope="module")
def gavel(data_dir: Path) -> list[Job]:
    """Gavel's 26 job types on one GPU of its physical cluster."""
    found = []
    with open(data_dir / "gavel" / "gavel_isolated_throughput.csv", newline="") as f:
        for row in csv.DictReader(f):
            if row["scale_factor"] == "1":
                family, samples = row["model"], float(row["batch_size"] or 1)
                graph = zoo_graph(MODELS[family]) if family in MODELS else cyclegan() if family == "CycleGAN" else None
                rates = {gpu: float(row[f"physical_{gpu.lower()}"]) for gpu in ("V100", "P100", "K80")}
                works = {gpu: Work(graph, samples, gpu_type(gpu)) for gpu in rates}
                found.append(Job(family, samples, graph, rates, works))
    return found


def predict(jobs: list[Job], gpu: str, fit: TypeFit) -> np.ndarray:
    return np.array([1 / scaled_step_s(1 / j.rate["V100"], j.work["V100"], j.work[gpu], fit) for j in jobs])


def fitted(jobs: list[Job], gpu: str) -> TypeFit:
    return fit_type([1 / j.rate[gpu] for j in jobs], [1 / j.rate["V100"] for j in jobs],
                    [j.work["V100"] for j in jobs], [j.work[gpu] for j in jobs])  # fmt: skip


def held_out(jobs: list[Job], gpu: str) -> np.ndarray:
    """Each family's rates from a fit that has not seen the family."""
    out = np.zeros(len(jobs))
    for family in {job.family for job in jobs}:
        fit = fitted([job for job in jobs if job.family != family], gpu)
        mine = [i for i, job in enumerate(jobs) if job.family == family]
        out[mine] = predict([jobs[i] for i in mine], gpu, fit)
    return out


def test_p100_rates_follow_from_v100_rates_with_nothing_fitted(gavel: list[Job]) -> None:
    """Mean error at most 15 %, rank correlation at least 0.95, by the catalogue's figures alone."""
    measured = np.array([job.rate["P100"] for job in gavel])
    assert len(measured) == 26
    zero = predict(gavel, "P100", TypeFit())
    error, rank = np.abs(zero / measured - 1), spearmanr(zero, measured)[0]
    print(f"P100 from V100, nothing fitted: mean {error.mean():.3f} worst {error.max():.2f} rank {rank:.3f}")
    out = held_out(gavel, "P100")
    print(f"a family left out of the fit: mean {np.abs(out / measured - 1).mean():.3f}")
    assert error.mean() <= 0.15 and rank >= 0.95


def test_k80_rates_are_ranked_but_not_within_15_percent(gavel: list[Job]) -> None:
    """The figure of 15 % is missed: 26 % fitted, about a third with the family left out; ranks hold (0.95).

    Why: convolutions that are all 3 x 3 (ResNet-18 on CIFAR-10 from 128 images, CycleGAN) are two and more times
    slower on a K80 than its peak says; ResNet-18 of 16 images takes longer there than of 32 or 64; small LSTMs are
    bound by latency, which is not host time. Even each family's own median ratio, which has seen all its rows, is
    22 % off on average.
    """
    jobs = [job for job in gavel if job.rate["K80"] > 0]
    measured = np.array([job.rate["K80"] for job in jobs])
    assert len(jobs) == 25, "ResNet-50 of 128 images does not fit a K80"
    zero, fit, out = predict(jobs, "K80", TypeFit()), fitted(jobs, "K80"), held_out(jobs, "K80")
    errors = {}
    for name, rates in (("nothing fitted", zero), ("fitted", predict(jobs, "K80", fit)), ("family held out", out)):
        errors[name] = np.abs(rates / measured - 1)
        rank = spearmanr(rates, measured)[0]
        print(f"K80 from V100, {name}: mean {errors[name].mean():.3f} worst {errors[name].max():.2f} rank {rank:.3f}")
        assert rank >= 0.95
    print(fit, {f"{j.family} {j.samples:g}": round(float(r), 2) for j, r in zip(jobs, out / measured, strict=True)})
    ratio = np.array([job.rate["K80"] / job.rate["V100"] for job in jobs])
    family = np.array([np.median([r for r, j in zip(ratio, jobs, strict=True) if j.family == job.family])
                       for job in jobs])  # fmt: skip
    print(f"each family's own median ratio: mean {np.abs(family / ratio - 1).mean():.3f}")
    assert errors["fitted"].mean() < 0.28 and errors["family held out"].mean() < 0.36
    assert 0.5 < fit.compute < 0.7 and 1.5 < fit.host < 2.5


def test_the_simulation_file_s_recommendation_rates_are_not_its_physical_ones(data_dir: Path) -> None:
    """Its V100 rates are 8 to 12 times below the physical file's, and below those of a P100: not used."""
    with open(data_dir / "gavel" / "gavel_isolated_throughput.csv", newline="") as f:
        rows = [row for row in csv.DictReader(f) if row["model"] == "Recommendation"]
    ratios = [float(row["physical_v100"]) / float(row["simulation_v100"]) for row in rows]
    assert len(rows) == 5 and all(7.5 < ratio < 12.5 for ratio in ratios)


T4 = gpu_type("T4")


def averaged(cluster_types: tuple[GpuType, GpuType], weight: float) -> GpuType:
    """One type with the weighted mean of all figures, as AMP profiles a mixed cluster (0.75 V100 + 0.25 T4)."""
    a, b = cluster_types
    means = {
        f.name: weight * getattr(a, f.name) + (1 - weight) * getattr(b, f.name)
        for f in fields(GpuType)
        if isinstance(getattr(a, f.name), float) and isinstance(getattr(b, f.name), float)
    }
    return replace(a, name="MEAN", **means)


def mixed_plans(model: str, count: int, seed: int) -> list[tuple[list[tuple[int, int]], list[int], int]]:
    """Random plans on 12 V100 and 4 T4, one GPU a stage: spans of operators, type of each stage, micro-batches."""
    rng, operators, plans = np.random.default_rng(seed), len(zoo_graph(model)), []
    for _ in range(count):
        stages = int(rng.integers(2, 5))
        cuts = np.sort(rng.choice(np.arange(1, operators), stages - 1, replace=False))
        spans = list(zip([0, *cuts.tolist()], [*(cuts - 1).tolist(), operators - 1], strict=True))
        plans.append((spans, rng.integers(0, 2, stages).tolist(), int(rng.choice([2, 4, 8]))))
    return plans


@pytest.mark.parametrize("model", ["bert-base", "resnet50"])
def test_averaging_gpu_types_destroys_the_ranking_of_plans(model: str) -> None:
    """AMP's predictions rank with 0.94 on one type and 0.39 on two. Exact: stages by type, played by the schedule.

    200 random pipelines over V100 and T4. With the types averaged, plans that put much on a T4 look like plans that
    put little there.
    """
    plans, speed = mixed_plans(model, 200, 3), Performance()
    real = ClusterSpec.build("real", [V100, T4], [0, 0, 0, 1], [4, 4, 4, 4])
    mean = ClusterSpec.build("mean", [averaged((V100, T4), 0.75)], [0] * 4, [4] * 4)
    exact, blurred, alike = [], [], []
    for spans, types, micro_batches in plans:
        free = [0, 12]
        gpus = []
        for kind in types:
            gpus.append(free[kind])
            free[kind] += 1
        slots = np.array(gpus, dtype=np.int32)
        for cluster, names, times in (
            (real, [("V100", "T4")[kind] for kind in types], exact),
            (mean, ["MEAN"] * len(types), blurred),
        ):
            stages = tuple(Stage(a, b, name, 1) for (a, b), name in zip(spans, names, strict=True))
            got = speed.plan(model, 64, Plan(stages, micro_batches), slots, cluster)
            times.append(got.iteration_s)
        alike.append(len(set(types)) == 1 and types[0] == 0)
    assert np.isfinite(exact).all() and np.isfinite(blurred).all()
    rank = spearmanr(exact, blurred)[0]
    one_type = spearmanr(np.array(exact)[alike], np.array(blurred)[alike])[0]
    print(f"{model}: rank correlation of averaged types {rank:.2f}; among plans of V100 alone {one_type:.2f}")
    assert rank < 0.5 and one_type > 0.95
