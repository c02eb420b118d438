"""Partition and select: for one job, the pipeline stages of its model, and the GPU type and count of each.

The search is exact over the plans that it admits; what these are, and the form of the time, stand in
`policies.recommend.request.partition_problem` and `sim.kernels.partition`.
"""

from __future__ import annotations

from collections.abc import Sequence

from policies.recommend.request.objective import OBJECTIVES, ranked
from policies.recommend.request.recommend_error import RecommendError
from policies.recommend.request.request import Recommendation
from policies.recommend.searching.planner import Planner
from sim.performance import GpuType, Performance

__all__ = ["OBJECTIVES", "Planner", "RecommendError", "Recommendation", "front", "ranked", "recommend"]


def recommend(
    performance: Performance, model: str, batch_size: int, types: Sequence[GpuType], counts: Sequence[int],
    max_gpus: int, objective: str = "time", within: float | None = None, single_type: bool = False,
) -> Recommendation:
    """Recommend one plan. A `Planner` does the same and remembers what it worked out.

    Parameters
    ----------
    performance : what is believed about speed and memory.
    model, batch_size : the job: a model of the zoo, samples an iteration.
    types, counts : GPU types and how many GPUs there are of each.
    max_gpus : GPUs that the plan may use in all.
    objective : 'time': least time of an iteration; 'cost': least cost of one.
    within : with 'cost': only plans at most this many times slower than the fastest.
    single_type : one GPU type for the whole job.

    Raises
    ------
    RecommendError
        Nothing fits (with the memory needed and there), a type of unknown memory, or no plan of known cost.

    Examples
    --------
    Four V100 and four P100 for GPT-2: five stages, in the order of the model.

    >>> from sim.hardware.gputypes import gpu_type
    >>> types = [gpu_type("V100"), gpu_type("P100")]
    >>> found = recommend(Performance(), "gpt2-1.5b", 64, types, counts=(4, 4), max_gpus=8)
    >>> [(stage.gpu_type, stage.gpus) for stage in found.plan.stages]
    [('P100', 2), ('P100', 2), ('V100', 1), ('V100', 1), ('V100', 2)]
    """
    return Planner(performance, types, counts).best(
        model, batch_size, max_gpus, objective, within, single_type=single_type
    )


def front(
    performance: Performance, model: str, batch_size: int, types: Sequence[GpuType], counts: Sequence[int],
    max_gpus: int, single_type: bool = False,
) -> list[Recommendation]:
    """All plans that no other one equals in time on as few GPUs of each type, fastest first."""
    planner = Planner(performance, types, counts)
    return list(planner.front(model, batch_size, max_gpus, single_type=single_type))
