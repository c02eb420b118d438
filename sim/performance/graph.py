"""A model as the simulator sees it: operators in topological order, each with its cost for one sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sim.performance.layer_times import PerformanceError, Profile

__all__ = ["MATRIX_KINDS", "VALUE_BYTES", "GraphBuilder", "OperatorGraph", "PerformanceError", "Profile"]

VALUE_BYTES = 2
"""Bytes of a weight or an activation in mixed precision."""
MATRIX_KINDS = ("conv", "gemm", "attention", "lstm")
"""Kinds whose time may be set by arithmetic.

Backward they multiply twice: once for the gradient of each factor.
"""
_COLUMNS = (
    "flops_fwd", "in_bytes", "out_bytes", "inner_bytes", "weight_params", "stored_bytes", "launches", "sparse_params",
    "shards", "split", "reduce_fwd_bytes", "reduce_bwd_bytes", "block",
)  # fmt: skip
"""Arrays of a graph that follow from its operators one by one."""


@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """Operators of a model in topological order.

    Arrays are read-only, one entry an operator, for one sample; float64 where nothing else is said. What depends
    on the batch is proportional to its samples; weights are not.

    Attributes
    ----------
    ops, kind : names, and 'conv', 'gemm', 'attention', 'lstm', 'norm', 'embedding', 'elementwise' or 'pool'.
    inputs : operators that each one reads; -1 is the sample itself.
    flops_fwd : floating-point operations forward, 2 for a multiply-add; those of matrix products only.
    in_bytes, out_bytes : what it reads of other operators, and what it writes.
    inner_bytes : memory traffic forward that is neither (scores of an unfused attention).
    weight_params : trainable parameters.
    stored_bytes : activations that it keeps for its backward pass.
    cut_bytes : bytes that cross a cut after the operator: each output made so far that is read later, once.
    launches : kernels started forward.
    sparse_params : of `weight_params`, those of tables of which an iteration touches few rows: only these are
        exchanged between replicas and stepped (`sim.performance.embeddings`).
    shards : whole pieces into which a stage may divide the operator, with its weights, among its replicas (experts);
        inf: as evenly as one likes (tables); 0: not at all (`sim.performance.embeddings`).
    split : bool, whether tensor parallelism divides the operator (its arithmetic, weights, inner values) among
        GPUs; what is not split is repeated on each.
    reduce_fwd_bytes, reduce_bwd_bytes : bytes that tensor parallelism sums over its GPUs after the operator
        forward, and after its backward.
    block : int64, never falling: operators of one number are recomputed together from what enters the first.
    profile : measured times, in as many tensor degrees as there are; None: they follow from the costs above.
    heads : attention heads (groups of them where they share keys), of which tensor parallelism gives each GPU
        as many; 0: it has none.
    tied : (operators, parameters) of each table that several operators use: the first one's `weight_params` have it;
        a stage with another one, but not the first, keeps a copy (`sim.performance.embeddings`).
    among : replicas that operators with shards are divided among; 1: each replica has all of them.
    """

    name: str
    sample: str
    ops: tuple[str, ...]
    kind: tuple[str, ...]
    inputs: tuple[tuple[int, ...], ...]
    flops_fwd: np.ndarray
    in_bytes: np.ndarray
    out_bytes: np.ndarray
    inner_bytes: np.ndarray
    weight_params: np.ndarray
    stored_bytes: np.ndarray
    cut_bytes: np.ndarray
    launches: np.ndarray
    sparse_params: np.ndarray
    shards: np.ndarray
    split: np.ndarray
    reduce_fwd_bytes: np.ndarray
    reduce_bwd_bytes: np.ndarray
    block: np.ndarray
    profile: Profile | None = None
    heads: int = 0
    tied: tuple[tuple[tuple[int, ...], float], ...] = ()
    among: int = 1

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def params(self) -> float:
        """Trainable parameters."""
        return float(self.weight_params.sum())

    @property
    def flops_fwd_total(self) -> float:
        """FLOP of matrix products forward, for one sample; NaN where a source of measured times has none."""
        return float(self.flops_fwd.sum())

    @property
    def flops_bwd(self) -> np.ndarray:
        """float64 [ops], FLOP backward for one sample: twice the forward ones of a matrix product, else 0.

        NaN where the forward ones are unknown.
        """
        counted = np.isin(self.kind, MATRIX_KINDS) | np.isnan(self.flops_fwd)
        return np.where(counted, 2.0 * self.flops_fwd, 0.0)

    @property
    def alone(self) -> np.ndarray:
        """bool [ops], whether a replica has a part of the operator that no other one has."""
        return (self.shards > 0) & (self.among > 1)

    def tensor_parallel(self, ways: int) -> OperatorGraph:
        """The operators of one of `ways` GPUs that work on a sample together (Shoeybi et al. 2019, arXiv:1909.08053).

        Of an operator that is split, a GPU has 1 / ways of the arithmetic, weights and inner traffic. Its output is
        whole where it is summed (`reduce_fwd_bytes` > 0), else a 1 / ways of it; what it reads is what the operators
        before it write; what it stores is divided where all that it reads is (Korthikanti et al. 2022,
        arXiv:2205.05198, equation 2). What is not split is repeated. `reduce_*_bytes` stay those of the whole sum,
        `cut_bytes` become what one GPU holds of what crosses.

        Biases of split operators are divided too, and so is a vocabulary that `ways` does not divide. Where times
        are measured, sizes are those of the file, and the sums are part of the times.

        Raises
        ------
        PerformanceError
            `ways` is below 1 or does not divide the attention heads, no operator is split, or sizes of that degree
            were not measured.
        """
        self._check_ways(ways)
        if ways == 1:
            return self
        if self.profile is not None:
            share = self.profile.shares[ways]
            cut = _cut_bytes(self.inputs, share["out_bytes"])
            cut.flags.writeable = False
            return replace(self, **share, cut_bytes=cut, profile=self.profile.of_degree(ways))
        divided = self.split & (self.reduce_fwd_bytes == 0)
        written = np.where(divided, self.out_bytes / ways, self.out_bytes)
        read, stored = self.in_bytes.copy(), self.stored_bytes.copy()
        for op, sources in enumerate(self.inputs):
            known = [source for source in sources if source >= 0]
            read[op] -= (self.out_bytes[known] - written[known]).sum()
            if self.split[op] and len(known) == len(sources) and divided[known].all():
                stored[op] /= ways
        columns = {
            name: np.where(self.split, getattr(self, name) / ways, getattr(self, name))
            for name in ("flops_fwd", "inner_bytes", "weight_params", "sparse_params")
        }
        cut = _cut_bytes(self.inputs, written)
        columns |= {"in_bytes": read, "out_bytes": written, "stored_bytes": stored, "cut_bytes": cut}
        for array in columns.values():
            array.flags.writeable = False
        tied = tuple((users, params / ways if self.split[users[0]] else params) for users, params in self.tied)
        return replace(self, **columns, heads=self.heads // ways, tied=tied)

    def sharded(self, replicas: int, *, least: bool = False) -> OperatorGraph:
        """The operators of one replica where `replicas` divide those with shards, weights and work, among them.

        Of whole pieces the replica that has most has ceil(shards / replicas), and its part of the weights is

            part = ceil(shards / replicas) / shards    (tables: 1 / replicas).

        It does that part of the work of all replicas: replicas * part times that of its own samples.

        Parameters
        ----------
        least : part = 1 / replicas whatever the pieces are: what no number of replicas up to this one goes below.
        """
        if replicas == 1 or not self.shards.any():
            return self
        has, pieces = self.shards > 0, np.where(np.isfinite(self.shards), self.shards, 0.0)
        part = np.where(has, 1 / replicas, 1.0)
        if not least:
            np.divide(np.ceil(pieces / replicas), pieces, out=part, where=pieces > 0)
        work = np.where(has & (pieces > 0) & (not least), part * replicas, 1.0)
        columns = {name: getattr(self, name) * part for name in ("weight_params", "sparse_params")}
        columns |= {name: getattr(self, name) * work
                    for name in ("flops_fwd", "in_bytes", "out_bytes", "inner_bytes", "stored_bytes")}
        for array in columns.values():
            array.flags.writeable = False
        return replace(self, **columns, among=replicas)

    def reordered(self, order: Sequence[int]) -> OperatorGraph:
        """The same operators in another topological order: operator `order[i]` of this graph is number i.

        What crosses each cut is worked out anew. Blocks are runs: where operators of another block come between those
        of one, its pieces become blocks of their own, each recomputed from what enters it.

        Raises
        ------
        PerformanceError
            Not each operator once, or one before another that it reads.
        """
        place = self._places(order)
        at = np.array(order, dtype=np.int64)
        inputs = tuple(tuple(place[i] if i >= 0 else -1 for i in self.inputs[op]) for op in at.tolist())
        columns = {name: getattr(self, name)[at] for name in _COLUMNS}
        columns["cut_bytes"] = _cut_bytes(inputs, columns["out_bytes"])
        columns["block"] = np.cumsum(np.diff(columns["block"], prepend=columns["block"][0]) != 0)
        for array in columns.values():
            array.flags.writeable = False
        profile = self.profile and self.profile.reordered(at)
        ops, kind = (tuple(names[op] for op in at.tolist()) for names in (self.ops, self.kind))
        tied = tuple((tuple(place[op] for op in users), params) for users, params in self.tied)
        return replace(self, ops=ops, kind=kind, inputs=inputs, profile=profile, tied=tied, **columns)

    def _places(self, order: Sequence[int]) -> list[int]:
        """Where each operator is in a topological order; raises a PerformanceError where it is none."""
        where = f"order of the operators of {self.name!r}"
        whole = all(isinstance(op, (int, np.integer)) for op in order)
        if not whole or sorted(order) != list(range(len(self))):
            counts = Counter(order)
            wrong = [op for op in counts if op not in range(len(self)) or counts[op] > 1]
            raise PerformanceError(
                "not an order of all operators", where=where, got=f"{len(order)} of them; {wrong[:3] or 'some'} wrong",
                allowed=f"each of 0 to {len(self) - 1} once",
            )  # fmt: skip
        place = [0] * len(self)
        for at, op in enumerate(order):
            place[op] = at
        for op, sources in enumerate(self.inputs):
            late = next((i for i in sources if i >= 0 and place[i] > place[op]), None)
            if late is not None:
                raise PerformanceError(
                    "an operator comes before one that it reads", where=where,
                    got=f"{self.ops[op]} ({op}) before {self.ops[late]} ({late})", allowed="a topological order",
                )  # fmt: skip
        return place

    def _check_ways(self, ways: int) -> None:
        """Raise a PerformanceError unless tensor parallelism over `ways` GPUs can be told."""
        problem, allowed, todo = "", "1", "Use replicas or pipeline stages."
        if ways < 1:
            problem, allowed, todo = "tensor parallelism over no GPU", "1 or more", "Give a number of GPUs."
        elif self.profile is not None:
            if ways > 1 and ways not in self.profile.shares:
                problem = f"layers were not measured with tensor degree {ways}"
                allowed, todo = ", ".join(map(str, (1, *self.profile.shares))), "Take one of these, or measure it."
        elif ways > 1 and not self.split.any():
            problem = "no tensor parallelism: none of the operators can be split"
        elif self.heads and self.heads % ways:
            problem = f"tensor parallelism does not divide the {self.heads} attention heads"
            allowed = ", ".join(str(n) for n in range(1, self.heads + 1) if self.heads % n == 0)
            todo = "Take a number of GPUs that divides them."
        if problem:
            raise PerformanceError(problem, where=f"model {self.name!r}", got=ways, allowed=allowed, todo=todo)


def _cut_bytes(inputs: tuple[tuple[int, ...], ...], written: np.ndarray) -> np.ndarray:
    """Bytes that cross the cut after each operator: an output does from its producer to just before its last reader."""
    last = list(range(len(inputs)))
    for reader, sources in enumerate(inputs):
        for source in sources:
            if source >= 0:
                last[source] = max(last[source], reader)
    cut = np.zeros(len(inputs))
    for producer, reader in enumerate(last):
        cut[producer:reader] += written[producer]
    return cut


@dataclass
class GraphBuilder:
    """Collects operators one by one; `build` works out what crosses each cut.

    Parameters
    ----------
    name : the model.
    sample : what a sample is, as one phrase.
    sample_bytes : size of its input.
    heads : attention heads, see `OperatorGraph`.
    """

    name: str
    sample: str
    sample_bytes: float
    heads: int = 0
    rows: list[tuple] = field(default_factory=list)
    tied: list[tuple[tuple[int, ...], float]] = field(default_factory=list)
    _block: int = 0

    def add(
        self,
        name: str,
        kind: str,
        inputs: tuple[int, ...],
        out_values: float,
        *,
        flops: float = 0.0,
        params: float = 0.0,
        stored_bytes: float = 0.0,
        inner_bytes: float = 0.0,
        launches: int = 1,
        sparse_params: float = 0.0,
        shards: float = 0.0,
        split: bool = False,
        reduce_fwd_bytes: float = 0.0,
        reduce_bwd_bytes: float = 0.0,
    ) -> int:
        """Append an operator that reads the operators `inputs` (-1: the sample); returns its number.

        It belongs to the block that `next_block` began last.
        """
        read = sum(self.sample_bytes if i < 0 else self.out_bytes(i) for i in inputs)
        self.rows.append(
            (
                name,
                kind,
                inputs,
                flops,
                read,
                out_values * VALUE_BYTES,
                inner_bytes,
                params,
                stored_bytes,
                launches,
                sparse_params,
                shards,
                split,
                reduce_fwd_bytes,
                reduce_bwd_bytes,
                self._block,
            )
        )
        return len(self.rows) - 1

    def tie(self, users: tuple[int, ...], params: float) -> None:
        """These operators use one table of so many parameters, which the first one has."""
        self.tied.append((users, float(params)))

    def next_block(self) -> None:
        """Begin a block: what follows is recomputed together (a layer of a transformer, a residual block)."""
        self._block += 1

    def out_bytes(self, op: int) -> float:
        """Bytes that an operator writes."""
        return float(self.rows[op][5])

    def build(self, profile: Profile | None = None) -> OperatorGraph:
        """The finished graph."""
        names, kinds, inputs, *rest = zip(*self.rows, strict=True)
        flops, read, written, inner, params, stored, launches, sparse, shards, split, fwd, bwd, block = (
            np.array(column, dtype=np.float64) for column in rest
        )
        cut = _cut_bytes(inputs, written)
        columns = {
            "flops_fwd": flops, "in_bytes": read, "out_bytes": written, "inner_bytes": inner,
            "weight_params": params, "stored_bytes": stored, "cut_bytes": cut, "launches": launches,
            "sparse_params": sparse, "shards": shards, "split": split.astype(bool), "reduce_fwd_bytes": fwd,
            "reduce_bwd_bytes": bwd, "block": block.astype(np.int64),
        }  # fmt: skip
        for array in columns.values():
            array.flags.writeable = False
        return OperatorGraph(self.name, self.sample, names, kinds, inputs, **columns, profile=profile, heads=self.heads,
                             tied=tuple(self.tied), among=1)  # fmt: skip
