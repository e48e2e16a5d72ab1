"""How sizes change together: a size that is twice another one, heads times a width, or a multiple of eight.

Nothing declares that. Where a reference refuses sizes that change each by itself, rules that hold for the sizes of the
inputs are tried, the simplest first, and the reference says which it takes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice, product

MOST_FACTOR = 64  # of a size that is several times another one: three heads of eight, as a constant of the reference
STEPS = (2, 3, 4, 8, 16, 32, 64)  # that a size may have to be a multiple of
MOST_RULES = 128


@dataclass(frozen=True)
class Relation:
    """`size` is `factor` times the product of the sizes `of`, and `more`; of no sizes: any multiple of `factor`."""

    size: int
    of: tuple[int, ...] = ()
    factor: int = 1
    more: int = 0

    def new(self, sizes: Mapping[int, int]) -> int:
        """What the size becomes where others become `sizes`."""
        if not self.of:
            return math.ceil(sizes.get(self.size, self.size) / self.factor) * self.factor
        return self.factor * math.prod(sizes.get(size, size) for size in self.of) + self.more


@dataclass(frozen=True)
class SizeRules:
    """`fixed` sizes stay; relations say what others become; `in_order`: what was larger stays larger."""

    fixed: frozenset[int] = frozenset()
    relations: tuple[Relation, ...] = ()
    in_order: bool = False

    def free(self, sizes: Sequence[int]) -> list[int]:
        """Those of the sizes that may become what they like."""
        bound = {relation.size for relation in self.relations if relation.of}
        return [size for size in sizes if size not in self.fixed and size not in bound]

    def ordered(self, sizes: Sequence[int], new: Sequence[int]) -> dict[int, int]:
        """The sizes with their new ones, sorted as those are where the order stays."""
        return dict(zip(sorted(sizes), sorted(new))) if self.in_order else dict(zip(sizes, new))

    def complete(self, sizes: Mapping[int, int]) -> dict[int, int]:
        """New sizes with those that follow from them, smaller sizes first; a size that is not free is left out."""
        done = {size: sizes[size] for size in self.free(list(sizes))}
        for relation in sorted(self.relations, key=lambda relation: relation.size):
            if relation.of or relation.size in done:
                done[relation.size] = relation.new(done)
        return done


FREE, IN_ORDER = SizeRules(), SizeRules(in_order=True)


def possible_rules(sizes: Collection[int], stay: Sequence[int]) -> Iterator[SizeRules]:
    """Rules that hold for these sizes, the simplest first: no more than `MOST_RULES`.

    Multiples before relations: what has to be a multiple of eight may be eight times another size by chance. Then one
    relation of each size, relations of multiples, and two relations; relations also where one of few sizes may `stay`.
    """
    singles = [(relation,) for size in sorted(sizes, reverse=True) for relation in _relations(size, sizes)]
    firsts = tuple({one.size: one for (one,) in reversed(singles)}.values())
    related = [*singles, firsts] if len(firsts) > 1 else singles
    steps = [Relation(size, factor=step) for step in STEPS for size in sorted(sizes) if size % step == 0 < size - step]
    multiples = ((*some, step) for step, some in product(steps, related))
    pairs = ((one, other) for (one,), (other,) in combinations(singles, 2) if one.size != other.size)
    alone = (_consistent(relations) for relations in chain(((step,) for step in steps), related, multiples, pairs))
    beside = (SizeRules(frozenset({size}), relations) for relations in related for size in stay)
    simplest = dict.fromkeys(SizeRules(relations=relations) for relations in islice(alone, 3 * MOST_RULES // 4))
    yield from islice(chain(simplest, beside), MOST_RULES)


def _consistent(relations: Sequence[Relation]) -> tuple[Relation, ...]:
    """Without multiples of a size that follows from others."""
    bound = {relation.size for relation in relations if relation.of}
    return tuple(relation for relation in relations if relation.of or relation.size not in bound)


def _relations(size: int, sizes: Collection[int]) -> Iterator[Relation]:
    """Of a size to smaller ones: multiples, products of two, one more."""
    smaller = sorted((other for other in sizes if 1 < other < size), reverse=True)
    for other in smaller:
        if size % other == 0 and size // other <= MOST_FACTOR:
            yield Relation(size, (other,), size // other)
    for pair in combinations(smaller, 2):
        if size % math.prod(pair) == 0 and size // math.prod(pair) <= MOST_FACTOR:
            yield Relation(size, pair, size // math.prod(pair))
    if size - 1 in smaller:
        yield Relation(size, (size - 1,), more=1)
