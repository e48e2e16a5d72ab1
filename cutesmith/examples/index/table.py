"""The index for people: `examples_index/table.md`, one Markdown table an operation, made whole from the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cutesmith.examples.index.records import SOURCES, Example
from cutesmith.examples.vocabulary import OPERATIONS

FILE = "table.md"
HEAD = ("| example | written for | dtypes | what it is |", "|---|---|---|---|")
INTRODUCTION = """\
# All examples, by operation

Generated from `index.jsonl` by `scripts/update_examples_index.py --write`; do not edit. What the sources are:
[README.md](README.md). `scripts/find_example.py` searches the same records and says why one is near.
"""


def page(examples: Sequence[Example]) -> str:
    """The whole text of the page."""
    counts = Counter(example.source for example in examples)
    counted = ", ".join(f"{counts[source]} {source}" for source in SOURCES if counts[source])
    return f"{INTRODUCTION}\n{len(examples)} examples: {counted}.\n\n{render(examples)}\n"


def is_fresh(root: Path, examples: Sequence[Example]) -> bool:
    """Whether the page in `root` is what these records give."""
    file = root / FILE
    return file.is_file() and file.read_text(encoding="utf-8") == page(examples)


def render(examples: Sequence[Example]) -> str:
    """The tables, in the order of the vocabulary's operations; our own kernels come first in each."""
    groups = ((name, [e for e in examples if e.operation == name]) for name in OPERATIONS)
    return "\n\n".join("\n".join(_group(name, members)) for name, members in groups if members)


def _group(operation: str, members: Iterable[Example]) -> Iterator[str]:
    yield f"## {operation}"
    yield ""
    meaning = OPERATIONS[operation].meaning
    yield f"{meaning[0].upper()}{meaning[1:]}."
    yield ""
    yield from HEAD
    yield from map(_row, sorted(members, key=_rank))


def _rank(example: Example) -> tuple[int, str]:
    return SOURCES.index(example.source), example.id


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
