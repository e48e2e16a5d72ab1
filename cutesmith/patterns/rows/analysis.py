"""What a graph of row reductions is made of: rows and columns, the tensors' roles, and the order of the reductions.

Every reduction must run over the same trailing dimensions. Those are the columns; the leading dimensions are the rows.
A value is an *element* when it changes along the columns, else a *row value* (one a row).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import Attributes, Gather, Graph, Input, Iota, Node, Reduction, nodes_of, with_nodes

Space = str
"""`full`: the node's shape aligns with rows + columns; `row`: with the rows alone (after a keepdim was dropped)."""


@dataclass(frozen=True)
class Degrees(Attributes):
    """What a sum of squared deviations is divided by: the row's length less the correction, at least 0."""

    correction: float


@dataclass(eq=False)
class TensorUse:
    """One argument tensor in one role: `element` (rows x columns), `column` (a value a column) or `row` (one a row)."""

    node: Node
    space: Space
    role: str
    name: str = ""


@dataclass(eq=False)
class RowsAnalysis:
    """Roles and levels of a matched graph; `rank` counts row and column dimensions, `columns_rank` only columns."""

    graph: Graph
    outputs: tuple[Node, ...]
    rank: int
    columns_rank: int
    shape: tuple[int, ...]
    levels: dict[int, int] = field(default_factory=dict)
    uses: list[TensorUse] = field(default_factory=list)
    reductions: list[list[Node]] = field(default_factory=list)  # by level, first level first
    partners: dict[int, Node] = field(default_factory=dict)  # second half of a fused pair -> its first half

    @property
    def rows_rank(self) -> int:
        """How many leading dimensions are rows."""
        return self.rank - self.columns_rank

    @property
    def trailing(self) -> str:
        """The columns as messages and titles name them."""
        return "the last dimension" if self.columns_rank == 1 else f"the last {self.columns_rank} dimensions"

    @property
    def rows_shape(self) -> tuple[int, ...]:
        """The leading dimensions, in the traced shapes."""
        return self.shape[: self.rows_rank]

    @property
    def columns_shape(self) -> tuple[int, ...]:
        """The trailing dimensions, in the traced shapes."""
        return self.shape[self.rows_rank :]

    @property
    def rows(self) -> int:
        """Number of rows in the traced shapes."""
        return math.prod(self.rows_shape)

    @property
    def columns(self) -> int:
        """Number of columns in the traced shapes."""
        return math.prod(self.columns_shape)

    def child_space(self, node: Node, child: Node, space: Space) -> Space:
        """The space in which `node` (itself in `space`) reads `child`."""
        if node.is_reduction or node.op == "gather":
            return "full"
        if node.op == "reshape":
            if space == "full" and not self._stays_a_row_value(node):
                raise UnmatchedError(f"{node.where} lays values of rows along the columns", operation=node.where)
            if len(child.shape) == self.rank and self.is_row_shape(child.shape):
                return "full"
            if child.shape == self.rows_shape:
                return "row"
            raise UnmatchedError(f"{node.where} reshapes a value that changes along the row", operation="reshape")
        return space

    def _stays_a_row_value(self, node: Node) -> bool:
        """Whether a reshape of values of rows changes along no column, or is an output, which is not read again."""
        columns = node.shape[max(0, len(node.shape) - self.columns_rank) :]
        return all(size == 1 for size in columns) or any(node is output for output in self.outputs)

    def is_row_shape(self, shape: Sequence[int]) -> bool:
        """Whether a shape of full rank has size 1 in every column dimension."""
        return all(size == 1 for size in shape[self.rows_rank :])

    def is_element(self, node: Node, space: Space) -> bool:
        """Whether the node's value changes along the columns."""
        if space == "row" or node.is_reduction or node.op in ("gather", "constant", "sized", "scalar", "reshape"):
            return False
        if node.op == "input":
            if self.columns == 1 and len(node.shape) == self.rank:
                return True  # one column in the traced shapes says nothing of other shapes
            return any(size != 1 for size in node.shape[max(0, len(node.shape) - self.columns_rank) :])
        if node.op == "iota":
            return Iota.of(node).dim - len(node.shape) >= -self.columns_rank
        return any(self.is_element(child, space) for child in node.inputs)

    def level(self, node: Node) -> int:
        """How many rounds of reductions must have finished before the node can be computed."""
        if id(node) in self.partners:
            return self.level(self.partners[id(node)])
        if id(node) not in self.levels:
            below = max((self.level(child) for child in node.inputs), default=0)
            self.levels[id(node)] = below + (1 if node.is_reduction else 0)
        return self.levels[id(node)]


