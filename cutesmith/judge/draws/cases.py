"""Which cases of values a problem gets, by the kinds of its inputs; each draw of a case is one step of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch

from cutesmith.judge.draws import values as v
from cutesmith.judge.draws.derived_case import AS_DRAWN, DerivedCase
from cutesmith.judge.draws.domains import Domain, stays
from cutesmith.judge.draws.kinds import Kind, Role, Structure, with_ends_of
from cutesmith.judge.draws.watching import Seen
from cutesmith.verdicts import Rule

Values = list[Any]
REDRAWN, SAME_BEGINNING = "without structure", "the same first elements"
OTHER_SCALARS = "other scalars"  # all at once, each with the first of its other values
IN_ITS_DOMAIN = "others of its domain"
_IN_DOMAIN = {Domain.SORTED.value: v.in_its_order, Domain.PERMUTATION.value: v.permuted}
# Tried on the CPU first even where the reference does not run there: as indices they would end a GPU's process.
ANY_INTEGER = ("whole range", "negative integers", "close integers")  # not for indices, which "large integers" tell
NEGATIVE_INDICES = "negative indices"  # for indices alone
SAFE_FIRST = frozenset({"special integers", "large integers", NEGATIVE_INDICES, *ANY_INTEGER})


QUICK = (DerivedCase(OTHER_SCALARS, (OTHER_SCALARS,), Rule.V5, may_decline=True, may_raise=True),)
QUICK_OF_FLOATS = (
    DerivedCase("large offset", ("large offset",), strict=True),
    DerivedCase("tiny values", ("tiny values",), strict=True),
    DerivedCase("large values", ("large values",), strict=True),
    DerivedCase("NaN and Inf", ("NaN and Inf",), forgiving=True, strict=True),
)


@dataclass(frozen=True)
class Way:
    """How a draw changes the inputs at these places; `largest`: of them those with the most elements, or not those."""

    change: Callable[[Any, Kind], Any] = lambda value, kind: value
    places: tuple[int, ...] = ()
    largest: bool | None = None

    def only(self, places: Collection[int]) -> Way:
        """The same at no other than these places."""
        return replace(self, places=tuple(place for place in self.places if place in places))

    def changed(self, elements: Sequence[int]) -> set[int]:
        """The places of inputs of so many elements that it changes; an empty tensor stays."""
        most = max((elements[place] for place in self.places), default=0)
        named = {place for place in self.places if elements[place]}
        return named if self.largest is None else {p for p in named if (elements[p] == most) == self.largest}


@dataclass(frozen=True)
class Drawing:
    """The inputs of one problem: their kinds, and what the reference was seen to decide by."""

    kinds: tuple[Kind, ...] = ()
    seen: Seen = field(default_factory=Seen)

    def cases(self, *, quick: bool) -> list[DerivedCase]:
        """Cases for these kinds; `quick`: floats that are moved or scaled as a whole, and one other set of scalars."""
        floats = any(kind.role is Role.FLOAT for kind in self.kinds)
        all_cases = self._all_cases() if not quick else (*(QUICK_OF_FLOATS if floats else ()), *QUICK)
        cases = [replace(c, draws=tuple(draw for draw in c.draws if draw in self.draws)) for c in all_cases]
        return [case for case in cases if case.draws and case.draws != (AS_DRAWN,)]

    def _all_cases(self) -> Iterator[DerivedCase]:
        alone = {name: f"only `{name}`" for name in self.structured}
        yield DerivedCase("the same beginning", (AS_DRAWN, SAME_BEGINNING), Rule.V1, back=True, kept=Rule.S4)
        yield from self._of_each_scalar()
        yield DerivedCase("offsets", ("large offset", "negative offset", "far above", "far below"), strict=True)
        yield DerivedCase("sizes", ("tiny values", "large values"), strict=True)
        yield DerivedCase("NaN and Inf", ("NaN and Inf", "NaN elsewhere"), forgiving=True, strict=True)
        yield DerivedCase(REDRAWN, (REDRAWN,), Rule.V2, alone=alone)
        yield DerivedCase(IN_ITS_DOMAIN, (IN_ITS_DOMAIN,), Rule.V2)
        yield DerivedCase("zeros", ("scattered zeros", "all zeros"), Rule.V1, alone=alone)
        yield DerivedCase("equal values", ("few values", "one value"), Rule.V1, alone=alone)
        yield DerivedCase("ends and mixed sizes", ("ends", "mixed sizes"), Rule.V1, alone=alone)
        yield DerivedCase("squares out of range", ("squares above", "squares below"), Rule.V1, alone=alone)
        yield DerivedCase("halves and runs of -Inf", ("halves", "runs of -Inf"), Rule.V1, alone=alone)
        integers = "integer ends", "one integer", "special integers", "large integers", NEGATIVE_INDICES, *ANY_INTEGER
        yield DerivedCase("integers", integers, Rule.V3, alone=alone)
        yield DerivedCase("masks", ("random mask", "all true", "all false", "single and empty rows"), Rule.V4)

    def _of_each_scalar(self) -> Iterator[DerivedCase]:
        """Early, as a value that a kernel crashes for ends the verification."""
        for kind in self.kinds:
            if kind.role is Role.SCALAR and not stays(kind):
                names = tuple(_scalar_draw(kind, number) for number in range(_count_of_others(kind)))
                case = DerivedCase(f"other values of `{kind.name}`", names, Rule.V5, may_decline=True, may_raise=True)
                yield replace(case, alone={kind.name: names[0]})

    def changed_by(self, name: str) -> tuple[int, ...]:
        """The places of the inputs that a draw changes; none for one that does not draw values."""
        return self.draws[name][0].places if name in self.draws else ()

    def left_out(self, place: int) -> dict[str, str]:
        """Draws that change no input at this place, with the reason, where its kind or the reference rules them out."""
        kind = self.kinds[place]
        if stays(kind):
            told = "values beyond its domain" if kind.domain in _IN_DOMAIN else "other values"
            return {told: f"DOMAIN declares that it is {kind.domain}"}
        if kind.role is Role.INTEGER and self._stays_distinct(kind):
            why = "PyTorch leaves open which of the elements for one place stays"
            return dict.fromkeys(("integer ends", "one integer", NEGATIVE_INDICES), why)
        if kind.role is Role.INTEGER and kind.domain:
            return {NEGATIVE_INDICES: f"DOMAIN declares that it is {kind.domain}"}
        if kind.role is not Role.FLOAT:
            return {}
        far = ("far above", "far below", "squares above", "squares below"), "the reference takes exponentials"
        below = ("negative offset", "far below", "halves", "runs of -Inf"), "nothing below 0 is drawn for it"
        ruled_out = (self.seen.exponentials, far), (kind.bounded, below)
        return {name: why for holds, (names, why) in ruled_out if holds for name in names}

    @property
    def structured(self) -> dict[str, int]:
        """Names and places of inputs that the problem draws with a structure, or so small that they hardly matter."""
        return {kind.name: index for index, kind in enumerate(self.kinds) if _relied_upon(kind)}

    @cached_property
    def draws(self) -> dict[str, tuple[Way, ...]]:
        """The ways to make each draw, the best first, for those that change an input of these kinds."""
        found = {
            AS_DRAWN: (Way(),),
            **self._of_floats(),
            **self._of_integers(),
            **self._of_masks(),
            **self._of_scalars(),
            IN_ITS_DOMAIN: (Way(_in_its_domain, tuple(i for i, k in enumerate(self.kinds) if k.domain in _IN_DOMAIN)),),
            SAME_BEGINNING: (Way(v.same_beginning, tuple(i for i, kind in enumerate(self.kinds) if is_free(kind))),),
        }
        redrawn = {REDRAWN: self._redrawn(tuple(self.structured.values()))}
        alone = {f"only `{name}`": self._redrawn((place,)) for name, place in self.structured.items()}
        return {
            name: ways for name, ways in {**found, **redrawn, **alone}.items() if ways[0].places or name == AS_DRAWN
        }

    def _of_floats(self) -> dict[str, tuple[Way, ...]]:
        """Whole tensors move or scale where they are the largest: weights and scales stay what they are."""
        kinds, floats = self.kinds, self._places(Role.FLOAT)
        unbound = (Structure.NONE, Structure.SORTED, Structure.SYMMETRIC)
        plain = [i for i in floats if kinds[i].structure in unbound]
        free = tuple(i for i in plain or floats if not kinds[i].shares)
        moved = tuple(i for i in free if not kinds[i].domain)
        signed = tuple(i for i in free if not kinds[i].bounded)
        zero = tuple(i for i in free if kinds[i].low <= 0.0)
        above = () if self.seen.exponentials else moved
        far = tuple(i for i in above if i in signed)
        ended = (*free, *(i for i in floats if kinds[i].shares))
        return {
            "large offset": (Way(v.offset, moved, largest=True),),
            "negative offset": (Way(v.negative_offset, signed, largest=True),),
            "far above": (Way(v.far_above, above, largest=True),),
            "far below": (Way(v.far_below, far, largest=True),),
            "tiny values": (Way(v.tiny, moved, largest=True),),
            "large values": (Way(v.large, moved, largest=True),),
            "NaN and Inf": (Way(v.specials, moved, largest=True),),
            "NaN elsewhere": (Way(v.not_numbers, moved if len(moved) > 1 else (), largest=False),),
            "scattered zeros": (Way(v.zeros_scattered, zero),),
            "all zeros": (Way(v.zeros, zero, largest=True),),
            "few values": (Way(v.ties, free),),
            "one value": (Way(v.one_value, free, largest=True),),
            "ends": (Way(partial(v.ends, numbers=sorted(self.seen.floats)), ended),),
            "mixed sizes": (Way(v.mixed_sizes, zero),),
            "squares above": (Way(v.squares_above, far, largest=True),),
            "squares below": (Way(v.squares_below, far, largest=True),),
            "halves": (Way(v.halves, signed, largest=True),),
            "runs of -Inf": (Way(v.infinite_runs, tuple(i for i in signed if i in moved), largest=True),),
        }

    def _of_integers(self) -> dict[str, tuple[Way, ...]]:
        integers, numbers = self._places(Role.INTEGER), sorted(self.seen.integers)
        repeated = tuple(i for i in integers if not self._stays_distinct(self.kinds[i]))
        # A reference that compares with 0 or less says itself what a negative index means: "special integers" ask that.
        indices = [i for i in repeated if not self.kinds[i].domain and self.kinds[i].structure is not Structure.SORTED]
        wrapped = tuple(indices) if all(number > 0 for number in numbers) else ()
        return {
            "integer ends": (Way(v.integer_ends, repeated),),
            "one integer": (Way(v.one_integer, repeated, largest=True),),
            "special integers": (Way(partial(v.special_integers, numbers=numbers), integers if numbers else ()),),
            "large integers": (Way(v.beyond_labels, integers),),
            NEGATIVE_INDICES: (Way(v.negative_indices, wrapped),),
            "whole range": (Way(v.whole_range, integers),),
            "negative integers": (Way(v.negative_integers, integers),),
            "close integers": (Way(v.close_integers, integers),),
        }

    def _stays_distinct(self, kind: Kind) -> bool:
        """Whether repeats would ask what PyTorch leaves open: which of the elements for one place stays."""
        return self.seen.open_repeats and (kind.distinct or kind.structure is Structure.SEQUENCE)

    def _of_masks(self) -> dict[str, tuple[Way, ...]]:
        masks = self._places(Role.BOOLEAN)
        return {
            "random mask": (Way(v.masked, masks),),
            "all true": (Way(partial(v.filled, value=True), masks),),
            "all false": (Way(partial(v.filled, value=False), masks),),
            "single and empty rows": (Way(v.single, masks),),
        }

    def _of_scalars(self) -> dict[str, tuple[Way, ...]]:
        scalars = self._places(Role.SCALAR)
        return {
            OTHER_SCALARS: (Way(partial(v.other_scalar, number=0), scalars),),
            **{
                _scalar_draw(self.kinds[place], number): (Way(partial(v.other_scalar, number=number), (place,)),)
                for place in scalars
                for number in range(_count_of_others(self.kinds[place]))
            },
        }

    def _redrawn(self, places: tuple[int, ...]) -> tuple[Way, ...]:
        """Without structure, of both signs if the reference takes that, else positive, else with the same ends."""
        ordered = (Structure.SORTED, Structure.SEQUENCE)
        if self.seen.sorted_inputs and any(self.kinds[i].structure in ordered for i in places):
            return (Way(v.in_order, places),)
        return Way(v.redrawn, places), Way(partial(v.redrawn, positive=True), places), Way(v.between_its_ends, places)

    def _places(self, role: Role) -> tuple[int, ...]:
        """Inputs of this role, without those that the problem declares to stay as they are drawn."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind.role is role and not stays(kind))

    def changed(self, way: Way, inputs: Sequence[Any]) -> Values:
        """The inputs with those at the way's places changed; an empty tensor stays, and so does the nesting."""
        elements = [value.numel() if isinstance(value, torch.Tensor) else 1 for value in inputs]
        changed = way.changed(elements)
        return [
            way.change(value, with_ends_of(self.kinds[index], value, inputs)) if index in changed else value
            for index, value in enumerate(inputs)
        ]


def _in_its_domain(tensor: torch.Tensor, kind: Kind) -> torch.Tensor:
    return _IN_DOMAIN[kind.domain](tensor, kind)


def _count_of_others(kind: Kind) -> int:
    return 0 if kind.value is None else len(v.scalar_values(kind.value))


def _scalar_draw(kind: Kind, number: int) -> str:
    assert kind.value is not None
    other = v.scalar_values(kind.value)[number]
    return f"`{kind.name}` = {f'{other:.6g}' if isinstance(other, float) else other}"


def is_free(kind: Kind) -> bool:
    """Whether the elements of an input may stand in any order."""
    data = kind.role in (Role.FLOAT, Role.INTEGER)
    return data and kind.structure is Structure.NONE and not kind.shares and not stays(kind)


def _relied_upon(kind: Kind) -> bool:
    tensor = kind.role in (Role.FLOAT, Role.INTEGER, Role.BOOLEAN)
    small = kind.role is Role.FLOAT and max(abs(kind.low), abs(kind.high)) < v.SMALL
    return tensor and not stays(kind) and (kind.structure is not Structure.NONE or small)
