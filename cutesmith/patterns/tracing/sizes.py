"""Which constants of a traced graph follow the sizes of its arguments, and by what law.

Label smoothing over V classes traces as a multiplication by 0.1 / V, attention scores by d ** -0.5: a kernel that held
the traced number would be right for the traced sizes only. The function is traced again on larger tensors; a constant
that changes becomes a `sized` node with a law that all traces obey. What follows sizes in another way (a view, the
number of operations, a constant without a law) makes the graph one of fixed shapes. Traces see the given sizes and some
times those: a law that ends beyond, as `min(size, 4096)` does, is for verification on other input sets to find.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cutesmith.errors import CutesmithError
from cutesmith.patterns.graph.equality import constants_beside
from cutesmith.patterns.graph.nodes import Argument, Constant, Graph, Node, Number, Sized, with_nodes
from cutesmith.patterns.graph.size_laws import Dims, SizeLaw

Trace = Callable[[tuple[Argument, ...]], Graph]

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23)
TRACES = 3  # beside the first: two numbers of a law are solved for, the other two traces must agree
CLOSE = 1e-12


def follow_sizes(graph: Graph, trace: Trace) -> Graph:
    """The graph with `sized` nodes for constants that follow sizes, or marked as one of fixed shapes.

    `trace` runs the function again on arguments of other shapes. Distinct sizes grow by distinct primes, so that no
    ratio of sizes stays by chance; where the function does not take that (one size is half of another), all of them
    grow by one factor, which tells which size a constant follows only where there is a single one.
    """
    sizes = sorted({size for argument in graph.arguments for size in argument.shape if size > 1})
    apart = [dict(zip(sizes, itertools.cycle(PRIMES[shift:] + PRIMES[:shift]))) for shift in range(TRACES)]
    together = [dict.fromkeys(sizes, prime) for prime in PRIMES[:TRACES]]
    for growths in (apart, together):
        larger = _attempted(trace, grown(graph.arguments, growths[0]))
        if larger is None:
            continue
        values = constants_beside(graph, larger)
        changed = values is None or _changed(graph, values)
        if values is None or (growths is together and len(sizes) > 1 and changed) or _follows_ones(graph, trace):
            break
        return _Fit(graph, trace, growths, values).graph_with_laws() if changed else graph
    return replace(graph, fixed_shapes=True)


def _follows_ones(graph: Graph, trace: Trace) -> bool:
    """Whether a constant follows a dimension of size 1, which may be broadcast and so does not grow."""
    places = [(i, dim) for i, a in enumerate(graph.arguments) for dim, size in enumerate(a.shape) if size == 1]
    for place in places:
        larger = _attempted(trace, grown(graph.arguments, {1: 2}, only=place))
        values = constants_beside(graph, larger) if larger is not None else None
        if values is not None and _changed(graph, values):
            return True
    return False


def _attempted(trace: Trace, arguments: tuple[Argument, ...]) -> Graph | None:
    """The trace on these arguments, None where the function does not take them."""
    try:
        return trace(arguments)
    except (CutesmithError, RuntimeError):
        return None


def _changed(graph: Graph, values: Mapping[int, Number]) -> list[Node]:
    """The constants that have other values in another trace."""
    constants = (node for node in graph.nodes() if node.op == "constant" and id(node) in values)
    return [node for node in constants if not _close(float(Constant.of(node).value), float(values[id(node)]))]


def _close(first: float, second: float) -> bool:
    both_nan = math.isnan(first) and math.isnan(second)
    return both_nan or math.isclose(first, second, rel_tol=CLOSE)


def grown(
    arguments: Sequence[Argument], factors: Mapping[int, int], *, only: tuple[int, int] | None = None
) -> tuple[Argument, ...]:
    """The arguments with each size times its factor; `only` that (argument, dimension)."""
    places = [[only in (None, (index, dim)) for dim in range(len(a.shape))] for index, a in enumerate(arguments)]
    return tuple(_grown(argument, factors, grows) for argument, grows in zip(arguments, places, strict=True))


def _grown(argument: Argument, factors: Mapping[int, int], grows: Sequence[bool]) -> Argument:
    """One argument, dense in the same order of dimensions; broadcast dimensions stay so."""
    shape = tuple(n * factors.get(n, 1) if on else n for n, on in zip(argument.shape, grows, strict=True))
    strides, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (argument.stride[dim], -dim)):
        if argument.stride[dim] or shape[dim] <= 1:
            strides[dim], step = step, step * max(1, shape[dim])
    return replace(argument, shape=shape, stride=tuple(strides))


@dataclass(frozen=True)
class _Fit:
    """The search for the laws of the constants that differ between traces; `values` are those of the first growth."""

    graph: Graph
    trace: Trace
    growths: Sequence[Mapping[int, int]]
    values: Mapping[int, Number]

    def graph_with_laws(self) -> Graph:
        """`sized` nodes in place of constants, when there is a law for every one that changes."""
        laws = {id(node): self._law(series) for node, series in self._series()}
        found = {key: law for key, law in laws.items() if law is not None}
        places = {place for law in found.values() for place in law.dims}
        if not laws or len(found) < len(laws) or not all(map(self._tied, places)):
            return replace(self.graph, fixed_shapes=True)

        def sized(node: Node) -> Node:
            law = found.get(id(node))
            return node if law is None else replace(node, op="sized", attrs=Sized(law, Constant.of(node).value))

        return with_nodes(self.graph, sized)

    def _series(self) -> list[tuple[Node, list[float]]]:
        """Each changing constant with its values in all traces; nothing where a trace says something else."""
        traced = [self.values]
        for growth in self.growths[1:]:
            larger = _attempted(self.trace, grown(self.graph.arguments, growth))
            values = constants_beside(self.graph, larger) if larger is not None else None
            if values is None:
                return []
            traced.append(values)
        changing = {id(node): node for values in traced for node in _changed(self.graph, values)}
        return [(n, [float(Constant.of(n).value), *(float(v[key]) for v in traced)]) for key, n in changing.items()]

    def _law(self, series: Sequence[float]) -> SizeLaw | None:
        candidates = [(dims, self._products(dims)) for dims in _products_of_dims(self.graph.arguments)]
        for shifted in (False, True):
            for (dims, products), power in itertools.product(candidates, (1.0, -1.0, 0.5, -0.5)):
                if products[0] == products[1] or not all(map(math.isfinite, series)):
                    continue
                solution = _solved(series, [math.pow(product, power) for product in products], shifted)
                if solution is not None:
                    return SizeLaw(*solution, dims, power)
        return None

    def _products(self, dims: Dims) -> list[float]:
        sizes = [self.graph.arguments[argument].shape[dim] for argument, dim in dims]
        return [float(math.prod(size * growth.get(size, 1) for size in sizes)) for growth in ({}, *self.growths)]

    def _tied(self, place: tuple[int, int]) -> bool:
        """Whether a constant that follows this size follows this dimension, or others that must be equal to it.

        A dimension of the same size that grows on its own, and changes no constant, is another matter.
        """
        arguments = self.graph.arguments
        size = arguments[place[0]].shape[place[1]]
        same = [(i, dim) for i, a in enumerate(arguments) for dim, other in enumerate(a.shape) if other == size]
        if len(same) == 1:
            return True
        alone = {one: _attempted(self.trace, grown(arguments, {size: 2}, only=one)) for one in same}
        followed = [one for one, larger in alone.items() if larger is None or self._changes(larger)]
        return place in followed and (len(followed) == 1 or all(alone[one] is None for one in followed))

    def _changes(self, larger: Graph) -> bool:
        """Whether a trace says something else than the first, in a constant or altogether."""
        values = constants_beside(self.graph, larger)
        return values is None or bool(_changed(self.graph, values))


def _products_of_dims(arguments: Sequence[Argument]) -> Iterator[Dims]:
    """Sets of dimensions of one argument, the fewest first; each multiset of sizes once."""
    found: dict[tuple[int, ...], Dims] = {}
    for index, argument in enumerate(arguments):
        dims = [dim for dim, size in enumerate(argument.shape) if size > 1]
        for count in range(1, len(dims) + 1):
            for chosen in itertools.combinations(dims, count):
                sizes = tuple(sorted(argument.shape[dim] for dim in chosen))
                found.setdefault(sizes, tuple((index, dim) for dim in chosen))
    return iter(sorted(found.values(), key=len))


def _solved(series: Sequence[float], powers: Sequence[float], shifted: bool) -> tuple[float, float] | None:
    """(offset, factor) such that offset + factor * power is the value in every trace, in few digits; None otherwise."""
    factor, offset = series[0] / powers[0], 0.0
    if shifted:
        factor = (series[1] - series[0]) / (powers[1] - powers[0])
        offset = series[0] - factor * powers[0]
    for digits in (6, 9, 12, 15, 17):
        o, f = (float(f"{number:.{digits}g}") for number in (offset, factor))
        if all(_close(o + f * power, value) for power, value in zip(powers, series, strict=True)):
            return o, f
    return None
