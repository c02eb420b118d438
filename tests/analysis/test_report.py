"""The report: one page that holds all it needs, says what it shows, and takes no name for markup."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.measuring_window import windowed
from analysis.metrics import measures, per_job
from analysis.report import charts
from analysis.report.jobs import job_table
from analysis.report.pack import numbers, packed, unpacked, words
from analysis.report.page import page, write_report
from analysis.report.settings import resolved
from analysis.run import RunError, load_run
from traces.errors import HetsimError

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = (
    "</script><script>window.hit=1</script>",
    "\"'><img src=x onerror=window.hit=1>",
    "<!--",
    "\u202egnp.exe",
    "مهمة-٧",
    "a\nb\tc\x00d",
    "$title ${x} %{y} &lt;",
    "constructor",
)


class Seen(HTMLParser):
    """Tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._parts: list[str] = []
        self._inside = ""
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts.append(data)
        elif not self._inside:
            self._parts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self._parts))


@pytest.fixture
def two(story, run_files):
    """The story under fifo, and the same trace under a policy that does better at a price that is unknown."""
    other = run_files("other").node("V100", 4, None)
    other.info |= {"policy": "srtf", "estimate": "oracle", "speed_belief": "noisy:0.3"}
    other.jobs = [
        job | {"state": "done" if job["job_id"] in "abce" else job["state"], "first_start_s": None, "end_s": None}
        for job in story.jobs
    ]
    for job, begin, end, gpus in (("a", 0, 10, [0, 1]), ("b", 0, 20, [2]), ("c", 1, 21, [3]), ("e", 10, 110, [0])):
        other.segment(job, begin, end, gpus)
    other.info |= {"start_s": 0.0, "end_s": 140.0}
    return [story.load(), other.load()]


def test_the_page_asks_nothing_of_any_network(two):
    seen = Seen(page(two))
    assert len(seen.scripts) > 0
    for tag, attributes in seen.tags:
        assert "src" not in attributes, tag
        assert (attributes.get("href") or "#").startswith(("#", "data:,")), attributes
        assert tag not in ("iframe", "object", "embed", "form") or "action" not in attributes
    law = next(a["content"] for t, a in seen.tags if t == "meta" and "http-equiv" in a)
    assert law.startswith("default-src 'none'; script-src 'sha256-")


def test_the_law_of_the_page_allows_its_own_scripts_and_no_other(two):
    content = page(two)
    law = re.search(r'Content-Security-Policy" content="([^"]*)"', content)[1].replace("&#x27;", "'")
    allowed = set(re.findall(r"'sha256-([^']+)'", law))
    scripts = re.findall(r"<script>(.*?)</script>", content, re.S)
    assert {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts} == allowed
    assert len(scripts) == 2


def test_the_same_runs_give_the_same_bytes_in_another_process(two, tmp_path):
    first = write_report(two, tmp_path / "one.html")
    code = (
        "import sys; from analysis.run import load_run; from analysis.report.page import write_report; "
        "write_report([load_run(p) for p in sys.argv[2:]], sys.argv[1])"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "two.html"), *(str(run.path) for run in two)],
        check=True, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
    )  # fmt: skip
    assert first.read_bytes() == (tmp_path / "two.html").read_bytes()


def test_names_of_a_trace_stay_text(run_files):
    run = run_files("<b>run</b>").node('V"100<i>', 8)
    for i, text in enumerate(HOSTILE):
        run.job(text, i, 10, user=text, vc=text).segment(text, i + 1, i + 11, [i])
        run.jobs[-1]["model"] = text
    run.info["policy"] = HOSTILE[1]
    run.info["config"] = {HOSTILE[0]: HOSTILE[1], "note": HOSTILE}
    run.info["trace"]["counts"] = {HOSTILE[1]: 1}
    run.info["trace"]["source"] = HOSTILE[0]
    plain = run_files("plain").node("V100", 8).job("a", 0, 1).segment("a", 0, 1, [0])
    content = page([run.load()])
    seen, quiet = Seen(content), Seen(page([plain.load()]))
    assert [t for t, _ in seen.tags if t == "script"] == ["script"] * 4
    assert {t for t, _ in seen.tags} == {t for t, _ in quiet.tags}  # a page of harmless names has the same tags
    assert not any(name.startswith("on") for _, attributes in seen.tags for name in attributes)
    assert "<img src=x onerror=window.hit=1>" in seen.text
    table = unpacked(re.search(r'id="job-data">([^<]*)<', content)[1])["tables"][0]
    assert table["job_id"]["values"] == list(HOSTILE)


