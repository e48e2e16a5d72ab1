"""What a scatter is: its index and what is combined; both forms write their pointwise functions of that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.epilogue import FunctionWriter
from cutesmith.patterns.graph.attributes import Scatter
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape, broadcast
from cutesmith.patterns.graph.takes import READ_ANYWHERE, aligned_inputs, taken_inputs
from cutesmith.patterns.writing.expressions import is_fast


@dataclass(frozen=True)
class Combined:
    """One scatter: what the kernel calls its values, their dtype, and how they are combined."""

    name: str
    dtype: str
    operation: str

    @property
    def state(self) -> str:
        """DSL type that they are combined in."""
        return COMPUTE_TYPE[self.dtype]


@dataclass(frozen=True)
class ScatterProblem:
    """Scatters by one index and pointwise work around them; sizes are the traced ones.

    `frame` is the shape of what is combined. `columns` are the dimensions that the index does not know.
    """

    graph: Graph
    scatters: tuple[Node, ...]
    combined: tuple[Combined, ...]
    frame: Shape
    columns: tuple[int, ...]

    @property
    def dim(self) -> int:
        """Along which the index counts."""
        return Scatter.of(self.scatters[0]).dim

    @property
    def index(self) -> Node:
        """Where each element of the frame counts."""
        return self.scatters[0].inputs[0]

    @property
    def elements(self) -> list[Node]:
        """What each scatter combines."""
        return [node.inputs[1] for node in self.scatters]

    @property
    def coordinates(self) -> dict[int, str]:
        """The names of a place's coordinates, by dimension from the right."""
        return {at - len(self.frame): f"at_{at}" for at in range(len(self.frame))}

    @property
    def shape(self) -> Shape:
        """Of the result."""
        return broadcast([node.shape for node in self.scatters])

    @property
    def lines(self) -> tuple[int, ...]:
        """The dimensions in which the index has elements of its own."""
        return tuple(dim for dim in range(len(self.frame)) if dim not in (self.dim, *self.columns))

    @property
    def is_orderless(self) -> bool:
        """Whether the order does not matter, so that threads may combine at the same time."""
        whole = all(each.state.startswith("Int") for each in self.combined)
        counts = whole and all(each.operation in ("sum", "max", "min") for each in self.combined)
        return not self.columns and (counts or self.is_alone)

    @property
    def is_alone(self) -> bool:
        """Whether a place has at most one element."""
        return Scatter.of(self.scatters[0]).alone


def analyse(graph: Graph) -> ScatterProblem:
    """The problem of a graph with scatters by one index, or UnmatchedError naming the first node in the way."""
    scatters = [node for node in graph.nodes() if node.op == "scatter"]
    if not scatters:
        raise UnmatchedError("no scatter in the graph", operation="")
    _check_alike(scatters)
    index, dim = scatters[0].inputs[0], Scatter.of(scatters[0]).dim
    frame = broadcast([each.shape for node in scatters for each in node.inputs])
    shape = broadcast([node.shape for node in scatters])
    before = set(map(id, nodes_of(tuple(each for node in scatters for each in node.inputs))))
    whole = [source for source in taken_inputs(graph) if not any(source is each for each in aligned_inputs(graph))]
    for node in graph.nodes():
        if node.op != "scatter" and not any(node is each for each in whole):
            _check(node, frame if id(node) in before else shape)
    for output in graph.outputs:
        if output.shape != shape:
            raise UnmatchedError(f"{output.where} has another shape than the scatter", operation=output.where)
    missing = len(frame) - len(index.shape)
    constant = {at for at in range(len(frame)) if at < missing or index.shape[at - missing] == 1 != frame[at]}
    combined = tuple(Combined(f"sum_{at}", node.dtype, Scatter.of(node).operation) for at, node in enumerate(scatters))
    return ScatterProblem(graph, tuple(scatters), combined, frame, tuple(sorted(constant - {dim})))


def function_writer(problem: ScatterProblem, names: Sequence[str], reserved: Collection[str]) -> FunctionWriter:
    """For the functions of a place in the frame; `names` are those of the arguments, `reserved` the template's."""
    fast = is_fast(problem.graph)
    return FunctionWriter(names, reserved, len(problem.frame), problem.coordinates, fast=fast, reads_anywhere=True)


def _check_alike(scatters: list[Node]) -> None:
    """Whether one pass makes all of them."""
    first, *others = scatters
    for other in others:
        a, b = Scatter.of(first).dim, Scatter.of(other).dim
        same = other.inputs[0] is first.inputs[0] and len(other.shape) == len(first.shape)
        if not same or a != b or other.shape[b] != first.shape[a]:
            raise UnmatchedError(f"{other.where} has another index than {first.where}", operation=other.where)
        if not all(1 in sizes or sizes[0] == sizes[1] for sizes in zip(first.shape, other.shape, strict=True)):
            raise UnmatchedError(f"{other.where} has another shape than {first.where}", operation=other.where)


def _check(node: Node, frame: Shape) -> None:
    """Whether a node is pointwise work in the shape of what is combined, or of the result."""
    is_read = node.op in READ_ANYWHERE and node.inputs[0].op == "input"
    if not (node.is_pointwise or node.op in LEAVES or is_read):
        raise UnmatchedError(f"{node.where} ({node.op}) is not pointwise work beside a scatter", operation=node.where)
    aligned = zip(reversed(node.shape), reversed(frame), strict=False)
    if len(node.shape) > len(frame) or any(size not in (1, full) for size, full in aligned):
        where = f"{node.where} has shape {node.shape}"
        raise UnmatchedError(f"{where}, which does not align with {frame}", operation=node.where)
