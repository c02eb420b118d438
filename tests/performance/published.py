"""Published training speeds, as data: what ran, on what, how fast, and where it says so.

Which rows are here was settled before any was predicted:

1. A row says all that the model needs: model, lengths, batch, GPUs, precision; and an iteration's time, or a rate.
2. All that it does is modelled. Left out: sequence parallelism with selective recomputation (the faster half of
   Korthikanti's table 5), sequences of lengths that are not given (NVIDIA's GNMT and Transformer, and its PyTorch BERT
   on 512 tokens, which sorts sequences into bins of 64).
3. Of NVIDIA's implementations of ResNet-50 and BERT pre-training the one counts that is fastest on one GPU in mixed
   precision; what it says of a single machine, on its smallest and largest number of GPUs. What the others say of one
   GPU is in `SLOWER`: the same model on the same GPU in other hands.

Rule 3 is kind to 'tuned', which stands for careful code; `test_published_figures.py` prints the error with and without.

Figures were compared with the README files named below; those of the two papers with two texts each that quote the
table, not with the papers. Megatron-LM's micro-batches and interleaving are from its `examples/sc21/run_table_1.sh`.
Where one README gives two figures for one run, the table of a single machine counts (BERT on 512 tokens, 8 A100: 650
here, 750 beside it). BERT is a classifier here, and was pre-trained there: its head, which scores 20 or 80 tokens of a
sequence, adds 1.5 to 1.7 % of arithmetic that is not counted. A DGX-2's V100 clocks higher than the catalogue's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from sim.api import Plan, Stage
from sim.cluster.spec import ClusterSpec, Links
from sim.hardware.gputypes import gpu_type
from sim.performance import Iteration, OperatorGraph, Performance
from sim.performance.calibration import Calibration
from sim.performance.zoo import zoo_graph
from sim.performance.zoo.language import gpt

TOKENS, VOCABULARY = 2048, 51200
"""Of both Megatron-LM papers."""
GPT_HEAD_OPS, GPT_LAYER_OPS = 2, 8
"""Operators of a GPT before its first layer, and of a layer with the normalisation after it."""
SELENE = Links(network_gbytes_per_s=200.0, rack_gbytes_per_s=200.0)
"""Eight links of 200 Gbit/s a node (Narayanan et al. 2021, section 5)."""


@dataclass(frozen=True)
class Row:
    """One published figure.

    `gpus` on nodes of `node`; `batch` samples an iteration in `micro_batches`; `layers` is 0 where the model is not cut
    into stages. `figure` is in `unit`: 'samples/s', 's' an iteration, or 'TFLOP/s' of a GPU.
    """

    group: str
    model: str
    graph: Callable[[], OperatorGraph]
    gpu: str
    gpus: int
    precision: str
    batch: int
    micro_batches: int
    figure: float
    unit: str
    source: str
    node: int = 8
    layers: int = 0
    hidden: int = 0
    tensor: int = 1
    pipeline: int = 1
    chunks: int = 1
    recompute: bool = False

    @property
    def published_s(self) -> float:
        """Seconds of an iteration."""
        if self.unit == "s":
            return self.figure
        if self.unit == "samples/s":
            return self.batch / self.figure
        return self.counted_flop / (self.gpus * self.figure * 1e12)

    @property
    def counted_flop(self) -> float:
        """FLOP of an iteration as Narayanan et al. 2021 count them (equation 3): the forward pass twice."""
        h, layers = self.hidden, self.layers
        share = 1 + TOKENS / (6 * h) + VOCABULARY / (16 * layers * h)
        return 96.0 * self.batch * TOKENS * layers * h**2 * share

    def plan(self, operators: int) -> Plan:
        """The row's stages: as many layers in each, the embedding in the first, the logits in the last."""
        stages = self.pipeline * self.chunks
        ends = [GPT_HEAD_OPS - 1 + GPT_LAYER_OPS * self.layers * s // stages for s in range(1, stages)]
        firsts, lasts = [0, *(end + 1 for end in ends)], [*ends, operators - 1]
        each = self.gpus // self.pipeline
        return Plan(
            tuple(Stage(a, b, self.gpu, each, self.tensor) for a, b in zip(firsts, lasts, strict=True)),
            self.micro_batches,
            schedule="interleaved" if self.chunks > 1 else "1f1b",
            chunks=self.chunks,
            recompute=self.recompute,
        )

    def predict(self, calibration: Calibration) -> Iteration:
        """What the model says of it, in the row's precision."""
        graph = built(self.graph)
        nodes = -(-self.gpus // self.node)
        counts = [min(self.node, self.gpus)] * nodes
        cluster = ClusterSpec.build("published", [gpu_type(self.gpu)], [0] * nodes, counts, links=SELENE)
        speed = Performance(
            SELENE, calibration=replace(calibration, precision=self.precision), graphs={"published": graph}
        )
        gpus = np.arange(self.gpus, dtype=np.int32)
        return speed.plan("published", self.batch, self.plan(len(graph)), gpus, cluster)


@cache
def built(graph: Callable[[], OperatorGraph]) -> OperatorGraph:
    """The graph, built once."""
    return graph()


NVIDIA = "github.com/NVIDIA/DeepLearningExamples, README of 2024-04, "
RESNET50 = partial(zoo_graph, "resnet50")
BERT_128, BERT_512 = partial(zoo_graph, "bert-large"), partial(zoo_graph, "bert-large-512")


def _nvidia(
    model: str, graph: Callable[[], OperatorGraph], where: str, cells: list[tuple[str, int, int, str, int, int, float]]
) -> list[Row]:
    """Rows (GPU type, GPUs of a node, GPUs, precision, samples a GPU, accumulated micro-batches, samples/s)."""
    return [
        Row(model, model, graph, gpu, gpus, precision, samples * steps * gpus, steps, rate, "samples/s",
            NVIDIA + where, node=node)
        for gpu, node, gpus, precision, samples, steps, rate in cells
    ]  # fmt: skip


def _megatron(
    group: str, source: str, unit: str, cells: list[tuple[str, int, int, int, int, int, int, int, int, int, float]]
) -> list[Row]:
    """Rows (size, heads, hidden, layers, tensor, pipeline, GPUs, batch, micro-batch, chunks, figure)."""
    rows = []
    for size, heads, hidden, layers, tensor, pipeline, gpus, batch, micro, chunks, figure in cells:
        graph = partial(gpt, layers, hidden, heads, TOKENS, VOCABULARY, name=f"gpt-{size}")
        replicas = gpus // (tensor * pipeline)
        rows.append(
            Row(group, f"GPT {size}", graph, "A100-80", gpus, "mixed", batch, batch // (replicas * micro), figure, unit,
                source, layers=layers, hidden=hidden, tensor=tensor, pipeline=pipeline, chunks=chunks, recompute=True)
        )  # fmt: skip
    return rows


ROWS: tuple[Row, ...] = (
    *_megatron(
        "Megatron-LM 2021", "Narayanan et al. 2021, arXiv:2104.04473, table 1", "TFLOP/s",
        [
            ("1.7B", 24, 2304, 24, 1, 1, 32, 512, 16, 1, 137),
            ("3.6B", 32, 3072, 30, 2, 1, 64, 512, 16, 1, 138),
            ("7.5B", 32, 4096, 36, 4, 1, 128, 512, 16, 1, 142),
            ("18.4B", 48, 6144, 40, 8, 1, 256, 1024, 8, 1, 135),
            ("39.1B", 64, 8192, 48, 8, 2, 512, 1536, 4, 1, 138),
            ("76.1B", 80, 10240, 60, 8, 4, 1024, 1792, 2, 3, 140),
            ("145.6B", 96, 12288, 80, 8, 8, 1536, 2304, 2, 2, 148),
            ("310.1B", 128, 16384, 96, 8, 16, 1920, 2160, 1, 2, 155),
            ("529.6B", 128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 163),
            ("1008B", 160, 25600, 128, 8, 64, 3072, 3072, 1, 1, 163),
        ],
    ),
    *_megatron(
        "Megatron-LM 2022", "Korthikanti et al. 2022, arXiv:2205.05198, table 5, full recomputation", "s",
        [
            ("22B", 64, 6144, 48, 8, 1, 8, 4, 4, 1, 1.42),
            ("175B", 96, 12288, 96, 8, 8, 64, 64, 1, 3, 18.13),
            ("530B", 128, 20480, 105, 8, 35, 280, 280, 1, 3, 49.05),
            ("1T", 160, 25600, 128, 8, 64, 512, 512, 1, 1, 94.42),
        ],
    ),
    *_nvidia(
        "ResNet-50", RESNET50, "MxNet/Classification/RN50v1.5",
        [
            ("A100-80", 8, 1, "mixed", 512, 1, 3410.52),
            ("A100-80", 8, 8, "mixed", 512, 1, 26673.72),
            ("A100-80", 8, 1, "tf32", 512, 1, 1055.78),
            ("A100-80", 8, 8, "tf32", 512, 1, 8247.44),
            ("V100", 8, 1, "mixed", 192, 1, 1376),
            ("V100", 8, 8, "mixed", 192, 1, 10723),
            ("V100", 8, 1, "fp32", 96, 1, 384),
            ("V100", 8, 8, "fp32", 96, 1, 3005),
            ("V100-32", 16, 1, "mixed", 256, 1, 1492),
            ("V100-32", 16, 16, "mixed", 256, 1, 21484),
            ("V100-32", 16, 1, "fp32", 128, 1, 417),
            ("V100-32", 16, 16, "fp32", 128, 1, 6338),
        ],
    ),
    *_nvidia(
        "BERT-large, 128", BERT_128, "PyTorch/LanguageModeling/BERT",
        [
            ("A100-80", 8, 1, "mixed", 256, 32, 580),
            ("A100-80", 8, 8, "mixed", 256, 32, 4591),
            ("A100-80", 8, 1, "tf32", 128, 64, 317),
            ("A100-80", 8, 8, "tf32", 128, 64, 2505),
            ("V100-32", 8, 1, "mixed", 64, 64, 224),
            ("V100-32", 8, 8, "mixed", 64, 64, 1746),
            ("V100-32", 8, 1, "fp32", 32, 128, 50),
            ("V100-32", 8, 8, "fp32", 32, 128, 387),
        ],
    ),
    *_nvidia(
        "BERT-large, 512", BERT_512, "TensorFlow2/LanguageModeling/BERT",
        [
            ("A100-80", 8, 1, "mixed", 40, 768, 96.52),
            ("A100-80", 8, 8, "mixed", 40, 96, 649.69),
            ("A100-80", 8, 1, "tf32", 22, 1536, 54.92),
            ("A100-80", 8, 8, "tf32", 22, 192, 427.39),
            ("V100-32", 16, 1, "mixed", 10, 3072, 40.95),
            ("V100-32", 16, 16, "mixed", 10, 192, 614.94),
            ("V100-32", 16, 1, "fp32", 6, 5120, 11.06),
            ("V100-32", 16, 16, "fp32", 4, 512, 161.38),
        ],
    ),
)  # fmt: skip

SLOWER: tuple[Row, ...] = (
    *_nvidia(
        "ResNet-50", RESNET50, "TensorFlow/Classification/ConvNets/resnet50v1.5",
        [
            ("A100", 8, 1, "mixed", 256, 1, 2375),
            ("A100", 8, 1, "tf32", 256, 1, 909),
            ("V100", 8, 1, "mixed", 256, 1, 1270),
            ("V100", 8, 1, "fp32", 128, 1, 412),
            ("V100-32", 16, 1, "mixed", 256, 1, 1300),
            ("V100-32", 16, 1, "fp32", 128, 1, 432),
        ],
    ),
    *_nvidia(
        "ResNet-50", RESNET50, "PyTorch/Classification/ConvNets/resnet50v1.5; batches: configs.yml beside it",
        [
            ("A100-80", 8, 1, "mixed", 256, 1, 2470),
            ("A100-80", 8, 1, "tf32", 256, 1, 938),
            ("V100", 8, 1, "mixed", 256, 1, 1200),
            ("V100", 8, 1, "fp32", 112, 1, 367),
            ("V100-32", 8, 1, "mixed", 256, 1, 1156),
            ("V100-32", 8, 1, "fp32", 112, 1, 356),
        ],
    ),
    *_nvidia(
        "BERT-large, 128", BERT_128, "TensorFlow2/LanguageModeling/BERT",
        [
            ("A100-80", 8, 1, "mixed", 312, 256, 485.59),
            ("A100-80", 8, 1, "tf32", 176, 512, 282.98),
            ("V100-32", 16, 1, "mixed", 60, 1024, 206.5),
            ("V100-32", 16, 1, "fp32", 32, 2048, 49.97),
        ],
    ),
    *_nvidia(
        "BERT-large, 128", BERT_128, "TensorFlow/LanguageModeling/BERT",
        [
            ("A100", 8, 1, "mixed", 64, 1024, 356.845),
            ("A100", 8, 1, "tf32", 64, 1024, 238.10),
            ("V100", 8, 1, "mixed", 16, 4096, 134.34),
            ("V100", 8, 1, "fp32", 8, 8192, 39.43),
        ],
    ),
    *_nvidia(
        "BERT-large, 512", BERT_512, "TensorFlow/LanguageModeling/BERT",
        [
            ("A100", 8, 1, "mixed", 16, 2048, 70.856),
            ("A100", 8, 1, "tf32", 8, 4096, 39.96),
            ("V100", 8, 1, "mixed", 4, 8192, 28.72),
            ("V100", 8, 1, "fp32", 2, 16384, 9.80),
        ],
    ),
)  # fmt: skip
