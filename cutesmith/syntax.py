"""Python source to its syntax tree: whatever reads source does it through here."""

from __future__ import annotations

import ast
import os
import warnings

_TRIES = 8


def parse_python(source: str | bytes, filename: str | os.PathLike[str] = "<unknown>") -> ast.Module:
    """The tree of the source, without the parser's warnings (an invalid escape does not concern most readers).

    Raises what ast.parse raises: SyntaxError, ValueError, RecursionError, MemoryError. CPython before 3.11.8 and 3.12.2
    also raises SystemError when a finaliser that the garbage collector runs meanwhile parses something too, as a logged
    traceback does for its carets (https://github.com/python/cpython/issues/106905): that says nothing of the source,
    and it is parsed again.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(_TRIES - 1):
            try:
                return ast.parse(source, filename=os.fspath(filename))
            except SystemError:
                continue
        return ast.parse(source, filename=os.fspath(filename))
