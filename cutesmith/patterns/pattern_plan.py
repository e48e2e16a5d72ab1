"""What every pattern answers with once it has matched a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from cutesmith.patterns.configuration import Configuration
from cutesmith.runtime.tiling import TiledShape, Tiling

C = TypeVar("C", bound=Configuration)


class PatternPlan(Protocol[C]):
    """How one pattern computes one graph: the configurations worth trying, and the kernel's source for each.

    `algorithmic_bytes` and `algorithmic_flops` are what the function must move and compute at the traced shapes,
    whatever the kernel does: the floor of a benchmark is derived from them.
    """

    @property
    def pattern(self) -> str: ...

    @property
    def algorithmic_bytes(self) -> int: ...

    @property
    def algorithmic_flops(self) -> int: ...

    def configurations(self, arch: str) -> Sequence[C]:
        """Configurations in the order to try them, the best guess first."""
        ...

    def render(self, configuration: C) -> str:
        """The kernel section of a kernel file: imports, device and host functions, `kernel_fn`."""
        ...

    def tiled_shape(self) -> TiledShape:
        """The traced sizes that a tile divides up."""
        ...

    def tiling(self, configuration: C) -> Tiling:
        """How a configuration cuts the traced sizes up."""
        ...
