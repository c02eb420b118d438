"""Layers that builders of the zoo share: shapes in, operators out.

`Image` and what takes one: convolutional layers. The rest work on rows (tokens, words) of vectors.

Tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053, section 3): a 'column' product reads its whole input and
writes a part of each row, so that the gradient of its input is summed backward; a 'row' product reads a part and
its output is summed forward.
"""

from __future__ import annotations

from math import ceil
from typing import Literal, NamedTuple

from sim.performance.graph import VALUE_BYTES, GraphBuilder

TOKEN_BYTES = 4
LOGIT_BYTES = 4
"""Losses are computed in single precision."""
SCORE_TRAFFIC_BYTES = 13
"""Bytes moved for a score forward: write, softmax read and write, dropout read, write and mask, read."""
SCORE_STORED_BYTES = 5
"""Bytes kept for a score: softmax, dropout, mask (Korthikanti et al. 2022, arXiv:2205.05198, section 4.1)."""
STATISTIC_BYTES = 4
"""Bytes that a fused attention keeps for each row and head: the softmax's normaliser (Dao et al. 2022)."""
LOSS_SUMS = 3
"""All-reduces of a loss over a split vocabulary: largest logit, target's logit, sum of exponentials."""


class Image(NamedTuple):
    """Output of the operator `op`: `channels` planes of `size` x `size` pixels."""

    op: int
    channels: int
    size: int

    @property
    def values(self) -> int:
        """Numbers in it."""
        return self.channels * self.size**2


def conv(
    b: GraphBuilder,
    name: str,
    x: Image,
    channels: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    *,
    pad: int | None = None,
    groups: int = 1,
    bias: bool = False,
) -> Image:
    """Convolution; padded to keep size / stride, rounded up, or by `pad` pixels. An oblong kernel is padded to keep."""
    high, wide = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    size = ceil(x.size / stride) if pad is None else (x.size + 2 * pad - high) // stride + 1
    weights = high * wide * x.channels * channels // groups
    op = b.add(
        name,
        "conv",
        (x.op,),
        channels * size**2,
        flops=2.0 * weights * size**2,
        params=weights + channels * bias,
        stored_bytes=VALUE_BYTES * x.values,
    )
    return Image(op, channels, size)


def batch_norm(b: GraphBuilder, name: str, x: Image) -> Image:
    """Batch normalisation with the ReLU after it."""
    op = b.add(name, "norm", (x.op,), x.values, params=2 * x.channels, stored_bytes=VALUE_BYTES * x.values)
    return x._replace(op=op)


def pool(
    b: GraphBuilder, name: str, x: Image, kernel: int, stride: int, *, pad: int | None = None, average: bool = False
) -> Image:
    """Pooling, padded as `conv`. A maximum keeps its input, a mean keeps nothing."""
    size = ceil(x.size / stride) if pad is None else (x.size + 2 * pad - kernel) // stride + 1
    stored = 0 if average else VALUE_BYTES * x.values
    op = b.add(name, "pool", (x.op,), x.channels * size**2, stored_bytes=stored)
    return Image(op, x.channels, size)


def concat(b: GraphBuilder, name: str, parts: list[Image]) -> Image:
    """Copy of several images of one size as the channels of one."""
    channels = sum(part.channels for part in parts)
    op = b.add(name, "elementwise", tuple(part.op for part in parts), channels * parts[0].size ** 2)
    return Image(op, channels, parts[0].size)


def add(b: GraphBuilder, name: str, x: Image, y: Image) -> Image:
    """Sum of two images, with the ReLU after it."""
    return x._replace(op=b.add(name, "elementwise", (x.op, y.op), x.values))


def classifier(b: GraphBuilder, x: Image, classes: int) -> None:
    """Mean over the pixels, a matrix product and the loss."""
    x = pool(b, "avgpool", x, x.size, x.size, average=True)
    softmax_loss(b, linear(b, "fc", x.op, x.channels, classes), classes)


def linear(
    b: GraphBuilder,
    name: str,
    source: int | tuple[int, ...],
    n_in: int,
    n_out: int,
    rows: float = 1,
    *,
    tied: bool = False,
    bias: bool = True,
    split: Literal["", "column", "row"] = "",
    copies: int = 1,
) -> int:
    """Matrix product of `rows` vectors; `tied` weights belong to another operator.

    With `copies` (experts), each row is multiplied by the weights of one of them, which may be on GPUs of their own.
    """
    return b.add(
        name,
        "gemm",
        source if isinstance(source, tuple) else (source,),
        rows * n_out,
        flops=2.0 * rows * n_in * n_out,
        params=0 if tied else copies * (n_in * n_out + n_out * bias),
        stored_bytes=VALUE_BYTES * rows * n_in,
        shards=copies if copies > 1 else 0,
        split=bool(split),
        reduce_fwd_bytes=VALUE_BYTES * rows * n_out if split == "row" else 0,
        reduce_bwd_bytes=VALUE_BYTES * rows * n_in if split == "column" else 0,
    )


def softmax_loss(
    b: GraphBuilder, source: int | tuple[int, ...], classes: int, rows: int = 1, *, split: bool = False
) -> int:
    """Cross-entropy; keeps the logits in single precision. With a split vocabulary, GPUs sum a few numbers a row."""
    return b.add(
        "loss",
        "elementwise",
        source if isinstance(source, tuple) else (source,),
        1,
        stored_bytes=LOGIT_BYTES * rows * classes,
        launches=2,
        split=split,
        reduce_fwd_bytes=LOSS_SUMS * LOGIT_BYTES * rows if split else 0,
    )


