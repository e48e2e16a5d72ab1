"""Inputs of other sizes, layouts and types, derived from those of a problem, and the cases that they make.

Sizes change where the contract promises that; layouts and types change at the problem's own sizes too. A kernel may
refuse any of them aloud.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cutesmith.judge.draws.derived_case import DerivedCase
from cutesmith.judge.reference_side.cases import Values, count_elements, distinct_sizes, resize
from cutesmith.judge.reference_side.size_rules import FREE, SizeRules
from cutesmith.verdicts import Rule

ODD_SIZES = (37, 5, 3, 2)  # of the distinct dimensions, the last one first; small, so that a case costs nothing
SMALL_SIZES = (48, 24, 4, 2)  # layouts need no large tensors
SWAPPED_SIZES = (24, 48, 4, 2)
MOST_ELEMENTS = 1 << 20  # of other sizes beside columns that stay
FIXED, MOST_FIXED = 16, 3  # a size that the reference may need as it is is at most that, and so many are tried
OTHER_SIZES, MOST_APART = (37, 29), 4  # of one input alone, and in so many draws
APART, THREE_OF_ONE = "` with another size for ", "three where one is drawn"
OTHER_TYPE = {torch.float32: torch.bfloat16, torch.bfloat16: torch.float16, torch.float16: torch.bfloat16}

Tensor = torch.Tensor


@dataclass(frozen=True)
class OtherShapes:
    """The cases for inputs of some names; `sizes`: whether these may change; `kept`: places that keep their values."""

    names: tuple[str, ...]
    sizes: bool
    kept: frozenset[int] = frozenset()

    def cases(self, inputs: Sequence[Any], *, quick: bool = False) -> Iterator[DerivedCase]:
        """Cases for these inputs; with no tensor of a dimension there are none. `quick`: where sizes change, a few."""
        tensors = {index: value for index, value in enumerate(inputs) if isinstance(value, Tensor) and value.ndim}
        if not tensors or (quick and not self.sizes):
            return
        if self.sizes:
            names = ["odd sizes", "empty", *(f"size 1 for {size}" for size in distinct_sizes(inputs))]
            yield from (DerivedCase(name, (name,), may_decline=True, strict=True) for name in names)
        together = tuple(f"all inputs {layout}" for layout in _LAYOUTS if layout in _OF_ALL)
        of_all = DerivedCase("layouts of all inputs", together, Rule.S3, may_decline=True, strict=True)
        if quick:
            yield of_all
            return
        if self.sizes:
            around = tuple(_SIZES) if len(distinct_sizes(inputs)) > 1 else ("2^n + 1", "2^n - 1", "multiples of 4")
            apart = tuple(_sizes_apart(self.names, inputs))
            yield DerivedCase("equal sizes apart", (THREE_OF_ONE, *apart), Rule.S2, may_decline=True, strict=True)
            yield DerivedCase("sizes around powers of two", around, Rule.S2, may_decline=True, strict=True)
        if len(tensors) > 1:
            yield of_all
        for index, value in tensors.items():
            possible = [layout for layout in _LAYOUTS if value.ndim >= _LEAST_DIMENSIONS.get(layout, 1)]
            layouts = [layout for layout in possible if layout != "expanded" or index not in self.kept]
            draws = tuple(f"`{self.names[index]}` {layout}" for layout in layouts)
            name = f"layouts of `{self.names[index]}`"
            yield DerivedCase(name, draws, Rule.S3, may_decline=True, strict=True)
        yield from self._in_turn(tensors.values())

    def _in_turn(self, tensors: Collection[Tensor]) -> Iterator[DerivedCase]:
        """Calls whose second one a kernel that keeps something by too little takes for the first."""
        first = "small sizes" if self.sizes else "own sizes"
        if self.sizes and any(value.ndim >= 2 for value in tensors):
            swapped = ("small sizes", "sizes swapped")
            yield DerivedCase("as many elements in another shape", swapped, Rule.S4, may_decline=True, back=True)
        if any(value.dtype in OTHER_TYPE for value in tensors):
            yield DerivedCase(
                "the same shape in another type",
                (first, "another type"),
                Rule.S4,
                may_decline=True,
                may_raise=True,
                back=True,
            )

    def changed_by(self, draw: str) -> tuple[int, ...]:
        """The places of the inputs whose layout a draw changes."""
        return tuple(index for index, name in enumerate(self.names) if draw.startswith(f"`{name}` "))

    def rules(self, draw: str, inputs: Sequence[Any], related: Callable[[], SizeRules | None]) -> Iterator[SizeRules]:
        """How sizes may have to change in a draw, for a reference that refuses others: a point has two coordinates.

        At first each by itself, then with each of the smallest as it is, and with those that are `related`, which takes
        a search. Where only a layout changes, at last all of few elements stay.
        """
        yield FREE
        if not self.sizes or draw == THREE_OF_ONE or APART in draw:
            return
        stay = sizes_that_may_stay(inputs)
        if not draw.startswith("size 1 for "):
            yield from (SizeRules(frozenset({size})) for size in stay)
        if rules := related():
            yield rules
        elsewhere = draw in _SIZES or draw in _OTHERWISE or draw.startswith("size 1 for ")
        if not elsewhere and count_elements([v for v in inputs if isinstance(v, Tensor)], {}) <= MOST_ELEMENTS:
            yield SizeRules(frozenset(distinct_sizes(inputs)))

    def derive(self, draw: str, inputs: Sequence[Any], rules: SizeRules = FREE) -> Values:
        """The inputs of one draw, with sizes by these rules; takes what it needs from torch's global generator."""
        if draw.startswith("size 1 for "):
            return resize(inputs, rules.complete({int(draw.rpartition(" ")[2]): 1}))
        if APART in draw:
            size = int(draw.rpartition(" ")[2])
            changed = self.changed_by(draw)
            other = OTHER_SIZES[size == OTHER_SIZES[0]]
            return [resize([v], {size: other})[0] if i in changed else v for i, v in enumerate(inputs)]
        if draw in _SIZES:
            return _beside(inputs, rules, *_SIZES[draw]())
        if draw in _OTHERWISE:
            return _OTHERWISE[draw](list(inputs), rules)
        values = _with_sizes(inputs, SMALL_SIZES, rules) if self.sizes else list(inputs)
        if draw == "another type":
            return [_in_another_type(value) for value in values]
        places = self.changed_by(draw) or range(len(values))
        layout = draw.rpartition("` ")[2].removeprefix("all inputs ")
        if layout not in _LAYOUTS:
            return values
        wanted = [index in places and isinstance(value, Tensor) for index, value in enumerate(values)]
        return [_by_bytes(_LAYOUTS[layout], value) if change else value for change, value in zip(wanted, values)]


