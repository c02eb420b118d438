"""Figures, a subject a file. The doors are `analysis.figures` and, of sweeps, `sweepfigure`."""
