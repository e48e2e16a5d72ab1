"""What a problem declares of its inputs with `DOMAIN = {"mask": "causal"}`: values beyond it are not drawn.

`audit` proposes such a line for inputs that are drawn so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from cutesmith.errors import ContractError
from cutesmith.judge.draws.kinds import Kind, Role, Structure


class Domain(str, Enum):
    """What an input is always.

    `PROBABILITY` (from 0 to 1) and `POSITIVE` bound its values. `SORTED` rows get other sorted values between their
    ends, as offsets do that end with the length of another input, a `PERMUTATION` another order. The others stay.
    """

    FIXED = "fixed"
    ARANGE = "arange"
    CAUSAL = "causal"
    SORTED = "sorted"
    PERMUTATION = "permutation"
    PROBABILITY = "probability"
    POSITIVE = "positive"


_HOLDS: dict[Domain, Callable[[Kind], bool]] = {
    Domain.FIXED: lambda kind: True,
    Domain.ARANGE: lambda kind: kind.structure is Structure.SEQUENCE,
    Domain.CAUSAL: lambda kind: kind.structure is Structure.TRIANGLE,
    Domain.SORTED: lambda kind: kind.structure in (Structure.SORTED, Structure.SEQUENCE, Structure.CONSTANT),
    Domain.PERMUTATION: lambda kind: kind.structure in (Structure.PERMUTATION, Structure.SEQUENCE),
    Domain.PROBABILITY: lambda kind: kind.role is Role.FLOAT and kind.low >= 0.0 and kind.high <= 1.0,
    Domain.POSITIVE: lambda kind: kind.role in (Role.FLOAT, Role.INTEGER, Role.SCALAR) and kind.low >= 0.0,
}
BOUNDING = (Domain.PROBABILITY, Domain.POSITIVE)


def declared(domain: Any, kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """The kinds with what the problem declares of them; raises ContractError for what its own draws contradict."""
    words = ", ".join(word.value for word in Domain)
    if not isinstance(domain, dict):
        hint = f'Such as DOMAIN = {{"mask": "causal"}}: parameters of reference_fn, each one of {words}.'
        raise ContractError(f"DOMAIN is {domain!r:.80}, no dict", hint=hint)
    known = {kind.name for kind in kinds}
    for name, word in domain.items():
        if name not in known:
            hint = f"It has {', '.join(sorted(known))}."
            raise ContractError(f"DOMAIN names {name!r:.40}, which reference_fn does not take", hint=hint)
        if word not in {one.value for one in Domain}:
            raise ContractError(f"DOMAIN says that {name} is {word!r:.40}", hint=f"It is one of {words}.")
    return tuple(_declared(kind, Domain(domain[kind.name])) if kind.name in domain else kind for kind in kinds)


def proposed(kinds: Sequence[Kind], values: Sequence[Any]) -> dict[str, str]:
    """What a problem could declare, by names of inputs: a triangle, a range, sorted rows, each value once, [0, 1].

    Nothing for inputs of one value everywhere: those that are no more than drawn so are the usual case. Equally spaced
    values whose step is not 1 are offsets of parts that happen to be as long as each other: sorted, no more.
    """
    return {kind.name: word.value for kind, value in zip(kinds, values) if (word := _proposed(kind, value)) is not None}


def _proposed(kind: Kind, value: Any) -> Domain | None:
    if kind.structure is Structure.SEQUENCE and bool((value.flatten()[:2].diff() != 1).any()):
        return Domain.SORTED
    if kind.structure in _OF_STRUCTURE:
        return _OF_STRUCTURE[kind.structure]
    whole = kind.role is Role.FLOAT and (kind.low, kind.high) == (0.0, 1.0)
    return Domain.PROBABILITY if (whole or kind.shares) and kind.structure is Structure.NONE else None


_OF_STRUCTURE = {
    Structure.TRIANGLE: Domain.CAUSAL,
    Structure.SEQUENCE: Domain.ARANGE,
    Structure.SORTED: Domain.SORTED,
    Structure.PERMUTATION: Domain.PERMUTATION,
}


def stays(kind: Kind) -> bool:
    """Whether an input gets no value that breaks its structure: nothing else is in its domain."""
    return bool(kind.domain) and Domain(kind.domain) not in BOUNDING


def _declared(kind: Kind, domain: Domain) -> Kind:
    if not _HOLDS[domain](kind):
        hint = "Draw it so in get_inputs, or leave it out of DOMAIN."
        drawn = f"but get_inputs draws: {kind.words}"
        raise ContractError(f"DOMAIN says that {kind.name} is {domain.value}, {drawn}", hint=hint)
    low, high = (0.0, 1.0) if domain is Domain.PROBABILITY else (kind.low, kind.high)
    return replace(kind, domain=domain.value, low=low, high=high)
