"""Families of models by their sizes: named ones, and any other as text, `llama(layers=80, hidden=8192, ...)`.

A name may stand before the brackets in place of the family: `llama-70b(tokens=512)` is that model on shorter sequences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sim.performance.graph import OperatorGraph, PerformanceError
from sim.performance.zoo import language, recommenders
from traces.errors import did_you_mean

_SPEC = re.compile(r"\s*(?P<name>[\w.-]+)\s*\((?P<sizes>[^()]*)\)\s*", re.ASCII)
MOST = {"layers": 1000, "hidden": 1 << 17, "heads": 1024, "groups": 1024, "inner": 1 << 20, "tokens": 1 << 20,
        "positions": 1 << 20, "vocabulary": 1 << 21, "experts": 256, "chosen": 256, "rows": 999_999_999,
        "width": 4096, "tables": 1000, "lookups": 1000}  # fmt: skip
"""Largest value of each size."""


@dataclass(frozen=True)
class Family:
    """How to build a model of a family, and the sizes that have a value where nobody gives one."""

    build: Callable[[str, Mapping[str, int]], OperatorGraph]
    needed: tuple[str, ...]
    default: Mapping[str, int]

    @property
    def sizes(self) -> tuple[str, ...]:
        return (*self.needed, *self.default)


def _gpt(name: str, n: Mapping[str, int]) -> OperatorGraph:
    return language.gpt(n["layers"], n["hidden"], n["heads"], n["tokens"], n["vocabulary"], name=name,
                        positions=n["positions"] or n["tokens"])  # fmt: skip


def _bert(name: str, n: Mapping[str, int]) -> OperatorGraph:
    return language.bert(n["layers"], n["hidden"], n["heads"], n["tokens"], name=name)


def _llama(name: str, n: Mapping[str, int]) -> OperatorGraph:
    return language.gated_decoder(
        name, n["layers"], n["hidden"], n["heads"], n["inner"], n["tokens"], groups=n["groups"] or n["heads"],
        vocabulary=n["vocabulary"], experts=n["experts"], chosen=n["chosen"],
    )  # fmt: skip


def _dlrm(name: str, n: Mapping[str, int]) -> OperatorGraph:
    return recommenders.dlrm_of_tables(name, n["rows"], n["width"], n["tables"], n["lookups"])


FAMILIES: Mapping[str, Family] = {
    "gpt": Family(_gpt, ("layers", "hidden", "heads"), {"tokens": 1024, "vocabulary": 50257, "positions": 0}),
    "bert": Family(_bert, ("layers", "hidden", "heads"), {"tokens": 128}),
    "llama": Family(_llama, ("layers", "hidden", "heads", "inner"),
                    {"groups": 0, "tokens": 4096, "vocabulary": 32000, "experts": 1, "chosen": 1}),
    "dlrm": Family(_dlrm, ("rows", "width"), {"tables": 26, "lookups": 1}),
}  # fmt: skip
"""Positions 0: as many as tokens; groups 0: keys for each head; rows of all tables, lookups in each."""


def _sized(family: str, layers: int, hidden: int, heads: int, **others: int) -> tuple[str, dict[str, int]]:
    return family, {"layers": layers, "hidden": hidden, "heads": heads, **others}


NAMED: Mapping[str, tuple[str, dict[str, int]]] = {
    "gpt2-124m": _sized("gpt", 12, 768, 12, positions=1024),
    "gpt2-355m": _sized("gpt", 24, 1024, 16, positions=1024),
    "gpt2-774m": _sized("gpt", 36, 1280, 20, positions=1024),
    "gpt2-1.5b": _sized("gpt", 48, 1600, 25, positions=1024),
    "gpt3-6.7b": _sized("gpt", 32, 4096, 32, tokens=2048, positions=2048),
    "gpt3-13b": _sized("gpt", 40, 5120, 40, tokens=2048, positions=2048),
    "gpt3-175b": _sized("gpt", 96, 12288, 96, tokens=2048, positions=2048),
    "bert-base": _sized("bert", 12, 768, 12),
    "bert-large": _sized("bert", 24, 1024, 16),
    "llama-7b": _sized("llama", 32, 4096, 32, inner=11008),
    "llama-13b": _sized("llama", 40, 5120, 40, inner=13824),
    "llama-70b": _sized("llama", 80, 8192, 64, inner=28672, groups=8),
    "llama3-8b": _sized("llama", 32, 4096, 32, inner=14336, groups=8, tokens=8192, vocabulary=128256),
    "llama3-70b": _sized("llama", 80, 8192, 64, inner=28672, groups=8, tokens=8192, vocabulary=128256),
    "llama3-405b": _sized("llama", 126, 16384, 128, inner=53248, groups=8, tokens=8192, vocabulary=128256),
    "dlrm-1tb": ("dlrm", {"rows": 204_184_588, "width": 128}),
    "mixtral-8x7b": _sized("llama", 32, 4096, 32, inner=14336, groups=8, experts=8, chosen=2),
}
"""Sizes as published: Radford et al. 2019; Brown et al. 2020; Devlin et al. 2019;
Touvron et al. 2023; Jiang et al. 2024; Llama Team 2024 (arXiv:2407.21783), table 3;
MLPerf Training 0.7, recommendation (at most 40 million rows a table)."""


def is_sized(model: str) -> bool:
    """Whether a model is named by its sizes: a name of `NAMED`, or one of them or a family with brackets.

    Whether the sizes make sense is not asked.
    """
    match = _SPEC.fullmatch(model) if "(" in model else None
    return model in NAMED or (match is not None and (match["name"] in NAMED or match["name"] in FAMILIES))


def with_tokens(model: str, tokens: int) -> str:
    """The model on sequences of so many tokens, as text."""
    match = _SPEC.fullmatch(model)
    given = f"{match['sizes'].strip().rstrip(',')}, " if match is not None and match["sizes"].strip() else ""
    text = f"{match['name'] if match is not None else model}({given}tokens={tokens})"
    sizes_of(text)
    return text


def sizes_of(model: str) -> tuple[Family, dict[str, int]]:
    """Family and sizes of a model that `is_sized`.

    Raises
    ------
    PerformanceError
        No such family, a size that it does not have, that is none, or that is missing.
    """
    match = _SPEC.fullmatch(model)
    name, given = (match["name"], match["sizes"]) if match is not None else (model, "")
    names = (*FAMILIES, *NAMED)
    if name not in names:
        raise PerformanceError("no model of this name has sizes to choose", where=f"model {model!r}", got=name,
                               allowed=", ".join(names), todo=did_you_mean(name, names))  # fmt: skip
    family_name, sizes = (name, {}) if name in FAMILIES else (NAMED[name][0], dict(NAMED[name][1]))
    family, seen = FAMILIES[family_name], set[str]()
    for item in filter(None, (text.strip() for text in given.split(","))):
        size, _, value = (text.strip() for text in item.partition("="))
        if size not in family.sizes or size in seen:
            raise PerformanceError(
                "a size is given twice" if size in seen else f"a model of the family {family_name} has no such size",
                where=f"model {model!r}", got=item, allowed=", ".join(f"{name}=N" for name in family.sizes),
                todo=did_you_mean(size, family.sizes),
            )  # fmt: skip
        seen.add(size)
        if not re.fullmatch(r"[0-9]{1,9}", value) or not 1 <= int(value) <= MOST[size]:
            raise PerformanceError(f"impossible {size} of a model", where=f"model {model!r}", got=value or "nothing",
                                   allowed=f"a whole number from 1 to {MOST[size]:,}")  # fmt: skip
        sizes[size] = int(value)
    if missing := [size for size in family.needed if size not in sizes]:
        raise PerformanceError("a size of a model is missing", where=f"model {model!r}", got=", ".join(sizes) or "none",
                               allowed=", ".join(f"{size}=N" for size in family.sizes),
                               todo=f"Give {', '.join(missing)}.")  # fmt: skip
    sizes = dict(family.default) | sizes
    _check(model, sizes, 512 if family_name == "bert" else sizes.get("positions", 0))
    return family, sizes


def _check(model: str, sizes: Mapping[str, int], positions: int) -> None:
    """Heads divide the width, groups the heads; tokens have positions, chosen experts are there, tables have rows."""
    n = dict.fromkeys(MOST, 1) | {"groups": 0} | dict(sizes)
    wrong = {
        "heads": (n["hidden"] % n["heads"] != 0, f"a divisor of hidden, {n['hidden']}"),
        "groups": (n["heads"] % (n["groups"] or 1) != 0, f"a divisor of heads, {n['heads']}"),
        "tokens": (bool(positions) and n["tokens"] > positions, f"up to {positions}, the positions that are learned"),
        "tables": (n["tables"] > n["rows"], f"up to {n['rows']}, the rows"),
        "chosen": (n["chosen"] > n["experts"], f"up to {n['experts']}, the experts"),
    }
    for size, (is_wrong, allowed) in wrong.items():
        if is_wrong:
            raise PerformanceError(f"impossible {size} of a model", where=f"model {model!r}", got=n[size],
                                   allowed=allowed)  # fmt: skip


def sized_graph(model: str) -> OperatorGraph:
    """The graph of a model that `is_sized`; errors as `sizes_of`."""
    family, sizes = sizes_of(model)
    return family.build(model, sizes)
