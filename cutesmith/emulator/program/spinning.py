"""Loops that wait for what others write: where blocks do so through global memory, they need to run side by side."""

from __future__ import annotations

from functools import lru_cache

from cutesmith.emulator.program.basic_blocks import BasicBlock, Program, SuspensionPoint
from cutesmith.emulator.program.control_flow import successors
from cutesmith.emulator.ptx.syntax import Instruction, Location

_ORDERED = frozenset(("volatile", "acquire", "relaxed", "mmio"))
_READING = frozenset(("ld", "atom", "mbarrier"))
_PROGRAMS = 64  # kept: each is launched many times


@lru_cache(_PROGRAMS)
def waits_for_other_blocks(program: Program) -> bool:
    """Whether a loop reads global memory in a way that others may change meanwhile: atomics, volatile, acquire."""
    return any(
        any(map(_reads_what_others_write, _instructions(basic_block)))
        and basic_block.number in _after(program, basic_block.number)
        for basic_block in program.basic_blocks
    )


def depends_on_other_blocks(program: Program) -> bool:
    """Whether blocks meet in global memory: by atomics, or by waiting for each other."""
    atomics = (i for i in program.instructions if i.opcode in ("atom", "red"))
    shared = (any(word.startswith("shared") for word in i.modifiers) for i in atomics)
    return not all(shared) or waits_for_other_blocks(program)


def _reads_what_others_write(instruction: Instruction) -> bool:
    words = set(instruction.modifiers)
    if any(word.startswith("shared") for word in words):
        return False
    return instruction.opcode == "atom" or (instruction.opcode == "ld" and bool(words & _ORDERED))


def waiting_line(program: Program, number: int) -> Location | None:
    """The line to blame when lanes never leave the loops around a basic block: a read of memory in the innermost loop
    around it that has one, else the start of the innermost."""
    loops = _loops(program, number) or [[number]]
    lines = [[i for n in loop for i in _instructions(program.basic_blocks[n]) if i.location] for loop in loops]
    reads = [i for instructions in lines for i in instructions if i.opcode in _READING]
    return next((i.location for i in (*reads, *(i for instructions in lines for i in instructions))), None)


def _loops(program: Program, number: int) -> list[list[int]]:
    """The basic blocks of the shortest way from one back to itself, then of all ways; empty where there is none."""
    ways: dict[int, list[int]] = {number: []}
    reached = [number]
    for at in reached:
        for following in successors(program.basic_blocks[at].end):
            if following == number:
                whole = sorted(n for n in _after(program, number) if number in _after(program, n))
                return [sorted([number, *ways[at]]), whole]
            if following not in ways:
                ways[following] = [*ways[at], following]
                reached.append(following)
    return []


def _instructions(basic_block: BasicBlock) -> tuple[Instruction, ...]:
    end = basic_block.end
    return (*basic_block.instructions, *([end.instruction] if isinstance(end, SuspensionPoint) else []))


def _after(program: Program, number: int) -> set[int]:
    """All basic blocks that may follow one."""
    return _reached(program, successors(program.basic_blocks[number].end))


def _reached(program: Program, first: tuple[int, ...]) -> set[int]:
    """These basic blocks and all that may follow them."""
    seen: set[int] = set()
    waiting = list(first)
    while waiting:
        number = waiting.pop()
        if number not in seen:
            seen.add(number)
            waiting += successors(program.basic_blocks[number].end)
    return seen
