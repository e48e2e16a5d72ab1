"""`tcgen05.mma`, `tcgen05.cp` and `tcgen05.commit`: one thread asks the tensor core (tensor_cores/tensor_pipe.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.operations.bulk_requests import LaneRequest, address_operand, lane_requests, shared_addresses
from cutesmith.emulator.program.abi import SHARED_RANK_SHIFT, Access, Array, Space
from cutesmith.emulator.ptx.syntax import Address, Immediate, Instruction, Operand, Vector
from cutesmith.emulator.sanitizer.actors import Asked, Request
from cutesmith.emulator.tensor_cores.descriptors import (
    CHUNK,
    TCGEN05,
    DescriptorError,
    MatrixDescriptor,
    OperandTile,
)
from cutesmith.emulator.tensor_cores.instruction_descriptors import (
    InstructionDescriptorError,
    Product,
    ProductForm,
    UnsupportedProductError,
    decode,
)
from cutesmith.emulator.tensor_cores.single_thread_products import (
    CopyIn,
    Multiply,
    Piece,
    pieces_of_d,
    region_of_a,
    region_of_scales,
)
from cutesmith.emulator.tensor_cores.tensor_memory import TensorMemory
from cutesmith.emulator.tensor_cores.tensor_memory_order import Use
from cutesmith.emulator.tensor_cores.tensor_memory_regions import LANES, Region, lane_and_column
from cutesmith.emulator.tensor_cores.tensor_pipe import Commit, TensorPipe

_SCALE_ADDRESS = 0x3FFF_FFFF  # the upper bits name a byte, which the instruction descriptor says too
_MOST_SHIFT = 15


@dataclass(frozen=True)
class _Operands:
    """The operands of a `tcgen05.mma` by name."""

    d: Address
    a: Operand
    b: Operand
    descriptor: Operand
    enable: Operand
    scales: tuple[Address, Address] | None = None
    disabled: Vector | None = None
    shift: int = 0

    @classmethod
    def of(cls, instruction: Instruction, form: ProductForm) -> _Operands:
        d, a, b, descriptor, *rest = instruction.operands
        target = address_operand(instruction, d)
        if form.block:
            first, second, enable = rest
            scales = address_operand(instruction, first), address_operand(instruction, second)
            return cls(target, a, b, descriptor, enable, scales)
        disabled = rest.pop(0) if isinstance(rest[0], Vector) else None
        assert disabled is None or isinstance(disabled, Vector)
        shift = rest[1].value if len(rest) > 1 and isinstance(rest[1], Immediate) else 0
        return cls(target, a, b, descriptor, rest[0], None, disabled, shift)


def _refuses_product(instruction: Instruction) -> str | None:
    if ProductForm.parse(instruction) is not None:
        return None
    words = set(instruction.modifiers)
    what = {"sp": "sparse matrices", "ws": "products of one warp (`.ws`)", "ashift": "`.ashift`"}
    return next((text for word, text in what.items() if word in words), "no such form")


@lane_operation("tcgen05.mma", refuses=_refuses_product)
def multiply(batch: LaneBatch) -> None:
    """`tcgen05.mma` of dense matrices, with and without scale factors."""
    form = ProductForm.parse(batch.instruction)
    assert form is not None
    operands = _Operands.of(batch.instruction, form)
    for lane in lane_requests(batch):
        _multiply(lane, form, operands)


def _multiply(lane: LaneRequest, form: ProductForm, operands: _Operands) -> None:
    batch = lane.batch
    word = int(_value(lane, operands.descriptor, np.uint32))
    try:
        product = decode(word, form)
    except InstructionDescriptorError as error:
        lane.refuse(f"its instruction descriptor {word:#010x}: {error}")
        return
    except UnsupportedProductError as error:
        raise UnsupportedInstruction(batch.instruction, str(error)) from None
    pair = _blocks(lane, form.group)
    if pair is None:
        return
    memory, pipe = batch.machine.unit(TensorMemory), batch.machine.unit(TensorPipe)
    memory.use_group(pair.own, lane.lane, batch.instruction)
    known = batch.memory.known(np.array([lane.lane]))
    request = pipe.request(lane.lane, batch.instruction)
    access = _Access(lane, memory, request, known, pair)
    start, column = lane_and_column(int(_address(lane, operands.d)))
    pieces = pieces_of_d(product, pair.blocks, start, column)
    accumulates = bool(_value(lane, operands.enable, np.bool_))
    if product.rows == LANES and start:
        lane.refuse(f"D at lane {start} of tensor memory: 128 rows begin at lane 0")
    a = access.operand_a(product, operands.a)
    b = access.shared(operands.b, product.tile_b())
    scales = access.scales(product, operands)
    access.use_d(pieces, accumulates=accumulates)
    if not lane.sound or a is None or b is None:
        return
    shift = operands.shift if 0 <= operands.shift <= _MOST_SHIFT else 0
    kept = _kept_lanes(lane, operands.disabled, len(pair.blocks))
    pipe.submit(
        Multiply(lane.lane, batch.instruction, pair.blocks, product, a, b, pieces, accumulates, shift, kept, scales)
    )


def _value(lane: LaneRequest, operand: Operand, dtype: type[np.generic]) -> np.generic:
    value: np.generic = lane.batch.wave.read(operand, lane.batch.lanes[[lane.index]], dtype)[0]
    return value


def _address(lane: LaneRequest, operand: Address) -> int:
    return int(lane.batch.wave.address(operand, lane.batch.lanes[[lane.index]])[0])


def _kept_lanes(lane: LaneRequest, disabled: Vector | None, blocks: int) -> Array:
    """bool (blocks, LANES): the lanes of D that are written."""
    if disabled is None:
        return np.ones((blocks, LANES), bool)
    words = np.array([_value(lane, part, np.uint32) for part in disabled.elements], np.uint32)
    off = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
    return ~off.reshape(-1, LANES)[:blocks]


# ---------------------------------------------------------------------------------------------- blocks and accesses


@dataclass(frozen=True)
class _Pair:
    """The blocks of the wave that take part, in the order of their halves, their ranks, and which one asks."""

    blocks: tuple[int, ...]
    ranks: tuple[int, ...]
    own: int


def _blocks(lane: LaneRequest, group: int) -> _Pair | None:
    """The asking block, or the pair that it belongs to; None and a finding where it has no peer."""
    wave = lane.batch.wave
    own, first = int(wave.block_of_lane[lane.lane]), int(wave.cluster_of_lane[lane.lane])
    rank = own - first
    if group == 1:
        return _Pair((own,), (rank,), own)
    even = rank & ~1
    if even + 1 >= wave.cluster_blocks:
        lane.refuse(f"cta_group::2 in a cluster of {wave.cluster_blocks}: a pair of blocks is needed")
        return None
    return _Pair((first + even, first + even + 1), (even, even + 1), own)


@dataclass(frozen=True)
class _Access:
    """The accesses of one request, checked."""

    lane: LaneRequest
    memory: TensorMemory
    request: Request
    known: Array | None
    pair: _Pair

    def shared(self, operand: Operand, tile: OperandTile) -> Array | None:
        """uint64 (blocks, *chunks): host addresses of an operand's chunks in each block; None where refused."""
        word = int(_value(self.lane, operand, np.uint64))
        try:
            addresses = MatrixDescriptor.decode(word, TCGEN05).addresses(tile)
        except DescriptorError as error:
            self.lane.refuse(str(error))
            return None
        if word >> 52 & 1:
            raise UnsupportedInstruction(
                self.lane.batch.instruction, "absolute leading offsets (bit 52 of a descriptor)"
            )
        ranked = np.stack([addresses + (rank << SHARED_RANK_SHIFT) for rank in self.pair.ranks])
        flat = ranked.ravel().astype(np.uint64)
        asked = [Asked(self.request, flat, CHUNK)]
        (pointers,) = self.lane.batch.memory.requested(asked, Space.SHARED, Access.READ)
        found: Array = pointers.reshape(ranked.shape)
        return found

    def operand_a(self, product: Product, operand: Operand) -> Array | list[Region] | None:
        """A in shared memory, or in tensor memory where its operand is in brackets."""
        if not isinstance(operand, Address):
            return self.shared(operand, product.tile_a())
        start, column = lane_and_column(_address(self.lane, operand))
        instruction = self.lane.batch.instruction
        if not isinstance(product.a, str) and product.a.bits < 8:
            raise UnsupportedInstruction(instruction, f"A of {product.a.name} in tensor memory")
        regions = []
        for block in self.pair.blocks:
            region = region_of_a(product, block, start, column)
            if region is None:
                raise UnsupportedInstruction(instruction, "A in tensor memory with 64 rows a block")
            self.use(region, Use.PIPE_READ)
            regions.append(region)
        return regions

    def scales(self, product: Product, operands: _Operands) -> list[tuple[Region, Region]] | None:
        """Where the scale factors of A and B are in each block."""
        if operands.scales is None:
            return None
        count = product.depth // product.form.block
        if any(first + count > 4 for first in product.scale_ids):
            self.lane.refuse(f"scale factors {product.scale_ids} of A and B: {count} of 4 bytes from there on")
        found = []
        columns = [lane_and_column(_address(self.lane, one) & _SCALE_ADDRESS)[1] for one in operands.scales]
        for block in self.pair.blocks:
            regions = (
                region_of_scales(block, columns[0], product.rows),
                region_of_scales(block, columns[1], product.n),
            )
            for region in regions:
                self.use(region, Use.PIPE_READ)
            found.append(regions)
        return found

    def use_d(self, pieces: list[Piece], *, accumulates: bool) -> None:
        """D is written, and read where it is added."""
        for piece in pieces:
            if accumulates and self.lane.sound:
                self.memory.need_written(piece.region, self.lane.lane, self.lane.batch.instruction)
            self.use(piece.region, Use.PIPE_WRITE)

    def use(self, region: Region, use: Use) -> None:
        """Check a region of tensor memory, and write the access down."""
        lane, instruction = self.lane.lane, self.lane.batch.instruction
        if not self.lane.sound or not self.memory.sound(region, lane, instruction):
            self.lane.sound = False
            return
        if use is Use.PIPE_READ:
            self.memory.need_written(region, lane, instruction)
        self.memory.order.touch(region, use, self.request, np.array([lane]), instruction, self.known)
        if use.writes:
            self.memory.will_write(region)


