"""Where the copy engine reads and writes: rows of a tensor in global memory, a tile in shared memory, sent registers.

A place gives and takes one tile of bytes in the order of its coordinates. Its addresses were checked when the copy was
asked for (`Memory.requested`); bytes move later, without further checks.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, Protocol

import numpy as np

from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.engines.tensor_maps import TensorMap
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.program.abi import Array

CHUNK = 16
_NAN = 0x7FF7  # of `.oob`, as an H200 tells it (emitters/floats.py); wider types repeat it
_TF32_BITS, _TF32_NAN = 13, 0x7FFF_E000  # bits of float32 that tf32 lacks, and what NaN becomes
_INFINITY = 0x7F80_0000


class Place(Protocol):
    """A tile of bytes, uint8 (size,)."""

    def read(self, memory: Memory) -> Array:
        """The bytes now."""

    def write(self, memory: Memory, tile: Array) -> None:
        """Replace the bytes that exist."""


class Sent(NamedTuple):
    """The registers of a thread, on their way."""

    data: Array

    def read(self, memory: Memory) -> Array:
        """The values when they were sent."""
        return self.data

    def write(self, memory: Memory, tile: Array) -> None:
        """Never asked for."""
        raise AssertionError("registers are not a destination")


class SharedTile(NamedTuple):
    """`size` bytes at a host address in shared memory; `order`: where each chunk of 16 bytes lies, None in order.

    With gaps between rows they spread over `span` bytes; with padding, `chunk` bytes are at the start of each chunk.
    """

    pointer: int
    size: int
    order: Array | None = None
    span: int = 0
    chunk: int = CHUNK

    def read(self, memory: Memory) -> Array:
        """The bytes, unswizzled."""
        held = self._held(memory)
        return held.copy() if self.order is None else held.reshape(-1, CHUNK)[self.order, : self.chunk].ravel()

    def write(self, memory: Memory, tile: Array) -> None:
        """Put a tile there, swizzled."""
        if self.order is None:
            self._held(memory)[:] = tile
        else:
            self._held(memory).reshape(-1, CHUNK)[self.order, : self.chunk] = tile.reshape(-1, self.chunk)

    def fill(self, memory: Memory, value: int) -> None:
        """Set all bytes."""
        if self.span in (0, self.size):
            self._held(memory)[:] = value
        else:
            self.write(memory, np.full(self.size, value, np.uint8))

    def _held(self, memory: Memory) -> Array:
        start = self.pointer - memory.wave.shared_start
        return memory.wave.shared_bytes[start : start + (self.span or self.size)]


class GlobalRows(NamedTuple):
    """Rows of a tile in global memory: host addresses `pointers` (n,), 0 where refused, of `length` bytes each.

    Row i of them is row `rows[i]` of the tile, from byte `left` on; `shape` is (rows, bytes) of the tile. What is not
    in the tensor reads as `fill` (uint8, repeated) and is not written. `rounds`: float32 is read as tf32.
    """

    pointers: Array
    rows: Array
    left: int
    length: int
    shape: tuple[int, int]
    fill: Array | None = None
    rounds: bool = False

    def read(self, memory: Memory) -> Array:
        """The tile, with what is outside of the tensor filled."""
        found = memory.gather(self.pointers, self.length)
        found = as_tf32(found) if self.rounds else found
        if found.shape == self.shape:
            return found.ravel()
        tile = np.zeros(self.shape, np.uint8)
        if self.fill is not None:
            tile[:] = np.resize(self.fill, self.shape[1])
        tile[self.rows, self.left : self.left + self.length] = found
        return tile.ravel()

    def move(self, memory: Memory, target: SharedTile) -> bool:
        """Copy the tile where its bytes lie in order, as all of them are in the tensor; False where it is not so."""
        plain = target.order is None and target.span in (0, target.size) and not self.rounds
        if not plain or (len(self.pointers), self.length) != self.shape:
            return False
        memory.gather_to(target.pointer, self.pointers, self.length)
        return True

    def write(self, memory: Memory, tile: Array) -> None:
        """Write what is inside of the tensor."""
        rows = tile.reshape(self.shape)
        if (len(self.pointers), self.length) != self.shape:
            rows = rows[self.rows, self.left : self.left + self.length]
        memory.scatter(self.pointers, rows)


class Box(NamedTuple):
    """What a copy with a tensor map touches: addresses (n,) of rows, and their places in the tile as in GlobalRows."""

    addresses: Array
    rows: Array
    left: int
    length: int
    shape: tuple[int, int]


def boxes_at(tensor: TensorMap, coordinates: Array) -> list[Box]:
    """The boxes that begin at int64 element coordinates (n, rank), most of which lie in the tensor as a whole."""
    starts = coordinates.copy()
    starts[:, 0] = starts[:, 0] * tensor.packed // 8
    fits = (starts >= 0) & (starts < tensor.first_beyond)
    inside: Array = np.all(fits, axis=1)
    bytes_of = np.array([tensor.element_bytes, *tensor.strides], np.int64)
    addresses = (tensor.address + starts @ bytes_of).astype(np.uint64)[:, None] + tensor.row_offsets
    rows, length = tensor.row_numbers, tensor.tile[0] * tensor.element_bytes
    whole = zip(addresses, inside.tolist(), coordinates.tolist(), strict=True)
    return [
        Box(here, rows, 0, length, (len(rows), length)) if lies_inside else box_at(tensor, tuple(where))
        for here, lies_inside, where in whole
    ]


def box_at(tensor: TensorMap, coordinates: tuple[int, ...]) -> Box:
    """The rows of a box that begins at these element coordinates, the contiguous one first; they may lie outside."""
    size, tile = tensor.element.bytes, tensor.tile
    begin = coordinates[0] * tensor.packed // 8
    first, last = max(0, begin), min(tensor.sizes[0], begin + tile[0])
    offsets, inside = np.zeros(1, np.int64), np.ones(1, bool)
    for axis in range(1, tensor.rank):
        positions = coordinates[axis] + tensor.steps[axis] * np.arange(tile[axis], dtype=np.int64)
        held = (positions >= 0) & (positions < tensor.sizes[axis])
        offsets = (positions[:, None] * tensor.strides[axis - 1] + offsets).ravel()
        inside = (held[:, None] & inside).ravel()
    rows = np.flatnonzero(inside) if last > first else np.zeros(0, np.int64)
    addresses = (tensor.address + first * size + offsets[rows]).astype(np.uint64)
    left, length = (first - begin) * size, max(0, last - first) * size
    return Box(addresses, rows, left, length, (len(inside), tile[0] * size))


def rows_at(tensor: TensorMap, column: int, rows: Array) -> Box:
    """Four rows of a tensor of two dimensions from a column on, one after another (PTX ISA, "tile::gather4")."""
    size, width = tensor.element.bytes, tensor.tile[0]
    begin = column * tensor.packed // 8
    first, last = max(0, begin), min(tensor.sizes[0], begin + width)
    there = np.flatnonzero((rows >= 0) & (rows < tensor.sizes[1])) if last > first else np.zeros(0, np.int64)
    addresses = tensor.address + first * size + rows[there] * tensor.strides[0]
    left, length = (first - begin) * size, max(0, last - first) * size
    return Box(addresses.astype(np.uint64), there, left, length, (len(rows), width * size))


def windows_at(tensor: TensorMap, coordinates: tuple[int, ...], offsets: tuple[int, ...]) -> Box:
    """The rows of channels of the pixels from these coordinates on (PTX ISA, "Im2col mode").

    Pixels follow one another within the box of the corners, by the steps of the map, line after line and image after
    image; `offsets` are added to each, one for each dimension between channels and images, none for a store.
    """
    assert tensor.corners is not None
    lower, upper = tensor.corners
    channels, pixels = tensor.box
    last = [size - 1 + corner for size, corner in zip(tensor.sizes[1:], upper, strict=False)]
    where, places = [*coordinates[1:]], np.empty((pixels, tensor.rank - 1), np.int64)
    for pixel in range(pixels):
        places[pixel] = where
        for axis in range(len(lower)):
            where[axis] += tensor.steps[axis + 1]
            if where[axis] <= last[axis]:
                break
            where[axis] = lower[axis]
        else:
            where[-1] += 1
    places[:, : len(offsets)] += np.array(offsets, np.int64)
    inside = ((places >= 0) & (places < np.array(tensor.sizes[1:]))).all(axis=1)
    size, begin = tensor.element.bytes, coordinates[0]
    first, end = max(0, begin), min(tensor.sizes[0], begin + channels)
    rows = np.flatnonzero(inside) if end > first else np.zeros(0, np.int64)
    addresses = tensor.address + first * size + places[rows] @ np.array(tensor.strides, np.int64)
    left, length = (first - begin) * size, max(0, end - first) * size
    return Box(addresses.astype(np.uint64), rows, left, length, (pixels, channels * size))


def outside(tensor: TensorMap) -> Array | None:
    """What elements outside of the tensor read as, as bytes; None for zeros."""
    return np.array([_NAN], np.uint16).view(np.uint8) if tensor.fill_nan else None


def as_tf32(data: Array) -> Array:
    """Bytes (uint8) of float32 as a Hopper GPU loads them as tf32: to nearest, ties to even."""
    bits = data.view(np.uint32)
    magnitude = bits & np.uint32(0x7FFF_FFFF)
    half, low = np.uint32((1 << (_TF32_BITS - 1)) - 1), np.uint32((1 << _TF32_BITS) - 1)
    odd = bits >> np.uint32(_TF32_BITS) & np.uint32(1)
    rounded = np.where(magnitude < _INFINITY, (bits + half + odd) & ~low, bits)
    return np.where(magnitude > _INFINITY, np.uint32(_TF32_NAN), rounded).view(np.uint8)


def swizzled_order(tensor: TensorMap, address: int) -> Array | None:
    """Where the chunks of a tile at a shared address lie, counted from there in chunks of 16 bytes; None in order."""
    if tensor.swizzle is Swizzle.NONE and not tensor.padded:
        return None
    rows = tensor.shared_bytes, tensor.row_bytes, tensor.inner_bytes
    return _swizzled(tensor.swizzle, address % tensor.swizzle.span, *rows)


@functools.lru_cache(256)
def _swizzled(swizzle: Swizzle, start: int, size: int, row: int, inner: int) -> Array:
    """Where the chunks of rows of `inner` bytes lie; `start` is within the span after which the pattern repeats."""
    rows = start + np.arange(0, size, row, dtype=np.int64)
    places = swizzle.apply((rows[:, None] + np.arange(0, inner, CHUNK)).ravel())
    order: Array = (places - start) // CHUNK
    return order
