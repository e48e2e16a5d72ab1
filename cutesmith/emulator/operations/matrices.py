"""8 x 8 matrices of 16-bit elements between shared memory and the registers of a warp: `ldmatrix stmatrix movmatrix`.

Lanes 8 i to 8 i + 7 address the rows of matrix i, 16 bytes each. Lane l holds elements 2 (l % 4) and 2 (l % 4) + 1 of
row l // 4, matrix i in register i; with `.trans` those of the transposed matrix. PTX ISA, "Warp-level matrix load
instruction: ldmatrix" and its neighbours.
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import Warps
from cutesmith.emulator.machine.suspensions import warp_operation
from cutesmith.emulator.program.abi import WARP, Array, Space
from cutesmith.emulator.ptx.syntax import Address, Instruction
from cutesmith.emulator.tensor_cores.fragments import read_registers, registers_of, whole_warps, write_registers

ROWS = 8
ROW_BYTES = 16
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_SPACES = {(): Space.GENERIC, ("shared",): Space.SHARED, ("shared::cta",): Space.SHARED}


@warp_operation("ldmatrix")
def load_matrices(warps: Warps) -> None:
    """`ldmatrix.sync.aligned.m8n8.x1|x2|x4{.trans}{.shared}.b16 {d, …}, [row]`."""
    count, transposed, space = _form(warps.instruction)
    destination, address = warps.instruction.operands
    warps = whole_warps(warps)
    lanes, rows = _rows(warps, address, count)
    data = warps.memory.load(lanes, space, rows, ROW_BYTES, warps.instruction.number)
    elements = data.view(np.uint16).reshape(-1, count, ROWS, ROWS)
    write_registers(warps, destination, _spread(elements, transposed))


@warp_operation("stmatrix")
def store_matrices(warps: Warps) -> None:
    """`stmatrix.sync.aligned.m8n8.x1|x2|x4{.trans}{.shared}.b16 [row], {a, …}`."""
    count, transposed, space = _form(warps.instruction)
    address, source = warps.instruction.operands
    warps = whole_warps(warps)
    lanes, rows = _rows(warps, address, count)
    elements = _gather(read_registers(warps, source), transposed)
    data = np.ascontiguousarray(elements).view(np.uint8).reshape(-1, ROW_BYTES)
    warps.memory.store(lanes, space, rows, data, warps.instruction.number)


@warp_operation("movmatrix")
def transpose_matrix(warps: Warps) -> None:
    """`movmatrix.sync.aligned.m8n8.trans.b16 d, a`."""
    if warps.instruction.modifiers != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise UnsupportedInstruction(warps.instruction, "no such form")
    warps = whole_warps(warps)
    destination, source = warps.instruction.operands
    write_registers(warps, destination, _spread(_gather(read_registers(warps, source), False), True))


def _form(instruction: Instruction) -> tuple[int, bool, Space]:
    """Matrices, whether they are transposed, and the state space; raises UnsupportedInstruction by name."""
    modifiers = instruction.modifiers
    if modifiers[:3] != ("sync", "aligned", "m8n8") or modifiers[-1] != "b16":
        raise UnsupportedInstruction(instruction, "matrices of 8 x 8 16-bit elements only")
    transposed = modifiers[4:5] == ("trans",)
    rest = modifiers[4 + transposed : -1]
    vector = instruction.operands[0 if instruction.opcode == "ldmatrix" else 1]
    count = _COUNTS.get(modifiers[3])
    if count is None or rest not in _SPACES or len(registers_of(vector)) != count:
        raise UnsupportedInstruction(instruction, "no such form")
    return count, transposed, _SPACES[rest]


def _rows(warps: Warps, address: object, count: int) -> tuple[Array, Array]:
    """The lanes that address rows, in the order of rows, and their addresses; both (w x 8 count,)."""
    assert isinstance(address, Address)
    addresses = warps.address(address)[:, : ROWS * count]
    return warps.members[:, : ROWS * count].ravel(), np.ascontiguousarray(addresses).ravel()


def _spread(elements: Array, transposed: bool) -> Array:
    """Registers (w, count, 32) from uint16 elements (w, count, 8, 8)."""
    if transposed:
        elements = elements.swapaxes(2, 3)
    pairs = np.ascontiguousarray(elements).view(np.uint32)  # (w, count, 8, 4)
    return pairs.reshape(*pairs.shape[:2], WARP).astype(np.uint64)


def _gather(registers: Array, transposed: bool) -> Array:
    """uint16 elements (w, count, 8, 8) from registers (w, count, 32)."""
    elements = registers.astype(np.uint32).view(np.uint16).reshape(*registers.shape[:2], ROWS, ROWS)
    return elements.swapaxes(2, 3) if transposed else elements
