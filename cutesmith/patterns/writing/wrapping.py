"""Lines of a kernel file that are too long, broken as a formatter would: in their brackets, between arguments.

Templates and the graph write statements whole, as what works on them needs it; a person reads them in columns.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutesmith.patterns.writing.renaming import KEPT, pieces_of
from cutesmith.problems.contract import parse
from cutesmith.syntax import walk

WIDTH = 120
STEP = 4
"""Columns that what is inside of brackets is indented by."""

_PARTS = re.compile(
    r"""(?P<string>[a-zA-Z]{0,2}(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))|(?P<comment>\#.*)|(?P<open>[(\[{])"""
    r"""|(?P<close>[)\]}])|(?P<comma>,\ ?)|(?P<choice>\ (?:if|else)\ )|(?P<truth>\ (?:and|or)\ )"""
    r"""|(?P<sum>\ [-+|]\ )|(?P<product>\ (?:\*|//?)\ )""",
    re.VERBOSE,
)
_BOUND_LEAST_FIRST = ("comma", "choice", "truth", "sum", "product")
_IMPORT = re.compile(r"from [\w.]+ import ")
_BEFORE_NAMES = re.compile(r"del |return |[\w, ]+ = ")
_WORDS = re.compile(r"(?:\{[^{}]*\}|[^ {])*(?: +|$)")
"""Of a string, with the spaces after each; what is computed within it is not divided."""


def wrapped(section: str) -> str:
    """The section, whose lines have up to WIDTH columns; strings of several lines are left, but for docstrings."""
    return "".join(map(_wrapped, pieces_of(section)))


@functools.lru_cache(maxsize=KEPT)
def _wrapped(piece: str) -> str:
    lines = piece.split("\n")
    if max(map(len, lines)) <= WIDTH:
        return piece
    tree = parse(piece, "piece")
    docstrings = {line for node in _docstrings(tree) for line in _lines_of(node)}
    strings = {line for node in _strings(tree) if len(_lines_of(node)) > 1 for line in _lines_of(node)}
    found, depth = list[str](), 0
    for number, line in enumerate(lines, 1):
        if number in docstrings:
            found += _filled_text(line)
        elif number in strings:
            found.append(line)
        else:
            found += _broken(line, inside=depth > 0)
            depth += sum(part.kind == "open" for part in _parts(line)) - sum(p.kind == "close" for p in _parts(line))
    return "\n".join(found)


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    """Strings that are statements."""
    for node in walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node


def _strings(tree: ast.Module) -> Iterator[ast.expr]:
    return (node for node in walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr))


