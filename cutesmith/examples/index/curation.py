"""What people wrote about examples: `examples_index/curation/*.jsonl`, one entry a source path, joined with the facts.

An entry has `path`, `operation`, `summary` and `lesson`; it may have `title`, `arch`, `dtypes` (which replace what was
detected) and `features` (words that are added; with a `-` in front they are taken away).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutesmith.errors import UsageError
from cutesmith.examples.index.features import in_order
from cutesmith.examples.index.records import Example
from cutesmith.examples.vocabulary import FEATURES

FILES = {"package": "packages.jsonl", "cutlass": "cutlass.jsonl"}


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
        """The record with this entry's words and overrides."""
        return replace(
            example,
            operation=self.operation,
            summary=self.summary,
            lesson=self.lesson,
            title=self.title or example.title,
            arch=self.arch or example.arch,
            dtypes=example.dtypes if self.dtypes is None else self.dtypes,
            features=self._features(example.features),
        )

    def _features(self, detected: Iterable[str]) -> tuple[str, ...]:
        taken = {word.removeprefix("-") for word in self.features if word.startswith("-")}
        added = {word for word in self.features if not word.startswith("-")}
        unknown = sorted((taken | added) - FEATURES.keys())
        if unknown:
            raise UsageError(f"curation of {self.path}: no feature {unknown[0]!r}", hint="See vocabulary.py")
        return in_order((set(detected) | added) - taken, FEATURES)


def read_curation(root: Path, source: str) -> dict[str, Entry]:
    """Path → entry of one source ("package" or "cutlass"); raises UsageError with the line where one is broken."""
    file = root / "curation" / FILES[source]
    if not file.is_file():
        return {}
    entries: dict[str, Entry] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        entry = _entry(line, f"{file}:{number}")
        if entry.path in entries:
            raise UsageError(f"{file}:{number}: a second entry for {entry.path}", hint="Keep one of the two")
        entries[entry.path] = entry
    return entries


def rename(root: Path, source: str, moves: Mapping[str, str]) -> None:
    """Give entries of moved files their new path; every other line stays as it is."""
    file = root / "curation" / FILES[source]
    if not moves or not file.is_file():
        return
    lines = [_renamed(line, moves) for line in file.read_text(encoding="utf-8").splitlines()]
    file.write_text("\n".join(sorted(lines)) + "\n", encoding="utf-8")


def _renamed(line: str, moves: Mapping[str, str]) -> str:
    fields = json.loads(line)
    if fields["path"] not in moves:
        return line
    return json.dumps({**fields, "path": moves[fields["path"]]}, ensure_ascii=False)


def _entry(line: str, where: str) -> Entry:
    try:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(line).items()}
        return Entry(**fields)
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{where}: no curation entry: {error}", hint="Fields: path, operation, summary, lesson"
        ) from error
