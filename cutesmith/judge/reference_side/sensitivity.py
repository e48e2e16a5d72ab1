"""How far a result moves when its inputs are rounded to float32: no float32 kernel can be held to less.

Errors are judged by the magnitude of the results. Of few elements that depends on luck: a sum of 262144 normal numbers
is 512 in the mean and 0.4 once in a thousand draws, while its terms, and so its error, are as large as ever: 3e-5,
which is 6e-8 of 512 and 7e-5 of 0.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from cutesmith.judge.reference_side.comparison import Tolerance
from cutesmith.judge.reference_side.precision import in_float64, widen
from cutesmith.judge.transfer.tensors import copy_of

FEW = 8  # elements; that more of them are all small by luck does not happen
HALF_UNIT = 2.0**-24  # the largest relative error of one rounding to float32
DRAWS = 4
WIDER = 8.0  # roundings so many times as large move a smooth result so many times as far
SMOOTH = WIDER / 2  # at least; where rounding decides (x == 1, floor(x)), it moves as far by either


def depends_on_luck(output: torch.Tensor, exact: torch.Tensor | None, tolerance: Tolerance) -> bool:
    """Whether the magnitude of an output says little of its terms; the tolerances of a user are the user's."""
    real = exact is not None and output.is_floating_point() and output.dtype != torch.float64
    return real and output.numel() <= FEW and tolerance.rms is not None


def movements(function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None]) -> list[float]:
    """Of each float64 result of `values`, the root mean square of its change: the largest of `DRAWS` roundings.

    0 where the result jumps rather than moves, and for a function that takes no such inputs.
    """

    def moved(directions: Sequence[torch.Tensor | None], unit: float) -> Iterator[float]:
        copies = [copy_of(value) for value in values]
        rounded = [v if d is None else widen(v) * (1 + unit * d) for v, d in zip(copies, directions)]
        returned = in_float64(function, rounded)
        results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        return (_distance(*pair) for pair in zip(results, exact, strict=True))

    near, far = [0.0] * len(exact), [0.0] * len(exact)
    for _ in range(DRAWS):
        directions = [_direction(value) for value in values]
        try:
            near = [max(pair) for pair in zip(near, moved(directions, HALF_UNIT), strict=True)]
            far = [max(pair) for pair in zip(far, moved(directions, WIDER * HALF_UNIT), strict=True)]
        except Exception:  # noqa: BLE001 - it may refuse what is off by a rounding, such as shares that must sum to 1
            return [0.0] * len(exact)
    return [most if wide >= SMOOTH * most else 0.0 for most, wide in zip(near, far)]


def _direction(value: Any) -> torch.Tensor | None:
    """How far each element of a float tensor is rounded, from -1 to 1; None for anything else."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return None
    return 2 * torch.rand(value.shape, dtype=torch.float64, device=value.device) - 1


def _distance(result: torch.Tensor, exact: torch.Tensor | None) -> float:
    if exact is None or not exact.is_floating_point() or not exact.numel():
        return 0.0
    distance = float((result.double() - exact.double()).square().mean().sqrt())
    return distance if distance < float("inf") else 0.0  # False for NaN
