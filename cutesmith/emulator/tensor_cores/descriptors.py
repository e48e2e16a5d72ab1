"""Matrix descriptors: 64 bits that say where in shared memory an operand of a tensor core lies, and in which order.

An operand is read in chunks of 16 bytes. Eight chunks, one for each of eight rows (K-major) or eight steps of k
(MN-major), are a *core matrix*; two byte offsets say where the next one is. In the words of CuTe (mma_sm90_desc.hpp),
in units of a chunk, with S chunks in a row of the swizzle (1, 2, 4 or 8):

    K-major   plain ((8, n), 2) : ((1, stride), leading)   swizzled ((8, n), 2) : ((S, stride), 1)
    MN-major  plain (n, (8, k)) : (stride, (1, leading))   swizzled ((S, n), (8, k)) : ((1, leading), (S, stride))

Swizzles act on the address, so `start` may point into the pattern: the steps of an instruction's k within a row do.
PTX ISA, "Shared memory matrix layout"; the fields of `tcgen05` differ from those of `wgmma`.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.program.abi import Array

CHUNK = 16
"""Bytes that are read together, and the unit of a descriptor's fields."""
_ROWS = 8
_FIELD = (1 << 14) - 1
_ABSOLUTE_BIT = 52
_BASE_UNIT = 128


class Major(enum.Enum):
    """Along which dimension neighbouring elements are neighbours in memory; the value is the transposition bit."""

    K = 0
    MN = 1


@dataclass(frozen=True)
class DescriptorFormat:
    """Where `swizzle` begins and what its codes mean; the other fields are where they are in both formats."""

    name: str
    swizzle_bit: int
    swizzles: dict[int, Swizzle]


WGMMA = DescriptorFormat("wgmma", 62, {0: Swizzle.NONE, 1: Swizzle.B128, 2: Swizzle.B64, 3: Swizzle.B32})
TCGEN05 = DescriptorFormat(
    "tcgen05",
    61,
    {0: Swizzle.NONE, 1: Swizzle.B128_ATOM_32B, 2: Swizzle.B128, 4: Swizzle.B64, 6: Swizzle.B32},
)


class DescriptorError(ValueError):
    """A descriptor that no tensor core takes."""


@dataclass(frozen=True)
class OperandTile:
    """What one instruction reads of A or B: `extent` rows of A or columns of B, `depth` along k, `bits` an element."""

    extent: int
    depth: int
    bits: int
    major: Major = Major.K

    @property
    def chunks(self) -> tuple[int, int]:
        """The shape of the tile in chunks: (rows, along k) if K-major, else (along rows, k)."""
        if self.major is Major.K:
            return self.extent, self.depth * self.bits // (8 * CHUNK)
        return self.extent * self.bits // (8 * CHUNK), self.depth

    def elements(self, data: Array) -> Array:
        """Bits (w, extent, depth) as uint8, uint16 or uint32, from the bytes uint8 (w, *chunks, CHUNK)."""
        if self.bits == 1:
            return np.unpackbits(data, axis=-1, bitorder="little").reshape(len(data), self.extent, self.depth)
        values = np.ascontiguousarray(data).view(f"u{self.bits // 8}")
        if self.major is Major.MN:
            values = values.swapaxes(2, 3)  # (w, chunks, elements of a chunk, k)
        return values.reshape(len(data), self.extent, self.depth)