def embedding(b: GraphBuilder, name: str, entries: int, hidden: int, rows: int, *, split: bool = True) -> int:
    """Rows of a table, looked up by the sample; a split table's rows are summed over GPUs, of which one has them."""
    return b.add(
        name,
        "embedding",
        (-1,),
        rows * hidden,
        params=entries * hidden,
        stored_bytes=TOKEN_BYTES * rows,
        split=split,
        reduce_fwd_bytes=VALUE_BYTES * rows * hidden if split else 0,
    )


def layer_norm(
    b: GraphBuilder, name: str, sources: tuple[int, ...], hidden: int, rows: int, *, rms: bool = False
) -> int:
    """Layer normalisation with the residual addition and dropout beside it (whose mask is a byte a value).

    `rms`: of the root mean square, without shift and without dropout (Zhang and Sennrich 2019, arXiv:1910.07467).
    """
    residual = len(sources) > 1
    masked = residual and not rms
    return b.add(
        name,
        "norm",
        sources,
        rows * hidden,
        params=hidden if rms else 2 * hidden,
        stored_bytes=(VALUE_BYTES + masked) * rows * hidden,
        launches=1 + residual,
    )


def attention(
    b: GraphBuilder,
    at: str,
    x: int,
    hidden: int,
    heads: int,
    rows: int,
    *,
    memory: int | None = None,
    keys: int = 0,
    groups: int | None = None,
    bias: bool = True,
    fused: bool = False,
    rotary: bool = False,
) -> int:
    """Multi-head attention of `rows` positions over themselves, or over `keys` positions of `memory`.

    All scores are computed, also those that a causal mask drops.

    Parameters
    ----------
    groups : heads that have keys and values of their own (Ainslie et al. 2023, arXiv:2305.13245); None: all.
    fused : scores never reach memory (Dao et al. 2022, arXiv:2205.14135). The extra product of its backward pass,
        which computes them again, is not counted.
    rotary : queries and keys are rotated by their position first, in place.
    """
    shared = hidden if groups is None else hidden * groups // heads
    if memory is None:
        keys = rows
        sources: tuple[int, ...] = (
            linear(b, f"{at}.qkv", x, hidden, hidden + 2 * shared, rows, bias=bias, split="column"),
        )
    else:
        sources = (
            linear(b, f"{at}.q", x, hidden, hidden, rows, bias=bias, split="column"),
            linear(b, f"{at}.kv", memory, hidden, 2 * shared, keys, bias=bias, split="column"),
        )
    scores = heads * rows * keys
    rotated = 2 * VALUE_BYTES * (rows * hidden + keys * shared) if rotary else 0
    kept = STATISTIC_BYTES * heads * rows if fused else SCORE_STORED_BYTES * scores
    y = b.add(
        f"{at}.scores",
        "attention",
        sources,
        rows * hidden,
        flops=4.0 * rows * keys * hidden,
        stored_bytes=VALUE_BYTES * (hidden * rows + 2 * shared * keys) + kept,
        inner_bytes=rotated + (0 if fused else SCORE_TRAFFIC_BYTES * scores),
        launches=(1 if fused else 5) + rotary,
        split=True,
    )
    return linear(b, f"{at}.out", y, hidden, hidden, rows, bias=bias, split="row")


def feed_forward(
    b: GraphBuilder,
    at: str,
    x: int,
    hidden: int,
    inner: int,
    rows: float,
    *,
    gated: bool = False,
    bias: bool = True,
    experts: int = 1,
) -> int:
    """Two matrix products with an activation between them.

    `gated`: the first makes two vectors, of which the activation of one is multiplied by the other (Shazeer 2020,
    arXiv:2002.05202). With `experts`, a row is multiplied by the weights of one of them, all in one launch.
    """
    wide = 2 * inner if gated else inner
    y = linear(b, f"{at}.fc1", x, hidden, wide, rows, bias=bias, split="column", copies=experts)
    y = b.add(f"{at}.act", "elementwise", (y,), rows * inner, stored_bytes=VALUE_BYTES * rows * wide, split=True,
              shards=experts if experts > 1 else 0)  # fmt: skip
    return linear(b, f"{at}.fc2", y, inner, hidden, rows, bias=bias, split="row", copies=experts)


def lstm(
    b: GraphBuilder, name: str, sources: tuple[int, ...], n_in: int, hidden: int, rows: int, *, biases: int = 1
) -> int:
    """One direction of an LSTM layer over `rows` steps; some libraries have two `biases` a gate."""
    # Each step multiplies [input, state] by four gates' weights; it keeps both, the gates and the cell.
    return b.add(
        name,
        "lstm",
        sources,
        rows * hidden,
        flops=2.0 * rows * 4 * hidden * (n_in + hidden),
        params=4 * hidden * (n_in + hidden) + biases * 4 * hidden,
        stored_bytes=VALUE_BYTES * rows * (n_in + 6 * hidden),
        inner_bytes=VALUE_BYTES * rows * 8 * hidden,
        launches=rows,
    )
