"""Drawing inputs that would be large at smaller sizes: within the mode, torch's factories get other numbers.

`get_inputs` of a large problem draws for seconds what is then cut to a few rows. Here `torch.randn(16384, 4096)` draws
64 × 4096 straight away. Whoever uses this compares the shapes that came out with those that were meant, as code that
computes with its own sizes may see the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_SHAPED = frozenset({torch.rand, torch.randn, torch.zeros, torch.ones, torch.empty, torch.randperm, torch.eye})
_COUNTED = frozenset({torch.arange, torch.randint})  # ends and bounds are sizes as well: positions, labels
_FILLED = frozenset({torch.full, torch.empty_strided})  # only the first argument is a shape
_METHODS = frozenset({torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_empty})
_SIZE_NAMES = ("size", "n", "end", "high")


class SmallerFactories(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Within it, factories see `sizes[n]` wherever a size is `n`."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self._sizes = sizes

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func in _SHAPED | _COUNTED:
            args = tuple(map(self._smaller, args))
        elif func in _FILLED:
            args = (*map(self._smaller, args[:1]), *args[1:])
        elif func in _METHODS:
            args = (args[0], *map(self._smaller, args[1:]))
        if func in _SHAPED | _COUNTED | _FILLED | _METHODS:
            named |= {name: self._smaller(named[name]) for name in _SIZE_NAMES if name in named}
        return func(*args, **named)

    def _smaller(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return (
                type(value)(map(self._smaller, value))
                if type(value) in (tuple, list)
                else tuple(map(self._smaller, value))
            )
        return self._sizes.get(value, value) if isinstance(value, int) and not isinstance(value, bool) else value
