"""Whether some lines are an excerpt of a text."""

from __future__ import annotations

from itertools import groupby
from textwrap import dedent


def is_excerpt(excerpt: str, whole: str, *, gap: str) -> bool:
    """Whether the lines stand in `whole` in a row, common indentation aside; a line `gap` skips any number of lines."""
    lines = whole.splitlines()
    parts = groupby(excerpt.splitlines(), lambda line: line.strip() == gap)
    runs = [list(group) for is_gap, group in parts if not is_gap]
    position = 0
    for run in runs:
        starts = range(position, len(lines) - len(run) + 1)
        found = next((i for i in starts if _same(run, lines[i : i + len(run)])), None)
        if found is None:
            return False
        position = found + len(run)
    return bool(runs)


def _same(first: list[str], second: list[str]) -> bool:
    return _normal(first) == _normal(second)


def _normal(lines: list[str]) -> list[str]:
    return [line.rstrip() for line in dedent("\n".join(lines)).split("\n")]
