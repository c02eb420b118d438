"""Tables and comparisons: what people read is what the metrics say, with units, rules and notices."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from rich.console import Console

from analysis.compare import compare
from analysis.compare.bootstrap import interval
from analysis.formats import human
from analysis.measuring_window import windowed
from analysis.run import RunError
from analysis.tables import notices, summary_table


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
    assert "2 of 3 jobs finished in all runs; 1 in some only" in text
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
    # Jobs of 110 s on a GPU without a price.
    assert "≥ 0.00 (0.03056" in c.text
    assert "≥ 0.00 (0.03056 GPU-h unpriced)" in c.formatted("markdown")


def test_what_is_unknown_of_a_cost_is_named(pair):
    """Of 110 s at 3.60 USD/h 0.11 are known; egress alone is unknown, then GPU time alone."""
    for run in pair:
        run.in_zones("a")
    pair[1].segments[0]["egress_usd"] = pair[1].segments[0]["egress_usd_per_work"] = None
    c = compare([run.load() for run in pair])
    assert "≥ 0.11 (bytes that left a zone unpriced)" in c.formatted("markdown")
    assert "≥ 0.11 (bytes that" in c.text and "GPU-h" not in c.text
    pair[1].in_zones("a").nodes[0]["price_usd_per_gpu_h"] = None
    text = compare([run.load() for run in pair]).formatted("markdown")
    assert "GPU-h unpriced" in text and "zone unpriced" not in text


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


@pytest.fixture
def repetition(run_files):
    """One job after another on one GPU: JCTs of a policy under a seed, each with its own trace."""

    def make(policy: str, seed: int, jct_s: list[float], price: float | None = 3.6, **info: object):
        run = run_files(f"{policy}-{seed}").node("A10", len(jct_s), price)
        run.info |= {"policy": policy, "seed": seed, **info}
        run.info["trace"]["hash"] = f"h{seed}"
        for i, length in enumerate(jct_s):
            run.job(f"j{i}", 0, length).segment(f"j{i}", 0, length, [i])
        return run

    return make


@pytest.fixture
def seeds(repetition):
    """Two seeds: fifo 100 + 300 and 80 + 120 s; half of that, and four fifths of it, under hetero."""
    return [
        repetition("fifo", 0, [100, 300]), repetition("hetero", 0, [50, 150]),
        repetition("hetero", 1, [64, 96]), repetition("fifo", 1, [80, 120]),
    ]  # fmt: skip


def test_several_seeds_of_a_policy_are_one_column_with_an_interval_over_the_seeds(seeds):
    """Ratios 0.5 and 0.8: geometric mean sqrt(0.4); the interval is Student's t of their logarithms."""
    c = compare([run.load() for run in seeds])
    assert list(c.table.index) == ["fifo", "hetero"]
    assert (c.paired, c.left_out, c.seeds, c.repeated) == (4, 0, 2, "seeds")
    hetero = c.table.loc["hetero"]
    assert hetero["jct_mean_s"] == (100 + 80) / 2
    found = interval(np.log([0.5, 0.8]))
    assert hetero["jct_mean_ratio"] == pytest.approx(np.exp(found.mean))
    assert hetero["jct_ratio_low"] == pytest.approx(np.exp(found.low))
    assert hetero["jct_ratio_high"] == pytest.approx(np.exp(found.high))
    # Jobs cost what they take: the same ratios.
    assert hetero["cost_ratio"] == pytest.approx(np.exp(found.mean))
    assert "4 jobs of 2 seeds finished in all runs" in c.text
    assert "no difference in mean JCT beyond the interval, −37 % (−97 % to 1,153 %)" in c.verdicts[0]
    assert "(95 %, 2 seeds, 4 jobs)" in c.verdicts[0]


def test_the_order_of_runs_changes_only_which_policy_is_the_baseline(seeds):
    one = compare([seeds[k].load() for k in (0, 1, 2, 3)])
    other = compare([seeds[k].load() for k in (3, 2, 0, 1)])
    assert other.csv() == one.csv()
    turned = compare([seeds[k].load() for k in (1, 0, 2, 3)]).table
    assert turned.loc["fifo", "jct_mean_ratio"] * one.table.loc["hetero", "jct_mean_ratio"] == pytest.approx(1)
    assert turned.loc["fifo", "jct_ratio_low"] * one.table.loc["hetero", "jct_ratio_high"] == pytest.approx(1)


