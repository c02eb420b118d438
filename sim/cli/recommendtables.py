"""Tables of `hetsim recommend`, made of the answer's plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sim.cli.console import cell, new_table
from sim.cli.options import optimizer_said, said_source
from sim.cli.perftables import gpu_types_table, inner_words, models_table, tight_words, time

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 12
"""Rows of a short front."""
LEAST_SAID = 0.0005
"""Part of a saving that rounds to 0.1 %."""
PARTS = {
    "compute_s": "computation", "tensor_s": "", "bubble_s": "bubble (waiting)",
    "transfer_s": "transfers between stages", "allreduce_s": "all-reduce of gradients", "update_s": "optimizer step",
}


def tables(answer: Mapping[str, Any], margin: float) -> Iterator[Table]:
    """All that is printed of an answer."""
    yield stages_table(answer, margin)
    yield beside_table(answer)
    yield front_table(answer, margin)


def usd(value: float | None) -> str:
    """An amount, or that it is not known."""
    return "unknown" if value is None else f"{value:,.4g} USD"


def _saved(part: float | None) -> str:
    """What is saved of something; less than nothing is more of it."""
    return "unknown" if part is None else f"{100 * part:,.1f} %" if part >= 0 else f"none, {-100 * part:,.1f} % more"


def stages_table(answer: Mapping[str, Any], margin: float) -> Table:
    """The plan, stage by stage."""
    from sim.performance.samples import uneven

    plan = answer["plan"]
    many = f"{len(plan['stages'])} stages, " if len(plan["stages"]) > 1 else ""
    how = [f"{many}{plan['micro_batches']} micro-batch{'es' * (plan['micro_batches'] > 1)}"]
    how += [plan["schedule"]] * (len(plan["stages"]) > 1) + ["recomputation"] * plan["recompute"]
    how += [f"ZeRO {plan['zero']}"] * (plan["zero"] > 0) + ["operators reordered"] * bool(plan["order"])
    shared = any(ways > 1 for s in plan["stages"] for ways in _degrees(s))
    table = new_table(
        "stage", "operators", "from, to", "replicas", *["tensor"] * shared, "fwd (ms)", "bwd (ms)", "GiB",
        title=f"Plan for {answer['model']}, {answer['batch_size']:,} samples an iteration, by {_by(answer)}: "
              f"{', '.join(how)}",
    )
    for s in plan["stages"]:
        mixed = len(s["gpus"]) > 1
        kinds = [f"{g['replicas']} {g['gpu_type']}" + f", {sum(g['samples']):,} samples" * mixed for g in s["gpus"]]
        kinds += ["sharded"] * s.get("sharded", False)
        need = "unknown" if s["need_gib"] is None else f"{s['need_gib']:.2f}"
        there = " or ".join(f"{gib:g}" for gib in dict.fromkeys(g["there_gib"] for g in s["gpus"]))
        table.add_row(
            f"{s['stage']}", f"{s['first_op']}-{s['last_op']}",
            cell(f"{_name(s['first_name'])}\n{_name(s['last_name'])}"), "\n".join(kinds),
            *["\n".join(map(str, _degrees(s)))] * shared,
            f"{1e3 * s['forward_s']:,.3f}", f"{1e3 * s['backward_s']:,.3f}",
            f"{need} of {there}" + " tight" * tight(plan, margin, s["stage"]),
        )
    if any(len(s["gpus"]) > 1 for s in plan["stages"]):
        table.title = f"{table.title}; samples of a micro-batch"
    shares = [(s["stage"], g["replicas"], g["share"]) for s in plan["stages"] for g in s["gpus"]]
    said = uneven(answer["batch_size"], plan["micro_batches"], shares) + [tight_words(margin)] * tight(plan, margin)
    table.caption = "\n".join([*said, _sources(answer)])
    return table


def _degrees(stage: Mapping[str, Any]) -> list[int]:
    """The stage's tensor degree, or one for each part where they differ."""
    return [g["tensor"] for g in stage["gpus"] if "tensor" in g] or [stage["tensor"]]


def tight(plan: Mapping[str, Any], margin: float, stage: int | None = None) -> bool:
    """Whether a plan, or one stage of it, leaves less than the part `margin` of a GPU's memory."""
    parts = plan["memory_part"] if stage is None else plan["memory_part"][stage : stage + 1]
    return any(part > 1 - margin for part in parts)


