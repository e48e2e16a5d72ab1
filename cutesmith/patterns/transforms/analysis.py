"""What a transform's kernel computes: a transform, perhaps of other ones, and the pointwise functions around them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.epilogue import Epilogue, FunctionWriter, Given, Operand
from cutesmith.patterns.graph.attributes import Transform
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.takes import READ_ANYWHERE
from cutesmith.patterns.transforms.lines import Line
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.naming import Parameter, safe_names

MOST_SPECTRA = 2
"""Transforms that another one is made of in one launch: each has its own line in shared memory."""


@dataclass(frozen=True)
class TransformProblem:
    """One Fourier transform, one or both of its parts, and pointwise work; sizes are the traced ones.

    `line` is what is transformed at last, `spectra` are the transforms that it is made of in the same launch, and
    `epilogue` is the function of its result.
    """

    graph: Graph
    arguments: tuple[str, ...]
    line: Line
    spectra: tuple[Line, ...]
    epilogue: Epilogue

    @property
    def node(self) -> Node:
        """One part of the last transform."""
        return self.line.node

    @property
    def leading(self) -> Shape:
        """The sizes of all dimensions but the last."""
        return self.node.shape[:-1]

    @property
    def count(self) -> int:
        """Complex numbers of a line."""
        return self.line.count

    @property
    def lines(self) -> tuple[Line, ...]:
        """All that is transformed, in order."""
        return (*self.spectra, self.line)

    @property
    def stores_pairs(self) -> bool:
        """Whether both results of a number lie side by side."""
        return self.graph.outputs[0].op == "pairs"

    @property
    def turns_pairs(self) -> bool:
        """Whether some spectrum is that of a real line whose neighbours are taken for one number."""
        return any(line.in_pairs or line.to_pairs for line in self.lines)

    @property
    def loaded(self) -> tuple[Operand, ...]:
        """What the kernel reads: for the elements of each line in order, then for the epilogue."""
        return (*(o for line in self.lines for o in line.element.operands), *self.epilogue.operands)

    @property
    def functions(self) -> tuple[Epilogue, ...]:
        """Those of the elements of each line, and the epilogue."""
        return (*(line.element for line in self.lines), self.epilogue)

    @property
    def taken(self) -> tuple[Operand, ...]:
        """What it reads at computed places."""
        return tuple(dict.fromkeys(o for each in self.functions for o in each.taken))


def analyse(graph: Graph, reserved: Collection[str]) -> TransformProblem:
    """The problem of a graph of transforms and pointwise work, or UnmatchedError naming the first node in the way.

    `reserved` are the names that the template binds.
    """
    in_pairs = [output.op for output in graph.outputs] == ["pairs"]
    results = graph.outputs[0].inputs if in_pairs else graph.outputs
    last = _nearest(results)
    if not last:
        raise UnmatchedError("no transform in the graph", operation="")
    (parts,) = _wholes(last, 1)
    node = parts[0]
    for output in results:
        if output.shape != node.shape or (in_pairs and Transform.of(node).of_half):
            raise UnmatchedError(f"{output.where} has another shape than the transform", operation=output.where)
    _check(results, parts, node.shape)
    spectra = _wholes(_nearest(node.inputs), MOST_SPECTRA)
    _check(node.inputs, [part for each in spectra for part in each], node.inputs[0].shape)
    for each in spectra:
        _check(each[0].inputs, [], (*node.shape[:-1], each[0].inputs[0].shape[-1]))
        _check_form(each[0], node)
    return _written(graph, results, parts, spectra, reserved)


def _written(
    graph: Graph, results: Sequence[Node], last: Sequence[Node], spectra: list[list[Node]], reserved: Collection[str]
) -> TransformProblem:
    """The problem with its functions."""
    names = safe_names([argument.name for argument in graph.arguments], reserved)
    node, rank = last[0], len(last[0].shape)
    coordinates = {dim - rank: f"at_{dim}" for dim in range(rank)}
    writer = FunctionWriter(names, reserved, rank, coordinates, fast=is_fast(graph), reads_anywhere=True)
    lines, given = list[Line](), dict[int, Given]()
    for at, parts in enumerate(spectra):
        end = f"_{at}" if len(spectra) > 1 else ""
        lines.append(Line(parts[0], writer.function(parts[0].inputs, {}), f"element{end}", f"held{end}", end))
        given |= _given(parts, end)
        writer.move(coordinates)
    name = "between" if spectra else "element"
    line = Line(node, writer.function(node.inputs, given), name, lines[0].held if lines else "held")
    writer.move(coordinates)
    return TransformProblem(graph, tuple(names), line, tuple(lines), writer.epilogue(results, _given(last)))


def _given(parts: Iterable[Node], end: str = "") -> dict[int, Given]:
    """The parts of a transform as a function of them has them."""
    found = dict[int, Given]()
    for part in parts:
        name = f"imag{end}" if Transform.of(part).imag else f"real{end}"
        found[id(part)] = Given(Parameter(name, "Float32"), name)
    return found


def _nearest(values: Iterable[Node]) -> list[Node]:
    """The transforms that values are made of, without those that these are made of."""
    return [node for node in nodes_between(values) if node.op == "transform"]


def nodes_between(values: Iterable[Node]) -> list[Node]:
    """What values are made of, down to the nearest transforms, which are the first in order."""
    found, stack = dict[int, Node](), list(values)
    while stack:
        node = stack.pop()
        if id(node) not in found:
            found[id(node)] = node
            stack.extend(() if node.op == "transform" else reversed(node.inputs))
    return list(found.values())


def _wholes(parts: Iterable[Node], most: int) -> list[list[Node]]:
    """The parts of each transform side by side, of `most` transforms."""
    found = dict[object, list[Node]]()
    for part in parts:
        found.setdefault((*map(id, part.inputs), part.shape, replace(Transform.of(part), imag=False)), []).append(part)
    wholes = list(found.values())
    if len(wholes) > most:
        first, other = wholes[0][0], wholes[most][0]
        raise UnmatchedError(f"{other.where} is another transform than {first.where}", operation=other.where)
    return wholes


def _check_form(inner: Node, outer: Node) -> None:
    """Whether a spectrum leaves each of its numbers where the transform of it reads them."""
    one, two = Line.form_of(inner), Line.form_of(outer)
    fits = one.length == two.length and one.count == two.count and not one.to_pairs and not two.in_pairs
    fits &= one.in_pairs == two.to_pairs and not (one.start or one.of_half)
    if not fits or inner.shape[-1] != outer.inputs[0].shape[-1]:
        message = f"{outer.where} does not take the numbers of {inner.where} where they lie"
        raise UnmatchedError(message, operation=outer.where)


def _check(values: Sequence[Node], known: Sequence[Node], frame: Shape) -> None:
    """Whether values are pointwise work on known nodes and leaves, or read at computed places, in this shape."""
    for node in nodes_of(tuple(values), [id(each) for each in known]):
        if node.op in LEAVES:
            continue
        is_read = node.op in READ_ANYWHERE and node.inputs[0].op == "input"
        if not (node.is_pointwise or is_read):
            message = f"{node.where} ({node.op}) is not pointwise work beside a transform"
            raise UnmatchedError(message, operation=node.where)
        aligned = zip(reversed(node.shape), reversed(frame), strict=False)
        if len(node.shape) > len(frame) or any(size not in (1, full) for size, full in aligned):
            where = f"{node.where} has shape {node.shape}"
            raise UnmatchedError(f"{where}, which does not align with {frame}", operation=node.where)