def sizes_that_may_stay(inputs: Sequence[Any]) -> list[int]:
    """The smallest sizes, which a reference may need as they are."""
    return [size for size in sorted(distinct_sizes(inputs))[:MOST_FIXED] if size <= FIXED]


def _sizes_apart(names: Sequence[str], inputs: Sequence[Any]) -> list[str]:
    """Draws that change a size of one input alone which another one has too: perhaps both are as long by chance."""
    tensors = {name: value for name, value in zip(names, inputs) if isinstance(value, Tensor)}
    found = [
        f"`{name}{APART}{size}"
        for name, value in tensors.items()
        for size in dict.fromkeys(value.shape)
        if size > 1 and any(size in other.shape for other in tensors.values() if other is not value)
    ]
    return found[:MOST_APART]


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
    return resize(inputs, rules.complete({size: new[min(i, len(new) - 1)] for i, size in enumerate(sizes)}))


def _empty(inputs: Sequence[Any], rules: SizeRules) -> Values:
    """The outermost dimension becomes 0, every other one small."""
    sizes = rules.free(distinct_sizes(inputs))
    return resize(inputs, rules.complete({**dict.fromkeys(sizes[:-1], 8), sizes[-1]: 0})) if sizes else list(inputs)


_OTHERWISE: dict[str, Callable[[Values, SizeRules], Values]] = {
    "odd sizes": lambda inputs, rules: _with_sizes(inputs, ODD_SIZES, rules),
    "empty": _empty,
    THREE_OF_ONE: lambda inputs, rules: [_three_of_one(value) for value in inputs],
    "sizes swapped": lambda inputs, rules: _with_sizes(inputs, SWAPPED_SIZES, rules),
}

# ------------------------------------------------------------------------------------------------------------- sizes


def _any_of(*numbers: int) -> int:
    return numbers[int(torch.randint(len(numbers), ()))]


def _odd(low: int, high: int) -> int:
    return int(torch.randint(low // 2, high // 2, ())) * 2 + 1


# Sizes of the distinct dimensions, the last one first, others 2; None: as it is. Each number of columns beside those of
# other cases costs one more compilation, a third of a second or more.
_SIZES: dict[str, Callable[[], tuple[int | None, ...]]] = {
    "2^n + 1": lambda: (_any_of(129, 257, 513), _any_of(63, 127), 3),
    "2^n - 1": lambda: (_any_of(127, 255, 511), _any_of(65, 129), 3),
    # In float32, 1 / columns times the first index of some of these rows is less than the row.
    "multiples of 4": lambda: (_any_of(164, 188, 244), _any_of(80, 112), 3),
    "more than 2^13 columns": lambda: (8192 + 8 * _odd(0, 16), 3, 2),
    "more than 2^10 rows": lambda: (SWAPPED_SIZES[0], 1024 + _odd(0, 100), 2),
    "many in the third size": lambda: (_any_of(16, 32), _any_of(8, 16), _any_of(65, 67, 129), 2),
    "many in the fourth size": lambda: (_any_of(16, 32), _any_of(8, 16), 2, _any_of(65, 67, 129)),
    "own columns, 2^n + 1 rows": lambda: (None, _any_of(65, 129), 3),
}


def _beside(inputs: Sequence[Any], rules: SizeRules, *new: int | None) -> Values:
    """The inputs with these sizes; unchanged where there is no such dimension, or too many elements."""
    sizes = rules.free(distinct_sizes(inputs))
    if len(new) > max(3, len(sizes)) or (new[0] is None and len(sizes) < 2):
        return list(inputs)
    chosen = {size: new[i] if i < len(new) else 2 for i, size in enumerate(sizes)}
    wanted = rules.complete({size: other for size, other in chosen.items() if other is not None})
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
