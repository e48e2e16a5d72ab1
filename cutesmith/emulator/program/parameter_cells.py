"""Parameters of calls as registers: one cell for each scalar that is stored into a `.param` variable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
    Variable,
    Vector,
    bits_of,
    parts,
)

_MIN_REGISTER_BITS = 16


class Cells:
    """The cells of all parameters of calls in a function; `registers` gets a register for each."""

    def __init__(self, registers: dict[str, str]) -> None:
        self.registers = registers
        self._variables: dict[str, Variable] = {}
        self._cells: dict[str, dict[int, int]] = {}

    def declare(self, variables: Iterable[Variable]) -> None:
        """These `.param` variables belong to calls."""
        for variable in variables:
            self._variables[variable.name] = variable
            self._cells[variable.name] = {}

    def moves(self, instruction: Instruction) -> list[Instruction] | None:
        """What `st.param` or `ld.param` of a call's parameter becomes; None for any other instruction."""
        names = [part.name for operand in instruction.operands for part in parts(operand) if isinstance(part, Symbol)]
        if not any(name in self._variables for name in names):
            return None
        place = 0 if instruction.opcode == "st" else 1
        address = instruction.operands[place] if len(instruction.operands) == 2 else None
        if instruction.opcode not in ("ld", "st") or not isinstance(address, Address):
            raise UnsupportedInstruction(instruction, "the address of a call's parameter is taken")
        assert isinstance(address.base, Symbol)
        other = instruction.operands[1 - place]
        scalars = other.elements if isinstance(other, Vector) else (other,)
        size = bits_of(instruction.modifiers[-1])
        cells = [
            self._cell(address.base.name, address.offset + number * size // 8, size, instruction)
            for number in range(len(scalars))
        ]
        convert = self._store if instruction.opcode == "st" else self._load
        return [convert(instruction, cell, scalar, size) for cell, scalar in zip(cells, scalars)]

    def value(self, operand: Operand, call: Instruction) -> Operand:
        """An argument or result of a call: its register, or a Vector of them where the parameter is an array."""
        if not isinstance(operand, Symbol) or operand.name not in self._variables:
            return operand
        variable = self._variables[operand.name]
        if variable.size == bits_of(variable.type) // 8:
            return self._cell(variable.name, 0, 8 * variable.size, call)
        cells = sorted(self._cells[variable.name].items())
        return Vector(tuple(self._cell(variable.name, offset, bits, call) for offset, bits in cells))

    def transfer(self, source: Operand, target: Operand, call: Instruction) -> list[Instruction]:
        """Moves from one parameter, register or literal to a parameter or register."""
        if isinstance(source, Symbol) and source.name in self._variables:
            if isinstance(target, Symbol):
                cells = sorted(self._cells[source.name].items())
                pairs = [(self._cell(source.name, *cell, call), self._cell(target.name, *cell, call)) for cell in cells]
                return [self._move(call, to, of) for of, to in pairs]
            source = self.value(source, call)
        to = self.value(target, call)
        return [self._move(call, to, source)] if isinstance(to, Register) else []

    def _cell(self, name: str, offset: int, bits: int, instruction: Instruction) -> Register:
        cells = self._cells[name]
        overlaps = any(at < offset + bits // 8 and offset < at + size // 8 for at, size in cells.items())
        if overlaps and cells.get(offset) != bits:
            raise UnsupportedInstruction(instruction, "a call's parameter is read in other parts than it is written")
        cells[offset] = bits
        register = f"{name}.at{offset}"
        self.registers[register] = f"b{max(_MIN_REGISTER_BITS, bits)}"
        return Register(register)

    def _bits(self, operand: Operand, default: int) -> int:
        return bits_of(self.registers[operand.name]) if isinstance(operand, Register) else default

    def _store(self, instruction: Instruction, cell: Register, source: Operand, size: int) -> Instruction:
        width = max(_MIN_REGISTER_BITS, size)
        if self._bits(source, width) == width:
            return self._move(instruction, cell, source)
        return _replaced(instruction, "cvt", (f"u{width}", f"u{self._bits(source, width)}"), (cell, source))

    def _load(self, instruction: Instruction, cell: Register, target: Operand, size: int) -> Instruction:
        width = self._bits(target, size)
        if width == size:
            return self._move(instruction, target, cell)
        sign = "s" if instruction.modifiers[-1].startswith("s") else "u"
        return _replaced(instruction, "cvt", (f"{sign}{width}", f"{sign}{size}"), (target, cell))

    def _move(self, instruction: Instruction, target: Operand, source: Operand) -> Instruction:
        bits = self._bits(target, 0)
        kind = "pred" if bits == 1 else f"b{bits}"
        if isinstance(source, Immediate) and source.float_bits not in (0, bits):
            raise UnsupportedInstruction(instruction, "a float literal of another width than the parameter")
        return _replaced(instruction, "mov", (kind,), (target, source))


def _replaced(
    instruction: Instruction, opcode: str, modifiers: tuple[str, ...], operands: tuple[Operand, ...]
) -> Instruction:
    guard = None if instruction.opcode == "call" else instruction.guard  # a guarded call is branched around
    return replace(instruction, opcode=opcode, modifiers=modifiers, operands=operands, guard=guard)
