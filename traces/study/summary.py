"""The numbers of `traces.study.describe` as lines to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ROWS = 12
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def as_text(summary: Mapping[str, Any]) -> str:
    """The summary of `describe` as lines to print."""
    parts = (_whole, _times, _tables, _users, _arrivals, _edges, _load)
    return "\n".join(line for part in parts for line in part(summary)) + "\n"


def _line(label: str, text: str) -> str:
    return f"{label:<13} {text}"


def _whole(summary: Mapping[str, Any]) -> Iterator[str]:
    about = summary["provenance"]
    yield f"{about['source']} ({about['format']})"
    users = f"{summary['users']:,} users" if summary["users"] else "users are not recorded"
    yield _line("jobs", f"{summary['jobs']:,}; {about['rows_read']:,} rows were read; {users}")
    yield _line("rule", about["rule"])
    if about["options"]:
        yield _line("read with", ", ".join(f"{name} = {value}" for name, value in about["options"].items()))
    yield from (_line("counted", f"{n:,} {what}") for what, n in about["counts"].items())
    yield from (_line("note", note) for note in about["notes"])
    yield _line("span", f"{summary['span_s'] / 86_400:.2f} days from first to last submission")
    yield _line("GPU time", f"{summary['gpu_hours']:,.1f} GPU-hours; {summary['mean_gpus']:.2f} GPUs a job, "
                            f"at most {summary['max_gpus']:g}")
    yield _line("status", ", ".join(f"{k} {v:,}" for k, v in summary["status"].items()))


def _times(summary: Mapping[str, Any]) -> Iterator[str]:
    for name, label in (("duration_s", "run time, s"), ("interarrival_s", "gap, s"), ("wait_s", "wait, s")):
        cells = {k: v for k, v in summary[name].items() if k != "known"}
        if cells:
            known = f"; recorded of {summary[name]['known']:,} jobs" if name == "wait_s" else ""
            yield _line(label, ", ".join(f"{k} {v:,.0f}" for k, v in cells.items()) + known)
    if not summary["wait_s"]["known"]:
        yield _line("wait, s", "not recorded")


def _tables(summary: Mapping[str, Any]) -> Iterator[str]:
    for name, label in (("gpus", "GPUs"), ("vcs", "vc"), ("gpu_types", "GPU type")):
        yield from _rows(label, summary[name], len(summary[name]))


def _rows(label: str, rows: Sequence[Mapping[str, Any]], total: int) -> Iterator[str]:
    for row in rows[:ROWS]:
        value = f"{row['value']:g}" if isinstance(row["value"], float) else row["value"] or "(none)"
        more = f" {row['users']:>6,} users" if "users" in row else ""
        more += f" {row['duration_p50_s']:>9,.0f} s at the median" if "duration_p50_s" in row else ""
        yield (f"{label:<9} {value:<12} {row['jobs']:>9,} jobs {row['jobs_share']:7.2%}"
               f" {row['gpu_hours']:>14,.1f} GPU-hours {row['gpu_hours_share']:7.2%}{more}")
    if total > ROWS:
        yield f"{label:<9} and {total - ROWS} more"


def _users(summary: Mapping[str, Any]) -> Iterator[str]:
    yield from _rows("user", summary["top_users"], len(summary["top_users"]))
    if summary["skew"]:
        for name, what in (("jobs", "jobs"), ("gpu_hours", "GPU time")):
            shares = ", ".join(f"{part} have {share:.1%}" for part, share in summary["skew"][name].items())
            yield _line("top users", f"by {what}: of {summary['users']:,} users {shares}")


def _arrivals(summary: Mapping[str, Any]) -> Iterator[str]:
    calendar = summary["calendar"]
    if calendar["tz"] is None:
        yield _line("calendar", "none; hours and days are counted from submit_s = 0 as a Monday, 00:00")
    elif calendar["first"] is None:
        yield _line("calendar", f"hours and weekdays are true in {calendar['tz']}; the dates are made up")
    else:
        yield _line("calendar", f"{calendar['first']} to {calendar['last']}, in {calendar['tz']}")
    yield _line("by hour", " ".join(f"{hour}:{jobs:,}" for hour, jobs in enumerate(summary["hours"])))
    yield _line("by day", " ".join(f"{day}:{jobs:,}" for day, jobs in zip(DAYS, summary["weekdays"], strict=True)))


def _edges(summary: Mapping[str, Any]) -> Iterator[str]:
    found = summary["edges"]
    after = found["end_after"]
    last = "the end of the log" if found["known"] else "the last submission"
    if found["submitted_before"]:
        yield _line("edges", f"{found['submitted_before']:,} jobs were submitted before the log begins")
    yield _line("edges", f"{after['jobs']:,} jobs end after {last}: {after['gpu_share']:.1%} of the GPU time is "
                         f"theirs, {after['beyond_share']:.1%} comes after it")
    if found["fill"] is not None:
        yield _line("edges", f"in the first twentieth of the time, {found['fill']:.2f} times as many GPUs run as later")
    for row in found["late"]:
        if row["missing"]:
            yield _line("edges", f"about {row['missing']:,.0f} runs over {row['within_s']:,.0f} s are missing among "
                                 f"the last {row['jobs']:,} jobs: {row['longer']:,}, not {row['expected']:,.0f}")
    if any(found["cut"].values()):
        yield _line("edges", f"as read, cut to the log: {found['cut']['begin']:,} jobs at its begin, "
                             f"{found['cut']['end']:,} at its end; they run longer than that")
    unknown = "" if found["known"] else "; when the log begins and ends is not recorded"
    if not found["cut"]["begin"]:
        yield _line("edges", f"not known: jobs that ran when the log began, and are not in it{unknown}")


def _load(summary: Mapping[str, Any]) -> Iterator[str]:
    if "load" not in summary:
        return
    load = summary["load"]
    lacking = ", types that are not there included" if load["gpu_hours_without_type"] > 0 else ""
    if "modelled" in load:
        yield _line("modelled load", f"{load['modelled']:.3f} in all, GPUs as fast as they are modelled")
    yield _line("recorded load", f"{load['total']:.3f} in all{lacking}")
    for name, value in load["by_type"].items():
        notice = ": above 1, its queue grows" if value > 1 else ""
        yield _line("recorded load", f"{value:.3f} on {name}{notice}")
    if load["gpu_hours_without_type"] > 0:
        yield _line("recorded load", f"{load['gpu_hours_without_type']:,.1f} GPU-hours ask for types not there")
