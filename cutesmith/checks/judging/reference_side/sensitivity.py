"""How far a result moves when its inputs are rounded to float32: no float32 kernel can be held to less.

Errors are judged by the magnitude of the results. Of few elements that hangs on luck: a sum of 262144 normal numbers
is 512 in the mean and 0.4 once in a thousand draws, while its terms, and so its error, are as large as ever: 3e-5,
which is 6e-8 of 512 and 7e-5 of 0.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cutesmith.checks.judging.reference_side.comparison import Tolerance
from cutesmith.checks.judging.reference_side.precision import in_float64, widen
from cutesmith.checks.judging.tensors import copy_of

FEW = 8  # elements; that more of them are all small by luck does not happen
HALF_UNIT = 2.0**-24  # the largest relative error of one rounding to float32
DRAWS = 4


def hangs_on_luck(output: torch.Tensor, exact: torch.Tensor | None, tolerance: Tolerance) -> bool:
    """Whether the magnitude of an output says little of its terms; the tolerances of a user are the user's."""
    real = exact is not None and output.is_floating_point() and output.dtype != torch.float64
    return real and output.numel() <= FEW and tolerance.rms is not None


def movements(function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None]) -> list[float]:
    """Of each float64 result of `values`, the root mean square of its change: the largest of `DRAWS` roundings."""
    found = [0.0] * len(exact)
    for _ in range(DRAWS):
        returned = in_float64(function, [_rounded(value) for value in values])
        results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        found = [max(most, _distance(*pair)) for most, *pair in zip(found, results, exact, strict=True)]
    return found


def _rounded(value: Any) -> Any:
    """A float tensor in float64, every element off by up to what rounding it to float32 may do; else the same."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    wide = widen(copy_of(value))
    return wide * (1 + HALF_UNIT * (2 * torch.rand_like(wide) - 1))


def _distance(result: torch.Tensor, exact: torch.Tensor | None) -> float:
    if exact is None or not exact.is_floating_point() or not exact.numel():
        return 0.0
    distance = float((result.double() - exact.double()).square().mean().sqrt())
    return distance if distance < float("inf") else 0.0  # False for NaN
