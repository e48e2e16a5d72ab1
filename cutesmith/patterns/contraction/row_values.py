"""Reductions along the rows of a product in its own kernel: a tile has whole rows, a few lanes of one warp have each.

They are made in rounds. Each is a function of the sum that returns the elements to reduce; what they come to is given
to the functions after it. The last function is the epilogue; what rows come to may be a result, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cutesmith.patterns.contraction.epilogue import Epilogue, FunctionWriter, Given, Output, value_of
from cutesmith.patterns.graph.attributes import Contraction, Reduction
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.rows.accumulators import Accumulators
from cutesmith.patterns.rows.combines import COMBINES, OPERATORS
from cutesmith.patterns.rows.variances import Degrees
from cutesmith.patterns.writing.expressions import convert, is_fast
from cutesmith.patterns.writing.naming import Parameter

REDUCED_BY = (
    dict.fromkeys(("sum", "mean", "max", "min", "prod", "var"), ("Float32", "Float32"))
    | dict.fromkeys(("any", "all"), ("Boolean", "Boolean"))
    | dict.fromkeys(("argmax", "argmin"), ("Float32", "Int64"))
)
"""The reductions that a round knows, of elements that are computed in a type to a value of one."""

MOST_COLUMNS = 256
"""Of a product whose rows lie in one tile: no tile is wider."""


@dataclass(frozen=True)
class Part:
    """One number of a row's state: its name, that of an element's, how it starts, its DSL type; a truth is a number."""

    name: str
    element: str
    start: str
    type: str


@dataclass(frozen=True)
class RowValue:
    """What the elements of a row come to: the last of the parts of a state; how two states are combined.

    The place of an extreme is combined with the extreme. `correction`: the total is divided by the row's length less
    that; None: it is not.
    """

    parts: tuple[Part, ...]
    combine: str
    correction: float | None

    @property
    def name(self) -> str:
        """Of the value."""
        return self.parts[-1].name

    def combined(self, place: str = "", inside: str = "") -> str:
        """The statement that adds an element to the state at a place, such as "[at]", `inside` of the row if not ""."""
        own = [f"{part.name}{place}" for part in self.parts]
        other = [f"({p.element} if {inside} else {p.start})" if inside else p.element for p in self.parts]
        operator = OPERATORS.get(self.combine)
        states = f"{own[0]} {operator} {other[0]}" if operator else f"{self.combine}({', '.join([*own, *other])})"
        return f"{', '.join(own)} = {states}"

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

    @property
    def parts(self) -> list[Part]:
        """Of all values."""
        return [part for value in self.values for part in value.parts]

    def elements(self) -> str:
        """The names that the function's results get."""
        return ", ".join(part.element for part in self.parts)


def given_after(rounds: Sequence[Round], sums: str, place: str = "") -> str:
    """The codes of what a function after these rounds is given; `place` follows the name of a row's value."""
    values = (f"{value.name}{place}" for each in rounds for value in each.values)
    return ", ".join(code for code in (sums, *values) if code)


def calls_of(rounds: Sequence[Round], sums: str, loaded: Mapping[str, str], place: str = "") -> list[tuple[Round, str]]:
    """Each round with the call of its function; `loaded` are the codes of operands by name."""
    calls = []
    for at, each in enumerate(rounds):
        operands = [loaded[operand.name] for operand in each.function.operands]
        given, coordinates = given_after(rounds[:at], sums, place), list(each.function.coordinates)
        calls.append((each, each.function.call(given, operands, coordinates, each.name)))
    return calls


def sources_of(epilogue: Epilogue, rounds: Sequence[Round]) -> list[str]:
    """The device functions that a kernel calls for its sums and its rows, in that order."""
    found = [each.function.source(each.name) for each in rounds]
    found += [epilogue.of_rows.source("results_of_row")] if epilogue.of_rows else []
    return [*found, *([epilogue.source()] if epilogue.outputs else [])]


