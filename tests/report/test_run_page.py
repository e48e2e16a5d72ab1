"""The page of runs: it says what was measured, runs nothing that a kernel or a model wrote, and bears many results."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import itertools
import json
import math
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

from cutesmith.evals.records import Cost
from cutesmith.evals.scores.outcomes import read_runs
from cutesmith.report.runs.distribution import distribution_chart
from cutesmith.report.runs.entries import stages, thinned, within
from cutesmith.report.runs.page import render_runs
from cutesmith.report.runs.rooflines import floor_chart
from cutesmith.report.runs.tables import ScoredRun
from cutesmith.report.runs.transcripts import excerpt
from tests.browsing import CHROMIUM, CONTRAST, launched_browser, watched_pages
from tests.evals.sample_attempts import H200, attempt, noisy, run, unjudged, write_run, wrong
from tests.report.elements import Elements
from tests.report.sample import HOSTILE

ROOT = Path(__file__).resolve().parents[2]
MANY = 260  # results: more than the table shows at first, and sources of more bytes than a page takes


def page_of(*folders: Path) -> str:
    return render_runs([ScoredRun(run) for run in read_runs(folders)], beside=folders[0])


def payload(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """What an H200 measured, as folders of runs."""
    spec = importlib.util.spec_from_file_location("import_results", ROOT / "evals" / "studies" / "import_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = tmp_path_factory.mktemp("recorded")
    assert module.main(["--out", str(out)]) == 0
    return out


def hostile_run(folder: Path) -> Path:
    """Hostile text in every field that a kernel, a model or a file can fill."""
    evil = HOSTILE + "\x1b[2J\u202e"
    texts = {"status": evil, "rule": evil, "summary": evil, "source": evil, "floor_kind": evil, "worker": evil}
    kept = folder / "kernels"
    kept.mkdir(parents=True)
    (kept / "kernel.py").write_text(f'TEXT = "{evil}"\n# </script><script>alert(4)</script>\n', encoding="utf-8")
    (kept / "verdict.json").write_text(
        json.dumps({"verdicts": {"verify": {"stage": evil, "summary": evil, "log_tail": evil}}})
    )
    reply = {
        "kind": "reply",
        "turn": 1,
        "content": [{"type": "text", "text": evil}, {"type": "tool_use", "name": evil}],
    }
    (kept / "transcript.jsonl").write_text(json.dumps(reply) + "\n")
    files = {
        "kernel": "kernels/kernel.py",
        "verdicts": "kernels/verdict.json",
        "transcript": "kernels/transcript.jsonl",
    }
    named = {"tags": (evil,), "dtypes": (evil,), "machine": H200.model_copy(update={"device": evil}), "suite": evil}
    made = [noisy(evil, 2.0, 1, **texts, **files, **named), wrong("b", summary=evil, kernel="../secret.py", key=evil)]
    made.append(wrong("c", kernel="javascript:alert(5)", transcript="/etc/passwd"))
    return write_run(folder, made, tasks=[{"id": f"z{evil}", "level": 1, "tags": [evil]}], suite=evil, command=[evil])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "secret.py").write_text("SECRET", encoding="utf-8")
    return page_of(hostile_run(folder / "run"), hostile_run(folder / "<img src=x onerror=alert(6)>"))


@pytest.fixture(scope="module")
def pages(recorded, hostile) -> dict[str, str]:
    both = page_of(recorded / "timed", recorded / "sessions")
    return {"one": page_of(recorded / "timed"), "both": both, "hostile": hostile}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["one", "both", "hostile"])
def test_only_the_pages_own_script_can_run_and_nothing_is_loaded(pages, name):
    page = pages[name]
    elements = Elements(page)
    assert not elements.open
    names = [tag for tag, _ in elements.tags]
    assert names.count("script") == 2 and not set(names) & {"img", "iframe", "link", "object", "embed", "base", "form"}
    script = page[page.rindex("<script>") + 8 : page.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    assert not [key for _, attributes in elements.tags for key in attributes if key.startswith("on") or key == "src"]
    assert all(attributes["href"].startswith("#") for _, attributes in elements.tags if "href" in attributes)


def test_no_text_ends_the_data(hostile):
    embedded = hostile[hostile.index('id="data">') + 10 : hostile.rindex("<script>")]
    assert embedded.count("<") == 1 and embedded.isascii()
    kernel = payload(hostile)["tasks"][0]["runs"][0]["kernels"][0]
    assert HOSTILE in kernel["source"] and HOSTILE in kernel["summary"] and "\x1b" not in json.dumps(payload(hostile))


def test_files_outside_the_run_are_neither_shown_nor_linked(hostile, tmp_path):
    kernels = {task["id"]: task["runs"][0]["kernels"] for task in payload(hostile)["tasks"]}
    for name in "bc":
        assert "links" not in kernels[name][0] and "source" not in kernels[name][0]
    assert "SECRET" not in hostile
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret").write_text("x", encoding="utf-8")
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "secret")
    for path in ("link", "../secret", "/etc/passwd", "", "a\0b"):
        assert within(tmp_path / "inside", path) is None
    assert within(tmp_path / "inside", "sub/../file") == tmp_path.resolve() / "inside" / "file"


def test_the_page_says_what_the_results_say(pages):
    page, tasks = pages["one"], payload(pages["one"])["tasks"]
    for words in ("19 of 20", "NVIDIA H200", "19 correct and timed, 1 not correct", "copy bandwidth, 4.25 TB/s"):
        assert words in page
    first = tasks[0]["runs"][0]["kernels"][0]
    assert first["times"]["kernel"]["median"] == 67.648 and first["times"]["kernel"]["count"] == 200
    assert len(first["times"]["kernel"]["samples"]) <= 60 and "up to 60 samples of each callable" in page
    assert [verdict["stage"] for verdict in first["verdicts"]] == ["lint", "compile", "verify", "benchmark"]
    assert tasks[-1]["id"] == "level1/masked_fill" and tasks[-1]["runs"][0]["state"] == "failed"


def test_a_session_shows_its_kernel_and_what_was_said(pages):
    repaired = next(task for task in payload(pages["both"])["tasks"] if task["id"] == "repaired")
    assert repaired["runs"][0] is None
    kernel = repaired["runs"][1]["kernels"][0]
    assert "def kernel_fn" in kernel["source"] and kernel["transcript"][0].startswith("turn 1: A warp a row")
    assert kernel["transcript"][-1].startswith("ended: finished") and kernel["links"]["transcript"].endswith(".jsonl")


def test_thinned_samples_keep_their_ends_and_an_order():
    samples = np.random.default_rng(0).normal(10.0, 1.0, 500)
    kept = thinned(samples, 40)
    assert len(kept) <= 40 and {samples.min(), samples.max()} <= set(kept.tolist())
    places = [samples.tolist().index(value) for value in kept.tolist()]
    assert places == sorted(places) and len(thinned(samples[:40], 40)) == 40


def test_a_transcript_that_was_cut_or_is_none_costs_no_page():
    assert excerpt("") == excerpt("no json\n[1]\n{}") == [] and excerpt('{"kind": "reply", "con') == []
    turns = [
        json.dumps({"kind": "reply", "turn": n, "content": [{"type": "text", "text": f"say {n}"}]}) for n in range(50)
    ]
    lines = excerpt("\n".join(turns))
    assert len(lines) == 15 and lines[0] == "turn 0: say 0" and lines[-1] == "turn 49: say 49" and "36 more" in lines[6]


def test_what_was_not_attempted_or_not_judged_is_on_the_page(tmp_path):
    folder = write_run(tmp_path / "run", [attempt("a"), unjudged("b")], tasks=[{"id": name} for name in "abc"])
    with (folder / "results.jsonl").open("a", encoding="utf-8") as results:
        results.write('{"key": "cut')
    page = page_of(folder)
    assert "1 correct but not timed" in page and "1 not attempted (count as not solved)" in page
    assert "1 without a verdict (count as not solved)" in page and "1 lines of results.jsonl are not results" in page
    assert [task["runs"][0]["state"] for task in payload(page)["tasks"]] == ["untimed", "unjudged", "not attempted"]


def test_a_case_that_was_only_launched_is_not_called_right():
    verdict = {
        "stage": "verify",
        "ran_on": "compile",
        "cases": [{"passed": True}, {"passed": False, "problem": "grid"}],
    }
    recorded = {**verdict, "cases": [{"passed": True, "outcome": "recorded"}, verdict["cases"][1]]}
    [found] = stages(json.dumps({"verdicts": {"verify": recorded}}))
    assert found.details[0] == "1 of 2 cases launched, no value was compared"
    for text, words in ((verdict, "launched, no value was compared"), ({**verdict, "ran_on": "gpu"}, "right")):
        [found] = stages(json.dumps({"verdicts": {"verify": text}}))
        assert found.details == [f"1 of 2 cases {words}", "None: grid"]
    assert list(stages("no json")) == list(stages("7")) == list(stages('["x"]')) == []


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> tuple[str, float]:
    folder = tmp_path_factory.mktemp("many")
    (folder / "kernel.py").write_text("# a long kernel\n" * 2000, encoding="utf-8")
    one = noisy("", 2.0, 3, 200).timings
    named = {
        "level": 2,
        "tags": ("x", "y"),
        "kernel": "kernel.py",
        "flops": 10**9,
        "bytes": 10**9,
        "summary": "said " * 50,
    }
    made = [attempt(f"t{n:04}", timings=one if n % 3 else {}, cost=Cost(turns=n), **named) for n in range(MANY)]
    started = time.process_time()
    page = page_of(write_run(folder, made))
    return page, time.process_time() - started


@pytest.mark.slow
def test_the_page_of_many_results_is_bounded(many):
    page, seconds = many
    assert len(page) < 6_000_000 and seconds < 20

    sources = [task["runs"][0]["kernels"][0].get("source") for task in payload(page)["tasks"]]
    assert sources[0] is not None and sources[-1] is None
    assert f"{sources.count(None)} sources of kernels are not on this page" in page


@pytest.fixture(scope="module")
def browser():
    with launched_browser() as browser:
        yield browser


@pytest.mark.slow  # to start it takes four seconds: the quick tests have the browser of test_session_page
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)")
class TestInABrowser:
    """One browser for all."""

    @pytest.fixture
    def open_page(self, browser, tmp_path):
        with watched_pages(browser, tmp_path) as open_page:
            yield open_page

    def test_hostile_text_does_nothing_and_fits_a_phone(self, hostile, open_page):
        page = open_page(hostile)
        page.set_viewport_size({"width": 390, "height": 800})
        while page.locator("tr.row[aria-expanded=false]").count():
            page.locator("tr.row[aria-expanded=false]").first.click()
        page.locator(".kernel summary").first.click()
        page.locator("details.parts").evaluate_all("rows => rows.forEach(row => row.open = true)")
        assert HOSTILE in page.locator(".kernel .source").first.inner_text()
        assert page.locator(".kernel p").first.inner_text().count(HOSTILE) == 1
        assert page.locator("img").count() == 0 and page.locator("script").count() == 2
        assert all(re.match(r"\./|#", a.get_attribute("href")) for a in page.locator("a").all())
        assert page.evaluate("document.documentElement.scrollWidth") == 390

    def test_every_text_is_readable_by_day_and_by_night(self, pages, open_page):
        page = open_page(pages["both"], color_scheme="light")
        page.locator("tr.row", has_text="repaired").click()
        page.locator(".kernel summary").click()
        page.locator("details.parts").evaluate_all("rows => rows.forEach(row => row.open = true)")
        grounds = set()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert page.evaluate(CONTRAST) == {}, scheme
        assert len(grounds) == 2

    def test_the_table_sorts_filters_and_opens(self, pages, open_page):
        page = open_page(pages["one"])
        names = functools.partial(page.locator("tr.row td:first-child").all_inner_texts)
        assert len(names()) == 20 and names() == sorted(names())
        page.get_by_role("button", name="speed-up").click()
        assert names()[0] == "level1/dequantize_int8" and names()[-1] == "level1/masked_fill"
        page.get_by_label("Baseline").select_option("torch.compile")
        assert names()[0] == "level1/argmax"
        page.get_by_label("Outcome").select_option("failed")
        assert names() == ["level1/masked_fill"] and page.locator("#shown").inner_text() == "1 of 20"
        assert page.locator("circle.off").count() == page.locator("circle[data-task]").count() == 19 * 4
        page.get_by_label("Outcome").select_option("")
        page.get_by_label("Tag or dtype").select_option("int8")
        page.locator("tr.row").focus()
        page.keyboard.press("Enter")
        assert "17 of 17 cases right" in page.locator(".kernel").inner_text()
        assert page.locator(".kernel svg circle").count() > 100

    def test_a_dot_leads_to_its_task(self, pages, open_page):
        page = open_page(pages["one"])
        page.locator("svg.strips circle[data-task]", has_text="dequantize_int8").first.click()
        assert page.locator("tr.open td:first-child").inner_text() == "level1/dequantize_int8"

    def test_many_results_are_shown_in_steps_and_answer_at_once(self, many, open_page):
        page = open_page(many[0])
        assert page.locator("tr.row").count() == 200
        page.get_by_role("button", name=f"{MANY - 200} more").click()
        assert page.locator("tr.row").count() == MANY
        page.get_by_label("Find a task").fill("t0233")
        assert page.locator("tr.row").count() == 1
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
        assert 0 < metrics["ProcessTime"] < 15, "seconds of a core, by the page's process"


def test_links_stay_right_when_the_page_lies_elsewhere(recorded, tmp_path):
    page = render_runs([ScoredRun(run) for run in read_runs([recorded / "sessions"])], beside=tmp_path)
    kernel = next(task for task in payload(page)["tasks"] if task["id"] == "repaired")["runs"][0]["kernels"][0]
    assert (Path(os.fspath(tmp_path)) / kernel["links"]["kernel"]).resolve().is_file()


@pytest.mark.parametrize("count", [60, 500])
def test_a_strip_is_dots_or_columns_by_how_many_there_are(count):
    made = run([noisy(f"t{n}", 0.5 + 3 * n / count, n, 3) for n in range(count)])
    chart = distribution_chart([made], {task.task.id: place for place, task in enumerate(made.tasks)})
    [strip] = chart.strips
    assert strip.count == count
    assert (len(strip.dots), bool(strip.columns)) == ((60, False) if count == 60 else (0, True))
    tops = [dot.y - dot.r for dot in strip.dots] + [y for _, y, _, _ in strip.columns]
    assert strip.top - 1 <= min(tops) and max(tops) < strip.base, "below the strip's name"


@pytest.mark.parametrize("count", [3, 30, 90])
def test_dots_of_many_similar_kernels_stay_apart_and_large_enough_to_see(count):
    """Against torch.compile most kernels of a run are within 2 %: one bin holds them all."""
    made = run([attempt(f"t{n}", {"eager": 1.0, "library": 1.0 + n / 50}) for n in range(count)])
    chart = distribution_chart([made], {task.task.id: place for place, task in enumerate(made.tasks)})
    below = 0.0
    for strip in chart.strips:
        assert strip.top >= below and len(strip.dots) == count
        below = strip.base
        assert min(dot.r for dot in strip.dots) > 0.8
        spots = sorted((dot.x, dot.y) for dot in strip.dots)
        apart = [math.dist(one, other) for one, other in itertools.combinations(spots, 2)]
        assert min(apart) >= 2 * strip.dots[0].r, "no dot hides another"


@pytest.mark.slow
def test_every_timed_kernel_stands_at_its_share_of_the_floor():
    known = [attempt("a", 2.0, floor_us=50.0, floor_kind="bytes"), attempt("b", 1.0, floor_us=95.0, floor_kind="flops")]
    made = run([*known, attempt("c", 1.5), wrong("d")])
    places = {task.task.id: place for place, task in enumerate(made.tasks)}
    chart = floor_chart([made], places)
    assert {dot.task for dot in chart.dots} == {places["a"], places["b"]}, "a kernel without a floor has no share"
    first, second = sorted(chart.dots, key=lambda dot: dot.x)
    ticks = {tick.label: tick.at for tick in chart.y_ticks}
    assert first.y == pytest.approx(ticks["50 %"]) and ticks["100 %"] == chart.one < second.y < ticks["75 %"]
    assert [words for words, _ in chart.legend] == ["bound by memory", "bound by operations"]
    assert floor_chart([run([wrong("d")])], {"d": 0}) is None
    for floor in (3.0, 30.0, 47.0, 99.0, 1234.0):
        alone = floor_chart([run([attempt("a", 2.0, floor_us=floor, floor_kind="bytes")])], {"a": 0})
        assert alone.x_ticks, "an axis without a number says nothing"
