"""Calls of `scripts/X.py` in a text: read off code, and held against the scripts that there are and their `--help`."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cutesmith.references.sections import fences, outside_fences

_SCRIPT = re.compile(r"scripts/(\w+)\.py")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_SPAN = re.compile(r"`([^`]+)`")
_COMMAND = re.compile(r"(?:.*\\\n)*.+")  # a line of shell with its continuations
_HELP_SECONDS = 60


@dataclass(frozen=True)
class Call:
    """A script as it is called in the text: where, which, and with which options."""

    line: int
    script: str
    options: tuple[str, ...]


def in_text(text: str) -> Iterator[Call]:
    """Every call of a script in code: in fenced lines (with continuations) and in inline code."""
    lines = text.split("\n")
    for number, line in outside_fences(lines):
        yield from (call for span in _SPAN.findall(line) for call in in_code(span, number))
    for start, end, _ in fences(lines):
        source = "\n".join(lines[start : end - 1])
        for command in _COMMAND.finditer(source):
            yield from in_code(command[0].replace("\\\n", " "), start + 1 + source.count("\n", 0, command.start()))


def in_code(code: str, line: int) -> Iterator[Call]:
    """Every call of a script in lines of shell."""
    found = list(_SCRIPT.finditer(code))
    ends = [match.start() for match in found[1:]] + [len(code)]
    for match, end in zip(found, ends):
        shown = re.split(r"#|&&|;|\||\n", code[match.end() : end])[0]
        yield Call(line, match[1], tuple(_OPTION.findall(shown)))


def faults(calls: Sequence[Call], scripts: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every call of a script that is not in the folder, or with an option that its help lacks."""
    wanted = sorted({call.script for call in calls if call.options and (scripts / f"{call.script}.py").is_file()})
    files = [scripts / f"{name}.py" for name in wanted]
    with ThreadPoolExecutor(max_workers=2) as pool:
        options = dict(zip(wanted, pool.map(lambda file: _options(file, file.stat().st_mtime_ns), files)))
    for call in calls:
        if not (scripts / f"{call.script}.py").is_file():
            yield call.line, f"there is no scripts/{call.script}.py"
        known = options.get(call.script, frozenset(call.options))
        if known is None:
            yield call.line, f"scripts/{call.script}.py --help fails"
        else:
            unknown = (option for option in call.options if option not in known)
            yield from ((call.line, f"scripts/{call.script}.py has no option {option}") for option in unknown)


@functools.lru_cache(maxsize=64)  # a page names a script many times
def _options(script: Path, _changed: int) -> frozenset[str] | None:
    """The options that `--help` prints; None when it fails. `_changed`, the file's time, belongs to the cache's key."""
    command = [sys.executable, str(script), "--help"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_HELP_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None
    return frozenset(_OPTION.findall(done.stdout)) if done.returncode == 0 else None
