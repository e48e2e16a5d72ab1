"""Python source as lines of classified spans, for the source listing of a report."""

from __future__ import annotations

import io
import keyword
import token
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

SOFT_BUILTINS = frozenset({"True", "False", "None", "self"})


@dataclass(frozen=True)
class Span:
    """A run of characters of one line and its kind: "" (plain), "keyword", "string", "comment", "number", "name"."""

    text: str
    kind: str = ""


def highlight(source: str) -> list[list[Span]]:
    """Every line of the source as spans whose texts join to the line again; source that is not Python stays plain."""
    lines = source.splitlines()
    marks: list[list[tuple[int, int, str]]] = [[] for _ in lines]
    try:
        for row, start, end, kind in _marks(source, lines):
            marks[row].append((start, end, kind))
    except (tokenize.TokenError, SyntaxError):
        pass  # what was read so far keeps its colours
    return [list(_spans(line, spans)) for line, spans in zip(lines, marks, strict=True)]


def _marks(source: str, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    previous = ""
    for item in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
        kind = _kind(item, previous)
        if kind:
            for row in range(item.start[0] - 1, min(item.end[0], len(lines))):
                start = item.start[1] if row == item.start[0] - 1 else 0
                end = item.end[1] if row == item.end[0] - 1 else len(lines[row])
                yield row, start, end, kind
        if item.type == token.NAME:
            previous = item.string
        elif item.type not in (tokenize.NL, tokenize.COMMENT):
            previous = ""


def _kind(item: tokenize.TokenInfo, previous: str) -> str:
    if item.type == tokenize.COMMENT:
        return "comment"
    if item.type == token.NUMBER:
        return "number"
    if token.tok_name[item.type] in ("STRING", "FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END"):
        return "string"
    if item.type == token.NAME:
        if keyword.iskeyword(item.string) or item.string in SOFT_BUILTINS:
            return "keyword"
        return "name" if previous in ("def", "class") else ""
    return "decorator" if item.type == token.OP and item.string == "@" and item.start[1] == 0 else ""


def _spans(line: str, spans: list[tuple[int, int, str]]) -> Iterator[Span]:
    position = 0
    for start, end, kind in sorted(spans):
        if start < position or end <= start:
            continue
        if start > position:
            yield Span(line[position:start])
        yield Span(line[start:end], kind)
        position = end
    if position < len(line):
        yield Span(line[position:])
