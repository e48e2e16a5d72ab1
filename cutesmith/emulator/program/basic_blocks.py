"""A PTX function as the machine runs it: basic blocks and suspension points.

A *basic block* is a run of instructions that native code executes for one lane on its own. It ends in a branch or at a
*suspension point*: an instruction that the scheduler executes for many lanes at once (shuffles, barriers, matrix
operations, asynchronous copies, …). Guards of suspension points and returns become branches: neither is guarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from cutesmith.emulator.ptx.syntax import (
    Function,
    Guard,
    Instruction,
    Module,
    Register,
    SpecialRegister,
    Variable,
    parts,
)


@dataclass(frozen=True)
class Jump:
    """To one basic block."""

    target: int


@dataclass(frozen=True)
class Branch:
    """To `taken` where the guard holds, else to `otherwise`."""

    guard: Guard
    taken: int
    otherwise: int


@dataclass(frozen=True)
class Switch:
    """`brx.idx`: to `targets[register]`."""

    register: Register
    targets: tuple[int, ...]


@dataclass(frozen=True)
class SuspensionPoint:
    """The lane waits for the scheduler to execute `instruction`, then goes on with basic block `resume`."""

    number: int
    instruction: Instruction
    resume: int


@dataclass(frozen=True)
class Exit:
    """The thread ends."""


End: TypeAlias = Jump | Branch | Switch | SuspensionPoint | Exit


@dataclass(frozen=True)
class BasicBlock:
    """Native instructions (possibly guarded), then the end."""

    number: int
    instructions: tuple[Instruction, ...]
    end: End


@dataclass(frozen=True)
class Region:
    """What one native function runs: all basic blocks reachable from `entry` without passing a suspension point.

    `loads`: registers read from the frame at its start. `stores`: by the number of the basic block whose end leaves the
    region (at a suspension point, or at a back edge when the fuel is gone) the registers to write to the frame there.
    `back_edges`: (from, to) of loops inside; a lane out of fuel leaves there and resumes at the target.
    """

    entry: int
    basic_blocks: tuple[int, ...]
    loads: frozenset[str]
    stores: dict[int, frozenset[str]]
    back_edges: frozenset[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Program:
    """An entry function, ready for native code: basic block 0 is where threads start.

    `slots`: the row of the frame (64 bits a lane; 128-bit registers take two rows) of every register that is live at an
    entry or is an operand of a suspension point; registers that are never in the frame together share a row. `widths`:
    bits of every register, 1 for predicates. `entries`: basic blocks where a lane may start or resume. `live`:
    registers that are live at the start of each basic block. `shared_symbols`: shared address (SHARED_BASE included) of
    each static shared variable; `dynamic_symbols` name `.extern .shared` ones, which start at the address after them,
    aligned. `local_symbols`: byte offset in the thread's local memory. `parameters`: byte offset in the parameter
    buffer. `module_variables`: `.global` and `.const` variables to allocate.
    """

    module: Module
    function: Function
    basic_blocks: tuple[BasicBlock, ...]
    suspension_points: tuple[SuspensionPoint, ...]
    entries: tuple[int, ...]
    regions: dict[int, Region]
    live: dict[int, frozenset[str]]
    widths: dict[str, int]
    slots: dict[str, int]
    slot_count: int
    instructions: tuple[Instruction, ...]
    shared_symbols: dict[str, int]
    static_shared: int
    dynamic_symbols: frozenset[str]
    local_symbols: dict[str, int]
    local_bytes: int
    parameters: dict[str, int]
    parameter_bytes: int
    module_variables: tuple[Variable, ...]

    @cached_property
    def special_registers(self) -> frozenset[str]:
        """Names of the special registers that it reads; looked for once, as a program is launched many times."""
        named = (part for each in self.instructions for operand in each.operands for part in parts(operand))
        return frozenset(part.name for part in named if isinstance(part, SpecialRegister))
