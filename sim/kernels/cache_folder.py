"""Where what was worked out once is kept for later processes, and of which code it is: no stale answer is ever read.

`HETSIM_CACHE_DIR` names the folder, else `XDG_CACHE_HOME`, else it is `~/.cache`; all is in its folder `hetsim`.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path


def cache_root() -> Path:
    """The folder, there or not.

    Raises
    ------
    RuntimeError
        Nobody says where the user's home is.
    """
    root = os.environ.get("HETSIM_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "hetsim"


@cache
def code_hash() -> str:
    """SHA-256 (first 16 digits) of our own sources: says whether two runs had the same code."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parents[2]
    for package in ("sim", "policies", "traces"):
        for source in sorted((root / package).rglob("*.py")) + sorted((root / package).rglob("*.toml")):
            digest.update(source.relative_to(root).as_posix().encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]
