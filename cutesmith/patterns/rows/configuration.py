"""What the kernel of rows is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class RowsConfiguration(Configuration):
    """How a row is spread over threads, where it waits between visits, and the cache hints of its accesses.

    An access has at most `vector` elements; `elements_per_thread` decides how many threads a row gets. A block has
    `min_threads` (short rows share one) to `max_threads`; longer rows are split over up to `max_cluster` blocks. A
    thread keeps up to `resident_elements` in registers; of a longer row it loads `reload_elements` at a time, and the
    row waits in `shared_bytes` of shared memory a block where it fits. `hints` (none, stream, keep, last) are for
    loads, `stores` (none, first) for stores. `threads_per_sm` limits registers so that as many threads fit; 0 does not.
    `neighbours`: rows that read the same of a broadcast tensor follow each other, whatever the order in memory.
    """

    vector: int = 8
    elements_per_thread: int = 32
    min_threads: int = 128
    max_threads: int = 1024
    max_cluster: int = 1
    resident_elements: int = 64
    reload_elements: int = 32
    shared_bytes: int = 0
    hints: str = "none"
    stores: str = "none"
    threads_per_sm: int = 0
    neighbours: bool = False