def call_of_rows(epilogue: Epilogue, rounds: Sequence[Round], loaded: Mapping[str, str], place: str = "") -> str:
    """The call of the function whose results rows have one of; "" where there is none. The rest as in `calls_of`."""
    last = epilogue.of_rows
    if last is None:
        return ""
    operands = [loaded[operand.name] for operand in last.operands]
    return last.call(given_after(rounds, "", place), operands, list(last.coordinates), "results_of_row")


def reduces_rows(node: Node, shape: Shape) -> bool:
    """Whether a node reduces the last dimension of a value of a product's shape, as a round can."""
    if not node.is_reduction or node.op not in REDUCED_BY or node.inputs[0].shape != shape:
        return False
    types = COMPUTE_TYPE[node.inputs[0].dtype], COMPUTE_TYPE[node.dtype]
    return types == REDUCED_BY[node.op] and Reduction.of(node).dims == (len(shape) - 1,)


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
        outputs = self.writer.stored(self.graph.outputs)
        whole = [(output, value) for output, value in outputs if value.shape == self.products[0].shape]
        single = [each for each in outputs if each not in whole]
        of_elements, of_rows = self._last(whole, self.given), self._last(single, self._given_of_rows())
        epilogue = replace(of_elements, of_rows=of_rows if single else None)
        functions = [*(each.function for each in rounds), of_rows, of_elements]
        combines = [COMBINES[name].strip("\n") for name in sorted(self.accumulators.combines)]
        operands = _each(functions, lambda function: function.operands)
        helpers = [source for function in functions for source in function.helpers]
        return replace(
            epilogue,
            operands=operands,
            earlier=tuple(operand for operand in operands if operand not in epilogue.operands),
            numbers=_each(functions, lambda function: function.numbers),
            laws=_each(functions, lambda function: function.laws),
            helpers=tuple(dict.fromkeys([*helpers, *combines])),
        ), rounds

    def _last(self, outputs: Sequence[tuple[Output, Node]], given: Mapping[int, Given]) -> Epilogue:
        function = self.writer.function([value for _, value in outputs], given)
        return replace(function, outputs=tuple(output for output, _ in outputs))

    def _given_of_rows(self) -> dict[int, Given]:
        return {key: each for key, each in self.given.items() if key in self.known}

    def _round(self, at: int) -> Round:
        nodes = self.rounds[at]
        name = self.writer.fresh(f"round_{at + 1}" if len(self.rounds) > 1 else "round")
        elements = list(map(element_of, nodes))
        function = self.writer.function(elements, self.given)
        values = tuple(map(self._value, nodes))
        results = list[str]()
        for code, element, value in zip(function.results, elements, values, strict=True):
            first, *places = value.parts
            results += [convert(code, COMPUTE_TYPE[element.dtype], first.type), *(["at_n"] * len(places))]
        coordinates = {*function.coordinates, *(name for name in results if name == "at_n")}
        function = replace(function, results=tuple(results), coordinates=tuple(sorted(coordinates)))
        kept = next((v for v, node in zip(values, nodes, strict=True) if self._replaces(element_of(node), at)), None)
        if kept is not None:
            element = element_of(nodes[values.index(kept)])
            others = {key: each for key, each in self.given.items() if key not in map(id, self.products)}
            acc = Given(Parameter("acc", "Float32"), "acc")
            self.given = {id(element): acc, **{key: each for key, each in others.items() if each.code != "acc"}}
        self.given |= {
            id(node): Given(
                Parameter(value.name, value.parts[-1].type),
                convert(value.name, value.parts[-1].type, COMPUTE_TYPE[node.dtype]),
            )
            for node, value in zip(nodes, values, strict=True)
        }
        return Round(name, function, values, kept.parts[0].element if kept else None)

    def _value(self, node: Node) -> RowValue:
        reduction = _reduction_of(node)
        accumulator = self.accumulators.of(reduction, None)
        state = zip(accumulator.names, accumulator.starts, accumulator.types, strict=True)
        parts = tuple(Part(name, self.writer.fresh(f"of_{name}"), start, kind) for name, start, kind in state)
        correction = Degrees.of(node).correction if node.op == "degrees" else 0.0 if node.op == "mean" else None
        return RowValue(parts, accumulator.combine, correction)

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
