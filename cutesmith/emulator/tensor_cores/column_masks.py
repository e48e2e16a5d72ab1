"""Zero-column masks of `tcgen05.mma.ws`: 64 bits that say which columns of B count as zeros, and from which on it lies.

PTX ISA, "Zero-Column Mask Descriptor": [0:32) four start counts of 8 bits, [32:36) four first spans, [39] whether there
is a mask, [40:48) skip span, [48:56) use span, [56:62) column shift. Each part of the columns whose rows of D share
lanes (all of them with 128 rows, halves with 64, quarters with 32) has a start count and a first span of its own:
columns that are used and columns that are zeros take turns. The text says that the skip span counts columns that are
used; its four examples count zeros by the skip span and used columns by the use span, which is what is done here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.tensor_cores.instruction_descriptors import Product
from cutesmith.emulator.tensor_cores.tensor_memory_regions import LANES

_RESERVED = 7 << 36 | 3 << 62
_FARTHEST = {32: 16, 64: 32, 128: 32}
"""The largest column shift, by rows."""


class ColumnMaskError(ValueError):
    """A zero-column mask that no `tcgen05.mma.ws` takes."""


@dataclass(frozen=True)
class ColumnMask:
    """`zeros`: bool (n,), columns that count as zeros. `shift`: B begins so many columns later."""

    zeros: Array
    shift: int = 0

    @classmethod
    def decode(cls, word: int, product: Product) -> ColumnMask:
        """Raises ColumnMaskError, also where a start count lies behind the first span: its meaning is not published."""
        if word & _RESERVED:
            raise ColumnMaskError(f"bits 36 to 38, 62 and 63 of {word:#018x} are reserved")
        shift = word >> 56 & 63
        if shift > min(product.most_shift, _FARTHEST[product.m]):
            most = f"its instruction descriptor allows {product.most_shift}, M = {product.m} {_FARTHEST[product.m]}"
            raise ColumnMaskError(f"a shift by {shift} columns: {most}")
        zeros = np.zeros(product.n, bool)
        if word >> 39 & 1:
            used, skipped = (word >> 48 & 255) + 1, (word >> 40 & 255) + 1
            parts = LANES // product.m
            for part, columns in enumerate(zeros.reshape(parts, -1)):
                first, start = word >> 32 + part & 1, word >> 8 * part & 255
                length = skipped if first else used
                if start >= length:
                    raise ColumnMaskError(f"start count {start} of part {part}, whose first span has {length} columns")
                at = (np.arange(len(columns)) + start) % (used + skipped)
                columns[:] = at < skipped if first else at >= used
        return cls(zeros, shift)
