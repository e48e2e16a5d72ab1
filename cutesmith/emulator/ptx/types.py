"""Sizes of PTX types."""

from __future__ import annotations

import re
from functools import cache

_NUMBERED = re.compile(r"(?:b|u|s|f|bf)(\d+)(?:x(\d))?")
_BITS = {"pred": 1, "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16, "tf32": 32}


@cache
def bits_of(type_name: str) -> int:
    """Bits of a value of that type: 32 for "b32" and "f16x2", 1 for "pred"; 0 for any other word."""
    if type_name in _BITS:
        return _BITS[type_name]
    match = _NUMBERED.fullmatch(type_name)
    return int(match[1]) * int(match[2] or 1) if match else 0


@cache
def bytes_of(type_name: str) -> int:
    """Bytes of a variable of that type in memory; 0 for what has no place there, such as "pred"."""
    return bits_of(type_name) // 8
