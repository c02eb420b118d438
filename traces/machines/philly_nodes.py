"""Philly's side tables: the machine list, checked against the job log, and rows of GPU utilisation."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from traces.errors import TraceError
from traces.machines.capacity import About, MachineReader, Machines
from traces.readers.philly_attempts import listed_gpus, load_json
from traces.reading.reader import choice
from traces.reading.tally import Tally
from traces.reading.text import read_table

MACHINE, GPUS, MEMORY = "machineId", "number of GPUs", "single GPU mem"
RULES = ("observed", "listed", "strict")


def read_machines(machine_list: Path, job_log: Path | str | None = None, rule: str | None = None) -> Machines:
    """Read cluster_machine_list, and hold it against the GPUs that the job log saw in use, where that is given.

    Where: the repository philly-traces of the GitHub organisation msr-fiddle, in its archive (CC-BY-4.0). The public
    list has 321 machines of 2 GPUs and 231 of 8, and a machine of 2 on which the log shows 8 in use. It names no type.

    ===============  ==============================================================
    source           becomes
    ===============  ==============================================================
    machineId        name; `ip` of the job log names the same machines
    number of GPUs   gpus, by the rule
    single GPU mem   gpu_memory_gib: "24GB" is what vendors print on a card of 24 GiB
    ===============  ==============================================================

    Parameters
    ----------
    rule : {"observed", "listed", "strict"}
        observed (default with a job log): the larger of the listed count and the number of GPUs seen in use; listed
        (default without): as listed; strict: raise where a machine of the list is seen with more GPUs, or a machine
        is not listed.

    Raises
    ------
    TraceError
        A file cannot be read, a machine is listed twice, the rule wants a job log and there is none, or it is strict
        and the two disagree: names the machines.
    """
    rule = choice("rule", rule or ("listed" if job_log is None else "observed"), RULES)
    if job_log is None and rule != "listed":
        raise TraceError(f"rule {rule!r} holds the list against the job log", where=str(machine_list),
                         todo="Name the log as well (job_log), or use rule 'listed'.")
    table = read_table(machine_list, (MACHINE, GPUS, MEMORY), what="list of machines")
    names = table.text(MACHINE).tolist()
    listed = dict(zip(names, table.number(GPUS, integer=True, high=1e4).astype(int).tolist(), strict=True))
    memory = [_gib(text, table.where(i, MEMORY)) for i, text in enumerate(table.text(MEMORY).tolist())]
    seen = {} if job_log is None else observed_gpus(Path(job_log))
    wider = sorted(m for m, n in seen.items() if m in listed and n > listed[m])
    absent = sorted(seen.keys() - listed.keys())
    if rule == "strict" and (wider or absent):
        worst = (wider or absent)[0]
        raise TraceError(
            f"machine {worst!r} disagrees with the job log", where=str(machine_list),
            got=f"{listed.get(worst, 'not listed')} GPUs listed, {seen[worst]} in use",
            allowed="as many as are in use", todo=f"{len(wider) + len(absent)} machines differ: "
            f"{', '.join((wider + absent)[:5])}. Use rule 'observed'.",
        )
    tally = Tally()
    tally.add("machines seen with more GPUs than listed", len(wider), wider)
    tally.add("machines seen but not listed", len(absent), absent)
    extra = absent if rule == "observed" else []
    gpus = [max(listed[m], seen.get(m, 0)) if rule == "observed" else listed[m] for m in names]
    return Machines.from_columns(
        {"name": names + extra, "gpus": gpus + [seen[m] for m in extra],
         "gpu_memory_gib": memory + [np.nan] * len(extra)},
        About(str(machine_list), MACHINES.name, rule, tally.counts, tally.first),
    )


def observed_gpus(job_log: Path) -> dict[str, int]:
    """Number of different GPUs of each machine that the attempts of a job log name."""
    seen: dict[str, set[str]] = {}
    for row, job in enumerate(load_json(job_log), start=1):
        try:
            for attempt in job["attempts"] or ():
                for machine, name in listed_gpus(attempt)[1]:
                    if not isinstance(machine, str):
                        raise KeyError("ip")
                    seen.setdefault(machine, set()).add(name)
        except (AttributeError, TypeError, KeyError):
            raise TraceError("attempts not as expected", where=f"{job_log}, job {row}",
                             got=repr(job["attempts"])[:80]) from None
    return {machine: len(gpus) for machine, gpus in seen.items()}


def _gib(text: str, where: str) -> float:
    """'24GB' as 24.0 (the list's GB are what vendors print on the card, GiB)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*G(?:i?B)?", text)
    if match is None:
        raise TraceError("value not allowed", where=where, got=text, allowed="a size such as 24GB")
    return float(match[1])


MACHINES = MachineReader(
    name="philly",
    description="Philly 2017 machines: machineId,number of GPUs,single GPU mem",
    public="https://github.com/msr-fiddle/philly-traces (trace-data.tar.gz: cluster_machine_list)",
    licence="CC-BY-4.0",
    header=(MACHINE, GPUS, MEMORY),
    read=read_machines,
    options={"job_log": "the job log, cluster_job_log: which GPUs were in use",
             "rule": "observed (the larger count), listed, or strict (refuse where they differ)"},
)