def _name(operator: str, most: int = 20) -> str:
    """An operator's name without its settings, not too long for a column."""
    return _short(operator.split("(", maxsplit=1)[0].strip(), most)


def _by(answer: Mapping[str, Any]) -> str:
    words = {"time": "least time", "cost": "least cost", "front": "the front's fastest"}[answer["objective"]]
    words += f" within {time(answer['within_s'])}" if answer["within_s"] is not None else ""
    if (budget := answer["budget_usd_per_iteration"]) is not None:
        iterations = answer["iterations"]
        words += (f" within {usd(budget)} an iteration" if iterations is None else
                  f" within {usd(budget * iterations)} for {iterations:,} iterations")
    return words + (f", on {answer['keep']} as asked" if answer["kept"] else "")


def _sources(answer: Mapping[str, Any]) -> str:
    """Where speeds and prices are from."""
    prices = "; ".join(
        f"{g['gpu_type']} " + ("unknown" if g["price_usd_per_h"] is None else
                               f"{g['price_usd_per_h']:.4g} USD/h ({g['price_source']})") for g in answer["gpus"]
    )
    if answer["per"] == "node":
        sizes = ", ".join(f"{g['gpu_type']} of {g['rented_gpus']}" for g in answer["gpus"])
        prices += f"\npaid for: whole nodes ({sizes})"
    else:
        prices += "\npaid for: the GPUs of the plan (whole nodes: --per node)"
    source = answer["plan"]["source"]
    waits = {False: "", True: "; who sends waits", "both": "; who sends and who gets a message wait"}
    return (f"speed: {said_source(source)}; calibration: {answer['calibration']}"
            f"{optimizer_said(answer['optimizer'])}{waits[answer['blocking']]}\n"
            f"times are of one micro-batch without communication\nprices: {prices}")


def beside_table(answer: Mapping[str, Any]) -> Table:
    """The plan, the best on one GPU type beside it, and what is saved."""
    one, other, gain = answer["plan"], answer["homogeneous"], answer["saving"]
    table = new_table("", "this plan", "best on one GPU type", title="What it brings")
    both = [one] if other is None else [one, other]

    def row(name: str, key: str, text: Any) -> None:
        table.add_row(name, *(text(plan[key]) for plan in both), *["none"] * (other is None))

    row("stages", "layout", lambda value: cell(_short(value)))
    row("iteration", "iteration_s", time)
    stages = [stage for plan in both for stage in plan["stages"]]
    inner = inner_words(any(ways > 1 for s in stages for ways in _degrees(s)), any(s.get("sharded") for s in stages))
    for key, name in (PARTS | {"tensor_s": inner}).items():
        if any(plan[key] > 0 for plan in both):
            row(f"  {name}", key, time)
    row("samples a second", "samples_per_s", lambda value: f"{value:,.1f}")
    row("cost of an iteration", "usd_per_iteration", usd)
    if answer["iterations"] is not None:
        row(f"cost of {answer['iterations']:,} iterations", "usd_per_job", usd)
        row(f"time of {answer['iterations']:,} iterations", "job_s", lambda value: f"{value / 3600:,.3g} h")
    lines = [] if other is None else [f"saving: time {_saved(gain['time'])}, cost {_saved(gain['cost'])}"]
    lines += [f"no saving in {'cost' if answer['objective'] == 'cost' else 'time'}: {gain['reason']}"] * bool(
        gain["reason"])
    lines += [*_split_said(answer), *_proof_said(answer)]
    if answer["better"] is not None:
        best = answer["better"]
        lines.append(f"not asked for, but better: {best['layout']}: {time(best['iteration_s'])}, "
                     f"{usd(best['usd_per_iteration'])} an iteration")
    if any(len(plan["stages"]) > 1 for plan in both):
        lines.append("the parts of an iteration are those of the stage that ends last")
    table.caption = "\n".join(map(cell, lines))
    return table


