"""What every pattern answers with once it has matched a graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cutesmith.patterns.configuration import Configuration
from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.nodes import Graph, Node, bytes_of
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.runtime.tiling import TiledShape, Tiling

C = TypeVar("C", bound=Configuration)


@dataclass(frozen=True)
class GraphPlan:
    """What the plans of one launch share: the graph, and what it must move and compute at the traced shapes."""

    graph: Graph

    @property
    def algorithmic_bytes(self) -> int:
        """Bytes that must cross device memory once: inputs read, outputs written."""
        return self.graph.moved_bytes

    @property
    def algorithmic_flops(self) -> int:
        """Two for each product of two numbers, one for each other result; what a mask hides is counted too."""
        return self.graph.flops

    @property
    def computed(self) -> Graph:
        """The graph as the kernel computes it: what its operations take."""
        return self.graph

    @property
    def blocks(self) -> float:
        """Of the first configuration, where they may be fewer than multiprocessors; else infinite."""
        return math.inf

    @property
    def repeated_bytes(self) -> int:
        """What the first configuration reads again from device memory, beside `algorithmic_bytes`."""
        return 0

    @property
    def warp_instructions(self) -> int:
        """Those of the first configuration, where they are far more than bytes and operations let expect; else 0."""
        return 0

    @property
    def shared_bytes(self) -> int:
        """What the first configuration writes to shared memory and reads there, where barriers lie between; else 0."""
        return 0


def bytes_of_reads(graph: Graph, reads: Iterable[tuple[Node, Shape]]) -> int:
    """Bytes that must cross device memory once: what is read of arguments in these shapes, and all outputs.

    Of an argument no more than all of it, however many views of it are read.
    """
    read: dict[int, int] = {}
    for source, shape in reads:
        index = Input.of(source).index
        whole = math.prod(graph.arguments[index].shape)
        read[index] = min(whole, read.get(index, 0) + math.prod(shape))
    inputs = sum(count * ITEM_BYTES[graph.arguments[index].dtype] for index, count in read.items())
    return inputs + sum(map(bytes_of, graph.outputs))


class PatternPlan(Protocol[C]):
    """How one pattern computes one graph: the configurations worth trying, and the kernel's source for each.

    `algorithmic_bytes` and `algorithmic_flops` are what the function must move and compute at the traced shapes,
    whatever the kernel does: the floor of a benchmark is derived from them.
    """

    @property
    def pattern(self) -> str: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def algorithmic_bytes(self) -> int: ...

    @property
    def algorithmic_flops(self) -> int: ...

    def configurations(self, arch: str) -> Sequence[C]:
        """Configurations in the order to try them, the best guess first."""
        ...

    def why(self, configuration: C) -> str:
        """Sentences: what decided for this configuration at the traced sizes, in its numbers."""
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
