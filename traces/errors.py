"""Errors that a user can act on, shared by every package (this is the lowest one).

An error says where it happened, what is wrong, what was found, what is allowed, and what to do. The command
line prints it without a traceback and exits with `exit_code`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_GOT = 400
"""Characters of what was found that a message shows: a cell may be a whole file that was pasted."""


class HetsimError(Exception):
    """Base of all errors that the command line shows as a message.

    Parameters
    ----------
    what : str
        What is wrong, as one clause.
    where : str
        File, row, column, setting or simulated time; empty where the message needs none.
    got, allowed, todo : str
        What was found, what would have been right, and what the user can do.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", got: object = None, allowed: str = "", todo: str = "") -> None:
        self.what, self.where, self.got, self.allowed, self.todo = what, where, got, allowed, todo
        text = f"{where}: {what}" if where else what
        if got is not None:
            found = repr(got)
            more = f"… ({len(found):,} characters)" if len(found) > LONGEST_GOT else ""
            text += f"; got {found[:LONGEST_GOT]}{more}"
        if allowed:
            text += f"; allowed: {allowed}"
        if todo:
            text += f". {todo}"
        super().__init__(text)


class TraceError(HetsimError):
    """A trace file, or a trace made in memory, that cannot be used as it is."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return "did you mean 'x'?" for the nearest option, or an empty string where none is near."""
    near = get_close_matches(name, list(options), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""
