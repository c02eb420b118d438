"""What a comparison takes for cost: which price, and what is paid for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.metrics.costs import cost_known_usd, cost_usd, paid_gpu_s, price_usd_per_gpu_h, segment_egress_usd
from analysis.metrics.jobtimes import of_jobs, of_life
from analysis.run import Run

PAID = {"gpu": "GPUs while held", "node": "nodes while any GPU of them is held", "cluster": "all GPUs in service"}


@dataclass(frozen=True)
class Bill:
    """A price and what is paid for at it.

    Attributes
    ----------
    price : 'on-demand', 'spot', 'reserved': of the catalogue as it was when the runs were made. None: the runs' own.
    per : 'gpu', 'node', 'cluster', see `analysis.metrics.costs.paid_gpu_s`. None: 'cluster' for reserved GPUs, which
        are paid whether they are used or not, else 'gpu'.
    """

    price: str | None = None
    per: str | None = None

    @property
    def unit(self) -> str:
        """What is paid for: `per`, or what stands for None."""
        return self.per or ("cluster" if self.price == "reserved" else "gpu")

    @property
    def whole(self) -> bool:
        """Whole nodes or the cluster are paid for: no job's part, runs are compared by what they cost altogether."""
        return self.unit != "gpu"

    @property
    def column(self) -> str:
        """The column of a comparison that holds it."""
        return "cost_usd" if self.whole else "jobs_cost_usd"

    @property
    def words(self) -> str:
        """What is meant by cost; empty where it is the usual: GPUs held, at the runs' own price."""
        if self == Bill():
            return ""
        price = f"the {self.price} price" if self.price else "the runs' own price"
        whose = "of whole runs, for no job has a part of it" if self.whole else "of the same jobs"
        return f"Cost is at {price}, paid for {PAID[self.unit]}: the ratio is {whose}."

    def of_jobs(self, run: Run) -> np.ndarray:
        """float64 [jobs, 3]: cost of the GPUs that each job held and of bytes that left a zone, in USD (NaN: a price is
        unknown); what is known of it, in USD; GPU-h held without a known price. Of their whole life where a measuring
        window follows jobs."""
        return _of_jobs(run, self.price)

    def of_run(self, run: Run) -> tuple[float | None, float, float]:
        """Cost of a run in USD (None: a price is unknown), what is known of it, and GPU-h paid for without a price."""
        unpriced = np.isnan(price_usd_per_gpu_h(run, self.price))
        paid_gpu_h = float(paid_gpu_s(run, self.unit)[unpriced].sum()) / 3600.0
        return cost_usd(run, self.price, self.unit), cost_known_usd(run, self.price, self.unit), paid_gpu_h


@of_life
def _of_jobs(run: Run, kind: str | None) -> np.ndarray:
    held, price = run.held, price_usd_per_gpu_h(run, kind)[run.held.node]
    length_s = run.column("segments", "end_s") - run.column("segments", "begin_s")
    gpu_h = held.milli / 1000.0 * length_s[held.segment] / 3600.0
    parts = (np.where(np.isnan(price), 0.0, gpu_h * price), np.where(np.isnan(price), gpu_h, 0.0))
    known, unpriced = (of_jobs(run, np.bincount(held.segment, part, len(length_s))) for part in parts)
    sent = segment_egress_usd(run)
    unknown = (unpriced > 0) | (of_jobs(run, np.isnan(sent).astype(float)) > 0)
    known = known + of_jobs(run, np.nan_to_num(sent))
    return np.stack([np.where(unknown, np.nan, known), known, unpriced], axis=1)
