"""What the kernels of scatters are free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class ScattersConfiguration(Configuration):
    """Threads a block, and the indices that each loads before the first is used.

    A block keeps up to `tile` results in shared memory, and up to `staged` of the elements that belong to them.
    """

    threads: int
    loads: int
    tile: int
    staged: int


@dataclass(frozen=True)
class AtomicsConfiguration(Configuration):
    """Threads a block; tiles that a thread loads before it adds the first; columns that it adds at once."""

    threads: int
    loads: int
    vector: int
