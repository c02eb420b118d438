"""The audit: proves from a run's tables alone that nothing impossible happened in it.

Nothing of the simulator is imported but the schema, so a mistake in the engine cannot excuse itself. Laws
of form (`analysis.run.form`: finite values, known ids) come first; the first that is broken ends the audit,
because the laws of conduct rest on them. Each law is checked on whole columns; of each broken law the violation that is
earliest in simulated time is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.audit import accounts, as_set, conduct, decided, endings, terms_kept
from analysis.run import Run, form
from analysis.run.facts import Facts, Finding, Violation

Law = Callable[[Facts], Finding]

FORM: dict[str, Law] = form.LAWS
CONDUCT: dict[str, Law] = {
    "no job starts before its submit": conduct.after_submit,
    "a change of speed moves nothing": conduct.speed_changes,
    "no GPU is used above 1000 milli": conduct.gpu_capacity,
    "virtual clusters keep to their quotas": conduct.quotas_kept,
    "queues keep to their quotas by type and in all": conduct.ceilings_kept,
    "gangs are whole": conduct.gangs_whole,
    "nothing runs on a node that is down": conduct.nodes_up,
    "maintenance is kept": conduct.maintenance_kept,
    "jobs run on types that they allow": conduct.types_allowed,
    "a gang lies on one GPU type": conduct.one_type,
    "work of a segment is time times rate": accounts.segment_work,
    "bytes that leave a zone are paid by work": accounts.egress_paid,
    "work of a finished job is what it asked": accounts.job_work,
    "first start and end are those of the segments": accounts.job_times,
    "rejected jobs never ran and say why": accounts.rejected,
    "unfinished jobs say why": accounts.unfinished,
    "plans match the segments that they began": accounts.plans_match,
    **terms_kept.LAWS,
    **endings.LAWS,
    **as_set.LAWS,
    **decided.LAWS,
}


@dataclass(frozen=True)
class Report:
    """What the audit found.

    Attributes
    ----------
    run : folder of the run.
    checked : what was checked under each law and how often, such as "1,204 segments"; laws that were not
        reached, because a law of form was broken, are not in it.
    violations : the earliest violation of each broken law, earliest first. A broken law of form stands alone.
    """

    run: str
    checked: dict[str, str]
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def first(self) -> Violation | None:
        """The earliest violation of all, None for a clean run."""
        return self.violations[0] if self.violations else None

    @property
    def text(self) -> str:
        """The report for printing."""
        broken = {v.law: v for v in self.violations}
        head = (
            f"{len(self.checked)} laws hold"
            if self.ok
            else f"{len(broken)} of {len(self.checked)} laws broken"
        )
        lines = [f"audit of {self.run}: {head}"]
        for i, violation in enumerate(self.violations):
            lines.append(f"  {'FIRST VIOLATION' if i == 0 else 'also broken'}: {violation}")
        width = max(map(len, self.checked))
        lines += [
            f"  {'BROKEN' if law in broken else 'ok':6}  {law:{width}}  {what}"
            for law, what in self.checked.items()
        ]
        left = len({*FORM, *CONDUCT} - self.checked.keys())
        if left:
            lines.append(f"  {left} further laws not checked: they need tables of sound form")
        return "\n".join(lines)


def audit(run: Run) -> Report:
    """Check each law on a run.

    Parameters
    ----------
    run : Run
        As ``analysis.run.load_run(path, check=False)`` returns it. `run.json` says which laws bind: with
        `sizes_gangs` a gang may differ from the request, without `one_type_gangs` it may span GPU types.

    Returns
    -------
    Report
        Never raises for what the tables hold: a broken run is a finding, not an error.

    Examples
    --------
    >>> from pathlib import Path
    >>> from analysis.run import load_run
    >>> from sim.settings.config import RunConfig
    >>> from sim.sweeps.replay import Replay
    >>> Replay(RunConfig(policy="fifo", trace="philly", jobs=50, work="recorded")).play().write(Path("fifo"))
    >>> report = audit(load_run("fifo", check=False))
    >>> report.ok, report.checked["gangs are whole"]
    (True, '78 segments')
    """
    facts = Facts(run)
    checked: dict[str, str] = {}
    violations: list[Violation] = []
    for stage in (FORM, CONDUCT):
        for name, law in stage.items():
            finding = law(facts)
            checked[name] = f"{finding.count:,} {finding.unit}" if finding.count else f"no {finding.unit}"
            if finding.violation is not None:
                violations.append(finding.violation.named(name))
                if stage is FORM:
                    return Report(str(run.path), checked, tuple(violations))
    violations.sort(key=lambda v: -np.inf if v.time_s is None else v.time_s)
    return Report(str(run.path), checked, tuple(violations))
