"""Pieces of `kernel_fn` that all templates share."""

from __future__ import annotations

from collections.abc import Sequence


def launcher_key(tensors: Sequence[str]) -> list[str]:
    """What tells calls apart that need kernels of their own: shapes, strides, dtypes and alignment of the inputs."""
    parts = [f"{name}.{part}" for name in tensors for part in ("shape", "stride()", "dtype")]
    pointers = " | ".join(f"{name}.data_ptr()" for name in tensors)
    return [*parts, f"({pointers}) & 15"]


def returned(codes: Sequence[str], *, as_tuple: bool) -> str:
    """The outputs as the function returns them."""
    return f"({', '.join(codes)}{',' if len(codes) == 1 else ''})" if as_tuple else codes[0]
