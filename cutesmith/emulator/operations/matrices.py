"""8 x 8 matrices of 16-bit elements between shared memory and the registers of a warp: `ldmatrix stmatrix movmatrix`.

Lanes 8 i to 8 i + 7 address the rows of matrix i, 16 bytes each. Lane l holds elements 2 (l % 4) and 2 (l % 4) + 1 of
row l // 4, matrix i in register i; with `.trans` those of the transposed matrix. PTX ISA, "Warp-level matrix load
instruction: ldmatrix" and its neighbours.

Matrices of bytes (sm_100a, sm_120a) are those of the ISA and of CuTe's atoms (copy_traits_sm100.hpp), not recorded on
hardware. Of 16 x 16 bytes, transposed, lane l holds columns l // 4 and l // 4 + 8 of rows 4 (l % 4) to 4 (l % 4) + 3,
two rows a register. Of 8 x 16 packed elements it holds four, each in a byte of its own with zeros above.
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import Warps
from cutesmith.emulator.machine.suspensions import warp_operation
from cutesmith.emulator.program.abi import WARP, Array, Space
from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand
from cutesmith.emulator.tensor_cores.fragments import read_registers, registers_of, whole_warps, write_registers

ROWS = 8
ROW_BYTES = 16
_PACKED = {"b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}  # bits of an element
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_SPACES = {(): Space.GENERIC, ("shared",): Space.SHARED, ("shared::cta",): Space.SHARED}


@warp_operation("ldmatrix")
def load_matrices(warps: Warps) -> None:
    """`ldmatrix.sync.aligned.m8n8.x1|x2|x4{.trans}{.shared}.b16 {d, …}, [row]`."""
    destination, address = warps.instruction.operands
    if warps.instruction.modifiers[2] != "m8n8":
        return _load_bytes(warps, destination, address)
    count, transposed, space = _form(warps.instruction)
    warps = whole_warps(warps)
    lanes, rows = _rows(warps, address, count)
    data = warps.memory.load(lanes, space, rows, ROW_BYTES, warps.instruction.number)
    elements = data.view(np.uint16).reshape(-1, count, ROWS, ROWS)
    write_registers(warps, destination, _spread(elements, transposed))


@warp_operation("stmatrix")
def store_matrices(warps: Warps) -> None:
    """`stmatrix.sync.aligned.m8n8.x1|x2|x4{.trans}{.shared}.b16 [row], {a, …}`."""
    address, source = warps.instruction.operands
    if warps.instruction.modifiers[2] == "m16n8":
        return _store_bytes(warps, address, source)
    count, transposed, space = _form(warps.instruction)
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


def _load_bytes(warps: Warps, destination: Operand, address: Operand) -> None:
    """`ldmatrix.sync.aligned.m16n16.x1|x2.trans{.shared}.b8`, `….m8n16.x1|x2|x4{.shared}.b8x16.b6x16_p32|b4x16_p64`,
    and both together."""
    instruction = warps.instruction
    shape, number, *rest = instruction.modifiers[2:]
    transposed, height = rest[:1] == ["trans"], 16 if shape == "m16n16" else 8
    *space, formats = (
        (rest[transposed:-1], rest[-1]) if rest[-1] == "b8" else (rest[transposed:-2], ".".join(rest[-2:]))
    )
    count, registers = _COUNTS.get(number, 0), len(registers_of(destination))
    known = formats in _PACKED or (formats == "b8" and transposed)
    if not known or tuple(space[0]) not in _SPACES or transposed != (height == 16) or registers != count * height // 8:
        raise UnsupportedInstruction(instruction, "no such form")
    warps = whole_warps(warps)
    lanes, rows = _rows(warps, address, count * height // ROWS)
    data = warps.memory.load(lanes, _SPACES[tuple(space[0])], rows, ROW_BYTES, instruction.number)
    held = _unpacked(data, _PACKED[formats]) if formats in _PACKED else data
    held = held.reshape(-1, count, height, ROW_BYTES)
    if (
        transposed
    ):  # (w, count, quad, register, row of two, column half, column) to (…, register, column, quad, half, row)
        parts = held.reshape(-1, count, 4, 2, 2, 2, 8).transpose(0, 1, 3, 6, 2, 5, 4)
    else:
        parts = held
    words = np.ascontiguousarray(parts).reshape(-1, 4).view(np.uint32).reshape(len(warps.members), registers, WARP)
    write_registers(warps, destination, words.astype(np.uint64))


def _unpacked(data: Array, bits: int) -> Array:
    """uint8 (n, 16): elements of so many bits, packed at the beginning of rows of 16 bytes, in bytes of their own."""
    ones = np.unpackbits(data, axis=1, bitorder="little")[:, : 16 * bits].reshape(-1, 16, bits)
    return np.packbits(ones, axis=2, bitorder="little").reshape(-1, 16)


def _store_bytes(warps: Warps, address: Operand, source: Operand) -> None:
    """`stmatrix.sync.aligned.m16n8.x1|x2|x4.trans{.shared}.b8`: 8 rows of 16 bytes for each register of a lane."""
    _, number, *rest = warps.instruction.modifiers[2:]
    count, space = _COUNTS.get(number, 0), tuple(rest[1:-1])
    if rest[0] != "trans" or rest[-1] != "b8" or space not in _SPACES or len(registers_of(source)) != count:
        raise UnsupportedInstruction(warps.instruction, "no such form")
    warps = whole_warps(warps)
    lanes, rows = _rows(warps, address, count)
    held = read_registers(warps, source).astype(np.uint32).view(np.uint8)
    parts = held.reshape(-1, count, 8, 4, 2, 2).transpose(0, 1, 3, 5, 4, 2)  # column, quad, half, row
    data = np.ascontiguousarray(parts).reshape(-1, ROW_BYTES)
    warps.memory.store(lanes, _SPACES[space], rows, data, warps.instruction.number)


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
