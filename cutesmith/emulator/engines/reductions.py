"""Reductions that the copy engine and `red.async` make in memory, element by element.

NaN and subnormals are as an H100 gives them: a NaN of f16, bf16 or f32 is the one with all bits set but the sign, one
of f64 keeps its bits, signalling ones too; `f32_ftz`, a type of tensor maps, flushes subnormal inputs and results.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cutesmith.emulator.program.abi import Array

_TYPES = {f"{letter}{bits}": np.dtype(f"{code}{bits // 8}") for letter, code in (("u", "u"), ("s", "i"), ("b", "u"))
          for bits in (32, 64)} | {"f16": np.dtype("f2"), "f32": np.dtype("f4"), "f64": np.dtype("f8")}  # fmt: skip
_NANS = {"f16": 0x7FFF, "f32": 0x7FFF_FFFF}
_ALLOWED = {
    "add": "u32 s32 u64 f16 bf16 f32 f32_ftz f64",
    "min": "u32 s32 u64 s64 f16 bf16",
    "max": "u32 s32 u64 s64 f16 bf16",
    "inc": "u32",
    "dec": "u32",
    "and": "b32 b64 u32 s32 u64 s64",
    "or": "b32 b64 u32 s32 u64 s64",
    "xor": "b32 b64 u32 s32 u64 s64",
}
_BITWISE: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def can_reduce(operation: str, kind: str) -> bool:
    """Whether PTX has the reduction for elements of that type."""
    return kind in _ALLOWED.get(operation, "").split()


def reduced(held: Array, given: Array, operation: str, kind: str) -> Array:
    """Bytes of both (uint8) as elements of `kind`, combined; floats are rounded to nearest, ties to even."""
    if kind == "bf16":
        wide = [values.view(np.uint16).astype(np.uint32) << 16 for values in (held, given)]
        return _to_bf16(_combined(operation, *(values.view(np.float32) for values in wide))).view(np.uint8)
    if kind == "f32_ftz":
        return _flushed(reduced(_flushed(held), _flushed(given), operation, "f32"))
    dtype = _TYPES[kind]
    before, value = held.view(dtype), given.view(dtype)
    total = np.ascontiguousarray(_combined(operation, before, value))
    if kind in _NANS:
        total.view(f"u{dtype.itemsize}")[np.isnan(total)] = _NANS[kind]
    elif kind == "f64":
        for values in (value, before):  # the bits of what was in memory count more
            np.copyto(total.view(np.uint64), values.view(np.uint64), where=np.isnan(values))
    return total.view(np.uint8)


def _combined(operation: str, held: Array, given: Array) -> Array:
    if operation in _BITWISE:
        return _BITWISE[operation](held, given)
    if operation == "add":
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(held + given)
    if operation == "inc":
        return np.where(held >= given, 0, held + 1).astype(held.dtype)
    if operation == "dec":
        return np.where((held == 0) | (held > given), given, held - 1).astype(held.dtype)
    floats = held.dtype.kind == "f"  # the number where one of the two is NaN
    smaller = np.fmin if floats else np.minimum
    larger = np.fmax if floats else np.maximum
    return np.asarray((smaller if operation == "min" else larger)(held, given))


def _flushed(data: Array) -> Array:
    """Bytes of float32, subnormals as zeros of their sign."""
    bits = data.view(np.uint32)
    return np.where(bits & 0x7F80_0000, bits, bits & 0x8000_0000).astype(np.uint32).view(np.uint8)


def _to_bf16(values: Array) -> Array:
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)
