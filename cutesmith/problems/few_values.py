"""Inputs whose large tensors have no values, for code that reads a value of a small one while it draws them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device as torch_device
from torch.utils._pytree import tree_leaves, tree_map_only

MOST_VALUES = 4096
"""Elements of a tensor that has values."""


class FewValues(TorchFunctionMode):
    """Within it, new tensors of more elements than MOST_VALUES are on "meta", and so is what is computed of them.

    The others are on the CPU. What needs the values of a large one raises as PyTorch does; RuntimeError where the code
    seeds what it draws by: fewer numbers are drawn here, and those that follow would be others.
    """

    def __enter__(self) -> FewValues:
        self._state, self._seed = torch.get_rng_state(), torch.seed()
        return super().__enter__()  # type: ignore[no-any-return,no-untyped-call,unused-ignore]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call,unused-ignore]
        seed = torch.initial_seed()
        torch.set_rng_state(self._state)
        if error[0] is None and seed != self._seed:
            raise RuntimeError("the code seeds what it draws by")

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if named.get("generator") is not None:
            raise RuntimeError("the code draws by a generator of its own")
        tensors = [each for each in tree_leaves((args, named)) if isinstance(each, torch.Tensor)]
        with torch._C.DisableTorchFunction():  # else a tensor that poses as one on CUDA says so
            if any(each.is_meta for each in tensors):
                args, named = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (args, named))
        if not tensors and func in _makers():
            without = func(*args, **{**named, "device": "meta"})
            return without if without.numel() > MOST_VALUES else func(*args, **{**named, "device": "cpu"})
        return func(*args, **named)


@cache
def _makers() -> frozenset[Any]:
    return frozenset({torch.normal, *torch_device._device_constructors()})
