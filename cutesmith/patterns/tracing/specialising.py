"""A function of fewer arguments: options are what they are, and so are the numbers that Python code decides by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.call import Call, code_of
from cutesmith.problems.arguments import Nesting, is_option, names_of, of_values, spread


@dataclass(frozen=True)
class Specialised:
    """A function of the values that are not held, their values, and how the kernel is called; None as the graph is."""

    function: Callable[..., Any]
    inputs: list[Any]
    call: Call | None


def specialised(function: Callable[..., Any], inputs: Sequence[Any], held: Collection[int] = ()) -> Specialised:
    """The function with its options held, and with the numbers at these places of its values.

    Raises UnmatchedError for NaN, which equals no other value.
    """
    values = spread(inputs)
    nesting = values.pop() if values and isinstance(values[-1], Nesting) else None
    names = names_of(function, [*values, nesting] if nesting else values, unnamed="x")
    fixed = {place: value for place, value in enumerate(values) if place in held or is_option(value)}
    if nesting is None and not fixed:
        return Specialised(function, values, None)
    if unequal := [names[place] for place, value in fixed.items() if value != value]:
        raise UnmatchedError(f"argument {unequal[0]} is NaN", hint="Give a number, or None.")
    free = [place for place in range(len(values)) if place not in fixed]

    def call(*given: Any) -> Any:
        known = {**fixed, **dict(zip(free, given, strict=True))}
        arguments = [known[place] for place in range(len(values))]
        return of_values(function)(*arguments, *([nesting] if nesting else []))

    parameters = [inspect.Parameter(names[place], inspect.Parameter.POSITIONAL_OR_KEYWORD) for place in free]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    arguments = nesting.arguments if nesting else (None,) * len(values)
    outer = names_of(function, list(arguments), unnamed="x")
    codes = tuple((place, code_of(value)) for place, value in fixed.items())
    return Specialised(call, [values[place] for place in free], Call(tuple(outer), arguments, tuple(names), codes))


def numbers_of(inputs: Sequence[Any]) -> list[int]:
    """The places of Python numbers among the values, those first that decide least often: floats, then integers."""
    order = (float, int, bool)
    numbers = [(place, type(value)) for place, value in enumerate(spread(inputs)) if type(value) in order]
    return [place for place, kind in sorted(numbers, key=lambda number: order.index(number[1]))]
