"""Where the program starts (`hetsim`, `python -m sim`): first see that our packages are ours, then run the command.

The import packages have short names (`sim`, `policies`, `traces`, `analysis`). A folder or a distribution of one of
those names that comes first on the path would be imported instead and fail in odd ways; so it is named here. This file
imports nothing of ours.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("policies", "traces", "analysis")
COLLECT_AFTER = 250_000
"""New objects after which Python looks for garbage in rings. At its own 700 that is a tenth of a small run, as what is
imported makes nearly two hundred thousand objects that stay; so many more take some MiB."""
ONE_THREAD = "OPENBLAS_NUM_THREADS"
"""Our matrices have some dozen rows: threads that wait for each other over them took eight times as long as one."""

NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
"""Pydantic looks for plugins through what is said of each installed package, at every start; we have none."""


def strangers() -> list[str]:
    """One line for each of our packages that Python would take from elsewhere, or does not find."""
    home = Path(__file__).resolve().parents[1]
    found = []
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            where = next(iter(spec.submodule_search_locations or []), "nowhere") if spec else "nowhere"
            found.append(f"package {name!r} comes from {where}; it should come from {home / name}")
        elif Path(spec.origin).resolve() != home / name / "__init__.py":
            found.append(f"package {name!r} comes from {Path(spec.origin).parent}; it should come from {home / name}")
    return found


def main() -> None:
    """Check, then run the command line; an interrupt before it can say so itself is no traceback either."""
    try:
        _run()
    except KeyboardInterrupt:
        print("hetsim: interrupted, nothing is half written", file=sys.stderr)
        sys.exit(130)


def _run() -> None:
    found = strangers()
    if found:
        print("hetsim: another package hides one of ours:", *found, sep="\n  ", file=sys.stderr)
        print("Take it off the path (PYTHONPATH, the present folder), or use a new environment.", file=sys.stderr)
        sys.exit(2)
    os.environ.setdefault(ONE_THREAD, "1")  # before NumPy is imported
    os.environ.setdefault(NO_PLUGINS, "__all__")
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    # As Python ends it looks for garbage in rings once more, through all that the system takes back anyway: a sixth of
    # a small run. What must be done at the end hangs on `with` and `atexit`, on no ring.
    atexit.register(gc.freeze)
    from sim.cli import main as run

    _leave_cleanly()
    run()


def _leave_cleanly() -> None:
    """Told to end, leave as from an interrupt: what was begun is taken back. (Ignored signals stay ignored.)"""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda received, _: sys.exit(128 + received))


if __name__ == "__main__":
    main()
