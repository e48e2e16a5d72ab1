"""What the kernel of Fourier transforms is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class TransformsConfiguration(Configuration):
    """How lines are transformed: by butterflies of these `radices` one after the other, of `threads` of each line.

    A block has `lines` at once, and goes along them; a multiprocessor has `resident` blocks. In shared memory a place
    is left free behind every `gap` numbers; 0: nowhere.
    """

    radices: tuple[int, ...]
    threads: int
    lines: int
    gap: int
    resident: int
