"""Names of torch dtypes as the graph carries them, the classes in which arithmetic is done, and their DSL types."""

from __future__ import annotations

from collections.abc import Iterable

import torch

FLOATS8 = ("float8_e5m2", "float8_e4m3fn")
"""Types of memory only: PyTorch converts from and to them, and computes in neither."""
HALVES = ("float16", "bfloat16")
FLOATS = (*FLOATS8, *HALVES, "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
INDEX = "index"
"""Of integers that are places along dimensions: a kernel has 32 or 64 bits for them, as its tensors are large."""
PROMOTION = ("bool", *INTEGERS, *FLOATS)
"""Every supported dtype, from the one that gives way in arithmetic to the one that prevails."""
ITEM_BYTES = {
    "float8_e5m2": 1, "float8_e4m3fn": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "int8": 1, "int16": 2, "int32": 4, "uint8": 1, "int64": 8, "bool": 1,
}  # fmt: skip
COMPUTE_TYPE = {
    "float8_e5m2": "Float32", "float8_e4m3fn": "Float32",
    "float16": "Float32", "bfloat16": "Float32", "float32": "Float32", "float64": "Float64",
    "int8": "Int32", "int16": "Int32", "int32": "Int32", "uint8": "Int32", "int64": "Int64", "bool": "Boolean",
    INDEX: "plan.index",
}  # fmt: skip
"""torch dtype name -> DSL type that arithmetic on it uses."""
COMPUTE_TYPES = ("Boolean", "Int32", "plan.index", "Int64", "Float32", "Float64")
"""In the order of promotion."""
STORAGE_TYPE = {
    "float8_e5m2": "Float8E5M2", "float8_e4m3fn": "Float8E4M3FN",
    "float16": "Float16", "bfloat16": "BFloat16", "float32": "Float32", "float64": "Float64",
    "int8": "Int8", "int16": "Int16", "int32": "Int32", "uint8": "Uint8", "int64": "Int64", "bool": "Uint8",
}  # fmt: skip
"""torch dtype name -> DSL type of its memory; bool travels as bytes."""


def stored_dtype(name: str) -> str:
    """The torch dtype that a kernel's tensor has: bool travels as bytes."""
    return "uint8" if name == "bool" else name


def stored_types(names: Iterable[str]) -> dict[str, str]:
    """The torch dtypes that tensors of these dtypes have as arguments of a kernel, each once with its DSL type."""
    return {stored_dtype(name): STORAGE_TYPE[name] for name in dict.fromkeys(names)}


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.bfloat16` → `"bfloat16"`."""
    return str(dtype).removeprefix("torch.")


def torch_dtype(name: str) -> torch.dtype:
    """`"bfloat16"` → `torch.bfloat16`."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), name
    return dtype


def is_float(name: str) -> bool:
    """Whether the dtype is one of the floating-point types."""
    return name in FLOATS


def compute_dtype(name: str) -> str:
    """The type arithmetic is done in: float32 for all floats but float64, the type itself for integers and bool."""
    return "float32" if name in FLOATS8 + HALVES else name


def same_class(first: str, second: str) -> bool:
    """Whether values of both types meet in arithmetic without a cast (floats other than float64 do)."""
    return compute_dtype(first) == compute_dtype(second)


def wrapped(value: int, name: str) -> int:
    """An integer as a tensor of this integer type holds it: -3 of uint8 is 253."""
    bits = 8 * ITEM_BYTES[name]
    value &= (1 << bits) - 1
    return value - (1 << bits) if name != "uint8" and value >> (bits - 1) else value


def widens(source: str, target: str) -> bool:
    """Whether a cast between floats of one class loses nothing, so that arithmetic may skip it."""
    narrow = source in FLOATS8 and target in HALVES  # both have the exponents and the digits of either
    return source == target or narrow or (source in FLOATS8 + HALVES and target == "float32")
