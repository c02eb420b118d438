"""The timeline of a run: by hand, by law, and as a file that is read back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from analysis.run import Run, RunError
from analysis.timeline.traceevents import count, fits_until_s, write
from analysis.timeline.tracks import Timeline, lanes, microseconds, timeline
from sim.cli import app
from tests.analysis.conftest import RunFiles
from traces.errors import HetsimError

Story = Callable[..., RunFiles]
Event = dict[str, Any]


def read(path: Path) -> list[Event]:
    """The events of a file; its times are whole numbers, which all viewers read alike."""
    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    content = json.loads(text)
    assert content["displayTimeUnit"] == "ns"
    for event in content["traceEvents"]:
        assert all(isinstance(event.get(key, 0), int) for key in ("ts", "dur")), event
    return list(content["traceEvents"])


def written(laid_out: Timeline, folder: Path, name: str = "timeline.json") -> list[Event]:
    file = write(laid_out, folder / name)
    events = read(file.path)
    assert (len(events), file.size_bytes) == (file.events, file.path.stat().st_size)
    assert count(laid_out) == file.events
    return events


def tracks(events: list[Event]) -> dict[str, list[Event]]:
    """Slices by 'process / thread', in order of the file; each thread belongs to one process."""
    process = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    thread = {e["tid"]: (e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert not process.keys() & thread.keys()
    found: dict[str, list[Event]] = {}
    for event in events:
        if event["ph"] == "X":
            pid, name = thread[event["tid"]]
            assert pid == event["pid"]
            found.setdefault(f"{process[pid]} / {name}", []).append(event)
    return found


def spans(slices: list[Event]) -> list[tuple[str, float, float]]:
    return [(e["name"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6) for e in slices]


def never_overlap(events: list[Event]) -> None:
    """On each track slices follow one another; only a restart lies within its segment."""
    for name, slices in tracks(events).items():
        until = 0
        whole: Event = {}
        for e in slices:
            assert e["dur"] >= 0
            if e["cat"] == "overhead":
                assert e["ts"] == whole["ts"] and e["dur"] <= whole["dur"], name
                continue
            assert e["ts"] >= until, (name, e)
            until, whole = e["ts"] + e["dur"], e


def test_a_process_is_a_node_a_thread_a_gpu_and_a_slice_a_segment_on_one_slot(story: RunFiles, tmp_path: Path) -> None:
    found = {name: spans(slices) for name, slices in tracks(written(timeline(story.load()), tmp_path)).items()}
    assert found == {
        "node 0, 2 V100 / GPU 0": [("a", 0, 10), ("e", 10, 50)],
        "node 0, 2 V100 / GPU 1": [("a", 0, 10), ("e", 60, 130)],
        "node 1, 2 T4 / GPU 2": [("b", 0, 20)],
        "node 1, 2 T4 / GPU 2, lane 2": [("c", 1, 5)],
        "node 1, 2 T4 / GPU 3": [("c", 20, 38), ("restart", 20, 22), ("f", 120, 140)],
    }


def test_a_slice_tells_who_ran_how_much_how_fast_and_why_it_ended(story: RunFiles, tmp_path: Path) -> None:
    events = written(timeline(story.load()), tmp_path)
    second = [e for e in events if e["name"] == "c"][1]
    assert second["cat"] == "done"
    assert second["args"] == {
        "user": "bob", "vc": "y", "num_gpus": 1, "share": 0.5, "end_reason": "done", "begin_s": 20, "end_s": 38,
        "overhead_s": 2, "rate": 1, "work_done": 16, "work_lost": 0,
    }  # fmt: skip
    assert next(e for e in events if e["name"] == "a")["args"]["plan"] == "stage 0: operators 0 to 9 on 2 V100"
    assert next(e for e in events if e["name"] == "e")["args"]["work_lost"] == 10


def test_arrows_lead_from_where_a_job_left_off_to_where_it_went_on(story: RunFiles, tmp_path: Path) -> None:
    ends = [(e["name"], e["ts"] // 10**6, e["bind_id"], e.get("flow_out"), e.get("flow_in"))
            for e in written(timeline(story.load()), tmp_path) if "bind_id" in e]
    arrows = {number for _, _, number, _, _ in ends}
    assert sorted((name, at, out, into) for name, at, _, out, into in ends) == [
        ("c", 1, True, None), ("c", 20, None, True), ("e", 10, True, None), ("e", 60, None, True)]  # fmt: skip
    assert len(arrows) == 2


def test_a_change_of_speed_is_no_arrow_and_keeps_its_lane(run_files: Story, tmp_path: Path) -> None:
    run = run_files().node(gpus=1).job("a", 0, 10, gpu_milli=500).job("b", 0, 10, gpu_milli=500)
    run.segment("a", 0, 4, [0], end_reason="respeed").segment("b", 0, 4, [0], end_reason="respeed")
    run.segment("b", 4, 9, [0]).segment("a", 4, 10, [0])
    events = written(timeline(run.load()), tmp_path)
    assert not [e for e in events if "bind_id" in e]
    assert {name.split(" / ")[1]: spans(s) for name, s in tracks(events).items()} == {
        "GPU 0": [("a", 0, 4), ("a", 4, 10)], "GPU 0, lane 2": [("b", 0, 4), ("b", 4, 9)]}


def test_counters_are_jobs_waiting_and_gpus_held_and_in_service(story: RunFiles, tmp_path: Path) -> None:
    events = [e for e in written(timeline(story.load()), tmp_path) if e["ph"] == "C"]
    by_name = {name: [(e["ts"] // 10**6, e["args"]) for e in events if e["name"] == name]
               for name in ("jobs waiting", "GPUs held", "GPUs in service")}
    assert by_name["GPUs held"][:3] == [
        (0, {"V100": 2, "T4": 0.5}), (1, {"V100": 2, "T4": 1}), (5, {"V100": 2, "T4": 0.5})]  # fmt: skip
    assert by_name["GPUs held"][-1] == (140, {"V100": 0, "T4": 0})
    assert by_name["jobs waiting"][0] == (0, {"V100": 0, "any": 0})
    assert (5, {"V100": 1, "any": 1}) in by_name["jobs waiting"]
    assert by_name["GPUs in service"] == [
        (0, {"V100": 2, "T4": 2}), (50, {"V100": 0, "T4": 2}), (60, {"V100": 2, "T4": 2})]  # fmt: skip


def test_outages_are_marked_on_their_node(story: RunFiles, tmp_path: Path) -> None:
    marks = [(e["pid"], e["ts"] // 10**6, e["name"], e["s"]) for e in written(timeline(story.load()), tmp_path)
             if e["ph"] == "i"]
    assert marks == [(2, 50, "out of service", "p"), (2, 60, "back in service", "p")]


def test_processes_are_in_order_of_node_and_threads_in_order_of_gpu_and_lane(story: RunFiles, tmp_path: Path) -> None:
    events = written(timeline(story.load()), tmp_path)
    order = {e.get("tid", e["pid"]): e["args"]["sort_index"] for e in events if e["name"].endswith("sort_index")}
    names = {e.get("tid", e["pid"]): e["args"]["name"] for e in events if e["name"].endswith("_name")}
    processes = sorted((order[i], names[i]) for i in names if names[i].startswith(("node", "cluster")))
    assert processes == [(0, "cluster hand-made"), (1, "node 0, 2 V100"), (2, "node 1, 2 T4")]
    threads = sorted((order[i], names[i]) for i in names if names[i].startswith("GPU"))
    assert [name for _, name in threads] == ["GPU 0", "GPU 1", "GPU 2", "GPU 2, lane 2", "GPU 3"]


def test_a_window_cuts_slices_and_keeps_the_clock_and_the_state_at_its_begin(story: RunFiles, tmp_path: Path) -> None:
    events = written(timeline(story.load(), 15, 21), tmp_path)
    assert {name.split(" / ")[1]: spans(s) for name, s in tracks(events).items()} == {
        "GPU 0": [("e", 15, 21)], "GPU 2": [("b", 15, 20)], "GPU 3": [("c", 20, 21), ("restart", 20, 21)]}
    assert next(e for e in events if e["name"] == "e")["args"]["begin_s"] == 10
    held = [(e["ts"] // 10**6, e["args"]) for e in events if e["name"] == "GPUs held"]
    assert held == [(15, {"V100": 1, "T4": 0.5})], "at 20 s one half is given back and another taken"
    assert not [e for e in events if e["ph"] == "i"]


def test_one_job_from_its_submit_to_its_end(story: RunFiles, tmp_path: Path) -> None:
    laid_out = timeline(story.load(), jobs=["c"])
    assert (laid_out.begin_s, laid_out.end_s) == (1, 38)
    assert set(tracks(written(laid_out, tmp_path))) == {"node 1, 2 T4 / GPU 2", "node 1, 2 T4 / GPU 3"}


def test_a_job_that_is_not_there_and_an_empty_window_are_refused(story: RunFiles) -> None:
    run = story.load()
    with pytest.raises(RunError, match="no such job"):
        timeline(run, jobs=["a", "zz"])
    with pytest.raises(RunError, match="nothing lies in the window"):
        timeline(run, 20, 10)
    with pytest.raises(RunError, match="nothing lies in the window"):
        timeline(run, 1000, 2000)


def test_a_run_in_which_nothing_ran_has_counters_only(run_files: Story, tmp_path: Path) -> None:
    run = run_files().node().job("a", 0, 10, 8, state="rejected", reason="too wide")
    assert {e["ph"] for e in written(timeline(run.load()), tmp_path)} == {"M", "C"}


def test_names_that_are_hostile_come_back_as_they_were(run_files: Story, tmp_path: Path) -> None:
    name = 'j"\\\n</script>\u202e\U0001f600'
    run = run_files().node().job(name, 0, 10, user="NaN").segment(name, 0, 10, [0])
    event = next(e for e in written(timeline(run.load()), tmp_path) if e["ph"] == "X")
    assert (event["name"], event["args"]["user"]) == (name, "NaN")


# -- times -------------------------------------------------------------------------------------------------------------


def test_times_are_whole_microseconds() -> None:
    since_0 = microseconds(np.array([0.1, 0.3, 1.0000004, 1.0000006, 9_408_754.0]), 0.0)
    assert since_0.tolist() == [100_000, 300_000, 1_000_000, 1_000_001, 9_408_754_000_000]
    assert microseconds(np.array([1.5e9 + 0.25]), 1.5e9).tolist() == [250_000]


@given(st.lists(st.floats(0, 1e9), min_size=2))
def test_rounding_keeps_the_order_of_times(times: list[float]) -> None:
    assert (np.diff(microseconds(np.array(sorted(times)), 0.0)) >= 0).all()


def test_stretches_that_abut_at_a_time_without_exact_digits_still_do(run_files: Story, tmp_path: Path) -> None:
    third = 1 / 3
    run = run_files().node(gpus=1).job("a", 0, 1).job("b", 0, 1)
    run.segment("a", 0.1, third, [0]).segment("b", third, 1.1, [0])
    first, second = (e for e in written(timeline(run.load()), tmp_path) if e["ph"] == "X")
    assert first["ts"] + first["dur"] == second["ts"] == 333_333


def test_a_segment_without_length_is_there_and_shares_the_track(run_files: Story, tmp_path: Path) -> None:
    run = run_files().node(gpus=1).job("a", 0, 5).job("z", 0, 0).job("b", 0, 5)
    run.segment("a", 0, 5, [0]).segment("z", 5, 5, [0]).segment("b", 5, 10, [0])
    (slices,) = tracks(written(timeline(run.load()), tmp_path)).values()
    assert spans(slices) == [("a", 0, 5), ("z", 5, 5), ("b", 5, 10)]


# -- laws --------------------------------------------------------------------------------------------------------------

TIMES_US = st.integers(0, 8) | st.integers(0, 10**15)


@st.composite
def stretches(draw: st.DrawFn) -> np.ndarray:
    """int64 [4, slices]: GPU, begin, end, job; in order of begin, then of end; as crowded as it comes."""
    rows = draw(st.lists(st.tuples(st.integers(0, 2), TIMES_US, TIMES_US, st.integers(0, 4)), max_size=30))
    ordered = sorted(((g, min(b, e), max(b, e), j) for g, b, e, j in rows), key=lambda row: (row[1], row[2]))
    return np.array(ordered, dtype=np.int64).reshape(-1, 4).T


@given(stretches())
def test_slices_of_a_lane_never_overlap_and_lanes_are_as_few_as_can_be(drawn: np.ndarray) -> None:
    gpu, begin_us, end_us, job = drawn
    lane = lanes(gpu, begin_us, end_us, job)
    for g in set(gpu.tolist()):
        mine = gpu == g
        for k in set(lane[mine].tolist()):
            here = mine & (lane == k)
            assert (begin_us[here][1:] >= end_us[here][:-1]).all()
        b, e = begin_us[mine], end_us[mine]
        deepest = max(int(((b <= at) & (e > at)).sum()) for at in b) if (b < e).any() else 0
        within = [int(((b < at) & (e > at)).sum()) + 1 for at in b[b == e]]
        assert lane[mine].max() + 1 == max([deepest, 1, *within])


@given(st.floats(0, 1e5), st.floats(0, 1e5))
def test_no_track_of_any_window_of_a_busy_run_has_an_overlap(crowd: Run, tmp_path_factory: pytest.TempPathFactory,
                                                             begin_s: float, length_s: float) -> None:
    begin_s = min(begin_s, crowd.window_s[1])
    never_overlap(written(timeline(crowd, begin_s, begin_s + length_s), tmp_path_factory.mktemp("window")))


def test_slices_hold_as_much_gpu_time_as_segments(many_jobs: Story, tmp_path: Path) -> None:
    from analysis.metrics import held_gpu_s

    run = many_jobs(300, nodes=5).load()
    slices = [e for e in written(timeline(run), tmp_path) if e["ph"] == "X" and e["cat"] != "overhead"]
    assert sum(e["dur"] * float(e["args"]["share"]) for e in slices) / 1e6 == pytest.approx(held_gpu_s(run).sum())


# -- the file ----------------------------------------------------------------------------------------------------------


def test_equal_runs_give_equal_bytes_also_packed(story: RunFiles, tmp_path: Path) -> None:
    files = [write(timeline(story.load()), tmp_path / name) for name in ("a.json", "b.json", "c.json.gz", "d.json.gz")]
    plain, again, packed, repacked = (file.path.read_bytes() for file in files)
    assert plain == again and packed == repacked and gzip.decompress(packed) == plain


def test_a_file_that_is_there_is_kept_unless_forced_and_a_failure_leaves_nothing(
        story: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out, path = timeline(story.load()), tmp_path / "out" / "t.json"
    assert read(write(laid_out, path).path)
    path.write_text("mine")
    with pytest.raises(HetsimError, match="there already"):
        write(laid_out, path)
    assert path.read_text() == "mine"

    def stops(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(laid_out, path, force=True, progress=stops)
    assert [f.name for f in path.parent.iterdir()] == ["t.json"] and path.read_text() == "mine"
    write(laid_out, path, force=True)
    assert read(path)


def test_the_window_that_is_said_to_fit_does(many_jobs: Story) -> None:
    run = many_jobs(500, nodes=5).load()
    whole = timeline(run, 100.0)
    for limit in (400, 1000):
        until_s = fits_until_s(whole, limit)
        assert 100 < until_s < run.window_s[1]
        assert count(timeline(run, 100.0, until_s)) <= limit < count(timeline(run, 100.0, until_s + 1000))
    assert fits_until_s(whole, 10**6) == run.window_s[1]


def test_the_command_says_what_it_wrote_and_refuses_what_viewers_do_not_hold(
        story: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(story.write())
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["timeline", folder, "--from", "15", "--to", "0.35min"])
    assert (done.exit_code, done.stdout) == (0, "story-timeline.json.gz: 3 slices, 20 events, 0.0 MiB\n")
    assert len(read(tmp_path / "story-timeline.json.gz")) == 20
    monkeypatch.setattr("analysis.timeline.traceevents.MAX_EVENTS", 40)
    refused = CliRunner().invoke(app, ["timeline", folder, "-o", "t.json"])
    assert refused.exit_code == 2
    assert "allowed: up to 40" in refused.stderr and "--from 0 --to" in refused.stderr
    assert not (tmp_path / "t.json").exists()
    assert CliRunner().invoke(app, ["timeline", folder, "-o", "t.json", "--force"]).exit_code == 0
    for wrong in (["--from", "noon"], ["--from", ""], ["--from", "9h"], ["--to", "9h"], ["--job", "zz"], ["-o", "."]):
        assert CliRunner().invoke(app, ["timeline", folder, "-o", "new.json", *wrong]).exit_code == 2, wrong
    assert not list(tmp_path.glob("*new*"))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two GPUs that jobs of 250 and 500 milli share, at times without exact digits, with restarts and preemptions."""
    rng = np.random.default_rng([0, 7])
    run = RunFiles(tmp_path_factory.mktemp("crowd") / "run").node(gpus=2)
    free = np.zeros((2, 4))
    for i in range(120):
        slots, pieces = int(rng.choice([1, 2])), int(rng.integers(1, 4))
        run.job(f"j{i}", 0.0, 1.0, gpu_milli=250 * slots)
        for piece in range(pieces):
            gpu = int(np.argmin(np.sort(free, axis=1)[:, slots - 1]))
            own = np.argsort(free[gpu], kind="stable")[:slots]
            begin = float(free[gpu, own].max())
            end = begin + float(rng.exponential(300.0)) * float(rng.integers(0, 3) > 0)
            free[gpu, own] = end
            run.segment(f"j{i}", begin, end, [gpu], overhead_s=float(rng.choice([0, 1 / 7, 50])),
                        end_reason="done" if piece == pieces - 1 else "preempted")
    return run.load(check=False)  # jobs whose own segments overlap: only their tracks matter here


def test_r3_29_a_late_clock_starts_at_0_and_keeps_the_true_time(run_files: Story, tmp_path: Path) -> None:
    """First submission at 1,666,382,280 s: slices begin at 0 and 5,000,000 us."""
    t = 1_666_382_280.0
    run = run_files().node("V100", 1, 1.0).job("a", t, 5).job("b", t + 1, 5)
    run.segment("a", t, t + 5, [0]).segment("b", t + 5, t + 10, [0])
    slices = [e for e in written(timeline(run.load()), tmp_path) if e["ph"] == "X"]
    assert [e["ts"] for e in slices] == [0, 5_000_000]
