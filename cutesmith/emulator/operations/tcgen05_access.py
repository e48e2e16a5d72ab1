"""What the requests of `tcgen05` share: their operands, the blocks that take part, and accesses, which are checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.operations.bulk_requests import LaneRequest
from cutesmith.emulator.program.abi import SHARED_RANK_SHIFT, Access, Array, Space
from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand
from cutesmith.emulator.sanitizer.actors import Asked, Request
from cutesmith.emulator.tensor_cores.descriptors import (
    CHUNK,
    TCGEN05,
    DescriptorError,
    Major,
    MatrixDescriptor,
    OperandTile,
)
from cutesmith.emulator.tensor_cores.tensor_memory import TensorMemory
from cutesmith.emulator.tensor_cores.tensor_memory_order import Use
from cutesmith.emulator.tensor_cores.tensor_memory_regions import Region
from cutesmith.emulator.tensor_cores.tensor_pipe import TensorPipe

_CHUNKS_OF_96 = 3  # of e2m1
COLUMN_ADDRESS = 0x3FFF_FFFF  # the upper bits name a byte, which the instruction descriptor says too


def operand_value(lane: LaneRequest, operand: Operand, dtype: type[np.generic]) -> np.generic:
    """An operand as the lane has it."""
    value: np.generic = lane.batch.wave.read(operand, lane.batch.lanes[[lane.index]], dtype)[0]
    return value


def operand_address(lane: LaneRequest, operand: Address) -> int:
    """An address in brackets as the lane has it."""
    return int(lane.batch.wave.address(operand, lane.batch.lanes[[lane.index]])[0])


@dataclass(frozen=True)
class BlockPair:
    """The blocks of the wave that take part, in the order of their halves, their ranks, and which one asks."""

    blocks: tuple[int, ...]
    ranks: tuple[int, ...]
    own: int


def group_of(instruction: Instruction) -> int:
    """N of `.cta_group::N`."""
    return 2 if "cta_group::2" in instruction.modifiers else 1


def _blocks(lane: LaneRequest, group: int) -> BlockPair | None:
    """The asking block, or the pair that it belongs to; None and a finding where it has no peer."""
    wave = lane.batch.wave
    own, first = int(wave.block_of_lane[lane.lane]), int(wave.cluster_of_lane[lane.lane])
    rank = own - first
    if group == 1:
        return BlockPair((own,), (rank,), own)
    even = rank & ~1
    if even + 1 >= wave.cluster_blocks:
        lane.refuse(f"cta_group::2 in a cluster of {wave.cluster_blocks}: a pair of blocks is needed")
        return None
    return BlockPair((first + even, first + even + 1), (even, even + 1), own)


@dataclass(frozen=True)
class TensorAccess:
    """The accesses of one request to the tensor core, checked."""

    lane: LaneRequest
    memory: TensorMemory
    request: Request
    known: Array | None
    pair: BlockPair

    @classmethod
    def of(cls, lane: LaneRequest) -> TensorAccess | None:
        """A lane asks for something; None and a finding where its block has no peer."""
        batch = lane.batch
        pair = _blocks(lane, group_of(batch.instruction))
        if pair is None:
            return None
        memory, pipe = batch.machine.unit(TensorMemory), batch.machine.unit(TensorPipe)
        memory.use_group(pair.own, lane.lane, batch.instruction)
        known = batch.memory.known(np.array([lane.lane]))
        return cls(lane, memory, pipe.request(lane.lane, batch.instruction), known, pair)

    def shared(self, operand: Operand, tile: OperandTile) -> Array | None:
        """uint64 (blocks, *chunks): host addresses of an operand's chunks in each block; None where refused."""
        word, instruction = int(operand_value(self.lane, operand, np.uint64)), self.lane.batch.instruction
        try:
            descriptor = MatrixDescriptor.decode(word, TCGEN05)
        except DescriptorError as error:
            self.lane.refuse(str(error))
            return None
        longer = tile.major is Major.K and tile.chunks[1] == _CHUNKS_OF_96
        if descriptor.absolute != longer:
            what = "K = 96 without" if longer else "another K than 96 with"
            raise UnsupportedInstruction(instruction, f"{what} an absolute leading address (bit 52 of a descriptor)")
        if not descriptor.holds(tile):
            if longer:
                self.lane.refuse("an absolute leading address takes a 128-byte swizzle and base offset 0")
                return None
            raise UnsupportedInstruction(instruction, f"rows longer than their {descriptor.swizzle.row}-byte swizzle")
        addresses = descriptor.addresses(tile)
        ranked = np.stack([addresses + (rank << SHARED_RANK_SHIFT) for rank in self.pair.ranks])
        flat = ranked.ravel().astype(np.uint64)
        asked = [Asked(self.request, flat, CHUNK)]
        (pointers,) = self.lane.batch.memory.requested(asked, Space.SHARED, Access.READ)
        found: Array = pointers.reshape(ranked.shape)
        return found

    def use(self, region: Region, use: Use) -> None:
        """Check a region of tensor memory, and write the access down."""
        lane, instruction = self.lane.lane, self.lane.batch.instruction
        if not self.lane.sound or not self.memory.sound(region, lane, instruction):
            self.lane.sound = False
            return
        if use is Use.PIPE_READ:
            self.memory.need_written(region, lane, instruction)
        self.memory.order.touch(region, use, self.request, np.array([lane]), instruction, self.known)

    def overwrite(self, region: Region) -> None:
        """The tensor core will write a region."""
        self.use(region, Use.PIPE_WRITE)
        if self.lane.sound:
            self.memory.will_write(region)

    def shift(self, region: Region) -> None:
        """The tensor core will move the rows of a region."""
        self.use(region, Use.PIPE_WRITE)
        if self.lane.sound:
            self.memory.will_shift(region)
