"""`tcgen05.mma` as work of the tensor core: where A, B, D, scale factors and metadata lie in one block, or in a pair.

With cta_group::2 each block of a pair holds half of the rows of A and half of the columns of B. D lies in tensor memory
as "Data path layout organization" of the PTX ISA says: 128 rows of a block in its 128 lanes (layouts A and D); 64 rows
of a single block in 16 lanes of every 32 (F). 64 rows of a block of a pair (B) and 64 or 32 rows with `.ws` (E, G) lie
one below the other, a half or a quarter of the columns in the lanes after those of the part before. Where A is in
tensor memory, or its metadata, their rows are in the lanes of the same rows of D, so that each part has a copy.
Scale factors are copied to all 32 lanes that are part of these; those of B's columns lie with their part of D (CuTe's
`tmem_sf_frg`), which is one half of the lanes for each half of the columns where a block of a pair has 64 rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.emitters.formats import E2M1, Format
from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.tensor_cores import sparsity
from cutesmith.emulator.tensor_cores.block_scaling import multiply, unpadded
from cutesmith.emulator.tensor_cores.column_masks import ColumnMask
from cutesmith.emulator.tensor_cores.descriptors import CHUNK, Major, OperandTile
from cutesmith.emulator.tensor_cores.instruction_descriptors import Product
from cutesmith.emulator.tensor_cores.tensor_memory import TensorMemory
from cutesmith.emulator.tensor_cores.tensor_memory_regions import LANES, Region
from cutesmith.emulator.tensor_cores.tensor_pipe import Work

_SCALE_ROWS = 32  # rows whose scale factors are in one column, and lanes of a copy of them
_ALL = np.arange(LANES)


@dataclass(frozen=True)
class Piece:
    """Where a part of D is: `rows` and `columns` of the matrix, and the region that holds it."""

    region: Region
    rows: slice
    columns: slice

    def beside(self, lane: int, column: int, count: int) -> Region:
        """The lanes of these rows in another matrix, whose first is in `lane`."""
        moved = self.region.lanes - int(self.region.lanes[0]) % _SCALE_ROWS + lane
        return Region(self.region.block, moved, column, count)


def interleaved(product: Product) -> bool:
    """Whether D takes 16 lanes of every 32 (layout F)."""
    return product.rows < LANES and product.form.group == 1 and not product.form.stationary


def pieces_of_d(product: Product, blocks: tuple[int, ...], lane: int, column: int) -> list[Piece]:
    """The parts of D from a tensor memory address on; `blocks` as the halves of the pair."""
    pieces = []
    for index, block in enumerate(blocks):
        rows = slice(index * product.rows, (index + 1) * product.rows)
        if interleaved(product):
            lanes = lane + np.arange(64) // 16 * 32 + np.arange(64) % 16
            pieces.append(Piece(Region(block, lanes, column, product.n), rows, slice(0, product.n)))
            continue
        parts = LANES // product.rows
        width = product.n // parts
        for part in range(parts):
            lanes = lane + product.rows * part + np.arange(product.rows)
            columns = slice(part * width, (part + 1) * width)
            pieces.append(Piece(Region(block, lanes, column, width), rows, columns))
    return pieces


def regions_of_scales(product: Product, piece: Piece, columns: list[int]) -> tuple[list[Region], list[Region]]:
    """Where the scale factors of a piece's rows and columns are, each from its column on; 32 lanes hold a copy.

    A word holds those of four blocks of k. With K = 96 they go on in the next word, which is behind the words of all
    rows; those of B are as many as of a multiple of 128 columns (CuTe's `tmem_sf_frg` of `SM103_MXF4_ULTRA_SS_VS`).
    """
    lanes = _ALL if product.rows == LANES else piece.region.lanes
    whole, found = -(-product.n // LANES) * LANES, []
    for first, column, held, count, words in (
        (product.scale_ids[0], columns[0], _ALL, product.rows, LANES),
        (product.scale_ids[1], columns[1], lanes, piece.region.count, whole),
    ):
        starts = range(column, column + words // _SCALE_ROWS * -(-(first + product.scales) // 4), words // _SCALE_ROWS)
        found.append([Region(piece.region.block, held, start, -(-count // _SCALE_ROWS)) for start in starts])
    return found[0], found[1]


@dataclass
class Multiply(Work):
    """A product. `a`: host addresses of chunks (blocks, *chunks), or a region for each piece of D; `b` such addresses.

    `d`: where D is. `accumulates`: whether D is added, times 2^-shift. `kept`: bool (blocks, LANES), lanes that are
    written. `scales`: regions of A's and B's scale factors, one a word, and `metadata`: a region, for each piece of D.
    """

    product: Product
    a: Array | list[Region]
    b: Array
    d: list[Piece]
    accumulates: bool
    shift: int
    kept: Array
    scales: list[tuple[list[Region], list[Region]]] | None
    metadata: list[Region] | None
    mask: ColumnMask

    def carry_out(self, machine: Machine) -> None:
        """Read the operands, multiply, write D; then `.ashift` moves the rows of A."""
        memory, product = machine.unit(TensorMemory), self.product
        b = self._operand_b(machine)
        results = []
        for index, piece in enumerate(self.d):
            a = self._operand_a(machine, memory, index)
            d = self._held(memory, piece.region)
            scales = self._scales(machine, memory, index)
            results.append(multiply(product, a, b[piece.columns], d, scales, self._chosen(machine, memory, index)))
        for piece, bits in zip(self.d, results, strict=True):
            kept = self.kept[self.blocks.index(piece.region.block)][piece.region.lanes]
            memory.write(piece.region, bits, kept)
        if product.form.shifts and isinstance(self.a, list):
            for region in self.a:
                memory.shift_rows(region)

    def _held(self, memory: TensorMemory, region: Region) -> Array:
        """Bits of a part of D as it is added: zeros where it is not."""
        if not self.accumulates:
            return np.zeros((len(region.lanes), region.count), np.uint32)
        d = memory.read(region)
        if self.product.result == "f16":
            d &= np.uint32(0xFFFF)
        if self.shift:
            numbers = d.astype(np.uint16).view(np.float16) if self.product.result == "f16" else d.view(np.float32)
            scaled = np.ldexp(numbers, -self.shift).astype(numbers.dtype)
            d = scaled.view(f"u{scaled.itemsize}").astype(np.uint32)
        return d

    def _operand_a(self, machine: Machine, memory: TensorMemory, index: int) -> Array:
        """Bits (rows, depth) of the rows of a piece of D."""
        product = self.product
        if not isinstance(self.a, list):
            block = self.blocks.index(self.d[index].region.block)
            return self._in_shared(machine, self.a[block], product.tile_a(), product.a)
        words = memory.read(self.a[index])
        held: Array = words.view(f"u{product.container // 8}").reshape(product.rows, product.depth)
        return held if isinstance(product.a, str) or product.a.bits >= 8 else unpadded(held, product.a)

    def _operand_b(self, machine: Machine) -> Array:
        """Bits (n, k), from the column that the mask says on, zeros where it says so."""
        product = self.product
        tile = product.tile_b(self.mask.shift)
        parts = [self._in_shared(machine, part, tile, product.b) for part in self.b]
        b = np.concatenate(parts)[self.mask.shift :][: product.n]
        return np.where(self.mask.zeros[:, None], b.dtype.type(0), b) if self.mask.zeros.any() else b

    def _in_shared(self, machine: Machine, pointers: Array, tile: OperandTile, kind: Format | str) -> Array:
        data = machine.memory.gather(np.ascontiguousarray(pointers).ravel(), CHUNK)
        return elements(data.reshape(*pointers.shape, CHUNK), tile, kind)

    def _chosen(self, machine: Machine, memory: TensorMemory, index: int) -> Array | None:
        """int64 (rows, depth): the columns of the stored elements of a sparse A."""
        if self.metadata is None:
            return None
        product, region = self.product, self.metadata[index]
        bits = 8 if isinstance(product.a, str) else min(product.container, 32)
        codes = sparsity.tensor_memory_codes(memory.read(region), bits, product.selector)
        if machine.memory.sanitize and not sparsity.meaningful(codes, bits, sparsity.DIFFERENT).all():
            what = f"metadata in {region} that have no meaning: both places of a chunk are the same"
            message = f"`{self.instruction.full_opcode}`: {what}"
            machine.wave.report(FaultKind.INVALID_OPERAND, message, np.array([self.lane]), self.instruction)
        return sparsity.columns(codes, bits)

    def _scales(self, machine: Machine, memory: TensorMemory, index: int) -> tuple[Array, Array] | None:
        """Factors of a piece's rows and columns: each block has its own copy of B's."""
        if self.scales is None:
            return None
        product, (of_a, of_b) = self.product, self.scales[index]
        left = self._factors(machine, memory, of_a, product.rows, product.scale_ids[0])
        return left, self._factors(machine, memory, of_b, self.d[index].region.count, product.scale_ids[1])

    def _factors(self, machine: Machine, memory: TensorMemory, regions: list[Region], rows: int, first: int) -> Array:
        """uint8 (rows, factors) from regions of scale factors."""
        words = []
        for region in regions:
            copies = memory.read(region).reshape(-1, _SCALE_ROWS, region.count)
            if machine.memory.sanitize and (copies != copies[0]).any():
                message = (
                    f"`{self.instruction.full_opcode}`: scale factors in {region} differ between groups of 32 lanes"
                )
                machine.wave.report(FaultKind.INVALID_OPERAND, message, np.array([self.lane]), self.instruction)
            words.append(np.ascontiguousarray(copies[0].T).reshape(-1)[:rows])
        bytes_of_rows = np.stack(words, axis=1).view(np.uint8)
        factors: Array = bytes_of_rows[:, first : first + self.product.scales]
        return factors


def elements(data: Array, tile: OperandTile, kind: Format | str) -> Array:
    """Bits (extent, depth) of an operand from its chunks uint8 (*tile.chunks, CHUNK).

    6- and 4-bit elements take 8 bits each where others do: 16 of them fill the first 12 or 8 bytes of a chunk.
    """
    bits = 8 if isinstance(kind, str) else kind.bits
    if bits >= 8:
        whole: Array = tile.elements(data[None])[0]
        return whole
    per = CHUNK * 8 // tile.bits
    stored = np.unpackbits(data[..., : per * bits // 8], axis=-1, bitorder="little")
    numbers = np.packbits(stored.reshape(*data.shape[:-1], per, bits), axis=-1, bitorder="little")[..., 0]
    if tile.major is Major.MN:
        numbers = numbers.swapaxes(1, 2)
    return np.ascontiguousarray(numbers).reshape(tile.extent, tile.depth)


def expanded(chunks: Array, bits: int) -> Array:
    """uint8 (n, CHUNK): chunks whose first bytes hold 16 numbers of 6 or 4 bits, as 16 bytes of tensor memory."""
    stored = np.unpackbits(chunks[:, : CHUNK * bits // 8], axis=1, bitorder="little").reshape(len(chunks), CHUNK, bits)
    numbers: Array = np.packbits(stored, axis=2, bitorder="little")[..., 0]
    return numbers << 2 if bits == E2M1.bits else numbers


@dataclass
class ShiftRows(Work):
    """`tcgen05.shift`: 8 columns of all lanes of each block."""

    regions: list[Region]

    def carry_out(self, machine: Machine) -> None:
        """Move the rows."""
        for region in self.regions:
            machine.unit(TensorMemory).shift_rows(region)


@dataclass
class CopyIn(Work):
    """`tcgen05.cp`: rows of chunks (blocks, rows, chunks of a row) to lanes.

    `targets`: for each block, regions of these rows. `bits` of a number that is expanded to 8; 8 if none is.
    """

    pointers: Array
    targets: list[list[tuple[Region, slice]]]
    bits: int = 8

    def carry_out(self, machine: Machine) -> None:
        """Copy."""
        memory = machine.unit(TensorMemory)
        for pointers, regions in zip(self.pointers, self.targets, strict=True):
            data = machine.memory.gather(np.ascontiguousarray(pointers).ravel(), CHUNK)
            data = data if self.bits == 8 else expanded(data, self.bits)
            words = np.ascontiguousarray(data).reshape(len(pointers), -1).view(np.uint32)
            for region, rows in regions:
                memory.write(region, words[rows])
