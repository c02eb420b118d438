"""Optimizers, as bytes that training keeps and moves for each parameter.

===================  ==============  =====================================================================
name                 mixed, single   kept beside weight and gradient (mixed precision: and the weight in
                                     single precision, 4 bytes)
===================  ==============  =====================================================================
`adam`               16, 16          two moments (Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1)
`adam-fp32-grads`    18, 16          the same; gradients are kept in single precision (Megatron-LM)
`adam-fp32`          20, 16          the same, and a copy of the gradients in single precision (DeepSpeed)
`adam8bit`           10, 10          two moments of a byte (Dettmers et al. 2022, arXiv:2110.02861)
`sgd-momentum`       12, 12          one moment
`sgd`                8, 8            nothing
`adafactor`          8, 8            next to nothing: sums of rows and columns (Shazeer & Stern 2018,
                                     arXiv:1804.04235), taken for none
a number, as 18      that            all that goes beyond weight and gradient
===================  ==============  =====================================================================

ZeRO 1 divides what is kept beside weight and gradient, copies included; 2 the gradients too, 3 the weights too. A step
reads the gradient, reads and writes what is kept, and writes the weight (in single precision, reads it too). Gradients
are exchanged in the precision of the values, whatever the optimizer keeps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sim.performance.graph import PerformanceError
from traces.errors import did_you_mean

SINGLE = 4
"""Bytes of a value in single precision."""
MOST_BYTES = 64
"""More bytes a parameter than any optimizer keeps."""


@dataclass(frozen=True)
class Optimizer:
    """What training keeps of a parameter, for values of 2 bytes (mixed precision) or 4 (single).

    Attributes
    ----------
    name : as shown.
    moments_bytes : of the optimizer's own values of a parameter.
    wide_gradients : gradients are kept in single precision.
    copied_gradients : the step has a copy of them in single precision.
    """

    name: str
    moments_bytes: float
    wide_gradients: bool = False
    copied_gradients: bool = False

    def gradient_bytes(self, value_bytes: int) -> int:
        """Of a parameter's gradient."""
        return SINGLE if self.wide_gradients else value_bytes

    def state_bytes(self, value_bytes: int) -> float:
        """Of all that is kept beside weight and gradient."""
        return self._copy_bytes(value_bytes) * (1 + self.copied_gradients) + self.moments_bytes

    def param_bytes(self, value_bytes: int) -> float:
        """Of weight, gradient and state."""
        return value_bytes + self.gradient_bytes(value_bytes) + self.state_bytes(value_bytes)

    def saved_bytes(self, value_bytes: int) -> float:
        """Of a checkpoint: weight and state, no gradient."""
        return value_bytes + self._copy_bytes(value_bytes) + self.moments_bytes

    def step_bytes(self, value_bytes: int) -> float:
        """Memory traffic of a step."""
        weight = value_bytes if value_bytes < SINGLE else 2 * value_bytes
        return self.gradient_bytes(value_bytes) + weight + 2 * self.state_bytes(value_bytes)

    @staticmethod
    def _copy_bytes(value_bytes: int) -> int:
        """Of a copy in single precision; where all is in it there is none."""
        return SINGLE if value_bytes < SINGLE else 0


ADAM = Optimizer("adam", 8)
OPTIMIZERS = {one.name: one for one in (
    ADAM, Optimizer("adam-fp32-grads", 8, wide_gradients=True), Optimizer("adam-fp32", 8, copied_gradients=True),
    Optimizer("adam8bit", 2), Optimizer("sgd-momentum", 4), Optimizer("sgd", 0), Optimizer("adafactor", 0),
)}  # fmt: skip


def named_optimizer(text: str, value_bytes: int = 2) -> Optimizer:
    """What a user named: one of `OPTIMIZERS`, or bytes a parameter in all.

    Raises
    ------
    PerformanceError
        Neither, or fewer bytes than weight and gradient take.
    """
    if text in OPTIMIZERS:
        return OPTIMIZERS[text]
    least = 2 * value_bytes
    number = float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII) else None
    if number is None or not least <= number <= MOST_BYTES:
        raise PerformanceError(
            "unknown optimizer" if number is None else "impossible bytes a parameter", where="optimizer", got=text,
            allowed=f"{', '.join(OPTIMIZERS)}, or bytes a parameter in all from {least} (weight and gradient) to "
            f"{MOST_BYTES}", todo=did_you_mean(text, OPTIMIZERS) if number is None else "",
        )  # fmt: skip
    # Weight and gradient take 2 + 2 and the weight's copy 4, or 4 + 4 without one.
    return Optimizer(f"{number:g} bytes a parameter", number - 2 * SINGLE)