def test_a_seed_that_one_policy_lacks_is_left_out_and_said(seeds, repetition):
    c = compare([run.load() for run in [*seeds, repetition("fifo", 2, [7, 7])]])
    assert c.seeds == 2
    assert "1 run is left out" in c.text


def test_a_repetition_that_is_there_twice_is_refused(seeds, run_files):
    again = seeds[0].load()
    with pytest.raises(RunError, match="there twice"):
        compare([*(run.load() for run in seeds), again])


def test_policies_without_a_trace_in_common_are_refused(repetition):
    runs = [repetition(policy, seed, [1]) for policy, seed in (("fifo", 0), ("fifo", 1), ("las", 2), ("las", 3))]
    with pytest.raises(RunError, match="different traces"):
        compare([run.load() for run in runs])


def test_what_follows_from_the_trace_makes_no_other_policy(seeds):
    for run in seeds:
        run.info["work"]["worth_gpus"] = 3.0 + run.info["seed"]
    assert compare([run.load() for run in seeds]).seeds == 2


def test_other_settings_of_a_policy_are_another_policy(repetition):
    runs = [repetition(p, s, [10 * (s + 1)]) for s in (0, 1) for p in ("fifo", "las")]
    for run in runs[1::2]:
        run.info["settings"] = {"preemption_overhead_s": 30}
    c = compare([run.load() for run in runs])
    assert c.seeds == 2
    assert "engine settings differ" in " ".join(c.text.split())


def test_repetitions_that_are_equal_or_at_several_loads_are_said(repetition):
    runs = [repetition(p, s, [10], config={"load": 0.5 + s}) for s in (0, 1) for p in ("fifo", "las")]
    text = " ".join(compare([run.load() for run in runs]).text.split())
    assert "several loads (0.5, 1.5)" in text
    assert "nothing in them hangs on the seed" in text


def test_of_one_trace_the_interval_is_over_jobs_and_says_so(pair):
    c = compare([run.load() for run in pair])
    low, high = c.table.loc["sjf", ["jct_ratio_low", "jct_ratio_high"]]
    assert low < 60 / 105 < high
    assert "share a queue" in c.text
    assert c.csv() == compare([run.load() for run in pair]).csv()


def test_who_left_out_which_jobs_is_said(pair, run_files):
    text = " ".join(compare([run.load() for run in pair]).text.split())
    assert "Left out, since not finished: sjf 1 unfinished." in text


def test_cost_is_compared_on_the_jobs_in_common_and_told_of_whole_runs(pair):
    """A second is a tenth of a cent at 3.6 USD/h; fifo also ran 'gone', for 5 s."""
    t = compare([run.load() for run in pair]).table
    assert t["jobs_cost_usd"].tolist() == pytest.approx([0.110, 0.110])
    assert t["cost_usd"].tolist() == pytest.approx([0.115, 0.110])
    assert t.loc["sjf", "cost_ratio"] == pytest.approx(1)


def test_a_run_of_unknown_cost_is_neither_on_the_front_nor_off_it(pair):
    pair[1].nodes[0]["price_usd_per_gpu_h"] = None
    c = compare([run.load() for run in pair])
    assert c.table["on_front"].isna().tolist() == [True, True]
    assert "cost unknown" in c.verdicts[0]
    text = " ".join(c.text.split())
    assert "neither on the Pareto front nor off it: sjf. These may beat fifo" in text
    assert "cannot be said" in text


def test_the_front_holds_what_is_faster_or_cheaper(run_files):
    """a: 10 s at 3.6 USD/h; b: 20 s at 0.36 USD/h; c: 30 s at 3.6 USD/h, slower and dearer than both."""
    runs = []
    for name, length, price in (("a", 10, 3.6), ("b", 20, 0.36), ("c", 30, 3.6)):
        run = run_files(name).node("A10", 1, price).job("j", 0, length).segment("j", 0, length, [0])
        run.info["policy"] = name
        runs.append(run.load())
    assert compare(runs).table["on_front"].tolist() == [True, True, False]


