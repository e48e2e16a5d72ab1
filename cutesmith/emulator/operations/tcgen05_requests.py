"""`tcgen05.mma` and `tcgen05.commit`: one thread asks the tensor core for products (tensor_cores/tensor_pipe.py)."""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.operations.bulk_requests import LaneRequest, lane_requests, shared_addresses
from cutesmith.emulator.operations.tcgen05_access import (
    COLUMN_ADDRESS,
    TensorAccess,
    operand_address,
    operand_value,
)
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand, Vector
from cutesmith.emulator.tensor_cores.column_masks import ColumnMask, ColumnMaskError
from cutesmith.emulator.tensor_cores.instruction_descriptors import (
    InstructionDescriptorError,
    Product,
    ProductForm,
    UnsupportedProductError,
    decode,
)
from cutesmith.emulator.tensor_cores.product_operands import ProductOperands
from cutesmith.emulator.tensor_cores.single_thread_products import (
    Multiply,
    Piece,
    interleaved,
    pieces_of_d,
    regions_of_scales,
)
from cutesmith.emulator.tensor_cores.tensor_memory_order import Use
from cutesmith.emulator.tensor_cores.tensor_memory_regions import LANES, Region, lane_and_column
from cutesmith.emulator.tensor_cores.tensor_pipe import Commit, TensorPipe

_LONGER_SM = 103
_MOST_SHIFT = 15
_HALF_WARP = 16
_METADATA_COLUMNS = 2


def _refuses_product(instruction: Instruction) -> str | None:
    return None if ProductForm.parse(instruction) else "no such form"


@lane_operation("tcgen05.mma", refuses=_refuses_product)
def multiply(batch: LaneBatch) -> None:
    """`tcgen05.mma{.ws}{.sp}`, with and without scale factors."""
    form = ProductForm.parse(batch.instruction)
    assert form is not None
    operands = ProductOperands.of(batch.instruction, form)
    for lane in lane_requests(batch):
        _multiply(lane, form, operands)


def _multiply(lane: LaneRequest, form: ProductForm, operands: ProductOperands) -> None:
    batch = lane.batch
    word = int(operand_value(lane, operands.descriptor, np.uint32))
    try:
        product = decode(word, form)
    except InstructionDescriptorError as error:
        lane.refuse(f"its instruction descriptor {word:#010x}: {error}")
        return
    except UnsupportedProductError as error:
        raise UnsupportedInstruction(batch.instruction, str(error)) from None
    if product.longer and batch.wave.program.module.sm != _LONGER_SM:
        lane.refuse(f"its instruction descriptor {word:#010x}: sm_103a alone has K = 96 (bit 31)")
        return
    mask = _column_mask(lane, product, operands.mask)
    access = TensorAccess.of(lane)
    if access is None or mask is None:
        return
    blocks = access.pair.blocks
    start, column = lane_and_column(operand_address(lane, operands.d))
    starts = (0, _HALF_WARP) if interleaved(product) else (0,)
    if start not in starts:
        what = f"{product.rows} rows of a block begin at lane {' or '.join(map(str, starts))}"
        lane.refuse(f"D at lane {start} of tensor memory: {what}")
        return
    pieces = pieces_of_d(product, blocks, start, column)
    accumulates = bool(operand_value(lane, operands.enable, np.bool_))
    a = _operand_a(access, product, operands.a, pieces, start)
    b = access.shared(operands.b, product.tile_b(mask.shift))
    scales = _scales(access, product, operands, pieces)
    metadata = _metadata(access, operands.metadata, pieces, start)
    for piece in pieces:
        if accumulates and lane.sound:
            access.memory.need_written(piece.region, lane.lane, batch.instruction)
        access.overwrite(piece.region)
    if not lane.sound or a is None or b is None:
        return
    shift = operands.shift if 0 <= operands.shift <= _MOST_SHIFT else 0
    kept = _kept_lanes(lane, operands.disabled, len(blocks))
    work = Multiply(
        lane.lane, batch.instruction, blocks, product, a, b, pieces, accumulates, shift, kept, scales, metadata, mask
    )
    batch.machine.unit(TensorPipe).submit(work)


def _column_mask(lane: LaneRequest, product: Product, operand: Operand | None) -> ColumnMask | None:
    """None and a finding for a mask that does not exist."""
    if operand is None:
        return ColumnMask(np.zeros(product.n, bool))
    try:
        return ColumnMask.decode(int(operand_value(lane, operand, np.uint64)), product)
    except ColumnMaskError as error:
        lane.refuse(f"its zero-column mask: {error}")
        return None


def _kept_lanes(lane: LaneRequest, disabled: Vector | None, blocks: int) -> Array:
    """bool (blocks, LANES): the lanes of D that are written."""
    if disabled is None:
        return np.ones((blocks, LANES), bool)
    words = np.array([operand_value(lane, part, np.uint32) for part in disabled.elements], np.uint32)
    off = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
    return ~off.reshape(-1, LANES)[:blocks]


def _operand_a(
    access: TensorAccess, product: Product, operand: Operand, pieces: list[Piece], start: int
) -> Array | list[Region] | None:
    """A in shared memory, or in tensor memory where its operand is in brackets: a region for each piece of D."""
    lane, form = access.lane, product.form
    if not isinstance(operand, Address):
        if form.shifts:
            lane.refuse("A is in shared memory: `.ashift` moves rows of tensor memory")
        return access.shared(operand, product.tile_a())
    first, column = lane_and_column(operand_address(lane, operand))
    if product.container < 8:
        raise UnsupportedInstruction(lane.batch.instruction, "A of e2m1 in tensor memory, two in a byte")
    _need_lane(lane, "A", first, start)
    columns = product.depth * product.container // 32
    regions = [piece.beside(first, column, columns) for piece in pieces]
    for region in regions:
        access.use(region, Use.PIPE_READ)
        if form.shifts:
            access.shift(region)
    return regions


def _need_lane(lane: LaneRequest, what: str, first: int, start: int) -> None:
    """Refuse rows that do not begin in D's lane."""
    if first != start:
        lane.refuse(f"{what} at lane {first} of tensor memory, D at lane {start}: both begin in the same lane")


def _metadata(access: TensorAccess, operand: Address | None, pieces: list[Piece], start: int) -> list[Region] | None:
    """Where the metadata of a sparse A are, for each piece of D."""
    if operand is None:
        return None
    first, column = lane_and_column(operand_address(access.lane, operand))
    _need_lane(access.lane, "metadata", first, start)
    if column % _METADATA_COLUMNS:
        access.lane.refuse(f"metadata at column {column} of tensor memory: an even column is needed")
    regions = [piece.beside(first, column, _METADATA_COLUMNS) for piece in pieces]
    for region in regions:
        access.use(region, Use.PIPE_READ)
    return regions


def _scales(
    access: TensorAccess, product: Product, operands: ProductOperands, pieces: list[Piece]
) -> list[tuple[list[Region], list[Region]]] | None:
    """Where the scale factors of A and B are for each piece of D."""
    if operands.scales is None:
        return None
    if not product.longer and any(first + product.scales > 4 for first in product.scale_ids):
        access.lane.refuse(f"scale factors {product.scale_ids} of A and B: {product.scales} of 4 bytes from there on")
    columns = [lane_and_column(operand_address(access.lane, one) & COLUMN_ADDRESS)[1] for one in operands.scales]
    found = [regions_of_scales(product, piece, columns) for piece in pieces]
    for region in (region for pair in found for regions in pair for region in regions):
        access.use(region, Use.PIPE_READ)
    return found


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