def test_the_summary_has_the_numbers_with_their_units(two):
    seen, values = Seen(page(two)), measures(two[0])
    assert "2 runs; 7 jobs of memory on hand-made (4 GPUs)" in seen.text
    assert f"mean JCT (s){values['jct_mean_s']:,.1f}" in seen.text
    assert f"cost (USD){values['cost_usd']:,.2f}" in seen.text
    titles = {attributes.get("title") for _, attributes in seen.tags}
    assert "job completion time, mean: end_s − submit_s" in titles
    assert "GPUs held, T4" in seen.text


def test_notices_tell_of_overload_rejections_unknown_prices_and_clairvoyance(two, run_files):
    text = Seen(page(two)).text
    assert "1 job rejected: asks for 8 GPUs; the cluster has 2 of a type." in text
    assert "srtf: No price is known for V100" in text
    assert "srtf: The policy is clairvoyant" in text
    assert "srtf: The policy was told speeds by belief 'noisy:0.3': jobs ran at others." in text
    busy = run_files("busy").node("A10", 2)
    for i in range(3):
        busy.job(f"j{i}", 0, 100).segment(f"j{i}", 0 if i < 2 else 100, 100 if i < 2 else 200, [i % 2])
    assert "Recorded load on A10 is 1.50" in Seen(page([busy.load()])).text


def test_a_cost_of_which_nothing_is_known_is_unknown_and_not_zero(two):
    assert charts.costs(two)["runs"][1]["usd"] == [None, 0.0]
    assert not charts.trade(two, [per_job(run)["jct_s"].to_numpy() for run in two])[1]["known"]
    assert re.search(r"cost \(USD\)[\d.]+unknown", Seen(page(two)).text)


def test_a_cost_that_lacks_only_egress_says_so_everywhere(run_files):
    runs = []
    for policy in ("fifo", "srtf"):
        run = run_files(policy).node("V100", 1, 2.0).job("a", 0, 3600).segment("a", 0, 3600, [0]).in_zones("a")
        run.info["policy"] = policy
        run.segments[0] |= {"egress_usd": None, "egress_usd_per_work": None}
        runs.append(run.load())
    text = Seen(page(runs)).text
    for row in ("cost", "cost of these jobs", "cost of the whole run"):
        assert re.search(rf"{row} \(USD\)(≥ 2.00bytes that left a zone unpriced){{2}}", text), row


def test_a_cost_that_is_known_in_part_is_at_least_that_everywhere(run_files):
    runs = []
    for policy in ("fifo", "srtf"):
        run = run_files(policy).node("V100", 1, 2.0).node("rtx", 1, None)
        run.info["policy"] = policy
        run.job("a", 0, 3600).job("b", 0, 5400).segment("a", 0, 3600, [0]).segment("b", 0, 5400, [1])
        runs.append(run.load())
    text = Seen(page(runs)).text
    assert re.search(r"cost \(USD\)≥ 2.00(1.50*) GPU-h unpriced≥ 2.00\1 GPU-h unpriced", text)
    for row in ("cost of these jobs", "cost of the whole run"):
        assert re.search(rf"{row} \(USD\)≥ 2.00(1.50*) GPU-h unpriced≥ 2.00\1 GPU-h unpriced", text)
    assert "cannot be said" in text
    assert charts.trade(runs[:1], [np.array([3600.0])]) == [{"jct_s": 3600.0, "cost_usd": 2.0, "known": False}]


def test_runs_without_any_known_cost_are_reported(run_files):
    runs = []
    for policy in ("fifo", "srtf"):
        run = run_files(policy).node("rtx", 1, None).job("a", 0, 5).segment("a", 0, 5, [0])
        run.info["policy"] = policy
        runs.append(run.load())
    assert "cost of these jobs (USD)unknownunknown" in Seen(page(runs)).text


def queues(run_files, *runs_s):
    """Policies a, b, … under which 40 jobs never wait and run so long each: a number of seconds, or one for each."""
    runs = []
    for k, length_s in enumerate(runs_s):
        run = run_files(f"r{k}").node("V100", 40)
        run.info["policy"] = "abc"[k]
        for i, length in enumerate(np.broadcast_to(length_s, 40).tolist()):
            run.job(f"j{i}", 0, 100).segment(f"j{i}", 0, length, [i])
        runs.append(run.load())
    return runs


NOISE_S = 100 + 20 * np.cos(np.pi * np.arange(40)) - 0.5
"""A mean of 0.5 % less than 100 s, of which nothing is sure."""


