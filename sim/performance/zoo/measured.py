"""Models whose speed Gavel (Narayanan et al. 2020) or Pollux (Qiao et al. 2021) and Sia measured, as they built them.

Not here, since what was trained is not published in enough detail: DeepSpeech2 on CMU-ARCTIC (Pollux), A3C and
CycleGAN (Gavel), the pipelined GPT of 2.8 billion parameters (Sia).
"""

from __future__ import annotations

from sim.performance.graph import VALUE_BYTES, GraphBuilder, OperatorGraph
from sim.performance.zoo.language import bert_base, translator
from sim.performance.zoo.layers import (
    TOKEN_BYTES,
    Image,
    add,
    batch_norm,
    classifier,
    concat,
    conv,
    linear,
    softmax_loss,
)
from sim.performance.zoo.recommenders import table_rows
from sim.performance.zoo.recurrent import word_model
from sim.performance.zoo.vision import images, residual_layers


def resnet18_cifar() -> OperatorGraph:
    """ResNet-18 for CIFAR-10 (Gavel, Pollux): images of 32 x 32 enter by a 3 x 3 convolution and are not pooled."""
    b, x = images("resnet18-cifar", 32)
    x = batch_norm(b, "bn1", conv(b, "conv1", x, 64, 3))
    x = residual_layers(b, x, (2, 2, 2, 2), bottleneck=False)
    b.next_block()
    classifier(b, x, 10)
    return b.build()


def lstm_wikitext2() -> OperatorGraph:
    """Gavel's LM: PyTorch's word language model on Wikitext-2, two layers 200 wide, 35 steps, 33,278 words."""
    return word_model("lstm-wikitext2", 200, 35, 33278, biases=2)


def bert_squad() -> OperatorGraph:
    """BERT-base on 384 tokens, the length that SQuAD is fine-tuned with (Devlin et al. 2019); Pollux' and Sia's BERT.

    Its head marks answers; here it is a classifier as in `bert-base`, less than 0.1 % of the arithmetic.
    """
    return bert_base(384, "bert-base-384")


def transformer_multi30k() -> OperatorGraph:
    """Gavel's Transformer: base size on Multi30k, from 2,911 English words to 3,149 German ones.

    Sentences have about 15 words with their marks, but are padded to the longest of a batch (52 at most): 30 is an
    estimate, and cost is nearly proportional to it.
    """
    return translator("transformer-multi30k", 512, 8, 30, 2911, 3149)


def autoencoder_ml20m() -> OperatorGraph:
    """Gavel's Recommendation: an autoencoder, 200 wide, of the 20,108 films of MovieLens-20M that users rated.

    It is trained on the films that occur in a batch; here on all of them, a bound that is close for large batches.
    """
    films, width = 20_108, 200
    b = GraphBuilder("autoencoder-ml20m", "ratings of a user", VALUE_BYTES * films)
    x = linear(b, "encoder", -1, films, width)
    x = b.add("tanh", "elementwise", (x,), width, stored_bytes=VALUE_BYTES * width)
    softmax_loss(b, linear(b, "decoder", x, width, films), films)
    return b.build()


def neumf() -> OperatorGraph:
    """NeuMF (He et al. 2017, arXiv:1708.05031) on MovieLens-1M: Pollux' and Sia's NCF, with dense gradients.

    6,040 users and 3,706 films; 32 factors beside layers of 256-128-64-32.
    """
    users, films, factors = 6_040, 3_706, 32
    b = GraphBuilder("neumf", "a pair of user and film", 2 * TOKEN_BYTES)
    linear_part = table_rows(b, "factors", users + films, factors, 2, sparse=False)
    linear_part = b.add("product", "elementwise", (linear_part,), factors, stored_bytes=VALUE_BYTES * 2 * factors)
    x = table_rows(b, "vectors", users + films, 4 * factors, 2, sparse=False)
    n_in = 8 * factors
    for i in range(3):
        x = linear(b, f"layer{i}", x, n_in, n_in // 2)
        n_in //= 2
    softmax_loss(b, linear(b, "score", (linear_part, x), 2 * factors, 1), 1)
    return b.build()


def _leaky(b: GraphBuilder, at: str, x: Image, channels: int, kernel: int, stride: int = 1) -> Image:
    return batch_norm(b, f"{at}.bn", conv(b, f"{at}.conv", x, channels, kernel, stride))


def _head(b: GraphBuilder, at: str, x: Image, width: int, outputs: int) -> tuple[Image, int]:
    """Five convolutions, then two that predict; returns what the next scale reads, and the prediction."""
    b.next_block()
    for i in range(5):
        x = _leaky(b, f"{at}.{i}", x, width * (1 + i % 2), 1 + 2 * (i % 2))
    y = _leaky(b, f"{at}.5", x, 2 * width, 3)
    return x, conv(b, f"{at}.predict", y, outputs, 1, bias=True).op


def _finer(b: GraphBuilder, at: str, x: Image, beside: Image) -> Image:
    """Half the channels in twice the size, joined with an earlier image of that size."""
    x = _leaky(b, f"{at}.squeeze", x, x.channels // 2, 1)
    values = x.channels * beside.size**2
    larger = Image(b.add(f"{at}.upsample", "elementwise", (x.op,), values), x.channels, beside.size)
    return concat(b, f"{at}.join", [larger, beside])


def yolov3() -> OperatorGraph:
    """YOLOv3 (Redmon and Farhadi 2018, arXiv:1804.02767) on 416 x 416, 80 classes.

    Pollux and Sia trained on PASCAL VOC: 20 classes make it 0.6 % smaller; their image size is not published.
    """
    b, x = images("yolov3", 416)
    x = _leaky(b, "conv0", x, 32, 3)
    scales = []
    for stage, repeats in enumerate((1, 2, 8, 8, 4)):
        b.next_block()
        x = _leaky(b, f"{stage}.down", x, 2 * x.channels, 3, 2)
        for i in range(repeats):
            b.next_block()
            at = f"{stage}.{i}"
            y = _leaky(b, f"{at}.1", x, x.channels // 2, 1)
            x = add(b, f"{at}.add", _leaky(b, f"{at}.2", y, x.channels, 3), x)
        scales.append(x)
    outputs = 3 * (5 + 80)
    x, coarse = _head(b, "head0", x, 512, outputs)
    x, middle = _head(b, "head1", _finer(b, "head1", x, scales[3]), 256, outputs)
    _, fine = _head(b, "head2", _finer(b, "head2", x, scales[2]), 128, outputs)
    cells = sum(size**2 for size in (13, 26, 52))
    softmax_loss(b, (coarse, middle, fine), outputs, cells)
    return b.build()
