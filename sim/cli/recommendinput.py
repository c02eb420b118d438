"""What `hetsim recommend` was asked, read and checked before any work is done."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sim.cli import graphs as graphs_cli
from traces.errors import HetsimError, did_you_mean

if TYPE_CHECKING:
    from policies.recommend.request.fleet import Fleet
    from policies.recommend.request.objective import Limits
    from policies.recommend.request.request import Request, Space
    from sim.hardware.gputypes import GpuType
    from sim.performance import Performance
    from sim.performance.graph import OperatorGraph

RENTED = 64
"""GPUs of a type that can be rented where no count is given."""
MOST_GPUS = 100_000
OBJECTIVES = ("time", "cost", "front")
PAID = ("gpu", "node")
CHOICES = {"never": (False,), "maybe": (False, True), "always": (True,)}
UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
NUMBER = r"(\d+(?:\.\d*)?|\.\d+)(?:e([+-]?\d{1,3}))?"
Value = TypeVar("Value")


@dataclass(frozen=True)
class Question:
    """The options as they were given."""

    model: str | None
    graph: Path | None
    batch: int
    gpus: str | None
    cluster: str | None
    node_gpus: str
    max_gpus: int | None
    objective: str
    within: str | None
    budget: str | None
    iterations: int | None
    keep: str | None
    methods: str
    tensor: str
    micro_batches: str | None
    schedules: str
    recompute: str
    zero: str
    mixed: bool
    sharded: str
    prices: str | None
    per: str
    seconds: float
    evaluations: int | None
    seed: int
    calibration: str
    optimizer: str
    overhead_gib: float
    measured: str | None
    blocking: bool | str
    beside: graphs_cli.Beside


def refused(what: str, option: str, got: object, allowed: str, todo: str = "") -> HetsimError:
    """The error of one option."""
    return HetsimError(what, where=option, got=got, allowed=allowed, todo=todo)


def request(asked: Question) -> Request:
    """The request that the options make.

    Raises
    ------
    HetsimError
        Whatever cannot be meant; the message names the option.
    """
    from policies.recommend.request.fleet import Fleet
    from policies.recommend.request.request import Request

    _check(asked)
    limits(asked)
    methods(asked)
    schedules = named_list(asked.schedules, "--schedules")
    links, types, counts, sizes = _gpus(asked)
    performance, model = _performance(asked, links, schedules[0])
    rented = _rented(asked, types, sizes)
    if asked.per == "node":
        types = [gpu.in_nodes(n) for gpu, n in zip(types, rented, strict=True)]
    fleet = Fleet(performance, types, counts, sizes, rented, _machines(asked, sizes))
    _measured_on(asked, performance.graph(model) if asked.beside.layers else None, types)
    most = sum(fleet.counts) if asked.max_gpus is None else asked.max_gpus
    made = Request(performance, model, asked.batch, fleet, most, _space(asked, schedules), asked.seed, asked.seconds)
    if asked.keep is not None:
        kept = sum(counts_to_keep(asked.keep, fleet))
        if kept > made.budget:
            raise refused("more GPUs to keep than a plan may use", "--keep", asked.keep, f"up to {made.budget}",
                          "Raise --max-gpus.")
    return made


def _measured_on(asked: Question, graph: OperatorGraph | None, types: list[GpuType]) -> None:
    """Refuse GPU types of which a table of measured layers has nothing in any degree asked for, and such degrees.

    A plan has a type only in degrees that were measured on it: what others lack is no reason to refuse them.
    """
    if graph is None:
        return
    degrees = counts(asked.tensor, "--tensor", most=1024)
    shares = [profile for ways in degrees if (profile := graph.tensor_parallel(ways).profile) is not None]
    for gpu in types:
        if shares and not any(profile.measures(gpu.name) for profile in shares):
            shares[0].measured_on(gpu.name)
    for profile in shares:
        if not any(profile.measures(gpu.name) for gpu in types):
            profile.measured_on(types[0].name)


def _check(asked: Question) -> None:
    """What each option must be by itself, and with others."""
    if (asked.model is None) == (asked.graph is None):
        raise HetsimError("nothing to plan for" if asked.model is None else "two models are given",
                          allowed="--model NAME or --graph FILE", todo="hetsim recommend --list names the models.")
    if (asked.gpus is None) == (asked.cluster is None):
        raise HetsimError("there are no GPUs to plan with" if asked.gpus is None else "the GPUs are given twice",
                          allowed="--gpus TYPE:COUNT,... or --cluster FILE",
                          todo="For example --gpus V100:16,T4:32." if asked.gpus is None else "")
    if asked.objective not in OBJECTIVES:
        raise refused("unknown objective", "--objective", asked.objective, ", ".join(OBJECTIVES),
                      did_you_mean(asked.objective, OBJECTIVES))
    for option, choice in (("--recompute", asked.recompute), ("--sharded", asked.sharded)):
        if choice not in CHOICES:
            raise refused("unknown choice", option, choice, ", ".join(CHOICES), did_you_mean(choice, CHOICES))
    least = {"--batch": asked.batch, "--max-gpus": asked.max_gpus, "--iterations": asked.iterations,
             "--evaluations": asked.evaluations}
    for option, value in least.items():
        if value is not None and not 1 <= value <= 10**12:
            raise refused("not a count", option, value, "a whole number from 1 to 10^12")
    if asked.per not in PAID:
        raise refused("unknown unit of what is paid for", "--per", asked.per, ", ".join(PAID),
                      did_you_mean(asked.per, PAID))
    if not 0 <= asked.seed < 2**63:
        raise refused("not a seed", "--seed", asked.seed, "a whole number from 0 to 2**63 - 1")
    if not 0 < asked.seconds <= 86400:
        raise refused("an impossible time", "--seconds", asked.seconds, "above 0, up to 86400")
    asked.beside.refuse_without(asked.graph is not None, "--graph FILE")


def listed(text: str, option: str, read: Callable[[str], Value]) -> tuple[Value, ...]:
    """Values by commas, each once."""
    values = tuple(dict.fromkeys(read(one.strip()) for one in text.split(",")))
    if not text.strip() or len(values) < len(text.split(",")):
        raise refused("not a list of different values", option, text, "values by commas")
    return values


def named_list(text: str, option: str) -> tuple[str, ...]:
    """Names by commas."""
    return listed(text, option, str)


def counts(text: str, option: str, least: int = 1, most: int = MOST_GPUS) -> tuple[int, ...]:
    """Whole numbers by commas."""

    def read(one: str) -> int:
        if not re.fullmatch(r"\d{1,12}", one, re.ASCII) or not least <= int(one) <= most:
            raise refused("not a list of numbers", option, text, f"whole numbers from {least} to {most}, by commas")
        return int(one)

    return listed(text, option, read)


def usual(batch: int) -> tuple[int, ...]:
    """Micro-batches that are tried where none are asked for: of what does not divide the batch, the last is smaller."""
    return tuple(m for m in range(1, 33) if m in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) or batch % m == 0)


def methods(asked: Question) -> tuple[str, ...]:
    """The methods, those that exist."""
    from policies.recommend.methods import method
    from policies.recommend.searching.gather import METHODS

    names = named_list(asked.methods, "--methods") if asked.methods else METHODS
    for name in names:
        method(name)
    return names


def limits(asked: Question) -> Limits:
    """`--within` and `--budget`."""
    from policies.recommend.request.objective import Limits

    times_best, time_s = _within(asked.within) if asked.within is not None else (None, None)
    usd = usd_of(asked.budget, "--budget") / (asked.iterations or 1) if asked.budget is not None else None
    return Limits(times_best, time_s, usd)


def _within(text: str) -> tuple[float | None, float | None]:
    match = re.fullmatch(NUMBER + r"\s*(x(?:-best-time)?|us|ms|s|min|h)", text.strip(), re.ASCII)
    value = float(f"{match[1]}e{match[2] or 0}") if match else 0.0
    if match is None or not 0 < value < math.inf or (match[3][0] == "x" and value < 1):
        raise refused("not a time limit", "--within", text, "a multiple of the best time from 1 on, as 1.2x-best-time, "
                      "or a time with its unit (us, ms, s, min, h), as 0.5s")
    return (value, None) if match[3][0] == "x" else (None, value * UNITS_S[match[3]])


def usd_of(text: str, option: str) -> float:
    """`3usd` as a number."""
    match = re.fullmatch(NUMBER + r"\s*usd", text.strip(), re.ASCII | re.IGNORECASE)
    value = float(f"{match[1]}e{match[2] or 0}") if match else 0.0
    if not 0 < value < math.inf:
        raise refused("not a budget", option, text, "an amount with its currency, as 3usd (others: give --prices "
                      "in USD)")
    return value


def _space(asked: Question, schedules: tuple[str, ...]) -> Space:
    from policies.recommend.methods import reorders
    from policies.recommend.request.request import Space
    from sim.performance.iteration import SCHEDULES

    for name in schedules:
        if name not in SCHEDULES:
            raise refused("unknown pipeline schedule", "--schedules", name, "1f1b, gpipe, async",
                          did_you_mean(name, SCHEDULES))
        if name == "interleaved":
            raise refused("a schedule that is not planned for", "--schedules", name, "1f1b, gpipe, async",
                          "hetsim perf can be asked about it.")
    # The first is the performance model's own, which plans name by nothing.
    return Space(
        micro_batches=usual(asked.batch) if asked.micro_batches is None
        else counts(asked.micro_batches, "--micro-batches"),
        schedules=("", *schedules[1:]),
        tensor=counts(asked.tensor, "--tensor", most=1024), recompute=CHOICES[asked.recompute],
        zero=counts(asked.zero, "--zero", 0, 3), mixed=asked.mixed, orders=any(map(reorders, methods(asked))),
        sharded=CHOICES[asked.sharded],
    )


def _performance(asked: Question, links: Any, schedule: str) -> tuple[Performance, str]:
    """The performance model, and the name of the model in it."""
    from sim.performance import Performance
    from sim.performance.calibration import for_graphs, named_calibration
    from sim.performance.tables import load_table

    model = asked.model or ""
    graphs = graphs_cli.of_layers(asked.beside, model)
    if asked.graph is not None:
        graph = graphs_cli.read(str(asked.graph), asked.beside)
        graphs, model = {graph.name: graph}, graph.name
    table = load_table(asked.measured, "interpolate") if asked.measured is not None else None
    made = Performance(links, table, schedule=schedule if schedule != "interleaved" else "1f1b",
                       calibration=for_graphs(named_calibration(asked.calibration), graphs.values()), graphs=graphs,
                       optimizer=asked.optimizer, context_gib=asked.overhead_gib, blocking=asked.blocking)  # fmt: skip
    return made, made.resolve(model)


def _gpus(asked: Question) -> tuple[Any, list[GpuType], list[int], list[int]]:
    """Links, types, counts and GPUs on a node."""
    from policies.recommend.request.fleet import NODE_GPUS
    from sim.cli.options import load_named_cluster
    from sim.cluster.prices import priced

    if asked.cluster is not None:
        spec = load_named_cluster(asked.cluster, asked.prices)
        if spec.node_zone:
            raise refused("plans over several zones are not searched", "--cluster", asked.cluster, "nodes of one zone",
                          "A cluster file for each zone; hetsim perf --zones judges a plan that spans them.")
        number = [int(n) for n in spec.gpus_by_type()]
        size = [int(spec.node_gpus[spec.node_type == t].max(initial=1)) for t in range(len(spec.types))]
        types = list(spec.types)
        return spec.links, types, number, _sizes(asked, types, size)
    found = type_counts(asked.gpus or "")
    types = priced([gpu for gpu, _ in found], asked.prices or "on-demand")
    return None, types, [n for _, n in found], _sizes(asked, types, [1 if gpu.sockets else NODE_GPUS for gpu in types])


def _machines(asked: Question, sizes: list[int]) -> list[list[int]]:
    """Of each type the machines that its nodes are in, where a cluster's machines hold several types; else nothing."""
    from sim.cli.options import load_named_cluster

    spec = load_named_cluster(asked.cluster, asked.prices) if asked.cluster is not None else None
    if spec is None or not spec.node_machine:
        return []
    of_type = [[node for node, kind in enumerate(spec.node_type.tolist()) if kind == t] for t in range(len(spec.types))]
    if any(int(spec.node_gpus[node]) != size for of, size in zip(of_type, sizes, strict=True) for node in of):
        raise refused("machines of several types, and nodes of several sizes", "--cluster", asked.cluster,
                      "nodes of one size for each type, and no other --node-gpus")
    if asked.per == "node":
        raise refused("machines of several types are not paid as a whole", "--per", asked.per, "gpu")
    return [[spec.node_machine[node] for node in of] for of in of_type]


