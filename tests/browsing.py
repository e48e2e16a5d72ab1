"""A real browser for pages of ours: none of them may report an error, ask anything of anybody, or open a dialog."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync
--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,MediaRouter,OptimizationHints""".split()
"""Without the features, Chromium renders two pages of its own, for its address bar, in each context."""
CONTRAST = (Path(__file__).parent / "report" / "contrast.js").read_text(encoding="utf-8")
"""Evaluates to {} when every text of a page can be read."""


@contextlib.contextmanager
def launched_browser() -> Iterator[Any]:
    """The system's Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextlib.contextmanager
def watched_pages(browser: Any, folder: Path) -> Iterator[Callable[..., Any]]:
    """A function that opens a page's HTML and gives it; no error may have been reported at the end."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    errors: list[str] = []

    def open_page(html: str, **media: str) -> Any:
        path = folder / "report.html"
        path.write_text(html, encoding="utf-8")
        page = context.new_page()
        page.emulate_media(**media)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: errors.append(dialog.message))
        page.on("request", lambda request: None if request.url == path.as_uri() else errors.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    context.close()
    assert errors == []
