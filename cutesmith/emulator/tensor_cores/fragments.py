"""Matrix fragments: which elements of a matrix the registers of a warp hold, and reading and writing those registers.

Layouts: PTX ISA, "Matrix multiply-accumulate operation using mma instruction". All shapes follow one rule: a lane is
`group = lane // 4` and `quad = lane % 4`. Register r of A holds row `group + 8 (r % 2)` (m = 16) and `per` neighbouring
columns from `4 per (r // 2) + per quad`; register r of B the same of column `group`, from row `4 per r + per quad`;
C and D hold two neighbouring columns from `2 quad` of rows `group` and `group + 8`.
"""

from __future__ import annotations

import functools

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.lanes import Warps
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.ptx.syntax import Operand, Register, Vector

N = 8
"""Columns of B, C and D in every shape."""


def a_layout(m: int, k: int, bits: int) -> tuple[Array, Array]:
    """Row and column of every element of A, each of shape (registers, elements a register, 32)."""
    registers, per = _registers(m * k, bits)
    r, j, lane = np.ogrid[:registers, :per, :WARP]
    rows = lane // 4 + (8 * (r % 2) if m == 16 else 0)
    blocks = r // 2 if m == 16 else r
    return _full(rows, 4 * per * blocks + per * (lane % 4) + j)


def b_layout(k: int, bits: int) -> tuple[Array, Array]:
    """Row (along k) and column of every element of B, each of shape (registers, elements a register, 32)."""
    registers, per = _registers(k * N, bits)
    r, j, lane = np.ogrid[:registers, :per, :WARP]
    return _full(4 * per * r + per * (lane % 4) + j, lane // 4 + 0 * r)


def c_layout(m: int, bits: int) -> tuple[Array, Array]:
    """Row and column of every element of C and D, each of shape (registers, elements a register, 32)."""
    registers, per = _registers(m * N, bits)
    r, j, lane = np.ogrid[:registers, :per, :WARP]
    element = per * r + j
    return _full(lane // 4 + 8 * (element // 2), 2 * (lane % 4) + element % 2)


def _full(rows: Array, columns: Array) -> tuple[Array, Array]:
    first, second = np.broadcast_arrays(rows, columns)
    return first, second


def _registers(elements: int, bits: int) -> tuple[int, int]:
    """Registers a lane and elements a register; f64 takes 64-bit registers."""
    per = max(1, 32 // bits)
    return elements // (WARP * per), per


@functools.cache
def fragment_order(matrix: str, rows: int, columns: int, bits: int) -> Array:
    """For every element of the matrix, row-major, where it is in (registers, per, 32) laid flat."""
    if matrix == "a":
        row, column = a_layout(rows, columns, bits)
    elif matrix == "b":
        row, column = b_layout(rows, bits)
    else:
        row, column = c_layout(rows, bits)
    order = np.empty(rows * columns, np.int64)
    order[(row * columns + column).ravel()] = np.arange(rows * columns)
    return order


def unpack(registers: Array, bits: int) -> Array:
    """uint64 elements (w, registers, per, 32) of `bits` bits from registers (w, registers, 32), the lowest first."""
    per = max(1, 32 // bits)
    if per == 1:
        return registers[:, :, None]
    shifts = (np.arange(per, dtype=np.uint64) * np.uint64(bits))[:, None]
    elements: Array = (registers[:, :, None] >> shifts) & np.uint64((1 << bits) - 1)
    return elements


def pack(elements: Array, bits: int) -> Array:
    """uint64 registers (w, registers, 32) from elements (w, registers, per, 32): the inverse of `unpack`."""
    registers = elements[:, :, 0].astype(np.uint64)
    for index in range(1, elements.shape[2]):
        registers |= elements[:, :, index].astype(np.uint64) << np.uint64(bits * index)
    return registers


def whole_warps(warps: Warps) -> Warps:
    """The warps all of whose 32 lanes are here, as `.aligned` asks; the others are reported and left out."""
    whole = warps.active.all(axis=1)
    if whole.all():
        return warps
    broken = warps.members[~whole][warps.active[~whole]]
    message = f"`{warps.instruction.full_opcode}` must be executed by all 32 threads of a warp together"
    warps.wave.report(FaultKind.INVALID_OPERAND, message, broken, warps.instruction)
    return Warps(warps.machine, warps.instruction, warps.members[whole], warps.active[whole])


def registers_of(operand: Operand) -> tuple[Operand, ...]:
    """The parts of a vector operand; a single register is a vector of one."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


def read_registers(warps: Warps, operand: Operand, bits: int = 32) -> Array:
    """uint64 (w, registers, 32) of a vector operand of whole warps, of registers or constants of `bits` bits."""
    parts, lanes = registers_of(operand), warps.members
    rows = rows_of(warps, parts)
    if rows is not None:
        held: Array = warps.wave.frame[rows[:, None], lanes[:, None]]
        return held
    dtype, flat = np.dtype(f"u{bits // 8}"), lanes.ravel()
    columns = [warps.wave.read(part, flat, dtype).reshape(lanes.shape) for part in parts]
    return np.stack(columns, axis=1).astype(np.uint64)


def write_registers(warps: Warps, operand: Operand, values: Array) -> None:
    """Set a vector operand of whole warps from uint64 (w, registers, 32)."""
    parts = registers_of(operand)
    rows = rows_of(warps, parts)
    if rows is not None:
        warps.wave.frame[rows[:, None], warps.members[:, None]] = values
        return
    for index, part in enumerate(parts):
        warps.wave.write(part, warps.members.ravel(), values[:, index].ravel())


def rows_of(warps: Warps, parts: tuple[Operand, ...]) -> Array | None:
    """int64 (registers,): the rows of the frame that have these registers; None where a part is not a register."""
    names = [part.name for part in parts if isinstance(part, Register)]
    if len(names) != len(parts):
        return None
    return np.array([warps.wave.program.slots[name] for name in names], np.int64)
