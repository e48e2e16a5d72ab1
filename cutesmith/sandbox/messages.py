"""Typed messages between processes: frozen dataclasses on both sides, JSON only at the pipe.

A request is a frozen dataclass that names the type of its reply: `class Draw(Request[Drawn])`. Fields are str, int,
float, bool, bytes, Path, enums, dataclasses, tuples, `dict[str, T]` and unions of these; `object` stands for any plain
JSON value. A class travels by its name where the type leaves a choice. What arrives is checked against the declared
type: a process that runs a candidate may send anything.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import importlib
import math
import re
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

R = TypeVar("R")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Request(Generic[R]):
    """What a worker may be asked; a frozen dataclass that derives from this is answered by an `R`."""


class Handler(Protocol):
    """The object in a worker that answers its requests."""

    def handle(self, request: Any) -> Any:
        """The reply, of the type that the request's class declares."""


HandlerMaker = Callable[[], Handler]
Entry = Callable[[], HandlerMaker]
"""A top-level function that imports what a worker needs and returns the class of its handler.

The worker calls both; the fork server calls the function alone, so that the workers find everything imported.
"""


class MalformedError(ValueError):
    """A message that does not have its declared form."""


def phase_of(request: Request[Any]) -> str:
    """The name of a request's kind in a verdict's phases, such as "warm_up" for `WarmUp`."""
    return re.sub(r"(?<=.)([A-Z])", r"_\1", type(request).__name__).lower()


def reply_type(kind: Any) -> Any:
    """The type of the reply to requests of this class."""
    bases = [base for cls in kind.__mro__ for base in vars(cls).get("__orig_bases__", ())]
    (reply,) = next(typing.get_args(base) for base in bases if typing.get_origin(base) is Request)
    return reply


def name_of(kind: Any) -> str:
    """`module:name` of a top-level function or class, by which another process imports it; raises TypeError."""
    module, name = kind.__module__, kind.__qualname__
    if getattr(sys.modules[module], name, None) is not kind or module == "__main__":
        raise TypeError(f"{module}.{name} cannot be imported by another process: define it at the top of a module")
    return f"{module}:{name}"


def imported(name: str) -> Any:
    """What `name_of` named."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def encode(value: Any, kind: Any) -> Any:
    """Plain JSON data of a value of a declared type; raises MalformedError for a value of another type."""
    if kind is object:
        return _plain(value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _encode_choice(value, arguments)
    if origin is tuple and isinstance(value, tuple):
        return [encode(item, part) for item, part in _pairs(value, arguments)]
    if origin is dict and isinstance(value, dict):
        return {_exact(key, str): encode(item, arguments[1]) for key, item in value.items()}
    if _is_class(kind) and type(value) is kind:
        return {name: encode(getattr(value, name), part) for name, part in _fields(kind).items()}
    if isinstance(kind, enum.EnumMeta) and isinstance(value, kind):
        return value.value
    if kind is bytes and isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if kind is Path and isinstance(value, Path):
        return str(value)
    if kind is float and isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return _exact(value, kind)


def decode(data: Any, kind: Any) -> Any:
    """The value of a declared type that plain JSON data stands for; raises MalformedError."""
    if kind is object:
        return data
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_choice(data, arguments)
    if origin is tuple and isinstance(data, list):
        return tuple(decode(item, part) for item, part in _pairs(data, arguments))
    if origin is dict and isinstance(data, dict):
        return {key: decode(item, arguments[1]) for key, item in data.items()}
    if _is_class(kind) and isinstance(data, dict):
        fields = _fields(kind)
        if data.keys() != fields.keys():
            raise MalformedError(f"{kind.__name__} has not the fields {sorted(data)}")
        return kind(**{name: decode(data[name], part) for name, part in fields.items()})
    try:
        if isinstance(kind, enum.EnumMeta):
            return kind(data)
        if kind is bytes:
            return base64.b64decode(_exact(data, str), validate=True)
    except ValueError as error:
        raise MalformedError(str(error)) from error
    if kind is Path:
        return Path(_exact(data, str))
    if kind is float and isinstance(data, str) and data in _NOT_FINITE:
        return _NOT_FINITE[data]
    return _exact(data, kind)


_type_hints: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)


def _is_class(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _fields(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    known = _type_hints(kind)
    return {field.name: known[field.name] for field in dataclasses.fields(kind)}


def _pairs(items: Any, arguments: tuple[Any, ...]) -> Any:
    """Items of a tuple with their types, for `tuple[T, ...]` and `tuple[A, B]`."""
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return [(item, arguments[0]) for item in items]
    if len(items) != len(arguments):
        raise MalformedError(f"{len(items)} items instead of {len(arguments)}")
    return zip(items, arguments)


def _encode_choice(value: Any, choices: tuple[Any, ...]) -> Any:
    if type(value) in choices and _is_class(type(value)):
        return {type(value).__name__: encode(value, type(value))}
    return _first(encode, value, choices)


def _decode_choice(data: Any, choices: tuple[Any, ...]) -> Any:
    if isinstance(data, str) and str in choices:  # "nan" is a float only where it can be no text
        return data
    named = {choice.__name__: choice for choice in choices if _is_class(choice)}
    if isinstance(data, dict) and len(data) == 1 and (choice := named.get(next(iter(data)))):
        return decode(data[choice.__name__], choice)
    return _first(decode, data, choices)


def _first(translate: Callable[[Any, Any], Any], value: Any, choices: tuple[Any, ...]) -> Any:
    """The translation by the first type that fits and is not a dataclass."""
    for choice in choices:
        if not _is_class(choice):
            try:
                return translate(value, choice)
            except MalformedError:
                continue
    raise MalformedError(f"{type(value).__name__} is not one of {choices}")


def _exact(value: Any, kind: Any) -> Any:
    """A value of a basic type; an int is a float too, but a bool is not a number."""
    wanted = (int, float) if kind is float else kind
    if kind not in (str, int, float, bool, type(None)) or not isinstance(value, wanted):
        raise MalformedError(f"{type(value).__name__} instead of {getattr(kind, '__name__', kind)}")
    if isinstance(value, bool) and kind is not bool:
        raise MalformedError("a bool instead of a number")
    return value


def _plain(value: Any) -> Any:
    """Any JSON value: tuples become lists, numbers that are not finite null."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_exact(key, str): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise MalformedError(f"{type(value).__name__} is not a JSON value")
