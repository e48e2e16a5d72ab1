"""Which registers an instruction reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand, Register, parts

CONDITION_CODE = "%cc"
"""The carry flag of `add.cc`, `addc` and their like, as a predicate register."""

_NO_RESULT = frozenset(
    "bra brx ret exit trap brkpt nanosleep setmaxnreg griddepcontrol pmevent membar fence stackrestore "
    "accumulators".split()
)
_READ_CARRY = frozenset(("addc", "subc", "madc"))


def registers_in(operand: Operand) -> Iterator[str]:
    """Names of the registers in an operand, from left to right."""
    return (part.name for part in parts(operand) if isinstance(part, Register))


def reads(instruction: Instruction) -> Iterator[str]:
    """Registers that the instruction reads, its guard's included; a name may come twice."""
    if instruction.guard is not None:
        yield instruction.guard.register
    accumulates = instruction.opcode == "wgmma"  # d of `wgmma.mma_async` is read and written
    first = len(_results(instruction)) if not accumulates else 0
    for operand in instruction.operands[first:]:
        yield from registers_in(operand)
    if instruction.opcode in _READ_CARRY:
        yield CONDITION_CODE


def writes(instruction: Instruction) -> Iterator[str]:
    """Registers that the instruction writes."""
    for operand in _results(instruction):
        yield from registers_in(operand)
    if "cc" in instruction.modifiers:
        yield CONDITION_CODE


def _results(instruction: Instruction) -> tuple[Operand, ...]:
    """The operands that are destinations: `tcgen05.ld.red` has two."""
    if not has_result(instruction):
        return ()
    return instruction.operands[: 2 if instruction.modifiers[:2] == ("ld", "red") else 1]


def has_result(instruction: Instruction) -> bool:
    """Whether the first operand is a destination: not in `st [a], b` or `bar.sync 0`."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if not instruction.operands or isinstance(instruction.operands[0], Address) or opcode in _NO_RESULT:
        return False
    if opcode in ("bar", "barrier"):
        return "red" in modifiers
    return opcode != "tcgen05" or modifiers[:1] == ("ld",)
