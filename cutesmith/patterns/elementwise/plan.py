"""The elementwise pattern: any graph of pointwise operations over inputs that broadcast to the outputs' shape.

An input may also be read at computed coordinates (`take`): the moved elements of a cat, a pad, a flip or an embedding.

Every thread loads a few 16-byte vectors of each input, all before the first use, computes in registers and stores. When
all tensors are dense in the same order the kernel sees one flat dimension of free length, with a predicated tail;
otherwise shapes and strides are known when compiling, dimensions are merged as far as all tensors allow, and the
innermost one is vectorised where the tensors have stride 1 (a broadcast value is loaded once for the vector). Where a
tensor as large as the L2 cache is shared by all of the outermost dimension, the blocks that share it run side by side.
Where an input is contiguous along another dimension than the result, a thread loads a tile of vectors along that one
and stores vectors along the other: the transposition takes place in its registers, and neighbouring lanes fill whole
sectors both ways.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.elementwise.configuration import ElementwiseConfiguration
from cutesmith.patterns.elementwise.kernel import ElementwiseKernel, ElementwiseWriter, value_of
from cutesmith.patterns.elementwise.lanes import LanesKernel, LanesWriter, laned, sliced
from cutesmith.patterns.elementwise.placed import VECTOR_BYTES, PlacedKernel, PlacedWriter, has_places
from cutesmith.patterns.elementwise.slices import SlicesWriter
from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.instructions import WHERE_ROUNDED, usual_instructions
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node
from cutesmith.patterns.graph.takes import READ_ANYWHERE, aligned_inputs, with_takes
from cutesmith.patterns.pattern_plan import GraphPlan, bytes_of_reads
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.templating import first_checks, render_template
from cutesmith.runtime.tiling import TiledShape, Tiling

GUESSES = ((128, 2), (128, 1), (256, 1), (256, 2), (128, 4), (256, 4), (512, 1))
"""(threads a block, vectors a thread), by speed on an H200 (bf16, 537 MB): 128 x 2 takes 128.8 us for GELU where a copy
takes 128.6; with a broadcast bias 128 x 1 does (128.3 us), and 4 vectors a thread are 15 % slower."""
FEW_BLOCKS = 132
"""On fewer, a multiprocessor has one at most, and a vector a thread is best: powers of 8192 numbers took 4.4 us, by two
vectors a thread 5.1. So it is where a vector is two accesses of the widest tensor: `masked_fill` of 16384 x 4096 floats
took 148.6 us, by two vectors 164.2."""
OF_ELEMENTS_APART = 256, 1
"""Where elements are read one by one at places that are not neighbours: bilinear samples of 8 x 64 x 128 x 128 images
take 74.4 us on an H200, by 128 x 1 90.5 and by 128 x 2 88.1; a thread for each element 97.9."""
LINES_OF_A_READ = 5
"""In which the elements of a warp lie that are read at places from memory: as many as explain the 74.4 us, four reads
of each element at random places of 64 KB."""
MOST_TESTED = 2
"""Reads of vectors that wait for a test of their own: with more a vector a thread is best. The gradient of a rotary
embedding, which has four, took 40.9 us on an H200, by two vectors a thread 45.7."""
LONG_CODE = frozenset("sin cos tan pow".split())
"""Functions whose code is long in float64; it is written out for each element that a thread computes."""


LINE_BYTES, ISSUED_AT_ONCE = 128, 2
"""A load takes L1 a cycle for each line that a warp's elements lie in; instructions that count as one.

