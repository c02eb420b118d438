"""The audit accepts a valid run in which nearly everything happens, and names each law that is broken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.audit import CONDUCT, FORM, audit
from analysis.run import load_run
from tests.conftest import ONE_FOLDER

NAN, INF = float("nan"), float("inf")


def test_a_valid_run_passes_and_says_what_was_checked(story):
    report = audit(story.load())
    assert report.ok, report.text
    assert report.first is None
    assert list(report.checked) == [*FORM, *CONDUCT]
    assert report.checked["gangs are whole"] == "7 segments"
    assert report.checked["work of a finished job is what it asked"] == "4 finished jobs"
    assert report.checked["nothing runs on a node that is down"] == "1 outages"
    assert f"{len(FORM) + len(CONDUCT)} laws hold" in report.text


def _set(row, **values):
    row.update(values)


def _shift(row, by):
    """Move a segment in time without changing its length."""
    row["begin_s"] += by
    row["end_s"] += by


END_LAW = "segments end for the reason that they say"
MUTATIONS = [
    # law, what is done to the valid run, what the report must name
    ("values are finite", lambda r: _set(r.stretch("b"), rate=NAN), "column 'rate', row 2"),
    ("values are finite", lambda r: _set(r.of("b"), duration_s=INF), "column 'duration_s', row 1"),
    ("values are finite", lambda r: _set(r.of("b"), submit_s=None), "column 'submit_s', row 1"),
    ("values are finite", lambda r: _set(r.of("d"), end_s=NAN), "column 'end_s', row 3"),
    ("values are finite", lambda r: _set(r.nodes[0], price_usd_per_gpu_h=NAN), "price_usd_per_gpu_h"),
    ("values are finite", lambda r: _set(r.nodes[0], down_s=[NAN]), "'down_s', row 0"),
    ("values are finite", lambda r: _set(r.stretch("b"), gpu_ids=None), "column 'gpu_ids', row 2"),
    ("values are finite", lambda r: _set(r.plans[0], memory_gib=INF), "column 'memory_gib'"),
    ("values are in range", lambda r: _set(r.stretch("b"), work_lost=-1.0), "column 'work_lost', row 2"),
    ("values are in range", lambda r: _set(r.stretch("b"), gpu_ids=[-1]), "column 'gpu_ids', row 2: out of range"),
    ("values are in range", lambda r: _set(r.of("b"), submit_s=1e12), "column 'submit_s', row 1"),
    ("values are in range", lambda r: _set(r.nodes[1], gpus=0), "column 'gpus', row 1"),
    ("run.json says what it may", lambda r: r.info.update(trace=None), "key 'trace'"),
    ("run.json says what it may", lambda r: r.info.update(end_s=-1.0), "key 'end_s'"),
    ("run.json says what it may", lambda r: r.info.update(window={"begin_s": 1, "end_s": 5}), "key 'window'"),
    ("run.json says what it may", lambda r: r.timing.update(wall_s="long"), "timing.json, key 'wall_s'"),
    ("words are known", lambda r: _set(r.of("a"), state="finished"), "'finished'"),
    ("words are known", lambda r: _set(r.stretch("a"), end_reason="stopped"), "'stopped'"),
    ("each job is there once", lambda r: r.jobs.append(dict(r.of("g"))), "job 'g'"),
    ("each job is there once", lambda r: r.jobs.pop(1), "segments.parquet, row 2, job 'b': is not in jobs.parquet"),
    ("each job is there once", lambda r: _set(r.plans[0], job_id="z"), "plans.parquet, row 0, job 'z'"),
    ("tables are whole", lambda r: r.info["trace"].update(jobs=8), "rows are missing, or too many; got 7"),
    ("tables are whole", lambda r: r.info.update(decisions=12) or r.decisions.clear(), "decisions.parquet"),
    ("tables are whole", lambda r: r.nodes.clear(), "nodes.parquet"),
    ("each job is there once", lambda r: r.jobs.reverse(), "not in submit order"),
    ("nodes and GPUs are numbered as counted", lambda r: _set(r.nodes[1], first_gpu=3), "node 1"),
    ("nodes and GPUs are numbered as counted", lambda r: _set(r.nodes[1], gpus=1), "no such GPU: 3"),
    ("nodes and GPUs are numbered as counted", lambda r: _set(r.stretch("f"), nodes=[2]), "no such node: 2"),
    ("nodes and GPUs are numbered as counted", lambda r: _set(r.stretch("f"), gpus=[0.5, 0.5]), "job 'f'"),
    ("nodes and GPUs are numbered as counted", lambda r: _set(r.nodes[0], up_s=[40.0]), "node 0: times"),
    ("time goes forward", lambda r: _set(r.stretch("b"), begin_s=20.0, end_s=0.0, work_done=0.0), "job 'b'"),
    ("time goes forward", lambda r: r.info.update(end_s=139.0), "job 'f'"),
    ("time goes forward", lambda r: r.decisions.reverse(), "decision 1"),
    ("no job starts before its submit", lambda r: _set(r.of("e"), submit_s=11.0, first_start_s=11.0),
     "at 10 s, job 'e'"),
    ("segments of a job do not overlap", lambda r: _shift(r.stretch("c", 1), -17.5), "job 'c'"),
    ("segments of a job do not overlap", lambda r: r.segments.insert(0, r.segments.pop(3)), "job 'c'"),
    (
        "a change of speed moves nothing",
        lambda r: _set(r.stretch("c", 0), end_reason="respeed"),
        "at 5 s, job 'c'",
    ),
    ("a change of speed moves nothing", lambda r: _set(r.stretch("f"), end_reason="respeed"), "job 'f'"),
    (
        "no GPU is used above 1000 milli",
        lambda r: _set(r.stretch("c", 0), gpu_ids=[0], nodes=[0]),
        "at 1 s, job 'c', GPU 0, node 0: 1500 milli held, by a, c",
    ),
    ("segments of a job do not overlap", lambda r: _shift(r.stretch("e", 1), -55), "job 'e'"),
    (
        "virtual clusters keep to their quotas",
        lambda r: r.info.update(settings={"quotas": {"x": 2}}),
        "at 0 s: virtual cluster 'x' holds 2500 milli of 2000",
    ),
    (
        "queues keep to their quotas by type and in all",
        lambda r: r.info.update(settings={"quotas": {"x@V100": 1}}),
        "at 0 s: queue 'x' holds 2000 milli on V100 of 1000",
    ),
    ("slots agree with nodes", lambda r: _set(r.stretch("b"), nodes=[0]), "job 'b'"),
    ("slots agree with nodes", lambda r: _set(r.stretch("b"), gpus=[1.0]), "job 'b'"),
    ("slots agree with nodes", lambda r: _set(r.stretch("a"), nodes=[0, 0], gpus=[1.0, 1.0]), "job 'a'"),
    ("slots agree with nodes", lambda r: _set(r.stretch("a"), nodes=[0, 1], gpus=[2.0, 0.5]), "job 'a'"),
    ("slots agree with nodes", lambda r: _set(r.stretch("a"), nodes=[], gpus=[]), "job 'a'"),
    (
        "gangs are whole",
        lambda r: _set(r.stretch("a"), gpu_ids=[0], gpus=[1.0]),
        "at 0 s, job 'a': 1 slots; asked for 2",
    ),
    (
        "shares of GPUs are those asked for, or declared",
        lambda r: _set(r.stretch("f"), gpu_milli=500, gpus=[0.5]),
        "job 'f': holds 500 milli of each GPU; asked for 1000",
    ),
    (
        "nothing runs on a node that is down",
        lambda r: _set(r.nodes[0], down_s=[49.0]),
        "at 49 s, job 'e', node 0",
    ),
    ("nothing runs on a node that is down", lambda r: _set(r.nodes[0], up_s=[]), "at 60 s, job 'e', node 0"),
    (
        "maintenance is kept",
        lambda r: _set(r.nodes[0], maintenance=["drained"], maintenance_s=[55.0], maintenance_gpu=[1]),
        "at 60 s, job 'e', GPU 1",
    ),
    (
        "maintenance is kept",
        lambda r: _set(r.nodes[1], maintenance=["drained", "out"], maintenance_s=[3.0, 4.0], maintenance_gpu=[2, 2]),
        "at 3 s, job 'c', GPU 2",
    ),
    ("words are known", lambda r: _set(r.nodes[1], maintenance=["away"], maintenance_s=[3.0], maintenance_gpu=[2]),
     "column 'maintenance', row 1: unknown word"),
    (
        "nodes and GPUs are numbered as counted",
        lambda r: _set(r.nodes[1], maintenance=["drained", "back"], maintenance_s=[3.0, 4.0], maintenance_gpu=[2, 2]),
        "node 1: maintenance is no turn",
    ),
    (
        "nodes and GPUs are numbered as counted",
        lambda r: _set(r.nodes[1], maintenance=["drained"], maintenance_s=[3.0], maintenance_gpu=[0]),
        "node 1: maintenance is no turn",
    ),
    (
        "jobs run on types that they allow",
        lambda r: _set(r.of("a"), gpu_type="T4|A100"),
        "runs on V100; allowed: T4|A100",
    ),
    (
        "a gang lies on one GPU type",
        lambda r: _set(r.stretch("a"), gpu_ids=[0, 3], nodes=[0, 1], gpus=[1.0, 1.0]),
        "at 0 s, job 'a': spans V100 and T4",
    ),
    (
        "work of a segment is time times rate",
        lambda r: _set(r.stretch("b"), work_done=20.0 + 1e-6),
        "job 'b'",
    ),
    ("work of a segment is time times rate", lambda r: _set(r.stretch("c", 1), overhead_s=3.0), "job 'c'"),
    ("work of a segment is time times rate", lambda r: _set(r.stretch("b"), rate=2.0), "job 'b'"),
    (
        "work of a finished job is what it asked",
        lambda r: _set(r.of("b"), work_total=20.0 + 1e-6),
        "at 20 s, job 'b'",
    ),
    ("work of a finished job is what it asked", lambda r: _set(r.stretch("e", 0), work_lost=9.0), "job 'e'"),
    ("work of a finished job is what it asked", lambda r: _set(r.of("b"), work_total=None), "job 'b'"),
    (
        "first start and end are those of the segments",
        lambda r: _set(r.of("c"), first_start_s=20.0),
        "job 'c'",
    ),
    (
        "jobs say when they ran",
        lambda r: _set(r.of("c"), first_start_s=None),
        "job 'c'",
    ),
    ("first start and end are those of the segments", lambda r: _set(r.of("e"), end_s=129.0), "job 'e'"),
    ("jobs say when they ran", lambda r: _set(r.of("e"), end_s=None), "job 'e'"),
    ("jobs say when they ran", lambda r: _set(r.of("f"), end_s=140.0), "job 'f'"),
    ("jobs say when they ran", lambda r: _set(r.of("c"), first_start_s=0.5), "job 'c'"),
    (
        "jobs say when they ran",
        lambda r: _set(r.of("g"), first_start_s=139.0),
        "job 'g'",
    ),
    ("rejected jobs never ran and say why", lambda r: _set(r.of("d"), reason=""), "job 'd': no reason"),
    (
        "rejected jobs never ran and say why",
        lambda r: _set(r.of("f"), state="rejected"),
        "job 'f': 1 segments",
    ),
    ("unfinished jobs say why", lambda r: _set(r.of("g"), reason=" "), "at 139 s, job 'g'"),
    ("plans match the segments that they began", lambda r: _set(r.plans[0], gpus=1), "at 0 s, job 'a'"),
    (
        "plans match the segments that they began",
        lambda r: _set(r.plans[0], gpu_type="A100"),
        "unknown types",
    ),
    ("plans match the segments that they began", lambda r: _set(r.plans[0], begin_s=1.0), "at 1 s, job 'a'"),
    ("batch sizes are allowed", lambda r: _set(r.stretch("b"), batch_size=64), "64 samples an iteration"),
    ("power caps are within the boards' limits", lambda r: _set(r.stretch("b"), power_cap_w=150.0), "a cap of 150 W"),
    ("leases are kept", lambda r: _set(r.stretch("b"), lease_until_s=15.0), "to 20.0 s on a lease to 15.0 s"),
    ("leases are kept", lambda r: _set(r.stretch("b"), end_reason="lease_ended"), "on a lease to nan s"),
    ("refused jobs never ran and say why", lambda r: _set(r.of("f"), state="refused"), "1 segments"),
    *((END_LAW, lambda r, job=job, reason=reason: _set(r.stretch(job), end_reason=reason),
       f"job {job!r}: ends by {reason!r}")
      for job, reason in (("c", "done"), ("b", "preempted"), ("b", "failed"), ("c", "node_failed"),
                          ("c", "maintenance"), ("c", "migrated"), ("c", "resized"), ("e", "horizon"),
                          ("b", "horizon"))),
    (END_LAW, lambda r: _set(r.nodes[0], down_s=[51.0]), "at 50 s, job 'e'"),
    (END_LAW, lambda r: _set(r.of("b"), state="unfinished", end_s=None, reason="late"), "job 'b': ends by 'done'"),
    ("nothing works on what is done", lambda r: _set(r.of("f"), duration_s=20.0, work_total=20.0), "done at 140.0 s"),
    ("nothing works on what is done", lambda r: _set(r.of("b"), work_total=19.0), "at 20 s, job 'b': held to 20.0 s"),
    ("attempts are equal parts of the work", lambda r: _set(r.stretch("c"), end_reason="failed"), "not at 10.0"),
    ("finished jobs say no reason", lambda r: _set(r.of("c"), reason="slow"), "killed, with the reason 'slow'"),
    ("starts cost the overhead that is set", lambda r: r.info.update(settings={"preemption_overhead_s": 2.0}),
     "at 60 s, job 'e': overhead 0.0 s; set is 2.0 s"),
    ("starts cost the overhead that is set", lambda r: r.info.update(settings={
        "preemption_overhead_s": 9.0, "cold_start_s": 1.0}), "at 0 s, job 'a'"),
    ("work is lost back to the last checkpoint", lambda r: r.info.update(settings={
        "checkpoint_interval_s": "inf", "preempted_work": "kept"}),
     "job 'e': lost 10.0 work; by its last checkpoint 40.0"),
    ("work is lost back to the last checkpoint", lambda r: r.info.update(settings={
        "checkpoint_interval_s": 3.0, "preempted_work": "lost"}), "job 'c': lost 0.0 work; by its last checkpoint 1.0"),
    ("durations are replayed as recorded", lambda r: _set(r.stretch("e"), rate=2.0, work_done=80.0),
     "job 'e': does 2.0"),
    ("durations are replayed as recorded", lambda r: _set(r.of("d"), work_total=6.0), "has 6.0 s of work"),
    ("nodes of a GPU type are alike", lambda r: _set(r.nodes[1], gpu_type="V100", busy_w=300.0), "busy_w 300.0"),
    ("nodes of a GPU type are alike", lambda r: _set(r.nodes[1], gpu_type="V100") or r.info.update(
        config={"cluster": "v100:2x2"}), "price_usd_per_gpu_h 1.0"),
    ("bytes that leave a zone are paid by work", lambda r: _set(r.in_zones("a", "b").stretch("b"), egress_usd=1.0),
     "at 20 s, job 'b': 1.0 USD left one zone, 0.0 USD a unit of work"),
    ("bytes that leave a zone are paid by work", lambda r: _set(
        r.in_zones("a", "b").stretch("b"), egress_usd=40.0, egress_usd_per_work=2.0), "40.0 USD left one zone"),
    ("the cluster has the GPUs that are counted", lambda r: r.info["cluster"].update(gpus_by_type={"V100": 4}),
     "run.json says {'V100': 4}"),
    ("gangs are sized, or of one GPU type", lambda r: r.info.update(sizes_gangs=True), "sizes_gangs True"),
    ("settings are told once", lambda r: r.info.update(config={"policy": "las"}), "'policy' is 'fifo'"),
    ("decisions start and stop what the segments show", lambda r: _set(r.decisions[0], started=1), "at 0 s"),
    ("decisions start and stop what the segments show", lambda r: _set(r.decisions[3], stopped=0), "at 5 s"),
    ("decisions start and stop what the segments show", lambda r: _set(r.decisions[3], now_s=6.0), "at 5 s"),
    ("what happens is decided upon at once", lambda r: _set(r.decisions[6], now_s=38.5), "at 38 s: an end"),
    ("what happens is decided upon at once", lambda r: _set(r.decisions[2], now_s=2.5), "at 2 s: a submission"),
    ("what happens is decided upon at once", lambda r: _set(r.nodes[1], down_s=[7.0], up_s=[8.0]), "a node that left"),
    ("decisions see who runs and who waits", lambda r: _set(r.decisions[5], running=2), "at 20 s: the decision saw 2 "),
    ("decisions see who runs and who waits", lambda r: _set(r.decisions[4], queued=1), "at 10 s: the decision saw 1 "),
]


@pytest.mark.parametrize(
    ("law", "mutate", "named"), MUTATIONS, ids=[f"{i}-{m[0][:30]}" for i, m in enumerate(MUTATIONS)]
)
def test_each_law_is_named_when_it_is_broken(story, law, mutate, named):
    story.write()  # fixes start and end of the run before anything is changed
    mutate(story)
    report = audit(story.load(check=False))
    broken = {v.law: str(v) for v in report.violations}
    assert law in broken, report.text
    assert named in broken[law]
    assert law in report.text


def test_each_law_has_a_mutation():
    assert {law for law, _, _ in MUTATIONS} == {*FORM, *CONDUCT}


def test_the_first_violation_is_the_earliest_in_time(story):
    story.stretch("e", 1)["work_done"] = 1.0  # ends at 130 s
    story.stretch("b")["work_done"] = 1.0  # ends at 20 s
    report = audit(story.load())
    assert (report.first.job_id, report.first.time_s) == ("b", 20.0)
    assert report.text.index("job 'b'") < report.text.index("first start")


def test_an_elastic_policy_may_size_gangs_and_span_types(story):
    story.stretch("a").update(gpu_ids=[0, 1, 3], nodes=[0, 1], gpus=[2.0, 1.0])
    story.of("a")["gpu_type"] = ""
    story.plans.clear()
    story.info.update(sizes_gangs=True, one_type_gangs=False)
    assert audit(story.load()).ok


@pytest.mark.parametrize(("interval_s", "lost"), [(0.0, 0.0), (7.0, 5.0), (40.0, 0.0), (41.0, 40.0), ("inf", 40.0)])
def test_a_failure_loses_what_no_checkpoint_holds(run_files, interval_s, lost):
    """40 s of work, then the node fails: the last of its checkpoints, every `interval_s`, says what is left."""
    run = run_files().node(gpus=1, down=[45.0], up=[50.0]).job("a", 0, 100)
    run.info["settings"] = {"checkpoint_interval_s": interval_s, "preempted_work": "kept"}
    run.segment("a", 0, 45, [0], overhead_s=5, end_reason="node_failed", work_lost=lost)
    run.segment("a", 50, 110 + lost, [0])
    assert audit(run.load()).ok, audit(run.load()).text
    run.stretch("a")["work_lost"] = lost + 1.0
    run.stretch("a", 1)["work_done"] += 1.0
    run.stretch("a", 1)["end_s"] = run.of("a")["end_s"] = run.info["end_s"] = 111 + lost
    assert [v.law for v in audit(run.load()).violations] == ["work is lost back to the last checkpoint"]


def test_a_run_in_which_nothing_ran_passes(run_files):
    run = run_files().node(gpus=1).job("a", 0, 10, 2, state="rejected", reason="asks for 2 GPUs")
    run.info["settings"] = {"checkpoint_interval_s": 3.0, "preempted_work": "kept", "preemption_overhead_s": 1.0}
    run.decisions.append({"now_s": 0.0, "queued": 0, "running": 0, "started": 0, "stopped": 0})
    assert audit(run.load()).ok


def test_checkpoints_go_on_through_changes_of_speed(run_files):
    """A checkpoint every 20 s of working time: the second lies 10 s into the slower part, and holds 30 + 5 of 37.5."""
    run = run_files().node(gpus=1, down=[45.0], up=[50.0]).job("a", 0, 100, gpu_milli=500)
    run.info["work"]["mode"] = "iterations"
    run.info["settings"] = {"checkpoint_interval_s": 20.0, "preempted_work": "kept"}
    run.segment("a", 0, 30, [0], end_reason="respeed").segment("a", 30, 45, [0], end_reason="node_failed")
    run.segment("a", 50, 115, [0])
    run.stretch("a", 1).update(rate=0.5, work_done=7.5, work_lost=2.5)
    assert audit(run.load()).ok, audit(run.load()).text
    run.stretch("a", 1)["work_lost"] = 7.5
    assert "work is lost back to the last checkpoint" in {v.law for v in audit(run.load()).violations}


def test_a_job_that_is_cut_off_at_the_instant_of_its_end_should_have_ended(run_files):
    run = run_files().node(gpus=1).job("a", 0, 10, state="unfinished", reason="still running at the horizon")
    run.segment("a", 0, 9.75, [0], end_reason="horizon")
    assert audit(run.load()).ok
    run.stretch("a").update(end_s=10.0, work_done=10.0)
    run.info["end_s"] = 10.0
    assert [v.law for v in audit(run.load()).violations] == ["nothing works on what is done"]


def test_who_may_have_been_turned_away_may_have_waited(run_files):
    """A job that left by the policy's word may have been gone or not: both counts are possible, a third is not."""
    run = run_files().node(gpus=1).job("a", 0, 10).job("b", 1, 10, state="refused", reason="full")
    run.info["declares"] = ["refuses_jobs"]
    run.segment("a", 0, 10, [0])
    told = [(0, 1, 0, 1, 0), (1, 1, 1, 0, 0), (10, 0, 0, 0, 0)]
    for queued, fine in ((0, True), (1, True), (2, False)):
        run.decisions = [dict(zip(("now_s", "queued", "running", "started", "stopped"), map(float, row), strict=True))
                         for row in told]
        run.decisions[1]["queued"] = queued
        assert audit(run.load()).ok == fine


