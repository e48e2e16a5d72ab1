"""What the kernel of windows is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class WindowsConfiguration(Configuration):
    """Threads a block, and the neighbouring outputs that each makes; neighbouring threads lie along a line.

    `by_channels`: they lie along the channels, where these follow each other in memory. An image has to have some.
    `in_channels`: so do the outputs of a thread. `lines`: it makes those outputs in so many neighbouring lines.
    """

    threads: int
    outputs: int
    by_channels: bool = False
    in_channels: bool = False
    lines: int = 1
