"""Conditions of a kernel that a launch decides by its sizes: which hold, found without executing the kernel.

A kernel that takes another path from a certain size on is one compilation for host code. Here the predicates that are
made of parameters and constants alone, or of the place of a thread in the grid and constants, are computed for a launch
of any size. Nothing of it reads memory. What a loop carries, or a guard may leave as it was, is left aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cutesmith.devices import SmVersion
from cutesmith.emulator.errors import EmulationError
from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.instructions.roles import reads, writes
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.launch import LaunchRun
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.machine.scheduler import NativeCode
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.native.jit import compile_program
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.program.calls import without_calls
from cutesmith.emulator.ptx.syntax import (
    Function,
    Immediate,
    Instruction,
    Module,
    Register,
    SpecialRegister,
    parts,
    with_body,
)
from cutesmith.emulator.sanitizer.access import access_ir
from cutesmith.emulator.state.allocations import Allocations
from cutesmith.emulator.state.geometry import some_clusters
from cutesmith.recording.cubin import CubinKernel
from cutesmith.recording.sessions import Launch

CONDITION = "condition"
"""The opcode of a predicate that is looked at: `condition 17, %p1, %r1, %r2` is the one of instruction 17."""
_KINDS = {"s": "int", "u": "uint", "b": "uint", "f": "float"}
_TYPES = {f"{kind}{bits}": np.dtype(f"{sort}{bits}") for kind, sort in _KINDS.items() for bits in (16, 32, 64)}
_PURE = frozenset(
    "mov add sub mul mad fma div rem and or xor not shl shr setp selp cvt min max neg abs shf lop3 popc clz bfe".split()
)
_SIZE, _PLACE, _THREAD = "size", "place", "thread"
_MANY_LANES = 1 << 16  # of a launch: of one with more, some blocks are looked at


@dataclass(frozen=True)
class Outcome:
    """A predicate, by the number of its instruction in the kernel without calls, and a value that it has.

    `compared`: two numbers whose comparison came out so.
    """

    number: int
    holds: bool
    compared: tuple[float, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Conditions:
    """The conditions of one kernel, as a program that only computes them; `compare`: the instruction of each."""

    program: Program
    native: NativeCode
    placed: bool  # whether one of them depends on the block
    compare: dict[int, Instruction] = field(default_factory=dict)

    @classmethod
    def of(cls, module: Module, kernel: str) -> Conditions | None:
        """Those of an entry function; None where no size decides anything."""
        function = without_calls(module, module.functions[kernel])
        found = _Deciding(function)
        if not found.predicates:
            return None
        program = build_program(replace(module, functions={kernel: found.straight()}), kernel)
        return cls(program, compile_program(program, access_ir()), found.placed, found.predicates)

    def outcomes(self, launch: Launch, kernel: CubinKernel, sm: SmVersion) -> frozenset[Outcome]:
        """The values that the conditions have in a launch, in some of its blocks where it has many."""
        seen = _Seen(self.program, Allocations(), sanitize=False)
        seen.types = {number: _TYPES.get(compare.modifiers[-1]) for number, compare in self.compare.items()}
        run = LaunchRun(
            program=self.program,
            native=self.native,
            launch=launch,
            kernel=kernel,
            sm=sm,
            memory=seen,
            settings=Settings(sanitize=False),
        )
        lanes = run.geometry.clusters * run.geometry.cluster_blocks * run.geometry.threads
        if not self.placed:
            run.chosen = np.zeros(1, np.int64)
        elif lanes > _MANY_LANES:
            run.chosen = some_clusters(run.geometry)
        try:
            run.run()
        except EmulationError:  # the launch itself is judged elsewhere
            return frozenset()
        return frozenset(seen.outcomes)


class _Deciding:
    """Which predicates of a function sizes decide, and what these are made of."""

    def __init__(self, function: Function) -> None:
        self._function = function
        instructions = [statement for statement in function.body if isinstance(statement, Instruction)]
        self._definitions = Counter(name for instruction in instructions for name in writes(instruction))
        self._made_of: dict[str, frozenset[str]] = {}
        self._makers: dict[str, Instruction] = {}
        self.predicates: dict[int, Instruction] = {}
        self.placed = False
        for number, instruction in enumerate(instructions):
            self._add(number, instruction)

    def _add(self, number: int, instruction: Instruction) -> None:
        made_of = self._kinds(instruction)
        names = list(writes(instruction))
        if made_of is None or any(self._definitions[name] > 1 for name in names):
            return
        for name in names:
            self._made_of[name], self._makers[name] = made_of, instruction
        by_size = made_of == {_SIZE}
        by_place = _PLACE in made_of and _SIZE not in made_of
        if instruction.opcode == "setp" and (by_size or by_place):
            self.predicates[number] = instruction
            self.placed |= by_place

    def _kinds(self, instruction: Instruction) -> frozenset[str] | None:
        """What the instruction computes with; None if with anything but sizes, places and constants."""
        if instruction.guard is not None:
            return None
        if instruction.opcode == "ld" and "param" in instruction.modifiers:
            return frozenset({_SIZE})
        if instruction.opcode not in _PURE or "cc" in instruction.modifiers:
            return None
        sources = [part for operand in instruction.operands[1:] for part in parts(operand)]
        if any(not isinstance(source, (Register, SpecialRegister, Immediate)) for source in sources):
            return None
        kinds = [_kind_of(source, self._made_of) for source in sources]
        return None if None in kinds else frozenset().union(*(kind for kind in kinds if kind is not None))

    def straight(self) -> Function:
        """A function without branches that computes the predicates and looks at each."""
        needed: dict[int, None] = {}
        waiting = list(self.predicates.values())
        while waiting:
            instruction = waiting.pop()
            if id(instruction) not in needed:
                needed[id(instruction)] = None
                waiting += [self._makers[name] for name in reads(instruction)]
        return with_body(self._function, self._body(needed))

    def _body(self, needed: dict[int, None]) -> Iterator[Instruction]:
        statements = (statement for statement in self._function.body if isinstance(statement, Instruction))
        for number, statement in enumerate(statements):
            if id(statement) in needed:
                yield statement
            if number in self.predicates:
                target = next(writes(statement))
                operands = (Immediate(number), Register(target), *statement.operands[1:3])
                yield replace(statement, opcode=CONDITION, modifiers=(), operands=operands)


def _kind_of(source: object, made_of: dict[str, frozenset[str]]) -> frozenset[str] | None:
    if isinstance(source, Register):
        return made_of.get(source.name)
    if not isinstance(source, SpecialRegister):
        return frozenset()
    word = source.name.lstrip("%").partition(".")[0]
    if word in ("ntid", "nclusterid", "cluster_nctaid", "warpsz"):
        return frozenset()
    known = {"nctaid": _SIZE, "ctaid": _PLACE, "clusterid": _PLACE, "tid": _THREAD, "laneid": _THREAD}
    return frozenset({known[word]}) if word in known else None


class _Seen(Memory):
    """The memory of a run that touches none; `outcomes`: the values that were looked at."""

    def __init__(self, program: Program, allocations: Allocations, *, sanitize: bool) -> None:
        super().__init__(program, allocations, sanitize=sanitize)
        self.outcomes: set[Outcome] = set()
        self.types: dict[int, np.dtype[Any] | None] = {}


@lane_operation(CONDITION)
def condition(batch: LaneBatch) -> None:
    """`condition number, predicate, left, right`: a predicate that is written down, with what it compares."""
    number, predicate, *sides = batch.instruction.operands
    assert isinstance(number, Immediate) and isinstance(batch.memory, _Seen)
    values, first = np.unique(batch.read(predicate, np.bool_), return_index=True)
    kind = batch.memory.types.get(number.value)
    numbers = [batch.read(side, kind) for side in sides] if kind is not None else []
    for value, at in zip(values, first):
        batch.memory.outcomes.add(Outcome(number.value, bool(value), tuple(side[at].item() for side in numbers)))