def test_what_is_better_or_worse_beyond_the_interval_is_said_to_be(run_files):
    text = Seen(page(queues(run_files, 100, 50))).text
    assert "JCT, mean (s)100.0" in text
    assert "50.050.0 % less: better" in text
    assert "200.0100.0 % more: worse" in Seen(page(queues(run_files, 100, 200))).text


def test_what_lies_within_the_interval_is_neither_better_nor_best(run_files):
    content = page(queues(run_files, 100, NOISE_S))
    assert "0.5 % less: within the interval" in Seen(content).text
    assert 'class="best"' not in content
    assert 'class="better"' not in content


def test_a_value_without_an_interval_is_less_and_not_better(run_files):
    text = Seen(page(queues(run_files, 100, 50))).text
    assert re.search(r"makespan of the whole run \(s\)[^%]*50\.0 % less(?!:)", text)


def best(content):
    return re.findall(r'title="([^":]*)[^<]*</span></th>[^\n]*?class="best"', content.replace("<tr", "\n<tr"))


def test_only_what_is_surely_better_than_each_other_run_is_marked_as_best(run_files):
    sure = best(page(queues(run_files, 100, 50)))
    assert sure == ["job completion time, mean", "cost of GPUs held at the run&#x27;s own price"]
    assert len(best(page(queues(run_files, 100, 50, 80)))) == 2
    assert best(page(queues(run_files, 100, 100 * NOISE_S / 200, 50))) == []  # better than a, but not than c


def test_runs_in_which_other_jobs_finished_are_marked_by_nothing_and_warned_of(run_files):
    first, second = queues(run_files, 100, 100)
    run = run_files("less").node("V100", 40)
    run.info["policy"] = "b"
    for i in range(40):
        run.job(f"j{i}", 0, 100, state="done" if i < 30 else "rejected")
        if i < 30:
            run.segment(f"j{i}", 0, 50, [i])
    content = page([first, run.load()])
    assert best(content) == []
    assert Seen(content).text.count("Not the same jobs finished under each run (a 40 of 40, b 30 of 40)") == 2
    assert "10 are left out" in Seen(content).text
    assert "Not the same jobs" not in Seen(page([first, second])).text


def test_one_job_that_is_left_out_is(run_files):
    short = run_files("short").node("V100", 2)
    short.info["policy"] = "short"
    short.job("a", 0, 5).job("b", 0, 5).segment("a", 0, 5, [0]).segment("b", 0, 5, [1])
    long = run_files("long").node("V100", 2)
    long.info["policy"] = "long"
    long.job("a", 0, 5).job("b", 0, 5, state="unfinished").segment("a", 0, 5, [0])
    text = Seen(page([short.load(), long.load()])).text
    assert "1 job finished in all runs and is compared, 1 is left out." in text


def test_runs_of_different_traces_are_reported_and_not_compared(two, run_files):
    other = run_files("third").node("V100", 1).job("z", 0, 5).segment("z", 0, 5, [0])
    other.info["trace"]["hash"] = "h2"
    text = Seen(page([two[0], other.load()])).text
    assert "Not compared job by job: the runs replayed different traces; got trace hashes h1 and h2." in text
    assert "--different-traces" not in text  # the report has no such option
    assert "2 runs; 1 to 7 jobs" in text


def test_one_run_is_compared_with_nothing(story):
    assert "One run: there is nothing to compare it with." in Seen(page([story.load()])).text


def test_settings_that_differ_are_told_apart(two):
    rows = {row.name: row for row in resolved(two)}
    assert rows["policy"].values_of_runs == ("fifo", "srtf")
    assert rows["policy"].differs
    text = Seen(page(two)).text
    assert "What differs (1)" in text
    assert "policy (differs)fifosrtf" in text


def test_a_setting_that_one_run_lacks_is_no_value(two):
    two[0].info["config"] = {"policy": "fifo", "engine": {"mtbf_h": None, "list": [1]}}
    rows = {row.name: row for row in resolved(two)}
    assert rows["engine.mtbf_h"].values_of_runs == ("null", None)
    assert rows["engine.list"].values_of_runs == ("[1]", None)


def test_the_slowest_jobs_are_told_with_an_anchor_for_the_table(two):
    content = page(two)
    assert 'id="why-0-0"' in content
    assert "then node 0 failed or left" in Seen(content).text
    why = unpacked(re.search(r'id="job-data">([^<]*)<', content)[1])["why"]
    assert why[0]["e"] == "why-0-0"
    assert set(why[0]) == {"a", "b", "c", "e"}


