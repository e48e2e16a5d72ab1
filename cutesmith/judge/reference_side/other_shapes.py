"""Inputs of other sizes, layouts and types, derived from those of a problem, and the cases that they make.

Sizes change where the contract promises that; layouts and types change at the problem's own sizes too. A kernel may
refuse any of them aloud.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from cutesmith.judge.draws.derived_case import DerivedCase
from cutesmith.judge.reference_side.cases import Values, count_elements, distinct_sizes, resize
from cutesmith.judge.reference_side.size_rules import FREE, IN_ORDER, SizeRules
from cutesmith.verdicts import Rule

ODD_SIZES = (37, 5, 3, 2)  # of the distinct dimensions, the last one first; small, so that a case costs nothing
SMALL_SIZES = (48, 24, 4, 2)  # layouts of all inputs need no large tensors
SWAPPED_SIZES = (24, 48, 4, 2)
MOST_ELEMENTS = 1 << 20  # of other sizes beside columns that stay, and of layouts at the problem's own sizes
MOST_MOVED_ALONE = 8  # tensors; of more each gets one layout beside those of all: each costs another compilation
MOST_DRAWN = 4  # times for sizes that follow others: 24 times a width of 513 in 127 rows are too many, of 63 not
FIXED, MOST_FIXED = 16, 3  # a size that the reference may need as it is is at most that, and so many are tried
OTHER_SIZES, MOST_APART = (37, 29), 4  # of one input alone, and in so many draws
OTHER_TYPE = {torch.float32: torch.bfloat16, torch.bfloat16: torch.float16, torch.float16: torch.bfloat16}

Tensor = torch.Tensor


@dataclass(frozen=True)
class ShapeDraw:
    """One draw: its name for people, and the inputs that it makes of others, with sizes by rules.

    It takes what it needs from torch's global generator. `places`: the inputs that it changes and no other. `smallest`:
    for a reference that refuses free sizes, each of the smallest may stay; `related`: sizes may follow from others;
    `only`: the one size that it changes, 0 where others change too; `as_odd`: by no other rules than those with which
    the reference takes odd sizes, as it may take anything where there is no element;
    `all_stay`: at last all may, where a layout or a type is what changes. `changes`: it has to change something.
    `resizes_alone`: an input gets another size that the others do not follow, so that an index may be beyond it.
    """

    name: str
    derive: Callable[[Sequence[Any], SizeRules], Values]
    places: tuple[int, ...] = ()
    smallest: bool = True
    related: bool = True
    all_stay: bool = False
    changes: bool = True
    resizes_alone: bool = False
    only: int = 0
    as_odd: bool = False

    def may_be_quicker(self, sizes: Collection[int], *, own_sizes: bool) -> bool:
        """Whether it leaves these sizes alone, so that they can be others that take less time."""
        return self.only not in sizes if self.only else self.all_stay and (own_sizes or bool(self.places))

    def rules(
        self, inputs: Sequence[Any], related: Callable[[], SizeRules | None], *, own_sizes: bool = False
    ) -> Iterator[SizeRules]:
        """How sizes may change in it: a point has two coordinates, which a reference refuses to lose.

        At first each by itself, then in the order of the old ones, with each of the smallest as it is, and with those
        that are `related`, which takes a search. At last all of few elements stay. Of one input alone they do at first:
        that is what the kernel is for, and a kernel of fixed sizes takes no others. With `own_sizes` nothing else.
        """
        all_stay = SizeRules(frozenset(distinct_sizes(inputs)))
        stays = self.all_stay and _are_few(inputs)
        if (own_sizes and not self.only) or (stays and self.places):
            yield all_stay
        if own_sizes and not self.only:
            return
        yield FREE
        if self.smallest:
            yield IN_ORDER
            yield from (SizeRules(frozenset({size})) for size in sizes_that_may_stay(inputs))
        if self.related and (rules := related()):
            yield rules
        if stays and not self.places:
            yield all_stay


@dataclass(frozen=True)
class OtherShapes:
    """The cases for inputs of some names; `sizes`: whether these may change; `kept`: places that keep their values."""

    names: tuple[str, ...]
    inputs: Sequence[Any]
    sizes: bool
    kept: frozenset[int] = frozenset()

    def cases(self, *, quick: bool = False) -> Iterator[DerivedCase]:
        """Cases for these inputs; with no tensor of a dimension there are none. `quick`: where sizes change, a few."""
        if not self._tensors or (quick and not self.sizes):
            return
        if self.sizes:
            for draw in (ODD, EMPTY, *self._of_size_one):
                yield DerivedCase(draw.name, (draw.name,), may_decline=True, strict=True)
        of_all = self._of_layouts("layouts of all inputs", self._layouts_of_all)
        if quick:
            yield of_all
            return
        if self.sizes:
            around = _AROUND if len(distinct_sizes(self.inputs)) > 1 else _AROUND_COLUMNS
            yield _shapes("equal sizes apart", (THREE_OF_ONE, *self._apart), Rule.S2)
            yield _shapes("sizes around powers of two", around, Rule.S2)
        if self.sizes or len(self._tensors) > 1:
            yield of_all
        for moved, draws in self._layouts.items():
            yield self._of_layouts(f"layouts of {moved}", draws)
        yield from self._in_turn()

    @cached_property
    def draws(self) -> dict[str, ShapeDraw]:
        """Every draw by its name."""
        of_sizes = (ODD, EMPTY, *self._of_size_one, THREE_OF_ONE, *self._apart, *_AROUND) if self.sizes else ()
        of_layouts = (*self._layouts_of_all, *(draw for draws in self._layouts.values() for draw in draws))
        draws = (*of_sizes, *of_layouts, *self._alternating)
        return {draw.name: draw if self.sizes else _only(draw) for draw in draws}

    def changed_by(self, name: str) -> tuple[int, ...]:
        """The places of the inputs that a draw alone changes."""
        return self.draws[name].places if name in self.draws else ()

    @cached_property
    def _tensors(self) -> dict[int, Tensor]:
        return {index: value for index, value in enumerate(self.inputs) if isinstance(value, Tensor) and value.ndim}

    @cached_property
    def _of_size_one(self) -> tuple[ShapeDraw, ...]:
        def one(size: int) -> ShapeDraw:
            def derive(inputs: Sequence[Any], rules: SizeRules) -> Values:
                sizes = rules.complete({size: 1})
                return resize(inputs, sizes) if sizes.get(size) == 1 else list(inputs)  # of a multiple of two: nothing

            return ShapeDraw(f"size 1 for {size}", derive, smallest=False, only=size)

        return tuple(map(one, distinct_sizes(self.inputs)))

    @cached_property
    def _apart(self) -> tuple[ShapeDraw, ...]:
        """Draws that change a size of one input alone which another one has too: perhaps both are as long by chance."""
        tensors = {place: value for place, value in enumerate(self.inputs) if isinstance(value, Tensor)}
        found = [
            self._with_another_size(place, size)
            for place, value in tensors.items()
            for size in dict.fromkeys(value.shape)
            if size > 1 and any(size in other.shape for other in tensors.values() if other is not value)
        ]
        return tuple(found[:MOST_APART])

    def _with_another_size(self, place: int, size: int) -> ShapeDraw:
        other = OTHER_SIZES[size == OTHER_SIZES[0]]

        def derive(inputs: Sequence[Any], rules: SizeRules) -> Values:
            return [resize([value], {size: other})[0] if i == place else value for i, value in enumerate(inputs)]

        name = f"`{self.names[place]}` with another size for {size}"
        return _only(ShapeDraw(name, derive, (place,), resizes_alone=True))

    @cached_property
    def _layouts(self) -> dict[str, tuple[ShapeDraw, ...]]:
        """Those of each tensor alone; of many, as a network's parameters, those of a share of them at a time."""
        places = [*self._tensors]
        if len(places) > MOST_MOVED_ALONE:
            shares = {layout: places[first :: len(_LAYOUTS)] for first, layout in enumerate(_LAYOUTS)}
            return {"some inputs": tuple(self._moved_alone(shares))}
        return {
            f"`{self.names[place]}`": tuple(self._moved_alone(dict.fromkeys(_LAYOUTS, [place]))) for place in places
        }

    def _moved_alone(self, shares: dict[str, list[int]]) -> Iterator[ShapeDraw]:
        """The draws that give those inputs of each share the layout which can have it."""
        for layout, share in shares.items():
            places = tuple(place for place in share if self._can_have(layout, place))
            others = f" and {len(places) - 1} other{'s' if len(places) > 2 else ''}" if len(places) > 1 else ""
            if places:
                yield self._moved(f"`{self.names[places[0]]}`{others} {layout}", layout, places)

    def _can_have(self, layout: str, place: int) -> bool:
        enough = self._tensors[place].ndim >= _LEAST_DIMENSIONS.get(layout, 1)
        return enough and not (layout == "expanded" and place in self.kept)

    @cached_property
    def _layouts_of_all(self) -> tuple[ShapeDraw, ...]:
        return tuple(self._moved(f"all inputs {layout}", layout) for layout in _LAYOUTS if layout in _OF_ALL)

    def _of_layouts(self, name: str, draws: Sequence[ShapeDraw]) -> DerivedCase:
        own_sizes = _are_few(self.inputs) and all(draw.places for draw in draws)
        return replace(_shapes(name, draws, Rule.S3), resizes_too=self.sizes and not own_sizes)

    def _moved(self, name: str, layout: str, places: tuple[int, ...] = ()) -> ShapeDraw:
        """The draw that moves the elements of the inputs at these places, of all where none is named."""

        def derive(inputs: Sequence[Any], rules: SizeRules) -> Values:
            values = self._small(inputs, rules)
            wanted = [place in (places or self._tensors) for place in range(len(values))]
            return [_by_bytes(_LAYOUTS[layout], value) if move else value for move, value in zip(wanted, values)]

        return ShapeDraw(name, derive, places, all_stay=True)

    def _small(self, inputs: Sequence[Any], rules: SizeRules) -> Values:
        return _with_sizes(inputs, SMALL_SIZES, rules) if self.sizes else list(inputs)

    @cached_property
    def _alternating(self) -> tuple[ShapeDraw, ...]:
        """The draws of calls in turn: the first as it comes, sizes swapped, another type."""

        def in_another_type(inputs: Sequence[Any], rules: SizeRules) -> Values:
            return [_in_another_type(value) for value in self._small(inputs, rules)]

        first = "small sizes" if self.sizes else "own sizes"
        return (
            ShapeDraw(first, self._small, all_stay=True, changes=False),
            ShapeDraw("sizes swapped", lambda inputs, rules: _with_sizes(inputs, SWAPPED_SIZES, rules)),
            ShapeDraw("another type", in_another_type, all_stay=True),
        )

    def _in_turn(self) -> Iterator[DerivedCase]:
        """Calls whose second one a kernel that keeps something by too little takes for the first."""
        first, swapped, another_type = (draw.name for draw in self._alternating)
        tensors = self._tensors.values()
        if self.sizes and any(value.ndim >= 2 for value in tensors):
            name, draws = "as many elements in another shape", (first, swapped)
            yield DerivedCase(name, draws, Rule.S4, may_decline=True, back=True)
        if any(value.dtype in OTHER_TYPE for value in tensors):
            name, draws = "the same shape in another type", (first, another_type)
            case = DerivedCase(name, draws, Rule.S4, may_decline=True, may_raise=True, back=True)
            yield replace(case, resizes_too=self.sizes)


