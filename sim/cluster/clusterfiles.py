"""Cluster descriptions: a preset's name, a TOML file, or a shorthand such as `v100:320x8+t4:10x4`.

A TOML file has `[[nodes]]` (type, count, gpus, rack_size, zone, network, price), `[links]` (each key with its unit),
prices that replace the catalogue's (`sim.cluster.nodeprices`) and types of one's own (`sim.settings.hardwarefile`).
`sim/cluster/presets/*.toml` are examples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationInfo, field_validator, model_validator

from sim.cluster.nodeplaces import machines_of, racks_of
from sim.cluster.nodeprices import NodePrice, TypePrices, at_mean, priced_groups
from sim.cluster.sites import ALIKE, Adapter, Sites, ZoneLink
from sim.cluster.spec import ClusterError, ClusterSpec, Links
from sim.hardware.gputypes import GpuType, gpu_type, with_types
from sim.hardware.linkclasses import LinkError, link_class, link_names
from sim.settings.hardwarefile import own_types
from sim.settings.values import ConfigError, RefusedError, Settings, checked, key_names, read_toml, setting
from traces.errors import HetsimError, did_you_mean

#: More GPUs than this share no node; a larger number is most often the size of the whole cluster.
MAX_GPUS_PER_NODE = 1024
MAX_GPUS = 10_000_000
GBITS_PER_GBYTE = 8
#: Keys of [links] that say what others say, and keys that are only read with another.
INSTEAD = {
    "network_class": ("network_gbytes_per_s", "network_gbits_per_s"),
    "rack_oversubscription": ("rack_gbytes_per_s", "rack_gbits_per_s"),
    "node_class": ("gpus_per_nvlink", "gpus_per_switch", "gpus_per_socket", "node_latency_s"),
}
NEEDS = {"network_adapters": "network_class", "host_class": "gpus_per_switch", "socket_class": "gpus_per_socket"}


class Nodes(NodePrice):
    """One `[[nodes]]` table: equal nodes."""

    zone: str = setting("", "zone that they are in; left out: all nodes without one are in one zone")
    network_gbytes_per_s: float | None = setting(
        None, "of each of these nodes, within a rack, as sold; left out: that of [links]", unit="Gbyte/s", ge=1e-6,
        le=1e9)
    network_gbits_per_s: float | None = setting(None, "the same in Gbit/s", unit="Gbit/s", ge=1e-5, le=1e10)

    machine: str = setting("", "kind of machine that these GPUs are in with those of other tables: the k-th nodes "
                           "of all such tables are one; left out: each node is one")
    type: str = setting(..., "GPU type of the catalogue, any case", min_length=1)
    count: int = setting(..., "nodes of this kind", unit="nodes", ge=1, le=MAX_GPUS)
    gpus: int = setting(..., "GPUs of each", unit="GPU", ge=1, le=MAX_GPUS_PER_NODE)
    rack_size: int | None = setting(
        None, "nodes of a rack, which these nodes fill one after the other; left out: all such nodes of the "
        "file stand in one rack", unit="nodes", ge=1, le=MAX_GPUS)

    @model_validator(mode="after")
    def _one_rate(self) -> Nodes:
        _once(self, "network")
        return self


class Zones(Settings):
    """One `[[links.zones]]` table: what joins two zones, the same in both directions."""

    between: list[str] = setting(..., "the two zones", allowed="a list of two names", min_length=2, max_length=2)
    gbytes_per_s: float | None = setting(
        None, "of each node, as sold: reached in part, as within a zone", unit="Gbyte/s", ge=1e-6, le=1e9)
    gbits_per_s: float | None = setting(None, "the same in Gbit/s", unit="Gbit/s", ge=1e-5, le=1e10)
    latency_s: float = setting(0.0, "where it is more than that between nodes", unit="s", ge=0, le=60)
    egress_usd_per_gb: float | None = setting(
        None, "of 10^9 bytes that leave one for the other; left out: unknown", unit="USD/GB", ge=0, le=1e6)

    @model_validator(mode="after")
    def _whole(self) -> Zones:
        if (self.gbytes_per_s is None) == (self.gbits_per_s is None):
            raise RefusedError("the rate between two zones is given " + ("twice" if self.gbytes_per_s else "nowhere"),
                               allowed="gbytes_per_s or gbits_per_s")
        if self.between[0] == self.between[1] or not all(self.between):
            raise RefusedError("not two zones", allowed='between = ["a", "b"], two names')
        return self

    def link(self) -> ZoneLink:
        """In Gbyte/s; an unknown price is NaN."""
        rate = self.gbytes_per_s if self.gbytes_per_s is not None else (self.gbits_per_s or 0) / GBITS_PER_GBYTE
        usd = math.nan if self.egress_usd_per_gb is None else self.egress_usd_per_gb
        return ZoneLink(self.between[0], self.between[1], rate, self.latency_s, usd)


def _once(table: Nodes | LinkSettings, link: str) -> None:
    """A bandwidth is given in one unit."""
    if None not in (getattr(table, f"{link}_gbytes_per_s"), getattr(table, f"{link}_gbits_per_s")):
        raise RefusedError(f"the {link} bandwidth is given twice",
                           allowed=f"{link}_gbytes_per_s or {link}_gbits_per_s")


def _link_class(between: str, meaning: str) -> Any:
    return setting("", meaning, allowed=", ".join(link_names(between)))


class LinkSettings(Settings):
    """The `[links]` table. A bandwidth may be given in Gbyte/s or in Gbit/s; the key says which."""

    network_gbytes_per_s: float | None = setting(
        None, "each node, within a rack, as sold: 90 % of it is reached (a measured busbw is to be divided by 0.9)",
        unit="Gbyte/s", ge=1e-6, le=1e9)
    network_gbits_per_s: float | None = setting(None, "the same in Gbit/s", unit="Gbit/s", ge=1e-5, le=1e10)
    rack_gbytes_per_s: float | None = setting(
        None, "each node, between racks; left out: as within a rack", unit="Gbyte/s", ge=1e-6, le=1e9)
    rack_gbits_per_s: float | None = setting(None, "the same in Gbit/s", unit="Gbit/s", ge=1e-5, le=1e10)
    rack_oversubscription: float | None = setting(
        None, "instead of a rate: what a rack's nodes can send over what it can pass on", ge=1, le=1e6)
    network_latency_s: float | None = setting(
        None, f"between nodes; left out: of network_class, else {Links.network_latency_s:g}", unit="s", ge=0, le=60)
    node_latency_s: float = setting(Links.node_latency_s, "within a node, of a type's own link", unit="s", ge=0, le=60)
    network_class: str = _link_class("nodes", "class of a node's adapters: its rate, efficiency and latency")
    network_adapters: int = setting(1, "adapters of a node, of network_class", ge=1, le=1024)
    node_class: str = _link_class("gpus", "class that joins all GPUs of a node, in place of the type's own")
    gpus_per_nvlink: int = setting(0, "GPUs that NVLink joins; 0: all of a node, 1: none", unit="GPU", ge=0, le=1024)
    gpus_per_switch: int = setting(0, "GPUs under one PCIe switch; 0: all of a socket", unit="GPU", ge=0, le=1024)
    gpus_per_socket: int = setting(0, "GPUs of one CPU socket; 0: all of a node", unit="GPU", ge=0, le=1024)
    host_class: str = _link_class("gpus", "class between switches of a socket; left out: by the type's PCIe")
    socket_class: str = _link_class("gpus", "class between sockets; left out: by the type's PCIe")
    zones: list[Zones] = setting([], "what joins each two zones", allowed="[[links.zones]] tables")

    @model_validator(mode="after")
    def _said_once(self) -> LinkSettings:
        """Nothing is said twice, and nothing is said that would not be read."""
        for link in ("network", "rack"):
            _once(self, link)
        said = self.model_fields_set
        for one, others in INSTEAD.items():
            if one in said and said.intersection(others):
                raise RefusedError(f"{one} says it already", allowed=f"{one} alone, or {', '.join(others)}")
        for one, needs in NEEDS.items():
            if one in said and not getattr(self, needs):
                raise RefusedError(f"{one} would not be used", allowed=f"{one} with {needs}")
        if self.gpus_per_switch and self.gpus_per_socket % self.gpus_per_switch:
            raise RefusedError("a PCIe switch is on two sockets",
                               allowed="gpus_per_socket a multiple of gpus_per_switch")
        for part in ("switch", "socket"):
            sizes = sorted((self.gpus_per_nvlink, getattr(self, f"gpus_per_{part}")))
            if sizes[0] and sizes[1] % sizes[0]:
                raise RefusedError(f"an NVLink group is on parts of two: gpus_per_nvlink and gpus_per_{part}",
                                   allowed="one a multiple of the other")
        return self

    @field_validator("network_class", "node_class", "host_class", "socket_class")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        if name:
            try:
                return link_class(name, "nodes" if info.field_name == "network_class" else "gpus").name
            except LinkError as error:
                raise RefusedError(error.what, allowed=str(error.allowed), todo=error.todo) from None
        return name

    def between_racks(self, network: float) -> float:
        """Gbyte/s of a node between racks, of one that has so many within."""
        return _bandwidth(self.rack_gbytes_per_s, self.rack_gbits_per_s, network / (self.rack_oversubscription or 1.0))

    def links(self, sites: Sites = ALIKE) -> Links:
        """The links in Gbyte/s: x Gbit/s = x / 8 Gbyte/s."""
        rate, latency_s = Links.network_gbytes_per_s, Links.network_latency_s
        if self.network_class:
            adapter = link_class(self.network_class, "nodes")
            rate, latency_s = adapter.gbytes_per_s * self.network_adapters, adapter.latency_s
        network = _bandwidth(self.network_gbytes_per_s, self.network_gbits_per_s, rate)
        return Links(
            network, self.between_racks(network),
            latency_s if self.network_latency_s is None else self.network_latency_s, self.node_latency_s,
            self.network_class, self.node_class, self.gpus_per_nvlink, self.gpus_per_switch, self.gpus_per_socket,
            self.host_class, self.socket_class, sites,
        )


def _bandwidth(gbytes: float | None, gbits: float | None, default: float) -> float:
    return gbytes if gbytes is not None else default if gbits is None else gbits / GBITS_PER_GBYTE


class ClusterFile(TypePrices):
    """A cluster's TOML file."""

    name: str = setting("", "name in results; left out: the file's")
    description: str = setting("", "one line for the list of presets")
    nodes: list[Nodes] = setting(..., "the [[nodes]] tables", allowed="one or more [[nodes]]", min_length=1)
    links: LinkSettings = setting(LinkSettings(), "bandwidths and latencies", allowed="a table")
    gpu: dict[str, Any] = setting({}, "GPU types of one's own (sim.settings.hardwarefile)", allowed="[gpu.NAME] tables")
    cpu: dict[str, Any] = setting({}, "CPU types of one's own", allowed="[cpu.NAME] tables")


