"""NASNet-A (Zoph et al. 2018, arXiv:1707.07012): a searched cell, stacked."""

from __future__ import annotations

from sim.performance.graph import GraphBuilder, OperatorGraph
from sim.performance.zoo.layers import Image, add, batch_norm, classifier, concat, conv, pool
from sim.performance.zoo.vision import images


def _relu(b: GraphBuilder, name: str, x: Image) -> Image:
    """ReLU of what others read too: not in place. Its output is kept by the convolution that reads it."""
    return x._replace(op=b.add(name, "elementwise", (x.op,), x.values))


def _separable(b: GraphBuilder, at: str, x: Image, filters: int, kernel: int, stride: int = 1) -> Image:
    """Twice: a convolution of each channel by itself, then one of 1 x 1 over the channels."""
    x = _relu(b, f"{at}.relu", x)
    for i in (1, 2):
        x = conv(b, f"{at}.depthwise{i}", x, x.channels, kernel, stride if i == 1 else 1, groups=x.channels)
        x = conv(b, f"{at}.pointwise{i}", x, filters, 1)
        x = batch_norm(b, f"{at}.bn{i}", x)
    return x


def _squeeze(b: GraphBuilder, at: str, x: Image, filters: int) -> Image:
    x = conv(b, f"{at}.conv", _relu(b, f"{at}.relu", x), filters, 1)
    return batch_norm(b, f"{at}.bn", x)


def _halve(b: GraphBuilder, at: str, x: Image, filters: int) -> Image:
    """Half the size without losing pixels: two strided samplings, shifted by one, joined."""
    x = _relu(b, f"{at}.relu", x)
    halves = []
    for i in (1, 2):
        y = pool(b, f"{at}.pick{i}", x, 1, 2, average=True)
        halves.append(conv(b, f"{at}.conv{i}", y, filters // 2, 1))
    return batch_norm(b, f"{at}.bn", concat(b, f"{at}.join", halves))


def _fit(b: GraphBuilder, at: str, previous: Image, size: int, filters: int) -> Image:
    """The output of the cell before the last in this cell's size and number of filters."""
    return (_halve if previous.size != size else _squeeze)(b, at, previous, filters)


def _normal(b: GraphBuilder, at: str, x: Image, previous: Image, filters: int) -> Image:
    """Normal cell (figure 4 of the paper, left): five sums, joined with the second input."""
    b.next_block()
    p = _fit(b, f"{at}.previous", previous, x.size, filters)
    h = _squeeze(b, f"{at}.current", x, filters)
    sums = [
        (_separable(b, f"{at}.0.left", h, filters, 5), _separable(b, f"{at}.0.right", p, filters, 3)),
        (_separable(b, f"{at}.1.left", p, filters, 5), _separable(b, f"{at}.1.right", p, filters, 3)),
        (pool(b, f"{at}.2.left", h, 3, 1, average=True), p),
        (pool(b, f"{at}.3.left", p, 3, 1, average=True), pool(b, f"{at}.3.right", p, 3, 1, average=True)),
        (_separable(b, f"{at}.4.left", h, filters, 3), h),
    ]
    parts = [add(b, f"{at}.{i}.add", *pair) for i, pair in enumerate(sums)]
    return concat(b, f"{at}.concat", [p, *parts])


def _reduction(b: GraphBuilder, at: str, h: Image, p: Image, filters: int) -> Image:
    """Reduction cell (figure 4, right) of inputs made to fit: half the size, four sums joined."""
    parts = [
        add(
            b,
            f"{at}.0.add",
            _separable(b, f"{at}.0.left", h, filters, 5, 2),
            _separable(b, f"{at}.0.right", p, filters, 7, 2),
        ),
        add(
            b,
            f"{at}.1.add",
            pool(b, f"{at}.1.left", h, 3, 2),
            _separable(b, f"{at}.1.right", p, filters, 7, 2),
        ),
        add(
            b,
            f"{at}.2.add",
            pool(b, f"{at}.2.left", h, 3, 2, average=True),
            _separable(b, f"{at}.2.right", p, filters, 5, 2),
        ),
    ]
    parts.append(add(b, f"{at}.3.add", pool(b, f"{at}.3.left", parts[0], 3, 1, average=True), parts[1]))
    left = _separable(b, f"{at}.4.left", parts[0], filters, 3)
    parts.append(add(b, f"{at}.4.add", left, pool(b, f"{at}.4.right", h, 3, 2)))
    return concat(b, f"{at}.concat", parts[1:])


def _reduced(b: GraphBuilder, at: str, x: Image, previous: Image, filters: int) -> Image:
    b.next_block()
    p = _fit(b, f"{at}.previous", previous, x.size, filters)
    return _reduction(b, at, _squeeze(b, f"{at}.current", x, filters), p, filters)


def _nasnet(name: str, size: int, stem: int, repeats: int, filters: int, *, skip: bool) -> OperatorGraph:
    """NASNet-A (`repeats` @ 24 `filters`); with `skip` the cell after a reduction takes the input before the last."""
    b, x = images(name, size)
    first = batch_norm(b, "bn0", conv(b, "conv0", x, stem, 3, 2, pad=0))
    b.next_block()
    stem0 = _reduction(b, "stem0", _squeeze(b, "stem0.current", first, filters // 4), first, filters // 4)
    previous, x = stem0, _reduced(b, "stem1", stem0, first, filters // 2)
    for stage in range(3):
        width = filters * 2**stage
        if stage:
            before = previous if skip else x
            previous, x = before, _reduced(b, f"reduction{stage}", x, previous, width)
        for cell in range(repeats):
            previous, x = x, _normal(b, f"cell{stage * repeats + cell}", x, previous, width)
    b.next_block()
    classifier(b, _relu(b, "relu", x), 1000)
    return b.build()


def nasnet_large() -> OperatorGraph:
    """NASNet-A (6 @ 4032) (Zoph et al. 2018, arXiv:1707.07012), without auxiliary head, on 331 x 331 images."""
    return _nasnet("nasnet-large", 331, 96, 6, 168, skip=True)


def nasnet_mobile() -> OperatorGraph:
    """NASNet-A (4 @ 1056) (Zoph et al. 2018, arXiv:1707.07012), without auxiliary head, on 224 x 224 images."""
    return _nasnet("nasnet-mobile", 224, 32, 4, 44, skip=False)
