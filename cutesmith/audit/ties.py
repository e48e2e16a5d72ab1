"""References whose result depends on the order of equal values where PyTorch promises none: topk, an unstable sort.

The reference runs once more while each of these operations gives another answer that its documentation allows: what it
gives on the reversed input. Where the result then differs, no kernel can know which one is meant. `argmax`, `max` and a
stable sort take the first of equal values, and are left alone.
"""

from __future__ import annotations

from typing import Any

import torch

from cutesmith.judge.reference_side.cases import Values
from cutesmith.sandbox.dispatch_modes import LightMode

_ATEN = torch.ops.aten
_DIM = {  # operation -> position of its dimension among the arguments
    _ATEN.topk.default: 2,
    _ATEN.sort.default: 1,
    _ATEN.sort.stable: 1,
    _ATEN.kthvalue.default: 2,
    _ATEN.median.dim: 1,
    _ATEN.nanmedian.dim: 1,
    _ATEN.mode.default: 1,
}
_LEVELS = 4.0  # of a coarse draw, on either side of zero


class OtherTies(LightMode):
    """Within it, equal values come in the other order; `operations` names those that then gave other positions."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.operations: set[str] = set()

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation's result, with equal values in the other order where it orders them."""
        given = func(*args, **kwargs)
        if func not in _DIM or kwargs.get("stable") is True or not args[0].dim():
            return given
        place = _DIM[func]
        dim = kwargs.get("dim", args[place] if len(args) > place else -1)
        values, positions = func(args[0].flip(dim), *args[1:], **kwargs)
        positions = args[0].shape[dim] - 1 - positions
        if not torch.equal(positions, given[1]):
            self.operations.add(str(func).split(".")[1])
        return values, positions


def with_many_ties(values: Values) -> list[Values]:
    """The inputs with few different values, and with NaN alone: ties that a judge's inputs may hold."""
    floats = [isinstance(value, torch.Tensor) and value.is_floating_point() for value in values]
    nans = [torch.full_like(value, torch.nan) if takes_nan else value for value, takes_nan in zip(values, floats)]
    return [[_coarse(value) for value in values], nans]


def _coarse(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return value
    wide = value.double()
    step = wide.abs().nan_to_num(0.0, 0.0, 0.0).max().clamp_min(1e-30) / _LEVELS
    return ((wide / step).round() * step).to(value.dtype)