def load_cluster(text: str, prices: str | None = None) -> ClusterSpec:
    """Make the cluster that a user named.

    Parameters
    ----------
    text : str
        A preset (any case), the path of a TOML file, or `TYPE:COUNTxGPUS+…`: COUNT nodes of GPUS GPUs each,
        in that order; `TYPE:GPUS` is one node. Types in any case.
    prices : str, optional
        In place of the cluster's own prices: 'on-demand', 'spot' or 'reserved' ones of the catalogue, or a file of
        prices (`sim.cluster.prices`).

    Raises
    ------
    ClusterError
        None of these; a file that cannot be read; an unknown key (with the nearest right one), unit or GPU
        type; no nodes, a node without GPUs, or too many. The message names the file and the dotted path.

    Examples
    --------
    >>> cluster = load_cluster("v100:2x8+t4:1x4")
    >>> [gpu.name for gpu in cluster.types], cluster.gpus_by_type().tolist(), cluster.num_nodes
    (['V100', 'T4'], [16, 4], 3)
    >>> load_cluster("gavel").num_gpus
    108
    """
    text = text.strip()
    if text.lower() in preset_names():
        return _preset(text.lower()) if prices is None else _of_preset(text.lower(), prices)
    if text.lower().endswith(".toml"):
        return _from_table(_read(text), text, Path(text).stem, prices)
    if ":" in text:
        return _from_shorthand(text, prices)
    names = ", ".join(preset_names())
    raise ClusterError(
        "no such cluster", got=text, todo=did_you_mean(text.lower(), preset_names()),
        allowed=f"a preset ({names}), a .toml file, or a shorthand such as v100:320x8+t4:10x4",
    )


