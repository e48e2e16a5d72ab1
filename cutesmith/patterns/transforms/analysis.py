"""What a transform is: its length and form, and the pointwise functions of what is transformed and of the result."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.epilogue import Epilogue, FunctionWriter, Given, Operand
from cutesmith.patterns.graph.attributes import Transform
from cutesmith.patterns.graph.line_lengths import complex_count
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.takes import READ_ANYWHERE
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.naming import Parameter, safe_names


@dataclass(frozen=True)
class TransformProblem:
    """One Fourier transform, one or both of its parts, and pointwise work; sizes are the traced ones.

    `element` is the function of the tensors that gives the parts of a number, `epilogue` that of what is transformed.
    """

    graph: Graph
    arguments: tuple[str, ...]
    node: Node
    element: Epilogue
    epilogue: Epilogue

    @property
    def transform(self) -> Transform:
        """Its length, sign and form."""
        return Transform.of(self.node)

    @property
    def leading(self) -> Shape:
        """The sizes of all dimensions but the last."""
        return self.node.shape[:-1]

    @property
    def given(self) -> int:
        """Numbers of a line that are transformed."""
        return self.node.inputs[0].shape[-1]

    @property
    def wanted(self) -> int:
        """Numbers of a line of the result."""
        return self.node.shape[-1]

    @property
    def in_pairs(self) -> bool:
        """Whether neighbouring real numbers of a line are taken for one complex number."""
        half = self.given // 2 + 1
        return len(self.node.inputs) == 1 and self.given % 2 == 0 and self.wanted == half and not self.is_inverse

    @property
    def of_half(self) -> bool:
        """Whether half a spectrum is given; the results are real, and two of them are one complex number."""
        return self.transform.of_half

    @property
    def stores_pairs(self) -> bool:
        """Whether both results of a number lie side by side."""
        return self.graph.outputs[0].op == "pairs"

    @property
    def count(self) -> int:
        """Complex numbers of a line."""
        return complex_count(self.transform.length, in_pairs=self.in_pairs or self.of_half)

    @property
    def is_inverse(self) -> bool:
        """Whether the sign is positive."""
        return self.transform.sign > 0

    @property
    def loaded(self) -> tuple[Operand, ...]:
        """What the kernel reads: for the elements first."""
        return (*self.element.operands, *self.epilogue.operands)

    @property
    def taken(self) -> tuple[Operand, ...]:
        """What it reads at computed places."""
        return tuple(dict.fromkeys((*self.element.taken, *self.epilogue.taken)))


def analyse(graph: Graph, reserved: Collection[str]) -> TransformProblem:
    """The problem of a graph with one transform and pointwise work, or UnmatchedError naming the first node in the way.

    `reserved` are the names that the template binds.
    """
    parts = [node for node in graph.nodes() if node.op == "transform"]
    if not parts:
        raise UnmatchedError("no transform in the graph", operation="")
    _check_alike(parts)
    node = parts[0]
    in_pairs = [output.op for output in graph.outputs] == ["pairs"]
    results = graph.outputs[0].inputs if in_pairs else graph.outputs
    for output in results:
        if output.shape != node.shape or (in_pairs and Transform.of(node).of_half):
            raise UnmatchedError(f"{output.where} has another shape than the transform", operation=output.where)
    before = set(map(id, nodes_of(node.inputs)))
    for each in nodes_of(results):
        _check(each, node.inputs[0].shape if id(each) in before else node.shape)
    names = safe_names([argument.name for argument in graph.arguments], reserved)
    rank = len(node.shape)
    coordinates = {dim - rank: f"at_{dim}" for dim in range(rank)}
    writer = FunctionWriter(names, reserved, rank, coordinates, fast=is_fast(graph), reads_anywhere=True)
    element = writer.function(node.inputs, {})
    writer.move(coordinates)
    both = {id(each): Given(_part(each), _part(each).name) for each in parts}
    return TransformProblem(graph, tuple(names), node, element, writer.epilogue(results, both))


def _part(node: Node) -> Parameter:
    return Parameter("imag" if Transform.of(node).imag else "real", "Float32")


def _check_alike(parts: list[Node]) -> None:
    """Whether all are parts of one transform."""
    first, *others = parts
    for other in others:
        a, b = Transform.of(first), Transform.of(other)
        if first.inputs != other.inputs or (a.length, a.sign, a.of_half) != (b.length, b.sign, b.of_half):
            raise UnmatchedError(f"{other.where} is another transform than {first.where}", operation=other.where)


def _check(node: Node, frame: Shape) -> None:
    """Whether a node is pointwise work, or read at computed places, in the shape of what is given or of the result."""
    if node.op in (*LEAVES, "transform"):
        return
    is_read = node.op in READ_ANYWHERE and node.inputs[0].op == "input"
    if not (node.is_pointwise or is_read):
        raise UnmatchedError(f"{node.where} ({node.op}) is not pointwise work beside a transform", operation=node.where)
    aligned = zip(reversed(node.shape), reversed(frame), strict=False)
    if len(node.shape) > len(frame) or any(size not in (1, full) for size, full in aligned):
        where = f"{node.where} has shape {node.shape}"
        raise UnmatchedError(f"{where}, which does not align with {frame}", operation=node.where)
