"""Tables and comparisons: what people read is what the metrics say, with units, rules and notices."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from analysis.compare import compare
from analysis.run import RunError
from analysis.tables import human, notices, summary_table


def printed(table) -> str:
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(table)
    return out.getvalue()


@pytest.fixture
def pair(run_files):
    """Jobs on one GPU: first come, first served, and shortest first; 'gone' finishes only under the first."""

    def make(policy: str, order: list[tuple[str, float, float]], both: bool):
        run = run_files(policy).node("A10", 1, 3.6)
        run.info["policy"] = policy
        run.job("long", 0, 100).job("short", 0, 10)
        run.job("gone", 0, 5) if both else run.job("gone", 0, 5, state="unfinished", reason="horizon")
        for name, begin, end in order:
            run.segment(name, begin, end, [0])
        return run

    fifo = make("fifo", [("long", 0, 100), ("short", 100, 110), ("gone", 110, 115)], True)
    sjf = make("sjf", [("short", 0, 10), ("long", 10, 110)], False)
    return fifo, sjf


def test_jobs_are_paired_by_id(pair):
    """long 100 -> 110 s, short 110 -> 10 s: mean 105 -> 60 s; one better, one worse, one left out."""
    c = compare([run.load() for run in pair])
    assert (c.paired, c.left_out) == (2, 1)
    sjf = c.table.loc["sjf"]
    assert (sjf["jct_mean_s"], sjf["jct_mean_ratio"]) == (60.0, 60 / 105)
    assert (sjf["better_share"], sjf["worse_share"]) == (0.5, 0.5)
    assert (sjf["queue_mean_s"], c.table.loc["fifo", "queue_mean_s"]) == (5.0, 50.0)
    assert c.table.loc["fifo", ["jct_mean_ratio", "better_share", "worse_share"]].tolist() == [1.0, 0.0, 0.0]


def test_the_text_says_how_many_jobs_are_left_out_and_what_a_duration_is(pair):
    text = compare([run.load() for run in pair]).text
    assert "2 jobs finished in all runs; 1 left out" in text
    assert "rule: duration_s as given; durations as recorded" in text
    assert "JCT mean (s)" in text
    assert "0.571" in text


def test_csv_reads_back_exactly(pair):
    rows = list(csv.DictReader(io.StringIO(compare([run.load() for run in pair]).csv())))
    assert [row["run"] for row in rows] == ["fifo", "sjf"]
    assert float(rows[1]["jct_mean_ratio"]) == 60 / 105


def test_unknown_cost_is_empty_in_csv_and_said_in_text(pair):
    pair[1].nodes[0]["price_usd_per_gpu_h"] = None
    c = compare([run.load() for run in pair])
    assert list(csv.DictReader(io.StringIO(c.csv())))[1]["cost_usd"] == ""
    assert "unknown" in c.text


def test_different_traces_are_refused_unless_meant(pair):
    pair[1].info["trace"]["hash"] = "h2"
    runs = [run.load() for run in pair]
    with pytest.raises(RunError, match="different traces"):
        compare(runs)
    assert "different traces" in compare(runs, different_traces=True).text


def test_other_clusters_and_rules_are_said(pair):
    pair[1].info["cluster"] = {"name": "another"}
    pair[1].info["work"]["rule"] = "iterations on modelled speeds"
    text = compare([run.load() for run in pair]).text
    assert "clusters differ" in text
    assert "rules differ" in text
    assert "iterations on modelled speeds" in text


def test_runs_without_a_common_job_cannot_be_compared(run_files):
    one = (
        run_files("one")
        .node()
        .job("a", 0, 1)
        .job("b", 0, 1, state="unfinished", reason="horizon")
        .segment("a", 0, 1, [0])
    )
    two = (
        run_files("two")
        .node()
        .job("b", 0, 1)
        .job("a", 0, 1, state="unfinished", reason="horizon")
        .segment("b", 0, 1, [0])
    )
    with pytest.raises(RunError, match="no job finished in all runs"):
        compare([one.load(), two.load()])
    with pytest.raises(RunError, match="two or more"):
        compare([one.load()])


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (None, "–"),
        (0, "0.0 s"),
        (42.54, "42.5 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (725, "12 min 5 s"),
        (3599.7, "1 h 0 min"),
        (12_000, "3 h 20 min"),
        (86_399, "1 d 0 h"),
        (187_200, "2 d 4 h"),
        (-725, "-12 min 5 s"),
    ],
)
def test_times_in_words(time_s, text):
    assert human(time_s) == text


def test_the_table_of_one_run(story):
    text = printed(summary_table(story.load()))
    for line in (
        "rule (what a duration is)",
        "durations as recorded",
        "JCT mean (s)",
        "48.8",
        "125.3 (2 min 5 s)",
        "GPUs held, V100 (%)",
        "50.0",
        "cost (USD)",
        "0.08",
        "preemptions",
        "simulator peak memory (MiB)",
        "node failures that hit a job",
        "1 job rejected: asks for 8 GPUs",
        "still waiting at the horizon",
    ):
        assert line in text


def test_runs_side_by_side_share_rows_and_notices(pair):
    pair[1].nodes[0]["price_usd_per_gpu_h"] = None
    text = printed(summary_table([run.load() for run in pair]))
    assert "unknown (known part 0.00)" in text
    assert "sjf: No price is known for A10" in text
    assert "fifo: No price" not in text


def test_overload_gets_a_notice_with_backlog_and_drain_time(run_files):
    run = run_files().node("A10", 2).node("T4", 2)
    for name, begin, gpu in (("a", 0, 0), ("b", 0, 1), ("c", 100, 0)):
        run.job(name, 0, 100, gpu_type="A10").segment(name, begin, begin + 100, [gpu])
    found = notices(run.load())
    assert len(found) == 1
    assert "Offered load on A10 is 1.50" in found[0]
    assert "over 1 min 40 s; backlog then 0.03 GPU-h, drained 1 min 40 s later" in found[0]


def test_brackets_in_names_are_text_not_markup(run_files):
    run = run_files().node().job("a", 0, 1, 9, state="rejected", reason="asks for [bold] things [/x]")
    run.info["policy"] = "mine[1]"
    run.info["trace"]["counts"] = {"CPU-only jobs dropped": 12, "nothing of this": 0}
    text = printed(summary_table(run.load()))
    assert "asks for [bold] things [/x]" in text
    assert "mine[1]" in text
    assert "CPU-only jobs dropped: 12" in text
    assert "nothing of this" not in text
