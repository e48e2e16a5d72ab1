"""JSON objects back into the typed records that they were written from."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def read_record(kind: type[Record], fields: Mapping[str, Any]) -> Record:
    """The dataclass that `strict_json` or `to_dict` made this object from; fields that it does not know are left out.

    A text without default that is missing is empty: the JSON of an error of the command line has no `path`.
    Raises TypeError where another field without default is missing.
    """
    hints = _hints(kind)  # type: ignore[arg-type]
    values = {name: _value(hint, fields[name]) for name, hint in hints.items() if name in fields}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and hints[field.name] is str:
            values.setdefault(field.name, "")
    return kind(**values)


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """The types of a dataclass's fields."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _value(hint: Any, value: Any) -> Any:
    """A value of the hinted type; None stays None, as NaN is written as null."""
    origin, arguments = get_origin(hint), get_args(hint)
    if value is None:
        return None
    if origin in (Union, types.UnionType):
        return _value(next(one for one in arguments if one is not type(None)), value)
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_value(arguments[0], item) for item in value)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return read_record(hint, value)  # type: ignore[arg-type]
    return hint(value) if isinstance(hint, enum.EnumMeta) else value
