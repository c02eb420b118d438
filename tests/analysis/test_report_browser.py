"""The report in a real browser, from a file: nothing is asked of a network, and switches, search and sorting work."""

from __future__ import annotations

import json
import shutil
import time

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("selenium", reason="Selenium is not installed")

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from analysis.metrics import per_job
from analysis.report.page import write_report
from analysis.run import Run
from sim.results.schema import FILES
from tests.conftest import PATIENCE_S

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium or chromedriver on the path (Debian: chromium, chromium-driver)"
)
NAMES = (
    "</script><script>window.hit=1</script>", "\"'><img src=x onerror=window.hit=1>", "\u202egnp.exe", "constructor",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = Options()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1300,900",
                 f"user-data-dir={profile}"):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    yield driver
    driver.quit()


def wait(what):
    """What the function gives once it gives something; fails where it never does."""
    until = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < until, "the page did not get there"
        time.sleep(0.02)
    return found


def opened(browser, file):
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(file.as_uri())
    wait(lambda: browser.execute_script("return document.documentElement.dataset.ready"))
    return browser


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pages of three policies on 60 jobs, some with names that want to be code."""
    from tests.analysis.conftest import random_run

    folder = tmp_path_factory.mktemp("pages")
    runs = []
    for k, policy in enumerate(("fifo", "las", "<b>srtf</b> %{x} $y$")):
        run = random_run(folder / f"run{k}", 60, seed=1, nodes=2 + k)
        for row, name in zip(run.jobs, NAMES, strict=False):
            next(s for s in run.segments if s["job_id"] == row["job_id"])["job_id"] = name
            row |= {"job_id": name, "user": name, "model": name}
        run.info["policy"] = policy
        runs.append(run.load())
    return write_report(runs, folder / "report.html"), runs


@pytest.fixture
def page(browser, files):
    return opened(browser, files[0])


def traces(page, chart):
    """Names of the runs whose lines a chart has, in order."""
    return page.execute_script(
        "return document.getElementById(arguments[0]).data.filter(t => t.meta !== undefined).map(t => t.name)", chart
    )


def cells(page, heading):
    """A column of the shown page of the table, as text."""
    heads = [h.text.rstrip(" ↕↑↓") for h in page.find_elements(By.CSS_SELECTOR, "#job-table thead th")]
    return page.execute_script(
        "return [...document.querySelectorAll('#job-table tbody tr')].map(r => r.cells[arguments[0]].textContent)",
        heads.index(heading),
    )


def shown_rows(page):
    return int(page.find_element(By.ID, "job-count").text.split(" of ")[1].split()[0].replace(",", ""))


def number(text):
    return float(text.replace(",", "")) if text != "–" else np.nan


def test_it_opens_from_a_file_without_an_error_or_a_request(page):
    assert page.get_log("browser") == []
    asked = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [m["params"] for m in asked if m["method"] == "Network.requestWillBeSent"]
    urls = {p["request"]["url"] for p in sent if p["documentURL"] == page.current_url}
    assert page.current_url in urls
    assert all(url.startswith(("file:", "data:", "blob:")) for url in urls), urls
    assert not page.find_element(By.ID, "trouble").is_displayed()


def test_names_that_want_to_be_code_are_shown_and_not_run(page):
    assert page.execute_script("return window.hit") is None
    assert page.find_elements(By.CSS_SELECTOR, "main img, main b[onclick], header b") == []
    search = page.find_element(By.ID, "search")
    search.send_keys("script>window.hit")
    assert set(cells(page, "job")) == {NAMES[0]}
    assert "&lt;b&gt;srtf&lt;/b&gt; %{x} &#36;y&#36;" in traces(page, "chart-jct")
    drawn = page.execute_script("return document.querySelector('#chart-cost .yaxislayer-above').textContent")
    assert "<b>srtf</b> %{x} $y$" in drawn


def test_every_chart_has_a_line_or_bar_a_policy(page):
    for chart in ("jct", "rho", "waits", "held", "queue", "trade"):
        assert len(set(traces(page, f"chart-{chart}"))) == 3, chart
    bars = page.execute_script("return document.getElementById('chart-cost').data.map(t => t.x.length)")
    assert bars == [3, 3]


def test_cost_stands_over_jct_and_one_that_is_not_known_in_full_is_hollow(browser, tmp_path):
    from tests.analysis.conftest import random_run

    runs = [random_run(tmp_path / f"run{k}", 60, seed=1, nodes=2) for k in range(2)]
    for row, run in zip(("fifo", "las"), runs, strict=True):
        run.info["policy"] = row
    runs[1].nodes[1]["price_usd_per_gpu_h"] = None
    page = opened(browser, write_report([run.load() for run in runs], tmp_path / "report.html"))
    drawn = page.execute_script("return document.getElementById('chart-trade').data")
    front, known, part = ({one["name"]: one for one in drawn}[name] for name in ("Pareto front", "fifo", "las"))
    jct_h = per_job(runs[0].load())["jct_s"].mean() / 3600
    assert (known["x"], part["x"]) == (pytest.approx([jct_h]), pytest.approx([jct_h]))
    assert part["y"][0] < known["y"][0]
    assert (known["marker"]["symbol"], part["marker"]["symbol"][-5:]) == ("circle", "-open")
    assert front["x"] == []  # the run of unknown cost may beat the other, or not
    assert "cannot be said" in known["hovertemplate"]
    assert "at least" in part["hovertemplate"]
    assert page.execute_script("return document.getElementById('chart-trade').layout.annotations.length") == 1


def test_the_table_of_jobs_fits_the_window(page):
    wide = "const t = document.getElementById('job-table'); return [t.scrollWidth, t.parentNode.clientWidth]"
    table, room = page.execute_script(wide)
    assert table <= room
    heads = [h.text.rstrip(" ↕↑↓") for h in page.find_elements(By.CSS_SELECTOR, "#job-table thead th")]
    assert heads[:4] == ["policy", "job", "state", "JCT (s)"]


def test_no_button_sends_a_chart_to_anybody(page):
    titles = [b.get_attribute("data-title") for b in page.find_elements(By.CSS_SELECTOR, ".modebar-btn")]
    assert len(titles) == 7 * 6
    assert not [t for t in titles if "share" in t.lower() or "cloud" in t.lower()]


def test_one_switch_takes_a_policy_off_everywhere_and_brings_it_back(page):
    everywhere = shown_rows(page)
    switch = page.find_element(By.CSS_SELECTOR, "#runs input[value='1']")
    switch.click()
    for chart in ("jct", "rho", "waits", "held", "queue", "trade"):
        assert "las" not in traces(page, f"chart-{chart}"), chart
        assert "fifo" in traces(page, f"chart-{chart}"), chart
    assert page.execute_script("return document.getElementById('chart-cost').data.map(t => t.x.length)") == [2, 2]
    assert "las" not in cells(page, "policy")
    assert shown_rows(page) == everywhere * 2 // 3
    of_it = page.find_elements(By.CSS_SELECTOR, "main [data-run='1']")
    assert of_it
    assert not [part for part in of_it if part.is_displayed()]
    switch.send_keys(Keys.SPACE)  # by keyboard
    assert "las" in traces(page, "chart-jct")
    assert shown_rows(page) == everywhere


def test_with_all_policies_off_the_page_is_empty_and_well(page):
    for switch in page.find_elements(By.CSS_SELECTOR, "#runs input"):
        switch.click()
    assert shown_rows(page) == 0
    assert page.find_element(By.ID, "job-count").text == "0–0 of 0 rows"
    assert traces(page, "chart-jct") == []
    assert page.get_log("browser") == []


def test_a_heading_sorts_and_sorts_back_and_says_so(page, files):
    button = page.find_element(By.CSS_SELECTOR, "[data-sort=queue_s]")
    button.click()
    head = button.find_element(By.XPATH, "..")
    assert head.get_attribute("aria-sort") == "descending"
    waited = [number(text) for text in cells(page, "waited (s)")]
    assert waited == sorted(waited, reverse=True)
    true = np.concatenate([per_job(run)["queue_s"] for run in files[1]])
    assert waited == pytest.approx(np.sort(true)[::-1][:50], abs=0.056)
    button.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "ascending"
    assert [number(text) for text in cells(page, "waited (s)")] == pytest.approx(np.sort(true)[:50], abs=0.056)
    page.find_element(By.CSS_SELECTOR, "[data-sort=job_id]").click()
    assert cells(page, "job") == sorted(cells(page, "job"))
    assert head.get_attribute("aria-sort") == "none"


def test_a_search_finds_parts_of_words_in_all_names_or_in_one(page, files):
    search, jobs = page.find_element(By.ID, "search"), files[1][0].jobs

    def found(query):
        search.clear()
        search.send_keys(query)
        return shown_rows(page)

    assert found("policy:las") == 60
    assert found("vc:vc3 policy:fifo") == (jobs["vc"] == "vc3").sum()
    assert found("user:U1 policy:fifo") == jobs["user"].str.contains("u1").sum()
    assert found("DONE") == 180
    assert found("job:constructor") == 3
    assert found("constructor:x") == 0
    assert found("nothing like it") == 0
    assert found("(") == 0
    assert found(" ") == 180


def test_pages_are_turned_by_buttons(page):
    everything = cells(page, "job")
    assert len(everything) == 50
    for _ in range(3):
        page.find_element(By.ID, "page-next").click()
        everything += cells(page, "job")
    assert len(everything) == 180
    assert not page.find_element(By.ID, "page-next").is_enabled()
    page.find_element(By.ID, "page-first").click()
    assert page.find_element(By.ID, "job-count").text == "1–50 of 180 rows"


def test_hovering_shows_exact_numbers_with_units(page, files):
    jct = np.sort(per_job(files[1][0])["jct_s"].to_numpy())
    page.execute_script("document.getElementById('chart-jct').scrollIntoView({block: 'center'})")
    page.execute_script("Plotly.Fx.hover('chart-jct', [{curveNumber: 0, pointNumber: 60}])")
    label = wait(lambda: page.execute_script("return document.querySelector('#chart-jct .hovertext')?.textContent"))
    assert label.startswith(f"fifo100.00 % of finished jobs: at most {jct[-1]:,.3f}".rstrip("0"))
    assert " s (" in label


def test_a_zoom_stays_when_a_policy_is_switched_off(page):
    page.execute_script("return Plotly.relayout('chart-jct', {'xaxis.range': [1, 2]})")
    ranged = "return document.getElementById('chart-jct')._fullLayout.xaxis.range"
    assert page.execute_script(ranged) == [1, 2]
    page.find_element(By.CSS_SELECTOR, "#runs input[value='1']").click()
    assert page.execute_script(ranged) == [1, 2]


def test_a_slow_job_in_the_table_leads_to_its_story(page):
    link = page.find_element(By.CSS_SELECTOR, "#job-table tbody a")
    story = page.find_element(By.CSS_SELECTOR, link.get_attribute("href").rpartition("#")[2].join(("#", "")))
    assert not story.get_attribute("open")
    page.execute_script("arguments[0].click()", link)
    wait(lambda: story.get_attribute("open"))
    assert "ran" in story.find_element(By.CSS_SELECTOR, "ol.spans").text


def test_it_fits_a_phone_and_follows_the_wish_for_dark(page):
    try:
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                             {"width": 400, "height": 850, "deviceScaleFactor": 1, "mobile": True})  # fmt: skip
        wait(lambda: page.execute_script("return document.querySelector('#chart-jct .main-svg').clientWidth") < 400)
        wait(lambda: page.execute_script("return document.documentElement.scrollWidth") <= 400)
        light = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        dark_wish = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark_wish)
        assert page.execute_script("return getComputedStyle(document.body).backgroundColor") != light
        ink = "return document.getElementById('chart-jct').layout.font.color"
        wait(lambda: page.execute_script(ink) == "#e6edf3")
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def big_run(folder, policy, jobs=100_000, slow=1.0):
    """Jobs one after another on eight GPUs, made from columns."""
    i = np.arange(jobs)
    begin, length = (i // 8) * 100.0 * slow, 50.0 * slow + i % 37
    ids = [f"application_{n:06d}" for n in i]
    columns = {
        "jobs": {
            "job_id": ids, "user": [f"u{n % 500}" for n in i], "vc": [f"vc{n % 11}" for n in i],
            "submit_s": begin / slow / 2, "first_start_s": begin, "end_s": begin + length, "num_gpus": np.ones(jobs),
            "gpu_milli": np.full(jobs, 1000), "gpu_type": [""] * jobs, "model": [""] * jobs, "duration_s": length,
            "work_total": length, "state": ["done"] * jobs, "reason": [""] * jobs,
        },
        "segments": {
            "job_id": ids, "begin_s": begin, "end_s": begin + length, "nodes": [[0]] * jobs, "gpus": [[1.0]] * jobs,
            "gpu_ids": [[n % 8] for n in i], "gpu_milli": np.full(jobs, 1000), "overhead_s": np.zeros(jobs),
            "rate": np.ones(jobs), "work_done": length, "work_lost": np.zeros(jobs), "end_reason": ["done"] * jobs,
        },
        "nodes": {
            "node": [0], "gpu_type": ["V100"], "gpus": [8], "first_gpu": [0], "rack": [0],
            "price_usd_per_gpu_h": [2.0], "down_s": [[]], "up_s": [[]],
        },
    }  # fmt: skip

    def made(name):
        given = columns.get(name, {})
        rows = len(next(iter(given.values()), []))
        return pa.table(
            [pa.array(given[f.name]).cast(f.type) if f.name in given else pa.nulls(rows, f.type) for f in FILES[name]],
            schema=FILES[name],
        )

    info = {"policy": policy, "trace": {"hash": "h"}, "start_s": 0.0, "end_s": float((begin + length).max())}
    return Run(folder / policy, {name: made(name) for name in FILES}, info, {})


@pytest.mark.slow
def test_a_hundred_thousand_jobs_stay_usable(browser, tmp_path):
    runs = [big_run(tmp_path, "fifo"), big_run(tmp_path, "slow", slow=1.5)]
    file = write_report(runs, tmp_path / "big.html")
    assert file.stat().st_size < 15e6
    page = opened(browser, file)
    assert page.get_log("browser") == []
    assert shown_rows(page) == 200_000
    assert len(page.find_elements(By.CSS_SELECTOR, "#job-table tbody tr")) == 50
    page.find_element(By.ID, "search").send_keys("application_098765")
    assert cells(page, "job") == ["application_098765"] * 2
    page.find_element(By.CSS_SELECTOR, "#runs input[value='1']").click()
    assert cells(page, "policy") == ["fifo"]
    page.find_element(By.ID, "search").clear()
    page.find_element(By.ID, "search").send_keys("user:u499 vc:vc3")
    assert shown_rows(page) == sum(n % 500 == 499 and n % 11 == 3 for n in range(100_000))
    page.find_element(By.CSS_SELECTOR, "[data-sort=jct_s]").click()
    lengths = [number(text) for text in cells(page, "JCT (s)")]
    assert lengths == sorted(lengths)
    points = page.execute_script("return document.getElementById('chart-jct').data.map(t => t.x.length)")
    assert max(points) <= 2001
