"""What a graph of reductions is made of: rows and columns, the tensors' roles, and the order of the reductions.

Every reduction must run over the same dimensions, whichever they are. Those are the columns; the dimensions that are
kept are the rows. Where each lies in memory decides which kernel is written, not what is computed. A value is an
*element* when it changes along the columns, else a *row value* (one a row).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Gather, Input, Iota, Reduction
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.rows.slices import slice_of
from cutesmith.patterns.rows.variances import with_lowered_variances

Space = str
"""`full`: the node's shape aligns with all dimensions; `row`: with the rows alone (after a keepdim was dropped)."""


FIRST_HALVES = ("max", "mean")
"""Reductions with which another one is fused: a maximum with a sum of exponentials, a mean with squared deviations."""


@dataclass(eq=False)
class TensorUse:
    """One argument tensor in one role: `element` (rows x columns), `column` (a value a column) or `row` (one a row)."""

    node: Node
    space: Space
    role: str
    name: str = ""


@dataclass(eq=False)
class RowsAnalysis:
    """Roles and levels of a matched graph whose dimensions are rows, but for the `reduced` ones, which are columns."""

    graph: Graph
    outputs: tuple[Node, ...]
    shape: tuple[int, ...]
    reduced: tuple[int, ...]
    levels: dict[int, int] = field(default_factory=dict)
    uses: list[TensorUse] = field(default_factory=list)
    reductions: list[list[Node]] = field(default_factory=list)  # by level, first level first
    partners: dict[int, Node] = field(default_factory=dict)  # second half of a fused pair -> its first half
    slices: int = 1  # of a row, side by side: the columns are those of one

    @property
    def rank(self) -> int:
        """How many dimensions there are."""
        return len(self.shape)

    @property
    def kept(self) -> tuple[int, ...]:
        """The dimensions that are rows."""
        return tuple(dim for dim in range(self.rank) if dim not in self.reduced)

    @property
    def sharing(self) -> tuple[int, ...]:
        """The dimensions that are rows, those last along which rows read the same of tensors that are broadcast.

        As they are where the columns are not the last dimensions.
        """
        if not self.is_trailing:
            return self.kept
        uses = [use.node for use in self.uses if use.role == "element" and use.space == "full"]
        stretched = [[dim for dim in self.kept if self.sizes(node.shape, (dim,)) == (1,)] for node in uses]
        one_row = [dim for dim in self.kept if self.shape[dim] == 1]
        shared = set(self.kept).intersection(*(dims for dims in stretched if len(dims) > len(one_row)))
        return (*(dim for dim in self.kept if dim not in shared), *(dim for dim in self.kept if dim in shared))

    @property
    def rows_rank(self) -> int:
        """How many dimensions are rows."""
        return len(self.kept)

    @property
    def is_trailing(self) -> bool:
        """Whether the columns are the last dimensions."""
        return self.reduced == tuple(range(self.rows_rank, self.rank))

    @property
    def over(self) -> str:
        """The columns as messages and titles name them."""
        if self.is_trailing:
            return "the last dimension" if len(self.reduced) == 1 else f"the last {len(self.reduced)} dimensions"
        return f"dimension{'s' if len(self.reduced) > 1 else ''} {', '.join(map(str, self.reduced))}"

    @property
    def rows_shape(self) -> tuple[int, ...]:
        """The dimensions that are kept, in the traced shapes."""
        return tuple(self.shape[dim] for dim in self.kept)

    @property
    def columns_shape(self) -> tuple[int, ...]:
        """The dimensions that are reduced, in the traced shapes."""
        return tuple(self.shape[dim] for dim in self.reduced)

    @property
    def rows(self) -> int:
        """Number of rows in the traced shapes."""
        return math.prod(self.rows_shape)

    @property
    def row_code(self) -> str:
        """Code of a row's number of elements: of the columns of all slices."""
        return "plan.columns" if self.slices == 1 else f"(plan.columns * {self.slices})"

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
        return self.is_row_shape(node.shape) or any(node is output for output in self.outputs)

    @property
    def partial_sums(self) -> list[Node]:
        """The outputs that are sums over groups of rows."""
        return [node for node in self.outputs if node.op == "partial_sums"]

    def is_row_shape(self, shape: Sequence[int]) -> bool:
        """Whether a shape has size 1 in every column dimension that it has."""
        return all(size == 1 for size in self.sizes(shape, self.reduced))

    def sizes(self, shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
        """The sizes of a right-aligned shape in these dimensions; 1 where it does not reach."""
        aligned = (1,) * (self.rank - len(shape)) + tuple(shape)[-self.rank :]
        return tuple(aligned[dim] for dim in dims)

    def vector(self, most: int) -> int:
        """How many columns an access may cover in every dense tensor, up to `most`, a power of two."""
        return math.gcd(self.columns, most, *(self.run_of(use) or self.columns for use in self.uses))

    def run_of(self, use: TensorUse) -> int | None:
        """How many columns side by side have one value of a tensor that is expanded along them; None of another."""
        sizes, columns = self.sizes(use.node.shape, self.reduced), self.columns_shape
        kept = [place for place, size in enumerate(columns) if size > 1]
        if use.role not in ("element", "column") or not kept or sizes[kept[-1]] > 1:
            return None
        last = max((place for place in kept if sizes[place] > 1), default=-1)  # -1: it has no elements
        return math.prod(columns[last + 1 :])

    def is_element(self, node: Node, space: Space) -> bool:
        """Whether the node's value changes along the columns."""
        if space == "row" or node.is_reduction or node.op in ("gather", "constant", "sized", "scalar", "reshape"):
            return False
        if node.op == "input":
            if self.columns == 1 and len(node.shape) == self.rank:
                return True  # one column in the traced shapes says nothing of other shapes
            return not self.is_row_shape(node.shape)
        if node.op == "iota":
            return Iota.of(node).dim + self.rank - len(node.shape) in self.reduced
        return any(self.is_element(child, space) for child in node.inputs)

    def level(self, node: Node) -> int:
        """How many rounds of reductions must have finished before the node can be computed."""
        if id(node) in self.partners:
            return self.level(self.partners[id(node)])
        if id(node) not in self.levels:
            below = max((self.level(child) for child in node.inputs), default=0)
            self.levels[id(node)] = below + (1 if node.is_reduction else 0)
        return self.levels[id(node)]


def analyse(graph: Graph, slices: int = 1, among: Sequence[str] = FIRST_HALVES) -> RowsAnalysis:
    """Roles and levels of `graph`, whose rows have so many slices; fused pairs are those that begin with `among`.

    Raises UnmatchedError naming the first operation that row reductions cannot take.
    """
    outputs = with_lowered_variances(graph).outputs
    nodes = list(nodes_of(outputs))
    reductions = [node for node in nodes if node.is_reduction]
    if not reductions:
        raise UnmatchedError("no reduction in the graph", operation="")
    first = reductions[0]
    shape = _full_shape(nodes, len(first.inputs[0].shape))
    analysis = RowsAnalysis(graph, outputs, shape, Reduction.of(first).dims, slices=slices)
    _check_reductions(analysis, reductions)
    analysis.partners = _fused_pairs(reductions, among)
    _collect(analysis)
    _check_inputs(analysis)
    return analysis


def _check_inputs(analysis: RowsAnalysis) -> None:
    """The sizes of the rows and columns are those of what the kernel reads."""
    shapes = [use.node.shape for use in analysis.uses if use.space == "full"]
    read = broadcast(shapes)
    if not shapes or (1,) * (len(analysis.shape) - len(read)) + read != analysis.shape:
        raise UnmatchedError(f"no input has the sizes {analysis.shape} of what is reduced", operation="")


def _fused_pairs(reductions: Sequence[Node], among: Sequence[str]) -> dict[int, Node]:
    """Pairs that one visit to the row can compute: max(a) with sum(exp(a - max)), mean(a) with sum((a - mean)^2)."""
    pairs: dict[int, Node] = {}
    taken: set[int] = set()
    for node in reductions:
        first = _first_half(node)
        if first is not None and first.op in among and id(first) not in taken and first.dtype != "float64":
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


def _full_shape(nodes: Sequence[Node], rank: int) -> tuple[int, ...]:
    shape = [1] * rank
    for node in nodes:
        if len(node.shape) == rank and not node.is_reduction and node.op not in ("reshape", "partial_sums"):
            for axis, size in enumerate(node.shape):
                shape[axis] = size if shape[axis] == 1 else shape[axis]
    return tuple(shape)


def _check_reductions(analysis: RowsAnalysis, reductions: Sequence[Node]) -> None:
    for node in reductions:
        shape = node.inputs[0].shape
        if len(shape) != analysis.rank:
            raise UnmatchedError(f"{node.where} reduces a value that is already reduced", operation=node.op)
        wanted = {d for d in analysis.reduced if shape[d] != 1}
        given = {d for d in Reduction.of(node).dims if shape[d] != 1}
        if given != wanted:
            others = f"others reduce {analysis.over} of {shape}"
            reduced = f"{node.where} reduces dimensions {sorted(Reduction.of(node).dims)}"
            raise UnmatchedError(f"{reduced}, {others}", operation=node.op)
        if wanted and any(shape[d] == 1 != analysis.shape[d] for d in analysis.reduced):
            wrong = f"{node.where} reduces {shape}, others all of {analysis.columns_shape}"
            raise UnmatchedError(wrong, operation=node.op)
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
    analysis.uses.sort(key=lambda use: (Input.of(use.node).index, use.role, slice_of(use.node)))


def _walked_from(analysis: RowsAnalysis, node: Node) -> Node:
    """An output that is reshaped at the very end, as group_norm's, is walked from the rows and columns inside.

    So are sums over rows.
    """
    if node.op == "partial_sums":
        return node.inputs[0]
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
    if node.op == "gather" and (Gather.of(node).dim,) != analysis.reduced:
        raise UnmatchedError(f"{node.where} gathers along another dimension than {analysis.over}", operation="gather")


def _role(analysis: RowsAnalysis, node: Node, space: Space) -> str:
    if not analysis.is_element(node, space):
        return "row"
    one_row = all(size == 1 for size in analysis.sizes(node.shape, analysis.kept))
    is_column = one_row and analysis.sizes(node.shape, analysis.reduced) == analysis.columns_shape
    return "column" if is_column and analysis.rows != 1 else "element"
