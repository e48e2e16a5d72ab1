"""What the kernel of a pointwise graph is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class ElementwiseConfiguration(Configuration):
    """Threads a block, elements a vector, and vectors a thread, all loaded before the first is used."""

    threads: int
    vector: int
    vectors: int
