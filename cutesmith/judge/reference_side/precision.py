"""The same PyTorch function in float64: its inputs widened, and every cast inside it to a float type with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cutesmith.judge.transfer.device_memory import wide_copies

_NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})
_CASTS = frozenset({torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16})


class WidenCasts(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Within it, a cast or creation that asks for a narrower float type gives float64."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = {name: _widen(value) for name, value in (kwargs or {}).items()}
        if func in _CASTS:
            return args[0].double()
        if func is torch._scaled_mm and named.get("scale_result") is None:
            return _scaled_sums(*args, **named)
        if func is torch._grouped_mm:  # PyTorch's takes no float64
            return _grouped_sums(*args, **named)
        return func(*(_widen(value) for value in args), **named)


def _scaled_sums(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor:
    """`torch._scaled_mm` as a GPU computes it: PyTorch's CPU kernel scales the factors, where Inf times 0 is NaN."""
    total = a @ b * scale_a * scale_b
    return total if bias is None else total + bias


def _grouped_sums(
    a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None = None, bias: torch.Tensor | None = None, **_: Any
) -> torch.Tensor:
    """`torch._grouped_mm`, group by group. Rows or columns behind the last have any value in PyTorch's."""
    if offs is None:
        total = a @ b
    else:
        ends = offs.tolist()
        spans = [slice(begin, end) for begin, end in zip([0, *ends], ends)]
        if a.dim() == 2 and b.dim() == 2:
            total = torch.stack([a[:, span] @ b[span] for span in spans])
        elif a.dim() == 2:
            total = torch.cat([*(a[span] @ matrix for span, matrix in zip(spans, b)), a[ends[-1] :] @ b[-1]])
        else:
            total = torch.cat([*(matrix @ b[:, span] for span, matrix in zip(spans, a)), a[-1] @ b[:, ends[-1] :]], -1)
    return total if bias is None else total + bias


def _widen(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value


def widen(value: Any) -> Any:
    """A float tensor as float64 with its strides; anything else as it is."""
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def in_float64(
    function: Callable[..., Any], inputs: Sequence[Any], casts: Callable[[], TorchFunctionMode] = WidenCasts
) -> Any:
    """`function` of the widened inputs; raises what it raises (some operations have no float64 form).

    UnavailableError where other processes hold the GPU's memory: no one may go on as if there were no float64 form.

    `casts` is what its calls of torch's functions go through.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with wide_copies(), torch.no_grad(), casts():
            return function(*map(widen, inputs))
    finally:
        torch.set_default_dtype(default)