def test_a_job_that_no_run_finished_is_counted_and_said(pair):
    """Rejected by both, or by one and cut off in the other: of 5 jobs 2 are compared."""
    for run in pair:
        run.job("too big", 0, 5, state="rejected", reason="asks for 8 GPUs")
    pair[0].job("unlucky", 0, 5, state="unfinished", reason="horizon")
    pair[1].job("unlucky", 0, 5, state="rejected", reason="no")
    c = compare([run.load() for run in pair])
    assert (c.jobs, c.paired, c.left_out, dict(c.nowhere)) == (5, 2, 1, {"rejected": 1, "in several ways": 1})
    text = " ".join(c.text.split())
    assert "2 of 5 jobs finished in all runs; 1 in some only, 2 in none" in text
    assert "Finished under no policy: 1 in several ways, 1 rejected." in text


def test_unlike_shares_of_unfinished_jobs_are_warned_of_above_all_else(pair):
    c = compare([run.load() for run in pair])
    assert "(fifo 0 of 3, 0.0 %, sjf 1 of 3, 33.3 %)" in c.warnings[0]
    assert "until all jobs are through" in c.warnings[0]
    assert c.text.startswith("WARNING")
    assert c.formatted("markdown").count("WARNING") == 1


def test_in_a_window_the_warning_says_how_to_follow_jobs(repetition):
    """Of three jobs fifo leaves two when the window closes at 50 s, las one."""
    runs = [repetition("fifo", 0, [10, 60, 100]), repetition("las", 0, [10, 20, 100])]
    c = compare([windowed(run.load(), 0, 50) for run in runs])
    assert "(fifo 2 of 3, 66.7 %, las 1 of 3, 33.3 %)" in c.warnings[0]
    assert "without --clip" in c.warnings[0]
    followed = compare([windowed(run.load(), 0, 50, follow=True) for run in runs])
    assert (followed.paired, followed.warnings) == (3, ())
    # What the same jobs cost is of their whole life, too: 170 and 130 s at a tenth of a cent.
    assert followed.table["jobs_cost_usd"].tolist() == pytest.approx([0.170, 0.130])
    assert "followed to their end" in followed.text


def test_equal_shares_of_unfinished_jobs_are_no_warning(seeds):
    assert compare([run.load() for run in seeds]).warnings == ()


def test_a_run_that_one_of_unknown_cost_surely_does_not_beat_stays_on_the_front(run_files):
    """a: 10 s, known; b: 20 s, unknown: slower, so that a stays on the front; c: 30 s at what a takes, beaten by a."""
    runs = []
    for name, length, price in (("a", 10, 3.6), ("b", 20, None), ("c", 30, 3.6)):
        run = run_files(name).node("A10", 1, price).job("j", 0, length).segment("j", 0, length, [0])
        run.info["policy"] = name
        runs.append(run.load())
    assert compare(runs).table["on_front"].astype(object).fillna("?").tolist() == [True, "?", False]


def test_means_and_ratios_over_seeds_that_contradict_each_other_are_said(repetition):
    """Means 100 and 1000 s -> 50 and 1500 s: the average 41 % more, the geometric mean of 0.5 and 1.5 0.866."""
    runs = [repetition(p, s, [jct]) for p, s, jct in
            (("fifo", 0, 100), ("fifo", 1, 1000), ("las", 0, 50), ("las", 1, 1500))]
    c = compare([run.load() for run in runs])
    text = " ".join(c.text.split())
    assert "las against fifo: averaged over the repetitions mean JCT is 40.9 % more" in text
    assert "have the geometric mean 0.866" in text
    assert "JCT ratio, geometric mean over seeds" in c.text
    assert r"JCT / fifo (geometric mean over seeds, 95 \% interval)" in c.formatted("latex")


