"""Syntax as text, for people: traces, messages, listings; the parser reads it again."""

from __future__ import annotations

from pathlib import Path

from cutesmith.emulator.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    LabelReference,
    Location,
    Operand,
    Pair,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
    Vector,
)


def format_instruction(instruction: Instruction) -> str:
    """Such as `@!%p1 ld.global.v2.b32 {%r1, %r2}, [%rd1+16];`."""
    guard = instruction.guard
    before = f"@{'!' if guard.negated else ''}{guard.register} " if guard else ""
    return f"{before}{instruction.full_opcode} {_operands(instruction)}".rstrip() + ";"


def format_operand(operand: Operand) -> str:
    """Such as `%r1`, `!%p1`, `[%rd1+16]`, `{%r1, _}`, `0f3F800000` or `-5`."""
    if isinstance(operand, Register):
        return f"!{operand.name}" if operand.negated else operand.name
    if isinstance(operand, Immediate):
        if not operand.float_bits:
            return str(operand.value)
        letter = "f" if operand.float_bits == 32 else "d"
        return f"0{letter}{operand.value:0{operand.float_bits // 4}X}"
    if isinstance(operand, Symbol):
        return f"{operand.name}{_offset(operand.offset)}"
    if isinstance(operand, Address):
        coordinates = f", {{{_list(operand.coordinates)}}}" if operand.coordinates else ""
        return f"[{format_operand(operand.base)}{_offset(operand.offset)}{coordinates}]"
    if isinstance(operand, Vector):
        return f"{{{_list(operand.elements)}}}"
    if isinstance(operand, Pair):
        return f"{format_operand(operand.first)}|{format_operand(operand.second)}"
    if isinstance(operand, Sink):
        return "_"
    assert isinstance(operand, (SpecialRegister, LabelReference))
    return operand.name


def format_location(location: Location | None) -> str:
    """Such as `kernel.py:12 in kernel.py:30`, innermost first; "unknown line" without line information."""
    if location is None:
        return "unknown line"
    here = f"{Path(location.file).name}:{location.line}"
    return f"{here} in {format_location(location.inlined_at)}" if location.inlined_at else here


def location_in(location: Location | None, file: str | Path) -> Location | None:
    """The innermost line of the chain of callers that lies in `file`; the innermost of all where none does."""
    wanted, place = Path(file), location
    while place is not None and Path(place.file) != wanted:
        place = place.inlined_at
    return place or location


def _operands(instruction: Instruction) -> str:
    if instruction.opcode != "call":
        return _list(instruction.operands)
    returns, callee, arguments, *rest = instruction.operands
    assert isinstance(returns, Vector) and isinstance(arguments, Vector)
    results = f"({_list(returns.elements)}), " if returns.elements else ""
    prototype = "".join(f", {format_operand(operand)}" for operand in rest)
    return f"{results}{format_operand(callee)}, ({_list(arguments.elements)}){prototype}"


def _list(operands: tuple[Operand, ...]) -> str:
    return ", ".join(format_operand(operand) for operand in operands)


def _offset(offset: int) -> str:
    return f"{offset:+d}" if offset else ""
