"""The state of an mbarrier: 64 bits in shared memory that count arrivals and bytes, phase after phase.

Our layout of the opaque word, from the lowest bit: arrivals a phase needs (20 bits), arrivals still missing (20), bytes
still expected (21, two's complement), parity of the current phase (1), a mark that the word is an mbarrier (2).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np

from cutesmith.emulator.program.abi import Array

COUNT_BITS, BYTES_BITS = 20, 21
MOST_ARRIVALS = (1 << COUNT_BITS) - 1
MOST_BYTES = (1 << COUNT_BITS) - 1
_BYTES_SHIFT = 2 * COUNT_BITS
PARITY_SHIFT = _BYTES_SHIFT + BYTES_BITS
_MARK_SHIFT = PARITY_SHIFT + 1
_MARK = 0b10
NOT_ONE = "is not an mbarrier: it was never initialised, or has been overwritten"


class MbarrierError(Exception):
    """What an mbarrier does not take; the text says why."""


def new_words(counts: Array) -> Array:
    """uint64 words of mbarriers that need `counts` arrivals in each phase, 1 to MOST_ARRIVALS."""
    words: Array = counts.astype(np.uint64) * np.uint64(1 | 1 << COUNT_BITS) | np.uint64(_MARK << _MARK_SHIFT)
    return words


def parities(words: Array) -> tuple[Array, Array]:
    """bool (n,) twice: which words are mbarriers, and the parities of their current phases."""
    return words >> np.uint64(_MARK_SHIFT) == _MARK, (words >> np.uint64(PARITY_SHIFT) & np.uint64(1)).astype(bool)


@dataclass
class Mbarrier:
    """An mbarrier's state. `missing` arrivals and `bytes` (may be negative) keep the phase from completing.

    `phases`: how many have completed since it was read.
    """

    expected: int
    missing: int
    bytes: int
    parity: int
    phases: int = field(default=0, compare=False)

    @classmethod
    def unpack(cls, word: int) -> Mbarrier | None:
        """The state that a word holds; None if it is not an mbarrier."""
        if word >> _MARK_SHIFT != _MARK:
            return None
        count = (word >> _BYTES_SHIFT) & ((1 << BYTES_BITS) - 1)
        signed = count - (count >> (BYTES_BITS - 1) << BYTES_BITS)
        return cls(word & MOST_ARRIVALS, word >> COUNT_BITS & MOST_ARRIVALS, signed, word >> PARITY_SHIFT & 1)

    @classmethod
    def read(cls, pointer: int) -> Mbarrier | None:
        """The mbarrier at a host address."""
        return cls.unpack(ctypes.c_uint64.from_address(pointer).value)

    def pack(self) -> int:
        """The word."""
        amount = self.bytes & ((1 << BYTES_BITS) - 1)
        counts = self.expected | self.missing << COUNT_BITS | amount << _BYTES_SHIFT
        return counts | self.parity << PARITY_SHIFT | _MARK << _MARK_SHIFT

    def write(self, pointer: int) -> None:
        """Put the mbarrier at a host address."""
        ctypes.c_uint64.from_address(pointer).value = self.pack()

    @staticmethod
    def erase(pointer: int) -> None:
        """Make the word at a host address no longer an mbarrier."""
        ctypes.c_uint64.from_address(pointer).value = 0

    def arrive(self, count: int = 1) -> None:
        """`count` threads have arrived."""
        if count < 1 or count > self.missing:
            raise MbarrierError(f"{count} arrivals at an mbarrier whose phase still needs {self.missing}")
        self.missing -= count
        self._advance()

    def drop(self, count: int = 1) -> None:
        """`count` threads have arrived and will not arrive in later phases."""
        if count > self.expected:
            raise MbarrierError(f"{count} threads leave an mbarrier that expects {self.expected}")
        self.expected -= count
        self.arrive(count)

    def expect_one_more(self) -> None:
        """One more arrival in the current phase."""
        self.missing += 1

    def expect_bytes(self, count: int) -> None:
        """The phase waits for `count` more bytes; a negative count are bytes that have arrived."""
        self.bytes += count
        if abs(self.bytes) > MOST_BYTES:
            raise MbarrierError(f"{self.bytes} bytes expected at once: an mbarrier counts up to {MOST_BYTES}")
        self._advance()

    def _advance(self) -> None:
        if self.missing == 0 and self.bytes == 0:
            self.parity ^= 1
            self.phases += 1
            self.missing = self.expected
