"""What the kernel of columns is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class ColumnsConfiguration(Configuration):
    """How vectors of neighbouring rows, which lie side by side in memory, are spread over the threads of a block.

    `lanes` threads have a vector each, of at most `vector` rows; the `threads` of a block take turns at the columns.
    They are up to `max_threads` where blocks are few, or where rows then stay in registers between visits,
    `resident_elements` a thread. Otherwise a thread loads `reload_elements` at a time. `hints`, `stores` and
    `threads_per_sm` are those of `RowsConfiguration`.
    """

    vector: int = 8
    lanes: int = 32
    threads: int = 256
    max_threads: int = 512
    resident_elements: int = 64
    reload_elements: int = 32
    hints: str = "none"
    stores: str = "none"
    threads_per_sm: int = 0
