"""Link classes: what joins GPUs, how fast it is and how soon it starts, read once from `links.toml`.

A message of n bytes takes  t = latency + n / r,  where r is the rate that large messages reach (efficiency included).
With n½ = latency * r that is  t = (n + n½) / r: a message of n bytes reaches the fraction n / (n + n½) of r, half of it
at n½ bytes (Hockney 1994, "The communication challenge for MPP", Parallel Computing 20). The fraction grows with n.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from traces.errors import HetsimError, did_you_mean


class LinkError(HetsimError):
    """A link class that is not in the catalogue."""


@dataclass(frozen=True)
class LinkClass:
    """One class of the catalogue. `cite` names the source of each figure."""

    name: str
    between: str
    """'gpus': GPUs of a node; 'nodes': a node's adapter and the network behind it."""
    gbytes_per_s: float
    """One direction; of a GPU (all its NVLinks), of an adapter, of a link between sockets."""
    efficiency: float
    latency_s: float
    cite: Mapping[str, str]

    @property
    def bytes_per_s(self) -> float:
        """What large messages reach."""
        return self.gbytes_per_s * 1e9 * self.efficiency

    @property
    def half_bytes(self) -> float:
        """n½, the size of the message that reaches half of it."""
        return self.latency_s * self.bytes_per_s


@cache
def link_classes() -> Mapping[str, LinkClass]:
    """The classes that hetsim knows, by name."""
    table = tomllib.loads(files("sim.hardware").joinpath("links.toml").read_text("utf-8"))
    return {name: LinkClass(**{"name": name, **entry}) for name, entry in table["link"].items()}


def link_names(between: str) -> tuple[str, ...]:
    """Names of the classes between 'gpus' or 'nodes'."""
    return tuple(name for name, link in link_classes().items() if link.between == between)


def link_class(name: str, between: str) -> LinkClass:
    """Return a class by name, any case.

    Raises
    ------
    LinkError
        There is none of that name between 'gpus' or 'nodes'; the message lists those that are.
    """
    known, word = link_names(between), name.lower()
    if word not in known:
        raise LinkError(f"unknown link class between {between}", got=name, allowed=", ".join(known),
                        todo=did_you_mean(word, known))  # fmt: skip
    return link_classes()[word]