# ----------------------------------------------------------------------------------------------------- copy and commit

_COPIES: dict[str, tuple[int, int, tuple[tuple[int, int, int], ...]]] = {
    "128x256b": (128, 32, ((0, 128, 0),)),
    "128x128b": (128, 16, ((0, 128, 0),)),
    "32x128b.warpx4": (32, 16, tuple((0, 32, 32 * part) for part in range(4))),
    "64x128b.warpx2::02_13": (64, 16, ((0, 32, 0), (0, 32, 64), (32, 64, 32), (32, 64, 96))),
    "64x128b.warpx2::01_23": (64, 16, ((0, 32, 0), (0, 32, 32), (32, 64, 64), (32, 64, 96))),
}
"""Rows in shared memory, bytes of a row, and (first row, last, first lane) of each copy of them."""


def _copy_form(instruction: Instruction) -> str:
    return ".".join(word for word in instruction.modifiers[1:] if not word.startswith("cta_group"))


def _refuses_copy(instruction: Instruction) -> str | None:
    form = _copy_form(instruction)
    if form in _COPIES:
        return None
    return "decompression" if ".b8x16" in form else "this shape is not settled"


@lane_operation("tcgen05.cp", refuses=_refuses_copy)
def copy(batch: LaneBatch) -> None:
    """`tcgen05.cp.cta_group::N.shape{.multicast} [address], descriptor`: shared to tensor memory, in each block."""
    rows, size, copies = _COPIES[_copy_form(batch.instruction)]
    target, descriptor = batch.instruction.operands
    group = 2 if "cta_group::2" in batch.instruction.modifiers else 1
    memory, pipe = batch.machine.unit(TensorMemory), batch.machine.unit(TensorPipe)
    for lane in lane_requests(batch):
        pair = _blocks(lane, group)
        if pair is None:
            continue
        memory.use_group(pair.own, lane.lane, batch.instruction)
        known = batch.memory.known(np.array([lane.lane]))
        access = _Access(lane, memory, pipe.request(lane.lane, batch.instruction), known, pair)
        address = _address(lane, address_operand(batch.instruction, target)) & _SCALE_ADDRESS
        start, column = lane_and_column(address)
        pointers = access.shared(descriptor, OperandTile(rows, size, 8))
        targets = []
        for block in pair.blocks:
            regions = []
            for first, last, to in copies:
                region = Region(block, start + to + np.arange(last - first), column, size // 4)
                access.use(region, Use.PIPE_WRITE)
                regions.append((region, slice(first, last)))
            targets.append(regions)
        if lane.sound and pointers is not None:
            pipe.submit(CopyIn(lane.lane, batch.instruction, pair.blocks, pointers, targets))


@lane_operation("tcgen05.commit")
def commit(batch: LaneBatch) -> None:
    """`tcgen05.commit…mbarrier::arrive::one{.shared::cluster}{.multicast::cluster}.b64 [mbarrier]{, mask}`."""
    address, *rest = batch.instruction.operands
    barriers = shared_addresses(batch, address)
    multicast = "multicast::cluster" in batch.instruction.modifiers
    masks = batch.read(rest[0], np.uint16) if multicast else None
    pipe = batch.machine.unit(TensorPipe)
    for lane in lane_requests(batch):
        mask = None if masks is None else int(masks[lane.index])
        given = int(barriers[lane.index])
        pointers = [lane.mbarrier_at(mbarrier) for _, mbarrier in lane.blocks_of(mask, given, given)]
        known = batch.memory.known(np.array([lane.lane]))
        if lane.sound:
            own = (int(batch.wave.block_of_lane[lane.lane]),)
            request = pipe.last_request(lane.lane)
            pipe.submit(Commit(lane.lane, batch.instruction, own, tuple(pointers), request, known))
