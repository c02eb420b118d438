"""What a row of prices says of money, wherever it stands: files of prices, cluster files, types of one's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from sim.settings.values import Settings, setting

UNKNOWN = "unknown"
"""A price that nobody knows, as files say it."""
Amount = Annotated[float, Field(ge=0, le=1e9)]


def unknown_as_none(value: object) -> object:
    """'unknown' as None, so that nothing else of text is taken for it."""
    return None if value == UNKNOWN else value


class MoneyRow(Settings):
    """What is asked for an hour: the fields of `sim.hardware.gputypes.Price`."""

    kind: str = setting(..., "on-demand, spot or reserved")
    amount_per_h: Amount | None = setting(..., "price of an hour, in `currency`",
                                          allowed=f"a number from 0 to 1,000,000,000, or {UNKNOWN!r}")
    per: str = setting(..., "what the amount is for: gpu or node")
    node_gpus: int = setting(0, "GPUs of the node", unit="GPU", ge=0, le=1024)
    currency: str = setting("USD", "of the amount")
    currency_per_usd: float = setting(0.0, "how many of another currency make a USD; 0: not said", ge=0, le=1e9)
    date: str = setting(..., "when it was asked for", min_length=1)
    source: str = setting(..., "who asks for it", min_length=1)

    _said = field_validator("amount_per_h", mode="before")(unknown_as_none)
