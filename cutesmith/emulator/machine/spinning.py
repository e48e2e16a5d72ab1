"""Kernels whose blocks wait for each other through global memory: they need to run side by side."""

from __future__ import annotations

from cutesmith.emulator.program.pieces import Branch, Exit, Jump, Piece, Program, Stop, Switch
from cutesmith.emulator.ptx.syntax import Instruction

_ORDERED = frozenset(("volatile", "acquire", "relaxed", "mmio"))


def waits_for_other_blocks(program: Program) -> bool:
    """Whether a loop reads global memory in a way that others may change meanwhile: atomics, volatile, acquire."""
    return any(_may_wait(piece) and _in_cycle(program, piece) for piece in program.pieces)


def _may_wait(piece: Piece) -> bool:
    stop = (piece.end.instruction,) if isinstance(piece.end, Stop) else ()
    return any(map(_reads_what_others_write, (*piece.instructions, *stop)))


def _reads_what_others_write(instruction: Instruction) -> bool:
    words = set(instruction.modifiers)
    if any(word.startswith("shared") for word in words):
        return False
    return instruction.opcode == "atom" or (instruction.opcode == "ld" and bool(words & _ORDERED))


def _in_cycle(program: Program, piece: Piece) -> bool:
    seen: set[int] = set()
    todo = list(successors(piece))
    while todo:
        number = todo.pop()
        if number not in seen:
            seen.add(number)
            todo += successors(program.pieces[number])
    return piece.number in seen


def successors(piece: Piece) -> tuple[int, ...]:
    """The pieces that may follow."""
    end = piece.end
    if isinstance(end, Jump):
        return (end.target,)
    if isinstance(end, Branch):
        return (end.taken, end.otherwise)
    if isinstance(end, Switch):
        return end.targets
    if isinstance(end, Stop):
        return (end.resume,)
    assert isinstance(end, Exit)
    return ()
