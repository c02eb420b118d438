"""Chronus' rule: one of five models, deadlines of a little more than the duration, a share of best-effort jobs."""

from __future__ import annotations

import numpy as np

from traces.assign import uniforms
from traces.recipes.recipe import JobType, Recipe, draw, drawn_types, filled, share
from traces.trace import Trace

TYPES = (
    JobType("alexnet", "alexnet", 0),
    JobType("inception_v3", "inception-v3", 0),
    JobType("mobilenet_v2", "", 0),
    JobType("resnet101", "", 0),
    JobType("vgg16", "vgg16", 0),
)
FACTOR = (1.1, 2.0)
SLACK_S = 3600.0
LONGEST_S = 5_100 * 60.0
"""No published job has more time than that, from submission to deadline."""
DRAWS = 100


def chronus(
    trace: Trace, seed: int, *, names: str = "zoo", overwrite: bool = False, best_effort: float = 0.0
) -> Trace:
    """Give jobs a model and a deadline as in Chronus' traces.

    - `model`: one of `TYPES`, each as likely. Batches are not published: `batch_size` stays 0 (Chronus scales speed by
      placement alone).
    - `deadline_s`: submit_s + a duration_s + b, in whole minutes, a uniform in [1.1, 2), b uniform in [0, 60) minutes,
      drawn again while that is more than 5,100 minutes (a job too long for any draw has 1.1 durations); none for a
      share `best_effort` of the jobs: 0 in its trace "SLO", 0.3 in "MIX1", 0.1 in "MIX2". (In MIX2 60 % have soft
      deadlines, a list of later times that are worth less; the first of them is drawn like the others.)

    The generator is not published. The rule of the deadline is ours, told from the published traces: it holds their
    extremes (a job of 20 minutes has 3 to 80 more, one of 40 has 5 to 99; none has more than 5,092 in all) and the
    distribution of time over duration, of long jobs too. The traces have no job under 20 minutes.

    Raises
    ------
    TraceError
        A setting is not allowed.

    Source: Gao et al., SoCC 2021; github.com/S-Lab-System-Group/ChronusArtifact, code/data/exp, MIT licence.
    """
    columns = drawn_types(TYPES, draw(trace, seed, "chronus type"), trace.num_gpus, names)
    bound = draw(trace, seed, "chronus effort") >= share("best_effort", best_effort)
    columns["deadline_s"] = np.where(bound, trace.submit_s + _allowed_s(trace, seed), np.nan)
    return filled(trace, "chronus", seed, columns, overwrite=overwrite)


def _allowed_s(trace: Trace, seed: int) -> np.ndarray:
    """From submission to deadline, s."""
    allowed_s = FACTOR[0] * trace.duration_s
    rows = np.flatnonzero(allowed_s <= LONGEST_S)
    for again in range(DRAWS):
        one, two = (uniforms(trace.job_id[rows], seed, f"chronus {what} {again}")[:, 0] for what in ("factor", "slack"))
        drawn_s = (FACTOR[0] + (FACTOR[1] - FACTOR[0]) * one) * trace.duration_s[rows] + SLACK_S * two
        fits = drawn_s <= LONGEST_S
        allowed_s[rows[fits]] = drawn_s[fits] // 60.0 * 60.0
        rows = rows[~fits]
        if len(rows) == 0:
            break
    return allowed_s


RECIPE = Recipe(
    name="chronus",
    apply=chronus,
    source="Gao et al., SoCC 2021; https://github.com/S-Lab-System-Group/ChronusArtifact (the traces)",
    fills=("model", "deadline_s"),
    needs="duration_s",
    settings={"best_effort": "share of the jobs without a deadline (default: 0; MIX1: 0.3, MIX2: 0.1)"},
)
