"""How two versions of the index differ: moved, changed, new and gone examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import PurePosixPath

from cutesmith.examples.index.records import Example

KINDS = {
    "new": "a path that the index did not have",
    "moved": "an example under another path, edited or not",
    "changed": "other bytes",
    "described": "the same bytes, other words or facts",
    "restamped": "only the version or commit is another",
    "gone": "a path that is no more",
}
MOVED = 0.7
"""From this likeness on, a new path and a gone one are one example that moved and was edited on the way."""


@dataclass(frozen=True)
class Change:
    """One difference of a record: `kind` is one of KINDS; a moved one came from the path `was`."""

    kind: str
    id: str
    path: str
    was: str = ""
    likeness: float = 1.0  # 1.0: the same bytes


def compare(old: Iterable[Example], new: Iterable[Example]) -> tuple[Change, ...]:
    """What became of `old` in `new`, sorted by kind and path; equal records are left out."""
    before, after = ({example.path: example for example in examples} for examples in (old, new))
    moves = _moves([before[p] for p in before.keys() - after.keys()], [after[p] for p in after.keys() - before.keys()])
    sources = {move.was for move in moves} | {move.path for move in moves}
    changes = [*moves]
    changes += [Change("gone", before[p].id, p) for p in before.keys() - after.keys() - sources]
    changes += [Change("new", after[p].id, p) for p in after.keys() - before.keys() - sources]
    for path in before.keys() & after.keys():
        one, other = before[path], after[path]
        if one.sha256 != other.sha256:
            changes.append(Change("changed", other.id, path, likeness=likeness(one, other)))
        elif one != other:
            kind = "restamped" if replace(one, version=other.version) == other else "described"
            changes.append(Change(kind, other.id, path))
    return tuple(sorted(changes, key=lambda change: (change.kind, change.path)))


def _moves(gone: Sequence[Example], new: Sequence[Example]) -> list[Change]:
    """Pairs of a gone and a new example, the most similar first; each is in one pair at most."""
    pairs = [(likeness(old, fresh), fresh, old) for old in gone for fresh in new]
    moves: list[Change] = []
    taken: set[str] = set()
    for score, fresh, old in sorted(pairs, key=lambda pair: (-pair[0], pair[1].path, pair[2].path)):
        if score >= MOVED and not {fresh.path, old.path} & taken:
            taken |= {fresh.path, old.path}
            moves.append(Change("moved", fresh.id, fresh.path, was=old.path, likeness=score))
    return moves


def likeness(old: Example, new: Example) -> float:
    """0…1: 1 for the same bytes, else from what two records know: file name, symbols, features, length."""
    if old.sha256 == new.sha256:
        return 1.0
    names = SequenceMatcher(None, PurePosixPath(old.path).name, PurePosixPath(new.path).name).ratio()
    lengths = min(old.lines, new.lines) / max(old.lines, new.lines, 1)
    parts = 0.3 * names + 0.4 * _overlap(old.symbols, new.symbols) + 0.2 * _overlap(old.features, new.features)
    return round(parts + 0.1 * lengths, 3)


def _overlap(first: Iterable[str], second: Iterable[str]) -> float:
    one, two = set(first), set(second)
    return len(one & two) / len(one | two) if one | two else 1.0
