"""A PTX function as the machine runs it: pieces of straight code, and the stops between which a lane runs on its own.

A *piece* is a run of instructions that native code executes for one lane without asking anybody. A piece ends in a
branch, or at a *stop*: an instruction that the scheduler carries out for many lanes at once (shuffles, barriers, matrix
operations, asynchronous copies, …). Guards of stops, branches and returns are branches here: no stop is
guarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cutesmith.emulator.ptx.syntax import Function, Guard, Instruction, Module, Register, Variable


@dataclass(frozen=True)
class Jump:
    """To one piece."""

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
class Stop:
    """The lane waits for the scheduler to execute `instruction`, then goes on with piece `resume`."""

    number: int
    instruction: Instruction
    resume: int


@dataclass(frozen=True)
class Exit:
    """The thread ends."""


End: TypeAlias = Jump | Branch | Switch | Stop | Exit


@dataclass(frozen=True)
class Piece:
    """Native instructions (possibly guarded), then the end."""

    number: int
    instructions: tuple[Instruction, ...]
    end: End


@dataclass(frozen=True)
class Region:
    """What one native function runs: all pieces reachable from `entry` without passing a stop.

    `loads`: registers read from the frame at its start. `stores`: by the number of the piece whose end leaves the
    region (at a stop, or at a back edge when the fuel is gone) the registers to write to the frame there.
    `back_edges`: (from piece, to piece) of loops inside; a lane out of fuel leaves there and resumes at the target.
    """

    entry: int
    pieces: tuple[int, ...]
    loads: frozenset[str]
    stores: dict[int, frozenset[str]]
    back_edges: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Program:
    """An entry function, ready for native code: piece 0 is where threads start.

    `slots`: the row of the frame (64 bits a lane; 128-bit registers take two rows) of every register that is live at an
    entry or is an operand of a stop; registers that are never in the frame together share a row. `widths`: bits of
    every register, 1 for predicates. `entries`: pieces where a lane may start or resume. `live`: registers that are
    live at the start of each piece. `shared_symbols`: shared address (SHARED_BASE included) of each static shared
    variable; `dynamic_symbols` name `.extern .shared` ones, which start at the address after them, aligned.
    `local_symbols`: byte offset in the thread's local memory. `parameters`: byte offset in the parameter buffer.
    `module_variables`: `.global` and `.const` variables to allocate.
    """

    module: Module
    function: Function
    pieces: tuple[Piece, ...]
    stops: tuple[Stop, ...]
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
