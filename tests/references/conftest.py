"""What the tests of the references share: a page made of text, with the frame that every page has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cutesmith.references.sections import Page

FRAME = """\
# Title

What it answers.

## Contents
- [Body](#body)
- [Sources](#sources)

## Body

{body}

## Sources
- x
"""


@pytest.fixture
def make_page(tmp_path: Path) -> Callable[..., Page]:
    """A function that writes a page with this body, long enough to be one, and reads it."""

    def make(body: str, name: str = "page.md", filler: int = 120) -> Page:
        path = tmp_path / name
        path.write_text(FRAME.format(body=body) + "\n" * filler, encoding="utf-8")
        return Page.read(path)

    return make
