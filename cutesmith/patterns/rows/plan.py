"""The row-reduction pattern: reductions over the last dimension or trailing dimensions, with pointwise work around.

A thread block owns whole rows. Each thread holds vectors of its row in registers, the threads combine their partial
results by shuffles and shared memory, and later stages reuse the registers. Rows too long for that wait in the block's
shared memory, wide ones in that of a cluster of blocks, or are read again by every stage, from L2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cutesmith.devices import parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.nodes import Graph, Node, bytes_of, for_traced_sizes
from cutesmith.patterns.pattern_plan import GraphPlan, bytes_of_reads
from cutesmith.patterns.rows.analysis import FIRST_HALVES, RowsAnalysis, TensorUse, analyse, output_space
from cutesmith.patterns.rows.configuration import RowsConfiguration
from cutesmith.patterns.rows.kernel import RowsKernel, write_kernel
from cutesmith.patterns.rows.moved_sums import with_moved_sums
from cutesmith.patterns.rows.parts import root_of
from cutesmith.patterns.rows.proposals import item_bytes, proposals, why
from cutesmith.patterns.rows.slices import in_slices
from cutesmith.patterns.rows.spread import rows_tiling, spread_row
from cutesmith.patterns.rows.taken import nodes_of_places
from cutesmith.patterns.writing.templating import first_checks, render_template
from cutesmith.runtime.tiling import TiledShape, Tiling

P = TypeVar("P")

LARGE_BYTES = 1 << 22
"""Of a tensor: a smaller one is read from L2, whichever way it lies."""

ROWS_AT_WORK, L2_BYTES = 2 * 132, 50 << 20
"""Of an H200: two blocks for each multiprocessor, and its cache.