def _rented(asked: Question, types: list[GpuType], sizes: list[int]) -> list[int]:
    """GPUs of each type that are paid together: by the node those of a node, where a cluster or an option says how many
    that are, else those that the price is for."""
    if asked.per == "gpu":
        return [1] * len(types)
    told = asked.cluster is not None or asked.node_gpus.strip()
    return sizes if told else [gpu.rented_gpus for gpu in types]


def type_counts(text: str, default: int = RENTED) -> list[tuple[GpuType, int]]:
    """`V100:16,T4` as types and counts; `default` where none is given."""
    from sim.hardware.gputypes import gpu_type

    found: dict[str, tuple[GpuType, int]] = {}
    for one in text.split(","):
        match = re.fullmatch(r"\s*([\w.-]+)\s*(?::\s*(\d{1,12}))?\s*", one, re.ASCII)
        if match is None or not 1 <= int(match[2] or default) <= MOST_GPUS:
            raise refused("not GPUs", "--gpus", one.strip(), f"TYPE:COUNT or TYPE, by commas; a count from 1 to "
                          f"{MOST_GPUS:,}", "V100:16,T4 are 16 V100 and "
                          + (f"as many T4 as are worth renting, up to {RENTED}." if default == RENTED else "one T4."))
        gpu = gpu_type(match[1])
        if gpu.name in found:
            raise refused("a GPU type is named twice", "--gpus", gpu.name, "each type once", "Add up its counts.")
        found[gpu.name] = gpu, int(match[2] or default)
    return list(found.values())


