"""Which cases of values a problem gets, by the kinds of its inputs; each draw of a case is one step of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch

from cutesmith.judge.draws import values as v
from cutesmith.judge.draws.derived_case import AS_DRAWN, DerivedCase
from cutesmith.judge.draws.kinds import Kind, Role, Structure, with_ends_of
from cutesmith.judge.draws.watching import Seen
from cutesmith.verdicts import Rule

Values = list[Any]
Change = Callable[[torch.Tensor, Kind], torch.Tensor]
REDRAWN = "without structure"
# A reference that takes integers for indices must refuse these on the CPU first: a GPU's process would end on them.
SAFE_FIRST = frozenset({"special integers", "large integers", "whole range"})
MOST_SCALARS = 4  # values of one scalar argument


QUICK = (
    DerivedCase("large offset", ("large offset",), strict=True),
    DerivedCase("tiny values", ("tiny values",), strict=True),
    DerivedCase("large values", ("large values",), strict=True),
    DerivedCase("NaN and Inf", ("NaN and Inf",), forgiving=True, strict=True),
)


@dataclass(frozen=True)
class Drawing:
    """The inputs of one problem: their kinds, and what the reference was seen to decide by."""

    kinds: tuple[Kind, ...] = ()
    seen: Seen = field(default_factory=Seen)

    def cases(self, *, quick: bool) -> list[DerivedCase]:
        """Cases for these kinds; `quick`: only those of floats that are moved or scaled as a whole."""
        floats = any(kind.role is Role.FLOAT for kind in self.kinds)
        if quick:
            return list(QUICK) if floats else []
        cases = [replace(c, draws=tuple(draw for draw in c.draws if draw in self.draws)) for c in self._all_cases()]
        return [case for case in cases if case.draws]

    def _all_cases(self) -> Iterator[DerivedCase]:
        yield DerivedCase("offsets", ("large offset", "negative offset"), strict=True)
        yield DerivedCase("sizes", ("tiny values", "large values"), strict=True)
        yield DerivedCase("NaN and Inf", ("NaN and Inf",), forgiving=True, strict=True)
        yield DerivedCase(REDRAWN, (REDRAWN,), Rule.V2, alone={name: f"only `{name}`" for name in self.structured})
        yield DerivedCase("zeros", ("scattered zeros", "all zeros"), Rule.V1)
        yield DerivedCase("equal values", ("few values", "one value"), Rule.V1)
        yield DerivedCase("ends and mixed sizes", ("ends", "mixed sizes"), Rule.V1)
        yield DerivedCase("integers", ("integer ends", "special integers", "large integers", "whole range"), Rule.V3)
        yield DerivedCase("masks", ("random mask", "all true", "all false", "single and empty rows"), Rule.V4)
        for kind in self.kinds:
            if kind.role is Role.SCALAR:
                names = tuple(f"`{kind.name}` value {number}" for number in range(MOST_SCALARS))
                case = DerivedCase(f"other values of `{kind.name}`", names, Rule.V5, may_decline=True)
                yield replace(case, alone={kind.name: names[0]})

    def draw(self, name: str, inputs: Sequence[Any]) -> Iterator[Values]:
        """Ways to draw the inputs so, the best first, for a reference that may refuse some."""
        for way in self.draws.get(name, ()):
            yield way(list(inputs))

    @property
    def structured(self) -> dict[str, int]:
        """Names and places of inputs that the problem draws with a structure, or so small that they hardly matter."""
        return {kind.name: index for index, kind in enumerate(self.kinds) if _relied_upon(kind)}

    @cached_property
    def draws(self) -> dict[str, tuple[Callable[[Values], Values], ...]]:
        """What each draw does, for those that change an input of these kinds."""
        return {name: ways for name, ways in {**self._of_floats(), **self._of_others()}.items() if ways}

    def _of_floats(self) -> dict[str, tuple[Callable[[Values], Values], ...]]:
        free = [
            i for i, kind in self._floats() if not kind.shares and kind.structure in (Structure.NONE, Structure.SORTED)
        ]
        shares = [i for i, kind in self._floats() if kind.shares]
        signed = [i for i, kind in self._floats() if not kind.bounded]
        zero = [i for i in free if self.kinds[i].low <= 0.0]
        return {
            "large offset": self._largest(v.offset, free),
            "negative offset": self._largest(v.negative_offset, [i for i in free if i in signed]),
            "tiny values": self._largest(v.tiny, free),
            "large values": self._largest(v.large, free),
            "NaN and Inf": self._largest(v.specials, free),
            "scattered zeros": self._each(v.zeros_scattered, zero),
            "all zeros": self._largest(v.zeros, zero),
            "few values": self._each(v.ties, [] if self.seen.open_ties else free),
            "one value": self._largest(v.one_value, [] if self.seen.open_ties else free),
            "ends": self._each(partial(v.ends, numbers=sorted(self.seen.floats)), [*free, *shares]),
            "mixed sizes": self._each(v.mixed_sizes, [i for i in free if self.kinds[i].low <= 0.0]),
        }

    def _of_others(self) -> dict[str, tuple[Callable[[Values], Values], ...]]:
        integers = [i for i, kind in enumerate(self.kinds) if kind.role is Role.INTEGER]
        masks = [i for i, kind in enumerate(self.kinds) if kind.role is Role.BOOLEAN]
        structured = list(self.structured.values())
        special = partial(_special_integers, numbers=sorted(self.seen.integers))
        draws: dict[str, tuple[Callable[[Values], Values], ...]] = {
            AS_DRAWN: (list,),
            REDRAWN: (*self._each(v.redrawn, structured), *self._each(partial(v.redrawn, positive=True), structured)),
            "integer ends": self._each(v.integer_ends, integers),
            "special integers": self._each(special, integers) if self.seen.integers else (),
            "large integers": self._each(v.beyond_labels, integers),
            "whole range": self._each(v.whole_range, integers),
            "random mask": self._each(v.masked, masks),
            "all true": self._each(lambda mask, kind: v.filled(mask, True), masks),
            "all false": self._each(lambda mask, kind: v.filled(mask, False), masks),
            "single and empty rows": self._each(v.single, masks),
        }
        for name, place in self.structured.items():
            one = [place]
            draws[f"only `{name}`"] = (*self._each(v.redrawn, one), *self._each(partial(v.redrawn, positive=True), one))
        for index, kind in enumerate(self.kinds):
            if kind.role is Role.SCALAR:
                for number in range(MOST_SCALARS):
                    draws[f"`{kind.name}` value {number}"] = (partial(_other_scalar, index=index, number=number),)
        return draws

    def _floats(self) -> Iterator[tuple[int, Kind]]:
        return ((index, kind) for index, kind in enumerate(self.kinds) if kind.role is Role.FLOAT)

    def _each(self, change: Change, places: Sequence[int]) -> tuple[Callable[[Values], Values], ...]:
        """One way: all inputs at these places are changed; none where there are none."""
        return (partial(self._changed, change, places),) if places else ()

    def _largest(self, change: Change, places: Sequence[int]) -> tuple[Callable[[Values], Values], ...]:
        """One way: of the inputs at these places those with the most elements change: weights and scales stay."""
        return (partial(self._changed, change, places, largest=True),) if places else ()

    def _changed(self, change: Change, places: Sequence[int], inputs: Values, *, largest: bool = False) -> Values:
        most = max(inputs[place].numel() for place in places) if largest else 0
        chosen = {place for place in places if inputs[place].numel() and inputs[place].numel() >= most}
        return [change(x, self._kind(i, x, inputs)) if i in chosen else x for i, x in enumerate(inputs)]

    def _kind(self, index: int, tensor: torch.Tensor, inputs: Values) -> Kind:
        kind = self.kinds[index]
        return with_ends_of(kind, tensor, inputs) if kind.role is Role.INTEGER else kind


def _relied_upon(kind: Kind) -> bool:
    tensor = kind.role in (Role.FLOAT, Role.INTEGER, Role.BOOLEAN)
    small = kind.role is Role.FLOAT and max(abs(kind.low), abs(kind.high)) < v.SMALL
    return tensor and (kind.structure is not Structure.NONE or small)


def _special_integers(tensor: torch.Tensor, kind: Kind, numbers: Sequence[int]) -> torch.Tensor:
    limits = torch.iinfo(tensor.dtype)
    fitting = [number for number in numbers if limits.min <= number <= limits.max]
    return v.planted(tensor, fitting, copies=max(1, tensor.numel() // 4)) if fitting else tensor


def _other_scalar(inputs: Values, *, index: int, number: int) -> Values:
    others = v.scalar_values(inputs[index])
    return [others[number % len(others)] if i == index else value for i, value in enumerate(inputs)]
