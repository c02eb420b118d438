"""The Gantt chart of a run: who held which GPU when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from analysis.figures.overtime import clock
from analysis.figures.style import WIDTH_IN, new_figure, style, time_unit
from analysis.run import Run, RunError, explode

PALETTE = ("#56B4E9", "#E69F00", "#7FC8A9", "#CC79A7", "#F0E442", "#8FA8D6", "#E8916A", "#BDBDBD")
"""Tints on which black text is legible."""
MAX_GANTT_BARS = 20_000
MAX_VECTOR_BARS = 2_000
"""More bars are a picture within a PDF: as shapes they would make it large."""
MAX_GPU_ROWS = 64
NICE_STEPS = (1, 2, 4, 5, 10, 20, 25, 50, *(100 * 2**k for k in range(20)))
"""Between GPUs or nodes that are numbered at the axis."""


def bars_of(run: Run) -> int:
    """Bars that a Gantt chart of all of the run has: one a segment and GPU."""
    return int(explode(run.tables["segments"]["gpu_ids"])[0].size)


def gantt(run: Run, width_in: float = WIDTH_IN) -> Figure:
    """Draw who held what: a line a GPU (shares stacked in it), a colour a job, restart overheads hatched.

    Nodes that are down are dark. Of eight colours neighbours have different ones (`tints`); names stand where there is
    room for them. The axis counts GPUs if there are at most 64, else nodes. A part of a run is drawn by a measuring
    window (`analysis.measuring_window.windowed`).

    Raises
    ------
    RunError
        The run has no length, or more than 20,000 stretches.
    """
    low, high = run.window_s
    if not high > low:
        raise RunError("a Gantt chart of a run without length", where=str(run.path), got=f"{low:g} to {high:g} s",
                       allowed="an end after the begin")
    gpus = int(run.column("nodes", "gpus").sum())
    with style(width_in):
        figure, (axes,) = new_figure(height_in=float(np.clip(0.9 + 0.2 * gpus, 1.6, 6.0)))
        size, unit = time_unit(high - low)
        _bars(axes, run, (low, size))
        _outages(axes, run, (low, size))
        _label(axes, run, gpus)
        axes.set(xlim=(0.0, (high - low) / size), ylim=(gpus, 0))
        axes.set_xlabel(clock([run], unit))
        axes.grid(axis="y", visible=False)
    return figure


def _bars(axes: Axes, run: Run, clock: tuple[float, float]) -> None:
    """The stretches of the run; adjoining GPUs of one stretch are one bar."""
    segment, gpu = explode(run.tables["segments"]["gpu_ids"])
    begin, end = run.column("segments", "begin_s"), run.column("segments", "end_s")
    order = np.lexsort((gpu, segment, begin[segment]))
    order = order[(end > begin)[segment[order]]]
    if len(order) > MAX_GANTT_BARS:
        raise RunError(
            "too many stretches for a Gantt chart",
            where=str(run.path),
            got=len(order),
            allowed=f"up to {MAX_GANTT_BARS:,}",
            todo="Take a window: --from, --to.",
        )
    milli, overhead = run.column("segments", "gpu_milli"), run.column("segments", "overhead_s")
    owner = run.column("nodes", "first_gpu").searchsorted(gpu, side="right")
    lanes: dict[int, list[tuple[float, float, float]]] = {}
    boxes: list[list[float]] = []
    of: list[int] = []
    for i in order.tolist():
        s, g, height = int(segment[i]), int(gpu[i]), milli[segment[i]] / 1000.0
        top = g + _lane(lanes.setdefault(g, []), float(begin[s]), float(end[s]), height)
        joins = of and of[-1] == s and height == 1.0 and boxes[-1][1] == g and owner[i] == owner[i - 1]
        if joins:
            boxes[-1][1] = g + 1.0
        else:
            boxes.append([top, top + height])
            of.append(s)
    box, seg = np.array(boxes).reshape(-1, 2), np.array(of, dtype=np.int64)
    x0, x1 = (begin[seg] - clock[0]) / clock[1], (end[seg] - clock[0]) / clock[1]
    paid = np.minimum(x1, x0 + overhead[seg] / clock[1])
    job = run.segment_job[seg]
    tint = tints(begin[seg], end[seg], box, job)
    colours = [PALETTE[tint[j]] for j in job.tolist()]
    thin = 0.5 if len(box) < 500 else 0.1
    _draw(axes, x0, x1, box, facecolors=colours, edgecolors="white", linewidths=thin,
          rasterized=len(box) > MAX_VECTOR_BARS)
    late = paid > x0
    _draw(
        axes,
        x0[late],
        paid[late],
        box[late],
        facecolors="none",
        edgecolors="#333333",
        linewidths=0.0,
        hatch="/////",
    )
    _names(axes, run, job, box, x0, x1, (run.window_s[1] - run.window_s[0]) / clock[1])


def tints(begin: np.ndarray, end: np.ndarray, box: np.ndarray, job: np.ndarray) -> dict[int, int]:
    """Number of the colour of each job: another one than its neighbours', the one least used of those that are left.

    Neighbours share a border: of time (one follows the other on a GPU, however late) or of GPUs (they ran at the same
    time). Jobs come in order of begin. One with neighbours of all colours takes that of the fewest.
    """
    near: dict[int, Counter[int]] = {int(j): Counter() for j in job}
    for one, other in (*_followers(box), *_beside(begin, end, box)):
        if job[one] != job[other]:
            near[int(job[one])][int(job[other])] += 1
            near[int(job[other])][int(job[one])] += 1
    tint: dict[int, int] = {}
    used = [0] * len(PALETTE)
    for j, others in near.items():
        taken = [0] * len(PALETTE)
        for other, times in others.items():
            if other in tint:
                taken[tint[other]] += times
        tint[j] = min(range(len(PALETTE)), key=lambda k: (taken[k], used[k], k))
        used[tint[j]] += 1
    return tint


def _followers(box: np.ndarray) -> Iterator[tuple[int, int]]:
    """Pairs of bars, given in order of begin, of which one is the next on a GPU after the other."""
    last: dict[int, list[int]] = {}
    for i, (top, bottom) in enumerate(box.tolist()):
        for gpu in range(int(top), math.ceil(bottom)):
            before = last.setdefault(gpu, [])
            yield from ((k, i) for k in before if box[k, 0] < bottom and box[k, 1] > top)
            before[:] = [k for k in before if not (box[k, 0] >= top and box[k, 1] <= bottom)] + [i]


def _beside(begin: np.ndarray, end: np.ndarray, box: np.ndarray) -> Iterator[tuple[int, int]]:
    """Pairs of bars at the same time of which one lies directly above the other; bars are given in order of begin."""
    edges = np.round(box * 1000).astype(np.int64)  # shares of a GPU are of thousandths
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for i, (top, bottom) in enumerate(edges.tolist()):
        for side, edge in ((above, top), (below, bottom)):
            there = side.setdefault(edge, [])
            there[:] = [k for k in there if end[k] > begin[i]]
            yield from ((k, i) for k in there)
        above.setdefault(bottom, []).append(i)
        below.setdefault(top, []).append(i)


def _lane(taken: list[tuple[float, float, float]], begin: float, end: float, height: float) -> float:
    """Lowest place within a GPU, from 0 to 1, that is free at `begin`; bars come in order of begin."""
    taken[:] = [bar for bar in taken if bar[0] > begin]
    place = 0.0
    for _, low, high in sorted(taken, key=lambda bar: bar[1]):
        if place + height <= low + 1e-9:
            break
        place = max(place, high)
    place = min(place, 1.0 - height)
    taken.append((end, place, place + height))
    return place


def _draw(axes: Axes, x0: np.ndarray, x1: np.ndarray, box: np.ndarray, **look: Any) -> None:
    """Rectangles, as one collection."""
    corners: Any = np.stack([x0, box[:, 0], x1, box[:, 0], x1, box[:, 1], x0, box[:, 1]], axis=-1).reshape(
        -1, 4, 2
    )
    axes.add_collection(PolyCollection(corners, **look))


def _names(
    axes: Axes, run: Run, job: np.ndarray, box: np.ndarray, x0: np.ndarray, x1: np.ndarray, width: float
) -> None:
    """Job ids in the bars that are large enough (14 characters fit into an inch, a line takes 0.11 in)."""
    width_in, height_in = axes.get_figure().get_size_inches()  # type: ignore[union-attr]
    gpus, height_in, across = float(run.column("nodes", "gpus").sum()), height_in - 0.6, 14 * (width_in - 0.8)
    ids = run.tables["jobs"]["job_id"]
    for j, (top, bottom), left, right in zip(
        job.tolist(), box.tolist(), x0.tolist(), x1.tolist(), strict=True
    ):
        text = str(ids[j].as_py())
        if (right - left) / width * across > len(text) + 1 and (bottom - top) / gpus * height_in > 0.11:
            axes.text(
                (left + right) / 2,
                (top + bottom) / 2,
                text,
                ha="center",
                va="center",
                fontsize=6,
                clip_on=True,
            )


def _outages(axes: Axes, run: Run, clock: tuple[float, float]) -> None:
    """Dark boxes over nodes that are down, and GPUs that are out."""
    first, gpus = run.column("nodes", "first_gpu"), run.column("nodes", "gpus")
    for node, down, up in run.outages.itertuples(index=False):
        x0, x1 = (down - clock[0]) / clock[1], (min(up, run.window_s[1]) - clock[0]) / clock[1]
        axes.fill_between([x0, x1], first[node], first[node] + gpus[node], color="#555555", linewidth=0)
    for _, gpu, down, up in run.gpus_out.itertuples(index=False):
        x0, x1 = (down - clock[0]) / clock[1], (min(up, run.window_s[1]) - clock[0]) / clock[1]
        axes.fill_between([x0, x1], gpu, gpu + 1, color="#555555", linewidth=0)


def _label(axes: Axes, run: Run, gpus: int) -> None:
    """Ticks at GPUs or nodes, lines between nodes, GPU types at the right."""
    by_node = gpus > MAX_GPU_ROWS
    first, count = run.column("nodes", "first_gpu"), run.column("nodes", "gpus")
    if len(first) <= 100:
        axes.hlines(first[1:], 0, 1, transform=axes.get_yaxis_transform(), color="#888888", linewidth=0.4)
    numbers, places = (
        (np.arange(len(first)), first + count / 2) if by_node else (np.arange(gpus), np.arange(gpus) + 0.5)
    )
    step = next(step for step in NICE_STEPS if step * 24 >= len(numbers))
    axes.set_yticks(places[::step], [str(n) for n in numbers[::step]])
    axes.set_ylabel("node" if by_node else "GPU")
    change = np.flatnonzero(np.diff(run.node_type)) + 1
    groups = np.split(np.arange(len(first)), change)
    if len(groups) > 60:
        return
    for run_of in groups:
        middle = (first[run_of[0]] + first[run_of[-1]] + count[run_of[-1]]) / 2
        axes.annotate(
            run.types[run.node_type[run_of[0]]],
            (1.01, middle),
            xycoords=("axes fraction", "data"),
            fontsize=7 if len(groups) <= 24 else 5,
            va="center",
            annotation_clip=False,
        )