The backward pass of a batch norm with ReLU has three visits to 128 rows of 1.6 MB: 150 us, where 616 MB take 145.
"""

_DENSE = {
    "free_layouts": {
        "element": '"element": Layout(((0,), (max(columns, 1),)), ((columns,), (1,)))',
        "column": '"column": Layout(((max(columns, 1),),), ((1,),))',
        "row": '"row": Layout(((0,),), ((1,),))',
        "kept row": '"kept row": Layout(((0,),), ((1,),))',
        "sum": '"sum": Layout(((GROUPS,), (max(columns, 1),)), ((columns,), (1,)))',
    },
    "sliced_layouts": {
        "element": '"element": Layout(((0,), (columns,), (slices,)), ((columns * slices,), (1,), (columns,)))',
        "column": '"column": Layout(((columns,), (slices,)), ((1,), (columns,)))',
        "row": '"row": Layout(((0,),), ((1,),))',
        "kept row": '"kept row": Layout(((0,),), ((1,),))',
    },
    "matrix_shapes": {
        "element": "(rows, columns)",
        "column": "(columns,)",
        "row": "(rows,)",
        "sum": "(GROUPS, columns)",
    },
    "counts": {
        "element": "rows * columns",
        "column": "columns",
        "row": "rows",
        "kept row": "rows",
        "sum": "GROUPS * columns",
    },
}
"""What the template says of a dense tensor in each role: layout for any number of rows, shape, number of elements."""


@dataclass(frozen=True)
class RowsPlan(GraphPlan):
    """A matched graph of row reductions, ready to be rendered in any of its configurations."""

    analysis: RowsAnalysis
    kernel: RowsKernel
    pattern: str = "rows"

    @property
    def algorithmic_bytes(self) -> int:
        """Bytes that must cross device memory once: what is read of arguments, and outputs, in the traced shapes."""
        return bytes_of_uses(self.graph, self.analysis)

    @property
    def repeated_bytes(self) -> int:
        """Of rows that wait in L2 between visits, where those at work at once are more than it has room for."""
        analysis, kept, c = self.analysis, self.kernel.kept_bytes, self.configurations()[0]
        spread = spread_row(analysis.columns, analysis.vector(c.vector), c, kept)
        at_work = min(analysis.rows, ROWS_AT_WORK) * analysis.columns * kept
        if spread.blocks == 1 or spread.shared or at_work <= L2_BYTES:
            return 0
        again = sum(ITEM_BYTES[t.dtype] for stage in self.kernel.stages for t in stage.reload if t.again)
        return analysis.rows * analysis.columns * again

    @property
    def computed(self) -> Graph:
        """That of the slices, where rows have some."""
        return self.analysis.graph

    @property
    def blocks(self) -> float:
        """One for each row, or a cluster."""
        return max(1, self.analysis.rows) * self.configurations()[0].max_cluster

    def configurations(self, arch: str = "sm_90a") -> list[RowsConfiguration]:
        """Ways to spread a row over threads, the best guess first."""
        return proposals(self.analysis, self.kernel.kept_bytes, parse_arch(arch).sm)

    def render(self, configuration: RowsConfiguration) -> str:
        """The kernel section: imports, device functions, kernel, launch, cached compile and `kernel_fn`."""
        types = first_checks(self.kernel.arguments, self.graph, self.kernel.whole or "")
        order = self.analysis.sharing if configuration.neighbours else self.analysis.kept
        context = {**vars(self.kernel), **_DENSE, "kept_dims": order, "c": configuration, "first_checks": types}
        return render_template("rows.py.j2", context)

    def why(self, configuration: RowsConfiguration) -> str:
        """Where a row waits between visits, and for what loads and registers are limited."""
        return why(self.analysis, self.kernel.kept_bytes, len(self.kernel.stages), configuration)

    def tiled_shape(self) -> TiledShape:
        """Rows and columns; every edge is guarded."""
        shape = (self.analysis.rows, self.analysis.columns)
        return TiledShape(sizes=shape, element_bytes=min(item_bytes(self.analysis), default=0))

    def tiling(self, configuration: RowsConfiguration) -> Tiling:
        """How the traced rows are spread over threads."""
        vector = self.analysis.vector(configuration.vector)
        return rows_tiling(self.analysis.columns, vector, configuration, self.kernel.kept_bytes)


def bytes_of_uses(graph: Graph, analysis: RowsAnalysis) -> int:
    """Bytes that must cross device memory once: what is read of arguments, and outputs, in the traced shapes."""
    nodes = {id(use.node): use.node for use in analysis.uses}
    return bytes_of_reads(graph, ((node, node.shape) for node in nodes.values()))


def match(graph: Graph) -> RowsPlan:
    """A plan, or UnmatchedError naming the first operation that is neither a reduction nor pointwise."""
    return for_all_or_traced_sizes(_match, graph)


def for_all_or_traced_sizes(matcher: Callable[[Graph], P], graph: Graph) -> P:
    """A plan for all sizes, or for those traced where a constant follows sizes that the kernel does not know."""
    try:
        return matcher(graph)
    except UnmatchedError as refusal:
        if refusal.operation != "sized":
            raise
        return matcher(for_traced_sizes(graph))


def _match(graph: Graph) -> RowsPlan:
    try:
        analysis = analysed(graph)
        return RowsPlan(graph, analysis, write_kernel(graph, analysis))
    except UnmatchedError:
        sliced = in_slices(graph)
        if sliced is None:
            raise
    analysis = checked(analyse(sliced.computed, sliced.count))
    return RowsPlan(sliced.graph, analysis, write_kernel(sliced.graph, analysis, slices=sliced.outputs))


def analysed(graph: Graph, among: Sequence[str] = FIRST_HALVES) -> RowsAnalysis:
    """Roles and levels of a graph whose outputs are values of elements or of rows, else UnmatchedError.

    Fused pairs of reductions are those that begin with `among`.
    """
    return checked(_of_fewest_visits(graph, among))


def checked(analysis: RowsAnalysis) -> RowsAnalysis:
    """The analysis itself; UnmatchedError where an output is neither of elements nor of rows, or tensors cross."""
    for node in analysis.outputs:
        _check_output(analysis, node)
    _check_directions(analysis)
    return analysis


def _of_fewest_visits(graph: Graph, among: Sequence[str]) -> RowsAnalysis:
    moved = with_moved_sums(graph)
    ways = [graph] if moved is graph else [graph, moved]
    return min((analyse(way, among=among) for way in ways), key=lambda found: len(found.reductions))


def _check_directions(analysis: RowsAnalysis) -> None:
    """All large tensors lie along the rows, or all across them: the threads of a kernel go one of both ways.

    An index of lines is read once for a whole line.
    """
    places = {id(node) for node in nodes_of_places(use.node for use in analysis.uses)}
    uses = [use for use in analysis.uses if use.role == "element" and id(use.node) not in places]
    large = [use for use in uses if bytes_of(use.node) >= LARGE_BYTES]
    if len({_nearest(analysis, use) in analysis.reduced for use in large}) > 1:
        raise UnmatchedError("some tensors lie along what is reduced, some across it", operation="")


def _nearest(analysis: RowsAnalysis, use: TensorUse) -> int:
    """The dimension along which the elements of a tensor lie side by side, the last one where windows overlap."""
    strides, rank = Input.of(use.node).stride, len(use.node.shape)
    dims = [dim for dim, size in enumerate(use.node.shape) if size > 1 and strides[dim]]
    return min(dims, key=lambda dim: (strides[dim], -dim), default=rank - 1) + analysis.rank - rank


def _check_output(analysis: RowsAnalysis, node: Node) -> None:
    if node.op == "partial_sums":
        whole = node.inputs[0].shape == analysis.shape and node.shape[1:] == analysis.columns_shape
        if not (whole and analysis.is_trailing):
            raise UnmatchedError(f"{node.where} goes over other dimensions than the rows", operation=node.op)
        return
    if analysis.is_element(root_of(node), output_space(analysis, node)):
        if math.prod(node.shape) != math.prod(analysis.shape):
            raise UnmatchedError(f"{node.where} returns {node.shape}, rows are {analysis.shape}", operation=node.op)
    elif math.prod(node.shape) != analysis.rows:
        raise UnmatchedError(
            f"{node.where} returns {node.shape}, which is neither a value a row nor a value an element",
            operation=node.op,
        )