def analyse(graph: Graph) -> RowsAnalysis:
    """Roles and levels of `graph`, or UnmatchedError naming the first operation that row reductions cannot take."""
    outputs = _lower_variances(graph)
    nodes = list(nodes_of(outputs))
    reductions = [node for node in nodes if node.is_reduction]
    if not reductions:
        raise UnmatchedError("no reduction in the graph", operation="")
    rank, columns_rank = _extent(reductions)
    shape = _full_shape(nodes, rank)
    analysis = RowsAnalysis(graph, outputs, rank, columns_rank, shape)
    _check_reductions(analysis, reductions)
    analysis.partners = _fused_pairs(reductions)
    _collect(analysis)
    return analysis


def _fused_pairs(reductions: Sequence[Node]) -> dict[int, Node]:
    """Pairs that one visit to the row can compute: max(a) with sum(exp(a - max)), mean(a) with sum((a - mean)^2)."""
    pairs: dict[int, Node] = {}
    taken: set[int] = set()
    for node in reductions:
        first = _first_half(node)
        if first is not None and id(first) not in taken and first.dtype != "float64":
            pairs[id(node)] = first
            taken.add(id(first))
    return pairs


def _first_half(node: Node) -> Node | None:
    if node.op != "sum":
        return None
    (x,) = node.inputs
    if x.op == "exp" and x.inputs[0].op == "sub":
        value, first = x.inputs[0].inputs
        wanted = "max"
    elif x.op == "mul" and x.inputs[0] is x.inputs[1] and x.inputs[0].op == "sub":
        value, first = x.inputs[0].inputs
        wanted = "mean"
    else:
        return None
    fits = first.op == wanted and first.inputs[0] is value and compute_dtype(value.dtype) == "float32"
    return first if fits else None


def _lower_variances(graph: Graph) -> tuple[Node, ...]:
    """var(x) as sum((x - mean)^2) / (N - correction): two rounds, exact for rows with a large common offset."""
    means: dict[tuple[int, tuple[int, ...]], Node] = {}

    def lowered(node: Node) -> Node:
        if node.op == "mean":
            return means.setdefault((id(node.inputs[0]), Reduction.of(node).dims), node)
        return _variance(node, means) if node.op == "var" else node

    return with_nodes(graph, lowered).outputs


def _variance(node: Node, means: dict[tuple[int, tuple[int, ...]], Node]) -> Node:
    (x,) = node.inputs
    dims, dtype, correction = Reduction.of(node).dims, node.dtype, Reduction.of(node).correction
    over = Reduction(dims)
    mean = means.setdefault((id(x), dims), Node("mean", (x,), node.shape, dtype, over, node.origin))
    centred = Node("sub", (x, mean), x.shape, dtype, origin=node.origin)
    square = Node("mul", (centred, centred), x.shape, dtype, origin=node.origin)
    total = Node("sum", (square,), node.shape, dtype, over, node.origin)
    return Node("degrees", (total,), node.shape, dtype, Degrees(correction), node.origin)


def _extent(reductions: Sequence[Node]) -> tuple[int, int]:
    """(rank, number of trailing column dimensions) that the first reduction asks for."""
    first = reductions[0]
    shape = first.inputs[0].shape
    given = Reduction.of(first).dims
    dims = [d for d in given if shape[d] != 1] or [max(given, default=len(shape) - 1)]
    return len(shape), len(shape) - min(dims)


def _full_shape(nodes: Sequence[Node], rank: int) -> tuple[int, ...]:
    shape = [1] * rank
    for node in nodes:
        if len(node.shape) == rank and not node.is_reduction and node.op != "reshape":
            for axis, size in enumerate(node.shape):
                shape[axis] = size if shape[axis] == 1 else shape[axis]
    return tuple(shape)


