"""How far a result moves when its inputs are rounded to float32: no float32 kernel can be held to less.

Errors are judged by the magnitude of the results. Of few elements that depends on luck: a sum of 262144 normal numbers
is 512 in the mean and 0.4 once in a thousand draws, while its terms, and so its error, are as large as ever: 3e-5,
which is 6e-8 of 512 and 7e-5 of 0.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cutesmith.judge.reference_side.comparison import Tolerance
from cutesmith.judge.reference_side.precision import in_float64, widen
from cutesmith.judge.transfer.tensors import copy_of

FEW = 8  # elements; that more of them are all small by luck does not happen
HALF_UNIT = 2.0**-24  # the largest relative error of one rounding to float32
DRAWS = 4
WIDER = 8.0  # roundings so many times as large move a smooth result so many times as far
LEAST_WIDE = 16.0  # roundings that a few operations in float32 make
SMOOTH = WIDER / 2  # at least; where rounding decides (x == 1, floor(x)), it moves as far by either


def depends_on_luck(output: torch.Tensor, exact: torch.Tensor | None, tolerance: Tolerance) -> bool:
    """Whether the magnitude of an output says little of its terms; the tolerances of a user are the user's."""
    real = exact is not None and output.is_floating_point() and output.dtype != torch.float64
    return real and output.numel() <= FEW and tolerance.rms is not None


def movements(function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None]) -> list[float]:
    """Of each float64 result of `values`, the root mean square of its change: the largest of `DRAWS` roundings.

    0 where the result jumps rather than moves, and for a function that takes no such inputs.
    """
    moved = _moved(function, values, exact, WIDER)
    near, far = ([max(map(_root_mean_square, changes)) for changes in of_unit] for of_unit in moved)
    return [most if wide >= SMOOTH * most else 0.0 for most, wide in zip(near, far)]


def room_of(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None]
) -> list[torch.Tensor]:
    """How far each element of a float64 result moves with inputs that are off by as much as a float32 sum of them is.

    Flat, 0 where a row jumps rather than moves. Such as 1e-4 for a layer norm of a row of equal values, which is 0 in
    float64 and in no float32 arithmetic: a mean of n elements is off by some sqrt(n) roundings.
    """
    longest = max((max(value.shape, default=1) for value in values if isinstance(value, torch.Tensor)), default=1)
    wider, rooms = max(LEAST_WIDE, 2 * math.sqrt(longest)), []
    for near, far in zip(*_moved(function, values, exact, wider)):
        most, wide = (torch.stack(changes).amax(0) for changes in (near, far))
        if most.ndim >= 2 and most.numel():
            row, wide_row = (change.square().mean(-1, keepdim=True).sqrt() for change in (most, wide))
            wide = torch.where(wide_row >= wider / 2 * row, torch.maximum(wide, wide_row), 0.0)
        else:
            wide = torch.where(wide >= wider / 2 * most, wide, 0.0)
        rooms.append(wide.reshape(-1))
    return rooms


Changes = list[list[torch.Tensor]]  # of each result, one tensor a rounding


def _moved(
    function: Callable[..., Any], values: Sequence[Any], exact: Sequence[torch.Tensor | None], wider: float
) -> tuple[Changes, Changes]:
    """How far each element of the results moves by `DRAWS` roundings of the inputs, and by some `wider` times as large.

    0 of what is not a finite float in both, and everywhere for a function that takes no such inputs.
    """
    moved: dict[float, Changes] = {HALF_UNIT: [[] for _ in exact], wider * HALF_UNIT: [[] for _ in exact]}
    for _ in range(DRAWS):
        directions = [_direction(value) for value in values]
        for unit, changes in moved.items():
            copies = [copy_of(value) for value in values]
            rounded = [v if d is None else widen(v) * (1 + unit * d) for v, d in zip(copies, directions)]
            try:
                returned = in_float64(function, rounded)
                results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
                distances = [_distance(*pair) for pair in zip(results, exact, strict=True)]
            except Exception:  # noqa: BLE001 - it may refuse what is off by a rounding, such as shares that must sum to 1
                distances = [torch.zeros(() if e is None else e.shape, dtype=torch.float64) for e in exact]
            for known, distance in zip(changes, distances):
                known.append(distance)
    return moved[HALF_UNIT], moved[wider * HALF_UNIT]


def _direction(value: Any) -> torch.Tensor | None:
    """How far each element of a float tensor is rounded, from -2 to 0; None for anything else.

    Towards zero, so that a probability stays one: of more than 1, binary_cross_entropy ends the process on a GPU.
    """
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return None
    return -2 * torch.rand(value.shape, dtype=torch.float64, device=value.device)


def _distance(result: torch.Tensor, exact: torch.Tensor | None) -> torch.Tensor:
    if exact is None or not exact.is_floating_point() or not exact.numel():
        return torch.zeros(() if exact is None else exact.shape, dtype=torch.float64, device=result.device)
    distance = (result.double() - exact.double()).abs()
    return torch.where(distance.isfinite(), distance, 0.0)


def _root_mean_square(change: torch.Tensor) -> float:
    return float(change.square().mean().sqrt()) if change.numel() else 0.0
