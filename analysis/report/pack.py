"""Columns as a few bytes: what a page of 400,000 rows holds and a browser unpacks.

A pack is: length of the header (4 bytes, little-endian), the header as JSON (padded so that what follows is aligned),
and the columns one after another, each padded to 8 bytes; all of it deflated, then as base64. Of a number the first
bytes of all rows come first, then the second ones: like bytes lie together and deflate well.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

NULL = -(2**31)
"""Of an int32 column: no value."""
LEVEL = 6
"""Of deflating: the highest one takes seven times as long for 1 % less."""


def numbers(values: np.ndarray, digits: int = 2) -> tuple[dict[str, Any], np.ndarray]:
    """A column of numbers rounded to so many decimals: int32 where they fit (then `scale` of the header), else float64.

    NaN stays: `NULL` as int32. Infinity is float64.
    """
    x = np.asarray(values, dtype=np.float64)
    scale = 10**digits
    scaled = np.round(x * scale)
    known = ~np.isnan(x)
    if (np.abs(scaled[known]) < -NULL).all():
        whole = np.where(known, scaled, NULL).astype("<i4")
        return {"kind": "i4", "scale": scale}, whole
    return {"kind": "f8"}, np.round(x, digits).astype("<f8")


def words(values: Sequence[Any] | np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """A column of texts of which many are equal: the different ones in the header, and a number a row."""
    codes, found = pd.factorize(np.asarray(values, dtype=object), use_na_sentinel=False)
    kind = "u1" if len(found) <= 2**8 else "u2" if len(found) <= 2**16 else "u4"
    return {"kind": kind, "words": ["" if pd.isna(word) else str(word) for word in found]}, codes.astype(f"<{kind}")


def packed(tables: Sequence[Mapping[str, tuple[dict[str, Any], np.ndarray]]], **more: Any) -> str:
    """Tables of columns (as `numbers` and `words` make them) as one text; `more` goes into the header."""
    body, heads, at = [], [], 0
    for table in tables:
        head = {}
        for name, (about, values) in table.items():
            planes = np.ascontiguousarray(values.view(np.uint8).reshape(len(values), values.itemsize).T).tobytes()
            head[name] = about | {"at": at, "rows": len(values)}
            body.append(planes + b"\0" * (-len(planes) % 8))
            at += len(body[-1])
        heads.append(head)
    header = json.dumps(more | {"tables": heads}, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    header += b" " * (-(len(header) + 4) % 8)
    content = len(header).to_bytes(4, "little") + header + b"".join(body)
    return base64.b64encode(zlib.compress(content, LEVEL)).decode("ascii")


def unpacked(text: str) -> dict[str, Any]:
    """The header of a pack, with `values` beside each column's description: what the page does, for tests."""
    content = zlib.decompress(base64.b64decode(text))
    start = int.from_bytes(content[:4], "little") + 4
    header: dict[str, Any] = json.loads(content[4:start])
    for table in header["tables"]:
        for about in table.values():
            kind = np.dtype(f"<{about['kind']}")
            raw = np.frombuffer(content, np.uint8, about["rows"] * kind.itemsize, start + about["at"])
            values = np.ascontiguousarray(raw.reshape(kind.itemsize, about["rows"]).T).view(kind)[:, 0]
            if "words" in about:
                about["values"] = [about["words"][code] for code in values]
            else:
                about["values"] = np.where(values == NULL, np.nan, values / about.get("scale", 1))
    return header