def test_the_cost_of_a_whole_cluster_is_compared_by_runs(pair):
    """One GPU at 3.6 USD/h in service for 115 and 110 s; jobs pay the same for the 110 s that they share."""
    runs = [run.load() for run in pair]
    c = compare(runs, per="cluster")
    assert c.table["cost_usd"].tolist() == pytest.approx([0.115, 0.110])
    assert c.table["cost_ratio"].tolist() == pytest.approx([1, 110 / 115])
    assert c.table["jobs_cost_usd"].tolist() == pytest.approx([0.110, 0.110])
    assert "cheaper by 4.3 %, interval unknown" in c.verdicts[0]
    assert "paid for all GPUs in service" in " ".join(c.text.split())
    with pytest.raises(RunError, match="did you mean 'cluster'"):
        compare(runs, per="clusters")
    with pytest.raises(RunError, match="kind of price"):
        compare(runs, price="sport")


def test_whole_costs_of_several_seeds_have_an_interval_over_these(seeds):
    """Runs last 300, 150, 96 and 120 s, two GPUs each: 0.5 and 0.8."""
    c = compare([run.load() for run in seeds], per="cluster")
    found = interval(np.log([0.5, 0.8]))
    assert c.table.loc["hetero", ["cost_ratio", "cost_ratio_low", "cost_ratio_high"]].tolist() == pytest.approx(
        np.exp([found.mean, found.low, found.high]).tolist())


def test_a_trace_stretched_to_each_cluster_is_named_as_the_cause(repetition):
    runs = [repetition("fifo", seed, [10], config={"cluster": f"t4:{seed}x8", "load": 0.7, "trace": "pai"})
            for seed in (1, 2)]
    with pytest.raises(RunError, match=r"stretched.*hetsim trace convert pai jobs.parquet --cluster t4:1x8 --load 0.7"):
        compare([run.load() for run in runs])


def test_json_has_all_of_it(pair):
    pair[1].nodes[0]["price_usd_per_gpu_h"] = None
    plain = compare([run.load() for run in pair]).plain()
    back = json.loads(json.dumps(plain, allow_nan=False))
    assert back == plain
    assert back["policies"]["sjf"]["jct_mean_ratio"] == 60 / 105
    assert back["policies"]["sjf"]["jobs_cost_usd"] is None
    assert (back["jobs"], back["paired"], back["left_out"]) == (3, 2, 1)


def test_many_policies_stand_below_each_other(repetition):
    runs = [repetition(f"policy_{k}", 0, [10 + k, 20]).load() for k in range(12)]
    text = compare(runs).text
    rows = [line for line in text.splitlines() if line.startswith("policy_11 ")]
    assert len(rows) == 2  # its sentence and its row
    assert len(rows[1]) < 140


def test_p63_names_are_escaped_in_latex_and_markdown(repetition):
    runs = [repetition(name, 0, [10, 20]).load() for name in ("fifo", "max_min_fairness", "a|b")]
    c = compare(runs)
    assert r"max\_min\_fairness & 15.00 & 1.000" in c.formatted("latex")
    assert r"JCT / fifo (95 \% interval)" in c.formatted("latex")
    assert all(line.startswith("%") or "\\" in line for line in c.formatted("latex").splitlines())
    assert r"| a\|b |" in c.formatted("markdown")
    assert c.formatted("csv") == c.csv()


def test_ratios_have_as_many_places_as_their_interval_is_worth(repetition):
    """Costs of 2.000, 2.002, 2.001… to 2: a ratio of 1.00 would hide what the sentence says."""
    runs = [repetition("fifo", s, [1000.0]) for s in range(3)]
    runs += [repetition("las", s, [1002.0 + s / 10]) for s in range(3)]
    c = compare([run.load() for run in runs])
    assert "1.0021 (1.0019 to 1.0023)" in c.formatted("markdown")
    assert "worse than fifo in mean JCT by 0.21 % ± 0.02 %" in c.verdicts[0]


def test_a_level_that_is_none_is_refused(pair):
    with pytest.raises(RunError, match="confidence level"):
        compare([run.load() for run in pair], level=95)


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
    assert "Recorded load on A10 is 1.50" in found[0]
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
