"""What a user sees: messages and progress on stderr, tables of policies and clusters on stdout.

rich is imported where it is used, so that `hetsim --help` is fast.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from sim.api import Policy
    from sim.cluster.spec import ClusterSpec, Links
    from sim.hardware.gputypes import GpuType

BIG_BYTES = 50_000_000
"""A file larger than this takes long enough to be watched."""

LINE_EVERY_S = 10.0
"""Where stderr is no terminal, progress is a line as often as this."""


def say(message: object, *, style: str = "") -> None:
    """Print `hetsim: message` on stderr, `printable` and unbroken; where that cannot be written, nothing."""
    from rich.console import Console
    from rich.text import Text

    with suppress(OSError):
        Console(stderr=True).print(Text.assemble(("hetsim: ", style), printable(str(message))), soft_wrap=True)


def printable(text: str) -> str:
    """The text with what cannot be printed escaped (but line ends): names from a file must not drive the terminal."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def tell(text: object, *, flush: bool = False) -> None:
    """Print a line (or some) on stdout, `printable`."""
    print(printable(str(text)), flush=flush)


def show(table: RenderableType) -> None:
    """Print a rich table (or text) on stdout, each piece of it `printable`."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console(highlight=False)
    pieces = (piece if piece.control else Segment(printable(piece.text), piece.style)
              for piece in console.render(table))
    console.print(Segments(pieces), end="")


def _known(content: Any) -> Any:
    """The content with null for numbers that are not known (NaN): JSON has no word for them."""
    if isinstance(content, Mapping):
        return {key: _known(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_known(value) for value in content]
    return None if isinstance(content, float) and math.isnan(content) else content


def as_json(content: Mapping[str, Any]) -> str:
    """One JSON object on one line; floats in full precision."""
    return json.dumps(_known(content), allow_nan=False) + "\n"


def show_json(content: Mapping[str, Any]) -> None:
    """Print it on stdout (`as_json`)."""
    sys.stdout.write(as_json(content))


@contextmanager
def progress(jobs: int, start_s: float, quiet: bool) -> Iterator[Callable[[int, float], None] | None]:
    """What to call with (jobs that have left, simulated time) now and then.

    A bar where stderr is a terminal, else a line every ten seconds; None where quiet.
    """
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar(jobs, start_s) as update:
            yield update
    else:
        yield _lines(jobs, start_s)


@contextmanager
def _bar(jobs: int, start_s: float) -> Iterator[Callable[[int, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("jobs, day {task.fields[days]:,.1f},"),
               TimeRemainingColumn(), TextColumn("left"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=jobs, days=0.0)
        yield lambda left, now_s: bar.update(task, completed=left, days=(now_s - start_s) / 86_400)


def _lines(jobs: int, start_s: float) -> Callable[[int, float], None]:
    began = said = time.monotonic()

    def update(left: int, now_s: float) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= LINE_EVERY_S:
            said = now
            remaining = f", about {(now - began) * (jobs - left) / left:,.0f} s left" if left else ""
            say(f"{left:,} of {jobs:,} jobs, day {(now_s - start_s) / 86_400:,.1f}{remaining}")

    return update


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """What to call with (done, of how many): a bar where stderr is a terminal, else nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(what))
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("")
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def compiling(quiet: bool) -> Iterator[None]:
    """Say once, where kernels have to be compiled and that takes a while, what takes it."""
    from sim.kernels.jit import told_of_compiling

    with told_of_compiling(lambda: None if quiet else say(
            "compiling kernels: this takes up to a minute, once where they can be kept")):
        yield


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A bar of bytes read while a file (or folder) of more than `BIG_BYTES` is read, where stderr is a terminal."""
    files = path.rglob("*") if path.is_dir() else [path]
    if not (sys.stderr.isatty() and sum(file.stat().st_size for file in files if file.is_file()) > BIG_BYTES):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.text import Text

    from traces.reading.stream import watching

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
               TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(Text(path.name).markup)
        with watching(lambda done, total: bar.update(task, completed=done, total=total)):
            yield


def policies_table(policies: Mapping[str, type[Policy]]) -> Table:
    """Name and first line of the docstring of each policy."""
    table = new_table("policy", "what it does", title="Policies (hetsim policies NAME: one in full)")
    for name, policy in policies.items():
        table.add_row(name, cell(first_line(policy)))
    return table


def policy_table(policy: type[Policy]) -> Table:
    """The settings of a policy; its description is the title, what it needs the caption."""
    title = f"{policy.name}\n\n{_flowing(inspect.getdoc(policy) or '')}\n"
    table = new_table("setting", "default", "meaning", title=title)
    for name, field in policy.settings().items():
        about = field.metadata
        default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        table.add_row(name, cell(f"{default} {about['unit']}"), cell("\n".join((about["help"], *_rule(about)))))
    lines = [f"Needs: {needs(policy)}."]
    if policy.blind_to_speed():
        lines += ["Blind to speed: a job gets the first GPU type that has room, fastest first "
                  "(--set type_order=cheapest, listed or random)."]
    table.caption = "\n".join(lines + (["Set with -P name=value."] if policy.settings() else []))
    return table


def _rule(about: Mapping[str, Any]) -> list[str]:
    """What a setting may be, in words."""
    if about["choices"]:
        return [f"one of: {', '.join(about['choices'])}"]
    low, above = about.get("low"), about.get("above")
    return [f"from {low:g}"] if low is not None else [f"greater than {above:g}"] if above is not None else []


def _flowing(text: str) -> str:
    """Text whose paragraphs are one line each, for the terminal to break; lists stay as they are."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(p if "\n " in p or p.startswith(" ") else p.replace("\n", " ") for p in paragraphs)


