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

from analysis.metrics import measures, per_job
from analysis.report import charts
from analysis.report.jobs import job_table
from analysis.report.pack import numbers, packed, unpacked, words
from analysis.report.page import page, write_report
from analysis.report.settings import resolved
from analysis.run import RunError, load_run
from analysis.window import windowed

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
    other.info |= {"policy": "srtf", "estimate": "oracle"}
    other.jobs = [dict(job, state="done" if job["job_id"] in "abce" else job["state"]) for job in story.jobs]
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
    assert f"job completion time, mean (s){values['jct_mean_s']:,.2f}" in seen.text
    assert "cost of GPUs held at the run's own price (USD)" in seen.text
    assert "GPUs held, T4" in seen.text


def test_notices_tell_of_overload_rejections_unknown_prices_and_clairvoyance(two, run_files):
    text = Seen(page(two)).text
    assert "1 job rejected: asks for 8 GPUs; the cluster has 2 of a type." in text
    assert "srtf: No price is known for V100" in text
    assert "srtf: The policy is clairvoyant" in text
    busy = run_files("busy").node("A10", 2)
    for i in range(3):
        busy.job(f"j{i}", 0, 100).segment(f"j{i}", 0 if i < 2 else 100, 100 if i < 2 else 200, [i % 2])
    assert "Offered load on A10 is 1.50" in Seen(page([busy.load()])).text


def test_a_cost_that_is_unknown_is_neither_zero_nor_a_point(two):
    assert charts.costs(two)["runs"][1]["usd"] == [None, 0.0]
    assert charts.trade(two, [per_job(run)["jct_s"].to_numpy() for run in two])[1] is None
    assert re.search(r"cost of GPUs held at the run's own price \(USD\)[\d.]+unknown", Seen(page(two)).text)


def test_the_comparison_says_better_or_worse_in_words(two):
    text = Seen(page(two)).text
    assert "Baseline: fifo, the first run. 4 jobs finished in all runs and are compared, 0 are left out." in text
    assert re.search(r"JCT, mean \(s\)[\d.]+baseline[\d.]+[\d.]+ % less: (better|within the interval)", text)


def test_runs_of_different_traces_are_reported_and_not_compared(two, run_files):
    other = run_files("third").node("V100", 1).job("z", 0, 5).segment("z", 0, 5, [0])
    other.info["trace"]["hash"] = "h2"
    text = Seen(page([two[0], other.load()])).text
    assert "Not compared job by job" in text
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
    boxes = charts.waits([run], [per_job(run)["queue_s"].to_numpy()])
    assert boxes["classes"] == ["1", "2", "4"]
    one, two, four = boxes["runs"][0]
    assert (one["mean"], one["jobs"], one["at"][2]) == (5, 2, 5)
    assert two["at"] == [20] * 5
    assert (four["at"][0], four["at"][4]) == (31, 49)


def test_no_job_that_finished_is_no_chart_and_no_error(run_files):
    run = run_files().node("V100", 1).job("a", 0, 5, 9, state="rejected", reason="too wide")
    text = Seen(page([run.load()])).text
    assert "No job finished." in text


@settings(deadline=None, max_examples=50)
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
    assert "Measured from 1 s to 130 s" in Seen(content).text


def test_a_file_that_is_there_stays_unless_forced(story, tmp_path):
    file, run = tmp_path / "report.html", story.load()
    file.write_text("mine")
    with pytest.raises(RunError, match="there already"):
        write_report([run], file)
    assert file.read_text() == "mine"
    write_report([run], file, force=True)
    assert file.read_bytes().startswith(b"<!doctype html>")
    assert [f.name for f in tmp_path.iterdir() if f.name.startswith(".report")] == []


def test_a_folder_that_cannot_be_written_is_an_error_with_its_name(story, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
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
    assert told.stdout.startswith("e\n  +0.0 s: waited 8.0 s for 1 GPU of V100")
    assert command("explain", two[0].path, "nobody", cwd=tmp_path).returncode == 2


def test_a_run_that_is_loaded_anew_gives_the_same_page(story):
    run = story.load()
    assert page([run]) == page([load_run(run.path)])
