"""The parts of an example's source: a whole one of CUTLASS costs a reader 25 to 45 thousand tokens."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.syntax import parse_python
from cutesmith.verdicts import ExamplePart, FetchedExample, FetchVerdict

HEAD = "(head)"
"""The name of all that stands before the first function or class: docstring, imports, constants."""

CHARACTERS_PER_TOKEN = 3.5
"""Of Python source, roughly: what the size of a part in tokens is reckoned by."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def outline_of(source: str) -> tuple[ExamplePart, ...]:
    """The head, functions, classes, methods and decorated inner functions with their lines, in the order of the text.

    Names of inner ones are qualified ("Gemm.kernel"). Raises UsageError for a text that is not Python.
    """
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"the file cannot be parsed: {error}", hint="Read it whole, with --print.") from error
    lines = source.splitlines(keepends=True)
    parts = [_part(name, first, last, lines) for name, first, last in _definitions(tree, "")]
    before = parts[0].first_line - 1 if parts else len(lines)
    return (*([_part(HEAD, 1, before, lines)] if before else []), *parts)


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            name = f"{prefix}{child.name}"
            inner = isinstance(node, _FUNCTIONS)
            if not inner or child.decorator_list:
                first = min((decorator.lineno for decorator in child.decorator_list), default=child.lineno)
                yield name, first, child.end_lineno or child.lineno
            yield from _definitions(child, f"{name}.")
        elif isinstance(child, ast.stmt):  # below `if` or `with`
            yield from _definitions(child, prefix)


def _part(name: str, first: int, last: int, lines: Sequence[str]) -> ExamplePart:
    characters = sum(len(line) for line in lines[first - 1 : last])
    return ExamplePart(name=name, first_line=first, last_line=last, tokens=round(characters / CHARACTERS_PER_TOKEN))


def with_parts(verdict: FetchVerdict, names: Sequence[str] = ()) -> FetchVerdict:
    """The fetched examples with their outlines, or with the text of the parts of these names.

    Raises UsageError for a name that an example lacks.
    """
    shown = tuple(example if example.error else _outlined(example, names) for example in verdict.examples)
    return replace(verdict, examples=shown)


def _outlined(example: FetchedExample, names: Sequence[str]) -> FetchedExample:
    source = Path(example.path).read_bytes().decode("utf-8", "replace")
    parts = outline_of(source)
    if names:
        lines = source.splitlines(keepends=True)
        found = [_named(name, parts, example.id) for name in names]
        parts = tuple(replace(part, text="".join(lines[part.first_line - 1 : part.last_line])) for part in found)
    return replace(example, parts=parts)


def _named(name: str, parts: Sequence[ExamplePart], example: str) -> ExamplePart:
    """The part of this name, or the only one whose qualified name ends with it."""
    exact = [part for part in parts if part.name == name]
    found = exact or [part for part in parts if part.name.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    known = [part.name for part in found or parts]
    near = known if found else get_close_matches(name, known, n=5, cutoff=0.4)
    said = f"{example} has {len(found)} parts that are named {name!r}" if found else f"{example} has no part {name!r}"
    raise UsageError(said, hint=f"Did you mean {', '.join(near)}?" if near else "--outline lists the parts.")
