"""Transformers: GPT, BERT, Llama, Mixtral, and the translation model that they come from. A block is a layer."""

from __future__ import annotations

from sim.performance.graph import VALUE_BYTES, GraphBuilder, OperatorGraph
from sim.performance.zoo.layers import (
    TOKEN_BYTES,
    attention,
    embedding,
    feed_forward,
    layer_norm,
    linear,
    softmax_loss,
)


def _tokens(name: str, rows: int, heads: int) -> GraphBuilder:
    return GraphBuilder(name, f"a sequence of {rows:,} tokens", TOKEN_BYTES * rows, heads)


def _logits(
    b: GraphBuilder, x: int, hidden: int, vocabulary: int, rows: int, tied: tuple[int, ...] = ()
) -> None:  # fmt: skip
    """Scores of all words and their loss, both split over the vocabulary; `tied` to the table of these embeddings."""
    b.next_block()
    x = linear(b, "logits", x, hidden, vocabulary, rows, tied=bool(tied), bias=False, split="column")
    if tied:
        b.tie((*tied, x), vocabulary * hidden)
    softmax_loss(b, x, vocabulary, rows, split=True)


def gpt(
    layers: int,
    hidden: int,
    heads: int,
    tokens: int,
    vocabulary: int,
    *,
    name: str = "gpt",
    fused: bool = False,
    positions: int = 0,
) -> OperatorGraph:
    """A GPT of given size (Radford et al. 2019; Brown et al. 2020, arXiv:2005.14165), for one sequence.

    Parameters: `12 layers hidden² + 13 layers hidden + (vocabulary + positions) hidden + 2 hidden`; FLOP forward:
    `24 tokens layers hidden² + 4 tokens² layers hidden + 2 tokens hidden vocabulary`. Output and input embeddings
    are tied.

    Parameters
    ----------
    tokens : length of a sequence.
    positions : that are learned; 0: as many as tokens.
    fused : attention without scores in memory (`sim.performance.zoo.layers.attention`).
    """
    b = _tokens(name, tokens, heads)
    x = words = embedding(b, "embeddings", vocabulary + (positions or tokens), hidden, tokens)
    b.next_block()
    y = layer_norm(b, "0.norm1", (x,), hidden, tokens)
    for i in range(layers):
        # A normalisation also makes the residual sum x. A border after it sends only x: one tensor.
        if i:
            b.next_block()
        y = attention(b, f"{i}.attention", y, hidden, heads, tokens, fused=fused)
        x = y = layer_norm(b, f"{i}.norm2", (x, y), hidden, tokens)
        y = feed_forward(b, f"{i}", y, hidden, 4 * hidden, tokens)
        last = i == layers - 1
        x = y = layer_norm(b, "final_norm" if last else f"{i + 1}.norm1", (x, y), hidden, tokens)
    _logits(b, x, hidden, vocabulary, tokens, (words,))
    return b.build()


def gpt2_15b() -> OperatorGraph:
    """GPT-2 of 1.5 billion parameters (Radford et al. 2019) on 1,024 tokens."""
    return gpt(48, 1600, 25, 1024, 50257, name="gpt2-1.5b")


def gpt3_67b() -> OperatorGraph:
    """GPT-3 of 6.7 billion parameters (Brown et al. 2020, table 2.1), dense attention, on 2,048 tokens."""
    return gpt(32, 4096, 32, 2048, 50257, name="gpt3-6.7b")


def gpt3_13b() -> OperatorGraph:
    """GPT-3 of 13 billion parameters on 2,048 tokens.

    Brown et al. 2020, table 2.1, whose width of 5,140 is not 40 heads of 128: taken as 5,120, which gives table
    D.1's 12,850 million parameters.
    """
    return gpt(40, 5120, 40, 2048, 50257, name="gpt3-13b")


def bert(layers: int, hidden: int, heads: int, tokens: int, *, name: str = "bert", classes: int = 2) -> OperatorGraph:
    """BERT fine-tuned as a classifier (Devlin et al. 2019, arXiv:1810.04805), uncased vocabulary, for one sequence.

    Pooler and classifier are repeated under tensor parallelism.
    """
    vocabulary, positions, segments = 30522, 512, 2
    b = _tokens(name, tokens, heads)
    # Words, positions and segments are looked up and added.
    x = embedding(b, "embeddings", vocabulary + positions + segments, hidden, tokens)
    x = layer_norm(b, "embeddings.norm", (x,), hidden, tokens)
    for i in range(layers):
        b.next_block()
        y = attention(b, f"{i}.attention", x, hidden, heads, tokens)
        x = layer_norm(b, f"{i}.norm1", (x, y), hidden, tokens)
        y = feed_forward(b, f"{i}", x, hidden, 4 * hidden, tokens)
        x = layer_norm(b, f"{i}.norm2", (x, y), hidden, tokens)
    b.next_block()
    x = linear(b, "pooler", x, hidden, hidden)
    softmax_loss(b, linear(b, "classifier", x, hidden, classes), classes)
    return b.build()


def bert_base(tokens: int = 128, name: str = "bert-base") -> OperatorGraph:
    """BERT-base: 12 layers, 768 wide."""
    return bert(12, 768, 12, tokens, name=name)


def bert_large(tokens: int = 128, name: str = "bert-large") -> OperatorGraph:
    """BERT-large: 24 layers, 1,024 wide."""
    return bert(24, 1024, 16, tokens, name=name)