def test_distributions_are_thinned_and_keep_their_ends(many_jobs):
    run = many_jobs(5000, nodes=8).load()
    jct = per_job(run)["jct_s"].to_numpy()
    found = charts.distribution(jct)
    assert len(found["x"]) <= 2001
    assert (found["x"][0], found["x"][-1]) == (round(jct.min(), 3), round(jct.max(), 3))
    assert found["y"][-1] == 1
    worst = max(abs(y - (jct <= x + 5e-4).mean()) for x, y in zip(found["x"][1:], found["y"][1:], strict=True))
    assert worst <= 1 / 2000
    assert charts.distribution(np.array([np.nan])) is None


def test_time_series_are_exact_means_over_bins(many_jobs):
    run = many_jobs(5000, nodes=8).load()
    data = charts.held_over_time([run])
    share = {panel["title"]: panel["runs"][0] for panel in data["panels"]}
    assert set(share) == {"T4", "V100"}
    for name, line in share.items():
        assert len(line["x"]) == 401
        mean = np.average(line["y"][:-1], weights=np.diff(line["x"]))
        held, there = measures(run), run.column("nodes", "gpus")[run.node_type == run.types.index(name)].sum()
        begin, end = run.column("segments", "begin_s"), run.column("segments", "end_s")
        mine = run.node_type[run.held.node] == run.types.index(name)
        gpu_s = (run.held.milli / 1000 * (end - begin)[run.held.segment])[mine].sum()
        assert mean == pytest.approx(100 * gpu_s / (there * held["window_s"]), abs=0.01)


def test_boxes_of_waits_by_gpus_asked_for(run_files):
    run = run_files().node("V100", 4)
    for i, (gpus, wait) in enumerate([(1, 0), (1, 10), (2, 20), (4, 30), (4, 50)]):
        run.job(f"j{i}", 100 * i, 5, gpus).segment(f"j{i}", 100 * i + wait, 100 * i + wait + 5, list(range(gpus)))
    run = run.load()
    boxes = charts.waits([run])
    assert boxes["classes"] == ["1", "2", "4"]
    one, two, four = boxes["runs"][0]
    assert (one["mean"], one["jobs"], one["at"][2]) == (5, 2, 5)
    assert two["at"] == [20] * 5
    assert (four["at"][0], four["at"][4]) == (31, 49)


def test_no_job_that_finished_is_no_chart_and_no_error(run_files):
    run = run_files().node("V100", 1).job("a", 0, 5, 9, state="rejected", reason="too wide")
    text = Seen(page([run.load()])).text
    assert "No job finished." in text


@settings(max_examples=50)
@given(
    st.lists(
        st.one_of(st.floats(-1e12, 1e12), st.just(np.nan), st.just(np.inf)), max_size=40
    ),
    st.lists(st.text(), max_size=40),
)
def test_what_is_packed_is_unpacked(values, texts):
    columns = {"x": numbers(np.array(values)), "small": numbers(np.arange(len(values)) % 7, 0), "t": words(texts)}
    table = unpacked(packed([columns]))["tables"][0]
    np.testing.assert_allclose(np.asarray(table["x"]["values"], float), np.round(values, 2), atol=0.006, rtol=1e-12)
    assert list(table["small"]["values"]) == [i % 7 for i in range(len(values))]
    assert table["t"]["values"] == [text.encode("utf-8", "replace").decode() for text in texts]


def test_all_jobs_are_in_the_table_with_their_times(two):
    times = [per_job(run) for run in two]
    table = job_table(two, times)
    assert (table.shown, table.jobs) == (14, 14)
    content = unpacked(table.text)
    assert content["traces"] == 1
    trace, first, second = content["tables"]
    assert trace["job_id"]["values"] == list("abcdefg")
    assert second["state"]["values"] == ["done", "done", "done", "rejected", "done", "unfinished", "unfinished"]
    np.testing.assert_allclose(np.asarray(first["jct_s"]["values"], float), times[0]["jct_s"], atol=0.005)
    np.testing.assert_allclose(np.asarray(second["queue_s"]["values"], float), times[1]["queue_s"], atol=0.005)


