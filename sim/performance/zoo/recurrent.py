"""Recurrent models: a language model and translation by GNMT. A block is a layer."""

from __future__ import annotations

from sim.performance.graph import VALUE_BYTES, GraphBuilder, OperatorGraph
from sim.performance.zoo.layers import TOKEN_BYTES, embedding, linear, lstm, softmax_loss


def word_model(name: str, hidden: int, rows: int, vocabulary: int, *, biases: int = 1) -> OperatorGraph:
    """Two LSTM layers between an embedding and a softmax of its own, for a sequence of `rows` words."""
    b = GraphBuilder(name, f"a sequence of {rows} words", TOKEN_BYTES * rows)
    x = embedding(b, "embedding", vocabulary, hidden, rows, split=False)
    for i in range(2):
        b.next_block()
        x = lstm(b, f"lstm{i}", (x,), hidden, hidden, rows, biases=biases)
    b.next_block()
    softmax_loss(b, linear(b, "logits", x, hidden, vocabulary, rows), vocabulary, rows)
    return b.build()


def lstm_lm() -> OperatorGraph:
    """Word language model, 1,500 wide, 35 steps (Zaremba et al. 2014, arXiv:1409.2329, 'large')."""
    return word_model("lstm-lm", 1500, 35, 10000)


def _additive_attention(b: GraphBuilder, query: int, memory: int, hidden: int, rows: int, keys: int) -> int:
    """Attention by a sum through tanh, for all target words at once (Bahdanau et al. 2015, arXiv:1409.0473).

    Query and key of each pair of words are added in memory: written, read and written by tanh, read.
    """
    q = linear(b, "attention.query", query, hidden, hidden, rows, bias=False)
    k = linear(b, "attention.keys", memory, hidden, hidden, keys, bias=False)
    pairs = rows * keys
    return b.add(
        "attention.scores",
        "attention",
        (q, k, memory),
        rows * hidden,
        flops=4.0 * pairs * hidden,
        # Vector, its norm and the bias of the sum.
        params=2 * hidden + 1,
        stored_bytes=VALUE_BYTES * (hidden * (rows + 2 * keys) + pairs * (hidden + 1)),
        inner_bytes=VALUE_BYTES * pairs * (4 * hidden + 3),
        launches=6,
    )


def gnmt(name: str, layers: int, rows: int = 50) -> OperatorGraph:
    """GNMT with `layers` LSTM layers in the encoder and in the decoder, 1,024 wide, for a pair of sentences.

    Wu et al. 2016, arXiv:1609.08144, as trained in MLPerf v0.5 to v0.7: the first encoder layer in both
    directions, additive attention from the first decoder layer to all others, residual connections from the third
    layer on, source and target share a table of 32,320 pieces, the output has its own.

    Parameters
    ----------
    rows : words of the source, and of the target.
    """
    hidden, vocabulary = 1024, 32320
    b = GraphBuilder(name, f"a pair of sentences of {rows} words each", 2 * TOKEN_BYTES * rows)
    x = embedding(b, "source", vocabulary, hidden, rows, split=False)
    b.next_block()
    both = tuple(lstm(b, f"encoder.0.{way}", (x,), hidden, hidden, rows, biases=2) for way in ("left", "right"))
    b.next_block()
    x = lstm(b, "encoder.1", both, 2 * hidden, hidden, rows, biases=2)
    for i in range(2, layers):
        b.next_block()
        y = lstm(b, f"encoder.{i}", (x,), hidden, hidden, rows, biases=2)
        x = b.add(f"encoder.{i}.add", "elementwise", (x, y), rows * hidden)
    b.next_block()
    memory = x
    x = embedding(b, "target", 0, hidden, rows, split=False)
    x = lstm(b, "decoder.0", (x,), hidden, hidden, rows, biases=2)
    context = _additive_attention(b, x, memory, hidden, rows, rows)
    for i in range(1, layers):
        b.next_block()
        y = lstm(b, f"decoder.{i}", (x, context), 2 * hidden, hidden, rows, biases=2)
        x = b.add(f"decoder.{i}.add", "elementwise", (x, y), rows * hidden) if i > 1 else y
    b.next_block()
    softmax_loss(b, linear(b, "logits", x, hidden, vocabulary, rows), vocabulary, rows)
    return b.build()


def gnmt_8() -> OperatorGraph:
    """GNMT with eight LSTM layers, four on each side (Narayanan et al. 2019 call it GNMT-8), 50 words a sentence."""
    return gnmt("gnmt-8", 4)


def gnmt_16() -> OperatorGraph:
    """GNMT with sixteen LSTM layers, eight on each side (Narayanan et al. 2019: GNMT-16), 50 words a sentence."""
    return gnmt("gnmt-16", 8)
