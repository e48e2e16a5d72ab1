"""Reductions along the rows of a product in its own kernel: a tile has whole rows, a few lanes of one warp have each.

They are made in rounds. Each is a function of the sum that returns the elements to reduce; what they come to is given
to the functions after it. The last function is the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cutesmith.patterns.contraction.epilogue import Epilogue, FunctionWriter, Given, value_of
from cutesmith.patterns.graph.attributes import Contraction, Reduction
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.rows.accumulators import Accumulators
from cutesmith.patterns.rows.combines import COMBINES, OPERATORS
from cutesmith.patterns.rows.variances import Degrees
from cutesmith.patterns.writing.expressions import convert, is_fast
from cutesmith.patterns.writing.naming import Parameter

REDUCED_BY = dict.fromkeys(("sum", "mean", "max", "min", "prod", "var"), "Float32") | {
    "any": "Boolean",
    "all": "Boolean",
}
"""The reductions that a round knows, of elements that are computed in a type."""

MOST_COLUMNS = 256
"""Of a product whose rows lie in one tile: no tile is wider."""


@dataclass(frozen=True)
class RowValue:
    """What the elements of a row come to: its name, the name of one element, how it starts, how two are combined.

    `type`: the DSL type of partial values; a truth is a number then. `correction`: the total is divided by the row's
    length less that; None: it is not.
    """

    name: str
    element: str
    start: str
    type: str
    combine: str
    correction: float | None

    def combined(self, one: str, other: str) -> str:
        """The code of two partial values as one."""
        operator = OPERATORS.get(self.combine)
        return f"{one} {operator} {other}" if operator else f"{self.combine}({one}, {other})"

    def finished(self, total: str, columns: str) -> str:
        """The code of the value, of what all elements of a row with so many columns were combined to."""
        if self.correction is None:
            return total
        length = f"Float32({columns})"
        if self.correction:
            length = f"cute.arch.fmax({length} - Float32({self.correction!r}), Float32(0.0))"
        return f"{total} / {length}"


@dataclass(frozen=True)
class Round:
    """Reductions that one visit to the sums makes: the function of its elements, and its name in the kernel.

    `kept`: which of the elements takes the place of the sum, as no later function needs the sum itself.
    """

    name: str
    function: Epilogue
    values: tuple[RowValue, ...]
    kept: str | None

    def elements(self) -> str:
        """The names that the function's results get."""
        return ", ".join(value.element for value in self.values)


def given_after(rounds: Sequence[Round], sums: str, place: str = "") -> str:
    """The codes of what a function after these rounds is given; `place` follows the name of a row's value."""
    return ", ".join([sums, *(f"{value.name}{place}" for each in rounds for value in each.values)])


def calls_of(rounds: Sequence[Round], sums: str, loaded: Mapping[str, str], place: str = "") -> list[tuple[Round, str]]:
    """Each round with the call of its function; `loaded` are the codes of operands by name."""
    calls = []
    for at, each in enumerate(rounds):
        operands = [loaded[operand.name] for operand in each.function.operands]
        given, coordinates = given_after(rounds[:at], sums, place), list(each.function.coordinates)
        calls.append((each, each.function.call(given, operands, coordinates, each.name)))
    return calls


def reduces_rows(node: Node, shape: Shape) -> bool:
    """Whether a node reduces the last dimension of a value of a product's shape, as a round can."""
    if not node.is_reduction or node.op not in REDUCED_BY or node.inputs[0].shape != shape:
        return False
    types = {COMPUTE_TYPE[node.dtype], COMPUTE_TYPE[node.inputs[0].dtype]}
    return types == {REDUCED_BY[node.op]} and Reduction.of(node).dims == (len(shape) - 1,)


def rounds_of(graph: Graph, product: Node) -> list[list[Node]]:
    """The values of rows that a product's kernel makes, by rounds; a variance is one, its sum of squares is not."""
    found: dict[int, int] = {}
    rounds: list[list[Node]] = []
    if not Contraction.of(product).rows:
        return rounds
    divided = {id(node.inputs[0]) for node in graph.nodes() if node.op == "degrees"}
    for node in nodes_of(graph.outputs, map(id, product.inputs)):
        before = max((found.get(id(child), 0) for child in node.inputs), default=0)
        is_value = node.op == "degrees" or (reduces_rows(node, product.shape) and id(node) not in divided)
        found[id(node)] = before + is_value
        if is_value:
            rounds += [[] for _ in range(found[id(node)] - len(rounds))]
            rounds[found[id(node)] - 1].append(node)
    return rounds


def element_of(value: Node) -> Node:
    """What a value of rows is reduced from."""
    return _reduction_of(value).inputs[0]


def write_with_rounds(
    graph: Graph, products: Sequence[Node], arguments: Sequence[str], reserved: Collection[str]
) -> tuple[Epilogue, tuple[Round, ...]]:
    """The epilogue of a product, and the rounds before it; both as `write_epilogue` says."""
    writer = FunctionWriter(
        arguments, reserved, len(products[0].shape), {-2: "at_m", -1: "at_n"}, fast=is_fast(graph), suffix="mn"
    )
    return _Writing(graph, products, writer).all()


