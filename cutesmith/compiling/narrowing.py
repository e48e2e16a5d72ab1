"""Instructions of PTX that compute with fewer bits than their operands had: conversions, matrix products, tanh (O9).

Bits are those of the significand, the hidden one included. Conversions of values that are in the narrow type on purpose
(outputs, quantised operands) look the same: `unexplained` leaves out what the types of a problem account for. Not seen:
a bfloat16 that is cut out of a float32 by a mask or a shift, and 8-bit integers made without matrix products.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_FLOATS = ("f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
SIGNIFICANDS = dict(zip(_FLOATS, (53, 24, 11, 11, 8, 4, 3, 4, 3, 2), strict=True))
DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e4m3fnuz": "e4m3",
    "float8_e5m2": "e5m2",
    "float8_e5m2fnuz": "e5m2",
    "float4_e2m1fn_x2": "e2m1",
    "complex64": "f32",
    "complex128": "f64",
}
"""PTX's name of torch's types."""
_OPCODE = re.compile(r"^\s*(?:@!?%\w+\s+)?\{?\s*([a-z][\w.:]*)\s", re.MULTILINE)
_INTEGERS = frozenset(("s8", "u8", "s4", "u4", "b1"))
_KINDS = {"kind::tf32": "tf32", "kind::f16": "f16", "kind::f8f6f4": "e4m3", "kind::mxf8f6f4": "e4m3", "kind::i8": "s8"}
_FOUR_BITS = ("kind::mxf4", "kind::mxf4nvf4")


@dataclass(frozen=True)
class Compiled:
    """How often each full opcode stands in what was compiled, and the line where it does first, where that is known."""

    counts: dict[str, int]
    lines: dict[str, str]


def opcodes_in(ptx: str) -> list[str]:
    """Every full opcode of PTX text, in its order."""
    return _OPCODE.findall(ptx)


def narrow_instructions(opcodes: Iterable[str]) -> dict[str, str]:
    """What each narrowing full opcode computes in, such as {"cvt.rn.f16.f32": "f16"}, in their order."""
    found = ((opcode, _narrow(opcode.split("."))) for opcode in opcodes)
    return {opcode: kind for opcode, kind in found if kind}


def _narrow(words: list[str]) -> str:
    """The narrow type of one instruction; empty where there is none."""
    if words[0] == "cvt" and len(words) > 2:
        to, of = (word.removesuffix("x2").removesuffix("x4") for word in words[-2:])
        return to if SIGNIFICANDS.get(to, 99) < SIGNIFICANDS.get(of, 0) else ""
    if words[:2] == ["tcgen05", "mma"]:
        named = next((word for word in words if word.startswith("kind::")), "")
        return "e2m1" if named.startswith(_FOUR_BITS) else _KINDS.get(named, "")
    if words[0] in ("mma", "wgmma") and len(words) > 4:
        types = [word for word in words if word in SIGNIFICANDS or word in _INTEGERS]
        return types[1] if len(types) > 1 else ""
    # Functions whose result has no more bits than float16 or bfloat16.
    if words[0] == "tanh" and words[-1] == "f32":
        return "f16"
    kind = words[-1].removesuffix("x2")
    return kind if words[0] in ("tanh", "ex2") and kind in ("f16", "bf16") else ""


def least_significand(dtypes: Iterable[str]) -> int:
    """Bits of the narrowest floating-point type among torch's names; 0 where there is none."""
    return min((SIGNIFICANDS[DTYPES[name]] for name in dtypes if name in DTYPES), default=0)


def unexplained(narrow: Mapping[str, str], dtypes: Iterable[str]) -> dict[str, str]:
    """Those of `narrow` that compute in less than the narrowest of a problem's types (torch's names).

    A problem without floating-point types explains everything; matrix products of integers need integers.
    """
    names = set(dtypes)
    least = least_significand(names)
    integers = any(name.startswith(("int", "uint")) for name in names)
    return {
        opcode: kind
        for opcode, kind in narrow.items()
        if least and (not integers if kind in _INTEGERS else SIGNIFICANDS[kind] < least)
    }


def described(narrow: Mapping[str, str], compiled: Compiled) -> str:
    """Such as "f16 (4 x cvt.rn.f16.f32, first at kernel.py:27)"."""
    parts: dict[str, list[str]] = {}
    for opcode, kind in narrow.items():
        first = f", first at {compiled.lines[opcode]}" if compiled.lines.get(opcode) else ""
        parts.setdefault(kind, []).append(f"{compiled.counts[opcode]} x {opcode}{first}")
    return ", ".join(f"{kind} ({', '.join(told[:3])})" for kind, told in parts.items())