def first_line(policy: type[Policy]) -> str:
    """The first line of a policy's own description."""
    return (inspect.getdoc(policy) or "").split("\n", 1)[0]


def needs(policy: type[Policy]) -> str:
    """What a policy needs of a run, in words."""
    parts = [
        "believed run times (--estimate)" if policy.needs_estimates else "",
        "recorded waits (wait_s of the trace)" if policy.needs_starts else "",
        "modelled speeds (--work iterations)" if policy.needs_performance else "",
        "believed throughputs (--speed-belief)" if policy.needs_throughput else "",
        *(f"trace column {name}" for name in policy.needs_columns),
    ]
    return ", ".join(part for part in parts if part) or "nothing but the queue and the free GPUs"


def cluster_table(cluster: ClusterSpec) -> Table:
    """Nodes, GPUs, memory and prices by type; links in the caption."""
    table = new_table("GPU type", "nodes", "GPUs", "memory (GiB)", "price (USD/GPU-h)", "source of the price",
                   title=f"Cluster {cluster.name}: {cluster.num_nodes:,} nodes, {cluster.num_gpus:,} GPUs")
    gpus = cluster.gpus_by_type().tolist()
    for index, kind in enumerate(cluster.types):
        sizes = cluster.node_gpus[cluster.node_type == index]
        shapes = ", ".join(f"{int((sizes == size).sum()):,} × {size}" for size in sorted(set(sizes.tolist())))
        price = "unknown" if kind.price_usd_per_h is None else f"{kind.price_usd_per_h:,.4g}"
        source = kind.cite.get("price_usd_per_h", kind.cite.get("price", ""))
        table.add_row(kind.name, shapes, f"{gpus[index]:,}", f"{kind.memory_gib:g}", price, cell(source))
    table.caption = "\n".join([*_alone(cluster), _links(cluster)])
    return table


def _alone(cluster: ClusterSpec) -> list[str]:
    """Prices that are those of nodes of one GPU, where nodes have more."""
    return [note for gpu, gpus in zip(cluster.types, largest_nodes(cluster), strict=True) if (note := gpu.alone(gpus))]


