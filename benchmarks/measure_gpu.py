"""Time operators and training steps on the GPU of this machine: the input of `hetsim perf --calibrate`.

Needs PyTorch with CUDA (and torchvision, transformers for the models); nothing else of hetsim does.

    python benchmarks/measure_gpu.py --out measured/ --gpu H100

writes `operators.csv` (gpu, precision, kind, name, flops, bytes, fwd_s, bwd_s, launches: one operator alone; FLOPs,
bytes and kernels forward as hetsim counts them: each operand once, an unfused attention's scores as often as they
move) and `models.csv` (gpu, precision, model, batch_size, mode, time_s: a whole training step: forward, backward,
optimizer). Times are medians over repetitions, by CUDA events, after warm-up; an operator's are replayed from a CUDA
graph, but for kind 'launch', which is the host's time for one tiny operator.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

PRECISIONS = {"mixed": torch.bfloat16, "tf32": torch.float32, "fp32": torch.float32}


def median_s(work: Callable[[], object], repeat: int = 5, at_least_s: float = 0.01) -> float:
    """Median seconds of one call, with enough calls between two events to fill `at_least_s`."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    inner = max(1, min(200, int(at_least_s / max(time.perf_counter() - began, 1e-6))))
    times = []
    for _ in range(repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(inner):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / inner)
    return statistics.median(times)


