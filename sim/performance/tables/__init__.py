"""Measured rates: one table type, and readers of the files in which people published theirs, or wrote their own."""

from sim.performance.tables.gaps import GAPS, SOURCES
from sim.performance.tables.load import load_table
from sim.performance.tables.points import ANY_PLACEMENT, SPREAD, Measurement, Point
from sim.performance.tables.table import MeasuredTable, Rate

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
