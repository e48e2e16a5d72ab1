"""The traces of a function on larger arguments, and what they tell: which dimensions may grow, apart or together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from cutesmith.errors import CutesmithError
from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.block_scales import block_places
from cutesmith.patterns.graph.equality import Slot, numbers_beside, window_laws
from cutesmith.patterns.graph.nodes import OWN_SIZES, Argument, Graph, nodes_of
from cutesmith.patterns.graph.size_laws import Place
from cutesmith.patterns.graph.window_attributes import Windows
from cutesmith.patterns.tracing.laws import Group, Growth, Laws, close
from cutesmith.patterns.tracing.recorder import FunctionFailedError

Trace = Callable[[tuple[Argument, ...]], Graph]
Grown = frozenset[tuple[Place, int | Fraction]]
"""The factors by which dimensions grow."""
Series = Mapping[Slot, tuple[float, ...]]
"""The value of each number in the first trace and in the grown ones; not of those that differ from use to use."""

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
TRACES = 3  # beside the first: two numbers of a law are solved for, the other two traces must agree
MOST_SUMMANDS = 4
"""Dimensions that are tried as a summand of a larger size."""
MOST_PROBED = 10_000
"""Nodes of all the traces that look for one rare thing: ResNet-18 has 330, DenseNet-201 5 600."""
MOST_ALONE = 32
"""Dimensions of one size that are grown alone, to see which of them a number follows: a trace each."""
MOST_TOGETHER = 64
"""Sets of dimensions of one size that are grown together, to see which of them belong together."""


@dataclass(frozen=True)
class Study:
    """Traces of a function on larger arguments, beside the first."""

    graph: Graph
    trace: Trace
    numbers: tuple[int, ...] = ()
    model: frozenset[str] = frozenset()
    """Arguments whose sizes a model has fixed."""
    known: dict[Grown, Graph | None] = field(default_factory=dict)
    numbers_of: dict[Grown, dict[Slot, float] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known[frozenset()] = self.graph

    def ways(self) -> Iterator[tuple[Group, ...]]:
        """Dimensions that can grow apart, the best first.

        Distinct sizes grow by distinct primes, so that no ratio of sizes stays by chance. Sizes that the function does
        not take so (one is half of another) grow by one factor; those that it takes in no other way stay.
        """
        by_size: dict[int, set[Place]] = {}
        for place, size in self.places():
            if size > 1 or place[1] < 0:
                by_size.setdefault(size, set()).add(place)
        apart = tuple(frozenset(places) for _, places in sorted(by_size.items()))
        if self._beside(grown_by(apart)) is not None and self._takes(apart):
            yield apart
            return
        refused = _blamed(apart, lambda some: self.larger(grown_by(some)) is not None)
        refused += _blamed(tuple(group for group in apart if group not in refused), self._takes)
        alone = tuple(group for group in apart if group not in refused)
        bound = frozenset[Place]().union(*refused)
        if refused and self.larger(dict.fromkeys(bound, 2)) is None:  # it stays in each way that others grow in
            yield from (alone, (frozenset[Place]().union(*apart),))
        else:
            yield from ((*alone, bound), apart, (frozenset[Place]().union(*apart),), alone)

    def _takes(self, groups: tuple[Group, ...]) -> bool:
        """Whether the function takes these sizes whatever they grow by: 40 heads of queries fit 4 of keys, 56 not 6."""
        return all(self.larger(grown_by(groups, n)) is not None for n in range(TRACES))

    def moving(self, groups: tuple[Group, ...], slots: Sequence[Slot]) -> list[Group]:
        """The groups that move these numbers."""
        return _blamed(groups, lambda some: not self.moves(some, slots))

    def moves(self, groups: tuple[Group, ...], slots: Sequence[Slot]) -> bool:
        """Whether one of these numbers, or what is done at all, is another where the groups grow."""
        first, values = self.first, self._beside(grown_by(groups))
        return values is None or any(s not in values or not close(first.get(s, math.nan), values[s]) for s in slots)

    def finer(self, groups: tuple[Group, ...], series: Series) -> tuple[Group, ...]:
        """The groups cut where one dimension of several grows alone, as far as a number follows the size.

        A dimension of size 1 may be broadcast; it is a group of its own if numbers follow it.
        """
        laws = self.laws(groups, series)
        followed = {place for values in self._changing(series) for place in laws.places(values)}
        parts = [self._parts(group) if followed & group and len(group) > 1 else [group] for group in groups]
        ones = [place for place, size in self.places() if size == 1 and place[1] >= 0]
        single = [frozenset({place}) for place in ones[:MOST_ALONE] if self._is_followed(place)]
        finest = (*(part for each in parts for part in each), *single)
        return finest if finest == groups or self.series(finest) is not None else groups

    def sides(self, group: Group) -> list[Group]:
        """The group cut where dimensions grow alone, or those of all arguments at one distance from the last."""
        places = sorted(group)[:MOST_ALONE] if len(group) > 1 else []
        alone = [frozenset({place}) for place in places if self._beside({place: 2}) is not None]
        left = group.difference(*alone)
        by_end: dict[int, Group] = {}  # 64 heads of 64 columns: all heads grow, or all columns
        for index, dim in left:
            end = len(self.graph.arguments[index].shape) - dim
            by_end[end] = by_end.get(end, frozenset()) | {(index, dim)}
        for together in by_end.values() if len(by_end) > 1 else ():
            if self._beside(dict.fromkeys(together, 2)) is not None:
                alone.append(together)
        left = left.difference(*alone)
        return [*alone, left] if left else alone

    def _parts(self, group: Group) -> list[Group]:
        *sides, last = self.sides(group)
        return [*sides, *self._together_in(last)]

    def _together_in(self, group: Group) -> Iterator[Group]:
        """The group cut into fewest dimensions that grow together; of a large graph a few are tried."""
        most = len(self.known) + self.most_probes
        for place in sorted(group):
            if place in group and len(self.known) < most:
                tried = min(MOST_TOGETHER, 4 * self.most_probes)
                together = frozenset(fewest_with(place, sorted(group), self._grow_apart, tried))
                yield together
                group = group - together
        if group:
            yield group

    def _grow_apart(self, places: Sequence[Place]) -> bool:
        return self._beside(dict.fromkeys(places, 2)) is not None

    def _is_followed(self, place: Place) -> bool:
        """Whether a number changes, and nothing else, when a dimension grows alone."""
        values = self._beside({place: 2})
        if values is None:
            return False
        return any(self.is_needed(slot) and not close(self.first[slot], value) for slot, value in values.items())

    def series(self, groups: tuple[Group, ...]) -> Series | None:
        """All numbers in all traces; None where a trace does other operations than the first."""
        growths = self.growths(groups)
        traced = [values for growth in growths if (values := self._beside(growth)) is not None]
        if len(traced) < len(growths):
            return None
        return {slot: tuple(values[slot] for values in traced) for slot in traced[0] if all(slot in v for v in traced)}

    def growths(self, groups: tuple[Group, ...]) -> list[Growth]:
        """Those of all traces; where there are windows, one more whose sizes leave a rest.

        Half of a size and the positions of windows that step by two are equal where a size is even.
        """
        growths: list[Growth] = [{}, *(grown_by(groups, n) for n in range(TRACES))]
        if any(window_laws(node) for node in self.graph.nodes()):
            last = growths[-1]
            more = {p: last[p] + Fraction(1, self.graph.arguments[p[0]].sizes[p[1]]) for p in last}
            odd = _blamed(groups, lambda some: self._beside({p: more[p] for group in some for p in group}) is not None)
            free = [group for group in groups if group not in odd]
            uneven = {**last, **{place: more[place] for group in free for place in group}}
            if free and self._beside(uneven) is not None:
                growths.append(uneven)
        return [*growths, *self._apart(groups)]

    def _apart(self, groups: tuple[Group, ...]) -> Iterator[Growth]:
        """Growths that tell sizes of one group apart: one of them is 1 and broadcast, or is a summand of another."""
        tried = itertools.islice(self._tried_apart(groups), self.most_probes)
        yield from (growth for growth in tried if self._beside(growth) is not None)

    def _tried_apart(self, groups: tuple[Group, ...]) -> Iterator[Growth]:
        for group in groups:
            by_size: dict[int, list[Place]] = {}
            for place in sorted(group):
                by_size.setdefault(self.graph.arguments[place[0]].sizes[place[1]], []).append(place)
            for size, larger in itertools.permutations(sorted(by_size), 2):
                yield dict.fromkeys(by_size[size], Fraction(1, size))
                if size < larger:
                    sums = dict.fromkeys(by_size[larger], Fraction(larger + size, larger))
                    yield from ({**sums, place: Fraction(2)} for place in by_size[size][:MOST_SUMMANDS])

    def laws(self, groups: tuple[Group, ...], series: Series) -> Laws:
        """What laws there can be when these groups grow, those of windows in the graph among them."""
        laws = Laws.of(self.graph.arguments, self.growths(groups), groups)
        for node in self.graph.nodes():
            for at, law in enumerate(window_laws(node)):
                sizes, counts = (series.get(Slot(id(node), kind, at)) for kind in ("along", "positions"))
                if law is not None and sizes is not None and counts is not None:
                    laws = laws.counting(law, sizes, counts)
        return laws

    def _changing(self, series: Series) -> Iterator[tuple[float, ...]]:
        yield from {values for slot, values in series.items() if self.is_needed(slot) and changes(series, slot)}

    def is_needed(self, slot: Slot) -> bool:
        """Whether a kernel takes the number: a size of a shape only where it is not that of an operand."""
        return slot.kind in ("value", "view") or (slot.kind == "shape" and slot.node in self._own_sizes)

    @cached_property
    def most_probes(self) -> int:
        """Traces that are made to find one rare thing out: many of a small graph, few of a network."""
        return max(4, MOST_PROBED // sum(1 for _ in self.graph.nodes()))

    @cached_property
    def first(self) -> dict[Slot, float]:
        """The numbers of the first trace."""
        numbers = numbers_beside(self.graph, self.graph)
        assert numbers is not None
        return numbers

    @cached_property
    def _own_sizes(self) -> frozenset[int]:
        return frozenset(id(node) for node in self.graph.nodes() if node.op in OWN_SIZES)

    def is_taken(self, places: Sequence[Place]) -> bool:
        """Whether the function takes these dimensions twice as large."""
        return self.larger(dict.fromkeys(places, 2)) is not None

    def other_sizes(self, groups: tuple[Group, ...]) -> list[Place]:
        """Those in no group, where the function takes them larger: heads of keys, a divisor of those of queries."""
        grown = frozenset[Place]().union(*groups)
        left = [place for place, size in self.places() if size > 1 and place[1] >= 0 and place not in grown]
        return left if grown and left and self.is_taken(left) else []

    def places(self) -> Iterator[tuple[Place, int]]:
        """Every size and number that may be another in another call."""
        kept = {*kept_places(self.graph), *self.of_model}
        for index, argument in enumerate(self.graph.arguments):
            for dim, size in enumerate(argument.shape):
                if (index, dim) not in kept:
                    yield (index, dim), size
        yield from (((index, -1), self.graph.arguments[index].sizes[-1]) for index in self.numbers)

    @cached_property
    def of_model(self) -> frozenset[Place]:
        """The dimensions of a model's own tensors."""
        own = (at for at, argument in enumerate(self.graph.arguments) if argument.name in self.model)
        return frozenset((at, dim) for at in own for dim in range(len(self.graph.arguments[at].shape)))

    def _beside(self, growth: Growth) -> dict[Slot, float] | None:
        """The numbers of a trace on larger arguments; None where the function refuses them or does something else."""
        if (key := frozenset(growth.items())) not in self.numbers_of:
            larger = self.larger(growth)
            self.numbers_of[key] = None if larger is None else numbers_beside(self.graph, larger)
        return self.numbers_of[key]

    def larger(self, growth: Growth) -> Graph | None:
        """The trace on larger arguments, None where the function does not take them.

        One of other operations altogether, as of a longer loop or of larger matrices than there is a formula for, is a
        graph without outputs.
        """
        if (key := frozenset(growth.items())) not in self.known:
            try:
                self.known[key] = self.trace(grown(self.graph.arguments, growth))
            except FunctionFailedError:
                self.known[key] = None
            except (CutesmithError, RecursionError):
                self.known[key] = replace(self.graph, outputs=())
            except RuntimeError:
                self.known[key] = None
        return self.known[key]


