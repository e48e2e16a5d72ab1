"""A page as a tree of headings: what search, links and the table of contents stand on (standard library only)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cutesmith import resources

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$")
STAMPED = "api-core.md"
_STAMP = re.compile(r"nvidia-cutlass-dsl (\d[\w.]*)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True)
class Section:
    """A heading and the lines up to the next one of any level; `line` counts from 1."""

    page: str
    level: int
    heading: str
    anchor: str
    line: int
    text: str  # with the heading's own line


@dataclass(frozen=True)
class Page:
    """A Markdown file."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> Page:
        """Read a page as UTF-8."""
        return cls(path, path.read_text(encoding="utf-8"))

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @cached_property
    def lines(self) -> list[str]:
        """The text's lines."""
        return self.text.splitlines()

    @cached_property
    def prose(self) -> list[tuple[int, str]]:
        """Number and text of the lines outside of fenced blocks."""
        return list(outside_fences(self.lines))

    @cached_property
    def sections(self) -> list[Section]:
        """Every heading with what stands below it, in order."""
        heads = [(number, m) for number, line in self.prose if (m := _HEADING.match(line))]
        ends = [number for number, _ in heads[1:]] + [len(self.lines) + 1]
        seen: Counter[str] = Counter()
        found = []
        for (number, m), end in zip(heads, ends):
            anchor = slug(m[2])
            unique = f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
            seen[anchor] += 1
            text = "\n".join(self.lines[number - 1 : end - 1]).rstrip()
            found.append(Section(self.name, len(m[1]), m[2], unique, number, text))
        return found


def read_pages(folder: Path | None = None) -> list[Page]:
    """Every reference page, by name."""
    return [Page.read(path) for path in sorted((folder or resources.folder("references")).glob("*.md"))]


def written_for() -> str:
    """The version of the DSL that the references were written for, as the generated pages are stamped: "4.8.1".

    Empty where the page is missing or has no stamp. Raises UnavailableError without references.
    """
    page = resources.folder("references") / STAMPED
    found = _STAMP.search(page.read_text(encoding="utf-8")) if page.is_file() else None
    return found[1] if found else ""


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading: lower case, punctuation dropped, spaces as hyphens."""
    plain = _LINK.sub(r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def slug_for_toc(heading: str, _separator: str) -> str:
    """`slug` as the table-of-contents extension of Python-Markdown calls it: anchors of the site are GitHub's."""
    return slug(heading)


def fences(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """The numbers, from 1, of the lines that open and close a fenced block, and its info string.

    A block that is never closed ends one line behind the last.
    """
    start, fence, info = 0, "", ""
    for number, line in enumerate(lines, 1):
        mark = _FENCE.match(line)
        if not fence and mark:
            start, fence, info = number, mark[1], mark[2].strip()
        elif fence and mark and mark[1].startswith(fence) and not mark[2].strip():
            yield start, number, info
            fence = ""
    if fence:
        yield start, len(lines) + 1, info


def outside_fences(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of the lines that are in no fenced block."""
    inside = {number for start, end, _ in fences(lines) for number in range(start, end + 1)}
    return ((number, line) for number, line in enumerate(lines, 1) if number not in inside)
