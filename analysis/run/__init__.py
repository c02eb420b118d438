"""One run, loaded from its folder: five tables, the settings, the timing. All of `analysis` starts here."""

from analysis.run.loading import load_run
from analysis.run.one_run import FINISHED, TURNED_AWAY, Held, Run, RunError, cut_at, explode, labels, wishes

__all__ = ["FINISHED", "TURNED_AWAY", "Held", "Run", "RunError", "cut_at", "explode", "labels", "load_run", "wishes"]