def _sizes(asked: Question, types: list[GpuType], default: list[int]) -> list[int]:
    """GPUs on a node of each type."""
    text = asked.node_gpus.strip()
    if not text:
        return default
    if re.fullmatch(r"\d{1,4}", text, re.ASCII) and 1 <= int(text) <= 1024:
        return [int(text)] * len(types)
    names, sizes, named = {gpu.name.lower(): t for t, gpu in enumerate(types)}, list(default), set()
    for one in text.split(","):
        match = re.fullmatch(r"\s*([\w.-]+)\s*:\s*(\d{1,4})\s*", one, re.ASCII)
        if match is None or match[1].lower() not in names or not 1 <= int(match[2]) <= 1024:
            raise refused("not GPUs on a node", "--node-gpus", one.strip(), "a number from 1 to 1024, or TYPE:NUMBER "
                          f"by commas with types of {', '.join(gpu.name for gpu in types)}")
        if match[1].lower() in named:
            raise refused("a GPU type is named twice", "--node-gpus", match[1], "each type once")
        named.add(match[1].lower())
        sizes[names[match[1].lower()]] = int(match[2])
    return sizes


def counts_to_keep(text: str, fleet: Fleet) -> tuple[int, ...]:
    """`4xV100+2xT4` as a count of each type of the fleet.

    Raises
    ------
    HetsimError
        Not of that form, or GPUs that are not there.
    """
    kept = dict.fromkeys(fleet.names, 0)
    known = {name.lower(): name for name in fleet.names}
    for one in text.split("+"):
        match = re.fullmatch(r"\s*(\d{1,9})\s*[xX*]\s*([\w.-]+)\s*", one, re.ASCII)
        if match is None or int(match[1]) < 1:
            raise refused("not GPUs to keep", "--keep", text, "COUNTxTYPE, joined by '+', as 4xV100+2xT4")
        if match[2].lower() not in known:
            raise refused("a GPU type that is not there", "--keep", match[2], ", ".join(fleet.names))
        kept[known[match[2].lower()]] += int(match[1])
    for (name, n), there in zip(kept.items(), fleet.counts, strict=True):
        if n > there:
            raise refused("more GPUs to keep than there are", "--keep", f"{n} {name}", f"up to {there}")
    return tuple(kept.values())


def exactly(request: Request, counts: tuple[int, ...]) -> Request:
    """The same job on these GPUs."""
    from policies.recommend.request.fleet import Fleet

    whole = request.fleet
    fleet = Fleet(request.performance, whole.types, counts, whole.node_gpus, whole.rented_gpus, whole.machines)
    return replace(request, fleet=fleet, max_gpus=sum(counts), _judged={})


def check_folder(out: Path) -> None:
    """Refuse a folder that is in use, or cannot be made, before any work is done."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise refused("the output is there already", "--out", str(out), "a new or empty folder", "Name another one.")
    parent = out.absolute().parent
    if out.is_symlink() or not parent.is_dir():
        raise refused("the folder that it would be in is not there", "--out", str(out), "a folder that can be made")
    if not os.access(parent, os.W_OK):
        raise refused("the folder that it would be in cannot be written", "--out", str(out),
                      "a folder that can be made", "Name another one.")