def test_an_end_frees_before_a_begin_at_the_same_instant(run_files):
    run = run_files().node(gpus=1).job("a", 0, 10).job("b", 0, 10)
    run.segment("a", 0, 10, [0]).segment("b", 10, 20, [0])
    assert audit(run.load(check=False)).ok
    run.stretch("b").update(begin_s=9.5, work_done=10.5)
    assert audit(run.load(check=False)).first.law == "no GPU is used above 1000 milli"


def test_a_job_of_no_length_holds_nothing(run_files):
    run = (
        run_files()
        .node(gpus=1)
        .job("a", 0, 10)
        .job("b", 5, 0)
        .segment("a", 0, 10, [0])
        .segment("b", 5, 5, [0])
    )
    assert audit(run.load(check=False)).ok


def test_five_fifths_fill_a_gpu_and_a_sixth_is_too_much(run_files):
    run = run_files().node(gpus=1)
    for i in range(5):
        run.job(f"j{i}", 0, 10, gpu_milli=200).segment(f"j{i}", 0, 10, [0])
    assert audit(run.load(check=False)).ok
    run.job("late", 3, 7, gpu_milli=1).segment("late", 3, 10, [0])
    first = audit(run.load(check=False)).first
    assert (first.time_s, first.job_id, first.gpu) == (3.0, "late", 0)


