"""Walks over operands, and bodies put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count

from cutesmith.emulator.ptx.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)


def parts(operand: Operand) -> Iterator[Operand]:
    """Registers, symbols, literals, … in an operand, from left to right; the base of an address is one of them."""
    if isinstance(operand, Address):
        yield operand.base
        for coordinate in operand.coordinates:
            yield from parts(coordinate)
    elif isinstance(operand, Vector):
        for element in operand.elements:
            yield from parts(element)
    elif isinstance(operand, Pair):
        yield from parts(operand.first)
        yield from parts(operand.second)
    else:
        yield operand


def mapped(operand: Operand, change: Callable[[Operand], Operand]) -> Operand:
    """The operand with `change` applied to each of its parts."""
    if isinstance(operand, Address):
        coordinates = tuple(mapped(coordinate, change) for coordinate in operand.coordinates)
        base = change(operand.base)
        assert isinstance(base, (Register, Symbol, Immediate))
        return replace(operand, base=base, coordinates=coordinates)
    if isinstance(operand, Vector):
        return Vector(tuple(mapped(element, change) for element in operand.elements))
    if isinstance(operand, Pair):
        return Pair(mapped(operand.first, change), mapped(operand.second, change))
    return change(operand)


def with_body(function: Function, body: Iterable[Instruction | Label]) -> Function:
    """The function with another body, its instructions numbered again."""
    numbers = count()
    statements = (replace(s, number=next(numbers)) if isinstance(s, Instruction) else s for s in body)
    return replace(function, body=tuple(statements))