def _blamed(groups: tuple[Group, ...], holds: Callable[[tuple[Group, ...]], bool]) -> list[Group]:
    """The groups that do not hold alone, found by halves: of many groups that hold together none is traced alone.

    Where neither half holds many groups are to blame, and each is traced.
    """
    if not groups or holds(groups):
        return []
    wrong = groups
    while len(wrong) > 1:
        halves = wrong[: len(wrong) // 2], wrong[len(wrong) // 2 :]
        failing = [half for half in halves if not holds(half)]
        if len(failing) != 1:
            return [group for half in failing for group in half if len(half) == 1 or not holds((group,))]
        wrong = failing[0]
    return list(wrong)


def fewest_with(
    place: Place, places: Sequence[Place], may_grow: Callable[[Sequence[Place]], bool], most: int = MOST_TOGETHER
) -> tuple[Place, ...]:
    """The fewest of `places`, with this one, that may be larger than the others; all where more than four must be.

    Rows and columns of a square weight are of one group: a scale of each row goes with the rows alone. Frames and their
    mask are as many, whatever the channels are, where both are of one size by chance.
    """
    others = [other for other in places if other != place]
    few = itertools.chain.from_iterable(itertools.combinations(others, count) for count in (1, 2, 3))
    sets = (tuple(sorted((place, *some))) for some in itertools.islice(few, most))
    return next((some for some in sets if may_grow(some)), tuple(places))


def _taps(graph: Graph) -> Iterator[Place]:
    """The dimensions of weights that are taps: part of a convolution's kernel, which refuses others."""
    for node in graph.nodes():
        if node.op == "contract" and isinstance(windows := node.inputs[1].attrs, Windows):
            for index in {Input.of(leaf).index for leaf in nodes_of(node.inputs[:1]) if leaf.op == "input"}:
                shape = graph.arguments[index].shape
                if shape[-windows.rank :] == windows.taps:
                    yield from ((index, len(shape) - 1 - dim) for dim in range(windows.rank))


def kept_places(graph: Graph) -> Iterator[Place]:
    """The dimensions whose sizes are part of a kernel: taps, and blocks that have one scale."""
    return itertools.chain(_taps(graph), block_places(graph))


def grown_by(groups: Sequence[Group], shift: int = 0) -> dict[Place, int]:
    """A factor for each dimension, distinct for each group and, from shift to shift, for the same group."""
    return {place: PRIMES[(at + shift) % len(PRIMES)] for at, group in enumerate(groups) for place in group}


def grown(arguments: Sequence[Argument], growth: Growth) -> tuple[Argument, ...]:
    """The arguments with each size times the factor of its place, where there is one."""
    shapes = [
        tuple(int(size * growth.get((index, dim), 1)) for dim, size in enumerate(argument.shape))
        for index, argument in enumerate(arguments)
    ]
    larger = [_grown(argument, shape) for argument, shape in zip(arguments, shapes, strict=True)]
    return tuple(_larger_number(each, growth.get((index, -1), 1)) for index, each in enumerate(larger))


def _larger_number(argument: Argument, factor: int | Fraction) -> Argument:
    return argument if factor == 1 else replace(argument, value=int(argument.sizes[-1] * factor))


def _grown(argument: Argument, shape: tuple[int, ...]) -> Argument:
    """One argument, dense in the same order of dimensions; broadcast dimensions stay so."""
    strides, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda dim: (argument.stride[dim], -dim)):
        if argument.stride[dim] or shape[dim] <= 1:
            strides[dim], step = step, step * max(1, shape[dim])
    return replace(argument, shape=shape, stride=tuple(strides))


def changes(series: Series, slot: Slot) -> bool:
    """Whether a number is another in one of the traces."""
    values = series.get(slot)
    return values is not None and not all(close(values[0], value) for value in values[1:])
