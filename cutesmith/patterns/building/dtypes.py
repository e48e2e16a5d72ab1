"""Names of torch dtypes as the graph carries them, and the classes in which arithmetic is done."""

from __future__ import annotations

import torch

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
SUPPORTED = (*FLOATS, *INTEGERS, "bool")


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
    return "float32" if name in ("float16", "bfloat16") else name


def same_class(first: str, second: str) -> bool:
    """Whether values of both types meet in arithmetic without a cast (float16, bfloat16 and float32 do)."""
    return compute_dtype(first) == compute_dtype(second)


def widens(source: str, target: str) -> bool:
    """Whether a cast between floats of one class loses nothing, so that arithmetic may skip it."""
    return source == target or (source in ("float16", "bfloat16") and target == "float32")
