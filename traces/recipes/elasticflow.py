"""ElasticFlow's rule: one of 14 pairs of model and global batch, and a deadline of 0.5 to 1.5 times the duration."""

from __future__ import annotations

import numpy as np

from traces.errors import TraceError
from traces.recipes.recipe import JobType, Recipe, draw, drawn_types, filled, share
from traces.trace import Trace

TYPES: tuple[JobType, ...] = tuple(
    # A gang is at most as large as the batch: each GPU needs a sample.
    JobType(name, zoo, batch, max_gpus=batch)
    for name, zoo, batches in (
        ("resnet50", "resnet50", (64, 128, 256)),
        ("vgg16", "vgg16", (64, 128, 256)),
        ("inception3", "inception-v3", (64, 128)),
        ("gpt2", "", (128, 256)),
        ("bert", "", (64, 128)),
        ("deepspeech2", "", (32, 64)),
    )
    for batch in batches
)


def elasticflow(
    trace: Trace, seed: int, *, names: str = "zoo", overwrite: bool = False, tightest: float = 0.5,
    loosest: float = 1.5, best_effort: float = 0.0,
) -> Trace:
    """Give jobs a model, a batch and a deadline as ElasticFlow's generator does.

    - `model`, `batch_size` (of all GPUs together): one of the pairs of `TYPES` whose batch is at least num_gpus, each
      as likely; a gang of more than 256 GPUs gets none.
    - `deadline_s`: submit_s + floor(λ duration_s), λ uniform in [`tightest`, `loosest`); none for a share
      `best_effort` of the jobs. λ < 1 asks for more GPUs than the job had.

    Iterations are left blank: ElasticFlow's are duration_s × its measured rate at num_gpus, which the simulator has
    (names "table": those of its own tables). Its generator further drops jobs that failed, are shorter than ten
    minutes, wider than 64 GPUs or of 3, 5, 6 or 7 GPUs: filter the trace to have the same. Its published traces were
    drawn without a seed and cannot be made again to the job.

    Raises
    ------
    TraceError
        A setting is not allowed.

    Source: Gu et al., ASPLOS 2023, section 6.1; github.com/pkusys/ElasticFlow, ElasticFlow/trace_generator
    (job_table.py, utils.py, generate_trace_from_itp.py), Apache 2.0.
    """
    if not 0 < tightest <= loosest < np.inf:
        raise TraceError("values not allowed", where="settings 'tightest', 'loosest'", got=(tightest, loosest),
                         allowed="0 < tightest <= loosest")
    columns = drawn_types(TYPES, draw(trace, seed, "elasticflow type"), trace.num_gpus, names)
    factor = tightest + (loosest - tightest) * draw(trace, seed, "elasticflow deadline")
    bound = draw(trace, seed, "elasticflow effort") >= share("best_effort", best_effort)
    columns["deadline_s"] = np.where(bound, trace.submit_s + np.floor(factor * trace.duration_s), np.nan)
    return filled(trace, "elasticflow", seed, columns, overwrite=overwrite)


RECIPE = Recipe(
    name="elasticflow",
    apply=elasticflow,
    source="Gu et al., ASPLOS 2023, section 6.1; https://github.com/pkusys/ElasticFlow",
    fills=("model", "batch_size", "deadline_s"),
    needs="num_gpus, duration_s. Iterations: rates, which the simulator applies",
    settings={
        "tightest": "least ratio of deadline to duration (default: 0.5)",
        "loosest": "largest ratio of deadline to duration (default: 1.5)",
        "best_effort": "share of the jobs without a deadline (default: 0)",
    },
)
