"""Every reference page keeps its word: this is what makes it impossible for one to go stale unnoticed."""

from __future__ import annotations

import pytest

from cutesmith import resources
from cutesmith.references.api_pages import PAGES, render_pages
from cutesmith.references.checking import check_page, check_text, run_page
from cutesmith.references.sections import Page, read_pages

EVERY = [page for page in read_pages() if page.name != "README.md"]
ROOT = resources.content_root()
TEXTS = [
    resources.manifest(),
    ROOT / "references" / "README.md",
    *(ROOT / n for n in ("README.md", "AGENTS.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
WANTED = """
concepts-architecture concepts-layouts concepts-tensors concepts-mma
patterns-getting-started patterns-elementwise patterns-reduction patterns-gemm patterns-memory patterns-compilation
patterns-pipeline api-core api-arch api-nvgpu api-runtime-utils troubleshooting
design-gate design-tiling optimizations anti-patterns faq attention epilogues blackwell integration profiling glossary
""".split()


def test_every_page_that_the_manifest_promises_is_there():
    assert [page.path.stem for page in EVERY] == sorted(WANTED)


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_names_links_and_tags_hold(page):
    assert [str(complaint) for complaint in check_page(page)] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in EVERY if not p.name.startswith("api-")], ids=lambda page: page.name)
def test_every_program_does_what_its_tag_says(page):
    outcomes, wrong = run_page(page)
    assert [str(complaint) for complaint in wrong] == []
    assert outcomes or page.name == "glossary.md"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_names_and_links_of_our_other_texts_hold(path):
    assert [str(complaint) for complaint in check_text(Page.read(path))] == []


def test_the_api_pages_are_what_the_installed_dsl_gives():
    folder = resources.folder("references")
    stale = [name for name, text in render_pages().items() if (folder / name).read_text(encoding="utf-8") != text]
    assert not stale, f"python scripts/build_api_reference.py rewrites {stale}"
    assert len(PAGES) == 4