def _split_said(answer: Mapping[str, Any]) -> list[str]:
    """Where the saving comes from, where there is one that shows."""
    why = answer["split"]
    if why is None or why["saved"] < LEAST_SAID:
        return []
    cost = answer["objective"] == "cost"
    reason = "price or scarcity" if cost else "scarcity"
    words = {"exchanged": f"GPUs of another type in place of some ({reason})", "added": "added GPUs",
             "operators": "operators"}
    shown = [(100 * why[part], said) for part, said in words.items() if why[part] >= LEAST_SAID]
    parts = [f"{most:,.1f} {'from' if i else 'come from'} {said}" for i, (most, said) in enumerate(shown)]
    possible = "" if why["possible"] is None else f"; no plan saves more than {100 * why['possible']:,.1f} % (proven)"
    return [f"of {100 * why['saved']:,.1f} % saved in {'cost' if cost else 'time'}, {', '.join(parts)}{possible}"]


def _proof_said(answer: Mapping[str, Any]) -> list[str]:
    """That one type costs least for each operator, where nothing but the least cost is asked for."""
    proof = answer["cheapest_type"]
    if proof is None or answer["objective"] != "cost" or answer["within_s"] is not None:
        return []
    said = f"{proof['gpu_type']} costs least for each of the {proof['operators']:,} operators: "
    if proof["found_above"] == 0:
        return [f"{said}no mixture can cost less (proven)"]
    more = "" if proof["found_above"] is None else f"; the cheapest plan costs {100 * proof['found_above']:,.1f} % more"
    return [f"{said}no mixture can cost less than one with memory for all, {usd(proof['usd_per_iteration'])}{more}"]


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def front_table(answer: Mapping[str, Any], margin: float) -> Table:
    """The plans that no other one beats in both time and cost: all, or about `SHOWN` of them."""
    front, whole = answer["front"], answer["objective"] == "front"
    table = new_table("iteration", "USD an iteration", "samples a second", "micro-batches", "stages",
                      title="Time against cost")
    step = 1 if whole else max(1, -(-len(front) // SHOWN))
    rows = [r for i, r in enumerate(front) if i % step == 0 or i == len(front) - 1]
    for r in rows:
        table.add_row(time(r["iteration_s"]), f"{r['usd_per_iteration']:,.4g}", f"{r['samples_per_s']:,.1f}",
                      f"{r['micro_batches']}", cell(_short(r["layout"])) + ", tight" * tight(r, margin))
    left = f"{len(rows)} of {len(front)} plans (--objective front: all)\n" if len(rows) < len(front) else ""
    table.caption = left + ("" if front else "no plan has a known cost\n") + _effort(answer)
    return table


def _effort(answer: Mapping[str, Any]) -> str:
    bound, gaps = answer["bound"], []
    for what in ("time", "cost"):
        if (gap := bound[f"gap_{what}"]) is not None:
            gap = max(gap, 0.0)
            gaps.append(f"no plan at all has less than {1 / (1 + gap):.0%} of the best {what} found (proven): a gap "
                        f"of {100 * gap:,.1f} %")
    by, search = answer["plan"]["method"], answer["search"]
    effort = f"found by {by}; " * bool(by)
    effort += f"{answer['plans_judged']:,} plans judged in {answer['wall_s']:.1f} s by {', '.join(answer['methods'])}"
    ended = [f"the search ended {'before its time' if search['early'] else ''}: {search['ended']}".replace(" :", ":")
             ] if search else []
    proven = [f"{one['method']}: {one['text']}" for one in answer["proves"]]
    return "\n".join(["; ".join(gaps)] * bool(gaps) + [effort, *ended, *proven])


def methods_table() -> Table:
    """All search methods, and those that are used where nobody says."""
    from policies.recommend.methods import about, method_names
    from policies.recommend.searching.gather import METHODS

    table = new_table("method", "what it does", title="Methods of hetsim recommend (--methods A,B)")
    for name in method_names():
        table.add_row(name, cell(about(name)))
    table.caption = f"Default: {','.join(METHODS)}, and chain where the GPU counts fit a table."
    return table


def lists(measured: str | None) -> tuple[Table, Table]:
    """Models and GPU types that can be asked about."""
    from sim.hardware.gputypes import catalogue
    from sim.performance.tables import load_table

    table = load_table(measured, "interpolate") if measured is not None else None
    return models_table(table), gpu_types_table(catalogue())
