"""The arguments of a function as flat values, and the options among them, which stay as they are given.

A list or tuple that holds tensors is taken apart: its items are values one after another, and a last value, the
`Nesting`, says how they were nested. Who draws, moves or compares values needs to know of tensors and numbers alone.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

SEQUENCES = (list, tuple, torch.Size)


@dataclass(frozen=True)
class Nesting:
    """For each argument None, or "list" or "tuple" and the same of its items."""

    arguments: tuple[Any, ...]


def is_option(value: Any) -> bool:
    """Whether it decides how a function computes: text, None, a dtype, or a list or tuple of such and of numbers."""
    if type(value) in SEQUENCES:
        return all(type(item) in (bool, int, float) or is_option(item) for item in value)
    return value is None or type(value) is str or isinstance(value, torch.dtype)


def spread(arguments: Sequence[Any]) -> list[Any]:
    """The values of arguments: lists and tuples that hold tensors are taken apart."""
    values: list[Any] = []
    nesting = tuple(_spread(argument, values) for argument in arguments)
    return [*values, Nesting(nesting)] if any(nesting) else values


def gathered(values: Sequence[Any]) -> list[Any]:
    """The arguments that were spread; values that hold no nesting are arguments."""
    if not (values and isinstance(values[-1], Nesting)):
        return list(values)
    flat = iter(values[:-1])
    return [_gathered(each, flat) for each in values[-1].arguments]


def of_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called with values in place of its arguments."""

    @functools.wraps(function)
    def call(*values: Any) -> Any:
        return function(*(gathered(values) if values and isinstance(values[-1], Nesting) else values))

    return call


def names_of(function: Callable[..., Any], values: Sequence[Any], *, unnamed: str) -> list[str]:
    """The name of each value by the function's parameters: `tensors_0` for the first of a list.

    `unnamed`: what its place follows where the signature gives no name (a builtin, `*args`). The nesting has none.
    """
    nesting = values[-1].arguments if values and isinstance(values[-1], Nesting) else (None,) * len(values)
    parameters = _parameters(function)[: len(nesting)]
    names = [*parameters, *(f"{unnamed}{place}" for place in range(len(parameters), len(nesting)))]
    return _distinct(name for own, each in zip(names, nesting) for name in _names(own, each))


def encoded(option: Any) -> str:
    """An option or a nesting as JSON, exactly."""
    return json.dumps(_plain(option))


def decoded(text: str) -> Any:
    """What was encoded. Raises ValueError for other text."""
    return json.loads(text, object_hook=_tagged)


def _holds_tensors(value: Any) -> bool:
    return type(value) in SEQUENCES and any(isinstance(item, torch.Tensor) or _holds_tensors(item) for item in value)


def _spread(argument: Any, values: list[Any]) -> tuple[str, tuple[Any, ...]] | None:
    if _holds_tensors(argument):
        kind = "list" if type(argument) is list else "tuple"
        return kind, tuple(_spread(item, values) for item in argument)
    values.append(argument)
    return None


def _gathered(nesting: tuple[str, tuple[Any, ...]] | None, values: Iterator[Any]) -> Any:
    if nesting is None:
        return next(values)
    kind, items = nesting
    found = [_gathered(item, values) for item in items]
    return found if kind == "list" else tuple(found)


def _distinct(names: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        while name in found:
            name += "_"
        found[name] = None
    return list(found)


def _names(name: str, nesting: tuple[str, tuple[Any, ...]] | None) -> Iterator[str]:
    if nesting is None:
        yield name
        return
    for number, item in enumerate(nesting[1]):
        yield from _names(f"{name}_{number}", item)


def _parameters(function: Callable[..., Any]) -> list[str]:
    """The names of the positional parameters; none for a builtin without a signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _plain(option: Any) -> Any:
    if isinstance(option, Nesting):
        return {"nesting": _plain(option.arguments)}
    if isinstance(option, tuple):
        return {"tuple": [_plain(item) for item in option]}
    if isinstance(option, list):
        return [_plain(item) for item in option]
    if isinstance(option, float):
        return {"float": option.hex()}
    return {"dtype": str(option).removeprefix("torch.")} if isinstance(option, torch.dtype) else option


_READERS: dict[str, Callable[[Any], Any]] = {
    "nesting": Nesting,
    "tuple": tuple,
    "float": float.fromhex,
    "dtype": lambda name: _dtype(name),
}


def _tagged(fields: dict[str, Any]) -> Any:
    ((tag, content),) = fields.items()
    if tag not in _READERS:
        raise ValueError(f"{tag!r:.80} names nothing that an option may be")
    return _READERS[tag](content)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch has no dtype {name!r:.80}")
    return found
