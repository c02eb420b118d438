"""Classifiers of images: AlexNet, VGG, ResNet, DenseNet. Blocks are what is between two poolings, or residual."""

from __future__ import annotations

from sim.performance.graph import VALUE_BYTES, GraphBuilder, OperatorGraph
from sim.performance.zoo.layers import (
    Image,
    add,
    batch_norm,
    classifier,
    concat,
    conv,
    linear,
    pool,
    softmax_loss,
)


def images(name: str, size: int) -> tuple[GraphBuilder, Image]:
    """Begin a model of `size` x `size` pixels in three colours."""
    return GraphBuilder(name, f"an image of {size} x {size}", 3 * size**2 * VALUE_BYTES), Image(-1, 3, size)


def _fully_connected(b: GraphBuilder, x: Image, first: int) -> OperatorGraph:
    """Three matrix products, as AlexNet and VGG end."""
    b.next_block()
    op = x.op
    for i, (n_in, n_out) in enumerate(((x.values, 4096), (4096, 4096), (4096, 1000)), start=first):
        op = linear(b, f"fc{i}", op, n_in, n_out)
    softmax_loss(b, op, 1000)
    return b.build()


def alexnet() -> OperatorGraph:
    """AlexNet in one column (Krizhevsky 2014, arXiv:1404.5997), on 224 x 224 images."""
    b, x = images("alexnet", 224)
    x = conv(b, "conv1", x, 64, 11, 4, pad=2, bias=True)
    x = pool(b, "pool1", x, 3, 2, pad=0)
    b.next_block()
    x = conv(b, "conv2", x, 192, 5, bias=True)
    x = pool(b, "pool2", x, 3, 2, pad=0)
    b.next_block()
    for i, width in enumerate((384, 256, 256), start=3):
        x = conv(b, f"conv{i}", x, width, 3, bias=True)
    return _fully_connected(b, pool(b, "pool5", x, 3, 2, pad=0), 6)


def vgg16() -> OperatorGraph:
    """VGG-16, configuration D (Simonyan and Zisserman 2015, arXiv:1409.1556), on 224 x 224 images."""
    b, x = images("vgg16", 224)
    for group, (width, convs) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), start=1):
        for i in range(1, convs + 1):
            x = conv(b, f"conv{group}_{i}", x, width, 3, bias=True)
        x = pool(b, f"pool{group}", x, 2, 2)
        if group < 5:
            b.next_block()
    return _fully_connected(b, x, 6)


def _residual(b: GraphBuilder, at: str, x: Image, width: int, stride: int, *, bottleneck: bool) -> Image:
    """Two convolutions of 3 x 3, or one between two of 1 x 1 with the stride in the 3 x 3; what goes round is added.

    Where size or channels change, a convolution of 1 x 1 goes round.
    """
    b.next_block()
    kernels = (1, 3, 1) if bottleneck else (3, 3)
    channels = (width, width, 4 * width) if bottleneck else (width, width)
    strided = 1 if bottleneck else 0
    y = x
    for i, (kernel, c_out) in enumerate(zip(kernels, channels, strict=True)):
        y = conv(b, f"{at}.conv{i + 1}", y, c_out, kernel, stride if i == strided else 1)
        y = batch_norm(b, f"{at}.bn{i + 1}", y)
    if stride > 1 or x.channels != y.channels:
        x = conv(b, f"{at}.downsample", x, y.channels, 1, stride)
        x = batch_norm(b, f"{at}.downsample_bn", x)
    return add(b, f"{at}.add", y, x)


def residual_layers(b: GraphBuilder, x: Image, blocks: tuple[int, ...], *, bottleneck: bool) -> Image:
    """The four groups of residual blocks of a ResNet, 64 to 512 wide."""
    for layer, (width, count) in enumerate(zip((64, 128, 256, 512), blocks, strict=True), start=1):
        for block in range(count):
            stride = 2 if block == 0 and layer > 1 else 1
            x = _residual(b, f"layer{layer}.{block}", x, width, stride, bottleneck=bottleneck)
    return x


def _resnet(name: str, blocks: tuple[int, ...], *, bottleneck: bool) -> OperatorGraph:
    b, x = images(name, 224)
    x = batch_norm(b, "bn1", conv(b, "conv1", x, 64, 7, 2))
    x = residual_layers(b, pool(b, "maxpool", x, 3, 2), blocks, bottleneck=bottleneck)
    b.next_block()
    classifier(b, x, 1000)
    return b.build()


def resnet18() -> OperatorGraph:
    """ResNet-18 (He et al. 2016, arXiv:1512.03385), on 224 x 224 images."""
    return _resnet("resnet18", (2, 2, 2, 2), bottleneck=False)


def resnet50() -> OperatorGraph:
    """ResNet-50 (He et al. 2016, arXiv:1512.03385) with the stride in the 3 x 3 convolution, on 224 x 224 images."""
    return _resnet("resnet50", (3, 4, 6, 3), bottleneck=True)


def resnet152() -> OperatorGraph:
    """ResNet-152 (He et al. 2016, arXiv:1512.03385) with the stride in the 3 x 3 convolution, on 224 x 224 images."""
    return _resnet("resnet152", (3, 8, 36, 3), bottleneck=True)


def densenet121() -> OperatorGraph:
    """DenseNet-121 (Huang et al. 2017, arXiv:1608.06993), on 224 x 224 images; each layer copies what it joins."""
    growth = 32
    b, x = images("densenet121", 224)
    x = batch_norm(b, "bn0", conv(b, "conv0", x, 64, 7, 2))
    x = pool(b, "pool0", x, 3, 2)
    for group, layers in enumerate((6, 12, 24, 16), start=1):
        parts = [x]
        for layer in range(1, layers + 1):
            b.next_block()
            at = f"dense{group}.{layer}"
            y = concat(b, f"{at}.concat", parts) if layer > 1 else x
            y = conv(b, f"{at}.conv1", batch_norm(b, f"{at}.bn1", y), 4 * growth, 1)
            parts.append(conv(b, f"{at}.conv2", batch_norm(b, f"{at}.bn2", y), growth, 3))
        b.next_block()
        x = batch_norm(b, f"norm{group}", concat(b, f"dense{group}.concat", parts))
        if group < 4:
            x = conv(b, f"transition{group}.conv", x, x.channels // 2, 1)
            x = pool(b, f"transition{group}.pool", x, 2, 2, average=True)
    classifier(b, x, 1000)
    return b.build()
