"""The model zoo: operator graphs built from layer shapes; the tests hold them to published sizes.

A ReLU is done in place and belongs to the normalisation, convolution or addition before it; a residual
addition and its dropout belong to the normalisation beside it. Tied weights are counted where they are looked
up. Attention writes its scores to memory, but for Llama and Mixtral (fused). Tensor parallelism splits
transformers only, as Megatron-LM does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from sim.performance.graph import OperatorGraph
from sim.performance.zoo import families, inception, language, measured, nasnet, recurrent, vision
from sim.performance.zoo import recommenders as recommend
from sim.performance.zoo.families import NAMED, sizes_of

__all__ = ["MODELS", "NAMED", "Model", "in_zoo", "sizes_of", "zoo_graph"]


@dataclass(frozen=True)
class Model:
    """An entry of the zoo: how to build it, and batch sizes per GPU to draw from (none: not drawn)."""

    build: Callable[[], OperatorGraph]
    gpu_batch_sizes: tuple[int, ...] = ()


MODELS: Mapping[str, Model] = {
    "resnet50": Model(vision.resnet50, (32, 64, 128)),
    "vgg16": Model(vision.vgg16, (32, 64)),
    "bert-large": Model(language.bert_large, (4, 8, 16)),
    "gpt2-1.5b": Model(language.gpt2_15b, (1, 2)),
    "transformer": Model(language.transformer, (32, 64, 128)),
    "lstm-lm": Model(recurrent.lstm_lm, (20, 40, 80)),
    "alexnet": Model(vision.alexnet),
    "resnet18": Model(vision.resnet18),
    "resnet152": Model(vision.resnet152),
    "densenet121": Model(vision.densenet121),
    "inception-v3": Model(inception.inception_v3),
    "nasnet-large": Model(nasnet.nasnet_large),
    "nasnet-mobile": Model(nasnet.nasnet_mobile),
    "gnmt-8": Model(recurrent.gnmt_8),
    "gnmt-16": Model(recurrent.gnmt_16),
    "transformer-big": Model(language.transformer_big),
    "bert-base": Model(language.bert_base),
    "bert-base-512": Model(partial(language.bert_base, 512, "bert-base-512")),
    "bert-large-512": Model(partial(language.bert_large, 512, "bert-large-512")),
    "gpt3-6.7b": Model(language.gpt3_67b),
    "gpt3-13b": Model(language.gpt3_13b),
    "llama-7b": Model(language.llama_7b),
    "mixtral-8x7b": Model(language.mixtral_8x7b),
    "dlrm": Model(recommend.dlrm),
    "resnet18-cifar": Model(measured.resnet18_cifar),
    "lstm-wikitext2": Model(measured.lstm_wikitext2),
    "bert-base-384": Model(measured.bert_squad),
    "transformer-multi30k": Model(measured.transformer_multi30k),
    "autoencoder-ml20m": Model(measured.autoencoder_ml20m),
    "neumf": Model(measured.neumf),
    "yolov3": Model(measured.yolov3),
}


@cache
def zoo_graph(name: str) -> OperatorGraph:
    """The graph of a model of the zoo, or of one named by its sizes, built once."""
    return MODELS[name].build() if name in MODELS else families.sized_graph(name)


def in_zoo(name: str) -> bool:
    """Whether `zoo_graph` knows the model, or may say why it does not."""
    return name in MODELS or families.is_sized(name)
