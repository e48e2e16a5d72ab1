"""What people wrote about examples: `examples_index/curation/*.jsonl`, one entry a source path, joined with the facts.

An entry has `path`, `operation`, `summary` and `lesson`; it may have `title`, `arch`, `dtypes` (which replace what was
detected) and `features` (words that are added; with a `-` in front they are taken away). `faults` says what is wrong
with an index as it stands, whatever it was built from.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutesmith.errors import UsageError
from cutesmith.examples.index.features import in_order
from cutesmith.examples.index.records import SOURCES, Example
from cutesmith.examples.vocabulary import ARCHS, DTYPES, FEATURES, OPERATIONS

FILES = {"package": "packages.jsonl", "cutlass": "cutlass.jsonl", "repository": "repositories.jsonl"}
ID = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)+")
SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_SUMMARY = 200  # characters: what a search shows on one or two lines
MAX_LESSON = 400


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The hand-written part of one record."""

    path: str
    operation: str
    summary: str
    lesson: str
    title: str = ""
    arch: tuple[str, ...] = ()
    dtypes: tuple[str, ...] | None = None  # None: as detected; (): none
    features: tuple[str, ...] = ()

    def applied(self, example: Example) -> Example:
        """The record with this entry's words and overrides; raises UsageError for a feature that does not exist."""
        taken = {word.removeprefix("-") for word in self.features if word.startswith("-")}
        added = {word for word in self.features if not word.startswith("-")}
        if unknown := sorted((taken | added) - FEATURES.keys()):
            raise UsageError(f"curation of {self.path}: no feature {unknown[0]!r}", hint="See vocabulary.py")
        return replace(
            example,
            operation=self.operation,
            summary=self.summary,
            lesson=self.lesson,
            title=self.title or example.title,
            arch=self.arch or example.arch,
            dtypes=example.dtypes if self.dtypes is None else self.dtypes,
            features=in_order((set(example.features) | added) - taken, FEATURES),
        )


def read_curation(root: Path, source: str) -> dict[str, Entry]:
    """Path → entry of one source (of FILES); raises UsageError with the line where one is broken."""
    file = root / "curation" / FILES[source]
    entries: dict[str, Entry] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines() if file.is_file() else (), 1):
        try:
            fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(line).items()}
            entry = Entry(**fields)
        except (ValueError, TypeError, AttributeError) as error:
            hint = "Fields: path, operation, summary, lesson"
            raise UsageError(f"{file}:{number}: no curation entry: {error}", hint=hint) from error
        if entry.path in entries:
            raise UsageError(f"{file}:{number}: a second entry for {entry.path}", hint="Keep one of the two")
        entries[entry.path] = entry
    return entries


def rename(root: Path, source: str, moves: Mapping[str, str]) -> None:
    """Give entries of moved files their new path; every other line stays as it is."""
    file = root / "curation" / FILES[source]
    if not moves or not file.is_file():
        return
    lines = file.read_text(encoding="utf-8").splitlines()
    for place, line in enumerate(lines):
        fields = json.loads(line)
        if fields["path"] in moves:
            lines[place] = json.dumps({**fields, "path": moves[fields["path"]]}, ensure_ascii=False)
    file.write_text("\n".join(sorted(lines)) + "\n", encoding="utf-8")


def uncurated(examples: Iterable[Example]) -> tuple[str, ...]:
    """The ids of examples that no one has described yet."""
    return tuple(example.id for example in examples if not example.summary or not example.lesson)


def faults(examples: Sequence[Example], root: Path) -> Iterator[str]:
    """One sentence for each thing wrong with the records or with the curation in `root`."""
    ids = [example.id for example in examples]
    yield from (f"{name}: {count} records have this id" for name, count in Counter(ids).items() if count > 1)
    if ids != sorted(ids):
        yield "the records are not sorted by id"
    for example in examples:
        yield from (f"{example.id}: {fault}" for fault in _record_faults(example))
    for source in FILES:
        known = {example.path for example in examples if example.source == source}
        missing = sorted(read_curation(root, source).keys() - known)
        yield from (f"curation describes {path}, which the index does not have" for path in missing)


def _record_faults(example: Example) -> Iterator[str]:
    if example.summary and example.operation not in OPERATIONS:
        yield f"no operation {example.operation!r}"
    words = ("arch", example.arch, ARCHS), ("dtype", example.dtypes, DTYPES), ("feature", example.features, FEATURES)
    for kind, used, vocabulary in words:
        yield from (f"no {kind} {word!r}" for word in used if word not in vocabulary)
        if used != in_order(used, vocabulary):
            yield f"its {kind}s are not in the vocabulary's order"
    if len(example.summary) > MAX_SUMMARY or len(example.lesson) > MAX_LESSON:
        yield f"summary ({len(example.summary)}) or lesson ({len(example.lesson)}) is too long"
    if any(text and not text.endswith(".") for text in (example.summary, example.lesson)):
        yield "summary and lesson end with a full stop"
    if not ID.fullmatch(example.id) or example.source not in SOURCES or not SHA256.fullmatch(example.sha256):
        yield "id, source or sha256 is not of the right form"
    if not example.arch or not example.symbols or example.lines < 1:
        yield "arch, symbols or lines are missing"
