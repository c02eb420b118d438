"""What `--speed-belief` may be: the words of a belief of speeds, read as far as they are only words and numbers."""

from __future__ import annotations

from traces.columns import MAX_TIME_S

NAMED = ("table", "calibration")
"""Beliefs that name something."""
KINDS = ("exact", "noisy", *NAMED, "completed", "profiled")
ALLOWED = (
    "exact, noisy:MRE with MRE a number from 0 to 10, table:FILE, calibration:NAME_OR_FILE, completed:K with K types "
    "from 1 to 64, profiled:SECONDS or profiled:SECONDS:CV with CV from 0 to 10"
)


def is_belief(kind: str) -> bool:
    """Whether it has the form of a belief; what it names is looked for later."""
    head, _, what = kind.partition(":")
    try:
        if head == "noisy":
            return 0 <= float(what) <= 10
        if head == "completed":
            return what.isascii() and what.isdigit() and 1 <= int(what) <= 64
        if head == "profiled":
            seconds, mark, spread = what.partition(":")
            return 0 <= float(seconds) <= MAX_TIME_S and (not mark or 0 <= float(spread) <= 10)
    except ValueError:
        return False
    return kind == "exact" or (head in NAMED and what != "")
