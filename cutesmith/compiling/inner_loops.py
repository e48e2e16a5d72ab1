"""Loops of a kernel's PTX, and what each step of an innermost one asks of shared memory and of the issue slots."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from cutesmith.compiling.narrowing import opcodes_in
from cutesmith.recording.ptx import entry_bodies, source_place
from cutesmith.verdicts import InnerLoop

_LABEL = re.compile(r"^\s*(?P<label>\$?[\w$]+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(?P<label>\$?[\w$]+)\s*;")
_WITHOUT_SHARED = ("shared::cluster.global", "fence", "mbarrier")  # copies between spaces, and no data


def inner_loops(ptx: str, kernel: str) -> tuple[InnerLoop, ...]:
    """The innermost loops of an entry whose steps access shared memory, in the order of the text."""
    body, first = entry_bodies(ptx).get(kernel, ("", 0))
    lines = body.splitlines()
    return tuple(loop for begin, end in _innermost(lines) if (loop := _loop(ptx, lines, begin, end, first)).shared)


def _innermost(lines: list[str]) -> Iterator[tuple[int, int]]:
    """First and last line of each loop that holds no other: a label, and the last branch back to it."""
    labels = {match["label"]: number for number, line in enumerate(lines) if (match := _LABEL.match(line))}
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        for match in _BRANCH.finditer(line):
            if (begin := labels.get(match["label"], number)) < number:
                ends[begin] = number
    for begin, end in ends.items():
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in ends.items()):
            yield begin, end


def _loop(ptx: str, lines: list[str], begin: int, end: int, first: int) -> InnerLoop:
    found: Counter[str] = Counter()
    place, instructions = begin, 0
    for number in range(begin, end + 1):
        for opcode in opcodes_in(lines[number]):
            instructions += 1
            if _is_shared(opcode):
                place = place if found else number
                found[opcode] += 1
    return InnerLoop(source_place(ptx, first + place), instructions, dict(sorted(found.items())))


def _is_shared(opcode: str) -> bool:
    moves = opcode.startswith(("ldmatrix", "stmatrix")) or ".shared" in opcode
    return moves and not any(word in opcode for word in _WITHOUT_SHARED) and not opcode.startswith("cp.")
