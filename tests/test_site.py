"""`make docs`: the site is whole, loads nothing from elsewhere, and its search works in a browser."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cutesmith.references.sections import read_pages
from tests.browsing import CHROMIUM, launched_browser

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return folder


@pytest.mark.slow
def test_every_page_is_there_and_loads_nothing_from_elsewhere(site):
    for page in read_pages():
        assert (site / "references" / page.path.stem.replace("README", "") / "index.html").is_file(), page.name
    assert (site / "examples_index" / "kernels" / "relu_minimal" / "index.html").is_file()
    text = (site / "references" / "patterns-getting-started" / "index.html").read_text(encoding="utf-8")
    assert 'class="filename"' in text and "```" not in text, "block tags become titles"
    loads = re.compile(r'<(?:script|link|img)[^>]+(?:src|href)="?(https?://[^"\s>]+)')
    assert {page: urls for page in site.rglob("*.html") if (urls := loads.findall(page.read_text("utf-8")))} == {}


@pytest.fixture
def served(site):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)")
def test_search_finds_a_name_in_a_browser(served, tmp_path):
    with launched_browser() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(served)
        assert page.get_by_role("heading", name="cutesmith", level=1).is_visible()
        page.get_by_role("textbox", name="Search").fill("zipped_divide")
        hit = page.locator(".md-search-result__link").first
        hit.wait_for(timeout=20_000)
        assert "zipped_divide" in page.locator(".md-search-result__list").inner_text()
        hit.click()
        page.wait_for_url("**/references/**")
        assert page.locator("article").inner_text().count("zipped_divide") > 0
        shot = tmp_path / "page.png"
        page.screenshot(path=shot)
    assert errors == []
    assert colours(shot) > 20, "the screenshot is blank"


def colours(path: Path) -> int:
    from PIL import Image

    return len(Image.open(path).convert("RGB").getcolors(1 << 20) or ())
