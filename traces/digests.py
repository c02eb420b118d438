"""Hashes of names, of which draws are made that hang neither on the order of rows nor on other jobs."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def digests(names: Iterable[str], key: bytes, size: int) -> bytes:
    """Digests of `size` bytes of each name in UTF-8, one after another: BLAKE2b (RFC 7693) with a key of up to 64.

    The key fills a block of its own, the same for all names: it is hashed once.

    Examples
    --------
    >>> digests(["a", "b"], b"key", 16)[16:] == blake2b(b"b", digest_size=16, key=b"key").digest()
    True
    """
    keyed, found = blake2b(digest_size=size, key=key), []
    for name in names:
        one = keyed.copy()
        one.update(name.encode("utf-8", "surrogatepass"))
        found.append(one.digest())
    return b"".join(found)
