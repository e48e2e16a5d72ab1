"""A few integer instructions executed one at a time: a body as written, and a program by its basic blocks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from cutesmith.emulator.program.basic_blocks import (
    BasicBlock,
    Branch,
    Exit,
    Jump,
    Program,
    Region,
    SuspensionPoint,
    Switch,
)
from cutesmith.emulator.ptx.syntax import Function, Guard, Immediate, Instruction, Label, LabelReference, Register

MASK = 0xFFFFFFFF
Event = tuple[str, int]

_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b & MASK,
    "xor": lambda a, b: a ^ b,
    "and": lambda a, b: a & b,
    "setp": lambda a, b: int(a < b),
}


@dataclass
class Registers:
    """Values by name; reading what was neither loaded nor written is a KeyError."""

    values: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def read(self, operand: object) -> int:
        if isinstance(operand, Immediate):
            return operand.value & MASK
        assert isinstance(operand, Register)
        return self.values[operand.name]

    def holds(self, guard: Guard | None) -> bool:
        return guard is None or bool(self.values[guard.register]) != guard.negated

    def execute(self, instruction: Instruction) -> None:
        """A native instruction; stores are events."""
        if not self.holds(instruction.guard):
            return
        if instruction.opcode == "st":
            self.events.append(("st", self.read(instruction.operands[1])))
            return
        target, *sources = instruction.operands
        values = [self.read(source) for source in sources]
        assert isinstance(target, Register)
        self.values[target.name] = (
            values[0] if instruction.opcode == "mov" else _OPERATIONS[instruction.opcode](*values)
        )

    def point(self, instruction: Instruction) -> None:
        """`shfl d, a, …`: an event; d becomes a number made from a."""
        target, source = instruction.operands[:2]
        assert isinstance(target, Register)
        self.events.append(("shfl", self.read(source)))
        self.values[target.name] = 5 * self.read(source) + instruction.number & MASK


def run_as_written(function: Function, steps: int) -> tuple[list[Event], bool]:
    """Events of the body, and whether it ended within that many instructions."""
    registers, place = Registers(), 0
    labels = {item.name: place for place, item in enumerate(function.body) if isinstance(item, Label)}
    for _ in range(steps):
        item = function.body[place]
        place += 1
        if isinstance(item, Label):
            continue
        if item.opcode not in ("ret", "bra", "brx", "shfl"):
            registers.execute(item)
        elif not registers.holds(item.guard):
            continue
        elif item.opcode == "ret":
            return registers.events, True
        elif item.opcode == "shfl":
            registers.point(item)
        else:
            place = labels[_target(function, item, registers)]
    return registers.events, False


def _target(function: Function, jump: Instruction, registers: Registers) -> str:
    last = jump.operands[-1]
    assert isinstance(last, LabelReference)
    if jump.opcode == "bra":
        return last.name
    return function.branch_targets[last.name][registers.read(jump.operands[0])]


class BasicBlocks:
    """Runs a program region by region: only the rows of the frame survive from one to the next."""

    def __init__(self, program: Program, chance: random.Random) -> None:
        self.program, self._chance = program, chance
        self.frame = [0] * program.slot_count
        self.events: list[Event] = []

    def run(self, events: int, steps: int = 601) -> bool:
        """Run until that many events have happened; whether the thread ended."""
        entry: int | None = 0
        for _ in range(steps):
            if entry is None or len(self.events) > events:
                break
            entry = self._region(self.program.regions[entry])
        return entry is None

    def _region(self, region: Region) -> int | None:
        loaded = {name: self.frame[self.program.slots[name]] for name in region.loads}
        registers = Registers(loaded, self.events)
        number = region.entry
        for _ in range(1000):
            basic_block = self.program.basic_blocks[number]
            assert number in region.basic_blocks
            for instruction in basic_block.instructions:
                registers.execute(instruction)
            if isinstance(basic_block.end, Exit):
                return None
            if isinstance(basic_block.end, SuspensionPoint):
                return self._suspend(basic_block.end, registers, region.stores[number])
            following = _next(basic_block, registers)
            if (number, following) in region.back_edges and self._chance.random() < 0.5:
                self._store(registers, region.stores[number])
                return following
            number = following
        return number

    def _store(self, registers: Registers, names: frozenset[str]) -> None:
        for name in names:
            self.frame[self.program.slots[name]] = registers.values[name]

    def _suspend(self, point: SuspensionPoint, registers: Registers, names: frozenset[str]) -> int:
        self._store(registers, names)
        assert self.program.suspension_points[point.number] == point and point.instruction.guard is None
        operands = [operand.name for operand in point.instruction.operands if isinstance(operand, Register)]
        rows = Registers({name: self.frame[self.program.slots[name]] for name in operands}, self.events)
        rows.point(point.instruction)
        self.frame[self.program.slots[operands[0]]] = rows.values[operands[0]]
        return point.resume


def _next(basic_block: BasicBlock, registers: Registers) -> int:
    end = basic_block.end
    if isinstance(end, Jump):
        return end.target
    if isinstance(end, Branch):
        return end.taken if registers.holds(end.guard) else end.otherwise
    assert isinstance(end, Switch)
    return end.targets[registers.values[end.register.name]]
