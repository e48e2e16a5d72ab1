"""Which numbers of a traced graph follow the sizes of its arguments, and by what law.

Label smoothing over V classes traces as a multiplication by 0.1 / V, attention scores by d ** -0.5, heads as a view of
(4, 7, 12, 64): a kernel that held the traced numbers would be right for the traced sizes only. The function is traced
again on larger tensors. A constant that changes becomes a `sized` node; a size in a view or of a value becomes a law.
Where a constant or the number of operations follows sizes without a law, the graph is one of fixed shapes. A size
without a law stays a number, and a kernel that needs it refuses other inputs. Traces see the given sizes and some times
those: a law that ends beyond, as `min(size, 4096)` does, is for verification on other input sets to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cutesmith.errors import CutesmithError
from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.equality import Slot, numbers_beside
from cutesmith.patterns.graph.nodes import (
    OWN_SIZES,
    Argument,
    Constant,
    Graph,
    Node,
    Reshaping,
    Sized,
    Viewed,
    views_of,
)
from cutesmith.patterns.graph.size_laws import Size
from cutesmith.patterns.tracing.laws import Group, Laws, Place, close
from cutesmith.patterns.tracing.recorder import TooManyOperations
from cutesmith.patterns.tracing.scalars import untraceable

Trace = Callable[[tuple[Argument, ...]], Graph]
Growth = Mapping[Place, int]
Series = Mapping[Slot, tuple[float, ...]]
"""The value of each number in the first trace and in the grown ones; not of those that differ from use to use."""

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
TRACES = 3  # beside the first: two numbers of a law are solved for, the other two traces must agree
MOST_ALONE = 32
"""Dimensions of one size that are grown alone, to see which of them a number follows: a trace each."""


def follow_sizes(graph: Graph, trace: Trace, numbers: Sequence[int] = ()) -> Graph:
    """The graph with laws in place of numbers that follow sizes, or marked as one of fixed shapes.

    `trace` runs the function again on arguments of other shapes. It raises what the function raises for them, or
    TooManyOperations. `numbers` are the places of integers among the arguments that are followed as sizes are;
    UnmatchedError where one has no law.
    """
    study = _Study(graph, trace, tuple(numbers))
    followed, groups = study.followed(study.groups())
    grown_numbers = {index for group in groups for index, dim in group if dim < 0}
    if numbers and (grown_numbers != set(numbers) or not followed.holds_for_other_sizes):
        raise untraceable(" or ".join(graph.arguments[index].name for index in numbers))
    return followed


def partly_follow_sizes(graph: Graph, trace: Trace) -> Graph:
    """As `follow_sizes`, but where other sizes change what is done, those of some dimensions are `fixed`."""
    study = _Study(graph, trace)
    followed, _ = study.followed(study.groups())
    if followed.holds_for_other_sizes:
        return followed
    free = study.free_groups()
    followed, _ = study.followed(free)
    kept = frozenset[Place]().union(*free) if followed.holds_for_other_sizes else frozenset()
    return replace(followed, fixed=tuple(place for place, size in study.places() if size > 1 and place not in kept))


def _followed(graph: Graph, series: Series, laws: Laws) -> Graph:
    """The graph with the laws that there are."""
    done: dict[int, Node] = {}
    for node in graph.nodes():
        changed = replace(node, inputs=tuple(done[id(child)] for child in node.inputs)) if node.inputs else node
        if _changes(series, Slot(id(node))):
            law = (laws.of_number if is_float(node.dtype) else laws.of_size)(series[Slot(id(node))])
            if law is None:
                return replace(graph, fixed_shapes=True)
            changed = replace(changed, op="sized", attrs=Sized(law, Constant.of(node).value))
        done[id(node)] = _with_sizes(node, changed, series, laws)
    return replace(graph, outputs=tuple(done[id(node)] for node in graph.outputs))


def _with_sizes(node: Node, changed: Node, series: Series, laws: Laws) -> Node:
    """`changed` with what is known of the sizes in the views and in the shape of `node`."""

    def known(kind: str, at: int, size: Size) -> Size:
        values = series.get(Slot(id(node), kind, at))
        return size if values is None or not isinstance(size, int) else laws.of_size(values) or size

    places = iter(range(len(node.shape) * 8 + 8))
    views = tuple(view.with_sizes(lambda size: known("view", next(places), size)) for view in views_of(node))
    sizes = tuple(known("shape", at, size) for at, size in enumerate(node.shape)) if node.has_own_shape else ()
    attrs = node.attrs
    if isinstance(attrs, Viewed):
        return replace(changed, attrs=replace(attrs, views=views)) if views else changed
    if isinstance(attrs, Reshaping):
        return replace(changed, attrs=Reshaping(views[0]))
    return replace(changed, sizes=sizes) if sizes else changed


def _changes(series: Series, slot: Slot) -> bool:
    values = series.get(slot)
    return values is not None and not all(close(values[0], value) for value in values[1:])


@dataclass(frozen=True)
class _Study:
    """Traces of a function on larger arguments, beside the first."""

    graph: Graph
    trace: Trace
    numbers: tuple[int, ...] = ()

    def groups(self) -> tuple[Group, ...]:
        """Dimensions that can grow apart; empty where the function then does other operations.

        Distinct sizes grow by distinct primes, so that no ratio of sizes stays by chance. Sizes that the function does
        not take so (one is half of another) grow by one factor; those that it takes in no other way stay.
        """
        by_size: dict[int, set[Place]] = {}
        for place, size in self.places():
            if size > 1 or place[1] < 0:
                by_size.setdefault(size, set()).add(place)
        apart = tuple(frozenset(places) for _, places in sorted(by_size.items()))
        if self._beside(grown_by(apart)) is not None:
            return apart
        refused = [group for group in apart if self._larger(grown_by((group,))) is None]
        alone = tuple(group for group in apart if group not in refused)
        bound = frozenset[Place]().union(*refused)
        for groups in ((*alone, bound), (frozenset[Place]().union(*apart),), alone):
            if self._larger(grown_by(groups)) is not None:
                return groups if self._beside(grown_by(groups)) is not None else ()
        return ()

    def free_groups(self) -> tuple[Group, ...]:
        """Dimensions of one size that grow, each group alone and all together, while the operations stay the same."""
        by_size: dict[int, set[Place]] = {}
        for place, size in self.places():
            if size > 1:
                by_size.setdefault(size, set()).add(place)
        free = tuple(
            frozenset(places)
            for _, places in sorted(by_size.items())
            if self._beside(dict.fromkeys(places, 2)) is not None
        )
        return free if self._beside(grown_by(free)) is not None else ()

    def followed(self, groups: tuple[Group, ...]) -> tuple[Graph, tuple[Group, ...]]:
        """The graph with laws of these groups, cut as fine as numbers follow them; one of fixed shapes without any."""
        series = self.series(groups) if groups else None
        if series is not None and (finer := self.finer(groups, series)) != groups:
            groups, series = finer, self.series(finer)
        fixed = replace(self.graph, fixed_shapes=True)
        return (fixed if series is None else _followed(self.graph, series, self.laws(groups))), groups

    def finer(self, groups: tuple[Group, ...], series: Series) -> tuple[Group, ...]:
        """The groups cut where one dimension of several grows alone, as far as a number follows the size.

        A dimension of size 1 may be broadcast; it is a group of its own if numbers follow it.
        """
        laws = self.laws(groups)
        followed = {place for values in self._changing(series) for place in laws.places(values)}
        parts = [self._parts(group) if followed & group and len(group) > 1 else [group] for group in groups]
        ones = [place for place, size in self.places() if size == 1 and place[1] >= 0]
        single = [frozenset({place}) for place in ones[:MOST_ALONE] if self._is_followed(place)]
        finest = (*(part for each in parts for part in each), *single)
        return finest if finest == groups or self.series(finest) is not None else groups

    def _parts(self, group: Group) -> list[Group]:
        places = sorted(group)[:MOST_ALONE]
        alone = [frozenset({place}) for place in places if self._beside({place: 2}) is not None]
        left = group.difference(*alone)
        return [*alone, left] if left else alone

    def _is_followed(self, place: Place) -> bool:
        """Whether a number changes, and nothing else, when a dimension grows alone."""
        values = self._beside({place: 2})
        if values is None:
            return False
        first = numbers_beside(self.graph, self.graph)
        assert first is not None
        return any(self._is_needed(slot) and not close(first[slot], value) for slot, value in values.items())

    def series(self, groups: tuple[Group, ...]) -> Series | None:
        """All numbers in all traces; None where a trace does other operations than the first."""
        grown = [numbers_beside(self.graph, self.graph), *(self._beside(grown_by(groups, n)) for n in range(TRACES))]
        traced = [values for values in grown if values is not None]
        if len(traced) < len(grown):
            return None
        return {slot: tuple(values[slot] for values in traced) for slot in traced[0] if all(slot in v for v in traced)}

    def laws(self, groups: tuple[Group, ...]) -> Laws:
        """What laws there can be when these groups grow."""
        return Laws.of(self.graph.arguments, [{}, *(grown_by(groups, n) for n in range(TRACES))], groups)

    def _changing(self, series: Series) -> Iterator[tuple[float, ...]]:
        yield from {values for slot, values in series.items() if self._is_needed(slot) and _changes(series, slot)}

    def _is_needed(self, slot: Slot) -> bool:
        """Whether a kernel takes the number: a size of a shape only where it is not that of an operand."""
        return slot.kind != "shape" or slot.node in self._own_sizes

    @cached_property
    def _own_sizes(self) -> frozenset[int]:
        return frozenset(id(node) for node in self.graph.nodes() if node.op in OWN_SIZES)

    def places(self) -> Iterator[tuple[Place, int]]:
        """Every size and number that may be another in another call."""
        for index, argument in enumerate(self.graph.arguments):
            for dim, size in enumerate(argument.shape):
                yield (index, dim), size
        yield from (((index, -1), self.graph.arguments[index].sizes[-1]) for index in self.numbers)

    def _beside(self, growth: Growth) -> dict[Slot, float] | None:
        """The numbers of a trace on larger arguments; None where the function refuses them or does something else."""
        larger = self._larger(growth)
        return None if larger is None else numbers_beside(self.graph, larger)

    def _larger(self, growth: Growth) -> Graph | None:
        """The trace on larger arguments, None where the function does not take them.

        One of other operations altogether, as of a longer loop, is not followed to its end: a graph without outputs.
        """
        try:
            return self.trace(grown(self.graph.arguments, growth))
        except TooManyOperations:
            return replace(self.graph, outputs=())
        except (CutesmithError, RuntimeError):
            return None


def grown_by(groups: Sequence[Group], shift: int = 0) -> dict[Place, int]:
    """A factor for each dimension, distinct for each group and, from shift to shift, for the same group."""
    return {place: PRIMES[(at + shift) % len(PRIMES)] for at, group in enumerate(groups) for place in group}


def grown(arguments: Sequence[Argument], growth: Growth) -> tuple[Argument, ...]:
    """The arguments with each size times the factor of its place, where there is one."""
    shapes = [
        tuple(size * growth.get((index, dim), 1) for dim, size in enumerate(argument.shape))
        for index, argument in enumerate(arguments)
    ]
    larger = [_grown(argument, shape) for argument, shape in zip(arguments, shapes, strict=True)]
    return tuple(_larger_number(each, growth.get((index, -1), 1)) for index, each in enumerate(larger))


def _larger_number(argument: Argument, factor: int) -> Argument:
    return argument if factor == 1 else replace(argument, value=argument.sizes[-1] * factor)


def _grown(argument: Argument, shape: tuple[int, ...]) -> Argument:
    """One argument, dense in the same order of dimensions; broadcast dimensions stay so."""
    strides, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (argument.stride[dim], -dim)):
        if argument.stride[dim] or shape[dim] <= 1:
            strides[dim], step = step, step * max(1, shape[dim])
    return replace(argument, shape=shape, stride=tuple(strides))
