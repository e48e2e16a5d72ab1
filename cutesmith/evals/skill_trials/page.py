"""`report.html` of a trial: the lines of `report.md` as one file that loads nothing, with the differences drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from cutesmith.evals.scores.summaries import Score
from cutesmith.evals.skill_trials.tables import points
from cutesmith.report.page import environment
from cutesmith.unicode import displayable

TEMPLATE = "trial.html.j2"
_CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Difference:
    """A difference of shares that is drawn: its name, and from -1 to 1 its value and interval."""

    name: str
    score: Score

    @property
    def told(self) -> str:
        """The numbers."""
        return points(self.score)


@dataclass(frozen=True)
class Block:
    """One part of a text: a heading (h1, h2), paragraph (p), list (ul) or table, its items or rows."""

    kind: str
    text: str = ""
    items: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default=())


def render_trial(lines: Iterable[str], differences: Sequence[Difference] = (), caption: str = "") -> str:
    """The whole page, as HTML that can be written as UTF-8; raises UnavailableError without jinja2."""
    blocks = list(blocks_of(lines))
    title = next((block.text for block in blocks if block.kind == "h1"), "A trial of the skill")
    drawn = [difference for difference in differences if difference.score.value is not None]
    template = environment(Path(__file__).parent).get_template(TEMPLATE)
    shown = [block for block in blocks if block.kind != "h1"]
    html: str = template.render(title=title, sections=_sections(shown), drawn=drawn, caption=caption, pieces=pieces)
    return displayable(html)


def _sections(blocks: Sequence[Block]) -> list[list[Block]]:
    """The blocks, a new section with every heading."""
    sections: list[list[Block]] = [[]]
    for block in blocks:
        if block.kind == "h2":
            sections.append([])
        sections[-1].append(block)
    return [section for section in sections if section]


def blocks_of(lines: Iterable[str]) -> Iterable[Block]:
    """The parts of a text of ours: Markdown as `report` writes it, no more."""
    for empty, group in groupby((line.rstrip() for line in lines), key=lambda line: not line):
        if not empty:
            yield _block(list(group))


def _block(lines: list[str]) -> Block:
    first = lines[0]
    if first.startswith("#"):
        mark, _, text = first.partition(" ")
        return Block(f"h{len(mark)}", text)
    if first.startswith("|"):
        return Block("table", rows=[_cells(line) for line in (first, *lines[2:])])
    if first.startswith("- "):
        return Block("ul", items=_items(lines))
    return Block("p", " ".join(lines))


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]]


def _items(lines: Sequence[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        if line.startswith("- "):
            items.append(line[2:])
        else:
            items[-1] += f"\n{line.strip()}"
    return items


def pieces(text: str) -> list[tuple[bool, str]]:
    """A text cut at its backticks: (whether it is code, the words)."""
    return [(bool(place % 2), part) for place, part in enumerate(text.split("`")) if part]
