"""`tcgen05.mma` as work of the tensor core: where A, B, D and scale factors lie in one block, or in a pair of blocks.

With cta_group::2 each block of a pair holds half of the rows of A and half of the columns of B. D lies in tensor memory
as "Data path layout organization" of the PTX ISA says: 128 rows of a block in its 128 lanes (layouts A and D); 64 rows
of a single block in 16 lanes of every 32 (F); 64 rows of a block of a pair in lanes 0-63, the upper half of the columns
in lanes 64-127 (B).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.emitters.formats import Format
from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.tensor_cores.block_scaling import multiply
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


def pieces_of_d(product: Product, blocks: tuple[int, ...], lane: int, column: int) -> list[Piece]:
    """The parts of D from a tensor memory address on; `blocks` as the halves of the pair."""
    whole, pieces = slice(0, product.n), []
    for index, block in enumerate(blocks):
        rows = slice(index * product.rows, (index + 1) * product.rows)
        if product.rows == LANES:
            pieces.append(Piece(Region(block, lane + _ALL, column, product.n), rows, whole))
        elif len(blocks) == 1:
            lanes = lane + np.arange(64) // 16 * 32 + np.arange(64) % 16
            pieces.append(Piece(Region(block, lanes, column, product.n), rows, whole))
        else:
            half = product.n // 2
            for side in (0, 1):
                lanes = lane + 64 * side + np.arange(64)
                columns = slice(side * half, (side + 1) * half)
                pieces.append(Piece(Region(block, lanes, column, half), rows, columns))
    return pieces


def region_of_a(product: Product, block: int, lane: int, column: int) -> Region | None:
    """Where a block's rows of A are in tensor memory; None for 64 rows a block, whose layout is not settled."""
    if product.rows != LANES:
        return None
    return Region(block, lane + _ALL, column, product.depth * product.container // 32)


def region_of_scales(block: int, column: int, rows: int) -> Region:
    """The columns with scale factors of so many rows; every 32 lanes hold a copy."""
    return Region(block, _ALL, column, -(-rows // _SCALE_ROWS))


@dataclass
class Multiply(Work):
    """A product. `a`: host addresses of chunks (blocks, *chunks), or regions; `b` such addresses.

    `d`: where D is. `accumulates`: whether D is added, times 2^-shift. `kept`: bool (blocks, LANES), lanes that are
    written. `scales`: regions of A's and B's scale factors in each block.
    """

    product: Product
    a: Array | list[Region]
    b: Array
    d: list[Piece]
    accumulates: bool
    shift: int
    kept: Array
    scales: list[tuple[Region, Region]] | None

    def carry_out(self, machine: Machine) -> None:
        """Read the operands, multiply, write D."""
        memory, product = machine.unit(TensorMemory), self.product
        a = np.concatenate([self._operand_a(machine, memory, index) for index in range(len(self.blocks))])
        b = np.concatenate([self._in_shared(machine, part, product.tile_b(), product.b) for part in self.b])
        d = self._held(memory)
        if product.form.block == 0:
            bits = multiply(product, a, b, d, None)
        else:
            bits = self._scaled(machine, memory, a, b, d)
        for piece in self.d:
            kept = self.kept[self.blocks.index(piece.region.block)][piece.region.lanes]
            memory.write(piece.region, bits[piece.rows, piece.columns], kept)

    def _held(self, memory: TensorMemory) -> Array:
        """Bits of D as it is added: zeros where it is not."""
        product = self.product
        d = np.zeros((product.m, product.n), np.uint32)
        if not self.accumulates:
            return d
        for piece in self.d:
            d[piece.rows, piece.columns] = memory.read(piece.region)
        if product.result == "f16":
            d &= np.uint32(0xFFFF)
        if self.shift:
            numbers = d.astype(np.uint16).view(np.float16) if product.result == "f16" else d.view(np.float32)
            scaled = np.ldexp(numbers, -self.shift).astype(numbers.dtype)
            d = scaled.view(f"u{scaled.itemsize}").astype(np.uint32)
        return d

    def _operand_a(self, machine: Machine, memory: TensorMemory, index: int) -> Array:
        product = self.product
        if not isinstance(self.a, list):
            return self._in_shared(machine, self.a[index], product.tile_a(), product.a)
        words = memory.read(self.a[index])
        held: Array = words.view(f"u{product.container // 8}").reshape(product.rows, product.depth)
        return held

    def _in_shared(self, machine: Machine, pointers: Array, tile: OperandTile, kind: Format | str) -> Array:
        data = machine.memory.gather(np.ascontiguousarray(pointers).ravel(), CHUNK)
        return elements(data.reshape(*pointers.shape, CHUNK), tile, kind)

    def _scaled(self, machine: Machine, memory: TensorMemory, a: Array, b: Array, d: Array) -> Array:
        """Each block multiplies its rows with its own copy of B's scale factors."""
        product = self.product
        assert self.scales is not None
        found = np.zeros_like(d)
        for index, (of_a, of_b) in enumerate(self.scales):
            rows = slice(index * product.rows, (index + 1) * product.rows)
            left = self._factors(machine, memory, of_a, product.rows, product.scale_ids[0])
            right = self._factors(machine, memory, of_b, product.n, product.scale_ids[1])
            found[rows] = multiply(product, a[rows], b, d[rows], (left, right))
        return found

    def _factors(self, machine: Machine, memory: TensorMemory, region: Region, rows: int, first: int) -> Array:
        """uint8 (rows, factors) from a region of scale factors."""
        copies = memory.read(region).reshape(LANES // _SCALE_ROWS, _SCALE_ROWS, region.count)
        if machine.memory.sanitize and (copies != copies[0]).any():
            message = f"`{self.instruction.full_opcode}`: scale factors in {region} differ between groups of 32 lanes"
            machine.wave.report(FaultKind.INVALID_OPERAND, message, np.array([self.lane]), self.instruction)
        words = np.ascontiguousarray(copies[0].T).reshape(-1)[:rows]
        count = self.product.depth // self.product.form.block
        factors: Array = words.view(np.uint8).reshape(rows, 4)[:, first : first + count]
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


@dataclass
class CopyIn(Work):
    """`tcgen05.cp`: rows of chunks (blocks, rows, chunks of a row) to lanes.

    `targets`: for each block, regions of these rows.
    """

    pointers: Array
    targets: list[list[tuple[Region, slice]]]

    def carry_out(self, machine: Machine) -> None:
        """Copy."""
        memory = machine.unit(TensorMemory)
        for pointers, regions in zip(self.pointers, self.targets, strict=True):
            data = machine.memory.gather(np.ascontiguousarray(pointers).ravel(), CHUNK)
            words = data.reshape(len(pointers), -1).view(np.uint32)
            for region, rows in regions:
                memory.write(region, words[rows])
