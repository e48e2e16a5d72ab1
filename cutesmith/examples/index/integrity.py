"""What must hold of an index as it stands, whatever it was built from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cutesmith.examples.index.curation import read_curation
from cutesmith.examples.index.records import SOURCES, Example
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS

ID = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)+")
SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_SUMMARY = 200  # characters: what a search shows on one or two lines
MAX_LESSON = 400


def faults(examples: Sequence[Example], root: Path) -> Iterator[str]:
    """One sentence for each thing wrong with the records or with the curation in `root`."""
    yield from _order(examples)
    for example in examples:
        yield from (f"{example.id}: {fault}" for fault in _record(example))
    for source in ("package", "cutlass"):
        known = {example.path for example in examples if example.source == source}
        missing = sorted(read_curation(root, source).keys() - known)
        yield from (f"curation describes {path}, which the index does not have" for path in missing)


def uncurated(examples: Iterable[Example]) -> tuple[str, ...]:
    """The ids of examples that nobody has described yet."""
    return tuple(example.id for example in examples if not example.summary or not example.lesson)


def _order(examples: Sequence[Example]) -> Iterator[str]:
    ids = [example.id for example in examples]
    yield from (f"{name}: {count} records have this id" for name, count in Counter(ids).items() if count > 1)
    if ids != sorted(ids):
        yield "the records are not sorted by id"


def _record(example: Example) -> Iterator[str]:
    if example.summary and example.operation not in OPERATIONS:
        yield f"no operation {example.operation!r}"
    yield from _unknown("arch", example.arch, ARCHS)
    yield from _unknown("dtype", example.dtypes, DTYPES)
    yield from _unknown("feature", example.features, FEATURES)
    yield from _texts(example)
    if not ID.fullmatch(example.id) or example.source not in SOURCES or not SHA256.fullmatch(example.sha256):
        yield "id, source or sha256 is not of the right form"
    if not example.arch or not example.symbols or example.lines < 1:
        yield "arch, symbols or lines are missing"


def _texts(example: Example) -> Iterator[str]:
    if len(example.summary) > MAX_SUMMARY or len(example.lesson) > MAX_LESSON:
        yield f"summary ({len(example.summary)}) or lesson ({len(example.lesson)}) is too long"
    if any(text and not text.endswith(".") for text in (example.summary, example.lesson)):
        yield "summary and lesson end with a full stop"


def _unknown(kind: str, words: Iterable[str], vocabulary: Iterable[str]) -> Iterator[str]:
    known = list(vocabulary)
    yield from (f"no {kind} {word!r}" for word in words if word not in known)
    if list(words) != [word for word in known if word in set(words)]:
        yield f"its {kind}s are not in the vocabulary's order"
