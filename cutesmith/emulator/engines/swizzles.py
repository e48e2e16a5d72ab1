"""Swizzles of shared memory: how the copy engine and the tensor cores permute the bytes of a tile, by address bits.

A swizzle exchanges chunks within rows of 32, 64 or 128 bytes: some address bits are XORed with those that count the
rows. It acts on addresses, not on offsets in a tile, so its pattern repeats every `span` bytes of shared memory
(PTX ISA, "Tensor swizzling modes"; CuTe writes the same as Swizzle<bits, base, shift>).
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Swizzle(enum.Enum):
    """(bits, base, shift): `bits` address bits from `base` on are XORed with those `shift` places above them."""

    NONE = (0, 4, 3)
    B32 = (1, 4, 3)
    B64 = (2, 4, 3)
    B128 = (3, 4, 3)
    B128_ATOM_32B = (2, 5, 2)  # chunks of 32 bytes: sm_100

    @property
    def row(self) -> int:
        """Bytes within which chunks are exchanged: the inner extent of a box is at most that; 16 without a swizzle."""
        bits, base, _ = self.value
        return 1 << (base + bits)

    @property
    def span(self) -> int:
        """Bytes after which the pattern repeats; a tile that starts at a multiple of it is swizzled by its offsets."""
        bits, base, shift = self.value
        return 1 << (base + shift + bits) if bits else 1 << base

    def apply(self, addresses: Array) -> Array:
        """Where bytes at these unswizzled addresses (integers of any shape) are; applied twice it changes nothing."""
        bits, base, shift = self.value
        mask = np.array(((1 << bits) - 1) << base, addresses.dtype)
        swizzled: Array = addresses ^ (addresses >> np.array(shift, addresses.dtype) & mask)
        return swizzled
