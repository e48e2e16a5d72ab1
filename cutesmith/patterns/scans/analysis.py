"""What a scan is: its dimension and operation, and the pointwise functions before and after it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.epilogue import Epilogue, FunctionWriter, Given, Operand
from cutesmith.patterns.graph.attributes import Scan
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape, covers
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.naming import safe_names


@dataclass(frozen=True)
class ScanProblem:
    """One scan, perhaps with the places of its extremes, and pointwise work; sizes are the traced ones.

    `element` is the function of the tensors that gives what is scanned, `epilogue` that of what the scan gives.
    """

    graph: Graph
    arguments: tuple[str, ...]
    scans: tuple[Node, ...]
    element: Epilogue
    epilogue: Epilogue

    @property
    def scan(self) -> Scan:
        """The scan of the values, or of their places where nothing reads the values."""
        return Scan.of(self.scans[0])

    @property
    def shape(self) -> Shape:
        """Of the result."""
        return self.scans[0].shape

    @property
    def scanned_shape(self) -> Shape:
        """Of what is scanned; an exclusive scan may give one element more."""
        return self.scans[0].inputs[0].shape

    @property
    def loaded(self) -> tuple[Operand, ...]:
        """What the kernel reads: for the elements first."""
        return self.element.operands + tuple(o for o in self.epilogue.operands if o not in self.element.operands)

    @property
    def shaping(self) -> tuple[Operand, ...]:
        """Those that have the shape of what is scanned together."""
        return self.element.operands if self.is_longer else self.loaded

    @property
    def is_longer(self) -> bool:
        """Whether the result has one element more than what is scanned."""
        return self.shape != self.scanned_shape

    @property
    def operation(self) -> str:
        """sum, prod, logsumexp, max or min."""
        return self.scan.operation.removeprefix("arg")

    @property
    def is_placed(self) -> bool:
        """Whether the places of the extremes are wanted too."""
        return any(Scan.of(node).operation.startswith("arg") for node in self.scans)

    @property
    def is_linear(self) -> bool:
        """Whether it is a recurrence h[t] = factor[t] * h[t - 1] + term[t]."""
        return self.operation == "linear"

    @property
    def is_exponential(self) -> bool:
        """Whether a state is a largest exponent, and a sum of exponentials beside it."""
        return self.operation == "logsumexp"

    @property
    def companion(self) -> str:
        """DSL type of what goes with a value: a place, a product of factors, a sum of exponentials; "" for nothing."""
        return "Int32" if self.is_placed else self.state if self.is_linear or self.is_exponential else ""

    @cached_property
    def dtype(self) -> str:
        """That of the values that are combined."""
        values = [node for node in self.scans if not Scan.of(node).operation.startswith("arg")]
        return values[0].dtype if values else self.scans[0].inputs[0].dtype

    @property
    def state(self) -> str:
        """DSL type in which values are combined."""
        return COMPUTE_TYPE[self.dtype]


def analyse(graph: Graph, reserved: Collection[str]) -> ScanProblem:
    """The problem of a graph with one scan and pointwise work, or UnmatchedError naming the first node in the way.

    `reserved` are the names that the template binds.
    """
    scans = [node for node in graph.nodes() if node.op == "scan"]
    if not scans:
        raise UnmatchedError("no scan in the graph", operation="")
    _check_alike(scans)
    scan = scans[0]
    before = set(map(id, nodes_of(scan.inputs)))
    for node in graph.nodes():
        _check(node, scan.inputs[0].shape if id(node) in before else scan.shape)
    for output in graph.outputs:
        if output.shape != scan.shape:
            raise UnmatchedError(f"{output.where} has another shape than the scan", operation=output.where)
    names = safe_names([argument.name for argument in graph.arguments], reserved)
    coordinates = {dim - len(scan.shape): f"at_{dim}" for dim in range(len(scan.shape))}
    writer = FunctionWriter(names, reserved, len(scan.shape), coordinates, fast=is_fast(graph))
    element = writer.function(scan.inputs, {})
    given = {id(node): _given(node) for node in scans}
    problem = ScanProblem(graph, tuple(names), tuple(scans), element, writer.epilogue(graph.outputs, given))
    if not problem.shaping:
        raise UnmatchedError(f"{scan.where} scans what depends on no input", operation=scan.where)
    if not covers([operand.shape for operand in problem.shaping], problem.scanned_shape):
        raise UnmatchedError(f"{scan.where} scans what is expanded along a dimension", operation=scan.where)
    return problem


def _given(node: Node) -> Given:
    return Given.of(node, "place" if Scan.of(node).operation.startswith("arg") else "acc")


def _check_alike(scans: list[Node]) -> None:
    """Whether one pass makes all of them: an extreme and its place."""
    first, *others = scans
    for other in others:
        a, b = Scan.of(first), Scan.of(other)
        same = (a.dim, a.reverse, a.operation.removeprefix("arg")) == (
            b.dim,
            b.reverse,
            b.operation.removeprefix("arg"),
        )
        if first.inputs != other.inputs or not same or a.exclusive or b.exclusive:
            raise UnmatchedError(f"{other.where} is another scan than {first.where}", operation=other.where)


def _check(node: Node, frame: Shape) -> None:
    """Whether a node is pointwise work in the shape of what is scanned, or of the result."""
    if node.op == "scan" and Scan.of(node).window:
        raise UnmatchedError(f"{node.where} scans a window", operation=node.where)
    if not (node.is_pointwise or node.op in LEAVES or node.op == "scan"):
        raise UnmatchedError(f"{node.where} ({node.op}) is not pointwise work beside a scan", operation=node.where)
    aligned = zip(reversed(node.shape), reversed(frame), strict=False)
    if len(node.shape) > len(frame) or any(size not in (1, full) for size, full in aligned):
        where = f"{node.where} has shape {node.shape}"
        raise UnmatchedError(f"{where}, which does not align with {frame}", operation=node.where)