class _Writing:
    """Writes the functions of one kernel, in the order in which they are called."""

    def __init__(self, graph: Graph, products: Sequence[Node], writer: FunctionWriter) -> None:
        self.graph, self.products, self.writer = graph, products, writer
        self.rounds = rounds_of(graph, products[0])
        self.given = {id(each): Given.of(each, name) for each, name in zip(products, ("acc", "acc_2"), strict=False)}
        self.known = {id(value) for values in self.rounds for value in values}
        writer.row_values |= self.known
        self.accumulators = Accumulators(lambda op: writer.fresh(f"row_{op}"), fast=writer.fast)

    def all(self) -> tuple[Epilogue, tuple[Round, ...]]:
        """The epilogue, which names what any function reads, and the rounds."""
        rounds = tuple(self._round(at) for at in range(len(self.rounds)))
        epilogue = self.writer.epilogue(self.graph.outputs, self.given)
        functions = [*(each.function for each in rounds), epilogue]
        combines = [COMBINES[name].strip("\n") for name in sorted(self.accumulators.combines)]
        operands = _each(functions, lambda function: function.operands)
        helpers = [source for function in functions for source in function.helpers]
        return replace(
            epilogue,
            operands=operands,
            earlier=tuple(operand for operand in operands if operand not in epilogue.operands),
            numbers=_each(functions, lambda function: function.numbers),
            laws=_each(functions, lambda function: function.laws),
            coordinates=tuple(sorted(_each(functions, lambda function: function.coordinates))),
            helpers=tuple(dict.fromkeys([*helpers, *combines])),
        ), rounds

    def _round(self, at: int) -> Round:
        nodes = self.rounds[at]
        name = self.writer.fresh(f"round_{at + 1}" if len(self.rounds) > 1 else "round")
        elements = list(map(element_of, nodes))
        function = self.writer.function(elements, self.given)
        values = tuple(map(self._value, nodes))
        typed = zip(function.results, elements, values, strict=True)
        results = tuple(convert(code, COMPUTE_TYPE[element.dtype], value.type) for code, element, value in typed)
        function = replace(function, results=results)
        kept = next((v for v, node in zip(values, nodes, strict=True) if self._replaces(element_of(node), at)), None)
        if kept is not None:
            element = element_of(nodes[values.index(kept)])
            others = {key: each for key, each in self.given.items() if key not in map(id, self.products)}
            acc = Given(Parameter("acc", "Float32"), "acc")
            self.given = {id(element): acc, **{key: each for key, each in others.items() if each.code != "acc"}}
        self.given |= {
            id(node): Given(
                Parameter(value.name, value.type), convert(value.name, value.type, COMPUTE_TYPE[node.dtype])
            )
            for node, value in zip(nodes, values, strict=True)
        }
        return Round(name, function, values, kept.element if kept else None)

    def _value(self, node: Node) -> RowValue:
        reduction = _reduction_of(node)
        accumulator = self.accumulators.of(reduction, None)
        ((name,), (start,), (kind,)) = accumulator.names, accumulator.starts, accumulator.types
        correction = Degrees.of(node).correction if node.op == "degrees" else 0.0 if node.op == "mean" else None
        return RowValue(name, self.writer.fresh(f"of_{name}"), start, kind, accumulator.combine, correction)

    def _replaces(self, element: Node, at: int) -> bool:
        """Whether the functions after a round need no more of the sum than this element of it."""
        types = {COMPUTE_TYPE[element.dtype], COMPUTE_TYPE[Contraction.of(self.products[0]).accumulate]}
        if len(self.products) > 1 or id(element) in self.given or types != {"Float32"}:
            return False
        later = [element_of(node) for values in self.rounds[at + 1 :] for node in values]
        later += map(value_of, self.graph.outputs)
        sums = {key for key, each in self.given.items() if each.code == "acc"}
        made = nodes_of(tuple(later), {*self.known, id(element)})
        return not any(id(node) in sums for node in made)


def _reduction_of(value: Node) -> Node:
    return value.inputs[0] if value.op == "degrees" else value


def _each(functions: Sequence[Epilogue], part: Callable[[Epilogue], Sequence[object]]) -> tuple:  # type: ignore[type-arg]
    """What any of the functions has, once each, in their order."""
    return tuple(dict.fromkeys(each for function in functions for each in part(function)))


def functions_of(graph: Graph, product: Node) -> Iterator[list[Node]]:
    """The nodes of each function, elements alone: what rows have one value of is made once for all of them."""
    rounds = rounds_of(graph, product)
    known = {*map(id, product.inputs), *(id(value) for values in rounds for value in values)}
    for results in (*(list(map(element_of, values)) for values in rounds), list(graph.outputs)):
        yield [node for node in nodes_of(tuple(results), known) if not rounds or node.shape == product.shape]
