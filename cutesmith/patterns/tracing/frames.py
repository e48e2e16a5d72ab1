"""Which line of a problem's file an operation is at."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from pathlib import Path
from types import FrameType

import torch

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[2])


def user_frame(path: str) -> FrameType | None:
    """The innermost frame of the problem's file, else the innermost that is neither torch's nor ours."""
    frame: FrameType | None = sys._getframe(1)
    fallback = None
    while frame is not None:
        name = frame.f_code.co_filename
        if path and name == path:
            return frame
        if fallback is None and not _is_between(name):
            fallback = frame
            if not path:
                break
        frame = frame.f_back
    return fallback


@functools.cache
def _is_between(name: str) -> bool:
    """Whether a file is torch's or ours, or one that a function runs through on the way to them."""
    return name.startswith((_TORCH, _OURS, "<")) or "contextlib" in name


def only_raises(frame: FrameType | None) -> str:
    """The statement by which a function branches on a value only to refuse an argument, as for variances below 0.

    It is PyTorch's own, or the problem's `if …: raise …` whose condition denies nothing; else "".
    """
    between = (_OURS, f"{_TORCH}/_dynamo", f"{_TORCH}/_compile", "<")  # frames of the dispatch itself
    while frame is not None and frame.f_code.co_filename.startswith(between):
        frame = frame.f_back
    if frame is None:
        return ""
    tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    branches = (node for node in ast.walk(tree) if isinstance(node, ast.If) and not node.orelse)
    for node in branches:
        if isinstance(node.body[0], ast.Raise) and node.lineno <= frame.f_lineno <= (node.test.end_lineno or 0):
            denies = any(isinstance(each, ast.Not) for each in ast.walk(node.test))
            return "" if denies else f"if {ast.unparse(node.test)}: raise"
    return ""


def where_raised(error: BaseException, path: str) -> str:
    """` at FILE:LINE`, the innermost line of the problem's file; empty where there is none."""
    place = line_raised(error, path)
    return f" at {Path(place[0]).name}:{place[1]}" if place else ""


def line_raised(error: BaseException, path: str) -> tuple[str, int] | None:
    """The file and number of the innermost line of the problem's file that an error came through."""
    trace, place = error.__traceback__, None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == path or not (path or name.startswith((_TORCH, _OURS))):
            place = name, trace.tb_lineno
        trace = trace.tb_next
    return place
