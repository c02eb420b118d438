"""Why a job took so long: every kind of span by hand, and laws that hold for each job of any run."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from analysis.explain import Explainer, explain, told
from analysis.explain.free_gpus import Free
from analysis.metrics import jct_s, queue_s
from analysis.run import RunError


def kinds(spans):
    return [(s.kind, s.begin_s, s.end_s) for s in spans]


def test_a_job_that_never_waited_only_ran(story):
    (span,) = explain(story.load(), "a")
    assert (span.kind, span.begin_s, span.end_s) == ("ran", 0, 10)
    assert (span.gpus, span.nodes, span.gpu_ids, span.types) == (2, (0,), (0, 1), ("V100",))
    assert span.text == "ran 10.0 s on 2 GPUs of V100 on node 0 at its recorded speed; then it was done"


def test_a_preempted_job_names_who_took_its_gpus_at_that_instant(run_files):
    run = run_files().node("V100", 2)
    run.job("long", 0, 100, 2).job("urgent", 10, 5).job("other", 10, 5)
    run.segment("long", 0, 10, [0, 1], work_lost=4, end_reason="preempted")
    run.segment("urgent", 10, 15, [1]).segment("other", 12, 17, [0])
    run.segment("long", 17, 117, [0, 1], overhead_s=6)
    first, waited, last = explain(run.load(), "long")
    assert first.taken_by == (("urgent", 1.0),)
    assert first.lost_s == 4
    assert "preempted: urgent (1 GPU) took its GPUs; the work of 4.0 s was lost" in first.text
    assert (waited.kind, waited.begin_s, waited.end_s) == ("waited", 10, 17)
    assert last.overhead_s == 6
    assert "the first 6.0 s of it to restart" in last.text


def test_a_job_preempted_for_nobody_says_so(run_files):
    run = run_files().node("V100", 1).job("a", 0, 10)
    run.segment("a", 0, 4, [0], end_reason="preempted").segment("a", 9, 15, [0])
    assert "no job took its GPUs at that instant" in explain(run.load(), "a")[0].text


def test_a_wait_says_what_was_free_at_best_and_how_much_of_it_on_one_node(run_files):
    run = run_files().node("V100", 2).node("V100", 2).node("T4", 4)
    run.job("x", 0, 30, gpu_type="V100").job("y", 0, 20, gpu_type="V100").job("z", 0, 10, gpu_type="V100")
    run.job("wide", 1, 5, 4, gpu_type="V100")
    run.segment("x", 0, 30, [0]).segment("y", 0, 20, [2]).segment("z", 0, 10, [3]).segment("wide", 30, 35, [0, 1, 2, 3])
    waited, _ = explain(run.load(), "wide")
    assert (waited.asked, waited.types) == (4, ("V100",))
    assert waited.free == 3  # from 20 to 30 s; at 30 s itself it is over
    assert waited.free_node == 2
    assert waited.enough_s == 0
    assert "waited 29.0 s for 4 GPUs of V100; at best 3 of them were free at once" in waited.text


def test_gpus_given_back_and_taken_at_one_instant_were_never_free(run_files):
    run = run_files().node("V100", 1).job("a", 0, 10).job("b", 0, 10).job("c", 1, 5)
    run.segment("a", 0, 10, [0]).segment("b", 10, 20, [0]).segment("c", 20, 25, [0])
    waited = explain(run.load(), "c")[0]
    assert (waited.free, waited.free_node) == (0, 0)
    assert "none was free all the while" in waited.text


def test_gpus_of_a_node_that_is_down_are_not_free(run_files):
    run = run_files().node("V100", 4, down=[5.0], up=[50.0]).job("b", 0, 1).job("a", 10, 5)
    run.segment("b", 0, 1, [0]).segment("a", 50, 55, [0])
    waited = explain(run.load(), "a")[0]
    assert (waited.free, waited.free_node) == (0, 0)


def test_where_enough_was_free_it_says_for_how_long(run_files):
    run = run_files().node("V100", 1).node("V100", 1).job("a", 0, 10).job("pair", 0, 5, 2)
    run.segment("a", 4, 10, [0]).segment("pair", 20, 25, [0, 1])
    waited = explain(run.load(), "pair")[0]
    assert waited.enough_s == 4 + 10
    assert (waited.free, waited.free_node) == (2, 1)
    assert "as many were free for 14.0 s of it, at best 1 on one node" in waited.text


def test_a_wait_counts_who_waited_beside_it_and_who_overtook_it(run_files):
    run = run_files().node("V100", 1).job("a", 0, 10).job("b", 1, 10).job("c", 2, 1).job("d", 3, 1)
    run.segment("a", 0, 10, [0]).segment("c", 10, 11, [0]).segment("d", 11, 12, [0]).segment("b", 12, 22, [0])
    waited = explain(run.load(), "b")[0]
    assert (waited.queued, waited.overtaken) == (1, 2)
    assert "nobody else waited when it began; 2 that came later got GPUs meanwhile" in waited.text
    last = explain(run.load(), "d")[0]
    assert (last.queued, last.overtaken) == (3, 0)
    assert "2 jobs waited beside it" in last.text


def test_a_failed_node_is_named(story):
    ran, waited, again = explain(story.load(), "e")[1:]
    assert (ran.end_reason, ran.failed_nodes, ran.lost_s) == ("node_failed", (0,), 10)
    assert "then node 0 failed or left (node_failed); the work of 10.0 s was lost" in ran.text
    assert (waited.kind, waited.begin_s, waited.end_s) == ("waited", 50, 60)
    assert again.end_reason == "done"


def test_a_moved_job_says_where_to(run_files):
    run = run_files().node("V100", 2).node("T4", 2).job("a", 0, 20)
    run.segment("a", 0, 5, [0], end_reason="migrated").segment("a", 5, 20, [2])
    first, second = explain(run.load(), "a")
    assert "then it was moved to 1 GPU of node 1 (migrated)" in first.text
    assert second.types == ("T4",)


def test_a_resized_job_says_to_how_many(run_files):
    run = run_files().node("V100", 4).job("a", 0, 20)
    run.segment("a", 0, 5, [0], end_reason="resized").segment("a", 5, 20, [0, 1, 2])
    assert "then it was resized to 3 GPUs of node 0" in explain(run.load(), "a")[0].text


@pytest.mark.parametrize(
    ("reason", "words"),
    [("failed", "this attempt failed"), ("respeed", "its speed changed (respeed)"),
     ("horizon", "the run was stopped (horizon)")],
)
def test_other_ends_have_their_words(run_files, reason, words):
    run = run_files().node("V100", 1).job("a", 0, 20, state="unfinished")
    run.segment("a", 0, 5, [0], end_reason=reason)
    assert words in explain(run.load(), "a")[0].text


def slow(run_files, unit="s"):
    """A job recorded at 1 000 units in 100 s runs 5 s of restart and 400 s at a quarter of that speed."""
    run = run_files().node("T4", 1).job("a", 0, 100)
    run.info["work"]["unit"] = unit
    run.segment("a", 10, 415, [0], overhead_s=5)
    run.of("a")["work_total"] = 1000.0
    run.stretch("a").update(rate=2.5, work_done=1000.0)
    return run.load()


def test_a_speed_is_that_of_the_record(run_files):
    span = explain(slow(run_files, "iterations"), "a")[-1]
    assert span.speed == 0.25
    assert "of T4 on node 0 at 0.25 of its recorded speed (2.5 iterations a second)" in span.text


def test_a_job_in_sum_is_what_it_waited_and_how_fast_it_ran(run_files):
    assert told(slow(run_files), "a")[0] == (
        "JCT 6 min 55 s: waited 10.0 s, ran 6 min 45 s on T4 at 0.25 of its recorded speed, 5.0 s of it to restart; "
        "its recorded run time is 1 min 40 s."
    )


def test_a_job_of_no_recorded_run_time_has_a_rate_and_no_speed(run_files):
    run = run_files().node("T4", 1).job("a", 0, 0)
    run.segment("a", 0, 1, [0])
    (span,) = explain(run.load(), "a")
    assert span.speed is None
    assert "at 1 s of work a second" in span.text
    assert told(run.load(), "a")[0] == "JCT 1.0 s: never waited, ran 1.0 s on T4; its recorded run time is 0.0 s."


def test_a_job_that_did_not_finish_has_no_sum(story):
    assert told(story.load(), "g")[0].startswith("+0.0 s: waited")


def test_a_job_that_failed_failed(run_files):
    run = run_files().node("V100", 1).job("a", 0, 10, state="failed")
    assert explain(run.segment("a", 0, 10, [0]).load(), "a")[0].text.endswith("; then it failed")


def test_a_killed_job_was_killed(story):
    assert explain(story.load(), "c")[-1].text.endswith("then it was killed")


def test_a_rejected_job_says_why_and_never_waited(story):
    (span,) = explain(story.load(), "d")
    assert span.kind == "left"
    assert span.text == "was rejected: asks for 8 GPUs; the cluster has 2 of a type"


def test_a_job_that_still_waits_at_the_end_waited_until_then(story):
    waited, left = explain(story.load(), "g")
    assert (waited.kind, waited.begin_s, waited.end_s) == ("waited", 139, 140)
    assert left.text == "had not finished when the run ended: still waiting at the horizon"


def test_a_quota_of_its_virtual_cluster_is_named(run_files):
    run = run_files().node("V100", 4).job("a", 0, 20, vc="x").job("b", 0, 20, vc="x")
    run.info["settings"] = {"quotas": {"x": 1}}
    run.segment("a", 0, 20, [0]).segment("b", 20, 40, [0])
    assert "its virtual cluster may hold 1" in explain(run.load(), "b")[0].text


def test_a_quota_that_changes_is_that_of_the_time(run_files):
    run = run_files().node("V100", 4).job("a", 0, 20, vc="x")
    run.info["timetable"] = {"quotas": {"x": [[0, 0], [5, 3]]}}
    run.segment("a", 10, 30, [0])
    assert explain(run.load(), "a")[0].quota == 0


def test_a_job_that_is_not_there_is_refused_with_the_nearest(story):
    with pytest.raises(RunError, match="no such job"):
        explain(story.load(), "nobody")


def test_told_counts_time_from_the_submit(story):
    lines = told(story.load(), "e")
    assert lines[0].startswith("JCT 2 min 8 s: waited 18.0 s, ran 1 min 50 s on V100 at its recorded speed")
    assert lines[1].startswith("+0.0 s: waited 8.0 s for 1 GPU of V100")
    assert lines[-1].startswith("+58.0 s: ran 1 min 10 s")


def test_spans_have_no_gaps_and_add_up_to_the_metrics(many_jobs):
    run = many_jobs(300, nodes=5).load()
    explainer, jct, queue = Explainer(run), jct_s(run), queue_s(run)
    for row, job_id in enumerate(run.jobs["job_id"]):
        spans = explainer.explain(job_id)
        assert spans[0].begin_s == run.jobs["submit_s"][row]
        assert all(a.end_s == b.begin_s for a, b in pairwise(spans))
        assert sum(s.length_s for s in spans) == pytest.approx(jct[row], rel=1e-9)
        assert sum(s.length_s for s in spans if s.kind == "waited") == pytest.approx(queue[row], rel=1e-9, abs=1e-6)


def test_of_many_spans_the_longest_and_the_last_are_told_in_order(run_files):
    run = run_files().node("V100", 1).job("a", 0, 100)
    for i in range(10):
        run.segment("a", 20 * i, 20 * i + 5 + i, [0], end_reason="preempted" if i < 9 else "done")
    explainer = Explainer(run.load())
    spans = explainer.explain("a", most=4)
    assert explainer.count("a") == 19
    assert len(spans) == 4
    assert spans[-1].end_reason == "done"
    assert [s.begin_s for s in spans] == sorted(s.begin_s for s in spans)
    assert max(s.length_s for s in spans) == 15


def test_free_gpus_agree_with_a_count_of_what_is_held_at_each_time(many_jobs):
    run = many_jobs(200, nodes=4, seed=3).load()
    free, rng = Free(run), np.random.default_rng([5, 0])
    begin, end = run.column("segments", "begin_s"), run.column("segments", "end_s")
    allowed = np.array([False, True])
    mine = np.flatnonzero(run.node_type == 1)
    nodes = run.column("segments", "gpus")
    held = run.held
    for low, high in np.sort(rng.uniform(0, run.window_s[1], (30, 2)), axis=1):
        times = np.unique(np.concatenate(([low], begin, end)))
        times = times[(times >= low) & (times < high)]
        per_node = np.array([
            [4 - (held.milli * ((held.node == n) & (begin <= t) & (t < end))).sum() / 1000 for n in mine] for t in times
        ])
        assert len(nodes) == len(begin)
        assert free.best(low, high, allowed) == per_node.sum(axis=1).max()
        assert free.best_node(low, high, allowed) == per_node.max()


def test_a_power_cap_and_the_end_of_a_lease_are_told(run_files):
    run = run_files().node("V100", 1).job("capped", 0, 30, 1)
    run.segment("capped", 0, 20, [0], end_reason="lease_ended").segment("capped", 20, 30, [0])
    run.segments[0]["power_cap_w"] = 150.0
    first, last = explain(run.load(), "capped")
    assert (first.terms, last.terms) == (("at most 150 W a GPU",), ())
    assert first.text == ("ran 20.0 s on 1 GPU of V100 on node 0 at its recorded speed; on terms: at most 150 W a "
                          "GPU; then its lease ended, was not renewed, and it queued again (lease_ended)")