def graphed_s(work: Callable[[], object]) -> float:
    """Median seconds of one call replayed from a CUDA graph: what the GPU takes, without the host."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    took = median_s(graph.replay)
    graph.reset()
    return took


Operator = tuple[str, str, float, float, Callable[[], torch.Tensor], list[torch.Tensor]]
GEMMS = (
    (64, 1024, 1024), (128, 1024, 1024), (256, 1024, 1024), (512, 1024, 1024), (1024, 1024, 1024), (2048, 1024, 1024),
    (4096, 1024, 1024), (512, 1024, 4096), (2048, 1024, 4096), (8192, 1024, 4096), (16384, 1024, 3072),
    (1024, 4096, 4096), (2048, 4096, 4096), (4096, 4096, 4096), (8192, 4096, 4096), (8192, 8192, 8192),
    (2048, 5120, 20480), (2048, 1600, 6400), (2048, 1600, 50304), (32, 25088, 4096), (128, 25088, 4096),
    (64, 2048, 1000), (20, 3000, 6000), (80, 3000, 6000),
)  # fmt: skip
"""Rows, inputs, outputs."""
CONVOLUTIONS = (
    (32, 3, 64, 7, 224, 2), (128, 3, 64, 7, 224, 2), (32, 64, 64, 3, 56, 1), (128, 64, 64, 3, 56, 1),
    (128, 64, 256, 1, 56, 1), (128, 256, 64, 1, 56, 1), (32, 128, 128, 3, 28, 1), (128, 128, 128, 3, 28, 1),
    (128, 128, 512, 1, 28, 1), (32, 256, 256, 3, 14, 1), (128, 256, 256, 3, 14, 1), (128, 256, 1024, 1, 14, 1),
    (32, 512, 512, 3, 7, 1), (128, 512, 512, 3, 7, 1), (128, 2048, 512, 1, 7, 1), (32, 64, 64, 3, 224, 1),
    (64, 128, 128, 3, 112, 1), (64, 256, 256, 3, 56, 1), (64, 512, 512, 3, 28, 1), (128, 64, 64, 3, 32, 1),
    (128, 256, 256, 3, 8, 1),
)  # fmt: skip
"""Images, channels in and out, kernel, side, stride."""
ATTENTIONS = ((8, 16, 128, 64), (32, 16, 128, 64), (8, 16, 512, 64), (2, 25, 1024, 64), (4, 32, 2048, 128))
"""Sequences, heads, tokens, width of a head."""
SCORE_VALUES = 6.5
"""Values moved for a score of an unfused attention: as hetsim's zoo counts them (13 bytes in half precision)."""
ROWS = ((1024, 1024), (4096, 1024), (16384, 1024), (2048, 1600), (8192, 4096))
IMAGES = ((32, 64, 112), (128, 64, 112), (128, 256, 56), (128, 512, 28), (128, 2048, 7), (128, 64, 32))
"""Images, channels, side."""


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Random values that want a gradient; images lie channels last, as tensor cores like them."""
    out = torch.randn(*shape, device="cuda", dtype=dtype)
    return (out.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else out).requires_grad_()


def operators(dtype: torch.dtype) -> Iterator[Operator]:
    """(kind, name, flops, bytes, forward, inputs that want a gradient), made one at a time."""
    for several in (gemms, convolutions, attentions, of_rows, of_images, lstms):
        yield from several(dtype, torch.finfo(dtype).bits // 8)


def gemms(dtype: torch.dtype, size: int) -> Iterator[Operator]:
    for m, k, n in GEMMS:
        x, w = values(dtype, m, k), values(dtype, n, k)
        yield ("gemm", f"{m}x{k}x{n}", 2.0 * m * k * n, size * (m * k + k * n + m * n),
               partial(functional.linear, x, w), [x, w])  # fmt: skip


def convolutions(dtype: torch.dtype, size: int) -> Iterator[Operator]:
    for batch, c_in, c_out, kernel, side, stride in CONVOLUTIONS:
        x, w = values(dtype, batch, c_in, side, side), values(dtype, c_out, c_in, kernel, kernel)
        pixels, weights = (side // stride) ** 2, kernel**2 * c_in * c_out
        moved = size * (batch * c_in * side**2 + weights + batch * c_out * pixels)
        forward = partial(functional.conv2d, x, w, stride=stride, padding=kernel // 2)
        name = f"b{batch} {c_in}>{c_out} k{kernel} {side}/{stride}"
        yield "conv", name, 2.0 * batch * weights * pixels, moved, forward, [x, w]


def unfused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.dropout(torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1), 0.1) @ v


def attentions(dtype: torch.dtype, size: int) -> Iterator[Operator]:
    for batch, heads, tokens, width in ATTENTIONS:
        q, k, v = (torch.randn(batch, heads, tokens, width, device="cuda", dtype=dtype, requires_grad=True)
                   for _ in range(3))  # fmt: skip
        flops, moved = 4.0 * batch * heads * tokens**2 * width, 4.0 * size * batch * heads * tokens * width
        scores = SCORE_VALUES * size * batch * heads * tokens**2
        fused = functional.scaled_dot_product_attention
        for how, attend, more in (("unfused", unfused, scores), ("fused", fused, 0.0)):
            name = f"{how} b{batch} h{heads} {tokens} {width}"
            yield "attention", name, flops, moved + more, partial(attend, q, k, v), [q, k, v]


def of_rows(dtype: torch.dtype, size: int) -> Iterator[Operator]:
    for rows, hidden in ROWS:
        x, y, g, b = (values(dtype, *shape) for shape in ((rows, hidden), (rows, hidden), (hidden,), (hidden,)))
        at, moved = f"{rows}x{hidden}", 2.0 * size * rows * hidden
        yield "norm", f"layer {at}", 0.0, moved, partial(functional.layer_norm, x, (hidden,), g, b), [x, g, b]
        yield "elementwise", f"gelu {at}", 0.0, moved, partial(functional.gelu, x), [x]
        yield "elementwise", f"add {at}", 0.0, 1.5 * moved, partial(torch.add, x, y), [x, y]
        yield "elementwise", f"dropout {at}", 0.0, moved, partial(functional.dropout, x, 0.1), [x]
        table, ids = values(dtype, 30522, hidden), torch.randint(0, 30522, (rows,), device="cuda")
        yield "embedding", at, 0.0, moved, partial(functional.embedding, ids, table), [table]


def of_images(dtype: torch.dtype, size: int) -> Iterator[Operator]:
    for batch, channels, side in IMAGES:
        x = values(dtype, batch, channels, side, side)
        g, b = (torch.ones(channels, device="cuda", requires_grad=True) for _ in range(2))
        at, moved = f"b{batch} {channels} {side}", 2.0 * size * x.numel()
        norm = partial(functional.batch_norm, x, None, None, g, b, True)
        yield "norm", f"batch {at}", 0.0, moved, norm, [x, g, b]
        yield "elementwise", f"relu {at}", 0.0, moved, partial(functional.relu, x), [x]
        yield "pool", f"max {at}", 0.0, 0.625 * moved, partial(functional.max_pool2d, x, 3, 2, 1), [x]


def lstms(dtype: torch.dtype, size: int) -> Iterator[Operator]:
    for batch, hidden, steps in ((20, 1500, 35), (80, 1500, 35), (128, 1024, 50)):
        lstm, x = nn.LSTM(hidden, hidden, device="cuda", dtype=dtype), values(dtype, steps, batch, hidden)
        moved = size * (2.0 * steps * batch * hidden + steps * 8 * hidden**2)
        flops = 2.0 * steps * batch * 8 * hidden**2
        yield ("lstm", f"b{batch} {hidden} x{steps}", flops, moved, lambda m=lstm, x=x: m(x)[0],
               [x, *lstm.parameters()])  # fmt: skip


Batch = Callable[[int], tuple[torch.Tensor, torch.Tensor | None]]


def images(side: int) -> Batch:
    """Images and their classes."""
    return lambda b: (torch.randn(b, 3, side, side, device="cuda").to(memory_format=torch.channels_last),
                      torch.randint(0, 1000, (b,), device="cuda"))  # fmt: skip


def tokens(vocabulary: int, length: int, classes: int) -> Batch:
    """Sequences and their classes; 0 classes: a language model."""
    return lambda b: (torch.randint(0, vocabulary, (b, length), device="cuda"),
                      torch.randint(0, classes, (b,), device="cuda") if classes else None)  # fmt: skip


def models() -> Iterator[tuple[str, int, Callable[[], nn.Module], Batch]]:
    """(hetsim's name, batch size, module, inputs of a batch)."""
    import torchvision.models as vision
    import transformers as tf

    inception = partial(vision.inception_v3, aux_logits=False, init_weights=False)
    for name, make, batches, side in (
        ("resnet50", vision.resnet50, (16, 64, 128, 256), 224), ("vgg16", vision.vgg16, (32, 64, 128), 224),
        ("resnet18", vision.resnet18, (64, 256), 224), ("resnet152", vision.resnet152, (32, 64), 224),
        ("alexnet", vision.alexnet, (128, 512), 224), ("densenet121", vision.densenet121, (32, 64), 224),
        ("inception-v3", inception, (32, 64), 299),
    ):  # fmt: skip
        for batch in batches:
            yield name, batch, make, images(side)
    eager = {"attn_implementation": "eager"}
    wide = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    large = tf.BertConfig(**wide, **eager)
    for name, config, batches, length in (
        ("bert-large", large, (4, 8, 16, 32), 128), ("bert-large-512", large, (4, 8), 512),
        ("bert-base", tf.BertConfig(**eager), (8, 32), 128),
    ):  # fmt: skip
        for batch in batches:
            yield name, batch, partial(tf.BertForSequenceClassification, config), tokens(30522, length, 2)
    gpt = tf.GPT2Config(n_embd=1600, n_layer=48, n_head=25, **eager)
    for batch in (1, 2):
        yield "gpt2-1.5b", batch, partial(tf.GPT2LMHeadModel, gpt), tokens(50257, 1024, 0)


def step_s(make: Callable[[], nn.Module], batch: tuple, precision: str) -> float:
    """Median seconds of a training step with Adam."""
    with torch.device("cuda"):
        module = make().train()
    image = batch[0].dim() == 4
    if image:
        module = module.to(memory_format=torch.channels_last)
    adam = torch.optim.Adam(module.parameters(), foreach=True)

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "mixed"):
            if image:
                loss = functional.cross_entropy(module(batch[0]), batch[1])
            else:
                loss = module(batch[0], labels=batch[0] if batch[1] is None else batch[1]).loss
        loss.backward()
        adam.step()

    return median_s(step, repeat=5, at_least_s=0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the two files")
    parser.add_argument("--gpu", required=True, help="name of the GPU type in hetsim's catalogue")
    parser.add_argument("--limit-s", type=float, default=420.0, help="stop beginning new measurements after this")
    parser.add_argument("--precision", choices=PRECISIONS, nargs="+", default=list(PRECISIONS))
    parser.add_argument("--only", choices=("operators", "models"), help="one of the two files")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    torch.backends.cudnn.benchmark = True
    for what, header, rows in (
        ("operators", "gpu,precision,kind,name,flops,bytes,fwd_s,bwd_s,launches", operator_rows),
        ("models", "gpu,precision,model,batch_size,mode,time_s", model_rows),
    ):
        if args.only not in (None, what):
            continue
        with open(args.out / f"{what}.csv", "w", newline="") as f:
            out = csv.writer(f, lineterminator="\n")
            out.writerow(header.split(","))
            for precision in args.precision:
                torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
                for row in rows(precision):
                    out.writerow([args.gpu, precision, *row])
                    f.flush()
                    torch.cuda.empty_cache()
                    if time.monotonic() - began > args.limit_s:
                        break
                print(f"{what}, {precision}: {time.monotonic() - began:.0f} s", flush=True)


def operator_rows(precision: str) -> Iterator[tuple]:
    """Each operator's row; one that fails is named and left out."""
    one = torch.ones(1, device="cuda", dtype=PRECISIONS[precision])
    yield "launch", "add of one value", 0, 0, f"{median_s(partial(torch.add, one, one)):.6g}", "", 1
    for kind, name, flops, moved, forward, leaves in operators(PRECISIONS[precision]):
        try:
            fwd = graphed_s(forward)
            grad = torch.randn_like(forward())
            both = graphed_s(lambda f=forward, g=grad, of=leaves: torch.autograd.grad(f(), of, g))
        except RuntimeError as error:
            print(f"skipped: {kind} {name} {precision}: {error}"[:200], flush=True)
            continue
        yield kind, name, f"{flops:.10g}", f"{moved:.10g}", f"{fwd:.6g}", f"{both - fwd:.6g}", launches(kind, name)


def launches(kind: str, name: str) -> int:
    """Kernels forward: an unfused attention has five, an LSTM one for each step."""
    return 5 if name.startswith("unfused") else int(name.rsplit("x", maxsplit=1)[-1]) if kind == "lstm" else 1


def model_rows(precision: str) -> Iterator[tuple]:
    """Each model's row; one that fails is named and left out."""
    for name, batch, make, inputs in models():
        try:
            yield name, batch, "eager", f"{step_s(make, inputs(batch), precision):.6g}"
        except RuntimeError as error:
            print(f"skipped: {name} {batch} {precision}: {error}"[:200], flush=True)


if __name__ == "__main__":
    main()
