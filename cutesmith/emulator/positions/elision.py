"""A function reduced to its addresses: accesses to global memory are only written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cutesmith.emulator.instructions.roles import has_result, reads, writes
from cutesmith.emulator.ptx.syntax import Address, Function, Immediate, Instruction, Label, Register, Vector, with_body

POSITION = "position"
"""The opcode of an address that would be accessed: `position.st [address], [the same, computed with 64 bits]`."""
_COPIES = ("cp.async.ca.", "cp.async.cg.")
_CONTROL = frozenset(("bra", "brx", "ret", "exit", "trap", "bar", "barrier", POSITION))
_SHARED_WRITES = frozenset(("st", "stmatrix", "atom", "red"))
_SHARED_READS = frozenset(("ld", "ldmatrix", "atom"))


def reduced(function: Function) -> Function:
    """The function, calls inlined, without what happens to values; loads of global memory give zero.

    Barriers of memory transactions count as passed: nothing is copied that could arrive. Addresses of tensor maps are
    the hardware's own and not looked at.
    """
    body = [part for statement in function.body for part in _elided(statement, function)]
    instructions = [statement for statement in body if isinstance(statement, Instruction)]
    kept = _kept(instructions, shared=False)
    if any(_touches_shared(instruction, _SHARED_READS) for instruction in kept.values()):
        kept = _kept(instructions, shared=True)
    needed = [statement for statement in body if isinstance(statement, Label) or id(statement) in kept]
    return with_body(function, needed)


def _elided(statement: Instruction | Label, function: Function) -> Iterator[Instruction | Label]:
    if isinstance(statement, Label):
        yield statement
    elif (accessed := _global_address(statement)) is not None:
        kind = "cp" if statement.opcode == "cp" else statement.opcode
        yield replace(statement, opcode=POSITION, modifiers=(kind,), operands=(accessed, accessed))
        yield from _zeros(statement, function)
    elif statement.opcode == "mbarrier" and statement.modifiers[0] in ("try_wait", "test_wait"):
        passed = (statement.operands[0], Immediate(0), Immediate(0))
        yield replace(statement, opcode="setp", modifiers=("eq", "s32"), operands=passed)
    else:
        yield statement


def _global_address(instruction: Instruction) -> Address | None:
    """What the instruction reads or writes in global memory, with a register as its base; else None."""
    named = instruction.opcode in ("ld", "ldu", "st", "atom", "red") and "global" in instruction.modifiers
    if not named and not instruction.full_opcode.startswith(_COPIES):
        return None
    place = 1 if has_result(instruction) or instruction.opcode == "cp" else 0
    address = instruction.operands[place]
    return address if isinstance(address, Address) and isinstance(address.base, Register) else None


def _zeros(instruction: Instruction, function: Function) -> Iterator[Instruction]:
    """Zeros in the registers that the instruction would have loaded."""
    if not has_result(instruction):
        return
    result = instruction.operands[0]
    for register in result.elements if isinstance(result, Vector) else (result,):
        if isinstance(register, Register):
            kind = (f"b{function.registers[register.name].lstrip('bfus')}",)
            yield replace(instruction, opcode="mov", modifiers=kind, operands=(register, Immediate(0)))


def _kept(instructions: list[Instruction], *, shared: bool) -> dict[int, Instruction]:
    makers: dict[str, list[Instruction]] = {}
    for instruction in instructions:
        for name in writes(instruction):
            makers.setdefault(name, []).append(instruction)
    waiting = [i for i in instructions if i.opcode in _CONTROL or (shared and _touches_shared(i, _SHARED_WRITES))]
    kept: dict[int, Instruction] = {}
    while waiting:
        instruction = waiting.pop()
        if id(instruction) not in kept:
            kept[id(instruction)] = instruction
            waiting += [maker for name in reads(instruction) for maker in makers.get(name, ())]
    return kept


def _touches_shared(instruction: Instruction, opcodes: frozenset[str]) -> bool:
    spaces = {modifier.partition("::")[0] for modifier in instruction.modifiers}
    return instruction.opcode in opcodes and bool(spaces & {"shared", "local"} or instruction.opcode.endswith("matrix"))
