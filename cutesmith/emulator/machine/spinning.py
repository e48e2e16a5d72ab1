"""Loops that wait for what others write: where blocks do so through global memory, they need to run side by side."""

from __future__ import annotations

from cutesmith.emulator.program.pieces import Branch, Exit, Jump, Piece, Program, Stop, Switch
from cutesmith.emulator.ptx.syntax import Instruction, Location

_ORDERED = frozenset(("volatile", "acquire", "relaxed", "mmio"))
_READING = frozenset(("ld", "atom", "mbarrier"))


def waits_for_other_blocks(program: Program) -> bool:
    """Whether a loop reads global memory in a way that others may change meanwhile: atomics, volatile, acquire."""
    return any(_may_wait(piece) and _in_cycle(program, piece) for piece in program.pieces)


def _may_wait(piece: Piece) -> bool:
    return any(map(_reads_what_others_write, _instructions(piece)))


def _reads_what_others_write(instruction: Instruction) -> bool:
    words = set(instruction.modifiers)
    if any(word.startswith("shared") for word in words):
        return False
    return instruction.opcode == "atom" or (instruction.opcode == "ld" and bool(words & _ORDERED))


def _in_cycle(program: Program, piece: Piece) -> bool:
    return piece.number in _reached(program, successors(piece))


def waiting_line(program: Program, number: int) -> Location | None:
    """The line to blame when lanes never leave the loop around a piece: a read of memory in it, else its start."""
    after = _reached(program, (number,))
    loop = sorted(n for n in after if number in _reached(program, successors(program.pieces[n]))) or [number]
    instructions = [i for n in loop for i in _instructions(program.pieces[n]) if i.location]
    reads = [i for i in instructions if i.opcode in _READING]
    return next((i.location for i in (*reads, *instructions)), None)


def _instructions(piece: Piece) -> tuple[Instruction, ...]:
    return (*piece.instructions, *((piece.end.instruction,) if isinstance(piece.end, Stop) else ()))


def _reached(program: Program, first: tuple[int, ...]) -> set[int]:
    """These pieces and all that may follow them."""
    seen: set[int] = set()
    todo = list(first)
    while todo:
        number = todo.pop()
        if number not in seen:
            seen.add(number)
            todo += successors(program.pieces[number])
    return seen


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
