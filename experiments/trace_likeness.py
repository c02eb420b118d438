"""How like the generated traces are to the real ones: distances, what schedulers make of them, overlays.

    .venv/bin/python experiments/trace_likeness.py ../shared/data [--figures docs/images] [--seeds 5]

Philly is compared with the public subset (philly/philly.csv), job by job; the others with curves that were published
(published/*.json). Prints the tables of docs/generated-traces.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from fit_philly import lines, table
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.figures.style import COLOURS, save, style
from policies.registry import make
from sim.cluster.clusterfiles import load_cluster
from sim.engine.simulate import simulate
from sim.workload.progress import Recorded
from traces.load import load_trace
from traces.offered_load import demand_gpu_s, scale_load
from traces.study.distances import as_text, by_hour, compare, ks_to_curve, profile_correlation
from traces.synthetic.generate import generate
from traces.synthetic.philly import columns_like
from traces.synthetic.philly_tables import parsed
from traces.trace import Trace

#: GPUs and offered load of the runs, durations as recorded.
RUNS = ((320, 0.5), (320, 0.7), (320, 0.9), (640, 0.7))
POLICIES = ("fifo", "srsf")
#: Published run times: name of the curve, generator, its options.
CURVES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("PAI", "pai", {}), ("Helios", "helios", {}), ("Seren", "acme", {"cluster": "seren"}),
    ("Kalos", "acme", {"cluster": "kalos"}),
)
HELIOS = ("Venus", "Earth", "Saturn", "Uranus")
JOBS = 80_000


def mean_jct_s(trace: Trace, gpus: int, load: float, policy: str) -> float:
    """Mean JCT on nodes of 8 GPUs, durations as recorded; estimates are the truth."""
    scaled, cluster = scale_load(trace, gpus, load), load_cluster(f"v100:{gpus // 8}x8")
    result = simulate(scaled, cluster, make(policy), Recorded(scaled, cluster), estimate_s=scaled.duration_s)
    jobs = result.tables["jobs"].to_pandas()
    return float((jobs.end_s - jobs.submit_s).mean())


def philly_distances(real: Trace, seeds: int) -> str:
    """The table of distances: the median seed and the worst one, beside the real halves and a fit to the first half."""
    made = [compare(generate("philly", len(real), seed), real) for seed in range(seeds)]
    half = len(real) // 2
    first, second = real.select(slice(0, half)), real.select(slice(half, None))
    ahead = Trace.from_columns({**columns_like(parsed("\n".join(lines(table(first)))), len(second), 0),
                                "job_id": np.arange(len(second)).astype(str).astype(object)})
    others = [compare(first, second), compare(ahead, second)]

    def rows(pick: Any, worst: Any, digits: int = 3) -> str:
        values = [pick(d) for d in made]
        return " | ".join(_number(x, digits) for x in (np.median(values), worst(values), *map(pick, others)))

    def size(gpus: str) -> Any:
        return lambda d: next((r["duration_ks"] for r in d["sizes"] if r["gpus"] == gpus), np.nan)

    out = ["| | generated, median seed | worst seed | real: first half to second | fit to the first half to second |",
           "|---|---|---|---|---|", f"| run time, KS | {rows(lambda d: d['duration_ks'], max)} |"]
    for row in made[0]["sizes"]:
        if not np.isnan(row["duration_ks"]):
            n = f"{row['jobs_b']:,} jobs on {row['gpus']} GPU{'s' * (row['gpus'] != '1')}"
            out.append(f"| run time of {n}, KS | {rows(size(row['gpus']), max)} |")
    out += [
        f"| GPU time by size, most points apart | {rows(lambda d: 100 * d['gpu_time_off'], max, 1)} |",
        f"| jobs by hour of the day, correlation | {rows(lambda d: d['hour_correlation'], min)} |",
        f"| dispersion of hourly counts, ratio | {rows(lambda d: d['dispersion_ratio'], min)} |",
        f"| jobs in other virtual clusters, points | {rows(lambda d: 100 * d['vc_jobs_off'], max, 1)} |",
        f"| GPU time in other virtual clusters, points | {rows(lambda d: 100 * d['vc_gpu_time_off'], max, 1)} |",
    ]
    return "\n".join(out) + "\n\n" + as_text(made[0])


def _number(value: float, digits: int) -> str:
    return "–" if np.isnan(value) else f"{value:.{digits}f}"


def scheduled(real: Trace, seeds: int) -> str:
    """Mean JCT of the real trace and of the generated ones, by policy, cluster and load."""
    made = [generate("philly", len(real), seed) for seed in range(seeds)]
    out = ["| policy | GPUs | load | real (s) | generated (s): median | from | to | median / real |",
           "|---|---|---|---|---|---|---|---|"]
    for policy in POLICIES:
        for gpus, load in RUNS:
            truth = mean_jct_s(real, gpus, load, policy)
            got = [mean_jct_s(trace, gpus, load, policy) for trace in made]
            out.append(f"| {policy} | {gpus} | {load} | {truth:,.0f} | {np.median(got):,.0f} | {min(got):,.0f} | "
                       f"{max(got):,.0f} | {np.median(got) / truth:.2f} |")
    return "\n".join(out) + "\n"


def published(data: Path) -> tuple[str, dict[str, tuple[Trace, list[float]]], dict[str, tuple[Trace, list[float]]]]:
    """The table of what only curves are known of; the traces with their run-time curves, and with their hours."""
    curves = json.loads((data / "published" / "acme_fig_philly_helios_pai_cdfs.json").read_text())
    hours = json.loads((data / "published" / "helios_diurnal.json").read_text())["hourly_mean_gpu_job_submissions"]
    below = curves["duration_cdf_pct_at_2^i_s_i0..21"]
    runs = {name: (generate(generator, JOBS, 0, **options), below[name]) for name, generator, options in CURVES}
    days = {name: (generate("helios", JOBS, 0, cluster=name), hours[name]) for name in HELIOS}
    out = ["| | distance |", "|---|---|"]
    out += [f"| {name}: run time, KS at powers of 2 s | {_far(trace, curve):.3f} |"
            for name, (trace, curve) in runs.items()]
    out += [f"| {name}: jobs by hour of the day, correlation | {profile_correlation(by_hour(trace), curve):.3f} |"
            for name, (trace, curve) in days.items()]
    return "\n".join(out) + "\n", runs, days


def _far(trace: Trace, curve: list[float]) -> float:
    return ks_to_curve(trace.duration_s, 2.0 ** np.arange(len(curve)), np.array(curve) / 100)


def cdf(axes: Axes, run_s: np.ndarray, **look: Any) -> None:
    at = np.logspace(0, 7, 400)
    axes.plot(at, np.searchsorted(np.sort(run_s), at, side="right") / len(run_s), **look)


def panels() -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(7.0, 4.6))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(2, 2)


def philly_figure(real: Trace, made: Trace) -> Figure:
    """Run times and GPU time by size, hours of the day, GPU time asked for by week: full lines are the real ones."""
    with style():
        figure, ((runs, sizes), (hours, weeks)) = panels()
        for i, gpus in enumerate((1, 2, 4, 8, 16)):
            cdf(runs, real.duration_s[real.num_gpus == gpus], color=COLOURS[i], label=f"{gpus} GPU{'s' * (gpus > 1)}")
            cdf(runs, made.duration_s[made.num_gpus == gpus], color=COLOURS[i], linestyle=(0, (2, 1)))
        runs.set(xscale="log", xlabel="run time (s)", ylabel="share of jobs", title="run time by GPUs")
        runs.legend()
        kinds = ("1", "2", "3 to 4", "8", "16", "24 or more")
        shares = {row["gpus"]: row for row in compare(made, real)["sizes"]}
        for offset, key, label in ((-0.2, "gpu_time_b", "real"), (0.2, "gpu_time", "generated")):
            sizes.bar(np.arange(len(kinds)) + offset, [100 * shares[k][key] for k in kinds], 0.4,
                      color=COLOURS[0 if offset < 0 else 1], label=label)
        sizes.set_xticks(range(len(kinds)), ["1", "2", "3–4", "8", "16", "≥ 24"])
        sizes.set(xlabel="GPUs", ylabel="GPU time (%)", title="GPU time by GPUs")
        sizes.legend()
        look: dict[str, Any]
        for trace, label, look in ((real, "real", {"color": COLOURS[0]}),
                                   (made, "generated", {"color": COLOURS[1], "linestyle": (0, (2, 1))})):
            hours.step(range(24), 24 * by_hour(trace) / len(trace), where="mid", label=label, **look)
            monday_s = ((trace.provenance.epoch_s or -3 * 86_400.0) + 3 * 86_400) % (7 * 86_400)
            week = ((trace.submit_s + monday_s) // (7 * 86_400)).astype(int)
            asked = np.bincount(week, demand_gpu_s(trace), 16) / (7 * 86_400)
            weeks.step(range(16), asked, where="mid", label=label, **look)
        hours.set(xlabel="hour of the day (UTC)", ylabel="jobs, mean 1", title="submissions by hour")
        weeks.set(xlabel="week of the log", ylabel="GPUs", title="GPU time asked for, by week of submission")
        hours.legend()
        weeks.legend()
    return figure


def published_figure(
    runs: dict[str, tuple[Trace, list[float]]], days: dict[str, tuple[Trace, list[float]]]
) -> Figure:
    """Run times and hours of the traces of which curves are published: dots are the published figures."""
    with style():
        figure, ((left, right), (hours_left, hours_right)) = panels()
        for i, (name, (trace, curve)) in enumerate(runs.items()):
            axes = left if i < 2 else right
            cdf(axes, trace.duration_s, color=COLOURS[i], label=name)
            axes.plot(2.0 ** np.arange(len(curve)), np.array(curve) / 100, ".", color=COLOURS[i])
            axes.set(xscale="log", xlabel="run time (s)", ylabel="share of jobs", title="run time")
        for i, (name, (trace, curve)) in enumerate(days.items()):
            axes = hours_left if i < 2 else hours_right
            axes.step(range(24), 24 * by_hour(trace) / len(trace), where="mid", color=COLOURS[i], label=name)
            axes.plot(range(24), np.array(curve) / np.mean(curve), ".", color=COLOURS[i])
            axes.set(xlabel="hour of the day (UTC+8)", ylabel="jobs, mean 1", title="submissions by hour")
        for axes in figure.axes:
            axes.legend()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    real = load_trace(given.data / "philly" / "philly.csv")
    print(philly_distances(real, given.seeds), flush=True)
    text, runs, days = published(given.data)
    print(text, flush=True)
    if given.figures:
        given.figures.mkdir(parents=True, exist_ok=True)
        save(philly_figure(real, generate("philly", len(real), 0)), given.figures / "generated-philly.png")
        save(published_figure(runs, days), given.figures / "generated-others.png")
    print(scheduled(real, given.seeds))


if __name__ == "__main__":
    main()