def test_where_all_jobs_are_too_many_the_worst_and_a_sample_are_kept_and_the_page_says_so(many_jobs):
    run = many_jobs(3000, nodes=8).load()
    times = [per_job(run)]
    whole = job_table([run], times)
    table = job_table([run], times, most_bytes=len(whole.text) // 4)
    assert len(table.text) <= len(whole.text) // 4
    assert 0 < table.worst < table.shown < table.jobs == 3000
    kept = set(unpacked(table.text)["tables"][0]["job_id"]["values"])
    assert set(times[0]["jct_s"].nlargest(table.worst).index) <= kept
    rest = times[0].index.difference(times[0]["jct_s"].nlargest(table.worst).index)
    assert len(kept & set(rest)) > 10
    content = page([run], most_bytes=len(whole.text) // 4)
    shown = len(unpacked(re.search(r'id="job-data">([^<]*)<', content)[1])["tables"][1]["row"]["values"])
    assert f"All 3,000 rows would make the page too large: this table has {shown:,}" in Seen(content).text


def test_a_window_counts_only_the_jobs_submitted_in_it(story):
    run = windowed(story.load(), 1.0, 130.0)
    content = page([run])
    table = unpacked(re.search(r'id="job-data">([^<]*)<', content)[1])["tables"][0]
    assert sorted(table["job_id"]["values"]) == ["c", "d", "e", "f"]
    assert Seen(content).text.count("Measured from 1 s to 130 s") == 1
    assert "since the window's begin" in Seen(content).text
    assert "Submitted: since the window's begin." in Seen(content).text


def test_a_window_of_several_runs_is_told_once_with_what_differs(run_files):
    late = [np.repeat([50, 100], [40 - n, n]) for n in (3, 1, 3)]
    runs = [windowed(run, 0.0, 75.0) for run in queues(run_files, *late)]
    text = Seen(page(runs)).text
    assert text.count("Measured from 0 s to 75 s on the trace's clock: the 40 jobs submitted in it count.") == 1
    assert text.count("had not left when it closed: a 3, b 1, c 3.") == 1
    assert "when it opened" not in text
    assert "when the measuring window ended" not in text.split("Comparison")[1]
    assert "makespan in the window" in text


def test_a_set_of_types_for_which_nobody_waits_is_no_panel(story, run_files):
    run = run_files("lacks").node("V100", 1).job("a", 0, 5).job("b", 0, 5)
    run.job("c", 0, 5, gpu_type="H100", state="rejected", reason="no such type")
    run.segment("a", 0, 5, [0]).segment("b", 5, 10, [0])
    assert [panel["title"] for panel in charts.queue_over_time([run.load()])["panels"]] == ["any GPU type"]
    quiet = run_files("quiet").node("V100", 1).job("a", 0, 5).segment("a", 0, 5, [0])
    assert len(charts.queue_over_time([quiet.load()])["panels"]) == 1


def test_a_file_that_is_there_stays_unless_forced(story, tmp_path):
    file, run = tmp_path / "report.html", story.load()
    file.write_text("mine")
    with pytest.raises(HetsimError, match="there already"):
        write_report([run], file)
    assert file.read_text() == "mine"
    write_report([run], file, force=True)
    assert file.read_bytes().startswith(b"<!doctype html>")
    assert [f.name for f in tmp_path.iterdir() if f.name.startswith(".report")] == []


def test_a_folder_that_cannot_be_written_is_an_error_with_its_name(story, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HetsimError, match=r"file/report\.html: the file cannot be written"):
        write_report([story.load()], tmp_path / "file" / "report.html")


@pytest.mark.parametrize("count", [0, 13])
def test_no_run_or_too_many_are_refused(story, count):
    with pytest.raises(RunError, match="1 to 12 runs"):
        page([story.load()] * count)


def test_progress_goes_from_one_to_all(story):
    steps = []
    page([story.load()], lambda done, whole: steps.append((done, whole)))
    assert [done for done, _ in steps] == list(range(1, steps[-1][1] + 1))


def command(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sim", *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))},
    )  # fmt: skip


def test_the_commands_write_a_report_and_explain_a_job(two, tmp_path):
    said = command("report", two[0].path, two[1].path, "-o", "r.html", cwd=tmp_path)
    assert (said.returncode, said.stdout.strip()) == (0, "r.html")
    assert (tmp_path / "r.html").stat().st_size > 1e6
    again = command("report", two[0].path, "-o", "r.html", cwd=tmp_path)
    assert again.returncode == 2
    assert "there already" in again.stderr
    assert "Traceback" not in again.stderr
    told = command("explain", two[0].path, "e", cwd=tmp_path)
    assert told.stdout.startswith("e\n  JCT 2 min 8 s: waited 18.0 s, ran 1 min 50 s on V100")
    assert command("explain", two[0].path, "nobody", cwd=tmp_path).returncode == 2


def test_a_run_that_is_loaded_anew_gives_the_same_page(story):
    run = story.load()
    assert page([run]) == page([load_run(run.path)])
