"""The model zoo: operator graphs built from layer shapes; the tests hold them to published sizes.

A ReLU is done in place and belongs to the normalisation, convolution or addition before it; a residual
addition and its dropout belong to the normalisation beside it. Tied weights are counted where they are looked
up. No activation is recomputed, and attention writes its scores to memory (no fused kernel).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from sim.performance.graph import VALUE_BYTES, GraphBuilder, OperatorGraph

TOKEN_BYTES = 4
SCORE_TRAFFIC_BYTES = 13
"""Bytes moved for a score forward: write, softmax read and write, dropout read, write and mask, read."""
SCORE_STORED_BYTES = 5
"""Bytes kept for a score: softmax, dropout, mask (Korthikanti et al. 2022, arXiv:2205.05198, section 4.1)."""


@dataclass(frozen=True)
class Model:
    """An entry of the zoo: how to build it, and batch sizes per GPU to draw from."""

    build: Callable[[], OperatorGraph]
    gpu_batch_sizes: tuple[int, ...]


def _conv(
    b: GraphBuilder,
    name: str,
    source: int,
    channels: tuple[int, int],
    kernel: int,
    size: int,
    stride: int = 1,
    *,
    bias: bool = False,
) -> int:
    """Square convolution from `size` x `size` pixels, padded to keep size / stride."""
    c_in, c_out = channels
    pixels = (size // stride) ** 2
    weights = kernel**2 * c_in * c_out
    return b.add(
        name,
        "conv",
        (source,),
        c_out * pixels,
        flops=2.0 * weights * pixels,
        params=weights + c_out * bias,
        stored_bytes=VALUE_BYTES * c_in * size**2,
    )


def _batch_norm(b: GraphBuilder, name: str, source: int, channels: int, size: int) -> int:
    values = channels * size**2
    return b.add(name, "norm", (source,), values, params=2 * channels, stored_bytes=VALUE_BYTES * values)


def _linear(
    b: GraphBuilder, name: str, source: int, n_in: int, n_out: int, rows: int = 1, *, tied: bool = False
) -> int:
    """Matrix product of `rows` vectors, with bias; `tied` weights belong to another operator."""
    return b.add(
        name,
        "gemm",
        (source,),
        rows * n_out,
        flops=2.0 * rows * n_in * n_out,
        params=0 if tied else n_in * n_out + n_out,
        stored_bytes=VALUE_BYTES * rows * n_in,
    )


def _softmax_loss(b: GraphBuilder, source: int, classes: int, rows: int = 1) -> int:
    """Cross-entropy; keeps the logits in single precision."""
    return b.add("loss", "elementwise", (source,), 1, stored_bytes=4.0 * rows * classes, launches=2)


def resnet50() -> OperatorGraph:
    """ResNet-50 (He et al.

    2016, arXiv:1512.03385) with the stride in the 3 x 3 convolution, on 224 x 224 images.
    """
    b = GraphBuilder("resnet50", "an image of 224 x 224", 3 * 224**2 * VALUE_BYTES)
    x = _conv(b, "conv1", -1, (3, 64), 7, 224, 2)
    x = _batch_norm(b, "bn1", x, 64, 112)
    x = b.add("maxpool", "pool", (x,), 64 * 56**2, stored_bytes=VALUE_BYTES * 64 * 112**2)
    c_in, size = 64, 56
    for layer, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
        for block in range(blocks):
            at, stride = f"layer{layer}.{block}", 2 if block == 0 and layer > 1 else 1
            small, c_out, skip = size // stride, 4 * width, x
            y = _batch_norm(b, f"{at}.bn1", _conv(b, f"{at}.conv1", x, (c_in, width), 1, size), width, size)
            y = _batch_norm(
                b, f"{at}.bn2", _conv(b, f"{at}.conv2", y, (width, width), 3, size, stride), width, small
            )
            y = _batch_norm(
                b, f"{at}.bn3", _conv(b, f"{at}.conv3", y, (width, c_out), 1, small), c_out, small
            )
            if block == 0:
                skip = _conv(b, f"{at}.downsample", x, (c_in, c_out), 1, size, stride)
                skip = _batch_norm(b, f"{at}.downsample_bn", skip, c_out, small)
            x = b.add(f"{at}.add", "elementwise", (y, skip), c_out * small**2)
            c_in, size = c_out, small
    x = b.add("avgpool", "pool", (x,), 2048)
    _softmax_loss(b, _linear(b, "fc", x, 2048, 1000), 1000)
    return b.build()


def vgg16() -> OperatorGraph:
    """VGG-16, configuration D (Simonyan and Zisserman 2015, arXiv:1409.1556), on 224 x 224 images."""
    b = GraphBuilder("vgg16", "an image of 224 x 224", 3 * 224**2 * VALUE_BYTES)
    x, c_in, size = -1, 3, 224
    for group, (width, convs) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), start=1):
        for i in range(1, convs + 1):
            x = _conv(b, f"conv{group}_{i}", x, (c_in, width), 3, size, bias=True)
            c_in = width
        x = b.add(
            f"pool{group}", "pool", (x,), width * (size // 2) ** 2, stored_bytes=VALUE_BYTES * width * size**2
        )
        size //= 2
    for i, (n_in, n_out) in enumerate(((512 * 49, 4096), (4096, 4096), (4096, 1000)), start=6):
        x = _linear(b, f"fc{i}", x, n_in, n_out)
    _softmax_loss(b, x, 1000)
    return b.build()


def _layer_norm(b: GraphBuilder, name: str, sources: tuple[int, ...], hidden: int, rows: int) -> int:
    """Layer normalisation with the residual addition and dropout beside it (whose mask is a byte a value)."""
    masked = len(sources) > 1
    return b.add(
        name,
        "norm",
        sources,
        rows * hidden,
        params=2 * hidden,
        stored_bytes=(VALUE_BYTES + masked) * rows * hidden,
        launches=1 + masked,
    )


def _attention(
    b: GraphBuilder,
    at: str,
    x: int,
    hidden: int,
    heads: int,
    rows: int,
    memory: int | None = None,
    keys: int = 0,
) -> int:
    """Multi-head attention of `rows` positions over themselves, or over `keys` positions of `memory`."""
    keys = rows if memory is None else keys
    if memory is None:
        sources: tuple[int, ...] = (_linear(b, f"{at}.qkv", x, hidden, 3 * hidden, rows),)
    else:
        sources = (
            _linear(b, f"{at}.q", x, hidden, hidden, rows),
            _linear(b, f"{at}.kv", memory, hidden, 2 * hidden, keys),
        )
    scores = heads * rows * keys
    stored = VALUE_BYTES * hidden * (rows + 2 * keys) + SCORE_STORED_BYTES * scores
    y = b.add(
        f"{at}.scores",
        "attention",
        sources,
        rows * hidden,
        flops=4.0 * rows * keys * hidden,
        stored_bytes=stored,
        inner_bytes=SCORE_TRAFFIC_BYTES * scores,
        launches=5,
    )
    return _linear(b, f"{at}.out", y, hidden, hidden, rows)


def _feed_forward(b: GraphBuilder, at: str, x: int, hidden: int, inner: int, rows: int) -> int:
    y = _linear(b, f"{at}.fc1", x, hidden, inner, rows)
    y = b.add(f"{at}.act", "elementwise", (y,), rows * inner, stored_bytes=VALUE_BYTES * rows * inner)
    return _linear(b, f"{at}.fc2", y, inner, hidden, rows)


def _embedding(b: GraphBuilder, name: str, entries: int, hidden: int, rows: int) -> int:
    return b.add(
        name, "embedding", (-1,), rows * hidden, params=entries * hidden, stored_bytes=TOKEN_BYTES * rows
    )


def bert_large() -> OperatorGraph:
    """BERT-large fine-tuned as a classifier on 128 tokens (Devlin et al.

    2019, arXiv:1810.04805), uncased vocabulary.
    """
    hidden, rows, vocabulary = 1024, 128, 30522
    b = GraphBuilder("bert-large", "a sequence of 128 tokens", TOKEN_BYTES * rows)
    # Words, positions and two segments are looked up and added.
    x = _embedding(b, "embeddings", vocabulary + 512 + 2, hidden, rows)
    x = _layer_norm(b, "embeddings.norm", (x,), hidden, rows)
    for i in range(24):
        x = _layer_norm(
            b, f"{i}.norm1", (x, _attention(b, f"{i}.attention", x, hidden, 16, rows)), hidden, rows
        )
        x = _layer_norm(
            b, f"{i}.norm2", (x, _feed_forward(b, f"{i}", x, hidden, 4 * hidden, rows)), hidden, rows
        )
    x = _linear(b, "pooler", x, hidden, hidden)
    _softmax_loss(b, _linear(b, "classifier", x, hidden, 2), 2)
    return b.build()


def gpt2_15b() -> OperatorGraph:
    """GPT-2 of 1.5 billion parameters (Radford et al.

    2019) on 1,024 tokens; output and input embeddings are tied.
    """
    hidden, rows, vocabulary = 1600, 1024, 50257
    b = GraphBuilder("gpt2-1.5b", "a sequence of 1,024 tokens", TOKEN_BYTES * rows)
    x = _embedding(b, "embeddings", vocabulary + 1024, hidden, rows)
    y = _layer_norm(b, "0.norm1", (x,), hidden, rows)
    for i in range(48):
        # A normalisation also makes the residual sum x. A border after it sends only x: one tensor.
        y = _attention(b, f"{i}.attention", y, hidden, 25, rows)
        x = y = _layer_norm(b, f"{i}.norm2", (x, y), hidden, rows)
        y = _feed_forward(b, f"{i}", y, hidden, 4 * hidden, rows)
        x = y = _layer_norm(b, f"{i + 1}.norm1" if i < 47 else "final_norm", (x, y), hidden, rows)
    _softmax_loss(b, _linear(b, "logits", x, hidden, vocabulary, rows, tied=True), vocabulary, rows)
    return b.build()


def transformer() -> OperatorGraph:
    """Transformer base for translation (Vaswani et al.

    2017, arXiv:1706.03762): 64 source and 64 target tokens.
    """
    hidden, rows, vocabulary = 512, 64, 37000
    b = GraphBuilder("transformer", "a pair of sentences of 64 tokens each", 2 * TOKEN_BYTES * rows)
    x = _embedding(b, "source", vocabulary, hidden, rows)
    for i in range(6):
        at = f"encoder.{i}"
        x = _layer_norm(
            b, f"{at}.norm1", (x, _attention(b, f"{at}.attention", x, hidden, 8, rows)), hidden, rows
        )
        x = _layer_norm(b, f"{at}.norm2", (x, _feed_forward(b, at, x, hidden, 2048, rows)), hidden, rows)
    # One table serves source, target and output.
    memory, x = x, _embedding(b, "target", 0, hidden, rows)
    for i in range(6):
        at = f"decoder.{i}"
        x = _layer_norm(b, f"{at}.norm1", (x, _attention(b, f"{at}.self", x, hidden, 8, rows)), hidden, rows)
        y = _attention(b, f"{at}.cross", x, hidden, 8, rows, memory, rows)
        x = _layer_norm(b, f"{at}.norm2", (x, y), hidden, rows)
        x = _layer_norm(b, f"{at}.norm3", (x, _feed_forward(b, at, x, hidden, 2048, rows)), hidden, rows)
    _softmax_loss(b, _linear(b, "logits", x, hidden, vocabulary, rows, tied=True), vocabulary, rows)
    return b.build()


def lstm_lm() -> OperatorGraph:
    """Word language model of two LSTM layers, 1,500 wide, 35 steps (Zaremba et al.

    2014, arXiv:1409.2329, 'large').
    """
    hidden, rows, vocabulary = 1500, 35, 10000
    b = GraphBuilder("lstm-lm", "a sequence of 35 words", TOKEN_BYTES * rows)
    x = _embedding(b, "embedding", vocabulary, hidden, rows)
    for i in range(2):
        # Each step multiplies [input, state] by four gates' weights; it keeps both, the gates and the cell.
        x = b.add(
            f"lstm{i}",
            "lstm",
            (x,),
            rows * hidden,
            flops=2.0 * rows * 8 * hidden**2,
            params=8 * hidden**2 + 4 * hidden,
            stored_bytes=VALUE_BYTES * rows * 7 * hidden,
            inner_bytes=VALUE_BYTES * rows * 8 * hidden,
            launches=rows,
        )
    _softmax_loss(b, _linear(b, "logits", x, hidden, vocabulary, rows), vocabulary, rows)
    return b.build()


MODELS: Mapping[str, Model] = {
    "resnet50": Model(resnet50, (32, 64, 128)),
    "vgg16": Model(vgg16, (32, 64)),
    "bert-large": Model(bert_large, (4, 8, 16)),
    "gpt2-1.5b": Model(gpt2_15b, (1, 2)),
    "transformer": Model(transformer, (32, 64, 128)),
    "lstm-lm": Model(lstm_lm, (20, 40, 80)),
}


@cache
def zoo_graph(name: str) -> OperatorGraph:
    """The graph of a zoo model, built once."""
    return MODELS[name].build()
