"""What a copy with a tensor map moves, element by element: a model that shares no code with the emulated GPU."""

from __future__ import annotations

import itertools

import numpy as np

ROW = {"none": 16, "32B": 32, "64B": 64, "128B": 128}


def place(offset: int, swizzle: str) -> int:
    """Where a byte at an offset of an aligned tile lies: its 16-byte chunk XOR the row of 128 bytes (PTX ISA)."""
    row, chunk, byte = offset // 128, offset // 16 % 8, offset % 16
    chunk ^= {"none": 0, "32B": row % 2, "64B": row % 4, "128B": row % 8}[swizzle]
    return row * 128 + chunk * 16 + byte


def boxed(array: np.ndarray, box, start, steps=None, swizzle="none", fill=0):
    """Bytes of shared memory after a load; `array` has its contiguous axis last, `box` and `start` the other way."""
    steps = steps or (1,) * len(box)
    counts = [-(-size // step) for size, step in zip(box, steps)]
    size = array.itemsize
    tile = np.zeros(int(np.prod(counts)) * size, np.uint8)
    for number, index in enumerate(itertools.product(*(range(count) for count in reversed(counts)))):
        where = [first + step * i for first, step, i in zip(start, steps, reversed(index))]
        inside = all(0 <= position < extent for position, extent in zip(where, reversed(array.shape)))
        value = array[tuple(reversed(where))] if inside else array.dtype.type(fill)
        for byte, bits in enumerate(np.array(value).reshape(1).view(np.uint8)):
            tile[place(number * size + byte, swizzle)] = bits
    return tile


def stored(array: np.ndarray, tile: np.ndarray, box, start, swizzle="none", combine=lambda held, given: given):
    """The array after a store of bytes of shared memory."""
    result, size = array.copy(), array.itemsize
    for number, index in enumerate(itertools.product(*(range(count) for count in reversed(box)))):
        where = [first + i for first, i in zip(start, reversed(index))]
        if all(0 <= position < extent for position, extent in zip(where, reversed(array.shape))):
            bits = np.array([tile[place(number * size + byte, swizzle)] for byte in range(size)], np.uint8)
            at = tuple(reversed(where))
            result[at] = combine(result[at], bits.view(array.dtype)[0])
    return result