def gated_decoder(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    inner: int,
    tokens: int,
    *,
    groups: int,
    experts: int = 1,
    chosen: int = 1,
    vocabulary: int = 32000,
) -> OperatorGraph:
    """Llama's decoder: RMS norms, rotary positions, gated activation, no biases, fused attention.

    With `experts`, a router gives each token to `chosen` of them, evenly. All experts' weights are there; only
    what is chosen is computed, in one grouped launch.
    """
    b = _tokens(name, tokens, groups)
    x = embedding(b, "embeddings", vocabulary, hidden, tokens)
    b.next_block()
    y = layer_norm(b, "0.norm1", (x,), hidden, tokens, rms=True)
    for i in range(layers):
        if i:
            b.next_block()
        y = attention(b, f"{i}.attention", y, hidden, heads, tokens, groups=groups, bias=False, fused=True, rotary=True)
        x = y = layer_norm(b, f"{i}.norm2", (x, y), hidden, tokens, rms=True)
        if experts > 1:
            y = _routed(b, f"{i}", y, hidden, inner, tokens, experts, chosen)
        else:
            y = feed_forward(b, f"{i}", y, hidden, inner, tokens, gated=True, bias=False)
        after = "final_norm" if i == layers - 1 else f"{i + 1}.norm1"
        x = y = layer_norm(b, after, (x, y), hidden, tokens, rms=True)
    _logits(b, x, hidden, vocabulary, tokens)
    return b.build()


def _routed(b: GraphBuilder, at: str, x: int, hidden: int, inner: int, tokens: int, experts: int, chosen: int) -> int:
    """Experts: a router scores them, tokens are copied to those chosen, their outputs are weighted and summed."""
    rows = tokens * chosen
    router = linear(b, f"{at}.router", x, hidden, experts, tokens, bias=False)
    y = b.add(f"{at}.dispatch", "elementwise", (x, router), rows * hidden, stored_bytes=TOKEN_BYTES * rows)
    y = feed_forward(b, f"{at}.experts", y, hidden, inner, rows, gated=True, bias=False, experts=experts)
    stored = VALUE_BYTES * rows * hidden
    return b.add(f"{at}.combine", "elementwise", (y, router), tokens * hidden, stored_bytes=stored)


def llama_7b() -> OperatorGraph:
    """Llama 2 of 7 billion parameters (Touvron et al. 2023, arXiv:2307.09288), on 4,096 tokens."""
    return gated_decoder("llama-7b", 32, 4096, 32, 11008, 4096, groups=32)


def mixtral_8x7b() -> OperatorGraph:
    """Mixtral 8x7B (Jiang et al. 2024, arXiv:2401.04088): two of eight experts a token, on 4,096 tokens.

    Routing is taken as even; its auxiliary loss is not counted.
    """
    return gated_decoder("mixtral-8x7b", 32, 4096, 32, 14336, 4096, groups=8, experts=8, chosen=2)


def translator(
    name: str,
    hidden: int,
    heads: int,
    rows: int,
    source_vocabulary: int,
    target_vocabulary: int = 0,
    *,
    layers: int = 6,
) -> OperatorGraph:
    """Encoder and decoder of the Transformer (Vaswani et al. 2017, arXiv:1706.03762), for one pair of sentences.

    Parameters
    ----------
    rows : tokens of the source, and of the target.
    target_vocabulary : 0: one table serves source, target and output; else the target's table serves the output.
    """
    sample = f"a pair of sentences of {rows} tokens each"
    b = GraphBuilder(name, sample, 2 * TOKEN_BYTES * rows, heads)
    x = source = embedding(b, "source", source_vocabulary, hidden, rows)
    for i in range(layers):
        at = f"encoder.{i}"
        b.next_block()
        y = attention(b, f"{at}.attention", x, hidden, heads, rows)
        x = layer_norm(b, f"{at}.norm1", (x, y), hidden, rows)
        x = layer_norm(b, f"{at}.norm2", (x, feed_forward(b, at, x, hidden, 4 * hidden, rows)), hidden, rows)
    b.next_block()
    memory, x = x, embedding(b, "target", target_vocabulary, hidden, rows)
    target = x
    for i in range(layers):
        at = f"decoder.{i}"
        b.next_block()
        x = layer_norm(b, f"{at}.norm1", (x, attention(b, f"{at}.self", x, hidden, heads, rows)), hidden, rows)
        y = attention(b, f"{at}.cross", x, hidden, heads, rows, memory=memory, keys=rows)
        x = layer_norm(b, f"{at}.norm2", (x, y), hidden, rows)
        x = layer_norm(b, f"{at}.norm3", (x, feed_forward(b, at, x, hidden, 4 * hidden, rows)), hidden, rows)
    users = (target,) if target_vocabulary else (source, target)
    _logits(b, x, hidden, target_vocabulary or source_vocabulary, rows, users)
    return b.build()


def transformer() -> OperatorGraph:
    """Transformer base: 512 wide, English and German in 37,000 pieces, 64 source and 64 target tokens."""
    return translator("transformer", 512, 8, 64, 37000)


def transformer_big() -> OperatorGraph:
    """Transformer big: 1,024 wide, English and German in 37,000 pieces, 64 source and 64 target tokens."""
    return translator("transformer-big", 1024, 16, 64, 37000)
