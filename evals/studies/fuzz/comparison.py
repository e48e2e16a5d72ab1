"""Results of a function on random inputs compared with PyTorch's own and with float64's, in which casts are wide, too.

An element may be off by the rounding of the coarsest dtype on the way, by some times what PyTorch is off, and by some
times what a change of the inputs in their last digits makes. An element where those differ in kind (a NaN, another
integer) is not decided: PyTorch's CPU and GPU differ there, too. PyTorch's attention on a GPU rounds the weights of
16-bit inputs to their type, and its CPU does not: what that makes is one of those changes. Results that have elements
further off are judged as `verify` judges derived inputs: there each rounding on the way may tip a step or a
cancellation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from cutesmith.judge.reference_side.allowances import compared
from cutesmith.judge.reference_side.precision import WidenCasts, in_float64
from cutesmith.judge.reference_side.tolerance import tolerance_for

EPSILON = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 4e-6, torch.float64: 1e-13}
NUDGE = {torch.bfloat16: 2.0**-16, torch.float16: 2.0**-16, torch.float32: 2.0**-21, torch.float64: 2.0**-48}


def differences(
    function: Callable[..., Any], inputs: Sequence[Any], found: Sequence[torch.Tensor], coarsest: torch.dtype
) -> str:
    """What is wrong with these results of the function, "" for nothing; `coarsest` is of the dtypes on the way."""
    with sdpa_kernel(SDPBackend.MATH):  # the CPU's own attention makes 0 of a query of NaN
        own, exact = _computed(function, inputs)
        nudged = [listed(in_float64(function, [_nudged(value, sign) for value in inputs])) for sign in (1, -1, 0)]
        if coarsest in (torch.bfloat16, torch.float16):
            for share in (
                1.0,
                0.9,
                0.8,
                0.7,
                0.6,
            ):  # kernels that take the keys in turn divide by other numbers on the way
                nudged.append(listed(in_float64(function, inputs, partial(RoundedWeights, coarsest, share))))
    if len(own) != len(found):
        return f"{len(found)} results, {len(own)} expected"
    for place, (ours, theirs) in enumerate(zip(found, own, strict=True)):
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return f"shape: {ours.dtype}{list(ours.shape)} for {theirs.dtype}{list(theirs.shape)}"
        wrong = _wrong(ours, theirs, exact[place], [each[place] for each in nudged], EPSILON[coarsest])
        if wrong.any() and not _passes(function, inputs, (found, own, exact)):
            at = int(wrong.flatten().nonzero()[0])
            values = " ".join(f"{float(t.flatten()[at]):.9g}" for t in (ours, theirs, exact[place]))
            return (
                f"value: {int(wrong.sum())} of {ours.numel()} {theirs.dtype}, such as {values} (ours, PyTorch, exact)"
            )
    return ""


class RoundedWeights(WidenCasts):
    """Within it, attention multiplies values with weights that are rounded to a 16-bit type.

    Their largest is `share` before, as the exponential is of a score less than the largest so far.
    """

    def __init__(self, dtype: torch.dtype, share: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.dtype, self.share = dtype, share

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return super().__torch_function__(func, types, args, kwargs)
        query, key, value = args
        one_by_one = torch.eye(key.shape[-2], dtype=torch.float64).expand(*key.shape[:-1], key.shape[-2])
        weights = func(query, key, one_by_one, **(kwargs or {}))
        largest = weights.amax(-1, keepdim=True) / self.share
        largest = torch.where(largest == 0, 1.0, largest)  # where a mask leaves no key
        if value.dim() > 2 and value.shape[-3] < weights.shape[-3]:
            value = value.repeat_interleave(weights.shape[-3] // value.shape[-3], -3)
        return (weights / largest).to(self.dtype).double() @ value * largest


def _computed(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[Any]]:
    return listed(function(*inputs)), listed(in_float64(function, inputs))


def _passes(function: Callable[..., Any], inputs: Sequence[torch.Tensor], sides: tuple[list[Any], ...]) -> bool:
    """Whether `verify` takes results, of these inputs as derived ones: (ours, PyTorch's, the float64 ones)."""
    stated = [replace(tolerance_for(own.dtype, None, None), derived=True) for own in sides[1]]

    def compute(values: list[Any]) -> tuple[list[torch.Tensor], list[Any]]:
        return _computed(function, values)

    with sdpa_kernel(SDPBackend.MATH):
        results = compared(function, compute, list(inputs), sides, stated, strict=False)
    return not any(result.violation for result in results)


def listed(result: Any) -> list[torch.Tensor]:
    """The results of a function, one or several."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _wrong(
    ours: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, nudged: Sequence[torch.Tensor], epsilon: float
) -> torch.Tensor:
    """A mask of the elements that are decided and off; `epsilon` is of the coarsest type on the way."""
    floating = own.is_floating_point()
    epsilon = max(epsilon, EPSILON[own.dtype]) if floating else epsilon
    ours, own, exact = (value.double() for value in (ours, own, exact))
    slack, decided = torch.zeros_like(exact), torch.ones_like(exact, dtype=torch.bool)
    for other in (own, *(value.double() for value in nudged)):
        decided &= _same_kind(exact, other)
        slack = torch.maximum(slack, (other - exact).abs().nan_to_num())
    if not floating:
        return decided & (slack == 0) & (ours != exact)
    size = 1 + exact.abs().nan_to_num(posinf=0, neginf=0)
    near = _same_kind(exact, ours) & (
        (ours == exact) | exact.isnan() | ((ours - exact).abs() <= 4 * epsilon * size + 8 * slack)
    )
    return decided & ~near & (slack <= 0.05 * size)


def _same_kind(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Where both are finite, both NaN, or the same infinity."""
    infinite = first.isinf() | second.isinf()
    return (first.isnan() == second.isnan()) & (~infinite | (first == second))


def _nudged(value: Any, sign: int) -> Any:
    """The same numbers but for their last digits, in float64; `sign` 0: up and down by turns."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    signs = torch.randint(0, 2, value.shape).double() * 2 - 1 if sign == 0 else torch.full(value.shape, float(sign))
    return value.double() * (1 + signs * NUDGE[value.dtype])
