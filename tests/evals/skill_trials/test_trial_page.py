"""`report.html` of a trial: the same words as report.md, as text, whatever they are; read in a real browser."""

from __future__ import annotations

import pytest

from cutesmith.evals.scores.summaries import Score
from cutesmith.evals.skill_trials.page import Difference, blocks_of, pieces, render_trial
from tests.browsing import CHROMIUM, CONTRAST, launched_browser, watched_pages

LINES = [
    *("# A trial", "", "Words of `code`", "in two lines.", ""),
    *("| a | b\\|c |", "| --- | --- |", "| <script>alert(1)</script> | 1 |", ""),
    *("## Tasks", "", "- one: 0 of 1", "  verify: wrong", "- two"),
]
DRAWN = [
    Difference("`with` less `bare`", Score(value=0.25, interval=(-0.5, 1.0), over=4)),
    Difference("a point", Score(value=-1.0)),
    Difference("nothing", Score(value=None)),
]


def test_a_text_of_ours_is_read_back():
    heading, words, table, second, items = blocks_of(LINES)
    assert (heading.kind, heading.text, second.kind, second.text) == ("h1", "A trial", "h2", "Tasks")
    assert words.text == "Words of `code` in two lines."
    assert table.rows == [["a", "b|c"], ["<script>alert(1)</script>", "1"]]
    assert items.items == ["one: 0 of 1\nverify: wrong", "two"]
    assert pieces("a `b` c") == [(False, "a "), (True, "b"), (False, " c")]


def test_what_is_quoted_stays_text():
    page = render_trial(LINES, DRAWN)
    assert "<script>" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<circle") == 2 and 'cx="247.5"' in page and 'x1="105.0" x2="390.0"' in page


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser here")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(tmp_path, scheme):
    with launched_browser() as browser, watched_pages(browser, tmp_path) as open_page:
        page = open_page(render_trial(LINES, DRAWN, "in points"), color_scheme=scheme)
        assert page.locator("h1").inner_text() == "A trial" and page.locator("section").count() == 3
        assert page.locator("svg circle").count() == 2
        assert page.evaluate(CONTRAST) == {}
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
