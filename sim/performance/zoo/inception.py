"""Inception-v3 (Szegedy et al. 2016, arXiv:1512.00567), with its auxiliary classifier, on 299 x 299 images."""

from __future__ import annotations

from sim.performance.graph import GraphBuilder, OperatorGraph
from sim.performance.zoo.layers import Image, batch_norm, concat, conv, linear, pool, softmax_loss
from sim.performance.zoo.vision import images

Layer = tuple[int, int | tuple[int, int]]
"""Channels out and kernel of a convolution."""


def _conv_bn(b: GraphBuilder, name: str, x: Image, layer: Layer, stride: int = 1, pad: int | None = None) -> Image:
    return batch_norm(b, f"{name}.bn", conv(b, name, x, *layer, stride, pad=pad))


def _chain(b: GraphBuilder, name: str, x: Image, layers: list[Layer], last_stride: int = 1) -> Image:
    """Convolutions one after the other; the last may halve the size, without padding."""
    for i, layer in enumerate(layers, start=1):
        halves = last_stride > 1 and i == len(layers)
        x = _conv_bn(b, f"{name}.{i}", x, layer, last_stride if halves else 1, 0 if halves else None)
    return x


def _mixed(b: GraphBuilder, at: str, x: Image, branches: list[list[Layer]], pooled: int) -> Image:
    """Branches side by side, one of them after a mean of 3 x 3 (figures 5 and 6 of the paper)."""
    b.next_block()
    parts = [_chain(b, f"{at}.branch{i}", x, layers) for i, layers in enumerate(branches)]
    mean = pool(b, f"{at}.pool", x, 3, 1, average=True)
    return concat(b, f"{at}.concat", [*parts, _conv_bn(b, f"{at}.pooled", mean, (pooled, 1))])


def _reduction(b: GraphBuilder, at: str, x: Image, branches: list[list[Layer]]) -> Image:
    """Branches that halve the size, one of them a maximum (figure 10)."""
    b.next_block()
    parts = [_chain(b, f"{at}.branch{i}", x, layers, 2) for i, layers in enumerate(branches)]
    return concat(b, f"{at}.concat", [*parts, pool(b, f"{at}.pool", x, 3, 2, pad=0)])


def _expanded(b: GraphBuilder, at: str, x: Image) -> Image:
    """The widest module, whose branches end in a 1 x 3 beside a 3 x 1 (figure 7)."""
    b.next_block()
    parts = [_conv_bn(b, f"{at}.branch0.1", x, (320, 1))]
    for i, layers in enumerate(([(384, 1)], [(448, 1), (384, 3)]), start=1):
        y = _chain(b, f"{at}.branch{i}", x, list[Layer](layers))
        parts += [_conv_bn(b, f"{at}.branch{i}.{end}", y, (384, end)) for end in ((1, 3), (3, 1))]
    mean = pool(b, f"{at}.pool", x, 3, 1, average=True)
    return concat(b, f"{at}.concat", [*parts, _conv_bn(b, f"{at}.pooled", mean, (192, 1))])


def _auxiliary(b: GraphBuilder, x: Image) -> int:
    """Logits of the classifier beside the last 17 x 17 module."""
    x = pool(b, "aux.pool", x, 5, 3, pad=0, average=True)
    x = _conv_bn(b, "aux.conv0", x, (128, 1))
    x = _conv_bn(b, "aux.conv1", x, (768, 5), pad=0)
    return linear(b, "aux.fc", x.op, x.values, 1000)


def inception_v3() -> OperatorGraph:
    """Inception-v3 (Szegedy et al. 2016, arXiv:1512.00567), trained with its auxiliary classifier, on 299 x 299."""
    b, x = images("inception-v3", 299)
    x = _conv_bn(b, "conv1", x, (32, 3), 2, 0)
    x = _conv_bn(b, "conv2", x, (32, 3), 1, 0)
    x = _conv_bn(b, "conv3", x, (64, 3))
    x = pool(b, "pool1", x, 3, 2, pad=0)
    x = _conv_bn(b, "conv4", x, (80, 1))
    x = _conv_bn(b, "conv5", x, (192, 3), 1, 0)
    x = pool(b, "pool2", x, 3, 2, pad=0)
    for name, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        x = _mixed(b, name, x, [[(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)]], pooled)
    x = _reduction(b, "6a", x, [[(384, 3)], [(64, 1), (96, 3), (96, 3)]])
    for name, c in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        short: list[Layer] = [(c, 1), (c, (1, 7)), (192, (7, 1))]
        long: list[Layer] = [(c, 1), (c, (7, 1)), (c, (1, 7)), (c, (7, 1)), (192, (1, 7))]
        x = _mixed(b, name, x, [[(192, 1)], short, long], 192)
    auxiliary = _auxiliary(b, x)
    x = _reduction(b, "7a", x, [[(192, 1), (320, 3)], [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)]])
    for name in ("7b", "7c"):
        x = _expanded(b, name, x)
    b.next_block()
    x = pool(b, "avgpool", x, x.size, x.size, average=True)
    softmax_loss(b, (linear(b, "fc", x.op, x.channels, 1000), auxiliary), 2 * 1000)
    return b.build()
