"""The index for people: one Markdown table an operation, between two marks of `examples_index/README.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.examples.records import Example
from cutesmith.examples.vocabulary import OPERATIONS

README = "README.md"
BEGIN, END = "<!-- generated: scripts/update_examples_index.py --write -->", "<!-- end of the generated part -->"
HEAD = ("| example | written for | dtypes | what it is |", "|---|---|---|---|")


def with_table(text: str, examples: Sequence[Example]) -> str:
    """The page's text with the part between the marks made anew; raises UsageError where the marks are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"{README} lacks the marks of its generated part", hint=f"Write both lines: {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{render(examples)}\n\n{END}{after}"


def page_is_fresh(root: Path, examples: Sequence[Example]) -> bool:
    """Whether the page in `root` has the table that these records give."""
    text = (root / README).read_text(encoding="utf-8")
    return text == with_table(text, examples)


def render(examples: Sequence[Example]) -> str:
    """The tables, in the order of the vocabulary's operations; our own kernels come first in each."""
    groups = ((name, [e for e in examples if e.operation == name]) for name in OPERATIONS)
    return "\n\n".join("\n".join(_group(name, members)) for name, members in groups if members)


def _group(operation: str, members: Iterable[Example]) -> Iterator[str]:
    yield f"### {operation}"
    yield ""
    yield f"{OPERATIONS[operation].meaning.capitalize()}."
    yield ""
    yield from HEAD
    yield from map(_row, sorted(members, key=_rank))


def _rank(example: Example) -> tuple[int, str]:
    return ("cutesmith", "package", "cutlass").index(example.source), example.id


def _row(example: Example) -> str:
    cells = (_link(example), " ".join(example.arch), " ".join(example.dtypes), example.summary)
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _link(example: Example) -> str:
    if example.source == "cutesmith":
        return f"[`{example.id}`]({example.path})"
    if example.source == "cutlass":
        return f"[`{example.id}`](https://github.com/{example.repository}/blob/{example.version}/{example.path})"
    return f"`{example.id}` ({example.repository} {example.version})"