def test_the_second_of_two_shares_of_one_gpu_counts(run_files):
    run = run_files().node(gpus=1).job("a", 0, 10, 2, gpu_milli=500).segment("a", 0, 10, [0, 0])
    assert audit(run.load(check=False)).ok
    run = run_files("whole").node(gpus=1).job("a", 0, 10, 2).segment("a", 0, 10, [0, 0])
    assert audit(run.load(check=False)).first.law == "no GPU is used above 1000 milli"


def test_times_of_today_do_not_break_the_work_law(run_files):
    """On a clock of 1.5e9 s a time has steps of 0.24 µs; a short job's work is known no better than that."""
    at, run = 1.5e9, run_files().node(gpus=1)
    end = at + 0.1
    run.job("a", at, 0.1).segment("a", at, end, [0])
    run.stretch("a")["work_done"] = 0.1  # as the engine asks it to be; end - at is 0.0999999...
    assert end - at != 0.1
    assert audit(run.load(check=False)).ok
    run.stretch("a")["work_done"] = run.of("a")["work_total"] = run.of("a")["duration_s"] = 0.1 + 2e-6
    assert audit(run.load(check=False)).first.law == "work of a segment is time times rate"


@settings(max_examples=25, suppress_health_check=ONE_FOLDER)
@given(seed=st.integers(0, 10_000), pick=st.integers(0, 10_000), early=st.floats(0.01, 1.0))
def test_a_random_run_passes_until_one_job_starts_too_early(many_jobs, seed, pick, early):
    """A job that waited started when its GPUs became free: a little earlier, and the sweep must object."""
    run = many_jobs(40, seed, nodes=2, name=f"r{seed}-{pick}")
    assert audit(run.load(check=False)).ok
    waited = [s for s in run.segments if s["begin_s"] > run.of(s["job_id"])["submit_s"]]
    segment = waited[pick % len(waited)]
    free_s = max(
        s["end_s"]
        for s in run.segments
        if s["end_s"] <= segment["begin_s"] and set(s["gpu_ids"]) & set(segment["gpu_ids"])
    )
    assert free_s == segment["begin_s"]
    segment["begin_s"] -= early
    broken = {v.law for v in audit(run.load(check=False)).violations}
    assert "no GPU is used above 1000 milli" in broken


@pytest.mark.slow
def test_eighty_thousand_jobs(big_run):
    """The sweep agrees with what is known of the run: each slot begins and ends once."""
    run = load_run(big_run)
    report = audit(run)
    assert report.ok, report.text
    assert (
        report.checked["jobs run on types that they allow"] == f"{int(np.sum(run.jobs['num_gpus'])):,} slots"
    )


@pytest.mark.parametrize("asked", ["fifo", "mine.py:Mine", "./mine.py"])
def test_a_policy_that_was_asked_for_in_another_way_is_the_same_setting(story, asked):
    story.info.update(config={"policy": asked})
    assert audit(story.load()).ok


def test_a_name_with_underscores_is_the_same_setting(story):
    story.info.update(policy="fifo-skip", config={"policy": "fifo_skip"})
    assert audit(story.load()).ok