def _check_reductions(analysis: RowsAnalysis, reductions: Sequence[Node]) -> None:
    for node in reductions:
        shape = node.inputs[0].shape
        if len(shape) != analysis.rank:
            raise UnmatchedError(f"{node.where} reduces a value that is already reduced", operation=node.op)
        wanted = {d for d in range(analysis.rows_rank, analysis.rank) if shape[d] != 1}
        given = {d for d in Reduction.of(node).dims if shape[d] != 1}
        if given != wanted:
            trailing = analysis.trailing
            reduced = f"{node.where} reduces dimensions {sorted(Reduction.of(node).dims)}"
            raise UnmatchedError(f"{reduced}, the pattern takes {trailing} of {shape}", operation=node.op)
        if analysis.columns != 1 and not wanted:
            raise UnmatchedError(f"{node.where} reduces a value that is already reduced", operation=node.op)


def _collect(analysis: RowsAnalysis) -> None:
    """Fill `uses` and `reductions` by walking down from the outputs in their spaces."""
    seen: set[tuple[int, Space]] = set()
    stack = [(_walked_from(analysis, node), output_space(analysis, node)) for node in reversed(analysis.outputs)]
    found: dict[int, Node] = {}
    while stack:
        node, space = stack.pop()
        if (id(node), space) in seen:
            continue
        seen.add((id(node), space))
        _check_node(analysis, node, space)
        if node.op == "input":
            analysis.uses.append(TensorUse(node, space, _role(analysis, node, space)))
        if node.is_reduction:
            found[id(node)] = node
        stack.extend((child, analysis.child_space(node, child, space)) for child in reversed(node.inputs))
    depth = max(analysis.level(node) for node in found.values())
    analysis.reductions = [[] for _ in range(depth)]
    for node in nodes_of(analysis.outputs):
        if id(node) in found:
            analysis.reductions[analysis.level(node) - 1].append(node)
    analysis.uses.sort(key=lambda use: (Input.of(use.node).index, use.role))


def _walked_from(analysis: RowsAnalysis, node: Node) -> Node:
    """An output that is reshaped at the very end, as group_norm's, is walked from the rows and columns inside."""
    reshaped = node.op == "reshape" and node.inputs[0].shape == analysis.shape
    return node.inputs[0] if reshaped and not analysis.is_row_shape(analysis.shape) else node


def output_space(analysis: RowsAnalysis, node: Node) -> Space:
    """An output that lost its reduced dimensions lives in the row space, every other one in the full space."""
    if node.shape == analysis.rows_shape and len(node.shape) != analysis.rank and _drops_columns(analysis, node):
        return "row"
    return "full"


def _drops_columns(analysis: RowsAnalysis, node: Node) -> bool:
    if node.op == "reshape":
        return True
    return node.is_pointwise and any(_drops_columns(analysis, child) for child in node.inputs)


def _check_node(analysis: RowsAnalysis, node: Node, space: Space) -> None:
    limit = analysis.rank if space == "full" else analysis.rows_rank
    frame = analysis.shape if space == "full" else analysis.rows_shape
    if node.op == "reshape":
        return
    aligned = zip(reversed(node.shape), reversed(frame), strict=False)
    if len(node.shape) > limit or any(size not in (1, full) for size, full in aligned):
        where = f"{node.where} has shape {node.shape}"
        raise UnmatchedError(f"{where}, which does not align with rows of {frame}", operation=node.op)
    if node.op == "gather" and (analysis.columns_rank != 1 or Gather.of(node).dim != analysis.rank - 1):
        raise UnmatchedError(f"{node.where} gathers along another dimension than the last", operation="gather")


def _role(analysis: RowsAnalysis, node: Node, space: Space) -> str:
    if not analysis.is_element(node, space):
        return "row"
    leading = node.shape[: max(0, len(node.shape) - analysis.columns_rank)]
    trailing = node.shape[len(leading) :]
    is_column = all(size == 1 for size in leading) and trailing == analysis.columns_shape
    return "column" if is_column and analysis.rows != 1 else "element"