def largest_nodes(cluster: ClusterSpec) -> list[int]:
    """GPUs on the largest node of each type."""
    return [int(cluster.node_gpus[cluster.node_type == index].max(initial=0)) for index in range(len(cluster.types))]


def tell_prices(types: Sequence[GpuType], node_gpus: Sequence[int]) -> None:
    """Say which prices are those of nodes of one GPU, where nodes have more."""
    for gpu, gpus in zip(types, node_gpus, strict=True):
        if note := gpu.alone(gpus):
            say(note)


def _links(cluster: ClusterSpec) -> str:
    """Bandwidths and latencies in words."""
    links, racks = cluster.links, int(cluster.node_rack.max()) + 1
    inside = [
        f"{t.name} NVLink {t.nvlink_gbytes_per_s:g}" if t.nvlink_gbytes_per_s
        else f"{t.name} PCIe {t.pcie_gbytes_per_s:g}" for t in cluster.types
    ]
    return (
        "nodes: number × GPUs of each\n"
        f"within a node (Gbyte/s a GPU): {', '.join(inside)}{_topology(links)}\n"
        f"{_machines(cluster)}"
        f"between nodes (Gbyte/s a node): {links.network_gbytes_per_s:g} within a rack, "
        f"{links.rack_gbytes_per_s:g} between racks; {racks:,} {'rack' if racks == 1 else 'racks'}{_sites(cluster)}\n"
        f"latency (µs): {links.network_latency_s * 1e6:g} between nodes, "
        f"{links.node_latency_s * 1e6:g} within"
    )


def _machines(cluster: ClusterSpec) -> str:
    """Machines that hold several GPU types, in words: how many of each kind there are."""
    there: dict[int, list[str]] = {}
    for node, machine in enumerate(cluster.node_machine):
        of = f"{cluster.node_gpus[node]} {cluster.types[cluster.node_type[node]].name}"
        there.setdefault(machine, []).append(of)
    kinds = Counter(" and ".join(of) for of in there.values() if len(of) > 1)
    words = ", ".join(f"{count:,} of {of}" for of, count in kinds.items())
    return f"machines of several types, which PCIe joins: {words}\n" if words else ""


def _sites(cluster: ClusterSpec) -> str:
    """Adapters by the kind of node, and what joins zones, in words."""
    sites = cluster.links.sites
    words = [f"; {a.gpu_type} nodes of {a.node_gpus}: {a.network_gbytes_per_s:g}" for a in sites.adapters]
    for link in sites.zones:
        usd = "unknown" if math.isnan(link.egress_usd_per_gb) else f"{link.egress_usd_per_gb:g}"
        words.append(f"\nzones {link.one} and {link.other}: {link.gbytes_per_s:g} Gbyte/s a node, "
                     f"{link.latency_s * 1e6:g} µs, egress {usd} USD/GB")
    return "".join(words)


def _topology(links: Links) -> str:
    """What a cluster says about the inside of its nodes; empty where all GPUs are joined alike by their own link."""
    groups = {"an NVLink group": links.gpus_per_nvlink, "a PCIe switch": links.gpus_per_switch,
              "a socket": links.gpus_per_socket}  # fmt: skip
    words = [f"{count} GPUs to {group}" for group, count in groups.items() if count]
    words += [f"all by {links.node_class}"] * bool(links.node_class)
    return f"; {', '.join(words)}" if words else ""


def presets_table(presets: Mapping[str, str]) -> Table:
    """Name and description of each preset cluster."""
    table = new_table("preset", "what it is", title="Clusters (hetsim cluster show NAME: one in full)")
    for name, text in presets.items():
        table.add_row(name, cell(text))
    return table


def new_table(*headings: str, title: str) -> Table:
    """An empty table."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=escape(title), title_justify="left", title_style="", caption_justify="left", caption_style=""
    )
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def cell(text: str) -> str:
    """Text without markup."""
    from rich.markup import escape

    return escape(text)