@cache
def preset_names() -> tuple[str, ...]:
    """Names of the presets, in alphabetical order."""
    found = (entry.name for entry in files("sim.cluster").joinpath("presets").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def presets() -> dict[str, str]:
    """The presets: name -> what it is, in one line."""
    return {name: str(_preset_table(name).get("description", "")) for name in preset_names()}


def _preset_table(name: str) -> dict[str, Any]:
    return _read(str(files("sim.cluster").joinpath("presets", f"{name}.toml")))


@cache  # all of it is read-only
def _preset(name: str) -> ClusterSpec:
    return _of_preset(name, None)


def _of_preset(name: str, prices: str | None) -> ClusterSpec:
    return _from_table(_preset_table(name), f"preset {name}", name, prices)


def _read(path: str) -> dict[str, Any]:
    """A TOML file, its troubles told as ClusterError."""
    try:
        return read_toml(path)
    except ConfigError as error:
        raise ClusterError(error.what, where=error.where, got=error.got, allowed=error.allowed) from None


def _from_shorthand(text: str, prices: str | None) -> ClusterSpec:
    """`v100:320x8+t4:10x4` -> nodes, checked by the same rules as a file."""
    nodes = []
    for part in text.split("+"):
        match = re.fullmatch(r"\s*([\w.-]+)\s*:\s*(?:(\d{1,12})\s*[xX*]\s*)?(\d{1,12})\s*", part)
        if match is None:
            raise ClusterError("not a shorthand", where=f"cluster {text!r}", got=part.strip(),
                               allowed="TYPE:COUNTxGPUS or TYPE:GPUS, joined by '+'",
                               todo="v100:320x8+t4:10x4 is 320 nodes of 8 V100 and 10 nodes of 4 T4.")
        name, count, gpus = match.groups(default="1")
        nodes.append({"type": name, "count": int(count), "gpus": int(gpus)})
    return _from_table({"nodes": nodes}, f"cluster {text!r}", "", prices)


def _from_table(table: Mapping[str, Any], where: str, name: str, prices: str | None) -> ClusterSpec:
    """The cluster that a table describes; without a name it is called by its shorthand."""
    file = checked(ClusterFile, table, lambda path: f"{where}, {path}" if path else where,
                   nearest=_nearest, error=ClusterError)
    with with_types(own_types({"gpu": file.gpu, "cpu": file.cpu}, where).values()):
        return _of_file(file, where, name, prices)


def _of_file(file: ClusterFile, where: str, name: str, prices: str | None) -> ClusterSpec:
    """The cluster, where all its types are known by name."""
    total = sum(group.count * group.gpus for group in file.nodes)
    if total > MAX_GPUS:
        raise ClusterError("too many GPUs", where=where, got=total, allowed=f"up to {MAX_GPUS:,}")
    found = [_type(group.type, f"{where}, nodes.{i}.type") for i, group in enumerate(file.nodes)]
    shorthand = "+".join(f"{t.name}:{n.count}x{n.gpus}" for t, n in zip(found, file.nodes, strict=True))
    counts = [group.count for group in file.nodes]
    order = list(dict.fromkeys(gpu.name for gpu in found))
    priced = priced_groups(file, file.nodes, found, where, prices)
    machines, racks = machines_of(file.nodes, where, MAX_GPUS_PER_NODE), racks_of(file.nodes)
    alike = [[i for i, gpu in enumerate(found) if gpu.name == one] for one in order]
    return ClusterSpec.build(
        file.name or name or shorthand,
        [at_mean([priced[i] for i in of], [file.nodes[i].count * file.nodes[i].gpus for i in of]) for of in alike],
        np.repeat([order.index(gpu.name) for gpu in found], counts).tolist(),
        np.repeat([group.gpus for group in file.nodes], counts).tolist(),
        racks.tolist(), file.links.links(_sites(file, found, where)),
        np.repeat([gpu.price_or_nan for gpu in priced], counts).tolist(),
        [group.zone for group in file.nodes for _ in range(group.count)] if file.links.zones else (), machines,
    )


def _sites(file: ClusterFile, found: list[GpuType], where: str) -> Sites:
    """Adapters by the kind of node, and zones.

    Raises
    ------
    ClusterError
        Nodes of one kind with two rates; zones of which nothing is said, or which have no nodes.
    """
    rates: dict[tuple[str, int], float | None] = {}
    for i, (gpu, group) in enumerate(zip(found, file.nodes, strict=True)):
        given = group.network_gbytes_per_s, group.network_gbits_per_s
        rate = None if given == (None, None) else _bandwidth(*given, 0.0)
        if rates.setdefault((gpu.name, group.gpus), rate) != rate:
            raise ClusterError("nodes of one GPU type and size have two network rates", where=f"{where}, nodes.{i}",
                               got=f"{gpu.name}, {group.gpus} GPUs", allowed="one rate for each type and size")
    zones = [table.link() for table in file.links.zones]
    told: set[frozenset[str]] = set()
    for i, link in enumerate(zones):
        pair = frozenset((link.one, link.other))
        if pair in told:
            raise ClusterError("two zones are joined twice", where=f"{where}, links.zones.{i}",
                               got=f"{link.one} and {link.other}", allowed="one table for each two zones")
        told.add(pair)
    there = dict.fromkeys(group.zone for group in file.nodes)
    if extra := sorted({name for pair in told for name in pair} - set(there)):
        raise ClusterError("a zone has no nodes", where=f"{where}, links.zones", got=extra[0],
                           allowed=", ".join(filter(None, there)) or "zones that [[nodes]] name",
                           todo=did_you_mean(extra[0], filter(None, there)))
    for one, other in combinations(there, 2):
        if frozenset((one, other)) not in told:
            raise ClusterError("nothing is said of what joins two zones", where=f"{where}, links.zones",
                               got=f"{one or 'nodes without a zone'} and {other or 'nodes without a zone'}",
                               allowed='a [[links.zones]] table with between = ["a", "b"] for each two')
    plain = file.links.links()
    told_of = {name for (name, _), rate in rates.items() if rate is not None}
    adapters = tuple(
        Adapter(name, gpus, plain.network_gbytes_per_s, plain.rack_gbytes_per_s) if rate is None
        else Adapter(name, gpus, rate, file.links.between_racks(rate))
        for (name, gpus), rate in rates.items() if name in told_of
    )
    return Sites(adapters, tuple(zones))


def _type(name: str, where: str) -> GpuType:
    try:
        return gpu_type(name)
    except HetsimError as error:
        raise ClusterError(
            error.what, where=where, got=error.got, allowed=error.allowed, todo=error.todo,
        ) from None


def _nearest(table: str, key: str) -> str:
    """The key meant; a bandwidth without its unit is told both keys that have one."""
    if table == "links":
        word = key.lower()
        if any(part in word for part in ("clas", "gpu", "adapt", "subscr")):
            return did_you_mean(word, key_names(LinkSettings))
        for link in ("rack", "network"):
            if "latency" not in word and (link in word or (link == "network" and word[:1] in "bn")):
                return f"did you mean '{link}_gbytes_per_s' (bytes) or '{link}_gbits_per_s' (bits)?"
        if "latency" in word:
            return did_you_mean(key, ("network_latency_s", "node_latency_s"))
    if not table and key.lower().startswith("price"):
        return f"did you mean 'prices_usd_per_{'node' if 'node' in key.lower() else 'gpu'}_h'?"
    model = Nodes if table.startswith("nodes") else LinkSettings if table == "links" else ClusterFile
    return did_you_mean(key, key_names(model))


__all__ = ["ClusterError", "ClusterFile", "load_cluster", "preset_names", "presets"]