@dataclass(frozen=True)
class MatrixDescriptor:
    """`start`, `leading` and `stride` in bytes.

    `base_offset`, in units of 128 bytes, says where the pattern of the swizzle begins: it is subtracted from an address
    before the bits that count rows are read (settled by the recording of an H200). `absolute`: `leading` is the address
    at which rows of k go on that reach the end of 128 bytes (PTX ISA, "Absolute address mode for K dimension being
    48B"; of `tcgen05` alone).
    """

    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: Swizzle
    absolute: bool = False

    @classmethod
    def decode(cls, word: int, format: DescriptorFormat = WGMMA) -> MatrixDescriptor:
        """The fields of the 64 bits; raises DescriptorError for a swizzle that the format does not have."""
        code = word >> format.swizzle_bit & ((1 << (64 - format.swizzle_bit)) - 1)
        if code not in format.swizzles:
            raise DescriptorError(f"{format.name} has no swizzle {code} (descriptor {word:#018x})")
        start, leading, stride = ((word >> bit & _FIELD) * CHUNK for bit in (0, 16, 32))
        absolute = format is TCGEN05 and bool(word >> _ABSOLUTE_BIT & 1)
        return cls(start, leading, stride, word >> 49 & 7, format.swizzles[code], absolute)

    def encode(self, format: DescriptorFormat = WGMMA) -> int:
        """The 64 bits."""
        code = next(code for code, swizzle in format.swizzles.items() if swizzle is self.swizzle)
        fields = ((self.start // CHUNK, 0), (self.leading // CHUNK, 16), (self.stride // CHUNK, 32))
        word = self.base_offset << 49 | code << format.swizzle_bit | self.absolute << _ABSOLUTE_BIT
        return word | sum((value & _FIELD) << bit for value, bit in fields)

    def holds(self, tile: OperandTile) -> bool:
        """Whether a K-major row lies within a row of the swizzle: where the rest of it would be is not published."""
        longest = self.swizzle.row // CHUNK
        if self.absolute:
            return self.swizzle is Swizzle.B128 and tile.major is Major.K and self.base_offset == 0
        return tile.major is not Major.K or self.swizzle is Swizzle.NONE or tile.chunks[1] <= longest

    def addresses(self, tile: OperandTile) -> Array:
        """Where in the block's shared memory each chunk of the tile is, int64 `tile.chunks`."""
        plain = self.start + _offsets(self.leading, self.stride, self.swizzle, tile)
        if self.absolute:
            begin = self.start % self.swizzle.row
            there = begin + CHUNK * np.arange(tile.chunks[1]) >= self.swizzle.row
            plain = plain + np.where(there, self.leading - (self.start - begin) - self.swizzle.row, 0)
        counted = plain - self.base_offset * _BASE_UNIT
        moved: Array = plain ^ counted ^ self.swizzle.apply(counted)
        return moved

    def explain(self, tile: OperandTile) -> str:
        """In words: "64 rows x 16, K-major, 128-byte swizzle, from byte 1024; 8 rows further: 1024 bytes"."""
        kind = f"{self.swizzle.row}-byte swizzle" if self.swizzle is not Swizzle.NONE else "no swizzle"
        steps = f"8 rows further: {self.stride} bytes"
        steps += f", behind 128 bytes of k from byte {self.leading} on" if self.absolute else ""
        if self.major_is_plain(tile):
            steps += f", {CHUNK} bytes of k further: {self.leading} bytes"
        elif tile.major is Major.MN:
            per = self.swizzle.row * 8 // tile.bits
            rows, k = (self.stride, self.leading) if self.swizzle is Swizzle.NONE else (self.leading, self.stride)
            steps = f"{per} rows further: {rows} bytes, 8 of k further: {k} bytes"
        base = f", base offset {self.base_offset}" if self.base_offset else ""
        where = f"from byte {self.start} of shared memory{base}"
        return f"{tile.extent} rows x {tile.depth}, {tile.major.name}-major, {kind}, {where}; {steps}"

    def major_is_plain(self, tile: OperandTile) -> bool:
        """Whether the leading offset counts for a K-major tile: only without a swizzle."""
        return tile.major is Major.K and self.swizzle is Swizzle.NONE


@functools.cache
def _offsets(leading: int, stride: int, swizzle: Swizzle, tile: OperandTile) -> Array:
    """Byte offsets of the chunks from `start`, before the swizzle; int64 `tile.chunks`."""
    first, second = np.ogrid[: tile.chunks[0], : tile.chunks[1]]
    row, plain = swizzle.row, swizzle is Swizzle.NONE
    if tile.major is Major.K:
        across = first % _ROWS * row + first // _ROWS * stride
        along = second * (leading if plain else CHUNK)
    else:
        per = row // CHUNK
        across = first * stride if plain else first % per * CHUNK + first // per * leading
        along = second % _ROWS * row + second // _ROWS * (leading if plain else stride)
    offsets: Array = (across + along).astype(np.int64)
    return offsets
