"""What the kernel of interleaved phases is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class InterleavingConfiguration(Configuration):
    """Threads a block, each with one place of every phase."""

    threads: int
