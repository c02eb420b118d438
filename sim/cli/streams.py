"""The standard streams of a command: there from the start, and written out before it says that all is well."""

from __future__ import annotations

import io
import os
import sys

from traces.errors import HetsimError


def opened() -> None:
    """See that there is a stdout and a stderr; messages to a closed stderr are lost, as whoever closed it wants.

    Descriptors that are closed are opened first, or the next file that is written would get one of them, and all that
    is printed with it.

    Raises
    ------
    HetsimError
        Standard output is closed: what is asked for could be shown to nobody.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        raise HetsimError("standard output is closed", todo="Send it to a file, or to /dev/null.")
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):  # unbuffered, Python forgets what a write left
        sys.stdout = open(  # noqa: SIM115
            sys.stdout.fileno(), "w", buffering=1, encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False
        )


def flushed() -> None:
    """Write out what was printed, while it can still be said that this failed.

    Raises
    ------
    BrokenPipeError
        Nobody reads it any more.
    HetsimError
        It cannot be written.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python tries again when it ends
        if isinstance(error, BrokenPipeError):
            raise
        raise HetsimError("standard output cannot be written", got=error.strerror or str(error)) from None