Of 4096 x 4096 pairs of boxes above the diagonal, whose 8 numbers lie 16 bytes apart, an H200 took 93 us by single
elements (4 lines), 142 by vectors of 2, 267 of 4 and 536 of 16 (32 lines).
"""

READS_OF_PAIRS = 32
"""What a warp reads once: for eight rows of each tile, and four tiles below each other. Few pairs have no tiles."""


TEMPLATES = {ElementwiseKernel: "elementwise", PlacedKernel: "elementwise_places", LanesKernel: "elementwise_lanes"}


@dataclass(frozen=True)
class ElementwisePlan(GraphPlan):
    """A matched pointwise graph, ready to be rendered in any of its configurations."""

    kernel: ElementwiseKernel
    slices: Graph | None = None
    """The graph whose outputs are slices of the results, where the kernel computes those."""
    pattern: str = "elementwise"

    @property
    def computed(self) -> Graph:
        """That of the slices, where results have some."""
        return self.slices or self.graph

    @property
    def algorithmic_bytes(self) -> int:
        """Bytes that must cross device memory once: used inputs read, outputs written, in the traced shapes."""
        anywhere = [node for node in self.computed.nodes() if node.op in READ_ANYWHERE]
        reads = [(node, node.shape) for node in aligned_inputs(self.computed)]
        reads += [(node.inputs[0], (node if node.op == "take" else node.inputs[0]).shape) for node in anywhere]
        return bytes_of_reads(self.computed, reads)

    @cached_property
    def warp_instructions(self) -> int:
        """Of the functions, which a thread computes for each of its elements, also those of a value that many share.

        Loads of elements that lie apart in memory count as the instructions that could be issued while they wait, and
        exact instructions as less than those of results that are rounded.
        """
        shape, fast = value_of(self.computed.outputs[0]).shape, is_fast(self.graph)
        if isinstance(self.kernel, PlacedKernel | LanesKernel):
            count = self.kernel.instructions
        else:
            each = [node for node in self.computed.nodes() if node.is_pointwise and node.shape[-1:] == shape[-1:]]
            count = usual_instructions(each, fast=fast)
        issued = count * (1 if fast else WHERE_ROUNDED) + self._lines_apart * ISSUED_AT_ONCE
        return int(math.prod(shape) * issued / 32)

    @property
    def _lines_apart(self) -> float:
        """Of L1 that a warp asks for beside those of whole vectors, for each 32 elements of the result."""
        has_tiles = self.kernel.has_tiles and not isinstance(self.kernel, PlacedKernel | LanesKernel)
        if has_tiles and not self.kernel.pairs:
            return 0
        vector = self.configurations()[0].vector
        read = self.kernel.scattered * LINES_OF_A_READ if isinstance(self.kernel, PlacedKernel) else 0
        lines = [min(32.0, 32 * step * vector / LINE_BYTES) for step in self._steps_apart]
        shared = READS_OF_PAIRS if has_tiles else self._vectors_below
        return read + sum(lines) / shared

    @property
    def _vectors_below(self) -> int:
        """Vectors of a thread that share their loads, as they lie below each other; 1 of a kernel that has none."""
        shape, vectors = value_of(self.computed.outputs[0]).shape, self.configurations()[0].vectors
        shares = isinstance(self.kernel, PlacedKernel) and self.kernel.pairs and len(shape) > 1
        return vectors if shares and shape[-2] % vectors == 0 else 1

    @cached_property
    def _steps_apart(self) -> list[int]:
        """Bytes between neighbours, of inputs whose neighbours along the last dimension lie apart."""
        nodes = [each.node for each in self.kernel.inputs if each.node.shape[-1:] != (1,) and each.node.shape]
        return [ITEM_BYTES[node.dtype] * Input.of(node).stride[-1] for node in nodes if Input.of(node).stride[-1] > 1]

    def configurations(self, arch: str = "sm_90a") -> list[ElementwiseConfiguration]:
        """Threads a block, elements a vector and vectors a thread, the best guess first."""
        sizes = [ITEM_BYTES[node.dtype] for node in self._full_size_nodes()]
        widest = min(VECTOR_BYTES // min(sizes), 2 * VECTOR_BYTES // max(sizes))
        guesses = [ElementwiseConfiguration(threads, widest, vectors) for threads, vectors in GUESSES]
        apart = self.kernel.reads_apart if isinstance(self.kernel, PlacedKernel) else 0
        if isinstance(self.kernel, PlacedKernel) and self._steps_apart and not apart:
            return [*(ElementwiseConfiguration(128, 1, vectors) for vectors in (4, 2, 1)), *guesses]
        if apart:
            guesses.sort(key=lambda guess: (guess.threads, guess.vectors) != OF_ELEMENTS_APART)
        if self._has_few_blocks(guesses[0]) or self._is_tested or widest * max(sizes) > VECTOR_BYTES:
            guesses.sort(key=lambda c: c.vectors)
        if max(sizes) > min(sizes):
            narrow = VECTOR_BYTES // max(sizes)
            guesses += [ElementwiseConfiguration(256, narrow, vectors) for vectors in (2, 4)]
        if any(node.op in LONG_CODE and node.dtype == "float64" for node in self.graph.nodes()):
            return [ElementwiseConfiguration(128, 1, 1), *guesses]
        return guesses

    @property
    def _is_tested(self) -> bool:
        """Whether more than a few reads of vectors wait for tests."""
        return isinstance(self.kernel, PlacedKernel) and self.kernel.neighbours > MOST_TESTED

    def _has_few_blocks(self, configuration: ElementwiseConfiguration) -> bool:
        """Whether multiprocessors have one block at most."""
        (tile,) = self.tiling(configuration).tile
        return self.tiled_shape().sizes[0] < FEW_BLOCKS * tile

    def why(self, configuration: ElementwiseConfiguration) -> str:
        """What decided about vectors: the bytes of an access, elements that lie apart, few blocks."""
        c, (count,) = configuration, self.tiled_shape().sizes
        sizes = [ITEM_BYTES[node.dtype] for node in self._full_size_nodes()]
        accesses = sorted({c.vector * size for size in (min(sizes), max(sizes))})
        told = f"A vector is {c.vector} elements, {' to '.join(map(str, accesses))} bytes of a tensor."
        if accesses[-1] > VECTOR_BYTES:
            told += f" The widest tensor takes {accesses[-1] // VECTOR_BYTES} accesses for it, so that few are best."
        if isinstance(self.kernel, PlacedKernel) and self.kernel.reads_apart:
            told += f" {self.kernel.reads_apart} reads of an element go to places apart, which L1 serves one by one."
        if isinstance(self.kernel, PlacedKernel) and self._is_tested:
            told += f" {self.kernel.neighbours} reads of vectors wait for a test each, so that few are best."
        loads = f"{c.vectors} of them before the first is used" if c.vectors > 1 else "one"
        (tile,) = self.tiling(c).tile
        told += f" A thread loads {loads}: {count} elements are {math.ceil(count / tile)} blocks of {c.threads} threads"
        return f"{told}, {'fewer' if self._has_few_blocks(c) else 'more'} than {FEW_BLOCKS} multiprocessors."

    def tiled_shape(self) -> TiledShape:
        """All elements in one dimension, whose edge is guarded."""
        sizes = [ITEM_BYTES[node.dtype] for node in self._full_size_nodes()]
        return TiledShape(sizes=(math.prod(value_of(self.computed.outputs[0]).shape),), element_bytes=min(sizes))

    def tiling(self, configuration: ElementwiseConfiguration) -> Tiling:
        """Vectors of neighbouring elements over the threads of a block."""
        c = configuration
        tile = (c.threads * c.vector * c.vectors,)
        return Tiling(threads=c.threads, tile=tile, vector=c.vector, settings=c.to_dict())

    def _full_size_nodes(self) -> list[Node]:
        shape = value_of(self.computed.outputs[0]).shape
        inputs = [node for node in self.computed.nodes() if node.op == "input" and node.shape == shape]
        return [*inputs, *self.computed.outputs]

    def render(self, configuration: ElementwiseConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        types = first_checks(self.kernel.arguments, self.graph, self.kernel.whole)
        template = TEMPLATES[type(self.kernel)]
        context = {**vars(self.kernel), "c": configuration, "first_checks": types}
        return render_template(f"{template}.py.j2", context)


def match(graph: Graph) -> ElementwisePlan:
    """A plan for `graph`, or UnmatchedError naming the first operation that is not pointwise."""
    graph = with_takes(graph)
    for node in graph.nodes():
        reshaped_output = node.op == "reshape" and any(node is output for output in graph.outputs)
        taken = node.op in READ_ANYWHERE and node.inputs[0].op == "input"
        if not (node.is_pointwise or node.op in LEAVES or reshaped_output or taken):
            raise UnmatchedError(f"{node.where} ({node.op}) is not element-wise", operation=node.where)
    shapes = [value_of(node).shape for node in graph.outputs]
    if len(set(shapes)) > 1:
        raise UnmatchedError(f"the outputs have different shapes: {', '.join(map(str, shapes))}", operation="outputs")
    if not has_places(graph):
        return ElementwisePlan(graph, ElementwiseWriter(graph).kernel())
    if lanes := laned(graph):
        return ElementwisePlan(graph, LanesWriter(lanes).kernel())
    if slices := sliced(graph):
        return ElementwisePlan(graph, SlicesWriter(slices).kernel(), slices.apart)
    return ElementwisePlan(graph, PlacedWriter(graph).kernel())
