"""What the kernel of sorting and selection is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class SelectionConfiguration(Configuration):
    """Threads a block, which has one line, and how it is sorted: by digits of the keys (`radix`), or by a network.

    The network has a thread load so many elements before the first is used; by digits it holds so many of a tile. A
    buffer of up to `shared_bytes` lies in shared memory; that of digits may be spread over a `cluster` of blocks.
    """

    threads: int
    loads: int
    shared_bytes: int
    radix: bool = False
    cluster: int = 1
