"""Modules of PyTorch, built here: FLOPs by hand and by PyTorch's own counter, parameters by its own count."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra; `make test-torch` runs these")

from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from sim.performance import OperatorGraph, PerformanceError  # noqa: E402
from sim.performance.readers import read_torch  # noqa: E402


def _counted_flops(module: nn.Module, *inputs: torch.Tensor) -> float:
    """FLOP of a forward pass as PyTorch's own counter sees it run; it does not know the fused attention of CPUs."""
    unfused = sdpa_kernel(SDPBackend.MATH)
    with torch.no_grad(), unfused, FlopCounterMode(display=False) as counter:
        module(*inputs)
    return float(counter.get_total_flops())


def _assert_like_torch(graph: OperatorGraph, module: nn.Module, *inputs: torch.Tensor) -> None:
    assert graph.weight_params.sum() == sum(p.numel() for p in module.parameters())
    assert graph.flops_fwd.sum() * len(inputs[0]) == pytest.approx(_counted_flops(module, *inputs), rel=1e-12)


class _Bottleneck(nn.Module):
    """A block of ResNet-50: 1 x 1, 3 x 3 with the stride, 1 x 1, and a convolution in the shortcut."""

    def __init__(self, c_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.down = nn.Sequential(nn.Conv2d(c_in, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.down(x))


class _ResNet(nn.Module):
    """ResNet-50 with its published layers (He et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, 2, 1))
        c_in = 64
        for layer, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            for block in range(blocks):
                full = _Bottleneck(c_in, width, 2 if layer and not block else 1)
                if block:
                    full.down = nn.Sequential()
                layers.append(full)
                c_in = 4 * width
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class _Block(nn.Module):
    """A pre-normalised transformer block; attention by hand or by the fused function."""

    def __init__(self, hidden: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))
        self.heads, self.fused = heads, fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, hidden = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        if self.fused:
            z = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            z = ((q @ k.transpose(-2, -1)) / (hidden // self.heads) ** 0.5).softmax(-1) @ v
        x = x + self.out(z.transpose(1, 2).reshape(batch, rows, hidden))
        return x + self.mlp(self.norm2(x))


class _Language(nn.Module):
    """Embedding, blocks, and an output tied to the embedding."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.blocks = nn.Sequential(_Block(64, 4, fused), _Block(64, 4, fused))
        self.logits = nn.Linear(64, 1000, bias=False)
        self.logits.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits(self.blocks(self.embed(tokens)))


def test_resnet50_has_its_published_size_and_torchs_flops():
    module, x = _ResNet().eval(), torch.zeros(2, 3, 224, 224)
    graph = read_torch(module, (x,))
    assert graph.weight_params.sum() == 25_557_032
    _assert_like_torch(graph, module, x)
    assert graph.kind.count("conv") == 53
    assert graph.kind.count("norm") == 53


def test_resnet50_is_that_of_the_zoo():
    from sim.performance.zoo import zoo_graph

    graph, ours = read_torch(_ResNet(), (torch.zeros(1, 3, 224, 224),)), zoo_graph("resnet50")
    assert graph.flops_fwd.sum() == pytest.approx(ours.flops_fwd.sum(), rel=1e-12)
    assert graph.weight_params.sum() == ours.weight_params.sum()


def test_a_block_keeps_each_tensor_once():
    graph = read_torch(_Bottleneck(64, 64, 1), (torch.zeros(1, 64, 56, 56),))
    # Its input, what enters each normalisation, the outputs of its ReLUs; two convolutions read the input.
    channels = 64 + (64 + 64 + 256 + 256) + (64 + 64 + 256)
    assert graph.stored_bytes.sum() == 2 * channels * 56 * 56


def test_a_convolution_by_hand():
    module = nn.Sequential(nn.Conv2d(4, 6, 3, padding=1, groups=2), nn.ReLU())
    graph = read_torch(module, (torch.zeros(5, 4, 8, 8),))
    assert graph.kind == ("conv", "elementwise")
    assert graph.flops_fwd.tolist() == [2 * 6 * 64 * (4 // 2) * 9, 0]
    assert graph.weight_params.tolist() == [6 * 2 * 9 + 6, 0]
    assert graph.in_bytes.tolist() == [2 * 4 * 64, 2 * 6 * 64]
    assert graph.stored_bytes.tolist() == [2 * 4 * 64, 2 * 6 * 64]


@pytest.mark.parametrize("fused", [True, False])
def test_a_transformer_with_tied_weights(fused):
    module, tokens = _Language(fused).eval(), torch.zeros(3, 16, dtype=torch.int64)
    graph = read_torch(module, (tokens,))
    _assert_like_torch(graph, module, tokens)
    kinds = graph.kind
    assert kinds.count("attention") == 2 * (1 if fused else 2)
    assert kinds.count("embedding") == 1
    assert graph.weight_params[kinds.index("embedding")] == 64_000
    assert graph.weight_params[-1] == 0
    scores = 2 * 2 * (2 * 16 * 16 * 64)  # two blocks, two products of 16 rows by 16 keys over 64 values
    assert graph.flops_fwd[[kind == "attention" for kind in kinds]].sum() == scores


@pytest.mark.parametrize("training", [True, False])
def test_torchs_own_encoder_layer(training):
    module = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1).train(training)
    x = torch.zeros(2, 10, 32)
    graph = read_torch(module, (x,))
    assert graph.weight_params.sum() == sum(p.numel() for p in module.parameters())
    assert graph.flops_fwd.sum() == 2 * 10 * (4 * 32 * 32 + 2 * 32 * 64) + 4 * 10 * 10 * 32


def test_dropout_costs_only_a_module_in_training():
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    x = (torch.zeros(4, 8),)
    assert len(read_torch(module.eval(), x)) == 1
    trained = read_torch(module.train(), x)
    assert trained.kind == ("gemm", "elementwise")
    assert trained.stored_bytes.tolist() == [16, 8]


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_by_hand(kind, gates):
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = kind(6, 5, num_layers=2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)[0][:, -1]

    module = Last()
    graph = read_torch(module, (torch.zeros(3, 7, 6),))
    assert graph.kind == ("lstm",)
    assert graph.flops_fwd.tolist() == [2 * 7 * gates * 5 * ((6 + 5) + (5 + 5))]
    assert graph.weight_params.sum() == sum(p.numel() for p in module.parameters())
    assert graph.launches.tolist() == [2 * 7]


@pytest.mark.parametrize("column", ["flops_fwd", "in_bytes", "out_bytes", "stored_bytes", "weight_params"])
def test_costs_are_for_one_sample(column):
    module = _Block(32, 4, fused=True)
    one, many = (read_torch(module, (torch.zeros(batch, 6, 32),)) for batch in (1, 8))
    np.testing.assert_allclose(getattr(many, column), getattr(one, column), rtol=1e-12)


def test_a_module_on_device_meta_needs_no_memory():
    with torch.device("meta"):
        module, x = nn.Sequential(nn.Linear(100_000, 100_000)), torch.zeros(2, 100_000)
    assert read_torch(module, (x,)).weight_params.sum() == 100_000**2 + 100_000


def test_inputs_without_a_common_batch_are_refused():
    module = nn.Bilinear(3, 3, 2)
    with pytest.raises(PerformanceError, match="do not have one batch size"):
        read_torch(module, (torch.zeros(2, 3), torch.zeros(4, 3)))


def test_a_module_that_cannot_be_traced_is_refused():
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(PerformanceError, match=r"Branching: torch\.export cannot trace the module"):
        read_torch(Branching(), (torch.zeros(2, 3),))


def test_arithmetic_of_unknown_size_is_refused():
    with pytest.raises(PerformanceError, match=r"node 'bilinear': .*arithmetic"):
        read_torch(_Pair(), (torch.zeros(2, 3), torch.zeros(2, 3)))


class _Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Bilinear(3, 3, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.product(x, y)
