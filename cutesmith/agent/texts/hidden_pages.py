"""Texts without a word of some reference pages: for sessions that show what work is like when a page is not there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cutesmith.errors import UsageError
from cutesmith.references.sections import read_pages

OVERVIEW = "README.md"
_LEAD_IN = r"(?:\b[\w ,\n-]+: )?"  # "Tiles, stages, swizzles: `…`": what stands there only for the page's sake


def known_pages() -> list[str]:
    """The names of all reference pages but the overview, sorted."""
    return sorted(page.name for page in read_pages() if page.name != OVERVIEW)


def check_pages(names: Iterable[str]) -> tuple[str, ...]:
    """The pages of these names, `.md` added where it is missing; raises UsageError for one that does not exist."""
    pages = known_pages()
    wanted = dict.fromkeys(name if name.endswith(".md") else f"{name}.md" for name in names)
    for name in wanted:
        if name not in pages:
            raise UsageError(f"there is no reference page {name}", hint=f"There are: {', '.join(pages)}")
    return tuple(wanted)


def without_pages(text: str, pages: Iterable[str]) -> str:
    """The text without mentions of these pages: links become their words, items of lists and lead-ins go."""
    for page in pages:
        if page not in text:
            continue
        address = rf"(?<![\w-])(?:references/)?{re.escape(page)}(?:#[\w-]+)?"
        quoted = rf"`{address}`"
        text = re.sub(rf"\[([^\]\n]*)\]\({address}\)", r"\1", text)
        text = re.sub(rf"{quoted}(?:, | and )", "", text)
        text = re.sub(rf"(?:, | and ){quoted}", "", text)
        text = re.sub(rf" ?{_LEAD_IN}{quoted}[.:;]?", "", text)
        text = re.sub(address, "the documentation", text)
    return text
