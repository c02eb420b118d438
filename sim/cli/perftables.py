"""Tables of `hetsim perf`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sim.cli.console import cell, new_table
from sim.cli.options import optimizer_said, said_source

if TYPE_CHECKING:
    from rich.table import Table

    from sim.cli.whatif import Answer
    from sim.hardware.gputypes import GpuType
    from sim.performance import MeasuredTable, Performance
    from sim.performance.calibration import Calibration


def time(seconds: float) -> str:
    """A time in a unit that suits it."""
    if math.isinf(seconds):
        return "-"
    return f"{seconds:,.3f} s" if seconds >= 1 else f"{seconds * 1e3:,.3f} ms"


def known(value: float, form: str) -> str:
    """A number, or that it is not known."""
    return form.format(value) if math.isfinite(value) else "unknown"


def answer_table(answer: Answer, performance: Performance) -> Table:
    """Iteration time and its parts, as the stage spends it that ends last; rates and cost in the caption."""
    i, plan = answer.iteration, answer.plan
    asked = f"{answer.model}, {answer.batch_size:,} samples an iteration on {plan.num_gpus:,} GPUs ({_how(answer)})"
    table = new_table("part", "time", "share (%)", title=asked)
    whole = i.compute_s + i.bubble_s + i.transfer_s + i.allreduce_s + i.update_s
    inner = inner_words(any(s.tensor > 1 for s in plan.stages), any(s.sharded for s in plan.stages))
    parts = {
        "computation": i.compute_s, inner: i.tensor_s, "bubble (waiting)": i.bubble_s,
        "transfers between stages": i.transfer_s, "all-reduce of gradients": i.allreduce_s,
        "optimizer step": i.update_s,
    }  # fmt: skip
    for name, seconds in parts.items():
        if seconds > 0 or name == "computation":
            table.add_row(name, time(seconds), f"{100 * seconds / whole:.1f}")
    table.add_row("iteration", time(whole), "100.0")
    peak = performance.calibration.precision
    table.caption = (
        f"{known(answer.samples_per_s, '{:,.1f}')} samples a second; "
        f"MFU {known(100 * answer.mfu, '{:.1f} %')} of the peak in {peak} precision; "
        f"{known(answer.usd_per_1000_iterations, '{:,.4g} USD')} a 1,000 iterations{_egress(answer)}\n"
        f"speed: {said_source(i.source)}; calibration: {performance.calibration.name}"
        f"{optimizer_said(performance.optimizer.name)}"
    )
    return table


def inner_words(tensor: bool, sharded: bool) -> str:
    """What of the computation is communication, in a plan that has tensor parallelism or stages that are sharded."""
    words = ["sums of tensor parallelism"] * (tensor or not sharded) + ["all-to-alls (sharded)"] * sharded
    return "  of it " + " or ".join(words)


def _egress(answer: Answer) -> str:
    """What bytes between zones cost, where there are any."""
    usd = 1000 * answer.iteration.egress_usd
    return f", {known(usd, '{:,.4g} USD')} of it for bytes that leave a zone" if usd != 0 else ""


def _how(answer: Answer) -> str:
    plan = answer.plan
    words = [f"{len(plan.stages)} stages" if len(plan.stages) > 1 else "data parallel"]
    words += [f"{plan.micro_batches} micro-batches"] * (plan.micro_batches > 1)
    words += [plan.schedule] * (len(plan.stages) > 1)
    words += [f"{plan.chunks} chunks"] * (plan.chunks > 1)
    words += ["recomputation"] * plan.recompute
    words += [f"ZeRO {plan.zero}"] * (plan.zero > 0)
    return ", ".join(words)


def stages_table(answer: Answer, performance: Performance, margin: float) -> Table:
    """Each stage: operators, GPUs, memory needed and there."""
    from sim.hardware.gputypes import gpu_type
    from sim.performance.samples import uneven

    plan, devices = answer.plan, len(answer.plan.devices)
    table = new_table("stage", "operators", "GPUs", "GPU type", "tensor", "replicas", "memory needed (GiB)",
                      "there (GiB)", title="Stages")  # fmt: skip
    memory, tight = answer.iteration.memory_gib, answer.iteration.tight(margin) if answer.iteration.fits else ()
    for q, stage in enumerate(plan.stages):
        there = dict.fromkeys(f"{gpu_type(part.gpu_type).memory_gib:g}" for part in stage.all_parts)
        kinds = " + ".join(f"{part.gpus} {part.gpu_type}" for part in stage.parts) or stage.gpu_type
        need = f"{memory[q]:.2f}" if q < len(memory) and q < devices else ("unknown" if q < devices else "with stage "
                                                                           f"{q % devices}")  # fmt: skip
        need += " tight" * (q in tight)
        degrees = [stage.degree(part) for part in stage.parts] if stage.unlike else [stage.tensor]
        replicas = f"{stage.replicas}" + ", sharded" * stage.sharded
        table.add_row(f"{q}", f"{stage.first_op}-{stage.last_op}", f"{stage.gpus}", kinds,
                      ", ".join(map(str, degrees)), replicas, need, " or ".join(there))  # fmt: skip
    if memory:  # A model that is known by measured rates was measured with whole samples.
        parts = [(s, stage.replicas_of(part), part.share)
                 for s, stage in enumerate(plan.devices) for part in stage.all_parts]  # fmt: skip
        said = uneven(answer.batch_size, plan.micro_batches, parts) + [tight_words(margin)] * bool(tight)
        table.caption = "\n".join(said) or None
    return table


def tight_words(margin: float) -> str:
    """What the mark 'tight' means."""
    return f"tight: above {100 * (1 - margin):g} % of a GPU's memory; fragments and libraries may need the rest"


def models_table(measured: MeasuredTable | None) -> Table:
    """The models that can be asked about: those of the zoo, and those of a measured table."""
    from sim.performance.zoo import MODELS, zoo_graph
    from sim.performance.zoo.families import FAMILIES, NAMED

    table = new_table("model", "sample", "parameters (M)", "forward (GFLOP)", "operators", title="Models that can run")
    for name in dict.fromkeys((*MODELS, *NAMED)):
        graph = zoo_graph(name)
        table.add_row(name, cell(graph.sample), f"{graph.params / 1e6:,.1f}", f"{graph.flops_fwd_total / 1e9:,.2f}",
                      f"{len(graph):,}")  # fmt: skip
    for name, family in FAMILIES.items():
        said = ", ".join((*(f"{size}=N" for size in family.needed), *(f"[{size}=N]" for size in family.default)))
        table.add_row(cell(f"{name}(...)"), cell(said), "", "", "")
    for name in measured.job_types if measured is not None else ():
        table.add_row(cell(name), "measured rates only", "", "", "")
    return table


def gpu_types_table(types: Mapping[str, GpuType]) -> Table:
    """Peaks and the fractions of them that are reached, each with its source."""
    table = new_table("GPU type", "mixed (TFLOP/s)", "reached", "fp32 (TFLOP/s)", "memory (GB/s)", "reached", "GiB",
                      "sources of the fractions", title="GPU types")  # fmt: skip
    for gpu in types.values():
        sources = "; ".join(gpu.cite.get(key, "") for key in ("compute_efficiency", "memory_efficiency"))
        fp32 = "unknown" if gpu.fp32_tflops is None else f"{gpu.fp32_tflops:g}"
        table.add_row(
            gpu.name, f"{gpu.peak_tflops:g}", f"{gpu.compute_efficiency:g}", fp32, f"{gpu.mem_gbytes_per_s:g}",
            f"{gpu.memory_efficiency:g}", f"{gpu.memory_gib:g}", cell(sources),
        )  # fmt: skip
    return table


def fit_table(fitted: Calibration, report: Mapping[str, tuple[int, float, float]]) -> Table:
    """What a fit found, and its error by kind of operator, or by model."""
    error = fitted.error
    assert error is not None
    table = new_table("rows of", "rows", "mean error (%)", "worst (%)", title=f"Calibration {fitted.name!r}, "
                      f"{fitted.precision} precision")  # fmt: skip
    for name, (rows, mean, worst) in report.items():
        table.add_row(cell(name), f"{rows:,}", f"{100 * mean:.1f}", f"{100 * worst:.1f}")
    table.add_row("all", f"{error.rows:,}", f"{100 * error.mean:.1f}", f"{100 * error.worst:.1f}")
    table.caption = (
        f"median {100 * error.median:.1f} %; "
        f"rows left out of the fit: mean {known(100 * error.held_out_mean, '{:.1f} %')}\n"
        f"launch {fitted.launch_s * 1e6:.2f} µs, host {fitted.host_s * 1e6:.2f} µs a kernel; "
        + "; ".join(f"{kind}: {fit.compute:.2f} of arithmetic, {fit.memory:.2f} of memory"
                    for kind, fit in fitted.kinds.items())
    )
    return table
