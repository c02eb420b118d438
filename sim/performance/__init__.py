"""How fast a job runs.

Operator graphs, roofline times, pipeline schedules, links, memory, measured tables.
"""

from sim.hardware.gputypes import GpuType
from sim.performance.graph import OperatorGraph, PerformanceError
from sim.performance.iteration import Iteration
from sim.performance.model import Performance
from sim.performance.tables import MeasuredTable
from sim.performance.zoo import MODELS

__all__ = [
    "MODELS",
    "GpuType",
    "Iteration",
    "MeasuredTable",
    "OperatorGraph",
    "Performance",
    "PerformanceError",
]