def _are_few(inputs: Sequence[Any]) -> bool:
    return count_elements([value for value in inputs if isinstance(value, Tensor)], {}) <= MOST_ELEMENTS


def sizes_that_may_stay(inputs: Sequence[Any]) -> list[int]:
    """The smallest sizes, which a reference may need as they are."""
    return [size for size in sorted(distinct_sizes(inputs))[:MOST_FIXED] if size <= FIXED]


def _shapes(name: str, draws: Iterable[ShapeDraw], rule: Rule) -> DerivedCase:
    return DerivedCase(name, tuple(draw.name for draw in draws), rule, may_decline=True, strict=True)


def _only(draw: ShapeDraw) -> ShapeDraw:
    """The draw, with free sizes or not at all."""
    return replace(draw, smallest=False, related=False, all_stay=False)


def _three_of_one(value: Any) -> Any:
    """Three different ones where the first dimension is 1, and no other is: a batch, not something to broadcast."""
    if not isinstance(value, Tensor) or value.ndim < 2 or [*value.shape].count(1) != 1 or value.shape[0] != 1:
        return value
    return _by_bytes(lambda batch: torch.cat([batch, batch.flip(-1), batch.roll(1, -1)]), value)


def _by_bytes(change: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """The tensor with its elements moved; those of 8-bit floats as bytes, as PyTorch does not flip them."""
    narrow = value.is_floating_point() and value.element_size() == 1
    return change(value.view(torch.uint8)).view(value.dtype) if narrow else change(value)


def _with_sizes(inputs: Sequence[Any], new: Sequence[int], rules: SizeRules) -> Values:
    """New sizes for the distinct dimensions, the last one first; those beyond take the last of `new`."""
    sizes = rules.free(distinct_sizes(inputs))
    wanted = rules.ordered(sizes, [new[min(place, len(new) - 1)] for place in range(len(sizes))])
    return resize(inputs, rules.complete(wanted))


def _empty(inputs: Sequence[Any], rules: SizeRules) -> Values:
    """The outermost dimension becomes 0, every other one small; one more than another stays that, as of offsets."""
    sizes = rules.free(distinct_sizes(inputs))
    others = [size for size in sizes if size - 1 not in sizes]
    new = {**dict.fromkeys(others[:-1], 8), **dict.fromkeys(others[-1:], 0)}
    for size in sorted({*sizes}.difference(others)):
        new[size] = new[size - 1] + 1
    return resize(inputs, rules.complete(new)) if sizes else list(inputs)


ODD = ShapeDraw("odd sizes", lambda inputs, rules: _with_sizes(inputs, ODD_SIZES, rules))
EMPTY = ShapeDraw("empty", _empty, as_odd=True)
THREE_OF_ONE = _only(
    ShapeDraw("three where one is drawn", lambda inputs, rules: [_three_of_one(value) for value in inputs])
)

# ------------------------------------------------------------------------------------------------------------- sizes


def _any_of(*numbers: int) -> int:
    return numbers[int(torch.randint(len(numbers), ()))]


def _odd(low: int, high: int) -> int:
    return int(torch.randint(low // 2, high // 2, ())) * 2 + 1


def _around(name: str, new: Callable[[], tuple[int | None, ...]]) -> ShapeDraw:
    """Sizes of the distinct dimensions, the last one first, others 2; None: as it is; too many are drawn again."""

    def derive(inputs: Sequence[Any], rules: SizeRules) -> Values:
        drawn = (_beside(inputs, rules, *new()) for _ in range(MOST_DRAWN))
        changed = (values for values in drawn if any(v is not old for v, old in zip(values, inputs)))
        return next(changed, list(inputs))

    return ShapeDraw(name, derive)


# Each number of columns beside those of other cases costs one more compilation, a third of a second or more.
_AROUND_COLUMNS = (
    _around("2^n + 1", lambda: (_any_of(129, 257, 513), _any_of(63, 127), 3)),
    _around("2^n - 1", lambda: (_any_of(127, 255, 511), _any_of(65, 129), 3)),
    # In float32, 1 / columns times the first index of some of these rows is less than the row.
    _around("multiples of 4", lambda: (_any_of(164, 188, 244), _any_of(80, 112), 3)),
)
_AROUND = (
    *_AROUND_COLUMNS,
    _around("more than 2^13 columns", lambda: (8192 + 8 * _odd(0, 16), 3, 2)),
    _around("more than 2^10 rows", lambda: (SWAPPED_SIZES[0], 1024 + _odd(0, 100), 2)),
    _around("many in the third size", lambda: (_any_of(16, 32), _any_of(8, 16), _any_of(65, 67, 129), 2)),
    _around("many in the fourth size", lambda: (_any_of(16, 32), _any_of(8, 16), 2, _any_of(65, 67, 129))),
    _around("own columns, 2^n + 1 rows", lambda: (None, _any_of(65, 129), 3)),
)


def _beside(inputs: Sequence[Any], rules: SizeRules, *new: int | None) -> Values:
    """The inputs with these sizes; unchanged where there is no such dimension, or too many elements."""
    sizes = rules.free(distinct_sizes(inputs))
    if len(new) > max(3, len(sizes)) or (new[0] is None and len(sizes) < 2):
        return list(inputs)
    chosen = [new[place] if place < len(new) else 2 for place in range(len(sizes))]
    kept = {size: size if other is None else other for size, other in zip(sizes, chosen)}
    wanted = rules.complete(rules.ordered(sizes, list(kept.values())))
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    return resize(inputs, wanted) if count_elements(tensors, wanted) <= MOST_ELEMENTS else list(inputs)


# ------------------------------------------------------------------------------------------------- layouts and types


def _rows_apart(tensor: Tensor) -> Tensor:
    """Rows further apart than they are long: a slice of a wider tensor; the gap holds other values."""
    wide = torch.cat([tensor, tensor.flip(-1), tensor], dim=-1)
    return wide[..., : tensor.shape[-1]]


def _every_second(tensor: Tensor) -> Tensor:
    return torch.stack([tensor, tensor.flip(-1)], dim=-1)[..., 0]


def _transposed(tensor: Tensor) -> Tensor:
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if tensor.ndim >= 2 else tensor


def _batches_apart(tensor: Tensor) -> Tensor:
    return torch.cat([tensor, tensor.flip(1)], dim=1)[:, : tensor.shape[1]] if tensor.ndim >= 3 else tensor


def _outer_permuted(tensor: Tensor) -> Tensor:
    return tensor.transpose(0, 1).contiguous().transpose(0, 1) if tensor.ndim >= 3 else tensor


def _expanded(tensor: Tensor) -> Tensor:
    return tensor[:1].expand(tensor.shape) if tensor.ndim and tensor.shape[0] else tensor


def _offset(tensor: Tensor) -> Tensor:
    """The same values one element past an aligned address."""
    flat = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)[1:]
    return flat.view(tensor.shape).copy_(tensor)


_LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": _transposed,
    "with gaps between rows": _rows_apart,
    "one element past an aligned address": _offset,
    "with every second element": _every_second,
    "expanded": _expanded,
    "with gaps between batches": _batches_apart,
    "with outer dimensions permuted": _outer_permuted,
}
_OF_ALL = ("transposed", "with gaps between rows", "one element past an aligned address")
_LEAST_DIMENSIONS = {
    "transposed": 2,
    "with gaps between rows": 2,
    "with gaps between batches": 3,
    "with outer dimensions permuted": 3,
}


def _in_another_type(value: Any) -> Any:
    wanted = OTHER_TYPE.get(value.dtype) if isinstance(value, Tensor) else None
    return value if wanted is None else value.to(wanted)
