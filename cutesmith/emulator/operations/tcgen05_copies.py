"""`tcgen05.cp`, with and without decompression, and `tcgen05.shift`: what one thread asks the tensor core to move.

Lanes of `.4x256b`: one row for each warp, 32 lanes apart, as CuTe's layout for it has them (copy_traits_sm100.hpp);
`tcgen05.shift` moves the rows of each warp by one and leaves the last, as the DSL's documentation of the two says.
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.operations.bulk_requests import address_operand, lane_requests
from cutesmith.emulator.operations.tcgen05_access import COLUMN_ADDRESS, TensorAccess, operand_address
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.tensor_cores.descriptors import OperandTile
from cutesmith.emulator.tensor_cores.single_thread_products import CopyIn, ShiftRows
from cutesmith.emulator.tensor_cores.tensor_memory_regions import LANES, Region, lane_and_column
from cutesmith.emulator.tensor_cores.tensor_pipe import TensorPipe

_SHAPES: dict[str, tuple[int, int, tuple[tuple[int, int, int], ...]]] = {
    "128x256b": (128, 32, ((0, 128, 0),)),
    "4x256b": (4, 32, tuple((row, row + 1, 32 * row) for row in range(4))),
    "128x128b": (128, 16, ((0, 128, 0),)),
    "32x128b.warpx4": (32, 16, tuple((0, 32, 32 * part) for part in range(4))),
    "64x128b.warpx2::02_13": (64, 16, ((0, 32, 0), (0, 32, 64), (32, 64, 32), (32, 64, 96))),
    "64x128b.warpx2::01_23": (64, 16, ((0, 32, 0), (0, 32, 32), (32, 64, 64), (32, 64, 96))),
}
"""Rows in shared memory, bytes of a row, and (first row, last, first lane) of each copy of them."""
_EXPANDED = {"b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}
"""Bits of a number in shared memory, 16 of which are padded to 16 bytes there, and take 16 bytes in tensor memory."""
_SHIFTED_COLUMNS, _SHIFT_LANES = 8, 32


def _form(instruction: Instruction) -> tuple[str, int] | None:
    """The shape with its multicast, and bits of a number; None where PTX has no such form."""
    words = [word for word in instruction.modifiers[1:] if not word.startswith("cta_group")]
    bits = _EXPANDED.get(".".join(words[-2:]))
    shape = ".".join(words if bits is None else words[:-2])
    return (shape, bits or 8) if shape in _SHAPES else None


@lane_operation("tcgen05.cp", refuses=lambda instruction: None if _form(instruction) else "no such shape")
def copy(batch: LaneBatch) -> None:
    """`tcgen05.cp.cta_group::N.shape{.multicast}{.b8x16.format} [address], descriptor`, in each block."""
    form = _form(batch.instruction)
    assert form is not None
    (rows, size, copies), bits = _SHAPES[form[0]], form[1]
    target, descriptor = batch.instruction.operands
    for lane in lane_requests(batch):
        access = TensorAccess.of(lane)
        if access is None:
            continue
        address = operand_address(lane, address_operand(batch.instruction, target)) & COLUMN_ADDRESS
        start, column = lane_and_column(address)
        pointers = access.shared(descriptor, OperandTile(rows, size, 8))
        targets = []
        for block in access.pair.blocks:
            regions = []
            for first, last, to in copies:
                region = Region(block, start + to + np.arange(last - first), column, size // 4)
                access.overwrite(region)
                regions.append((region, slice(first, last)))
            targets.append(regions)
        if lane.sound and pointers is not None:
            work = CopyIn(lane.lane, batch.instruction, access.pair.blocks, pointers, targets, bits)
            batch.machine.unit(TensorPipe).submit(work)


@lane_operation("tcgen05.shift")
def shift(batch: LaneBatch) -> None:
    """`tcgen05.shift.cta_group::N.down [address]`: 8 columns of all lanes, in each block."""
    (target,) = batch.instruction.operands
    for lane in lane_requests(batch):
        access = TensorAccess.of(lane)
        if access is None:
            continue
        start, column = lane_and_column(operand_address(lane, address_operand(batch.instruction, target)))
        if start % _SHIFT_LANES:
            lane.refuse(f"rows that begin in lane {start}: a multiple of {_SHIFT_LANES} is needed")
            continue
        if start:
            raise UnsupportedInstruction(batch.instruction, f"from lane {start} on: which lanes move is not published")
        regions = [Region(block, np.arange(LANES), column, _SHIFTED_COLUMNS) for block in access.pair.blocks]
        for region in regions:
            access.shift(region)
        if lane.sound:
            batch.machine.unit(TensorPipe).submit(ShiftRows(lane.lane, batch.instruction, access.pair.blocks, regions))
