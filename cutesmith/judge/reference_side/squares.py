"""Where the squares of inputs leave the range of float32, and PyTorch with them: no kernel is asked for more there.

PyTorch on a CPU does not say so of itself: of float32 its `std` adds in float64. So the reference is asked in float64
for inputs whose squares leave float64, where it has no wider type: `hypot` stays right there, `norm` does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cutesmith.errors import UnavailableError
from cutesmith.judge.reference_side.precision import WidenCasts, in_float64, widen
from cutesmith.judge.transfer.tensors import copy_of, finite

OF_FLOAT32 = (torch.float32, torch.bfloat16)  # PyTorch computes with float32 in both
ROOT = 2.0**63  # squares beyond it, and beyond its inverse, leave float32
FURTHER = 2.0**462  # to where squares leave float64: from 2^66 to 2^528, and from 2^-80 to 2^-542
FAR = 2.0**40  # from here on, and as close to zero, numbers are moved there


def beyond_squares(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """Of each float64 result, where PyTorch's algorithm does not survive a square out of range; None where it does.

    Such elements are infinite or NaN, or zero where the result is not, once the inputs leave float64 as well. All are
    where a function inside the reference overflows: another order of the same steps gives NaN there.
    """
    none: list[torch.Tensor | None] = [None] * len(exact)
    with torch._C.DisableTorchFunction():
        if not any(map(_is_far, values)):
            return none
        moved = [_moved(value) for value in values]
    inside = Overflows()
    try:
        if not any(map(_squares_leave, values)) and not _squares_leave_inside(function, values):
            return none
        returned = in_float64(function, moved, lambda: inside)
        results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        return [_lost(*pair, everywhere=inside.overflows) for pair in zip(results, exact, strict=True)]
    except UnavailableError:
        raise
    except Exception:  # noqa: BLE001 - it may refuse such numbers
        return none


def _is_far(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in OF_FLOAT32 and _leaves(value, FAR)


def _squares_leave(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in OF_FLOAT32 and _leaves(value, ROOT)


def _leaves(tensor: torch.Tensor, bound: float) -> bool:
    """Whether a number of it is beyond the bound, or closer to zero than its inverse."""
    size = tensor.abs()
    return bool((size.isfinite() & (size > bound) | (size > 0) & (size < 1 / bound)).any())


def _squares_leave_inside(function: Callable[..., Any], values: Sequence[Any]) -> bool:
    """Whether squares of numbers leave float32 that the function makes of these: of the sums of a convolution."""
    inside = Squares()
    in_float64(function, [copy_of(value) for value in values], lambda: inside)
    return inside.leave


class Squares(WidenCasts):
    """Within it, a result whose squares leave float32 is noted."""

    leave = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        with torch._C.DisableTorchFunction():
            if isinstance(result, torch.Tensor) and result.is_floating_point():
                self.leave |= _leaves(result, ROOT)
        return result


def _moved(value: Any) -> Any:
    """A copy, of a float tensor in float64 and with what is very large or very small out of reach of its squares."""
    wide = widen(copy_of(value))
    if not isinstance(value, torch.Tensor) or value.dtype not in OF_FLOAT32:
        return wide
    size = wide.abs()
    return torch.where(size > FAR, wide * FURTHER, torch.where(size < 1 / FAR, wide / FURTHER, wide))


class Overflows(WidenCasts):
    """Within it, a function that makes Inf or NaN of finite numbers is noted."""

    overflows = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        with torch._C.DisableTorchFunction():
            taken = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, (torch.Tensor, float))]
            if any(isinstance(value, torch.Tensor) for value in taken):
                self.overflows |= not _all_finite(result) and all(map(_all_finite, taken))
        return result


def _all_finite(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return not isinstance(value, float) or math.isfinite(value)
    return not value.is_floating_point() or bool(finite(value).all())


def _lost(moved: torch.Tensor, exact: torch.Tensor | None, *, everywhere: bool) -> torch.Tensor | None:
    if exact is None or not exact.is_floating_point() or moved.shape != exact.shape:
        return None
    if everywhere:
        return torch.ones_like(exact, dtype=torch.bool)
    lost = exact.isfinite() & (~moved.isfinite() | (moved == 0) & (exact != 0))
    return lost if bool(lost.any()) else None
