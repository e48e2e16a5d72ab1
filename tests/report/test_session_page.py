"""The report of an agent's session: it tells what happened, runs nothing that a model wrote, and stays usable."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from dataclasses import replace

import pytest

from cutesmith.agent.models.prices import PRICES_AS_OF
from cutesmith.report.environment import diff_lines
from cutesmith.report.path_chart import Attempt, path_chart
from cutesmith.report.session.kernels import History
from cutesmith.report.session.session import render_session
from cutesmith.report.trimming import TextBudget, cut_middle, fair_limit, weight
from cutesmith.unicode import displayable
from cutesmith.verdicts import CaseOutcome, CaseReport
from tests.agent import sample_session
from tests.agent.sample_session import BYTES, kernel, lint, timed, verified
from tests.browsing import CHROMIUM, CONTRAST, launched_browser, watched_pages
from tests.report.elements import Elements
from tests.report.sample import HOSTILE


def rendered(session: sample_session.Session) -> str:
    result = session.result()
    return render_session(session.events, result, "add-rms-norm")


def text_of(page: str) -> str:
    body = re.sub(r"<(style|script|title)\b.*?</\1>", " ", page, flags=re.S)
    return re.sub(r"\s+", " ", " ".join(Elements(body).text))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: rendered(getattr(sample_session, name)()) for name in ("timed_search", "untimed", "hostile")}


@pytest.fixture(scope="module")
def long_page() -> tuple[str, float]:
    session = sample_session.long_session()
    started = time.process_time()
    return render_session(session.events, None, "long"), time.process_time() - started


@pytest.mark.parametrize("name", ["timed_search", "untimed", "hostile"])
def test_only_the_pages_own_script_can_run(pages, name):
    page = pages[name]
    elements = Elements(page)
    assert not elements.open
    names = [tag for tag, _ in elements.tags]
    assert names.count("script") == 1 and not set(names) & {"img", "iframe", "link", "object", "embed", "base", "form"}
    script = page[page.index("<script>") + 8 : page.index("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    assert not [key for _, attributes in elements.tags for key in attributes if key.startswith("on")]


@pytest.mark.parametrize("name", ["timed_search", "hostile"])
def test_nothing_is_loaded_and_links_stay_on_the_page(pages, name):
    ids = [attributes["id"] for _, attributes in Elements(pages[name]).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in Elements(pages[name]).tags:
        assert not attributes.keys() & {"src", "xlink:href", "action"}
        if "href" in attributes:
            assert tag == "a" and attributes["href"][:1] == "#" and attributes["href"][1:] in ids
    assert "url(" not in pages[name] and "@import" not in pages[name]


def test_hostile_text_is_shown_as_it_is(pages):
    text = text_of(pages["hostile"])
    assert text.count(re.sub(r"\s+", " ", HOSTILE)) >= 20
    assert "␛[2J␇[bold red]�␀�" in text, "controls are seen, not obeyed; the page is valid UTF-8"
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", pages["hostile"])
    assert "new_kind_of_block" in text and "thinking that only the model can read" in text


def test_lines_that_had_no_draft_began_with_nothing():
    session = sample_session.Session()
    for line in (1, 2):
        session.add("line", line=line, parent=0, opening="Write it.", effects=[])
    assert text_of(rendered(session)).count(" nothing ") == 2


def test_a_search_is_told_whole(pages):
    text = text_of(pages["timed_search"])
    for expected in (
        "fused add + RMSNorm, bf16, 16384×5120, H100 verified",
        "134.2 µs median time",
        "1.27× against torch.compile",
        "95.7 % of the measured floor",
        "5 of 7 kernels that were executed were verified",
        "1 times rejected as a cheat",
        "$1.32 spent",
        f"prices of {PRICES_AS_OF}",
        "claude-opus-4-8 · finished: 134.2 µs is 96 % of the floor",
        "6 min 7 s wall time",
        "the best of 3 lines of work: 10 kernels were judged, 7 executed, 5 verified",
        "Kept 1, 2; dropped 3.",
        "no progress",
        "Scalar loads cost a factor of 2.6",
        "one read of x less: 150 µs",
        "turns 60, dollars 5",
        "5120 of 168960 elements of output 0 differ",
        "Could PyTorch do it?",
        "reference_fn (x, residual, weight)",
        "Changes since kernel 3",
        "The turn that wrote it",
        "FLOP/byte",
        "20,000 read from the cache",
        "line 2 turn 4 create_file, verify_kernel, benchmark_kernel, profile_kernel 139.9 µs $0.11",
        "have two in flight a thread.",
        "long_scoreboard = 0.62",
        "profile profiled memory-bound, 88 % of DRAM",
    ):
        assert expected in text, expected
    assert text.count("delivered") == 2  # its badge, and the heading of its chart


def test_a_diff_is_to_what_the_line_judged_before(pages):
    session = sample_session.timed_search()
    rows = {row.number: row for row in History.of(session.events).rows(TextBudget(), set())}
    assert [rows[n].diff_title for n in (1, 2, 3, 9)] == [
        "The whole text: 22 lines",
        "Changes since what line 1 began with",
        "Changes since what line 2 began with",
        "Changes since kernel 8",
    ]
    kinds = list(diff_lines(rows[2].diff.full))
    assert ("removed", "-THREADS = 128") in kinds and ("added", "+THREADS = 256") in kinds and ("", " ") in kinds
    assert [rows[n].delivered for n in range(1, 11)] == [False] * 9 + [True]


def test_without_times_the_stages_are_the_path(pages):
    text = text_of(pages["untimed"])
    assert "Stages over turns nothing was timed" in text and "verified on the emulated GPU" in text
    for rung in ("fails lint", "does not compile", "compiles", "wrong result", "verified by emulation"):
        assert rung in text
    assert "Roofline" not in text and "µs" not in text


@pytest.mark.parametrize("until", [2, 3, 8, 14])
def test_an_unfinished_session_has_a_page(until):
    events = sample_session.timed_search().events[:until]
    page = render_session(events, None, "add-rms-norm")
    assert not Elements(page).open and "unfinished" in page
    assert ("The process ended while the model answered" in page) == (events[-1]["kind"] == "request")


def test_a_kernel_that_was_found_out_loses_its_time():
    session = sample_session.Session()
    sample_session.begin_line(session, 1)
    session.turn(1, "", kernel(128), verified(), timed(90.0))
    session.turn(1, "", kernel(256), verified(), timed(150.0), lint())
    assert [mark.median_us for mark in History.of(session.events).marks()] == [None, 90.0, None, 150.0, None]
    session.turn(1, "", kernel(128), sample_session.rejected())
    history = History.of(session.events)
    assert [mark.median_us for mark in history.marks()] == [None, None, None, 150.0, None, None]
    assert "90.0 µs median time" not in text_of(rendered(session))


@pytest.mark.slow
def test_a_thousand_turns_stay_a_page(long_page):
    page, seconds = long_page
    assert len(page.encode()) < 3_000_000 and seconds < 20, "4 s, 6 on a slow machine; were it quadratic, minutes"
    assert "1000 turns; 100 more in the middle are in transcript.jsonl" in page
    shown = {int(turn) for turn in re.findall(r'<details id="turn-1-(\d+)"', page)}
    assert shown == {*range(1, 61), *range(161, 1001)}
    assert re.search(r"… [\d,]+ characters left out …", page)
    assert page.count('<details id="kernel-') == 250 and "750 more are in transcript.jsonl" in page


def attempts(*times: float | None) -> list[Attempt]:
    return [
        Attempt(turn=turn, line=1 + turn % 2, title=f"turn {turn}", failed=time is None, median_us=time, rung=9)
        for turn, time in enumerate(times)
    ]


def test_the_path_draws_less_time_lower_and_failures_below():
    chart = path_chart(attempts(200.0, None, 150.0, 400.0, None), turns=8, baselines={"eager": 600.0}, floor_us=100.0)
    assert chart is not None and chart.timed and chart.size == 1
    heights = [mark.y for mark in chart.marks]
    assert heights[1] > heights[0] > heights[2] and [mark.best for mark in chart.marks] == [True, True, False]
    assert [mark.colour for mark in chart.marks] == [1, 1, 2] and [mark.colour for mark in chart.failures] == [1, 2][
        ::-1
    ]
    assert all(mark.y > chart.bottom for mark in chart.failures)
    floor, eager = chart.levels
    assert (floor.label, eager.label) == ("floor 100 µs", "eager 600 µs") and floor.y > max(heights) > eager.y
    assert chart.best.count("V") == 1 and chart.best.endswith(f"H{chart.right:.1f}")
    assert all(chart.left < mark.x < chart.right for mark in chart.marks)


def test_levels_that_lie_together_keep_their_labels_apart():
    baselines = {"eager": 101.0, "torch.compile": 100.5, "other": 100.2}
    chart = path_chart(attempts(120.0), turns=1, baselines=baselines, floor_us=100.0)
    labels = sorted(level.label_y for level in chart.levels)
    assert min(b - a for a, b in zip(labels, labels[1:])) >= 22


@pytest.mark.parametrize("times", [(100.0,), (100.0, 101.0), (1e-3, 1e6), (3.0, 4.5)])
def test_the_scale_has_a_few_round_ticks(times):
    chart = path_chart(attempts(*times), turns=2, baselines={}, floor_us=None)
    assert 2 <= len(chart.y_ticks) <= 40 and all(0 < tick.at <= chart.bottom for tick in chart.y_ticks)


def test_a_path_needs_attempts_and_a_ladder_climbs():
    assert path_chart([], turns=0, baselines={}, floor_us=None) is None
    steps = [replace(attempt, rung=rung) for attempt, rung in zip(attempts(None, None, None), (3, 1, 8))]
    chart = path_chart(steps, turns=3, baselines={}, floor_us=None)
    assert not chart.timed and [tick.label for tick in chart.y_ticks] == ["1", "3", "8"]
    assert [mark.best for mark in chart.marks] == [True, False, True] and chart.marks[2].y < chart.marks[0].y


def test_texts_share_what_room_there_is():
    assert fair_limit([10, 20, 300, 400], 130) == 50 and fair_limit([1, 2], 100) == 2 and fair_limit([], 5) == 0
    budget = TextBudget(most=1000)
    kept = [budget.keep(text) for text in ("short", "<" * 5000, "x" * 5000)]
    budget.settle(900)
    shown = [str(text) for text in kept]
    assert shown[0] == "short" and all(weight(text) < 520 for text in shown)
    assert shown[1].startswith("<<") and shown[1].endswith("<<") and "characters left out" in shown[1]


def test_a_cut_keeps_both_ends_and_counts():
    text = "head " + "m" * 1000 + " tail"
    cut = cut_middle(text, 100)
    left_out = int(re.search(r"… ([\d,]+) characters", cut)[1].replace(",", ""))
    assert cut.startswith("head ") and cut.endswith(" tail") and len(text) - left_out + len("\n\n") < len(cut) < 150
    assert cut_middle(text, 2000) == text and displayable("a\x1b\r\nb\ud800é") == "a␛\nb�é"


@pytest.fixture(scope="module")
def browser():
    with launched_browser() as browser:
        yield browser


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)")
class TestInABrowser:
    """One browser for all."""

    @pytest.fixture
    def open_page(self, browser, tmp_path):
        with watched_pages(browser, tmp_path) as open_page:
            yield open_page

    def test_hostile_text_does_nothing_and_fits_a_phone(self, pages, open_page):
        page = open_page(pages["hostile"])
        page.locator("details").evaluate_all("rows => rows.forEach(row => row.open = true)")
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.locator("img, script:not(:last-child)").count() == 0

    def test_a_phone_shows_the_chart_whole(self, pages, open_page):
        page = open_page(pages["timed_search"])
        page.set_viewport_size({"width": 390, "height": 800})
        boxes = page.locator("svg.path text:visible").evaluate_all("texts => texts.map(t => t.getBoundingClientRect())")
        room = page.locator(".scroll.path").evaluate("box => box.getBoundingClientRect()")
        assert len(boxes) > 8 and all(room["left"] <= b["left"] and b["right"] <= room["right"] for b in boxes)
        assert min(b["height"] for b in boxes) >= 10

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_every_text_is_readable(self, pages, open_page, scheme):
        page = open_page(pages["timed_search"], color_scheme=scheme)
        page.locator("details").evaluate_all("rows => rows.forEach(row => row.open = true)")
        assert page.evaluate(CONTRAST) == {}
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(246, 247, 249)", "dark": "rgb(16, 19, 22)"}[scheme]

    def test_rows_links_and_copying_work(self, pages, open_page):
        page = open_page(pages["timed_search"])
        first = page.locator("#kernel-1")
        first.locator("summary").focus()
        page.keyboard.press("Enter")
        assert first.get_attribute("open") is not None and first.locator("pre.diff").is_visible()
        page.locator("svg.path a[href='#kernel-10']").first.click()
        page.locator("#kernel-10[open]").wait_for(state="attached")  # the page hears of its new address after the click
        page.locator("#kernel-10 a", has_text="The turn that wrote it").click()
        page.locator("#turn-1-4 .said").first.wait_for(state="visible")
        page.get_by_role("button", name="Open all").last.click()
        assert page.locator("#turn-rows > details:not([open])").count() == 0
        page.get_by_role("button", name="Copy").click()
        page.get_by_role("button", name="Copied").wait_for()
        source = kernel(512, vector=8, staged=True, note=" evict_last")
        assert page.evaluate("navigator.clipboard.readText()") == source

    def test_a_print_is_white_and_whole(self, pages, open_page):
        page = open_page(pages["timed_search"], media="print", color_scheme="dark")
        assert not page.locator("nav").is_visible() and not page.get_by_role("button").first.is_visible()
        assert page.evaluate("getComputedStyle(document.querySelector('.source')).maxHeight") == "none"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(27, 31, 36)"

    @pytest.mark.slow
    def test_a_thousand_turns_open_at_once(self, long_page, open_page):
        started = time.monotonic()
        page = open_page(long_page[0])
        page.locator("#turn-1-900 summary").click()
        assert page.locator("#turn-1-900 .inside").is_visible()
        assert time.monotonic() - started < 10


def test_declined_cases_are_not_right_and_what_happened_stands_where_it_happened():
    session = sample_session.Session()
    sample_session.begin_line(session, 1)
    declined = CaseReport(name="a row of 0", inputs="bf16[0,5120]", outcome=CaseOutcome.DECLINED, remark="no rows")
    verdict = verified()
    session.turn(1, "try", kernel(256), replace(verdict, cases=(*verdict.cases, declined), declined=1))
    session.add("run", line=0, pid=2, resumed=True)
    session.reply(1, sample_session.call("emulate_kernel"))
    session.events[-1]["retries"] = ["the server answered 529; asking again"]
    session.tool(1, "emulate_kernel", "crashed: a race in line 12")
    session.events[-1]["status"] = "crashed"
    session.finish(1, "as fast as it gets " * 60)
    page = rendered(session)
    text = text_of(page)
    assert "a row of 0 bf16[0,5120] declined declined: no rows" in text
    assert "resumed by another process after turn 1 of the session" in text
    assert text.index("asked again the server answered 529") < text.index("emulate_kernel crashed")
    assert "kernels that were executed were verified" in text and "1 of 1" in text
    assert ("as fast as it gets " * 60).strip() in text
    assert "turn 1; line 1, its turn 1" in page


@pytest.mark.slow
def test_the_result_says_for_what_on_which_cases_and_how_fast_it_could_be():
    session = sample_session.Session()
    sample_session.begin_line(session, 1)
    session.events.insert(0, {**session.events[0], "kind": "problem", "audit": {"work": {"bytes": BYTES, "flops": {}}}})
    session.turn(1, "try", kernel(256), replace(verified(), reduced="bf16[8,5120]"))
    result = session.result()
    assert (result.arch, result.cases, result.reduced) == ("sm_90a", {"passed": 2}, "bf16[8,5120]")
    assert result.floor_us == pytest.approx(BYTES / 4.26e12 * 1e6, rel=0.01)
