"""Measured rates: one table type, and readers of the files in which people published theirs, or wrote their own."""

from sim.performance.tables.any_table import load_table
from sim.performance.tables.gaps import GAPS, SOURCES
from sim.performance.tables.measured_table import MeasuredTable, Rate
from sim.performance.tables.points import ANY_PLACEMENT, SPREAD, Measurement, Point

__all__ = [
    "ANY_PLACEMENT",
    "GAPS",
    "SOURCES",
    "SPREAD",
    "MeasuredTable",
    "Measurement",
    "Point",
    "Rate",
    "load_table",
]