def _lines_of(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _filled_text(line: str) -> list[str]:
    """The lines of a docstring's line; where that was all, its quotes end on a line of their own."""
    pad = _indentation(line)
    found = textwrap.wrap(line, WIDTH, subsequent_indent=pad, break_long_words=False, break_on_hyphens=False) or [line]
    if len(found) > 1 and line.count('"""') == 2:
        found[-1:] = [found[-1].removesuffix('"""'), f'{pad}"""']
    return found


@dataclass(frozen=True)
class _Part:
    """A bracket, comma, operator, string or comment of a line, in so many brackets more than the line begins in."""

    kind: str
    start: int
    end: int
    depth: int


def _parts(line: str) -> list[_Part]:
    found, depth = list[_Part](), 0
    for match in _PARTS.finditer(line):
        kind = match.lastgroup or ""
        depth -= kind == "close"
        found.append(_Part(kind, *match.span(), depth))
        depth += kind == "open"
    return found


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _broken(line: str, *, inside: bool) -> list[str]:
    """The lines that a line becomes; `inside` of brackets it may end between any parts."""
    if len(line) <= WIDTH:
        return [line]
    pad, parts = _indentation(line), _parts(line)
    if parts and parts[-1].kind == "comment":
        code, comment = line[: parts[-1].start].rstrip(), line[parts[-1].start :]
        filled = textwrap.wrap(comment, WIDTH, initial_indent=pad, subsequent_indent=f"{pad}# ")
        return filled + (_broken(code, inside=inside) if code else [])
    if imported := _IMPORT.match(line):
        names = line[imported.end() :]
        return [
            imported[0] + each.rstrip(", ") for each in _joined(_pieces(names, _parts(names)), WIDTH - imported.end())
        ]
    text = parts[0] if inside and parts and parts[0].kind == "string" else None
    if text is not None and line[len(pad) : text.start] + line[text.end :] in ("", ","):
        return _string_in_pieces(line, pad, text)
    pieces = _pieces(line, parts) if inside else []
    return _filled(pieces, pad) if len(pieces) > 1 else _broken_in_brackets(line, pad, parts)


def _string_in_pieces(line: str, pad: str, part: _Part) -> list[str]:
    """A string that begins a line as several, which Python joins."""
    text, end = line[part.start : part.end - 1], line[part.end - 1 :]
    prefix = text[: text.index(end[0]) + 1]
    pieces = _joined(_WORDS.findall(text[len(prefix) :]), WIDTH - len(pad) - len(prefix) - len(end) - 1)
    ends = [end[0]] * (len(pieces) - 1) + [end]
    quotes = [prefix if "{" in piece else prefix.removeprefix("f") for piece in pieces]
    return [f"{pad}{before}{piece}{after}" for before, piece, after in zip(quotes, pieces, ends, strict=True)]


def _pieces(line: str, parts: Sequence[_Part]) -> list[str]:
    """The line in pieces that may stand in lines of their own: up to commas, else from operators that bind least on."""
    outer = [part for part in parts if part.depth <= 0]
    kind = next((kind for kind in _BOUND_LEAST_FIRST if any(part.kind == kind for part in outer)), "")
    cuts = [part.end if kind == "comma" else part.start + 1 for part in outer if part.kind == kind]
    starts = [len(_indentation(line)), *cuts]
    return [line[start:end] for start, end in zip(starts, [*cuts, len(line)], strict=True) if line[start:end].strip()]


def _filled(pieces: Sequence[str], pad: str) -> list[str]:
    """Lines of as many pieces as fit."""
    lines = _joined(pieces, WIDTH - len(pad))
    return [line for each in lines for line in _broken(pad + each.rstrip(), inside=True)]


def _joined(pieces: Sequence[str], room: int) -> list[str]:
    found = [""]
    for piece in pieces:
        if found[-1] and len((found[-1] + piece).rstrip()) > room:
            found.append("")
        found[-1] += piece
    return found


def _broken_in_brackets(line: str, pad: str, parts: Sequence[_Part]) -> list[str]:
    """Broken after the bracket that has the most in it, and before that closes; in new ones where there is none."""
    pairs = [(part, _closing(line, parts, part)) for part in parts if part.kind == "open" and part.depth <= 0]
    pairs = [(opening, closing) for opening, closing in pairs if closing > opening.end]
    if pairs:
        opening, closing = max(pairs, key=lambda pair: pair[1] - pair[0].end)
        head, body, tail = line[: opening.end], line[opening.end : closing], pad + line[closing:]
    elif names := _BEFORE_NAMES.match(line, len(pad)):
        head, body, tail = f"{line[: names.end()]}(", line[names.end() :], f"{pad})"
    else:
        return [line]
    inner = _broken(f"{pad}{' ' * STEP}{body.strip()}", inside=True)
    return [*_broken(head, inside=False), *inner, *(_broken(tail, inside=False) if tail != pad else [])]


def _closing(line: str, parts: Sequence[_Part], opening: _Part) -> int:
    """Where the bracket is closed, or the line ends."""
    after = [part for part in parts if part.start > opening.start and part.kind == "close"]
    return next((part.start for part in after if part.depth == opening.depth), len(line))
